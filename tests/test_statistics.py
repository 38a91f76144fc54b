"""Wilson intervals and exact McNemar tests against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plansmith.evaluation.statistics import paired_test, wilson_interval

Z = 1.959963984540054  # the 97.5% quantile of the normal distribution


def pairs(both: int, only_before: int, only_after: int, neither: int) -> tuple[list[bool], list[bool]]:
    before = [True] * both + [True] * only_before + [False] * only_after + [False] * neither
    after = [True] * both + [False] * only_before + [True] * only_after + [False] * neither
    return before, after


def test_wilson_interval_nothing_solved_starts_at_exactly_zero() -> None:
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(Z**2 / (10 + Z**2))  # 3.8415 / 13.8415
    assert high == pytest.approx(0.27753, abs=5e-6)


def test_wilson_interval_everything_solved_ends_at_exactly_one() -> None:
    low, high = wilson_interval(10, 10)
    assert low == pytest.approx(10 / (10 + Z**2))
    assert low == pytest.approx(0.72247, abs=5e-6)
    assert high == 1.0


def test_wilson_interval_81_of_100_matches_the_formula() -> None:
    centre = (0.81 + Z**2 / 200) / (1 + Z**2 / 100)
    half = Z * math.sqrt(0.81 * 0.19 / 100 + Z**2 / 40_000) / (1 + Z**2 / 100)
    assert wilson_interval(81, 100) == pytest.approx((centre - half, centre + half))
    assert wilson_interval(81, 100) == pytest.approx((0.72221, 0.87485), abs=5e-6)


def test_wilson_interval_higher_confidence_is_wider() -> None:
    low95, high95 = wilson_interval(5, 10)
    low99, high99 = wilson_interval(5, 10, confidence=0.99)
    assert low99 < low95 < 0.5 < high95 < high99


def test_wilson_interval_gives_plain_floats_that_json_can_write() -> None:
    assert [type(bound) for bound in wilson_interval(3, 7)] == [float, float]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_any_share_lies_inside_and_mirrors(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(
    ("successes", "n", "confidence"),
    [(0, 0, 0.95), (-1, 10, 0.95), (11, 10, 0.95), (5, 10, 1.0), (5, 10, float("nan"))],
    ids=["no-trials", "negative", "more-than-n", "certainty", "nan"],
)
def test_wilson_interval_impossible_input_raises(successes: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"successes|confidence"):
        wilson_interval(successes, n, confidence)


@pytest.mark.parametrize(
    ("only_before", "only_after", "two_sided", "improved"),
    [
        (0, 5, 2 / 32, 1 / 32),
        (1, 5, 14 / 64, 7 / 64),  # P(X >= 5 of 6) = (6 + 1) / 64
        (5, 1, 14 / 64, 63 / 64),  # P(X >= 1 of 6) = 1 - 1 / 64
        (3, 3, 1.0, 42 / 64),  # P(X >= 3 of 6) = (20 + 15 + 6 + 1) / 64
        (0, 0, 1.0, 1.0),
    ],
    ids=["only-better", "mostly-better", "mostly-worse", "even", "no-difference"],
)
def test_paired_test_by_hand(only_before: int, only_after: int, two_sided: float, improved: float) -> None:
    result = paired_test(*pairs(7, only_before, only_after, 4))
    assert (result.n, result.only_before, result.only_after) == (11 + only_before + only_after, only_before, only_after)
    assert result.p_value == pytest.approx(two_sided)
    assert result.p_value_improved == pytest.approx(improved)


def test_paired_test_problems_both_solved_carry_no_evidence() -> None:
    assert paired_test(*pairs(0, 2, 9, 0)).p_value == paired_test(*pairs(500, 2, 9, 500)).p_value


@pytest.mark.parametrize(("before", "after"), [([], []), ([True], [True, False])], ids=["empty", "different-length"])
def test_paired_test_without_pairs_raises(before: list[bool], after: list[bool]) -> None:
    with pytest.raises(ValueError, match="same problems twice"):
        paired_test(before, after)

"""Intervals, exact McNemar tests, calibration and feedback turns against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plansmith.report.calibration import area_under_roc, calibrate, reliability_bins
from plansmith.report.feedback_turns import accuracy_by_turn
from plansmith.report.statistics import (
    interval_over_seeds,
    mean_interval,
    paired_difference_interval,
    paired_test,
    wilson_interval,
)

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


def test_wilson_interval_gives_plain_floats_that_json_can_write() -> None:
    assert [type(bound) for bound in wilson_interval(3, 7)] == [float, float]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_any_share_lies_inside_and_mirrors(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(
    ("successes", "n"),
    [(0, 0), (-1, 10), (11, 10)],
    ids=["no-trials", "negative", "more-than-n"],
)
def test_wilson_interval_impossible_input_raises(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson_interval(successes, n)


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


T_1 = 12.706204736432095  # the 97.5% quantile of Student's t with one degree of freedom


def test_mean_interval_two_values_by_hand() -> None:
    interval = mean_interval([0.5, 0.7])  # mean 0.6, standard deviation 0.1414, its error 0.1
    assert interval == pytest.approx((0.6 - 0.1 * T_1, 0.6 + 0.1 * T_1))


def test_mean_interval_one_value_tells_no_spread() -> None:
    assert mean_interval([0.4]) is None


def test_mean_interval_without_values_raises() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])


def test_interval_over_seeds_one_seed_has_the_wilson_interval() -> None:
    assert interval_over_seeds([81], [100]) == wilson_interval(81, 100)


def test_interval_over_seeds_all_at_zero_keeps_what_the_number_of_problems_leaves_open() -> None:
    low, high = interval_over_seeds([0, 0, 0], [10, 10, 10])
    assert low == 0.0
    assert high == pytest.approx(Z**2 / (30 + Z**2))


def test_interval_over_seeds_all_solved_keeps_the_other_end_open() -> None:
    assert interval_over_seeds([10, 10, 10], [10, 10, 10]) == (pytest.approx(30 / (30 + Z**2)), 1.0)


def test_interval_over_seeds_spread_beyond_the_problems_makes_it_wider() -> None:
    low, high = interval_over_seeds([500, 520], [1000, 1000])  # mean 0.51, standard error 0.01
    assert (low, high) == pytest.approx((0.51 - 0.01 * T_1, 0.51 + 0.01 * T_1))
    pooled = wilson_interval(1020, 2000)
    assert low < pooled[0] < pooled[1] < high


def test_interval_over_seeds_stays_within_zero_and_one() -> None:
    assert interval_over_seeds([4, 8], [10, 10]) == (0.0, 1.0)  # t alone: 0.6 +- 2.54


@pytest.mark.parametrize(("successes", "ns"), [([], []), ([1], [2, 3]), ([0, 0], [4, 0])])
def test_interval_over_seeds_impossible_input_raises(successes: list[int], ns: list[int]) -> None:
    with pytest.raises(ValueError, match="every seed"):
        interval_over_seeds(successes, ns)


def test_paired_difference_interval_by_hand() -> None:
    low, high = paired_difference_interval(paired_test(*pairs(5, 1, 5, 7)))  # 18 pairs and 2 added, gain 4
    reach = Z * math.sqrt(1 + 5 + 1 - 16 / 20) / 20
    assert (low, high) == pytest.approx((0.2 - reach, 0.2 + reach))


def test_paired_difference_interval_all_pairs_agree_still_has_a_width_around_zero() -> None:
    low, high = paired_difference_interval(paired_test(*pairs(4, 0, 0, 4)))
    assert (low, high) == pytest.approx((-Z / 10, Z / 10))


def test_paired_difference_interval_stays_within_one() -> None:
    assert paired_difference_interval(paired_test(*pairs(0, 0, 2, 0)))[1] == 1.0


PAIRS = [(True, 0.9), (True, 0.6), (False, 0.4), (False, 0.8)]


def test_calibrate_four_plans_by_hand() -> None:
    scores = calibrate(PAIRS)
    assert (scores.n, scores.n_valid) == (4, 2)
    assert scores.brier == pytest.approx((0.01 + 0.16 + 0.16 + 0.64) / 4)
    assert scores.expected_calibration_error == pytest.approx((0.1 + 0.4 + 0.4 + 0.8) / 4)
    assert scores.accuracy == 0.75  # only the last is wrong
    assert scores.auroc == 0.75  # 0.6 against 0.8 is the one pair in the wrong order


def test_calibrate_errors_within_a_bin_cancel_but_not_between_bins() -> None:
    honest = calibrate([(True, 0.55), (False, 0.55), (True, 0.55), (False, 0.55)])
    assert honest.expected_calibration_error == pytest.approx(0.05)
    assert calibrate([(False, 0.95), (True, 0.05)]).expected_calibration_error == pytest.approx(0.95)


def test_reliability_bins_edges_belong_to_the_upper_bin_and_one_to_the_last() -> None:
    bins = reliability_bins([(False, 0.0), (False, 0.1), (True, 0.95), (True, 1.0), (False, 0.9)])
    assert [(b.low, b.high, b.n) for b in bins] == [(0.0, 0.1, 1), (0.1, 0.2, 1), (0.9, 1.0, 3)]
    assert bins[2].mean_v_hat == pytest.approx(0.95)
    assert bins[2].share_valid == pytest.approx(2 / 3)
    assert bins[2].ci95 == wilson_interval(2, 3)


def test_area_under_roc_ties_count_half_and_one_kind_has_none() -> None:
    assert area_under_roc([(True, 0.5), (False, 0.5)]) == 0.5
    assert area_under_roc([(True, 0.5), (False, 0.5), (True, 0.9), (False, 0.1)]) == 0.875  # 3.5 of 4 pairs
    assert area_under_roc([(False, 0.1), (False, 0.2)]) is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_area_under_roc_is_the_share_of_pairs_in_order(pairs: list[tuple[bool, float]]) -> None:
    valid, invalid = [p for v, p in pairs if v], [p for v, p in pairs if not v]
    wins = sum((a > b) + (a == b) / 2 for a in valid for b in invalid)
    expected = wins / (len(valid) * len(invalid)) if valid and invalid else None
    assert area_under_roc(pairs) == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("pairs", "message"), [([], "n=0"), ([(True, 1.5)], "probability"), ([(True, float("nan"))], "probability")]
)
def test_calibrate_unusable_input_raises(pairs: list[tuple[bool, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(pairs)


def test_accuracy_by_turn_a_solved_problem_stays_solved() -> None:
    turns = accuracy_by_turn([0, 0, 1, 3, None], [0, 1, 2, 5])
    assert [(t.turn, t.n, t.n_valid, t.accuracy) for t in turns] == [
        (0, 5, 2, 0.4),
        (1, 5, 3, 0.6),
        (2, 5, 3, 0.6),
        (5, 5, 4, 0.8),
    ]
    assert turns[0].ci95 == wilson_interval(2, 5)


@pytest.mark.parametrize(
    ("solved_at", "turns"), [([], [0]), ([0], [1, 0]), ([0], [1, 1]), ([0], [-1]), ([-1], [0])],
    ids=["no-problems", "descending", "twice", "negative-turn", "solved-before-turn-0"],
)  # fmt: skip
def test_accuracy_by_turn_unusable_input_raises(solved_at: list[int], turns: list[int]) -> None:
    with pytest.raises(ValueError, match=r"n=0|count from 0"):
        accuracy_by_turn(solved_at, turns)

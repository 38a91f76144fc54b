"""Intervals and paired tests by form, calibration and feedback turns against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from plansmith.report.calibration import Belief, calibrate, reliability_bins
from plansmith.report.feedback_turns import accuracy_by_turn
from plansmith.report.statistics import (
    PairedTest,
    TriedProblem,
    accuracy_interval,
    area_under_roc,
    effective_size,
    interval_name,
    interval_over_seeds,
    mean_interval,
    paired_test,
    pooled,
    wilson_interval,
)

Z = 1.959963984540054  # the 97.5% quantile of the normal distribution


def tried(marks: str, forms: str | None = None) -> list[TriedProblem]:
    """Return one problem a mark, 1 is solved; its form is the letter below it, or its own where none are given."""
    names = forms or [str(number) for number in range(len(marks))]
    return [TriedProblem(mark == "1", form) for mark, form in zip(marks, names, strict=True)]


def share(solved: int, n: int) -> list[TriedProblem]:
    return tried("1" * solved + "0" * (n - solved))


def pairs(both: int, only_before: int, only_after: int, neither: int) -> PairedTest:
    """Return the test of so many problems of each outcome, each form once."""
    before = "1" * (both + only_before) + "0" * (only_after + neither)
    after = "1" * both + "0" * only_before + "1" * only_after + "0" * neither
    return paired_test(tried(before), tried(after))


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
def test_paired_test_each_form_once_is_mcnemars_by_hand(
    only_before: int, only_after: int, two_sided: float, improved: float
) -> None:
    result = pairs(7, only_before, only_after, 4)
    assert (result.n, result.only_before, result.only_after) == (11 + only_before + only_after, only_before, only_after)
    assert result.p_value == pytest.approx(two_sided)
    assert result.p_value_improved == pytest.approx(improved)
    assert result.name == "exact McNemar test"


@given(st.integers(0, 60), st.integers(0, 60))
def test_paired_test_each_form_once_is_the_binomial_test_of_the_pairs_that_differ(before: int, after: int) -> None:
    result = pairs(3, before, after, 2)
    if before + after:
        assert result.p_value == pytest.approx(binomtest(after, before + after).pvalue)
        better = binomtest(after, before + after, alternative="greater")
        assert result.p_value_improved == pytest.approx(better.pvalue)


def test_paired_test_by_form_by_hand() -> None:
    """Forms gain +3, +2, -1 and 0: of the eight sums of +-3 +-2 +-1, 6, 4, -4 and -6 are as far from 0 as 4."""
    forms = "aaabbcddd"
    result = paired_test(tried("000001100", forms), tried("111110010", forms))
    assert (result.n, result.n_forms, result.only_before, result.only_after) == (9, 4, 2, 6)
    assert result.p_value == pytest.approx(4 / 8)
    assert result.p_value_improved == pytest.approx(2 / 8)  # 6 and 4
    assert result.name == "exact sign-flip test over 4 forms"


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("abcdefg")), min_size=1, max_size=30))
def test_paired_test_by_form_is_the_share_of_all_signs_that_gain_as_much(
    outcomes: list[tuple[bool, bool, str]],
) -> None:
    gains: Counter[str] = Counter()
    for before, after, form in outcomes:
        gains[form] += after - before
    observed = sum(gains.values())
    sums = [
        sum(sign * gain for sign, gain in zip(signs, gains.values(), strict=True))
        for signs in itertools.product((-1, 1), repeat=len(gains))
    ]
    result = paired_test(
        [TriedProblem(before, form) for before, _, form in outcomes],
        [TriedProblem(after, form) for _, after, form in outcomes],
    )
    assert result.p_value == pytest.approx(sum(abs(total) >= abs(observed) for total in sums) / len(sums))
    assert result.p_value_improved == pytest.approx(sum(total >= observed for total in sums) / len(sums))


def test_paired_test_copies_of_what_was_known_add_no_evidence() -> None:
    once = paired_test(tried("0000", "abcd"), tried("1111", "abcd"))
    copied = paired_test(tried("00000000", "abcdabcd"), tried("11111111", "abcdabcd"))
    assert copied.p_value == once.p_value == pytest.approx(2 / 16)
    assert copied.gain_ci95 == once.gain_ci95


def test_paired_test_problems_both_solved_carry_no_evidence() -> None:
    assert pairs(0, 2, 9, 0).p_value == pairs(500, 2, 9, 500).p_value


def test_paired_test_many_forms_stays_a_probability() -> None:
    result = pairs(0, 0, 1500, 0)
    assert 0.0 <= result.p_value < 1e-300
    assert pairs(0, 750, 750, 0).p_value == pytest.approx(1.0) and pairs(0, 750, 750, 0).p_value <= 1.0


@pytest.mark.parametrize(
    ("before", "after"),
    [([], []), (tried("1"), tried("10")), (tried("1", "a"), tried("1", "b"))],
    ids=["empty", "different-length", "different-form"],
)
def test_paired_test_without_pairs_raises(before: list[TriedProblem], after: list[TriedProblem]) -> None:
    with pytest.raises(ValueError, match="same problems twice"):
        paired_test(before, after)


def test_effective_size_each_form_once_is_the_number_of_problems() -> None:
    assert effective_size([1, 0, 0, 1, 1], list("abcde")) == 5
    assert effective_size([1, 1, 1], list("abc")) == 3


def test_effective_size_by_hand() -> None:
    """Ten forms of two copies: three solved twice, three never, four once.

    Over forms the deviations from 1/2 sum to +-1 six times: variance 10/9 * 6 / 20^2 = 1/60. Singly it is
    20 * 1/4 / 19 / 20 = 1/76. 20 * 60 / 76 problems are left, times (2.0930 / 2.2622)^2 for ten forms in place of 20
    problems, the squared ratio of Student's quantiles with 19 and 9 degrees of freedom.
    """
    values = [1, 1] * 3 + [0, 0] * 3 + [1, 0] * 4
    size = effective_size(values, list("aabbccddeeffgghhiijj"))
    assert size == pytest.approx(20 * 60 / 76 * (2.093024 / 2.262157) ** 2, rel=1e-5)
    assert size == pytest.approx(13.517, abs=1e-3)


@pytest.mark.parametrize(
    ("values", "forms", "size"),
    [
        ([1, 1, 1, 1, 1], "aabbc", 25 / 9),  # all equal: as if copies always agreed, 5^2 / (2^2 + 2^2 + 1)
        ([1, 1, 0, 0, 1], "aabbc", 25 / 9),  # they always agree: no estimate goes below that
        ([1, 0, 1], "aaa", 1),  # one form
        ([1, 0, 1, 0], "aabb", 4),  # copies that never agree are no more than independent ones
        ([1], "a", 1),
    ],
    ids=["all-solved", "copies-agree", "one-form", "copies-disagree", "one-problem"],
)
def test_effective_size_lies_between_its_bounds(values: list[int], forms: str, size: float) -> None:
    assert effective_size(values, list(forms)) == pytest.approx(size)


def test_accuracy_interval_is_wilsons_of_the_effective_size() -> None:
    marks, forms = "1111110000001010" + "1010", "aabbccddeeffgghhiijj"
    half = Z * math.sqrt(0.25 / 13.517 + Z**2 / (4 * 13.517**2)) / (1 + Z**2 / 13.517)
    assert accuracy_interval(tried(marks, forms)) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-4)
    assert accuracy_interval(tried(marks)) == pytest.approx(wilson_interval(10, 20))
    assert (interval_name(20, 10), interval_name(20, 20)) == ("Wilson interval by form", "Wilson interval")


def test_accuracy_interval_of_agreeing_copies_covers_the_truth_as_often_as_it_says() -> None:
    """A hundred problems of 47 forms whose copies agree at 0.6, as a test set of four blocks."""
    rng, n_forms, n = np.random.default_rng(0), 47, 100
    n_covered = n_by_problem = 0
    for _ in range(500):
        forms = [*range(n_forms), *rng.integers(0, n_forms, n - n_forms)]
        chances = rng.beta(1 / 3, 1 / 3, n_forms)  # mean 0.5, intra-form correlation 1 / (1 + 2/3) = 0.6
        found = [TriedProblem(bool(rng.random() < chances[form]), str(form)) for form in forms]
        low, high = accuracy_interval(found)
        n_covered += low <= 0.5 <= high
        low, high = wilson_interval(sum(item.is_solved for item in found), n)
        n_by_problem += low <= 0.5 <= high
    assert 0.92 <= n_covered / 500 <= 0.98
    assert n_by_problem / 500 < 0.88


def test_accuracy_interval_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="n=0"):
        effective_size([], [])


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
    assert interval_over_seeds([share(81, 100)]) == pytest.approx(wilson_interval(81, 100))


def test_interval_over_seeds_all_at_zero_keeps_what_the_number_of_problems_leaves_open() -> None:
    low, high = interval_over_seeds([share(0, 10)] * 3)
    assert low == 0.0
    assert high == pytest.approx(Z**2 / (30 + Z**2))


def test_interval_over_seeds_all_solved_keeps_the_other_end_open() -> None:
    assert interval_over_seeds([share(10, 10)] * 3) == (pytest.approx(30 / (30 + Z**2)), 1.0)


def test_interval_over_seeds_spread_beyond_the_problems_makes_it_wider() -> None:
    low, high = interval_over_seeds([share(500, 1000), share(520, 1000)])  # mean 0.51, standard error 0.01
    assert (low, high) == pytest.approx((0.51 - 0.01 * T_1, 0.51 + 0.01 * T_1))
    pooled = wilson_interval(1020, 2000)
    assert low < pooled[0] < pooled[1] < high


def test_interval_over_seeds_stays_within_zero_and_one() -> None:
    assert interval_over_seeds([share(4, 10), share(8, 10)]) == (0.0, 1.0)  # t alone: 0.6 +- 2.54


@pytest.mark.parametrize("by_seed", [[], [share(1, 2), []]], ids=["no-seed", "no-problem"])
def test_interval_over_seeds_impossible_input_raises(by_seed: list[list[TriedProblem]]) -> None:
    with pytest.raises(ValueError, match="every seed"):
        interval_over_seeds(by_seed)


def test_pooled_forms_of_different_seeds_differ_and_copies_under_one_seed_do_not() -> None:
    forms = [item.form for item in pooled([tried("10", "aa"), tried("11", "ab")])]
    assert len(set(forms)) == 3 and forms[0] == forms[1]


def test_paired_test_gain_interval_by_hand() -> None:
    low, high = pairs(5, 1, 5, 7).gain_ci95  # 18 pairs and 2 added, gain 4
    reach = Z * math.sqrt(1 + 5 + 1 - 16 / 20) / 20
    assert (low, high) == pytest.approx((0.2 - reach, 0.2 + reach))


def test_paired_test_gain_interval_all_pairs_agree_still_has_a_width_around_zero() -> None:
    low, high = pairs(4, 0, 0, 4).gain_ci95
    assert (low, high) == pytest.approx((-Z / 10, Z / 10))


def test_paired_test_gain_interval_stays_within_one() -> None:
    assert pairs(0, 0, 2, 0).gain_ci95[1] == 1.0


def beliefs(*pairs: tuple[bool, float]) -> list[Belief]:
    """Return the beliefs of pairs (v, v_hat), each of a form of its own."""
    return [Belief(v, v_hat, str(number)) for number, (v, v_hat) in enumerate(pairs)]


def test_calibrate_four_plans_by_hand() -> None:
    scores = calibrate(beliefs((True, 0.9), (True, 0.6), (False, 0.4), (False, 0.8)))
    assert (scores.n, scores.n_valid) == (4, 2)
    assert scores.brier == pytest.approx((0.01 + 0.16 + 0.16 + 0.64) / 4)
    assert scores.expected_calibration_error == pytest.approx((0.1 + 0.4 + 0.4 + 0.8) / 4)
    assert scores.accuracy == 0.75  # only the last is wrong
    assert scores.auroc == 0.75  # 0.6 against 0.8 is the one pair in the wrong order


def test_calibrate_errors_within_a_bin_cancel_but_not_between_bins() -> None:
    honest = calibrate(beliefs((True, 0.55), (False, 0.55), (True, 0.55), (False, 0.55)))
    assert honest.expected_calibration_error == pytest.approx(0.05)
    assert calibrate(beliefs((False, 0.95), (True, 0.05))).expected_calibration_error == pytest.approx(0.95)


def test_reliability_bins_edges_belong_to_the_upper_bin_and_one_to_the_last() -> None:
    bins = reliability_bins(beliefs((False, 0.0), (False, 0.1), (True, 0.95), (True, 1.0), (False, 0.9)))
    assert [(b.low, b.high, b.n) for b in bins] == [(0.0, 0.1, 1), (0.1, 0.2, 1), (0.9, 1.0, 3)]
    assert bins[2].mean_v_hat == pytest.approx(0.95)
    assert bins[2].share_valid == pytest.approx(2 / 3)
    assert bins[2].ci95 == pytest.approx(wilson_interval(2, 3))


def test_area_under_roc_ties_count_half_and_one_kind_has_none() -> None:
    assert area_under_roc([0.5, 0.5], [True, False]) == 0.5
    assert area_under_roc([0.5, 0.5, 0.9, 0.1], [True, False, True, False]) == 0.875  # 3.5 of 4 pairs
    assert area_under_roc([0.1, 0.2], [False, False]) is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_area_under_roc_is_the_share_of_pairs_in_order(pairs: list[tuple[bool, float]]) -> None:
    valid, invalid = [p for v, p in pairs if v], [p for v, p in pairs if not v]
    wins = sum((a > b) + (a == b) / 2 for a in valid for b in invalid)
    expected = wins / (len(valid) * len(invalid)) if valid and invalid else None
    assert area_under_roc([p for _, p in pairs], [v for v, _ in pairs]) == (
        expected if expected is None else pytest.approx(expected)
    )


@pytest.mark.parametrize(
    ("pairs", "message"), [([], "n=0"), ([(True, 1.5)], "probability"), ([(True, float("nan"))], "probability")]
)
def test_calibrate_unusable_input_raises(pairs: list[tuple[bool, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(beliefs(*pairs))


def test_accuracy_by_turn_a_solved_problem_stays_solved() -> None:
    turns = accuracy_by_turn([0, 0, 1, 3, None], list("abcde"), [0, 1, 2, 5])
    assert [(t.turn, t.n, t.n_valid, t.accuracy) for t in turns] == [
        (0, 5, 2, 0.4),
        (1, 5, 3, 0.6),
        (2, 5, 3, 0.6),
        (5, 5, 4, 0.8),
    ]
    assert turns[0].ci95 == pytest.approx(wilson_interval(2, 5))


@pytest.mark.parametrize(
    ("solved_at", "turns"), [([], [0]), ([0], [1, 0]), ([0], [1, 1]), ([0], [-1]), ([-1], [0])],
    ids=["no-problems", "descending", "twice", "negative-turn", "solved-before-turn-0"],
)  # fmt: skip
def test_accuracy_by_turn_unusable_input_raises(solved_at: list[int], turns: list[int]) -> None:
    with pytest.raises(ValueError, match=r"n=0|count from 0"):
        accuracy_by_turn(solved_at, [str(at) for at in solved_at], turns)

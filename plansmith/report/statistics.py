"""Uncertainty of a share of solved problems and of the difference between two policies on the same problems.

Problems that differ only in the names of their objects are copies of one *form* (`plansmith.pddl.canonical`), and a
policy tends to solve all copies of a form or none. What is independent is therefore the form: every interval and every
test here takes the problems by form, and is the textbook's where each form occurs once.

Not here: what is counted (`metrics`, `ablation`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, stdev
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

Number = TypeVar("Number", int, float)

CONFIDENCE = 0.95
"""Coverage of every interval."""
UPPER = (1 + CONFIDENCE) / 2
"""The quantile at the upper end of an interval."""


@dataclass(frozen=True, slots=True)
class TriedProblem:
    """Whether a problem was solved, and the form that it shares with its copies."""

    is_solved: bool
    form: str


TriedById = Mapping[str, TriedProblem]
"""Each problem, by its id, as it was tried."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Test of two policies on the same ``n`` problems of ``n_forms`` forms.

    ``p_value`` is two-sided; ``p_value_improved`` is one-sided, against "after is not better than before".
    ``gain_ci95`` is the interval of the gain in accuracy.
    """

    n: int
    n_forms: int
    only_before: int
    only_after: int
    p_value: float
    p_value_improved: float
    gain_ci95: tuple[float, float]

    @property
    def name(self) -> str:
        """Return what the test is called: with copies it flips the signs of whole forms, else it is McNemar's."""
        if self.n_forms < self.n:
            return f"exact sign-flip test over {self.n_forms} forms"
        return "exact McNemar test"


def interval_name(n: int, n_forms: int) -> str:
    """Return what `accuracy_interval` of so many problems and forms is called."""
    return "Wilson interval by form" if n_forms < n else "Wilson interval"


def accuracy_interval(tried: Sequence[TriedProblem]) -> tuple[float, float]:
    """Return the interval of the share of solved problems: Wilson's, of as many problems as the forms are worth.

    Source: Wilson's interval of an effective number of problems (Franco et al., Journal of Survey Statistics and
    Methodology 7, 2019), see `effective_size`.

    Raises:
        ValueError: nothing tried.
    """
    solved = [item.is_solved for item in tried]
    size = effective_size(solved, [item.form for item in tried])
    return wilson_interval(fmean(solved) * size, size)


def effective_size(values: Sequence[float], forms: Sequence[str]) -> float:
    """Return how many independent problems would tell the mean of ``values`` as well as these problems do.

    That is n over the design effect, which compares the variance of the mean over forms, as clusters, with that over
    problems drawn singly (Kish, Survey Sampling, 1965; Rao and Scott, Biometrics 48, 1992). As few forms tell their
    variance badly, it is made smaller by the squared ratio of Student's quantiles for n and for the number of forms
    (Korn and Graubard, Survey Methodology 24, 1998). It is at most n, as if copies were independent, and at least what
    is left when copies always agree, n^2 over the sum of the squared sizes of the forms; this is taken where all values
    are equal, which tells nothing about how copies differ.

    Args:
        values: (n,) of each problem.
        forms: (n,) of each problem; copies have equal ones.

    Raises:
        ValueError: no values.
    """
    n, copies = len(values), Counter(forms)
    if not n:
        raise ValueError("an interval needs at least one problem; got n=0")
    least = n**2 / sum(count**2 for count in copies.values())
    mean, n_forms = fmean(values), len(copies)
    totals = _sums_by_form([value - mean for value in values], forms)
    singly = sum((value - mean) ** 2 for value in values) / (n - 1) / n if n > 1 else 0.0
    if n_forms in (1, n) or not singly:
        return least
    clustered = n_forms / (n_forms - 1) * sum(total**2 for total in totals) / n**2
    few_forms = (_t_quantile(n - 1) / _t_quantile(n_forms - 1)) ** 2
    return min(n, max(least, n * singly / clustered * few_forms)) if clustered else n


def _sums_by_form(values: Iterable[Number], forms: Sequence[Hashable]) -> list[Number]:
    """Return the sum over each form's copies, in the order of the forms' first ones."""
    sums: dict[Hashable, Number] = {}
    for value, form in zip(values, forms, strict=True):
        sums[form] = sums.get(form, 0) + value
    return list(sums.values())


def _t_quantile(freedom: int) -> float:
    """Return `UPPER`'s quantile of Student's t distribution."""
    return float(stdtrit(freedom, UPPER))


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return the Wilson score interval of a share, without continuity correction, within [0, 1].

    Both numbers may be fractions, as effective ones are.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"an interval needs 0 <= successes <= n and n > 0; got successes={successes}, n={n}")
    z, share = NormalDist().inv_cdf(UPPER), successes / n
    centre = share + z**2 / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = ((centre + sign * reach) / (1 + z**2 / n) for sign in (-1, 1))
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's t-interval of the mean, or None of a single value, which tells nothing about its spread.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("an interval of a mean needs at least one value")
    if len(values) == 1:
        return None
    reach = _t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def interval_over_seeds(by_seed: Sequence[Sequence[TriedProblem]]) -> tuple[float, float]:
    """Return an interval of the mean accuracy over training seeds, within [0, 1].

    It is Student's t-interval over the accuracies of the seeds, made wider where `accuracy_interval` of all problems
    pooled reaches further. Seeds, not problems, are what a repeated training draws anew, so the spread between them is
    what counts (Colas, Sigaud and Oudeyer, arXiv:1806.08295, sec. 4; Agarwal et al., arXiv:2108.13264, sec. 3); a
    bootstrap over problems would leave it out. Few seeds may agree by luck, above all at 0% and at 100%, and their
    spread is then 0: the pooled interval keeps what the number of problems alone leaves open. One seed has the latter.

    Args:
        by_seed: the problems that each seed tried.

    Raises:
        ValueError: no seeds, or a seed without problems.
    """
    if not by_seed or not all(by_seed):
        raise ValueError(f"every seed has at least one problem; got {[len(tried) for tried in by_seed]}")
    low, high = accuracy_interval(pooled(by_seed))
    spread = mean_interval([fmean(item.is_solved for item in tried) for tried in by_seed])
    if spread is None:
        return low, high
    return max(0.0, min(low, spread[0])), min(1.0, max(high, spread[1]))


def pooled(by_seed: Sequence[Sequence[TriedProblem]]) -> list[TriedProblem]:
    """Return the problems of all seeds in one list; equal forms of different seeds, tried by other policies, differ."""
    return [replace(item, form=f"{number} {item.form}") for number, tried in enumerate(by_seed) for item in tried]


def solved_by_both(
    before: Mapping[str, TriedProblem], after: Mapping[str, TriedProblem], *, names: str, where: str
) -> tuple[list[TriedProblem], list[TriedProblem]]:
    """Return each problem as it was tried before and after, matched by id whatever their order.

    Raises:
        ValueError: other problems before than after; it says between whom (``names``) and ``where``.
    """
    if differing := len(before.keys() ^ after.keys()):
        raise ValueError(f"{names} differ in {differing} problems {where}; a pair needs none")
    ids = sorted(before)
    return [before[i] for i in ids], [after[i] for i in ids]


def paired_test(before: Sequence[TriedProblem], after: Sequence[TriedProblem]) -> PairedTest:
    """Return the exact sign-flip test over forms; ``before[i]`` and ``after[i]`` are of the same problem.

    If the two policies were alike, the gain on all copies of a form could as well be the other's: its sign is a fair
    coin's. The p-value is the chance that the gains, under all such signs, sum to as much as they do (Fisher's
    randomisation test of pairs, The Design of Experiments, 1935, with forms for pairs). Only forms of which one policy
    solved more carry evidence; with none of those the p-values are 1. Where every form occurs once this is the exact
    McNemar test.

    Raises:
        ValueError: no problems, sequences of different length, or of problems of different forms.
    """
    if not before or [item.form for item in before] != [item.form for item in after]:
        raise ValueError(f"a paired test needs the same problems twice; got {len(before)} before, {len(after)} after")
    gains = [a.is_solved - b.is_solved for b, a in zip(before, after, strict=True)]
    forms = [item.form for item in before]
    sums = _sums_by_form(gains, forms)
    two_sided, improved = _sign_flip_p_values(sums)
    only_before, only_after = gains.count(-1), gains.count(1)
    interval = _gain_interval(only_before, only_after, len(gains), effective_size(gains, forms))
    return PairedTest(len(gains), len(sums), only_before, only_after, two_sided, improved, interval)


def area_under_roc(scores: Sequence[float], is_true: Sequence[bool]) -> float | None:
    """Return the chance that one that is true scores above one that is not, ties as a half; None without both.

    This is U / (n_true * n_other), with Mann and Whitney's U.
    """
    true = [score for score, own in zip(scores, is_true, strict=True) if own]
    others = [score for score, own in zip(scores, is_true, strict=True) if not own]
    if not true or not others:
        return None
    from scipy.stats import mannwhitneyu  # takes seconds to import

    return float(mannwhitneyu(true, others).statistic) / (len(true) * len(others))


SIGNS_AT_ONCE = 2**22
"""That are drawn together: 64 MiB with what they are drawn from."""


def paired_permutation(
    before: Sequence[float], after: Sequence[float], forms: Sequence[Hashable], *, n_draws: int = 20_000
) -> float:
    """Return the two-sided chance of a difference of means as great, if each form could as well be the other way round.

    Fisher's randomisation test of pairs with real numbers; the problems of one form go together. Signs are drawn, from
    a fixed seed, so that equal numbers give equal chances. The observed order counts as one draw, so that no chance is
    0.

    Raises:
        ValueError: no pairs, or sequences of different length.
    """
    if not before or not len(before) == len(after) == len(forms):
        raise ValueError(f"a paired test needs the same problems twice; got {len(before)} before, {len(after)} after")
    differences = np.array(_sums_by_form(np.subtract(after, before).tolist(), forms))
    observed = abs(differences.sum())
    rng, n_as_great, block = np.random.default_rng(0), 0, max(1, SIGNS_AT_ONCE // len(differences))
    for first in range(0, n_draws, block):
        signs = rng.choice((-1.0, 1.0), size=(min(block, n_draws - first), len(differences)))
        n_as_great += int((abs(signs @ differences) >= observed - 1e-9).sum())
    return (n_as_great + 1) / (n_draws + 1)


def _sign_flip_p_values(gains: Sequence[int]) -> tuple[float, float]:
    """Return the chance of a sum as far from 0, and of one as great, when each sign is a fair coin's.

    Exact: the distribution of the sum is built up gain by gain.
    """
    most = sum(map(abs, gains))
    sums, chances = np.arange(-most, most + 1), np.zeros(2 * most + 1)
    chances[most] = 1.0  # of the sum 0, before the first coin
    for gain in gains:
        chances = (np.roll(chances, gain) + np.roll(chances, -gain)) / 2
    observed = sum(gains)
    two_sided, improved = chances[abs(sums) >= abs(observed)].sum(), chances[sums >= observed].sum()
    return min(1.0, float(two_sided)), min(1.0, float(improved))


def _gain_interval(only_before: int, only_after: int, n: int, effective: float) -> tuple[float, float]:
    """Return an interval of the gain in accuracy from "before" to "after" on the same problems, within [-1, 1].

    Source: Agresti and Min, Statistics in Medicine 24 (2005), the Wald interval after half a problem is added to each
    of the four outcomes of a pair, so that it has a width even when all pairs agree; here of an effective number of
    problems.
    """
    worth, size = effective / n, effective + 2
    gain, differing = worth * (only_after - only_before), worth * (only_after + only_before)
    reach = NormalDist().inv_cdf(UPPER) * math.sqrt(differing + 1 - gain**2 / size) / size
    return max(-1.0, gain / size - reach), min(1.0, gain / size + reach)

"""Uncertainty of a share of solved problems and of the difference between two policies on the same problems.

Not here: what is counted (`metrics`, `ablation`). The functions are thin: the mathematics is SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import binomtest, norm
from scipy.stats import t as student_t

CONFIDENCE = 0.95
"""Coverage of every interval."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Exact McNemar test of two policies on the same ``n`` problems.

    ``p_value`` is two-sided; ``p_value_improved`` is one-sided, against "after is not better than before".
    """

    n: int
    only_before: int
    only_after: int
    p_value: float
    p_value_improved: float


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, without continuity correction, within [0, 1].

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"an interval needs 0 <= successes <= n and n >= 1; got successes={successes}, n={n}")
    interval = binomtest(successes, n).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return max(0.0, float(interval.low)), min(1.0, float(interval.high))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's t-interval of the mean, or None of a single value, which tells nothing about its spread.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("an interval of a mean needs at least one value")
    if len(values) == 1:
        return None
    reach = float(student_t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def interval_over_seeds(successes: Sequence[int], ns: Sequence[int]) -> tuple[float, float]:
    """Return an interval of the mean accuracy over training seeds, within [0, 1].

    It is Student's t-interval over the accuracies of the seeds, made wider where the Wilson interval of all problems
    pooled reaches further. Seeds, not problems, are what a repeated training draws anew, so the spread between them is
    what counts (Colas, Sigaud and Oudeyer, arXiv:1806.08295, sec. 4; Agarwal et al., arXiv:2108.13264, sec. 3); a
    bootstrap over problems would leave it out. Few seeds may agree by luck, above all at 0% and at 100%, and their
    spread is then 0: the pooled Wilson interval keeps what the number of problems alone leaves open. One seed has the
    Wilson interval.

    Args:
        successes: (S,) problems solved, by seed.
        ns: (S,) problems tried, by seed.

    Raises:
        ValueError: no seeds, sequences of different length, or a seed without problems.
    """
    if not ns or len(successes) != len(ns) or min(ns) < 1:
        raise ValueError(f"every seed has its successes and at least one problem; got {list(successes)} of {list(ns)}")
    low, high = wilson_interval(sum(successes), sum(ns))
    spread = mean_interval([solved / n for solved, n in zip(successes, ns, strict=True)])
    if spread is None:
        return low, high
    return max(0.0, min(low, spread[0])), min(1.0, max(high, spread[1]))


def solved_by_both(
    before: Mapping[str, bool], after: Mapping[str, bool], *, names: str, where: str
) -> tuple[list[bool], list[bool]]:
    """Return whether each problem was solved before and after, matched by id whatever their order.

    Raises:
        ValueError: other problems before than after; it says between whom (``names``) and ``where``.
    """
    if differing := len(before.keys() ^ after.keys()):
        raise ValueError(f"{names} differ in {differing} problems {where}; a pair needs none")
    ids = sorted(before)
    return [before[i] for i in ids], [after[i] for i in ids]


def paired_test(before: Sequence[bool], after: Sequence[bool]) -> PairedTest:
    """Return the exact McNemar test; ``before[i]`` and ``after[i]`` belong to the same problem.

    Only problems that exactly one of the two solved carry evidence. With none of those both p-values are 1.

    Raises:
        ValueError: no problems, or sequences of different length.
    """
    if not before or len(before) != len(after):
        raise ValueError(f"a paired test needs the same problems twice; got {len(before)} before, {len(after)} after")
    only_before = sum(b and not a for b, a in zip(before, after, strict=True))
    only_after = sum(a and not b for b, a in zip(before, after, strict=True))
    discordant = only_before + only_after
    two_sided, improved = 1.0, 1.0
    if discordant:
        two_sided = float(binomtest(only_after, discordant).pvalue)
        improved = float(binomtest(only_after, discordant, alternative="greater").pvalue)
    return PairedTest(len(before), only_before, only_after, two_sided, improved)


def paired_difference_interval(test: PairedTest) -> tuple[float, float]:
    """Return an interval of the gain in accuracy from "before" to "after" on the same problems, within [-1, 1].

    Source: Agresti and Min, Statistics in Medicine 24 (2005), the Wald interval after half a problem is added to each
    of the four outcomes of a pair, so that it has a width even when all pairs agree.
    """
    n, gain = test.n + 2, test.only_after - test.only_before
    reach = float(norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(test.only_before + test.only_after + 1 - gain**2 / n) / n
    return max(-1.0, gain / n - reach), min(1.0, gain / n + reach)

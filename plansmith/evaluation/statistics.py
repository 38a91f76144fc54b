"""Uncertainty of a share of solved problems and of the difference between two policies on the same problems.

Not here: what is counted (`metrics`). Both functions are thin: the mathematics is SciPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest


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


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a share, without continuity correction, within [0, 1].

    Raises:
        ValueError: no trials, more successes than trials, or a confidence outside (0, 1).
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"an interval needs 0 <= successes <= n and n >= 1; got successes={successes}, n={n}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1; got {confidence}")
    interval = binomtest(successes, n).proportion_ci(confidence_level=confidence, method="wilson")
    return max(0.0, float(interval.low)), min(1.0, float(interval.high))


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

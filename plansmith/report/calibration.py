"""How far the policy's own belief in a plan can be trusted: v_hat, the probability it gives to VALID, against v.

Pairs of the validator's verdict v and v_hat become scores and a reliability diagram. Not here: how v_hat is read off
the policy (`plansmith.learning.losses`), and the verdict it states in words (`metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import rankdata

from plansmith.report.statistics import wilson_interval

N_BINS = 10
THRESHOLD = 0.5
Pair = tuple[bool, float]
"""v and v_hat of one plan."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The plans whose v_hat lies in [low, high), the last bin with its upper end; ``ci95`` is of ``share_valid``."""

    low: float
    high: float
    n: int
    mean_v_hat: float
    share_valid: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scores of v_hat over ``n`` plans, ``n_valid`` of them valid.

    ``accuracy`` counts v_hat >= 0.5 as saying VALID. ``auroc`` is None when all plans have the same verdict. ``bins``
    are those that hold a plan, in order.
    """

    n: int
    n_valid: int
    brier: float
    expected_calibration_error: float
    accuracy: float
    auroc: float | None
    bins: tuple[ReliabilityBin, ...]


def calibrate(pairs: Sequence[Pair]) -> Calibration:
    """Return the scores of pairs (v, v_hat).

    Source: Brier (1950), here over one outcome; expected calibration error of Guo et al. (arXiv:1706.04599, equation 3)
    with ten bins of equal width. We differ in the event: they bin the confidence of the winning class, we bin the
    probability of VALID, so that a policy unsure of its invalid plans shows.

    Raises:
        ValueError: no pairs, or a v_hat that is no probability.
    """
    if not pairs:
        raise ValueError("no plans with a v_hat: calibration over n=0 is undefined")
    if wrong := [v_hat for _, v_hat in pairs if not 0.0 <= v_hat <= 1.0]:
        raise ValueError(f"v_hat must be a probability; {len(wrong)} are not, the first is {wrong[0]}")
    bins = reliability_bins(pairs)
    return Calibration(
        n=len(pairs),
        n_valid=sum(v for v, _ in pairs),
        brier=fmean((v_hat - v) ** 2 for v, v_hat in pairs),
        expected_calibration_error=sum(b.n * abs(b.share_valid - b.mean_v_hat) for b in bins) / len(pairs),
        accuracy=fmean((v_hat >= THRESHOLD) == v for v, v_hat in pairs),
        auroc=area_under_roc(pairs),
        bins=bins,
    )


def reliability_bins(pairs: Sequence[Pair]) -> tuple[ReliabilityBin, ...]:
    """Return the bins of equal width that hold at least one plan."""
    members: list[list[Pair]] = [[] for _ in range(N_BINS)]
    for v, v_hat in pairs:
        members[min(int(v_hat * N_BINS), N_BINS - 1)].append((v, v_hat))
    return tuple(
        ReliabilityBin(
            low=number / N_BINS,
            high=(number + 1) / N_BINS,
            n=len(found),
            mean_v_hat=fmean(v_hat for _, v_hat in found),
            share_valid=fmean(v for v, _ in found),
            ci95=wilson_interval(sum(v for v, _ in found), len(found)),
        )
        for number, found in enumerate(members)
        if found
    )


def area_under_roc(pairs: Sequence[Pair]) -> float | None:
    """Return the chance that a valid plan has a greater v_hat than an invalid one, ties counting half.

    This is the rank form, U / (n_valid * n_invalid) with Mann and Whitney's U; None when one of the kinds is absent.
    """
    n_valid = sum(v for v, _ in pairs)
    n_invalid = len(pairs) - n_valid
    if not n_valid or not n_invalid:
        return None
    ranks = rankdata([v_hat for _, v_hat in pairs])
    rank_sum = sum(float(rank) for rank, (v, _) in zip(ranks, pairs, strict=True) if v)
    return (rank_sum - n_valid * (n_valid + 1) / 2) / (n_valid * n_invalid)

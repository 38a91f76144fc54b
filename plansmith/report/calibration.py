"""How far the policy's own belief in a plan can be trusted: v_hat, the probability it gives to VALID, against v.

Pairs of the validator's verdict v and v_hat become scores and a reliability diagram. Not here: how v_hat is read off
the policy (`plansmith.learning.losses`), and the verdict it states in words (`metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.report.statistics import TriedProblem, accuracy_interval, area_under_roc

N_BINS = 10
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class Belief:
    """v and v_hat of one plan, and the form of its problem."""

    v: bool
    v_hat: float
    form: str


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


def calibrate(beliefs: Sequence[Belief]) -> Calibration:
    """Return the scores of v_hat against v.

    Source: Brier (1950), here over one outcome; expected calibration error of Guo et al. (arXiv:1706.04599, equation 3)
    with ten bins of equal width. We differ in the event: they bin the confidence of the winning class, we bin the
    probability of VALID, so that a policy unsure of its invalid plans shows.

    Raises:
        ValueError: no plans, or a v_hat that is no probability.
    """
    if not beliefs:
        raise ValueError("no plans with a v_hat: calibration over n=0 is undefined")
    if wrong := [b.v_hat for b in beliefs if not 0.0 <= b.v_hat <= 1.0]:
        raise ValueError(f"v_hat must be a probability; {len(wrong)} are not, the first is {wrong[0]}")
    bins = reliability_bins(beliefs)
    return Calibration(
        n=len(beliefs),
        n_valid=sum(b.v for b in beliefs),
        brier=brier_score((b.v, b.v_hat) for b in beliefs),
        expected_calibration_error=sum(b.n * abs(b.share_valid - b.mean_v_hat) for b in bins) / len(beliefs),
        accuracy=fmean((b.v_hat >= THRESHOLD) == b.v for b in beliefs),
        auroc=area_under_roc([b.v_hat for b in beliefs], [b.v for b in beliefs]),
        bins=bins,
    )


def brier_score(pairs: Iterable[tuple[bool, float]]) -> float:
    """Return the mean squared distance of v_hat from v, given as pairs (v, v_hat)."""
    return fmean((v_hat - v) ** 2 for v, v_hat in pairs)


def reliability_bins(beliefs: Sequence[Belief]) -> tuple[ReliabilityBin, ...]:
    """Return the bins of equal width that hold at least one plan."""
    members: list[list[Belief]] = [[] for _ in range(N_BINS)]
    for belief in beliefs:
        members[min(int(belief.v_hat * N_BINS), N_BINS - 1)].append(belief)
    return tuple(
        ReliabilityBin(
            low=number / N_BINS,
            high=(number + 1) / N_BINS,
            n=len(found),
            mean_v_hat=fmean(b.v_hat for b in found),
            share_valid=fmean(b.v for b in found),
            ci95=accuracy_interval([TriedProblem(b.v, b.form) for b in found]),
        )
        for number, found in enumerate(members)
        if found
    )

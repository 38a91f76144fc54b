"""What preference optimisation taught: how a policy weighs right answers against faulty ones on held-out pairs.

Pairs of near copies can be told apart by making both less likely (arXiv:2402.13228), so that the log-probabilities
stand beside the accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.data.rows import PairReadingRow
from plansmith.report.statistics import TriedProblem, accuracy_interval


@dataclass(frozen=True, slots=True)
class PairFigures:
    """How many of ``n`` held-out pairs a policy tells apart better than its reference: Delta of equation 5 above 0.

    ``mean_margin`` is the mean of beta * Delta.
    """

    n: int
    accuracy: float
    ci95: tuple[float, float]
    mean_margin: float


@dataclass(frozen=True, slots=True)
class PreferenceFigures(PairFigures):
    """The figures of all pairs, and by fault; the four means are of logarithms of the probabilities of answers."""

    mean_chosen: float
    mean_rejected: float
    mean_reference_chosen: float
    mean_reference_rejected: float
    by_fault: dict[str, PairFigures]


def summarise_preference(
    readings: Sequence[PairReadingRow], problem_of: Mapping[str, str], beta: float
) -> PreferenceFigures:
    """Return what a policy gives to held-out pairs; faults keep the order in which they first occur.

    Args:
        readings: of the pairs.
        problem_of: the problem of each pair, by its id. Pairs of one share their right answer; the intervals take them
            together, as those of other figures take copies of a form.
        beta: of equation 5.

    Raises:
        ValueError: no pairs.
    """
    figures = _pair_figures(readings, problem_of, beta)
    return PreferenceFigures(
        figures.n,
        figures.accuracy,
        figures.ci95,
        figures.mean_margin,
        mean_chosen=fmean(row.chosen for row in readings),
        mean_rejected=fmean(row.rejected for row in readings),
        mean_reference_chosen=fmean(row.reference_chosen for row in readings),
        mean_reference_rejected=fmean(row.reference_rejected for row in readings),
        by_fault={
            fault: _pair_figures([row for row in readings if row.fault == fault], problem_of, beta)
            for fault in dict.fromkeys(row.fault for row in readings)
        },
    )


def preferred(readings: Sequence[PairReadingRow], problem_of: Mapping[str, str]) -> list[TriedProblem]:
    """Return whether each pair is told apart better than by the reference; pairs of one problem are of one form."""
    return [TriedProblem(row.delta > 0, problem_of[row.pair_id]) for row in readings]


def _pair_figures(readings: Sequence[PairReadingRow], problem_of: Mapping[str, str], beta: float) -> PairFigures:
    if not readings:
        raise ValueError("no held-out pairs: accuracy over n=0 is undefined")
    told_apart = preferred(readings, problem_of)
    accuracy, margin = fmean(item.is_solved for item in told_apart), fmean(beta * row.delta for row in readings)
    return PairFigures(len(readings), accuracy, accuracy_interval(told_apart), margin)

"""The plots about verdicts: how far the policy's belief v_hat is right, and what feedback on a failed plan brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plansmith.report.calibration import N_BINS, Calibration
from plansmith.report.feedback_turns import FeedbackTurn
from plansmith.report.sections import Plot
from plansmith.report.svg import GRID, MUTED, SERIES, draw_shares, percent_axis, plot_of
from plansmith.report.wording import number_or_dash, spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_calibration(arm: str, calibration: Calibration) -> Plot:
    """Return the reliability diagram of v_hat with 95% intervals, over the number of plans in each bin."""

    def draw(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _draw_reliability(upper, calibration)
        _draw_counts(lower, calibration)

    scores = (
        f"Brier score {calibration.brier:.3f}, expected calibration error "
        f"{calibration.expected_calibration_error:.3f}, AUROC {number_or_dash(calibration.auroc, 3)}."
    )
    return plot_of(
        "calibration",
        f"Does the {spoken(arm)} policy know when its plan is valid?",
        f"Share of valid plans by v_hat, the probability the policy gives to VALID; on the dashed line belief and "
        f"truth agree. {scores}",
        3.4,
        draw,
    )


def draw_feedback_turns(turns: Sequence[FeedbackTurn]) -> Plot:
    """Return accuracy by turns of validator feedback with 95% intervals."""
    numbers = [turn.turn for turn in turns]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        draw_shares(axes, numbers, [turn.accuracy for turn in turns], [turn.ci95 for turn in turns])
        percent_axis(axes, "plan accuracy (%)")
        axes.set_xticks(numbers)
        axes.set_xlabel("turns of validator feedback, at most")

    return plot_of(
        "feedback-turns",
        "Accuracy with feedback on failed plans",
        f"A failed plan goes back to the policy with the validator's words (LLM-Modulo), n = {turns[0].n}; turn 0 is "
        "the first attempt. Bars are 95% intervals.",
        2.3,
        draw,
    )


def _draw_reliability(axes: Axes, calibration: Calibration) -> None:
    """Draw the share of valid plans against the mean v_hat of each bin."""
    bins = calibration.bins
    axes.plot([0, 1], [0, 100], color=MUTED, linestyle="--", linewidth=1.0)
    x, shares = [item.mean_v_hat for item in bins], [item.share_valid for item in bins]
    draw_shares(axes, x, shares, [item.ci95 for item in bins])
    percent_axis(axes, "valid plans (%)")


def _draw_counts(axes: Axes, calibration: Calibration) -> None:
    """Draw how many plans each bin holds, with the numbers written above."""
    from matplotlib.ticker import MaxNLocator

    middles, counts = [(item.low + item.high) / 2 for item in calibration.bins], [item.n for item in calibration.bins]
    bars = axes.bar(middles, counts, width=0.9 / N_BINS, color=SERIES[0], edgecolor=GRID)
    axes.bar_label(bars, padding=1.5, fontsize=7.5)
    axes.set_ylim(0, 1.35 * max(counts))
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    axes.set_ylabel("plans")
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.set_xlabel("v_hat: the policy's probability of VALID")

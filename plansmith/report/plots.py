"""The plots about one run, from its results.

Not here: how a plot is drawn (`drawing`), and those about the policy's own verdicts and feedback (`verdict_plots`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.course_plots import course_drawings
from plansmith.report.metrics import LevelFigures
from plansmith.report.results import IterationRollouts, Results
from plansmith.report.sections import Drawing, Plot
from plansmith.report.svg import (
    ERRORS,
    MARKERS,
    ON_ERROR,
    SERIES,
    draw_shares,
    legend_above,
    legend_height,
    percent_axis,
    plot_of,
    whole_steps,
)
from plansmith.report.verdict_plots import draw_calibration, draw_feedback_turns
from plansmith.report.wording import spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Share = tuple[float, tuple[float, float]]
"""A share with its interval."""


def drawings(results: Results) -> Iterator[Drawing]:
    """Yield every plot this run has data for, in reading order."""
    arms, losses = results.arms, results.losses
    yield Drawing("accuracy", arms, partial(draw_accuracy, results))
    if len(results.domains) > 1:
        yield Drawing("domains", arms, partial(draw_domains, results))
    for level in results.levels:
        yield Drawing(f"errors {level}", arms, partial(draw_errors, results, level))
    if turns := results.feedback_turns:
        yield Drawing("feedback turns", turns, partial(draw_feedback_turns, turns))
    known = [(arm.name, arm.calibration) for arm in arms.values() if arm.calibration is not None]
    if known:
        yield Drawing("calibration", known[-1], partial(draw_calibration, *known[-1]))
    if rollouts := results.rollouts:
        yield Drawing("rollout verdicts", rollouts, partial(draw_rollout_errors, rollouts))
    if losses.reasoning or losses.final:
        yield Drawing("losses", (losses.reasoning, losses.final), partial(draw_iteration_losses, results))
    if rates := results.rollout_valid_rate:
        yield Drawing("rollouts", rates, partial(draw_rollouts, results))
    yield from course_drawings(results.curves, results.time_s)


def draw_accuracy(results: Results) -> Plot:
    """Return accuracy by arm with its intervals, one line a level."""
    groups = {level: [arm.by_level[level] for arm in results.arms.values()] for level in results.levels}
    caption = "Share of test problems with a valid plan; bars are the 95% intervals of the tables."
    return _accuracy_plot("accuracy", "Accuracy by iteration", caption, list(results.arms), groups)


def draw_domains(results: Results) -> Plot:
    """Return accuracy by arm with its intervals, one line a domain."""
    groups = {domain: [arm.by_domain[domain] for arm in results.arms.values()] for domain in results.domains}
    caption = "All levels of a domain together; bars are 95% intervals."
    return _accuracy_plot("domains", "Accuracy by domain", caption, list(results.arms), groups)


def _accuracy_plot(
    slug: str, title: str, caption: str, names: list[str], groups: dict[str, list[LevelFigures]]
) -> Plot:
    """Return one line of accuracies over the arms for each group."""
    lines = {
        f"{group} (n = {figures[0].n})": [(item.accuracy, item.ci95) for item in figures]
        for group, figures in groups.items()
    }
    return shares_plot(slug, title, caption, "plan accuracy (%)", lines, partial(label_arms, names=names))


def shares_plot(
    slug: str,
    title: str,
    caption: str,
    y_label: str,
    lines: Mapping[str, Sequence[Share]],
    label_x: Callable[[Axes], None],
) -> Plot:
    """Return lines of shares with their intervals, side by side where they would cover each other.

    Args:
        slug: of the plot.
        title: of the plot.
        caption: of the plot.
        y_label: what the shares are.
        lines: shares at the places 0, 1, ..., by the label of their line.
        label_x: names the places.
    """
    gap, middle = min(0.12, 0.7 / len(lines)), (len(lines) - 1) / 2

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, (label, shares) in enumerate(lines.items()):
            x = [place + (i - middle) * gap for place in range(len(shares))]
            draw_shares(axes, x, [share for share, _ in shares], [ci95 for _, ci95 in shares], number=i, label=label)
        percent_axis(axes, y_label)
        label_x(axes)
        legend_above(figure, axes)

    return plot_of(slug, title, caption, 2.9 + legend_height(list(lines)), draw)


def draw_errors(results: Results, level: str) -> Plot:
    """Return the failed problems of one level by error class, one stacked bar an arm."""
    figures = [arm.by_level[level] for arm in results.arms.values()]
    slug, most = f"errors-{results.levels.index(level) + 1}", max(f.n for f in figures)
    bars = {spoken(name): f.errors for name, f in zip(results.arms, figures, strict=True)}
    caption = "Each failed problem counts once, under its root cause."
    return _error_plot(slug, f"Errors by class, {level}", caption, f"failed problems, of {most}", most, bars)


def draw_rollout_errors(rollouts: Sequence[IterationRollouts]) -> Plot:
    """Return the failed rollouts of each feedback iteration by error class, one stacked bar an iteration."""
    most, bars = max(r.n for r in rollouts), {f"iteration {r.iteration}": r.errors for r in rollouts}
    caption = "Attempts at training problems, judged before anything is learnt from them; each under its root cause."
    title, label = "Failed rollouts by class", f"failed rollouts, of {most}"
    return _error_plot("rollout-verdicts", title, caption, label, most, bars)


def _error_plot(
    slug: str, title: str, caption: str, label: str, most: int, errors: Mapping[str, Mapping[ErrorClass, int]]
) -> Plot:
    """Return counts by error class as one stacked bar a name."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        left = [0] * len(errors)
        for kind, colour in zip(ErrorClass, ERRORS, strict=True):
            counts = [of[kind] for of in errors.values()]
            bars = axes.barh(range(len(errors)), counts, left=left, height=0.68, color=colour, label=spoken(kind))
            labels = [str(c) if c >= 0.045 * most else "" for c in counts]
            axes.bar_label(bars, labels=labels, label_type="center", color=ON_ERROR, fontsize=7.5)
            left = [start + count for start, count in zip(left, counts, strict=True)]
        axes.set_yticks(range(len(errors)), list(errors))
        axes.invert_yaxis()
        axes.set_xlim(0, most)
        axes.set_xlabel(label)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        legend_above(figure, axes)

    return plot_of(slug, title, caption, 1.35 + 0.27 * len(errors), draw)


def draw_iteration_losses(results: Results) -> Plot:
    """Return equations 4 and 8 as printed, by feedback iteration, each with its own scale."""
    both = [
        ("L_reasoning (equation 4)", results.losses.reasoning),
        ("L_final (equation 8)", results.losses.final),
    ]
    losses = [(name, values) for name, values in both if values]

    def draw(figure: Figure) -> None:
        for i, (name, values) in enumerate(losses):
            axes = figure.add_subplot(len(losses), 1, i + 1)
            axes.plot(range(1, len(values) + 1), values, color=SERIES[i], marker=MARKERS[i])
            axes.set_title(name)
            axes.set_ylabel("loss")
            axes.set_ylim(0 if min(values) >= 0 else None, 1.12 * max(values) if max(values) > 0 else None)
            whole_steps(axes, len(values))
        axes.set_xlabel("feedback iteration")

    return plot_of(
        "losses",
        "Both losses of phase 2",
        "Evaluated exactly as the paper prints them, before each iteration's update; no unit.",
        0.5 + 1.35 * len(losses),
        draw,
    )


def draw_rollouts(results: Results) -> Plot:
    """Return the share of valid rollouts the policy was trained on, by iteration."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        rates = [100 * rate for rate in results.rollout_valid_rate]
        axes.plot(range(1, len(rates) + 1), rates, color=SERIES[2], marker=MARKERS[2])
        axes.set_ylim(0, 100)
        axes.set_ylabel("valid rollouts (%)")
        axes.set_xlabel("feedback iteration")
        whole_steps(axes, len(rates))

    return plot_of(
        "rollouts",
        "Valid rollouts while training",
        "Sampled on training problems, at the start of each iteration; not comparable with test accuracy.",
        2.2,
        draw,
    )


def label_arms(axes: Axes, names: Sequence[str]) -> None:
    """Put the arms on the x axis: iterations by number where all words would not fit."""
    is_tight = len(names) > 6
    has_iterations = any(name.startswith("iteration") for name in names)
    labels = [re.sub(r"^iteration[ _]?", "" if is_tight else "iter. ", name) for name in names]
    axes.set_xticks(range(len(names)), [spoken(label) for label in labels])
    axes.set_xlim(-0.4, len(names) - 0.6)
    if is_tight:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlabel("policy" + (" (numbers: after that feedback iteration)" if is_tight and has_iterations else ""))

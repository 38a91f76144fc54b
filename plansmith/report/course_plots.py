"""The plots about the course of any run: what its optimisations saw, by step and update, and its time by stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from plansmith.report.results import TrainingCurve
from plansmith.report.run_facts import Updates
from plansmith.report.sections import Drawing, Plot
from plansmith.report.svg import LINE_STYLES, SERIES, legend_above, plot_of
from plansmith.report.wording import clock, spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 150
MAX_STAGES = 14
PAIRS = {
    "margin": ("margin",),
    "pair accuracy": ("accuracy",),
    "log-probability": ("chosen_logprob", "rejected_logprob"),
}
"""Panels about preference pairs (`PairLogprobs.figures`), each with the figures that it shows."""


def course_drawings(curves: Sequence[TrainingCurve], time_s: dict[str, float]) -> Iterator[Drawing]:
    """Yield a plot for each kind of training stage that has a curve, and one of the time by stage."""
    for stage in dict.fromkeys(curve.stage for curve in curves if curve.steps):
        found = tuple(curve for curve in curves if curve.stage == stage)
        yield Drawing(f"training {stage}", found, partial(draw_training_curve, stage, found))
    if time_s:
        yield Drawing("times", time_s, partial(draw_times, time_s))


def draw_updates(loop: str, title: str, panels: Mapping[str, Sequence[str]], figures: Updates) -> Plot:
    """Return what was measured in the updates of a loop, one below the other.

    Args:
        loop: tells it from the other loops of a run.
        title: of the plot.
        panels: the names of the figures that each shows, by the label of its axis; those not measured are left out.
        figures: see `plansmith.report.run_facts.updates_of`.
    """
    known = {label: [name for name in names if name in figures] for label, names in panels.items()}
    shown = {
        label: partial(_draw_lines, lines={name: figures[name] for name in names})
        for label, names in known.items()
        if names
    }
    caption = "Every update tries problems in groups, before anything is learnt from them."
    slug, height = f"updates-{loop.replace('_', '-')}", 0.9 + 1.4 * len(shown)
    return plot_of(slug, title, caption, height, lambda figure: _draw_panels(figure, shown, "update"))


def _draw_panels(figure: Figure, panels: Mapping[str, Callable[[Axes], None]], x_label: str) -> None:
    """Draw panels one below the other over the same steps, each by its function, beside its label."""
    from matplotlib.ticker import MaxNLocator

    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, draw) in zip(grid, panels.items(), strict=True):
        draw(axes)
        axes.set_ylabel(label)
        axes.grid(axis="y")
    grid[-1].set_xlabel(x_label)
    grid[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_lines(axes: Axes, lines: Updates) -> None:
    """Draw a line for each figure, over the updates that have it; several have a legend."""
    for number, (name, values) in enumerate(lines.items()):
        known = [(update, value) for update, value in enumerate(values, 1) if value is not None]
        label = spoken(name.rpartition("/")[2].removeprefix("share "))
        axes.plot(*zip(*known, strict=True), color=SERIES[number % 4], linestyle=LINE_STYLES[number % 4],
                  linewidth=1.2, label=label)  # fmt: skip
    low, high = axes.get_ylim()
    if high - low < abs(low) / 1000:  # what is rounded differently is no course
        axes.set_ylim(low - abs(low) / 100, high + abs(high) / 100)
    if len(lines) > 1:
        axes.legend(loc="best", fontsize=7.5)


def draw_training_curve(stage: str, curves: Sequence[TrainingCurve]) -> Plot:
    """Return the loss that one kind of training stage minimised, with rate and gradient where they are known.

    Iterations follow each other on one axis.
    """
    curves = [curve for curve in curves if curve.steps]
    columns: dict[str, list[tuple[float, ...]]] = {"training loss": [curve.losses for curve in curves]}
    if all(curve.learning_rates and curve.gradient_norms for curve in curves):
        columns["learning rate"] = [curve.learning_rates for curve in curves]
        columns["gradient norm"] = [curve.gradient_norms for curve in curves]
    pairs = PAIRS if all(curve.figures.keys() >= {"margin", "accuracy"} for curve in curves) else {}
    panels = {label: partial(_draw_curves, curves=curves, values=values) for label, values in columns.items()}
    panels |= {label: partial(_draw_figures, curves=curves, names=names) for label, names in pairs.items()}

    def draw(figure: Figure) -> None:
        _draw_panels(figure, panels, "optimiser step")
        if 1 < len(curves) <= 4:
            legend_above(figure, figure.axes[0])

    slug = re.sub(r"[^a-z0-9]+", "-", f"training-{stage}".lower())
    caption = f"What the optimiser saw, step by step; long curves are averaged to {MAX_POINTS} points."
    return plot_of(slug, f"Training loss, {spoken(stage)}", caption, 0.9 + 1.3 * len(panels), draw)


def _draw_curves(axes: Axes, curves: Sequence[TrainingCurve], values: Sequence[tuple[float, ...]]) -> None:
    """Draw one column of every curve, each curve behind the one before."""
    start = 0
    for i, (curve, numbers) in enumerate(zip(curves, values, strict=True)):
        first = curve.steps[0] if i else 0
        x = [start + step - first for step in _thin_out(curve.steps)]
        style: dict[str, Any] = {"color": SERIES[i % 4], "linestyle": LINE_STYLES[i % 4], "linewidth": 1.2}
        axes.plot(x, _thin_out(numbers), label=f"iteration {curve.iteration}", **style)
        start += curve.steps[-1] - first + 1


def _draw_figures(axes: Axes, curves: Sequence[TrainingCurve], names: Sequence[str]) -> None:
    """Draw figures of the objective, each with a line of its own, of which several have a legend."""
    for i, name in enumerate(names):
        start, label = 0, spoken(name.removesuffix("_logprob"))
        for number, curve in enumerate(curves):
            first = curve.steps[0] if number else 0
            x = [start + step - first for step in _thin_out(curve.steps)]
            axes.plot(x, _thin_out(curve.figures[name]), color=SERIES[i], linestyle=LINE_STYLES[i], linewidth=1.2,
                      label=label)  # fmt: skip
            start, label = start + curve.steps[-1] - first + 1, "_nolegend_"
    if len(names) > 1:
        axes.legend(loc="best", fontsize=7.5)


def draw_times(time_s: dict[str, float]) -> Plot:
    """Return wall time by stage in the order of the pipeline; repeated stages are added up."""
    bars = group_times(time_s)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        seconds = [time_s for _, time_s in bars]
        unit, size = ("min", 60.0) if max(seconds) >= 120 else ("s", 1.0)
        drawn = axes.barh(range(len(bars)), [s / size for s in seconds], height=0.68, color=SERIES[0])
        axes.bar_label(drawn, labels=[clock(s) for s in seconds], padding=3, fontsize=7.5)
        axes.set_yticks(range(len(bars)), [name for name, _ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.22 * max(*seconds, 1e-9) / size)
        axes.set_xlabel(f"wall time ({unit})")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")

    total = clock(sum(time_s.values()))
    return plot_of("times", "Time by stage", f"{total} in all.", 0.75 + 0.24 * len(bars), draw)


def group_times(time_s: dict[str, float]) -> list[tuple[str, float]]:
    """Return at most `MAX_STAGES` bars: stages that differ only in the iteration are one, the shortest are "other"."""
    grouped: dict[str, list[float]] = {}
    for stage, seconds in time_s.items():
        grouped.setdefault(re.sub(r"[^A-Za-z0-9]+(iteration[ _]?|t)?\d+$", "", stage), []).append(seconds)
    bars = [(spoken(s) + (f" ({len(t)} runs)" if len(t) > 1 else ""), sum(t)) for s, t in grouped.items()]
    if len(bars) <= MAX_STAGES:
        return bars
    shortest_first = sorted(bars, key=lambda bar: bar[1])
    rest = shortest_first[: len(bars) - MAX_STAGES + 1]
    return [bar for bar in bars if bar not in rest] + [(f"{len(rest)} shorter stages", sum(t for _, t in rest))]


def _thin_out(numbers: Sequence[float]) -> list[float]:
    """Return means over equal blocks of numbers, at most `MAX_POINTS` of them."""
    size = -(-len(numbers) // MAX_POINTS)
    return [fmean(numbers[i : i + size]) for i in range(0, len(numbers), size)]

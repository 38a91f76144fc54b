"""The plots about one run, from its results.

Not here: how a plot is drawn (`drawing`), and those about the policy's own verdicts and feedback (`verdict_plots`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.metrics import LevelFigures
from plansmith.report.results import IterationRollouts, Results, TrainingCurve
from plansmith.report.sections import Drawing, Plot
from plansmith.report.svg import (
    ERRORS,
    LINE_STYLES,
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
from plansmith.report.wording import clock, spoken

MAX_POINTS = 150
MAX_STAGES = 14


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
    for stage in dict.fromkeys(curve.stage for curve in losses.curves if curve.steps):
        curves = tuple(curve for curve in losses.curves if curve.stage == stage)
        yield Drawing(f"training {stage}", curves, partial(draw_training_curve, stage, curves))
    if results.time_s:
        yield Drawing("times", results.time_s, partial(draw_times, results))


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
    """Return one line of accuracies over the arms for each group, side by side where they would cover each other."""
    gap, middle = min(0.12, 0.7 / len(groups)), (len(groups) - 1) / 2
    labels = [f"{group} (n = {figures[0].n})" for group, figures in groups.items()]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, figures in enumerate(groups.values()):
            x, shares = [place + (i - middle) * gap for place in range(len(names))], [f.accuracy for f in figures]
            draw_shares(axes, x, shares, [f.ci95 for f in figures], number=i, label=labels[i])
        percent_axis(axes, "plan accuracy (%)")
        label_arms(axes, names)
        legend_above(figure, axes)

    return plot_of(slug, title, caption, 2.9 + legend_height(labels), draw)


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


def draw_training_curve(stage: str, curves: Sequence[TrainingCurve]) -> Plot:
    """Return the loss that one kind of training stage minimised; iterations follow each other on one axis."""
    curves = [curve for curve in curves if curve.steps]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        start = 0
        for i, curve in enumerate(curves):
            steps, losses = _thin_out(curve)
            style = LINE_STYLES[i % 4]
            first = curve.steps[0] if i else 0
            x, label = [start + step - first for step in steps], f"iteration {curve.iteration}"
            axes.plot(x, losses, color=SERIES[i % 4], linestyle=style, linewidth=1.2, label=label)
            start += curve.steps[-1] - first + 1
        axes.set_ylabel("training loss")
        axes.set_xlabel("optimiser step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(axis="y")
        if 1 < len(curves) <= 4:
            legend_above(figure, axes)

    slug = re.sub(r"[^a-z0-9]+", "-", f"training-{stage}".lower())
    caption = f"The loss the optimiser saw; long curves are averaged to {MAX_POINTS} points."
    return plot_of(slug, f"Training loss, {spoken(stage)}", caption, 2.2, draw)


def draw_times(results: Results) -> Plot:
    """Return wall time by stage in the order of the pipeline; repeated stages are added up."""
    bars = group_times(results.time_s)

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

    total = clock(sum(results.time_s.values()))
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


def label_arms(axes: Axes, names: Sequence[str]) -> None:
    """Put the arms on the x axis: iterations by number where all words would not fit."""
    is_tight = len(names) > 6
    labels = [re.sub(r"^iteration[ _]?", "" if is_tight else "iter. ", name) for name in names]
    axes.set_xticks(range(len(names)), [spoken(label) for label in labels])
    axes.set_xlim(-0.4, len(names) - 0.6)
    if is_tight:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlabel("policy" + (" (numbers: after that feedback iteration)" if is_tight else ""))


def _thin_out(curve: TrainingCurve) -> tuple[list[float], list[float]]:
    """Return the curve as means over equal blocks of steps, at most `MAX_POINTS` of them."""
    size = -(-len(curve.steps) // MAX_POINTS)
    blocks = [slice(i, i + size) for i in range(0, len(curve.steps), size)]
    return [fmean(curve.steps[b]) for b in blocks], [fmean(curve.losses[b]) for b in blocks]

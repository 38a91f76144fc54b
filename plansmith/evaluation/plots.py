"""The plots of a report, as SVG text to be put inside a page; the only file that imports matplotlib.

Colours in the SVG are CSS variables of the page, so one drawing serves light and dark; text stays text in the page's
font. The series colours are Okabe and Ito's, told apart by colour-blind readers; markers, line styles and printed
numbers say the same again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plansmith.evaluation.results import Results, TrainingCurve
from plansmith.evaluation.taxonomy import ErrorClass

INK, MUTED, GRID = "#0a0b0c", "#7a7b7c", "#dadbdc"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
ERRORS = ("#e69f00", "#56b4e9", "#019e72", "#cc79a8")
ON_ERROR = "#111213"
CSS_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    ON_ERROR: "--on-error",
    **{colour: f"--series-{i}" for i, colour in enumerate(SERIES, 1)},
    **{colour: f"--error-{i}" for i, colour in enumerate(ERRORS, 1)},
}
MARKERS, LINE_STYLES = ("o", "s", "^", "D"), ("-", "--", "-.", ":")
WIDTH_IN = 4.6
MAX_POINTS = 150
MAX_STAGES = 14
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """One drawing with the words around it; ``svg`` is a complete ``<svg>`` element without outside references."""

    slug: str
    title: str
    caption: str
    svg: str


def draw_plots(results: Results) -> tuple[Plot, ...]:
    """Return every plot this run has data for, in reading order; equal results give equal bytes."""
    plots = [draw_accuracy(results)]
    plots += [draw_errors(results, level) for level in results.levels]
    if results.losses.reasoning or results.losses.final:
        plots.append(draw_iteration_losses(results))
    if results.rollout_valid_rate:
        plots.append(draw_rollouts(results))
    stages = dict.fromkeys(curve.stage for curve in results.losses.curves if curve.steps)
    plots += [draw_training_curve(results, stage) for stage in stages]
    if results.time_s:
        plots.append(draw_times(results))
    return tuple(plots)


def draw_accuracy(results: Results) -> Plot:
    """Return accuracy by arm with 95% Wilson intervals, one line a level."""
    arms = list(results.arms.values())

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        middle = (len(results.levels) - 1) / 2
        for i, level in enumerate(results.levels):
            shares = [arm.by_level[level] for arm in arms]
            x = [place + (i - middle) * 0.12 for place in range(len(arms))]
            spans = [
                [max(0.0, 100 * (s.accuracy - s.ci95[0])) for s in shares],
                [max(0.0, 100 * (s.ci95[1] - s.accuracy)) for s in shares],
            ]
            axes.errorbar(
                x,
                [100 * s.accuracy for s in shares],
                yerr=spans,
                color=SERIES[i % 4],
                marker=MARKERS[i % 4],
                linestyle=LINE_STYLES[i % 4],
                elinewidth=1.0,
                capsize=2.5,
                label=f"{level} (n = {shares[0].n})",
            )
        axes.set_ylim(-3, 103)
        axes.set_yticks(range(0, 101, 20))
        axes.set_ylabel("plan accuracy (%)")
        _label_arms(axes, list(results.arms))
        axes.grid(axis="y")
        _legend_above(axes)

    return Plot(
        "accuracy",
        "Accuracy by iteration",
        "Share of test problems with a valid plan; bars are 95% Wilson intervals.",
        _svg("accuracy", 2.9, draw),
    )


def draw_errors(results: Results, level: str) -> Plot:
    """Return the failed problems of one level by error class, one stacked bar an arm."""
    names = list(results.arms)
    figures = [arm.by_level[level] for arm in results.arms.values()]
    most = max(f.n for f in figures)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        left = [0] * len(figures)
        for kind, colour in zip(ErrorClass, ERRORS, strict=True):
            counts = [f.errors[kind] for f in figures]
            bars = axes.barh(range(len(names)), counts, left=left, height=0.68, color=colour, label=spoken(kind))
            labels = [str(c) if c >= 0.045 * most else "" for c in counts]
            axes.bar_label(bars, labels=labels, label_type="center", color=ON_ERROR, fontsize=7.5)
            left = [start + count for start, count in zip(left, counts, strict=True)]
        axes.set_yticks(range(len(names)), [spoken(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, most)
        axes.set_xlabel(f"failed problems, of {most}")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        _legend_above(axes)

    slug = f"errors-{results.levels.index(level) + 1}"
    return Plot(
        slug,
        f"Errors by class, {level}",
        "Each failed problem counts once, under its root cause.",
        _svg(slug, 1.35 + 0.27 * len(names), draw),
    )


def draw_iteration_losses(results: Results) -> Plot:
    """Return equations 4 and 8 as printed, by feedback iteration, each with its own scale."""
    series = [
        ("L_reasoning (equation 4)", results.losses.reasoning),
        ("L_final (equation 8)", results.losses.final),
    ]
    series = [(name, values) for name, values in series if values]

    def draw(figure: Figure) -> None:
        for i, (name, values) in enumerate(series):
            axes = figure.add_subplot(len(series), 1, i + 1)
            axes.plot(range(1, len(values) + 1), values, color=SERIES[i], marker=MARKERS[i])
            axes.set_title(name)
            axes.set_ylabel("loss")
            axes.set_ylim(0 if min(values) >= 0 else None, 1.12 * max(values) if max(values) > 0 else None)
            _whole_steps(axes, len(values))
        axes.set_xlabel("feedback iteration")

    return Plot(
        "losses",
        "Both losses of phase 2",
        "Evaluated exactly as the paper prints them, before each iteration's update; no unit.",
        _svg("losses", 0.5 + 1.35 * len(series), draw),
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
        _whole_steps(axes, len(rates))

    return Plot(
        "rollouts",
        "Valid rollouts while training",
        "Sampled on training problems, at the start of each iteration; not comparable with test accuracy.",
        _svg("rollouts", 2.2, draw),
    )


def draw_training_curve(results: Results, stage: str) -> Plot:
    """Return the loss that one kind of training stage minimised; iterations follow each other on one axis."""
    curves = [curve for curve in results.losses.curves if curve.stage == stage and curve.steps]

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
            _legend_above(axes)

    slug = f"training-{stage}"
    return Plot(
        re.sub(r"[^a-z0-9]+", "-", slug.lower()),
        f"Training loss, {spoken(stage)}",
        f"The loss the optimiser saw; long curves are averaged to {MAX_POINTS} points.",
        _svg(slug, 2.2, draw),
    )


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
    return Plot("times", "Time by stage", f"{total} in all.", _svg("times", 0.75 + 0.24 * len(bars), draw))


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


def spoken(name: str) -> str:
    """Return a name as words: ``iteration_1`` is "iteration 1", ``phase1`` is "phase 1"."""
    return re.sub(r"(?<=[a-z])(?=\d)", " ", name.replace("_", " ")).replace("  ", " ")


def clock(seconds: float) -> str:
    """Return a duration in at most two units."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _label_arms(axes: Axes, names: Sequence[str]) -> None:
    """Put the arms on the x axis: iterations by number where all words would not fit."""
    is_tight = len(names) > 6
    labels = [re.sub(r"^iteration[ _]?", "" if is_tight else "iter. ", name) for name in names]
    axes.set_xticks(range(len(names)), [spoken(label) for label in labels])
    axes.set_xlim(-0.4, len(names) - 0.6)
    if is_tight:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlabel("policy" + (" (numbers: after that feedback iteration)" if is_tight else ""))


def _legend_above(axes: Axes) -> None:
    """Put the legend over the axes, where it covers no data."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.01), ncols=2, borderaxespad=0.2, columnspacing=1.4)


def _whole_steps(axes: Axes, count: int) -> None:
    """Tick whole iterations only, with air on both sides."""
    axes.set_xlim(0.7, count + 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(min(count, 8), integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y")


def _thin_out(curve: TrainingCurve) -> tuple[list[float], list[float]]:
    """Return the curve as means over equal blocks of steps, at most `MAX_POINTS` of them."""
    size = -(-len(curve.steps) // MAX_POINTS)
    blocks = [slice(i, i + size) for i in range(0, len(curve.steps), size)]
    return [_mean(curve.steps[b]) for b in blocks], [_mean(curve.losses[b]) for b in blocks]


def _mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def _svg(slug: str, height_in: float, draw: Callable[[Figure], None]) -> str:
    """Return what ``draw`` draws as an ``<svg>`` element that takes its colours from the page."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": slug}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True)
    return _fit_into_page(buffer.getvalue())


def _fit_into_page(svg: str) -> str:
    """Return the ``<svg>`` element alone: no prolog, no metadata, no fixed size, no ids of groups, page colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None, "matplotlib writes a viewBox"
    rest = re.sub(r'<g id="[^"]*"', "<g", rest).replace("xlink:href", "href")
    rest = re.sub(r"font-family: [^;\"]*;", "", rest)
    rest = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", rest, flags=re.DOTALL)
    for colour, variable in CSS_VARIABLES.items():
        rest = rest.replace(colour, f"var({variable})")
    return f'<svg class="plot" {view_box.group(0)} aria-hidden="true">{rest}'

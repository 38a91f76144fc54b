"""How every plot of a report is drawn: colours, markers, and an ``<svg>`` element that fits into a page.

Colours in the SVG are CSS variables of the page, so one drawing serves light and dark; text stays text in the page's
font. The series colours are Okabe and Ito's, told apart by colour-blind readers; markers, line styles and printed
numbers say the same again. Not here: what is drawn (`plots`, `verdict_plots`, `ablation_plots`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plansmith.report.sections import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
MARKERS, LINE_STYLES = ("o", "s", "^", "D", "v"), ("-", "--", "-.", ":")
WIDTH_IN = 4.6
LABEL_LENGTH = 24
"""Two columns of a legend fit side by side when no label is longer."""
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


def series(number: int) -> dict[str, Any]:
    """Return the looks of a line, numbered from 0: twenty differ in colour or marker, sixteen in colour or style."""
    style = LINE_STYLES[(number + number // 4) % 4]
    return {"color": SERIES[number % 4], "marker": MARKERS[number % 5], "linestyle": style}


def draw_shares(
    axes: Axes,
    x: Sequence[float],
    shares: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    *,
    number: int = 0,
    label: str | None = None,
) -> None:
    """Draw shares with their intervals, in percent, as the line of a number."""
    bars = interval_bars(shares, intervals)
    percents = [100 * share for share in shares]
    axes.errorbar(x, percents, yerr=bars, **series(number), elinewidth=1.0, capsize=2.5, label=label)


def interval_bars(shares: Sequence[float], intervals: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Return the reach of each interval below and above its share, in percentage points, as error bars take it."""
    below = [max(0.0, 100 * (share - low)) for share, (low, _) in zip(shares, intervals, strict=True)]
    above = [max(0.0, 100 * (high - share)) for share, (_, high) in zip(shares, intervals, strict=True)]
    return [below, above]


def percent_axis(axes: Axes, label: str) -> None:
    """Make the y axis one of percentages, with a little air for markers at its ends."""
    axes.set_ylim(-3, 103)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(label)
    axes.grid(axis="y")


def legend_columns(labels: Sequence[str]) -> int:
    """Return how many labels fit side by side above a plot."""
    return 2 if max(map(len, labels)) <= LABEL_LENGTH else 1


def legend_height(labels: Sequence[str]) -> float:
    """Return the height in inches that a legend needs beyond its first row."""
    return 0.17 * (-(-len(labels) // legend_columns(labels)) - 1)


def legend_above(figure: Figure, axes: Axes) -> None:
    """Put the legend over the axes, where it covers no data, as wide as the whole drawing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=legend_columns(labels), borderaxespad=0.2, columnspacing=1.4
    )


def whole_steps(axes: Axes, count: int) -> None:
    """Tick whole iterations only, with air on both sides."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.7, count + 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(min(count, 8), integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y")


def plot_of(slug: str, title: str, caption: str, height_in: float, draw: Callable[[Figure], None]) -> Plot:
    """Return what ``draw`` draws as an ``<svg>`` element that takes its colours from the page, and words around it."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": slug}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True)
    return Plot(slug, title, caption, _fit_into_page(buffer.getvalue()))


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

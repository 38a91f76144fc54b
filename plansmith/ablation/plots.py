"""The plots of an ablation: what the arms reached, and accuracy by feedback iteration, every seed shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from plansmith.ablation.paper_figures import PAPER_MODEL, TABLE_1
from plansmith.ablation.summary import AblationArm, AblationCell, AblationResults, MeanCell
from plansmith.report.sections import Drawing, Plot
from plansmith.report.svg import (
    MUTED,
    SERIES,
    draw_shares,
    interval_bars,
    legend_above,
    legend_height,
    percent_axis,
    plot_of,
    series,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def ablation_drawings(results: AblationResults) -> Iterator[Drawing]:
    """Yield every plot the ablation has data for; equal results give equal bytes."""
    for number, domain in enumerate(results.domains, 1):
        yield Drawing(f"arms {domain}", results.cells, partial(_draw_arms, results, number, domain))
    for number, domain in enumerate(results.domains, 1):
        if any(cell.scope == domain for cell in results.iterations):
            yield Drawing(f"loop {domain}", results.iterations, partial(_draw_iterations, results, number, domain))


def _draw_arms(results: AblationResults, number: int, domain: str) -> Plot:
    """Return mean accuracy by arm with its interval, each seed a dot, the paper's figure a cross."""
    shown = [(arm, cell) for arm in results.arms if (cell := results.cell(arm.id, domain)) is not None]
    arms = [arm for arm, _ in shown]
    return arms_plot(
        f"arms-{number}",
        f"Accuracy by arm, {domain}",
        "plan accuracy (%)",
        [(arm.column, cell) for arm, cell in shown],
        more=f" Crosses are the paper's {PAPER_MODEL} with its own eta, where it has the domain.",
        draw_more=partial(_draw_paper, arms=arms, domain=domain),
    )


def arms_plot(
    slug: str,
    title: str,
    unit: str,
    shown: Sequence[tuple[str, MeanCell]],
    *,
    more: str = "",
    draw_more: Callable[[Axes], None] | None = None,
) -> Plot:
    """Return the mean of each arm with its interval, an arm a row, each seed a dot.

    Args:
        slug, title: of the plot.
        unit: below the axis.
        shown: the arms by the names that stand beside them.
        more: what else the caption says.
        draw_more: draws it.
    """
    labels, cells = zip(*shown, strict=True)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        _draw_means(axes, cells)
        _draw_seeds(axes, cells)
        if draw_more is not None:
            draw_more(axes)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(-3, 103)
        axes.set_xlabel(unit)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        legend_above(figure, axes)

    caption = f"Mean over seeds with its 95% interval; every seed is a dot.{more}"
    return plot_of(slug, title, caption, 1.3 + 0.3 * len(labels), draw)


def _draw_means(axes: Axes, cells: Sequence[MeanCell]) -> None:
    means = [cell.mean for cell in cells]
    axes.errorbar(
        [100 * mean for mean in means],
        range(len(cells)),
        xerr=interval_bars(means, [cell.ci95 or (cell.mean, cell.mean) for cell in cells]),
        color=SERIES[0],
        marker="s",
        linestyle="none",
        capsize=3,
        label="mean over seeds",
    )


def _draw_seeds(axes: Axes, cells: Sequence[MeanCell]) -> None:
    """Draw the seeds just below their mean, side by side enough to be counted."""
    points = [
        (100 * figures.accuracy, row + 0.2 + 0.07 * place)
        for row, cell in enumerate(cells)
        for place, figures in enumerate(cell.seeds)
    ]
    x, y = zip(*points, strict=True)
    axes.plot(x, y, color=SERIES[1], marker="o", markersize=3, linestyle="none", label="one seed")


def _draw_paper(axes: Axes, arms: Sequence[AblationArm], domain: str) -> None:
    points = [
        (TABLE_1[arm.paper_label][domain], row)
        for row, arm in enumerate(arms)
        if arm.paper_label is not None and domain in TABLE_1[arm.paper_label]
    ]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=MUTED, marker="x", linestyle="none", label=f"the paper, {PAPER_MODEL}")


def _draw_iterations(results: AblationResults, number: int, domain: str) -> Plot:
    """Return mean accuracy after each feedback iteration, one line an arm, every seed a faint dot."""
    lines = [
        (arm, [cell for cell in results.iterations if (cell.arm, cell.scope) == (arm.id, domain)])
        for arm in results.arms
    ]
    lines = [(arm, cells) for arm, cells in lines if cells]

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        axes = figure.add_subplot()
        for i, (arm, cells) in enumerate(lines):
            _draw_line(axes, i, len(lines), arm.column, cells)
        percent_axis(axes, "plan accuracy (%)")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.set_xlabel("feedback iteration")
        legend_above(figure, axes)

    return plot_of(
        f"iterations-{number}",
        f"Accuracy by feedback iteration, {domain}",
        "Mean over seeds with its 95% interval; every seed is a small dot.",
        2.7 + legend_height([arm.column for arm, _ in lines]),
        draw,
    )


def _draw_line(axes: Axes, number: int, n_lines: int, label: str, cells: Sequence[AblationCell]) -> None:
    """Draw one arm, a little beside the others so that intervals do not cover each other."""
    shift = (number - (n_lines - 1) / 2) * 0.06
    x = [(cell.iteration or 0) + shift for cell in cells]
    draw_shares(axes, x, [cell.mean for cell in cells], [cell.ci95 for cell in cells], number=number, label=label)
    for place, cell in zip(x, cells, strict=True):
        seeds = [100 * figures.accuracy for figures in cell.seeds]
        axes.plot(
            [place] * len(seeds), seeds, color=series(number)["color"], marker=".", markersize=3, linestyle="none"
        )

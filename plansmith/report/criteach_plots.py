"""The plots of a run of `self_criteach` beside those of its course: problems by plan length, success against tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plansmith.report.criteach_results import CriteachArm, TaskProblems
from plansmith.report.sections import Plot
from plansmith.report.svg import GRID, SERIES, plot_of
from plansmith.report.wording import spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_problems(problems: Mapping[str, TaskProblems]) -> Plot:
    """Return the problems of each task by plan length, to learn from and to test by (figures 5 and 4)."""

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(problems), 2, squeeze=False, sharex=True)
        for (task, found), (learnt, tests) in zip(problems.items(), rows, strict=True):
            _draw_counts(learnt, f"{task}, to learn from", found.library, 0)
            _draw_counts(tests, f"{task}, tests", found.tests, 1)
        for axes in rows[-1]:
            axes.set_xlabel("steps of the planner's plan")

    caption = "Solved problems of D1 and D2, and tests, by the length of the planner's plan."
    return plot_of("problems", "Problems by plan length", caption, 0.5 + 1.15 * len(problems), draw)


def _draw_counts(axes: Axes, title: str, counts: Mapping[str, int], number: int) -> None:
    bars = axes.bar(list(counts), list(counts.values()), width=0.8, color=SERIES[number], edgecolor=GRID)
    axes.bar_label(bars, padding=1.5, fontsize=7.5)
    axes.set_ylim(0, 1.35 * max(1, *counts.values()))
    axes.set_yticks([])
    axes.set_title(title)


def draw_tokens(arms: Mapping[str, CriteachArm]) -> Plot:
    """Return valid plans against tokens of a problem, a point an arm (figure 2)."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, arm) in enumerate(arms.items()):
            place = (arm.tokens_per_problem, 100 * arm.figures.accuracy)
            axes.scatter(*place, color=SERIES[number % 4])
            axes.annotate(spoken(name), place, textcoords="offset points", xytext=(5, 4), fontsize=7.5)
        axes.set_xlabel("tokens of a problem")
        axes.set_ylabel("valid plans (%)")
        axes.grid(axis="y")

    return plot_of("tokens", "Success against tokens", "All answers of a vote count.", 3.2, draw)

"""The plots about one run that writes PDDL for texts: figures 2, 3, 6, 7 and 8 of NL-PDDL-Bench, and three of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from plansmith.report.course_plots import course_drawings
from plansmith.report.formalisation_arms import RESAMPLED
from plansmith.report.formalisation_metrics import FormalisationArm, FormalisationFigures
from plansmith.report.formalisation_results import FormalisationResults
from plansmith.report.plots import Share, label_arms, shares_plot
from plansmith.report.sections import Drawing, Plot
from plansmith.report.svg import MARKERS, MUTED, SERIES, legend_above, plot_of
from plansmith.report.wording import spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {
    "psr_of_all": "has a plan",
    "equivalent": "means what the text says",
    "task_success": "its plan solves the task",
}
"""The shares that plots set side by side, with their labels."""
GAINS = {"svr": "SVR", "psr_of_all": "PSR of all", "tsr": "TSR", "cr": "CR", "equivalent": "equivalent"}
"""What figures 3 and 8 show the gain of; the last is ours."""
CASE = "rovers"
"""The domain that figure 7 looks into."""
BARS = "Bars are 95% intervals."


def drawings(results: FormalisationResults) -> Iterator[Drawing]:
    """Yield every plot this run has data for, in reading order."""
    arms, first, main = results.arms, results.first, results.main
    yield Drawing("meaning", arms, partial(draw_meaning, arms))
    if looped := {name: arm for name, arm in arms.items() if arm.by_turn and _is_of_main(name, main)}:
        yield Drawing("turns", looped, partial(draw_turns, looped))
    if first.name != main.name:
        yield Drawing("gains", (first, main), partial(draw_gains, first, main))
    if len(main.by_level) > 1:
        both = {arm.name: arm.by_level for arm in (first, main)}
        yield Drawing("levels", both, partial(draw_levels, "levels", "By level of difficulty", both))
    domain = CASE if CASE in main.by_place else max(main.by_place, key=lambda name: len(main.by_place[name]))
    if len(main.by_place[domain]) > 1 and len(main.by_domain) > 1:
        case = {arm.name: arm.by_place.get(domain, {}) for arm in (first, main)}
        yield Drawing("case", case, partial(draw_levels, "case", f"One domain by level: {domain}", case))
    yield from course_drawings(results.curves, results.time_s)


def _is_of_main(name: str, main: FormalisationArm) -> bool:
    """Return whether an arm is the one that the run is about, or what became of its policy without feedback."""
    policy = main.name.rpartition("_")[0]
    return name in (main.name, f"{policy}_{RESAMPLED}")


def draw_meaning(arms: Mapping[str, FormalisationArm]) -> Plot:
    """Return how many answers have a plan, how many are right, and how many plans solve the task, by arm."""
    lines = {label: [_share(arm, name) for arm in arms.values()] for name, label in SHOWN.items()}
    caption = f"Solvability flatters by what lies between the first two lines. {BARS}"
    return shares_plot(
        "meaning", "Solvable against right", caption, "share of texts (%)", lines, partial(label_arms, names=list(arms))
    )


def draw_turns(arms: Mapping[str, FormalisationArm]) -> Plot:
    """Return the same shares by turn, of arms whose failed answers went on."""
    shown = [name for name in SHOWN if name != "task_success"]
    lines = {
        f"{spoken(arm)}: {SHOWN[name]}": [_share(item, name) for item in figures.by_turn]
        for arm, figures in arms.items()
        for name in shown
    }
    n_turns = max(len(arm.by_turn) for arm in arms.values())

    def label(axes: Axes) -> None:
        axes.set_xticks(range(n_turns))
        axes.set_xlabel("turns, at most")

    caption = f"Turn 0 is the first answer; only answers with something to mend go on. {BARS}"
    return shares_plot("turns", "By turn of the loop", caption, "share of texts (%)", lines, label)


def draw_levels(slug: str, title: str, arms: Mapping[str, Mapping[str, FormalisationFigures]]) -> Plot:
    """Return figures by level of difficulty for some arms (figures 2 and 7)."""
    levels = list(next(iter(arms.values())))
    lines = {
        f"{spoken(arm)}: {GAINS[name]}": [_share(figures[level], name) for level in levels]
        for arm, figures in arms.items()
        for name in ("psr_of_all", "equivalent")
    }

    def label(axes: Axes) -> None:
        axes.set_xticks(range(len(levels)), levels)
        axes.set_xlabel("level")

    return shares_plot(slug, title, BARS, "share of texts (%)", lines, label)


def draw_gains(first: FormalisationArm, main: FormalisationArm) -> Plot:
    """Return by how many points each figure of each domain grew between two arms (figures 3 and 8)."""
    domains = [domain for domain in main.by_domain if domain in first.by_domain]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, (name, label) in enumerate(GAINS.items()):
            gains = [_gain(first.by_domain[domain], main.by_domain[domain], name) for domain in domains]
            places = [place + 0.13 * (i - 2) for place in range(len(domains))]
            axes.scatter(gains, places, color=SERIES[i % 4], marker=MARKERS[i % 5], s=18, label=label)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(range(len(domains)), domains)
        axes.set_ylim(len(domains) - 0.5, -0.5)
        axes.set_xlabel("gain in points")
        axes.grid(axis="x")
        legend_above(figure, axes)

    title = f"Gain by domain, {spoken(first.name)} to {spoken(main.name)}"
    caption = "Differences of the shares in the table by domain, in percentage points."
    return plot_of("gains", title, caption, 1.6 + 0.34 * len(domains), draw)


def _share(figures: FormalisationFigures, name: str) -> Share:
    return getattr(figures, name), figures.ci95[name]


def _gain(before: FormalisationFigures, after: FormalisationFigures, name: str) -> float:
    gain: float = 100 * (getattr(after, name) - getattr(before, name))
    return gain

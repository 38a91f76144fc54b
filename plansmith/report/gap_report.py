"""The report of a run of `generalization_gap`: its sentences, and which sections it has.

Not here: the figures (`gap_results`), the tables (`gap_tables`), how a report is shown (`render`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from plansmith.groups import grouped
from plansmith.report.course_plots import course_drawings, draw_updates
from plansmith.report.gap_results import SEEN, UNSEEN, GapArm, GapResults
from plansmith.report.gap_tables import (
    arm_name,
    arm_table,
    cost_table,
    domain_table,
    effort_table,
    failure_table,
    invented_table,
    label_table,
    leak_table,
    length_table,
    level_table,
    loop_table,
    planning_table,
    price_table,
    training_table,
    unseen_table,
)
from plansmith.report.metrics import PairedComparison
from plansmith.report.plots import label_arms, shares_plot
from plansmith.report.run_sections import (
    EACH_IN_TURN,
    accuracy_tile,
    course_section,
    dropped_sequences,
    paired_tests,
    run_provenance,
    time_tile,
)
from plansmith.report.sections import Attempts, Block, Drawing, Plot, Report, Section, Tile, Tiles
from plansmith.report.svg import LINE_STYLES, SERIES, plot_of
from plansmith.report.wording import INTERVALS, comparison_text, interval, percent, spoken

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT_COUNTS = (
    "A plan is valid when the validator finds every action applicable and the goal reached. Each policy is asked as it "
    "was tuned: the anonymised one for problems whose names are hidden, the compact ones for compact plans. No test "
    "problem has the canonical form of one that was learnt from."
)
CHOSEN_ON = "Settings are chosen on the invented domains that are held out, never on the domains that are only tested."
RL_PANELS = {
    "reward": ("rollout/reward",),
    "share of rollouts": ("rollout/share valid", "rollout/share goal_not_reached",
                          "rollout/share precondition_unsatisfied", "rollout/share malformed_plan"),
    "other shares": ("rollout/share cut", "rollout/share empty_plan", "rollout/share unjudged"),
    "groups": ("group/asked", "group/equal"),
    "sum of |A|, groups": ("group/advantage with a valid plan", "group/advantage without a valid plan"),
    "updates behind": ("rollout/staleness",),
    "seconds": ("time/generating_s", "time/waiting for rollouts_s", "time/judging_s", "time/training_s"),
    "entropy": ("group_relative/entropy",),
    "ratio, weights": ("group_relative/ratio", "group_relative/weight", "group_relative/limited_weight"),
    "share clipped": ("group_relative/clipped_low", "group_relative/clipped_high"),
    "divergence": ("group_relative/divergence",),
    "mismatch": ("group_relative/mismatch",),
}  # fmt: skip
"""Panels about the updates of reinforcement learning, each with the figures that it shows."""


def gap_report(results: GapResults) -> Report:
    """Return what is said about a run, finished or not."""
    return Report(f"Plansmith report: {results.run_name}", *headline(results), tuple(_sections(results)))


def headline(results: GapResults) -> tuple[str, str]:
    """Return how many plans are valid where it was trained and where not, and the evidence, as two sentences."""
    last = results.last
    result = f"{percent(last.seen.accuracy)} of {last.seen.n} plans are valid in domains trained on"
    if last.unseen is not None:
        result += f", {percent(last.unseen.accuracy)} of {last.unseen.n} in domains never trained on"
    evidence = f"95% interval {interval(last.seen.ci95)}"
    if last.unseen is not None:
        evidence += f", and {interval(last.unseen.ci95)}"
    tests = [describe_test(results, comparison) for comparison in results.paired_tests[:1]]
    return f"{result} ({arm_name(last.name)}).", " ".join([f"{evidence}.", *tests])


def describe_test(results: GapResults, comparison: PairedComparison) -> str:
    """Return one paired test in plain words."""
    before, after = arm_name(comparison.before), arm_name(comparison.after)
    what = f"{comparison.level}, {before} to {after}: the share of valid plans"
    return comparison_text(what, _shares(results, comparison), comparison.test)


def _shares(results: GapResults, comparison: PairedComparison) -> tuple[float, float]:
    """Return the shares of valid plans that are compared."""
    before, after = (results.figures(name, comparison.level) for name in (comparison.before, comparison.after))
    return before.accuracy, after.accuracy


def _told(results: GapResults, comparisons: Sequence[PairedComparison]) -> Iterator[str]:
    """Yield every test in words; those of policies that solve nothing, which say nothing, counted in one sentence."""
    empty = Counter(test.level for test in comparisons if not any(_shares(results, test)))
    yield from (describe_test(results, test) for test in comparisons if any(_shares(results, test)))
    for scope, count in empty.items():
        yield f"{scope.capitalize()}, pairs of which neither solves anything, so that nothing is compared: {count}."


def _sections(results: GapResults) -> Iterator[Section]:
    """Yield the sections in reading order; those that a run has no data for are empty."""
    tests = paired_tests(_told(results, results.paired_tests))
    yield Section("", (Tiles(tuple(_tiles(results))),))
    yield Section(
        "Every policy on the same test problems",
        (arm_table(results), domain_table(results), tests),
        note=" ".join(filter(None, (WHAT_COUNTS, _shared_plans(results), INTERVALS))),
    )
    yield Section("The gap", (level_table(results), unseen_table(results), failure_table(results)))
    yield Section("A label budget", (label_table(results),), note=INTERVALS)
    if results.domains is not None:
        yield Section("Invented domains", (invented_table(results),), note=CHOSEN_ON)
    trained = (training_table(results), length_table(results), dropped_sequences(results))
    yield Section("How it was trained", trained)
    yield Section("What was held out", (leak_table(results),), is_printed=False)
    yield course_section(results, drawings(results))
    yield Section("What it cost", tuple(_costs(results)))
    yield Section("What it got wrong", (Attempts(results.failures),), note=EACH_IN_TURN)
    yield run_provenance(results)


def _shared_plans(results: GapResults) -> str:
    """Return what v2 and v3 learnt from, where that is not every problem and its plan."""
    share = results.config["plan_share"]
    if share == 1:
        return ""
    return (
        f"v2 (compact) learnt from {percent(share)} of the plans, in as many more variations, so that it is no equal "
        "of B; v3, and what learnt from its own plans, tried the other problems, without theirs."
    )


def _tiles(results: GapResults) -> Iterator[Tile]:
    last = results.last
    for scope, figures in ((SEEN, last.seen), (UNSEEN, last.unseen)):
        if figures is not None:
            yield accuracy_tile(f"{arm_name(last.name)}, {scope}", figures)
    yield from time_tile(results)


def _costs(results: GapResults) -> Iterator[Block]:
    yield effort_table(results)
    yield loop_table(results)
    if results.cost is not None:
        yield price_table(results.cost)
        yield planning_table(results.cost)
    yield cost_table(results)


def drawings(results: GapResults) -> Iterator[Drawing]:
    """Yield what shows the arms, the updates, and the course of every optimisation."""
    yield Drawing("arms", results.arms, partial(draw_arms, results.arms))
    if results.effort:
        yield Drawing("effort", (results.arms, results.effort), partial(draw_effort, results))
    for loop, figures in results.rl.items():
        title = f"Reinforcement learning: {arm_name(loop)}"
        yield Drawing(f"updates {loop}", figures, partial(draw_updates, loop, title, RL_PANELS, figures))
    yield from course_drawings(results.curves, results.time_s)


def draw_arms(arms: Mapping[str, GapArm]) -> Plot:
    """Return valid plans by arm, which are epochs of each variant, where it was trained and where not (figure 4)."""
    lines = {SEEN: [(arm.seen.accuracy, arm.seen.ci95) for arm in arms.values()]}
    unseen = [arm.unseen for arm in arms.values() if arm.unseen is not None]
    if len(unseen) == len(arms):
        lines[UNSEEN] = [(figures.accuracy, figures.ci95) for figures in unseen]
    label = partial(label_arms, names=list(arms))
    return shares_plot("arms", "Valid plans", "Bars are 95% intervals.", "valid plans (%)", lines, label)


def effort_lines(arms: Iterable[str], loops: Container[str]) -> dict[str, list[str]]:
    """Return the arms of each way to train: epochs of a variant, segments of a loop; any other is one of its own."""
    return grouped(arms, lambda arm: arm if arm in loops else re.sub(r"_\d+(_of_\d+)?$", "", arm))


EFFORTS = {"epochs": "epochs", "rollouts": "rollouts", "seconds": "seconds of training"}
"""What validity is drawn against, with the label of the axis."""


def draw_effort(results: GapResults) -> Plot:
    """Return valid plans by epochs, rollouts and seconds of training, a line for each way to train (figure 4)."""
    lines = effort_lines(results.effort, results.rl)

    def draw(figure: Figure) -> None:
        for axes, (kind, label) in zip(figure.subplots(1, len(EFFORTS), sharey=True), EFFORTS.items(), strict=True):
            for number, (line, names) in enumerate(lines.items()):
                places = [getattr(results.effort[name], kind) for name in names]
                shares = [100 * results.arms[name].seen.accuracy for name in names]
                points = sorted(zip(places, shares, strict=True))
                axes.plot(*zip(*points, strict=True), color=SERIES[number % 4], linestyle=LINE_STYLES[number // 4 % 4],
                          marker="o", markersize=3, linewidth=1.2, label=spoken(line))  # fmt: skip
            axes.set_xlabel(label)
            axes.grid(axis="y")
        figure.axes[0].set_ylabel("valid plans (%)")
        figure.axes[0].legend(loc="best", fontsize=7.5)

    caption = "In domains trained on, by what the training took from the untrained model on: the paper's figure 4."
    return plot_of("effort", "Valid plans by effort", caption, 2.6, draw)

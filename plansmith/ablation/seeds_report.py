"""The report of several seeds of one way of training: its tables, its plot, its sentences.

Not here: the figures (`seeds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from plansmith.ablation.order import OrderTest, Outcome
from plansmith.ablation.seeds import DEVELOPMENT_SEEDS, SeedsResults
from plansmith.ablation.summary import AblationCell, MeanCell, SeedMean
from plansmith.ablation.tables import INTERVALS, ORDER_HEADER, difference_text, how_tested, order_row
from plansmith.report.arms import CONTROL
from plansmith.report.metrics import ALL_LEVELS
from plansmith.report.plots import label_arms
from plansmith.report.run_sections import provenance_section
from plansmith.report.sections import Drawing, Plot, Plots, Report, Section, Table
from plansmith.report.svg import legend_above, legend_height, percent_axis, plot_of, series
from plansmith.report.wording import SIGNIFICANCE, interval, p_cell, p_text, percent, spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOME_WORDS = {
    Outcome.CONFIRMED: "improved",
    Outcome.NOT_SIGNIFICANT: "not significant",
    Outcome.REVERSED: "fell",
}


def seeds_report(results: SeedsResults) -> Report:
    """Return what is said about several seeds: every level, every seed, and whether the final policy is better."""
    note = (
        f"Means over the seeds {listed(results.seeds)}, with their sample standard deviation and the seed that solved "
        f"least. {INTERVALS}"
    )
    return Report(
        f"Plansmith seeds: {results.name}",
        *headline(results),
        (
            Section("Every seed on its way", (Plots(tuple(_drawings(results))),)),
            Section(
                "Accuracy by policy", tuple(level_table(results, level) for level in reversed(results.levels)), note
            ),
            Section("Is the final policy better?", tuple(_test_tables(results))),
            provenance_section(results),
        ),
    )


def headline(results: SeedsResults) -> tuple[str, str]:
    """Return the main result over all seeds, and the evidence for it.

    An improvement is one only if the pooled test finds it and the spread over seeds leaves no room for 0.
    """
    if not results.tests:
        return f"{results.name}: nothing to compare the final policy with.", seeds_sentence(results.seeds)
    test, n_seeds = results.tests[0], len(results.tests[0].by_seed)
    levels = [level for level in results.levels if level != ALL_LEVELS] if test.scope == ALL_LEVELS else [test.scope]
    change = (
        f"from {percent(test.accuracy_before)} ({spoken(test.before)}) to {percent(test.accuracy_after)} "
        f"({spoken(test.after)}) on test problems ({', '.join(levels)}), mean of {n_seeds} seed{'s' * (n_seeds > 1)}"
    )
    if not test.is_significant:
        result = f"No significant change in plan accuracy: {change}."
    elif not test.is_beyond_seeds:
        result = f"No change in plan accuracy beyond the spread of the seeds: {change}."
    else:
        result = f"Plan accuracy {OUTCOME_WORDS[test.outcome]} {change}."
    return result, f"{_evidence(results, test)} {seeds_sentence(results.seeds)}"


def _evidence(results: SeedsResults, test: OrderTest) -> str:
    """Return the difference over seeds, the pooled test, and how many seeds agree."""
    worst = _worst_text(next(cell for cell in results.cells if (cell.arm, cell.scope) == (test.after, test.scope)))
    alone = [one.test for one in test.by_seed if one.test.p_value < SIGNIFICANCE]
    n_better = sum(one.only_after > one.only_before for one in alone)
    return (
        f"Difference over seeds {difference_text(test)} points; all seeds pooled, {test.test.name}: "
        f"{p_text(test.test.p_value)} (two-sided). Of {len(test.by_seed)} seeds alone {n_better} are significantly "
        f"better and {len(alone) - n_better} significantly worse; the worst ends with {worst}."
    )


def seeds_sentence(seeds: Sequence[int]) -> str:
    """Return which seeds were used, and whether a setting may have been chosen on them."""
    first, used = DEVELOPMENT_SEEDS.stop, f"Seeds {listed(seeds)}"
    if known := [seed for seed in seeds if seed in DEVELOPMENT_SEEDS]:
        return f"{used}: settings are chosen on seeds below {first}, such as {listed(known)}; this supports no claim."
    return f"{used}: settings are chosen on seeds below {first} only."


def level_table(results: SeedsResults, level: str) -> Table:
    """Return the figures of every arm on one level, or on all, with each seed in a column."""
    return replace(seeds_table(level, results.of_level(level), results.seeds), is_last_strong=True)


def seeds_table(
    title: str, cells: Sequence[MeanCell], seeds: Sequence[int], *, note: str = "", is_fault: bool = False
) -> Table:
    """Return what every arm reached, with each seed in a column; of a fault the greatest share is the worst."""
    rows = []
    for cell in cells:
        of_seed = {figures.seed: percent(figures.accuracy) for figures in cell.seeds}
        spread = "-" if cell.sd is None else f"{100 * cell.sd:.1f}"
        reach = "-" if cell.ci95 is None else interval(cell.ci95)
        figures = (percent(cell.mean), spread, reach, _worst_text(cell, is_fault=is_fault))
        rows.append((spoken(cell.arm), *figures, *(of_seed.get(seed, "-") for seed in seeds)))
    header = ("policy", "mean", "sd", "95% interval", "worst", *(f"seed {seed}" for seed in seeds))
    return Table(title, header, tuple(rows), note)


def worst_seed(cell: MeanCell, *, is_fault: bool = False) -> SeedMean:
    """Return the seed that reached least; of a fault the one that has most of it."""
    return (max if is_fault else min)(cell.seeds, key=lambda figures: figures.accuracy)


def _worst_text(cell: MeanCell, *, is_fault: bool = False) -> str:
    """Return what the worst seed reached, and which it is."""
    worst = worst_seed(cell, is_fault=is_fault)
    return f"{percent(worst.accuracy)} (seed {worst.seed})"


def _test_tables(results: SeedsResults) -> Iterator[Table]:
    """Yield the headline's test seed by seed, then all tests."""
    if not results.tests:
        return
    test = results.tests[0]
    of_seed = [
        (f"seed {one.seed}", str(one.test.n), str(one.test.n_forms), str(one.test.only_before),
         str(one.test.only_after), p_cell(one.test.p_value))
        for one in test.by_seed
    ]  # fmt: skip
    before, after = spoken(test.before), spoken(test.after)
    header = ("seed", "problems", "forms", f"only {before}", f"only {after}", "p")
    yield Table(f"The headline's test by seed: {before} to {after}, {test.scope}", header, tuple(of_seed))
    rows = [order_row(one, f"{spoken(one.before)} to {spoken(one.after)}", OUTCOME_WORDS) for one in results.tests]
    note = f"The first row is the headline's, chosen before any run. {how_tested(rows)} {INTERVALS}"
    yield Table("All tests", ORDER_HEADER, tuple(rows), note)


def _drawings(results: SeedsResults) -> Iterator[Drawing]:
    """Yield the accuracies of the seeds by arm, a drawing a level."""
    for number, level in enumerate(results.levels, 1):
        yield Drawing(f"seeds {level}", results.cells, partial(draw_seeds, results, number, level))


def draw_seeds(results: SeedsResults, number: int, level: str) -> Plot:
    """Return accuracy by arm, from the first to the final one, with a line a seed and the mean of all."""
    cells = [cell for cell in results.of_level(level) if not cell.arm.startswith(CONTROL)]  # it is on no way
    labels = [f"seed {seed}" for seed in results.seeds]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, (seed, label) in enumerate(zip(results.seeds, labels, strict=True)):
            _draw_seed(axes, cells, seed, place, label)
        percent_axis(axes, "plan accuracy (%)")
        label_arms(axes, [cell.arm for cell in cells])
        legend_above(figure, axes)

    means = [percent(cell.mean) for cell in cells]
    caption = f"Share of test problems solved, a line a seed; the mean goes from {means[0]} to {means[-1]}."
    return plot_of(f"seeds-{number}", f"Accuracy by seed, {level}", caption, 2.9 + legend_height(labels), draw)


def _draw_seed(axes: Axes, cells: Sequence[AblationCell], seed: int, number: int, label: str) -> None:
    points = [
        (place, 100 * figures.accuracy)
        for place, cell in enumerate(cells)
        for figures in cell.seeds
        if figures.seed == seed
    ]
    x, y = zip(*points, strict=True)
    axes.plot(x, y, **series(number), label=label)


def listed(seeds: Sequence[int]) -> str:
    """Return seeds as words: consecutive ones as "100 to 104"."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))

"""The report of the study of damaged domains: success, cost and disagreement by damage, and which literals it was.

Not here: the figures (`domain_damage`), every seed and the tests of success (`seeds_report`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from plansmith.ablation.domain_damage import (
    ARMS,
    COST,
    DISAGREEMENT,
    FIGURES,
    INTACT,
    KINDS,
    LITERALS,
    PROGRESS,
    TRUE_PLANS,
    DamageResults,
    DrawnDamage,
    variant_name,
)
from plansmith.ablation.seeds_report import listed, seeds_report, seeds_sentence
from plansmith.ablation.summary import MeanCell
from plansmith.report.sections import Drawing, Listing, Plot, Plots, Report, Section, Table
from plansmith.report.svg import legend_above, legend_height, plot_of, series
from plansmith.report.wording import interval, number_or_dash, percent, percent_or_dash, spoken

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {"valid plans (%)": None, COST: COST, DISAGREEMENT: DISAGREEMENT}
"""What the plot shows, by the label of its axis; None is success."""
LAST = ARMS[-1]


def damage_report(results: DamageResults) -> Report:
    """Return what is said about how wrong a domain may be."""
    success = results.success
    note = (
        f"Means over the seeds {listed(success.seeds)}; plans by the reference domain, costs by the damaged one. "
        "Disagreement: "
        "rollouts of the reinforcement that damaged and reference domain judge differently, mean over its updates."
    )
    of_seeds = seeds_report(success)
    return Report(
        f"Plansmith study: domain damage, {success.name}",
        *headline(results),
        (
            Section("How wrong may the domain be?", (damage_table(results), Plots((drawing(results),))), note),
            Section("What was damaged", (drawn_table(results), *map(_listing, results.drawn))),
            *of_seeds.sections,
        ),
    )


def headline(results: DamageResults) -> tuple[str, str]:
    """Return success in the domain as written and in the most damaged ones, and the evidence."""
    intact, most = results.cell(LAST, INTACT), LITERALS[-1]
    worst = {kind: results.cell(LAST, variant_name(kind, most)) for kind in KINDS}
    told = [f"{percent(cell.mean)} with {most} literals {kind}" for kind, cell in worst.items() if cell is not None]
    start = "" if intact is None else f"{percent(intact.mean)} of test plans are valid in the domain as written; "
    result = f"{spoken(LAST)}: {start}{', '.join(told) or 'nothing tried with most damage yet'}."
    return result, seeds_sentence(results.success.seeds)


def damage_table(results: DamageResults) -> Table:
    """Return success and every figure of each arm by damage."""
    rows = []
    for kind, n in ((INTACT, 0), *((kind, n) for kind in KINDS for n in LITERALS)):
        for arm in ARMS:
            cell = results.cell(arm, variant_name(kind, n))
            if cell is None:
                continue
            reach = "-" if cell.ci95 is None else interval(cell.ci95)
            of_arm = {figure: results.cell(arm, variant_name(kind, n), figure) for figure in FIGURES}
            shown = (
                number_or_dash(_mean(of_arm[COST]), 2),
                number_or_dash(_mean(of_arm[PROGRESS]), 2),
                percent_or_dash(_mean(of_arm[DISAGREEMENT])),
                percent_or_dash(_mean(of_arm[TRUE_PLANS])),
            )
            rows.append((f"{n} {kind}, {spoken(arm)}" if n else f"0, {spoken(arm)}", percent(cell.mean), reach, *shown))
    header = ("literals, policy", "valid plans", "95% interval", COST, PROGRESS, DISAGREEMENT, "library's true plans")
    return Table("By damage", header, tuple(rows))


def drawn_table(results: DamageResults) -> Table:
    """Return which literals were drawn for each seed, and what the damaged domain still explains."""
    rows = tuple(
        (
            f"{spoken(item.variant)}, seed {item.seed}: {'; '.join(item.damage.changes)}",
            str(item.damage.n_redrawn),
            *(percent_or_dash(getattr(item.damage.figures, name)) for name in ("transitions", "refusals", "solved")),
            percent_or_dash(item.damage.figures.true_plans),
        )
        for item in results.drawn
    )
    note = (
        "Drawn again: draws before, in whose domain no scene could be solved. Shares of demonstrated attempts "
        "explained, of refused ones forbidden, of scenes solved, and of scenes whose plan is true in the simulator."
    )
    return Table("Literals", ("damage", "drawn again", "transitions", "refusals", "solved", "true plans"), rows, note)


def _listing(item: DrawnDamage) -> Listing:
    """Return a damaged domain as it was learnt in."""
    return Listing(f"{item.domain}, {spoken(item.variant)}, seed {item.seed}", {"domain.pddl": item.damage.domain_pddl})


def _mean(cell: MeanCell | None) -> float | None:
    return None if cell is None else cell.mean


def drawing(results: DamageResults) -> Drawing:
    """Return success, cost and disagreement against damage."""
    return Drawing("domain-damage", (results.success.cells, results.measured), partial(draw_damage, results))


def draw_damage(results: DamageResults) -> Plot:
    """Return a panel for each figure, with a line for each arm and kind of damage, over the number of literals."""
    lines = {f"{spoken(arm)}, {kind}": (arm, kind) for kind in KINDS for arm in ARMS}

    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(PANELS), 1, sharex=True)
        for axes, (label, measured) in zip(panels, PANELS.items(), strict=True):
            for number, (name, (arm, kind)) in enumerate(lines.items()):
                points = list(_points(results, arm, kind, measured))
                if points:
                    axes.plot(*zip(*points, strict=True), **series(number), label=name)
            axes.set_ylabel(label)
            axes.grid(axis="y")
        panels[-1].set_xlabel("literals")
        panels[-1].set_xticks((0, *LITERALS))
        legend_above(figure, panels[0])

    caption = "Literals removed from the written domain, or added to it; means over seeds."
    return plot_of("domain-damage", "Success, cost and disagreement", caption, 5.2 + legend_height(list(lines)), draw)


def _points(results: DamageResults, arm: str, kind: str, figure: str | None) -> Iterator[tuple[int, float]]:
    for n in (0, *LITERALS):
        cell = results.cell(arm, variant_name(kind, n), figure)
        if cell is not None:
            yield n, cell.mean * (100 if figure is None else 1)

"""The report of an ablation: ``ablation.json``, ``ablation.md``, ``index.html``, and what a terminal prints.

Not here: the figures (`ablation`), the tables (`ablation_tables`), the drawings (`ablation_plots`). The page needs no
network.
"""

from __future__ import annotations

from pathlib import Path

from plansmith.evaluation.ablation import AblationResults
from plansmith.evaluation.ablation_json import ablation_to_json
from plansmith.evaluation.ablation_order import OrderTest, Outcome
from plansmith.evaluation.ablation_plots import draw_ablation
from plansmith.evaluation.ablation_tables import (
    ablation_tables,
    accuracy_table,
    configuration_table,
    difference_text,
    error_table,
)
from plansmith.evaluation.paper_figures import TABLE_1
from plansmith.evaluation.report import flatten, page_environment, table_markdown, trusted_svg, write_text
from plansmith.evaluation.wording import interval, p_text, percent
from plansmith.layout import text_table

OUTCOME_WORDS = {
    Outcome.CONFIRMED: "more than chance, in the paper's order",
    Outcome.NOT_SIGNIFICANT: "not significant, it may be chance",
    Outcome.REVERSED: "more than chance, against the paper's order",
}


def write_ablation(results: AblationResults, folder: Path) -> Path:
    """Return the path of the page, after writing it, ``ablation.json`` and ``ablation.md`` into ``folder``.

    Equal results give equal files. Each file appears complete or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "ablation.json", ablation_to_json(results))
    write_text(folder / "ablation.md", render_markdown(results))
    write_text(folder / "index.html", render_page(results))
    return folder / "index.html"


def format_ablation(results: AblationResults) -> str:
    """Return what a terminal shows: the headline, tables 1, 4 and 5, and the order of the arms in words."""
    tables = (accuracy_table(results), configuration_table(results), error_table(results))
    blocks = [f"{table.title}\n{text_table(table.header, table.rows)}\n{table.note}" for table in tables]
    sentences = [describe_order(results, test) for test in results.tests]
    return "\n\n".join([headline(results), *blocks, *(["\n".join(sentences)] if sentences else [])])


def headline(results: AblationResults) -> str:
    """Return which arm is best, by how much over the first arm, and how much of the paper's order the tests confirm."""
    best, first = results.best_arm, results.arms[0]
    parts = []
    for domain in results.domains:
        best_cell, first_cell = results.cell(best.id, domain), results.cell(first.id, domain)
        if best_cell is not None and first_cell is not None:
            parts.append(f"{percent(best_cell.mean)} in {domain} ({interval(best_cell.ci95)}; {first.label}: "
                         f"{percent(first_cell.mean)})")  # fmt: skip
    counts = {outcome: sum(test.outcome is outcome for test in results.tests) for outcome in Outcome}
    n_firm = sum(test.outcome is Outcome.CONFIRMED and test.is_beyond_seeds for test in results.tests)
    n_seeds = len(results.seeds)
    return (
        f"Highest mean accuracy: {best.label}, {'; '.join(parts)}; {n_seeds} seed{'s' if n_seeds > 1 else ''}. "
        f"Of {len(results.tests)} comparisons in the paper's order {counts[Outcome.CONFIRMED]} are confirmed "
        f"({n_firm} also by the spread over seeds), "
        f"{counts[Outcome.NOT_SIGNIFICANT]} not significant, {counts[Outcome.REVERSED]} reversed."
    )


def describe_order(results: AblationResults, test: OrderTest) -> str:
    """Return one pair of arms in plain words, saying so when the difference may be chance."""
    label_of = {arm.id: arm.label for arm in results.arms}
    before, after = test.accuracy_before, test.accuracy_after
    change = f"{'rises' if after > before else 'falls'} from {percent(before)} ({interval(test.ci95_before)}) to"
    if after == before:
        change = f"stays, {percent(before)} ({interval(test.ci95_before)}) and"
    seeds = "; ".join(f"seed {one.seed} {p_text(one.test.p_value)}" for one in test.by_seed)
    return (
        f"{test.domain}, {label_of[test.before]} to {label_of[test.after]}: accuracy {change} "
        f"{percent(after)} ({interval(test.ci95_after)}); of {test.test.n} pairs "
        f"{test.test.only_after} solved only after, {test.test.only_before} only before; paired exact test "
        f"{p_text(test.test.p_value)} (two-sided): {OUTCOME_WORDS[test.outcome]}. By seed: {seeds}. Difference over "
        f"seeds {difference_text(test)} points{_seed_words(test)}.{_paper_words(results, test)}"
    )


def render_markdown(results: AblationResults) -> str:
    """Return ``ablation.md``: headline, every table, the order of the arms in words."""
    parts = [f"# Ablation: {results.name}", f"**{headline(results)}**"]
    for table in ablation_tables(results):
        parts += table_markdown(table)
    if results.tests:
        parts += ["## The order of the arms in words"]
        parts.append("\n".join(f"- {describe_order(results, test)}" for test in results.tests))
    if results.command:
        parts.append(f"Made by `{results.command}`.")
    return "\n\n".join(parts) + "\n"


def render_page(results: AblationResults) -> str:
    """Return ``index.html``: one file, no outside resource, every text of the ablation escaped."""
    return (
        page_environment()
        .get_template("ablation.html.j2")
        .render(
            results=results,
            headline=headline(results),
            tables=ablation_tables(results),
            sentences=[describe_order(results, test) for test in results.tests],
            plots=[(plot, trusted_svg(plot)) for plot in draw_ablation(results)],
            settings=list(flatten(results.config)),
        )
    )


def _seed_words(test: OrderTest) -> str:
    """Return the warning that a significant difference may not come again when trained again."""
    if test.is_beyond_seeds or not test.is_significant:
        return ""
    return ": training again may not show it" if test.difference_ci95 else ": one seed cannot tell of another training"


def _paper_words(results: AblationResults, test: OrderTest) -> str:
    """Return what the paper has for the same pair, or nothing where it has not the domain."""
    column_of = {arm.id: arm.paper_label for arm in results.arms}
    before, after = column_of[test.before], column_of[test.after]
    if before is None or after is None or test.domain not in TABLE_1[before]:
        return ""
    return f" The paper: {TABLE_1[before][test.domain]:.0f}% to {TABLE_1[after][test.domain]:.0f}%."

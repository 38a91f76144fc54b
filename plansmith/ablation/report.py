"""The report of an ablation: its sentences, and which sections it has.

Not here: the figures (`ablation`), the tables (`ablation_tables`), the drawings (`ablation_plots`), how a report is
shown (`report`).
"""

from __future__ import annotations

from collections.abc import Mapping

from plansmith.ablation.order import OrderTest, Outcome
from plansmith.ablation.paper_figures import TABLE_1
from plansmith.ablation.plots import ablation_drawings
from plansmith.ablation.summary import AblationResults
from plansmith.ablation.tables import ablation_tables, contrast_table, difference_text
from plansmith.report.run_sections import provenance_section
from plansmith.report.sections import Plots, Report, Section, Sentences
from plansmith.report.wording import interval, p_text, percent

OUTCOME_WORDS = {
    Outcome.CONFIRMED: "more than chance, in the paper's order",
    Outcome.NOT_SIGNIFICANT: "not significant, it may be chance",
    Outcome.REVERSED: "more than chance, against the paper's order",
}
CONTRAST_WORDS = {
    Outcome.CONFIRMED: "more than chance, the second is better",
    Outcome.NOT_SIGNIFICANT: OUTCOME_WORDS[Outcome.NOT_SIGNIFICANT],
    Outcome.REVERSED: "more than chance, the first is better",
}


def ablation_report(results: AblationResults) -> Report:
    """Return what is said about an ablation: tables 1, 4 and 5, what teaches, the order of the arms, every figure."""
    seeds = len(results.seeds)
    best = f"Highest mean accuracy: {results.best_arm.label}, over {seeds} seed{'s' * (seeds > 1)}."
    shown, further = ablation_tables(results)
    orders = tuple(describe_order(results, test) for test in results.tests)
    contrasts = tuple(describe_order(results, test, CONTRAST_WORDS) for test in results.contrasts)
    course = " and by iteration" if results.iterations else ""
    return Report(
        f"Plansmith ablation: {results.name}",
        best,
        headline(results),
        (
            Section(f"Accuracy by arm{course}", (Plots(tuple(ablation_drawings(results))),)),
            Section("As the paper's tables", shown),
            Section("Which part teaches", (contrast_table(results), Sentences(contrasts))),
            Section("Further figures", further, is_printed=False),
            Section("The order of the arms in words", (Sentences(orders),)),
            provenance_section(results),
        ),
    )


def headline(results: AblationResults) -> str:
    """Return what the best arm reaches, beside the first arm, and how much of the paper's order the tests confirm."""
    best, first = results.best_arm, results.arms[0]
    parts = []
    for domain in results.domains:
        best_cell, first_cell = results.cell(best.id, domain), results.cell(first.id, domain)
        if best_cell is not None and first_cell is not None:
            parts.append(f"{percent(best_cell.mean)} in {domain} ({interval(best_cell.ci95)}; {first.label}: "
                         f"{percent(first_cell.mean)})")  # fmt: skip
    counts = {outcome: sum(test.outcome is outcome for test in results.tests) for outcome in Outcome}
    n_firm = sum(test.outcome is Outcome.CONFIRMED and test.is_beyond_seeds for test in results.tests)
    return (
        f"It reaches {'; '.join(parts)}. Of {len(results.tests)} comparisons in the paper's order "
        f"{counts[Outcome.CONFIRMED]} are confirmed ({n_firm} also by the spread over seeds), "
        f"{counts[Outcome.NOT_SIGNIFICANT]} not significant, {counts[Outcome.REVERSED]} reversed."
    )


def describe_order(results: AblationResults, test: OrderTest, words: Mapping[Outcome, str] = OUTCOME_WORDS) -> str:
    """Return one pair of arms in plain words, saying so when the difference may be chance."""
    label_of = {arm.id: arm.label for arm in results.arms}
    what = f"{test.scope}, {label_of[test.before]} to {label_of[test.after]}: accuracy"
    return f"{order_sentence(what, test, words)}{_paper_words(results, test)}"


def order_sentence(what: str, test: OrderTest, words: Mapping[Outcome, str], *, counted: str = "solved") -> str:
    """Return one test over seeds in plain words.

    Args:
        what: is compared, the beginning of the sentence.
        test: of it.
        words: for what it says.
        counted: what became of the problems that make up the shares.
    """
    before, after = test.accuracy_before, test.accuracy_after
    change = f"{'rises' if after > before else 'falls'} from {percent(before)} ({interval(test.ci95_before)}) to"
    if after == before:
        change = f"stays, {percent(before)} ({interval(test.ci95_before)}) and"
    seeds = "; ".join(f"seed {one.seed} {p_text(one.test.p_value)}" for one in test.by_seed)
    return (
        f"{what} {change} {percent(after)} ({interval(test.ci95_after)}); of {test.test.n} pairs "
        f"{test.test.only_after} {counted} only after, {test.test.only_before} only before; {test.test.name} "
        f"{p_text(test.test.p_value)} (two-sided): {words[test.outcome]}. By seed: {seeds}. Difference over "
        f"seeds {difference_text(test)} points{_seed_words(test)}."
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
    if before is None or after is None or test.scope not in TABLE_1[before]:
        return ""
    return f" The paper: {TABLE_1[before][test.scope]:.0f}% to {TABLE_1[after][test.scope]:.0f}%."

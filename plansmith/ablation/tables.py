"""The tables of an ablation in the shapes of the paper's tables 1, 4 and 5, with the paper's figures beside ours.

Not here: sentences and files (`ablation_report`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from plansmith.ablation.order import OrderTest, Outcome
from plansmith.ablation.paper_figures import (
    PAPER_MODEL,
    TABLE_1,
    TABLE_4,
    TABLE_5,
    TABLE_5_NAMES,
    TABLE_5_TOTAL,
)
from plansmith.ablation.summary import AblationArm, AblationCell, AblationResults
from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.sections import Table
from plansmith.report.wording import beside, gain_text, interval, p_cell, percent

PAPERS = f"In brackets: the paper's own figure, for {PAPER_MODEL} with eta = 10 and 15"
INTERVALS = (
    "Intervals are 95%: over seeds Student's t-interval, never narrower than that of all problems pooled (Wilson's for "
    "an accuracy, Agresti and Min's for a difference); of a single seed Wilson's. Problems that differ only in the "
    "names of objects are one form; intervals count them for what the forms are worth."
)


ORDER_HEADER = ("first to second, domain", "first", "second", "pairs", "forms", "only first", "only second", "p",
                "p by seed", "difference over seeds", "result")  # fmt: skip
OUTCOMES_OF_ORDER: Mapping[Outcome, str] = {outcome: outcome.value for outcome in Outcome}
OUTCOMES_OF_CONTRAST: Mapping[Outcome, str] = {
    Outcome.CONFIRMED: "second better",
    Outcome.NOT_SIGNIFICANT: "not significant",
    Outcome.REVERSED: "first better",
}


def ablation_tables(results: AblationResults) -> tuple[tuple[Table, ...], tuple[Table, ...]]:
    """Return the tables in the shapes of the paper's, and then the others."""
    shown = (accuracy_table(results), configuration_table(results), error_table(results))
    return shown, (order_table(results), interval_table(results), run_table(results))


def accuracy_table(results: AblationResults) -> Table:
    """Return accuracy by model, domain and arm (table 1), in percent, means over seeds; the paper's arms only."""
    arms = [arm for arm in results.arms if arm.paper_label is not None]
    rows = [
        (f"{results.model}, {domain}", *(_with_paper(results, arm, domain) for arm in arms))
        for domain in results.domains
    ]
    note = (
        f"Plan accuracy in percent, mean over seeds {_seeds(results)}. {PAPERS}, in the column of the same rank: its "
        "lower eta beside our lower one, its higher beside our higher."
    )
    header = ("model, domain", *(arm.column for arm in arms))
    return Table("Plan accuracy (the paper's table 1)", header, tuple(rows), note)


def configuration_table(results: AblationResults) -> Table:
    """Return accuracy by configuration and domain with its standard deviation over seeds (table 4)."""
    rows = [(arm.label, *(_with_deviation(results, arm, domain) for domain in results.domains)) for arm in results.arms]
    note = (
        f"Plan accuracy in percent, mean ± sample standard deviation over seeds {_seeds(results)}. {PAPERS}; it does "
        "not say what its ± is. Table 4 has no row for the lower eta."
    )
    header = ("configuration", *results.domains)
    return Table("Contribution of each part (the paper's table 4)", header, tuple(rows), note)


def order_table(results: AblationResults) -> Table:
    """Return the tests of the paper's order, one row a pair and domain."""
    rows = _order_rows(results, results.tests, OUTCOMES_OF_ORDER)
    note = (
        f"Each row asks whether the second arm solves more than the first, as in the paper. {how_tested(rows)} "
        f"{INTERVALS}"
    )
    return Table("Does the paper's order hold?", ORDER_HEADER, tuple(rows), note)


def contrast_table(results: AblationResults) -> Table:
    """Return the tests of our own pairs, one row a pair and domain."""
    rows = _order_rows(results, results.contrasts, OUTCOMES_OF_CONTRAST)
    note = (
        "Each row compares two arms of which the second has what the first lacks; the result names the better one. "
        f"{how_tested(rows)} {INTERVALS}"
    )
    return Table("Which part teaches?", ORDER_HEADER, tuple(rows), note)


def how_tested(rows: Sequence[tuple[str, ...]]) -> str:
    """Return what a reader must know of the tests in a table with these rows."""
    return (
        "Exact paired test by form (McNemar's where every form occurs once), two-sided, over the problems of all "
        "seeds, then seed by seed. The pooled test takes the forms as independent, though those of one seed share two "
        "trained policies; the interval of the difference over seeds tells whether training again would show it "
        f'("not over seeds": it contains 0, or there is one seed). {len(rows)} rows, p-values not adjusted for their '
        "number."
    )


def error_table(results: AblationResults) -> Table:
    """Return the errors of the best arm by class and domain, in percent of all problems (table 5)."""
    arm = results.best_arm
    cells = {domain: results.cell(arm.id, domain) for domain in results.domains}
    rows = [
        (TABLE_5_NAMES[kind], *(_error_cell(cell, kind, domain) for domain, cell in cells.items()))
        for kind in ErrorClass
    ]
    totals = (_total_cell(cell, domain) for domain, cell in cells.items())
    note = (
        f"Failed problems in percent of all, {arm.label}: the best arm by mean accuracy over domains, chosen on these "
        "same problems. Every failed attempt has one class, its root cause; the paper names the classes without "
        f"defining them. {PAPERS[: PAPERS.index(' with eta')]}, detailed feedback, eta = 15."
    )
    header = ("error type", *results.domains)
    return Table("Errors of the best arm (the paper's table 5)", header, (*rows, ("Total failure rate", *totals)), note)


def interval_table(results: AblationResults) -> Table:
    """Return the mean accuracy of every arm and domain with its interval."""
    rows = [(arm.label, *(_with_interval(results, arm, domain) for domain in results.domains)) for arm in results.arms]
    return Table("Accuracy with intervals", ("configuration", *results.domains), tuple(rows), INTERVALS)


def run_table(results: AblationResults) -> Table:
    """Return every run: each arm, domain and seed with its interval and its errors."""
    label_of = {arm.id: arm.label for arm in results.arms}
    rows = [
        (
            f"{label_of[cell.arm]}; {cell.scope}",
            str(figures.seed),
            str(figures.n),
            str(figures.n_forms),
            str(figures.n_valid),
            percent(figures.accuracy),
            interval(figures.ci95),
            *(str(figures.errors[kind]) for kind in ErrorClass),
        )
        for cell in results.cells
        for figures in cell.seeds
    ]
    header = ("configuration; domain", "seed", "n", "forms", "solved", "accuracy", "95% interval", "precondition",
              "effect", "goal", "sequence")  # fmt: skip
    note = f"Nothing is left out. {INTERVALS} The last four columns count failed problems by class."
    return Table("Every run", header, tuple(rows), note)


def _with_paper(results: AblationResults, arm: AblationArm, domain: str) -> str:
    cell = results.cell(arm.id, domain)
    ours = "-" if cell is None else f"{100 * cell.mean:.1f}"
    paper = TABLE_1[arm.paper_label].get(domain) if arm.paper_label is not None else None
    return beside(ours, None if paper is None else f"paper {paper:.0f}")


def _with_deviation(results: AblationResults, arm: AblationArm, domain: str) -> str:
    cell = results.cell(arm.id, domain)
    ours = "-" if cell is None else f"{100 * cell.mean:.1f}"
    if cell is not None:
        ours += " (one seed)" if cell.sd is None else f" ± {100 * cell.sd:.1f}"
    paper = TABLE_4.get(arm.paper_label, {}).get(domain) if arm.paper_label is not None else None
    return beside(ours, None if paper is None else f"paper {paper[0]:.1f} ± {paper[1]:.1f}")


def _with_interval(results: AblationResults, arm: AblationArm, domain: str) -> str:
    cell = results.cell(arm.id, domain)
    return "-" if cell is None else f"{percent(cell.mean)} ({interval(cell.ci95)})"


def _error_cell(cell: AblationCell | None, kind: ErrorClass, domain: str) -> str:
    ours = "-" if cell is None else f"{100 * cell.error_rates[kind]:.1f}"
    return f"{ours} (paper {TABLE_5[kind][domain]:.1f})" if domain in TABLE_5[kind] else ours


def _total_cell(cell: AblationCell | None, domain: str) -> str:
    ours = "-" if cell is None else f"{100 * fmean(1 - figures.accuracy for figures in cell.seeds):.1f}"
    return f"{ours} (paper {TABLE_5_TOTAL[domain]:.1f})" if domain in TABLE_5_TOTAL else ours


def _order_rows(
    results: AblationResults, tests: Sequence[OrderTest], words: Mapping[Outcome, str]
) -> list[tuple[str, ...]]:
    column_of = {arm.id: arm.column for arm in results.arms}
    return [order_row(test, f"{column_of[test.before]} to {column_of[test.after]}", words) for test in tests]


def order_row(test: OrderTest, names: str, words: Mapping[Outcome, str]) -> tuple[str, ...]:
    """Return the row of a test under `ORDER_HEADER`, between whom and with which words for what it says."""
    return (
        f"{names}; {test.scope}",
        f"{percent(test.accuracy_before)} ({interval(test.ci95_before)})",
        f"{percent(test.accuracy_after)} ({interval(test.ci95_after)})",
        str(test.test.n),
        str(test.test.n_forms),
        str(test.test.only_before),
        str(test.test.only_after),
        p_cell(test.test.p_value),
        ", ".join(p_cell(one.test.p_value) for one in test.by_seed),
        difference_text(test),
        words[test.outcome] + ("" if test.is_beyond_seeds or not test.is_significant else ", not over seeds"),
    )


def difference_text(test: OrderTest) -> str:
    """Return the mean difference over seeds in percentage points, with its interval where there is one."""
    text = gain_text(test.difference, test.difference_ci95)
    return f"{text} (one seed)" if test.difference_ci95 is None else text


def _seeds(results: AblationResults) -> str:
    return ", ".join(map(str, results.seeds))

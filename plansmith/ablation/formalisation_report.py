"""The report of several seeds of runs that write PDDL for texts, and of their ablation: tables, plots, sentences.

Not here: the figures (`formalisation_summary`), the report of a single run (`plansmith.report.formalisation_report`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plansmith.ablation.formalisation_summary import FAULTS, FIGURES, FormalisationSummary
from plansmith.ablation.order import OrderTest
from plansmith.ablation.plots import arms_plot
from plansmith.ablation.report import CONTRAST_WORDS, order_sentence
from plansmith.ablation.seeds_report import listed, seeds_sentence, seeds_table, worst_seed
from plansmith.ablation.summary import MeanCell
from plansmith.ablation.tables import INTERVALS, ORDER_HEADER, OUTCOMES_OF_CONTRAST, how_tested, order_row
from plansmith.report.formalisation_plots import GAINS, SHOWN
from plansmith.report.formalisation_report import OUTCOME_WORDS, TERMS, WHICH_ANSWER, meaning_sentence
from plansmith.report.run_sections import FIRST_TEST, provenance_section
from plansmith.report.sections import Drawing, Plot, Plots, Report, Section, Sentences, Table, Terms
from plansmith.report.wording import interval, percent, spoken

LABELS = {figure: GAINS.get(figure, spoken(figure)) for figure in FIGURES}
"""What tables call the figures."""
PAIRS_NOTE = (
    "Held-out pairs that a policy tells apart better than its reference does (Delta of equation 5 above 0). Each kind "
    "of negatives has pairs of its own, so that rows of different kinds do not compare."
)


def formalisation_summary_report(results: FormalisationSummary) -> Report:
    """Return what is said about several seeds: every arm, every seed, and which part helps."""
    tests = tuple(describe_test(test) for test in results.tests)
    pairs = seeds_table("Accuracy on held-out pairs", results.pairs, results.seeds, note=PAIRS_NOTE)
    return Report(
        f"Plansmith seeds: {results.name}",
        *headline(results),
        (
            Section("Every arm over seeds", (Plots(tuple(_drawings(results))),)),
            Section("Every arm on the same test texts", (arm_table(results), Terms(TERMS)), note=WHICH_ANSWER),
            Section("Which part helps?", (Sentences((*tests, FIRST_TEST)),) if tests else ()),
            Section("Preference pairs", (pairs,)),
            Section("Never trained on", (transfer_table(results),)),
            Section("Every seed", tuple(_seed_tables(results)), is_printed=False),
            provenance_section(results),
        ),
    )


def headline(results: FormalisationSummary) -> tuple[str, str]:
    """Return how many texts end as a problem of the right meaning, mean of all seeds, and the evidence."""
    right, solved, flattered = (results.cell(results.main, name) for name in ("equivalent", "psr_of_all", "flattered"))
    n_seeds, worst = len(right.seeds), worst_seed(right)
    arm = f"{spoken(results.main)}; mean of {n_seeds} seed{'s' * (n_seeds > 1)}"
    reach = "" if right.ci95 is None else f" has the 95% interval {interval(right.ci95)};"
    evidence = f"The right meaning{reach} the worst seed has {percent(worst.accuracy)} (seed {worst.seed})."
    if results.tests:
        evidence += f" {describe_test(results.tests[0])}"
    shares = (right.mean, solved.mean, flattered.mean)
    return meaning_sentence("the test texts", arm, shares), f"{evidence} {seeds_sentence(results.seeds)}"


def describe_test(test: OrderTest) -> str:
    """Return one test in plain words, saying so when the difference may be chance."""
    what, counted = OUTCOME_WORDS[test.scope]
    names = f"{spoken(test.before)} to {spoken(test.after)}".capitalize()
    return order_sentence(f"{names}: {what}", test, CONTRAST_WORDS, counted=counted)


def arm_table(results: FormalisationSummary) -> Table:
    """Return every figure of every arm: mean, deviation over seeds, worst seed."""
    rows = [
        (spoken(arm), *(
            _figure_text(results.cell(arm, figure)) if results.has_figure(arm, figure) else "-" for figure in FIGURES
        ))
        for arm in results.arms
    ]  # fmt: skip
    note = (
        f"In percent: mean ± sample standard deviation over the seeds {listed(results.seeds)}, and in brackets the "
        "worst seed; of flattered the worst is the greatest."
    )
    return Table("All test texts", ("answers of", *LABELS.values()), tuple(rows), note)


def transfer_table(results: FormalisationSummary) -> Table:
    """Return what becomes of texts of levels and domains that were never trained on (the paper's table 5)."""
    cells = [*results.transfer, *(cell for cell in results.by_new_place if cell.arm == results.main)]
    rows = [(cell.scope, spoken(cell.arm), str(sum(one.n for one in cell.seeds)), _figure_text(cell)) for cell in cells]
    note = (
        "Problems of the right meaning, in percent of the texts of all seeds (n): mean ± sample standard deviation "
        "over the seeds, and in brackets the worst seed. Under the arms, the main arm by domain and level."
    )
    return Table("What was never trained on", ("texts", "answers of", "n", LABELS["equivalent"]), tuple(rows), note)


def _figure_text(cell: MeanCell) -> str:
    """Return mean, deviation and worst seed."""
    if cell.sd is None:
        return f"{100 * cell.mean:.1f} (one seed)"
    worst = worst_seed(cell, is_fault=cell.scope in FAULTS)
    return f"{100 * cell.mean:.1f} ± {100 * cell.sd:.1f} ({100 * worst.accuracy:.1f})"


def _seed_tables(results: FormalisationSummary) -> Iterator[Table]:
    """Yield every figure seed by seed with its interval, then the tests as a table."""
    for figure in FIGURES:
        note = "TSR is no share; its interval is Student's alone." if figure == "tsr" else INTERVALS
        yield seeds_table(
            LABELS[figure], results.of_figure(figure), results.seeds, note=note, is_fault=figure in FAULTS
        )
    rows = [
        order_row(test, f"{spoken(test.before)} to {spoken(test.after)}", OUTCOMES_OF_CONTRAST)
        for test in results.tests
    ]
    note = f"{FIRST_TEST} {how_tested(rows)} {INTERVALS}"
    yield Table("All tests", ("first to second, by", *ORDER_HEADER[1:]), tuple(rows), note)


def _drawings(results: FormalisationSummary) -> Iterator[Drawing]:
    """Yield the shares that a plot shows, a drawing each."""
    for figure, label in SHOWN.items():
        yield Drawing(f"arms {figure}", results.of_figure(figure), partial(draw_figure, results, figure, label))


def draw_figure(results: FormalisationSummary, figure: str, label: str) -> Plot:
    """Return one share by arm, with its interval and every seed."""
    shown = [(spoken(cell.arm), cell) for cell in results.of_figure(figure)]
    return arms_plot(f"arms-{figure.replace('_', '-')}", f"Answer {label}", "share of texts (%)", shown)

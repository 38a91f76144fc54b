"""The report of a run that writes PDDL for texts: its sentences, and which sections it has.

Not here: the figures (`formalisation_results`), the tables (`formalisation_tables`), the drawings
(`formalisation_plots`), how a report is shown (`render`).
"""

from __future__ import annotations

from collections.abc import Iterator

from plansmith.report.formalisation_metrics import OutcomeComparison
from plansmith.report.formalisation_plots import drawings
from plansmith.report.formalisation_results import FormalisationResults
from plansmith.report.formalisation_tables import (
    arm_table,
    benchmark_table,
    code_table,
    data_table,
    direct_table,
    domain_table,
    level_table,
    preference_table,
    repair_table,
    transfer_table,
    turn_table,
)
from plansmith.report.run_sections import (
    EACH_IN_TURN,
    course_section,
    dropped_sequences,
    paired_tests,
    run_provenance,
    share_tile,
    time_tile,
)
from plansmith.report.sections import Answers, Report, Section, Terms, Tile, Tiles
from plansmith.report.wording import INTERVALS, comparison_text, interval, percent, spoken

TERMS = {
    "SVR": "can be read as a problem of the domain (equation 6)",
    "PSR": "have a plan, of those that can be read (equation 7); the paper's tables divide by all, as PSR of all does",
    "TSR": "facts and goals shared with the reference, over those of either (equation 8)",
    "CR": "have a plan about as long as the reference's and much like it (equations 9 to 18)",
    "equivalent": "mean what the reference does, proven, whatever objects are called; identical: under the same names",
    "flattered": "have a plan, and are not known to mean what the reference does",
    "undecided": "too symmetric or large to be compared within the budget; with a plan they are flattered, too",
    "task success": "have a plan that solves the reference",
    "contract": "are one problem and nothing else",
}
OUTCOME_WORDS = {
    "psr_of_all": ("the share with a plan", "with a plan"),
    "equivalent": ("the share of the right meaning", "right"),
    "task_success": ("the share whose plan solves the task", "solved"),
}
"""What is compared, and what a text is called for which it is so."""
WHICH_ANSWER = (
    "The answers of a policy to the test texts; repaired: failed ones go back with what validator and planner say; "
    "resampled: the policy is only asked again. Of several answers counts the first with a plan and nothing to mend, "
    "else the first with a plan, else the last that can be read, else the last: the reference is not looked at. Read: "
    "a grammar of the words that the texts are written in, without a policy. Texts of levels that were never trained "
    "on are reported apart."
)


def formalisation_report(results: FormalisationResults) -> Report:
    """Return what is said about a run, finished or not."""
    title = f"Plansmith report: {results.run_name}"
    return Report(title, *headline(results), tuple(_sections(results)))


def headline(results: FormalisationResults) -> tuple[str, str]:
    """Return how many texts end as a problem of the right meaning, and the evidence, as two sentences."""
    main = results.main
    shares = (main.equivalent, main.psr_of_all, main.flattered)
    result = meaning_sentence(f"{main.n} test texts", spoken(main.name), shares)
    evidence = f"95% interval of the right meaning {interval(main.ci95['equivalent'])}."
    if results.paired_tests:
        evidence += f" {describe_test(results, results.paired_tests[0])}"
    return result, evidence


def meaning_sentence(texts: str, arm: str, shares: tuple[float, float, float]) -> str:
    """Return how many texts end right, how many with a plan, and how many of these flatter."""
    right, solvable, flattered = map(percent, shares)
    result = f"{right} of {texts} end as a problem of the right meaning ({arm}), {solvable} as one with a plan."
    if not shares[2]:
        return result
    return f"{result} Solvability flatters: {flattered} have a plan and another meaning, or an undecided one."


def describe_test(results: FormalisationResults, comparison: OutcomeComparison) -> str:
    """Return one paired test in plain words."""
    before, after = (results.share(arm, comparison.outcome) for arm in (comparison.before, comparison.after))
    what, counted = OUTCOME_WORDS[comparison.outcome]
    names = f"{spoken(comparison.before)} to {spoken(comparison.after)}"
    return comparison_text(f"{names}: {what}", (before, after), comparison.test, counted=counted)


def _sections(results: FormalisationResults) -> Iterator[Section]:
    """Yield the sections in reading order; those that a run has no data for are empty."""
    tests = paired_tests(describe_test(results, comparison) for comparison in results.paired_tests)
    yield Section("", (Tiles(tuple(_tiles(results))),))
    yield Section(
        "Every policy on the same test texts",
        (arm_table(results), Terms(TERMS), tests),
        note=f"{WHICH_ANSWER} {INTERVALS}",
    )
    yield Section("Domains and levels", (domain_table(results), level_table(results)))
    yield Section("Problem or plan", (direct_table(results),))
    yield Section("Never trained on", (transfer_table(results),))
    yield Section("What repair does", (turn_table(results), repair_table(results), code_table(results)))
    yield Section("What preferences taught", (preference_table(results),))
    data = (data_table(results), benchmark_table(results), dropped_sequences(results))
    yield Section("What it learnt from and was tested on", data)
    yield course_section(results, drawings(results))
    yield Section("What it got wrong", (Answers(results.failures),), note=EACH_IN_TURN)
    yield run_provenance(results)


def _tiles(results: FormalisationResults) -> Iterator[Tile]:
    """Yield how many are right, have a plan and solve the task in the end, where it began, and the time it took."""
    main, first = results.main, results.first
    for name, words in (
        ("equivalent", "right meaning"),
        ("psr_of_all", "have a plan"),
        ("task_success", "task solved"),
    ):
        yield share_tile(f"{spoken(main.name)}, {words}", getattr(main, name), main.ci95[name], main.n)
    if first.name != main.name:
        yield share_tile(f"{spoken(first.name)}, right meaning", first.equivalent, first.ci95["equivalent"], first.n)
    yield from time_tile(results)

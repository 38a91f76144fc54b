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
from plansmith.report.sections import (
    Answers,
    Block,
    Listing,
    Plots,
    Report,
    Section,
    Sentences,
    Terms,
    Tile,
    Tiles,
    filled,
    flatten,
    provenance_section,
)
from plansmith.report.tables import time_table
from plansmith.report.wording import INTERVALS, clock, comparison_text, interval, not_finite_text, percent, spoken

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
FIRST_TEST = (
    "Which tests are made, and in what order, was fixed before any run; p-values are not adjusted for their number."
)
WHICH_ANSWER = (
    "The answers of a policy to the test texts; repaired: failed ones go back with what validator and planner say; "
    "resampled: the policy is only asked again. Of several answers counts the first with a plan, else the last that "
    "can be read, else the last: the reference is not looked at. Read: a grammar of the words that the texts are "
    "written in, without a policy. Texts of levels that were never trained on are reported apart."
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
    tests = tuple(describe_test(results, comparison) for comparison in results.paired_tests)
    compared = (Sentences((*tests, FIRST_TEST), "Paired tests"),) if tests else ()
    yield Section("", (Tiles(tuple(_tiles(results))),))
    yield Section(
        "Every policy on the same test texts",
        (arm_table(results), Terms(TERMS), *compared),
        note=f"{WHICH_ANSWER} {INTERVALS}",
    )
    yield Section("Domains and levels", (domain_table(results), level_table(results)))
    yield Section("Problem or plan", filled(direct_table(results)))
    yield Section("Never trained on", filled(transfer_table(results)))
    yield Section("What repair does", filled(turn_table(results), repair_table(results), code_table(results)))
    yield Section("What preferences taught", filled(preference_table(results)))
    yield Section("What it learnt from and was tested on", tuple(_data(results)))
    yield Section("How it got there", tuple(_course(results)), is_printed=False)
    failures = (Answers(results.failures),) if results.failures else ()
    yield Section("What it got wrong", failures, note="Of each level and flaw in turn.")
    yield provenance_section(
        results.command,
        Listing("Settings", flatten(results.config)),
        Listing("Versions and machine", results.versions),
        Listing("Policy versions", results.policy_versions),
        more=(time_table(results),) if results.time_s else (),
    )


def _tiles(results: FormalisationResults) -> Iterator[Tile]:
    """Yield how many are right, have a plan and solve the task in the end, where it began, and the time it took."""
    main, first = results.main, results.first
    for name, words in (
        ("equivalent", "right meaning"),
        ("psr_of_all", "have a plan"),
        ("task_success", "task solved"),
    ):
        more = f"{interval(main.ci95[name])}, n = {main.n}"
        yield Tile(f"{spoken(main.name)}, {words}", percent(getattr(main, name)), more)
    if first.name != main.name:
        more = f"{interval(first.ci95['equivalent'])}, n = {first.n}"
        yield Tile(f"{spoken(first.name)}, right meaning", percent(first.equivalent), more)
    if results.time_s:
        more = f"seed {results.seed}, preset {results.preset}"
        yield Tile("time, all stages", clock(sum(results.time_s.values())), more)


def _data(results: FormalisationResults) -> Iterator[Block]:
    """Yield the texts, and how many sequences were too long to be trained on."""
    yield from filled(data_table(results), benchmark_table(results))
    if lines := [
        f"{spoken(stage)}: {count} sequences were too long and were not trained on."
        for stage, count in results.n_dropped.items()
        if count
    ]:
        yield Sentences(tuple(lines))


def _course(results: FormalisationResults) -> Iterator[Block]:
    """Yield what tells how it went: what is wrong first, then plots."""
    if count := results.n_not_finite:
        yield Sentences((not_finite_text(count),))
    yield Plots(tuple(drawings(results)))

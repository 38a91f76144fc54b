"""The report of a run that trains a policy and tries it on test problems: its sentences, and which sections it has.

Not here: the figures (`run_results`, `metrics`), the tables (`tables`), the drawings (`plots`), how a report is shown
(`report`).
"""

from __future__ import annotations

from collections.abc import Iterator

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.metrics import ALL_LEVELS, LevelFigures, PairedComparison
from plansmith.report.plots import drawings
from plansmith.report.results import Results
from plansmith.report.run_sections import (
    accuracy_tile,
    course_section,
    dropped_sequences,
    paired_tests,
    run_provenance,
    time_tile,
)
from plansmith.report.sections import Attempts, Report, Section, Terms, Tile, Tiles
from plansmith.report.tables import further_tables, level_table, rollout_table
from plansmith.report.wording import INTERVALS, SIGNIFICANCE, comparison_text, interval, p_text, percent, spoken

ERROR_WORDS = {
    ErrorClass.PRECONDITION_VIOLATION: "an action whose precondition does not hold, with every state before it right",
    ErrorClass.INCORRECT_EFFECT: "the first wrong step claims a wrong state; a later step or the goal fails after it",
    ErrorClass.GOAL_NOT_ACHIEVED: "every action legal and every state right, as far as it goes; the goal missed",
    ErrorClass.INVALID_ACTION_SEQUENCE: "no plan can be read, or an action the domain lacks comes first",
}
SOLVED = (
    "A problem counts as solved only when the validator finds every action applicable and the goal reached in the last "
    "state. Errors are counts of failed problems. Plan length is the mean over the problems solved, beside the "
    f"planner's on the same problems. Tokens are generated tokens per problem. {INTERVALS}"
)
MARKS = (
    "Each step carries the validator's mark; the first that is not correct is highlighted. If every step is correct "
    "but the goal is missed, the end of the plan is highlighted."
)


def report_of(results: Results) -> Report:
    """Return what is said about a run, finished or not."""
    title = f"Plansmith report: {results.run_name}"
    return Report(title, *headline(results), tuple(_sections(results)))


def _sections(results: Results) -> Iterator[Section]:
    """Yield the sections in reading order; those that a run has no data for are empty."""
    several = [ALL_LEVELS] if len(results.levels) > 1 else []
    levels = tuple(level_table(results, level) for level in (*results.levels, *several))
    tests = paired_tests(describe_comparison(results, comparison) for comparison in results.paired_tests)
    terms = Terms({spoken(kind): meaning for kind, meaning in ERROR_WORDS.items()})
    yield Section("", (Tiles(tuple(_tiles(results))),))
    yield Section("Every policy on the same test problems", (*levels, terms, tests), note=SOLVED)
    yield Section("Domains, quality, and its own judgement", further_tables(results))
    yield course_section(results, drawings(results), dropped_sequences(results), rollout_table(results))
    failures = Attempts(results.failures, is_first_open=True)
    yield Section("What it got wrong, and at which step", (failures,), note=MARKS)
    yield Section("One it solved", (Attempts((results.solved,) if results.solved else ()),))
    yield run_provenance(results)


def _tiles(results: Results) -> Iterator[Tile]:
    """Yield the accuracies where it began, those it ends with on every level, and the time it took."""
    *before, final = results.arms.values()
    shown: list[tuple[str, str, LevelFigures]] = [
        *((arm.name, arm.level, arm) for arm in before if arm.name in ("untrained", "phase1")),
        *((final.name, level, final.by_level[level]) for level in results.levels),
    ]
    for name, level, figures in shown:
        yield accuracy_tile(f"{spoken(name)}, {level}", figures)
    yield from time_tile(results)


def describe_comparison(results: Results, comparison: PairedComparison) -> str:
    """Return one paired test in plain words, saying so when the difference may be chance."""
    before, after = (results.arms[arm].figures(comparison.level) for arm in (comparison.before, comparison.after))
    lead = f"{comparison.level}, {spoken(comparison.before)} to {spoken(comparison.after)}"
    return comparison_text(f"{lead}: accuracy", (before.accuracy, after.accuracy), comparison.test)


def headline(results: Results) -> tuple[str, str]:
    """Return the main result of the run, and the evidence for it, as two sentences.

    The result is that of the run's first paired test, or where none was made the last arm's on the primary level.
    """
    if not results.paired_tests:
        final = list(results.arms.values())[-1]
        scope = f"{final.n} test problems ({final.level})"
        result = f"The {spoken(final.name)} policy solves {percent(final.accuracy)} of {scope}."
        return result, f"95% interval {interval(final.ci95)}."
    comparison = results.paired_tests[0]
    before, after = (results.arms[arm].figures(comparison.level) for arm in (comparison.before, comparison.after))
    first, last, test = spoken(comparison.before), spoken(comparison.after), comparison.test
    levels = ", ".join(results.levels) if comparison.level == ALL_LEVELS else comparison.level
    change = (
        f"from {percent(before.accuracy)} ({first}) to {percent(after.accuracy)} ({last}) on {test.n} test problems "
        f"({levels})"
    )
    evidence = (
        f"{last.capitalize()} 95% interval {interval(after.ci95)}; {test.only_after} problems solved only by {last}, "
        f"{test.only_before} only by {first}; {test.name}, {p_text(test.p_value)} (two-sided)"
    )
    if test.p_value >= SIGNIFICANCE:
        return (
            f"No significant change in plan accuracy: {change}.",
            f"{evidence}, not significant: a difference of this size may be chance.",
        )
    verb = "improved" if test.only_after > test.only_before else "fell"
    return f"Plan accuracy {verb} {change}.", f"{evidence}: more than chance."

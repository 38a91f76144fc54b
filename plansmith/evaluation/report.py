"""The report of a run: ``results.json``, ``results.md``, ``index.html``, and the table a terminal prints.

Not here: the figures (`metrics`), what a run is (`results`), its tables (`tables`), the drawings (`plots`). The page
needs no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from plansmith.evaluation.drawing import Plot
from plansmith.evaluation.metrics import PairedComparison
from plansmith.evaluation.plots import draw_plots
from plansmith.evaluation.results import Results, StepMark, results_to_json
from plansmith.evaluation.tables import Table, further_tables, level_table
from plansmith.evaluation.wording import SIGNIFICANCE, clock, interval, p_text, percent, spoken
from plansmith.judging.taxonomy import ErrorClass
from plansmith.layout import markdown_table, text_table

MARK_WORDS = {
    StepMark.OK: "correct",
    StepMark.WRONG_STATE: "wrong state",
    StepMark.FAILED: "fails here",
    StepMark.UNREACHED: "not reached",
}
ERROR_WORDS = {
    ErrorClass.PRECONDITION_VIOLATION: "an action whose precondition does not hold, with every state before it right",
    ErrorClass.INCORRECT_EFFECT: "a wrong state claimed first; a later step or the goal fails after it",
    ErrorClass.GOAL_NOT_ACHIEVED: "every step legal and every state right, the goal missed",
    ErrorClass.INVALID_ACTION_SEQUENCE: "no plan can be read: malformed, cut off, or an action the domain lacks",
}


def write_report(results: Results, folder: Path) -> Path:
    """Return the path of the page, after writing it, ``results.json`` and ``results.md`` into ``folder``.

    Equal results give equal files. Each file appears complete or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "results.json", results_to_json(results))
    write_text(folder / "results.md", render_markdown(results))
    write_text(folder / "index.html", render_page(results))
    return folder / "index.html"


def format_table(results: Results) -> str:
    """Return the terminal table: one block a level, one line an arm, then what else is known, then the paired tests."""
    tables = [*(level_table(results, level) for level in results.levels), *further_tables(results)]
    blocks = [f"{table.title}\n{text_table(table.header, table.rows)}" for table in tables]
    tests = [describe_comparison(results, comparison) for comparison in results.paired_tests]
    return "\n\n".join([*blocks, *(["\n".join(tests)] if tests else [])])


def describe_comparison(results: Results, comparison: PairedComparison) -> str:
    """Return one paired test in plain words, saying so when the difference may be chance."""
    before = results.arms[comparison.before].by_level[comparison.level]
    after = results.arms[comparison.after].by_level[comparison.level]
    test = comparison.test
    verb = "rose" if after.n_valid > before.n_valid else "fell" if after.n_valid < before.n_valid else "stayed"
    names = f"{spoken(comparison.before)} to {spoken(comparison.after)}"
    change = f"from {percent(before.accuracy)} to {percent(after.accuracy)}"
    if verb == "stayed":
        change = f"at {percent(after.accuracy)}"
    judgement = "more than chance" if test.p_value < SIGNIFICANCE else "not significant, it may be chance"
    return (
        f"{comparison.level}, {names}: accuracy {verb} {change} of {test.n} problems; "
        f"{test.only_after} solved only after, {test.only_before} only before; "
        f"paired exact test {p_text(test.p_value)} (two-sided): {judgement}."
    )


def headline(results: Results) -> tuple[str, str]:
    """Return the main result of the run, and the evidence for it, as two sentences.

    The result is the last arm on the primary level, against the arm its first paired test there compares it with.
    """
    final = list(results.arms.values())[-1]
    interval_text = f"95% interval {interval(final.ci95)}"
    comparison = next(
        (c for c in results.paired_tests if c.after == final.name and c.level == results.primary_level), None
    )
    scope = f"{final.n} test problems ({final.level})"
    if comparison is None:
        return f"The {spoken(final.name)} policy solves {percent(final.accuracy)} of {scope}.", f"{interval_text}."
    before, test = results.arms[comparison.before], comparison.test
    change = (
        f"from {percent(before.accuracy)} ({spoken(before.name)}) to {percent(final.accuracy)} ({spoken(final.name)}) "
        f"on {scope}"
    )
    evidence = (
        f"Final {interval_text}. Paired exact test: {test.only_after} problems solved only by {spoken(final.name)}, "
        f"{test.only_before} only by {spoken(before.name)}; {p_text(test.p_value)} (two-sided)"
    )
    if test.p_value >= SIGNIFICANCE:
        return (
            f"No significant change in plan accuracy: {change}.",
            f"{evidence}, not significant: a difference of this size may be chance.",
        )
    verb = "improved" if test.only_after > test.only_before else "fell"
    return f"Plan accuracy {verb} {change}.", f"{evidence}: more than chance."


def render_markdown(results: Results) -> str:
    """Return ``results.md``: headline, one table a level, what else is known, paired tests, time by stage."""
    result, evidence = headline(results)
    parts = [f"# Plansmith report: {results.run_name}", f"**{result}** {evidence}"]
    for level in results.levels:
        parts += table_markdown(level_table(results, level))
    for table in further_tables(results):
        parts += table_markdown(table)
    if results.paired_tests:
        parts += ["## Paired tests", "\n".join(f"- {describe_comparison(results, c)}" for c in results.paired_tests)]
    if results.time_s:
        times = [(stage, f"{seconds:.1f}") for stage, seconds in results.time_s.items()]
        parts += ["## Time by stage", markdown_table(("stage", "time (s)"), times)]
    parts.append(f"Preset `{results.preset}`, seed {results.seed}.")
    return "\n\n".join(parts) + "\n"


def render_page(results: Results) -> str:
    """Return ``index.html``: one file, no outside resource, every text of the run escaped."""
    result, evidence = headline(results)
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            results=results,
            result=result,
            evidence=evidence,
            levels=[level_table(results, level) for level in results.levels],
            tables=further_tables(results),
            comparisons=[describe_comparison(results, c) for c in results.paired_tests],
            plots=[(plot, trusted_svg(plot)) for plot in draw_plots(results)],
            mark_words=MARK_WORDS,
            error_words=ERROR_WORDS,
            settings=list(flatten(results.config)),
        )
    )


def page_environment() -> Environment:
    """Return the reader of page templates, which escapes every text put into them."""
    environment = Environment(
        loader=PackageLoader("plansmith.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(spoken=spoken, percent=percent, clock=clock, interval=interval)
    return environment


def table_markdown(table: Table) -> list[str]:
    """Return a table with its heading and its note."""
    return [f"## {table.title}", *([table.note] if table.note else []), markdown_table(table.header, table.rows)]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting with its dotted name."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def trusted_svg(plot: Plot) -> Markup:
    """Return the drawing for the page unescaped: matplotlib has escaped the texts in it."""
    return Markup(plot.svg)


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it when complete."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)

"""The report of a run: ``results.json``, ``results.md``, ``index.html``, and the table a terminal prints.

Not here: the figures (`metrics`), what a run is (`results`), the drawings (`plots`). The page needs no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from plansmith.evaluation.metrics import LevelFigures, PairedComparison
from plansmith.evaluation.plots import Plot, clock, draw_plots, spoken
from plansmith.evaluation.results import Results, StepMark, results_to_json
from plansmith.evaluation.taxonomy import ErrorClass
from plansmith.layout import markdown_table, text_table

SIGNIFICANCE = 0.05
COLUMNS = (
    "policy",
    "n",
    "accuracy",
    "95% interval",
    "precondition",
    "effect",
    "goal",
    "sequence",
    "plan length",
    "planner",
    "tokens",
)
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
    _write(folder / "results.json", results_to_json(results))
    _write(folder / "results.md", render_markdown(results))
    _write(folder / "index.html", render_page(results))
    return folder / "index.html"


def format_table(results: Results) -> str:
    """Return the terminal table: one block a level, one line an arm, then the paired tests in words."""
    blocks = [f"{level}\n{text_table(COLUMNS, table_rows(results, level))}" for level in results.levels]
    tests = [describe_comparison(results, comparison) for comparison in results.paired_tests]
    return "\n\n".join([*blocks, *(["\n".join(tests)] if tests else [])])


def table_rows(results: Results, level: str) -> list[list[str]]:
    """Return the cells of one level, one row an arm, in the order of `COLUMNS`."""
    return [[spoken(name), *_cells(arm.by_level[level])] for name, arm in results.arms.items()]


def describe_comparison(results: Results, comparison: PairedComparison) -> str:
    """Return one paired test in plain words, saying so when the difference may be chance."""
    before = results.arms[comparison.before].by_level[comparison.level]
    after = results.arms[comparison.after].by_level[comparison.level]
    test = comparison.test
    verb = "rose" if after.n_valid > before.n_valid else "fell" if after.n_valid < before.n_valid else "stayed"
    names = f"{spoken(comparison.before)} to {spoken(comparison.after)}"
    change = f"{percent(before.accuracy)} to {percent(after.accuracy)}"
    judgement = "more than chance" if test.p_value < SIGNIFICANCE else "not significant, it may be chance"
    return (
        f"{comparison.level}, {names}: accuracy {verb} from {change} of {test.n} problems; "
        f"{test.only_after} solved only after, {test.only_before} only before; "
        f"paired exact test {p_text(test.p_value)} (two-sided): {judgement}."
    )


def headline(results: Results) -> tuple[str, str]:
    """Return the main result of the run, and the evidence for it, as two sentences.

    The result is the last arm on the primary level, against the arm its first paired test there compares it with.
    """
    final = list(results.arms.values())[-1]
    interval = f"95% interval {percent(final.ci95[0])} to {percent(final.ci95[1])}"
    comparison = next(
        (c for c in results.paired_tests if c.after == final.name and c.level == results.primary_level), None
    )
    scope = f"{final.n} test problems ({final.level})"
    if comparison is None:
        return f"The {spoken(final.name)} policy solves {percent(final.accuracy)} of {scope}.", f"{interval}."
    before, test = results.arms[comparison.before], comparison.test
    change = (
        f"from {percent(before.accuracy)} ({spoken(before.name)}) to {percent(final.accuracy)} ({spoken(final.name)}) "
        f"on {scope}"
    )
    evidence = (
        f"Final {interval}. Paired exact test: {test.only_after} problems solved only by {spoken(final.name)}, "
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
    """Return ``results.md``: headline, one table a level, paired tests, time by stage."""
    result, evidence = headline(results)
    parts = [f"# Plansmith report: {results.run_name}", f"**{result}** {evidence}"]
    for level in results.levels:
        parts += [f"## {level}", markdown_table(COLUMNS, table_rows(results, level))]
    if results.paired_tests:
        parts += ["## Paired tests", "\n".join(f"- {describe_comparison(results, c)}" for c in results.paired_tests)]
    if results.time_s:
        times = [(stage, f"{seconds:.1f}") for stage, seconds in results.time_s.items()]
        parts += ["## Time by stage", markdown_table(("stage", "time (s)"), times)]
    parts.append(f"Preset `{results.preset}`, seed {results.seed}.")
    return "\n\n".join(parts) + "\n"


def render_page(results: Results) -> str:
    """Return ``index.html``: one file, no outside resource, every text of the run escaped."""
    environment = Environment(
        loader=PackageLoader("plansmith.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(spoken=spoken, percent=percent, clock=clock)
    result, evidence = headline(results)
    return environment.get_template("report.html.j2").render(
        results=results,
        result=result,
        evidence=evidence,
        columns=COLUMNS,
        rows={level: table_rows(results, level) for level in results.levels},
        comparisons=[describe_comparison(results, c) for c in results.paired_tests],
        plots=[(plot, _trusted_svg(plot)) for plot in draw_plots(results)],
        mark_words=MARK_WORDS,
        error_words=ERROR_WORDS,
        settings=list(_flatten(results.config)),
    )


def percent(share: float) -> str:
    """Return a share as a percentage with at most one decimal, none when it would be zero."""
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def p_text(p_value: float) -> str:
    """Return a p-value with two significant digits, small ones as a bound."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _cells(figures: LevelFigures) -> list[str]:
    """Return the cells after the arm's name."""
    low, high = figures.ci95
    return [
        str(figures.n),
        percent(figures.accuracy),
        f"{percent(low)} to {percent(high)}",
        *(str(figures.errors[kind]) for kind in ErrorClass),
        _length(figures.mean_plan_length),
        _length(figures.mean_planner_plan_length),
        f"{figures.tokens_per_problem:.0f}",
    ]


def _length(length: float | None) -> str:
    """Return a mean plan length; a dash when nothing was solved."""
    return "-" if length is None else f"{length:.1f}"


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting with its dotted name."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _trusted_svg(plot: Plot) -> Markup:
    """Return the drawing for the page unescaped: matplotlib has escaped the texts in it."""
    return Markup(plot.svg)


def _write(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it when complete."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)

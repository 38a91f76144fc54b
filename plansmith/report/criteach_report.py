"""The report of a run of `self_criteach`: its sentences, tables and plots, the paper's figures in brackets.

Not here: the figures (`criteach_results`), how a report is shown (`render`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from plansmith.report.course_plots import course_drawings, draw_updates
from plansmith.report.criteach_paper import (
    CLASSIC,
    HARD,
    OF_HARD,
    SEVEN_SETS,
    Paper,
    paper_figure,
    paper_of,
    paper_percent,
)
from plansmith.report.criteach_plots import draw_problems, draw_tokens
from plansmith.report.criteach_results import CriteachArm, CriteachResults, DomainFigures, WrittenDomain
from plansmith.report.metrics import PairedComparison
from plansmith.report.run_sections import (
    EACH_IN_TURN,
    accuracy_tile,
    course_section,
    dropped_sequences,
    paired_tests,
    run_provenance,
    time_tile,
)
from plansmith.report.sections import Attempts, Drawing, Report, Section, Sentences, Table, Tiles
from plansmith.report.statistics import wilson_interval
from plansmith.report.tables import by_length_table, trained_table
from plansmith.report.wording import (
    INTERVALS,
    beside,
    comparison_text,
    interval,
    number_or_dash,
    p_text,
    percent,
    percent_or_dash,
    spoken,
)

WHAT_COUNTS = (
    "Every plan is judged by the reference domain, whatever domain was learnt in. No test problem has the canonical "
    "form of one that was learnt from."
)
OF_THREE = f"{HARD}: {', '.join(OF_HARD)} together, as the paper has them."
WRITERS = {
    "model": "the base model wrote it",
    "primed": "the base model wrote it, one schema a completion. It began with nothing: what the paper takes for "
    "granted it was taught first, schemas of random domains and their repair, and bare plans of training problems of a "
    "move or two, which the reference domain gave. It had read no schema of this domain",
    "symbolic": "no model wrote it: it is a safe action model of the same demonstrations",
    "given": "it was given, as some model or person had written it",
}
PRIMER_NAMES = {
    "schemas": "schemas learnt, each under several symbols", "repairs": "repairs learnt",
    "plans": "bare plans of training problems learnt", "asked": "schemas asked for of domains never seen",
    "right": "of these right",
}  # fmt: skip
CPO_FIGURES = {
    "reward": "cpo/reward", "cost": "cpo/cost", "nu": "cpo/penalty", "divergence": "group_relative/divergence",
    "disagreement": "cpo/disagreement", "dual nu": "trust_region/dual_nu", "KL": "trust_region/divergence",
    "line search": "trust_region/line_search_steps", "step taken": "trust_region/step_share",
    "recovery": "trust_region/recovery",
}  # fmt: skip


def criteach_report(results: CriteachResults) -> Report:
    """Return what is said about a run, finished or not."""
    last = results.last
    result = f"{percent(last.figures.accuracy)} of {last.figures.n} plans are valid ({arm_name(results, last.name)})."
    tests = [describe_test(results, comparison) for comparison in results.paired_tests[:1]]
    evidence = " ".join([f"95% interval {interval(last.figures.ci95)}.", *tests])
    return Report(f"Plansmith report: {results.run_name}", result, evidence, tuple(_sections(results)))


def arm_name(results: CriteachResults, name: str) -> str:
    """Return an arm's name with the paper's."""
    return beside(spoken(name), _paper(results).names.get(name))


def _paper(results: CriteachResults) -> Paper:
    return paper_of(results.config["model"]["folder"])


def _others(results: CriteachResults) -> str:
    return f"In brackets the paper's, of {_paper(results).backbone} on tests of its own."


def describe_test(results: CriteachResults, comparison: PairedComparison) -> str:
    """Return one paired test in plain words."""
    before, after = (results.arms[name].figures.accuracy for name in (comparison.before, comparison.after))
    what = f"{arm_name(results, comparison.before)} to {arm_name(results, comparison.after)}: the share of valid plans"
    return comparison_text(what, (before, after), comparison.test)


def _sections(results: CriteachResults) -> Iterator[Section]:
    """Yield the sections in reading order; those that a run has no data for are empty."""
    tile = accuracy_tile(f"{arm_name(results, results.last.name)}, valid plans", results.last.figures)
    yield Section("", (Tiles((tile, *time_tile(results))),))
    yield Section(
        "The written domain",
        (
            domain_table(results),
            primer_table(results),
            library_table(results),
            narration_table(results),
        ),
        note=f"Of this run {WRITERS['primed' if results.primer else results.writer]}. {_recorded(results)}",
    )
    held_out = Sentences(tuple(held_out_lines(results)))
    not_run = Sentences((*pair_lines(results), *(f"{arm_name(results, name)}: not run." for name in results.not_run)))
    tests = [describe_test(results, comparison) for comparison in results.paired_tests]
    compared = paired_tests((*tests, *_mean_lines(results)))
    yield Section(
        "Every policy on the same test problems",
        (
            arm_table(results),
            overall_table(results),
            *task_tables(results),
            length_table(results),
            effort_table(results),
            held_out,
            not_run,
            compared,
        ),
        note=f"{WHAT_COUNTS} {INTERVALS}",
    )
    yield Section("Constrained policy optimisation", tuple(map(partial(update_table, results), results.cpo)))
    yield Section("Under noise", (noise_table(results),))
    yield course_section(results, drawings(results), dropped_sequences(results))
    yield Section("What it got wrong", (Attempts(results.failures),), note=EACH_IN_TURN)
    yield run_provenance(results)


def _recorded(results: CriteachResults) -> str:
    file = results.config["demonstrations"].get("file")
    if file is None:
        return "Demonstrations and scenes are of problems to learn from."
    return (
        f"Demonstrations were read of {file}. The domain that the settings name for problems stands in for the robot "
        "and judges plans; where that was itself written of demonstrations, no figure here tells how right it is."
    )


def held_out_lines(results: CriteachResults) -> Iterator[str]:
    """Yield what policies expect of chains that they have not learnt from."""
    if results.held_out:
        losses = ", ".join(f"{arm_name(results, name)} {loss:.3f}" for name, loss in results.held_out.items())
        yield f"Loss on chains held out of the library, in nats a token: {losses}."


def pair_lines(results: CriteachResults) -> Iterator[str]:
    """Yield of how many problems the answers could not be paired, as one was as good as the other."""
    for arm, counts in results.pairs.items():
        n_without, n_problems = counts["problems without a pair"], counts["problems"]
        yield f"{arm_name(results, arm)}: {n_without} of {n_problems} problems gave no pair."


def domain_table(results: CriteachResults) -> Table:
    """Return each written domain at first, after its repair, and pruned."""
    header = ("domain", "literals", "faults", "transitions", "held out", "refusals", "solved", "true plans",
              "reference plans", "applicable P", "R", "effects P", "R")  # fmt: skip
    rows = [row for name, found in results.domain.items() for row in _domain_rows(name, found)]
    for name, damage in results.damage.items():
        figures = damage.figures
        done = f"{name}, damaged: {'; '.join(damage.changes)}"
        rows.append((done, str(figures.size), str(figures.n_faults), *_shares(figures)))
    note = (
        "Shares of: demonstrated attempts that it explains, those of walks held out, refused ones that it "
        "forbids, scenes that a planner solves in it, scenes whose plan runs in the simulator to the goal, and "
        "the other way plans in the reference that are valid in it; then precision and recall against the reference."
    )
    return Table("Domains", header, tuple(rows), note)


def _domain_rows(name: str, found: WrittenDomain) -> Iterator[tuple[str, ...]]:
    shown = {
        "first answer": found.first_go,
        f"repaired, {found.n_turns} turns" if found.first_go else "as written": found.repaired,
        f"pruned of {len(found.dropped)} parts": found.pruned,
        "its opponent, a safe action model of the same demonstrations": found.opponent,
    }
    for when, figures in shown.items():
        if figures is not None:
            yield (f"{name}, {when}", str(figures.size), str(figures.n_faults), *_shares(figures))


def _shares(figures: DomainFigures) -> tuple[str, ...]:
    names = ("transitions", "held_out", "refusals", "solved", "true_plans", "reference_plans", "applicable_precision",
             "applicable_recall", "effect_precision", "effect_recall")  # fmt: skip
    return tuple(percent_or_dash(getattr(figures, name)) for name in names)


def primer_table(results: CriteachResults) -> Table:
    """Return what a model from nothing learnt before it counted as the base, and what it can do of it."""
    rows = tuple((PRIMER_NAMES.get(name, name), str(count)) for name, count in results.primer.items())
    note = "Schemas right: every literal as in the domain that made what was seen, at temperature 0."
    return Table("Priming", ("of invented domains", "number"), rows, note)


def library_table(results: CriteachResults) -> Table:
    """Return the solved problems of the library by plan length, and how many plans are true."""
    lengths = list(next(iter(results.library.values())).by_length) if results.library else []
    rows = [
        (name, *(str(found.by_length[length]) for length in lengths), str(found.n_plans), str(found.n_true))
        for name, found in results.library.items()
    ]
    header = ("library", *(f"{length} steps" for length in lengths), "plans", "true in the simulator")
    return Table("Library", header, tuple(rows), "Solved problems by the length of the planner's first plan.")


def narration_table(results: CriteachResults) -> Table:
    """Return how many plans a model told, and how many prompts were rephrased, and what of it was believed."""
    counts = {**results.narration, **{f"prompts {name}": count for name, count in results.paraphrase.items()}}
    rows = [(name.replace("_", " "), str(count)) for name, count in counts.items()]
    note = (
        "Plans that the base model was to tell, those told believably, refused tellings by reason; of the steps told "
        "believably those with words of their own, preconditions, another action that could be applied, and one that "
        "could not; prompts that were rephrased, and those left as they were since the answer was refused."
    )
    return Table("Narration", ("plans and prompts", "number"), tuple(rows), note)


def arm_table(results: CriteachResults) -> Table:
    """Return every arm over all tests (tables 1 to 3)."""
    rows = [_arm_row(results, arm) for arm in results.arms.values()]
    header = ("policy", "n", "valid plans", "95% interval", "progress", "as printed", "cost", "tokens")
    note = (
        "Progress: share of the goal that holds before the first wrong action; as printed: equation 13 to the letter; "
        "cost: equation 11; tokens of a problem, all answers of a vote."
    )
    return Table("All tests", header, tuple(rows), note, is_last_strong=True)


def _arm_row(results: CriteachResults, arm: CriteachArm) -> tuple[str, ...]:
    return (
        arm_name(results, arm.name),
        str(arm.figures.n),
        percent(arm.figures.accuracy),
        interval(arm.figures.ci95),
        number_or_dash(arm.progress, 2),
        number_or_dash(arm.progress_printed, 2),
        number_or_dash(arm.cost_per_plan, 2),
        f"{arm.tokens_per_problem:.0f}",
    )


def overall_table(results: CriteachResults) -> Table:
    """Return every arm over the paper's test sets, in each way in which they can be taken together."""
    rows = []
    for name, arm in results.arms.items():
        for over, found in arm.overall.items():
            printed = _paper(results).overall.get(name) if over == SEVEN_SETS else None
            success, progress, tokens = printed or (None, None, None)
            rows.append((
                f"{arm_name(results, name)}, {over}", str(found.n),
                beside(percent(found.success), None if success is None else 100 * success),
                beside(number_or_dash(found.progress, 2), progress), beside(f"{found.tokens:.0f}", tokens),
            ))  # fmt: skip
    note = (
        f"The seven sets are all tests but {CLASSIC}: what the paper calls Overall, though its figures for the vote "
        f"and CPO alone are no mean of its columns. {_others(results)}"
    )
    return Table("Overall", ("policy, over", "n", "valid plans", "progress", "tokens"), tuple(rows), note)


def task_tables(results: CriteachResults) -> Iterator[Table]:
    """Yield valid plans, progress and tokens by task (tables 5 to 9); tasks never trained on stand below the others."""
    named, paper = partial(arm_name, results), _paper(results)
    arms = {name: arm.by_task for name, arm in results.arms.items()}
    note = f"{_others(results)} {OF_THREE}" if {*OF_HARD} & {*results.last.by_task} else _others(results)

    def table(theirs: Callable[[str, str], float | None], **of_figure: Any) -> Table:
        return trained_table("task", arms, results.trained_domains, named, theirs, note, **of_figure)

    def valid(arm: str, task: str) -> str:
        figures = arms[arm][task]
        shown = percent(figures.accuracy)
        return shown if task in results.trained_domains else f"{shown} [{interval(figures.ci95)}]"

    yield table(partial(paper_percent, paper.success), own=valid)
    yield table(
        partial(paper_figure, paper.progress),
        measured="progress",
        own=lambda arm, task: number_or_dash(arms[arm][task].mean_progress, 2),
    )
    yield table(
        partial(paper_figure, paper.tokens),
        measured="tokens of a problem",
        own=lambda arm, task: f"{results.arms[arm].tokens_by_task[task]:.0f}",
    )


def length_table(results: CriteachResults) -> Table:
    """Return valid of tried by the steps of the planner's plan."""
    arms = {arm_name(results, name): arm.by_length for name, arm in results.arms.items()}
    return by_length_table("By plan length", arms)


def effort_table(results: CriteachResults) -> Table:
    """Return progress and tokens of a problem by the steps of the planner's plan."""
    lengths = list(results.last.tokens_by_length)
    rows = [
        (arm_name(results, name), *(f"{number_or_dash(arm.by_length[one].mean_progress, 2)}, "
                                    f"{arm.tokens_by_length[one]:.0f}" for one in lengths))
        for name, arm in results.arms.items()
    ]  # fmt: skip
    header = ("policy", *(f"{length} steps" for length in lengths))
    return Table("Progress and tokens by plan length", header, tuple(rows))


def update_table(results: CriteachResults, stage: str) -> Table:
    """Return reward, cost, nu, divergence and disagreement of every update, and how a trust region's step was found."""
    found = results.cpo[stage]
    shown = {title: found[name] for title, name in CPO_FIGURES.items() if name in found}
    n_updates = max(map(len, shown.values()), default=0)
    rows = [
        (str(update + 1), *(number_or_dash(values[update], 3) for values in shown.values()))
        for update in range(n_updates)
    ]
    note = (
        f"Arm {arm_name(results, stage)}; budget d = {(results.config['cpo'] or {}).get('budget')}. Disagreement: the "
        "share of rollouts that written and reference domain judge differently."
    )
    if "KL" in shown:
        note += (
            " KL: of the policy after the update from that before, in nats a token. Line search: lengths of the solved "
            "step that were tried, of which the last was taken; step taken 0: none would do, or all rollouts were "
            "alike. Recovery 1: no step within the region was within d, and the cost alone was lowered."
        )
    return Table("Updates", ("update", *shown), tuple(rows), note)


def noise_table(results: CriteachResults) -> Table:
    """Return plans made from noisy states and run from the true ones (table 4)."""
    has_belief = any(found.believing is not None for found in results.noise)

    def share(part: int, n: int) -> str:
        return f"{percent(part / n)} [{interval(wilson_interval(part, n))}]"

    rows = [
        (percent(found.rate), str(found.n), share(found.policy, found.n),
         *([share(found.believing or 0, found.n)] if has_belief else []),
         *(share(part, found.n) for part in (found.planner, found.nearest, found.restored)))
        for found in results.noise
    ]  # fmt: skip
    note = (
        "Success of plans that the last policy and the planner made of disturbed states; states are disturbed alike. "
        "Beyond the paper the planner also gets the nearest state that fits what always held in the demonstrations; "
        "restored: where that is the true one. In brackets Wilson's 95% intervals."
    )
    if has_belief:
        note += " sft noisy was tuned on disturbed prompts, and first tells the state that it believes in."
    believing = ("sft noisy",) if has_belief else ()
    header = ("atoms disturbed", "n", "policy", *believing, "planner", "planner, nearest state", "restored")
    return Table("Noise", header, tuple(rows), note)


def _mean_lines(results: CriteachResults) -> Iterator[str]:
    for test in results.mean_tests:
        arms = f"{arm_name(results, test.before)} to {arm_name(results, test.after)}"
        means = f"{test.mean_before:.3f} to {test.mean_after:.3f}"
        yield f"{arms}: {test.what} {means} ({p_text(test.p_value)}, paired permutation)."


def drawings(results: CriteachResults) -> Iterator[Drawing]:
    """Yield problems by length, success against tokens, the updates, and the course of every optimisation."""
    if results.problems:
        yield Drawing("problems", results.problems, partial(draw_problems, results.problems))
    yield Drawing("tokens", results.arms, partial(draw_tokens, results.arms))
    panels = {label: (name,) for label, name in CPO_FIGURES.items()}
    for stage, found in results.cpo.items():
        title = f"Constrained policy optimisation, {spoken(stage)}"
        yield Drawing(f"updates {stage}", found, partial(draw_updates, stage, title, panels, found))
    yield from course_drawings(results.curves, results.time_s)

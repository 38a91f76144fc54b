"""The report of a run of `nl2plan`: tables 1 and 2 with the paper's figures in brackets, faults by check, cost.

Not here: the figures (`nl2plan_results`), how a report is shown (`render`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from plansmith.judging.modelled import NO_PLAN
from plansmith.modelling.checks import PAPER_CHECKS
from plansmith.modelling.products import RULES, UNADVISED, UNCHECKED
from plansmith.report.nl2plan_paper import COMMON_FAULTS, SHARES, STEPS, TABLE_1, TABLE_2
from plansmith.report.nl2plan_results import Agreement, Cost, ModelledTask, NL2PlanResults
from plansmith.report.run_sections import run_provenance
from plansmith.report.sections import Listing, Report, Section, Sentences, Table, Tile, Tiles
from plansmith.report.statistics import wilson_interval
from plansmith.report.wording import beside, interval, number_or_dash, p_text, percent, spoken

SCRIPTED = (
    "These are answers of the script, which reads the references: they show that the pipeline works and say nothing "
    "about any model. Its tokens are words."
)
PLAYED = "These answers come from a cassette, and nobody was asked: {speaker}. Its tokens and seconds are no cost here."
LEARNT = (
    "The speaker has learnt the steps in this run, from nothing, every word hidden but those around a domain's own. An "
    "action is the reference's when it has its parameters, conditions and effects under the names of the text, each "
    "text of a domain counted once. In brackets: 95 % intervals (Wilson)."
)
ARMS = {
    UNCHECKED: "without checks",
    UNADVISED: "without advice",
    "one_call": "in one call",
    "zero_shot": "straight from the text",
    RULES: "rules (knows the templates)",
}
"""Arms beside the steps, as they are called."""
AGREEING = (
    "Each task was taken through the steps several times. The plan of a draft is tried in the models of the others, "
    "which needs no reference. 0.5 is chance, 1 tells every right plan from every other."
)
WHAT_COUNTS = (
    "A plan is right when the validator accepts it on the reference: as it stands where it speaks as the reference "
    "does, else under an interpretation that a person has confirmed. A proposal that nobody has confirmed is no tick. "
    "In brackets: the paper, GPT-4, one run; ~ is a questionable plan."
)
WITHOUT_H2 = "The planner is the first iteration of LAMA (`lama-first`), without the h2 of the paper's Scorpion."


def nl2plan_report(results: NL2PlanResults) -> Report:
    """Return what is said about a run, finished or not."""
    n_right, n_tasks = results.arms.get("nl2plan", 0), len(results.tasks)
    result = f"{n_right} of {n_tasks} tasks have a right plan ({results.speaker})."
    unconfirmed = sum(task.proposed for task in results.tasks.values())
    evidence = f"{unconfirmed} more wait for a person to confirm what their words mean." if unconfirmed else ""
    if results.zero_shot:
        right = sum(is_right for _, is_right in results.zero_shot.values())
        prose = sum(status == "prose" for status, _ in results.zero_shot.values())
        evidence += f" Straight from the text: {right} right, {prose} in prose that only a person can judge."
    evidence = f"{_note(results)} {evidence}".strip()
    return Report(f"Plansmith report: {results.run_name}", result, evidence, tuple(_sections(results)))


def _note(results: NL2PlanResults) -> str:
    """Return what every table says of who answered, empty for a model that was asked."""
    played = PLAYED.format(speaker=results.speaker) if results.is_played else ""
    return f"{SCRIPTED if results.is_scripted else ''} {played}".strip()


def _sections(results: NL2PlanResults) -> Iterator[Section]:
    """Yield the sections in reading order."""
    note = _note(results)
    yield Section("", (Tiles((Tile("right", f"{results.arms.get('nl2plan', 0)} of {len(results.tasks)}"),)),))
    if results.by_domain:
        yield Section("Domains", (_domains(results),), note=LEARNT)
    if results.by_domain or results.tests or RULES in results.arms:
        yield Section("Against the other arms", (_tests(results),))
    if results.agreement is not None:
        blocks = (_agreeing(results.agreement), _chosen(results.agreement, len(results.tasks)))
        yield Section("Agreement of drafts", blocks, note=AGREEING)
    plans = (_plans(results), _unsolved(results))
    about = " ".join(filter(None, (WHAT_COUNTS, _planner(results), note)))
    yield Section("Plans (table 1)", plans, note=about, is_printed=not results.by_domain)
    told = {"is_printed": not results.by_domain}
    yield Section("Tokens (table 2)", (_tokens(results),), **told, note=f"Input and output together, as counted by who "
                  f"answers; the mean over the tasks for which a step was taken. {note}".strip())  # fmt: skip
    if results.grown:
        lines = tuple(f"{task}: {lacks}." for task, own in results.grown.items() for lacks in own)
        note = "What problems spoke of and their domain lacked, by the task that it was made of; it was added."
        yield Section("Domains that grew", (Sentences(lines, "Domains that grew"),), note=note)
    yield Section("Checks and advice", (_shares(results), _faults(results), _common(results)), note=note)
    yield Section("What it cost", (_cost(results),), note=note)
    yield Section("Tasks", tuple(_listings(results)), is_printed=False)
    yield run_provenance(results)


def _planner(results: NL2PlanResults) -> str:
    """Return what is to be said of the planner."""
    return WITHOUT_H2 if results.config.get("planner", {}).get("search") == "lama-first" else ""


def _domains(results: NL2PlanResults) -> Table:
    others = [arm for arm in ARMS if arm in results.arms]
    rows = tuple(
        (
            name,
            "in other phrasings" if own.was_taught else "no",
            _share(own.planned, own.tasks),
            _share(own.right, own.tasks),
            *(str(own.others[arm]) for arm in others),
            _share(own.equal, own.actions),
        )
        for name, own in results.by_domain.items()
    )
    right = ("right", *(f"right, {ARMS[arm]}" for arm in others))
    return Table("Domains", ("domain", "learnt of", "plan found", *right, "actions as in the reference"), rows)


def _tests(results: NL2PlanResults) -> Sentences:
    n_tasks = len(results.tasks)
    compared = tuple(
        f"{ARMS[arm].capitalize()} {results.arms[arm]} of {n_tasks} are right, by the steps {results.arms['nl2plan']}: "
        f"{test.only_after} by these alone, {test.only_before} by the other alone; {test.name}, {p_text(test.p_value)}."
        for arm, test in results.tests.items()
    )
    if RULES not in results.arms:
        return Sentences(compared, "Other arms")
    by_rules = f"No model but {ARMS[RULES]}: {_share(results.arms[RULES], n_tasks)} are right."
    return Sentences((*compared, by_rules), "Other arms")


def _agreeing(agreement: Agreement) -> Table:
    rows = tuple((percent(level), str(n), _share(n_right, n)) for level, n, n_right in agreement.levels)
    return Table("Agreement", ("of the other drafts, a plan in", "plans", "right"), rows)


def _chosen(agreement: Agreement, n_tasks: int) -> Sentences:
    area, test = agreement.area_under_roc, agreement.test
    said = "cannot be told: all first drafts are right, or none is" if area is None else f"{area:.2f}"
    return Sentences((
        f"Area under the curve, agreement of the first draft's plan against whether it is right: {said}.",
        f"Right of {n_tasks}: the first draft {agreement.first}, the one most others agree with {agreement.chosen} "
        f"({test.only_after} only so, {test.only_before} only the first; {test.name}, {p_text(test.p_value)}).",
    ), "What agreement tells")  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({interval(wilson_interval(part, whole))})" if whole else "-"


def _plans(results: NL2PlanResults) -> Table:
    rows = []
    for name, task in results.tasks.items():
        zero_shot = results.zero_shot.get(name)
        paper = TABLE_1.get(name, ("", ""))
        told = "" if zero_shot is None else _tick(is_right=zero_shot[1], other="?" if zero_shot[0] == "prose" else "✗")
        own = _tick(is_right=task.right, other="?" if task.proposed else "✗")
        optimum = "" if task.optimum is None else str(task.optimum)
        cells = (beside(told, paper[0]), beside(own, paper[1]), task.status.replace("_", " "), task.confirmed)
        rows.append((name, *cells, str(len(task.plan)) if task.plan else "", optimum))
    header = ("task", "zero-shot CoT", "NL2Plan", "planning", "confirmed by", "steps", "shortest")
    return Table("Plans", header, tuple(rows), note="? waits for a person. Shortest: steps of a shortest plan of our "
                 "reference.")  # fmt: skip


def _tick(*, is_right: bool, other: str) -> str:
    return "✓" if is_right else other


def _unsolved(results: NL2PlanResults) -> Sentences:
    lines = tuple(
        f"{name}: no plan found; {NO_PLAN[task.status]}."
        for name, task in results.tasks.items()
        if task.status in NO_PLAN
    )
    return Sentences(lines, "No plan found")


def _tokens(results: NL2PlanResults) -> Table:
    rows = []
    for domain, by_step in results.tokens_by_domain.items():
        paper = dict(zip(STEPS, TABLE_2.get(domain, ()), strict=False))
        cells = (beside(f"{by_step[step]:.0f}" if step in by_step else "", str(paper.get(step, ""))) for step in STEPS)
        rows.append((domain, *cells))
    if len(rows) > 1:
        rows.append(("average", *(_average(results, step) for step in STEPS)))
    header = ("domain", *(step.replace("_", "-") for step in STEPS))
    return Table("Tokens", header, tuple(rows), is_last_strong=len(rows) > 1)


def _average(results: NL2PlanResults, step: str) -> str:
    """Return the mean of a step over the domains, and the paper's over those of them that it has."""
    own = [by_step[step] for by_step in results.tokens_by_domain.values() if step in by_step]
    paper = [TABLE_2[domain][STEPS.index(step)] for domain in results.tokens_by_domain if domain in TABLE_2]
    return beside(f"{fmean(own):.0f}" if own else "", f"{fmean(paper):.0f}" if paper else "")


def _shares(results: NL2PlanResults) -> Table:
    rows = tuple(
        (name, number_or_dash(share, 1), f"{SHARES[name]:.1f}" if name in SHARES else "")
        for name, share in results.shares.items()
    )
    return Table("Automatic validation and feedback, percent", ("share", "here", "paper"), rows)


def _faults(results: NL2PlanResults) -> Table:
    messages: Counter[str] = Counter()
    flaws: Counter[str] = Counter()
    for task in results.tasks.values():
        messages.update(task.faults)
        flaws.update(task.flaws)
    names = [*PAPER_CHECKS, *sorted({*messages, *flaws} - set(PAPER_CHECKS))]
    rows = tuple((name, str(messages[name]), str(flaws[name])) for name in names if messages[name] or flaws[name])
    return Table("Faults by check", ("check", "error messages", "answers accepted with it"), rows)


def _common(results: NL2PlanResults) -> Sentences:
    """Return which check most error messages of a step are about."""
    lines = []
    for step, by_check in results.faults_by_step.items():
        check = max(by_check, key=lambda name: by_check[name])
        paper = f" (paper: {COMMON_FAULTS[step]})" if step in COMMON_FAULTS else ""
        lines.append(f"{spoken(step)}: most often {check}, {by_check[check]} of {sum(by_check.values())}{paper}.")
    return Sentences(tuple(lines), "The most common fault of each step")


def _cost(results: NL2PlanResults) -> Table:
    def cells(cost: Cost) -> tuple[str, ...]:
        tokens = (cost.input_tokens, cost.cached_tokens, cost.output_tokens, cost.reasoning_tokens)
        money = "" if cost.money is None else f"{cost.money:.4f}"
        counted = ("-" if count is None else str(count) for count in tokens)
        return str(cost.calls), *counted, f"{cost.seconds:.1f}", money

    rows = [(spoken(step), *cells(cost)) for step, cost in results.cost_by_step.items()]
    header = ("step", "calls", "input tokens", "of them cached", "output tokens", "of them reasoning",
              "seconds of answers", "money")  # fmt: skip
    note = f"Of {results.speaker}, as it counts."
    return Table("Cost", header, (*rows, ("all", *cells(results.cost))), note, is_last_strong=True)


def _listings(results: NL2PlanResults) -> Iterator[Listing]:
    for name, task in results.tasks.items():
        yield Listing(name, _facts(task), task.page)


def _facts(task: ModelledTask) -> dict[str, object]:
    steps = {f"step {number}": step for number, step in enumerate(task.plan, 1)}
    counts = (("calls", task.calls), ("tokens", task.tokens), ("error messages", task.faults),
              ("accepted with", task.flaws), ("advice", task.feedback))  # fmt: skip
    told = {f"{what}: {name}": count for what, by_name in counts for name, count in by_name.items()}
    return {"planning": task.status, "right": task.right, "confirmed by": task.confirmed, **told, **steps}

"""Everything a report says about one run of `nl2plan`, as one value, from the artifacts of the run.

The value is written to and read from ``results.json``; the live page asks for it at every look.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import (
    ActionAgreementRow,
    AdviceRow,
    DraftRow,
    ModelledTaskRow,
    ModelledVerdictRow,
    ModellingCallRow,
    ModellingStepRow,
    ModellingTaskRow,
    ProblemRow,
    Split,
)
from plansmith.groups import grouped
from plansmith.judging.modelled import NO_PLAN
from plansmith.modelling.cassette import is_played
from plansmith.modelling.growing import GROWING
from plansmith.modelling.pages import PAGES
from plansmith.modelling.products import AT_ONCE, LACKING, NL2PLAN, OF_DRAFT, ONE_CALL, RULES, ZERO_SHOT, DialogueStep
from plansmith.modelling.reading import read_types
from plansmith.modelling.script import SCRIPT
from plansmith.pddl.parser import parse_domain
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.results import RunResults
from plansmith.report.run_facts import facts_of
from plansmith.report.statistics import PairedTest, TriedProblem, area_under_roc, paired_test, solved_by_both

Run = RunSoFar[NL2PlanConfig]

COMPARED = (*LACKING, ONE_CALL, ZERO_SHOT)
"""Arms that are tested against the steps as they are: all in which a model answers."""
OTHERS = (*COMPARED, RULES)
"""Arms beside the steps."""
CALLS = "calls.parquet"


@dataclass(frozen=True, slots=True)
class ModelledTask:
    """One task.

    Attributes:
        domain: of it.
        status: of planning: a `PlannerStatus` or ``refused``.
        right: the plan is valid on the reference, under an interpretation that counts.
        confirmed: by what it counts: ``names``, ``person``, or nothing.
        proposed: a search has found an interpretation under which it would be right; nobody has confirmed it.
        plan: in the task's own model.
        optimum: steps of a shortest plan of the reference; None where it is not known.
        calls: questions, by step; one with an answer that was there already is none.
        tokens: of questions and answers, by step, as counted by who answers.
        faults: messages about each check.
        flaws: checks with whose faults an answer was accepted.
        feedback: what advice did, by step and effect, as ``construction: helped``.
        page: with every call, from the folder of the report; empty where no report lies beside it.
    """

    domain: str
    status: str
    right: bool
    confirmed: str
    proposed: bool
    plan: tuple[str, ...]
    optimum: int | None
    calls: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    flaws: dict[str, int] = field(default_factory=dict)
    feedback: dict[str, int] = field(default_factory=dict)
    page: str = ""


@dataclass(frozen=True, slots=True)
class DomainResult:
    """The tasks of one domain, where the speaker has learnt the steps in the run.

    Attributes:
        was_taught: it has learnt of this domain, in other phrasings.
        tasks, planned, right: tasks, those with a plan in their own model, those whose plan is right.
        others: those whose plan is right by each other arm.
        actions, equal: actions of the references, by text, and those that were written the same.
    """

    was_taught: bool
    tasks: int
    planned: int
    right: int
    others: dict[str, int]
    actions: int
    equal: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the drafts of a run say of one another.

    Attributes:
        drafts: of each task.
        levels: shares of the other drafts in which a plan is one too, each with how many plans, and how many are right.
        area_under_roc: whether agreement tells right plans from others, of first drafts; None where all are alike.
        first, chosen: tasks whose first draft is right, and the draft whose plan most others share.
        test: of the two, by text of a domain.
    """

    drafts: int
    levels: list[tuple[float, int, int]]
    area_under_roc: float | None
    first: int
    chosen: int
    test: PairedTest


@dataclass(frozen=True, slots=True)
class Cost:
    """What was asked and answered; an answer that was there already, of another stage, costs nothing.

    ``cached_tokens`` are those of the input that who answers knew already, ``reasoning_tokens`` those of the output in
    which it thought; None where it says nothing of them. ``money`` is None without prices.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None
    reasoning_tokens: int | None
    seconds: float
    money: float | None


@dataclass(frozen=True, slots=True)
class NL2PlanResults(RunResults):
    """One run; ``zero_shot`` has the status of each plan straight from the text, and whether it is right.

    ``arms`` counts right tasks; ``tokens`` are those that were written. ``shares`` are those of "Automatic Feedback"
    and "Automatic Validation", in percent. ``is_played``: a cassette answered.
    """

    speaker: str
    is_scripted: bool
    tasks: dict[str, ModelledTask]
    zero_shot: dict[str, tuple[str, bool]]
    arms: dict[str, int]
    shares: dict[str, float | None]
    cost: Cost
    tokens_by_domain: dict[str, dict[str, float]]
    is_played: bool = False
    cost_by_step: dict[str, Cost] = field(default_factory=dict)
    by_domain: dict[str, DomainResult] = field(default_factory=dict)
    """Empty where the speaker has not learnt in the run."""
    tests: dict[str, PairedTest] = field(default_factory=dict)
    """Of each other arm, as it was before, against the steps as they are; by text of a domain. Prose, which only a
    person can judge, is not compared, and no reader that knows the templates."""
    agreement: Agreement | None = None
    """None with one draft."""
    grown: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What domains lacked and were given, by the task that they were made of."""
    faults_by_step: dict[str, dict[str, int]] = field(default_factory=dict)
    """Messages about each check, by the step that they were sent in."""


def nl2plan_results(run: Run) -> NL2PlanResults | None:
    """Return everything that can be said about a run by now; None before it was judged."""
    if "judge" not in run.artifacts:
        return None
    judged = run.artifacts["judge"]
    verdicts = judged.rows(ModelledVerdictRow)
    references = {row.task: row for row in run.artifacts["tasks"].rows(ModellingTaskRow)}
    calls, first = _asked(_calls(run.artifacts)), {name: own for name, own in run.artifacts.items() if _is_first(name)}
    own_calls, steps = [call for _, call in _calls(first)], list(_steps(first))
    advice = judged.rows(AdviceRow, "advice")
    tasks = {
        row.task: replace(_task(row, references[row.task], own_calls, steps, advice), page=_page(run, row.task))
        for row in verdicts if row.arm == NL2PLAN
    }  # fmt: skip
    zero_shot = {row.task: (row.status, row.is_right) for row in verdicts if row.arm == ZERO_SHOT}
    speaker = next((call.model for _, call in calls), "")
    paid = [call for _, call in calls]
    written = {stage: sum(call.completion_tokens or 0 for _, call in own)
               for stage, own in grouped(calls, lambda call: call[0]).items()}  # fmt: skip
    return NL2PlanResults(
        **facts_of(run, judged.manifest.provenance, {}) | {"tokens": written},
        speaker=speaker,
        is_scripted=speaker.startswith(SCRIPT),
        is_played=is_played(speaker),
        tasks=tasks,
        zero_shot=zero_shot,
        arms={arm: sum(row.is_right for row in verdicts if row.arm == arm) for arm in (NL2PLAN, *OTHERS)
              if any(row.arm == arm for row in verdicts)},
        tests=dict(_tests(verdicts, references, is_learnt="compare_actions" in run.artifacts)),
        shares=_shares(steps, advice) | {
            "failures that end with no plan found": _unplanned(tasks.values()),
            "invalid types that advice removes (step 1)": _types_removed(steps, references),
        },
        cost=_cost(paid, run.config.speaker.prices),
        cost_by_step={step: _cost(own, run.config.speaker.prices) for step, own in grouped(paid, _step_of).items()},
        tokens_by_domain=_tokens_by_domain(own_calls, references),
        grown=_grown(steps),
        faults_by_step=_faults_by_step(own_calls),
        agreement=_agreement(run.artifacts["compare_drafts"]) if "compare_drafts" in run.artifacts else None,
        by_domain=dict(_by_domain(run.artifacts, tasks, verdicts)) if "compare_actions" in run.artifacts else {},
    )  # fmt: skip


def _page(run: Run, task: str) -> str:
    """Return the path of a task's page from the run's report, empty where there is none."""
    page = run.artifacts["judge"].folder / PAGES / f"{task}.md"
    if run.folder is None or not page.is_file():
        return ""
    return Path(os.path.relpath(page, run.folder / "report")).as_posix()


def _faults_by_step(calls: Iterable[ModellingCallRow]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        if call.checks:
            found[call.step].update(call.checks)
    return {step: dict(by_check) for step, by_check in found.items()}


def _grown(steps: Iterable[tuple[str, ModellingStepRow]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for task, step in steps:
        if step.step == GROWING:
            found[task] = (*found.get(task, ()), step.subject)
    return found


def _agreement(compared: Artifact) -> Agreement:
    """Return what drafts say of one another; a draft without a plan agrees with none."""
    rows = compared.rows(DraftRow)
    planned = [row for row in rows if row.has_plan]
    levels = sorted({row.agreement for row in planned}, reverse=True)
    first = {row.task: row for row in rows if row.draft == 1}
    chosen = {
        task: max((row for row in rows if row.task == task), key=lambda row: (row.has_plan, row.agreement, -row.draft))
        for task in first
    }

    def tried(drafts: Mapping[str, DraftRow]) -> list[TriedProblem]:
        return [TriedProblem(row.is_right, row.domain) for row in drafts.values()]

    scores = [row.agreement if row.has_plan else 0.0 for row in first.values()]
    return Agreement(
        drafts=max(row.draft for row in rows),
        levels=[
            (level, len(own), sum(row.is_right for row in own))
            for level in levels
            if (own := [row for row in planned if row.agreement == level])
        ],
        area_under_roc=area_under_roc(scores, [row.is_right for row in first.values()]),
        first=sum(row.is_right for row in first.values()),
        chosen=sum(row.is_right for row in chosen.values()),
        test=paired_test(tried(first), tried(chosen)),
    )


def _by_domain(
    artifacts: Mapping[str, Artifact], tasks: Mapping[str, ModelledTask], verdicts: Sequence[ModelledVerdictRow]
) -> Iterator[tuple[str, DomainResult]]:
    taught = taught_domains(artifacts)
    compared = artifacts["compare_actions"].rows(ActionAgreementRow)
    for name in dict.fromkeys(domain_of(task.domain) for task in tasks.values()):
        own = [task for task in tasks.values() if domain_of(task.domain) == name]
        actions = [row.is_equal for row in compared if domain_of(row.domain) == name]
        n_planned, n_right = sum(bool(task.plan) for task in own), sum(task.right for task in own)
        others = {
            arm: sum(row.is_right for row in rows if domain_of(tasks[row.task].domain) == name)
            for arm in OTHERS
            if (rows := [row for row in verdicts if row.arm == arm])
        }
        yield name, DomainResult(name in taught, len(own), n_planned, n_right, others, len(actions), sum(actions))


def taught_domains(artifacts: Mapping[str, Artifact]) -> set[str]:
    """Return the domains that the speaker of a run has learnt of."""
    if "sample_problems" not in artifacts:
        return set()
    return {row.domain for row in artifacts["sample_problems"].rows(ProblemRow) if row.split == Split.PHASE1}


def domain_of(text: str) -> str:
    """Return the domain of a text that is named by it and its phrasing; of the paper's tasks the domain itself."""
    name, _, phrasing = text.rpartition(" ")
    return name if phrasing.isdigit() else text


def compared_arms(verdicts: Sequence[ModelledVerdictRow], *, is_learnt: bool) -> list[str]:
    """Return the arms that are compared with the steps; where nobody learnt to speak as the references do, not all.

    One that answers in prose is not compared then, nor one of which a person has not said yet what a plan means, since
    those that are told apart would be what somebody has looked at.
    """
    if is_learnt:
        return list(COMPARED)
    waiting = {row.arm for row in verdicts if row.proposal}
    return [arm for arm in COMPARED if arm != ZERO_SHOT and not waiting & {arm, NL2PLAN}]


def _tests(
    verdicts: Sequence[ModelledVerdictRow], references: Mapping[str, ModellingTaskRow], *, is_learnt: bool
) -> Iterator[tuple[str, PairedTest]]:
    """Yield the test of each other arm that is compared."""
    arms = compared_arms(verdicts, is_learnt=is_learnt)
    tried = {
        arm: {row.task: TriedProblem(row.is_right, references[row.task].domain) for row in verdicts if row.arm == arm}
        for arm in (NL2PLAN, *arms)
    }
    for arm in arms:
        if tried[arm]:
            where = "in a run of NL2Plan"
            yield (
                arm,
                paired_test(*solved_by_both(tried[arm], tried[NL2PLAN], names=f"{arm} and the steps", where=where)),
            )


def _is_first(stage: str) -> bool:
    """Return whether a stage is none of a further draft, and none of steps with something left out."""
    return OF_DRAFT not in stage and not stage.endswith(tuple(f"_{arm}" for arm in LACKING))


def _calls(artifacts: Mapping[str, Artifact]) -> Iterator[tuple[str, ModellingCallRow]]:
    """Yield every exchange with the stage of its dialogue, in the order of the stages."""
    for name, artifact in artifacts.items():
        if CALLS in artifact.manifest.files:
            yield from ((name, row) for row in artifact.rows(ModellingCallRow, "calls"))


def _asked(calls: Iterable[tuple[str, ModellingCallRow]]) -> list[tuple[str, ModellingCallRow]]:
    """Return what somebody was asked: an answer that was there already costs nothing, and is the first stage's."""
    found: dict[str, tuple[str, ModellingCallRow]] = {}
    for stage, call in calls:
        found.setdefault(call.key, (stage, call))
    return list(found.values())


def _steps(artifacts: Mapping[str, Artifact]) -> Iterator[tuple[str, ModellingStepRow]]:
    for artifact in artifacts.values():
        if CALLS in artifact.manifest.files:
            for row in artifact.rows(ModelledTaskRow):
                yield from ((row.task, step) for step in row.steps)


def _task(
    row: ModelledVerdictRow,
    reference: ModellingTaskRow,
    calls: Sequence[ModellingCallRow],
    steps: Sequence[tuple[str, ModellingStepRow]],
    advice: Sequence[AdviceRow],
) -> ModelledTask:
    own = [call for call in calls if call.task == row.task and call.step not in AT_ONCE]
    asked, tokens = {call.key: call for call in own}, Counter[str]()
    for call in asked.values():
        tokens[call.step] += _tokens(call)
    return ModelledTask(
        domain=reference.domain,
        status=row.status,
        right=row.is_right,
        confirmed=row.confirmed,
        proposed=bool(row.proposal),
        plan=row.plan,
        optimum=reference.optimum,
        calls=dict(Counter(call.step for call in asked.values())),
        tokens=dict(tokens),
        faults=dict(Counter(check for call in own for check in call.checks)),
        flaws=dict(Counter(check for task, step in steps if task == row.task for check in step.faults)),
        feedback=dict(Counter(f"{one.step}: {one.effect}" for one in advice if one.task == row.task)),
    )


def _tokens(call: ModellingCallRow) -> int:
    return (call.prompt_tokens or 0) + (call.completion_tokens or 0)


def _cost(calls: Sequence[ModellingCallRow], prices: Mapping[str, float]) -> Cost:
    n_in = sum(call.prompt_tokens or 0 for call in calls)
    n_out = sum(call.completion_tokens or 0 for call in calls)
    cached, thought = (_known(getattr(call, name) for call in calls) for name in ("cached_tokens", "reasoning_tokens"))
    of_input, of_output = prices.get("input", 0), prices.get("output", 0)
    saved = (cached or 0) * (of_input - prices.get("cached", of_input))
    money = (n_in * of_input - saved + n_out * of_output) / 1e6 if prices else None
    return Cost(len(calls), n_in, n_out, cached, thought, round(sum(call.seconds for call in calls), 3), money)


def _known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the counts that are known, None where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _step_of(call: ModellingCallRow) -> str:
    return call.step


def _tokens_by_domain(
    calls: Iterable[ModellingCallRow], references: Mapping[str, ModellingTaskRow]
) -> dict[str, dict[str, float]]:
    """Return the tokens of each step by domain, as the mean over the tasks for which the step was taken."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for call in {(call.task, call.key): call for call in calls}.values():
        found[references[call.task].domain][call.step][call.task] += _tokens(call)
    return {
        domain: {step: sum(by_task.values()) / len(by_task) for step, by_task in steps.items()}
        for domain, steps in found.items()
    }


def _shares(steps: Sequence[tuple[str, ModellingStepRow]], advice: Sequence[AdviceRow]) -> dict[str, float | None]:
    """Return the shares that the paper tells, in percent; None where nothing was asked, or nothing advised."""
    found: dict[str, float | None] = {}
    for step, what, number in ((DialogueStep.CONSTRUCTION, "actions", 4), (DialogueStep.TASK, "tasks", 5)):
        own = [one for _, one in steps if one.step == step]
        given = [one for one in advice if one.step == step]
        found[f"{what} with an error (step {number})"] = _percent(sum(bool(one.n_messages) for one in own), len(own))
        found[f"{what} with advice (step {number})"] = _percent(len(given), len(own))
        harmful = sum(one.effect == "harmful" for one in given)
        found[f"advice that is harmful (step {number})"] = _percent(harmful, len(given))
    return found


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _unplanned(tasks: Iterable[ModelledTask]) -> float | None:
    """Return the share of the tasks without a right plan that end with no plan; those that wait for a person are none.

    What the paper calls identified failures.
    """
    failed = [task for task in tasks if not (task.right or task.proposed)]
    return _percent(sum(task.status in NO_PLAN for task in failed), len(failed))


def _types_removed(
    steps: Iterable[tuple[str, ModellingStepRow]], references: Mapping[str, ModellingTaskRow]
) -> float | None:
    """Return the share of the invalid types of first answers that are gone after advice.

    A type is invalid here that is called as an action or a predicate of the reference and as none of its types; the
    paper's authors looked at them.
    """
    n_invalid = n_removed = 0
    for task, step in steps:
        if step.step == DialogueStep.TYPES:
            domain = parse_domain(references[task].domain_pddl, source=f"{task}, reference")
            wrong = _called(own.name for own in domain.actions) | _called(own.name for own in domain.predicates)
            wrong -= _called(own.name for own in domain.types)
            after = _called(own.name for own in read_types(step.after)[0])
            before = _called(own.name for own in read_types(step.before)[0]) if step.before else after
            n_invalid, n_removed = n_invalid + len(before & wrong), n_removed + len((before - after) & wrong)
    return _percent(n_removed, n_invalid)


def _called(names: Iterable[str]) -> set[str]:
    """Return names however they are spelt."""
    return {name.lower().replace("_", "-") for name in names}

"""The stages of NL2Plan: each takes all tasks through one step, then plans, then judges.

A task that has ended is a shard, and each of its answers is written before it is used, where all stages of the run look
for it before they ask: nothing is asked twice. Planning 15 small problems takes seconds, so it happens where the stage
runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Generator as Dialogue
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from plansmith.config.basics import StrictModel
from plansmith.config.generation import AttemptConfig, SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import (
    AdviceRow,
    DraftRow,
    ModelledPlanRow,
    ModelledTaskRow,
    ModelledVerdictRow,
    ModellingCallRow,
    ModellingStepRow,
    ModellingTaskRow,
    ProductRow,
)
from plansmith.errors import BadInputError
from plansmith.generation import Generator, Message
from plansmith.groups import grouped
from plansmith.judging.advice import effect_of_advice
from plansmith.judging.interpretation import (
    identity,
    interpretation_of,
    interpretation_text,
    propose,
    reference_plan,
    speaks_as,
)
from plansmith.judging.modelled import is_plan, plan_task
from plansmith.judging.obstacles import obstacles_of
from plansmith.modelling import folder as files
from plansmith.modelling.calls import Call, CallLog
from plansmith.modelling.dialogue import Question, QuestionKind, task_exercise
from plansmith.modelling.growing import grow_domain, lacks_of
from plansmith.modelling.hidden_words import HiddenWords, KeptWords
from plansmith.modelling.pages import PAGES, ArmOfTask, task_page
from plansmith.modelling.products import (
    AT_ONCE,
    DRAFT,
    LACKING,
    NL2PLAN,
    ONE_CALL,
    RULES,
    ZERO_SHOT,
    DialogueStep,
    Obstacle,
)
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.reading import read_definitions
from plansmith.modelling.references import TASKS_FOLDER, Reference, read_references
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import (
    RowProducts,
    look_again_at_actions,
    look_again_at_problem,
    make_actions,
    make_domain,
    make_hierarchy,
    make_problem,
    make_schemas,
    make_types,
    read_made_domain,
)
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_domain, parse_step
from plansmith.pddl.plan_text import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import PlanVerdict, Verdict, validate_plan
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.invention.folders import with_requirements
from plansmith.stages import Stage, StageContext
from plansmith.text.domain_text_reader import read_task_text
from plansmith.text.loose_plans import read_loose_plan

CALLS, ADVICE = "calls", "advice"
"""Tables of `ModellingCallRow` beside what a step has made, and of `AdviceRow` beside the verdicts."""
EDITED = (files.TYPES, files.HIERARCHY, files.ACTIONS)
"""What may be mended of a domain, beside the actions of step 4."""
GROWN = "grow"
"""Name of the input that holds the domains with words added."""
OPTIMA = tuple(
    PlannerConfig(search=search, time_limit_s=30, kill_after_s=40) for search in ("optimal", "astar(blind())")
)
"""What finds the lengths of shortest plans, the second where the first knows not all features; one that neither finds
stays unknown."""

KEPT = "words.json"
"""File of the words that a policy knows, beside the lessons that it has learnt."""
SPOKEN = "spoken"
"""Table of the tasks of a run with lessons, with references that are called as their texts call them."""

NOT_ASKED = frozenset({"tasks", "plan", "lessons", "policy", *LACKING, ONE_CALL, RULES})
"""Inputs that hold nothing that a step has made."""
Made = Dialogue[Question, str, ModellingStepRow | tuple[ModellingStepRow, ...]]


# --- the texts


class ReadingSettings(StrictModel):
    """Which texts."""

    folder: str | None
    """None for the paper's."""
    domains: tuple[str, ...]
    """Empty for all."""
    digest: str
    """Of the texts and references."""


def references_of(folder: str | None, domains: tuple[str, ...]) -> tuple[Reference, ...]:
    """Return the tasks that settings name; see `read_references`."""
    return read_references(TASKS_FOLDER if folder is None else Path(folder), domains=domains)


def references_digest(references: Iterable[Reference]) -> str:
    """Return a hash of tasks."""
    return hashlib.sha256(repr([asdict(own) for own in references]).encode()).hexdigest()


def read_tasks(context: StageContext[ReadingSettings]) -> None:
    """Write the texts with their references, and the length of a shortest plan of each."""
    references = references_of(context.settings.folder, context.settings.domains)
    with contextlib.ExitStack() as stack:
        planners = [stack.enter_context(FastDownward(settings)) for settings in OPTIMA]
        rows = [
            ModellingTaskRow(
                own.name,
                own.domain,
                own.level,
                own.text,
                own.domain_pddl,
                own.problem_pddl,
                _optimum(own, planners),
            )
            for own in references
        ]
    context.output.write_rows(rows, ModellingTaskRow)


def _optimum(reference: Reference, planners: Iterable[FastDownward]) -> int | None:
    found = (plan_task(planner, reference.domain_pddl, reference.problem_pddl) for planner in planners)
    return next((len(planned.plan) for planned in found if planned.is_solved), None)


# --- the steps


class AskingSettings(StrictModel):
    """How a step is taken."""

    step: str
    """Name of the stage's step, of `STEPS`."""
    number: int = 0
    """Of the pass, of step 4."""
    draft: int = 1
    """Which draft it is; each is drawn with other seeds."""
    modelling: ModellingConfig
    """How answers are checked and criticised."""
    answers: AttemptConfig
    """How they are drawn."""
    shares_domain: bool
    """Only the first task of each domain is taken through steps 1 to 4."""
    sees_whole: bool = False
    """It is taken through them with the texts of all."""
    edits: dict[str, dict[str, str]] = Field(default_factory=dict)
    """What stands in the place of products, by domain and file."""
    who: str
    """Who answers; empty for the policy that the stage reads."""
    engine: EngineNumerics | None = None
    """Of that policy."""
    prompts: str
    """Digest of the prompts."""


class LookingAgainSettings(AskingSettings):
    """How models without a plan are looked at again."""

    planner: PlannerConfig
    """What is asked whether a relation both ways brings a plan."""


def take_step(context: StageContext[AskingSettings]) -> None:
    """Take every task through a step, side by side."""
    settings, tasks = context.settings, context.inputs["tasks"].rows(ModellingTaskRow)
    asked = tasks if settings.step in (DialogueStep.TASK, *AT_ONCE) else representatives(tasks, context.settings)
    if GROWN in context.inputs:  # the problems of other domains stay
        grown = {row.task for row in context.inputs[GROWN].rows(ModelledTaskRow)}
        asked = [row for row in tasks if representative(row, tasks, settings).task in grown]
    before = products_of(context.inputs)
    source = {row.task: representative(row, tasks, settings).task for row in tasks}
    products = {
        row.task: RowProducts(
            {**before.get(source[row.task], {}), **before.get(row.task, {})}, edits=_edits(row.domain, settings)
        )
        for row in asked
    }
    if settings.sees_whole and settings.step not in (DialogueStep.TASK, *AT_ONCE):
        asked = [replace(row, text=whole_text([own for own in tasks if own.domain == row.domain])) for row in asked]
    _converse(context, products, {row.task: partial(_dialogue, row, products[row.task], settings) for row in asked})


def grow(context: StageContext[AskingSettings]) -> None:
    """Let each domain have the words that problems of step 5 used and it lacked, of one task after the other."""
    settings, made = context.settings, products_of(context.inputs)
    tasks = context.inputs["tasks"].rows(ModellingTaskRow)
    first = {row.task: row.answer for row in _calls_of(context.inputs["task"]) if row.kind == QuestionKind.DRAFT}
    products, dialogues = dict[str, RowProducts](), dict[str, Callable[[], Made]]()
    for row in representatives(tasks, settings):
        own = RowProducts(made[row.task], edits=_edits(row.domain, settings))
        answers = {one.text: first[one.task] for one in tasks if representative(one, tasks, settings).task == row.task}
        if any(_lacking(text, answer, own, settings.modelling) for text, answer in answers.items()):
            products[row.task] = own
            dialogues[row.task] = partial(_grown, row.text, own, settings.modelling, answers)
    _converse(context, products, dialogues)


def _lacking(text: str, answer: str, products: RowProducts, config: ModellingConfig) -> tuple[str, ...]:
    """Return what an answer of step 5 uses and the domain lacks."""
    domain = read_made_domain(products, config)
    return lacks_of(task_exercise(text, domain, config).product(answer), domain)


def _grown(text: str, products: RowProducts, config: ModellingConfig, answers: Mapping[str, str]) -> Made:
    """Leave the domain of a text with what the answers of step 5 to other texts lack."""
    records: tuple[ModellingStepRow, ...] = ()
    for task, answer in answers.items():
        if lacks := _lacking(task, answer, products, config):
            records += yield from grow_domain(text, products, config, task=task, lacks=lacks)
    return records


def whole_text(tasks: Iterable[ModellingTaskRow]) -> str:
    """Return the texts of tasks as one, each paragraph once."""
    return "\n\n".join(dict.fromkeys(part for row in tasks for part in row.text.split("\n\n")))


def _edits(domain: str, settings: AskingSettings) -> dict[str, files.Edit]:
    edits = settings.edits.get(domain, {})
    return {name: files.read_edit(name, text, where=f"{domain}/{name}") for name, text in edits.items()}


def read_edits(folder: str | None, domains: Collection[str] | None) -> dict[str, dict[str, str]]:
    """Return the edits of a folder by domain and file.

    Args:
        folder: with DOMAIN/3-actions.md and the like; None for no edits.
        domains: the names of all; None where they are not known yet.

    Raises:
        BadInputError: no such folder, one of no domain, or a file that is no edit of a product of steps 1 to 4.
    """
    found: dict[str, dict[str, str]] = {}
    for path in () if folder is None else sorted(Path(folder).glob("*/**/*.md")):
        domain, _, name = path.relative_to(folder).as_posix().partition("/")  # type: ignore[arg-type]
        if domains is not None and domain not in domains:
            raise BadInputError("edits of no domain", where=str(path), got=domain,
                                expected=f"one of {', '.join(sorted(domains))}")  # fmt: skip
        found.setdefault(domain, {})[name] = path.read_text(encoding="utf-8")
        files.read_edit(name, found[domain][name], where=str(path))
        if name not in EDITED and not name.startswith("4-actions/"):
            raise BadInputError("an edit of no product of steps 1 to 4", where=str(path),
                                expected=f"{', '.join(EDITED)} or 4-actions/PASS/NAME.md")  # fmt: skip
    if folder is not None and not found:
        raise BadInputError("no edits here", where=folder, expected="DOMAIN/3-actions.md and the like")
    return found


LOOK_AGAIN = "look_again"
"""How the names of the stages begin that take a task back."""


def look_again(context: StageContext[LookingAgainSettings]) -> None:
    """Take every task without a plan back to steps 4 and 5, with what stands in its way; its domain is then its own."""
    settings, tasks = context.settings, context.inputs["tasks"].rows(ModellingTaskRow)
    made, of_all = products_of(_asked_in(context.inputs)), products_of(_shared(context.inputs))
    unsolved = {row.task for row in context.inputs["plan"].rows(ModelledPlanRow) if row.status != PlannerStatus.SOLVED}
    products, dialogues = dict[str, RowProducts](), dict[str, Callable[[], Made]]()
    with FastDownward(settings.planner) as planner:
        for row in (row for row in tasks if row.task in unsolved):
            shared = of_all.get(representative(row, tasks, settings).task, {})
            own = RowProducts({**shared, **made[row.task]}, edits=_edits(row.domain, settings))
            obstacles = obstacles_of(planner, own.current(files.DOMAIN), own.current(files.PROBLEM))
            if obstacles:
                products[row.task] = own
                dialogues[row.task] = partial(_looked_again, row.text, own, settings.modelling, obstacles)
    _converse(context, products, dialogues)


def _looked_again(text: str, products: RowProducts, config: ModellingConfig, obstacles: Sequence[Obstacle]) -> Made:
    actions = yield from look_again_at_actions(text, products, config, obstacles)
    problem = yield from look_again_at_problem(text, products, config, obstacles)
    return (*actions, problem)


def _converse(
    context: StageContext[Any],
    products: Mapping[str, RowProducts],
    dialogues: Mapping[str, Callable[[], Made]],
) -> None:
    """Hold the dialogues of tasks side by side; write what each has made, and every call of it, a shard a task."""
    settings: AskingSettings = context.settings
    shards, calls = context.output.shards("rows", ModelledTaskRow), context.output.shards(CALLS, ModellingCallRow)
    done, told = shards.finished_ids("task"), calls.finished_ids("task")
    waiting = {task: start() for task, start in dialogues.items() if task not in done}
    answers = CallLog.open(context.output.beside(files.CALLS))
    generator, who = _generator(context)
    speaker = Speaker(
        generator,
        SamplingConfig(**settings.answers.model_dump()),
        context.stage.seed + settings.draft - 1,
        who,
        lambda _task: answers,
        settings.modelling.feedback,
        owns_window=not settings.who,
    )
    for task, made in speaker.converse(waiting, description=context.stage.name):
        if task not in told:  # or a crash was between the two
            calls.append(_call_row(task, number, call) for number, call in enumerate(speaker.said[task], 1))
        records = (made,) if isinstance(made, ModellingStepRow) else made
        kept = tuple(ProductRow(name, text) for name, text in sorted(products[task].made.items()))
        shards.append([ModelledTaskRow(task, kept, records)])


def _generator(context: StageContext[Any]) -> tuple[Generator, str]:
    """Return who answers, with what the answers depend on beside the questions and how they are drawn.

    It is the run's speaker, or the policy that has learnt the lessons, whose words are hidden.
    """
    settings: AskingSettings = context.settings
    if "policy" not in context.inputs:
        return context.resources.generator(None, settings.who), settings.who
    policy, engine = context.inputs["policy"], settings.engine
    hidden = HiddenWords(
        context.resources.generator(policy, engine), KeptWords.read(context.inputs["lessons"].path(KEPT)).words
    )
    return hidden, f"{policy.key} {'' if engine is None else engine.model_dump_json()}"


def representatives(tasks: Iterable[ModellingTaskRow], settings: AskingSettings) -> list[ModellingTaskRow]:
    """Return the tasks that are taken through steps 1 to 4."""
    rows = list(tasks)
    return [row for row in rows if representative(row, rows, settings).task == row.task]


def representative(
    row: ModellingTaskRow, tasks: Iterable[ModellingTaskRow], settings: AskingSettings
) -> ModellingTaskRow:
    """Return the task whose domain a task is written in: the paper's easy one."""
    return next(own for own in tasks if own.domain == row.domain) if settings.shares_domain else row


def _shared(inputs: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Return what tasks share: not what one has made anew for itself once it had no plan."""
    return {name: artifact for name, artifact in inputs.items() if not name.startswith(LOOK_AGAIN)}


def products_of(inputs: Mapping[str, Artifact]) -> dict[str, dict[str, str]]:
    """Return what earlier stages have made, by task and file."""
    found: dict[str, dict[str, str]] = {}
    for artifact in _asked_in(inputs).values():
        for row in artifact.rows(ModelledTaskRow):
            found.setdefault(row.task, {}).update({own.file: own.text for own in row.products})
    return found


def _dialogue(row: ModellingTaskRow, products: RowProducts, settings: AskingSettings) -> Made:
    config = settings.modelling
    match settings.step:
        case DialogueStep.TYPES:
            return make_types(row.text, products, config)
        case DialogueStep.HIERARCHY:
            return make_hierarchy(row.text, products, config)
        case DialogueStep.ACTIONS:
            return make_actions(row.text, products, config)
        case DialogueStep.CONSTRUCTION:
            return make_schemas(row.text, products, config, number=settings.number)
        case DialogueStep.TASK:
            return make_problem(row.text, read_made_domain(products, config), products, config)
        case DialogueStep.ZERO_SHOT | DialogueStep.ONE_CALL:
            return _at_once(row.text, products, config, DialogueStep(settings.step))
        case _:
            raise ValueError(f"no step of NL2Plan: {settings.step}")


def _at_once(text: str, products: RowProducts, config: ModellingConfig, step: DialogueStep) -> Made:
    """Leave what a model answers when it is asked for a plan (appendix G), or for domain and problem, at once."""
    messages = (Message("user", step_prompt(config.prompts, step, text=text)),)
    answer = yield Question(step, "", QuestionKind.DRAFT, messages)
    if step is DialogueStep.ONE_CALL:
        for file, pddl in zip((files.DOMAIN, files.PROBLEM), read_definitions(answer), strict=True):
            products.settle(file, pddl)
    else:
        products.settle(ZERO_SHOT, answer)
    return ()


def _call_row(task: str, number: int, call: Call) -> ModellingCallRow:
    return ModellingCallRow(
        task, number, call.key, call.step, call.subject, call.kind, json.dumps(call.messages), call.checks, call.answer,
        call.finish_reason, call.model, call.prompt_tokens, call.completion_tokens, call.cached_tokens,
        call.reasoning_tokens, call.seconds,
    )  # fmt: skip


def read_by_rules(context: StageContext[None]) -> None:
    """Write the domain and the problem that each text tells by templates, or why it tells none so."""
    rows = []
    for row in context.inputs["tasks"].rows(ModellingTaskRow):
        made = zip((files.DOMAIN, files.PROBLEM), _read_by_rules(row.text), strict=True)
        rows.append(ModelledTaskRow(row.task, tuple(ProductRow(file, pddl) for file, pddl in made), ()))
    context.output.write_rows(rows, ModelledTaskRow)


def _read_by_rules(text: str) -> tuple[str, str]:
    """Return domain and problem; a comment that says why in the place of a domain that cannot be read."""
    try:
        domain, problem = read_task_text(text)
    except BadInputError as error:
        return "".join(f"; {line}\n" for line in str(error).splitlines()), ""
    return print_domain(with_requirements(domain)), print_problem(problem)


def prune(context: StageContext[ModellingConfig]) -> None:
    """Write the domain of each task, without the types and predicates that no action uses."""
    rows = []
    for task, before in sorted(products_of(context.inputs).items()):
        products = RowProducts(before)
        make_domain(products, context.settings)
        rows.append(ModelledTaskRow(task, (ProductRow(files.DOMAIN, products.made[files.DOMAIN]),), ()))
    context.output.write_rows(rows, ModelledTaskRow)


# --- planning and verdict


class PlanningSettings(StrictModel):
    """How what was modelled is planned."""

    planner: PlannerConfig
    """The planner."""
    shares_domain: bool
    """Tasks have the domain of the first of their domain."""


def plan(context: StageContext[PlanningSettings]) -> None:
    """Plan every task in its own model (step 6)."""
    tasks, rows = context.inputs["tasks"].rows(ModellingTaskRow), []
    with FastDownward(context.settings.planner) as planner:
        for task, model in _models(tasks, context.inputs, shares_domain=context.settings.shares_domain).items():
            planned = plan_task(planner, *model)
            rows.append(ModelledPlanRow(task, planned.status, planned.plan, planned.message))
    context.output.write_rows(rows, ModelledPlanRow)


def _models(
    tasks: Sequence[ModellingTaskRow], inputs: Mapping[str, Artifact], *, shares_domain: bool
) -> dict[str, tuple[str, str]]:
    """Return the domain and the problem that were written of each task."""
    made, of_all, found = products_of(inputs), products_of(_shared(inputs)), dict[str, tuple[str, str]]()
    for row in tasks:
        source = next(own for own in tasks if own.domain == row.domain) if shares_domain else row
        model = {**of_all[source.task], **made[row.task]}
        found[row.task] = (model[files.DOMAIN], model[files.PROBLEM])
    return found


class VerdictSettings(StrictModel):
    """What a person has said of the plans."""

    interpretations: dict[str, str]
    """The interpretation of each task that a person has looked at, as JSON."""
    told: dict[str, str]
    """What the prose of a plan straight from the text means, by task: a plan of the reference, as a person reads it."""


def read_verdicts(
    folder: str | None, tasks: Collection[str] | None, references: Iterable[Reference] = ()
) -> VerdictSettings:
    """Return what a folder holds of a person's: interpretations of tasks, and the plans that prose tells.

    Args:
        folder: with TASK.json and TASK.plan; None for nothing said.
        tasks: the names of all; None where they are not known yet.
        references: of tasks, by which what is said of these is looked through.

    Raises:
        BadInputError: no such folder, a file of no task, or one that holds no interpretation, or no plan; what a
            reference does not know.
    """
    if folder is None:
        return VerdictSettings(interpretations={}, told={})
    if not Path(folder).is_dir():
        raise BadInputError("no folder of interpretations", where=folder, expected="a folder with TASK.json")
    files_of = {kind: {path.stem: path for path in sorted(Path(folder).glob(f"*.{kind}"))} for kind in ("json", "plan")}
    for path in (path for found in files_of.values() for path in found.values()):
        if tasks is not None and path.stem not in tasks:
            raise BadInputError("an interpretation of no task", where=str(path), got=path.stem,
                                expected=f"one of {', '.join(sorted(tasks))}")  # fmt: skip
    texts = {kind: {task: read_text(path) for task, path in found.items()} for kind, found in files_of.items()}
    given = {name: interpretation_of(text, where=str(files_of["json"][name])) for name, text in texts["json"].items()}
    plans = {name: parse_plan(text, source=str(files_of["plan"][name])) for name, text in texts["plan"].items()}
    for own in (own for own in references if own.name in given or own.name in plans):
        task = PlanningTask.from_text(own.domain_pddl, own.problem_pddl)
        if own.name in given:
            given[own.name].check(task, where=str(files_of["json"][own.name]))
        if own.name in plans:
            _told_verdict(task, plans[own.name], where=str(files_of["plan"][own.name]))
    return VerdictSettings(interpretations=texts["json"], told=texts["plan"])


def judge(context: StageContext[VerdictSettings]) -> None:
    """Write whether each plan is right on the reference, what advice did, and a page of each task."""
    tasks = {row.task: row for row in context.inputs["tasks"].rows(ModellingTaskRow)}
    arms = [(NL2PLAN, "plan"), *((arm, arm) for arm in (*LACKING, ONE_CALL, RULES) if arm in context.inputs)]
    verdicts = _verdicts(context, tasks, arms)
    if ZERO_SHOT in context.inputs:
        verdicts += [
            _zero_shot_verdict(tasks[row.task], row, context.settings.told.get(row.task))
            for row in context.inputs[ZERO_SHOT].rows(ModelledTaskRow)
        ]
    context.output.write_rows(verdicts, ModelledVerdictRow)
    given = context.inputs["tasks"]
    called = given.rows(ModellingTaskRow, SPOKEN) if f"{SPOKEN}.parquet" in given.manifest.files else tasks.values()
    references = {row.task: (row.domain_pddl, row.problem_pddl) for row in called}
    advised = [
        AdviceRow(row.task, step.step, step.subject, _effect(references[row.task], step))
        for artifact in _asked_in(context.inputs).values()
        for row in artifact.rows(ModelledTaskRow)
        for step in row.steps
        if step.advice
    ]
    context.output.write_rows(advised, AdviceRow, table=ADVICE)
    drafts = [(name, name) for name in context.inputs if name.startswith(DRAFT) and " " not in name]
    _write_pages(context, tasks, [*verdicts, *_verdicts(context, tasks, drafts)])


def _verdicts(
    context: StageContext[VerdictSettings],
    tasks: Mapping[str, ModellingTaskRow],
    arms: Iterable[tuple[str, str]],
) -> list[ModelledVerdictRow]:
    """Return whether the plans of arms are right, each given with the name of the input that has its plans."""
    return [
        _verdict(tasks[row.task], row, context.settings, arm=arm)
        for arm, name in arms
        for row in context.inputs[name].rows(ModelledPlanRow)
    ]


class AgreementSettings(VerdictSettings):
    """How drafts are compared."""

    shares_domain: bool
    """Tasks have the domain of the first of their domain."""


def compare_drafts(context: StageContext[AgreementSettings]) -> None:
    """Write of the plan of each draft whether it is right, and in which share of the other drafts' models it is a plan.

    The share needs no reference; whether it tells which plans are right is what the two together show.
    """
    tasks, settings = context.inputs["tasks"].rows(ModellingTaskRow), context.settings
    drafts: dict[int, dict[str, Artifact]] = {}
    for name, artifact in context.inputs.items():
        of_draft, _, its_name = name.partition(" ")
        if its_name:
            drafts.setdefault(int(of_draft), {})[its_name] = artifact
    models = {number: _models(tasks, own, shares_domain=settings.shares_domain) for number, own in drafts.items()}
    rows = []
    for number, own in drafts.items():
        for row, planned in zip(tasks, own["plan"].rows(ModelledPlanRow), strict=True):
            verdict = _verdict(row, planned, settings)
            agreeing = [is_plan(planned.plan, *models[other][row.task]) for other in drafts if other != number]
            rows.append(DraftRow(row.task, row.domain, number, bool(planned.plan), verdict.is_right,
                                 sum(agreeing) / len(agreeing)))  # fmt: skip
    context.output.write_rows(rows, DraftRow)


def _write_pages(
    context: StageContext[VerdictSettings],
    tasks: Mapping[str, ModellingTaskRow],
    verdicts: Iterable[ModelledVerdictRow],
) -> None:
    """Write a page of each task: its text, and of each arm the verdict, what was made, and every call."""
    folder, arms = context.output.path(PAGES), dict[str, list[ArmOfTask]]()
    folder.mkdir()
    for arm, own in grouped(verdicts, lambda verdict: verdict.arm).items():
        for of_task in _of_tasks(arm, own, context.inputs):
            arms.setdefault(of_task.verdict.task, []).append(of_task)
    for task, row in tasks.items():
        (folder / f"{task}.md").write_text(task_page(row, arms.get(task, [])), encoding="utf-8")


def _of_tasks(arm: str, verdicts: Sequence[ModelledVerdictRow], inputs: Mapping[str, Artifact]) -> Iterator[ArmOfTask]:
    """Yield what an arm came to with each task."""
    asked = _asked_by(arm, inputs)
    rows = grouped((row for artifact in asked for row in artifact.rows(ModelledTaskRow)), lambda row: row.task)
    calls = grouped((call for artifact in asked for call in _calls_of(artifact)), lambda call: call.task)
    plans = [] if arm == ZERO_SHOT else inputs["plan" if arm == NL2PLAN else arm].rows(ModelledPlanRow)
    messages = {row.task: row.message for row in plans}
    for verdict in verdicts:
        own = rows.get(verdict.task, [])
        yield ArmOfTask(
            verdict,
            messages.get(verdict.task, ""),
            [step for row in own for step in row.steps],
            {product.file: product.text for row in own for product in row.products},
            calls.get(verdict.task, []),
        )


def _asked_by(arm: str, inputs: Mapping[str, Artifact]) -> list[Artifact]:
    """Return what an arm was answered; see `of_arm`."""
    if arm == NL2PLAN:
        return [artifact for name, artifact in _asked_in(inputs).items() if name != ZERO_SHOT]
    if arm == ZERO_SHOT:
        return [inputs[ZERO_SHOT]]
    return [artifact for name, artifact in inputs.items() if name.startswith(f"{arm} ")]


def of_arm(arm: str, steps: Mapping[str, Stage[Any]]) -> dict[str, Stage[Any]]:
    """Return the steps of an arm beside the first draft, under the names by which `judge` knows whose they are."""
    return {f"{arm} {name}": stage for name, stage in steps.items()}


def _asked_in(inputs: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Return what the steps themselves were answered, and a plan straight from the text."""

    def is_beside(name: str) -> bool:
        return name in NOT_ASKED or " " in name or name.startswith(DRAFT)

    return {name: artifact for name, artifact in inputs.items() if not is_beside(name)}


def _calls_of(artifact: Artifact) -> list[ModellingCallRow]:
    return artifact.rows(ModellingCallRow, CALLS) if f"{CALLS}.parquet" in artifact.manifest.files else []


def _effect(reference: tuple[str, str], step: ModellingStepRow) -> str:
    return effect_of_advice(step.step, step.subject, step.before, step.after, reference)


def _verdict(
    row: ModellingTaskRow, planned: ModelledPlanRow, settings: VerdictSettings, *, arm: str = NL2PLAN
) -> ModelledVerdictRow:
    def said(*, is_right: bool = False, confirmed: str = "", proposal: str = "") -> ModelledVerdictRow:
        return ModelledVerdictRow(row.task, arm, planned.status, is_right, confirmed, planned.plan, proposal)

    if not planned.plan:
        return said()
    steps = [parse_step(text) for text in planned.plan]
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    text = settings.interpretations.get(row.task)
    given = None if text is None else interpretation_of(text, where=f"{row.task}.json")
    # else it is of another model's words, of another draft or an arm, which may be the reference's own
    if given is not None and given.covers(steps) and (given.knows_objects_of(steps) or not speaks_as(task, steps)):
        given.check(task, where=f"{row.task}.json")
        is_right = given.is_confirmed and reference_plan(given, steps, task) is not None
        return said(is_right=is_right, confirmed="person") if given.is_confirmed else said(proposal=text or "")
    if speaks_as(task, steps):
        return said(is_right=reference_plan(identity(task), steps, task) is not None, confirmed="names")
    objects = dict.fromkeys(name for step in steps for name in step.arguments)
    proposed = propose(steps, objects, task)
    return said(proposal="" if proposed is None else interpretation_text(proposed))


def _zero_shot_verdict(row: ModellingTaskRow, answered: ModelledTaskRow, told: str | None) -> ModelledVerdictRow:
    """Return the verdict on prose; what names no reference actions is left for a person, who may have told its meaning.

    Raises:
        BadInputError: a plan that was told has a step that the reference does not know.
    """
    text = answered.products[0].text
    found = read_loose_plan(text, parse_domain(row.domain_pddl))
    steps: tuple[PlanStep, ...] = () if found.fault is not None else tuple(found.steps)
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    is_read = bool(steps) and speaks_as(task, steps)
    if told is not None and not is_read:
        steps = parse_plan(told, source=f"{row.task}.plan")
        verdict = _told_verdict(task, steps, where=f"{row.task}.plan")
        plan_texts = tuple(map(str, steps))
        return ModelledVerdictRow(row.task, ZERO_SHOT, "prose", verdict.is_valid, "person", plan_texts, "")
    is_right = is_read and reference_plan(identity(task), steps, task) is not None
    status = "read" if is_read else "prose"
    plan_texts = tuple(map(str, steps)) if is_read else ()
    return ModelledVerdictRow(row.task, ZERO_SHOT, status, is_right, "names" if is_read else "", plan_texts, "")


def _told_verdict(task: PlanningTask, steps: Sequence[PlanStep], *, where: str) -> PlanVerdict:
    """Return the verdict on a plan that a person has told.

    Raises:
        BadInputError: it has a step that the reference does not know.
    """
    verdict = validate_plan(task, steps)
    if verdict.verdict is Verdict.MALFORMED_PLAN:
        raise BadInputError("a plan of other words than the reference's", where=where, got=verdict.reason,
                            expected="steps of the reference")  # fmt: skip
    return verdict

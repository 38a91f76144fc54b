"""Stages that teach a model from nothing the steps of NL2Plan, and the tasks on which it is tried.

It learns of domains whose PDDL and words the library has, and is asked about others; every word but those of the frames
is hidden (`plansmith.modelling.hidden_words`), so that both are new to it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.stages import direct_plans, phase1_data, training
from pipelines.stages.direct_plans import BudgetSettings
from pipelines.stages.graph import Graph
from pipelines.stages.modelling import KEPT, SPOKEN
from pipelines.stages.phase1_data import DrawingSettings, pddl_digest
from pipelines.stages.training import TuningSettings, optimising
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.modelling import ModellingConfig
from plansmith.config.nl2plan import LessonsConfig, NL2PlanConfig
from plansmith.config.training import Numerics
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import (
    ActionAgreementRow,
    ExampleKind,
    ExampleRow,
    ModelledTaskRow,
    ModellingTaskRow,
    ProblemRow,
    Split,
)
from plansmith.errors import BadInputError
from plansmith.generation import plain_text
from plansmith.judging.modelled import equal_actions
from plansmith.modelling import folder as files
from plansmith.modelling.hidden_words import NAMES, NEWLINE, POOL, SIGNS, Hiding, KeptWords
from plansmith.modelling.lessons import (
    BLANK,
    blank,
    lessons,
    one_call_lesson,
    spoken_reference,
    straight_lesson,
)
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.references import Reference
from plansmith.modelling.scrambling import Scrambler
from plansmith.modelling.sentences import MARK
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_problem
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.stages import Stage, StageContext
from plansmith.text.natural_language import FRAMES, HEADS
from plansmith.text.spoken import SpokenDomain

SCRAMBLES = 10
"""Draws of a random domain; in some two predicates are called alike, or nothing is said of the problem."""
DRILLED = range(2, 15)
"""Sentences of a drill, which grow in the first half of the drills."""
LONGEST = 8
"""Words of such a sentence, at most."""
ALIKE = 0.5
"""Share of them that begin as an earlier one."""
OUTLINES = (DialogueStep.TYPES, DialogueStep.HIERARCHY, DialogueStep.ACTIONS)


class LessonSettings(StrictModel):
    """How lessons and tasks are written."""

    lessons: LessonsConfig
    """How many, of which phrasings."""
    modelling: ModellingConfig
    """How answers are checked."""
    domains: Mapping[str, str]
    """What each domain is loaded by, by its name."""
    words: str
    """Hash of the domains' files, phrases included."""


def write_lessons(context: StageContext[LessonSettings]) -> None:
    """Write the dialogues about D1's problems, each in a phrasing and behind words of its own.

    Raises:
        BadInputError: a domain that no steps follow in any phrasing that is learnt.
    """
    settings = context.settings
    kept = _kept_words(context.inputs["problems"].rows(ProblemRow), settings)
    kept.write(context.output.path(KEPT))
    examples: list[ExampleRow] = []
    for name, row, reference, rng in _references(context):
        examples += _lessons(name, row, reference, kept, settings, rng)
    context.output.write_rows(examples, ExampleRow, table="lessons")


def _references(
    context: StageContext[LessonSettings],
) -> Iterator[tuple[str, ProblemRow, Reference, random.Random]]:
    """Yield what is talked about: each of D1's problems in a phrasing, or a random domain made of its own, with a name.

    Raises:
        BadInputError: a domain that no steps follow in any phrasing that is learnt.
    """
    settings, config = context.settings, context.settings.lessons
    rows = [row for row in context.inputs["problems"].rows(ProblemRow) if row.split == Split.PHASE1]
    phrasings = range(len(FRAMES) - config.held_out_phrasings)
    names = dict.fromkeys(row.domain for row in rows)  # in one order: phrases are drawn among those of all
    spoken = {name: _spoken(load_domain(settings.domains[name]), phrasings) for name in names}
    scrambler = Scrambler.of((one.domain, one.phrases) for variants in spoken.values() for one in variants[:1])
    with context.progress(len(rows) * config.copies, "writing lessons", unit="dialogue") as bar:
        for row, copy in itertools.product(rows, range(config.copies)):
            rng = context.rng(row.problem_id, copy)
            own = rng.choice(spoken[row.domain])
            problem = parse_problem(row.problem_pddl, own.domain)
            if rng.random() < config.scrambled:
                own, problem = _random_domain(own, problem, scrambler, rng)
            yield f"{row.problem_id}-{copy}", row, spoken_reference(own, problem, name=row.domain), rng
            bar.update()


def _spoken(loaded: PlanningDomain, phrasings: Sequence[int]) -> list[SpokenDomain]:
    """Return a domain in each of some phrasings that steps can follow.

    Raises:
        BadInputError: none of them.
    """
    found, refusals = list[SpokenDomain](), dict[str, None]()
    for phrasing in phrasings:
        try:
            found.append(SpokenDomain(loaded.domain, loaded.needed_phrases(), phrasing))
        except BadInputError as error:
            refusals[error.got or str(error)] = None
    if not found:
        raise BadInputError(
            "no phrasing of a domain that steps of modelling follow",
            where=f"domain {loaded.name}, phrasings {', '.join(map(str, phrasings))}",
            got="; ".join(refusals),
            expected="one at least in which types, predicates and actions are each called by their own words",
            cure="raise lessons.held_out_phrasings if it is learnt of and tested, or leave the domain out",
        )
    return found


def _kept_words(rows: Sequence[ProblemRow], settings: LessonSettings) -> KeptWords:
    """Return the words of the frames: those of lessons about the run's domains, called nothing."""
    return KeptWords.of(_blank_texts(rows, settings), but=BLANK)


def _blank_texts(rows: Sequence[ProblemRow], settings: LessonSettings) -> Iterator[str]:
    yield from HEADS  # not all of them are in every library
    for name in dict.fromkeys(row.domain for row in rows):
        loaded = load_domain(settings.domains[name])
        problem = parse_problem(next(row.problem_pddl for row in rows if row.domain == name), loaded.domain)
        domain, phrases, its = blank(loaded.domain, loaded.needed_phrases(), problem)
        for phrasing in range(len(FRAMES)):
            reference = spoken_reference(SpokenDomain(domain, phrases, phrasing), its, name=name)
            for question, answer in lessons(reference, settings.modelling, random.Random(0), mistakes=0.0):
                yield from (plain_text(question.messages), answer)
            yield from one_call_lesson(reference, settings.modelling)


def _lessons(
    name: str, row: ProblemRow, reference: Reference, kept: KeptWords, settings: LessonSettings, rng: random.Random
) -> Iterator[ExampleRow]:
    """Yield the lessons of a dialogue; they begin alike, to be computed once (`OptimiserConfig.shares_prompts`)."""
    config = settings.modelling
    if config.feedback == "model" and rng.random() >= settings.lessons.advised:
        config = config.model_copy(update={"feedback": "none"})
    dialogue, words = lessons(reference, config, rng, mistakes=settings.lessons.mistakes), rng.random()
    for number, (question, answer) in enumerate(dialogue):
        if question.step in OUTLINES and rng.random() >= settings.lessons.outlines:
            continue
        hiding = Hiding(kept.words, random.Random(words), begins_anywhere=True)
        asked = plain_text(hiding.hide_all(question.messages))
        kind = ExampleKind.MODELLING
        yield ExampleRow(f"{name}-{number:03d}", row.problem_id, kind, None, asked, hiding.hide(answer))


def _random_domain(
    own: SpokenDomain, problem: Problem, scrambler: Scrambler, rng: random.Random
) -> tuple[SpokenDomain, Problem]:
    """Return a domain made of one, in the same phrasing; where phrases were too much alike, the domain itself."""
    for _ in range(SCRAMBLES):
        with contextlib.suppress(BadInputError):
            domain, phrases, its = scrambler.scrambled(own.domain, own.phrases, problem, rng)
            return SpokenDomain(domain, phrases, own.phrasing), its
    return own, problem


class DrillSettings(StrictModel):
    """How much of looking up is learnt before any lesson."""

    drills: int
    """Texts of hidden words, some sentences of which are written again."""


def write_drills(context: StageContext[DrillSettings]) -> None:
    """Write numbered sentences of hidden words, to be written again from one on whose number is the last word.

    Answers are made of words of the question, which a model from nothing must look up by the words before them. In
    lessons it does not learn to within millions of tokens, of drills in a few hundred thousand if they begin with two
    sentences and grow (docs/log.md). Words recur, so that it is not enough to look at one, and many sentences begin as
    earlier ones, so that it is not enough to look at the last few.
    """
    rng, rows = context.rng("drills"), list[ExampleRow]()
    for number in range(context.settings.drills):
        few, first = [*rng.sample(POOL, 9), *rng.sample(NAMES, 3)], rng.randint(1, 60)
        grown = DRILLED[: 1 + 2 * number * len(DRILLED) // context.settings.drills]
        numbers = range(first, first + rng.choice(grown))
        said = list[str]()
        for own in numbers:
            begun = rng.choice(said).split()[1:][: rng.randrange(LONGEST)] if said and rng.random() < ALIKE else []
            rest = rng.choices(few, k=rng.randint(1, LONGEST - len(begun)))
            said.append(" ".join([f"{SIGNS[MARK]}{own}", *begun, *rest]))
        chosen = rng.randrange(len(said))
        asked = f" {NEWLINE} ".join([*said, said[chosen].split()[0]])
        again = f" {NEWLINE} ".join(said[chosen:]).partition(" ")[2]
        rows.append(ExampleRow(f"drill-{number:06d}", "", ExampleKind.DRILL, None, asked, f" {again}"))
    context.output.write_rows(rows, ExampleRow)


def write_plan_lessons(context: StageContext[LessonSettings]) -> None:
    """Write the same texts of D1's problems, each with its plan for an answer: what is learnt without the steps."""
    settings, config = context.settings, context.settings.lessons
    kept = KeptWords.read(context.inputs["lessons"].path(KEPT))
    solved = phase1_data.solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    domain_of = {row.problem_id: row.domain for row in context.inputs["problems"].rows(ProblemRow)}
    phrasings, examples = range(len(FRAMES) - config.held_out_phrasings), list[ExampleRow]()
    spoken = {name: _spoken(load_domain(settings.domains[name]), phrasings)
              for name in {domain_of[row.problem_id] for row in solved}}  # fmt: skip
    for row, copy in itertools.product(solved, range(config.copies)):
        rng = context.rng(row.problem_id, copy)
        own = rng.choice(spoken[domain_of[row.problem_id]])
        reference = spoken_reference(own, parse_problem(row.problem_pddl, own.domain), name="")
        hiding = Hiding(kept.words, rng, begins_anywhere=True)
        asked, answer = map(hiding.hide, straight_lesson(reference, row.plan, settings.modelling))
        name = f"{row.problem_id}-{copy}"
        examples.append(ExampleRow(name, row.problem_id, ExampleKind.PLAN_FROM_TEXT, None, asked, answer))
    context.output.write_rows(examples, ExampleRow, table="lessons")


def write_one_call_lessons(context: StageContext[LessonSettings]) -> None:
    """Write texts as those of the lessons, each with its whole domain and problem for an answer."""
    kept, examples = KeptWords.read(context.inputs["lessons"].path(KEPT)), list[ExampleRow]()
    for name, row, reference, rng in _references(context):
        hiding = Hiding(kept.words, rng, begins_anywhere=True)
        asked, answer = map(hiding.hide, one_call_lesson(reference, context.settings.modelling))
        examples.append(ExampleRow(name, row.problem_id, ExampleKind.MODELLING, None, asked, answer))
    context.output.write_rows(examples, ExampleRow, table="lessons")


def say_tasks(context: StageContext[LessonSettings]) -> None:
    """Write the texts of Dtest's problems, with their references as they are, and as the texts call them.

    Those of a domain that is learnt of are said in the phrasings kept apart, those of another one in all.
    """
    settings, rows = context.settings, context.inputs["problems"].rows(ProblemRow)
    learnt = {row.domain for row in rows if row.split == Split.PHASE1}
    tasks, called = list[ModellingTaskRow](), list[ModellingTaskRow]()
    tested = [row for row in rows if row.split == Split.TEST]
    for name in dict.fromkeys(row.domain for row in tested):
        first = len(FRAMES) - settings.lessons.held_out_phrasings if name in learnt else 0
        variants = _spoken(load_domain(settings.domains[name]), range(first, len(FRAMES)))
        for row, own in zip((row for row in tested if row.domain == name), itertools.cycle(variants), strict=False):
            reference = spoken_reference(own, parse_problem(row.problem_pddl, own.domain), name=name)
            said = (f"{name}-{own.phrasing}-{row.problem_id[:8]}", f"{name} {own.phrasing}", row.level, reference.text)
            tasks.append(ModellingTaskRow(*said, row.domain_pddl, row.problem_pddl, None))
            called.append(ModellingTaskRow(*said, reference.domain_pddl, reference.problem_pddl, None))
    context.output.write_rows(tasks, ModellingTaskRow)
    context.output.write_rows(called, ModellingTaskRow, table=SPOKEN)


def compare_actions(context: StageContext[None]) -> None:
    """Write of every action that the reference has whether the model's is the same, up to the order of what it says."""
    called = {row.task: row for row in context.inputs["tasks"].rows(ModellingTaskRow, SPOKEN)}
    rows = [
        ActionAgreementRow(made.task, called[made.task].domain, action, is_equal)
        for made in context.inputs["prune"].rows(ModelledTaskRow)
        for own in made.products
        if own.file == files.DOMAIN
        for action, is_equal in equal_actions(own.text, called[made.task].domain_pddl).items()
    ]
    context.output.write_rows(rows, ActionAgreementRow)


def learnt_speaker(graph: Graph, config: NL2PlanConfig) -> dict[str, Stage[Any]]:
    """Return the tasks, the lessons, and the policy that has learnt them, after adding the stages that make them."""
    lessons_of = _lesson_settings(config)
    problems, stage = lessons_of.lessons.problems, graph.stage
    drawing = DrawingSettings(problems=problems, pddl=pddl_digest(problems), is_word_level=False)
    drawn = stage("sample_problems", phase1_data.sample_problems, drawing, {}, kind=StageKind.DRAWS)
    tasks = stage("tasks", say_tasks, lessons_of, {"problems": drawn})
    examples = stage("write_lessons", write_lessons, lessons_of, {"problems": drawn}, kind=StageKind.WRITES)
    given: dict[str, Stage[Any]] = {"problems": drawn, "examples": examples}
    start = stage("initial_policy", training.initial_policy, training.start_settings(config), given)
    drilling = DrillSettings(drills=lessons_of.lessons.drills)
    drills = stage("write_drills", write_drills, drilling, {}, kind=StageKind.WRITES)
    encoded = stage("encode_drills", training.encode_examples, None, {"policy": start, "examples": drills})
    drilled = _tuned(graph, config, "drill", {"policy": start, "sequences": encoded}, training.tune_in_order)
    sequences = stage("encode_lessons", training.encode_examples, None, {"policy": start, "examples": examples})
    policy = _tuned(graph, config, "sft", {"policy": drilled, "sequences": sequences}, training.tune)
    return {"tasks": tasks, "lessons": examples, "policy": policy}


def speaker_at_once(graph: Graph, config: NL2PlanConfig, step: DialogueStep) -> dict[str, Stage[Any]]:
    """Return the words and the policy that has learnt to answer texts at once, as `step` has it, from as many tokens.

    It has had the same drills before as the one that takes the steps.
    """
    settings, stage, start = _lesson_settings(config), graph.stage, graph["initial_policy"]
    given = {"problems": graph["sample_problems"], "lessons": graph["write_lessons"]}
    name, write = f"write_{step}_lessons", write_one_call_lessons
    if step is DialogueStep.ZERO_SHOT:
        asked = {"problems": given["problems"]}
        options = {"kind": StageKind.PLANS}
        given["plans"] = stage("synthesize_plans", phase1_data.synthesize_plans, config.planner, asked, **options)
        write = write_plan_lessons
    examples = stage(name, write, settings, given, kind=StageKind.WRITES)
    encoded = stage(f"encode_{step}", training.encode_examples, None, {"policy": start, "examples": examples})
    longest = settings.lessons.optimiser.max_length_tokens or config.trainer.row_length_tokens
    given = {"plans": encoded, "sequences": graph["encode_lessons"]}
    matching = BudgetSettings(longest_tokens=longest)
    matched = stage(f"match_tokens_{step}", direct_plans.match_tokens, matching, given)
    policy = _tuned(graph, config, f"sft_{step}", {"policy": graph["drill"], "sequences": matched}, training.tune)
    return {"lessons": graph["write_lessons"], "policy": policy}


def _lesson_settings(config: NL2PlanConfig) -> LessonSettings:
    assert config.lessons is not None, "the config wants a speaker from nothing"
    loaded = [load_domain(level.domain) for level in config.lessons.problems.domains]
    return LessonSettings(
        lessons=config.lessons,
        modelling=config.modelling,
        domains={own.domain.name: own.reference for own in loaded},
        words=" ".join(own.digest() for own in loaded),
    )


def _tuned(
    graph: Graph,
    config: NL2PlanConfig,
    name: str,
    given: dict[str, Stage[Any]],
    tune: Callable[[StageContext[TuningSettings]], None],
) -> Stage[Any]:
    assert config.lessons is not None, "the config wants a speaker from nothing"
    tuning = TuningSettings(optimiser=config.lessons.optimiser, numerics=narrowed(config.trainer, Numerics))
    return graph.stage(name, tune, tuning, given, **optimising("supervised"))

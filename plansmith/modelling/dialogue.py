"""The steps 1 to 5 of NL2Plan as generators: they give questions, take answers, and return what they made.

Each step asks, sends back what cannot be used, asks once for advice, and asks again with it (sections "NL2Plan" and
"Prompting and Feedback"). Whoever drives a generator asks a model or a person, keeps the answers, and may run many side
by side. No answer is bad input: after so many error messages a flawed one is accepted, and is said to be flawed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Generic, TypeVar

from plansmith.config.modelling import AnswerForm, ModellingConfig
from plansmith.generation import Message
from plansmith.modelling import writing
from plansmith.modelling.checks import (
    argument_types,
    check_actions,
    check_problem,
    check_schema,
    check_tree,
    check_types,
)
from plansmith.modelling.products import (
    ActionSketch,
    DialogueStep,
    DomainSketch,
    Predicate,
    ProblemSketch,
    Schema,
    TypeSketch,
    TypeTree,
)
from plansmith.modelling.prompts import advice_turn, faults_turn, form_prompt, step_prompt
from plansmith.modelling.reading import (
    Fault,
    read_actions,
    read_advice,
    read_problem_sketch,
    read_schema,
    read_tree,
    read_types,
)
from plansmith.modelling.structured import FIELDS, as_json, schema_of, with_headings
from plansmith.pddl.model import OBJECT
from plansmith.pddl.parser import read_domain

ProductT = TypeVar("ProductT")

NO_ANSWER = "(no answer)"
"""Stands for an empty answer where it is handed back; servers refuse an empty turn."""
MAX_ACTIONS = 200
"""Actions that step 4 writes, the first that were named; each costs a dialogue in each pass."""


class QuestionKind(StrEnum):
    """What a question wants."""

    DRAFT = "draft"
    REPAIR = "repair"
    FEEDBACK = "feedback"
    REVISION = "revision"
    PLANNER = "planner"
    """Another answer, after there was no plan (not in the paper)."""
    GROWTH = "growth"
    """Another answer, with what a further task needs (not in the paper)."""


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to be answered.

    Attributes:
        step: that asks.
        subject: the pass and the action of step 4, ``2/load``; empty for the other steps.
        kind: what is wanted; feedback may be a person's.
        messages: the conversation that a model answers.
        faults: that the last message tells of, of a repair.
        shown: what feedback is wanted on, for a person.
        json_schema: that the answer is made to fit; empty for one in prose.
    """

    step: DialogueStep
    subject: str
    kind: QuestionKind
    messages: tuple[Message, ...]
    faults: tuple[Fault, ...] = ()
    shown: str = ""
    json_schema: str = ""


@dataclass(frozen=True, slots=True)
class Finished(Generic[ProductT]):
    """What a step made.

    Attributes:
        product: it.
        faults: that it was accepted with.
        n_messages: error messages that were sent.
        advice: that was given; None where nothing was to be changed, or nobody was asked.
        unadvised: what there was before the advice; None without any.
    """

    product: ProductT
    faults: tuple[Fault, ...] = ()
    n_messages: int = 0
    advice: str | None = None
    unadvised: ProductT | None = None


Dialogue = Generator[Question, str, Finished[ProductT]]


@dataclass(frozen=True)
class Exercise(Generic[ProductT]):
    """What is to be written, and how an answer is read and judged.

    Attributes:
        step, subject: of the questions.
        prompt: the task.
        feedback_prompt: the task of whoever criticises, given the product as it is shown.
        read: the product in an answer with headings.
        check: what is wrong with one.
        show: the product, for whoever criticises.
        form: of the answers.
        counts_validations: the limit is one of validations, not of error messages.
    """

    step: DialogueStep
    subject: str
    prompt: str
    feedback_prompt: Callable[[str], str]
    read: Callable[[str], ProductT]
    check: Callable[[str], tuple[Fault, ...]]
    show: Callable[[ProductT], str]
    form: AnswerForm
    counts_validations: bool = False

    def run(self, config: ModellingConfig) -> Dialogue[ProductT]:
        """Return the product, after asking for it."""
        limit = config.max_validations if self.counts_validations else config.max_error_messages
        answer = yield self._question(QuestionKind.DRAFT, (Message("user", self._asked),))
        answer, faults, left, n_messages = yield from self._mended(answer, limit)
        product = self.product(answer)
        if config.feedback == "none":
            return Finished(product, faults, n_messages)
        shown = self.show(product)
        criticism = (Message("user", self.feedback_prompt(shown)),)
        advice = read_advice((yield self._question(QuestionKind.FEEDBACK, criticism, shown=shown)))
        if advice is None:
            return Finished(product, faults, n_messages)
        before, draft = product, (answer, faults)
        answer = yield self._question(QuestionKind.REVISION, self._handed_back(answer, advice_turn(advice)))
        answer, faults, _, more = yield from self._mended(answer, left, before=draft)
        return Finished(self.product(answer), faults, n_messages + more, advice, before)

    def again(self, config: ModellingConfig, product: ProductT, said: str, kind: QuestionKind) -> Dialogue[ProductT]:
        """Return the product after something was said of it; an answer with faults is not taken."""
        limit = config.max_validations if self.counts_validations else config.max_error_messages
        shown = self.show(product)
        last = shown if self.form == "markdown" else as_json(self.step, shown)
        answer = yield self._question(kind, self._handed_back(last, said))
        answer, faults, _, n_messages = yield from self._mended(answer, limit)
        return Finished(product if faults else self.product(answer), (), n_messages)

    def _mended(
        self, answer: str, left: int, *, before: tuple[str, tuple[Fault, ...]] | None = None
    ) -> Generator[Question, str, tuple[str, tuple[Fault, ...], int, int]]:
        """Return the last answer with its faults, what is left of the limit, and how many messages were sent.

        The last validation that is allowed is followed by no message: nobody would look at what it brings. Where the
        last answers are empty, as when a model has no room for more, the one before them counts, if need be the one
        `before` the first.
        """
        n_messages, said = 0, before or (answer, self._faults(answer))
        while True:
            faults = self._faults(answer)
            said = (answer, faults) if answer.strip() else said
            left -= self.counts_validations and left > 0
            if not faults or not left:
                return *said, left, n_messages
            left -= not self.counts_validations
            n_messages += 1
            turns = self._handed_back(answer, faults_turn(faults))
            answer = yield self._question(QuestionKind.REPAIR, turns, faults=faults)

    def _handed_back(self, answer: str, said: str) -> tuple[Message, ...]:
        """Return the task, an answer, and what is said of it: the paper joins these three, not the whole history."""
        return (
            Message("user", self._asked),
            Message("assistant", answer.strip() or NO_ANSWER),
            Message("user", said),
        )

    @property
    def _asked(self) -> str:
        return self.prompt if self.form == "markdown" else f"{self.prompt}\n{form_prompt(FIELDS[self.step])}"

    def product(self, answer: str) -> ProductT:
        """Return what an answer says."""
        return self.read(answer if self.form == "markdown" else with_headings(self.step, answer))

    def _faults(self, answer: str) -> tuple[Fault, ...]:
        """Return what is wrong with an answer; of one in JSON no line is told, for it is read as another text."""
        if self.form == "markdown":
            return self.check(answer)
        return tuple(replace(fault, line=0) for fault in self.check(with_headings(self.step, answer)))

    def _question(
        self, kind: QuestionKind, messages: tuple[Message, ...], *, faults: tuple[Fault, ...] = (), shown: str = ""
    ) -> Question:
        schema = schema_of(self.step) if self.form == "json" and kind is not QuestionKind.FEEDBACK else ""
        return Question(self.step, self.subject, kind, messages, faults, shown, schema)


# --- steps 1 to 3


def types_exercise(text: str, config: ModellingConfig) -> Exercise[tuple[TypeSketch, ...]]:
    """Return what asks for the types of a text (step 1)."""

    def check(answer: str) -> tuple[Fault, ...]:
        types, faults = read_types(answer)
        return faults or check_types(types)

    return Exercise(
        DialogueStep.TYPES,
        "",
        step_prompt(config.prompts, "types", text=text),
        lambda shown: step_prompt(config.prompts, "types_feedback", text=text, shown=shown),
        lambda answer: read_types(answer)[0],
        check,
        writing.write_types,
        config.answers,
    )


def tree_exercise(text: str, types: Sequence[TypeSketch], config: ModellingConfig) -> Exercise[TypeTree]:
    """Return what asks for the tree of the types (step 2); a type that every answer loses is below `object`."""

    def check(answer: str) -> tuple[Fault, ...]:
        tree, faults = read_tree(answer)
        return faults or check_tree(tree, types)

    return Exercise(
        DialogueStep.HIERARCHY,
        "",
        step_prompt(config.prompts, "hierarchy", text=text, types=writing.write_types(types)),
        lambda shown: step_prompt(config.prompts, "hierarchy_feedback", text=text, shown=shown),
        lambda answer: read_tree(answer)[0].with_types(types),
        check,
        writing.write_tree,
        config.answers,
    )


def actions_exercise(text: str, tree: TypeTree, config: ModellingConfig) -> Exercise[tuple[ActionSketch, ...]]:
    """Return what asks for the actions of a text in words (step 3)."""

    def check(answer: str) -> tuple[Fault, ...]:
        actions, faults = read_actions(answer)
        return faults or check_actions(actions)

    types = writing.write_tree(tree)
    return Exercise(
        DialogueStep.ACTIONS,
        "",
        step_prompt(config.prompts, "actions", text=text, types=types),
        lambda shown: step_prompt(config.prompts, "actions_feedback", text=text, types=types, shown=shown),
        lambda answer: read_actions(answer)[0],
        check,
        writing.write_actions,
        config.answers,
    )


# --- step 4


def action_exercise(
    text: str, sketch: DomainSketch, action: ActionSketch, config: ModellingConfig, *, number: int
) -> Exercise[Schema]:
    """Return what asks for one action in PDDL.

    Args:
        text: of the task.
        sketch: types, actions, and the predicates that are known by now.
        action: to be written.
        config: of the dialogue.
        number: of the pass.
    """
    types, known = writing.write_tree(sketch.tree), writing.write_predicates(sketch.predicates)
    others = "\n".join(f"- {writing.write_action(other)}" for other in sketch.actions if other.name != action.name)
    told = {"text": text, "types": types, "predicates": known, "action": writing.write_action(action)}
    return Exercise(
        DialogueStep.CONSTRUCTION,
        f"{number}/{action.name}",
        step_prompt(config.prompts, "construction", **told, others=others, checks=config.checks),
        lambda shown: step_prompt(config.prompts, "construction_feedback", **told, shown=shown),
        lambda answer: read_schema(action.name, answer),
        lambda answer: check_schema(
            answer, name=action.name, tree=sketch.tree, predicates=sketch.predicates, checks=config.checks
        ),
        writing.write_schema,
        config.answers,
    )


def new_predicates(schema: Schema, sketch: DomainSketch) -> tuple[Predicate, ...]:
    """Return the predicates of a schema that a domain lacks and that can be declared in it.

    The others are left out, so that a flawed action harms no other.
    """
    found = {own.name: own for own in sketch.predicates}
    for own in schema.predicates:
        if own.name not in sketch.tree.names and _can_be_declared(own.declaration, sketch.tree.names):
            found.setdefault(own.name, own)
    return tuple(found.values())[len(sketch.predicates) :]


@lru_cache(maxsize=4096)
def _can_be_declared(declaration: str, types: frozenset[str]) -> bool:
    """Return whether the reader of PDDL finds nothing wrong with the declaration of a predicate."""
    domain = f"(define (domain d) (:types {' '.join(sorted(types - {OBJECT}))}) (:predicates {declaration}))"
    return not read_domain(domain).notebook.errors()


def pruned(sketch: DomainSketch) -> DomainSketch:
    """Return a domain without the predicates that no action uses, and the types that neither they nor actions use."""
    texts = [f"{own.precondition} {own.effect}" for own in sketch.schemas]
    words = {word for text in texts for word in text.lower().replace("(", " ").replace(")", " ").split()}
    predicates = tuple(own for own in sketch.predicates if own.name in words)
    typed = [kind for own in predicates for kind in argument_types(own)]
    typed += [own.type for schema in sketch.schemas for own in schema.parameters]
    used = words | {word for text in typed for word in text.replace("(", " ").replace(")", " ").split()}
    tree = sketch.tree.with_ancestors(frozenset(used & sketch.tree.names))
    return replace(sketch, predicates=predicates, tree=tree)


# --- step 5


def task_exercise(text: str, sketch: DomainSketch, config: ModellingConfig) -> Exercise[ProblemSketch]:
    """Return what asks for the problem of a text in a domain (step 5)."""
    told = {
        "text": text,
        "types": writing.write_tree(sketch.tree),
        "predicates": writing.write_predicates(sketch.predicates),
    }
    actions = "\n".join(f"- {writing.write_action(action)}" for action in sketch.actions)
    return Exercise(
        DialogueStep.TASK,
        "",
        step_prompt(config.prompts, "task", **told, actions=actions, grows="yes" if config.grows else ""),
        lambda shown: step_prompt(config.prompts, "task_feedback", **told, shown=shown),
        read_problem_sketch,
        lambda answer: check_problem(answer, tree=sketch.tree, predicates=sketch.predicates, checks=config.checks),
        writing.write_problem,
        config.answers,
        counts_validations=True,
    )

"""What a model learns the steps of NL2Plan from: dialogues that a script has about domains whose PDDL is known.

Questions are those of the steps (`steps.make_all`), with whatever predicates the actions before have left; the right
answer follows from the PDDL. A first answer can be given with a mistake of appendix E: what is then learnt is the
answer to what the check says.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from plansmith.config.domains import Phrases
from plansmith.config.modelling import ModellingConfig
from plansmith.errors import BadInputError
from plansmith.modelling.dialogue import Question, QuestionKind
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.quoting import QuotedAnswers
from plansmith.modelling.references import Reference
from plansmith.modelling.script import ReferenceAnswers
from plansmith.modelling.steps import RowProducts, make_all
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    Domain,
    Literal,
    Problem,
    Quantification,
    TypedName,
    conjuncts_of,
    literals_of,
)
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.text.anonymisation import Anonymisation, Renamer
from plansmith.text.spoken import SpokenDomain

MISTAKES: Mapping[str, Sequence[str]] = {
    DialogueStep.CONSTRUCTION: (
        "header_inclusion", "param_types", "predicate_format", "predicate_usage", "cut",
    ),
    DialogueStep.TASK: ("header_inclusion", "obj_type", "pred_exists", "pred_nargs", "pred_objs", "cut"),
}  # fmt: skip
"""Those that are made, by step."""
LEFT_OUT = 0.15
"""Share of what is left out of a random domain."""
CHANGED = 0.2
"""Share of its conditions that are made what they seldom are in others."""
Item = TypeVar("Item")
BLANK = "zz"
"""How the words begin that stand for those of a domain; see `blank`."""


def spoken_reference(spoken: SpokenDomain, problem: Problem, *, name: str) -> Reference:
    """Return a task whose reference is called as its text calls it."""
    pddl = print_domain(spoken.pddl), print_problem(spoken.problem_pddl(problem))
    return Reference(name, "", spoken.text, spoken.problem_text(problem), *pddl)


def lessons(
    reference: Reference, config: ModellingConfig, rng: random.Random, *, mistakes: float
) -> Iterator[tuple[Question, str]]:
    """Yield the questions about a task with their right answers.

    Args:
        reference: the task.
        config: of the dialogue; nobody is asked for feedback.
        rng: draws which first answers have a mistake, and which.
        mistakes: share of these.
    """
    own = QuotedAnswers(reference)
    dialogue = make_all(reference.text, RowProducts(), config)
    question = next(dialogue)
    while True:
        right = own.answer(question.step, question.messages[0].text)
        yield question, right
        kinds = MISTAKES.get(question.step, ())
        is_spoilt = question.kind is QuestionKind.DRAFT and kinds and rng.random() < mistakes
        try:
            question = dialogue.send(own.spoilt(rng.choice(kinds), right) if is_spoilt else right)
        except StopIteration:
            return


@dataclass(frozen=True)
class Scrambler:
    """Makes random domains of others: what stands where is new, how it is said and modelled is the same.

    Facts, actions, parameters and what an action needs and changes get another order, some of the latter are left out,
    some conditions are negated, made a choice of two, or made about all or some objects, and predicates are said by
    phrases of other ones, of other domains too. What comes of it need make no sense: nobody plans in it.

    Attributes:
        phrases: of predicates, by the number of their arguments.
    """

    phrases: Mapping[int, Sequence[str]]

    @classmethod
    def of(cls, domains: Iterable[tuple[Domain, Phrases]]) -> Self:
        """Return what scrambles with the phrases of some domains."""
        found: dict[int, dict[str, None]] = {}
        for domain, phrases in domains:
            for schema in domain.predicates:
                found.setdefault(len(schema.parameters), {}).update(dict.fromkeys(phrases.predicates[schema.name]))
        return cls({arity: list(texts) for arity, texts in found.items()})

    def scrambled(
        self, domain: Domain, phrases: Phrases, problem: Problem, rng: random.Random
    ) -> tuple[Domain, Phrases, Problem]:
        """Return a random domain made of one, with its phrases and a problem.

        Raises:
            BadInputError: no action is left that speaks of a goal.
        """
        said = {
            schema.name: (rng.choice(self.phrases[len(schema.parameters)]),) * len(phrases.predicates[schema.name])
            for schema in domain.predicates
        }
        actions = _shuffled([self._action(action, rng) for action in domain.actions], rng)
        used = {word for action in actions for word in _words(action)}
        goal = tuple(part for part in literals_of(problem.goal) if part.atom.predicate in used)
        init = [atom for atom in problem.init if atom.predicate in used]
        if not goal or not init:
            raise BadInputError("a random domain that says nothing of its problem", where=f"domain {domain.name}")
        predicates = [schema for schema in domain.predicates if schema.name in used]
        return (
            replace(domain, predicates=_shuffled(predicates, rng), actions=actions),
            phrases.model_copy(update={"predicates": said}),
            replace(problem, init=_some(_shuffled(init, rng), rng), goal=Conjunction(goal)),
        )

    def _action(self, action: ActionSchema, rng: random.Random) -> ActionSchema:
        needed = _some(_shuffled(conjuncts_of(action.precondition), rng), rng)
        needed = tuple(dict.fromkeys(_changed(part, needed, action.parameters, rng) for part in needed))
        return ActionSchema(
            action.name,
            _shuffled(action.parameters, rng),
            needed[0] if len(needed) == 1 else Conjunction(needed),
            _some(_shuffled(action.effects, rng), rng),
        )


def _changed(
    part: Condition, parts: Sequence[Condition], parameters: Sequence[TypedName], rng: random.Random
) -> Condition:
    """Return a condition, or what is seldom in domains: its negation, a choice, one about all or some objects."""
    if not isinstance(part, Literal) or rng.random() >= CHANGED:
        return part
    change = rng.choice(("not", "or", "forall", "exists"))
    others = [other for other in parts if isinstance(other, Literal) and other.atom != part.atom]
    own = [typed for typed in parameters if typed.name in part.atom.arguments]
    if change == "not":
        return Literal(part.atom, not part.is_positive)
    if change == "or" and others:
        return Disjunction((part, Literal(rng.choice(others).atom, rng.random() < 0.5)))
    if change in ("forall", "exists") and own:
        typed = rng.choice(own)
        bound = TypedName(f"{typed.name}-other", typed.types)
        named = tuple(bound.name if name == typed.name else name for name in part.atom.arguments)
        about: Condition = Literal(Atom(part.atom.predicate, named), part.is_positive)
        if others and rng.random() < 0.5:
            about = Disjunction((about, Literal(rng.choice(others).atom, rng.random() < 0.5)))
        return Quantification(change == "forall", (bound,), about)
    return part


def _words(action: ActionSchema) -> set[str]:
    """Return every word of what an action needs and changes, its predicates among them."""
    return set(re.findall(r"[^\s()]+", " ".join(map(str, (action.precondition, *action.effects)))))


def _shuffled(items: Sequence[Item], rng: random.Random) -> tuple[Item, ...]:
    return tuple(rng.sample(items, len(items)))


def _some(items: Sequence[Item], rng: random.Random) -> tuple[Item, ...]:
    """Return items, some of them left out, but not all."""
    return tuple(item for item in items if rng.random() >= LEFT_OUT) or tuple(items[:1])


def straight_lesson(reference: Reference, plan: Iterable[str], config: ModellingConfig) -> tuple[str, str]:
    """Return the question for a plan straight from a text, with the answer: the control of the steps."""
    return step_prompt(config.prompts, DialogueStep.ZERO_SHOT, text=reference.text), "\n".join(["## Plan", *plan])


def one_call_lesson(reference: Reference, config: ModellingConfig) -> tuple[str, str]:
    """Return the question for domain and problem in one answer, with the answer: another control of the steps."""
    asked = step_prompt(config.prompts, DialogueStep.ONE_CALL, text=reference.text)
    return asked, ReferenceAnswers(reference).whole


def blank(domain: Domain, phrases: Phrases, problem: Problem) -> tuple[Domain, Phrases, Problem]:
    """Return a domain and a problem that are called nothing, with phrases that say nothing.

    What words then stand in a text beside those that begin with `BLANK` are of the frame.
    """
    numbers = itertools.count()
    actions = {action.name: f"{BLANK}{next(numbers)}" for action in domain.actions}
    objects = {typed.name: f"{BLANK}{next(numbers)}" for typed in problem.objects}
    same = {schema.name: schema.name for schema in domain.predicates} | {EQUALITY: EQUALITY}
    kinds = {typed.name: typed.name for typed in domain.types} | {OBJECT: OBJECT}
    renamer = Renamer(Anonymisation(actions, same, {}, kinds, objects))

    def said(entries: Mapping[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        return {
            names[name]: tuple(" ".join([f"{BLANK}{next(numbers)}", *re.findall(r"\{\d+\}", text)]) for text in texts)
            for name, texts in entries.items()
        }

    blanks = Phrases(
        topic=BLANK,
        types={name: (f"{BLANK}{next(numbers)}", "") for name in kinds},
        predicates=said(phrases.predicates, same),
        actions=said(phrases.actions, actions),
    )
    return renamer.domain(domain), blanks, renamer.problem(problem)

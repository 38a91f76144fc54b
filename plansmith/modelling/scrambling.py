"""Random domains made of others: what a model learns of many, it learns to read rather than to know.

What stands where is new, how it is said is of another domain or made up, and nothing need make sense: nobody plans in
them. A library of a dozen domains has one fact without arguments and few names that begin alike, so that of a domain
with more of them a model from nothing had learnt nothing (docs/log.md).
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.modelling.products import RESERVED
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    Domain,
    Implication,
    Literal,
    Problem,
    Quantification,
    TypedName,
    conjuncts_of,
    literals_of,
)
from plansmith.text.anonymisation import Anonymisation, Renamer

LEFT_OUT = 0.15
"""Share of what is left out of a random domain."""
UNTOLD = 0.5
"""Share of the facts of its problem that are left out: one is written like the other, and texts are read at a price."""
CHANGED = 0.2
"""Share of its conditions that are made what they seldom are in others."""
SHORTENED = 0.3
"""Share of its predicates of which arguments are dropped, often all."""
UNTYPED = 0.25
"""Share of random domains without types."""
MORE_KINDS = 0.5
"""Share of the others that have kinds of objects of which no fact is, so that a kind may have any number below it: told
of three, a model went back after the second (docs/log.md)."""
MOST_KINDS = 3
"""Such kinds of a domain."""
MADE_UP = 0.5
"""Share of phrases that are words and arguments in any order."""
ALIKE = 0.5
"""Share of them that begin as another of the domain does: where two facts of a text began alike ("there is no block on
top of", "in the hand"), a model took one for the other (docs/log.md)."""
MOST_WORDS = 6
"""Of a phrase made up, beside such a beginning. A model that has met no long phrase of one argument gives it two."""
FILLING = ("a", "an", "are", "be", "been", "has", "have", "is", "it", "of", "that", "the", "there", "you")
FILLED = 0.4
"""Share of the pieces of such a phrase before which one of these words stands."""
FORMS = (("a0",), ("a0",), ("a",), ("a0-0", "a0_0", "a-a", "a-a0"))
"""How the objects of a problem are named: letters for ``a``, a digit for ``0``; of a list each in one of its ways."""
CONSONANTS = "bcdfghjklmnprstvwx"
"""What these letters are of: no word of a text, and none that others hide behind."""
NAMING_WORDS = 5
"""Words of which the actions of a domain are named, so that some are called nearly alike."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Scrambler:
    """Makes random domains of others.

    Facts, parameters and what an action needs and changes get another order, some of the latter and of the actions are
    left out, some domains lose their types or get more, some predicates lose arguments, and some conditions are
    negated, made a choice, made to hold only if another does, or made about all or some objects. Predicates are said by
    phrases of other ones, of other domains too, or by phrases made up, as some actions are; actions and objects are
    named anew.

    Attributes:
        phrases: of predicates, by the number of their arguments.
        words: what phrases are made up of, beside `FILLING`.
    """

    phrases: Mapping[int, Sequence[str]]
    words: Sequence[str]

    @classmethod
    def of(cls, domains: Iterable[tuple[Domain, Phrases]]) -> Self:
        """Return what scrambles with the phrases of some domains."""
        found: dict[int, dict[str, None]] = {}
        for domain, phrases in domains:
            for schema in domain.predicates:
                found.setdefault(len(schema.parameters), {}).update(dict.fromkeys(phrases.predicates[schema.name]))
        texts = {arity: list(texts) for arity, texts in found.items()}
        words = set(re.findall(r"[a-z]+", " ".join(itertools.chain(*texts.values())).lower()))
        return cls(texts, sorted(words - {*FILLING} - RESERVED))

    def scrambled(
        self, domain: Domain, phrases: Phrases, problem: Problem, rng: random.Random
    ) -> tuple[Domain, Phrases, Problem]:
        """Return a random domain made of one, with its phrases and a problem.

        Raises:
            BadInputError: no action is left that speaks of a goal.
        """
        domain, phrases, problem = self._called_otherwise(domain, phrases, problem, rng)
        said: dict[str, tuple[str, ...]] = {}
        for schema in domain.predicates:
            phrase = self._phrase(len(schema.parameters), [own for own, *_ in said.values()], rng)
            said[schema.name] = (phrase,) * len(phrases.predicates[schema.name])
        kept = rng.sample(domain.actions, rng.randint(1, len(domain.actions)))
        actions = tuple(self._action(action, rng) for action in kept)
        used = {word for action in actions for word in _words(action)}
        predicates = [schema for schema in domain.predicates if schema.name in used]
        lists = [schema.parameters for schema in predicates] + [action.parameters for action in actions]
        known = {name for typed in itertools.chain(*lists) for name in typed.types}  # the others are pruned
        objects = tuple(thing for thing in problem.objects if known.issuperset(thing.types))
        there = {thing.name for thing in objects}

        def is_told(atom: Atom) -> bool:
            return atom.predicate in used and there.issuperset(atom.arguments)

        goal = tuple(part for part in dict.fromkeys(literals_of(problem.goal)) if is_told(part.atom))
        init = [atom for atom in dict.fromkeys(problem.init) if is_told(atom)]
        if not goal or not init:
            raise BadInputError("a random domain that says nothing of its problem", where=f"domain {domain.name}")
        types = self._with_more_kinds(domain.types, phrases, rng)
        return (
            replace(domain, types=types, predicates=_shuffled(predicates, rng), actions=actions),
            phrases.model_copy(update={"predicates": said}),
            replace(problem, objects=objects, init=_some(_shuffled(init, rng), rng, UNTOLD), goal=Conjunction(goal)),
        )

    def _called_otherwise(
        self, domain: Domain, phrases: Phrases, problem: Problem, rng: random.Random
    ) -> tuple[Domain, Phrases, Problem]:
        """Return a domain with other names of actions and, for some, other phrases, and with shorter predicates."""
        called = dict(zip((action.name for action in domain.actions), self._action_names(rng), strict=False))
        same = {schema.name: schema.name for schema in domain.predicates} | {EQUALITY: EQUALITY}
        is_untyped = rng.random() < UNTYPED
        kinds = {name: OBJECT if is_untyped else name for name in (OBJECT, *(typed.name for typed in domain.types))}
        objects = dict(zip((typed.name for typed in problem.objects), _object_names(rng), strict=False))
        kept = {
            schema.name: sorted(rng.sample(range(arity), rng.randrange(arity)))
            for schema in domain.predicates
            if (arity := len(schema.parameters)) and rng.random() < SHORTENED
        }
        renamer = Renamer(Anonymisation(called, same, {}, kinds, objects), kept)
        said = {
            called[action.name]: (self._made_up(len(action.parameters), rng),) * len(phrases.actions[action.name])
            if rng.random() < MADE_UP
            else phrases.actions[action.name]
            for action in domain.actions
        }
        made = renamer.domain(domain)
        made = replace(made, types=()) if is_untyped else made
        return made, phrases.model_copy(update={"actions": said}), renamer.problem(problem)

    def _with_more_kinds(
        self, types: Sequence[TypedName], phrases: Phrases, rng: random.Random
    ) -> tuple[TypedName, ...]:
        """Return the types of a domain with some of which it says nothing more, each anywhere below another."""
        made = list(types)
        if made and rng.random() < MORE_KINDS:
            nouns = {noun for nouns in phrases.types.values() for noun in nouns} | {typed.name for typed in made}
            free = [word for word in self.words if word not in nouns]
            for name in rng.sample(free, min(len(free), rng.randint(1, MOST_KINDS))):
                above = rng.choice([OBJECT, *(typed.name for typed in made)])
                made.insert(rng.randint(0, len(made)), TypedName(name, (above,)))
        return tuple(made)

    def _action_names(self, rng: random.Random) -> Iterator[str]:
        """Yield names of a few words, each once."""
        words = rng.sample(self.words, NAMING_WORDS)
        names = {"-".join(rng.sample(words, rng.randint(1, 3))) for _ in range(100)}
        yield from _shuffled(sorted(names), rng)

    def _phrase(self, arity: int, others: Sequence[str], rng: random.Random) -> str:
        known = self.phrases.get(arity)
        if known and rng.random() >= MADE_UP:
            return rng.choice(known)
        begun = _beginning(rng.choice(others), arity, rng) if others and rng.random() < ALIKE else ()
        return self._made_up(arity, rng, begun)

    def _made_up(self, arity: int, rng: random.Random, begun: Sequence[str] = ()) -> str:
        """Return a phrase of a beginning, some words and so many arguments in any order."""
        words = rng.sample(self.words, rng.randint(1, MOST_WORDS))
        arguments = (argument for place in range(arity) if (argument := f"{{{place}}}") not in begun)
        said = list(begun)
        for piece in _shuffled([*words, *arguments], rng):
            said += [rng.choice(FILLING), piece] if rng.random() < FILLED else [piece]
        return " ".join(said)

    def _action(self, action: ActionSchema, rng: random.Random) -> ActionSchema:
        needed = _some(_shuffled(conjuncts_of(action.precondition), rng), rng)
        needed = tuple(dict.fromkeys(_changed(part, needed, action.parameters, rng) for part in needed))
        return ActionSchema(
            action.name,
            _shuffled(action.parameters, rng),
            needed[0] if len(needed) == 1 else Conjunction(needed),
            _some(_shuffled(tuple(dict.fromkeys(action.effects)), rng), rng),
        )


def _changed(
    part: Condition, parts: Sequence[Condition], parameters: Sequence[TypedName], rng: random.Random
) -> Condition:
    """Return a condition, or what is seldom in domains: its negation, a choice, one about all or some objects."""
    if not isinstance(part, Literal) or rng.random() >= CHANGED:
        return part
    change = rng.choice(("not", "or", "imply", "forall", "exists"))
    others = [other.atom for other in parts if isinstance(other, Literal) and other.atom != part.atom]
    if len(parameters) > 1:
        others.append(Atom(EQUALITY, tuple(typed.name for typed in rng.sample(parameters, 2))))
    own = [typed for typed in parameters if typed.name in part.atom.arguments]
    if change == "not":
        return Literal(part.atom, not part.is_positive)
    if change == "or" and others:
        return _choice(part, others, rng)
    if change == "imply" and others:
        return Implication(Literal(rng.choice(others), rng.random() < 0.5), part)
    if change in ("forall", "exists") and own:
        typed = rng.choice(own)
        bound = TypedName(f"{typed.name}-other", typed.types)
        named = tuple(bound.name if name == typed.name else name for name in part.atom.arguments)
        about = Literal(Atom(part.atom.predicate, named), part.is_positive)
        is_choice = others and rng.random() < 0.5
        return Quantification(change == "forall", (bound,), _choice(about, others, rng) if is_choice else about)
    return part


def _choice(part: Condition, others: Sequence[Atom], rng: random.Random) -> Condition:
    """Return a choice of a condition and one or two others, in any order."""
    chosen = rng.sample(others, min(len(others), rng.randint(1, 2)))
    return Disjunction(_shuffled((part, *(Literal(atom, rng.random() < 0.5) for atom in chosen)), rng))


def _beginning(phrase: str, arity: int, rng: random.Random) -> Sequence[str]:
    """Return the first words of a phrase, as far as a fact of so many arguments can be said with them."""
    words = phrase.split()[: rng.randint(1, 4)]
    arguments = {f"{{{place}}}" for place in range(arity)}
    return list(itertools.takewhile(lambda word: "{" not in word or word in arguments, words))


def _object_names(rng: random.Random) -> Iterator[str]:
    """Yield names of one form, each once, without end."""
    forms, made = rng.choice(FORMS), set[str]()
    while True:
        name = re.sub("[a0]", lambda sign: _drawn(sign[0], rng), rng.choice(forms))
        if name not in made:
            made.add(name)
            yield name


def _drawn(sign: str, rng: random.Random) -> str:
    return str(rng.randrange(10)) if sign == "0" else "".join(rng.choices(CONSONANTS, k=3))


def _words(action: ActionSchema) -> set[str]:
    """Return every word of what an action needs and changes, its predicates among them."""
    return set(re.findall(r"[^\s()]+", " ".join(map(str, (action.precondition, *action.effects)))))


def _shuffled(items: Sequence[Item], rng: random.Random) -> tuple[Item, ...]:
    return tuple(rng.sample(items, len(items)))


def _some(items: Sequence[Item], rng: random.Random, left_out: float = LEFT_OUT) -> tuple[Item, ...]:
    """Return items, some of them left out, but not all."""
    return tuple(item for item in items if rng.random() >= left_out) or tuple(items[:1])

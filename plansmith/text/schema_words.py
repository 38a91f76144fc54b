"""Action schemas in words without brackets, one a text: how a word-level model is asked for them, and what it answers.

A question tells attempts of one skill, and nothing that was not seen of it::

    skill: a_3 ?x0 ?x1 first: p_2 ?x0 p_7 ?x0 ?x1 add: p_4 ?x1 delete: p_7 ?x0 ?x1 second: ... write:

Facts are those about the arguments alone, as nothing else can stand in a schema, and parameters stand for the objects.
The answer tells the first attempt's facts again, each with whether it was so in each further one until it was not; what
was so in all is the precondition. So every word is a copy or a look-up, and none has to be left out::

    check: p_2 ?x0 second: lost p_7 ?x0 ?x1 second: so add: p_4 ?x1 delete: p_7 ?x0 ?x1

A repair tells after the attempts the schema as it is and what is wrong with it, and is answered by a schema without
such marks. Names are symbols of a fixed pool (`plansmith.text.anonymisation`): who has learnt to write of symbols can
write of anything. Not here: questions for models that read PDDL (`domain_writing`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from plansmith.config.dataset import SymbolPoolConfig
from plansmith.pddl.model import (
    ActionSchema,
    Atom,
    Conjunction,
    Domain,
    Literal,
    Problem,
    TypedName,
    conjuncts_of,
    literals_of_effects,
)
from plansmith.problems.demonstrations import Attempt, Demonstrations, Skill, lifted_atoms
from plansmith.text.anonymisation import Anonymisation, anonymise
from plansmith.text.compact import write_literals
from plansmith.text.compact_reader import NOT

FORBIDS, ALLOWS, AFTERWARDS = "forbids:", "allows:", "afterwards:"
"""What is wrong: the schema wants what was not so where the skill worked; it allows what was refused where this was so;
this was so afterwards, and the schema says otherwise."""
SKILL, CHECK, ADD, DELETE, AS_IT_IS, WRITE = "skill:", "check:", "add:", "delete:", "schema:", "write:"
ATTEMPTS = ("first:", "second:", "third:", "fourth:", "fifth:", "sixth:", "seventh:", "eighth:")
"""The attempts of a question, which shows no more."""
SO, LOST = "so", "lost"
"""Whether a fact of the first attempt was so in another."""
SCHEMA_MARKERS = (SKILL, *ATTEMPTS, SO, LOST, CHECK, ADD, DELETE, AS_IT_IS, WRITE, FORBIDS, ALLOWS, AFTERWARDS)
"""Every marker of these texts but `NOT`, for a vocabulary."""
_SECTIONS = {*SCHEMA_MARKERS} - {*ATTEMPTS, SO, LOST}


def parameter_word(number: int) -> str:
    """Return how a parameter is told by its number, from 0."""
    return f"?x{number}"


def schema_vocabulary(pool: SymbolPoolConfig) -> tuple[str, ...]:
    """Return every word of these texts."""
    return tuple(dict.fromkeys((*SCHEMA_MARKERS, NOT, *pool.words)))


def hidden_names(demonstrations: Demonstrations, rng: random.Random, pool: SymbolPoolConfig) -> Anonymisation:
    """Return symbols for what a robot can do and see.

    Raises:
        BadInputError: more names than the pool has symbols.
    """
    skills = tuple(ActionSchema(skill.name, (), Conjunction(()), ()) for skill in demonstrations.skills)
    outline = Domain(demonstrations.name, (), (), (), demonstrations.predicates, skills)
    return anonymise(outline, Problem("", outline.name, (), (), Conjunction(())), (), rng, pool).names


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong with a schema: a marker of the module, the objects of the attempt, what is said of them."""

    marker: str
    arguments: tuple[str, ...]
    literals: tuple[Literal, ...]


def telling_attempts(attempts: Iterable[Attempt], skill: Skill, *, most: int) -> list[Attempt]:
    """Return attempts of a skill that worked, first one with few facts, then those that leave fewest of them.

    Those that leave as many as before tell nothing. An object that is two arguments hides which of them matters, so
    such attempts are taken only where there are no others.
    """
    worked = [attempt for attempt in attempts if attempt.action.name == skill.name and attempt.after is not None]
    rest = [one for one in worked if len(set(one.action.arguments)) == len(one.action.arguments)] or worked
    chosen, kept = list[Attempt](), set[Atom]()
    while rest and len(chosen) < min(most, len(ATTEMPTS)):
        left = [_facts(attempt) & kept if chosen else _facts(attempt) for attempt in rest]
        best = min(range(len(rest)), key=lambda number: len(left[number]))
        if chosen and len(left[best]) == len(kept):
            break
        chosen.append(rest.pop(best))
        kept = left[best]
    return chosen


def _facts(attempt: Attempt) -> set[Atom]:
    return _lifted(attempt.state, attempt.action.arguments)


def _lifted(atoms: Iterable[Atom], arguments: Sequence[str]) -> set[Atom]:
    return lifted_atoms(atoms, list(map(parameter_word, range(len(arguments)))), arguments)


def without_lost(words: Iterable[str]) -> list[str]:
    """Return the words of those atoms that were so in every attempt, without the marks that say it."""
    atoms, kept = list[list[str]](), list[bool]()
    for word in words:
        if word == LOST and kept:
            kept[-1] = False
        elif word not in (SO, LOST, *ATTEMPTS):
            if not word.startswith("?") or not atoms:
                atoms.append([])
                kept.append(True)
            atoms[-1].append(word)
    return [word for atom, is_kept in zip(atoms, kept, strict=True) if is_kept for word in atom]


@dataclass(frozen=True)
class SchemaWords:
    """Writes and reads texts about one skill.

    Attributes:
        skill: as it is called.
        arities: arguments of every predicate that can be seen.
        names: symbols for both.
    """

    skill: Skill
    arities: Mapping[str, int]
    names: Anonymisation

    @classmethod
    def of(cls, skill: Skill, demonstrations: Demonstrations, names: Anonymisation) -> SchemaWords:
        """Return what writes about a skill of some demonstrations."""
        return cls(skill, {schema.name: len(schema.parameters) for schema in demonstrations.predicates}, names)

    def question(self, attempts: Sequence[Attempt]) -> str:
        """Return the prompt that asks for the schema."""
        return f"{self._setting(attempts)} {WRITE}"

    def repair_question(
        self, attempts: Sequence[Attempt], schema: ActionSchema, complaints: Iterable[Complaint], *, most: int
    ) -> str:
        """Return the prompt that hands a schema back with what is wrong with it, so many different things at most."""
        wrong = list(dict.fromkeys(map(self._complaint, complaints)))[:most]
        return " ".join([self._setting(attempts), AS_IT_IS, self.write(schema), *wrong, WRITE])

    def answer(self, attempts: Sequence[Attempt], schema: ActionSchema) -> str:
        """Return the answer to a question whose attempts leave the precondition of a schema."""
        seen, words = [_facts(attempt) for attempt in attempts], list[str]()
        for fact in self._ordered(map(Literal, seen[0])):
            words.append(self._told([fact]))
            for ordinal, facts in zip(ATTEMPTS[1:], seen[1:], strict=False):
                words += [ordinal, SO if fact.atom in facts else LOST]
                if fact.atom not in facts:
                    break
        _, effects = self.write(schema).split(f" {ADD}")
        return " ".join([CHECK, *words, f"{ADD}{effects}"])

    def write(self, schema: ActionSchema) -> str:
        """Return a schema of literals."""
        terms = {typed.name: parameter_word(number) for number, typed in enumerate(schema.parameters)}
        effects = list(literals_of_effects(schema.effects))
        parts = (
            (CHECK, [part for part in conjuncts_of(schema.precondition) if isinstance(part, Literal)]),
            (ADD, [effect for effect in effects if effect.is_positive]),
            (DELETE, [Literal(effect.atom) for effect in effects if not effect.is_positive]),
        )
        told = ((marker, self._told(_renamed(literal, terms) for literal in literals)) for marker, literals in parts)
        return " ".join(word for pair in told for word in pair if word)

    def read(self, completion: str) -> ActionSchema | None:
        """Return the schema of an answer under the names of the demonstrations; None where there is no whole one.

        What follows it is read past: a model from nothing may not know where to end.
        """
        words = completion.split()
        places = [words.index(marker) if marker in words else -1 for marker in (CHECK, ADD, DELETE)]
        if not 0 <= places[0] < places[1] < places[2]:
            return None
        sections = (itertools.takewhile(lambda word: word not in _SECTIONS, words[start + 1 :]) for start in places)
        found = [self._atoms(without_lost(section)) for section in sections]
        needed, added, deleted = found
        if needed is None or added is None or deleted is None:
            return None
        effects = (*map(Literal, added), *(Literal(atom, is_positive=False) for atom in deleted if atom not in added))
        parameters = tuple(TypedName(f"?{argument}") for argument in self.skill.arguments)
        return ActionSchema(self.skill.name, parameters, Conjunction(tuple(map(Literal, needed))), effects)

    def _setting(self, attempts: Iterable[Attempt]) -> str:
        parameters = map(parameter_word, range(len(self.skill.arguments)))
        told = map(self._attempt, ATTEMPTS, attempts)
        return " ".join([SKILL, self.names.actions[self.skill.name], *parameters, *told])

    def _attempt(self, ordinal: str, attempt: Attempt) -> str:
        assert attempt.after is not None, "refused attempts are told as complaints"
        names = attempt.action.arguments
        told = (
            (ordinal, _facts(attempt)),
            (ADD, _lifted(attempt.after - attempt.state, names)),
            (DELETE, _lifted(attempt.state - attempt.after, names)),
        )
        return " ".join(word for mark, atoms in told for word in (mark, self._told(map(Literal, atoms))) if word)

    def _complaint(self, complaint: Complaint) -> str:
        told = (
            Literal(atom, literal.is_positive)
            for literal in complaint.literals
            for atom in _lifted([literal.atom], complaint.arguments)
        )
        return " ".join(filter(None, [complaint.marker, self._told(told)]))

    def _told(self, literals: Iterable[Literal]) -> str:
        return write_literals([self._hidden(one) for one in self._ordered(literals)])

    def _hidden(self, literal: Literal) -> Literal:
        return replace(literal, atom=Atom(self.names.predicates[literal.atom.predicate], literal.atom.arguments))

    def _ordered(self, literals: Iterable[Literal]) -> list[Literal]:
        """Return literals in the order of their symbols."""
        hidden = {literal: self._hidden(literal) for literal in literals}
        return sorted(hidden, key=lambda literal: (hidden[literal].atom, hidden[literal].is_positive))

    def _atoms(self, words: Sequence[str]) -> list[Atom] | None:
        """Return the atoms that words tell one after another, each once; None where they tell none."""
        predicates = {symbol: name for name, symbol in self.names.predicates.items()}
        terms = {parameter_word(number): f"?{name}" for number, name in enumerate(self.skill.arguments)}
        found, place = dict[Atom, None](), 0
        while place < len(words):
            name = predicates.get(words[place], "")
            arity = self.arities.get(name)
            if arity is None:
                return None
            arguments = words[place + 1 : place + 1 + arity]
            if len(arguments) < arity or not set(arguments) <= set(terms):
                return None
            found[Atom(name, tuple(terms[word] for word in arguments))] = None
            place += 1 + len(arguments)
        return list(found)


def _renamed(literal: Literal, terms: Mapping[str, str]) -> Literal:
    atom = Atom(literal.atom.predicate, tuple(terms[name] for name in literal.atom.arguments))
    return Literal(atom, literal.is_positive)

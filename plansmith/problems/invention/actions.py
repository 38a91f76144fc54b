"""The actions of a draft: each changes one or two state variables, along a relation or not, under conditions.

Variables are changed by actions in turn, as far as actions can be made, and every parameter stands in a positive
precondition, so that no action applies to just anything. No action requires two values of one variable.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from plansmith.pddl.model import (
    ActionSchema,
    Atom,
    ConditionalEffect,
    Conjunction,
    Effect,
    Literal,
    PredicateSchema,
    TypedName,
    UniversalEffect,
)
from plansmith.problems.invention.drafts import MOST_CHANGES, Draft, Kind, Relation, Variable, Wish

ALONG_CHANCE = 0.75
"""Chance that a move goes along a relation, where one joins its places."""

SHARED_CHANCE = 0.6
"""Chance that something stands for what the action already speaks of, where it can."""

TRIALS = 6
"""Of making one action; those that need too many parameters fail."""

MOST_CONDITIONS_MORE = 3
UNUSED_CHANCE, FLUENT_CHANCE = 0.35, 0.8
"""Chances of a condition more to be of a relation that nothing uses yet, and else of what actions change."""

ADL_CHANCE = 0.6
"""Chance of each action of a domain with ADL to have some."""


@dataclass
class _Sketch:
    """An action that is being made."""

    parameters: list[TypedName] = field(default_factory=list)
    conditions: list[Literal] = field(default_factory=list)
    others: list[Literal] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def covered(self) -> set[str]:
        return {name for literal in self.conditions for name in literal.atom.arguments}

    def require(self, atom: Atom) -> None:
        if Literal(atom) not in self.conditions:
            self.conditions.append(Literal(atom))

    def change(self, atom: Atom, *, is_positive: bool = True) -> None:
        opposite = Literal(atom, not is_positive)
        if opposite not in self.effects and Literal(atom, is_positive) not in self.effects:
            self.effects.append(Literal(atom, is_positive))


class ActionDrawing:
    """Draws the actions of one draft."""

    def __init__(self, draft: Draft, wish: Wish, rng: random.Random, *, has_adl: bool) -> None:
        self.draft, self.wish, self.rng, self.has_adl = draft, wish, rng, has_adl
        self.unused = list(draft.relations)
        self._variable_of = {name: variable for variable in draft.variables for name in variable.predicates}
        self._turns = {variable.predicates: self._turns_of(variable) for variable in draft.variables}

    def actions(self) -> tuple[ActionSchema, ...]:
        """Return the actions; fewer than wished for where some could not be made."""
        shares = self._shares()
        sketches = [sketch for changed in shares if (sketch := self._tried(changed)) is not None]
        for relation in list(self.unused):
            for sketch in self.rng.sample(sketches, len(sketches)):
                if self._add_condition(sketch, _schema_of(relation)):
                    break
        numbers = self.rng.sample(range(1, len(sketches) + 1), len(sketches))
        return tuple(_finished(f"a{number}", sketch) for number, sketch in zip(numbers, sketches, strict=True))

    def _shares(self) -> list[list[Variable]]:
        """Return the variables that each action changes: all of them in turn, then any."""
        order = self.rng.sample(self.draft.variables, len(self.draft.variables))
        shares: list[list[Variable]] = [[] for _ in range(self.wish.n_actions)]
        for number, variable in enumerate(order[: MOST_CHANGES * len(shares)]):
            shares[number % len(shares)].append(variable)
        for share in shares:
            if not share or (len(share) < MOST_CHANGES and self.rng.random() < 0.35):
                share.append(self.rng.choice([v for v in order if v not in share] or order))
        return shares

    def _turns_of(self, variable: Variable) -> Iterator[int]:
        """Yield numbers of transitions, so that each comes once before any comes again."""
        n_values = len(variable.predicates)
        count = {Kind.MODE: n_values, Kind.PLACE: 2 * n_values - 1, Kind.FLAG: 2, Kind.ACHIEVED: 1}[variable.kind]
        while True:
            yield from self.rng.sample(range(count), count)

    def _tried(self, changed: Sequence[Variable]) -> _Sketch | None:
        """Return an action, or None where none came of several trials."""
        trials = (self._sketch(changed) for _ in range(TRIALS))
        return next((sketch for sketch in trials if sketch is not None), None)

    def _sketch(self, changed: Sequence[Variable]) -> _Sketch | None:
        """Return an action, or None where it would need more parameters than wished for."""
        sketch = _Sketch()
        for number, variable in enumerate(changed):
            if not self._change(sketch, variable) and number == 0:
                return None
        if not self._cover(sketch) or not sketch.effects:
            return None
        for _ in range(self.rng.randint(0, MOST_CONDITIONS_MORE)):
            self._add_condition(sketch, self._any_schema())
        if not self._cover(sketch):
            return None
        if self.has_adl and self.rng.random() < ADL_CHANCE:
            self._add_adl(sketch)
        return sketch

    def _change(self, sketch: _Sketch, variable: Variable) -> bool:
        """Add a transition of a variable; return whether there was room for its parameters."""
        owners = self._terms(sketch, variable.owners)
        if owners is None:
            return False
        turn, names = next(self._turns[variable.predicates]), variable.predicates
        match variable.kind:
            case Kind.MODE:
                before, after = Atom(names[turn], owners), Atom(names[(turn + 1) % len(names)], owners)
                self._exchange(sketch, before, after)
            case Kind.PLACE:
                return self._move(sketch, variable, owners, turn)
            case Kind.FLAG if turn:
                self._exchange(sketch, Atom(names[0], owners), None)
            case _:
                sketch.change(Atom(names[0], owners))
        return True

    def _exchange(self, sketch: _Sketch, before: Atom, after: Atom | None) -> None:
        sketch.require(before)
        sketch.change(before, is_positive=False)
        if after is not None:
            sketch.change(after)

    def _move(self, sketch: _Sketch, variable: Variable, owners: tuple[str, ...], turn: int) -> bool:
        """Add a move from place to place, from a place into the hand, or back."""
        assert variable.place
        at, held = variable.predicates[0], Atom(variable.predicates[-1], owners)
        if turn:
            place = self._terms(sketch, (variable.place,))
            if place is None or place[0] in owners:
                return False
            standing = Atom(at, (*owners, *place))
            self._exchange(sketch, *((standing, held) if turn == 1 else (held, standing)))
            return True
        start = self._terms(sketch, (variable.place,))
        end = self._terms(sketch, (variable.place,), is_new=True)
        if start is None or end is None or start[0] in owners:
            return False
        self._exchange(sketch, Atom(at, (*owners, *start)), Atom(at, (*owners, *end)))
        if self.rng.random() < ALONG_CHANCE:
            self._join(sketch, start[0], end[0])
        return True

    def _join(self, sketch: _Sketch, first: str, second: str) -> None:
        """Require a relation between two parameters, where the draft has one."""
        possible = [
            atom
            for relation in self.draft.relations
            if len(relation.types) > 1
            for atom in self._bindings(sketch, _schema_of(relation))
            if first in atom.arguments and second in atom.arguments
        ]
        if possible:
            self._use(sketch, self.rng.choice(possible))

    def _terms(self, sketch: _Sketch, types: Sequence[str], *, is_new: bool = False) -> tuple[str, ...] | None:
        """Return a parameter for each type, different ones, of those there are or new; None where there is no room."""
        chosen: list[str] = []
        for kind in types:
            known = [typed.name for typed in sketch.parameters
                     if self.draft.fits(typed.types[0], kind) and typed.name not in chosen]  # fmt: skip
            is_full = len(sketch.parameters) >= self.wish.n_parameters
            if known and not is_new and (is_full or self.rng.random() < SHARED_CHANCE):
                chosen.append(self.rng.choice(known))
            elif is_full:
                return None
            else:
                chosen.append(self._new_parameter(sketch, kind))
        return tuple(chosen)

    def _new_parameter(self, sketch: _Sketch, kind: str) -> str:
        name = f"?x{len(sketch.parameters)}"
        sketch.parameters.append(TypedName(name, (kind,)))
        return name

    def _cover(self, sketch: _Sketch) -> bool:
        """Give every parameter a positive condition; return whether that was possible."""
        for _ in range(2 * self.wish.n_parameters):
            bare = [typed for typed in sketch.parameters if typed.name not in sketch.covered()]
            if not bare:
                return bool(sketch.conditions)
            self._cover_one(sketch, bare[0])
        return False

    def _cover_one(self, sketch: _Sketch, bare: TypedName) -> None:
        """Require something of a parameter: better of it and others, better a relation that nothing uses yet."""
        unused = {relation.predicate for relation in self.unused}
        kept = {literal.atom for literal in sketch.effects if isinstance(literal, Literal)}
        possible = [
            atom
            for schema in self.draft.schemas()
            for atom in self._bindings(sketch, schema)
            if bare.name in atom.arguments and atom not in kept and not self._clashes(sketch, atom)
        ]
        if possible:
            weights = [len(atom.arguments) ** 2 * (3 if atom.predicate in unused else 1) for atom in possible]
            self._use(sketch, self.rng.choices(possible, weights)[0])
        else:
            fitting = [schema for schema in self.draft.schemas()
                       if any(self.draft.fits(bare.types[0], x.types[0]) for x in schema.parameters)]  # fmt: skip
            if fitting:
                self._add_condition(sketch, self.rng.choice(fitting))

    def _bindings(self, sketch: _Sketch, schema: PredicateSchema) -> Iterator[Atom]:
        """Yield the atoms of a predicate over different parameters of the action."""
        fitting = [[typed.name for typed in sketch.parameters if self.draft.fits(typed.types[0], place.types[0])]
                   for place in schema.parameters]  # fmt: skip
        for names in product(*fitting):
            if names and len(set(names)) == len(names):
                yield Atom(schema.name, names)

    def _any_schema(self) -> PredicateSchema:
        """Return a predicate to require: often one that other actions bring about, so that plans have to prepare."""
        if self.unused and self.rng.random() < UNUSED_CHANCE:
            return _schema_of(self.rng.choice(self.unused))
        return self.rng.choice(self._fluents() if self.rng.random() < FLUENT_CHANCE else self.draft.schemas())

    def _add_condition(self, sketch: _Sketch, schema: PredicateSchema) -> bool:
        """Require an atom of a predicate, with new parameters where needed; return whether that was possible."""
        n_before = len(sketch.parameters)
        terms = self._terms(sketch, [typed.types[0] for typed in schema.parameters])
        touched = [effect.atom.predicate for effect in sketch.effects if isinstance(effect, Literal)]
        if terms is None or schema.name in touched or self._clashes(sketch, Atom(schema.name, terms)):
            del sketch.parameters[n_before:]
            return False
        self._use(sketch, Atom(schema.name, terms))
        return True

    def _clashes(self, sketch: _Sketch, atom: Atom) -> bool:
        """Return whether an action already requires another value of the variable that an atom is one of."""
        variable = self._variable_of.get(atom.predicate)
        if variable is None:
            return False
        n_owners = len(variable.owners)
        required = [literal.atom for literal in sketch.conditions if literal.atom.predicate in variable.predicates]
        return any(own != atom and own.arguments[:n_owners] == atom.arguments[:n_owners] for own in required)

    def _use(self, sketch: _Sketch, atom: Atom) -> None:
        sketch.require(atom)
        self.unused = [relation for relation in self.unused if relation.predicate != atom.predicate]

    def _add_adl(self, sketch: _Sketch) -> None:
        self.rng.choice([self._add_negative, self._add_when, self._add_forall])(sketch)

    def _fluents(self) -> list[PredicateSchema]:
        return [schema for variable in self.draft.variables for schema in variable.schemas()]

    def _add_negative(self, sketch: _Sketch) -> None:
        """Require that something is not so: often of what the action brings about."""
        possible = [atom for schema in self._fluents() for atom in self._bindings(sketch, schema)
                    if Literal(atom) not in sketch.conditions]  # fmt: skip
        if possible:
            sketch.others.append(Literal(self.rng.choice(possible), is_positive=False))

    def _add_when(self, sketch: _Sketch) -> None:
        """Let one effect more take place under a condition."""
        conditions = [atom for schema in self.draft.schemas() for atom in self._bindings(sketch, schema)
                      if Literal(atom) not in sketch.conditions]  # fmt: skip
        self.rng.shuffle(conditions)
        changes = [literal for literal in self._possible_flags(sketch) if literal.atom not in conditions[:1]]
        if conditions and changes:
            sketch.effects.append(ConditionalEffect(Literal(conditions[0]), (self.rng.choice(changes),)))

    def _add_forall(self, sketch: _Sketch) -> None:
        """Let what is said to belong to a parameter be changed with it, as what lies in a briefcase goes along."""
        inside = replace_parameters(sketch, TypedName("?y", (self.rng.choice(self.draft.types),)))
        pairs = [(condition, literal)
                 for schema in self.draft.schemas() for condition in self._bindings(inside, schema)
                 if "?y" in condition.arguments
                 for literal in self._possible_flags(inside)
                 if literal.atom != condition and "?y" in literal.atom.arguments]  # fmt: skip
        if pairs:
            condition, literal = self.rng.choice(pairs)
            effect = ConditionalEffect(Literal(condition), (literal,))
            sketch.effects.append(UniversalEffect((inside.parameters[-1],), (effect,)))

    def _possible_flags(self, sketch: _Sketch) -> list[Literal]:
        """Return changes that leave every variable one value: of flags and of what is achieved."""
        touched = {effect.atom for effect in sketch.effects if isinstance(effect, Literal)}
        return [
            Literal(atom, is_positive)
            for variable in self.draft.variables
            if variable.kind in (Kind.FLAG, Kind.ACHIEVED)
            for atom in self._bindings(sketch, next(variable.schemas()))
            if atom not in touched
            for is_positive in ((True, False) if variable.kind is Kind.FLAG else (True,))
        ]


def replace_parameters(sketch: _Sketch, *more: TypedName) -> _Sketch:
    """Return the action with more parameters, to bind what stands inside a quantifier."""
    return _Sketch([*sketch.parameters, *more], sketch.conditions, sketch.others, sketch.effects)


def _schema_of(relation: Relation) -> PredicateSchema:
    types = relation.types
    return PredicateSchema(relation.predicate, tuple(TypedName(f"?x{n}", (kind,)) for n, kind in enumerate(types)))


def _finished(name: str, sketch: _Sketch) -> ActionSchema:
    condition = Conjunction((*sketch.conditions, *sketch.others))
    return ActionSchema(name, tuple(sketch.parameters), condition, tuple(sketch.effects))

"""Ground conditions: what a condition comes to once its variables are bound, evaluated by bit operations on states.

Negations are pushed to the atoms, quantifiers are expanded over the objects, equality and static atoms are replaced by
their truth value; what is left are conjunctions and disjunctions of bit sets. Not here: which bit stands for which atom
(`grounding`) and the meaning of derived atoms (`derived`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Protocol

from plansmith.errors import BadInputError
from plansmith.pddl.matching import Index, in_join_order, matches, variables_of
from plansmith.pddl.model import (
    EQUALITY,
    Atom,
    Binding,
    Condition,
    Conjunction,
    Disjunction,
    Implication,
    Literal,
    Negation,
    Quantification,
    UniversalEffect,
)

EXPANSION_LIMIT_BYTES = 32 * 2**20
"""The most memory for bit sets to which one condition, or the effects of one action, may be expanded."""

INSTANCE_BYTES = 256
"""Reckoned for each instance of quantified variables; each literal takes the length of its bit set besides."""

MET_BYTES = 64
"""Reckoned for each static atom that is looked at on the way to an instance, so that a search for none ends, too."""


class GroundCondition(Protocol):
    """A condition without variables."""

    def holds(self, state: int) -> bool:
        """Return whether the condition is true in a state."""
        ...


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if all required atoms are true, all forbidden ones false, and all parts hold."""

    required: int = 0
    forbidden: int = 0
    parts: tuple[GroundCondition, ...] = ()

    def holds(self, state: int) -> bool:
        """Return whether the condition is true in a state."""
        if state & self.required != self.required or state & self.forbidden:
            return False
        return all(part.holds(state) for part in self.parts) if self.parts else True


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one of `true_atoms` is true, one of `false_atoms` is false, or one of the parts holds."""

    true_atoms: int = 0
    false_atoms: int = 0
    parts: tuple[GroundCondition, ...] = ()

    def holds(self, state: int) -> bool:
        """Return whether the condition is true in a state."""
        if state & self.true_atoms or state & self.false_atoms != self.false_atoms:
            return True
        return any(part.holds(state) for part in self.parts)


TRUE, FALSE = AllOf(), AnyOf()


class Universe(Protocol):
    """What grounding needs to know of a task."""

    def bit(self, atom: Atom) -> int:
        """Return the bit of a ground atom."""
        ...

    def objects_of(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the objects of any of the types."""
        ...

    def fixed_value(self, atom: Atom) -> bool | None:
        """Return the value of a ground atom that has the same one in every state, else None."""
        ...

    def is_static(self, predicate: str) -> bool:
        """Return whether the predicate's atoms have the same value in every state."""
        ...

    @property
    def static_atoms(self) -> Index:
        """Return the true atoms of static predicates."""
        ...


class ExpansionBudget:
    """How much further quantifiers may be expanded; a bound against filling the memory, and against hanging.

    Counted in bytes, since a bit set is as long as the place of its last atom: time and memory grow with the product of
    instances and atoms.
    """

    def __init__(self, limit_bytes: int = EXPANSION_LIMIT_BYTES) -> None:
        self.limit_bytes = self.left_bytes = limit_bytes

    @property
    def spent_bytes(self) -> int:
        """Return how much was used."""
        return self.limit_bytes - self.left_bytes

    def spend(self, n_bytes: int, text: object) -> None:
        """Take note of what is about to be made of the condition or effect `text`.

        Raises:
            BadInputError: it is more than is left.
        """
        self.left_bytes -= n_bytes
        if self.left_bytes < 0:
            shown = str(text)
            raise BadInputError(
                "a condition or effect has too many instances",
                got=f"{self.spent_bytes} bytes at {shown[:200]}{'...' if len(shown) > 200 else ''}",
                expected=f"at most {self.limit_bytes}",
                cure="use fewer objects, narrower types or fewer quantified variables",
            )


def ground_condition(
    universe: Universe, condition: Condition, binding: Binding, budget: ExpansionBudget | None = None
) -> GroundCondition:
    """Return `condition` with its variables bound.

    Raises:
        BadInputError: the quantifiers expand to more than the budget (by default, one of its own) allows.
    """
    return _Grounder(universe, budget or ExpansionBudget()).ground(condition, binding, is_positive=True)


def all_of(parts: Iterable[GroundCondition]) -> GroundCondition:
    """Return the conjunction of ground conditions, simplified; parts after a false one are not looked at."""
    required, forbidden, others = 0, 0, list[GroundCondition]()
    for part in parts:
        if isinstance(part, AllOf):
            required, forbidden = required | part.required, forbidden | part.forbidden
            others += part.parts
        elif part == FALSE:
            return FALSE
        else:
            others.append(part)
    if required & forbidden:
        return FALSE
    if len(others) == 1 and not required and not forbidden:
        return others[0]
    return AllOf(required, forbidden, tuple(others))


def any_of(parts: Iterable[GroundCondition]) -> GroundCondition:
    """Return the disjunction of ground conditions, simplified; parts after a true one are not looked at."""
    true_atoms, false_atoms, others = 0, 0, list[GroundCondition]()
    for part in parts:
        if isinstance(part, AllOf) and part == TRUE:
            return TRUE
        if isinstance(part, AllOf) and _is_literal(part):
            true_atoms, false_atoms = true_atoms | part.required, false_atoms | part.forbidden
        elif isinstance(part, AnyOf):
            true_atoms, false_atoms = true_atoms | part.true_atoms, false_atoms | part.false_atoms
            others += part.parts
        else:
            others.append(part)
    return _simplest(AnyOf(true_atoms, false_atoms, tuple(others)))


def mentioned_atoms(condition: GroundCondition) -> int:
    """Return the bits of all atoms on which a ground condition depends."""
    match condition:
        case AllOf():
            found = condition.required | condition.forbidden
        case AnyOf():
            found = condition.true_atoms | condition.false_atoms
        case _:
            return 0
    for part in condition.parts:
        found |= mentioned_atoms(part)
    return found


def bindings_of(
    universe: Universe, quantified: Quantification | UniversalEffect, outer: Binding, budget: ExpansionBudget
) -> Iterator[Binding]:
    """Yield `outer` with the parameters bound to all objects of their types; they hide outer variables."""
    candidates = [universe.objects_of(typed.types) for typed in quantified.parameters]
    budget.spend(INSTANCE_BYTES * prod(map(len, candidates)), quantified)
    names = [typed.name for typed in quantified.parameters]
    for objects in product(*candidates):
        yield {**outer, **dict(zip(names, objects, strict=True))}


def relevant_bindings(
    universe: Universe,
    quantified: Quantification | UniversalEffect,
    outer: Binding,
    budget: ExpansionBudget,
    needed: Iterable[Atom],
) -> Iterator[Binding]:
    """Yield those of `bindings_of` under which all static atoms among `needed` are true, in the same order."""
    own = {typed.name: universe.objects_of(typed.types) for typed in quantified.parameters}
    visible = {name: value for name, value in outer.items() if name not in own}
    static = [atom for atom in needed if atom.predicate == EQUALITY or universe.is_static(atom.predicate)]
    patterns = [pattern for atom in static if (pattern := atom.substitute(visible)) and variables_of(pattern)]
    if not patterns:
        yield from bindings_of(universe, quantified, outer, budget)
        return
    if any(atom.predicate != EQUALITY and not universe.static_atoms.get((atom.predicate, -1, "")) for atom in patterns):
        return  # of which nothing is true: sooner seen than found at the end of a join of the others
    places = {name: {value: place for place, value in enumerate(objects)} for name, objects in own.items()}
    found: set[tuple[int, ...]] = set()
    spend = partial(budget.spend, MET_BYTES, quantified)
    for match in matches(in_join_order(patterns), {}, universe.static_atoms, spend):
        if all(value in places[name] for name, value in match.items() if name in places):
            choices = [[places[name][match[name]]] if name in match else range(len(own[name])) for name in own]
            budget.spend(INSTANCE_BYTES * prod(map(len, choices)), quantified)
            found.update(product(*choices))
    for chosen in sorted(found):
        yield {**outer, **{name: objects[place] for (name, objects), place in zip(own.items(), chosen, strict=True)}}


def needed_atoms(condition: Condition, *, is_positive: bool) -> Iterator[Atom]:
    """Yield atoms without which the condition (or, if not `is_positive`, its negation) is false."""
    match condition:
        case Literal():
            if condition.is_positive == is_positive:
                yield condition.atom
        case Negation():
            yield from needed_atoms(condition.part, is_positive=not is_positive)
        case Conjunction() | Disjunction():
            if isinstance(condition, Conjunction) == is_positive:
                for part in condition.parts:
                    yield from needed_atoms(part, is_positive=is_positive)
        case Implication():
            if not is_positive:
                yield from needed_atoms(condition.premise, is_positive=True)
                yield from needed_atoms(condition.conclusion, is_positive=False)


class _Grounder:
    """Grounds conditions over one universe; `is_positive` false grounds the negation of the condition."""

    def __init__(self, universe: Universe, budget: ExpansionBudget) -> None:
        self.universe, self.budget = universe, budget

    def ground(self, condition: Condition, binding: Binding, *, is_positive: bool) -> GroundCondition:
        match condition:
            case Literal():
                return self._literal(condition, binding, is_positive=is_positive)
            case Negation():
                return self.ground(condition.part, binding, is_positive=not is_positive)
            case Quantification():
                is_all = condition.is_universal == is_positive
                # instances that are false whatever the state add nothing to a disjunction, true ones to a conjunction
                needed = needed_atoms(condition.part, is_positive=is_positive != is_all)
                bindings = relevant_bindings(self.universe, condition, binding, self.budget, needed)
                instances = (self.ground(condition.part, inner, is_positive=is_positive) for inner in bindings)
                return all_of(instances) if is_all else any_of(instances)
            case Implication():
                sides = ((condition.premise, not is_positive), (condition.conclusion, is_positive))
                parts = (self.ground(part, binding, is_positive=is_true) for part, is_true in sides)
                return any_of(parts) if is_positive else all_of(parts)
            case Conjunction() | Disjunction():
                parts = (self.ground(part, binding, is_positive=is_positive) for part in condition.parts)
                return all_of(parts) if isinstance(condition, Conjunction) == is_positive else any_of(parts)

    def _literal(self, literal: Literal, binding: Binding, *, is_positive: bool) -> GroundCondition:
        atom, is_wanted = literal.atom.substitute(binding), literal.is_positive == is_positive
        value = self.universe.fixed_value(atom)
        if value is not None:
            return TRUE if value == is_wanted else FALSE
        bit = self.universe.bit(atom)
        self.budget.spend(bit.bit_length() // 8, literal)
        return AllOf(required=bit) if is_wanted else AllOf(forbidden=bit)


def _is_literal(condition: AllOf) -> bool:
    return not condition.parts and (condition.required | condition.forbidden).bit_count() == 1


def _simplest(condition: AnyOf) -> GroundCondition:
    """Return a disjunction of one thing as that thing, and one with an atom and its negation as true."""
    if condition.true_atoms & condition.false_atoms:
        return TRUE
    n_atoms = (condition.true_atoms | condition.false_atoms).bit_count()
    if n_atoms == 1 and not condition.parts:
        return AllOf(condition.true_atoms, condition.false_atoms)
    if n_atoms == 0 and len(condition.parts) == 1:
        return condition.parts[0]
    return condition

"""Derived predicates: which derived atoms follow in a state.

States hold basic atoms only. The derived atoms of a state are the least fixpoint of the rules, stratum by stratum: a
rule may negate a derived predicate only if that is settled in a lower stratum (stratified negation, Thiebaux, Hoffmann
and Nebel, In defense of PDDL axioms, 2005). Rules are grounded only for derived atoms that some condition mentions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from plansmith.pddl.conditions import (
    FALSE,
    ExpansionBudget,
    GroundCondition,
    Universe,
    ground_condition,
    mentioned_atoms,
)
from plansmith.pddl.model import Atom, DerivedPredicate, TypedName
from plansmith.pddl.stratification import strata

MEMORY = 10_000
"""States whose derived atoms are remembered."""

RULES_LIMIT_BYTES = 48 * 2**20
"""The most memory for bit sets to which all rules of a task may be expanded."""


class TypedUniverse(Universe, Protocol):
    """A universe that can tell whether an object may stand for a parameter."""

    def fits(self, name: str, parameter: TypedName) -> bool:
        """Return whether an object is of one of the parameter's types."""
        ...


@dataclass(frozen=True, slots=True)
class GroundRule:
    """If the body holds, so does the derived atom `head`, given as its bit; `mentioned` are the atoms of both."""

    head: int
    body: GroundCondition
    mentioned: int


class DerivedRules:
    """The rules of one task, ground for the derived atoms met so far."""

    def __init__(
        self, universe: TypedUniverse, rules: Iterable[DerivedPredicate], *, limit_bytes: int = RULES_LIMIT_BYTES
    ) -> None:
        self.mask = 0
        """The bits of all derived atoms met."""
        self._universe = universe
        self._rules: dict[str, list[DerivedPredicate]] = {}
        for rule in rules:
            self._rules.setdefault(rule.predicate, []).append(rule)
        self._stratum = strata([rule for alternatives in self._rules.values() for rule in alternatives]).of
        self._ground_rules: dict[int, list[GroundRule]] = {}
        self._waiting: list[tuple[Atom, int]] = []
        self._closures: dict[int, int] = {}
        self._budget = ExpansionBudget(limit_bytes)

    def __contains__(self, predicate: str) -> bool:
        return predicate in self._rules

    def mention(self, atom: Atom, bit: int) -> None:
        """Take note of a derived atom: its rules are needed from now on."""
        self.mask |= bit
        self._waiting.append((atom, bit))

    def closure(self, state: int) -> int:
        """Return the basic atoms of a state with all derived atoms (of those met) that follow from them."""
        if self._waiting:
            self._ground_waiting()
        basic = state & ~self.mask
        found = self._closures.get(basic)
        if found is None:
            if len(self._closures) >= MEMORY:
                self._closures.clear()
            found = self._closures[basic] = self._least_fixpoint(basic)
        return found

    def _least_fixpoint(self, state: int) -> int:
        """Return the state with what follows, stratum by stratum.

        After a first pass over all rules of a stratum, only those are tried again whose body mentions an atom that the
        pass before has made true (semi-naive evaluation).
        """
        for stratum in sorted(self._ground_rules):
            silent, new = self._ground_rules[stratum][::-1], -1  # an atom is met before those that it follows from
            while new:
                before, waiting, silent = state, silent, []
                for rule in waiting:
                    if rule.mentioned & new and rule.body.holds(state):
                        state |= rule.head
                    elif not state & rule.head:
                        silent.append(rule)
                new = state & ~before
        return state

    def _ground_waiting(self) -> None:
        """Ground the rules of every atom mentioned, and of those that the rules mention in turn.

        The list grows meanwhile; if the budget runs out it stays, so that no later call answers from half the rules.
        """
        self._closures.clear()
        for atom, bit in self._waiting:
            self._budget.spend(bit.bit_length() // 8, atom)
            rules = self._ground_rules.setdefault(self._stratum[atom.predicate], [])
            rules += [
                GroundRule(bit, body, bit | mentioned_atoms(body)) for body in self._bodies(atom) if body != FALSE
            ]
        self._waiting.clear()

    def _bodies(self, atom: Atom) -> Iterable[GroundCondition]:
        for rule in self._rules[atom.predicate]:
            pairs = list(zip(rule.parameters, atom.arguments, strict=True))
            if all(self._universe.fits(name, parameter) for parameter, name in pairs):
                binding = {parameter.name: name for parameter, name in pairs}
                yield ground_condition(self._universe, rule.condition, binding, self._budget)


@dataclass(frozen=True, slots=True)
class InClosure:
    """A ground condition on derived atoms: true in a state if it is true with the derived atoms that follow."""

    rules: DerivedRules
    condition: GroundCondition

    def holds(self, state: int) -> bool:
        """Return whether the condition is true in a state."""
        return self.condition.holds(self.rules.closure(state))

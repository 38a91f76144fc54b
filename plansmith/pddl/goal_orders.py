"""Reasonable orders: what should be achieved before which goal.

A goal comes after another if it rules out what the other needs, so that it would have to be undone again: the upper
block of a tower after the lower one (Koehler and Hoffmann, "On Reasonable and Forced Goal Orderings and their Use in an
Agenda-Driven Planning Algorithm", JAIR 12, 2000). What a goal needs and what it rules out is read off the action
schemas, without grounding. Theirs also looks at what else could bring back what is ruled out; here two goals that each
rule out what the other needs are left without an order.

A state shows more: who puts a block on one that has to be moved yet, be it for the sake of a block far below, will have
to take it off again. There a goal comes after a landmark of another goal if it rules out what the landmark needs
(Hoffmann, Porteous and Sebastia, "Ordered Landmarks in Planning", JAIR 22, 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, reduce
from operator import or_

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.matching import is_variable, unified
from plansmith.pddl.model import (
    ActionSchema,
    Binding,
    Condition,
    ConditionalEffect,
    Effect,
    Literal,
    UniversalEffect,
    conjuncts_of,
)
from plansmith.pddl.reachability import Reachability


class GoalOrders:
    """What should be achieved before each goal of a task.

    Only goals that are literals are ordered; a derived one has no action that achieves it, and so no order.
    """

    def __init__(self, task: PlanningTask) -> None:
        self._task = task
        self._goals = [goal for goal in task.goal if isinstance(goal, Literal)]
        self._outcomes = {goal: _in_common(map(_effects, achievers(task, goal))) for goal in self._goals}
        self._ruled_out = {
            goal: task.state_of(literal.atom for literal in outcomes if not literal.is_positive)
            for goal, outcomes in self._outcomes.items()
        }

    @classmethod
    @lru_cache(maxsize=4)  # its ground actions take longer than any answer
    def of(cls, task: PlanningTask) -> GoalOrders:
        """Return those of a task, which are kept for the last few."""
        return cls(task)

    @cached_property
    def always(self) -> dict[Literal, tuple[Literal, ...]]:
        """Return for each goal those that should be achieved before it from any state; goals without are left out."""
        needs = {goal: _needs(self._task, goal) for goal in self._goals}

        def is_ruled_out(goal: Literal, by: Literal) -> bool:
            return any(
                _complement(literal) in self._outcomes[by]
                for prepared, literals in needs[goal].items()
                if prepared not in self._outcomes[by]  # then there is nothing to prepare
                for literal in literals
            )

        found: dict[Literal, tuple[Literal, ...]] = {}
        for late in self._goals:
            before = [goal for goal in self._goals if is_ruled_out(goal, late) and not is_ruled_out(late, goal)]
            if before:
                found[late] = tuple(before)
        return found

    def before(self, state: int) -> dict[Condition, tuple[Condition, ...]]:
        """Return for each goal what should be achieved before it and is open in a state; goals without are left out.

        These are other goals; where it need not wait for any, what has to become true on the way to other goals.
        """
        landmarks = {goal: self._landmarks(goal, state) for goal in self._goals if not self._task.holds(goal, state)}
        found: dict[Condition, tuple[Condition, ...]] = {}
        for late in self._goals:
            goals = tuple(goal for goal in self.always.get(late, ()) if goal in landmarks)
            if before := goals or self._prepared(late, landmarks):
                found[late] = before
        return found

    def _prepared(self, late: Literal, landmarks: Mapping[Literal, Mapping[int, int]]) -> tuple[Literal, ...]:
        """Return what becomes true on the way to other goals, not to this one, and needs what this one rules out."""
        settled = {*landmarks.get(late, {}), *(self._task.bit(goal.atom) for goal in self._goals)}
        needing = (atom for needs in landmarks.values() for atom, needed in needs.items()
                   if needed & self._ruled_out[late] and atom not in settled)  # fmt: skip
        return tuple(map(Literal, self._task.atoms_of(reduce(or_, needing, 0))))

    def _landmarks(self, goal: Literal, state: int) -> dict[int, int]:
        if not goal.is_positive or self._reachability is None:
            return {}
        return self._reachability.landmarks(self._task.bit(goal.atom), state)

    @cached_property
    def _reachability(self) -> Reachability | None:
        return Reachability.of(self._task)


def _needs(task: PlanningTask, goal: Literal) -> dict[Literal, frozenset[Literal]]:
    """Return what every way to achieve a goal needs: in the step that does, and for each of that in one before."""
    needed = _needed(task, goal)
    return {goal: needed} | {literal: _needed(task, literal) for literal in needed}


def _needed(task: PlanningTask, literal: Literal) -> frozenset[Literal]:
    """Return the preconditions that all actions have which achieve a literal."""
    return _in_common(
        _bound((part for part in conjuncts_of(schema.precondition) if isinstance(part, Literal)), binding)
        for schema, binding in achievers(task, literal)
    )


def _effects(achiever: tuple[ActionSchema, Binding]) -> frozenset[Literal]:
    """Return the literals that an action makes true whatever the state."""
    schema, binding = achiever
    effects = _bound((effect for effect in schema.effects if isinstance(effect, Literal)), binding)
    return frozenset(effect for effect in effects if effect.is_positive or _complement(effect) not in effects)


def _complement(literal: Literal) -> Literal:
    return Literal(literal.atom, not literal.is_positive)


def achievers(task: PlanningTask, literal: Literal) -> Iterator[tuple[ActionSchema, Binding]]:
    """Yield the action schemas that may make a literal true, each with the parameters that the literal gives."""
    for schema in task.domain.actions:
        types = {parameter.name: parameter for parameter in schema.parameters}
        for effect, own in _literals(schema.effects):
            if effect.is_positive != literal.is_positive or effect.atom.predicate != literal.atom.predicate:
                continue
            binding = unified(effect.atom, literal.atom, {})
            if binding is None:
                continue
            given = {name: value for name, value in binding.items() if name in types and name not in own}
            if all(task.fits(value, types[name]) for name, value in given.items()):
                yield schema, given


def _literals(effects: Iterable[Effect], own: frozenset[str] = frozenset()) -> Iterator[tuple[Literal, frozenset[str]]]:
    """Yield every literal among effects with the variables that are quantified there."""
    for effect in effects:
        match effect:
            case Literal():
                yield effect, own
            case ConditionalEffect():
                yield from _literals(effect.effects, own)
            case UniversalEffect():
                yield from _literals(effect.effects, own | {parameter.name for parameter in effect.parameters})


def _bound(literals: Iterable[Literal], binding: Binding) -> frozenset[Literal]:
    """Return those literals whose variables are all given."""
    substituted = (literal.substitute(binding) for literal in literals)
    return frozenset(literal for literal in substituted if not any(map(is_variable, literal.atom.arguments)))


def _in_common(sets: Iterable[frozenset[Literal]]) -> frozenset[Literal]:
    """Return what is in all sets; nothing where there is none."""
    found = list(sets)
    return reduce(frozenset.intersection, found) if found else frozenset()

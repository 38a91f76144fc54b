"""Whether the goals of two problems with equal initial states agree: hold in the same states that can be reached.

Asked first under one map of the objects. Where they disagree under it, another map might do. Goals are completed
then: a goal is given every literal that it implies in the states that can be reached, of those that a map might make
of either goal's literals. Two conjunctions of literals agree under a map exactly if it makes one completed goal of
the other, so that maps need not be tried one by one. Other conditions, of which there are endlessly many, are
compared under one map after another, up to a limit.

Planetarium (Zuo et al., arXiv:2407.03321) completes goals by rules written for each of its domains; here a planner does
it for any.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from plansmith.pddl.differences import Difference, goal_differences
from plansmith.pddl.goal_proofs import AskPlanner, ProvenGoal, Questions
from plansmith.pddl.model import Atom, Condition, Domain, Literal, Problem
from plansmith.pddl.normal_form import normal_condition
from plansmith.pddl.pairing import OutOfBudget, Pairing, Side
from plansmith.pddl.structure import goal_fact

LITERALS_LIMIT = 20_000
"""Literals of one problem among which are looked for those that its goal implies."""

MAPS_LIMIT = 200
"""Maps tried for goals that are no conjunctions of literals."""

SAME_STATES = "the goals hold in the same states that can be reached"
OTHER_STATES = "a state that can be reached has one goal and not the other, under every map of the objects"

ObjectMap = Mapping[str, str]
"""The object of the second problem for each of the first."""


Shape = tuple[bool, str, tuple[int, ...]]
"""What a map keeps of a literal: sign, predicate and the colours of its objects."""


@dataclass(frozen=True, slots=True)
class MappedStates:
    """Two problems in normal form, and a map that makes their initial states equal."""

    domain: Domain
    problems: tuple[Problem, Problem]
    states: tuple[Side, Side]
    """The problems without their goals."""
    pairing: Pairing
    """All maps that make the states equal."""
    object_map: ObjectMap


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether goals agree under `object_map`, or under no map; None if that is not decided.

    `differences` are the parts of either goal that the other is proven not to imply under the map.
    """

    is_same: bool | None
    reason: str
    object_map: ObjectMap
    differences: tuple[Difference, ...] = ()


def goal_agreement(mapped: MappedStates, ask: AskPlanner) -> Agreement:
    """Return whether the goals agree under the map given, else whether they do under any."""
    return _Goals(mapped, ask).agreement()


class _Goals:
    """Two goals and what they imply."""

    def __init__(self, mapped: MappedStates, ask: AskPlanner) -> None:
        self.mapped, self.colours = mapped, mapped.pairing.colours()
        self.first, self.second = (ProvenGoal(mapped.domain, problem, Questions(ask)) for problem in mapped.problems)

    def agreement(self) -> Agreement:
        given = self.mapped.object_map
        missing, more = self._verdicts(given)
        verdicts = {*missing.values(), *more.values()}
        if verdicts <= {True}:
            return Agreement(True, SAME_STATES, given)
        lost, added = ([part for part, is_implied in side.items() if is_implied is False] for side in (missing, more))
        differences = goal_differences(lost, added)
        if False in verdicts and self.mapped.pairing.is_rigid:
            return Agreement(False, OTHER_STATES, given, differences)
        return self._under_any_map(differences)

    def _verdicts(self, object_map: ObjectMap) -> tuple[dict[Condition, bool | None], dict[Condition, bool | None]]:
        """Return for the conjuncts of either goal whether the other implies them under a map."""
        back = {other: name for name, other in object_map.items()}
        return (
            {part: self.second.implies(_renamed(part, object_map)) for part in self.first.conjuncts},
            {part: self.first.implies(_renamed(part, back)) for part in self.second.conjuncts},
        )

    def _under_any_map(self, differences: tuple[Difference, ...]) -> Agreement:
        given = self.mapped.object_map
        literals = self._literals()
        if literals is None:
            return Agreement(None, f"the goals may imply more than {LITERALS_LIMIT} literals", given, differences)
        implied = [_implied(goal, own) for goal, own in zip((self.first, self.second), literals, strict=True)]
        if not self._have_equal_numbers(implied):
            return Agreement(False, OTHER_STATES, given, differences)
        try:
            is_refuted = None not in implied[0].values() and None not in implied[1].values()
            for number, found in enumerate(self._maps(implied)):
                if number == MAPS_LIMIT:
                    return Agreement(None, f"the goals agree under none of {MAPS_LIMIT} maps tried", given, differences)
                verdicts = {verdict for side in self._verdicts(found) for verdict in side.values()}
                if verdicts <= {True}:
                    return Agreement(True, SAME_STATES, found)
                is_refuted &= False in verdicts
        except OutOfBudget:
            return Agreement(None, "the goals' objects can be mapped in too many ways", given, differences)
        if is_refuted:
            return Agreement(False, OTHER_STATES, given, differences)
        return Agreement(None, "the planner did not prove whether the goals agree", given, differences)

    def _maps(self, implied: Sequence[Mapping[Literal, bool | None]]) -> Iterator[ObjectMap]:
        """Yield the maps of completed goals; all of them, but for swaps, if other conditions are left to compare."""
        completed, whole = [], []
        for state, goal, own in zip(self.mapped.states, (self.first, self.second), implied, strict=True):
            literals = {goal_fact(literal) for literal, is_implied in own.items() if is_implied}
            others = {goal_fact(part) for part in goal.conjuncts if not isinstance(part, Literal)}
            completed.append(state.with_facts(literals))
            whole.append(state.with_facts(literals | others))
        return Pairing(*completed).maps(kept_by_swaps=(whole[0], whole[1]))

    def _have_equal_numbers(self, implied: Sequence[Mapping[Literal, bool | None]]) -> bool:
        """Return whether both goals may imply as many literals of each shape, where it is not known how many."""
        known, possible = (Counter[Shape](), Counter[Shape]()), (Counter[Shape](), Counter[Shape]())
        for side, own in enumerate(implied):
            shapes = {literal: _shape(literal, self.colours[side]) for literal in own}
            known[side].update(shapes[literal] for literal, is_implied in own.items() if is_implied)
            possible[side].update(shapes[literal] for literal, is_implied in own.items() if is_implied is not False)
        return known[0] <= possible[1] and known[1] <= possible[0]

    def _literals(self) -> list[list[Literal]] | None:
        """Return for either problem what a map may make of the literals of both goals; None if that is too much."""
        shapes = {
            _shape(part, own)
            for own, goal in zip(self.colours, (self.first, self.second), strict=True)
            for part in goal.conjuncts
            if isinstance(part, Literal)
        }
        names = [_by_colour(own) for own in self.colours]
        n_literals = sum(prod(len(names[0][colour]) for colour in of_arguments) for _, _, of_arguments in shapes)
        if n_literals > LITERALS_LIMIT:
            return None
        return [
            [
                Literal(Atom(predicate, arguments), is_positive)
                for is_positive, predicate, of_arguments in sorted(shapes)
                for arguments in product(*(own[colour] for colour in of_arguments))
            ]
            for own in names
        ]


def _shape(literal: Literal, colours: Mapping[str, int]) -> Shape:
    return literal.is_positive, literal.atom.predicate, tuple(colours[name] for name in literal.atom.arguments)


def _renamed(condition: Condition, object_map: ObjectMap) -> Condition:
    return normal_condition(condition.substitute(object_map))


def _implied(goal: ProvenGoal, literals: Sequence[Literal]) -> dict[Literal, bool | None]:
    return {literal: goal.implies(literal) for literal in literals}


def _by_colour(colours: Mapping[str, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for name, colour in colours.items():
        found[colour].append(name)
    return found

"""Why each action of a plan is there: the causal links from it to the goal.

A step serves the goal through literals it achieves and later steps need (causal links as in partial-order planning,
McAllester and Rosenblitt 1991). Chains of thought say the path from the goal down to the action, so that the choice of
the action is a chain of one-hop lookups instead of a leap. The papers' chains name no reason; this is our addition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.model import Atom, Condition, Literal


@dataclass(frozen=True, slots=True, order=True)
class Purpose:
    """One path from an action to the goal.

    ``literals`` begins with a goal literal and ends with the effect of the action that serves it. Paths compare by how
    early their goal is achieved for good, then by whether they name a literal twice (a block must be clear to be moved
    so that it is clear again: true, and no reason), then by length.
    """

    achieved_at: int
    is_circular: bool
    length: int
    literals: tuple[Literal, ...]

    @classmethod
    def through(cls, achieved_at: int, literals: tuple[Literal, ...]) -> Purpose:
        """Return the purpose along these literals."""
        return cls(achieved_at, len(set(literals)) < len(literals), len(literals), literals)


def purposes(actions: Sequence[GroundAction], goal: Sequence[Literal]) -> tuple[Purpose | None, ...]:
    """Return each action's purpose; None for an action that serves nothing (a plan with needless steps).

    An action on several paths gets the one whose goal is achieved first, then the shortest: the same goal stays in view
    until it is reached.

    Args:
        actions: without conditional effects; see `GroundAction.resolved`.
        goal: the literals of the goal.
    """
    uses = _Uses.of(actions, goal)
    found: list[Purpose | None] = [None] * len(actions)
    for index in reversed(range(len(actions))):
        paths = [path for effect in effects_of(actions[index]) for path in uses.paths(effect, index, found)]
        found[index] = min(paths, default=None)
    return tuple(found)


def effects_of(action: GroundAction) -> tuple[Literal, ...]:
    """Return the add effects, then the delete effects, as literals."""
    return (*(Literal(atom) for atom in action.add_effects),
            *(Literal(atom, is_positive=False) for atom in action.delete_effects))  # fmt: skip


@dataclass(frozen=True)
class _Uses:
    """Where a plan needs what: the steps whose preconditions name a literal, and those whose effects touch an atom."""

    needed_by: Mapping[Condition, Sequence[int]]
    touched_by: Mapping[Atom, Sequence[int]]
    goal: frozenset[Literal]

    @classmethod
    def of(cls, actions: Sequence[GroundAction], goal: Sequence[Literal]) -> _Uses:
        needed_by: dict[Condition, list[int]] = defaultdict(list)
        touched_by: dict[Atom, list[int]] = defaultdict(list)
        for index, action in enumerate(actions):
            for condition in dict.fromkeys(action.preconditions):
                needed_by[condition].append(index)
            for effect in effects_of(action):
                touched_by[effect.atom].append(index)
        return cls(needed_by, touched_by, frozenset(goal))

    def paths(self, effect: Literal, index: int, found: Sequence[Purpose | None]) -> Iterator[Purpose]:
        """Yield the purposes that a step's effect serves until a later step touches its atom."""
        touches, needs = self.touched_by.get(effect.atom, ()), self.needed_by.get(effect, ())
        next_touch = bisect_right(touches, index)
        last = touches[next_touch] if next_touch < len(touches) else None
        for later in needs[bisect_right(needs, index) :]:
            if last is not None and later > last:
                return
            purpose = found[later]
            if purpose:
                yield Purpose.through(purpose.achieved_at, (*purpose.literals, effect))
        if last is None and effect in self.goal:
            yield Purpose.through(index, (effect,))

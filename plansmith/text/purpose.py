"""Why each action of a plan is there: the causal links from it to the goal.

A step serves the goal through literals it achieves and later steps need (causal links as in partial-order planning,
McAllester and Rosenblitt 1991). Chains of thought say the path from the goal down to the action, so that the choice of
the action is a chain of one-hop lookups instead of a leap. The papers' chains name no reason; this is our addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.model import Literal


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
    found: list[Purpose | None] = [None] * len(actions)
    for index in reversed(range(len(actions))):
        paths = [path for effect in effects_of(actions[index]) for path in _paths(effect, index, actions, goal, found)]
        found[index] = min(paths, default=None)
    return tuple(found)


def effects_of(action: GroundAction) -> tuple[Literal, ...]:
    """Return the add effects, then the delete effects, as literals."""
    return (*(Literal(atom) for atom in action.add_effects),
            *(Literal(atom, is_positive=False) for atom in action.delete_effects))  # fmt: skip


def _paths(
    effect: Literal,
    index: int,
    actions: Sequence[GroundAction],
    goal: Sequence[Literal],
    found: Sequence[Purpose | None],
) -> list[Purpose]:
    paths = []
    for later in range(index + 1, len(actions)):
        purpose = found[later]
        if purpose and effect in actions[later].preconditions:
            paths.append(Purpose.through(purpose.achieved_at, (*purpose.literals, effect)))
        if {effect, Literal(effect.atom, not effect.is_positive)} & set(effects_of(actions[later])):
            return paths
    if effect in goal:
        paths.append(Purpose.through(index, (effect,)))
    return paths

"""What can be reached when nothing is ever deleted, and what therefore must come before what.

The delete relaxation (Bonet and Geffner, AIJ 129, 2001): an action that can be applied adds its atoms for good. What is
out of reach even so is out of reach. An atom without which a goal is out of reach is a landmark (Hoffmann, Porteous and
Sebastia, "Ordered Landmarks in Planning", JAIR 22, 2004): every plan makes it true at some time.

Conditional effects count as if their conditions held; negative and disjunctive preconditions as if they did. So nothing
is said to be out of reach, or to be needed, that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask

MAX_ACTIONS = 2000
"""A task that may have more ground actions is not looked at: each question goes through all of them a few times."""


class Reachability:
    """Ground actions of a task with all that they may add."""

    def __init__(self, actions: Iterable[GroundAction]) -> None:
        self.actions = [(action.required, _adds(action)) for action in actions]
        """What each needs, and what it adds."""

    @classmethod
    def of(cls, task: PlanningTask) -> Reachability | None:
        """Return that of a task; None for one with derived predicates or with too many actions."""
        return None if task.domain.derived or task.most_ground_actions > MAX_ACTIONS else cls(task.ground_actions())

    def reached(self, state: int, *, without: int = 0) -> int:
        """Return the atoms that can be reached from a state, given that the atoms `without` never hold."""
        found, waiting = state & ~without, self.actions
        while True:
            before, left = found, []
            for required, adds in waiting:
                if required & ~found:
                    left.append((required, adds))
                else:
                    found |= adds & ~without
            if found == before:
                return found
            waiting = left

    def landmarks(self, atom: int, state: int) -> dict[int, int]:
        """Return what has to be made true on the way to an atom, and for each what must hold right before it first is.

        Looked for are the preconditions that all actions share which can make it true first, then what makes these
        true. Nothing where the atom holds. All are sets of atoms, as states are.
        """
        needs: dict[int, int] = {}
        waiting = [atom]
        while waiting:
            if (wanted := waiting.pop()) & state or wanted in needs:
                continue
            within = self.reached(state, without=wanted)
            first = [required for required, adds in self.actions if adds & wanted and not required & ~within]
            needs[wanted] = reduce(and_, first) if first else 0
            waiting += atoms_in(needs[wanted] & ~state)
        return needs


def atoms_in(state: int) -> Iterator[int]:
    """Yield the atoms of a state, each as a state of its own."""
    while state:
        yield (lowest := state & -state)
        state ^= lowest


def _adds(action: GroundAction) -> int:
    return reduce(lambda found, effect: found | effect.added, action.conditional, action.added)

"""What can be reached when nothing is ever deleted, and what therefore must come before what.

The delete relaxation (Bonet and Geffner, AIJ 129, 2001): an action that can be applied adds its atoms for good. What is
out of reach even so is out of reach. An atom without which a goal is out of reach is a landmark (Hoffmann, Porteous and
Sebastia, "Ordered Landmarks in Planning", JAIR 22, 2004): every plan makes it true at some time.

Conditional effects count as if their conditions held; negative and disjunctive preconditions as if they did. So nothing
is said to be out of reach, or to be needed, that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from plansmith.pddl.grounding import PlanningTask

MAX_ACTIONS = 2000
"""A task that may have more ground actions is not looked at: each question goes through all of them a few times."""


WORD_BITS = 64
Words = NDArray[np.uint64]
"""A set of atoms in words of 64 bits. One operation looks at all actions, which are asked again and again."""


class Reachability:
    """The actions of a task in its relaxation.

    Args:
        actions: the atoms that each needs, and those that it may add (`PlanningTask.relaxed_actions`).
    """

    def __init__(self, actions: Iterable[tuple[int, int]]) -> None:
        self.actions = list(actions)
        n_bits = max((max(pair).bit_length() for pair in self.actions), default=0)
        self._n_words = -(-n_bits // WORD_BITS) or 1
        n_bytes = self._n_words * WORD_BITS // 8
        self._required, self._adds = (
            np.frombuffer(b"".join(pair[part].to_bytes(n_bytes, "little") for pair in self.actions), "<u8").reshape(
                -1, self._n_words
            )
            for part in (0, 1)
        )

    @classmethod
    def of(cls, task: PlanningTask) -> Reachability | None:
        """Return that of a task; None for one with derived predicates or with too many actions."""
        return None if task.domain.derived or task.most_ground_actions > MAX_ACTIONS else cls(task.relaxed_actions())

    def reached(self, state: int, *, without: int = 0) -> int:
        """Return the atoms that can be reached from a state, given that the atoms `without` never hold."""
        found = self._reached(state, without)
        return state & ~without | int.from_bytes(found.tobytes(), "little")

    def _reached(self, state: int, without: int) -> Words:
        """Return the same of those atoms alone that actions know."""
        found, allowed = self._words(state & ~without), ~self._words(without)
        while True:
            added = np.bitwise_or.reduce(self._adds[self._applicable(found)], axis=0) & allowed
            if not (added & ~found).any():
                return found
            found = found | added

    def _applicable(self, state: Words) -> NDArray[np.bool_]:
        """Return which actions need nothing that a state has not."""
        lacking = np.asarray((self._required & ~state).any(axis=1))
        return ~lacking

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
            makes_it = (self._adds & self._words(wanted)).any(axis=1)
            first = self._required[makes_it & self._applicable(self._reached(state, wanted))]
            shared = np.bitwise_and.reduce(first, axis=0) if len(first) else self._words(0)
            needs[wanted] = int.from_bytes(shared.tobytes(), "little")
            waiting += atoms_in(needs[wanted] & ~state)
        return needs

    def _words(self, state: int) -> Words:
        """Return a set of atoms as an array: (n_words,), of those alone that actions know."""
        known = state & (1 << self._n_words * WORD_BITS) - 1
        return np.frombuffer(known.to_bytes(self._n_words * WORD_BITS // 8, "little"), dtype="<u8")


def atoms_in(state: int) -> Iterator[int]:
    """Yield the atoms of a state, each as a state of its own."""
    while state:
        yield (lowest := state & -state)
        state ^= lowest

"""Problems that only measure, recognised in what is left of another problem.

After some steps of a plan the rest is a problem of its own: the state reached and the same goal. A chain of thought
tells both at every step, so a chain that passes through such a state solves a held-out problem as its rest, whatever
the split of whole problems says. Not here: which problems are held out (`plansmith.data.drawing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plansmith.data.rows import JudgedStepRow, ProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan

MEASURING = (Split.PROBE, Split.TEST)
"""Splits that no text of training may solve."""


@dataclass(frozen=True)
class HeldOut:
    """The canonical forms of the problems that only measure, and how many objects these have."""

    forms: frozenset[str] = frozenset()
    n_objects: frozenset[int] = frozenset()

    @classmethod
    def of(cls, problems: Iterable[ProblemRow]) -> HeldOut:
        """Return the held-out ones of a run's problems."""
        rows = [row for row in problems if row.split in MEASURING]
        return cls(frozenset(row.canonical_form for row in rows), frozenset(row.n_objects for row in rows))

    def first_met(self, task: PlanningTask, states: Iterable[Iterable[Atom]]) -> int | None:
        """Return the number, from 0, of the first state from which what is left of a task is held out, or None.

        A form costs a quarter of a millisecond and more; a task of another size has no state that needs one, nor has
        a state, such as policies claim, that names an object which the task has not.
        """
        if len(task.problem.objects) not in self.n_objects:
            return None
        for number, atoms in enumerate(map(tuple, states)):
            if any(name not in task.objects for atom in atoms for name in atom.arguments):
                continue
            if canonical_form(task.domain, replace(task.problem, init=atoms)) in self.forms:
                return number
        return None

    def met_by_chain(self, task: PlanningTask, steps: Iterable[JudgedStepRow]) -> int | None:
        """Return after how many steps of a chain what is left is held out, by the states it claims, or None."""
        return self.first_met(task, (task.problem.init, *(step.claimed_atoms for step in steps)))

    def is_met_by(self, task: PlanningTask, steps: Sequence[JudgedStepRow], plan: Sequence[str]) -> bool:
        """Return whether an answer passes a held-out problem: by what its steps claim, without any by what it does."""
        if steps:
            return self.met_by_chain(task, steps) is not None
        try:
            done = [parse_step(step) for step in plan]
        except BadInputError:  # words of a policy that are no step do nothing
            return False
        states = validate_plan(task, done).states
        return self.first_met(task, (task.atoms_of(task.basic_atoms(state)) for state in states)) is not None

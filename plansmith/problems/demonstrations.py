"""Demonstrations: a task in a sentence, what the robot can do and see, and what became of its attempts.

This is U of Self-CriTeach (equation 4), and all that a domain is written of. Objects have no types: what they are,
facts such as ``(robot r1)`` tell. Not here: the files of them (`plansmith.data.demonstration_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from plansmith.pddl.model import Atom, PlanStep, PredicateSchema

State = frozenset[Atom]


@dataclass(frozen=True, slots=True)
class Skill:
    """What the robot can attempt: a name, and what its arguments are called."""

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"({' '.join((self.name, *(f'?{argument}' for argument in self.arguments)))})"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An action tried in a state; ``after`` is None where it was refused."""

    state: State
    action: PlanStep
    after: State | None

    def about(self, state: Iterable[Atom]) -> list[Atom]:
        """Return the facts of a state about the objects acted on, and those about none, in order."""
        names = set(self.action.arguments)
        return sorted(atom for atom in state if not atom.arguments or names & set(atom.arguments))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Attempts one after another among some objects; a refused one leaves the state as it is."""

    objects: tuple[str, ...]
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """U: what a domain is written of. ``name`` is what the domain is to be called."""

    name: str
    task: str
    skills: tuple[Skill, ...]
    predicates: tuple[PredicateSchema, ...]
    trajectories: tuple[Trajectory, ...]

    @property
    def attempts(self) -> Iterator[tuple[Trajectory, Attempt]]:
        """Return every attempt with its trajectory, in order."""
        return ((trajectory, attempt) for trajectory in self.trajectories for attempt in trajectory.attempts)

    @property
    def n_refused(self) -> int:
        """Return how many attempts were refused."""
        return sum(attempt.after is None for _, attempt in self.attempts)


def lifted_atoms(atoms: Iterable[Atom], parameters: Sequence[str], arguments: Sequence[str]) -> set[Atom]:
    """Return the atoms about the arguments, under every naming by parameters that stand for them."""
    names: dict[str, list[str]] = {}
    for parameter, name in zip(parameters, arguments, strict=True):
        names.setdefault(name, []).append(parameter)
    return {
        Atom(atom.predicate, terms)
        for atom in atoms
        if all(name in names for name in atom.arguments)
        for terms in product(*(names[name] for name in atom.arguments))
    }

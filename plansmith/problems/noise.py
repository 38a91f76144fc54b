"""States as they are perceived: atoms lost, made up, or with an object exchanged.

Self-CriTeach has robots see through a classifier or a vision model (section 9); here the mistakes of both are drawn, at
a given rate. Facts of a kind that no action changes, such as what is a table, are never disturbed. Not here: what
becomes of plans that were made of such a state.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Domain, Problem

MIXTURES = {
    "missing": ("missing",),
    "spurious": ("spurious",),
    "swapped": ("swapped",),
    "classifier": ("missing", "missing", "swapped"),
    "vlm": ("missing", "spurious", "swapped"),
}
"""What one mistake may be, each entry equally likely. A classifier fails at edges and loses facts (section 9)."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How states are disturbed: at one of several rates, each equally likely, by a name of `MIXTURES`."""

    rates: tuple[float, ...]
    mixture: str


def noisy_problem(domain: Domain, problem: Problem, *, rate: float, mixture: str, rng: random.Random) -> Problem:
    """Return a problem whose initial state has so many mistakes for each atom that may change."""
    task = PlanningTask(domain, problem)
    atoms = dict.fromkeys(problem.init)
    for atom in [atom for atom in problem.init if not task.is_static(atom.predicate)]:
        if rng.random() >= rate:
            continue
        match rng.choice(MIXTURES[mixture]):
            case "missing":
                atoms.pop(atom, None)
            case "spurious":
                atoms.update(dict.fromkeys(_one(_others(task, domain, atom, atoms), rng)))
            case _:
                atoms.pop(atom, None)
                atoms.update(dict.fromkeys(_one(_neighbours(task, domain, atom, atoms), rng)))
    return replace(problem, init=tuple(atoms))


def _one(atoms: Sequence[Atom], rng: random.Random) -> Sequence[Atom]:
    return rng.sample(atoms, min(1, len(atoms)))


def _others(task: PlanningTask, domain: Domain, atom: Atom, known: dict[Atom, None]) -> list[Atom]:
    """Return the atoms of a predicate that are not said, with objects that it is said of somewhere."""
    schema = domain.predicate(atom.predicate)
    assert schema is not None, "the problem has it"
    seen: list[dict[str, None]] = [{} for _ in schema.parameters]
    for other in task.problem.init:
        if other.predicate == atom.predicate:
            for names, name in zip(seen, other.arguments, strict=True):
                names[name] = None
    found = (Atom(atom.predicate, arguments) for arguments in product(*seen))
    return [other for other in found if other not in known and len(set(other.arguments)) == len(other.arguments)]


def _neighbours(task: PlanningTask, domain: Domain, atom: Atom, known: dict[Atom, None]) -> list[Atom]:
    """Return those of them that differ from an atom in one object."""
    return [
        other
        for other in _others(task, domain, atom, known)
        if other != atom and sum(a != b for a, b in zip(other.arguments, atom.arguments, strict=True)) == 1
    ]

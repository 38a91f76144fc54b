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
    """Return a problem whose initial state has so many mistakes for each atom that may change.

    What is made up is of the atom's predicate where that leaves something to make up, else of any. Where no object
    could stand for another one, as with the hand of the only robot, a fact that would be exchanged is lost.
    """
    task = PlanningTask(domain, problem)
    atoms = dict.fromkeys(problem.init)
    changing = [atom for atom in problem.init if not task.is_static(atom.predicate)]
    one_each = list({atom.predicate: atom for atom in changing}.values())
    for atom in changing:
        if rng.random() >= rate:
            continue
        match rng.choice(MIXTURES[mixture]):
            case "missing":
                atoms.pop(atom, None)
            case "spurious":
                possible = _others(task, domain, atom, atoms)
                if not possible:
                    possible = [other for own in one_each for other in _others(task, domain, own, atoms)]
                atoms.update(dict.fromkeys(_one(possible, rng)))
            case _:
                atoms.pop(atom, None)
                atoms.update(dict.fromkeys(_one(_neighbours(task, domain, atom, atoms), rng)))
    return replace(problem, init=tuple(atoms))


def _one(atoms: Sequence[Atom], rng: random.Random) -> Sequence[Atom]:
    return rng.sample(atoms, min(1, len(atoms)))


def _others(task: PlanningTask, domain: Domain, atom: Atom, known: dict[Atom, None]) -> list[Atom]:
    """Return the false atoms of a predicate that are not said, with objects like those that it is said of somewhere."""
    schema = domain.predicate(atom.predicate)
    assert schema is not None, "the problem has it"
    kinds = _kinds(task)
    seen = [{kinds[other.arguments[place]] for other in task.problem.init if other.predicate == atom.predicate}
            for place in range(len(schema.parameters))]  # fmt: skip
    fitting = [[name for name, kind in kinds.items() if kind in own] for own in seen]
    told = {*known, *task.problem.init}
    found = (Atom(atom.predicate, arguments) for arguments in product(*fitting))
    return [other for other in found if other not in told and len(set(other.arguments)) == len(other.arguments)]


def _kinds(task: PlanningTask) -> dict[str, tuple[object, ...]]:
    """Return what is the same for objects that could stand for each other: type, and properties that never change."""
    typed = (*task.domain.constants, *task.problem.objects)
    marks: dict[str, list[str]] = {own.name: [] for own in typed}
    for atom in task.problem.init:
        if len(atom.arguments) == 1 and task.is_static(atom.predicate):
            marks[atom.arguments[0]].append(atom.predicate)
    return {own.name: (own.types, *sorted(marks[own.name])) for own in typed}


def _neighbours(task: PlanningTask, domain: Domain, atom: Atom, known: dict[Atom, None]) -> list[Atom]:
    """Return those of them that differ from an atom in one object."""
    return [
        other
        for other in _others(task, domain, atom, known)
        if other != atom and sum(a != b for a, b in zip(other.arguments, atom.arguments, strict=True)) == 1
    ]

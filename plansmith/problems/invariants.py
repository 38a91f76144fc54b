"""What held in every state that was seen, and the nearest state to a disturbed one in which it holds.

Three kinds, all about atoms that actions change, and all learnt by looking, so that they may say too much. *Groups*:
of the atoms about an object that fit one of some patterns, such as ``(on-table ?x _)``, ``(above ?x _)`` and
``(holding ?x _)``, exactly one holds. *Limits*: of those that fit a single pattern, one at most. *Orders*: a relation
never leads back to where it began. A planner that sees badly plans from the nearest state in their sense, as a language
model may guess it: not in Self-CriTeach, whose planner gets the disturbed state as it is (table 4).

What an object is, the places tell that it was seen in: two objects are of one kind as far as they share places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array

from plansmith.pddl.model import Atom, Domain, Literal, Problem, conjuncts_of
from plansmith.problems.demonstrations import Demonstrations, State, Trajectory

MOST_PATTERNS = 4
"""Of a group, at most."""
SECONDS = 10.0
"""For a nearest state, at most; what is best by then is taken."""
NOBODY = ""
"""Stands for an object that is in every atom, at a place of its own: patterns about it are about no object."""
ITS_PLACE = -1

Place = tuple[str, int]
"""A predicate, and the number of an argument of it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Of the atoms with an object at one of these places exactly one holds, if it was seen at one of ``guards``."""

    places: tuple[Place, ...]
    guards: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Invariants:
    """What always held.

    Attributes:
        changing: predicates that attempts changed, with the number of their arguments.
        groups, limits, orders: see above.
        together: of each place those that some object had beside it.
    """

    changing: Mapping[str, int]
    groups: tuple[Group, ...]
    limits: tuple[Place, ...]
    orders: tuple[str, ...]
    together: Mapping[Place, frozenset[Place]]


# --- learning


def learn_invariants(demonstrations: Demonstrations) -> Invariants:
    """Return what held in all states of demonstrations."""
    changes = [atom for _, attempt in demonstrations.attempts if attempt.after is not None
               for atom in attempt.state ^ attempt.after]  # fmt: skip
    changing = {atom.predicate: len(atom.arguments) for atom in sorted(changes)}  # in one order for every process
    places = [(name, place) for name, arity in sorted(changing.items()) for place in range(ITS_PLACE, arity)]
    together, rows = defaultdict[Place, set[Place]](set), dict[tuple[frozenset[Place], tuple[int, ...]], None]()
    for trajectory in demonstrations.trajectories:
        states = _states(trajectory)
        had = _places_of(atom for state in states for atom in state)
        for own in had.values():
            for place in own:
                together[place] |= own
        for state in states:
            counted = _counts(state, places)
            rows |= {(frozenset(own), counted.get(name, (0,) * len(places))): None for name, own in had.items()}
    counts = np.array([counted for _, counted in rows], np.int64).reshape(len(rows), len(places))
    known = sorted({place for own, _ in rows for place in own})
    is_at = np.array([[place in own for place in known] for own, _ in rows], bool).reshape(len(rows), len(known))
    seen = [state for trajectory in demonstrations.trajectories for state in _states(trajectory)]
    return Invariants(
        changing=changing,
        groups=tuple(_groups(places, counts, known, is_at)),
        limits=tuple(place for place, own in zip(places, counts.T, strict=True) if own.max(initial=0) == 1),
        orders=tuple(name for name, arity in changing.items() if arity == 2 and _leads_on(name, seen)),
        together={place: frozenset(own) for place, own in together.items()},
    )


def _states(trajectory: Trajectory) -> list[State]:
    found = (state for attempt in trajectory.attempts for state in (attempt.state, attempt.after))
    return list(dict.fromkeys(state for state in found if state is not None))


def _places_of(atoms: Iterable[Atom]) -> dict[str, set[Place]]:
    """Return the places of each object, and those of nobody."""
    found = defaultdict[str, set[Place]](set)
    for atom in atoms:
        for place, name in _parts(atom):
            found[name].add((atom.predicate, place))
    return found


def _parts(atom: Atom) -> Iterator[tuple[int, str]]:
    return enumerate((NOBODY, *atom.arguments), ITS_PLACE)


def _counts(state: State, places: Sequence[Place]) -> dict[str, tuple[int, ...]]:
    """Return of each object how many atoms have it at each place."""
    column, found = {place: number for number, place in enumerate(places)}, dict[str, list[int]]()
    for atom in state:
        for place, name in _parts(atom):
            if (atom.predicate, place) in column:
                found.setdefault(name, [0] * len(places))[column[atom.predicate, place]] += 1
    return {name: tuple(own) for name, own in found.items()}


def _groups(
    places: Sequence[Place], counts: NDArray[np.int64], known: Sequence[Place], is_at: NDArray[np.bool_]
) -> Iterator[Group]:
    """Yield the groups, each with every place whose objects were always in it.

    Args:
        places: (P,) that patterns are made of.
        counts: (R, P) atoms of an object in a state by place.
        known: (K,) places that an object may have been seen at.
        is_at: (R, K) whether the object of a row ever was.
    """
    for size in range(1, MOST_PATTERNS + 1):
        for chosen in combinations(range(len(places)), size):
            own = [places[number] for number in chosen]
            if len({name for name, _ in own}) < size or len({place == ITS_PLACE for _, place in own}) > 1:
                continue
            is_other = counts[:, chosen].sum(axis=1) != 1
            holds = ~(is_other[:, None] & is_at).any(axis=0)
            guards = frozenset(place for place, does in zip(known, holds, strict=True) if does)
            rows = is_at[:, holds].any(axis=1)
            if guards and counts[rows][:, chosen].any(axis=0).all():
                yield Group(tuple(own), guards)


def _leads_on(name: str, states: Iterable[State]) -> bool:
    """Return whether a relation has steps one after another, and never any back to where it began."""
    is_chain = False
    for state in states:
        pairs = [atom.arguments for atom in state if atom.predicate == name]
        if _cycle(pairs):
            return False
        is_chain |= bool({first for first, _ in pairs} & {second for _, second in pairs})
    return is_chain


def _cycle(pairs: Iterable[tuple[str, ...]]) -> list[str]:
    """Return objects, each related to the next, that lead back to the first; empty where none do."""
    after = defaultdict[str, list[str]](list)
    for first, second in pairs:
        after[second].append(first)
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


# --- the nearest state


def nearest_problem(invariants: Invariants, domain: Domain, problem: Problem) -> Problem | None:
    """Return a problem with the initial state that differs least from its own and fits; None where none was found.

    What demonstrations never changed stays. The goal tells what objects are, and nothing else.
    """
    declared = {schema.name for schema in domain.predicates}
    goal = [part.atom for part in conjuncts_of(problem.goal) if isinstance(part, Literal)]
    places = _places_of([*problem.init, *goal])
    atoms = list(_possible(invariants, declared, [typed.name for typed in problem.objects], places))
    atoms += [atom for atom in problem.init if atom.predicate in invariants.changing and atom not in set(atoms)]
    if not atoms:
        return problem
    said = set(problem.init)
    program = _Program(atoms, said)
    for group in invariants.groups:
        is_whole = all(name in declared for name, _ in group.places)
        for name in [name for name, own in places.items() if own & group.guards]:
            program.require(group.places, name, at_least=int(is_whole))
    for place in invariants.limits:
        for name in places:
            program.require((place,), name, at_least=0)
    chosen = program.solved(invariants.orders)
    if chosen is None:
        return None
    kept = [atom for atom in problem.init if atom.predicate not in invariants.changing or atom in chosen]
    return replace(problem, init=(*kept, *sorted(chosen - said)))


def _possible(
    invariants: Invariants, declared: Collection[str], objects: Sequence[str], places: Mapping[str, set[Place]]
) -> Iterator[Atom]:
    """Yield the atoms that could hold: each object where others were that were seen at all of its places."""
    everywhere = frozenset(invariants.together)
    could = {
        name: everywhere.intersection(*(invariants.together.get(place, everywhere) for place in places.get(name, ())))
        for name in objects
    }
    for name, arity in invariants.changing.items():
        if name in declared:
            of_place = ([own for own in objects if (name, place) in could[own]] for place in range(arity))
            yield from (Atom(name, arguments) for arguments in product(*of_place))


class _Program:
    """The fewest changes of a state, as an integer program over the atoms that could hold.

    Args:
        atoms: N of them.
        said: those that hold by what was seen.
    """

    def __init__(self, atoms: Sequence[Atom], said: Collection[Atom]) -> None:
        self._atoms = atoms
        self._price = np.array([-1.0 if atom in said else 1.0 for atom in atoms])
        self._number = {atom: number for number, atom in enumerate(atoms)}
        self._at = defaultdict[tuple[str, Place], list[int]](list)
        for number, atom in enumerate(atoms):
            for place, name in _parts(atom):
                self._at[name, (atom.predicate, place)].append(number)
        self._rows: dict[tuple[tuple[int, ...], int, int], None] = {}

    def require(self, places: Sequence[Place], name: str, *, at_least: int) -> None:
        """Let one atom at most have an object at these places, and so many at least; none where none could."""
        own = tuple(number for place in places for number in self._at.get((name, place), ()))
        if own:
            self._rows[own, at_least, 1] = None

    def solved(self, orders: Sequence[str]) -> set[Atom] | None:
        """Return the atoms that hold; a relation that may not lead back is cut where it does, and all solved again."""
        while True:
            constraints = self._constraints()
            answer = milp(self._price, integrality=np.ones(len(self._atoms)), bounds=(0, 1), constraints=constraints,
                          options={"time_limit": SECONDS})  # fmt: skip
            if answer.x is None:
                return None
            chosen = {atom for atom, value in zip(self._atoms, answer.x, strict=True) if value > 0.5}
            cuts = [cut for name in orders if (cut := self._cut(name, chosen))]
            if not cuts:
                return chosen
            self._rows |= {(cut, 0, len(cut) - 1): None for cut in cuts}

    def _constraints(self) -> list[LinearConstraint]:
        if not self._rows:
            return []
        columns = [number for own, *_ in self._rows for number in own]
        rows = [row for row, (own, *_) in enumerate(self._rows) for _ in own]
        shape = (len(self._rows), len(self._atoms))
        matrix = csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)
        return [LinearConstraint(matrix, [low for _, low, _ in self._rows], [high for *_, high in self._rows])]

    def _cut(self, name: str, chosen: Collection[Atom]) -> tuple[int, ...]:
        found = _cycle(atom.arguments for atom in chosen if atom.predicate == name)
        return tuple(self._number[Atom(name, pair)] for pair in pairwise(found))

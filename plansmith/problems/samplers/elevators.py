"""Elevators problems: slow elevators within areas of a building, fast ones between distant floors.

As in the original, the objects of type ``count`` are floors and numbers of passengers at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from plansmith.pddl.model import Atom, Number, Problem
from plansmith.problems.building import atom, build_problem, numbered

SLOW_START_COST, FAST_START_COST = 5, 1
SLOW_FLOOR_COST, FAST_FLOOR_COST = 1, 3


@dataclass(frozen=True, slots=True)
class _Elevator:
    name: str
    is_fast: bool
    reachable: tuple[int, ...]
    """Floors, ascending."""


def sample(rng: random.Random, *, floors: int, areas: int, slow_per_area: int, fast: int, passengers: int) -> Problem:
    """Return a problem in which every passenger wants to another floor.

    Solvable: areas next to each other share a floor and each has a slow elevator, all elevators are empty and hold
    somebody, so a passenger gets anywhere by slow elevators alone.
    """
    counts = numbered("n", max(floors, 3), start=0)
    elevators = [
        *_slow_elevators(_areas(len(counts), areas, rng), max(slow_per_area, 1)),
        *_fast_elevators(len(counts), fast, rng),
    ]
    people = numbered("p", passengers, start=0)
    trips = [rng.sample(counts, 2) for _ in people]
    init = [atom("next", low, high) for low, high in pairwise(counts)]
    init += [atom("above", low, high) for low, high in combinations(counts, 2)]
    init += [fact for facts in _elevator_facts(elevators, counts, rng) for fact in facts]
    init += [atom("passenger-at", person, start) for person, (start, _) in zip(people, trips, strict=True)]
    objects = {
        "count": counts,
        "passenger": people,
        "slow-elevator": [elevator.name for elevator in elevators if not elevator.is_fast],
        "fast-elevator": [elevator.name for elevator in elevators if elevator.is_fast],
    }
    goal = [atom("passenger-at", person, end) for person, (_, end) in zip(people, trips, strict=True)]
    values = _travel_costs(elevators, counts)
    return build_problem("elevators", objects, init, goal, values=values, metric="total-cost")


def _areas(n_floors: int, n_areas: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Return the floors of each area; the topmost floor of one is the lowest of the next."""
    n_areas = max(1, min(n_areas, n_floors - 1))
    cuts = [0, *sorted(rng.sample(range(1, n_floors - 1), n_areas - 1)), n_floors - 1]
    return [tuple(range(low, high + 1)) for low, high in pairwise(cuts)]


def _slow_elevators(areas: Sequence[tuple[int, ...]], per_area: int) -> list[_Elevator]:
    return [
        _Elevator(f"slow{place}-{number}", False, area)
        for place, area in enumerate(areas)
        for number in range(per_area)
    ]


def _fast_elevators(n_floors: int, n_elevators: int, rng: random.Random) -> list[_Elevator]:
    """Return elevators that all stop at the same floors, from the lowest one in equal steps."""
    step = rng.randint(2, max(2, (n_floors - 1) // 2))
    return [_Elevator(name, True, tuple(range(0, n_floors, step))) for name in numbered("fast", n_elevators, start=0)]


def _elevator_facts(elevators: Sequence[_Elevator], counts: Sequence[str], rng: random.Random) -> list[list[Atom]]:
    """Return what holds of each elevator; as in the original, all of a kind hold as many, the fast ones more."""
    slow_capacity = rng.randint(1, min(3, len(counts) - 1))
    fast_capacity = min(slow_capacity + rng.randint(1, 2), len(counts) - 1)
    return [
        [
            atom("lift-at", elevator.name, counts[rng.choice(elevator.reachable)]),
            atom("passengers", elevator.name, counts[0]),
            *(atom("reachable-floor", elevator.name, counts[floor]) for floor in elevator.reachable),
            *(
                atom("can-hold", elevator.name, count)
                for count in counts[1 : 1 + (fast_capacity if elevator.is_fast else slow_capacity)]
            ),
        ]
        for elevator in elevators
    ]


def _travel_costs(elevators: Sequence[_Elevator], counts: Sequence[str]) -> dict[Atom, Number]:
    """Return the cost of each ride that an elevator can make: starting up, and each floor."""
    values: dict[Atom, Number] = {atom("total-cost"): 0}
    for elevator in elevators:
        for low, high in combinations(elevator.reachable, 2):
            if elevator.is_fast:
                ride, cost = "travel-fast", FAST_START_COST + FAST_FLOOR_COST * (high - low)
            else:
                ride, cost = "travel-slow", SLOW_START_COST + SLOW_FLOOR_COST * (high - low)
            values[atom(ride, counts[low], counts[high])] = cost
    return values

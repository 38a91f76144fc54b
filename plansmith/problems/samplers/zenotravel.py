"""Zenotravel problems: people and aircraft in cities; flying burns fuel, fast flying twice as much."""

from __future__ import annotations

import random
from itertools import pairwise

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered

PERSON_GOAL_CHANCE, AIRCRAFT_GOAL_CHANCE = 0.9, 0.4


def sample(rng: random.Random, *, aircraft: int, people: int, cities: int, fuel_levels: int) -> Problem:
    """Return a problem with uniform, independent cities; most people and some aircraft have a place to be.

    Solvable with an aircraft and two fuel levels: an aircraft flies between any two cities, refuels everywhere, and
    carries any number of people; aircraft with a destination of their own go there last.
    """
    planes, persons = numbered("plane", max(aircraft, 1)), numbered("person", people)
    towns = numbered("city", cities, start=0)
    levels = numbered("fl", max(fuel_levels, 2), start=0)
    init = [atom("at", name, rng.choice(towns)) for name in planes + persons]
    init += [atom("fuel-level", plane, rng.choice(levels)) for plane in planes]
    init += [atom("next", low, high) for low, high in pairwise(levels)]
    kinds = {"aircraft": planes, "person": persons, "city": towns, "flevel": levels}
    init += [atom(kind, name) for kind, names in kinds.items() for name in names]
    wanted = [name for name in persons if rng.random() < PERSON_GOAL_CHANCE]
    wanted += [name for name in planes if rng.random() < AIRCRAFT_GOAL_CHANCE]
    goal = [atom("at", name, rng.choice(towns)) for name in wanted]
    return build_problem("zenotravel", planes + persons + towns + levels, init, goal)

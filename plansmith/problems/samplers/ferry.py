"""Ferry problems: cars at places, a ferry that takes one car at a time; every car has a place to go to."""

from __future__ import annotations

import random

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, cars: int, locations: int) -> Problem:
    """Return a problem; start and destination of each car and the ferry's place are uniform and independent."""
    names, places = numbered("car", cars), numbered("loc", locations)
    init = [atom("empty-ferry"), atom("at-ferry", rng.choice(places))]
    init += [atom("at", car, rng.choice(places)) for car in names]
    goal = [atom("at", car, rng.choice(places)) for car in names]
    return build_problem("ferry", {"car": names, "location": places}, init, goal)

"""Miconic problems: a lift, and passengers who wait on one floor and want to go to another."""

from __future__ import annotations

import random
from itertools import combinations

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, passengers: int, floors: int) -> Problem:
    """Return a problem in which all passengers are to be served.

    Solvable: the lift goes from any floor to any other and takes all passengers.
    """
    people, storeys = numbered("p", passengers), numbered("f", max(2, floors))
    init = [atom("lift-at", rng.choice(storeys))]
    init += [atom("above", lower, upper) for lower, upper in combinations(storeys, 2)]
    for person in people:
        start, end = rng.sample(storeys, 2)
        init += [atom("origin", person, start), atom("destin", person, end)]
    goal = [atom("served", person) for person in people]
    return build_problem("miconic", {"passenger": people, "floor": storeys}, init, goal)

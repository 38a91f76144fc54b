"""Transport problems: packages to be carried over a random road network by vehicles with little room."""

from __future__ import annotations

import random
from itertools import pairwise

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph


def sample(
    rng: random.Random, *, vehicles: int, packages: int, locations: int, capacity: int, extra_roads: int
) -> Problem:
    """Return a problem in which every package has another place to go to.

    Solvable: the roads connect all places in both directions and each vehicle has room for one package at least.
    """
    if vehicles < 1:
        raise ValueError("no vehicle carries a package")
    places, sizes = numbered("loc", max(2, locations)), numbered("size", capacity + 1, start=0)
    fleet, freight = numbered("vehicle", vehicles), numbered("package", packages)
    roads = random_connected_graph(places, extra_roads, rng)
    init = [atom("road", *ends) for road in roads for ends in (road, road[::-1])]
    init += [atom("capacity-predecessor", lower, upper) for lower, upper in pairwise(sizes)]
    for vehicle in fleet:
        init += [atom("at", vehicle, rng.choice(places)), atom("capacity", vehicle, rng.choice(sizes[1:]))]
    routes = {package: rng.sample(places, 2) for package in freight}
    init += [atom("at", package, start) for package, (start, _) in routes.items()]
    goal = [atom("at", package, end) for package, (_, end) in routes.items()]
    objects = {"vehicle": fleet, "package": freight, "location": places, "size": sizes}
    return build_problem("transport", objects, init, goal)

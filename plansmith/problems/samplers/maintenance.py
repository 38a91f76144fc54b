"""Maintenance problems: planes visit airports on given days; each day the mechanics work at one of the airports."""

from __future__ import annotations

import random
from itertools import product

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, days: int, airports: int, planes: int, visits: int) -> Problem:
    """Return a problem; where and when each plane is, is drawn uniformly, but once where a hidden schedule has it.

    All problems are solvable: the hidden schedule, an airport for each day, meets every plane at least once.

    Args:
        rng: source of all choices.
        days: days on which the mechanics can work.
        airports: airports that planes visit.
        planes: planes, all to be maintained.
        visits: different pairs of day and airport at which a plane is, as many for each plane; reduced to as many as
            there are.
    """
    dates, towns, fleet = numbered("day", days), numbered("airport", airports), numbered("plane", planes)
    schedule = [(day, rng.choice(towns)) for day in dates]
    init = [atom("today", day) for day in dates]
    for plane in fleet:
        met = rng.choice(schedule)
        others = [pair for pair in product(dates, towns) if pair != met]
        chosen = [met, *rng.sample(others, min(visits - 1, len(others)))]
        init += [atom("at", plane, day, town) for day, town in chosen]
    objects = {"day": dates, "airport": towns, "plane": fleet}
    return build_problem("maintenance", objects, init, [atom("done", plane) for plane in fleet])

"""Spanner problems: a one-way path from the shed to the gate, spanners along it, nuts at its end."""

from __future__ import annotations

import random
from itertools import pairwise

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, spanners: int, nuts: int, locations: int) -> Problem:
    """Return a problem; each spanner lies at a place between shed and gate, uniform and independent.

    All problems are solvable: the man who takes every spanner on his way has at least one for each nut.

    Args:
        rng: source of all choices.
        spanners: spanners; raised to `nuts` where there are fewer.
        nuts: loose nuts at the gate, all to be tightened.
        locations: places between the shed, where the man starts, and the gate.
    """
    tools, bolts = numbered("spanner", max(spanners, nuts)), numbered("nut", nuts)
    between = numbered("location", locations)
    path = ["shed", *between, "gate"]
    init = [atom("at", "bob", "shed")]
    init += [atom("at", tool, rng.choice(between)) for tool in tools] + [atom("usable", tool) for tool in tools]
    init += [atom("at", nut, "gate") for nut in bolts] + [atom("loose", nut) for nut in bolts]
    init += [atom("link", start, end) for start, end in pairwise(path)]
    objects = {"man": ["bob"], "spanner": tools, "nut": bolts, "location": path}
    return build_problem("spanner", objects, init, [atom("tightened", nut) for nut in bolts])

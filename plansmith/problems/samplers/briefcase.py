"""Briefcase problems: things and a briefcase at places, each with a place to be at in the end."""

from __future__ import annotations

import random

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered

IN_BRIEFCASE = 1 / 3
"""Share of the things at the briefcase's place that lie in it at the start."""


def sample(rng: random.Random, *, objects: int, locations: int) -> Problem:
    """Return a problem; starts and destinations are uniform and independent.

    Solvable: the things can be carried one after another, and the briefcase last.
    """
    things, places = numbered("o", objects), numbered("l", locations)
    briefcase, starts = rng.choice(places), {thing: rng.choice(places) for thing in things}
    init = [atom("is-at", briefcase), *(atom("at", thing, place) for thing, place in starts.items())]
    here = [thing for thing, place in starts.items() if place == briefcase]
    init += [atom("in", thing) for thing in here if rng.random() < IN_BRIEFCASE]
    goal = [atom("is-at", rng.choice(places)), *(atom("at", thing, rng.choice(places)) for thing in things)]
    return build_problem("briefcase", {"portable": things, "location": places}, init, goal)

"""Reorganize-room problems: household items change furniture and are packed into containers that open and close."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from plansmith.pddl.model import Atom, Literal, Problem
from plansmith.problems.building import atom, build_problem, numbered
from plansmith.problems.library import random_names

_names = partial(random_names, "reorganize-room")

PACKED_CHANCE = 0.5
"""Probability that an item is in a container, at the start and in the goal."""


def sample(rng: random.Random, *, robots: int, furniture: int, containers: int, items: int, wanted: int) -> Problem:
    """Return a problem whose goal says where up to `wanted` items and containers are, and which of these are open.

    Solvable: every action can be undone and every robot reaches all furniture, so all items can be unpacked, all
    containers put in their places and all items packed again; a container can be opened or closed at any place.
    """
    boxes, things = (
        _names("containers", containers, rng),
        _names("items", items, rng),
    )
    places, arms = _names("furniture", furniture, rng), numbered("robot", robots)
    init: list[Atom] = [*_random_places(things, boxes, places, rng), *_random_places(boxes, [], places, rng)]
    init += [atom("opened", box) for box in boxes if rng.random() < 1 / 2]
    init += [atom("at", arm, rng.choice(places)) for arm in arms] + [atom("hand_free", arm) for arm in arms]
    everything = [*things, *boxes]
    chosen = rng.sample(everything, min(wanted, len(everything)))
    packed = [name for name in chosen if name in things]
    moved = [name for name in chosen if name in boxes]
    goal = [Literal(fact) for fact in _random_places(packed, boxes, places, rng)]
    goal += [Literal(fact) for fact in _random_places(moved, [], places, rng)]
    goal += [Literal(atom("opened", box), is_positive=rng.random() < 1 / 4) for box in moved]
    objects = {"robot": arms, "furniture": places, "container": boxes, "item": things}
    return build_problem("reorganize-room", objects, init, goal)


def _random_places(
    things: Sequence[str], containers: Sequence[str], furniture: Sequence[str], rng: random.Random
) -> list[Atom]:
    """Return a place for each thing: a container, if there are any to choose from, or a piece of furniture."""
    return [
        atom("inside", thing, rng.choice(containers))
        if containers and rng.random() < PACKED_CHANCE
        else atom("on-table", thing, rng.choice(furniture))
        for thing in things
    ]

"""Prepare-experiment problems: equipment in containers and on furniture is to be set up on one piece of furniture."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered
from plansmith.problems.library import random_names
from plansmith.problems.samplers.blocks_classic import Rests, goal_atoms, random_rests, resting_atoms, uncovered

_names = partial(random_names, "prepare-experiment")

INSIDE_CHANCE = 0.5
"""Probability that a piece of equipment is in a container at the start."""
OPENED_CHANCE = 0.25
"""Probability that a container which nothing stands on is open at the start."""
TAKE_OUT_CHANCE = 0.7
"""Probability that a move takes something out of a container, while there is something within reach."""


@dataclass
class Laboratory:
    """Where everything is while all containers are closed and no robot holds anything."""

    furniture: Sequence[str]
    platform: str
    """The piece of furniture on which the experiment is prepared."""
    inside: dict[str, str]
    """The container of each piece of equipment that is in one."""
    rests: Rests
    """What everything else rests on."""

    def move_randomly(self, rng: random.Random) -> None:
        """Take something out of a container (four steps, opening and closing it) or move it (two steps)."""
        free = uncovered(self.rests)
        within_reach = [thing for thing, container in self.inside.items() if container in free]
        thing = rng.choice(within_reach if within_reach and rng.random() < TAKE_OUT_CHANCE else free)
        container = self.inside.pop(thing, None)
        if container is None:
            targets = [*self.furniture, *free]
        else:
            targets = [self.platform, *(target for target in free if self._is_on_platform(target))]
        self.rests[thing] = rng.choice([target for target in targets if target not in (thing, container)])

    def _is_on_platform(self, thing: str) -> bool:
        while thing in self.rests:
            thing = self.rests[thing]
        return thing == self.platform


def sample(rng: random.Random, *, robots: int, furniture: int, containers: int, equipment: int, moves: int) -> Problem:
    """Return a problem whose goal is at most `moves` moves of one thing, four steps each, away from the start.

    Solvable: the goal is what random moves lead to; containers open at the start can be closed before the first of
    them. In the goal every container is closed.
    """
    vessels, things = (
        _names("containers", containers, rng),
        _names("equipment", equipment, rng),
    )
    places, arms = _names("furniture", furniture, rng), numbered("robot", robots)
    laboratory = _random_laboratory(vessels, things, places, rng)
    start = resting_atoms(laboratory.rests, places)
    free = uncovered(laboratory.rests)
    opened = [vessel for vessel in vessels if vessel in free and rng.random() < OPENED_CHANCE]
    init = [*start, *(atom("top", thing) for thing in free if thing not in opened)]
    init += [atom("inside", *pair) for pair in laboratory.inside.items()]
    init += [atom("opened" if vessel in opened else "closed", vessel) for vessel in vessels]
    for _ in range(moves):
        laboratory.move_randomly(rng)
    goal = goal_atoms(start, resting_atoms(laboratory.rests, places), rng)
    goal += [atom("closed", vessel) for vessel in vessels]
    objects = {"robot": arms, "furniture": places, "container": vessels, "equipment": things}
    return build_problem("prepare-experiment", objects, [*init, *(atom("hand_free", arm) for arm in arms)], goal)


def _random_laboratory(
    containers: Sequence[str], equipment: Sequence[str], furniture: Sequence[str], rng: random.Random
) -> Laboratory:
    inside = {thing: rng.choice(containers) for thing in equipment if rng.random() < INSIDE_CHANCE}
    outside = [*containers, *(thing for thing in equipment if thing not in inside)]
    return Laboratory(furniture, rng.choice(furniture), inside, random_rests(outside, furniture, rng))

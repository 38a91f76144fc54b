"""Robotic Blocksworld problems in which towers become other towers."""

from __future__ import annotations

import random
from collections.abc import Collection

from plansmith.pddl.model import Problem
from plansmith.problems.building import numbered
from plansmith.problems.samplers.blocks_classic import Rests, after_random_moves, blocks_problem, random_rests

LEAST_BLOCKS = 3
"""Of two blocks a single move makes no other tower."""


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem whose goal is at most `moves` moves of one block, two steps each, away from the start.

    At the start a block is on another, and the goal wants one on a block that it was not on. Solvable: the goal is what
    random moves lead to. `blocks` below three are raised to three, `moves` below one to one.
    """
    names, surfaces = numbered("b", max(blocks, LEAST_BLOCKS)), numbered("table", tables)
    while True:
        start = random_rests(names, surfaces, rng)
        goal = after_random_moves(start, surfaces, max(moves, 1), rng)
        before, after = _stacked(start, surfaces), _stacked(goal, surfaces)
        if before and after.items() - before.items():
            return blocks_problem((start, goal), surfaces, numbered("robot", robots), rng)


def _stacked(rests: Rests, surfaces: Collection[str]) -> Rests:
    """Return what blocks are on that are on others."""
    return {block: below for block, below in rests.items() if below not in surfaces}

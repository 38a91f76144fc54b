"""Robotic Blocksworld problems with long plans: 10 to 60 steps."""

from __future__ import annotations

import random

from plansmith.pddl.model import Problem
from plansmith.problems.building import numbered
from plansmith.problems.samplers.blocks_classic import blocks_problem, random_rearrangement

LEAST_MOVED_BLOCKS = 5
"""Blocks that rest elsewhere in the goal; each needs two steps at least, and the goal names them all."""


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem whose shortest plan has 10 to ``2 * moves`` steps.

    Solvable: the goal is what random moves lead to, from the start or backwards. `blocks` below six and `moves` below
    five are raised to these numbers, without which no problem is long enough.
    """
    names, surfaces = numbered("b", max(blocks, LEAST_MOVED_BLOCKS + 1)), numbered("table", tables)
    while True:
        start, goal = random_rearrangement(names, surfaces, max(moves, LEAST_MOVED_BLOCKS), rng)
        if sum(start[block] != goal[block] for block in names) >= LEAST_MOVED_BLOCKS:
            return blocks_problem((start, goal), surfaces, numbered("robot", robots), rng)

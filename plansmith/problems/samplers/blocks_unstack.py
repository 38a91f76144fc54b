"""Robotic Blocksworld problems in which towers are taken apart, until every block is on a table."""

from __future__ import annotations

import random

from plansmith.pddl.model import Problem
from plansmith.problems.building import numbered
from plansmith.problems.samplers.blocks_classic import blocks_problem
from plansmith.problems.samplers.blocks_stack import flat_and_stacked


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem in which at most `moves` blocks, two steps each, are put from others onto tables.

    Solvable: it is a problem of `blocks_stack` backwards. `blocks` below two are raised to two.
    """
    names, surfaces = numbered("b", max(blocks, 2)), numbered("table", tables)
    flat, stacked = flat_and_stacked(names, surfaces, moves, rng)
    return blocks_problem((stacked, flat), surfaces, numbered("robot", robots), rng)

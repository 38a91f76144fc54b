"""Robotic Blocksworld problems in which single blocks on tables are stacked to towers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from plansmith.pddl.model import Problem
from plansmith.problems.building import numbered
from plansmith.problems.samplers.blocks_classic import Rests, after_random_stacking, blocks_problem


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem in which at most `moves` blocks, two steps each, are put on others.

    Solvable: the goal is what random moves lead to. `blocks` below two are raised to two.
    """
    names, surfaces = numbered("b", max(blocks, 2)), numbered("table", tables)
    return blocks_problem(flat_and_stacked(names, surfaces, moves, rng), surfaces, numbered("robot", robots), rng)


def flat_and_stacked(
    things: Sequence[str], surfaces: Sequence[str], moves: int, rng: random.Random
) -> tuple[Rests, Rests]:
    """Return single things on surfaces, and what they are after so many of them, at most, were put on others."""
    flat = {thing: rng.choice(surfaces) for thing in things}
    return flat, after_random_stacking(flat, surfaces, moves, rng)

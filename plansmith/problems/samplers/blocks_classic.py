"""Robotic Blocksworld problems: blocks are stacked, unstacked or put in another order, over a bounded number of moves.

What other domains with towers on furniture share is here too: rearranging them, and choosing what the goal names.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered
from plansmith.problems.samplers.blocksworld import random_towers

Rests = dict[str, str]
"""What each thing rests on: another thing, or a surface such as a table."""

RESTING_GOAL_CHANCE = 0.5
"""Share of the facts that do not change and yet are named in the goal."""


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem whose goal is at most `moves` moves of one block, two steps each, away from the start.

    Solvable: the goal is what random moves lead to, from the start or backwards.
    """
    names, surfaces = numbered("b", blocks), numbered("table", tables)
    start, goal = random_rearrangement(names, surfaces, moves, rng)
    return blocks_problem((start, goal), surfaces, numbered("robot", robots), rng)


def blocks_problem(
    start_and_goal: tuple[Rests, Rests], tables: Sequence[str], robots: Sequence[str], rng: random.Random
) -> Problem:
    """Return the problem between two arrangements of blocks on tables."""
    if not robots:
        raise ValueError("no robot moves a block")
    start, goal = start_and_goal
    init = [*resting_atoms(start, tables), *(atom("top", block) for block in uncovered(start))]
    init += [atom("obj", block) for block in start] + [atom("table", table) for table in tables]
    init += [atom(predicate, robot) for robot in robots for predicate in ("robot", "hand_free")]
    wanted = goal_atoms(resting_atoms(start, tables), resting_atoms(goal, tables), rng)
    return build_problem("blocks-classic", [*start, *tables, *robots], init, wanted)


def random_rearrangement(
    things: Sequence[str], surfaces: Sequence[str], moves: int, rng: random.Random
) -> tuple[Rests, Rests]:
    """Return start and goal of a task to stack, to unstack or to reorder, each of the three equally likely."""
    kind = rng.choice(["stack", "unstack", "reorder"])
    if kind == "reorder":
        start = random_rests(things, surfaces, rng)
        return start, after_random_moves(start, surfaces, moves, rng)
    flat = {thing: rng.choice(surfaces) for thing in things}
    stacked = after_random_stacking(flat, surfaces, moves, rng)
    return (flat, stacked) if kind == "stack" else (stacked, flat)


def random_rests(things: Sequence[str], surfaces: Sequence[str], rng: random.Random) -> Rests:
    """Return towers uniform over all arrangements, each on a random surface; keys in the order of `things`."""
    rests: Rests = {}
    for tower in random_towers(things, rng):
        rests |= zip(tower, [rng.choice(surfaces), *tower[:-1]], strict=True)
    return {thing: rests[thing] for thing in things}


def after_random_moves(rests: Rests, surfaces: Sequence[str], moves: int, rng: random.Random) -> Rests:
    """Return the arrangement after random moves of an uncovered thing onto another one or to another surface."""
    rests = dict(rests)
    for _ in range(moves):
        free = uncovered(rests)
        thing = rng.choice(free)
        targets = [target for target in [*free, *surfaces] if target not in (thing, rests[thing])]
        if targets:
            rests[thing] = rng.choice(targets)
    return rests


def after_random_stacking(rests: Rests, surfaces: Sequence[str], moves: int, rng: random.Random) -> Rests:
    """Return the arrangement after single things were put on others, each once."""
    rests = dict(rests)
    for _ in range(min(moves, len(rests) - 1)):
        free = uncovered(rests)
        single = [thing for thing in free if rests[thing] in surfaces]
        if not single or len(free) == 1:
            break
        thing = rng.choice(single)
        rests[thing] = rng.choice([target for target in free if target != thing])
    return rests


def uncovered(rests: Rests) -> list[str]:
    """Return the things that nothing rests on."""
    covered = set(rests.values())
    return [thing for thing in rests if thing not in covered]


def resting_atoms(rests: Rests, surfaces: Sequence[str]) -> list[Atom]:
    """Return ``on-table`` for what rests on a surface, ``above`` for what rests on another thing."""
    return [atom("on-table" if below in surfaces else "above", thing, below) for thing, below in rests.items()]


def goal_atoms(start: Sequence[Atom], end: Sequence[Atom], rng: random.Random) -> list[Atom]:
    """Return everything that is new at the end, and some of what was so from the start."""
    return [fact for fact in end if fact not in start or rng.random() < RESTING_GOAL_CHANCE]

"""Robotic Blocksworld problems with orientation: towers, facing blocks, and pairs of blocks side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered
from plansmith.problems.samplers.blocks_classic import Rests, goal_atoms, resting_atoms, uncovered

DIRECTIONS = ("north", "east", "south", "west")
TURN_CHANCE = 0.5
"""Probability that a moved block is turned before it is put on a table or on another block."""


@dataclass
class Arrangement:
    """Where blocks rest, which way they face and which stand side by side, while no robot holds any."""

    tables: Sequence[str]
    rests: Rests
    facing: dict[str, str]
    beside: dict[str, str] = field(default_factory=dict)
    """The partner of each block of an aligned pair, in both directions."""

    def move_randomly(self, rng: random.Random) -> None:
        """Move an uncovered block onto a table or a block, or beside one: at most four steps, two of them turns."""
        free = uncovered(self.rests)
        block = rng.choice(free)
        partner = self.beside.pop(block, None)
        if partner is not None:
            del self.beside[partner]
        single = [other for other in self.rests if other not in (block, *self.beside) and self._is_on_table(other)]
        place = rng.choice(["table", *(["block"] if len(free) > 1 else []), *(["beside"] if single else [])])
        if place == "beside":
            self._align(block, rng.choice(single))
            return
        targets = self.tables if place == "table" else [other for other in free if other != block]
        self.rests[block] = rng.choice(targets)
        if rng.random() < TURN_CHANCE:
            self.facing[block] = rng.choice(DIRECTIONS)

    def _is_on_table(self, block: str) -> bool:
        return self.rests[block] in self.tables

    def _align(self, block: str, other: str) -> None:
        self.rests[block], self.facing[block] = self.rests[other], self.facing[other]
        self.beside |= {block: other, other: block}

    def facts(self) -> list[Atom]:
        """Return the atoms that a goal may name."""
        facing = [atom("facing", block, direction) for block, direction in self.facing.items()]
        aligned = [atom("aligned", block, other) for block, other in self.beside.items()]
        return [*resting_atoms(self.rests, self.tables), *facing, *aligned]


def sample(rng: random.Random, *, blocks: int, tables: int, robots: int, moves: int) -> Problem:
    """Return a problem whose goal is at most `moves` moves of one block, four steps each, away from the start.

    Solvable: the goal is what random moves lead to from the start.
    """
    names, surfaces, arms = numbered("b", blocks), numbered("table", tables), numbered("robot", robots)
    start = _random_arrangement(names, surfaces, rng)
    end = deepcopy(start)
    for _ in range(moves):
        end.move_randomly(rng)
    init = [*start.facts(), *(atom("top", block) for block in uncovered(start.rests))]
    init += [atom("nothing_beside", block) for block in names if block not in start.beside]
    init += [atom("obj", block) for block in names] + [atom("table", table) for table in surfaces]
    init += [atom(predicate, robot) for robot in arms for predicate in ("robot", "hand_free")]
    goal = goal_atoms(start.facts(), end.facts(), rng)
    return build_problem("blocks-align", [*names, *surfaces, *arms, *DIRECTIONS], [*init, *_quarter_turns()], goal)


def _random_arrangement(blocks: Sequence[str], tables: Sequence[str], rng: random.Random) -> Arrangement:
    """Return what two random moves for each block make of single blocks on tables."""
    rests = {block: rng.choice(tables) for block in blocks}
    arrangement = Arrangement(tables, rests, {block: rng.choice(DIRECTIONS) for block in blocks})
    for _ in range(2 * len(blocks)):
        arrangement.move_randomly(rng)
    return arrangement


def _quarter_turns() -> list[Atom]:
    after = dict(zip(DIRECTIONS, [*DIRECTIONS[1:], DIRECTIONS[0]], strict=True))
    return [atom("quarter-turn", *pair) for one, other in after.items() for pair in ((one, other), (other, one))]

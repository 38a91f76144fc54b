"""Blocksworld problems with any number of blocks.

Initial and goal arrangements are uniform over all states of the blocks on the table: towers are drawn with the counting
recurrence of Slaney and Thiebaux (Blocks World revisited, Artificial Intelligence 125, 2001, sec. 3). Or the goal is a
few random moves away from the initial arrangement: short plans, and goals that hold from the start. The goal names the
``on`` atoms of its arrangement, as PlanBench's generator does; a goal that names none or already holds is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from plansmith.errors import ConfigError
from plansmith.pddl.model import Atom, Conjunction, Literal, Problem, TypedName
from plansmith.problems.building import numbered

DOMAIN_NAME = "blocksworld"
Towers = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class BlocksworldSampler:
    """Draws problems of `n_blocks` blocks whose names come from `names`.

    Without `goal_moves` the goal is independent of the initial arrangement; with it, so many moves of one block each
    lead from one to the other.
    """

    n_blocks: int
    names: tuple[str, ...]
    goal_moves: int | None = None

    def __post_init__(self) -> None:
        n_names = len(set(self.names))
        if not 2 <= self.n_blocks <= n_names:
            raise ConfigError("cannot name the blocks", got=f"{self.n_blocks} blocks and {n_names} names",
                              expected="from 2 blocks to as many as there are names", cure="add names")  # fmt: skip

    def sample(self, rng: random.Random) -> Problem:
        """Return one problem; equal states of `rng` give equal problems."""
        blocks = rng.sample(list(dict.fromkeys(self.names)), self.n_blocks)
        while True:
            init = random_towers(blocks, rng)
            goal = random_towers(blocks, rng) if self.goal_moves is None else moved_towers(init, self.goal_moves, rng)
            wanted = on_atoms(goal)
            if wanted and not set(wanted) <= set(on_atoms(init)):
                return blocksworld_problem(blocks, init, wanted, rng)


def sample(rng: random.Random, *, blocks: int) -> Problem:
    """Return a problem with independent arrangements at the start and in the goal."""
    return BlocksworldSampler(blocks, tuple(numbered("b", blocks))).sample(rng)


def blocksworld_problem(blocks: Sequence[str], init: Towers, goal: Sequence[Atom], rng: random.Random) -> Problem:
    """Return the problem with its atoms in random order, so that the order tells nothing."""
    facts = [*on_atoms(init), *(Atom("ontable", (tower[0],)) for tower in init)]
    facts += [Atom("clear", (tower[-1],)) for tower in init] + [Atom("handempty")]
    rng.shuffle(facts)
    goal = rng.sample(list(goal), len(goal))
    return Problem(
        name=f"blocksworld-{len(blocks)}",
        domain_name=DOMAIN_NAME,
        objects=tuple(TypedName(name) for name in sorted(blocks)),
        init=tuple(facts),
        goal=Conjunction(tuple(Literal(atom) for atom in goal)),
    )


def on_atoms(towers: Towers) -> list[Atom]:
    """Return the ``on`` atoms of towers given from the table upwards."""
    return [Atom("on", (upper, lower)) for tower in towers for lower, upper in pairwise(tower)]


def random_towers(blocks: Sequence[str], rng: random.Random) -> Towers:
    """Return towers drawn uniformly over all arrangements of `blocks`.

    Blocks are placed one after another on the table or on a tower; `_completions` counts the arrangements that each
    choice leaves, so the choices are weighted exactly.
    """
    order = rng.sample(list(blocks), len(blocks))
    grounded: list[list[str]] = []
    floating: list[list[str]] = [[block] for block in order]
    while floating:
        tower = floating.pop()
        to_table = _completions(len(floating), len(grounded) + 1)
        total = _completions(len(floating) + 1, len(grounded))
        if rng.randrange(total) < to_table:
            grounded.append(tower)
        else:
            targets = grounded + floating
            targets[rng.randrange(len(targets))].extend(tower)
    return tuple(tuple(tower) for tower in grounded)


def moved_towers(towers: Towers, n_moves: int, rng: random.Random) -> Towers:
    """Return towers after random moves of a top block to another tower or to the table."""
    for _ in range(n_moves):
        source = rng.choice(towers)
        others = [tower for tower in towers if tower is not source]
        target = rng.choice([(), *others])
        rest = [tower for tower in others if tower is not target]
        towers = tuple(tower for tower in (*rest, source[:-1], (*target, source[-1])) if tower)
    return towers


@cache
def _completions(floating: int, grounded: int) -> int:
    """Return how many arrangements remain for so many floating and grounded towers (Slaney and Thiebaux, eq. 1)."""
    if floating == 0:
        return 1
    onto_towers = (floating - 1 + grounded) * _completions(floating - 1, grounded) if floating + grounded > 1 else 0
    return _completions(floating - 1, grounded + 1) + onto_towers

"""Snake problems: a rectangular board, a snake of two fields, points that lie there and points that appear later."""

from __future__ import annotations

import random

from plansmith.pddl.model import Atom, Literal, Problem
from plansmith.problems.building import atom, build_problem

Field = tuple[int, int]
"""Row and column."""

NO_POINT = "dummypoint"
"""The constant that ends the sequence of points that appear."""


def sample(rng: random.Random, *, rows: int, columns: int, points: int, spawns: int) -> Problem:
    """Return a problem; all points are eaten by going round and round a cycle, so it is solvable.

    The snake lies along a cycle through all fields, or all but a corner where the board has an odd number of them, and
    all points are on the cycle. The field before the head is free while the snake is shorter than the cycle, so there
    are at most as many points as fill it.

    Args:
        rng: the source of all choices.
        rows: rows of the board, at least 2.
        columns: columns of the board, at least 2.
        points: points at the start, at most.
        spawns: points that appear one by one, each when another is eaten, at most.
    """
    cycle = _turned(_cycle(rows, columns), rows, columns, rng)
    start = rng.randrange(len(cycle))
    snake = rng.sample([cycle[start - 1], cycle[start]], 2)
    free = [_name(field) for field in cycle if field not in snake]
    chosen = rng.sample(free, min(points + spawns, len(free)))
    init = _board(rows, columns) + _snake(*map(_name, snake)) + _spawns(chosen[points:])
    init += [atom("ispoint", point) for point in chosen[:points]]
    fields = [_name((row, column)) for row in range(rows) for column in range(columns)]
    return build_problem("snake", fields, init, [Literal(atom("ispoint", point), False) for point in chosen])


def _cycle(rows: int, columns: int) -> list[Field]:
    """Return a cycle through all fields, or all but a corner where both sides are odd.

    Along the rows and back, the first column left out, which is the way home. Of an odd number of rows the last two are
    taken together, up and down.
    """
    if rows % 2 and not columns % 2:
        return [(row, column) for column, row in _cycle(columns, rows)]
    n_single = rows if rows % 2 == 0 else rows - 2
    there = range(1, columns)
    path = [(row, column) for row in range(n_single) for column in (there if row % 2 == 0 else reversed(there))]
    if rows % 2:
        for column in reversed(there):
            pair = [(rows - 2, column), (rows - 1, column)]
            path += pair if column % 2 == 0 else reversed(pair)
    last = path[-1][0]
    return path + [(row, 0) for row in range(last, -1, -1)]


def _turned(cycle: list[Field], rows: int, columns: int, rng: random.Random) -> list[Field]:
    """Return the cycle mirrored at random."""
    if rng.random() < 0.5:
        cycle = [(rows - 1 - row, column) for row, column in cycle]
    if rng.random() < 0.5:
        cycle = [(row, columns - 1 - column) for row, column in cycle]
    return cycle


def _board(rows: int, columns: int) -> list[Atom]:
    across = [((row, column), (row, column + 1)) for row in range(rows) for column in range(columns - 1)]
    down = [((row, column), (row + 1, column)) for row in range(rows - 1) for column in range(columns)]
    pairs = [(_name(one), _name(other)) for one, other in across + down]
    return [atom("isadjacent", *pair) for one, other in pairs for pair in ((one, other), (other, one))]


def _snake(head: str, tail: str) -> list[Atom]:
    ends = [atom("headsnake", head), atom("nextsnake", head, tail), atom("tailsnake", tail)]
    return [*ends, atom("blocked", head), atom("blocked", tail)]


def _spawns(points: list[str]) -> list[Atom]:
    sequence = [*points, NO_POINT]
    following = zip(points, sequence[1:], strict=True)
    return [atom("spawn", sequence[0]), *(atom("nextspawn", point, after) for point, after in following)]


def _name(field: Field) -> str:
    return f"pos{field[0]}-{field[1]}"

"""Floor-tile problems: a grid of tiles to be painted, a row below it that stays bare, robots on some of the columns."""

from __future__ import annotations

import random

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

COLORS = ("white", "black")
MAX_ROWS_OF_TEAMS = 2
"""Rows to paint up to which there are several robots: in deeper fields satisficing planners seldom find out how."""


def sample(rng: random.Random, *, rows: int, columns: int, robots: int) -> Problem:
    """Return a problem: every tile above the lowest row gets a colour, as a chessboard or drawn tile by tile.

    Each robot starts on a column of its own. All problems are solvable: painted
    from the top row down, always from the row below, the bare rows below stay a connected field with room for all
    robots, in which some robot can reach every tile; any robot can take any colour.

    Args:
        rng: source of all choices.
        rows: rows to paint.
        columns: tiles of each row.
        robots: robots; reduced to `columns`, and to one where more than `MAX_ROWS_OF_TEAMS` rows are to be painted.
    """
    names = numbered("robot", min(robots, columns) if rows <= MAX_ROWS_OF_TEAMS else 1)
    tiles = [_tile(row, column) for row in range(rows + 1) for column in range(1, columns + 1)]
    starts = [_tile(rng.randint(0, rows), column) for column in rng.sample(range(1, columns + 1), len(names))]
    init = [atom("robot-at", robot, tile) for robot, tile in zip(names, starts, strict=True)]
    init += [atom("robot-has", robot, rng.choice(COLORS)) for robot in names]
    init += [atom("available-color", color) for color in COLORS]
    init += [atom("clear", tile) for tile in tiles if tile not in starts]
    init += _neighbours(rows, columns)
    return build_problem(
        "floor-tile", {"tile": tiles, "robot": names, "color": COLORS}, init, _pattern(rng, rows, columns)
    )


def _tile(row: int, column: int) -> str:
    return f"tile_{row}_{column}"


def _neighbours(rows: int, columns: int) -> list[Atom]:
    """Return which tile lies up, down, right and left of which; row 0 is the lowest, column 1 the leftmost."""
    atoms = []
    for row in range(rows + 1):
        for column in range(1, columns + 1):
            tile = _tile(row, column)
            if row < rows:
                above = _tile(row + 1, column)
                atoms += [atom("up", above, tile), atom("down", tile, above)]
            if column < columns:
                beside = _tile(row, column + 1)
                atoms += [atom("right", beside, tile), atom("left", tile, beside)]
    return atoms


def _pattern(rng: random.Random, rows: int, columns: int) -> list[Atom]:
    """Return the colour of every tile that is to be painted."""
    is_chessboard, first = rng.random() < 0.5, rng.randrange(2)
    goal = []
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            color = COLORS[(row + column + first) % 2] if is_chessboard else rng.choice(COLORS)
            goal.append(atom("painted", _tile(row, column), color))
    return goal

"""Parking problems: cars at curbs, one or two to a curb, to be parked in another arrangement."""

from __future__ import annotations

import random
from collections.abc import Sequence

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

Arrangement = dict[str, Sequence[str]]
"""The cars of each curb, the one at the curb first."""


def sample(rng: random.Random, *, curbs: int, cars: int) -> Problem:
    """Return a problem whose goal says where every car stands; both arrangements are drawn independently.

    All problems are solvable: with three curbs or more and two free places, every arrangement leads to every other.
    Moves can be taken back, so this holds if a goal can be built. Curb after curb is emptied, given its front car and
    then the one behind, the cars in the way being parked on the other curbs, two of which at least are needed to
    turn a pair round; that the last three curbs can be brought to any arrangement was counted out.

    Args:
        rng: source of all choices.
        curbs: curbs, at least 3.
        cars: cars; reduced to two fewer than there are places.
    """
    names, places = numbered("car", min(cars, 2 * (curbs - 1))), numbered("curb", curbs)
    start, end = _arrangement(rng, names, places), _arrangement(rng, names, places)
    init = _positions(start)
    init += [atom("at-curb", parked[0]) for parked in start.values() if parked]
    init += [atom("car-clear", parked[-1]) for parked in start.values() if parked]
    init += [atom("curb-clear", curb) for curb, parked in start.items() if not parked]
    objects = {"car": names, "curb": places}
    return build_problem("parking", objects, init, _positions(end), values={atom("total-cost"): 0}, metric="total-cost")


def _arrangement(rng: random.Random, cars: Sequence[str], curbs: Sequence[str]) -> Arrangement:
    """Return the cars on random curbs; how many curbs have two cars is uniform over what is possible."""
    n_pairs = rng.randint(max(0, len(cars) - len(curbs)), len(cars) // 2)
    order, places = rng.sample(cars, len(cars)), rng.sample(curbs, len(curbs))
    pairs = [order[2 * i : 2 * i + 2] for i in range(n_pairs)]
    rows = pairs + [[car] for car in order[2 * n_pairs :]]
    rows += [[] for _ in range(len(curbs) - len(rows))]
    return dict(zip(places, rows, strict=True))


def _positions(arrangement: Arrangement) -> list[Atom]:
    """Return which car stands at which curb and which car behind which."""
    atoms = [atom("at-curb-num", parked[0], curb) for curb, parked in arrangement.items() if parked]
    return atoms + [atom("behind-car", parked[1], parked[0]) for parked in arrangement.values() if len(parked) == 2]

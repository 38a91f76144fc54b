"""TPP problems: markets that sell goods by the unit, a depot that wants some of each, trucks that fetch them."""

from __future__ import annotations

import random
from itertools import pairwise

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph


def sample(rng: random.Random, *, goods: int, trucks: int, markets: int, units: int, roads: int) -> Problem:
    """Return a problem; every place can be reached and the markets together have what is wanted, so it is solvable.

    Amounts are levels, and `units` is the highest. A truck that fetches the wanted units one by one never needs more.

    Args:
        rng: the source of all choices.
        goods: kinds of goods, of each of which the depot wants at least one unit.
        trucks: trucks, at the depot at first.
        markets: places where goods are sold.
        units: the most units of one kind that are wanted, or that one market sells.
        roads: roads in both directions beyond those that connect all places.
    """
    kinds, fleet, shops = numbered("goods", goods), numbered("truck", trucks), numbered("market", markets)
    levels, depot = numbered("level", units + 1, start=0), "depot1"
    init = [atom("next", upper, lower) for lower, upper in pairwise(levels)]
    init += [atom("at", truck, depot) for truck in fleet]
    init += [atom("loaded", kind, truck, levels[0]) for kind in kinds for truck in fleet]
    init += _roads([depot, *shops], roads, rng)
    goal = []
    for kind in kinds:
        wanted = rng.randint(1, units)
        stock = _stock(wanted, markets, units, rng)
        init += [atom("stored", kind, levels[0]), *(atom("ready-to-load", kind, shop, levels[0]) for shop in shops)]
        init += [atom("on-sale", kind, shop, levels[amount]) for shop, amount in zip(shops, stock, strict=True)]
        goal.append(atom("stored", kind, levels[wanted]))
    objects = {"goods": kinds, "truck": fleet, "market": shops, "depot": [depot], "level": levels}
    return build_problem("tpp", objects, init, goal)


def _roads(places: list[str], extra: int, rng: random.Random) -> list[Atom]:
    edges = random_connected_graph(places, extra, rng)
    return [atom("connected", *pair) for one, other in edges for pair in ((one, other), (other, one))]


def _stock(wanted: int, markets: int, units: int, rng: random.Random) -> list[int]:
    """Return what each market sells of one kind: the wanted units, spread at random, and at times a few more."""
    stock = [0] * markets
    for _ in range(wanted + rng.randint(0, markets)):
        free = [market for market in range(markets) if stock[market] < units]
        if free:
            stock[rng.choice(free)] += 1
    return stock

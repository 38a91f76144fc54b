"""Openstacks problems: orders that include products, every order to be shipped."""

from __future__ import annotations

import random
from itertools import pairwise

from plansmith.pddl.model import TOTAL_COST, Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, orders: int, products: int, extra: int) -> Problem:
    """Return a problem; with a stack for each order all can be started, made and shipped, so it is solvable.

    There are numbers for as many stacks as orders. Every order includes a product and every product is included.

    Args:
        rng: the source of all choices.
        orders: orders, all to be shipped.
        products: products, each made once.
        extra: products beyond the first that orders include.
    """
    names, wares = numbered("o", orders), numbered("p", products)
    counts = numbered("n", orders + 1, start=0)
    init = [atom("stacks-avail", counts[0])]
    init += [atom("next-count", less, more) for less, more in pairwise(counts)]
    init += [atom("waiting", order) for order in names] + [atom("not-made", product) for product in wares]
    init += [atom("includes", order, product) for order, product in _includes(names, wares, extra, rng)]
    goal = [atom("shipped", order) for order in names]
    objects = {"order": names, "product": wares, "count": counts}
    return build_problem("openstacks", objects, init, goal, values={atom(TOTAL_COST): 0}, metric=TOTAL_COST)


def _includes(orders: list[str], products: list[str], extra: int, rng: random.Random) -> list[tuple[str, str]]:
    """Return which order includes which product: the fewest that leave none out, and up to `extra` pairs more."""
    most = max(len(orders), len(products))
    some_order, some_product = rng.sample(orders, len(orders)), rng.sample(products, len(products))
    some_order += rng.choices(orders, k=most - len(orders))
    some_product += rng.choices(products, k=most - len(products))
    pairs = list(zip(some_order, some_product, strict=True))
    free = [(order, product) for order in orders for product in products if (order, product) not in pairs]
    return pairs + rng.sample(free, min(extra, len(free)))

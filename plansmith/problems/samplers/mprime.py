"""Mprime problems: those of Mystery with one action more, which carries fuel from one place to another."""

from __future__ import annotations

import random
from collections.abc import Sequence

from plansmith.pddl.model import Problem
from plansmith.problems.samplers.mystery import MysterySizes, draw_world

NEEDED_FUEL_CHANCE = 0.8


def sample(rng: random.Random, *, foods: int, pleasures: int, pains: int, provinces: int, planets: int) -> Problem:
    """Return a problem in which some pains shall crave another food.

    Solvable: fuel for a plan is drawn as in Mystery, and then some of it is moved away by drinks backwards; the same
    drinks forwards bring it back. Mostly it is fuel that the plan burns, so that more problems need drinks.
    """
    world = draw_world(MysterySizes(foods, pleasures, pains, provinces, planets), rng)
    fuel = world.enough_fuel(rng)
    needed = [food for food, burnt in world.burnt.items() if burnt]
    for _ in range(rng.randint(0, 2 * len(fuel))):
        takers = needed if rng.random() < NEEDED_FUEL_CHANCE else list(fuel)
        _undo_drink(fuel, takers, len(world.objects["province"]) - 1, rng)
    return world.problem("mprime", fuel)


def _undo_drink(fuel: dict[str, int], takers: Sequence[str], most_fuel: int, rng: random.Random) -> None:
    """Move a unit of fuel against a random drink of a taker, if the drink can come next: its giver needs two units."""
    pairs = [
        (taker, giver)
        for taker in takers
        for giver in fuel
        if giver != taker and fuel[taker] > 0 and 0 < fuel[giver] < most_fuel
    ]
    if pairs:
        taker, giver = rng.choice(pairs)
        fuel[taker] -= 1
        fuel[giver] += 1

"""Mystery problems: transport with a small store of fuel at every place, in disguise.

Foods are places and ``eats`` the roads between them; pleasures are vehicles, pains cargo. What a pleasure or a pain
craves is where it is, and a pain that fears a pleasure is aboard. Provinces are amounts of fuel at a place, planets
amounts of room in a vehicle; ``attacks`` and ``orbits`` lead from each amount to the next greater one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph

MOST_GOALS = 3
"""Pains in the goal at most: few of many, as in the original; more make problems that planners give up on."""


@dataclass(frozen=True, slots=True)
class MysterySizes:
    """How many objects there are of each kind."""

    foods: int
    pleasures: int
    pains: int
    provinces: int
    planets: int


@dataclass(frozen=True, slots=True)
class MysteryWorld:
    """A transport problem whose places have no fuel yet."""

    objects: Mapping[str, Sequence[str]]
    """By the predicate that says what they are; provinces and planets from the least amount up."""
    facts: Sequence[Atom]
    """Initial atoms other than ``locale``."""
    goal: Sequence[Atom]
    burnt: Mapping[str, int]
    """Fuel that a plan for the goal burns at each food."""

    def problem(self, domain_name: str, fuel: Mapping[str, int]) -> Problem:
        """Return the problem with so much fuel at each food."""
        names = [name for kind in self.objects.values() for name in kind]
        facts = [*self.facts, *(atom("locale", food, self.objects["province"][fuel[food]]) for food in fuel)]
        return build_problem(domain_name, names, facts, self.goal)

    def enough_fuel(self, rng: random.Random) -> dict[str, int]:
        """Return a random amount for each food, at least what the plan burns there."""
        most = len(self.objects["province"]) - 1
        return {food: rng.randint(burnt, most) for food, burnt in self.burnt.items()}


def sample(rng: random.Random, *, foods: int, pleasures: int, pains: int, provinces: int, planets: int) -> Problem:
    """Return a problem in which some pains shall crave another food.

    Solvable: a plan is drawn first, one delivery after the other, and each food has at least the fuel that it burns.
    """
    world = draw_world(MysterySizes(foods, pleasures, pains, provinces, planets), rng)
    return world.problem("mystery", world.enough_fuel(rng))


def draw_world(sizes: MysterySizes, rng: random.Random) -> MysteryWorld:
    """Return a random world; its goal is empty where fuel allows no delivery at all."""
    objects = {
        "food": numbered("food", max(sizes.foods, 2)),
        "pleasure": numbered("pleasure", max(sizes.pleasures, 1)),
        "pain": numbered("pain", max(sizes.pains, 1)),
        "province": numbered("province", max(sizes.provinces, 2)),
        "planet": numbered("planet", max(sizes.planets, 2)),
    }
    roads = random_connected_graph(objects["food"], rng.randint(0, len(objects["food"])), rng)
    cravings = {name: rng.choice(objects["food"]) for name in objects["pleasure"] + objects["pain"]}
    room = {name: rng.choice(objects["planet"][1:]) for name in objects["pleasure"]}
    facts = [atom(kind, name) for kind, names in objects.items() for name in names]
    facts += [atom("eats", *road) for a, b in roads for road in ((a, b), (b, a))]
    facts += [atom("craves", name, food) for name, food in cravings.items()]
    facts += [atom("harmony", name, planet) for name, planet in room.items()]
    facts += [atom("attacks", *pair) for pair in pairwise(objects["province"])]
    facts += [atom("orbits", *pair) for pair in pairwise(objects["planet"])]
    rehearsal = _Rehearsal(
        roads, {name: cravings[name] for name in objects["pleasure"]}, len(objects["province"]) - 1, rng
    )
    goal = rehearsal.deliver_some({name: cravings[name] for name in objects["pain"]})
    return MysteryWorld(objects, facts, goal, rehearsal.burnt)


class _Rehearsal:
    """A plan that is drawn and carried out at once; remembers where the pleasures are and what was burnt."""

    def __init__(
        self, roads: Sequence[tuple[str, str]], positions: dict[str, str], most_fuel: int, rng: random.Random
    ) -> None:
        self.neighbours: dict[str, list[str]] = {}
        for a, b in roads:
            self.neighbours.setdefault(a, []).append(b)
            self.neighbours.setdefault(b, []).append(a)
        self.positions, self.most_fuel, self.rng = positions, most_fuel, rng
        self.burnt = dict.fromkeys(sorted(self.neighbours), 0)

    def deliver_some(self, pains: Mapping[str, str]) -> list[Atom]:
        """Deliver some pains, given with their foods, and return what they crave afterwards."""
        n_wanted = self.rng.randint(1, min(len(pains), MOST_GOALS))
        goal = []
        for pain in self.rng.sample(list(pains), n_wanted):
            target = self.rng.choice([food for food in self.neighbours if food != pains[pain]])
            pleasure = self.rng.choice(list(self.positions))
            if self._drive(pleasure, pains[pain]) and self._drive(pleasure, target):
                goal.append(atom("craves", pain, target))
        return goal

    def _drive(self, pleasure: str, target: str) -> bool:
        """Bring a pleasure to a food on a shortest way that has fuel left; return whether there is one."""
        way = self._way(self.positions[pleasure], target)
        if way is None:
            return False
        for food in way[:-1]:
            self.burnt[food] += 1
        self.positions[pleasure] = target
        return True

    def _way(self, start: str, target: str) -> list[str] | None:
        """Return a shortest way, both ends included, that leaves no food whose fuel is burnt."""
        ways = {start: [start]}
        waiting = [start]
        for food in waiting:
            if self.burnt[food] == self.most_fuel:
                continue
            around = self.neighbours[food]
            for other in self.rng.sample(around, len(around)):
                if other not in ways:
                    ways[other] = [*ways[food], other]
                    waiting.append(other)
        return ways.get(target)

"""Household problems: tasks drawn one after another, each with the things it needs, and things that none needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from plansmith.pddl.model import Atom, Literal, Problem
from plansmith.problems.building import atom, build_problem

FLAT, DOOR = ("flat-surface",), ("openable",)
FURNITURE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("countertop", "dining_table", "side_table", "shelf"), FLAT),
    **dict.fromkeys(("drawer", "cabinet", "fridge", "dish_washer"), DOOR),
    "microwave": (*DOOR, "microwave"),
    "garbage_can": (*DOOR, "trash-can"),
    "stove_burner": ("stove-burner",),
    "sink_basin": ("sink-or-basin",),
    "carpet": ("carpet",),
    "mirror": (),
}
"""Kinds of furniture and appliances with what holds of each for good."""

WASHABLE, MOVABLE = ("washable",), ("washable", "pickupable")
RECEPTACLES: Mapping[str, tuple[str, ...]] = {
    "cup": MOVABLE,
    "mug": MOVABLE,
    "bowl": (*MOVABLE, "stackable"),
    "plate": (*MOVABLE, "stackable"),
    "pan": (*MOVABLE, "pan"),
    "lunch_box": (*MOVABLE, "stackable", "openable-receptacle"),
    "pizza_box": (*MOVABLE, "openable-receptacle"),
    "cutting_board": (*MOVABLE, "cutting-board"),
    "blender": (*WASHABLE, "toggleable", "blender"),
    "toaster": (*WASHABLE, "toggleable"),
}
OTHERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("apple", "orange", "banana", "potato", "toast"), (*MOVABLE, "sliceable", "object-whole")),
    "fork": MOVABLE,
    "spoon": MOVABLE,
    "knife": (*MOVABLE, "knife"),
    "book": (*MOVABLE, "stackable"),
    "cloth": (*MOVABLE, "cloth"),
    "handheld_vacuum": (*MOVABLE, "handheld-vacuum-cleaner"),
    "lamp": (*WASHABLE, "toggleable"),
    "humidifier": (*WASHABLE, "toggleable"),
}
PROPERTIES = {**FURNITURE, **RECEPTACLES, **OTHERS}

IS_OPEN, IS_ON, IS_STACKED, IS_FULL, IS_WASHED, IN_RECEPTACLE = 0.5, 0.3, 0.4, 0.5, 0.5, 0.3
"""Probabilities at the start."""

IS_TO_WASH, IS_TO_SLICE, IS_TO_FINISH = 0.3, 0.4, 0.6
"""Probabilities of what is wanted of food."""


def _kinds(kinds: Mapping[str, tuple[str, ...]], *properties: str) -> tuple[str, ...]:
    return tuple(kind for kind, holds in kinds.items() if set(properties) <= set(holds))


SURFACES, DOORS, FOODS = _kinds(FURNITURE, *FLAT), _kinds(FURNITURE, *DOOR), _kinds(OTHERS, "sliceable")
STORES = tuple(kind for kind, holds in FURNITURE.items() if holds in (FLAT, DOOR))
"""Furniture that things are kept at."""
CONTAINERS = tuple(kind for kind in _kinds(RECEPTACLES, "pickupable") if kind != "cutting_board")
"""Receptacles that food is put into for its own sake."""
STACKABLE = (*_kinds(RECEPTACLES, "stackable"), *_kinds(OTHERS, "stackable"))
CARRIED = (*CONTAINERS, *_kinds(OTHERS, "pickupable"))
SWITCHED = ("lamp", "humidifier", "toaster")


@dataclass
class _House:
    """What a problem has so far: the kind of each object, by name, and the goal."""

    rng: random.Random
    kinds: dict[str, str] = field(default_factory=dict)
    goal: list[Atom | Literal] = field(default_factory=list)

    def names(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind in kinds]

    def new(self, *kinds: str) -> str:
        """Return a new object of one of the kinds."""
        kind = self.rng.choice(kinds)
        name = f"{kind}_{len(self.names(kind)) + 1}"
        self.kinds[name] = kind
        return name

    def any(self, *kinds: str) -> str:
        """Return an object of one of the kinds, a new one where there is none."""
        known = self.names(*kinds)
        return self.rng.choice(known) if known else self.new(*kinds)

    def need(self, *kinds: str) -> None:
        for kind in kinds:
            self.any(kind)

    def want(self, predicate: str, *arguments: str) -> None:
        self.goal.append(atom(predicate, *arguments))


def sample(rng: random.Random, *, furniture: int, items: int, tasks: int) -> Problem:
    """Return a problem of several tasks in one household.

    Solvable: each task is about a thing of its own (a stack: two), and the tools that it needs are there and can be
    carried to where they are used; the surface to wipe alone may be wanted twice. Tasks done one after another, those
    that cover a receptacle or close a door last, do not undo each other. Heating and mashing, after which food cannot
    be picked up, come last among what is wanted of it. Whatever else an action changes, others can change back.
    """
    house = _House(rng)
    house.any(*SURFACES)
    for _ in range(tasks):
        rng.choice(TASKS)(house)
    while len(house.names(*FURNITURE)) < furniture:
        house.new(*FURNITURE)
    while len(house.names(*RECEPTACLES, *OTHERS)) < items:
        house.new(*RECEPTACLES, *OTHERS)
    objects = {"furnitureappliance": house.names(*FURNITURE)}
    objects |= {"smallreceptacle": house.names(*RECEPTACLES), "householdobject": house.names(*OTHERS)}
    return build_problem("household", objects, _random_start(house), house.goal)


def _food(house: _House) -> None:
    """Want food washed, sliced, brought somewhere, heated or mashed, or several of these that go together."""
    food, rng = house.new(*FOODS), house.rng
    is_washed, is_sliced = rng.random() < IS_TO_WASH, rng.random() < IS_TO_SLICE
    if is_washed:
        _washed(house, food)
    if is_sliced:
        _sliced(house, food)
    if not (is_washed or is_sliced) or rng.random() < IS_TO_FINISH:
        rng.choice((_brought, _put_in, _microwaved, _fried, _mashed))(house, food)


def _washed(house: _House, thing: str) -> None:
    house.need("sink_basin")
    house.want("object-washed", thing)


def _sliced(house: _House, food: str) -> None:
    house.need("knife", "cutting_board")
    house.want("object-sliced", food)


def _brought(house: _House, thing: str) -> None:
    house.want("object-on", thing, house.any(*house.rng.sample(STORES, 2)))


def _put_in(house: _House, food: str) -> None:
    house.want("object-in", food, house.any(*CONTAINERS))


def _microwaved(house: _House, food: str) -> None:
    house.need("microwave")
    house.any(*CONTAINERS)
    house.want("food-heated", food)


def _fried(house: _House, food: str) -> None:
    house.need("stove_burner", "pan")
    house.want("food-heated-pan", food)


def _mashed(house: _House, food: str) -> None:
    house.need("knife", "cutting_board", "blender")
    house.want("object-mashed", food)


def _bring(house: _House) -> None:
    _brought(house, house.new(*CARRIED))


def _wash(house: _House) -> None:
    _washed(house, house.new(*CARRIED))


def _stack(house: _House) -> None:
    house.want("object-on-top-of", house.new(*STACKABLE), house.new(*STACKABLE))


def _switch(house: _House) -> None:
    house.goal.append(Literal(atom("appliance-on", house.new(*SWITCHED)), house.rng.random() < 0.5))


def _door(house: _House) -> None:
    house.want(house.rng.choice(("opened", "closed")), house.new(*DOORS))


def _wipe(house: _House) -> None:
    house.need("cloth", "sink_basin")
    house.want("furniture-cleaned", house.any(*FURNITURE))


def _vacuum(house: _House) -> None:
    """Want a carpet cleaned; after each one the vacuum cleaner has to be emptied."""
    house.need("handheld_vacuum", "garbage_can")
    house.want("carpet-clean", house.new("carpet"))


OFTEN: tuple[Callable[[_House], None], ...] = (_food, _food, _food, _bring, _stack)
RARE: tuple[Callable[[_House], None], ...] = (_wash, _switch, _door, _wipe, _vacuum)
TASKS = (*OFTEN, *OFTEN, *RARE)


def _random_start(house: _House) -> list[Atom]:
    """Return the initial state: the robot somewhere, its gripper empty, things at furniture or food in receptacles."""
    places, on_off = _random_places(house), _random_states(house)
    stacks = _random_stacks(house, places)
    covered = {fact.arguments[1] for fact in stacks if fact.predicate == "object-on-top-of"}
    facts = [atom(fact, name) for name, kind in house.kinds.items() for fact in PROPERTIES[kind]]
    facts += [atom("is-small-receptacle", name) for name in house.names(*RECEPTACLES)]
    facts += [atom("object-clear", name) for name in house.names(*RECEPTACLES, *OTHERS) if name not in covered]
    robot = [atom("robot-at", house.rng.choice(house.names(*FURNITURE))), atom("robot-hand-empty")]
    return [*robot, *facts, *places, *stacks, *on_off]


def _random_places(house: _House) -> list[Atom]:
    """Return where things are; what cannot be carried is on a flat surface, where it is of use."""
    rng, places = house.rng, []
    surfaces, stores, containers = house.names(*SURFACES), house.names(*STORES), house.names(*CONTAINERS)
    for thing in house.names(*RECEPTACLES, *OTHERS):
        kind = house.kinds[thing]
        if kind in FOODS and containers and rng.random() < IN_RECEPTACLE:
            places.append(atom("object-in", thing, rng.choice(containers)))
        else:
            is_fixed = "pickupable" not in PROPERTIES[kind]
            places.append(atom("object-on", thing, rng.choice(surfaces if is_fixed else stores)))
    return places


def _random_stacks(house: _House, places: list[Atom]) -> list[Atom]:
    """Return stacks of what lies on the same flat surface and can be stacked."""
    stacks = []
    for surface in house.names(*SURFACES):
        here = [fact.arguments[0] for fact in places if fact.arguments[1] == surface]
        pile = [thing for thing in here if house.kinds[thing] in STACKABLE]
        house.rng.shuffle(pile)
        for lower, upper in pairwise(pile):
            if house.rng.random() < IS_STACKED:
                stacks += [atom("object-on-top-of", upper, lower), atom("object-stacked", upper)]
    return stacks


def _random_states(house: _House) -> list[Atom]:
    """Return which doors and lids are open, appliances on, vacuum cleaners full and cloths washed."""
    rng = house.rng
    states = [atom("opened" if rng.random() < IS_OPEN else "closed", door) for door in house.names(*DOORS)]
    for thing in house.names(*RECEPTACLES, *OTHERS):
        holds = PROPERTIES[house.kinds[thing]]
        if "openable-receptacle" in holds:
            states.append(atom(f"{'opened' if rng.random() < IS_OPEN else 'closed'}-receptacle", thing))
        if "toggleable" in holds and rng.random() < IS_ON:
            states.append(atom("appliance-on", thing))
        if "handheld-vacuum-cleaner" in holds and rng.random() < IS_FULL:
            states.append(atom("dustbin-full", thing))
        if "cloth" in holds:
            states.append(atom("object-washed" if rng.random() < IS_WASHED else "object-dirty", thing))
    return states

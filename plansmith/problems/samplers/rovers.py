"""Rovers problems: random views, a region for each rover, equipment, and a goal of data that rovers can get."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph

MODES = ("colour", "high_res", "low_res")
LANDER = "general"
EXTRA_VIEWS = 0.5
"""Greatest number of views beyond the tree, as a share of the waypoints."""
HAS_SAMPLE, IS_EQUIPPED, IS_VISIBLE = 0.5, 0.6, 0.4

View = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Rover:
    """A rover, the ground it can traverse (each way in one direction) and what it is equipped for."""

    name: str
    start: str
    ways: tuple[View, ...]
    materials: tuple[str, ...]
    cameras: tuple[str, ...]

    @property
    def region(self) -> tuple[str, ...]:
        return (self.start, *(target for _, target in self.ways))

    @property
    def store(self) -> str:
        return f"{self.name}store"

    def facts(self) -> list[Atom]:
        facts = [atom("at", self.name, self.start), atom("store_of", self.store, self.name), atom("empty", self.store)]
        facts += [atom("can_traverse", self.name, *ends) for way in self.ways for ends in (way, way[::-1])]
        facts += [atom(f"equipped_for_{material}_analysis", self.name) for material in self.materials]
        facts += [atom("on_board", camera, self.name) for camera in self.cameras]
        return facts + ([atom("equipped_for_imaging", self.name)] if self.cameras else [])


def sample(
    rng: random.Random, *, rovers: int, waypoints: int, cameras: int, objectives: int, modes: int, goals: int
) -> Problem:
    """Return a problem whose goal is a part of the data that rovers can get and send.

    Solvable: every rover goes back and forth in a region from which it sees the lander, samples and images of the goal
    are within the region of a rover that is equipped for them, and no rover needs what another one uses up: samples of
    a waypoint are wanted once, and a rover can drop a sample and calibrate a camera again.
    """
    places, targets = numbered("waypoint", max(2, waypoints)), numbered("objective", objectives)
    lenses = numbered("camera", cameras)
    lander, views = rng.choice(places), _random_views(places, rng)
    fleet = _random_fleet(rovers, lenses, places, views, lander, rng)
    samples = {material: [p for p in places if rng.random() < HAS_SAMPLE] for material in ("soil", "rock")}
    optics = [fact for rover in fleet for fact in _optics(rover, targets, MODES[:modes], rng)]
    seen = [atom("visible_from", o, p) for o in targets for p in places if rng.random() < IS_VISIBLE]
    init = [atom("at_lander", LANDER, lander), *optics, *seen, *(fact for rover in fleet for fact in rover.facts())]
    init += [atom("visible", *ends) for view in views for ends in (view, view[::-1])]
    init += [atom(f"at_{material}_sample", place) for material, found in samples.items() for place in found]
    possible = list(dict.fromkeys(fact for rover in fleet for fact in _obtainable(rover, samples, init)))
    objects = {"lander": [LANDER], "mode": MODES[:modes], "rover": [rover.name for rover in fleet]}
    objects |= {"store": [rover.store for rover in fleet], "waypoint": places, "camera": lenses, "objective": targets}
    return build_problem("rovers", objects, init, rng.sample(possible, min(goals, len(possible))))


def _random_views(places: Sequence[str], rng: random.Random) -> list[View]:
    return random_connected_graph(places, rng.randint(0, int(EXTRA_VIEWS * len(places))), rng)


def _random_fleet(
    count: int, cameras: Sequence[str], places: Sequence[str], views: Sequence[View], lander: str, rng: random.Random
) -> list[_Rover]:
    names = numbered("rover", count)
    carriers = {camera: rng.choice(names) for camera in cameras}
    fleet = []
    for name in names:
        start = rng.choice(places)
        materials = tuple(material for material in ("soil", "rock") if rng.random() < IS_EQUIPPED)
        on_board = tuple(camera for camera, carrier in carriers.items() if carrier == name)
        fleet.append(_Rover(name, start, _random_ways(start, views, lander, rng), materials, on_board))
    return fleet


def _random_ways(start: str, views: Sequence[View], lander: str, rng: random.Random) -> tuple[View, ...]:
    """Return a random tree of views from `start` outwards, cut off at random once it has a waypoint that sees `lander`.

    There is one: the views connect all waypoints, of which there are two at least.
    """
    directed = [*views, *(view[::-1] for view in views)]
    sees_lander = [source for source, target in directed if target == lander]
    region, ways = [start], list[View]()
    length = rng.randrange(len(directed))
    while frontier := [view for view in directed if view[0] in region and view[1] not in region]:
        if len(ways) >= length and any(place in sees_lander for place in region):
            break
        ways.append(rng.choice(frontier))
        region.append(ways[-1][1])
    return tuple(ways)


def _optics(rover: _Rover, objectives: Sequence[str], modes: Sequence[str], rng: random.Random) -> list[Atom]:
    """Return modes and target of each camera of a rover, the target visible from somewhere in the rover's region."""
    facts = []
    for camera in rover.cameras:
        target = rng.choice(objectives)
        supported = rng.sample(modes, rng.randint(1, len(modes)))
        facts += [atom("calibration_target", camera, target), atom("visible_from", target, rng.choice(rover.region))]
        facts += [atom("supports", camera, mode) for mode in supported]
    return facts


def _obtainable(rover: _Rover, samples: dict[str, list[str]], init: Sequence[Atom]) -> list[Atom]:
    """Return the data that a rover can get without others; each can be sent, as its region sees the lander."""
    goals = [
        atom(f"communicated_{material}_data", place)
        for material in rover.materials
        for place in samples[material]
        if place in rover.region
    ]
    region = set(rover.region)
    in_sight = [f.arguments[0] for f in init if f.predicate == "visible_from" and f.arguments[1] in region]
    for camera in rover.cameras:
        supported = [f.arguments[1] for f in init if f.predicate == "supports" and f.arguments[0] == camera]
        goals += [atom("communicated_image_data", target, mode) for target in in_sight for mode in supported]
    return goals

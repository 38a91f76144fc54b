"""Tyreworld problems: wheels to change or to inflate, tools in containers, perhaps one change half done."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

TOOLS = ("wrench", "jack", "pump")
"""Constants of the domain."""

CONTAINERS = ("boot", "toolbox", "garage", "trailer")

HALF_DONE, LOOSE, FLAT_SPARE, OPEN, IN_HAND = 0.3, 0.15, 0.75, 0.25, 0.2
"""Probabilities: of one hub jacked up at the start, and for each nut, spare wheel, container and tool."""


@dataclass(frozen=True, slots=True)
class _Hub:
    """A hub with what is on it at the start and the wheel it is to have in the end."""

    name: str
    nut: str
    wheel: str
    wanted: str

    @property
    def is_change(self) -> bool:
        return self.wheel != self.wanted

    def start(self, *, is_loose: bool) -> list[Atom]:
        """Return the atoms of a hub on the ground."""
        nut = atom("loose" if is_loose else "tight", self.nut, self.name)
        return [nut, atom("on", self.wheel, self.name), atom("on-ground", self.name), atom("fastened", self.name)]

    def half_done(self, n_steps: int) -> list[Atom]:
        """Return the atoms of a raised hub: as it was (0), without its nut (1), without nut and wheel (2)."""
        fixed = atom("loose", self.nut, self.name), atom("fastened", self.name)
        undone = atom("have", self.nut), atom("unfastened", self.name)
        mounted = (atom("on", self.wheel, self.name),)
        removed = atom("have", self.wheel), atom("free", self.name)
        parts = [fixed if n_steps == 0 else undone, mounted if n_steps < 2 else removed]
        return [atom("not-on-ground", self.name), *(fact for part in parts for fact in part)]

    def end(self) -> list[Atom]:
        return [atom("on", self.wanted, self.name), atom("inflated", self.wanted), atom("tight", self.nut, self.name)]


def sample(rng: random.Random, *, hubs: int, changes: int, containers: int) -> Problem:
    """Return a problem of wheels to change and to inflate.

    Solvable: containers are unlocked, every wheel of the goal is intact, tools, wheels and nuts can all be reached, and
    whatever an action does to hubs, containers and hands others can undo.
    """
    places = list(CONTAINERS[:containers]) + numbered("box", containers - len(CONTAINERS))
    fitted, spares = _hubs(hubs, min(hubs, changes), rng)
    raised = next((hub for hub in fitted if hub.is_change), None) if rng.random() < HALF_DONE else None
    init = [fact for place in places for fact in _container_start(place, rng)]
    for hub in fitted:
        init += hub.half_done(rng.randrange(3)) if hub is raised else hub.start(is_loose=rng.random() < LOOSE)
        init += [] if hub.is_change else [atom("intact", hub.wheel), atom("not-inflated", hub.wheel)]
    init += [fact for spare in spares for fact in _spare_start(spare, places, rng)]
    init += [_tool_start(tool, places, rng) for tool in TOOLS if raised is None or tool != "jack"]
    goal = [fact for hub in fitted for fact in hub.end()]
    old = [hub.wheel for hub in fitted if hub.is_change]
    goal += [atom("in", thing, rng.choice(places)) for thing in (*old, *TOOLS)]
    goal += [atom("closed", place) for place in places]
    objects = {"hub": [hub.name for hub in fitted], "nut": [hub.nut for hub in fitted], "container": places}
    objects["wheel"] = [hub.wheel for hub in fitted] + spares
    return build_problem("tyreworld", objects, init, goal)


def _hubs(count: int, changes: int, rng: random.Random) -> tuple[list[_Hub], list[str]]:
    """Return the hubs in random order, of which so many are to get a spare wheel, and the spare wheels."""
    spares = numbered("spare", changes)
    wanted = dict(zip(rng.sample(range(1, count + 1), changes), spares, strict=True))
    order = rng.sample(range(1, count + 1), count)
    hubs = [_Hub(f"hub{n}", f"nut{n}", f"wheel{n}", wanted.get(n, f"wheel{n}")) for n in order]
    return hubs, spares


def _container_start(place: str, rng: random.Random) -> list[Atom]:
    return [atom("unlocked", place), atom("open" if rng.random() < OPEN else "closed", place)]


def _spare_start(wheel: str, places: Sequence[str], rng: random.Random) -> list[Atom]:
    air = "not-inflated" if rng.random() < FLAT_SPARE else "inflated"
    return [atom("in", wheel, rng.choice(places)), atom("intact", wheel), atom(air, wheel)]


def _tool_start(tool: str, places: Sequence[str], rng: random.Random) -> Atom:
    return atom("have", tool) if rng.random() < IN_HAND else atom("in", tool, rng.choice(places))

"""Machine-parts-assembly problems: scattered parts are put together in order on the benches that can hold a machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered
from plansmith.problems.library import random_names

_names = partial(random_names, "machine-parts-assembly")

SPARE_FITS_CHANCE = 0.3
"""Probability that a spare part fits somewhere; half of these stand in the way, where there is a begun machine."""
VACANT_CHANCE = 0.1
"""Probability that furniture on which nothing is to be built could hold a machine."""


@dataclass(frozen=True)
class Machine:
    """A chain of parts, the base first, of which some are in place on a bench at the start."""

    bench: str
    parts: Sequence[str]
    n_fixed: int

    def facts(self) -> list[Atom]:
        """Return in which order the parts go together, and what holds of those in place."""
        fixed = self.parts[: self.n_fixed]
        facts = [atom("base", self.parts[0]), *(atom("fits", after, before) for before, after in pairwise(self.parts))]
        facts += [atom("fixed", part, self.bench) for part in fixed]
        return facts + [atom("attached", after, before) for before, after in pairwise(fixed)]


def sample(
    rng: random.Random, *, robots: int, furniture: int, tools: int, machines: int, parts: int, spares: int
) -> Problem:
    """Return a problem with `machines` machines of `parts` parts each; the goal is that every part is in its place.

    Some machines are begun. More machines than pieces of furniture are left out.

    Solvable: each machine has a bench of its own, every robot reaches everything, a spare part that stands in the way
    is not fastened, so it can be taken off, and a part can be put in place as soon as the one before it is.
    """
    places, arms, implements = (
        _names("furniture", furniture, rng),
        numbered("robot", robots),
        _names("tools", tools, rng),
    )
    benches = rng.sample(places, min(machines, furniture))
    names = _names("parts", len(benches) * parts + spares, rng)
    built = [_random_machine(bench, names[n * parts : (n + 1) * parts], rng) for n, bench in enumerate(benches)]
    init = [fact for machine in built for fact in machine.facts()]
    init += _spare_atoms(names[len(benches) * parts :], built, places, rng)
    init += _free_atoms(names, arms, init)
    init += [atom("vacant", place) for place in _vacant(built, places, rng)]
    scattered = [*implements, *(part for machine in built for part in machine.parts[machine.n_fixed :])]
    init += [atom("on-table", thing, rng.choice(places)) for thing in scattered]
    init += [atom("at", arm, rng.choice(places)) for arm in arms]
    goal = [atom("fixed", part, machine.bench) for machine in built for part in machine.parts]
    objects = {"robot": arms, "furniture": places, "tool": implements, "part": names}
    return build_problem("machine-parts-assembly", objects, init, goal)


def _random_machine(bench: str, parts: Sequence[str], rng: random.Random) -> Machine:
    """Return a machine that is not begun with a probability of more than one half, and never complete."""
    return Machine(bench, parts, rng.choice([0, rng.randrange(len(parts))]))


def _spare_atoms(
    spares: Sequence[str], machines: Sequence[Machine], furniture: Sequence[str], rng: random.Random
) -> list[Atom]:
    """Return where spare parts are and fit; one at most stands on each begun machine, where the next part belongs."""
    ends = [machine.parts[machine.n_fixed - 1] for machine in machines if machine.n_fixed]
    facts: list[Atom] = []
    for spare in spares:
        fits = rng.random() < SPARE_FITS_CHANCE
        if fits and ends and rng.random() < 1 / 2:
            end = ends.pop()
            facts += [atom("fits", spare, end), atom("attached", spare, end), atom("loose", spare)]
            continue
        facts.append(atom("on-table", spare, rng.choice(furniture)))
        if fits:
            facts.append(atom("fits", spare, rng.choice(rng.choice(machines).parts)))
    return facts


def _free_atoms(parts: Sequence[str], robots: Sequence[str], facts: Sequence[Atom]) -> list[Atom]:
    """Return which parts have nothing attached to them, and that all hands are free."""
    covered = {fact.arguments[1] for fact in facts if fact.predicate == "attached"}
    return [atom("bare", part) for part in parts if part not in covered] + [atom("hand_free", arm) for arm in robots]


def _vacant(machines: Sequence[Machine], furniture: Sequence[str], rng: random.Random) -> list[str]:
    """Return the furniture on which a base can be clamped: benches of machines not begun, and some more."""
    begun = {machine.bench: machine.n_fixed > 0 for machine in machines}
    return [place for place in furniture if not begun.get(place, rng.random() > VACANT_CHANCE)]

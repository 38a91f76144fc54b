"""Assembly problems: a product built from parts by way of subassemblies, with tools, orders and parts used in passing.

Words: a whole is an assembly made of parts, a part of it is an atomic part or another whole; a transient part goes in
while a whole is built, and must come out again before the whole is complete.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

ORDER_CHANCE, SECOND_ORDER_CHANCE = 0.5, 0.2
REQUIRED_RESOURCES = (0, 1, 1, 1, 2)

Structure = Mapping[str, Sequence[str]]
"""The parts of each whole. The product comes first, and a whole comes after the whole that it is a part of."""


def sample(rng: random.Random, *, parts: int, wholes: int, resources: int, transients: int) -> Problem:
    """Return a problem whose goal is the complete product.

    Solvable: the wholes are built from the last to the first, each with all its resources, released afterwards. Its
    parts are there by then, `_order_facts` has no cycles, and a transient part is one that is there too and is built
    into a whole only later; it goes in when a part needs it, and out at the end.
    """
    structure = _random_structure(max(parts, 2), wholes, rng)
    atomic = [part for members in structure.values() for part in members if part not in structure]
    tools = numbered("tool", resources)
    init = [atom("available", name) for name in sorted(atomic) + tools]
    for whole, members in structure.items():
        init += [atom("part-of", part, whole) for part in members]
        needed = min(rng.choice(REQUIRED_RESOURCES), len(tools))
        init += [atom("requires", whole, tool) for tool in rng.sample(tools, needed)]
        init += _order_facts(whole, members, rng)
    init += _transient_facts(structure, transients, rng)
    objects = {"assembly": sorted([*structure, *atomic]), "resource": tools}
    return build_problem("assembly", objects, init, [atom("complete", next(iter(structure)))])


def _random_structure(n_parts: int, n_wholes: int, rng: random.Random) -> Structure:
    """Return a random tree of so many atomic parts and wholes, clipped so that every whole has two parts at least.

    A tree grows from a whole of two parts: a part becomes a whole of two, or a whole gets a part more.
    """
    n_wholes = max(1, min(n_wholes, n_parts - 1))
    names = rng.sample(numbered("assembly", n_wholes), n_wholes)
    atoms = rng.sample(numbered("part", n_parts), n_parts)
    structure = {names.pop(): [atoms.pop(), atoms.pop()]}
    is_split = [True] * len(names) + [False] * (len(atoms) - len(names))
    for split in rng.sample(is_split, len(is_split)):
        if split:
            _split_part(structure, names.pop(), atoms.pop(), rng)
        else:
            rng.choice(list(structure.values())).append(atoms.pop())
    return structure


def _split_part(structure: dict[str, list[str]], name: str, part: str, rng: random.Random) -> None:
    """Put a whole in the place of an atomic part; the whole is made of that part and another one."""
    leaves = [(whole, old) for whole, members in structure.items() for old in members if old not in structure]
    parent, old = rng.choice(leaves)
    structure[parent][structure[parent].index(old)] = name
    structure[name] = [old, part]


def _order_facts(whole: str, members: Sequence[str], rng: random.Random) -> list[Atom]:
    """Return which parts go in before which, following a random order of all parts of a whole."""
    order = rng.sample(members, len(members))
    facts = []
    for place, part in enumerate(order[1:], start=1):
        if rng.random() < ORDER_CHANCE:
            facts.append(atom("assemble-order", order[place - 1], part, whole))
        if rng.random() < SECOND_ORDER_CHANCE:
            facts.append(atom("assemble-order", rng.choice(order[:place]), part, whole))
    return facts


def _transient_facts(structure: Structure, n_transients: int, rng: random.Random) -> list[Atom]:
    """Return so many transient parts, or as many as can be had, each before one part of its whole and out after it."""
    pairs = _possible_transients(structure)
    facts = []
    for transient, whole in rng.sample(pairs, min(n_transients, len(pairs))):
        part = rng.choice(structure[whole])
        facts += [
            atom("transient-part", transient, whole),
            atom("assemble-order", transient, part, whole),
            atom("remove-order", part, transient, whole),
        ]
    return facts


def _possible_transients(structure: Structure) -> list[tuple[str, str]]:
    """Return the pairs of a part and a whole where the part is there before the whole is built and still free."""
    place = {whole: number for number, whole in enumerate(structure)}
    return [
        (part, whole)
        for whole in structure
        for parent, members in structure.items()
        for part in members
        if place[parent] < place[whole] and (part not in place or place[part] > place[whole])
    ]

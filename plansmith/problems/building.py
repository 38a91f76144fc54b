"""What samplers share: names, typed objects, problems from parts, shuffling. No domain knowledge."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from plansmith.pddl.model import OBJECT, Atom, Conjunction, FunctionValue, Literal, Number, Problem, TypedName


def numbered(prefix: str, count: int, *, start: int = 1) -> list[str]:
    """Return ``prefix1`` to ``prefixN``."""
    return [f"{prefix}{number}" for number in range(start, start + count)]


def atom(predicate: str, *arguments: str) -> Atom:
    """Return an atom."""
    return Atom(predicate, arguments)


def build_problem(
    domain_name: str,
    objects: Mapping[str, Sequence[str]] | Sequence[str],
    init: Iterable[Atom],
    goal: Iterable[Atom | Literal],
    *,
    values: Mapping[Atom, Number] | None = None,
    metric: str | None = None,
) -> Problem:
    """Return a problem whose goal is a conjunction.

    Args:
        domain_name: also the beginning of the problem's name.
        objects: names by type, or names alone where the domain has no types.
        init: atoms true at the start; repeated ones count once.
        goal: atoms or literals; repeated ones count once.
        values: of functions in the initial state.
        metric: the function to minimise.
    """
    by_type = objects if isinstance(objects, Mapping) else {OBJECT: objects}
    typed = tuple(TypedName(name, (kind,)) for kind, names in by_type.items() for name in names)
    literals = dict.fromkeys(part if isinstance(part, Literal) else Literal(part) for part in goal)
    return Problem(
        name=f"{domain_name}-{len(typed)}",
        domain_name=domain_name,
        objects=typed,
        init=tuple(dict.fromkeys(init)),
        goal=Conjunction(tuple(literals)),
        function_values=tuple(FunctionValue(term, value) for term, value in (values or {}).items()),
        metric=metric,
    )


def shuffled(problem: Problem, rng: random.Random) -> Problem:
    """Return the problem with its initial atoms and the parts of its goal in random order, which then tells nothing."""
    goal = problem.goal
    if isinstance(goal, Conjunction):
        goal = Conjunction(tuple(rng.sample(goal.parts, len(goal.parts))))
    return replace(problem, init=tuple(rng.sample(problem.init, len(problem.init))), goal=goal)


def random_partition(items: Sequence[str], n_parts: int, rng: random.Random) -> list[list[str]]:
    """Return the items in random order, cut into parts of which none is empty.

    Raises:
        ValueError: fewer items than parts.
    """
    if not 1 <= n_parts <= len(items):
        raise ValueError(f"{len(items)} items cannot be cut into {n_parts} parts")
    order = rng.sample(items, len(items))
    cuts = [0, *sorted(rng.sample(range(1, len(items)), n_parts - 1)), len(items)]
    return [order[start:end] for start, end in pairwise(cuts)]


def random_connected_graph(nodes: Sequence[str], n_extra: int, rng: random.Random) -> list[tuple[str, str]]:
    """Return the edges, each in one direction, of a random tree over the nodes with up to `n_extra` edges more."""
    order = rng.sample(nodes, len(nodes))
    edges = {(order[rng.randrange(place)], order[place]) for place in range(1, len(order))}
    free = [(a, b) for place, a in enumerate(order) for b in order[place + 1 :] if not {(a, b), (b, a)} & edges]
    edges |= set(rng.sample(free, min(n_extra, len(free))))
    return sorted(edges)

"""Independent-set reconfiguration: the goal lies on the way of random token jumps on a random graph."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from plansmith.pddl.model import Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph

Neighbours = Mapping[str, frozenset[str]]


def sample(rng: random.Random, *, vertices: int, extra_edges: int, tokens: int, jumps: int) -> Problem:
    """Return a problem whose goal names the set with the fewest vertices of the start among those of a random walk.

    Solvable: the jumps of the walk keep the set independent and lead from the start to the goal.
    """
    names = numbered("v", max(2, vertices))
    edges = random_connected_graph(names, extra_edges, rng)
    neighbours = {name: frozenset(b if a == name else a for a, b in edges if name in (a, b)) for name in names}
    start = _movable_set(names, neighbours, tokens, rng)
    walk = [start]
    for _ in range(jumps):
        walk.append(_after_jump(walk[-1], names, neighbours, rng))
    end = min(walk, key=lambda reached: len(set(start) & set(reached)))
    init = [atom("edge", *ends) for edge in edges for ends in (edge, edge[::-1])]
    init += [atom("token", vertex) for vertex in start]
    return build_problem("independent-set", {"vertex": names}, init, [atom("token", vertex) for vertex in end])


def _movable_set(vertices: Sequence[str], neighbours: Neighbours, size: int, rng: random.Random) -> list[str]:
    """Return an independent set of up to `size` vertices from which a jump leads to another one.

    It is smaller than a maximal independent set, so a vertex is free; a single token can jump anywhere.
    """
    maximal: list[str] = []
    for vertex in rng.sample(vertices, len(vertices)):
        if neighbours[vertex].isdisjoint(maximal):
            maximal.append(vertex)
    return maximal[: max(1, min(size, len(maximal) - 1))]


def _after_jump(
    tokens: Sequence[str], vertices: Sequence[str], neighbours: Neighbours, rng: random.Random
) -> list[str]:
    """Return the set after one random jump; never stuck, as the last jump could at least be taken back."""
    moves = [
        (source, target)
        for source in tokens
        for target in vertices
        if target not in tokens and neighbours[target].isdisjoint(other for other in tokens if other != source)
    ]
    source, target = rng.choice(moves)
    return [target if vertex == source else vertex for vertex in tokens]

"""Data Network problems: scripts make data from other data, on servers with little memory in a network."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plansmith.pddl.model import Atom, Number, Problem
from plansmith.problems.building import atom, build_problem, numbered, random_connected_graph

RECENT_DATA = 3
"""Inputs come from so many data made before, mostly: chains of scripts get longer so."""
RECENT_CHANCE = 0.7
SECOND_GOAL_CHANCE = 0.25
EXTRA_LINK_CHANCE = 0.3
IO_COSTS, SEND_COSTS = (1, 5), (2, 8)
HUB_PROCESS_COSTS, PROCESS_COSTS = (16, 26), (6, 13)


@dataclass(frozen=True, slots=True)
class _Network:
    capacities: Mapping[str, int]
    """Memory of each server; the first is the hub, with the most."""
    links: Sequence[tuple[str, str]]
    """Both directions of each."""


def sample(rng: random.Random, *, data: int, scripts: int, servers: int, numbers: int) -> Problem:
    """Return a problem whose goal is one or two made data saved on some servers.

    Solvable: the network is connected, every datum fits into every memory, and the hub's memory holds any three; all
    memories are empty. A datum gets anywhere by being sent, saved and released at every server on its way; so the
    inputs of a script get to the hub's disk, where the script runs. Scripts need no datum made only after theirs.
    """
    top = max(numbers - 1, 3)
    items = numbered("data", max(data, 3))
    sizes = {item: rng.randint(1, top // 3) for item in items}
    network = _random_network(max(servers, 1), top, rng)
    n_given = _random_given(len(items), scripts, rng)
    programs = _random_scripts(items, n_given, max(scripts, len(items) - n_given), rng)
    places = list(network.capacities)
    init = [atom("script-io", name, *arguments) for name, arguments in programs.items()]
    init += [atom("data-size", item, _number(size)) for item, size in sizes.items()]
    init += [atom("saved", item, rng.choice(places)) for item in items[:n_given]]
    init += _network_facts(network) + _arithmetic(sorted(set(sizes.values())), network, top)
    wanted = [items[-1]]
    if n_given < len(items) - 1 and rng.random() < SECOND_GOAL_CHANCE:
        wanted.append(rng.choice(items[n_given:-1]))
    goal = [atom("saved", item, rng.choice(places)) for item in wanted]
    objects = {
        "data": items,
        "script": list(programs),
        "server": places,
        "numbers": numbered("number", top + 1, start=0),
    }
    values = _costs(list(programs), sorted(set(sizes.values())), network, rng)
    return build_problem("data-network", objects, init, goal, values=values, metric="total-cost")


def _random_given(n_items: int, n_scripts: int, rng: random.Random) -> int:
    """Return how many items are there at the start: at most half, unless scripts are too few to make the others."""
    least = max(2, n_items - max(n_scripts, 1))
    return rng.randint(least, max(least, n_items // 2))


def _number(value: int) -> str:
    return f"number{value}"


def _random_network(n_servers: int, top: int, rng: random.Random) -> _Network:
    names = numbered("server", n_servers)
    capacities = {name: top if name == names[0] else rng.randint(max(top // 2, 1), top) for name in names}
    n_extra = sum(rng.random() < EXTRA_LINK_CHANCE for _ in names)
    edges = random_connected_graph(names, n_extra, rng)
    return _Network(capacities, [link for a, b in edges for link in ((a, b), (b, a))])


def _random_scripts(
    items: Sequence[str], n_given: int, n_scripts: int, rng: random.Random
) -> dict[str, tuple[str, str, str]]:
    """Return the two inputs and the output of each script; every item that is not given is the output of one."""
    made = items[n_given:]
    outputs = [*made, *(rng.choice(made) for _ in range(n_scripts - len(made)))]
    programs = [(*_random_inputs(items[: items.index(output)], rng), output) for output in outputs]
    return dict(zip(numbered("script", n_scripts), rng.sample(programs, n_scripts), strict=True))


def _random_inputs(earlier: Sequence[str], rng: random.Random) -> tuple[str, str]:
    first = rng.choice(earlier[-RECENT_DATA:] if rng.random() < RECENT_CHANCE else earlier)
    second = rng.choice([item for item in earlier if item != first])
    return first, second


def _network_facts(network: _Network) -> list[Atom]:
    facts = [atom("connected", *link) for link in network.links]
    for server, capacity in network.capacities.items():
        facts += [atom("capacity", server, _number(capacity)), atom("usage", server, _number(0))]
    return facts


def _arithmetic(sizes: Sequence[int], network: _Network, top: int) -> list[Atom]:
    """Return the sums and comparisons that loading, sending and processing can need."""
    facts = [
        atom("sum", _number(before), _number(size), _number(before + size))
        for before in range(top)
        for size in sizes
        if before + size <= top
    ]
    capacities = sorted(set(network.capacities.values()))
    facts += [
        atom("less-equal", _number(usage), _number(capacity))
        for capacity in capacities
        for usage in range(1, capacity + 1)
    ]
    return facts


def _costs(scripts: Sequence[str], sizes: Sequence[int], network: _Network, rng: random.Random) -> dict[Atom, Number]:
    """Return all costs; saving, loading and sending cost the size times a rate, and the hub processes slowly."""
    values: dict[Atom, Number] = {atom("total-cost"): 0}
    for place, server in enumerate(network.capacities):
        for script in scripts:
            values[atom("process-cost", script, server)] = rng.randint(*(PROCESS_COSTS if place else HUB_PROCESS_COSTS))
        rate = rng.randint(*IO_COSTS)
        values |= {atom("io-cost", server, _number(size)): rate * size for size in sizes}
    for a, b in network.links[::2]:
        rate = rng.randint(*SEND_COSTS)
        for size in sizes:
            values[atom("send-cost", a, b, _number(size))] = rate * size
            values[atom("send-cost", b, a, _number(size))] = rate * size
    return values

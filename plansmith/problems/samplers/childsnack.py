"""Childsnack problems: children wait at tables; bread and content are just enough for a sandwich each."""

from __future__ import annotations

import random
from collections.abc import Sequence

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

SHARE_OF_TRAYS_IN_KITCHEN = 0.75
"""Probability that a tray starts in the kitchen and not at a table."""
SHARE_WITH_SPARE = 0.3
"""Probability that one more portion than needed is free of gluten; of bread and of content, independently."""


def sample(rng: random.Random, *, children: int, sandwiches: int, trays: int, tables: int) -> Problem:
    """Return a problem: who is allergic, which portions are free of gluten and who waits where are drawn at random.

    The number of allergic children is uniform. All problems are solvable: at least as many portions of bread, and of
    content, are free of gluten as children are allergic, so their sandwiches can be made first; what is left is enough
    for the others. Every tray can come to the kitchen and to every table.

    Args:
        rng: source of all choices.
        children: children to be served, also portions of bread and portions of content.
        sandwiches: sandwiches that can be made; raised to `children` where there are fewer.
        trays: trays, most of them in the kitchen.
        tables: places where children wait.
    """
    kids, places, carriers = numbered("child", children), numbered("table", tables), numbered("tray", trays)
    breads, contents = numbered("bread", children), numbered("content", children)
    made = numbered("sandw", max(sandwiches, children))
    n_allergic = rng.randint(0, children)
    allergic = rng.sample(kids, n_allergic)
    init = [atom("at", tray, _place_of_tray(rng, places)) for tray in carriers]
    init += [atom("at_kitchen_bread", bread) for bread in breads]
    init += [atom("at_kitchen_content", content) for content in contents]
    init += _free_of_gluten(rng, "no_gluten_bread", breads, n_allergic)
    init += _free_of_gluten(rng, "no_gluten_content", contents, n_allergic)
    init += [atom("notexist", sandwich) for sandwich in made]
    init += [atom("allergic_gluten" if kid in allergic else "not_allergic_gluten", kid) for kid in kids]
    init += [atom("waiting", kid, rng.choice(places)) for kid in kids]
    objects = {"child": kids, "bread-portion": breads, "content-portion": contents, "sandwich": made}
    return build_problem(
        "childsnack", objects | {"tray": carriers, "place": places}, init, [atom("served", kid) for kid in kids]
    )


def _place_of_tray(rng: random.Random, tables: Sequence[str]) -> str:
    return "kitchen" if rng.random() < SHARE_OF_TRAYS_IN_KITCHEN else rng.choice(tables)


def _free_of_gluten(rng: random.Random, predicate: str, portions: Sequence[str], n_needed: int) -> list[Atom]:
    """Return which portions are free of gluten: as many as needed, or one more where there is one."""
    n_free = min(n_needed + (rng.random() < SHARE_WITH_SPARE), len(portions))
    return [atom(predicate, portion) for portion in rng.sample(portions, n_free)]

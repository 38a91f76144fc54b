"""Problems of a level, no two the same under other names."""

from __future__ import annotations

import random
from collections.abc import Iterator

from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Problem
from plansmith.problems.library import PlanningDomain

MAX_REPEATS = 500
"""Draws in a row that bring no new canonical form before the level is taken to have no more."""


def distinct_problems(loaded: PlanningDomain, level: str, *, seed: int) -> Iterator[Problem]:
    """Yield problems of different canonical forms until the level has no more; equal seed, equal problems."""
    forms: set[str] = set()
    repeats = number = 0
    while repeats < MAX_REPEATS:
        problem = loaded.sample(level, random.Random(f"{seed} {loaded.name} {level} {number}"))
        form = canonical_form(loaded.domain, problem)
        repeats = repeats + 1 if form in forms else 0
        if form not in forms:
            forms.add(form)
            yield problem
        number += 1

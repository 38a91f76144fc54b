"""Mystery Blocksworld problems: those of Blocksworld, their predicates renamed."""

from __future__ import annotations

import random
from dataclasses import replace

from plansmith.pddl.model import Atom, Problem, literals_of
from plansmith.problems.building import build_problem, numbered
from plansmith.problems.samplers.blocksworld import BlocksworldSampler

WORDS = {"on": "craves", "ontable": "planet", "clear": "province", "handempty": "harmony", "holding": "pain"}
"""What each predicate of Blocksworld is called here."""


def sample(rng: random.Random, *, blocks: int) -> Problem:
    """Return a problem; solvable, for under other words every Blocksworld arrangement can be reached from every other.

    The objects are called o1, o2 and so on: "block" would give the secret away.
    """
    problem = BlocksworldSampler(blocks, tuple(numbered("o", blocks))).sample(rng)
    return build_problem(
        "mystery-blocksworld",
        [typed.name for typed in problem.objects],
        [_disguised(fact) for fact in problem.init],
        [replace(part, atom=_disguised(part.atom)) for part in literals_of(problem.goal)],
    )


def _disguised(fact: Atom) -> Atom:
    return Atom(WORDS[fact.predicate], fact.arguments)

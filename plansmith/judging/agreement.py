"""How far a written problem and its reference agree: their atoms, and the plans that they have.

Source: NL-PDDL-Bench, section 3.4 and appendix C.3 (TSR, CR). Both are measured on texts and plans as they are: whether
two problems *mean* the same is `plansmith.pddl.equivalence`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from plansmith.pddl.model import Problem, conjuncts_of

LEAST_SIMILARITY = 0.8
"""tau of equation 16."""
LENGTH_TOLERANCE = 0.05
"""rho of equation 18."""


def atom_similarity(first: Problem, second: Problem) -> float:
    """Return the Jaccard similarity of the facts and goals of two problems, 1 for two without any (equation 8).

    The paper leaves open what an atom of a specification is: ours are the facts of the initial state and the conjuncts
    of the goal, each with its section, so that a goal that became a fact is no agreement.
    """
    atoms, others = tagged_atoms(first), tagged_atoms(second)
    return len(atoms & others) / len(atoms | others) if atoms or others else 1.0


def tagged_atoms(problem: Problem) -> set[tuple[str, str]]:
    """Return the facts of the initial state and the conjuncts of the goal, each with its section."""
    facts = {("init", str(atom)) for atom in problem.init}
    return facts | {("goal", str(conjunct)) for conjunct in conjuncts_of(problem.goal)}


def plan_similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the greater of edit and multiset similarity of two sequences of ground actions (equations 13 to 15).

    Two empty plans are alike; the paper's quotients are not defined there.
    """
    if not first and not second:
        return 1.0
    counts, others = Counter(first), Counter(second)
    bag = (counts & others).total() / (counts | others).total()
    return max(Levenshtein.normalized_similarity(first, second), bag)


def plans_agree(
    plan: Sequence[str],
    reference: Sequence[str],
    *,
    least_similarity: float = LEAST_SIMILARITY,
    length_tolerance: float = LENGTH_TOLERANCE,
) -> bool:
    """Return whether a plan is about as long as the reference's and much like it (equations 12 and 16 to 18).

    Costs are lengths, as in the paper's experiments.
    """
    tolerance = max(1, math.ceil(length_tolerance * len(reference)))
    return abs(len(plan) - len(reference)) <= tolerance and plan_similarity(plan, reference) >= least_similarity

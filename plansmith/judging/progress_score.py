"""How far an attempt came towards the goal before its first wrong action, as a number in [0, 1].

Not here: whether it reached the goal (`plansmith.pddl.validation`), and the mean over problems (`metrics`).
"""

from __future__ import annotations

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Literal
from plansmith.pddl.validation import PlanVerdict


def progress_score(task: PlanningTask, verdict: PlanVerdict) -> float:
    """Return the share of the goal's conjuncts that hold after the longest prefix of the plan that can be applied.

    Source: Self-CriTeach, appendix A.2.4, equation 13, which compares the state X_m that this prefix reaches with the
    goal state: their atoms in common over their atoms in all. How we differ: its goals are whole states, ours name some
    atoms only, and against a whole state the ratio would stay below 1 for a plan that is valid. So both sides are
    restricted to what the goal names. For a goal of positive literals the ratio is then exactly this share; a conjunct
    of another kind counts as one atom.

    A plan that is valid scores 1. A malformed plan is not executed, as in VAL, and scores what holds at the start.
    """
    if not task.goal:
        return 1.0
    return 1.0 - len(task.unsatisfied(task.goal, verdict.states[-1])) / len(task.goal)


def printed_progress(task: PlanningTask, verdict: PlanVerdict) -> float:
    """Return equation 13 as printed: atoms in common over atoms in all, of the state reached and the goal.

    Conjuncts of the goal that are no positive literals count as atoms of their own, in common where they hold.
    """
    state = verdict.states[-1]
    reached = set(task.atoms_of(state))
    named = {part.atom for part in task.goal if isinstance(part, Literal) and part.is_positive}
    others = [part for part in task.goal if not (isinstance(part, Literal) and part.is_positive)]
    n_common = len(reached & named) + sum(task.holds(part, state) for part in others)
    n_all = len(reached | named) + len(others)
    return n_common / n_all if n_all else 1.0

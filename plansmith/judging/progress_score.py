"""How far an attempt came towards the goal before its first wrong action, as a number in [0, 1].

Not here: whether it reached the goal (`plansmith.pddl.validation`), and the mean over problems (`metrics`).
"""

from __future__ import annotations

from plansmith.pddl.grounding import PlanningTask
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

"""Where a valid plan first costs more than it must: the step after which the cheapest way to the goal is longer."""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.validation import validate_plan


def steps_before_detour(task: PlanningTask, plan: Sequence[PlanStep], costs_to_go: Sequence[float]) -> int | None:
    """Return how many steps of a valid plan an optimal one can begin with, or None where the plan is itself optimal.

    A needed step lowers the optimal cost to go by its own cost.

    Args:
        task: that the plan solves.
        plan: valid.
        costs_to_go: of an optimal plan from each state before a step; what is left after the last costs nothing.

    Raises:
        ValueError: there are not as many costs as steps.
    """
    if len(costs_to_go) != len(plan):
        raise ValueError(f"{len(costs_to_go)} costs for {len(plan)} steps")
    for kept, cost in enumerate([*costs_to_go[1:], 0.0]):
        if _cost(task, plan[: kept + 1]) + cost > _cost(task, ()) + costs_to_go[0]:
            return kept
    return None


def _cost(task: PlanningTask, plan: Sequence[PlanStep]) -> float:
    """Return what the first steps of a valid plan cost."""
    return float(validate_plan(task, plan).cost or 0)

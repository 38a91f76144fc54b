"""Where a plan first costs more than it must: the step after which the cheapest way to the goal is longer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.validation import validate_plan


def steps_before_detour(
    task: PlanningTask, plan: Sequence[PlanStep], optimum: float, cost_ahead: Callable[[int], float]
) -> int | None:
    """Return how many steps of a plan, or of its beginning, an optimal plan can begin with; None where with all.

    A needed step lowers the optimal cost ahead by its own cost, so what is spent and what is ahead never sum to less
    than before the step. So the place is found by bisection, after the last state: log2 of the number of steps.

    Args:
        task: where the plan starts.
        plan: each of its steps is applicable; it need not reach the goal.
        optimum: cost of an optimal plan for the task.
        cost_ahead: of an optimal plan from the state after so many steps.
    """

    def whole_cost(kept: int) -> float:
        return float(validate_plan(task, plan[:kept]).cost or 0) + cost_ahead(kept)

    if whole_cost(len(plan)) <= optimum:
        return None
    return bisect_right(range(1, len(plan)), optimum, key=whole_cost)

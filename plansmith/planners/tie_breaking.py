"""One plan among many of the same length: the first that breadth-first search meets.

An optimal planner breaks ties by the accidents of its open list, so equal situations are solved one way here and
another there, and what a policy imitates is partly noise. Here ties go by the order in which the domain declares its
actions. Blocksworld's `put-down` comes before `stack`: a block that is only in the way goes to the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep


def first_plan_of_length(task: PlanningTask, plan: Sequence[PlanStep], *, max_states: int) -> tuple[PlanStep, ...]:
    """Return the first plan that is as short as `plan`, a shortest one; `plan` itself where that takes too long.

    Args:
        task: its initial state is where the search starts.
        plan: a plan with the fewest actions.
        max_states: states generated before the search gives up; a task with more ground actions is not searched.
    """
    n_actions = sum(len(task.objects) ** len(schema.parameters) for schema in task.domain.actions)
    if n_actions > max_states:
        return tuple(plan)
    actions = [(action, action.required, action.forbidden) for action in task.ground_actions()]
    parents: dict[int, tuple[int, GroundAction] | None] = {task.initial_state: None}
    queue = deque([task.initial_state])
    while queue:
        state = queue.popleft()
        for action, required, forbidden in actions:
            if state & required != required or state & forbidden or not action.is_applicable(state):
                continue
            successor = action.apply(state)
            if successor in parents:
                continue
            parents[successor] = (state, action)
            if task.is_goal(successor):
                return _path_to(successor, parents)
            if len(parents) >= max_states:
                return tuple(plan)
            queue.append(successor)
    return tuple(plan)


def _path_to(state: int, parents: dict[int, tuple[int, GroundAction] | None]) -> tuple[PlanStep, ...]:
    steps: list[PlanStep] = []
    while (parent := parents[state]) is not None:
        state, action = parent
        steps.append(action.step)
    return tuple(reversed(steps))

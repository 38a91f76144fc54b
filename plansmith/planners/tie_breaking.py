"""One plan among many of the same length: the one that reaches its goals late.

An optimal planner breaks ties by the accidents of its open list, so equal situations are solved one way here and
another there, and what a policy imitates is partly noise. Here, of all plans as short, the one is taken in whose states
the fewest goals hold, summed over the states; what is still equal goes by the order in which the domain declares its
actions. Such a plan takes apart before it builds: a policy that imitates it looks for what is in the way, which one
look at the state tells, and seldom has to know of a goal that it cannot be reached for good yet, which takes many
(docs/log.md). Blocksworld's `put-down` comes before `stack`: a block that is only in the way goes to the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Literal, PlanStep

_Arrival = tuple[int, GroundAction]
"""The state before, and the action taken there."""


def plan_with_late_goals(task: PlanningTask, plan: Sequence[PlanStep], *, max_states: int) -> tuple[PlanStep, ...]:
    """Return the plan that reaches its goals last of those as short as `plan`, a shortest one.

    `plan` itself is returned where that takes too long. A goal is what is said of one atom.

    Args:
        task: its initial state is where the search starts.
        plan: a plan with the fewest actions.
        max_states: states generated before the search gives up; a task with more ground actions is not searched.
    """
    if task.most_ground_actions > max_states or task.is_goal(task.initial_state):
        return tuple(plan)
    actions = [(action, action.required, action.forbidden) for action in task.ground_actions()]
    wanted = task.state_of(goal.atom for goal in task.goal if isinstance(goal, Literal) and goal.is_positive)
    arrivals: dict[int, _Arrival | None] = {task.initial_state: None}
    layer = {task.initial_state: 0}  # goals that hold in the states before each, summed
    while layer:
        following: dict[int, int] = {}
        for state, before in layer.items():
            n_reached = before + (state & wanted).bit_count()
            for action, required, forbidden in actions:
                if state & required != required or state & forbidden or not action.is_applicable(state):
                    continue
                successor = action.apply(state)
                if successor in arrivals and following.get(successor, 0) <= n_reached:  # 0: of an earlier layer
                    continue
                following[successor], arrivals[successor] = n_reached, (state, action)
            if len(arrivals) >= max_states:
                return tuple(plan)
        goal = min(filter(task.is_goal, following), key=following.__getitem__, default=None)
        if goal is not None:
            return _path_to(goal, arrivals)
        layer = following
    return tuple(plan)


def _path_to(state: int, arrivals: Mapping[int, _Arrival | None]) -> tuple[PlanStep, ...]:
    steps: list[PlanStep] = []
    while (arrival := arrivals[state]) is not None:
        state, action = arrival
        steps.append(action.step)
    return tuple(reversed(steps))

"""How many steps the goal is away from each state that can be reached, where these are few enough to look at all."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from functools import cached_property, lru_cache

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.reachability import MAX_ACTIONS

MAX_STATES = 10_000


class GoalDistances:
    """Fewest steps from the states of a task to its goal; known of all that can be reached from the start, or of none.

    Args:
        task: domain and problem.
        max_states: where there are more, nothing is known.
    """

    def __init__(self, task: PlanningTask, max_states: int = MAX_STATES) -> None:
        self._task, self._max_states = task, max_states

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, task: PlanningTask) -> GoalDistances:
        """Return those of a task, which are kept for the last few."""
        return cls(task)

    def steps(self, state: int) -> float | None:
        """Return the fewest steps to the goal, infinity where there is no way; None where nobody knows."""
        if self._before is None or state not in self._before:
            return None
        return self._found.get(state, math.inf)

    @cached_property
    def _before(self) -> dict[int, list[int]] | None:
        """The states that can be reached, each with those that lead there in one step; None where they are too many."""
        task = self._task
        if task.most_ground_actions > MAX_ACTIONS:
            return None
        actions = task.ground_actions()
        before, waiting = defaultdict[int, list[int]](list, {task.initial_state: []}), deque([task.initial_state])
        while waiting:
            state = waiting.popleft()
            for action in actions:
                if not action.is_applicable(state):
                    continue
                after = action.apply(state)
                if after not in before:
                    waiting.append(after)
                before[after].append(state)
            if len(before) > self._max_states:
                return None
        return before

    @cached_property
    def _found(self) -> dict[int, int]:
        before = self._before or {}
        found = {state: 0 for state in before if self._task.is_goal(state)}
        waiting = deque(found)
        while waiting:
            after = waiting.popleft()
            for state in before[after]:
                if state not in found:
                    found[state] = found[after] + 1
                    waiting.append(state)
        return found

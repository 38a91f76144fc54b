"""What a goal implies in the states that can be reached, as a planner proves it.

A goal implies a condition where no reachable state has the goal without the condition: "goal and not condition" has no
plan. A plan for it, on the other hand, leads to a state that also refutes other conditions, so that few questions tell
which of many conditions a goal implies. The planner comes from outside; this package lies below `planners`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Condition, Conjunction, Domain, Literal, PlanStep, Problem, conjuncts_of
from plansmith.pddl.normal_form import FALSE, negated

QUESTIONS_LIMIT = 100
"""Questions to a planner about one goal."""

UNANSWERED_LIMIT = 3
"""Questions left open after which no more are asked: each took as long as a question may."""


class NoPlan(Enum):
    """Why a planner gave no plan."""

    PROVEN = "there is none"
    UNKNOWN = "neither found nor proven that there is none"


AskPlanner = Callable[[Problem], Sequence[PlanStep] | NoPlan]
"""What a planner says of a problem of the domain that is compared in: a valid plan, or why there is none."""


class Questions:
    """The questions that may still be asked about one goal."""

    def __init__(self, ask: AskPlanner, *, limit: int = QUESTIONS_LIMIT) -> None:
        self._ask, self._left, self._unanswered_left = ask, limit, UNANSWERED_LIMIT

    def put(self, problem: Problem) -> Sequence[PlanStep] | NoPlan:
        """Return the planner's answer; `NoPlan.UNKNOWN` when no more may be asked."""
        if not self._left or not self._unanswered_left:
            return NoPlan.UNKNOWN
        self._left -= 1
        answer = self._ask(problem)
        self._unanswered_left -= answer is NoPlan.UNKNOWN
        return answer


class ProvenGoal:
    """The goal of one problem, in normal form, with what is known of the states that have it."""

    def __init__(self, domain: Domain, problem: Problem, questions: Questions) -> None:
        self.conjuncts = conjuncts_of(problem.goal)
        self._problem = replace(problem, metric=None)
        self._task = PlanningTask(domain, problem)
        self._questions = questions
        self._states: list[int] = []
        """Reachable states that have the goal."""
        self._implied, self._open = set(self.conjuncts), set[Condition]()
        self.is_unreachable = self.implies(FALSE)
        """Whether no reachable state has the goal, which then implies everything; None if that is not known."""

    def implies(self, condition: Condition) -> bool | None:
        """Return whether every reachable state with the goal has the condition; None if that is not known."""
        if FALSE in self._implied or condition in self._implied:
            return True
        if any(not self._task.holds(condition, state) for state in self._states):
            return False
        if isinstance(condition, Literal) and (value := self._task.fixed_value(condition.atom)) is not None:
            return value == condition.is_positive or self.is_unreachable
        return None if condition in self._open else self._ask(condition)

    def _ask(self, condition: Condition) -> bool | None:
        wanted = Conjunction((*self.conjuncts, *conjuncts_of(negated(condition))))
        answer = self._questions.put(replace(self._problem, goal=wanted))
        if answer is NoPlan.UNKNOWN:
            self._open.add(condition)
            return None
        if answer is NoPlan.PROVEN:
            self._implied.add(condition)
            return True
        self._states.append(self._end_of(answer))
        return False

    def _end_of(self, plan: Sequence[PlanStep]) -> int:
        state = self._task.initial_state
        for step in plan:
            action = self._task.ground(step)
            assert isinstance(action, GroundAction), f"a planner's plan names {step}"
            state = action.apply(state)
        return state

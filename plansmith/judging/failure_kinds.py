"""Of what kind a failed attempt at a domain is: a wrong state, an illegal action, going in circles, or no way to go.

"On the Generalization Gap in LLM Planning" (arXiv 2601.14456, section 6.2) tells in words that plans in new domains run
in loops or wander; here each failure is of one kind. Not here: the root cause by the words of a chain (`taxonomy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from plansmith.data.rows import JudgedStepRow, VerdictRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import FeedbackCode, Verdict, validate_plan


class FailureKind(StrEnum):
    """Why an attempt failed; which comes first says `failure_kind`."""

    UNREADABLE = "unreadable"
    """No plan can be read, or the limit of tokens came first; of a chain whose steps come back to a state see below."""
    WRONG_STATE = "wrong state"
    """A step claims a state that its action does not lead to, and no action before was illegal."""
    ILLEGAL_ACTION = "illegal action"
    """A precondition does not hold, or the action is none of the domain."""
    IN_CIRCLES = "in circles"
    """The plan can be executed and comes back to a state, or the chain does until it is cut."""
    NO_GOAL_NEARER = "no goal nearer"
    """No more conjuncts of the goal hold at the end than at the start."""
    GOAL_MISSED = "goal missed"
    """Some more hold, and not all."""


def failure_kind(task: PlanningTask, row: VerdictRow, steps: Iterable[JudgedStepRow]) -> FailureKind:
    """Return the kind of a failed attempt.

    Args:
        task: that was attempted.
        row: the verdict on it.
        steps: of its chain, none of an answer that is a plan alone.

    Raises:
        ValueError: it did not fail, or could not be judged.
    """
    if row.verdict not in (Verdict.MALFORMED_PLAN, Verdict.PRECONDITION_UNSATISFIED, Verdict.GOAL_NOT_REACHED):
        raise ValueError(f"not a failed attempt: {row.verdict}")
    steps = sorted(steps, key=lambda step: step.step)
    for step in steps:
        if step.feedback_code == FeedbackCode.EFFECT:
            return FailureKind.WRONG_STATE
        if step.feedback_code in (FeedbackCode.PRECONDITION, FeedbackCode.MALFORMED):
            return FailureKind.ILLEGAL_ACTION
    if row.verdict == Verdict.PRECONDITION_UNSATISFIED or (row.verdict == Verdict.MALFORMED_PLAN and _is_plan(row)):
        return FailureKind.ILLEGAL_ACTION
    if row.verdict == Verdict.GOAL_NOT_REACHED:
        return _of_legal_plan(task, row.plan)
    taken = [step.action for step in steps if step.feedback_code != FeedbackCode.WITHDRAWN]
    is_looping = _of_legal_plan(task, taken) is FailureKind.IN_CIRCLES
    return FailureKind.IN_CIRCLES if is_looping else FailureKind.UNREADABLE


def _is_plan(row: VerdictRow) -> bool:
    """Return whether a plan was read, whose actions the domain does not have."""
    return row.reading_fault is None and bool(row.plan)


def _of_legal_plan(task: PlanningTask, plan: Sequence[str]) -> FailureKind:
    states = validate_plan(task, [parse_step(step) for step in plan]).states
    if len(set(states)) < len(states):
        return FailureKind.IN_CIRCLES
    missing = [len(task.unsatisfied(task.goal, state)) for state in (states[0], states[-1])]
    return FailureKind.NO_GOAL_NEARER if missing[1] >= missing[0] else FailureKind.GOAL_MISSED

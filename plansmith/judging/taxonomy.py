"""The four error classes of the paper's table 5.

Source: PDDL-INSTRUCT, appendix C.2, table 5. The paper names the classes and never defines them; two of them can
apply to one attempt. We read the table so that every failed attempt has exactly one class, that of its first fault:

1. `INCORRECT_EFFECT`: of the steps of the chain the first that is wrong claims a wrong state. From there on the policy
   planned in a world that does not exist.
2. `PRECONDITION_VIOLATION`: every state claimed before is right, an action is still illegal.
3. `GOAL_NOT_ACHIEVED`: every action is legal, every claimed state right, and they end short of the goal.
4. `INVALID_ACTION_SEQUENCE`: the first fault is an action that does not exist; or there is no action, or none is wrong
   and still no plan can be read.

What an attempt says of reasons, goals and preconditions has no class: the fault is what it does. That the text is cut
off, or cannot be read to its end, is none either, as long as actions can be read before: they are judged as far as they
go, the action of the step in which reading broke off included. One that is cut off after an illegal action violates a
precondition; one that was legal so far misses the goal. A plan that is valid has no error class, whatever its chain
claims: the paper scores the plan (section 6).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from plansmith.pddl.validation import FeedbackCode, Verdict


class ErrorClass(StrEnum):
    """Why an attempt failed, in the order of table 5."""

    PRECONDITION_VIOLATION = "precondition_violation"
    INCORRECT_EFFECT = "incorrect_effect"
    GOAL_NOT_ACHIEVED = "goal_not_achieved"
    INVALID_ACTION_SEQUENCE = "invalid_action_sequence"


_BY_STEP = {
    FeedbackCode.EFFECT: ErrorClass.INCORRECT_EFFECT,
    FeedbackCode.PRECONDITION: ErrorClass.PRECONDITION_VIOLATION,
    FeedbackCode.MALFORMED: ErrorClass.INVALID_ACTION_SEQUENCE,
}
_BY_ACTIONS = {
    Verdict.PRECONDITION_UNSATISFIED: ErrorClass.PRECONDITION_VIOLATION,
    Verdict.GOAL_NOT_REACHED: ErrorClass.GOAL_NOT_ACHIEVED,
}


def classify_failure(verdict: Verdict, codes: Iterable[FeedbackCode], by_actions: Verdict) -> ErrorClass | None:
    """Return the root cause of a failed attempt, or None when the plan is valid.

    Args:
        verdict: the validator's word on the plan.
        codes: of the steps of the chain, in their order.
        by_actions: the validator's word on the actions that could be read; a malformed plan if there are none.

    Raises:
        ValueError: ``bad_input``: a domain or problem that the validator cannot judge is no failure of the policy and
            must not be counted as one.
    """
    if verdict is Verdict.BAD_INPUT:
        raise ValueError("verdict 'bad_input': the problem itself cannot be judged; remove it before evaluating")
    if verdict is Verdict.VALID:
        return None
    by_step = next((_BY_STEP[code] for code in codes if code in _BY_STEP), None)
    return by_step or _BY_ACTIONS.get(by_actions, ErrorClass.INVALID_ACTION_SEQUENCE)

"""The four error classes of the paper's table 5.

Source: PDDL-INSTRUCT, appendix C.2, table 5. The paper names the classes and never defines them; two of them can
apply to one attempt. We read the table so that every failed attempt has exactly one class, its root cause:

1. `INVALID_ACTION_SEQUENCE`: no plan can be read: malformed, truncated, or naming an action the domain does not have.
2. `INCORRECT_EFFECT`: the chain claims a wrong state at some step, and a *later* step fails or the goal is missed. From
   the wrong state on the policy planned in a world that does not exist.
3. `PRECONDITION_VIOLATION`: every state claimed before the failing step is right, the step is still illegal.
4. `GOAL_NOT_ACHIEVED`: every step is legal, every claimed state right, and the plan ends short of the goal.

A plan that is valid has no error class, whatever its chain claims: the paper scores the plan (section 6).
"""

from __future__ import annotations

from enum import StrEnum

from plansmith.pddl.validation import Verdict


class ErrorClass(StrEnum):
    """Why an attempt failed, in the order of table 5."""

    PRECONDITION_VIOLATION = "precondition_violation"
    INCORRECT_EFFECT = "incorrect_effect"
    GOAL_NOT_ACHIEVED = "goal_not_achieved"
    INVALID_ACTION_SEQUENCE = "invalid_action_sequence"


def classify_failure(
    verdict: Verdict, failed_step: int | None, first_effect_error_step: int | None, is_readable: bool
) -> ErrorClass | None:
    """Return the root cause of a failed attempt, or None when the plan is valid.

    Args:
        verdict: the validator's word on the plan.
        failed_step: the step whose precondition does not hold; set exactly when the verdict says so.
        first_effect_error_step: the first step whose claimed resulting state is wrong, numbered like ``failed_step``.
        is_readable: False when the completion was cut off or cannot be read as a chain with a plan.

    Raises:
        ValueError: a failed step that does not fit the verdict, or ``bad_input``: a domain or problem that
            the validator cannot judge is no failure of the policy and must not be counted as one.
    """
    if verdict is Verdict.BAD_INPUT:
        raise ValueError("verdict 'bad_input': the problem itself cannot be judged; remove it before evaluating")
    if (verdict is Verdict.PRECONDITION_UNSATISFIED) != (failed_step is not None) and (
        verdict is not Verdict.MALFORMED_PLAN
    ):
        raise ValueError(f"verdict '{verdict}' does not fit failed_step={failed_step}")
    if verdict is Verdict.VALID:
        return None
    if verdict is Verdict.MALFORMED_PLAN or not is_readable:
        return ErrorClass.INVALID_ACTION_SEQUENCE
    return _root_cause(failed_step, first_effect_error_step)


def _root_cause(failed_step: int | None, first_effect_error_step: int | None) -> ErrorClass:
    """Return the class of a readable plan that fails at ``failed_step``, or at the goal when that is None."""
    is_effect_wrong = first_effect_error_step is not None
    if failed_step is None:
        return ErrorClass.INCORRECT_EFFECT if is_effect_wrong else ErrorClass.GOAL_NOT_ACHIEVED
    if first_effect_error_step is not None and first_effect_error_step < failed_step:
        return ErrorClass.INCORRECT_EFFECT
    return ErrorClass.PRECONDITION_VIOLATION

"""One attempt at a problem as reports and the live page show it: step by step, each with the validator's mark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plansmith.judging.taxonomy import ErrorClass


class StepMark(StrEnum):
    """What the validator says about one step of a chain."""

    OK = "ok"
    WRONG_STATE = "wrong_state"
    """The action is legal, the state the policy claims after it is not the one it leads to."""
    FAILED = "failed"
    """The precondition does not hold."""
    UNREACHED = "unreached"
    """Comes after a failed step, so it was not judged."""


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as the policy wrote it, with its mark; ``note`` says what is wrong with it."""

    number: int
    action: str
    text: str
    mark: StepMark
    note: str = ""


@dataclass(frozen=True, slots=True)
class AttemptExample:
    """One attempt shown in the report. ``error_class`` is None for a solved problem.

    ``completion`` is shown when ``steps`` is empty: a completion that cannot be read has no steps.
    """

    problem_id: str
    level: str
    arm: str
    initial_state: str
    goal: str
    steps: tuple[StepView, ...]
    error_class: ErrorClass | None
    validator_text: str
    planner_plan: tuple[str, ...]
    completion: str = ""

    @property
    def first_wrong_step(self) -> int | None:
        """Return the number of the first step that is not right, or None when all of them are."""
        return next((s.number for s in self.steps if s.mark in (StepMark.WRONG_STATE, StepMark.FAILED)), None)


MARK_WORDS = {
    StepMark.OK: "correct",
    StepMark.WRONG_STATE: "wrong state",
    StepMark.FAILED: "fails here",
    StepMark.UNREACHED: "not reached",
}

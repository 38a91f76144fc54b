"""One attempt at a problem as reports and the live page show it: step by step, each with the validator's mark.

Attempts are read from rows; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from plansmith.data.artifacts import Artifact
from plansmith.data.rows import JudgedStepRow, ProblemRow, VerdictRow
from plansmith.data.tables import row_of
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.validation import FeedbackCode
from plansmith.report.finished_stages import find_rows, judged_steps
from plansmith.text.chains import in_order


class StepMark(StrEnum):
    """What the validator says about one step of a chain."""

    OK = "ok"
    WRONG_STATE = "wrong_state"
    """The action is legal, the state the policy claims after it is not the one it leads to."""
    FALSE_WORDS = "false_words"
    """The action is legal and the state after it right, something said of the state before it is false."""
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
        right = (StepMark.OK, StepMark.UNREACHED)
        return next((step.number for step in self.steps if step.mark not in right), None)


MARK_WORDS = {
    StepMark.OK: "correct",
    StepMark.WRONG_STATE: "wrong state",
    StepMark.FALSE_WORDS: "false words",
    StepMark.FAILED: "fails here",
    StepMark.UNREACHED: "not reached",
}


def attempt_example(
    problem: ProblemRow,
    completion: str,
    verdict: VerdictRow,
    steps: Sequence[JudgedStepRow],
    planner_plan: tuple[str, ...],
    *,
    arm: str,
) -> AttemptExample:
    """Return an attempt as the report shows it: the policy's own words step by step, each with its mark."""
    task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
    return AttemptExample(
        problem_id=problem.problem_id,
        level=problem.level,
        arm=arm,
        initial_state=" ".join(str(atom) for atom in in_order(task.problem.init)),
        goal=" ".join(str(literal) for literal in task.goal),
        steps=tuple(_step_views(steps, completion)),
        error_class=ErrorClass(verdict.error_class) if verdict.error_class else None,
        validator_text=verdict.report,
        planner_plan=planner_plan,
        completion=completion,
    )


def read_attempts(
    verdicts: Sequence[VerdictRow],
    *,
    arm: str,
    judged: Artifact,
    rollouts: Artifact,
    problems: Artifact,
    plans: Artifact | None,
) -> Iterator[AttemptExample]:
    """Yield some judged attempts of an arm as the report shows them; no texts are read but theirs."""
    ids, rollout_ids = {verdict.problem_id for verdict in verdicts}, {verdict.rollout_id for verdict in verdicts}
    problem_of = {row["problem_id"]: row_of(row, ProblemRow) for row in find_rows(problems, "problem_id", ids)}
    planned = find_rows(plans, "problem_id", ids, "problem_id", "plan") if plans else []
    plan_of = {row["problem_id"]: tuple(row["plan"]) for row in planned}
    written = find_rows(rollouts, "rollout_id", rollout_ids, "rollout_id", "completion")
    completion_of = {row["rollout_id"]: row["completion"] for row in written}
    steps_of = judged_steps(judged, rollout_ids)
    for verdict in verdicts:
        problem, name, plan = problem_of[verdict.problem_id], verdict.rollout_id, plan_of.get(verdict.problem_id, ())
        yield attempt_example(problem, completion_of[name], verdict, steps_of[name], plan, arm=arm)


def _step_views(steps: Sequence[JudgedStepRow], completion: str) -> Iterator[StepView]:
    is_reached = True
    for row in steps:
        mark = _MARKS[FeedbackCode(row.feedback_code)] if is_reached else StepMark.UNREACHED
        text = completion[row.choice.start : row.outcome.end]
        yield StepView(row.step, row.action, text, mark, _note(row) if is_reached else "")
        is_reached = is_reached and mark is not StepMark.FAILED


def _note(row: JudgedStepRow) -> str:
    """Return what is wrong with a step, and what it says wrongly of the state before it."""
    false = "; ".join(words.reason for words in row.false_words)
    if not false or row.feedback_code == FeedbackCode.CLAIM:
        return false or row.reason
    return f"{row.reason} (said wrongly: {false})"


_MARKS = {
    FeedbackCode.OK: StepMark.OK,
    FeedbackCode.WITHDRAWN: StepMark.OK,
    FeedbackCode.GOAL: StepMark.OK,
    FeedbackCode.CLAIM: StepMark.FALSE_WORDS,
    FeedbackCode.EFFECT: StepMark.WRONG_STATE,
    FeedbackCode.PRECONDITION: StepMark.FAILED,
    FeedbackCode.MALFORMED: StepMark.FAILED,
}

"""Who judges completions: the protocol that a pipeline's judge keeps, and the judge of plans and of chains of thought.

A judge sees each completion once and leaves rows; whatever comes later, data sets, feedback, measurements, the report,
reads these. Not here: the judging of one chain (`chains`), and where judges run (`actors.validator`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from plansmith.data.rows import CompletionRow, FalseWords, JudgedRow, JudgedStepRow, JudgingRow, VerdictRow
from plansmith.errors import BadInputError
from plansmith.judging.chains import JudgedChain, attempt_of, judge_actions, judge_completion, sound_steps
from plansmith.judging.expected import Expected, expected_words
from plansmith.judging.progress_score import progress_score
from plansmith.judging.taxonomy import ErrorClass, classify_failure
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom
from plansmith.pddl.validation import FeedbackCode, Verdict
from plansmith.text.chains import Part, ReadChain, in_order
from plansmith.text.explanations import Attempt, FeedbackKind
from plansmith.text.rendering import Prompting, is_rendering, prompting_of, rendering_of


class Judge(Protocol):
    """Turns the completions of a problem into rows; it travels to workers and keeps nothing between problems."""

    def judge(self, row: JudgingRow) -> JudgedRow:
        """Return a verdict on each completion, and its judged steps if it has any."""


@dataclass(frozen=True, slots=True)
class PlanJudge:
    """Judges plans, and the steps of chains of thought, with the validator.

    Attributes:
        prompting: how the policy was asked, by the name that `plansmith.text.rendering.prompting_of` knows.
    """

    prompting: str

    def judge(self, row: JudgingRow) -> JudgedRow:
        """Return a verdict on each completion, and every step of its chain judged."""
        task, prompting = PlanningTask.from_text(row.domain_pddl, row.problem_pddl), prompting_of(self.prompting)
        verdicts: list[VerdictRow] = []
        steps: list[JudgedStepRow] = []
        for completion in row.completions:
            judged = judge_completion(task, completion.completion, prompting, is_cut=completion.is_cut)
            verdicts.append(verdict_row(task, row.problem_id, completion, judged, prompting))
            steps += step_rows(task, row.problem_id, completion, judged)
        return JudgedRow(row.problem_id, tuple(verdicts), tuple(steps))


def verdict_row(
    task: PlanningTask, problem_id: str, completion: CompletionRow, judged: JudgedChain, prompting: Prompting
) -> VerdictRow:
    """Return what is said of a completion as a whole."""
    plan, read, fault = judged.plan, judged.read, judged.first_fault
    codes = [step.judgement.code for step in judged.steps if step.judgement.code is not FeedbackCode.WITHDRAWN]
    attempt = attempt_of(task, judged)
    expected, binary, detailed = _in_words(task, judged, attempt, prompting)
    return VerdictRow(
        rollout_id=completion.rollout_id,
        problem_id=problem_id,
        iteration=completion.iteration,
        policy_version=completion.policy_version,
        verdict=judged.verdict,
        reason=plan.reason,
        error_class=ErrorClass.INVALID_ACTION_SEQUENCE
        if judged.verdict == Verdict.BAD_INPUT  # an effect without a value, for one: no action that can be executed
        else classify_failure(judged.verdict, codes, judge_actions(task, read)),
        failed_step=plan.failed_step,
        unsatisfied=tuple(str(literal) for literal in plan.unsatisfied),
        plan=tuple(str(step) for step in plan.plan),
        report=attempt.report,
        reading_fault=read.fault,
        claimed_verdict=read.chain.verdict,
        n_steps=len(judged.steps),
        first_fault=None if fault is None else fault + 1,
        unread_reasons=_unread_reasons(read),
        sound_steps=sound_steps(task, judged),
        final_plan_span=read.final_plan_span,
        verdict_span=read.verdict_span,
        expected_words=None if expected is None else expected.words,
        expected_at=None if expected is None else expected.at,
        binary_feedback=binary,
        detailed_feedback=detailed,
        plan_cost=None if plan.cost is None else float(plan.cost),
        progress=progress_score(task, plan),
    )


def _in_words(
    task: PlanningTask, judged: JudgedChain, attempt: Attempt, prompting: Prompting
) -> tuple[Expected | None, str | None, str | None]:
    """Return the expected words at the first fault, and a failed attempt as it is handed back, in both ways.

    None where there is nothing to be told, and where the rendering has no words for a condition.
    """
    if not is_rendering(prompting):
        return None, None, None
    rendering = rendering_of(prompting.name)
    try:
        expected = expected_words(task, judged, rendering)
        if judged.plan.is_valid:
            return expected, None, None
        binary, detailed = (rendering.write_attempt(attempt, kind) for kind in FeedbackKind)
    except BadInputError:
        return None, None, None
    return expected, binary, detailed


def _unread_reasons(read: ReadChain) -> int:
    claims = chain.from_iterable((*(spans.claims for spans in read.spans), read.closing))
    return sum(claim.part is Part.UNREAD for claim in claims)


def step_rows(
    task: PlanningTask, problem_id: str, completion: CompletionRow, judged: JudgedChain
) -> Iterator[JudgedStepRow]:
    """Yield every step of a chain with its judgement."""
    s_prev: tuple[str, ...] | None = None
    taken = [i for i, step in enumerate(judged.steps, 1) if step.judgement.code is not FeedbackCode.WITHDRAWN]
    for number, (step, spans) in enumerate(zip(judged.steps, judged.read.spans, strict=True), 1):
        false = (*step.false_claims, *(judged.closing if taken and number == taken[-1] else ()))
        s_claimed, is_right = _as_text(step.s_claimed), step.judgement.code.is_outcome_right
        yield JudgedStepRow(
            rollout_id=completion.rollout_id,
            problem_id=problem_id,
            iteration=completion.iteration,
            policy_version=completion.policy_version,
            step=number,
            action=str(step.action),
            feedback_code=step.judgement.code,
            state_distance=step.judgement.state_distance,
            reason=step.judgement.reason,
            false_words=tuple(FalseWords(claim.span, claim.reason) for claim in false),
            fault_span=step.fault_span,
            s_prev=_as_text(step.s_prev) if s_prev is None else s_prev,
            s_claimed=s_claimed,
            s_expected=s_claimed if is_right else _as_text(in_order(task.atoms_of(step.judgement.expected_state))),
            choice=spans.choice,
            outcome=spans.outcome,
        )
        s_prev = s_claimed


def _as_text(atoms: Iterable[Atom]) -> tuple[str, ...]:
    return tuple(map(str, atoms))

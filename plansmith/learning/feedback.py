"""From judged rollouts to the training sequences of phase 2.

Stage 1 (D_reasoning): the rollout's own steps with standardised L_step as score weights, the right outcomes among them
with likelihood weights (all words of an exemplary rollout), and the *expected* outcome of the first wrong step.
Stage 2 (D_final): the plan's tokens with score weights beta * (1[v=0] - baseline), the verdict token with its label,
and exemplary rollouts with likelihood weights. See `docs/method.md` for why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.config.training import LossConfig
from plansmith.data.rows import JudgedStepRow
from plansmith.learning.sequences import (
    NLL_WEIGHT,
    SCORE_WEIGHT,
    VERDICT_LABEL,
    TrainingSequence,
    supervised_sequence,
)
from plansmith.pddl.validation import FeedbackCode
from plansmith.text.chains import Span


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """A rollout's tokens: the prompt's, the completion's, and for each of the latter the characters it stands for.

    The spans ascend.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    spans: tuple[Span, ...]

    def positions(self, outer: Span) -> range:
        """Return the positions of the completion tokens that reach into a range of characters."""
        first = bisect_right(self.spans, outer.start, key=lambda span: span.end)
        return range(first, max(first, bisect_left(self.spans, outer.end, key=lambda span: span.start)))

    def inside(self, *ranges: Span) -> list[bool]:
        """Return for each completion token whether it reaches into one of the ranges."""
        marks = [False] * len(self.spans)
        for outer in ranges:
            for position in self.positions(outer):
                marks[position] = True
        return marks


def reasoning_sequence(
    tokens: SampledTokens, steps: Sequence[JudgedStepRow], losses: Sequence[float], *, is_exemplary: bool = False
) -> TrainingSequence:
    """Return the rollout with the weights of L_reasoning (equations 4 and 5).

    The score falls on the part of a step that is at fault: what it claims to happen, or else the choice of the action.
    On the whole step it made right words as unlikely as wrong ones (docs/log.md).

    Args:
        tokens: the rollout.
        steps: the judged steps of its chain.
        losses: L_step of each step over their standard deviation. Without a baseline: a right step has loss 0 and is
            left alone. With one, every right step would be made likelier, and going in circles is made of right steps.
        is_exemplary: nothing in the rollout is wrong or needless. Then its choices are kept likely too: what else is
            learned comes from failed attempts, and a policy trained on these alone forgot what it could do.
    """
    if is_exemplary:
        return _sequence(tokens, [1.0] * len(tokens.completion_ids), [0.0] * len(tokens.completion_ids))
    score = [0.0] * len(tokens.completion_ids)
    likelihood = [0.0] * len(tokens.completion_ids)
    for step, loss in zip(steps, losses, strict=True):
        code = FeedbackCode(step.feedback_code)
        for position in tokens.positions(step.outcome if code is FeedbackCode.EFFECT else step.choice):
            score[position] = loss
        if code.is_outcome_right:
            for position in tokens.positions(step.outcome):
                likelihood[position] = 1.0
    return _sequence(tokens, likelihood, score)


def expected_outcome_sequence(tokens: SampledTokens, choice: Span, expected_ids: Sequence[int]) -> TrainingSequence:
    """Return the rollout up to the choice of a step, then the outcome the validator expects; it alone has weights."""
    kept = sum(span.end <= choice.end for span in tokens.spans)
    return supervised_sequence((*tokens.prompt_ids, *tokens.completion_ids[:kept]), expected_ids)


def final_sequence(
    tokens: SampledTokens, plan_spans: Sequence[Span], verdict_span: Span | None, *, v: int, baseline: float,
    weights: LossConfig, is_exemplary: bool = False,
) -> TrainingSequence:  # fmt: skip
    """Return the rollout with the weights of L_final (equations 8 and 9) and of its anchor.

    Args:
        tokens: the rollout.
        plan_spans: where actions are chosen and where the final plan stands.
        verdict_span: the word VALID or INVALID, if the policy came that far.
        v: the validator's label, 1 for a valid plan.
        baseline: mean of 1[v=0] over the other rollouts of the group.
        weights: beta.
        is_exemplary: see `reasoning_sequence`; the likelihood of such rollouts holds the policy where it is right while
            the verdict moves it.
    """
    advantage = weights.beta * ((1 - v) - baseline)
    score = [advantage if inside else 0.0 for inside in tokens.inside(*plan_spans)]
    stated = [0.0] * len(score)
    if verdict_span is not None:
        stated[tokens.inside(verdict_span).index(True)] = 1.0 if v else -1.0
    return _sequence(tokens, [float(is_exemplary)] * len(score), score, stated)


def _sequence(
    tokens: SampledTokens, likelihood: Sequence[float], score: Sequence[float], verdict: Sequence[float] | None = None
) -> TrainingSequence:
    """Return prompt and completion with numbers for the completion's tokens; 0 on the prompt."""
    zeros = [0.0] * len(tokens.prompt_ids)
    columns = {NLL_WEIGHT: [*zeros, *likelihood], SCORE_WEIGHT: [*zeros, *score]}
    if verdict is not None:
        columns[VERDICT_LABEL] = [*zeros, *verdict]
    return TrainingSequence.of((*tokens.prompt_ids, *tokens.completion_ids), columns)


def leave_one_out(values: Sequence[float]) -> list[float]:
    """Return for each value of a group the mean of the others; 0 for a group of one (no baseline)."""
    if len(values) < 2:
        return [0.0] * len(values)
    total = sum(values)
    return [(total - value) / (len(values) - 1) for value in values]

"""From judged rollouts to the training sequences of phase 2.

Stage 1 (D_reasoning): the rollout's own steps with standardised L_step as score weights on their false words, the right
outcomes among them with likelihood weights (all words as far as the rollout is exemplary), and the *expected* words at
the first fault. Without a stage 2 also the verdict that the policy should have stated.
Stage 2 (D_final): the plan's tokens with score weights beta * (1[v=0] - baseline), the verdict token with its label,
and exemplary rollouts with likelihood weights. See `docs/method.md` for why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plansmith.config.training import LossConfig
from plansmith.data.rows import FalseWords, JudgedStepRow, SequenceRow
from plansmith.learning.sequences import (
    JUDGED,
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

    def before(self, place: int) -> int:
        """Return how many completion tokens end before a character, or at it."""
        return bisect_right(self.spans, place, key=lambda span: span.end)

    def inside(self, *ranges: Span) -> list[bool]:
        """Return for each completion token whether it reaches into one of the ranges."""
        marks = [False] * len(self.spans)
        for outer in ranges:
            for position in self.positions(outer):
                marks[position] = True
        return marks


def reasoning_sequence(
    tokens: SampledTokens, steps: Sequence[JudgedStepRow], losses: Sequence[float], *, n_exemplary: int = 0
) -> TrainingSequence:
    """Return the rollout with the weights of L_reasoning (equations 4 and 5).

    The score falls on the first false words of a step and on nothing else: on the whole step, or on all of a choice, it
    made right words as unlikely as wrong ones (docs/log.md). Only true words are kept likely.

    Args:
        tokens: the rollout.
        steps: the judged steps of its chain.
        losses: L_step of each step over their standard deviation. Without a baseline: a right step has loss 0 and is
            left alone. With one, every right step would be made likelier, and going in circles is made of right steps.
        n_exemplary: in so many of its first tokens nothing is wrong or needless. There its choices are kept likely too:
            what else is learned of choices comes from where they failed, and a policy trained on these alone forgot
            what it could do.
    """
    n_tokens = len(tokens.completion_ids)
    score, likelihood = [0.0] * n_tokens, [1.0] * n_exemplary + [0.0] * (n_tokens - n_exemplary)
    places = [Span(step.choice.start, step.outcome.end) for step in steps]
    for step, loss in zip(steps, losses, strict=True):
        if step.fault_span is not None:
            places.append(step.fault_span)
            for position in tokens.positions(step.fault_span):
                score[position] = loss
        if FeedbackCode(step.feedback_code).is_outcome_right:
            for position in tokens.positions(step.outcome):
                likelihood[position] = 1.0
        for words in step.false_words:
            for position in tokens.positions(words.span):
                likelihood[position] = 0.0
    return _sequence(tokens, {NLL_WEIGHT: likelihood, SCORE_WEIGHT: score, JUDGED: tokens.inside(*places)})


def told_by_step(step: JudgedStepRow) -> JudgedStepRow:
    """Return a step as binary feedback tells of it: that something in it is false, not which words."""
    if step.fault_span is None and not step.false_words:
        return step
    whole = Span(step.choice.start, step.outcome.end)
    return replace(step, fault_span=whole, false_words=(FalseWords(whole, ""),))


def with_true_verdict(
    sequence: TrainingSequence, tokens: SampledTokens, stated: Span, ending: Sequence[int], *, v: int
) -> TrainingSequence:
    """Return a rollout's sequence that ends as it should have: with the true verdict, then the end of the answer.

    The verdict's first token is labelled, for `weigh_verdicts` to weigh; the others have a likelihood weight of 1.
    Without the end a policy that says INVALID goes on afterwards, and an attempt that goes on cannot be read
    (docs/log.md).

    Args:
        sequence: of the rollout.
        tokens: the same rollout.
        stated: where its verdict stands.
        ending: the tokens of the true verdict and of the end.
        v: the validator's label, 1 for a valid plan.
    """
    place = len(tokens.prompt_ids) + tokens.positions(stated)[0]
    columns = {
        name: np.concatenate([numbers[:place], np.zeros(len(ending), np.float32)])
        for name, numbers in sequence.columns.items()
    }
    columns[NLL_WEIGHT][place + 1 :] = 1.0
    columns[VERDICT_LABEL] = np.zeros(place + len(ending), np.float32)
    columns[VERDICT_LABEL][place] = 1.0 if v else -1.0
    return TrainingSequence.of([*sequence.token_ids[:place], *ending], columns, sequence.unit)


def weigh_verdicts(rows: Iterable[SequenceRow], mean: float) -> Iterator[SequenceRow]:
    """Yield sequences with a likelihood weight at each labelled verdict: `mean` on average, both words alike in all.

    A policy that solves nine of ten must not learn to say VALID always. Where all plans are valid, or none, nothing
    tells one from the other, and the weights are 0.
    """
    found = [(row, _columns_of(row)) for row in rows]
    labels = [columns.get(VERDICT_LABEL, np.zeros(0, np.float32)) for _, columns in found]
    counts = {label: sum(int((column == label).sum()) for column in labels) for label in (1, -1)}
    total = mean * sum(counts.values()) / 2 if all(counts.values()) else 0.0
    for row, columns in found:
        if VERDICT_LABEL in columns:
            for label, count in counts.items():
                columns[NLL_WEIGHT][columns[VERDICT_LABEL] == label] = total / max(count, 1)
        yield TrainingSequence.of(row.token_ids, columns, row.unit).row(row.sequence_id)


def _columns_of(row: SequenceRow) -> dict[str, NDArray[np.float32]]:
    numbers = np.asarray(row.numbers, np.float32).reshape(len(row.columns), len(row.token_ids))
    return dict(zip(row.columns, numbers, strict=True))


def expected_words_sequence(tokens: SampledTokens, n_kept: int, expected_ids: Sequence[int]) -> TrainingSequence:
    """Return the first tokens of a rollout, then what a faithful writer tells there; it alone has weights."""
    return supervised_sequence((*tokens.prompt_ids, *tokens.completion_ids[:n_kept]), expected_ids)


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
    judged = tokens.inside(*plan_spans)
    stated = [0.0] * len(judged)
    if verdict_span is not None:
        stated[tokens.inside(verdict_span).index(True)] = 1.0 if v else -1.0
    return _sequence(
        tokens,
        {
            NLL_WEIGHT: [float(is_exemplary)] * len(judged),
            SCORE_WEIGHT: [advantage * is_inside for is_inside in judged],
            JUDGED: judged,
            VERDICT_LABEL: stated,
        },
    )


def _sequence(tokens: SampledTokens, columns: Mapping[str, Sequence[float]]) -> TrainingSequence:
    """Return prompt and completion with numbers for the completion's tokens; 0 on the prompt."""
    zeros = [0.0] * len(tokens.prompt_ids)
    return TrainingSequence.of(
        (*tokens.prompt_ids, *tokens.completion_ids), {name: [*zeros, *column] for name, column in columns.items()}
    )


def leave_one_out(values: Sequence[float]) -> list[float]:
    """Return for each value of a group the mean of the others; 0 for a group of one (no baseline)."""
    if len(values) < 2:
        return [0.0] * len(values)
    total = sum(values)
    return [(total - value) / (len(values) - 1) for value in values]

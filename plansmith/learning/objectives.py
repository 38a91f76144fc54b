"""What a phase minimises, computed from one micro-batch; the terms are in `losses`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from plansmith.learning import losses
from plansmith.learning.packing import PackedBatch
from plansmith.learning.printed_losses import LossWeights
from plansmith.learning.sequences import NO_VERDICT, TrainingSequence


class Objective(StrEnum):
    """Phase 1, and the two stages of phase 2."""

    SUPERVISED = "supervised"
    REASONING = "reasoning"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class VerdictTokens:
    """Ids of the tokens by which the policy states its verdict."""

    valid_id: int
    invalid_id: int


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Denominators of one optimiser batch, over all its micro-batches and ranks."""

    n_nll_tokens: int
    n_score_tokens: int
    n_plans: int

    @staticmethod
    def of(sequences: Iterable[TrainingSequence]) -> BatchCounts:
        """Return the counts of these sequences."""
        n_nll = n_score = n_plans = 0
        for sequence in sequences:
            n_nll += sequence.n_nll_tokens
            n_score += sequence.n_score_tokens
            n_plans += sequence.verdict_position != NO_VERDICT
        return BatchCounts(n_nll, n_score, n_plans)


METRICS = {
    Objective.SUPERVISED: ("loss", "nll"),
    Objective.REASONING: ("loss", "nll", "score", "clamped_share"),
    Objective.FINAL: ("loss", "nll", "score", "bce", "clamped_share"),
}
"""What `objective_loss` measures, by objective; each adds up over the micro-batches of a batch."""


def objective_loss(
    objective: Objective,
    logits: Tensor,
    batch: PackedBatch,
    *,
    counts: BatchCounts,
    weights: LossWeights,
    verdict_tokens: VerdictTokens,
) -> tuple[Tensor, dict[str, float]]:
    """Return this micro-batch's part of the loss, and of `METRICS`.

    ``SUPERVISED`` reads the likelihood weights, ``REASONING`` likelihood and score weights, ``FINAL`` both and the
    verdicts. The score metric is a surrogate: its gradient is meant, its value is no measure of quality.

    Args:
        logits: (B, T, V).
        batch: the same B rows.
        counts: of the whole optimiser batch, so that parts add up to its loss.
    """
    logprobs = losses.token_logprobs(logits, batch.token_ids)
    if objective is Objective.SUPERVISED:
        loss = losses.supervised_loss(logprobs, batch.nll_weights, counts.n_nll_tokens)
        return loss, _numbers(loss=loss, nll=loss)
    score_parts = _score_parts(logprobs, batch, counts, weights)
    nll = losses.supervised_loss(logprobs, batch.nll_weights, counts.n_nll_tokens)
    if objective is Objective.REASONING:
        loss = losses.reasoning_loss(
            logprobs,
            batch.nll_weights,
            batch.score_weights,
            n_nll_tokens=counts.n_nll_tokens,
            n_score_tokens=counts.n_score_tokens,
            weights=weights,
        )
        return loss, _numbers(loss=loss, nll=nll, **score_parts)
    two_logits = losses.verdict_logits(
        logits,
        batch.verdict_rows,
        batch.verdict_columns,
        valid_id=verdict_tokens.valid_id,
        invalid_id=verdict_tokens.invalid_id,
    )
    loss = losses.final_loss(
        logprobs,
        batch.nll_weights,
        batch.score_weights,
        two_logits,
        batch.verdict_labels,
        n_nll_tokens=counts.n_nll_tokens,
        n_score_tokens=counts.n_score_tokens,
        n_plans=counts.n_plans,
        weights=weights,
    )
    bce = losses.verdict_loss(two_logits, batch.verdict_labels, counts.n_plans)
    return loss, _numbers(loss=loss, nll=nll, bce=bce, **score_parts)


def _score_parts(logprobs: Tensor, batch: PackedBatch, counts: BatchCounts, weights: LossWeights) -> dict[str, Tensor]:
    floor, n_tokens = weights.logprob_floor, counts.n_score_tokens
    clamped = losses.clamped_tokens(logprobs, batch.score_weights, logprob_floor=floor)
    score = losses.score_function_loss(logprobs, batch.score_weights, n_tokens, logprob_floor=floor)
    return {"score": score, "clamped_share": clamped / max(n_tokens, 1)}


def _numbers(**parts: Tensor) -> dict[str, float]:
    return {name: float(part.detach()) for name, part in parts.items()}

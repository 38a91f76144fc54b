"""Stage 1 of phase 2: judged steps by their score, and the likelihood of what the validator expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from plansmith.config.training import LossConfig
from plansmith.learning.losses import clamped_tokens, score_function_loss, token_logprobs
from plansmith.learning.objectives.supervised import likelihood_loss
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import JUDGED, NLL_WEIGHT, SCORE_WEIGHT


@dataclass(frozen=True, slots=True)
class Reasoning:
    """L_reasoning as we differentiate it: score term plus likelihood of the expected words (equations 4 to 7).

    The dense second part is ours (DESIGN, "The two losses of phase 2"): what is right in a rollout, and what should
    have stood in place of its first false word, as tokens with a likelihood weight.
    """

    weights: LossConfig
    name: ClassVar[str] = "reasoning"
    columns: ClassVar[tuple[str, ...]] = (NLL_WEIGHT, SCORE_WEIGHT, JUDGED)

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the part of the loss, ``loss``, ``nll`` and those of `score_parts`."""
        logprobs = token_logprobs(logits, batch.token_ids)
        parts = score_parts(logprobs, batch, counts, self.weights)
        nll = likelihood_loss(logprobs, batch, counts)
        loss = self.weights.score * parts["score"] + nll
        return loss, {"loss": loss, "nll": nll, **parts}


def score_parts(
    logprobs: Tensor, batch: PackedBatch, counts: Mapping[str, int], weights: LossConfig
) -> dict[str, Tensor]:
    """Return ``score``, the score term by `SCORE_WEIGHT`, and ``clamped_share``, that of its tokens at the floor.

    The score is a surrogate: its gradient is meant, its value is no measure of quality. It is divided by all tokens
    that were judged (`JUDGED`), as equation 4 is by all steps, the right ones included: so a false word does not weigh
    the more, the rarer it gets.
    """
    floor, column = weights.logprob_floor, batch.columns[SCORE_WEIGHT]
    score = score_function_loss(logprobs, column, counts[JUDGED], logprob_floor=floor)
    clamped = clamped_tokens(logprobs, column, logprob_floor=floor)
    return {"score": score, "clamped_share": clamped / max(counts[SCORE_WEIGHT], 1)}

"""Stage 2 of phase 2: whole plans by their score, the verdict that the policy states, the anchor of the exemplary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plansmith.config.training import LossConfig
from plansmith.learning.losses import token_logprobs, verdict_logits, verdict_loss
from plansmith.learning.objectives.reasoning import score_parts
from plansmith.learning.objectives.supervised import likelihood_loss
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import JUDGED, NLL_WEIGHT, SCORE_WEIGHT, VERDICT_LABEL, Sequences
from plansmith.learning.tokenizer import verdict_token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class VerdictReader:
    """Reads v_hat, the probability of VALID against INVALID, at the tokens with a `VERDICT_LABEL`; 0 elsewhere."""

    valid_id: int
    invalid_id: int
    columns: ClassVar[tuple[str, ...]] = (VERDICT_LABEL,)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Self:
        """Return the reader for a tokenizer.

        Raises:
            BadInputError: no token of it tells VALID from INVALID.
        """
        return cls(*verdict_token_ids(tokenizer))

    def logits(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return the logits (J, 2) of INVALID and VALID at the J verdicts."""
        labels = batch.columns[VERDICT_LABEL]
        return verdict_logits(logits, labels, valid_id=self.valid_id, invalid_id=self.invalid_id)

    def read(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return v_hat at each verdict."""
        labels = batch.columns[VERDICT_LABEL]
        return torch.zeros_like(labels).masked_scatter(labels != 0, self.logits(logits, batch).softmax(dim=-1)[:, 1])


@dataclass(frozen=True, slots=True)
class Final:
    """L_final as we differentiate it: score term of beta * 1[v=0] plus alpha * BCE(v, v_hat) (equations 8, 9).

    beta is inside the score weights, beta * (1[v=0] - baseline) on the plan's tokens. v_hat is the probability of VALID
    against INVALID where the policy states its verdict. A third term is ours: the likelihood of exemplary rollouts,
    without which the verdict, one token a plan, is all that the gradient knows (docs/log.md).
    """

    weights: LossConfig
    verdict: VerdictReader
    name: ClassVar[str] = "final"
    columns: ClassVar[tuple[str, ...]] = (NLL_WEIGHT, SCORE_WEIGHT, JUDGED, VERDICT_LABEL)

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the part of the loss, ``loss``, ``nll``, ``bce`` and those of `score_parts`."""
        logprobs = token_logprobs(logits, batch.token_ids)
        parts = score_parts(logprobs, batch, counts, self.weights)
        nll = likelihood_loss(logprobs, batch, counts)
        labels = batch.columns[VERDICT_LABEL]
        stated = self.verdict.logits(logits, batch)
        bce = verdict_loss(stated, (labels[labels != 0] > 0).long(), counts[VERDICT_LABEL])
        loss = self.weights.score * parts["score"] + self.weights.alpha * bce + nll
        return loss, {"loss": loss, "nll": nll, "bce": bce, **parts}


def v_hats(numbers: Sequence[NDArray[np.float32]], sequences: Sequences) -> list[float | None]:
    """Return v_hat of each sequence from what `VerdictReader` read at its tokens; ``None`` without a verdict."""
    found: list[float | None] = []
    for position, read in enumerate(numbers):
        place = np.flatnonzero(sequences[position].columns.get(VERDICT_LABEL, ()))
        found.append(float(read[place[0]]) if len(place) else None)
    return found

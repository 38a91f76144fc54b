"""Phase 1: the likelihood of responses. Also the log-probability of each token, which every objective begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from plansmith.learning.losses import supervised_loss, token_logprobs
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import NLL_WEIGHT, RESPONSE_MASK
from plansmith.learning.token_reading import WHOLE_LOGITS, TokenQuestion, TokenReading


@dataclass(frozen=True, slots=True)
class Supervised:
    """Negative log-likelihood by `NLL_WEIGHT` (algorithm 1, line 5)."""

    name: ClassVar[str] = "supervised"
    columns: ClassVar[tuple[str, ...]] = (NLL_WEIGHT,)
    question: ClassVar[TokenQuestion] = TokenQuestion(NLL_WEIGHT)
    whole_logits: ClassVar[int] = WHOLE_LOGITS

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the part of the loss, ``loss`` and ``nll``, which are the same."""
        nll = likelihood_loss(token_logprobs(logits, batch.token_ids), batch, counts)
        return nll, {"loss": nll, "nll": nll}

    def loss_of(
        self, tokens: TokenReading, batch: PackedBatch, counts: Mapping[str, int]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the same from what was read of the tokens that have a weight."""
        weights = batch.columns[NLL_WEIGHT][self.question.is_counted(batch)]
        nll = supervised_loss(tokens.logprobs, weights, counts[NLL_WEIGHT])
        return nll, {"loss": nll, "nll": nll}


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Reads log p of each token given those before it, at a temperature; 0 for the first of a row.

    With ``top_p`` or ``top_k`` the p of what the policy wrote (`RESPONSE_MASK`) is that of its nucleus.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    columns: ClassVar[tuple[str, ...]] = (RESPONSE_MASK,)

    def read(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return the log-probabilities."""
        logprobs = token_logprobs(logits, batch.token_ids, temperature=self.temperature)
        question = TokenQuestion(RESPONSE_MASK, self.temperature, self.top_p, self.top_k)
        if question.is_cut:
            logprobs[question.is_counted(batch)] -= question.answer(logits, batch).kept
        return logprobs


def likelihood_loss(logprobs: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> Tensor:
    """Return the negative log-likelihood by `NLL_WEIGHT`, divided by the weighted tokens of the whole batch."""
    return supervised_loss(logprobs, batch.columns[NLL_WEIGHT], counts[NLL_WEIGHT])

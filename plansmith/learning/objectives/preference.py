"""Direct preference optimisation: of each pair the chosen response against the rejected one.

Also the log-probability of each half of a pair, read without training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plansmith.config.training import PreferenceConfig
from plansmith.learning.losses import preference_loss, token_logprobs
from plansmith.learning.objectives.supervised import likelihood_loss
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import NLL_WEIGHT, PAIR, PREFERENCE, REFERENCE_LOGPROB, Sequences
from plansmith.learning.token_reading import WHOLE_LOGITS, TokenQuestion, TokenReading


@dataclass(frozen=True, slots=True)
class PairLogprobs:
    """What a policy f and its reference f0 say of P pairs; each is (P,), log f(y|x) summed over the response."""

    chosen: Tensor
    rejected: Tensor
    reference_chosen: Tensor
    reference_rejected: Tensor

    @property
    def deltas(self) -> Tensor:
        """Return Delta of each pair (equation 5 of NL-PDDL-Bench), that of chosen less that of rejected."""
        return (self.chosen - self.reference_chosen) - (self.rejected - self.reference_rejected)

    def figures(self, n_pairs: float, *, beta: float) -> dict[str, Tensor]:
        """Return sums over these pairs divided by ``n_pairs``.

        ``preference`` is the loss, ``margin`` beta * Delta, ``accuracy`` the share with Delta > 0; ``chosen_logprob``
        and ``rejected_logprob`` are the policy's. They stand apart because a margin also grows while both fall.
        """
        deltas, n = self.deltas, max(n_pairs, 1.0)
        return {
            "preference": preference_loss(deltas, n_pairs, beta=beta),
            "margin": beta * deltas.sum() / n,
            "accuracy": (deltas > 0).sum() / n,
            "chosen_logprob": self.chosen.sum() / n,
            "rejected_logprob": self.rejected.sum() / n,
        }


@dataclass(frozen=True, slots=True)
class Preference:
    """L = mean of -log sigmoid(beta * Delta), plus lambda times the likelihood loss of chosen responses.

    Source: equation 5 of NL-PDDL-Bench, which is equation 7 of DPO (arXiv:2305.18290). Responses count with their end
    token. The second term is ours (`PreferenceConfig.likelihood`), with a denominator of its own, the tokens of chosen
    responses. The reference is read beforehand and comes as a column, so there is no second model.
    """

    settings: PreferenceConfig
    name: ClassVar[str] = "preference"
    columns: ClassVar[tuple[str, ...]] = (NLL_WEIGHT, PREFERENCE, PAIR, REFERENCE_LOGPROB)
    question: ClassVar[TokenQuestion] = TokenQuestion(PREFERENCE)
    whole_logits: ClassVar[int] = WHOLE_LOGITS

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the part of the loss, ``loss``, ``nll`` and those of `PairLogprobs.figures`.

        Raises:
            ValueError: half a pair, or pairs that no reference has read.
        """
        return self._loss(token_logprobs(logits, batch.token_ids), batch, counts)

    def loss_of(
        self, tokens: TokenReading, batch: PackedBatch, counts: Mapping[str, int]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the same from what was read of the tokens of responses."""
        is_counted = self.question.is_counted(batch)
        elsewhere = torch.zeros(is_counted.shape, device=is_counted.device)
        return self._loss(elsewhere.masked_scatter(is_counted, tokens.logprobs), batch, counts)

    def _loss(
        self, logprobs: Tensor, batch: PackedBatch, counts: Mapping[str, int]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what `loss` returns from log p of each token (B, T); what counts are those of responses."""
        if counts[REFERENCE_LOGPROB] < counts[PAIR]:  # of two different responses one has a probability below 1
            raise ValueError(f"{counts[PAIR]} pairs, {counts[REFERENCE_LOGPROB]} log-probabilities of the reference")
        figures = pairs_in(batch, logprobs).figures(counts[PAIR], beta=self.settings.beta)
        nll = likelihood_loss(logprobs, batch, counts)
        loss = figures["preference"] + self.settings.likelihood * nll
        return loss, {"loss": loss, "nll": nll, **figures}


def pairs_in(batch: PackedBatch, logprobs: Tensor) -> PairLogprobs:
    """Return the pairs of a micro-batch in their order.

    A unit lies in one row and its members are neighbours there, so the n-th chosen response and the n-th rejected one
    belong together, whichever comes first. Padding and a row without its loss are neither.

    Args:
        batch: with the columns of `Preference`.
        logprobs: (B, T).
    """
    marks = batch.columns[PREFERENCE]
    sides = sums_by_sequence(marks, batch.lengths)
    policy = sums_by_sequence(marks.abs() * logprobs, batch.lengths)
    reference = sums_by_sequence(batch.columns[REFERENCE_LOGPROB], batch.lengths)
    pairs = PairLogprobs(policy[sides > 0], policy[sides < 0], reference[sides > 0], reference[sides < 0])
    if len(pairs.chosen) != len(pairs.rejected):
        raise ValueError(f"{len(pairs.chosen)} chosen and {len(pairs.rejected)} rejected responses; pairs have a unit")
    return pairs


def sums_by_sequence(numbers: Tensor, lengths: Sequence[Sequence[int]]) -> Tensor:
    """Return the sum over each sequence, row by row, padding as one more.

    Args:
        numbers: (B, T).
        lengths: of a `PackedBatch`.
    """
    parts = [part for row, n_tokens in zip(numbers, lengths, strict=True) for part in row.split(list(n_tokens))]
    return torch.stack([part.sum() for part in parts])


def response_logprobs(numbers: Sequence[NDArray[np.float32]], sequences: Sequences) -> list[float]:
    """Return log f(y|x) of each half of a pair from what `trainer.token_logprobs` read at its tokens."""
    return [
        float(read[sequences[position].columns[PREFERENCE] != 0].sum(dtype=np.float64))
        for position, read in enumerate(numbers)
    ]

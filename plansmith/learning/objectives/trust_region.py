"""Equation 9 of Self-CriTeach within a trust region: what of a micro-batch's logits its two constraints are made of.

It is solved, not minimised, so it has no loss: the trainer hands it to `plansmith.learning.policy_region`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from plansmith.config.constrained import TrustRegionConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import OptimiserConfig
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import ADVANTAGE, COST_ADVANTAGE, RESPONSE_MASK, ROLLOUT_END
from plansmith.learning.token_reading import TokenQuestion


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """E[R] made large, under E[C] <= d and KL(pi, pi_k) <= delta, with pi_k the policy as the update begins.

    E[R] - E[R]_k is taken as 1/N sum_it r A_it over tokens t of N rollouts i, with r = pi / pi_k of what the token was
    drawn from (after top-p and top-k, as in `GroupRelative`) and A_it the advantage of its step; E[C] alike. Both are
    of whole plans, as R, C and d are. KL(pi, pi_k) is of whole distributions at the temperature that was sampled at,
    mean over the tokens: the states that pi_k visits (arXiv:1705.10528, equation 8; there pi is second in the
    surrogate's place as here, and the two orders have one Hessian at pi_k).

    Attributes:
        settings: of the solver.
        sampling: how rollouts were drawn.
        excess: J_C - d of the rollouts, in the cost of a plan.
    """

    settings: TrustRegionConfig
    sampling: SamplingConfig
    excess: float
    name: ClassVar[str] = "trust_region"
    columns: ClassVar[tuple[str, ...]] = (RESPONSE_MASK, ROLLOUT_END, ADVANTAGE, COST_ADVANTAGE)

    @property
    def question(self) -> TokenQuestion:
        """Return what is read of the tokens of rollouts."""
        sampling = self.sampling
        return TokenQuestion(RESPONSE_MASK, sampling.temperature, sampling.top_p, sampling.top_k)

    def logprobs(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return log p of each token of a rollout in what it was drawn from: (M,)."""
        read = self.question.answer(logits, batch)
        return read.logprobs - read.kept

    def gains(self, ratios: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> Tensor:
        """Return this micro-batch's parts of the two surrogates, E[R] and E[C]: (2,).

        Args:
            ratios: (M,), of the policy to pi_k.
            batch: with the columns.
            counts: of the whole update.
        """
        advantages = torch.stack([batch.columns[name][self.question.is_counted(batch)] for name in self.columns[2:]])
        return (advantages * ratios).sum(dim=1) / max(counts[ROLLOUT_END], 1)

    def scaled(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Return the logits that each token of a rollout was drawn from, at its temperature: (M, V)."""
        drawn_from = logits[:, :-1][self.question.is_counted(batch)[:, 1:]]
        return drawn_from / self.sampling.temperature

    def whole_batch(self, settings: OptimiserConfig, n_sequences: int) -> OptimiserConfig:
        """Return settings under which all rollouts of an update are one batch."""
        one = {"batch_sequences": n_sequences, "batch_tokens": None, "epochs": 1, "small_batch_share": 0.0}
        return settings.model_copy(update=one)

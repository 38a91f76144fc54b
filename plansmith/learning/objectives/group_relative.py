"""Policy gradients from groups of rollouts: GRPO, DAPO and Dr. GRPO, which differ in settings only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from plansmith.config.generation import SamplingConfig
from plansmith.config.reinforcement import GroupRelativeConfig
from plansmith.learning.group_relative import importance_weights, limited_weights, token_shares
from plansmith.learning.losses import clipped_surrogate, divergence_estimates
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import (
    ADVANTAGE,
    OLD_LOGPROBS,
    REFERENCE_LOGPROBS,
    RESPONSE_MASK,
    ROLLOUT_END,
    ROLLOUT_LOGPROBS,
)
from plansmith.learning.token_reading import TokenQuestion, TokenReading


@dataclass(frozen=True, slots=True)
class GroupRelative:
    """L = -1/Z sum_it [w min(r A, clip(r, 1 - e_low, 1 + e_high) A) - beta k] over tokens t of rollouts i.

    r = exp(logp - kept - old), w = min(exp(old - rollout), C), k = exp(ref - logp) - (ref - logp) - 1; all logarithms
    are at the temperature that was sampled at. ``old`` is the trainer's as the update begins, ``rollout`` the engine's
    as it sampled: r is what the update has done so far, w what engine and age of the weights have. w has no gradient.

    Under top-p and top-k r and w are of what was drawn from: each p is divided by the mass of its policy's own nucleus,
    which is exp(kept) for the policy now; k is of whole distributions. So over several steps r is the policy as it
    would draw now to the policy as it would have drawn, and jumps by the mass of what enters or leaves the nucleus; the
    drawn token always belongs to it. Masking by the sampler's own kept tokens (DeepSeek-V3.2, arXiv:2512.02556) has one
    set for all policies and no jumps, but needs that set of every token; the engine is not asked for it.

    Source: GRPO (arXiv:2402.03300, equations 3 and 4), with DAPO's and Dr. GRPO's choices as settings
    (`GroupRelativeConfig`). How we differ: the papers have no w and no nucleus. Z counts the rollouts that are trained
    on.

    Attributes:
        settings: of the objective.
        sampling: how rollouts were drawn.
        reads_old: take ``old`` from its column. Otherwise it is logp - kept itself, without gradient, and r is exactly
            1: right for an update of one step, which then reads the rollouts once less.
    """

    settings: GroupRelativeConfig
    sampling: SamplingConfig
    reads_old: bool = True
    name: ClassVar[str] = "group_relative"
    whole_logits: ClassVar[int] = 0

    @property
    def question(self) -> TokenQuestion:
        """Return what is read of the tokens of rollouts."""
        sampling = self.sampling
        return TokenQuestion(RESPONSE_MASK, sampling.temperature, sampling.top_p, sampling.top_k, has_entropies=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads under its settings."""
        return (RESPONSE_MASK, ROLLOUT_END, ADVANTAGE, *self._logprob_columns)

    @property
    def _logprob_columns(self) -> list[str]:
        wanted = {
            OLD_LOGPROBS: self.reads_old,
            ROLLOUT_LOGPROBS: self.settings.weight_limit is not None,
            REFERENCE_LOGPROBS: self.settings.beta > 0,
        }
        return [name for name, is_read in wanted.items() if is_read]

    def loss(self, logits: Tensor, batch: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return `loss_of` what the logits say."""
        return self.loss_of(self.question.answer(logits, batch), batch, counts)

    def loss_of(
        self, tokens: TokenReading, batch: PackedBatch, counts: Mapping[str, int]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the part of the loss, and figures.

        They are ``loss``; ``surrogate``, its first term; and means over tokens: ``entropy``; ``ratio`` (r); shares
        without gradient ``clipped_low`` (r too small with A < 0) and ``clipped_high`` (too large with A > 0). With
        weights ``weight`` and ``limited_weight`` (w before and after C) and ``mismatch`` (of engine and trainer, the
        mean of abs(old - rollout)). With a reference ``divergence`` (k).

        Raises:
            ValueError: a column that nobody has written.
        """
        for name in self._logprob_columns:
            if counts[RESPONSE_MASK] and not counts[name]:
                raise ValueError(f"{counts[RESPONSE_MASK]} tokens of rollouts, and nobody has written {name}")
        columns = {name: batch.columns[name][self.question.is_counted(batch)] for name in self.columns}
        logprobs = tokens.logprobs - tokens.kept
        old = columns[OLD_LOGPROBS] if self.reads_old else logprobs.detach()
        ratios, shares = (logprobs - old).exp(), self._shares(batch, counts)
        gains, figures = self._clipped(ratios, columns[ADVANTAGE])
        figures["entropy"] = tokens.entropies
        if self.settings.weight_limit is not None:
            weights, measured = self._weights(old, columns[ROLLOUT_LOGPROBS], batch, self.settings.weight_limit)
            gains, figures = weights * gains, figures | measured
        loss = surrogate = -(shares * gains).sum()
        if self.settings.beta > 0:
            figures["divergence"] = divergence_estimates(tokens.logprobs, columns[REFERENCE_LOGPROBS])
            loss = surrogate + self.settings.beta * (shares * figures["divergence"]).sum()
        n_tokens = max(counts[RESPONSE_MASK], 1)
        means = {name: numbers.detach().sum() / n_tokens for name, numbers in figures.items()}
        return loss, {"loss": loss, "surrogate": surrogate, **means}

    def _clipped(self, ratios: Tensor, advantages: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        low, high = self.settings.clip_low, self.settings.clip_high
        gains = clipped_surrogate(ratios, advantages, clip_low=low, clip_high=high)
        is_low, is_high = (ratios < 1 - low) & (advantages < 0), (ratios > 1 + high) & (advantages > 0)
        return gains, {"ratio": ratios, "clipped_low": is_low, "clipped_high": is_high}

    def _weights(
        self, old: Tensor, written: Tensor, batch: PackedBatch, limit: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weights = importance_weights(old, written, self._rollouts(batch), level=self.settings.weight_level)
        limited = limited_weights(weights, limit, beyond=self.settings.beyond_limit)
        return limited, {"weight": weights, "limited_weight": limited, "mismatch": (old - written).abs()}

    def _shares(self, batch: PackedBatch, counts: Mapping[str, int]) -> Tensor:
        return token_shares(
            self._rollouts(batch),
            denominator=self.settings.denominator,
            n_rollouts=counts[ROLLOUT_END],
            n_tokens=counts[RESPONSE_MASK],
            max_new_tokens=self.sampling.max_new_tokens,
        )

    def _rollouts(self, batch: PackedBatch) -> Tensor:
        """Return (M,) int64: which sequence of the batch, from 0, each counted token is of."""
        lengths = torch.tensor([length for row in batch.lengths for length in row])
        numbers = torch.repeat_interleave(torch.arange(len(lengths)), lengths).view(batch.token_ids.shape)
        return numbers.to(batch.token_ids.device)[self.question.is_counted(batch)]

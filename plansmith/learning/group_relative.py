"""What GRPO, DAPO and Dr. GRPO are made of, as pure functions: advantages, importance weights, denominators.

The ratio's clipping and the divergence from a reference serve other objectives too and are in `losses`. Not here: what
a rollout is worth (`plansmith.judging.rewards`), and the objective itself (`objectives.group_relative`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

import torch
from torch import Tensor

ADVANTAGE_EPS = 1e-4
"""Added to a standard deviation before it divides."""


def has_two_rewards(rewards: Sequence[float | None]) -> bool:
    """Return whether a group teaches anything: two of its rewards differ, those that nobody could tell left out."""
    return len({reward for reward in rewards if reward is not None}) > 1


def group_advantages(
    groups: Sequence[Sequence[float | None]],
    *,
    scale: Literal["group", "batch", "none"],
    baseline: Literal["group", "batch"] = "group",
) -> list[list[float | None]]:
    """Return A = (R - mean) / (sd + 1e-4) of each rollout, or R - mean.

    Source: GRPO with outcome rewards (arXiv:2402.03300, section 4.1.2), which has no 1e-4; without sd Dr. GRPO
    (arXiv:2503.20783, section 3.2). Where the papers are silent: sd is that of a sample (n - 1), as in TRL. The mean is
    the group's, or that of the batch (REINFORCE++, arXiv:2501.03262), by which a group of equal rewards teaches, too:
    all of a problem's rollouts may be better than most. Where what is compared is all equal, such as a group with a
    single reward, there are exact zeros.

    Args:
        groups: the rewards of each group's rollouts. None, for one that could not be judged, is no part of any mean or
            sd, and has no advantage.
        scale: whose sd divides.
        baseline: whose mean is taken off.

    Raises:
        ValueError: the batch's mean by the group's sd, which is 0 where a group's rewards are equal.
    """
    if (baseline, scale) == ("batch", "group"):
        raise ValueError("baseline=batch with scale=group: a group of equal rewards would be divided by 0")
    of_batch = [reward for group in groups for reward in group if reward is not None]
    found: list[list[float | None]] = []
    for group in groups:
        judged = [reward for reward in group if reward is not None]
        compared = judged if baseline == "group" else of_batch
        if not has_two_rewards(compared):
            found.append([None if reward is None else 0.0 for reward in group])
            continue
        mean = fmean(compared)
        divisor = 1.0 if scale == "none" else stdev(judged if scale == "group" else of_batch) + ADVANTAGE_EPS
        found.append([None if reward is None else (reward - mean) / divisor for reward in group])
    return found


def importance_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, rollouts: Tensor, *, level: Literal["token", "sequence"]
) -> Tensor:
    """Return exp(old - rollout) of each token, or of its whole rollout: how much likelier the trainer finds it.

    Source: truncated importance sampling between engine and trainer (Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training"). As the rollout's logarithms are those of the weights that wrote it, it
    corrects for older weights, too.

    Args:
        old_logprobs, rollout_logprobs: (M,), the trainer's as the update begins, the engine's as it sampled; both at
            the temperature that it sampled at.
        rollouts: (M,) int64, from 0: which rollout a token is of.
        level: of what.
    """
    differences = old_logprobs - rollout_logprobs
    return (differences if level == "token" else _sums(differences, rollouts)[rollouts]).exp()


def limited_weights(weights: Tensor, limit: float, *, beyond: Literal["truncate", "mask"]) -> Tensor:
    """Return min(w, C), or w with 0 in place of what is above C (masked importance sampling)."""
    return weights.clamp(max=limit) if beyond == "truncate" else weights.masked_fill(weights > limit, 0.0)


def token_shares(
    rollouts: Tensor,
    *,
    denominator: Literal["rollouts", "tokens", "limit"],
    n_rollouts: float,
    n_tokens: float,
    max_new_tokens: int,
) -> Tensor:
    """Return by what the loss of each token is multiplied, so that their sum is the batch's: its share of 1/Z.

    ``rollouts``: 1 / (N |o_i|), the mean over tokens and then over rollouts (GRPO, arXiv:2402.03300, equation 3).
    ``tokens``: 1 / sum |o_i|, so that a token of a long rollout weighs as much as any (DAPO, arXiv:2503.14476, equation
    8). ``limit``: 1 / (N max_new_tokens), so that no length is favoured (Dr. GRPO, arXiv:2503.20783, section 3.2; the
    constant is TRL's, the paper leaves it open).

    Args:
        rollouts: (M,) int64, from 0: which rollout a token is of; all tokens of a rollout are there.
        denominator: which Z.
        n_rollouts, n_tokens: of the whole batch; one without any gives 0.
        max_new_tokens: longest rollout that was asked for.
    """
    if denominator == "rollouts":
        ones = torch.ones_like(rollouts, dtype=torch.float32)
        return 1.0 / (_sums(ones, rollouts)[rollouts] * max(n_rollouts, 1.0))
    z = n_tokens if denominator == "tokens" else n_rollouts * max_new_tokens
    return torch.full_like(rollouts, 1.0 / max(z, 1.0), dtype=torch.float32)


def _sums(numbers: Tensor, rollouts: Tensor) -> Tensor:
    """Return the sum of each rollout's numbers."""
    n_rollouts = int(rollouts.max()) + 1 if len(rollouts) else 0
    return numbers.new_zeros(n_rollouts).index_add(0, rollouts, numbers)

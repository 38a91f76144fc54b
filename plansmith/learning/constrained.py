"""What constrained policy optimisation adds to a policy gradient: advantages by step, and the price of cost.

Source: Self-CriTeach, section 5.4, after CPO (arXiv:1705.10528), which solves a trust region. Here the Lagrangian of
equation 9 is maximised: E[R] - nu (E[C] - d), with nu moved along its gradient (as PPO-Lagrangian, Ray et al. 2019,
whose division by 1 + nu is taken over). The ratio's clipping and the divergence are the group-relative objective's
(`objectives.group_relative`), which takes an advantage for each token. Not here: R and C
(`plansmith.judging.step_critic`).
"""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.learning.feedback import SampledTokens, leave_one_out
from plansmith.text.chains import Span


def to_go(values: Sequence[float]) -> list[float]:
    """Return at each step the sum of what it and all later ones bring."""
    found, total = [], 0.0
    for value in reversed(values):
        total += value
        found.append(total)
    return found[::-1]


def step_advantages(group: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return for each step of each rollout of a group what it brings more than the others do from that step on.

    The baseline of step t is the mean of what the other rollouts bring from their step t on; one that has ended brings
    nothing more. It does not depend on the rollout itself, so the gradient has no bias. Alone there is no baseline.
    """
    sums = [to_go(values) for values in group]
    n_steps = max(map(len, sums), default=0)
    columns = [leave_one_out([found[t] if t < len(found) else 0.0 for found in sums]) for t in range(n_steps)]
    return [[value - columns[t][number] for t, value in enumerate(found)] for number, found in enumerate(sums)]


def penalised(rewards: Sequence[float], costs: Sequence[float], penalty: float) -> list[float]:
    """Return (A_R - nu A_C) / (1 + nu) of each step."""
    return [(reward - penalty * cost) / (1.0 + penalty) for reward, cost in zip(rewards, costs, strict=True)]


def next_penalty(penalty: float, cost: float, *, budget: float, rate: float) -> float:
    """Return nu after an update: max(0, nu + rate (J_C - d))."""
    return max(0.0, penalty + rate * (cost - budget))


def token_advantages(
    tokens: SampledTokens, advantages: Sequence[float], ends: Sequence[int], *, is_stopped: bool
) -> list[float]:
    """Return the advantage of each token of a rollout: that of the first step that ends behind it.

    Args:
        tokens: of the rollout.
        advantages: of its steps, one at least.
        ends: the character with which each of them ends; none where the answer is one step.
        is_stopped: nothing counts after the last step; otherwise the rest of the answer is a part of it.
    """
    if not ends:
        return [advantages[0]] * len(tokens.completion_ids)
    found = [0.0 if is_stopped else advantages[-1]] * len(tokens.completion_ids)
    first = 0
    for advantage, end in zip(advantages, ends, strict=True):
        reach = tokens.positions(Span(0, end)).stop
        found[first:reach] = [advantage] * (reach - first) if reach > first else []
        first = max(first, reach)
    return found

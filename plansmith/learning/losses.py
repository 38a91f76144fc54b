"""Losses as pure functions on tensors. What the paper prints, as plain numbers, is in `printed_losses`.

Notation: B rows, T tokens a row, V vocabulary entries, J judged plans. A row may hold several packed sequences; the
first token of each carries weight 0, so that no loss crosses a boundary.

Every function returns a *sum* or takes its denominator from outside, because a batch is worked off in micro-batches and
on several ranks: dividing by the counts of the whole batch makes the result independent of the cut.

Denominators. Equations 4 and 8 divide by the number of steps or plans. We divide the likelihood term by its weighted
tokens, the score term by all tokens of what was judged, whether they have a weight or not, and the verdict term by its
plans. For the score term this is the paper's direction times 1 / (mean tokens per step), the same for all steps of a
batch, hence no bias for short or long steps. Dividing by plans would let a plan of 40 tokens outweigh its own verdict,
and the dense likelihood term, forty times.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def token_logprobs(logits: Tensor, token_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return log p of each token given those before it, in float32; 0 for the first of a row.

    Args:
        logits: (B, T, V), any float type.
        token_ids: (B, T).
        temperature: that p is meant at; logits are divided by it.

    Returns:
        (B, T). At the first token of a later packed sequence the number means nothing; its weights are 0.
    """
    n_rows, n_tokens, n_vocabulary = logits.shape
    flat = logits[:, :-1].reshape(-1, n_vocabulary).float()
    flat = flat if temperature == 1.0 else flat / temperature
    negative = F.cross_entropy(flat, token_ids[:, 1:].reshape(-1), reduction="none")
    return F.pad(-negative.view(n_rows, n_tokens - 1), (1, 0))


def supervised_loss(logprobs: Tensor, nll_weights: Tensor, n_tokens: float) -> Tensor:
    """Return the weighted negative log-likelihood divided by ``n_tokens`` (algorithm 1, line 5).

    The paper writes -log P(pi, f | d, p): a sum over the response. We take the mean over all response tokens of the
    batch, as every trainer does; with weights of 0 and 1 it equals the loss of transformers on the same tensors.

    Args:
        logprobs, nll_weights: (B, T), or (M,) of the M tokens with a weight.
        n_tokens: tokens with a weight in the whole batch; a batch without any gives 0.
    """
    return -(nll_weights * logprobs).sum() / max(n_tokens, 1.0)


def score_function_loss(logprobs: Tensor, score_weights: Tensor, n_tokens: float, *, logprob_floor: float) -> Tensor:
    """Return the surrogate whose gradient is (L - baseline) * grad log p, divided by ``n_tokens``.

    Source: the gradient of equations 4 and 8, E[(L - b) grad log p(tokens)]; the paper does not say how it
    differentiates a loss over decoded states. How we differ from plain REINFORCE: minimising ``c * log p`` with c > 0
    has no minimum, and several epochs over the same rollouts would run away. So a token with c > 0 whose log p is below
    ``logprob_floor`` is clamped: its gradient is exactly 0. It is no longer sampled, and pushing it further only
    distorts its neighbours. Tokens with c < 0 need no bound, log p <= 0 is one. There is no importance ratio: an
    approximation, since a batch comes some steps after the weights that sampled it, and stage 2 starts from stage 1's.

    Args:
        logprobs, score_weights: (B, T); weight c = L, or L - baseline, 0 for tokens that belong to no judged step.
        n_tokens: tokens of judged steps or plans in the whole batch; a batch without any gives 0.
    """
    bounded = torch.where(score_weights > 0, logprobs.clamp(min=logprob_floor), logprobs)
    return (score_weights * bounded).sum() / max(n_tokens, 1.0)


def clamped_tokens(logprobs: Tensor, score_weights: Tensor, *, logprob_floor: float) -> Tensor:
    """Return how many tokens that should become less likely have reached the floor and get no gradient."""
    return ((score_weights > 0) & (logprobs < logprob_floor)).sum()


def verdict_logits(logits: Tensor, labels: Tensor, *, valid_id: int, invalid_id: int) -> Tensor:
    """Return the two logits (INVALID, VALID) that predict each verdict token.

    Args:
        logits: (B, T, V).
        labels: (B, T), not 0 where a verdict *token* stands, J in all. It is predicted one position before.

    Returns:
        (J, 2) in float32, row by row; softmax over the last dimension gives (1 - v_hat, v_hat).
    """
    rows, columns = labels.nonzero(as_tuple=True)
    return logits[rows, columns - 1][:, [invalid_id, valid_id]].float()


def verdict_loss(two_logits: Tensor, labels: Tensor, n_plans: float) -> Tensor:
    """Return BCE(v, v_hat) summed and divided by ``n_plans`` (the second term of equation 9).

    Args:
        two_logits: (J, 2), from `verdict_logits`.
        labels: (J,) of 0 and 1, the validator's v.
        n_plans: judged plans in the whole batch; a batch without any gives 0.
    """
    return F.cross_entropy(two_logits, labels, reduction="sum") / max(n_plans, 1.0)


def preference_loss(deltas: Tensor, n_pairs: float, *, beta: float) -> Tensor:
    """Return -log sigmoid(beta * Delta) summed and divided by ``n_pairs`` (equation 5 of NL-PDDL-Bench).

    Args:
        deltas: (P,), by how much more the policy prefers the chosen response of each pair than the reference does.
        n_pairs: in the whole batch; a batch without any gives 0.
        beta: of `PreferenceConfig`.
    """
    return -F.logsigmoid(beta * deltas).sum() / max(n_pairs, 1.0)


def clipped_surrogate(ratios: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Return min(r A, clip(r, 1 - e_low, 1 + e_high) A) of each token, to be made *large*.

    Source: PPO (arXiv:1707.06347, equation 7); two bounds instead of one are DAPO's "clip higher" (arXiv:2503.14476,
    section 3.1). The gradient is 0 where the ratio has gone beyond the bound that its advantage pushes it to.

    Args:
        ratios: (M,), exp(logp - old), of the policy to itself as the update began.
        advantages: (M,).
        clip_low, clip_high: e_low and e_high.
    """
    return torch.minimum(ratios * advantages, ratios.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages)


def divergence_estimates(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Return k = exp(d) - d - 1 with d = reference - logp of each token: KL(policy || reference), without bias.

    Source: k3 of Schulman (2020, "Approximating KL divergence"), as in GRPO (arXiv:2402.03300, equation 4). It is at
    least 0. Without bias is its value, for tokens that the policy drew; its gradient is not that of the divergence.
    """
    differences = reference_logprobs - logprobs
    return differences.exp() - differences - 1.0

"""Attention over packed rows: each sequence by itself, so that nothing is computed that a mask throws away.

`packed_attention` has the calling convention of transformers and is known to it under `PACKED_ATTENTION`. In bfloat16
on a CPU (autocast) it is `BlockwiseAttention`, otherwise torch's fused kernel, which on a GPU and without a mask is
FlashAttention. Not here: what shares a row (`packing`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from plansmith.learning.packing import rounded_up

PACKED_ATTENTION = "plansmith_packed"

BLOCK_TOKENS = 256
"""Queries of a block. Shorter blocks skip more of what is above the diagonal, but their products are less efficient."""


def register_packed_attention() -> str:
    """Make `packed_attention` known to transformers; return the name to load a model with. May be called repeatedly."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, packed_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, _no_mask)
    return PACKED_ATTENTION


def _no_mask(*_: Any, **__: Any) -> None:
    return None


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sequence_lengths: tuple[tuple[int, ...], ...],
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return causal attention within each sequence of each row, in the calling convention of transformers.

    Args:
        query: (B, H, T, D); key and value: (B, H or fewer, T, D).
        attention_mask: not read; the lengths say it all.
        sequence_lengths: per row, summing to T.
        sliding_window: a token sees itself and the tokens before it, so many in all; None sees all of them.

    Returns:
        (B, T, H, D), and no attention weights.
    """
    scale = scaling or query.shape[-1] ** -0.5
    window = sliding_window or query.shape[2]
    is_blockwise = query.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not dropout
    outputs = []
    for row, lengths in enumerate(sequence_lengths):
        parts = [torch.split(tensor[row], list(lengths), dim=1) for tensor in (query, key, value)]
        if is_blockwise and max(lengths) <= window:
            attended = [blockwise_attention(q, k, v, scale) for q, k, v in zip(*parts, strict=True)]
        else:
            attended = [_fused_attention(q, k, v, scale, dropout, window) for q, k, v in zip(*parts, strict=True)]
        outputs.append(torch.cat(attended, dim=1))
    return torch.stack(outputs).transpose(1, 2).contiguous(), None


def _fused_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float, window: int) -> Tensor:
    n_tokens, is_grouped = query.shape[1], len(key) != len(query)
    q, k, v = query[None], key[None], value[None]
    mask = _sees(n_tokens, window, query.device) if n_tokens > window else None
    attended = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, dropout_p=dropout, enable_gqa=is_grouped
    )
    return attended[0]


def _sees(n_tokens: int, window: int, device: torch.device) -> Tensor:
    """Return (T, T), True where a token sees another: itself and those before it, ``window`` in all."""
    everything = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=device)
    return everything.tril().triu(1 - window)


def blockwise_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Return causal attention over one sequence, computed in bfloat16.

    Args:
        query: (H, T, D), any float type; key and value: (G, T, D), where G divides H.
        scale: of the scores.

    Returns:
        (H, T, D) in bfloat16.
    """
    attended: Tensor = BlockwiseAttention.apply(query, key, value, scale)  # type: ignore[no-untyped-call]
    return attended


class BlockwiseAttention(torch.autograd.Function):
    """Causal attention by matrix products in bfloat16, a block of queries against the keys up to its last one.

    torch's fused kernel does not use the bfloat16 instructions of a CPU and takes twice the time. The rest is what
    autograd cannot know: scores above the block diagonal are not computed, the sums over blocks are in float32, and
    query heads that share a key-value head become rows of one product. R = H / G of them; weights are kept.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return (H, T, D) in bfloat16, see `blockwise_attention`."""
        n_heads, n_tokens, width = query.shape
        n_padded = rounded_up(n_tokens)
        q = _padded(query * scale, n_padded).view(len(key), -1, n_padded, width)
        k, v = _padded(key, n_padded), _padded(value, n_padded)
        attended, kept = torch.empty_like(q), []
        for start, end in _blocks(n_padded):
            scores = torch.bmm(_as_rows(q[:, :, start:end]), k[:, :end].transpose(1, 2))
            scores.view(-1, end - start, end)[..., start:] += _causal_mask(end - start)
            weights = scores.softmax(dim=-1)
            attended[:, :, start:end] = torch.bmm(weights, v[:, :end]).view(len(k), -1, end - start, width)
            kept.append(weights)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.scale, ctx.n_tokens = scale, n_tokens
        return attended.view(n_heads, n_padded, width)[:, :n_tokens]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of query, key and value in float32."""
        q, k, v, *kept = ctx.saved_tensors
        n_groups, n_shared, n_padded, width = q.shape
        g = _padded(gradient, n_padded).view_as(q)
        of_query = torch.empty(q.shape)
        of_key, of_value = torch.zeros(k.shape), torch.zeros(v.shape)
        for (start, end), weights in zip(_blocks(n_padded), kept, strict=True):
            rows = _as_rows(g[:, :, start:end])
            of_value[:, :end] += torch.bmm(weights.transpose(1, 2), rows)
            of_weights = torch.bmm(rows, v[:, :end].transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_query[:, :, start:end] = torch.bmm(of_scores, k[:, :end]).view(n_groups, n_shared, -1, width)
            of_key[:, :end] += torch.bmm(of_scores.transpose(1, 2), _as_rows(q[:, :, start:end]))
        of_query = of_query.view(-1, n_padded, width).mul_(ctx.scale)
        return of_query[:, : ctx.n_tokens], of_key[:, : ctx.n_tokens], of_value[:, : ctx.n_tokens], None


def _padded(tensor: Tensor, n_tokens: int) -> Tensor:
    """Return (N, n_tokens, D) in bfloat16, zeros behind what there is. No token attends to one behind it."""
    padded = torch.zeros(len(tensor), n_tokens, tensor.shape[-1], dtype=torch.bfloat16)
    padded[:, : tensor.shape[1]] = tensor
    return padded


def _as_rows(heads: Tensor) -> Tensor:
    """Return (G, R * T, D) of (G, R, T, D)."""
    return heads.reshape(len(heads), -1, heads.shape[-1])


def _blocks(n_tokens: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK_TOKENS, n_tokens)) for start in range(0, n_tokens, BLOCK_TOKENS)]


@functools.cache
def _causal_mask(n_tokens: int) -> Tensor:
    """Return (T, T), 0 on and below the diagonal, minus infinity above."""
    return torch.full((n_tokens, n_tokens), float("-inf"), dtype=torch.bfloat16).triu(1)

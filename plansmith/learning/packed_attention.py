"""Attention over packed rows: each sequence by itself, so that nothing is computed that a mask throws away.

`packed_attention` has the calling convention of transformers and is known to it under `PACKED_ATTENTION`. In float32,
and in bfloat16 with autocast, it is `BlockwiseAttention` on a CPU. On a GPU and in half precision it is FlashAttention,
which takes all sequences of all rows at once (`torch.nn.attention.varlen`). All else, with dropout or in float32 on a
GPU, is torch's fused kernel, sequence by sequence. Not here: what shares a row (`packing`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import accumulate, islice, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

from plansmith.learning.packing import rounded_up

PACKED_ATTENTION = "plansmith_packed"

BLOCK_TOKENS = {torch.float32: 96, torch.bfloat16: 256}
"""Queries of a block. Shorter blocks skip more of what is above the diagonal, but their products are less efficient."""

HALF_PRECISION, WIDTHS = (torch.bfloat16, torch.float16), range(8, 257, 8)
"""What FlashAttention takes: types, and widths of a head."""

Lengths = tuple[tuple[int, ...], ...]
"""Per row the lengths of its sequences."""


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
    sequence_lengths: Lengths,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_plain: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return causal attention within each sequence of each row, in the calling convention of transformers.

    Args:
        query: (B, H, T, D); key and value: (B, G, T, D), where G divides H.
        attention_mask: not read; the lengths say it all.
        sequence_lengths: per row, summing to T.
        sliding_window: a token sees itself and the tokens before it, so many in all; None sees all of them.
        is_plain: made of products and a softmax, which can be differentiated forwards, and twice; slower.

    Returns:
        (B, T, H, D), and no attention weights.
    """
    scale = scaling or query.shape[-1] ** -0.5
    window = sliding_window or query.shape[2]
    device, is_exact = query.device.type, not dropout and not is_plain
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
    is_whole = max(map(max, sequence_lengths)) <= window
    if device == "cpu" and dtype in BLOCK_TOKENS and is_whole and is_exact:
        return blockwise_attention(query, key, value, scale, sequence_lengths, dtype=dtype), None
    if device == "cuda" and dtype in HALF_PRECISION and query.shape[-1] in WIDTHS and is_exact:
        return flash_attention(query, key, value, scale, sequence_lengths, dtype=dtype, window=window), None
    rows = []
    with sdpa_kernel(SDPBackend.MATH) if is_plain else nullcontext():
        for row, lengths in enumerate(sequence_lengths):
            parts = zip(*(torch.split(t[row], list(lengths), dim=1) for t in (query, key, value)), strict=True)
            rows.append(torch.cat([_fused_attention(q, k, v, scale, dropout, window) for q, k, v in parts], dim=1))
    return torch.stack(rows).transpose(1, 2).contiguous(), None


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


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, lengths: Lengths, *, dtype: torch.dtype, window: int
) -> Tensor:
    """Return causal attention within each sequence of each row, all in one call of a GPU's kernel.

    Args:
        query: (B, H, T, D), any float type; key and value: (B, G, T, D), where G divides H.
        scale: of the scores.
        lengths: per row, summing to T.
        dtype: of the products and of the result, one of `HALF_PRECISION`.
        window: tokens that a token sees, itself the last.

    Returns:
        (B, T, H, D) in ``dtype``.
    """
    n_rows, _, n_tokens, _ = query.shape
    q, k, v = (heads.transpose(1, 2).flatten(0, 1).to(dtype) for heads in (query, key, value))
    ends, longest = _ends(lengths, query.device), max(map(max, lengths))
    seen = -1 if window >= longest else window - 1  # before the token itself; -1 for all
    attended = varlen_attn(
        q, k, v, ends, ends, longest, longest, scale=scale, window_size=(seen, 0), enable_gqa=len(q[0]) != len(k[0])
    )
    assert isinstance(attended, Tensor)  # what else it can return was not asked for
    of_rows: Tensor = attended.unflatten(0, (n_rows, n_tokens))
    return of_rows


@functools.lru_cache(maxsize=4)
def _ends(lengths: Lengths, device: torch.device) -> Tensor:
    """Return where sequences end among the tokens of all rows, after a 0; every layer of a model asks for the same."""
    ends = list(accumulate((length for row in lengths for length in row), initial=0))
    return torch.tensor(ends, dtype=torch.int32, device=device)


def blockwise_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, lengths: Lengths, *, dtype: torch.dtype
) -> Tensor:
    """Return causal attention within each sequence of each row, computed in ``dtype``, one of `BLOCK_TOKENS`.

    Args:
        query: (B, H, T, D), any float type; key and value: (B, G, T, D), where G divides H.
        scale: of the scores.
        lengths: per row, summing to T.
        dtype: of the products and of the result; sums over blocks of keys are in float32.

    Returns:
        (B, T, H, D) in ``dtype``.
    """
    attended: Tensor = BlockwiseAttention.apply(query, key, value, scale, lengths, dtype)  # type: ignore[no-untyped-call]
    return attended


class BlockwiseAttention(torch.autograd.Function):
    """Causal attention by matrix products, a block of queries against the keys up to its last one.

    torch's fused kernel takes half as long again for its backward pass in float32, and does not use the bfloat16
    instructions of a CPU. The rest is what autograd cannot know: scores above the block diagonal are not computed, the
    query heads that share a key-value head become rows of one product, and all sequences are one step of the graph.
    R = H / G heads share one; rows are in the order of tokens, and within a token of heads. Weights are kept.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, lengths: Lengths, dtype: torch.dtype
    ) -> Tensor:
        """Return (B, T, H, D) in ``dtype``, see `blockwise_attention`."""
        n_rows, n_heads, n_tokens, width = query.shape
        n_groups = key.shape[1]
        attended = torch.empty(n_rows, n_tokens, n_groups, n_heads // n_groups, width, dtype=dtype)
        q, k, v = (_grouped(tensor, n_groups) for tensor in (query * scale, key, value))
        kept: list[Tensor] = []
        for place in _places(lengths):
            rows = [_as_rows(tensor[place], dtype) for tensor in (q, k, v)]
            of_place, weights = _attend(*rows)
            attended[place] = _as_tokens(of_place, attended[place])
            kept += [*rows, *weights]
        ctx.save_for_backward(*kept)
        ctx.scale, ctx.lengths, ctx.shapes = scale, lengths, [tensor.shape for tensor in (q, k, v)]
        return attended.flatten(2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key and value in float32."""
        gradients = [torch.empty(shape) for shape in ctx.shapes]
        of_attended, saved = gradient.view(ctx.shapes[0]), iter(ctx.saved_tensors)
        for place in _places(ctx.lengths):
            q, k, v = islice(saved, 3)
            weights = list(islice(saved, len(_blocks(k))))
            of_rows = _attend_backward(q, k, v, weights, _as_rows(of_attended[place], q.dtype))
            for whole, of_place in zip(gradients, of_rows, strict=True):
                whole[place] = _as_tokens(of_place, whole[place])
        of_query, of_key, of_value = (whole.flatten(2, 3).transpose(1, 2) for whole in gradients)
        return of_query.mul_(ctx.scale), of_key, of_value, None, None, None


def _attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return what the rows of one sequence attend to, and their weights by block. All are (G, ..., D); q is scaled."""
    n_shared, attended, kept = q.shape[1] // k.shape[1], torch.empty_like(q), []
    for start, end in _blocks(k):
        rows = slice(start * n_shared, end * n_shared)
        scores = torch.bmm(q[:, rows], k[:, :end].transpose(1, 2))
        scores[..., start:] += _causal_mask(n_shared, q.dtype)[: scores.shape[1], : end - start]
        kept.append(scores.softmax(dim=-1))
        torch.bmm(kept[-1], v[:, :end], out=attended[:, rows])
    return attended, kept


def _attend_backward(q: Tensor, k: Tensor, v: Tensor, kept: list[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of scaled q, of k and of v of one sequence."""
    n_shared = q.shape[1] // k.shape[1]
    of_q, of_k, of_v = torch.empty_like(q), torch.zeros(k.shape), torch.zeros(v.shape)
    for (start, end), weights in zip(_blocks(k), kept, strict=True):
        rows = slice(start * n_shared, end * n_shared)
        _add_product(of_v[:, :end], weights.transpose(1, 2), gradient[:, rows])
        of_weights = torch.bmm(gradient[:, rows], v[:, :end].transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        torch.bmm(of_scores, k[:, :end], out=of_q[:, rows])
        _add_product(of_k[:, :end], of_scores.transpose(1, 2), q[:, rows])
    return of_q, of_k, of_v


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to a total in float32."""
    if left.dtype == total.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)


def _places(lengths: Lengths) -> Iterator[tuple[int, slice]]:
    """Yield row and tokens of every sequence."""
    for row, of_row in enumerate(lengths):
        for start, end in pairwise(accumulate(of_row, initial=0)):
            yield row, slice(start, end)


def _grouped(heads: Tensor, n_groups: int) -> Tensor:
    """Return (B, T, G, R, D) of (B, H, T, D)."""
    grouped: Tensor = heads.transpose(1, 2).unflatten(2, (n_groups, -1))
    return grouped


def _as_rows(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (G, T * R, D) of (T, G, R, D), in bfloat16 with zeros behind what there is.

    No token attends to one behind it. In bfloat16 products of every other length would be compiled anew.
    """
    n_tokens, n_groups, n_shared, width = tokens.shape
    n_padded = rounded_up(n_tokens) if dtype == torch.bfloat16 else n_tokens
    rows = torch.zeros(n_groups, n_padded, n_shared, width, dtype=dtype)
    rows[:, :n_tokens] = tokens.transpose(0, 1)
    return rows.flatten(1, 2)


def _as_tokens(rows: Tensor, like: Tensor) -> Tensor:
    """Return (T, G, R, D), the shape of another tensor, of (G, T * R, D) with what was added left out."""
    n_tokens, _, n_shared, _ = like.shape
    tokens: Tensor = rows.unflatten(1, (-1, n_shared))[:, :n_tokens].transpose(0, 1)
    return tokens


def _blocks(keys: Tensor) -> list[tuple[int, int]]:
    n_tokens, length = keys.shape[1], BLOCK_TOKENS[keys.dtype]
    return [(start, min(start + length, n_tokens)) for start in range(0, n_tokens, length)]


@functools.cache
def _causal_mask(n_shared: int, dtype: torch.dtype) -> Tensor:
    """Return (T * R, T) of a block of T tokens, 0 on and below the diagonal, minus infinity above; each row R times."""
    n_tokens = BLOCK_TOKENS[dtype]
    mask = torch.full((n_tokens, n_tokens), float("-inf"), dtype=dtype).triu(1)
    return mask.repeat_interleave(n_shared, dim=0)

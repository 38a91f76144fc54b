"""Attention over packed rows: each sequence by itself, so that nothing is computed that a mask throws away.

A row has parts. A part is a sequence, or the beginning that several have in common, or what follows of one of these:
then its tokens also see those of the beginning, its prefix, which lies before it in the row (`packing`).

`packed_attention` has the calling convention of transformers and is known to it under `PACKED_ATTENTION`. In float32,
and in bfloat16 with autocast, it is `BlockwiseAttention` on a CPU. On a GPU and in half precision it is FlashAttention,
which takes all sequences of all rows at once (`torch.nn.attention.varlen`). All else, with dropout or in float32 on a
GPU, is torch's fused kernel, sequence by sequence. Not here: what shares a row (`packing`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

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
"""Per row the lengths of its parts."""
Prefixes = tuple[tuple[int, ...], ...]
"""Per row and part the number of the part that is its prefix, -1 for none."""


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
    sequence_prefixes: Prefixes | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_plain: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return causal attention within each part of each row, in the calling convention of transformers.

    Args:
        query: (B, H, T, D); key and value: (B, G, T, D), where G divides H.
        attention_mask: not read; the lengths say it all.
        sequence_lengths: of the parts of each row, summing to T.
        sequence_prefixes: of these parts; None for none at all.
        sliding_window: a token sees itself and the tokens before it, so many in all; None sees all of them.
        is_plain: made of products and a softmax, which can be differentiated forwards, and twice; slower.

    Returns:
        (B, T, H, D), and no attention weights.
    """
    scale = scaling or query.shape[-1] ** -0.5
    window = sliding_window or query.shape[2]
    device, is_exact = query.device.type, not dropout and not is_plain
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
    parts = parts_of(sequence_lengths, sequence_prefixes)
    is_whole = max(part.n_seen for part in parts) <= window
    if device == "cpu" and dtype in BLOCK_TOKENS and is_whole and is_exact:
        return blockwise_attention(query, key, value, scale, parts, dtype=dtype), None
    if device == "cuda" and dtype in HALF_PRECISION and query.shape[-1] in WIDTHS and is_exact:
        return flash_attention(query, key, value, scale, parts, dtype=dtype, window=window), None
    rows: list[list[Tensor]] = [[] for _ in sequence_lengths]
    with sdpa_kernel(SDPBackend.MATH) if is_plain else nullcontext():
        for part in parts:
            q, k, v = query[part.row, :, part.own], *(part.seen(t[part.row], dim=1) for t in (key, value))
            rows[part.row].append(_fused_attention(q, k, v, scale, dropout, window))
    return torch.stack([torch.cat(row, dim=1) for row in rows]).transpose(1, 2).contiguous(), None


class RowPart(NamedTuple):
    """Tokens ``start`` up to ``end`` of a row, and ``prefix_start`` up to ``prefix_end``, which they also see."""

    row: int
    start: int
    end: int
    prefix_start: int = 0
    prefix_end: int = 0

    @property
    def own(self) -> slice:
        """Return its own tokens."""
        return slice(self.start, self.end)

    @property
    def prefix(self) -> slice:
        """Return the tokens before its own."""
        return slice(self.prefix_start, self.prefix_end)

    @property
    def n_own(self) -> int:
        """Return how many are its own."""
        return self.end - self.start

    @property
    def n_before(self) -> int:
        """Return how many are before its own."""
        return self.prefix_end - self.prefix_start

    @property
    def n_seen(self) -> int:
        """Return how many its last token sees."""
        return self.n_before + self.n_own

    def seen(self, tokens: Tensor, dim: int = 0) -> Tensor:
        """Return what the part sees of the tokens of its row."""
        own = tokens.narrow(dim, self.start, self.n_own)
        if not self.n_before:
            return own
        return torch.cat([tokens.narrow(dim, self.prefix_start, self.n_before), own], dim=dim)


Parts = tuple[RowPart, ...]
"""All parts of all rows; a prefix comes before whatever follows it."""


@functools.lru_cache(maxsize=4)
def parts_of(lengths: Lengths, prefixes: Prefixes | None = None) -> Parts:
    """Return the parts of rows; every layer of a model asks for the same."""
    found = []
    for row, of_row in enumerate(lengths):
        places = list(pairwise(accumulate(of_row, initial=0)))
        before = prefixes[row] if prefixes else [-1] * len(places)
        found += [RowPart(row, *own, *(places[n] if n >= 0 else ())) for own, n in zip(places, before, strict=True)]
    return tuple(found)


def _fused_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float, window: int) -> Tensor:
    n_tokens, n_seen, is_grouped = query.shape[1], key.shape[1], len(key) != len(query)
    q, k, v = query[None], key[None], value[None]
    mask = _sees(n_tokens, n_seen, window, query.device) if n_seen > min(window, n_tokens) else None
    attended = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, dropout_p=dropout, enable_gqa=is_grouped
    )
    return attended[0]


def _sees(n_tokens: int, n_seen: int, window: int, device: torch.device) -> Tensor:
    """Return (T, S), True where one of the last T tokens sees one of S: itself and those before, ``window`` in all."""
    everything = torch.ones(n_tokens, n_seen, dtype=torch.bool, device=device)
    n_before = n_seen - n_tokens
    return everything.tril(n_before).triu(n_before + 1 - window)


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, parts: Parts, *, dtype: torch.dtype, window: int
) -> Tensor:
    """Return causal attention within each part of each row, all in one call of a GPU's kernel.

    Args:
        query: (B, H, T, D), any float type; key and value: (B, G, T, D), where G divides H.
        scale: of the scores.
        parts: of all rows.
        dtype: of the products and of the result, one of `HALF_PRECISION`.
        window: tokens that a token sees, itself the last.

    Returns:
        (B, T, H, D) in ``dtype``.
    """
    n_rows, _, n_tokens, _ = query.shape
    q, k, v = (heads.transpose(1, 2).flatten(0, 1).to(dtype) for heads in (query, key, value))
    longest, most_seen = max(part.n_own for part in parts), max(part.n_seen for part in parts)
    ends, ends_seen, seen = _flat_places(parts, n_tokens, query.device)
    if seen is not None:
        k, v = k.index_select(0, seen), v.index_select(0, seen)
    before = -1 if window >= most_seen else window - 1  # the token itself; -1 for all; the last of both are one token
    attended = varlen_attn(
        q, k, v, ends, ends_seen, longest, most_seen, scale=scale, window_size=(before, 0),
        enable_gqa=len(q[0]) != len(k[0]),
    )  # fmt: skip
    assert isinstance(attended, Tensor)  # what else it can return was not asked for
    of_rows: Tensor = attended.unflatten(0, (n_rows, n_tokens))
    return of_rows


@functools.lru_cache(maxsize=4)
def _flat_places(parts: Parts, n_tokens: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return where parts end among the tokens of all rows, where what they see ends, after a 0 each, and what that is.

    The last is None where parts see themselves alone: then nothing has to be brought together.
    """

    def ends(sizes: Iterable[int]) -> Tensor:
        return torch.tensor(list(accumulate(sizes, initial=0)), dtype=torch.int32, device=device)

    if not any(part.n_before for part in parts):
        own = ends(part.n_own for part in parts)
        return own, own, None
    places = torch.arange(n_tokens)
    seen = torch.cat([part.seen(places + part.row * n_tokens) for part in parts]).to(device)
    return ends(part.n_own for part in parts), ends(part.n_seen for part in parts), seen


def blockwise_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, parts: Parts, *, dtype: torch.dtype
) -> Tensor:
    """Return causal attention within each part of each row, computed in ``dtype``, one of `BLOCK_TOKENS`.

    Args:
        query: (B, H, T, D), any float type; key and value: (B, G, T, D), where G divides H.
        scale: of the scores.
        parts: of all rows; in bfloat16 prefixes of a multiple of 64 tokens.
        dtype: of the products and of the result; sums over blocks of keys are in float32.

    Returns:
        (B, T, H, D) in ``dtype``.
    """
    attended: Tensor = BlockwiseAttention.apply(query, key, value, scale, parts, dtype)  # type: ignore[no-untyped-call]
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
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, parts: Parts, dtype: torch.dtype
    ) -> Tensor:
        """Return (B, T, H, D) in ``dtype``, see `blockwise_attention`."""
        n_rows, n_heads, n_tokens, width = query.shape
        n_groups = key.shape[1]
        attended = torch.empty(n_rows, n_tokens, n_groups, n_heads // n_groups, width, dtype=dtype)
        q, k, v = (_grouped(tensor, n_groups) for tensor in (query * scale, key, value))
        kept: list[Tensor] = []
        for part in parts:
            own = q[part.row, part.own]
            rows = [_as_rows(t, dtype) for t in (own, *(part.seen(t[part.row]) for t in (k, v)))]
            of_part, weights = _attend(rows[0], rows[1], rows[2], q.shape[3])
            attended[part.row, part.own] = _as_tokens(of_part, own)
            kept += [*rows, *weights]
        ctx.save_for_backward(*kept)
        ctx.scale, ctx.parts, ctx.shapes = scale, parts, [tensor.shape for tensor in (q, k, v)]
        return attended.flatten(2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key and value in float32."""
        gradients = [torch.empty(shape) for shape in ctx.shapes]
        of_attended, saved = gradient.view(ctx.shapes[0]), iter(ctx.saved_tensors)
        n_shared = ctx.shapes[0][3]
        for part in ctx.parts:
            q, k, v = islice(saved, 3)
            weights = list(islice(saved, len(_blocks(q, n_shared))))
            gradient = _as_rows(of_attended[part.row, part.own], q.dtype)
            for whole, of_rows in zip(gradients, _attend_backward(q, k, v, weights, gradient, n_shared), strict=True):
                own = whole[part.row, part.own]
                if part.n_before and whole is not gradients[0]:
                    before = whole[part.row, part.prefix]
                    before += _as_tokens(of_rows[:, : part.n_before], before)
                    of_rows = of_rows[:, part.n_before :]
                own.copy_(_as_tokens(of_rows, own))
        of_query, of_key, of_value = (whole.flatten(2, 3).transpose(1, 2) for whole in gradients)
        return of_query.mul_(ctx.scale), of_key, of_value, None, None, None


def _attend(q: Tensor, k: Tensor, v: Tensor, n_shared: int) -> tuple[Tensor, list[Tensor]]:
    """Return what the rows of one part attend to, and their weights by block. All are (G, ..., D); q is scaled."""
    attended, kept = torch.empty_like(q), []
    n_before = k.shape[1] - q.shape[1] // n_shared
    for start, end in _blocks(q, n_shared):
        rows, seen = slice(start * n_shared, end * n_shared), n_before + end
        scores = torch.bmm(q[:, rows], k[:, :seen].transpose(1, 2))
        scores[..., n_before + start :] += _causal_mask(n_shared, q.dtype)[: scores.shape[1], : end - start]
        kept.append(scores.softmax(dim=-1))
        torch.bmm(kept[-1], v[:, :seen], out=attended[:, rows])
    return attended, kept


def _attend_backward(
    q: Tensor, k: Tensor, v: Tensor, kept: list[Tensor], gradient: Tensor, n_shared: int
) -> tuple[Tensor, ...]:
    """Return the gradients of scaled q, of k and of v of one part."""
    of_q, of_k, of_v = torch.empty_like(q), torch.zeros(k.shape), torch.zeros(v.shape)
    n_before = k.shape[1] - q.shape[1] // n_shared
    for (start, end), weights in zip(_blocks(q, n_shared), kept, strict=True):
        rows, seen = slice(start * n_shared, end * n_shared), n_before + end
        _add_product(of_v[:, :seen], weights.transpose(1, 2), gradient[:, rows])
        of_weights = torch.bmm(gradient[:, rows], v[:, :seen].transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        torch.bmm(of_scores, k[:, :seen], out=of_q[:, rows])
        _add_product(of_k[:, :seen], of_scores.transpose(1, 2), q[:, rows])
    return of_q, of_k, of_v


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to a total in float32."""
    if left.dtype == total.dtype:
        total.baddbmm_(left, right)
    else:
        total += torch.bmm(left, right)


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


def _blocks(queries: Tensor, n_shared: int) -> list[tuple[int, int]]:
    n_tokens, length = queries.shape[1] // n_shared, BLOCK_TOKENS[queries.dtype]
    return [(start, min(start + length, n_tokens)) for start in range(0, n_tokens, length)]


@functools.cache
def _causal_mask(n_shared: int, dtype: torch.dtype) -> Tensor:
    """Return (T * R, T) of a block of T tokens, 0 on and below the diagonal, minus infinity above; each row R times."""
    n_tokens = BLOCK_TOKENS[dtype]
    mask = torch.full((n_tokens, n_tokens), float("-inf"), dtype=dtype).triu(1)
    return mask.repeat_interleave(n_shared, dim=0)

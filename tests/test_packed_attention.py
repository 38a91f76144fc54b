"""Attention over packed rows: in blocks, in float32 and bfloat16, against torch's own, forward and backward."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention

from plansmith.learning import packed_attention as attention
from plansmith.learning.packed_attention import (
    BLOCK_TOKENS,
    Lengths,
    Prefixes,
    blockwise_attention,
    packed_attention,
    parts_of,
)
from plansmith.learning.packing import GRAIN_TOKENS

SCALE = 0.3


def heads(n_groups: int, n_tokens: int) -> list[Tensor]:
    """Return query of four heads, key and value, with gradients."""
    generator = torch.Generator().manual_seed(0)
    sizes = (4, n_groups, n_groups)
    return [torch.randn(n, n_tokens, 8, generator=generator).requires_grad_() for n in sizes]


def exact_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    q, k, v = query[None], key[None], value[None]
    return scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE, enable_gqa=True)[0]


def blockwise(query: Tensor, key: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (H, T, D) of one sequence."""
    q, k, v = query[None], key[None], value[None]
    return blockwise_attention(q, k, v, SCALE, parts_of(((query.shape[1],),)), dtype=dtype)[0].transpose(0, 1)


@pytest.mark.parametrize("dtype", BLOCK_TOKENS, ids=str)
@pytest.mark.parametrize("n_groups", [1, 2, 4], ids=["one key-value head", "two", "as many as query heads"])
@pytest.mark.parametrize("n_tokens", [1, GRAIN_TOKENS - 1, GRAIN_TOKENS, 96, 97, 256, 257, 583])
def test_blockwise_attention_and_its_gradients_equal_those_of_float32(
    n_groups: int, n_tokens: int, dtype: torch.dtype
) -> None:
    inputs = heads(n_groups, n_tokens)
    exact, ours = exact_attention(*inputs), blockwise(*inputs, dtype)
    assert ours.shape == exact.shape and ours.dtype == dtype
    absolute, relative = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (0.02, 0.01)}[dtype]
    assert torch.allclose(ours.float(), exact, atol=absolute)
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(exact, inputs, direction)
    got = torch.autograd.grad(ours, inputs, direction.to(dtype))
    for gradient, exact_gradient in zip(got, expected, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - exact_gradient).norm() <= relative * exact_gradient.norm() + 1e-6


def test_causal_mask_hides_exactly_the_later_tokens_from_every_head() -> None:
    mask = torch.isinf(attention._causal_mask(2, torch.float32))
    assert mask.shape == (2 * BLOCK_TOKENS[torch.float32], BLOCK_TOKENS[torch.float32])
    first = [[False, True, True]] * 2 + [[False, False, True]] * 2 + [[False, False, False]] * 2
    assert mask[:6, :3].tolist() == first


@pytest.mark.parametrize("dtype", BLOCK_TOKENS, ids=str)
def test_blockwise_attention_does_not_see_later_tokens(dtype: torch.dtype) -> None:
    inputs = heads(2, BLOCK_TOKENS[dtype] + 70)
    last_seen = BLOCK_TOKENS[dtype] + 5
    for gradient in torch.autograd.grad(blockwise(*inputs, dtype)[:, : last_seen + 1].float().sum(), inputs):
        assert gradient[:, last_seen + 1 :].abs().max() == 0
    (of_value,) = torch.autograd.grad(blockwise(*inputs, dtype)[:, last_seen].float().sum(), inputs[2])
    assert (of_value[:, : last_seen + 1].abs().amax(dim=(0, 2)) > 0).all()


@pytest.mark.parametrize(
    ("is_autocast", "dtype"),
    [(True, torch.bfloat16), (False, torch.float32), (False, torch.float64)],
    ids=["blockwise in bfloat16", "blockwise in float32", "fused"],
)
def test_packed_attention_is_that_of_each_sequence_alone_in_its_place(is_autocast: bool, dtype: torch.dtype) -> None:
    lengths = ((3, 70, 2), (75,))
    rows = [torch.stack([tensor.detach(), -tensor.detach()]) for tensor in heads(2, 75)]
    given = rows if is_autocast else [tensor.to(dtype) for tensor in rows]
    with torch.autocast("cpu", enabled=is_autocast):
        attended, weights = packed_attention(torch.nn.Module(), *given, None, sequence_lengths=lengths, scaling=SCALE)
    assert weights is None and attended.shape == (2, 75, 4, 8) and attended.is_contiguous()
    assert attended.dtype == dtype
    for row, row_lengths in enumerate(lengths):
        parts = zip(*(tensor[row].split(row_lengths, dim=1) for tensor in rows), strict=True)
        expected = torch.cat([exact_attention(*part) for part in parts], dim=1).transpose(0, 1)
        assert torch.allclose(attended[row].float(), expected, atol=0.02 if is_autocast else 1e-5)


def test_packed_attention_gives_each_row_and_sequence_its_own_gradients() -> None:
    lengths = ((3, 120, 2), (125,))
    rows = [torch.stack([tensor.detach(), 2 * tensor.detach()]).requires_grad_() for tensor in heads(2, 125)]
    direction = torch.randn(2, 125, 4, 8, generator=torch.Generator().manual_seed(1))
    attended, _ = packed_attention(torch.nn.Module(), *rows, None, sequence_lengths=lengths, scaling=SCALE)
    got = torch.autograd.grad(attended, rows, direction)
    for row, row_lengths in enumerate(lengths):
        parts = zip(*(tensor[row].split(row_lengths, dim=1) for tensor in rows), strict=True)
        exact = torch.cat([exact_attention(*part) for part in parts], dim=1).transpose(0, 1)
        expected = torch.autograd.grad(exact, rows, direction[row])
        for gradient, exact_gradient in zip(got, expected, strict=True):
            assert torch.allclose(gradient[row], exact_gradient[row], atol=1e-5)


@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "float32"])
def test_packed_attention_with_a_sliding_window_sees_the_last_tokens_of_its_sequence(is_autocast: bool) -> None:
    query, key, value = (tensor.detach()[None] for tensor in heads(2, 12))
    with torch.autocast("cpu", enabled=is_autocast):
        attended, _ = packed_attention(
            torch.nn.Module(), query, key, value, None, sequence_lengths=((3, 9),), scaling=SCALE, sliding_window=4
        )
    for token, first in ((2, 0), (3, 3), (6, 3), (7, 4), (11, 8)):  # the second sequence begins at token 3
        seen = [tensor[0, :, first : token + 1] for tensor in (key, value)]
        expected = scaled_dot_product_attention(query[0, :, token : token + 1], *seen, scale=SCALE, enable_gqa=True)
        assert torch.allclose(attended[0, token].float(), expected[:, 0], atol=0.02 if is_autocast else 1e-5)


SHARED = ((128, 30, 200, 9), (64, 50, 253))
SHARED_PREFIXES = ((-1, 0, 0, -1), (-1, 0, -1))


def unshared(row: list[Tensor], lengths: Sequence[int], prefixes: Sequence[int]) -> Tensor:
    """Return (T, H, D) of a row whose parts go on from their prefixes, each computed as a sequence of its own."""
    parts, found = [tensor.split(list(lengths), dim=1) for tensor in row], []
    for number, prefix in enumerate(prefixes):
        sequence = [torch.cat([part[prefix], part[number]], dim=1) if prefix >= 0 else part[number] for part in parts]
        found.append(exact_attention(*sequence)[:, -lengths[number] :])
    return torch.cat(found, dim=1).transpose(0, 1)


@pytest.mark.parametrize(
    ("is_autocast", "dtype"),
    [(True, torch.bfloat16), (False, torch.float32), (False, torch.float64)],
    ids=["blockwise in bfloat16", "blockwise in float32", "fused"],
)
def test_parts_with_a_prefix_and_its_gradients_are_those_of_whole_sequences(
    is_autocast: bool, dtype: torch.dtype
) -> None:
    plain = [torch.stack([tensor.detach(), -tensor.detach()]).requires_grad_() for tensor in heads(2, 367)]
    given = plain if is_autocast else [tensor.to(dtype) for tensor in plain]
    with torch.autocast("cpu", enabled=is_autocast):
        attended, _ = packed_attention(
            torch.nn.Module(), *given, None, sequence_lengths=SHARED, sequence_prefixes=SHARED_PREFIXES, scaling=SCALE
        )
    rows = zip(*plain, SHARED, SHARED_PREFIXES, strict=True)
    exact = torch.stack([unshared([q, k, v], lengths, prefixes) for q, k, v, lengths, prefixes in rows])
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    got = (attended, *torch.autograd.grad(attended, plain, direction.to(dtype)))
    expected = (exact, *torch.autograd.grad(exact, plain, direction))
    assert attended.dtype == dtype
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.float() - theirs).norm() <= (0.01 if is_autocast else 1e-5) * theirs.norm()


def varlen_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, *,
    scale: float, window_size: tuple[int, int], enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """Compute what torch's documentation says of `varlen_attn`, whose kernels a CPU has not."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    own, seen = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    assert cu_seq_q[0] == cu_seq_k[0] == 0 and max(own) == max_q and max(seen) == max_k
    (before, after), found = window_size, []
    for q, k, v in zip(query.split(own), key.split(seen), value.split(seen), strict=True):
        distance = len(k) - len(q) + torch.arange(len(q))[:, None] - torch.arange(len(k))
        sees = (distance >= -after) & ((distance <= before) if before >= 0 else torch.tensor(True))
        q, k, v = (heads.transpose(0, 1)[None] for heads in (q, k, v))
        one = scaled_dot_product_attention(q, k, v, attn_mask=sees, scale=scale, enable_gqa=enable_gqa)
        found.append(one[0].transpose(0, 1))
    return torch.cat(found)


@pytest.mark.parametrize("window", [1, 4, 70, 75])
@pytest.mark.parametrize("n_groups", [2, 4], ids=["shared key-value heads", "as many as query heads"])
@pytest.mark.parametrize(
    ("lengths", "prefixes"),
    [(((3, 70, 2), (75,)), None), (((8, 40, 20, 7), (60, 15)), ((-1, 0, -1, 0), (-1, 0)))],
    ids=["nothing in common", "beginnings in common"],
)
def test_attention_of_a_gpu_is_asked_for_with_the_ends_of_all_parts_and_what_a_token_sees(
    monkeypatch: pytest.MonkeyPatch, n_groups: int, window: int, lengths: Lengths, prefixes: Prefixes | None
) -> None:
    monkeypatch.setattr(attention, "varlen_attn", varlen_on_cpu)
    rows = [torch.stack([tensor.detach(), -tensor.detach()]).double() for tensor in heads(n_groups, 75)]
    expected, _ = packed_attention(
        torch.nn.Module(), *rows, None, sequence_lengths=lengths, sequence_prefixes=prefixes, scaling=SCALE,
        sliding_window=window,
    )  # fmt: skip
    parts = parts_of(lengths, prefixes)
    got = attention.flash_attention(*rows, SCALE, parts, dtype=torch.float64, window=window)
    assert got.shape == expected.shape and torch.allclose(got, expected, atol=1e-12)
    assert attention.flash_attention(*rows, SCALE, parts, dtype=torch.bfloat16, window=window).dtype == torch.bfloat16


def test_attention_of_a_gpu_has_the_arguments_that_torch_takes() -> None:
    assert attention.varlen_attn is varlen.varlen_attn
    arguments = inspect.signature(varlen.varlen_attn).parameters
    assert set(inspect.signature(varlen_on_cpu).parameters) <= set(arguments)

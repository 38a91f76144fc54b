"""Attention over packed rows: bfloat16 in blocks against torch's own in float32, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from plansmith.learning import packed_attention as attention
from plansmith.learning.packed_attention import BLOCK_TOKENS, blockwise_attention, packed_attention
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


@pytest.mark.parametrize("n_groups", [1, 2, 4], ids=["one key-value head", "two", "as many as query heads"])
@pytest.mark.parametrize("n_tokens", [1, GRAIN_TOKENS - 1, GRAIN_TOKENS, BLOCK_TOKENS, BLOCK_TOKENS + 1, 583])
def test_blockwise_attention_and_its_gradients_equal_those_of_float32(n_groups: int, n_tokens: int) -> None:
    inputs = heads(n_groups, n_tokens)
    exact, ours = exact_attention(*inputs), blockwise_attention(*inputs, SCALE)
    assert ours.shape == exact.shape and ours.dtype == torch.bfloat16
    assert torch.allclose(ours.float(), exact, atol=0.02)
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(exact, inputs, direction)
    got = torch.autograd.grad(ours, inputs, direction.to(torch.bfloat16))
    for gradient, exact_gradient in zip(got, expected, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - exact_gradient).norm() <= 0.01 * exact_gradient.norm() + 1e-6


def test_causal_mask_of_a_length_hides_exactly_the_later_tokens() -> None:
    mask = attention._causal_mask(3)
    assert torch.isinf(mask).tolist() == [[False, True, True], [False, False, True], [False, False, False]]


def test_blockwise_attention_does_not_see_later_tokens() -> None:
    inputs = heads(2, BLOCK_TOKENS + 70)
    last_seen = BLOCK_TOKENS + 5
    attended = blockwise_attention(*inputs, SCALE)
    for gradient in torch.autograd.grad(attended[:, : last_seen + 1].float().sum(), inputs):
        assert gradient[:, last_seen + 1 :].abs().max() == 0
    (of_value,) = torch.autograd.grad(blockwise_attention(*inputs, SCALE)[:, last_seen].float().sum(), inputs[2])
    assert (of_value[:, : last_seen + 1].abs().amax(dim=(0, 2)) > 0).all()


@pytest.mark.parametrize("is_autocast", [True, False], ids=["blockwise", "fused"])
def test_packed_attention_is_that_of_each_sequence_alone_in_its_place(is_autocast: bool) -> None:
    lengths = ((3, 70, 2), (75,))
    rows = [torch.stack([tensor.detach(), -tensor.detach()]) for tensor in heads(2, 75)]
    with torch.autocast("cpu", enabled=is_autocast):
        attended, weights = packed_attention(torch.nn.Module(), *rows, None, sequence_lengths=lengths, scaling=SCALE)
    assert weights is None and attended.shape == (2, 75, 4, 8) and attended.is_contiguous()
    assert attended.dtype == (torch.bfloat16 if is_autocast else torch.float32)
    for row, row_lengths in enumerate(lengths):
        parts = zip(*(tensor[row].split(row_lengths, dim=1) for tensor in rows), strict=True)
        expected = torch.cat([exact_attention(*part) for part in parts], dim=1).transpose(0, 1)
        assert torch.allclose(attended[row].float(), expected, atol=0.02 if is_autocast else 1e-5)


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

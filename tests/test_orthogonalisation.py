"""Muon's updates against the same steps one by one, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plansmith.learning.orthogonalisation import A, B, C, MuonUpdate, orthogonalised, write_updates

STEPS = 5


def step_by_step(matrix: Tensor) -> Tensor:
    """Return X <- (a I + b X X' + c (X X')^2) X as it is written."""
    x = matrix.double() / matrix.double().norm()
    for _ in range(STEPS):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


def matrix_of(rows: int, columns: int, *, decay: float) -> Tensor:
    """Return a matrix whose singular values fall from 1 to exp(-decay)."""
    generator = torch.Generator().manual_seed(0)
    n = min(rows, columns)
    left, right = (torch.linalg.qr(torch.randn(size, n, generator=generator))[0] for size in (rows, columns))
    return (left * torch.exp(-decay * torch.linspace(0, 1, n))) @ right.T


@pytest.mark.parametrize("decay", [0.0, 8.0, 25.0], ids=lambda decay: f"singular values to e^-{decay:.0f}")
@pytest.mark.parametrize(
    ("rows", "columns"), [(48, 160), (160, 48), (64, 64), (64, 80), (1, 7)], ids=["wide", "tall", "square", "", "row"]
)
def test_orthogonalised_equals_the_steps_one_by_one(rows: int, columns: int, decay: float) -> None:
    matrix, other = matrix_of(rows, columns, decay=decay), torch.ones(rows, columns)
    expected, (got, _) = step_by_step(matrix), orthogonalised(torch.stack([matrix, other]), STEPS)
    assert got.shape == (rows, columns) and got.dtype == torch.float32
    assert (got - expected).norm() < 5e-5 * expected.norm()


def test_orthogonalised_in_bfloat16_is_the_same_but_for_rounding() -> None:
    matrix = matrix_of(48, 160, decay=3.0)
    expected, [got] = step_by_step(matrix), orthogonalised(matrix[None], STEPS, dtype=torch.bfloat16)
    assert got.dtype == torch.bfloat16
    assert (got - expected).norm() < 0.02 * expected.norm()


def test_orthogonalised_brings_singular_values_near_one() -> None:
    values = torch.linalg.svdvals(orthogonalised(matrix_of(48, 160, decay=3.0)[None], STEPS))
    assert values.min() > 0.6 and values.max() < 1.3


def test_orthogonalised_leaves_nothing_nothing() -> None:
    assert orthogonalised(torch.zeros(1, 4, 9), STEPS).abs().max() == 0


def test_updates_are_orthogonal_factors_of_nesterovs_momentum_whatever_shapes_are_asked_for_together() -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = [(12, 30), (30, 12), (12, 30), (16, 16)]
    gradients, momenta = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))
    for is_adamw_sized in (False, True):
        asked = [MuonUpdate(g, m.clone(), torch.empty_like(g)) for g, m in zip(gradients, momenta, strict=True)]
        write_updates(asked, momentum=0.9, steps=STEPS, dtype=torch.float32, is_adamw_sized=is_adamw_sized)
        for (gradient, momentum, written), before, (m, n) in zip(asked, momenta, shapes, strict=True):
            assert torch.allclose(momentum, 0.9 * before + 0.1 * gradient)
            expected = step_by_step(0.9 * momentum + 0.1 * gradient)
            size = 0.2 * max(m, n) ** 0.5 if is_adamw_sized else max(1.0, m / n) ** 0.5
            assert (written - size * expected).norm() < 1e-4 * written.norm()

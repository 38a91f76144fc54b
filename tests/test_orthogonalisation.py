"""Muon's iteration by products of small matrices against the same steps one by one, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plansmith.learning.orthogonalisation import A, B, C, orthogonalised

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
    matrix = matrix_of(rows, columns, decay=decay)
    expected, got = step_by_step(matrix), orthogonalised(matrix, STEPS)
    assert got.shape == (rows, columns) and got.dtype == torch.float32
    assert (got - expected).norm() < 5e-5 * expected.norm()


def test_orthogonalised_brings_singular_values_near_one() -> None:
    values = torch.linalg.svdvals(orthogonalised(matrix_of(48, 160, decay=3.0), STEPS))
    assert values.min() > 0.6 and values.max() < 1.3


def test_orthogonalised_leaves_nothing_nothing() -> None:
    assert orthogonalised(torch.zeros(4, 9), STEPS).abs().max() == 0

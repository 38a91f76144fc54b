"""Muon's Newton-Schulz iteration in float32, with fewer products than DeepSpeed's. For CPUs without bfloat16.

Not here: momentum, the size of the update and who computes which matrix (`actors.deepspeed_engine`).
"""

from __future__ import annotations

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of Muon's quintic, those of its author and of DeepSpeed."""

GRAM_STEPS = 3
"""Steps from one Gram matrix. More save products, but small singular values drown in its rounding: three and two steps
are as near to float64 as five that begin with a Gram matrix each, five at once thirty times further off."""


def orthogonalised(matrix: Tensor, steps: int) -> Tensor:
    """Return what ``steps`` steps X <- (a I + b X X' + c (X X')^2) X make of a matrix divided by its norm.

    The polynomials of a step are symmetric and commute, so the next step's Gram matrix is this one's between two of
    them, and those of several steps are multiplied before they meet X: products of (m, m) instead of (m, n), m <= n.
    """
    x: Tensor = matrix.float() / (matrix.norm() + 1e-7)
    if is_tall := x.shape[0] > x.shape[1]:
        x = x.T
    at_once = GRAM_STEPS if 2 * x.shape[1] > 3 * x.shape[0] else 1  # a nearly square matrix gains nothing
    for start in range(0, steps, at_once):
        x = _several_steps(x, min(at_once, steps - start))
    return x.T if is_tall else x


def _several_steps(x: Tensor, n_steps: int) -> Tensor:
    gram = x @ x.T
    product = polynomial = _polynomial(gram)
    for _ in range(n_steps - 1):
        gram = polynomial @ (polynomial @ gram)
        polynomial = _polynomial(gram)
        product = polynomial @ product
    return product @ x


def _polynomial(gram: Tensor) -> Tensor:
    polynomial = torch.addmm(gram, gram, gram, beta=B, alpha=C)
    polynomial.diagonal().add_(A)
    return polynomial

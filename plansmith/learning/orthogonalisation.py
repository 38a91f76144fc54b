"""Muon's updates: momentum, and its orthogonal factor by Newton-Schulz iterations, for matrices of one shape at once.

One after the other, a hundred small matrices leave a GPU idle between their products. Not here: who computes which
matrix (`actors.deepspeed_engine`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of Muon's quintic, those of its author and of DeepSpeed."""

GRAM_STEPS = 3
"""Steps from one Gram matrix. More save products, but small singular values drown in its rounding: three and two steps
are as near to float64 as five that begin with a Gram matrix each, five at once thirty times further off."""


class MuonUpdate(NamedTuple):
    """What is asked for of a matrix.

    Attributes:
        gradient: (m, n).
        momentum: (m, n), which takes the gradient in.
        written: (m, n), where the update goes.
    """

    gradient: Tensor
    momentum: Tensor
    written: Tensor


def write_updates(
    asked: Iterable[MuonUpdate], *, momentum: float, steps: int, dtype: torch.dtype, is_adamw_sized: bool
) -> None:
    """Write the updates that are asked for: the orthogonal factors of gradients by Nesterov's momentum, in some size.

    Args:
        asked: of any shapes.
        momentum: share of the momentum that stays.
        steps: Newton-Schulz iterations.
        dtype: of their products.
        is_adamw_sized: as large as AdamW's, 0.2 sqrt(max(m, n)) (arXiv:2502.16982); otherwise sqrt(max(1, m / n)), as
            Muon's author has it.
    """
    by_shape = defaultdict[torch.Size, list[MuonUpdate]](list)
    for update in asked:
        by_shape[update.gradient.shape].append(update)
    for (m, n), alike in by_shape.items():
        gradients, momenta, written = (list(tensors) for tensors in zip(*alike, strict=True))
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        factors = orthogonalised(torch.stack(torch._foreach_lerp(gradients, momenta, momentum)), steps, dtype=dtype)
        size = 0.2 * max(m, n) ** 0.5 if is_adamw_sized else max(1.0, m / n) ** 0.5
        torch._foreach_copy_(written, list((factors * size).unbind()))


def orthogonalised(matrices: Tensor, steps: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return what ``steps`` steps X <- (a I + b X X' + c (X X')^2) X make of matrices divided by their norms.

    Args:
        matrices: (K, m, n).
        steps: how many.
        dtype: of the products. In float32 those of several steps are multiplied before they meet X: the polynomials of
            a step are symmetric and commute, so the next step's Gram matrix is this one's between two of them, and
            products of (m, m) take the place of (m, n), m <= n.

    Returns:
        (K, m, n) in ``dtype``.
    """
    x: Tensor = (matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)).to(dtype)
    if is_tall := x.shape[1] > x.shape[2]:
        x = x.mT
    is_wide = 2 * x.shape[2] > 3 * x.shape[1]  # a nearly square matrix gains nothing
    at_once = GRAM_STEPS if is_wide and dtype == torch.float32 else 1
    for start in range(0, steps, at_once):
        x = _several_steps(x, min(at_once, steps - start))
    return x.mT if is_tall else x


def _several_steps(x: Tensor, n_steps: int) -> Tensor:
    gram = torch.bmm(x, x.mT)
    polynomial = _polynomial(gram)
    if n_steps == 1:
        return torch.baddbmm(x, polynomial, x, beta=A)
    product = polynomial = _with_a(polynomial)
    for _ in range(n_steps - 1):
        gram = torch.bmm(polynomial, torch.bmm(polynomial, gram))
        polynomial = _with_a(_polynomial(gram))
        product = torch.bmm(polynomial, product)
    return torch.bmm(product, x)


def _polynomial(gram: Tensor) -> Tensor:
    """Return b G + c G^2."""
    return torch.baddbmm(gram, gram, gram, beta=B, alpha=C)


def _with_a(polynomial: Tensor) -> Tensor:
    polynomial.diagonal(dim1=1, dim2=2).add_(A)
    return polynomial

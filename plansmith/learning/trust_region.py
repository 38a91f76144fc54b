"""Constrained policy optimisation within a trust region: the step of equation 9 of Self-CriTeach, to the letter.

Source: CPO (arXiv:1705.10528, section 6 and appendix 10.2), which the paper names: objective and cost are taken as
linear, the divergence as quadratic, and the problem of two constraints is solved by its dual in closed form. Where no
step within the region is within the budget, cost alone is lowered (its equation 14). What was solved is then shortened
until what was approximated holds. What is optimised is asked of the caller, a `Region`: this module knows vectors of
numbers and no model (`plansmith.learning.policy_region`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from plansmith.config.constrained import TrustRegionConfig

Product = Callable[[Tensor], Tensor]
"""H v of a vector v, H symmetric and positive definite."""

RESIDUAL = 1e-10
"""Of conjugate gradients: what is left of the squared length, beside that of the beginning, when they end."""
NO_LENGTH = 1e-16
"""Squared length in H^-1 below which a gradient is taken as 0."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step does, measured and not approximated: by how much E[R] and E[C] change, and how far it goes."""

    reward: float
    cost: float
    divergence: float


class Region(Protocol):
    """A policy and what it tried, where it stands."""

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Return g and b, the gradients of E[R] and E[C] at the policy: (P,) each."""

    def curvature(self, vector: Tensor) -> Tensor:
        """Return the Hessian of the divergence at the policy times a vector: (P,)."""

    def measure(self, step: Tensor) -> Measured:
        """Return what a step (P,) from the policy would do."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The step (P,) of the approximated problem, with lambda and nu of its dual; a recovery has neither."""

    step: Tensor
    of_region: float
    of_cost: float
    is_recovery: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A step after its line search: the share of the solution that was taken, 0 where none would do or none is."""

    step: Tensor
    solution: Solution
    share: float
    n_tried: int
    measured: Measured
    reward_gradient_norm: float


def conjugate_gradients(product: Product, vector: Tensor, n_iterations: int) -> Tensor:
    """Return x with H x near a vector, in so many products at most; exact, but for rounding, after as many as P."""
    found, residual = torch.zeros_like(vector), vector.clone()
    direction, length = residual.clone(), float(residual @ residual)
    enough = RESIDUAL * length
    for _ in range(n_iterations):
        if length <= enough:
            break
        changed = product(direction)
        size = length / float(direction @ changed)
        found += size * direction
        residual -= size * changed
        before, length = length, float(residual @ residual)
        direction = residual + (length / before) * direction
    return found


def solve(
    reward: Tensor, cost: Tensor, excess: float, product: Product, *, radius: float, n_iterations: int
) -> Solution:
    """Return the x that makes g x large, where c + b x <= 0 and x H x / 2 <= delta.

    Where that cannot be, x makes b x small within the region. Where no step changes the cost (b is 0) only the region
    counts, which the source leaves open.

    Args:
        reward, cost: g and b, (P,).
        excess: c = J_C - d, positive where the policy is beyond its budget.
        product: by H.
        radius: delta.
        n_iterations: of conjugate gradients, for each of the two.
    """
    natural, of_cost = (conjugate_gradients(product, gradient, n_iterations) for gradient in (reward, cost))
    q, r, s = float(reward @ natural), float(reward @ of_cost), float(cost @ of_cost)
    room = 2 * radius - excess**2 / s if s > NO_LENGTH else -math.inf
    if s > NO_LENGTH and excess > 0 and room <= 0:
        return Solution(-math.sqrt(2 * radius / s) * of_cost, 0.0, 0.0, is_recovery=True)
    if room <= 0:  # every step of the region is within the budget, or none changes the cost
        return _within(natural, math.sqrt(max(q, 0.0) / (2 * radius)))
    spare = max(q - r * r / s, 0.0)
    turn = max(0.0, -r / excess) if excess else (0.0 if r > 0 else math.inf)  # where nu begins to be positive
    at_budget, free = ((turn, math.inf), (0.0, turn)) if excess >= 0 else ((0.0, turn), (turn, math.inf))
    worth_free, within = _least_dual(max(q, 0.0), 2 * radius, free)
    worth_edge, on_edge = _least_dual(spare, room, at_budget)
    if worth_free <= worth_edge - excess * r / s:
        return _within(natural, within)
    along = (natural - (r / s) * of_cost) / on_edge if on_edge > 0 else torch.zeros_like(natural)
    return Solution(along - (excess / s) * of_cost, on_edge, max(0.0, (r + on_edge * excess) / s))


def take_step(region: Region, excess: float, settings: TrustRegionConfig) -> Taken:
    """Return the step of a policy: solved, then shortened until it is within the region and costs no more than it may.

    It must not lower the reward either, unless the policy is beyond its budget and has to come within it first. One
    that does not pass after all its shortenings is not taken, and there is none where all rollouts were worth the same.
    """
    reward, cost = region.gradients()
    solution = solve(
        reward,
        cost,
        excess,
        lambda vector: region.curvature(vector) + settings.damping * vector,
        radius=settings.radius,
        n_iterations=settings.conjugate_gradients,
    )
    norm = float(reward.norm())
    lengths = range(settings.backtracks + 1) if bool(solution.step.any()) else range(0)
    for number in lengths:
        share = settings.backtrack_factor**number
        found = region.measure(share * solution.step)
        is_near = found.divergence <= settings.radius
        is_cheap = found.cost <= max(-excess, 0.0)
        if is_near and is_cheap and (excess > 0 or found.reward >= 0):
            return Taken(share * solution.step, solution, share, number + 1, found, norm)
    nothing = Measured(0.0, 0.0, 0.0)
    return Taken(torch.zeros_like(reward), solution, 0.0, len(lengths), nothing, norm)


def _within(natural: Tensor, of_region: float) -> Solution:
    """Return the natural gradient as far as the region goes."""
    step = natural / of_region if of_region > 0 else torch.zeros_like(natural)
    return Solution(step, of_region, 0.0)


def _least_dual(length: float, room: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the least of length / (2 lambda) + lambda room / 2 within bounds, infinity where these hold nothing."""
    least, most = bounds
    if most == 0.0:
        return math.inf, 0.0
    of_region = min(max(math.sqrt(length / room), least), most)
    return (length / (2 * of_region) if length else 0.0) + of_region * room / 2, of_region

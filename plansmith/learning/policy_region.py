"""A language model with its rollouts as a `Region`: gradients, curvature and measures of a trust region's step.

The curvature is the Fisher matrix of the tokens' distributions, J^T (diag(p) - p p^T) J with J the Jacobian of the
logits: at the policy itself that *is* the Hessian of the divergence, because the rest of the Hessian is multiplied by
the divergence's gradient, which is 0 there. A product by it is two passes, J v forwards with tangents and J^T u
backwards, so that no graph of a gradient is ever held, as differentiating the divergence twice would, and the product
is of a positive matrix whatever is rounded. Tangents need an attention made of products that torch knows forwards:
`packed_attention` is asked to be plain. Everything is in float32 and outside of autocast.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call

from plansmith.errors import PlansmithError
from plansmith.learning.objectives.trust_region import TrustRegion
from plansmith.learning.optimisation import Engine, OptimisationPlan, OptimisationReport, micro_batches
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import RESPONSE_MASK, Sequences
from plansmith.learning.trust_region import Measured, Taken, take_step

if TYPE_CHECKING:
    from collections.abc import Iterator


class HasModel(Engine, Protocol):
    """An engine of one rank whose model is whole."""

    module: Any

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Put other weights into the trained parameters."""


@dataclass(frozen=True)
class PolicyRegion:
    """A model where it stands; vectors (P,) are of all that is trained of it, in order.

    Attributes:
        module: a causal language model that has `packed_attention`.
        objective: what is asked of its logits.
        batches: all rollouts, on its device.
        curved: those that the curvature is measured on.
        counts: by column, of all batches.
    """

    module: Any
    objective: TrustRegion
    batches: Sequence[PackedBatch]
    curved: Sequence[PackedBatch]
    counts: Mapping[str, int]

    @property
    def weights(self) -> dict[str, Tensor]:
        """Return what is trained, by name, without a gradient."""
        return {name: weight.detach() for name, weight in self.module.named_parameters() if weight.requires_grad}

    def moved(self, step: Tensor) -> dict[str, Tensor]:
        """Return what is trained after a step."""
        return {name: self.weights[name] + part for name, part in self._parts(step).items()}

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the two surrogates: (P,) each."""
        leaves = self._leaves()
        found = [torch.zeros(sum(leaf.numel() for leaf in leaves.values())) for _ in range(2)]
        for batch in self.batches:
            logprobs = self.objective.logprobs(self._logits(leaves, batch), batch)
            gains = self.objective.gains((logprobs - logprobs.detach()).exp(), batch, self.counts)
            for number, total in enumerate(found):
                parts = torch.autograd.grad(gains[number], list(leaves.values()), retain_graph=number == 0)
                found[number] = total.to(parts[0].device) + _flat(parts)
        return found[0], found[1]

    def curvature(self, vector: Tensor) -> Tensor:
        """Return F v, with F the mean over tokens: (P,)."""
        leaves, directions = self._leaves(), self._parts(vector)
        n_tokens = sum(int(batch.columns[RESPONSE_MASK].count_nonzero()) for batch in self.curved)
        found = torch.zeros_like(vector)
        for batch in self.curved:
            with torch.no_grad(), forward_ad.dual_level():
                duals = {name: forward_ad.make_dual(leaf.detach(), directions[name]) for name, leaf in leaves.items()}
                scaled = self.objective.scaled(self._logits(duals, batch), batch)
                tangent = forward_ad.unpack_dual(scaled).tangent
            scaled = self.objective.scaled(self._logits(leaves, batch), batch)
            shares = scaled.detach().softmax(dim=-1)
            weighted = shares * (tangent - (shares * tangent).sum(dim=-1, keepdim=True)) / n_tokens
            found += _flat(torch.autograd.grad(scaled, list(leaves.values()), grad_outputs=weighted))
        return found

    def measure(self, step: Tensor) -> Measured:
        """Return what a step changes in the surrogates, and KL(pi, pi_k), mean over tokens."""
        weights, moved = self.weights, self.moved(step)
        gains, divergence = torch.zeros(2, dtype=torch.float64), 0.0
        with torch.no_grad():
            for batch in self.batches:
                before, after = self._logits(weights, batch), self._logits(moved, batch)
                ratios = (self.objective.logprobs(after, batch) - self.objective.logprobs(before, batch)).exp()
                gains += self.objective.gains(ratios - 1.0, batch, self.counts).cpu()
                # in float32 the terms of either sign, far greater than their sum, would leave it to rounding
                scaled = (self.objective.scaled(logits, batch).double() for logits in (before, after))
                old, new = (logits.log_softmax(dim=-1) for logits in scaled)
                divergence += float((new.exp() * (new - old)).sum())
        return Measured(float(gains[0]), float(gains[1]), divergence / max(self.counts[RESPONSE_MASK], 1))

    def _logits(self, weights: Mapping[str, Tensor], batch: PackedBatch) -> Tensor:
        inputs = {**batch.model_inputs(), "is_plain": True}
        logits: Tensor = functional_call(self.module, dict(weights), (), inputs).logits
        return logits.float()

    def _leaves(self) -> dict[str, Tensor]:
        return {name: weight.clone().requires_grad_() for name, weight in self.weights.items()}

    def _parts(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector in the shapes of what is trained."""
        weights = self.weights
        parts = vector.split([weight.numel() for weight in weights.values()])
        return {name: part.view_as(weight) for (name, weight), part in zip(weights.items(), parts, strict=True)}


def run_trust_region(
    engine: HasModel, objective: TrustRegion, sequences: Sequences, plan: OptimisationPlan
) -> OptimisationReport:
    """Take the one step of an update, and return what happened.

    Its curve has one point: as the loss what the step loses of the surrogate of E[R], as the rate the share of the
    solved step that was taken.

    Args:
        engine: on one rank.
        objective: of the update.
        sequences: its rollouts.
        plan: with all of them in one batch.

    Raises:
        PlansmithError: a number of the step is NaN or infinite; the weights are as they were.
    """
    started, [rows] = time.perf_counter(), plan.batches
    made = micro_batches(sequences, rows, objective.columns, rank=0, world_size=1)
    batches = [batch.to(engine.device) for batch in made]
    curved = batches[: ceil(objective.settings.curvature_share * len(rows))]  # a row each
    counts = {name: sum(int(b.columns[name].count_nonzero()) for b in batches) for name in objective.columns}
    region = PolicyRegion(engine.module, objective, batches, curved, counts)
    with _evaluating(engine.module):
        taken = take_step(region, objective.excess, objective.settings)
    if not bool(torch.isfinite(taken.step).all()):
        raise PlansmithError("a step within the trust region is NaN or infinite", cure="raise trust_region.damping")
    if taken.share:
        engine.set_weights(region.moved(taken.step))
    packing = plan.packing
    return OptimisationReport(
        objective=objective.name,
        metrics={name: (value,) for name, value in figures_of(taken).items()},
        learning_rates=(taken.share,),
        gradient_norms=(taken.reward_gradient_norm,),
        n_sequences=packing.n_sequences,
        n_dropped=packing.n_dropped,
        n_dropped_tokens=packing.n_dropped_tokens,
        n_tokens=packing.n_tokens,
        n_trained_tokens=packing.n_tokens,
        wall_time_s=time.perf_counter() - started,
    )


def figures_of(taken: Taken) -> dict[str, float]:
    """Return what is recorded of a step, by name."""
    return {
        "loss": -taken.measured.reward,
        "reward_gain": taken.measured.reward,
        "cost_change": taken.measured.cost,
        "divergence": taken.measured.divergence,
        "dual_lambda": taken.solution.of_region,
        "dual_nu": taken.solution.of_cost,
        "line_search_steps": float(taken.n_tried),
        "step_share": taken.share,
        "recovery": float(taken.solution.is_recovery),
    }


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Let nothing be dropped, and nothing be computed twice for memory's sake, which tangents do not survive."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])

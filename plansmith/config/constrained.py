"""Settings of constrained policy optimisation from a written domain (Self-CriTeach, section 5.4)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import SettingError, StrictModel
from plansmith.config.reinforcement import GroupRelativeConfig, ReinforcementConfig
from plansmith.config.training import OptimiserConfig, TrainerConfig
from plansmith.errors import ConfigError


class CriticConfig(StrictModel):
    """What the domain says of each step of a plan: R (equation 10) and C (equation 11)."""

    step_reward: Literal["potential", "printed_sum"] = "potential"
    """R of a step. potential: by how much the share of goals that hold grows. printed_sum: that share itself, as
    printed, which pays for idling with goals met."""
    state_cost: float = Field(0.5, ge=0)
    """Lambda: cost of a step whose claimed state the domain does not give; a violated precondition costs 1 and this."""


class ConstraintConfig(CriticConfig):
    """How much cost a plan may have, and what more is worth."""

    budget: float = Field(0.25, ge=0)
    """d: expected cost of a plan, at most."""
    penalty: float = Field(0.0, ge=0)
    """Nu as the first update begins."""
    penalty_rate: float = Field(0.5, ge=0)
    """By how much nu grows for each unit of cost above the budget, and falls for each below, update by update."""


class TrustRegionConfig(StrictModel):
    """How equation 9 is solved as it is printed, with `solver: trust_region` (arXiv 1705.10528)."""

    radius: float = Field(0.001, gt=0)
    """Delta: divergence of the policy from that before the update, in nats, mean over the tokens of its rollouts. The
    paper does not give it."""
    damping: float = Field(0.001, gt=0)
    """Added to the diagonal of the divergence's Hessian, which is singular: directions that change nothing."""
    conjugate_gradients: int = Field(10, ge=1)
    """Products by the Hessian for each of the two natural gradients, at most."""
    curvature_share: float = Field(0.1, gt=0, le=1)
    """Share of packed rows that the Hessian is measured on, one at least (arXiv 1502.05477, appendix C: a tenth)."""
    backtracks: int = Field(10, ge=0)
    """How often a step that goes too far or costs too much is shortened; then none is taken."""
    backtrack_factor: float = Field(0.8, gt=0, lt=1)
    """What is left of a step each time."""


class CpoConfig(ReinforcementConfig, ConstraintConfig):
    """Constrained policy optimisation, by one of two solvers.

    penalised: E[R] - nu (E[C] - d) - beta KL from the policy that it begins with; the objective is the group-relative
    one with advantages by step, (A_R - nu A_C) / (1 + nu). trust_region: equation 9 to the letter, one step an update,
    without learning rate, beta and nu of its own. `UNREAD` names what has no
    part in either.
    """

    solver: Literal["penalised", "trust_region"] = "penalised"
    """penalised: what the paper's appendix A.3.2 tells of, with AdamW and beta. trust_region: what its equation 9 says,
    on one rank in float32."""
    trust_region: TrustRegionConfig = TrustRegionConfig()
    """Of that solver."""
    beta: float = Field(0.1, ge=0)
    """Weight of the divergence from the policy that the loop began with."""

    @model_validator(mode="after")
    def _has_no_spare_problems(self) -> Self:
        if self.spare_problems:
            raise SettingError("spare problems are for rewards by verdict", setting="spare_problems",
                               got=str(self.spare_problems), expected="0", cure="leave it at 0")  # fmt: skip
        return self


UNREAD = frozenset(
    {"rewards", "baseline", "advantage_scale", "negative_weight", "trains_cut", "segments", "may_start_cold"}
)
"""What of `CpoConfig` has no part with either solver."""
UNREAD_BY_TRUST_REGION = frozenset(
    ({*OptimiserConfig.model_fields} - {"max_length_tokens"})
    | {*GroupRelativeConfig.model_fields}
    | {"penalty", "penalty_rate"}
    | UNREAD
)
"""What of `CpoConfig` has no part in a step that is solved."""
UNREAD_BY_PENALTY = UNREAD | {"trust_region"}


def check_trust_region(trainer: TrainerConfig) -> None:
    """Check that a trainer can solve a step within a trust region.

    Raises:
        ConfigError: it has several ranks, weights in bfloat16 or four bits, or shares them out.
    """
    wanted = {"n_ranks": 1, "dtype": "float32", "quantisation": "none"}
    others = {name: getattr(trainer, name) for name, value in wanted.items() if getattr(trainer, name) != value}
    if trainer.zero_stage == 3:
        others["zero_stage"] = 3
    if others:
        named = [f"trainer.{name}={value}" for name, value in others.items()]
        raise ConfigError(
            "a step within a trust region is solved on one rank, with whole weights in float32",
            where="cpo.solver=trust_region",
            got=", ".join(named),
            expected="trainer.n_ranks=1, dtype=float32, quantisation=none, zero_stage 1 or 2",
            cure="set these, or cpo.solver=penalised",
        )

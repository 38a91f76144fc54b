"""Settings of constrained policy optimisation from a written domain (Self-CriTeach, section 5.4)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.reinforcement import ReinforcementConfig


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


class CpoConfig(ReinforcementConfig, ConstraintConfig):
    """Constrained policy optimisation, penalised: E[R] - nu (E[C] - d) - beta KL from the policy that it begins with.

    The objective is the group-relative one with advantages by step, (A_R - nu A_C) / (1 + nu); `rewards` and
    `advantage_scale` have no part in it.
    """

    beta: float = Field(0.1, ge=0)
    """Weight of the divergence from the policy that the loop began with."""

    @model_validator(mode="after")
    def _has_no_spare_problems(self) -> Self:
        if self.spare_problems:
            raise ValueError(f"spare_problems={self.spare_problems} is for rewards by verdict; leave it at 0")
        return self

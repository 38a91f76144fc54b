"""Settings of reinforcement learning from verdicts: rewards, how groups of rollouts are drawn, the objective, the loop.

What GRPO, DAPO and Dr. GRPO differ in are settings here (`GroupRelativeConfig`), not three objectives.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import SettingError, StrictModel
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import UpdatesConfig


class RewardConfig(StrictModel):
    """What a rollout is worth, by its verdict; the paper's values (arXiv 2601.14456, section 4.3) by default."""

    valid: float = 1.0
    """A plan that reaches the goal."""
    goal_not_reached: float = 0.1
    """A plan that can be executed and misses the goal; an empty one, too."""
    precondition_unsatisfied: float = -0.1
    """A plan with an action that cannot be applied where it stands."""
    malformed_plan: float = 0.0
    """What cannot be read as a plan of the domain."""
    cut: float = 0.0
    """A rollout that its limit of tokens ended, whatever can be read of it: without an end mark a beginning reads as a
    plan."""

    @model_validator(mode="after")
    def _differs(self) -> Self:
        values = set(self.model_dump().values())
        if len(values) == 1:
            value = f"{values.pop():g}"
            raise SettingError(f"every reward is {value}: advantages would all be 0", got=f"{value} for each verdict",
                               expected="two rewards at least", cure="give valid another value")  # fmt: skip
        return self


class GroupRelativeConfig(StrictModel):
    """The group-relative objective: A of each rollout, and the clipped ratio that is made of it.

    GRPO (arXiv 2402.03300) is the default. DAPO (2503.14476): `denominator: tokens`, `clip_high: 0.28`. Dr. GRPO
    (2503.20783): `denominator: limit`, `advantage_scale: none`. REINFORCE++ (2501.03262): `baseline: batch`,
    `advantage_scale: batch`.
    """

    baseline: Literal["group", "batch"] = "group"
    """Whose mean is taken off a reward: that of the rollouts of its problem, or of all rollouts of the update. By that
    of all, problems whose rollouts are worth the same teach, too."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """What R less that mean is divided by: the standard deviation of the group, that of all rollouts of the
    update, or nothing."""
    negative_weight: float = Field(1.0, ge=0)
    """By what advantages below 0 are multiplied. Below 1 a policy learns more from what went well than from what did
    not; at 0 from that alone."""
    denominator: Literal["rollouts", "tokens", "limit"] = "rollouts"
    """Z. rollouts: the mean over the tokens of each rollout, then over rollouts. tokens: all tokens of the batch.
    limit: rollouts times `max_new_tokens`, whatever was written."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The ratio to the policy before the update is clipped at 1 less this where it falls."""
    clip_high: float = Field(0.2, gt=0)
    """It is clipped at 1 plus this where it grows."""
    beta: float = Field(0.0, ge=0)
    """Weight of the divergence from the policy that the loop began with; 0 needs no reference."""
    weight_limit: float | None = Field(None, gt=0)
    """C, the largest importance weight: how much likelier the trainer finds a rollout than the engine that wrote it,
    through rounding or older weights. None: no weights, whatever the engine did counts as the trainer's doing."""
    weight_level: Literal["token", "sequence"] = "token"
    """Of what an importance weight is: of each token, or one for the whole rollout."""
    beyond_limit: Literal["truncate", "mask"] = "truncate"
    """What becomes of a weight above C. truncate: C. mask: 0, so that nothing is learnt there."""
    trains_cut: bool = True
    """Train on rollouts that their limit ended. Otherwise they count in their group and teach nothing (DAPO's overlong
    filtering)."""

    @model_validator(mode="after")
    def _divides_by_what_differs(self) -> Self:
        if (self.baseline, self.advantage_scale) == ("batch", "group"):
            raise SettingError("baseline=batch lets groups of equal rewards teach, whose own deviation is 0",
                               setting="advantage_scale", got="group", expected="batch or none",
                               cure="set advantage_scale to batch or none")  # fmt: skip
        return self


class GroupSamplingConfig(StrictModel):
    """How the groups of an update are drawn."""

    rollouts_per_problem: int = Field(8, ge=1)
    """G, the rollouts of a group; one has nothing to be compared with."""
    temperature: float = Field(1.0, ge=0, le=2)
    """Of the rollouts; every log-probability of the objective is at this temperature."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability. Ratios and importance weights are then of
    what is left, as the trainer's own probabilities have it; the divergence is of all."""
    top_k: int = Field(0, ge=0)
    """Draw from so many of the likeliest tokens, before `top_p`; 0 draws from all."""
    max_new_tokens: int = Field(1024, ge=1)
    """Longest rollout; a longer one is cut."""

    @model_validator(mode="after")
    def _rollouts_can_differ(self) -> Self:
        found = {
            "rollouts_per_problem": (self.rollouts_per_problem == 1, "1", "=1 leaves one", "2 at least", "8"),
            "temperature": (self.temperature == 0, "0", "=0 draws equal ones", "above 0", "1"),
            "top_k": (self.top_k == 1, "1", "=1 draws equal ones at any temperature", "0, all tokens, or above 1", "0"),
        }
        for name, (holds, got, why, expected, other) in found.items():
            if holds:
                message = f"a group needs rollouts that can differ, and {name}{why}: nothing would be learnt"
                raise SettingError(
                    message, setting=name, got=got, expected=expected, cure=f"set it, to {other} for one"
                )
        return self

    @property
    def sampling(self) -> SamplingConfig:
        """Return how an engine draws a group."""
        shared = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k", "max_new_tokens")}
        return SamplingConfig(n=self.rollouts_per_problem, **shared)


class ReinforcementConfig(UpdatesConfig, GroupRelativeConfig, GroupSamplingConfig):
    """Reinforcement learning from the validator: updates that try problems in groups and learn from their rewards.

    An update is one optimisation, which keeps the optimizer's moments of the one before; schedule and warm-up go over
    the updates. The update takes one step where `batch_sequences` is no less than its rollouts.
    """

    segments: int = Field(1, ge=1)
    """Equal parts of the updates, after each of which the policy is tried; each is kept with the optimizer's state."""
    problems_per_update: int = Field(8, ge=1)
    """Groups that an update learns from; updates go through the problems in turn."""
    spare_problems: int = Field(0, ge=0)
    """Dynamic sampling: a group whose rewards are all equal is replaced by another problem, so many times an update at
    most, and teaches nothing. 0 is off: such groups stay, and count in Z."""
    max_staleness: int = Field(0, ge=0, le=1)
    """1: engines write the rollouts of the next update while the trainer works, by the policy of the update before the
    one that is learnt; what that changes is for `weight_limit` to mend. 0: they take turns."""
    rewards: RewardConfig = RewardConfig()
    """What a rollout is worth."""
    may_start_cold: bool = False
    """Begin although no rollout of the first update is valid; only the rewards of failures tell it what to do then."""
    max_unjudged_share: float = Field(0.05, ge=0, le=1)
    """The run ends with an error when more than this share of an update's rollouts, or all, have no reward: the prompt
    left no room, or the problem itself cannot be judged."""

    @model_validator(mode="after")
    def _segments_have_updates(self) -> Self:
        if self.segments > self.updates:
            raise SettingError("segments would be empty", setting="segments", got=str(self.segments),
                               expected=f"no more than updates={self.updates}", cure="lower segments")  # fmt: skip
        if self.spare_problems and self.baseline == "batch":
            raise SettingError("they replace groups of equal rewards, which teach under baseline=batch",
                               setting="spare_problems", got=str(self.spare_problems), expected="0",
                               cure="leave it at 0")  # fmt: skip
        if self.max_staleness and self.weight_limit is None:
            raise SettingError("max_staleness=1 learns from what an older policy wrote", setting="weight_limit",
                               got="null", expected="a number above 0",
                               cure="set weight_limit, such as 2.0")  # fmt: skip
        return self

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the last update of each segment."""
        return tuple(round(self.updates * number / self.segments) for number in range(1, self.segments + 1))

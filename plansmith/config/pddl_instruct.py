"""The settings of a run: frozen, nothing unknown accepted, every field explained where it stands.

A component gets plain values or its own part, never the whole tree. Values of the paper's table 2 are named where they
differ. Reading presets is in `plansmith.config.loading`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.chains import ChainConfig
from plansmith.config.generation import AttemptConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import (
    LossConfig,
    OptimiserConfig,
    UpdatesConfig,
)


class ExamplesConfig(ChainConfig):
    """What phase 1 is taught with."""

    renamings: int = Field(1, ge=1)
    """How often each solved problem of D1 is written as a chain, each time with other object names and atom order."""
    openings: int = Field(0, ge=0)
    """How often, beside that, only the first steps of the chain are written. They are where nothing can be copied from
    the step before."""
    opening_steps: int = Field(2, ge=1)
    """How many steps these are; plans that have no more are written as chains only."""
    mistakes: float = Field(0.0, ge=0, le=1)
    """Chains with one mistake per problem of D1: half go on after an action that cannot be applied, the others end
    there or short of the goal; a fraction is drawn."""
    valid_explanations: float = Field(0.15, ge=0)
    """Explained valid plans per problem of D1; a fraction is drawn."""
    invalid_explanations: float = Field(0.3, ge=0)
    """Explained corrupted plans per problem of D1, over the four classes."""


class ExplainingConfig(AttemptConfig):
    """The explanations that measure how well the policy of phase 1 verifies plans (the paper's table 2)."""

    n_explained: int = Field(0, ge=0)
    """Plans of D2's problems, half of them corrupted, that the policy explains after phase 1."""
    temperature: float = Field(0.7, ge=0, le=2)
    """Of the explanations."""
    max_new_tokens: int = Field(1024, ge=1)
    """Longest explanation."""


class Phase1Config(OptimiserConfig, ExplainingConfig):
    """The tuning of phase 1, and the explanations that measure it."""


class RolloutConfig(StrictModel):
    """What one iteration lets the policy try."""

    problems_per_iteration: int = Field(400, ge=1)
    """Problems of D2 rolled out in one iteration; iterations go through D2 in turn."""
    rollouts_per_problem: int = Field(4, ge=1)
    """Attempts at each problem."""
    temperature: float = Field(0.7, ge=0, le=2)
    """The paper rolls out at 0.3. Too low, and attempts at one problem do not differ; too high, and none is valid."""
    max_new_tokens: int = Field(1100, ge=1)
    """Longest attempt; a longer one is cut."""
    resample_budget: int = Field(0, ge=0)
    """Further rollouts of a problem while none of its rollouts is valid."""


class CorrectionConfig(StrictModel):
    """What is made of the judged rollouts of an iteration."""

    feedback: Literal["binary", "detailed"] = "detailed"
    """What the validator says of an attempt: valid or not, or also which step fails, what is unsatisfied and how to
    mend it."""
    corrections_per_problem: int = Field(1, ge=0)
    """Failed rollouts of one problem, at most, that become examples `correct_with_feedback`: problem, attempt and
    feedback, answered by the planner's whole chain and, where the attempt is planned on, by what follows its sound
    steps."""
    confirmations_per_problem: int = Field(0, ge=0)
    """Examples `confirm_with_feedback` made of the valid rollouts of one problem, at most."""
    correction_renamings: int = Field(0, ge=0)
    """How often the corrected chain of a failed problem is also trained on from the plain prompt, under other names."""
    continuation_renamings: int = Field(0, ge=0)
    """How often a failed attempt is continued by a new plan from its last sound state, and a valid one that costs more
    than an optimal plan from the state before its first needless step, each time under other names; the planner solves
    what is left of them. 0 switches it off."""
    losses: LossConfig = LossConfig()
    """Weights of the losses of phase 2."""


class Phase2Config(RolloutConfig, CorrectionConfig):
    """The feedback loop."""

    eta: int = Field(3, ge=1)
    """Feedback iterations, at most; the paper uses 10 and 15."""
    patience: int = Field(0, ge=0)
    """Stop when the accuracy on the probe set has not gained for so many iterations, and keep the best policy; 0 runs
    all iterations and keeps the last. The paper's future work, "Dynamic Iteration Control"."""
    curriculum: Literal["none", "short_first"] = "none"
    """short_first: in each domain, iteration t draws from the t/eta of D2 whose plans are shortest."""
    max_unjudged_share: float = Field(1.0, gt=0, le=1)
    """The run ends with an error when more than this share of the rollouts of an iteration cannot be read as plans."""
    stage1: OptimiserConfig
    """The optimisation of the reasoning loss."""
    stage2: OptimiserConfig | None = None
    """The optimisation of the final loss, from the weights of `stage1`; the paper's rate is half that of `stage1`. None
    leaves it out: the verdicts are then learnt in `stage1`, which keeps the right rollouts likely anyway."""
    verdict_weight: float = Field(10.0, ge=0)
    """Without `stage2`: how much the true verdict of a rollout weighs in `stage1` beside 1 of another word, on average;
    over an iteration VALID and INVALID weigh the same. Large weights cost plans: a verdict is harder to foretell than
    other words, and its loss soon outweighs theirs."""
    has_control: bool = False
    """Also train the control: as many likelihood tokens of the planner's chains for the same problems as every
    iteration has, at the rates of `stage1` and without a rollout. `plansmith ablate` switches it on."""
    learning_rate_decay: float = Field(1.0, gt=0, le=1)
    """The rates of `stage1` and `stage2` are those of iteration 1; every further iteration multiplies them by this. The
    paper keeps them."""

    def optimisation(self, settings: OptimiserConfig, iteration: int) -> OptimiserConfig:
        """Return `stage1` or `stage2` with the rates it has by iteration t."""
        return settings.with_rates(self.learning_rate_decay ** (iteration - 1))

    def share_of_d2(self, iteration: int) -> float:
        """Return the share of each domain's problems, those with the shortest plans, that iteration t draws from."""
        return iteration / self.eta if self.curriculum == "short_first" else 1.0


class RejectionConfig(UpdatesConfig, AttemptConfig):
    """Rejection sampling: updates that let the policy try problems of D2 and train on its flawless rollouts.

    An update is one optimisation, which keeps the optimizer's moments of the one before.
    """

    problems_per_update: int = Field(16, ge=1)
    """Problems of D2 tried in one update; updates go through D2 in turn."""
    rollouts_per_problem: int = Field(4, ge=1)
    """Attempts at each problem."""
    temperature: float = Field(0.7, ge=0, le=2)
    """Of the attempts."""


class EvaluationConfig(AttemptConfig):
    """How a policy is measured."""

    primary_level: str | None = None
    """The level whose accuracy stands for an arm, as tables name it; None: the first that has test problems."""
    tries_untrained: bool = True
    """Try the untrained policy on the test problems. One from nothing solves none, and fills every answer."""
    baseline_prompts: tuple[Literal["zero_shot", "chain_of_thought"], ...] = ()
    """Other prompts that the untrained policy is tried with: for the plan alone, or for free reasoning and a plan."""
    feedback_turns: int = Field(0, ge=0)
    """How often the final policy gets a failed plan back with the validator's feedback (LLM-Modulo)."""
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown step by step in the report."""


class AblationConfig(StrictModel):
    """The arms of table 1: what `plansmith ablate` reports beside the run's own eta."""

    eta_low: int = Field(2, ge=1)
    """The smaller number of feedback iterations; the paper's is 10, and 15 the greater."""


class PddlInstructConfig(ModelRunConfig):
    """Everything about one run of the pipeline `pddl_instruct`."""

    rendering: Literal["compact", "full"] = "compact"
    """How prompts and chains are written: `compact` for word-level models such as `tiny`, `full` for real ones."""
    problems: ProblemsConfig
    """Where problems come from, and how they are split."""
    planner: PlannerConfig = PlannerConfig()
    """How they are solved."""
    examples: ExamplesConfig = ExamplesConfig()
    """What phase 1 is taught with."""
    phases: Literal["both", "phase1", "phase2"] = "both"
    """phase1: without feedback iterations. phase2: iterations on the untrained policy (ablations of table 1)."""
    phase1: Phase1Config
    """The tuning of phase 1."""
    rejection: RejectionConfig | None = None
    """Rejection sampling between phase 1 and the feedback loop; None leaves it out."""
    phase2: Phase2Config
    """The feedback loop."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How policies are measured."""
    ablation: AblationConfig = AblationConfig()
    """Which arms `plansmith ablate` has."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.is_word_level and self.rendering != "compact":
            raise ValueError(
                f"rendering={self.rendering} needs a real model or tokenizer=bpe; tokenizer=words reads compact only"
            )
        if self.is_word_level and not self.problems.object_names:
            raise ValueError("tokenizer=words needs problems.object_names, the only names such a model knows")
        if self.phase2.patience and not self.problems.probe_share:
            raise ValueError(
                f"phase2.patience={self.phase2.patience} needs a probe set: set problems.probe_share and levels' probe"
            )
        if self.phase2.patience and self.phase2.has_control:
            raise ValueError(
                f"phase2.patience={self.phase2.patience} ends a loop that phase2.has_control goes on with: the control "
                "would have more supervision; set one of the two"
            )
        has_tested_start = self.phases != "phase2" or self.evaluation.tries_untrained or self.rejection is not None
        if self.phase2.patience and not has_tested_start:
            raise ValueError(
                f"phase2.patience={self.phase2.patience} may keep what the run begins with, which nobody tests: "
                "set evaluation.tries_untrained"
            )
        if not self.problems.phase2_share:
            raise ValueError("problems.phase2_share=0 leaves no problem for D2, which is learnt from, too")
        if not self.problems.tested_levels:
            raise ValueError("no level has test problems: nothing would be measured")
        if self.evaluation.primary_level not in (None, *self.problems.tested_levels):
            raise ValueError(
                f"evaluation.primary_level={self.evaluation.primary_level!r} has no test problems; levels that have: "
                f"{', '.join(self.problems.tested_levels)}"
            )
        return self

    @property
    def primary_level(self) -> str:
        """Return the level whose accuracy stands for an arm."""
        return self.evaluation.primary_level or self.problems.tested_levels[0]

    def unread(self) -> dict[str, str]:
        """Return the settings that no stage reads under these settings, each with the reason."""
        found = super().unread()
        if self.phases == "phase1":
            loop = set(Phase2Config.model_fields) - {"feedback"}  # which feedback turns at the end read, too
            found |= {f"phase2.{name}": "phases=phase1 has no feedback iterations" for name in loop}
        if self.phase2.stage2 is not None:
            found["phase2.verdict_weight"] = "phase2.stage2 learns the verdicts"
        if self.phases == "phase2":
            found["phase1"] = "phases=phase2 leaves phase 1 out"
        return found

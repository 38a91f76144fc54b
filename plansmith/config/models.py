"""The settings of a run: frozen, nothing unknown accepted, every field explained where it stands.

A component gets plain values or its own part, never the whole tree. Values of the paper's table 2 are named where they
differ. Reading presets is in `plansmith.config.loading`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.cluster import ClusterConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.telemetry import TelemetryConfig
from plansmith.config.training import (
    LossConfig,
    ModelConfig,
    OptimiserConfig,
    Phase1Config,
    PolicyConfig,
    TrainerConfig,
)


class PlannerConfig(StrictModel):
    """One planner configuration."""

    name: str = "fast-downward"
    """fast-downward, or up:ENGINE for an engine of unified-planning."""
    search: str = "optimal"
    """first, good, optimal, or any search string of Fast Downward."""
    time_limit_s: float = Field(30.0, gt=0)
    """CPU seconds for translation plus search."""
    kill_after_s: float = Field(40.0, gt=0)
    """Wall-clock seconds after which the whole process group is killed."""
    memory_limit_mib: int = Field(2048, ge=64)
    tie_break_states: int = Field(0, ge=0)
    """Where a plan is optimal, search so many states for the first plan of its length in the domain's order of actions,
    so that equal situations are solved equally; 0 keeps the planner's plan."""

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        if self.kill_after_s <= self.time_limit_s:
            raise ValueError(f"kill_after_s={self.kill_after_s} must exceed time_limit_s={self.time_limit_s}")
        return self


class ExamplesConfig(StrictModel):
    """What phase 1 is taught with."""

    renamings: int = Field(1, ge=1)
    """How often each solved problem of D1 is written as a chain, each time with other object names and atom order."""
    openings: int = Field(0, ge=0)
    """How often, beside that, only the first steps of the chain are written. They are where nothing can be copied from
    the step before."""
    opening_steps: int = Field(2, ge=1)
    """How many steps these are; plans that have no more are written as chains only."""
    valid_explanations: float = Field(0.15, ge=0)
    """Explained valid plans per problem of D1; a fraction is drawn."""
    invalid_explanations: float = Field(0.3, ge=0)
    """Explained corrupted plans per problem of D1, over the four classes."""


class Phase2Config(StrictModel):
    """The feedback loop."""

    eta: int = Field(3, ge=1)
    """Feedback iterations, at most; the paper uses 10 and 15."""
    patience: int = Field(0, ge=0)
    """Stop when the accuracy on the probe set has not gained for so many iterations, and keep the best policy; 0 runs
    all iterations and keeps the last. The paper's future work, "Dynamic Iteration Control"."""
    curriculum: Literal["none", "short_first"] = "none"
    """short_first: in each domain, iteration t draws from the t/eta of D2 whose plans are shortest."""
    feedback: Literal["binary", "detailed"] = "detailed"
    problems_per_iteration: int = Field(400, ge=1)
    """Problems of D2 rolled out in one iteration; iterations go through D2 in turn."""
    rollouts_per_problem: int = Field(4, ge=1)
    temperature: float = Field(0.7, ge=0)
    """The paper rolls out at 0.3. Too low, and attempts at one problem do not differ; too high, and none is valid."""
    max_new_tokens: int = Field(1100, ge=1)
    resample_budget: int = Field(0, ge=0)
    """Further rollouts of a problem while none of its rollouts is valid."""
    max_unjudged_share: float = Field(1.0, gt=0, le=1)
    """The run ends with an error when more than this share of the rollouts of an iteration cannot be read as plans."""
    corrections_per_problem: int = Field(1, ge=0)
    """Examples `correct_with_feedback` made of the failed rollouts of one problem, at most."""
    correction_renamings: int = Field(0, ge=0)
    """How often the corrected chain of a failed problem is also trained on from the plain prompt, under other names."""
    continuation_renamings: int = Field(0, ge=0)
    """How often a failed attempt is continued by a new plan from its last sound state, each time under other names; the
    attempts that are continued are solved again by the planner. 0 switches it off."""
    stage1: OptimiserConfig
    stage2: OptimiserConfig
    learning_rate_decay: float = Field(1.0, gt=0, le=1)
    """The rates of `stage1` and `stage2` are those of iteration 1; every further iteration multiplies them by this. The
    paper keeps them."""
    losses: LossConfig = LossConfig()

    def sampling(self) -> dict[str, object]:
        """Return the settings of rolling out.

        Eta is among them only where the curriculum depends on it, so that a longer loop continues a shorter one.
        """
        names = {
            "problems_per_iteration",
            "rollouts_per_problem",
            "temperature",
            "max_new_tokens",
            "curriculum",
            "resample_budget",
        }
        return self.model_dump(include=names if self.curriculum == "none" else {*names, "eta"})

    def optimisation(self, stage: Literal["stage1", "stage2"], iteration: int) -> OptimiserConfig:
        """Return the settings of an optimisation in iteration t, with the rates it has by then."""
        settings: OptimiserConfig = getattr(self, stage)
        decay = self.learning_rate_decay ** (iteration - 1)
        rates = ("learning_rate", "muon_learning_rate")
        return settings.model_copy(update={name: rate * decay for name in rates if (rate := getattr(settings, name))})

    def corrections(self) -> dict[str, object]:
        """Return the settings of the data sets built from rollouts."""
        return self.model_dump(
            include={"feedback", "corrections_per_problem", "correction_renamings", "continuation_renamings"}
        )


class EvaluationConfig(StrictModel):
    """How a policy is measured."""

    temperature: float = Field(0.0, ge=0)
    max_new_tokens: int = Field(1100, ge=1)
    baseline_prompts: tuple[Literal["zero_shot", "chain_of_thought"], ...] = ()
    """Other prompts that the untrained policy is tried with: for the plan alone, or for free reasoning and a plan."""
    feedback_turns: int = Field(0, ge=0)
    """How often the final policy gets a failed plan back with the validator's feedback (LLM-Modulo)."""
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown step by step in the report."""

    def sampling(self) -> dict[str, object]:
        """Return the settings of the attempts."""
        return self.model_dump(include={"temperature", "max_new_tokens"})


class AblationConfig(StrictModel):
    """The arms of table 1: what `plansmith ablate` reports beside the run's own eta."""

    eta_low: int = Field(2, ge=1)
    """The smaller number of feedback iterations; the paper's is 10, and 15 the greater."""


class PddlInstructConfig(StrictModel):
    """Everything about one run of the pipeline `pddl_instruct`."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run and of its folder."""
    seed: int = Field(0, ge=0)
    rendering: Literal["compact", "full"] = "compact"
    """How prompts and chains are written: `compact` for word-level models such as `tiny`, `full` for real ones."""
    problems: ProblemsConfig
    planner: PlannerConfig = PlannerConfig()
    examples: ExamplesConfig = ExamplesConfig()
    model: ModelConfig = ModelConfig()
    trainer: TrainerConfig = TrainerConfig()
    policy: PolicyConfig = PolicyConfig()
    phases: Literal["both", "phase1", "phase2"] = "both"
    """phase1: without feedback iterations. phase2: iterations on the untrained policy (ablations of table 1)."""
    phase1: Phase1Config
    phase2: Phase2Config
    evaluation: EvaluationConfig = EvaluationConfig()
    ablation: AblationConfig = AblationConfig()
    cluster: ClusterConfig = ClusterConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

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
        if not self.problems.folder and self.problems.primary_level not in {
            x.name for x in self.problems.sampled_levels if x.test
        }:
            raise ValueError(f"primary_level={self.problems.primary_level!r} has no test problems among the levels")
        return self

    @property
    def is_word_level(self) -> bool:
        """Return whether the policy reads only the words that it was made with."""
        return self.model.folder is None and self.model.tokenizer == "words"

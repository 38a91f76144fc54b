"""The settings of a run about the generalization gap: plans learnt from planner and validator, tried in new domains.

What the paper gives stands in the preset `paper`; what it does not is marked there as ours.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.generation import AttemptConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.reinforcement import ReinforcementConfig
from plansmith.config.run import RunConfig
from plansmith.config.training import ModelConfig, OptimiserConfig, PolicyConfig, TrainerConfig

Variant = Literal["numbered", "anonymised", "compact"]
"""How a policy is tuned: B, v1 and v2 of the paper."""


class TrialConfig(AttemptConfig):
    """How policies are measured."""

    tries_untrained: bool = True
    """Also try the untrained policy, in the numbered format."""
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown in the report."""


class GeneralizationGapConfig(RunConfig):
    """Everything about one run of the pipeline `generalization_gap`."""

    problems: ProblemsConfig
    """Which problems. A domain none of whose levels has problems of D1 is never trained on: its test problems measure
    the gap, and are reported apart."""
    planner: PlannerConfig = PlannerConfig(search="first")
    """What solves problems: D1 and the test problems, whose plans are only for comparison."""
    model: ModelConfig = ModelConfig(tokenizer="bpe")
    """What is trained."""
    trainer: TrainerConfig = TrainerConfig()
    """What trains it."""
    policy: PolicyConfig = PolicyConfig()
    """What lets it answer."""
    variants: tuple[Variant, ...] = ("numbered", "anonymised", "compact")
    """Which policies are tuned by likelihood. numbered: B. anonymised: v1, names hidden more and more often, tested on
    hidden names. compact: v2, plans without time stamps and brackets."""
    sft: OptimiserConfig
    """The tuning of each. Numbered and compact are tried after every epoch; the anonymised tuples are stacked once for
    each epoch and trained on once, in this order."""
    grpo: ReinforcementConfig | None = None
    """v3: reinforcement learning from the validator's verdicts on D1's problems, from `compact` after its first epoch;
    None leaves it out."""
    evaluation: TrialConfig = TrialConfig()
    """How policies are measured."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.problems.domains:
            raise ValueError("problems.domains is empty: which domains are trained on is what this pipeline is about")
        if self.model.folder is None and self.model.tokenizer != "bpe":
            raise ValueError(f"model.tokenizer={self.model.tokenizer} does not know the words of PDDL; take bpe")
        if not self.trained_domains:
            raise ValueError("no level has problems of D1 (phase1): nothing would be learnt")
        tested = {level.domain_name for level in self.problems.domains if level.test}
        if not tested & self.trained_domains:
            raise ValueError("no domain that is trained on has test problems: there would be nothing to compare with")
        if not self.variants:
            raise ValueError("variants is empty: nothing would be tuned")
        if len(set(self.variants)) < len(self.variants):
            raise ValueError(f"variants names one twice: {', '.join(self.variants)}")
        if self.grpo is not None and "compact" not in self.variants:
            raise ValueError("grpo begins with the compact variant after its first epoch; add compact to variants")
        if self.sft.decay_below is not None:
            raise ValueError("sft.decay_below ends a tuning early, and its epochs are fixed here; leave it out")
        return self

    @property
    def trained_domains(self) -> frozenset[str]:
        """Return the domains with problems of D1."""
        return frozenset(level.domain_name for level in self.problems.domains if level.phase1)

    def unread(self) -> dict[str, str]:
        """Return the settings that no stage reads under these settings, each with the reason."""
        if self.model.folder is None:
            return {}
        of_shape = set(ModelConfig.model_fields) - {"folder"}
        return {f"model.{name}": f"model.folder={self.model.folder} has its own" for name in of_shape}

"""The settings of a run of NL-PDDL-Bench: from problems in words to their PDDL.

What the paper gives stands in the preset `paper`; what it does not is marked there as ours.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.formalisation import Checks, FormalisationConfig, JudgingConfig
from plansmith.config.generation import REPAIR_TEMPERATURE, AttemptConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import ModelConfig, OptimiserConfig, PreferenceConfig

Negatives = Literal["paper", "faithful", "sampled"]
"""What the rejected answers of preference pairs are, see `PairsConfig`."""


class TextExamplesConfig(StrictModel):
    """What supervised fine-tuning learns from: texts of D1's problems, answered by these."""

    texts: int = Field(1, ge=1)
    """How often each problem of D1 is said, each time in other words and under other names."""
    repair: float = Field(0.0, ge=0)
    """Problems with a mistake per problem of D1, handed back with what is said of them and answered by the right one; a
    fraction is drawn. A model from nothing can be told of mistakes in no other way; the paper has none."""


class PairsConfig(StrictModel):
    """The preference pairs, of problems of D2."""

    negatives: Negatives = "paper"
    """What the rejected answers are. paper: problems with a mistake that cannot be read, have no plan, or a worse one.
    faithful: also those with a good plan that mean another thing. sampled: the tuned policy's own, of any of these
    faults."""
    draws_per_problem: int = Field(4, ge=1)
    """Mistakes drawn of one problem, of kinds that take turns; of `sampled`, answers."""
    temperature: float = Field(0.7, gt=0, le=2)
    """Of the answers of `sampled`."""
    per_problem: int = Field(2, ge=1)
    """Pairs of one problem, at most."""
    held_out_share: float = Field(0.1, gt=0, lt=1)
    """Share of the problems whose pairs measure what was learnt, and teach nothing."""


class DpoConfig(OptimiserConfig, PreferenceConfig):
    """The optimisation on preference pairs (equation 5)."""

    pairs: PairsConfig = PairsConfig()
    """The pairs."""


class RepairConfig(StrictModel):
    """The loop that hands failed answers back (section 3.4, appendix C.2)."""

    turns: int = Field(5, ge=0)
    """T_max: how often an answer is handed back, at most; 0 leaves the loop out."""
    checks: Checks = "planner"
    """What an answer is handed back for. planner: it cannot be read or has no plan. coverage: also for objects that the
    text does not name, and names of the text that are no object."""
    temperature: float = Field(REPAIR_TEMPERATURE, ge=0, le=2)
    """Of the further answers, with feedback and without; the paper names none. At 0 a policy that has once kept its
    mistake is asked the same again, and keeps it to the last turn."""
    has_resampling: bool = False
    """Also ask as often again without a word of feedback: the control of the loop."""


class TransferConfig(StrictModel):
    """Test texts that others wrote (table 5)."""

    planbench: str | None = None
    """PlanBench's folder ``plan-bench``, or one of its ``prompts/NAME``, relative to where the command is given. Its
    texts are tried beside our own, and reported as of levels or domains never trained on."""


class TextEvaluationConfig(AttemptConfig):
    """How a policy is measured."""

    tries_untrained: bool = True
    """Also try the untrained policy."""
    tries_grammar: bool = False
    """Also read the texts by the grammar that they are written by: the arm `read`, without a policy."""
    n_failures_shown: int = Field(6, ge=0)
    """Wrong answers shown in the report."""


class NlPddlBenchConfig(ModelRunConfig):
    """Everything about one run of the pipeline `nl_pddl_bench`."""

    problems: ProblemsConfig
    """Which problems, of domains that have phrases. A level without problems of D1 and D2 is never trained on: its test
    texts are reported apart, as are those of a domain without any such level."""
    planner: PlannerConfig = PlannerConfig(search="first")
    """What solves answers and references alike."""
    texts: FormalisationConfig = FormalisationConfig()
    """How problems are said in words, and asked for."""
    examples: TextExamplesConfig = TextExamplesConfig()
    """What fine-tuning learns from."""
    model: ModelConfig = ModelConfig(tokenizer="bpe")
    """What is trained."""
    sft: OptimiserConfig
    """The supervised fine-tuning (equations 3 and 4)."""
    dpo: DpoConfig | None = None
    """Preference optimisation after it; None leaves it out."""
    sft_longer: OptimiserConfig | None = None
    """The control of `dpo`: further fine-tuning from the same policy, on as many tokens, of texts of D2, be
    they of pairs or not; None leaves it out."""
    has_direct_plans: bool = False
    """Also train the control of formalising: from the same start as by `sft`, on as many tokens of the same texts, to
    answer with a plan."""
    repair: RepairConfig = RepairConfig()
    """The repair loop, on every trained policy that formalises."""
    evaluation: TextEvaluationConfig = TextEvaluationConfig()
    """How policies are measured."""
    transfer: TransferConfig = TransferConfig()
    """What else they are measured on."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.problems.domains:
            raise ValueError("problems.domains is empty: texts are of domains of the library, or of domain folders")
        if self.model.folder is None and self.model.tokenizer != "bpe":
            raise ValueError(f"model.tokenizer={self.model.tokenizer} does not know the words of texts; take bpe")
        learnt = {level.name for level in self.problems.domains if level.phase1 + level.phase2}
        if wrong := [name for name in self.texts.reworded if name in learnt or name not in self.problems.tested_levels]:
            tested = ", ".join(name for name in self.problems.tested_levels if name not in learnt)
            raise ValueError(
                f"texts.reworded names {', '.join(wrong)}; expected levels that are tested and never trained on "
                f"({tested or 'there is none'}), with phase1=0 and phase2=0"
            )
        if self.dpo is not None and not self.problems.phase2_share:
            raise ValueError("problems.phase2_share=0 leaves no problem for D2, which dpo draws its pairs of")
        if not self.problems.tested_levels:
            raise ValueError("no level has test problems: nothing would be measured")
        if not any(level.test and level.phase1 + level.phase2 for level in self.problems.domains):
            untrained = ", ".join(self.problems.tested_levels)
            raise ValueError(
                f"no level that is learnt from has test problems, and figures are of these first; {untrained} have "
                "phase1=0 and phase2=0: give such a level test problems, too"
            )
        if self.sft_longer is not None and self.dpo is None:
            raise ValueError("sft_longer has as many tokens as dpo, which is None")
        return self

    @property
    def judging(self) -> JudgingConfig:
        """Return how answers to texts are judged."""
        return JudgingConfig(planner=self.planner, checks=self.repair.checks)

    def unread(self) -> dict[str, str]:
        """Return the settings that no stage reads under these settings, each with the reason."""
        found = super().unread()
        if not self.repair.turns:
            found |= {f"repair.{name}": "repair.turns=0" for name in set(RepairConfig.model_fields) - {"turns"}}
        return found

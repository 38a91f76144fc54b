"""The settings of a run about the generalization gap: plans learnt from planner and validator, tried in new domains.

What the paper gives stands in the preset `paper`; what it does not is marked there as ours.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import SettingError, StrictModel
from plansmith.config.dataset import SymbolPoolConfig
from plansmith.config.generation import AttemptConfig
from plansmith.config.invention import InventionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.reinforcement import ReinforcementConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import ModelConfig, OptimiserConfig

Variant = Literal["numbered", "anonymised", "compact"]
"""How a policy is tuned: B, v1 and v2 of the paper."""


Control = Literal["more_sft", "own_plans"]
"""What reinforcement learning is compared with."""
ReadingArm = Literal["trained", "mixed", "invented", "distant"]
"""What a policy that reads the domain is tuned on."""


class InventedDomainsConfig(StrictModel):
    """Domains that nobody has seen, and how many problems are drawn in each."""

    folder: str | None = None
    """A folder of domain folders, as `plansmith domains generate` writes it; None: they are invented by the run."""
    domains: int = Field(500, ge=2)
    """Domains that the run invents; of a folder all are taken."""
    invention: InventionConfig = InventionConfig()
    """How it invents them."""
    is_bred: bool = True
    """Half of the candidates are bred from the domains that are trained on; otherwise all are drawn."""
    held_out_share: float = Field(0.1, gt=0, lt=1)
    """Share of the domains that are never trained on: settings are chosen on their problems."""
    problems: int = Field(8, ge=1)
    """Problems of each other domain to learn from, at most."""
    fresh_problems: int = Field(8, ge=0)
    """Further problems of each such domain, without plans, for reinforcement learning."""
    test_problems: int = Field(4, ge=1)
    """Problems of each domain that is held out, at most."""
    n_draws: int = Field(60, ge=1)
    """Draws in each domain to find them."""
    n_workers: int = Field(1, ge=1)
    """Processes that invent; the domains are the same for any number."""


class ReadingConfig(StrictModel):
    """Policies that read the domain: prompts tell it in few words, under symbols drawn anew for every problem."""

    arms: tuple[ReadingArm, ...] = ("trained", "mixed", "invented", "distant")
    """What each is tuned on. trained: the domains with problems of D1. mixed: these and invented ones. invented: these
    alone. distant: as mixed, without every domain that shares an action schema with one that is only tested."""
    invented: InventedDomainsConfig = InventedDomainsConfig()
    """The invented domains."""
    symbols: SymbolPoolConfig = SymbolPoolConfig()
    """What names are hidden behind."""
    copies: int = Field(4, ge=1)
    """How often a solved problem is written, each time under other symbols."""
    tokens: int = Field(ge=1)
    """Each arm is tuned on so many tokens, its examples round after round, so that all are trained equally long."""
    sft: OptimiserConfig
    """The tuning of each; its `epochs` go over these tokens."""
    grpo: ReinforcementConfig | None = None
    """Reinforcement learning from `mixed` on fresh problems of invented domains, without plans; None leaves it out."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise ValueError(f"reading.arms names none, or one twice: {list(self.arms)}")
        if self.grpo is not None and "mixed" not in self.arms:
            raise ValueError("reading.grpo begins with the arm mixed; add it to reading.arms")
        if self.grpo is not None and not self.invented.fresh_problems:
            raise ValueError("reading.grpo tries fresh problems, and reading.invented.fresh_problems=0")
        grid, is_invented = self.invented.invention.grid, self.invented.folder is None
        for kind in ("actions", "predicates", "types") if is_invented else ():
            size, most = getattr(self.symbols, kind), getattr(grid, kind)[-1][1]
            if size < most:
                raise SettingError(f"domains are invented with more {kind} than the pool has symbols",
                                   setting=f"symbols.{kind}", got=str(size), expected=f"{most} at least",
                                   cure=f"raise it, or lower reading.invented.invention.grid.{kind}")  # fmt: skip
        return self


class PricesConfig(StrictModel):
    """What an hour costs, in any one currency."""

    cpu_hour: float = Field(0.0, ge=0)
    """Of the machine that draws, plans and judges."""
    accelerator_hour: float = Field(0.0, ge=0)
    """Of what generates and trains."""


class TrialConfig(AttemptConfig):
    """How policies are measured."""

    tries_untrained: bool = True
    """Also try the untrained policy, in the numbered format."""
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown in the report."""


class GeneralizationGapConfig(ModelRunConfig):
    """Everything about one run of the pipeline `generalization_gap`."""

    problems: ProblemsConfig
    """Which problems. A domain none of whose levels has problems of D1 is never trained on: its test problems measure
    the gap, and are reported apart."""
    planner: PlannerConfig = PlannerConfig(search="first")
    """What solves problems: D1 and the test problems, whose plans are only for comparison."""
    model: ModelConfig = ModelConfig(tokenizer="bpe")
    """What is trained."""
    variants: tuple[Variant, ...] = ("numbered", "anonymised", "compact")
    """Which policies are tuned by likelihood. numbered: B. anonymised: v1, names hidden more and more often, tested on
    hidden names. compact: v2, plans without time stamps and brackets."""
    prompts: Literal["pddl", "told", "named"] = "pddl"
    """How these are told domain and problem: as PDDL, or in few words without brackets (`plansmith.text.told`);
    `named`: without the domain, of which they learn the name alone, so that names cannot be hidden."""
    copies: int = Field(1, ge=1)
    """How often an epoch has each tuple: further ones are variations of it (ours; `PlanExamplesConfig.varies`). The
    paper has each once; a model from nothing learns to look names up from many texts."""
    plan_share: float = Field(1.0, gt=0, le=1)
    """Share of D1's plans that `compact` is tuned on, in as many more `copies`. Below 1, reinforcement learning has the
    other problems of D1, without their plans (ours): where a plan of each was learnt, it finds little left to win."""
    sft: OptimiserConfig | None = None
    """The tuning of each variant. Numbered and compact are tried after every epoch; the anonymised tuples are stacked
    once for each epoch and trained on once, in this order."""
    grpo: ReinforcementConfig | None = None
    """v3: reinforcement learning from the validator's verdicts on D1's problems, from `compact` after some epochs; None
    leaves it out."""
    grpo_after_epoch: int = Field(1, ge=1)
    """Epochs of `compact` after which reinforcement learning begins; the paper's is 1. A model from nothing is still
    learning quickest from plans then."""
    other_grpo: dict[str, ReinforcementConfig] | None = Field(default_factory=dict)
    """Further arms of reinforcement learning from the same start, by name: other rewards, other objectives; None, too,
    leaves them out, as a preset does that is based on one which has some."""
    controls: tuple[Control, ...] = ()
    """What else is done from the same start for as many seconds as the updates of `grpo` took. more_sft: tuning on more
    of the planner's plans. own_plans: on those of its own rollouts that are valid, drawn as `grpo` draws."""
    labels: tuple[Annotated[float, Field(gt=0, le=1)], ...] = ()
    """A label budget: shares of D1's plans, in rising order. For each a policy is tuned on these plans alone, which
    those of a larger share contain, on as many tokens as `sft.epochs` passes over all plans; then it learns as `grpo`
    does on the other problems of D1, without their plans, and be it that it solves none yet. A share of 1 leaves none
    and is only tuned."""
    reading: ReadingConfig | None = None
    """Policies that read the domain, and invented domains; None leaves them out."""
    evaluation: TrialConfig = TrialConfig()
    """How policies are measured."""
    prices: PricesConfig = PricesConfig()
    """At which the report tells costs; 0 tells seconds alone."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.problems.domains:
            raise ValueError("problems.domains is empty: which domains are trained on is what this pipeline is about")
        if self.variants and self.reading is not None:
            raise ValueError(
                f"variants={list(self.variants)} and reading are two runs: give variants: [] beside reading"
            )
        if self.variants and self.model.folder is None and self.model.tokenizer != "bpe":
            raise ValueError(f"model.tokenizer={self.model.tokenizer} does not know the words of PDDL; take bpe")
        if self.prompts == "named" and "anonymised" in self.variants:
            raise ValueError("variants=anonymised hides names, and prompts=named tells no more of a domain")
        if not self.trained_domains:
            raise ValueError("no level has problems of D1 (phase1): nothing would be learnt")
        tested = {level.domain_name for level in self.problems.domains if level.test}
        if not tested & self.trained_domains:
            raise ValueError("no domain that is trained on has test problems: there would be nothing to compare with")
        if not self.variants and self.reading is None:
            raise ValueError("variants is empty, and reading is left out: nothing would be tuned")
        if self.variants and self.sft is None:
            raise ValueError(f"variants={list(self.variants)} need sft: how they are tuned")
        if self.reading is not None and self.model.folder is None and self.model.tokenizer != "words":
            raise ValueError(
                f"reading has a fixed pool of words; model.tokenizer={self.model.tokenizer} would learn its own"
            )
        if self.reading is not None and not self.unseen_domains:
            raise ValueError("reading is about domains that are only tested: give a level with test and no phase1")
        if len(set(self.variants)) < len(self.variants):
            raise ValueError(f"variants names one twice: {', '.join(self.variants)}")
        if self.grpo is not None and "compact" not in self.variants:
            raise ValueError("grpo begins with the compact variant; add compact to variants")
        if self.grpo is not None and self.grpo_after_epoch > self.tuning.epochs:
            raise ValueError(f"grpo_after_epoch={self.grpo_after_epoch} of sft.epochs={self.tuning.epochs}")
        if self.grpo is None and (self.controls or self.other_grpo):
            raise ValueError("controls and other_grpo stand beside grpo, which is left out")
        if wrong := [name for name in self.other_grpo or () if not re.fullmatch(r"[a-z0-9]+", name)]:
            raise ValueError(f"names of other_grpo are small letters and digits, got {', '.join(wrong)}")
        if self.labels and self.grpo is None:
            raise ValueError(
                f"labels={list(self.labels)} go on with reinforcement learning on the rest, and grpo is left out"
            )
        is_shared = self.trainer.device != "cpu" and self.policy.placement == "colocated"
        loops = [self.grpo, *(self.other_grpo or {}).values(), self.reading.grpo if self.reading else None]
        if is_shared and any(loop is not None and loop.max_staleness for loop in loops):
            raise SettingError("max_staleness=1 has engines and trainer work at once", setting="policy.placement",
                               got="colocated", expected="separate", cure="set policy.placement=separate")  # fmt: skip
        if self.plan_share < 1 and "compact" not in self.variants:
            raise ValueError(f"plan_share={self.plan_share:g} is of what compact learns from; add compact to variants")
        if self.labels and self.plan_share < 1:
            raise ValueError(f"labels are shares of all plans, and plan_share={self.plan_share:g} takes some away")
        if any(later <= share for share, later in pairwise(self.labels)):
            raise ValueError(f"labels are shares in rising order, each once, got {list(self.labels)}")
        return self

    @property
    def trained_domains(self) -> frozenset[str]:
        """Return the domains with problems of D1."""
        return frozenset(level.domain_name for level in self.problems.domains if level.phase1)

    @property
    def unseen_domains(self) -> frozenset[str]:
        """Return the domains with test problems that are never trained on."""
        return frozenset(level.domain_name for level in self.problems.domains if level.test) - self.trained_domains

    @property
    def start_of_grpo(self) -> str:
        """Return the arm that reinforcement learning begins with."""
        several = self.sft is not None and self.sft.epochs > 1
        return f"compact_{self.grpo_after_epoch}" if several else "compact"

    @property
    def tuning(self) -> OptimiserConfig:
        """Return the tuning of the variants, which have one."""
        assert self.sft is not None, "variants without a tuning are refused"
        return self.sft

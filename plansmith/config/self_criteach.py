"""The settings of a run of Self-CriTeach: a model that writes its domain, learns from it, and is rewarded by it.

What the paper gives stands in the preset `paper`; what it does not is marked there as ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from plansmith.config.basics import PositiveRange, StrictModel
from plansmith.config.chains import ChainConfig
from plansmith.config.constrained import (
    UNREAD_BY_PENALTY,
    UNREAD_BY_TRUST_REGION,
    CpoConfig,
    check_trust_region,
)
from plansmith.config.domain_writing import DemonstrationsConfig, DomainConfig
from plansmith.config.generation import AnsweringConfig, AttemptConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.priming import MAX_ATTEMPTS, PrimeConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import OptimiserConfig, PreferenceConfig

Arm = Literal[
    "base", "vote", "prompt_cot", "self_distilled", "distilled", "symbol", "sft", "sft_noisy", "cpo_only", "dpo_only",
    "sft_dpo", "sft_cpo",
]  # fmt: skip
"""A policy that is tried; see `SelfCriteachConfig.arms`."""
_NAME = re.compile(r"[a-zA-Z0-9][\w-]*")


class LengthShare(StrictModel):
    """A part of the library, or of the tests, by the length of its plans."""

    up_to: int = Field(ge=1)
    """Longest plan; those of the part before are shorter."""
    share: float = Field(gt=0)
    """Weight of the part beside the others."""


class WalksConfig(StrictModel):
    """Goals that random walks in the written domain reach, from scenes of the simulator (section A.1.3)."""

    steps: PositiveRange = (1, 8)
    """Actions of a walk."""
    goal_size: PositiveRange = (1, 4)
    """Atoms of a goal."""


class QuotaConfig(StrictModel):
    """How many plans are learnt from."""

    plans: int | None = Field(None, ge=1)
    """Plans, those held out included; None takes as many as the problems of D1 give."""
    lengths: tuple[LengthShare, ...] = ()
    """Parts by plan length, by their shares; none takes plans of all lengths as they come."""

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        _check_growing("library", self.lengths)
        return self


class TasksQuotaConfig(QuotaConfig):
    """How many plans of some tasks are learnt from."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """Domains, as `problems.domains` names them, together."""


class LibraryConfig(QuotaConfig):
    """What is learnt of the written domain's plans."""

    of_tasks: tuple[TasksQuotaConfig, ...] = ()
    """Quotas of some tasks; `plans` and `lengths` are then of all others together."""
    walks: WalksConfig | None = None
    """Give the scenes of D1 and D2 goals that the written domain alone reaches; None keeps those that the reference's
    samplers draw, of the kind that is tested."""

    held_out_share: float = Field(0.0, ge=0, lt=1)
    """Share of the problems whose chains are not learnt from; the policy's loss on them is measured."""
    renamings: int = Field(1, ge=1)
    """How often each plan is written as a chain, each time with other object names and atom order."""


class ChosenTestsConfig(StrictModel):
    """How many tests of each plan length are taken of those that `problems` draws."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """Domains, as `problems.domains` names them; of any other all tests are taken."""
    problems: int = Field(ge=1)
    """Tests of each of them, at most; where a part has fewer than its share it is told, and nothing makes up for it."""
    lengths: tuple[LengthShare, ...] = Field(min_length=1)
    """Parts by the length of the planner's plan, by their shares; what has none, or a longer one, is no test."""

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        _check_growing("tests", self.lengths)
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tests.tasks must differ, got {', '.join(self.tasks)}")
        return self


def _check_growing(name: str, lengths: Sequence[LengthShare]) -> None:
    bounds = [part.up_to for part in lengths]
    if bounds != sorted(set(bounds)):
        raise ValueError(f"{name}.lengths must grow, got up_to={bounds}")


class NarratorConfig(ChainConfig):
    """Who tells the plans of the library as chains of thought; beside their steps a template alone tells something."""

    kind: Literal["template", "model"] = "template"
    """template: a writer whose every word is true, in `rendering`. model: the base model, or `speaker`, asked for each
    plan; what it writes is kept only where its steps are the plan's and its states are true. Policies are then asked in
    free words, whatever the rendering, and answer with a final plan."""
    speaker: AnsweringConfig = AnsweringConfig()
    """Who narrates, with kind=model; nobody named is the base model, as in the paper."""
    by: Literal["plan", "step"] = "plan"
    """plan: a model tells a plan in one answer. step: each step in an answer of its own, from the states before and
    after it (equation 6 to the letter); what it says is put together with both."""
    temperature: float = Field(0.6, ge=0, le=2)
    """Of a model's narrations."""
    max_new_tokens: int = Field(4096, ge=1)
    """Longest narration."""
    repeats: int = Field(1, ge=0)
    """How often a plan is told again whose narration is refused; then it is dropped."""
    max_refused_share: float = Field(0.9, ge=0, le=1)
    """The run ends with an error when more than this share of the plans has no narration."""


class ParaphraseConfig(StrictModel):
    """How the prompts that `sft` learns to answer are rephrased, lest it learn one wording alone."""

    speaker: AnsweringConfig = AnsweringConfig()
    """Who rephrases; nobody named is the base model."""
    temperature: float = Field(0.6, ge=0, le=2)
    """Of the answers."""
    max_new_tokens: int = Field(4096, ge=1)
    """Longest answer, which repeats domain and problem."""


class SamplesConfig(StrictModel):
    """Answers that are drawn to be chosen from: by vote, for self-distillation, for preference pairs."""

    answers: int = Field(4, ge=2)
    """Of each problem; the paper does not say how many vote, and its tokens are 2.6 to 3.7 times the base's."""
    temperature: float = Field(0.6, gt=0, le=2)
    """Of the answers."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability."""


class DpoTuningConfig(OptimiserConfig, PreferenceConfig):
    """Direct preference optimisation on pairs of the policy's own answers: valid ones first, then by R less C."""


class CriteachEvaluationConfig(AttemptConfig):
    """How policies are measured."""

    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability."""
    models: dict[str, AnsweringConfig] = Field(default_factory=dict)
    """Others that try the same problems, by the name that the report gives them: model folders, or models of servers.
    They are asked to reason in words of their own, whatever the rendering."""
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown in the report."""
    noise_rates: tuple[float, ...] = ()
    """Shares of a state's atoms that are disturbed when planner and last policy are tried on noisy states; none leaves
    that out."""
    noise: Literal["missing", "spurious", "swapped", "classifier", "vlm"] = "vlm"
    """How states are disturbed: atoms are lost, added, or have an object exchanged. classifier: two in three are lost,
    the others swapped; vlm: a third each."""


class SelfCriteachConfig(ModelRunConfig):
    """Everything about one run of the pipeline `self_criteach`."""

    problems: ProblemsConfig
    """Which problems. Domains with problems of D1 are written by the model and learnt in; the others only measure, and
    are reported as unseen."""
    tests: ChosenTestsConfig | None = None
    """Tests by plan length, chosen of those that the levels of `problems` draw; None takes all of them."""
    planner: PlannerConfig = PlannerConfig(search="good", n_plans=2)
    """What solves problems; `n_plans` diverse plans of each are learnt from."""
    demonstrations: DemonstrationsConfig = DemonstrationsConfig()
    """What a domain is written of."""
    domain: DomainConfig = DomainConfig()
    """How it is written, mended and pruned."""
    library: LibraryConfig = LibraryConfig()
    """What is learnt of its plans."""
    narrator: NarratorConfig = NarratorConfig()
    """Who tells them as chains of thought."""
    paraphrase: ParaphraseConfig | None = None
    """Rephrase the setting of training prompts (appendix A.3.2); a refused paraphrase leaves the prompt as it was. None
    leaves all of them so."""
    rendering: Literal["compact", "full"] = "full"
    """How prompts and chains of thought are written, by template."""
    prime: PrimeConfig | None = None
    """What a word-level model from nothing learns before it counts as the base: it then writes its domain itself, one
    schema a completion (domain.writer=model). None leaves it untrained."""
    arms: tuple[Arm, ...] = ("base", "sft", "sft_cpo")
    """Which policies are tried. base: untrained. vote: of several answers of the base the plan nearest to all others.
    prompt_cot: the base asked for free reasoning. self_distilled: the base tuned on its own valid answers; distilled:
    on those of `teacher`. symbol: tuned on plans without chains. sft: tuned on chains; sft_noisy: on
    chains that first tell the true state, where the prompt tells one with mistakes (evaluation.noise_rates). The others
    are reinforced, from the base (only) or from sft."""
    teacher: AnsweringConfig = AnsweringConfig()
    """Whose valid answers the arm distilled is tuned on: a larger policy in a folder, or a server; the paper's is
    Qwen3-30B."""
    sft: OptimiserConfig
    """The tuning on chains (equation 8), and of the arms beside it."""
    cpo: CpoConfig | None = None
    """Constrained policy optimisation (equation 9); the arms with cpo need it."""
    dpo: DpoTuningConfig | None = None
    """Preference optimisation; the arms with dpo need it."""
    samples: SamplesConfig = SamplesConfig()
    """Answers to be chosen from."""
    evaluation: CriteachEvaluationConfig = CriteachEvaluationConfig()
    """How policies are measured."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.problems.domains:
            raise ValueError("problems.domains is empty: a written domain is compared with one of the library")
        if not self.trained_domains:
            raise ValueError("no level has problems of D1 (phase1): there would be no scene to demonstrate")
        if self.tests and (unknown := [name for name in self.tests.tasks if name not in self.problems.tested_tasks]):
            raise ValueError(f"tests.tasks: {', '.join(unknown)} have no test problems; those that do are "
                             f"{', '.join(self.problems.tested_tasks)}")  # fmt: skip
        named = [task for quota in self.library.of_tasks for task in quota.tasks]
        if len({*named}) < len(named) or not {*named} <= {*self.trained_domains}:
            raise ValueError(f"library.of_tasks names each task once that is learnt in, of "
                             f"{', '.join(self.trained_domains)}; got {', '.join(named)}")  # fmt: skip
        if self.model.folder is None and self._base_writes and self.prime is None:
            raise ValueError("domain.writer=model, and a model from nothing knows no PDDL; prime it, take symbolic, or "
                             "name a domain.speaker")  # fmt: skip
        if self.prime is not None and self.domain.speaker.is_named:
            raise ValueError("prime has the base model write its domain, and domain.speaker another; leave out one")
        told = [name for name in ("alternatives", "backtracks", "tells_start") if getattr(self.narrator, name)]
        if self.narrator.kind == "model" and told:
            raise ValueError(f"narrator: {', '.join(told)} need kind=template, got kind=model, which is asked in words")
        if self.narrator.speaker.is_named and self.narrator.kind != "model":
            raise ValueError(f"narrator.speaker narrates with kind=model alone, got kind={self.narrator.kind}")
        if self.prime is not None and self.domain.attempts_shown > MAX_ATTEMPTS:
            raise ValueError(f"domain.attempts_shown={self.domain.attempts_shown}: with prime a question tells of "
                             f"{MAX_ATTEMPTS} at most; lower it")  # fmt: skip
        if self.prime is not None and not self.is_word_level:
            raise ValueError("prime is for a model from nothing with model.tokenizer=words; others write PDDL as it is")
        for name, file in {"domain.file": self.domain.file, "demonstrations.file": self.demonstrations.file}.items():
            if file is not None and len(self.trained_domains) > 1:
                raise ValueError(f"{name} is of one domain, and {', '.join(self.trained_domains)} are learnt in")
        if self.model.folder is None and self.model.tokenizer == "words" and self.rendering != "compact":
            raise ValueError("model.tokenizer=words knows the words of rendering=compact alone")
        if self.model.folder is None and self.narrator.kind == "model":
            raise ValueError("narrator.kind=model, and a model from nothing has no words to narrate in; take template")
        if self.is_word_level and self.paraphrase is not None:
            raise ValueError("paraphrase is of prompts in words, which a word-level model cannot read")
        if self.model.folder is None and self.paraphrase is not None and not self.paraphrase.speaker.is_named:
            raise ValueError("paraphrase needs a speaker (url or folder): a model from nothing has no words of its own")
        if self.is_word_level and "prompt_cot" in self.arms:
            raise ValueError("the arm prompt_cot asks in words, which a word-level model cannot read")
        if "sft_noisy" in self.arms and (self.narrator.kind == "model" or not self.evaluation.noise_rates):
            raise ValueError("the arm sft_noisy needs evaluation.noise_rates, the rates of its prompts, and chains by "
                             "narrator.kind=template")  # fmt: skip
        for method in ("cpo", "dpo"):
            if getattr(self, method) is None and (wanted := [arm for arm in self.arms if method in arm]):
                raise ValueError(f"the arms {', '.join(wanted)} need {method}")
        if len(set(self.arms)) < len(self.arms) or not self.arms:
            raise ValueError(f"arms must be named, each once, got {', '.join(self.arms) or 'none'}")
        if self.cpo is not None and self.cpo.solver == "trust_region":
            check_trust_region(self.trainer)
        for name, model in self.evaluation.models.items():
            if name in get_args(Arm) or not _NAME.fullmatch(name):
                raise ValueError(f"evaluation.models: letters, digits, - and _ that name no arm, got {name!r}")
            if not model.is_named:
                raise ValueError(f"evaluation.models.{name} needs a folder, or a url and a model")
        return self

    @property
    def _base_writes(self) -> bool:
        return self.domain.writer == "model" and not self.domain.speaker.is_named

    @property
    def speakers(self) -> dict[str, AnsweringConfig]:
        """Return who answers beside the run's policies, by setting."""
        found = {"domain.speaker": self.domain.speaker, "narrator.speaker": self.narrator.speaker}
        if "distilled" in self.arms:
            found["teacher"] = self.teacher
        if self.paraphrase is not None:
            found["paraphrase.speaker"] = self.paraphrase.speaker
        found |= {f"evaluation.models.{name}": model for name, model in self.evaluation.models.items()}
        return {name: speaker for name, speaker in found.items() if speaker.is_named}

    @property
    def prompting(self) -> str:
        """Return how policies are asked, by the name that `plansmith.text.rendering.prompting_of` knows."""
        return "narrated" if self.narrator.kind == "model" else self.rendering

    @property
    def trained_domains(self) -> tuple[str, ...]:
        """Return the domains with problems of D1, in their order."""
        return tuple(dict.fromkeys(level.domain_name for level in self.problems.domains if level.phase1))

    def unread(self) -> dict[str, str]:
        """Return the settings that no stage reads under these settings, each with the reason."""
        found = super().unread()
        for name, arms in {"cpo": "cpo", "dpo": "dpo", "teacher": "distilled"}.items():
            if not any(arms in arm and arm != "self_distilled" for arm in self.arms):
                found[name] = f"no arm uses it: arms={', '.join(self.arms)}"
        if self.demonstrations.file is not None:
            recorded = ("task", "trajectories", "steps", "refused")
            found |= {f"demonstrations.{name}": "demonstrations.file has its own" for name in recorded}
        if self.cpo is not None:
            names = UNREAD_BY_TRUST_REGION if self.cpo.solver == "trust_region" else UNREAD_BY_PENALTY
            found |= {f"cpo.{name}": f"cpo.solver={self.cpo.solver} has no use for it" for name in names}
        return found

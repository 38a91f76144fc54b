"""The settings of a run of NL2Plan: which tasks, who is asked, and how answers are checked and criticised."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.generation import AnsweringConfig, AttemptConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import ProblemsConfig
from plansmith.config.run import ModelRunConfig
from plansmith.config.training import ModelConfig, OptimiserConfig, PolicyConfig


class TasksConfig(StrictModel):
    """Which texts are taken through the steps."""

    folder: str | None = None
    """A folder laid out like ``datasets/nl2plan``; None takes that, the paper's 15 tasks."""
    domains: tuple[str, ...] = ()
    """Its domains that are used; empty for all."""
    domain: Literal["own", "easy", "whole", "edited"] = "easy"
    """Of which texts steps 1 to 4 make the domain of a task: ``own``, of its own; ``easy``, of the first task of its
    domain, as the paper; ``whole``, of all texts of its domain; ``edited``, as ``easy``, with `edits` put in place."""
    edits: str | None = None
    """A folder with DOMAIN/FILE for each product of steps 1 to 4 that somebody has mended, as below a task's ``edits``;
    with ``edited`` alone."""

    @model_validator(mode="after")
    def _has_edits(self) -> Self:
        if (self.edits is not None) != (self.domain == "edited"):
            raise ValueError(f"tasks.edits goes with tasks.domain=edited; got {self.edits} and {self.domain}")
        return self

    @property
    def shares_domain(self) -> bool:
        """Return whether the tasks of a domain are written in the domain of the first of them."""
        return self.domain != "own"


class SpeakerConfig(AnsweringConfig):
    """Who answers: a server, a model folder, a cassette, or the script, which is no model. A run needs one of them."""

    script: bool = False
    """Let the script answer, which reads the references: a test of everything but a model."""
    faults: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Mistakes of the script, by step, or step and action: the mistake of each attempt, empty for none."""
    replay: str | None = None
    """A cassette whose answers are given again; nobody is asked."""
    record: str | None = None
    """A file for a cassette of all that is answered; one that is there is gone on with."""
    max_calls: int | None = Field(None, ge=0)
    """Calls of the whole run at most; then it ends, and the same command with more goes on. None sets no limit."""
    max_tokens: int | None = Field(None, ge=0)
    """The same of tokens, questions and answers together, as who answers counts them; what is under way is finished."""
    prices: dict[str, float] = Field(default_factory=dict)
    """Money for a million tokens, ``input`` and ``output``, and ``cached`` of those of the input that the server knew
    already, as dear as others if that is left out; empty says nothing of money."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in ("url", "folder", "script", "replay") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"a run has one speaker: url, folder, script, or replay; got {' and '.join(given)}")
        if self.replay and self.record:
            raise ValueError("speaker.record with speaker.replay would copy a cassette; copy the file")
        if self.url and not self.model:
            raise ValueError(f"speaker.url={self.url} without speaker.model: which model of the server?")
        if self.faults and not self.script:
            raise ValueError("speaker.faults are mistakes of the script; no model makes them on demand")
        if set(self.prices) - {"input", "cached", "output"} or any(price < 0 for price in self.prices.values()):
            raise ValueError(f"prices are of input, cached and output, 0 or more; got {self.prices}")
        return self


class LessonsConfig(StrictModel):
    """What a speaker from nothing learns of, and is tried on (not in the paper)."""

    problems: ProblemsConfig
    """Problems of library domains: lessons are about D1's, tasks are those of Dtest. A domain without problems of D1 is
    never learnt of."""
    copies: int = Field(1, ge=1)
    """Dialogues about each problem of D1, each in a phrasing and behind words of its own."""
    held_out_phrasings: int = Field(2, ge=1, le=11)
    """Of the twelve, those in which nothing is learnt, and domains that are learnt of are tried."""
    outlines: float = Field(0.5, gt=0, le=1)
    """Share of the questions of steps 1 to 3 that are learnt; they are easy, and as long as the others."""
    mistakes: float = Field(0.15, ge=0, le=1)
    """Share of first answers of steps 4 and 5 that have a mistake, which is then learnt to be mended."""
    advised: float = Field(0.25, gt=0, le=1)
    """Share of the dialogues in which advice is asked for, where `modelling.feedback` is the model's; half of what is
    advised on lacks something that no check misses, and what it lacks is the advice."""
    scrambled: float = Field(0.7, ge=0, le=1)
    """Share of the dialogues that are about a random domain made of the problem's."""
    drills: int = Field(16_000, ge=1)
    """Texts of hidden words of which sentences are written again before any lesson: by them looking up is learnt."""
    optimiser: OptimiserConfig
    """Both optimisations: on the drills, then on the lessons."""


class NL2PlanConfig(ModelRunConfig):
    """Everything about one run of the pipeline `nl2plan`."""

    tasks: TasksConfig = TasksConfig()
    """Which texts."""
    speaker: SpeakerConfig = SpeakerConfig()
    """Who answers."""
    lessons: LessonsConfig | None = None
    """Train who answers, from nothing, and try it on tasks of its own; None asks `speaker`."""
    model: ModelConfig = ModelConfig(tokenizer="bpe")
    """What is trained, with `lessons`."""
    answers: AttemptConfig = AttemptConfig(max_new_tokens=4096)
    """How an answer is drawn."""
    modelling: ModellingConfig = ModellingConfig()
    """How answers are checked and criticised."""
    policy: PolicyConfig = PolicyConfig(max_model_len=16384)
    """The engine of a model folder."""
    planner: PlannerConfig = PlannerConfig(search="lama-first")
    """What plans what was modelled."""
    drafts: int = Field(1, ge=1)
    """How often each task is taken through the steps, with other seeds; a plan is tried in the models of the other
    drafts (not in the paper). Answers must then be drawn at a temperature above 0."""
    zero_shot: bool = True
    """Also ask for a plan straight from the text, with a chain of thought and no example (appendix G); with `lessons`
    another policy, which has learnt nothing else, from as many tokens about the same problems."""
    one_call: bool = False
    """Also ask for domain and problem in one answer, nothing of which is handed back (not in the paper); with `lessons`
    another policy, which has learnt nothing else, from as many tokens about the same domains."""
    unchecked: bool = False
    """Also take the tasks through the steps without handing any fault back (not in the paper)."""
    unadvised: bool = False
    """Also take the tasks through the steps without asking the model for advice (not in the paper)."""
    rules: bool = False
    """Also have the texts read by no model but a reader that knows the templates of `lessons`, and reads no other text
    (not in the paper): whether a text says all that is needed."""
    interpretations: str | None = None
    """A folder with ``TASK.json`` for each task that a person has interpreted, and ``TASK.plan`` with what the prose of
    a plan straight from the text means, in actions of the reference; None has none."""

    @property
    def lacking(self) -> dict[str, ModellingConfig]:
        """Return how the steps are taken with something left out, by the setting that asks for it."""
        without: dict[str, dict[str, Any]] = {
            "unchecked": {"max_error_messages": 0, "max_validations": 1},
            "unadvised": {"feedback": "none"},
        }
        left = {name: self.modelling.model_copy(update=less) for name, less in without.items()}
        return {name: modelling for name, modelling in left.items() if getattr(self, name)}

    def unread(self) -> dict[str, str]:
        """Return the settings that no stage reads under these settings, each with the reason."""
        reason = "without lessons nobody is trained; who answers is speaker"
        return super().unread() if self.lessons is not None else dict.fromkeys(("model", "trainer"), reason)

    @model_validator(mode="after")
    def _drafts_differ(self) -> Self:
        if self.drafts > 1 and not self.answers.temperature and not self.speaker.script:
            raise ValueError(f"drafts={self.drafts} at answers.temperature=0 would all be alike; set it above 0")
        return self

    @model_validator(mode="after")
    def _learner_speaks(self) -> Self:
        if self.lessons is None:
            return self
        if self.speaker != SpeakerConfig():
            raise ValueError("with lessons the policy that has learnt them answers; leave the settings of speaker out")
        if self.modelling.prompts != "bare" or self.tasks.domain not in ("own", "easy"):
            raise ValueError("lessons are by bare prompts: set modelling.prompts=bare, and leave tasks.domain as it is")
        if self.model.folder is not None or self.model.tokenizer != "bpe":
            raise ValueError("lessons are for a model from nothing: set model.tokenizer=bpe, and no model.folder")
        if self.modelling.grows:
            raise ValueError("modelling.grows is not taught by lessons: leave it false")
        if not self.lessons.problems.domains:
            raise ValueError("lessons are about domains that have phrases: set lessons.problems.domains")
        return self

    @model_validator(mode="after")
    def _nobody_waits(self) -> Self:
        if self.unadvised and self.modelling.feedback == "none":
            raise ValueError("unadvised is the steps without advice, and so are these: set modelling.feedback=model")
        if self.modelling.answers == "json" and self.speaker.folder is not None:
            raise ValueError("modelling.answers=json with speaker.folder: the engine built in enforces no JSON; serve "
                             "the folder, by vllm serve, and set speaker.url")  # fmt: skip
        if self.modelling.feedback == "person":
            raise ValueError("modelling.feedback=person is for one task at a time: plansmith nl2plan --feedback person")
        return self

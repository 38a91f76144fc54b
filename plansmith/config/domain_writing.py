"""Settings of domains that are written of demonstrations: what is recorded, who writes, what is checked and pruned."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.generation import AnsweringConfig

Objective = Literal["checks", "solvability"]
"""What pruning must not make worse."""
DamageKind = Literal["removed", "added"]
"""What happens to literals."""


class DemonstrationsConfig(StrictModel):
    """What is recorded of the simulator, in scenes that are learnt from, or was recorded of a robot."""

    task: str = "A robot rearranges things on tables."
    """What the robot is to do, in a sentence."""
    trajectories: int = Field(12, ge=1)
    """Random walks, each in a scene of D1."""
    steps: int = Field(10, ge=1)
    """Attempts of a walk that succeed."""
    refused: int = Field(10, ge=0)
    """Further attempts before each of them, of which those are kept that the simulator refuses."""
    held_out: int = Field(4, ge=0)
    """Further walks, which neither prompts nor checks see: of them the report tells how much the domain explains. Of
    `file` the last ones."""
    file: str | None = None
    """Demonstrations of a user's, as `plansmith domains write` reads them, in the place of the simulator's. The domain
    of the library that `problems` names must have its name and its skills, and is still what runs and judges plans;
    facts that it does not know are left out."""


class DomainQuestionConfig(StrictModel):
    """How a model is asked for a domain, or to mend it, in one turn."""

    candidates: int = Field(4, ge=1)
    """Answers to each question; the best counts."""
    temperature: float = Field(0.6, ge=0, le=2)
    """Of the answers."""
    max_new_tokens: int = Field(4096, ge=1)
    """Longest answer."""
    attempts_shown: int = Field(6, ge=1)
    """Attempts that a prompt shows of each skill, of those that worked and of those that were refused each."""
    faults_shown: int = Field(8, ge=1)
    """Faults that a prompt hands back."""


class WritingConfig(DomainQuestionConfig):
    """How a model is asked for a domain, and to mend it."""

    turns: int = Field(5, ge=0)
    """How often the best domain is handed back with its faults, at most."""


class DamageConfig(StrictModel):
    """Literals by which a domain is made worse, drawn by seed."""

    kind: DamageKind
    """Literals are taken out of preconditions and effects, or put in."""
    literals: int = Field(ge=1)
    """How many."""
    redraws: int = Field(50, ge=0)
    """How often other literals are drawn where no scene can be solved in what is left, from which nothing could be
    learnt; then the run ends with an error."""


class DomainConfig(WritingConfig):
    """Where the domain of a run comes from."""

    writer: Literal["model", "symbolic", "given"] = "model"
    """model: the base model, or `speaker`, writes it. symbolic: a safe action model of the same demonstrations, without
    any model. given: `file` holds it, such as what `plansmith domains write` has written by a server's model."""
    speaker: AnsweringConfig = AnsweringConfig()
    """Who writes, with writer=model; nobody named is the base model, as in the paper."""
    file: str | None = None
    """A domain that is written already, with writer=given; checked and pruned as any."""
    scenes: int = Field(8, ge=1)
    """Problems of D1 that a domain is tried on, by planner and simulator."""
    prune: Objective | None = "checks"
    """What pruning must not make worse: any check, or only the share of solved scenes, as the paper words it. None does
    not prune."""
    agreement_scenes: int = Field(10, ge=1)
    """Problems of D1 in which written and reference domain are compared."""
    max_faults: int | None = Field(0, ge=0)
    """The run ends with an error when the domain that counts has more faults, and keeps it; None goes on with it."""
    damage: DamageConfig | None = None
    """Make the domain that counts worse before it is learnt in: a study of how wrong it may be. None leaves it."""

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if (self.writer == "given") != (self.file is not None):
            raise ValueError(f"writer=given and file go together, got writer={self.writer}, file={self.file}")
        if self.speaker.is_named and self.writer != "model":
            raise ValueError(f"domain.speaker writes with writer=model alone, got writer={self.writer}")
        return self

"""The settings of the planning service: flat, so that ``serve run ... policy=FOLDER`` gives each.

Every part of the service gets its own part of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.tools import TextLimits


def _names(value: Any) -> Any:
    """Return the names in a text with commas or spaces between them, as a command line gives it."""
    return tuple(value.replace(",", " ").lower().split()) if isinstance(value, str) else value


class EngineArgs(StrictModel):
    """The policy and the engine that holds it."""

    policy: str | None = None
    """Folder of the model, or its name on the Hugging Face hub; without one the planner alone answers."""
    rendering: Literal["compact", "full", "zero_shot", "chain_of_thought", "narrated"] | None = None
    """How the policy is asked; default: compact for a word-level model, else full."""
    object_names: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    """Names that a word-level model was trained to call objects by; default: every word that no domain uses."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the weights; default: bfloat16 on a GPU, float32 on a CPU."""
    max_model_len: int = Field(8192, ge=32)
    """Prompt plus answer in tokens, at most; less where the model reaches less far."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Of an answer; default of this and of the next three: what the model's generation_config.json says."""
    temperature: float | None = Field(None, ge=0, le=2)
    """0 takes the likeliest token."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Share of probability that the likeliest tokens to draw from hold together; 1 draws from all."""
    top_k: int | None = Field(None, ge=0)
    """0 draws from all tokens."""
    max_batch_size: int = Field(32, ge=1)
    """Prompts that are decoded together, at most; others wait in the engine."""
    engine_threads: int = Field(1, ge=1)
    """OpenMP threads of an engine on a CPU."""
    gpus_per_engine: float = Field(0.0, ge=0)
    """GPUs that an engine reserves: 0 runs it on the CPU, a share below 1 takes as much of one GPU's memory, a whole
    number is that of the GPUs over which the weights lie."""
    seed: int = Field(0, ge=0)
    """Decides, together with the problem and the turn, what is drawn."""

    @model_validator(mode="after")
    def _gpus_are_whole(self) -> Self:
        if self.gpus_per_engine > 1 and self.gpus_per_engine % 1:
            raise ValueError(f"gpus_per_engine={self.gpus_per_engine} is neither a share of one GPU nor whole ones")
        return self


class PlannerArgs(StrictModel):
    """Fast Downward behind the policy."""

    planner_search: str = "first"
    """first, lama-first, good, optimal, or a search string of Fast Downward."""
    planner_memory_mib: int = Field(2048, ge=64)
    """Memory that one search may take, in MiB."""


class LimitArgs(TextLimits):
    """What one replica of the front lets in; a text too long is refused with 413."""

    time_limit_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Wall-clock seconds of a request that names none, waiting included."""
    max_time_limit_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """The most that a request may name, in seconds."""
    feedback_turns: int = Field(1, ge=0)
    """How often a failed plan goes back to the policy, for a request that does not say."""
    max_feedback_turns: int = Field(4, ge=0)
    """The most that a request may name."""
    fallback: bool = True
    """Whether the planner is asked after the policy, for a request that does not say."""
    policy_time_share: float = Field(0.5, gt=0, le=1)
    """Part of the time limit after which the planner takes over."""
    max_concurrent: int = Field(16, ge=1)
    """Requests that are worked on together."""
    max_queued: int = Field(32, ge=0)
    """Requests that wait for a slot; the next one is refused with 503."""
    body_time_limit_s: float = Field(20.0, gt=0)
    """Seconds that a client may take to send its request."""

    @model_validator(mode="after")
    def _defaults_fit(self) -> Self:
        for name in ("time_limit_s", "feedback_turns"):
            value, most = getattr(self, name), getattr(self, f"max_{name}")
            if value > most:
                raise ValueError(f"{name}={value} is above max_{name}={most}")
        return self


class ReplicaArgs(StrictModel):
    """How many processes of each kind there are, and what each reserves."""

    fronts: int = Field(1, ge=1)
    """Replicas that speak HTTP, read PDDL and judge plans; the limits on requests hold for each."""
    cpus_per_front: float = Field(0.0, ge=0)
    """Cores that each of them reserves; 0 lets it run wherever there is room."""
    engines: int = Field(1, ge=1)
    """Engines that are there from the start; none where there is no policy."""
    max_engines: int | None = Field(None, ge=1)
    """Engines that Ray Serve may start as prompts queue up; default: as many as `engines`."""
    cpus_per_engine: float = Field(1.0, ge=0)
    """Cores that each engine reserves."""
    planners: int = Field(1, ge=1)
    """Planners that are there from the start; each works on one problem at a time."""
    max_planners: int | None = Field(None, ge=1)
    """Planners that Ray Serve may start as problems queue up; default: as many as `planners`."""
    cpus_per_planner: float = Field(0.5, ge=0)
    """Cores that each planner reserves."""

    def least_cpus(self, *, has_policy: bool) -> float:
        """Return the cores that the service reserves before anything has grown."""
        engines = self.engines * self.cpus_per_engine if has_policy else 0.0
        return engines + self.fronts * self.cpus_per_front + self.planners * self.cpus_per_planner

    @model_validator(mode="after")
    def _ranges_fit(self) -> Self:
        for name in ("engines", "planners"):
            least, most = getattr(self, name), getattr(self, f"max_{name}")
            if most is not None and most < least:
                raise ValueError(f"max_{name}={most} is below {name}={least}")
        return self


class ServeArgs(EngineArgs, PlannerArgs, LimitArgs, ReplicaArgs):
    """Everything about one planning service."""

    @property
    def prompts_per_engine(self) -> int:
        """Return the prompts under way above which a further engine is started.

        So many as keep each below a whole batch, and few enough that fronts which are full have all engines started.
        """
        most = self.fronts * self.max_concurrent
        return max(1, min(self.max_batch_size, most // (self.max_engines or self.engines)))

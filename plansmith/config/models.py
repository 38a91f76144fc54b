"""The settings of a run: frozen, nothing unknown accepted, every field explained where it stands.

A component gets plain values or its own part, never the whole tree. Values of the paper's table 2 are named where they
differ. Reading presets is in `plansmith.config.loading`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class StrictModel(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LevelConfig(StrictModel):
    """How many problems of one size are drawn, by split; splits never share a canonical form."""

    n_blocks: int = Field(ge=2)
    goal_moves: int | None = Field(None, ge=1)
    """The goal is so many random moves away from the initial arrangement; None draws the two independently."""
    phase1: int = Field(0, ge=0)
    """Problems of D1, each of another canonical form; fewer where the forms run out, which is said."""
    phase2: int = Field(0, ge=0)
    """Problems of D2, each of another canonical form."""
    test: int = Field(0, ge=0)
    """Problems of Dtest; where the held-out forms are fewer, each occurs again under other object names."""
    n_draws: int = Field(2000, ge=1)
    """Problems drawn to find them."""
    test_share: float | None = Field(None, ge=0, lt=1)
    """`problems.test_share` for this level; where forms abound, fewer need be held out."""
    renamings: int | None = Field(None, ge=1)
    """`examples.renamings` for this level; few forms bear more copies."""

    @property
    def name(self) -> str:
        """Return the level as tables name it."""
        if self.goal_moves is None:
            return f"{self.n_blocks} blocks"
        return f"{self.n_blocks} blocks, {self.goal_moves} move{'s' if self.goal_moves > 1 else ''}"


class ProblemsConfig(StrictModel):
    """Where problems come from, and how they are split."""

    domain_file: str = "datasets/domains/blocksworld/domain.pddl"
    """A path, or a path below the project's root."""
    folder: str | None = None
    """A folder of PDDL problems of `domain_file` to use instead of the Blocksworld sampler."""
    levels: tuple[LevelConfig, ...] = ()
    primary_level: str = "4 blocks"
    """The level whose accuracy stands for an arm."""
    object_names: tuple[str, ...] = tuple("abcdefgh")
    """Names that objects get; a word-level model knows no others."""
    test_share: float = Field(0.25, gt=0, lt=1)
    """Share of all canonical forms held out for evaluation."""
    phase2_share: float = Field(0.35, ge=0, lt=1)
    """Share of the remaining forms that belong to D2."""

    @model_validator(mode="after")
    def _has_problems(self) -> Self:
        if not self.levels and not self.folder:
            raise ValueError("no problems: set levels (Blocksworld sampler) or folder (your own PDDL files)")
        return self

    @model_validator(mode="after")
    def _levels_hold_out_the_same_forms(self) -> Self:
        names = [level.name for level in self.levels]
        if len(set(names)) < len(names):
            raise ValueError(f"levels must differ in n_blocks or goal_moves, got {', '.join(names)}")
        for n_blocks in {level.n_blocks for level in self.levels}:
            shares = {self.test_share_of(level) for level in self.levels if level.n_blocks == n_blocks}
            if len(shares) > 1:
                raise ValueError(
                    f"levels of {n_blocks} blocks share canonical forms and need one test_share, got {sorted(shares)}"
                )
        return self

    def test_share_of(self, level: LevelConfig) -> float:
        """Return the share of a level's canonical forms that is held out."""
        return self.test_share if level.test_share is None else level.test_share


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
    valid_explanations: float = Field(0.15, ge=0)
    """Explained valid plans per problem of D1; a fraction is drawn."""
    invalid_explanations: float = Field(0.3, ge=0)
    """Explained corrupted plans per problem of D1, over the four classes."""


class ModelConfig(StrictModel):
    """The policy's start: a Hugging Face folder, or `tiny`, a Qwen3 trained from nothing."""

    folder: str | None = None
    """Path of a Hugging Face model; None builds `tiny`."""
    hidden_size: int = Field(128, ge=8)
    n_layers: int = Field(3, ge=1)
    n_heads: int = Field(4, ge=1)
    n_kv_heads: int = Field(1, ge=1)
    """Key-value heads; one decodes fastest (multi-query attention)."""
    intermediate_size: int = Field(336, ge=8)

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % self.n_heads:
            raise ValueError(f"hidden_size={self.hidden_size} must be a multiple of n_heads={self.n_heads}")
        return self


class OptimiserConfig(StrictModel):
    """One optimisation: a phase, or a stage of phase 2."""

    learning_rate: float = Field(gt=0)
    """Of AdamW; with `muon`, of the parameters that are no matrices of the layers."""
    muon_learning_rate: float | None = Field(None, gt=0)
    """Of Muon on the matrices of the layers."""
    batch_tokens: int = Field(4096, ge=1)
    epochs: int = Field(1, ge=1)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant", "linear", "cosine", "trapezoid"] = "linear"
    weight_decay: float = Field(0.01, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    gradient_clipping: float = Field(1.0, ge=0)
    is_curriculum: bool = False
    """Phase 1: begin with short sequences, then mix; one order for all epochs."""


class TrainerConfig(StrictModel):
    """The DeepSpeed engine."""

    n_ranks: int = Field(1, ge=1)
    """Trainer processes that share every batch, each with `n_threads`."""
    zero_stage: Literal[1, 2] = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    is_autocast: bool = True
    """With float32: keep the weights so, compute matrix products in bfloat16."""
    device: Literal["cpu", "cuda"] = "cpu"
    n_threads: int = Field(0, ge=0)
    """Torch threads on a CPU; 0 takes every core."""
    row_length_tokens: int = Field(1024, ge=16)
    """Longest training sequence and length of a packed row; longer sequences are dropped and counted."""
    micro_batch_rows: int = Field(4, ge=1)
    optimizer: Literal["adamw", "muon"] = "muon"

    def numerics(self) -> dict[str, object]:
        """Return the settings that change the result; the others change only speed and place."""
        return self.model_dump(include={"dtype", "is_autocast", "row_length_tokens", "optimizer"})


class PolicyConfig(StrictModel):
    """The vLLM engine."""

    n_replicas: int = Field(1, ge=1)
    """Engines that share the prompts."""
    max_model_len: int = Field(1536, ge=32)
    max_num_seqs: int = Field(256, ge=1)
    kv_cache_gib: float | None = Field(0.5, gt=0)
    """Memory of the key-value cache on a CPU; None takes gpu_memory_utilization of the device."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    n_threads: int = Field(1, ge=1)
    enforce_eager: bool = True
    probe_tolerance: float = Field(0.05, gt=0)
    """Largest accepted difference of a log-probability between engine and trainer."""


class LossConfig(StrictModel):
    """Weights of equations 5 to 9 (arXiv 2509.13351, appendix A.2), the paper's values by default."""

    alpha_precond: float = 1.0
    alpha_effect: float = 1.0
    alpha_goal: float = 1.5
    lambda_feedback: float = 0.1
    beta: float = 2.0
    alpha: float = 0.5
    alpha_any: float = 1.0
    """Binary feedback: one penalty for any fault."""
    score: float = 1.0
    """Weight of the score-function term."""
    logprob_floor: float = Field(-4.0, lt=0)
    """A token is not pushed down below this log-probability."""


class Phase2Config(StrictModel):
    """The feedback loop."""

    eta: int = Field(3, ge=1)
    """Feedback iterations; the paper uses 10 and 15."""
    feedback: Literal["binary", "detailed"] = "detailed"
    problems_per_iteration: int = Field(400, ge=1)
    """Problems of D2 rolled out in one iteration; iterations go through D2 in turn."""
    rollouts_per_problem: int = Field(4, ge=1)
    temperature: float = Field(0.7, ge=0)
    """The paper rolls out at 0.3. Too low, and attempts at one problem do not differ; too high, and none is valid."""
    max_new_tokens: int = Field(1100, ge=1)
    corrections_per_problem: int = Field(1, ge=0)
    """Examples `correct_with_feedback` made of the failed rollouts of one problem, at most."""
    correction_renamings: int = Field(0, ge=0)
    """How often the corrected chain of a failed problem is also trained on from the plain prompt, under other names."""
    continuation_renamings: int = Field(0, ge=0)
    """How often a failed attempt is continued by a new plan from its last sound state, each time under other names; the
    attempts that are continued are solved again by the planner. 0 switches it off."""
    stage1: OptimiserConfig
    stage2: OptimiserConfig
    losses: LossConfig = LossConfig()

    def sampling(self) -> dict[str, object]:
        """Return the settings of rolling out."""
        return self.model_dump(
            include={"problems_per_iteration", "rollouts_per_problem", "temperature", "max_new_tokens"}
        )

    def corrections(self) -> dict[str, object]:
        """Return the settings of the data sets built from rollouts."""
        return self.model_dump(
            include={"feedback", "corrections_per_problem", "correction_renamings", "continuation_renamings"}
        )


class EvaluationConfig(StrictModel):
    """How a policy is measured."""

    temperature: float = Field(0.0, ge=0)
    max_new_tokens: int = Field(1100, ge=1)
    n_failures_shown: int = Field(6, ge=0)
    """Failed attempts shown step by step in the report."""

    def sampling(self) -> dict[str, object]:
        """Return the settings of the attempts."""
        return self.model_dump(include={"temperature", "max_new_tokens"})


class ClusterConfig(StrictModel):
    """The Ray that the run uses."""

    address: str = "local"
    """`local` starts one for this run; `auto` or an address joins a running one."""
    num_cpus: int = Field(2, ge=1)
    """Cores of a local Ray, and worker processes at most of each parallel stage."""


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
    phase1: OptimiserConfig
    phase2: Phase2Config
    evaluation: EvaluationConfig = EvaluationConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.model.folder is None and self.rendering != "compact":
            raise ValueError(
                f"rendering={self.rendering} needs a real model; tiny (model.folder unset) reads compact only"
            )
        if self.trainer.optimizer == "muon" and self.trainer.zero_stage != 1:
            raise ValueError(f"optimizer=muon works with zero_stage=1, got zero_stage={self.trainer.zero_stage}")
        if not self.problems.folder and self.problems.primary_level not in {
            x.name for x in self.problems.levels if x.test
        }:
            raise ValueError(f"primary_level={self.problems.primary_level!r} has no test problems among the levels")
        return self

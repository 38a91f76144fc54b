"""Settings of what learns and what answers: the model, the trainer, an optimisation, the engine, the losses.

One class each, taken as it is by whoever needs it: stages, actors and the library. What changes a result stands in a
class of its own (`Numerics`, `EngineNumerics`), which is what a stage's settings hold; where and how fast something
runs stands in the class made of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel


class ModelConfig(StrictModel):
    """The policy's start: a Hugging Face folder, or a Qwen3 trained from nothing, such as `tiny`."""

    folder: str | None = None
    """Path of a Hugging Face model; None builds one of the shape below."""
    tokenizer: Literal["words", "bpe"] = "words"
    """Of a model from nothing. words: one token a word of the compact rendering. bpe: byte pairs learnt from the texts
    of phase 1."""
    vocabulary_size: int = Field(4096, ge=300)
    """Tokens of a `bpe` tokenizer."""
    has_whole_names: bool = False
    """Whether a name keeps its digits in a `bpe` tokenizer: `b12` is one token if it occurs often enough, to be looked
    up as one; else it is `b` and `12`, so that numbers never met can be read."""
    hidden_size: int = Field(128, ge=8)
    """Width of the model from nothing: numbers that stand for one token between layers."""
    n_layers: int = Field(3, ge=1)
    """Layers of the model from nothing."""
    n_heads: int = Field(4, ge=1)
    """Attention heads of each layer."""
    head_dim: int | None = Field(None, ge=2, multiple_of=2)
    """Width of a head; None: the heads share `hidden_size`."""
    n_kv_heads: int = Field(1, ge=1)
    """Key-value heads; one decodes fastest (multi-query attention)."""
    intermediate_size: int = Field(336, ge=8)
    """Width of the feed-forward part of each layer."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.head_dim is None and self.hidden_size % self.n_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of n_heads={self.n_heads}, or head_dim be set"
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} must be a multiple of n_kv_heads={self.n_kv_heads}")
        return self


class Schedule(StrEnum):
    """Course of the learning rate after the linear warm-up; all but the first end at 0."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    TRAPEZOID = "trapezoid"
    """Constant, then linearly to 0 (`OptimiserConfig.decay_share`)."""


OptimizerName = Literal["adamw", "muon"]
"""adamw, or muon: Muon on the matrices of the layers, AdamW on embeddings, norms, biases and head."""


class OptimiserConfig(StrictModel):
    """One optimisation: a phase, or a stage of phase 2 (the paper's table 2)."""

    optimizer: OptimizerName | None = None
    """What takes the steps; None: `trainer.optimizer`. Muon's updates have one size however small the gradient, which
    is quick from nothing and has wrecked policies in reinforcement learning (docs/log.md)."""
    learning_rate: float = Field(gt=0)
    """Of AdamW; with `muon`, of the parameters that are no matrices of the layers."""
    muon_learning_rate: float | None = Field(None, gt=0)
    """Of Muon on the matrices of the layers, times sqrt(max(1, rows / columns)), as its author has it. None:
    `learning_rate` times 0.2 * sqrt(larger side), which gives updates the size of AdamW's (arXiv:2502.16982)."""
    batch_tokens: int | None = Field(None, ge=1)
    """Tokens of one optimiser step, at most; this or `batch_sequences`."""
    batch_sequences: int | None = Field(None, ge=1)
    """Sequences of one optimiser step, as the paper counts."""
    small_batch_share: float = Field(0.0, ge=0, le=1)
    """Share of the first epoch's tokens, its beginning, in batches of half the size, for a model from nothing, which
    is short of steps there (docs/log.md)."""
    max_length_tokens: int | None = Field(None, ge=16)
    """Longest sequence, prompt and response; longer ones are left out, counted and said. None: a whole row of the
    trainer."""
    max_dropped_share: float = Field(0.5, ge=0, le=1)
    """The run ends with an error when more than this share of the sequences is too long."""
    epochs: int = Field(1, ge=1)
    """How often every sequence is trained on."""
    warmup_steps: int = Field(0, ge=0)
    """Optimiser steps in which the learning rate rises to its value."""
    schedule: Schedule = Schedule.LINEAR
    """Course of the learning rate after the warm-up: constant, linear, cosine or trapezoid (constant, then linearly to
    0)."""
    decay_share: float = Field(0.5, gt=0, le=1)
    """Share of the steps after the warm-up in which a trapezoid falls."""
    weight_decay: float = Field(0.01, ge=0)
    """On matrices only; norms and biases do not decay."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's memory of the gradient."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """AdamW's memory of the gradient's square."""
    eps: float = Field(1e-8, gt=0)
    """What AdamW adds to the root of the square, so that nothing is divided by zero."""
    gradient_clipping: float = Field(1.0, ge=0)
    """Largest norm of a gradient; 0 is off."""
    is_curriculum: bool = False
    """Phase 1: begin with short sequences, then mix; one order for all epochs."""
    shares_prompts: bool = False
    """Sequences that begin alike lie in one row as far as it has room, and the beginning that they share is computed,
    and counted by `batch_tokens`, once (in steps of 64 tokens). The loss is the same; batches hold more alike."""

    def with_rates(self, factor: float) -> Self:
        """Return the same with its learning rates times a factor."""
        rates = ("learning_rate", "muon_learning_rate")
        return self.model_copy(update={name: rate * factor for name in rates if (rate := getattr(self, name))})

    @model_validator(mode="after")
    def _has_one_batch_size(self) -> Self:
        if (self.batch_tokens is None) == (self.batch_sequences is None):
            raise ValueError(
                "set exactly one of batch_tokens and batch_sequences, "
                f"got batch_tokens={self.batch_tokens}, batch_sequences={self.batch_sequences}"
            )
        return self


class UpdatesConfig(OptimiserConfig):
    """Updates of one policy, each of them one optimisation; schedule and warm-up go over all."""

    updates: int = Field(ge=1)
    """How many."""
    checkpoint_every: int = Field(1, ge=1)
    """Updates from one checkpoint of weights and optimizer to the next, from the newest of which a loop goes on when it
    was killed; rollouts are kept of every update. Those of large models take longer to write than an update: with 50, a
    kill costs 49 trainings at most, and with `policy.handover=direct` nothing is written in between."""


class LoraConfig(StrictModel):
    """A low-rank adapter trained instead of the weights: W x + (alpha / rank) B A x, with B zero at first.

    Source: arXiv:2106.09685, section 4.1.
    """

    rank: int = Field(16, ge=1, le=512)
    """Columns of A's transpose and of B: how much an adapter can change; 512 is the most that vLLM takes."""
    alpha: float = Field(32.0, gt=0)
    """The adapter's product is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the adapter's inputs that are dropped while training."""
    target_modules: Literal["all-linear"] | tuple[str, ...] = Field("all-linear", min_length=1)
    """Layers that get an adapter; all-linear: every linear layer but the output head."""


class AdapterConfig(StrictModel):
    """What is trained of the model, and how the rest is held."""

    lora: LoraConfig | None = None
    """Train an adapter; None trains every weight."""
    quantisation: Literal["none", "nf4"] = "none"
    """nf4: hold the frozen weights in four bits, with `lora` (QLoRA)."""


class Numerics(AdapterConfig):
    """The trainer's settings that change the result."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights. With bfloat16 the optimizer keeps float32 weights, from which every stage goes on; an adapter is
    float32 itself."""
    is_autocast: bool | None = None
    """With float32: keep the weights so, compute matrix products in bfloat16. None does so where the devices of all
    ranks have instructions for it; a CPU without them emulates it, fifty times slower than float32."""
    row_length_tokens: int = Field(1024, ge=16)
    """Longest training sequence and length of a packed row; longer sequences are dropped and counted."""
    optimizer: OptimizerName = "muon"
    """What takes the steps of an optimisation that names none of its own (`OptimiserConfig.optimizer`)."""

    def during(self, optimiser: OptimiserConfig) -> Numerics:
        """Return them as they are in an optimisation."""
        return self if optimiser.optimizer is None else self.model_copy(update={"optimizer": optimiser.optimizer})

    @property
    def has_master_weights(self) -> bool:
        """Return whether the optimizer holds float32 weights beside those of a model in bfloat16."""
        return self.dtype == "bfloat16" and self.lora is None


class TrainerConfig(Numerics):
    """The DeepSpeed engine."""

    n_ranks: int = Field(1, ge=1)
    """Trainer processes that share every batch, each with `n_threads`."""
    min_ranks: int | None = Field(None, ge=1)
    """With so many of them training begins, or goes on from its last checkpoint when a machine was lost: batches stay
    what they are, steps take longer, and once the cluster has room for more ranks these join, again from a checkpoint.
    None waits for all."""
    zero_stage: Literal[1, 2, 3] = 1
    """What the ranks share out: 1 the optimizer's state, 2 the gradients too, 3 the weights too."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """Keep the optimizer's state, or with ZeRO 3 also the weights, in the memory of the host."""
    is_checkpointing_activations: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    device: Literal["cpu", "cuda"] = "cpu"
    """cpu (gloo) or cuda (nccl)."""
    n_threads: int = Field(0, ge=0)
    """Torch threads on a CPU; 0 takes every core."""
    micro_batch_tokens: int | None = Field(None, ge=16)
    """Tokens that a rank computes at once: the length of the rows that sequences are brought together in. None:
    `row_length_tokens`. Memory grows with it, the result does not change; a GPU is idle between short rows."""
    rank_timeout_s: float = Field(120.0, gt=0)
    """Longest wait for another rank; a dead one is an error then, not a hang. The others wait while rank 0 writes the
    model, or one of them its share of a checkpoint, which for a large one and a shared disk takes minutes."""
    checkpoint_every_s: float = Field(600.0, ge=0)
    """Seconds between checkpoints within an optimisation, from the newest of which it goes on when it was killed: the
    most that a kill costs, beside the start of new ranks. 0 writes one after every step."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.min_ranks is not None and self.min_ranks > self.n_ranks:
            raise ValueError(f"min_ranks={self.min_ranks} is more than n_ranks={self.n_ranks}")
        if self.micro_batch_tokens is not None and self.micro_batch_tokens < self.row_length_tokens:
            raise ValueError(f"micro_batch_tokens={self.micro_batch_tokens} has no room for a sequence of "
                             f"row_length_tokens={self.row_length_tokens}")  # fmt: skip
        if self.has_master_weights and self.zero_stage == 1:
            raise ValueError("dtype=bfloat16 sums gradients in float32, which needs zero_stage=2 or 3, got 1")
        self.check_optimizer(self.optimizer)
        if self.quantisation != "none" and self.lora is None:
            raise ValueError(f"quantisation={self.quantisation} freezes the weights and needs lora")
        if self.quantisation != "none" and self.zero_stage == 3:
            raise ValueError(f"quantisation={self.quantisation} works with zero_stage=1 or 2, got 3")
        if self.offload == "all" and self.zero_stage != 3:
            raise ValueError(f"offload=all needs zero_stage=3, got zero_stage={self.zero_stage}")
        return self

    def check_optimizer(self, optimizer: OptimizerName) -> None:
        """Raise where an optimizer does not go with how the model is held.

        Raises:
            ValueError: with the setting that is in its way.
        """
        if optimizer == "muon" and self.zero_stage != 1:
            raise ValueError(f"optimizer=muon works with zero_stage=1, got zero_stage={self.zero_stage}")
        if optimizer == "muon" and self.lora is not None:
            raise ValueError("optimizer=muon is not meant for adapters; set optimizer=adamw with lora")
        if optimizer == "muon" and self.offload != "none":
            raise ValueError(f"optimizer=muon works on whole gradients on the device, got offload={self.offload}")


class EngineNumerics(StrictModel):
    """The engine's settings that change what it writes."""

    max_model_len: int = Field(1536, ge=32)
    """The window: prompt plus completion, in tokens. A longer completion is cut, a longer prompt gets no answer."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of weights and computation."""
    max_loop_tokens: int = Field(0, ge=0)
    """A completion that ends in four equal runs of tokens, each of at most so many, goes in circles and is cut, with
    finish reason ``repetition``; 0 lets it write up to its limit."""
    logprobs: Literal["raw", "processed"] = "raw"
    """Of what a rollout's log-probabilities are. raw: the model itself. processed: what its tokens were drawn from,
    after temperature, `top_p` and `top_k`, which importance weights need. Those of a probe, by which an engine proves
    its weights, are the model's either way."""


class FolderEngine(EngineNumerics):
    """An engine of a model that is no policy of the run."""

    folder: str
    """A Hugging Face model folder, or name."""


class PolicyConfig(EngineNumerics):
    """The vLLM engine; the defaults suit `tiny` on one CPU core."""

    n_replicas: int = Field(1, ge=1)
    """Engines that share the prompts."""
    tensor_parallel_size: int = Field(1, ge=1)
    """GPUs of one machine that share the model of one engine, whose number of heads it divides; on a CPU, processes."""
    max_num_seqs: int = Field(256, ge=1)
    """Rollouts that one engine decodes together."""
    kv_cache_gib: float | None = Field(0.5, gt=0)
    """Memory of the key-value cache on a CPU; None takes gpu_memory_utilization of the device."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory that the engine takes where `kv_cache_gib` is None."""
    n_threads: int = Field(1, ge=1)
    """OpenMP threads of each engine. Decoding a small model is bound by Python: give it more replicas, not threads."""
    enforce_eager: bool = True
    """Skip compilation and CUDA graphs; right on a CPU, slower on a GPU."""
    adapters: Literal["beside", "merged"] = "beside"
    """With `trainer.lora`. beside: the engine holds the base, and multiplies by the adapter at every step, for which a
    GPU has kernels. merged: each adapter is added to its base in a folder of the run first, and the engine reads whole
    models: on a CPU it then writes several times as fast."""
    placement: Literal["colocated", "separate"] = "colocated"
    """On a GPU. colocated: trainer and engine share devices, and the engine sleeps while the trainer works. separate:
    each has its own."""
    handover: Literal["folder", "direct"] = "folder"
    """How engines that run already take the weights of the trainer. folder: they read what it saved. direct: it sends
    them whole models over NCCL, on a CPU over gloo; both must be there at once (`placement=separate`)."""
    probe_tolerance: float = Field(0.05, gt=0)
    """Largest accepted difference of a log-probability between engine and trainer."""


class LossConfig(StrictModel):
    """Weights of equations 5 to 9 (arXiv 2509.13351, appendix A.2), the paper's values by default.

    The last three are ours, where the paper is silent.
    """

    alpha_precond: float = 1.0
    """Penalty of an unsatisfied precondition (equation 7)."""
    alpha_effect: float = 1.0
    """Penalty of a wrong effect (equation 7)."""
    alpha_goal: float = 1.5
    """Penalty of a missed goal (equation 7)."""
    lambda_feedback: float = 0.1
    """Weight of the penalty beside the distance between claimed and expected state (equation 5)."""
    beta: float = 2.0
    """Cost of a plan that is not valid (equation 9)."""
    alpha: float = 0.5
    """Weight of the cross-entropy between the policy's verdict and the validator's (equation 9)."""
    alpha_any: float = 1.0
    """Binary feedback: one penalty for any fault."""
    score: float = 0.0
    """Weight of the score-function term, the letter of equations 4 and 8. 0, the default, leaves the differentiable
    terms alone: in our runs the term turned wrong words into nonsense, not into right ones (docs/log.md)."""
    logprob_floor: float = Field(-4.0, lt=0)
    """A token is not pushed down any further once its log-probability is below this."""


class PreferenceConfig(StrictModel):
    """Direct preference optimisation (equation 5 of NL-PDDL-Bench; arXiv 2305.18290, equation 7)."""

    beta: float = Field(0.1, gt=0)
    """How closely the policy keeps to the one it began as: the log-ratios of chosen and rejected are scaled by it."""
    likelihood: float = Field(0.0, ge=0)
    """Weight lambda of the chosen responses' likelihood beside the preference. Where chosen and rejected differ in few
    tokens, the preference alone is known to make both unlikely (arXiv 2402.13228). 0, the default, is the paper's."""

"""Settings of what learns and what answers: the model, the trainer, an optimisation, the engine, the losses."""

from __future__ import annotations

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

    @model_validator(mode="after")
    def _has_one_batch_size(self) -> Self:
        if (self.batch_tokens is None) == (self.batch_sequences is None):
            raise ValueError(
                "set exactly one of batch_tokens and batch_sequences, "
                f"got batch_tokens={self.batch_tokens}, batch_sequences={self.batch_sequences}"
            )
        return self

    def optimisation(self) -> dict[str, object]:
        """Return the settings of the optimisation alone."""
        return self.model_dump(include=set(OptimiserConfig.model_fields))


class Phase1Config(OptimiserConfig):
    """The tuning of phase 1, and the explanations that measure how well the tuned policy verifies plans."""

    n_explained: int = Field(0, ge=0)
    """Plans of D2's problems, half of them corrupted, that the policy explains after phase 1."""
    temperature: float = Field(0.7, ge=0)
    max_new_tokens: int = Field(1024, ge=1)

    def explaining(self) -> dict[str, object]:
        """Return the settings of explaining plans."""
        return self.model_dump(include={"n_explained", "temperature", "max_new_tokens"})


class LoraConfig(StrictModel):
    """A low-rank adapter (PEFT) that is trained instead of the weights."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    """The adapter's product is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Layers that get an adapter; all-linear: every linear layer but the output head."""


class TrainerConfig(StrictModel):
    """The DeepSpeed engine."""

    n_ranks: int = Field(1, ge=1)
    """Trainer processes that share every batch, each with `n_threads`."""
    zero_stage: Literal[1, 2, 3] = 1
    """What the ranks share out: 1 the optimizer's state, 2 the gradients too, 3 the weights too."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """Keep the optimizer's state, or with ZeRO 3 also the weights, in the memory of the host."""
    lora: LoraConfig | None = None
    """Train an adapter; None trains every weight."""
    quantisation: Literal["none", "nf4"] = "none"
    """nf4: hold the frozen weights in four bits, with `lora` (QLoRA)."""
    is_checkpointing_activations: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    is_autocast: bool | None = None
    """With float32: keep the weights so, compute matrix products in bfloat16. None does so where the devices of all
    ranks have instructions for it; a CPU without them emulates it, fifty times slower than float32."""
    device: Literal["cpu", "cuda"] = "cpu"
    n_threads: int = Field(0, ge=0)
    """Torch threads on a CPU; 0 takes every core."""
    row_length_tokens: int = Field(1024, ge=16)
    """Longest training sequence and length of a packed row; longer sequences are dropped and counted."""
    micro_batch_rows: int = Field(4, ge=1)
    optimizer: Literal["adamw", "muon"] = "muon"

    def adapter(self) -> dict[str, object]:
        """Return what is trained of the model, and how the rest is held."""
        return self.model_dump(include={"lora", "quantisation"})

    def numerics(self) -> dict[str, object]:
        """Return the settings that change the result; the others change only speed and place."""
        return self.model_dump(
            include={"dtype", "is_autocast", "row_length_tokens", "optimizer", "lora", "quantisation"}
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.optimizer == "muon" and self.zero_stage != 1:
            raise ValueError(f"optimizer=muon works with zero_stage=1, got zero_stage={self.zero_stage}")
        if self.optimizer == "muon" and self.lora is not None:
            raise ValueError("optimizer=muon is not meant for adapters; set optimizer=adamw with lora")
        if self.optimizer == "muon" and self.offload != "none":
            raise ValueError(f"optimizer=muon works on whole gradients on the device, got offload={self.offload}")
        if self.quantisation != "none" and self.lora is None:
            raise ValueError(f"quantisation={self.quantisation} freezes the weights and needs lora")
        if self.quantisation != "none" and self.zero_stage == 3:
            raise ValueError(f"quantisation={self.quantisation} works with zero_stage=1 or 2, got 3")
        if self.offload == "all" and self.zero_stage != 3:
            raise ValueError(f"offload=all needs zero_stage=3, got zero_stage={self.zero_stage}")
        return self


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
    placement: Literal["colocated", "separate"] = "colocated"
    """On a GPU. colocated: trainer and engine share devices, and the engine sleeps while the trainer works. separate:
    each has its own."""
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

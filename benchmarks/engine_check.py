"""Whether vLLM on this device takes over what the trainer has learnt: the half of `gpu_check` that needs vLLM.

A trainer takes a few steps, on all weights and on an adapter. The engine, in a process of its own, begins with the
weights of before, takes over what was saved, sleeps and wakes where it can, and samples; its log-probabilities must be
those of the trainer: of a probe after each of these, and of the tokens that it drew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plansmith.config.generation import SamplingConfig
from plansmith.config.training import LoraConfig, OptimiserConfig, PolicyConfig, TrainerConfig
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import TrainingSequence

PROBE_TOKENS = 48
N_PROMPTS, N_WRITTEN = 16, 48
LORA: Mapping[str, Any] = {"lora": LoraConfig(rank=8, alpha=16.0)}
TOLERANCES = {"cpu": ("float32", 1e-3), "cuda": ("bfloat16", 0.25)}
"""What the engine computes in, and the largest difference of a log-probability from a trainer in float32."""


@dataclass(frozen=True)
class Question:
    """What trainer and engine are asked about a model folder.

    Args:
        folder: of the model, and where what is trained goes.
        device: cpu or cuda.
        steps: of the training.
        sequences: that are trained on; the first's tokens are the probe and begin the prompts.
        changes: of the trainer's settings: an adapter, or none.
    """

    folder: Path
    device: str
    steps: OptimiserConfig
    sequences: tuple[TrainingSequence, ...]
    changes: Mapping[str, Any]

    @property
    def trained(self) -> Path:
        """Return the folder of what was trained."""
        return self.folder.with_name(f"{self.folder.name}-{'adapter' if self.changes else 'trained'}")

    @property
    def probe(self) -> list[int]:
        """Return the tokens of the probe."""
        longest = max(self.sequences, key=len)
        return [int(token) for token in longest.token_ids[:PROBE_TOKENS]]

    @property
    def prompts(self) -> list[list[int]]:
        """Return what the engine goes on from."""
        return [self.probe[: 4 + number] for number in range(N_PROMPTS)]

    def trainer(self, folder: Path) -> Any:
        """Return a trainer of a folder."""
        from actors.trainer import TrainerActor

        longest = max(len(sequence) for sequence in self.sequences)
        settings = {"row_length_tokens": 2 * longest, "optimizer": "adamw", "is_autocast": False,
                    "device": self.device}  # fmt: skip
        return TrainerActor(folder, config=TrainerConfig(**{**settings, **self.changes}))

    def logprobs(self, trainer: Any, token_ids: list[int]) -> list[float]:
        """Return what a trainer says of every token but the first."""
        [found] = trainer.token_logprobs([TrainingSequence.of(token_ids, {})])
        return [float(number) for number in found[1:]]


@dataclass(frozen=True)
class Trained:
    """What the trainer says of the probe, before and after."""

    before: list[float]
    after: list[float]


@dataclass(frozen=True)
class Written:
    """What the engine drew from one prompt: all tokens, and log-probabilities of its own."""

    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Engine:
    """What became of the engine: differences from the trainer by occasion, and what it wrote."""

    differences: dict[str, float]
    written: list[Written]
    tokens_per_s: float


@dataclass(frozen=True)
class Outcome:
    """What came of an engine with one kind of training.

    Args:
        name: of the kind.
        moved: by how much the training moved a log-probability of the probe, at most.
        differences: of a log-probability between engine and trainer, at most, by occasion.
        tokens_per_s: that the engine drew.
    """

    name: str
    moved: float
    differences: dict[str, float]
    tokens_per_s: float


def train(question: Question) -> Trained:
    """Train, and save what was trained."""
    trainer = question.trainer(question.folder)
    before = question.logprobs(trainer, question.probe)
    trainer.optimise(Supervised(), list(question.sequences), question.steps)
    trainer.save(question.trained)
    return Trained(before, question.logprobs(trainer, question.probe))


def serve(question: Question, trained: Trained) -> Engine:
    """Let an engine begin with the weights of before, take over the new ones, sleep, and write."""
    from actors.policy import PolicyActor

    dtype, _ = TOLERANCES[question.device]
    has_gpu = question.device == "cuda"
    settings = PolicyConfig(
        dtype=dtype, max_model_len=PROBE_TOKENS + N_WRITTEN, max_num_seqs=N_PROMPTS,
        kv_cache_gib=None if has_gpu else 0.05, gpu_memory_utilization=0.3, logprobs="processed",
    )  # fmt: skip
    rank = question.changes["lora"].rank if question.changes else None
    policy = PolicyActor(str(question.folder), "before", settings=settings, lora_rank=rank, has_sleep_mode=has_gpu)

    def differs_from(logprobs: list[float]) -> float:
        return policy.prove(question.probe, logprobs, tolerance=float("inf"))

    differences = {"as it began": differs_from(trained.before)}
    policy.load_weights(str(question.trained), "trained")
    differences["trained weights taken over"] = differs_from(trained.after)
    if has_gpu:
        policy.sleep()
        policy.wake_up()
        differences["asleep and awake again"] = differs_from(trained.after)
    sampling, start_s = SamplingConfig(temperature=1.0, max_new_tokens=N_WRITTEN), time.perf_counter()
    groups = list(policy.generate(question.prompts, sampling, seeds=list(range(N_PROMPTS)), description=None))
    elapsed_s = time.perf_counter() - start_s
    written = [
        Written([*prompt, *generation.token_ids], list(generation.logprobs))
        for prompt, [generation] in zip(question.prompts, groups, strict=True)
    ]
    return Engine(differences, written, sum(len(item.logprobs) for item in written) / elapsed_s)


def read(question: Question, written: list[Written]) -> float:
    """Return the largest difference between what the engine said of the tokens it drew and what the trainer says."""
    trainer = question.trainer(question.trained)
    return max(
        abs(own - other)
        for item in written
        for own, other in zip(
            item.logprobs, question.logprobs(trainer, item.token_ids)[-len(item.logprobs) :], strict=True
        )
    )


def has_vllm() -> bool:
    """Return whether vLLM is installed."""
    try:
        return find_spec("vllm") is not None
    except ValueError:  # taken out of the modules, as a test does
        return False


def check_engine(
    in_process: Any, folder: Path, device: str, steps: OptimiserConfig, sequences: list[TrainingSequence]
) -> Iterator[Outcome]:
    """Yield what came of an engine with all weights trained, and of one with an adapter.

    Args:
        in_process: calls a function with one argument in a process of its own: an engine changes its process for good.
        folder: of a model.
        device: cpu or cuda.
        steps: of the training.
        sequences: that are trained on.
    """
    for name, changes in (("all weights", {}), ("adapter", LORA)):
        question = Question(folder, device, steps, tuple(sequences), changes)
        trained = in_process(train, question)
        engine = in_process(partial(serve, question), trained)
        of_written = in_process(partial(read, question), engine.written)
        moved = max(abs(a - b) for a, b in zip(trained.before, trained.after, strict=True))
        yield Outcome(name, moved, {**engine.differences, "the tokens it drew": of_written}, engine.tokens_per_s)

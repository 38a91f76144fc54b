"""What a step of the demo's trainer takes, part by part, beside plain torch; part of `training.py`.

The demo's model and settings on a CPU: ranks of one thread, float32, Muon, packed sequences of 100 to 900 random words.
Plain torch is forward and backward alone, of the same rows with torch's own attention, in each of as many processes at
the same time. Waiting for another rank is in the exchange. Both sides have jemalloc, as the trainers of a run have.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from pipelines.run.workers import _allocator
from plansmith.config.training import ModelConfig, OptimiserConfig, TrainerConfig
from plansmith.layout import text_table
from plansmith.learning.sequences import TrainingSequence, supervised_sequence

SHAPE = ModelConfig(hidden_size=192, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=64, intermediate_size=512)
WORDS, PROMPT_WORDS, SHORTEST, LONGEST = 100, 50, 100, 900
ROW_TOKENS = 2048
WARM_UP_SEQUENCES = 20
SETTINGS = OptimiserConfig(
    learning_rate=0.003, muon_learning_rate=0.014, batch_tokens=2048, weight_decay=0.0, schedule="constant"
)
FORWARD, BACKWARD, ITERATION, EXCHANGE = "forward", "backward", "Newton-Schulz", "exchange"

Seconds = dict[str, float]
"""By part, of a whole optimisation; of the wall clock."""


@dataclass(frozen=True)
class Rank:
    """One process; the same of all but its number."""

    folder: str
    rank: int
    n_ranks: int
    port: int
    n_sequences: int

    def sequences(self) -> list[TrainingSequence]:
        """Return random sequences, those of the warm-up first."""
        rng, found = random.Random(0), []
        for _ in range(WARM_UP_SEQUENCES + self.n_sequences):
            token_ids = rng.choices(range(WORDS), k=rng.randint(SHORTEST, LONGEST))
            found.append(supervised_sequence(token_ids[:PROMPT_WORDS], token_ids[PROMPT_WORDS:]))
        return found


def train(spec: Rank) -> tuple[float, int, Seconds]:
    """Return tokens per second of all ranks, the steps, and the seconds by part."""
    import torch.distributed as distributed
    from deepspeed.runtime.zero import stage_1_and_2
    from deepspeed.runtime.zero.muon import original_muon

    from actors.deepspeed_engine import DeepSpeedEngineAdapter
    from actors.trainer import TrainerActor
    from plansmith.learning.objectives.supervised import Supervised

    config = TrainerConfig(n_ranks=spec.n_ranks, n_threads=1, row_length_tokens=ROW_TOKENS, is_autocast=False)
    trainer = TrainerActor(spec.folder, config=config, rank=spec.rank, master_port=spec.port)
    seconds: Seconds = defaultdict(float)
    for owner, name, part in (
        (DeepSpeedEngineAdapter, "__call__", FORWARD),
        (Supervised, "loss", FORWARD),
        (DeepSpeedEngineAdapter, "backward", BACKWARD),
        (original_muon, "zeropower_via_newtonschulz5", ITERATION),
        (distributed, "all_reduce", EXCHANGE),
        (stage_1_and_2, "all_gather_dp_groups", EXCHANGE),
    ):
        setattr(owner, name, _timed(getattr(owner, name), part, seconds))
    sequences = spec.sequences()
    trainer.optimise(Supervised(), sequences[:WARM_UP_SEQUENCES], SETTINGS)
    seconds.clear()
    report = trainer.optimise(Supervised(), sequences[WARM_UP_SEQUENCES:], SETTINGS)
    seconds["other"] = report.wall_time_s - sum(seconds.values())
    return report.n_tokens / report.wall_time_s, report.n_steps, seconds


def _timed(function: Callable[..., Any], part: str, seconds: Seconds) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[part] += time.perf_counter() - start

    return timed


def plain_torch(spec: Rank) -> float:
    """Return the tokens per second of forward and backward of this rank's rows, nothing else."""
    import torch
    from transformers import AutoModelForCausalLM

    from plansmith.learning import packed_attention
    from plansmith.learning.objectives.supervised import Supervised
    from plansmith.learning.optimisation import micro_batches, plan_optimisation

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    packed_attention.BLOCK_TOKENS.clear()  # torch's own attention, sequence by sequence
    name = packed_attention.register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(spec.folder, attn_implementation=name)
    sequences, objective = spec.sequences()[WARM_UP_SEQUENCES:], Supervised()
    plan = plan_optimisation(
        [len(sequence) for sequence in sequences], SETTINGS, seed=0, row_length_tokens=ROW_TOKENS,
        n_ranks=spec.n_ranks,
    )  # fmt: skip
    started, n_tokens = 0.0, 0
    for step, rows in enumerate(plan.batches):
        if step == 2:  # two to warm up
            started, n_tokens = time.perf_counter(), 0
        share = {"rank": spec.rank, "world_size": spec.n_ranks}
        for batch in micro_batches(sequences, rows, objective.columns, **share):
            logits = model(**batch.model_inputs()).logits
            objective.loss(logits, batch, {"nll_weight": batch.token_ids.numel()})[0].backward()
            model.zero_grad()
            n_tokens += batch.token_ids.numel()
    return n_tokens / (time.perf_counter() - started)


def make_model(folder: str) -> None:
    """Write the demo's model with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=WORDS, hidden_size=SHAPE.hidden_size, intermediate_size=SHAPE.intermediate_size,
        num_hidden_layers=SHAPE.n_layers, num_attention_heads=SHAPE.n_heads, num_key_value_heads=SHAPE.n_kv_heads,
        head_dim=SHAPE.head_dim, max_position_embeddings=ROW_TOKENS, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


def on_ranks(function: Callable[[Rank], Any], folder: str, n_ranks: int, n_sequences: int) -> list[Any]:
    """Return what a function returns on each rank, in processes that run at the same time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with multiprocessing.get_context("spawn").Pool(n_ranks, maxtasksperchild=1) as pool:
        return pool.map(function, [Rank(folder, r, n_ranks, port, n_sequences) for r in range(n_ranks)], chunksize=1)


def measure(n_ranks: int, n_sequences: int) -> dict[str, Any]:
    """Print a step's parts, in milliseconds, mean of the ranks; return the figures."""
    for name, value in _allocator(TrainerConfig()).get("runtime_env", {}).get("env_vars", {}).items():
        os.environ[name] = value
    with tempfile.TemporaryDirectory(prefix="plansmith-benchmark-") as folder:
        on_ranks(_make_model, folder, 1, 0)
        ours = on_ranks(train, folder, n_ranks, n_sequences)
        plain = sum(on_ranks(plain_torch, folder, n_ranks, n_sequences))
    n_steps, tokens_per_s = ours[0][1], min(speed for speed, _, _ in ours)
    milliseconds = {
        part: 1e3 * mean(seconds[part] for _, _, seconds in ours) / n_steps
        for part in (FORWARD, BACKWARD, EXCHANGE, ITERATION, "other")
    }
    step = sum(milliseconds.values())
    print(text_table(("part of a step", "ms", "share"),
                     [[part, f"{ms:.1f}", f"{ms / step:.0%}"] for part, ms in milliseconds.items()]))  # fmt: skip
    print(f"\n{tokens_per_s:.0f} tokens/s, plain forward and backward {plain:.0f}: {tokens_per_s / plain:.2f} of it")
    return {
        "tokens_per_s": round(tokens_per_s),
        "vs_plain_torch": round(tokens_per_s / plain, 3),
        "step_ms": {part: round(ms, 1) for part, ms in milliseconds.items()},
    }


def _make_model(spec: Rank) -> None:
    make_model(spec.folder)

"""Tokens per second and model FLOP utilisation of training against TRL's SFTTrainer, and of vLLM's rollouts.

A model of a known shape with random weights, the same random sequences packed into rows of the same length, each side
in a process of its own, one after the other. The first steps are left out. Activations are kept; --checkpointing
recomputes them on both sides. With --group several answers to each of some prompts are learnt, as rollouts are; then
we are measured twice, with each sequence by itself and with what sequences share computed once. Needs the extra `dev`
(TRL).

    python benchmarks/training.py [--shape qwen3-1.7b] [--device cuda] [--peak-tflops 989]
    python benchmarks/training.py --shape tiny --device cpu --row 1024 --sequences 200   # to try the command
    python benchmarks/training.py --group 8 --prompt 1500   # prompts such as PDDL domains and problems are
    python benchmarks/training.py --data-tokens 50000000   # how far driver and ranks grow with the data, no more
    python benchmarks/training.py --parts --sequences 300   # the demo's trainer on a CPU, part by part, no more

The table gives both sides; the last line is one JSON object. The peak is that of the card in bfloat16, dense; the
default is an H100's.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from plansmith.layout import text_table

SHAPES = {
    "qwen3-1.7b": {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
                   "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936, "tie_word_embeddings": True},
    "qwen3-0.6b": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
                   "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "tie_word_embeddings": True},
    "tiny": {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
             "head_dim": 64, "intermediate_size": 336, "vocab_size": 512, "tie_word_embeddings": False},
}  # fmt: skip
WARM_UP_STEPS = 3
ONCE = "ours, prompts once"
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 256, 512, 512


@dataclass(frozen=True)
class Spec:
    """One comparison, the same for both sides."""

    folder: str
    shape: str
    device: str
    lengths: tuple[int, ...]
    row_length_tokens: int
    rows_per_step: int
    is_checkpointing: bool
    group: int = 1
    n_prompt_tokens: int = 1
    shares_prompts: bool = False

    @property
    def vocabulary_size(self) -> int:
        """Return how many tokens there are to draw from."""
        return int(SHAPES[self.shape]["vocab_size"])

    def token_ids(self) -> list[tuple[list[int], list[int]]]:
        """Return prompts with answers; the answers of a group are to one prompt."""
        rng, found = random.Random(0), list[tuple[list[int], list[int]]]()
        for number, length in enumerate(self.lengths):
            if number % self.group == 0:
                prompt = [rng.randrange(self.vocabulary_size) for _ in range(self.n_prompt_tokens)]
            found.append((prompt, [rng.randrange(self.vocabulary_size) for _ in range(length - len(prompt))]))
        return found


def draw_lengths(count: int, longest: int) -> tuple[int, ...]:
    """Return lengths such as chains of thought have: most of a sixth of a row, some of a whole one."""
    rng = random.Random(1)
    typical = math.log(longest / 6)
    return tuple(min(longest, max(16, round(rng.lognormvariate(typical, 0.6)))) for _ in range(count))


def make_model(spec: Spec) -> None:
    """Write the model with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    dtype = torch.bfloat16 if spec.device == "cuda" else torch.float32
    config = Qwen3Config(**SHAPES[spec.shape], max_position_embeddings=spec.row_length_tokens, dtype=dtype)
    with torch.device(spec.device):
        model = Qwen3ForCausalLM(config).to(dtype)
    model.save_pretrained(spec.folder)


def train_ours(spec: Spec) -> float:
    """Return our tokens per second."""
    from actors.trainer import TrainerActor
    from plansmith.config.training import OptimiserConfig, TrainerConfig
    from plansmith.learning.objectives.supervised import Supervised
    from plansmith.learning.sequences import supervised_sequence

    is_cuda = spec.device == "cuda"
    config = TrainerConfig(
        optimizer="adamw",
        is_autocast=False,
        device="cuda" if is_cuda else "cpu",
        dtype="bfloat16" if is_cuda else "float32",
        zero_stage=2,
        row_length_tokens=spec.row_length_tokens,
        micro_batch_tokens=spec.row_length_tokens * spec.rows_per_step,
        is_checkpointing_activations=spec.is_checkpointing,
    )
    trainer = TrainerActor(spec.folder, config=config)
    sequences = [supervised_sequence(prompt, answer) for prompt, answer in spec.token_ids()]
    tokens_per_step = spec.row_length_tokens * spec.rows_per_step
    settings = OptimiserConfig(
        learning_rate=1e-5, batch_tokens=tokens_per_step, schedule="constant", shares_prompts=spec.shares_prompts
    )
    n_first = next(n for n in range(len(sequences)) if sum(spec.lengths[:n]) > WARM_UP_STEPS * tokens_per_step)
    trainer.optimise(Supervised(), sequences[:n_first], settings)
    report = trainer.optimise(Supervised(), sequences, settings)
    return report.n_tokens / report.wall_time_s


def train_trl(spec: Spec) -> float:
    """Return the tokens per second of TRL's SFTTrainer, packed as it packs by default."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from plansmith.learning.tokenizer import word_tokenizer

    is_cuda = spec.device == "cuda"
    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as output:
        trainer = SFTTrainer(
            model=AutoModelForCausalLM.from_pretrained(spec.folder, dtype=torch.bfloat16 if is_cuda else torch.float32),
            args=SFTConfig(
                output_dir=output,
                per_device_train_batch_size=spec.rows_per_step,
                max_length=spec.row_length_tokens,
                packing=True,
                bf16=is_cuda,
                use_cpu=not is_cuda,
                gradient_checkpointing=spec.is_checkpointing,
                optim="adamw_torch_fused" if is_cuda else "adamw_torch",
                learning_rate=1e-5,
                num_train_epochs=1,
                logging_strategy="no",
                save_strategy="no",
                report_to=[],
                dataset_num_proc=None,
            ),
            train_dataset=Dataset.from_dict({"input_ids": [[*one, *other] for one, other in spec.token_ids()]}),
            processing_class=word_tokenizer([], []),
            callbacks=[Clock()],
        )
        trainer.train()
        rows = [sum(map(len, [row])) for row in trainer.train_dataset["input_ids"]]
    n_steps = len(times) - WARM_UP_STEPS
    tokens_per_step = sum(rows) / len(times)
    return n_steps * tokens_per_step / (times[-1] - times[WARM_UP_STEPS - 1])


def roll_out(spec: Spec) -> float:
    """Return vLLM's tokens per second."""
    from actors.policy import PolicyActor
    from plansmith.config.generation import SamplingConfig
    from plansmith.config.training import PolicyConfig

    is_cuda = spec.device == "cuda"
    settings = PolicyConfig(
        max_model_len=PROMPT_TOKENS + NEW_TOKENS,
        kv_cache_gib=None if is_cuda else 0.5,
        dtype="bfloat16" if is_cuda else "float32",
        enforce_eager=not is_cuda,
    )
    rng = random.Random(2)
    prompts = [[rng.randrange(spec.vocabulary_size) for _ in range(PROMPT_TOKENS)] for _ in range(PROMPTS)]
    policy = PolicyActor(spec.folder, "random", settings=settings)
    sampling = SamplingConfig(temperature=1.0, max_new_tokens=NEW_TOKENS)
    list(policy.generate(prompts[:8], sampling, seeds=list(range(8)), description=None))
    start = time.perf_counter()
    groups = list(policy.generate(prompts, sampling, seeds=list(range(PROMPTS)), description=None))
    n_tokens = sum(len(generation.token_ids) for group in groups for generation in group)
    return n_tokens / (time.perf_counter() - start)


def in_process(function: Any, spec: Spec) -> Any:
    """Return what a function returns in a process of its own, which gives its memory back."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (spec,))


def main() -> None:
    """Measure, print, and end with one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-1.7b")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--sequences", type=int, default=600)
    parser.add_argument("--row", type=int, default=4096, help="tokens of a packed row")
    parser.add_argument("--rows", type=int, default=4, help="rows of one optimiser step")
    parser.add_argument("--group", type=int, default=1, help="answers to each prompt")
    parser.add_argument("--prompt", type=int, default=1, help="tokens of a prompt")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations")
    parser.add_argument("--peak-tflops", type=float, default=989.0)
    parser.add_argument("--no-rollouts", action="store_true", help="leave vLLM out")
    parser.add_argument("--data-tokens", type=int, help="measure the memory that so many tokens of data take, no more")
    parser.add_argument("--parts", action="store_true", help="time the parts of a step of the demo's trainer, no more")
    parser.add_argument("--ranks", type=int, default=2, help="with --parts: processes, each with a core")
    arguments = parser.parse_args()
    if arguments.parts:
        from training_parts import measure as measure_parts

        print(json.dumps(measure_parts(arguments.ranks, arguments.sequences)))
        return
    if arguments.data_tokens:
        from training_data import measure

        print(json.dumps(measure(arguments.data_tokens)))
        return
    from plansmith.learning.flops import training_flops

    answers = draw_lengths(arguments.sequences, arguments.row - arguments.prompt)
    lengths, step_tokens = tuple(arguments.prompt + n for n in answers), arguments.row * arguments.rows
    if sum(lengths) < (WARM_UP_STEPS + 2) * step_tokens:
        parser.error(f"{sum(lengths)} tokens are too few: {WARM_UP_STEPS} steps of {step_tokens} are left out; "
                     "raise --sequences")  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="plansmith-benchmark-") as folder:
        spec = Spec(folder, arguments.shape, arguments.device, lengths, arguments.row, arguments.rows,
                    arguments.checkpointing, arguments.group, arguments.prompt)  # fmt: skip
        in_process(make_model, spec)
        speeds = {"ours": in_process(train_ours, spec), "TRL": in_process(train_trl, spec)}
        if arguments.group > 1:
            speeds[ONCE] = in_process(train_ours, replace(spec, shares_prompts=True))
        rollouts = None if arguments.no_rollouts else in_process(roll_out, spec)
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        flops_per_token = training_flops(config, sum(lengths), lengths) / sum(lengths)
    shares = {side: speed * flops_per_token / (arguments.peak_tflops * 1e12) for side, speed in speeds.items()}
    rows = [[side, f"{speed:.0f}", f"{shares[side]:.1%}"] for side, speed in speeds.items()]
    print(text_table(("training", "tokens/s", "model FLOP utilisation"), rows))
    if rollouts is not None:
        print(f"\nvLLM: {rollouts:.0f} tokens/s")
    result = {
        "tokens_per_s": round(speeds["ours"]),
        "vs_trl": round(speeds["ours"] / speeds["TRL"], 3),
        "prompts_once_vs_trl": ONCE in speeds and round(speeds[ONCE] / speeds["TRL"], 3),
        "prompts_once_vs_ours": ONCE in speeds and round(speeds[ONCE] / speeds["ours"], 3),
        "model_flop_utilisation": round(shares["ours"], 4),
        "rollout_tokens_per_s": rollouts and round(rollouts),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

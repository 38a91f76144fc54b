"""Whether training on this machine's GPU gives what it gives on the CPU, how fast it is, and in how much memory.

A small Llama and a small Qwen3 with random weights take a few steps on the same batch, with every setting of the
trainer that a GPU is for; their losses must be those of the CPU. Then the loss over a vocabulary of 128,256 words, and
tokens per second beside TRL's SFTTrainer on the same data; whether vLLM takes over what was trained; and a whole run of
one iteration with few problems, of `pddl_instruct`'s preset `small`. Where vLLM or Ray are not installed their parts
are left out; TRL (extra `dev`) is needed but with --no-speed.

    make gpu-check
    make gpu-check ARGS="--out gpu-check.json --peak-tflops 989"
    make gpu-check ARGS="--device cpu"   # a rehearsal at the smallest size, where there is no GPU

Prints one table; the last line is one JSON object, which --out writes too. Exit code: 0 everything agrees, 1 something
does not, 2 there is no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine_check import TOLERANCES, check_engine, has_vllm
from run_check import short_run
from training import Spec, draw_lengths, in_process, make_model, train_ours, train_trl

from plansmith.config.training import LoraConfig, OptimiserConfig, TrainerConfig
from plansmith.console import exit_code_of
from plansmith.data.storage import atomic_file
from plansmith.errors import BadInputError
from plansmith.layout import text_table
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.machine import machine
from plansmith.progress import progress_bar

FAMILIES = ("Llama", "Qwen3")
STEPS = OptimiserConfig(learning_rate=2e-3, batch_sequences=1000, epochs=4, eps=1e-5, schedule="constant")
"""All sequences four times. eps is far above rounding, by which AdamW would divide where a gradient is nearly 0."""
FLOAT32, ROUNDED, ROUNDED_SHARE = 1e-4, 1e-2, 0.005
"""Largest difference of a loss: of what is computed in float32, and of what is rounded to fewer bits, where it may also
be this share of how far training moved it. On a GPU the wide model's loss falls by 9 nats in four steps, and rounding
is multiplied on the way; with smaller steps an adapter would be rounded away."""
BFLOAT16: Mapping[str, Any] = {"dtype": "bfloat16", "zero_stage": 2}
MUON: Mapping[str, Any] = {"optimizer": "muon"}
LORA: Mapping[str, Any] = {"lora": LoraConfig(rank=8, alpha=16.0)}
VOCABULARY, LOSS_TOKENS, LOSS_SHARE = 128_256, 4096, 0.25
"""Words and tokens of the loss whose memory is measured, and the share of whole float32 logits that it may take."""
PROMPT_TOKENS = 80
"""Tokens of a prompt, which two sequences have."""
MIB = 2**20
MMAP_THRESHOLD = -3
"""mallopt's name for the size from which memory is the system's again as soon as it is freed."""


class InChunks(Supervised):
    """The likelihood, for which no logits may be whole."""

    whole_logits: ClassVar[int] = 0


LIKELIHOOD = Supervised()


@dataclass(frozen=True)
class Size:
    """How large models and data are."""

    hidden: int
    layers: int
    vocabulary: int
    n_sequences: int
    longest: int
    n_threads: int


SIZES = {"cuda": Size(512, 4, 8192, 24, 512, n_threads=0), "cpu": Size(64, 2, 256, 8, 48, n_threads=1)}
SPEEDS = {"cuda": ("qwen3-0.6b", 400, 4096, 4), "cpu": ("tiny", 60, 256, 2)}
"""Shape, sequences, tokens of a row and rows of a step of what is timed."""


@dataclass(frozen=True)
class Setting:
    """What is tried on the device, and what it must agree with on the CPU."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = FLOAT32
    objective: Supervised = LIKELIHOOD
    shares_prompts: bool = False

    def allowed(self, moved: float) -> float:
        """Return by how much losses may differ that training has moved so far."""
        return max(self.tolerance, ROUNDED_SHARE * moved) if self.tolerance == ROUNDED else self.tolerance


def settings_of(size: Size) -> list[Setting]:
    """Return everything that is tried; rows hold several sequences but where it says so."""
    alone = {"row_length_tokens": PROMPT_TOKENS + size.longest}
    return [
        Setting("float32"),
        Setting("products in bfloat16", {"is_autocast": True}, tolerance=ROUNDED),
        Setting("bfloat16", BFLOAT16, tolerance=ROUNDED),
        Setting("float32, a row a sequence", alone),
        Setting("bfloat16, a row a sequence", {**BFLOAT16, **alone}, tolerance=ROUNDED),
        Setting("float32, prompts once", shares_prompts=True),
        Setting("bfloat16, prompts once", BFLOAT16, tolerance=ROUNDED, shares_prompts=True),
        Setting("ZeRO 2", {"zero_stage": 2}),
        Setting("ZeRO 3", {"zero_stage": 3}),
        Setting("activations computed again", {"is_checkpointing_activations": True}),
        Setting("loss in chunks", objective=InChunks()),
        Setting("Muon, which rounds its updates", MUON, MUON, ROUNDED),
        Setting("Muon, products in bfloat16", {**MUON, "is_autocast": True}, MUON, ROUNDED),
        Setting("adapter", LORA, LORA),
        Setting("adapter, bfloat16", {**LORA, **BFLOAT16}, LORA, ROUNDED),
        Setting("adapter on four bits", {**LORA, "quantisation": "nf4"}, {**LORA, "quantisation": "nf4"}, ROUNDED),
    ]


@dataclass(frozen=True)
class Finding:
    """One row of the table: what was measured, and whether it is as it has to be; None where nothing has to be."""

    model: str
    what: str
    measured: str
    expected: str = ""
    is_met: bool | None = None


# --- the trainer against the CPU


def write_model(family: str, size: Size, folder: Path) -> Path:
    """Write a model with random weights that are far from flat, so that differences show; return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": size.hidden, "num_hidden_layers": size.layers, "intermediate_size": 3 * size.hidden,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": max(32, size.hidden // 4),
        "vocab_size": size.vocabulary, "max_position_embeddings": 2 * (PROMPT_TOKENS + size.longest),
        "initializer_range": 0.05,
        "tie_word_embeddings": False,
    }  # fmt: skip
    made = {"Llama": (LlamaForCausalLM, LlamaConfig), "Qwen3": (Qwen3ForCausalLM, Qwen3Config)}
    model, config = made[family]
    model(config(**shape)).save_pretrained(folder / family)
    return folder / family


def sequences_of(size: Size) -> list[TrainingSequence]:
    """Return random answers, two to each of some random prompts."""
    rng, found, prompt = random.Random(0), list[TrainingSequence](), list[int]()
    for number, length in enumerate(draw_lengths(size.n_sequences, size.longest)):
        if number % 2 == 0:
            prompt = [rng.randrange(size.vocabulary) for _ in range(PROMPT_TOKENS)]
        found.append(supervised_sequence(prompt, [rng.randrange(size.vocabulary) for _ in range(length)]))
    return found


def losses_of(folder: Path, size: Size, device: str, setting: Setting) -> list[float]:
    """Return the loss of each step under some settings of the trainer."""
    import torch

    from actors.trainer import TrainerActor

    usual = {
        "row_length_tokens": 2 * (PROMPT_TOKENS + size.longest), "optimizer": "adamw", "is_autocast": False,
        "device": device, "n_threads": size.n_threads,
    }  # fmt: skip
    trainer = TrainerActor(folder, config=TrainerConfig(**{**usual, **setting.changes}))
    steps = STEPS.model_copy(update={"shares_prompts": setting.shares_prompts})
    losses = list(trainer.optimise(setting.objective, sequences_of(size), steps).losses)
    del trainer
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return losses


def compare(family: str, size: Size, device: str) -> Iterator[Finding]:
    """Yield for each setting how far the device's losses are from the CPU's, which must have moved much further."""
    with tempfile.TemporaryDirectory(prefix="plansmith-gpu-check-") as name:
        folder, known = write_model(family, size, Path(name)), dict[str, list[float]]()
        for setting in settings_of(size):
            key = str(sorted(setting.reference))
            if key not in known:
                known[key] = losses_of(folder, size, "cpu", Setting("reference", setting.reference))
            found = losses_of(folder, size, device, setting)
            difference = max(abs(a - b) for a, b in zip(found, known[key], strict=True))
            moved = abs(known[key][0] - known[key][-1])
            allowed = setting.allowed(moved)
            measured, expected = f"{difference:.1e} of {moved:.2f}", f"at most {allowed:.2g}"
            is_met = difference <= allowed < moved / 3
            yield Finding(family, setting.name, measured, expected, is_met)


def compare_all(device: str) -> list[Finding]:
    """Return what `compare` finds of every family; for a process of its own, which the trainer marks as a rank's."""
    found, size = list[Finding](), SIZES[device]
    with progress_bar(len(FAMILIES) * len(settings_of(size)), "checking", unit="check") as bar:
        for finding in (finding for family in FAMILIES for finding in compare(family, size, device)):
            found.append(finding)
            bar.update()
    return found


# --- memory and speed


def measured_peak(work: Callable[[], Any], device: str) -> tuple[Any, int]:
    """Return what some work returns, and by how many bytes memory grew at most while it was done."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return work(), torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = _memory_of_process("VmRSS")
    return work(), _memory_of_process("VmHWM") - before


def _memory_of_process(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def loss_peak(device: str) -> int:
    """Return by how much memory grows for loss and gradient of `LOSS_TOKENS` tokens over `VOCABULARY` words."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from plansmith.learning.packed_attention import register_packed_attention
    from plansmith.learning.packing import build_batch
    from plansmith.learning.token_reading import reading_head

    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)  # what is freed goes back at once, or it counts as taken
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                         num_attention_heads=1, max_position_embeddings=LOSS_TOKENS)  # fmt: skip
    config._attn_implementation = register_packed_attention()
    with torch.device(device):
        model = LlamaForCausalLM(config)
    ids = [random.Random(0).randrange(VOCABULARY) for _ in range(LOSS_TOKENS)]
    batch = build_batch([supervised_sequence(ids[:1], ids[1:])], [(0,)], LIKELIHOOD.columns).to(torch.device(device))

    def work() -> None:
        with reading_head(model, batch, LIKELIHOOD.question) as read:
            tokens = read(model(**batch.model_inputs()))
        loss, _ = LIKELIHOOD.loss_of(tokens, batch, dict.fromkeys(LIKELIHOOD.columns, LOSS_TOKENS))
        loss.backward()

    _, peak = measured_peak(work, device)
    return peak


def check_loss(device: str) -> Finding:
    """Return how much memory the loss over a large vocabulary takes."""
    peak, whole = in_process(loss_peak, device), LOSS_TOKENS * VOCABULARY * 4
    return Finding(
        "loss", f"memory, {VOCABULARY:,} words, {LOSS_TOKENS:,} tokens",
        f"{peak / MIB:,.0f} MiB", f"at most {LOSS_SHARE * whole / MIB:,.0f}", peak <= LOSS_SHARE * whole,
    )  # fmt: skip


def speed_and_peak(side: Callable[[Spec], float], spec: Spec) -> tuple[float, int]:
    """Return tokens per second of a side, and its memory at most."""
    speed, peak = measured_peak(partial(side, spec), spec.device)
    return speed, peak


def time_training(device: str, peak_tflops: float | None) -> Iterator[Finding]:
    """Yield speed and memory of our trainer and of TRL's, each in a process of its own."""
    from plansmith.learning.flops import training_flops

    shape, count, row, rows = SPEEDS[device]
    lengths = draw_lengths(count, row)
    with tempfile.TemporaryDirectory(prefix="plansmith-gpu-check-") as folder:
        spec = Spec(folder, shape, device, lengths, row, rows, is_checkpointing=False)
        in_process(make_model, spec)
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        per_token = training_flops(config, sum(lengths), lengths) / sum(lengths)
        for side, train in (("ours", train_ours), ("TRL's SFTTrainer", train_trl)):
            speed, peak = in_process(partial(speed_and_peak, train), spec)
            share = f", {speed * per_token / (peak_tflops * 1e12):.1%} of peak" if peak_tflops else ""
            yield Finding(shape, f"training, {side}", f"{speed:,.0f} tokens/s{share}, {peak / MIB:,.0f} MiB")


# --- the engine


def check_engines(device: str) -> Iterator[Finding]:
    """Yield for each family how far vLLM's log-probabilities are from the trainer's, whose steps moved them further."""
    if not has_vllm():
        yield Finding("engine", "vLLM is not installed", "left out")
        return
    size, (dtype, tolerance) = SIZES[device], TOLERANCES[device]
    for family in FAMILIES:
        with tempfile.TemporaryDirectory(prefix="plansmith-gpu-check-") as name:
            folder = in_process(partial(write_model, family, size), Path(name))
            for tried in check_engine(in_process, folder, device, STEPS, sequences_of(size)):
                for what, difference in tried.differences.items():
                    measured, expected = f"{difference:.1e} of {tried.moved:.2f}", f"at most {tolerance:g}"
                    is_met = difference <= tolerance < tried.moved / 2
                    yield Finding(family, f"engine in {dtype}, {tried.name}: {what}", measured, expected, is_met)
                yield Finding(family, f"engine, {tried.name}: writing", f"{tried.tokens_per_s:,.0f} tokens/s")


def check_run(device: str) -> Iterator[Finding]:
    """Yield whether a run of one iteration ends, and whether its first phase learns."""
    if not has_vllm() or find_spec("ray") is None:
        yield Finding("a run", "vLLM or Ray is not installed", "left out")
        return
    with tempfile.TemporaryDirectory(prefix="plansmith-gpu-check-") as name:
        done = short_run(device, Path(name))
    if done.fault:
        yield Finding(done.preset, "a run of one iteration", done.fault, "exit code 0", is_met=False)
        return
    yield Finding(done.preset, "a run of one iteration", f"{done.seconds:,.0f} s", "exit code 0", is_met=True)
    is_learning = done.last < done.first
    yield Finding(done.preset, "loss of phase 1", f"{done.first:.2f} to {done.last:.2f}", "falls", is_learning)
    yield Finding(done.preset, "phase 1", f"{done.speed:,.0f} tokens/s")


# --- the command


def main(argv: list[str] | None = None) -> int:
    """Measure, print; return 0 when everything agrees, 1 when not, 2 without the device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal, very small")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where the result goes, too")
    parser.add_argument("--peak-tflops", type=float, metavar="N", help="of the card in bfloat16, dense: then the share "
                        "of it that training reaches is told")  # fmt: skip
    parser.add_argument("--no-speed", action="store_true", help="leave out what TRL is needed for")
    parser.add_argument("--no-engine", action="store_true", help="leave out what vLLM is needed for")
    parser.add_argument("--no-run", action="store_true", help="leave out the whole run, for which Ray is needed, too")
    arguments = parser.parse_args(argv)
    return exit_code_of(lambda: check(arguments))


def check(arguments: argparse.Namespace) -> int:
    """Run every check; return whether one failed.

    Raises:
        BadInputError: there is no such device.
    """
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise BadInputError("no GPU that torch can use", got=f"torch {torch.__version__}", expected="a CUDA device",
                            cure="rehearse with --device cpu, or install a torch for the driver")  # fmt: skip
    found = list(_findings(arguments))
    marks = {True: "ok", False: "NO", None: ""}
    rows = [[f"{x.model}, {x.what}", x.measured, x.expected, marks[x.is_met]] for x in found]
    print(text_table(("checked", "measured", "expected", ""), rows))
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "no GPU: a rehearsal"
    result = {"device": card, "machine": machine(), "torch": torch.__version__, "findings": [asdict(x) for x in found]}
    if arguments.out is not None:
        with atomic_file(arguments.out) as file:
            file.write(f"{json.dumps(result, indent=2)}\n".encode())
    print(json.dumps(result))
    return 1 if any(x.is_met is False for x in found) else 0


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    yield from in_process(compare_all, arguments.device)
    yield check_loss(arguments.device)
    if not arguments.no_speed:
        yield from time_training(arguments.device, arguments.peak_tflops)
    if not arguments.no_engine:
        yield from check_engines(arguments.device)
    if not arguments.no_run:
        yield from check_run(arguments.device)


if __name__ == "__main__":
    sys.exit(main())

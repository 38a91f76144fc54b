"""How much memory of the host each of four ranks takes at most while it loads and saves a model, by ZeRO stage.

    python benchmarks/loading.py [--millions 400]

The model is a Llama with random weights in bfloat16 on disk; the trainer holds float32 weights beside it. Counted is
what a process has for itself (RssAnon): pages of the model's files, which ranks share and the kernel can drop, are not.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plansmith.config.training import TrainerConfig

N_RANKS = 4
STAGES = (2, 3)
LAYER = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "vocab_size": 16384}
MILLIONS_A_LAYER = 12.8
GIB = 2**30
MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt."""


class Peak:
    """The most memory of its own that this process has had since it was made, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.peak, self._is_over = own_memory(), threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def _look(self) -> None:
        while not self._is_over.wait(0.005):
            self.peak = max(self.peak, own_memory())

    def end(self) -> int:
        """Return it in bytes."""
        self._is_over.set()
        self._watch.join()
        return self.peak


def own_memory() -> int:
    """Return the bytes that this process has for itself."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def make_model(folder: str, n_layers: int) -> int:
    """Write a model without meaning; return the size of its weights in bytes."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=n_layers, max_position_embeddings=64, **LAYER))
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), pad_token="-").save_pretrained(folder)  # noqa: S106
    return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))


def load(rank: int, port: int, folder: str, stage: int, results: Any) -> None:
    """Load the model as a rank and save it; send the peak of both and what it holds between."""
    from actors.trainer import TrainerActor

    config = TrainerConfig(n_ranks=N_RANKS, n_threads=1, optimizer="adamw", dtype="bfloat16", is_autocast=False,
                           zero_stage=stage)  # fmt: skip
    import deepspeed  # noqa: F401 - what libraries take is not the model's
    import transformers.models.llama.modeling_llama  # noqa: F401

    before, peak = own_memory(), Peak()
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)  # what is freed goes back at once, or it counts as taken
    trainer = TrainerActor(folder, config=config, rank=rank, master_port=port)
    at_most = peak.end() - before
    gc.collect()
    held, peak = own_memory() - before, Peak()
    trainer.save(f"{folder}/saved-{stage}")
    results.put((rank, at_most, held, peak.end() - before))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--millions", type=int, default=400, help="parameters of the model, about")
    n_layers = max(1, round(parser.parse_args().millions / MILLIONS_A_LAYER))
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="plansmith-loading-") as folder:
        size = make_model(folder, n_layers)
        print(f"{size / GIB:.2f} GiB of weights in bfloat16, {N_RANKS} ranks; GiB of a rank's own memory\n")
        print("| ZeRO | rank | at most while loading | loaded | at most while saving |\n|--:|--:|--:|--:|--:|")
        for stage in STAGES:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            results = processes.Queue()
            ranks = [
                processes.Process(target=load, args=(rank, port, folder, stage, results)) for rank in range(N_RANKS)
            ]
            for process in ranks:
                process.start()
            for rank, *taken in sorted(results.get() for _ in ranks):
                print(f"| {stage} | {rank} | {' | '.join(f'{amount / GIB:.2f}' for amount in taken)} |", flush=True)
            for process in ranks:
                process.join()


if __name__ == "__main__":
    main()

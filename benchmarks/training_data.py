"""How far driver and ranks grow with the data that is trained on; part of `training.py`.

Each is a process of its own that does to stored sequences what a run does: the driver orders them by their ids, a rank
plans an epoch and makes every tensor of its share. No gradient is computed; it holds no data.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.stages.training import ROWS_PER_PART
from plansmith.config.training import OptimiserConfig
from plansmith.data.parts import write_part
from plansmith.data.rows import SequenceRow
from plansmith.layout import text_table
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import micro_batches, plan_optimisation
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import supervised_sequence
from plansmith.stages import row_seed

ROW_TOKENS, BATCH_TOKENS, RANKS, MEAN_TOKENS = 4096, 65536, 2, 300
MIB = 2**20


def write_sequences(folder: Path, n_tokens: int) -> list[Path]:
    """Write random sequences of so many tokens in parts, as encoding does; return their paths."""
    rng, paths, written = np.random.default_rng(0), list[Path](), 0
    while written < n_tokens:
        rows = []
        for number in range(ROWS_PER_PART):
            length = int(np.clip(rng.lognormal(np.log(MEAN_TOKENS / 1.2), 0.6), 16, ROW_TOKENS))
            token_ids = rng.integers(0, 32_000, length).tolist()
            sequence = supervised_sequence(token_ids[: length // 3], token_ids[length // 3 :])
            rows.append(sequence.row(f"{len(paths):06d}-{number:03d}"))
            written += length
        paths.append(folder / f"{len(paths):06d}.parquet")
        write_part(paths[-1], rows, SequenceRow)
    return paths


def grown_by(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Return what work returns, the MiB that the process grew by at most, and the seconds; runs in a process."""
    before = _status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    start = time.perf_counter()
    result = work(*arguments)
    return result, _status_mib("VmHWM") - before, time.perf_counter() - start


def _status_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / MIB


def order_as_driver(paths: list[Path]) -> StoredSequences:
    """Return the sequences in the order of phase 1."""
    stored = StoredSequences(paths)
    seeds = [row_seed(0, "phase1", name) for name in stored.ids]
    return stored.in_order(sorted(range(len(stored)), key=seeds.__getitem__))


def read_as_rank(stored: StoredSequences, rank: int) -> int:
    """Return the tokens of one rank's share of an epoch, of which every tensor is made."""
    settings = OptimiserConfig(learning_rate=1.0, batch_tokens=BATCH_TOKENS)
    plan = plan_optimisation(
        stored.lengths.tolist(), settings, seed=0, row_length_tokens=4 * ROW_TOKENS, longest_tokens=ROW_TOKENS,
        n_ranks=RANKS, unit_names=stored.units,
    )  # fmt: skip
    n_tokens = 0
    for rows in plan.batches:
        for batch in micro_batches(stored, rows, Supervised.columns, rank=rank, world_size=RANKS):
            n_tokens += sum(plan.lengths[index] for row in batch.rows for index in row)
    return n_tokens


def measure(n_tokens: int) -> dict[str, Any]:
    """Print how far driver and ranks grow with so many tokens; return the figures."""
    with (
        tempfile.TemporaryDirectory(prefix="plansmith-benchmark-") as folder,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        paths = pool.apply(write_sequences, (Path(folder), n_tokens))
        given, driver_mib, driver_s = pool.apply(grown_by, (order_as_driver, paths))
        ranks = [pool.apply(grown_by, (read_as_rank, given, rank)) for rank in range(RANKS)]
    rows = [["driver", f"{driver_mib:.0f}", f"{driver_s:.1f}", ""]]
    rows += [[f"rank {n}", f"{mib:.0f}", f"{s:.1f}", f"{tokens / s:.0f}"] for n, (tokens, mib, s) in enumerate(ranks)]
    print(text_table(("process", "grew by MiB", "seconds", "tokens/s"), rows))
    return {
        "data_tokens": sum(tokens for tokens, _, _ in ranks),
        "driver_mib": round(driver_mib),
        "rank_mib": round(max(mib for _, mib, _ in ranks)),
        "rank_tokens_per_s": round(min(tokens / s for tokens, _, s in ranks)),
    }

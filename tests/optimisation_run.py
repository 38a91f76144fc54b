"""An optimisation on real ranks, as a command that a test starts, in which a step that the test chooses is deadly."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints import qwen3_checkpoint
from smoke_runs import SMOKE

from pipelines.run.workers import MODEL, Workers
from pipelines.stages.training import TuningSettings, optimise_sequences
from plansmith.config.basics import narrowed
from plansmith.config.training import Numerics, OptimiserConfig, TrainerConfig
from plansmith.data.rows import SequenceRow
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import supervised_sequence
from plansmith.stages import Stage, StageContext

TRAINER = TrainerConfig(optimizer="adamw", is_autocast=False, row_length_tokens=64, n_threads=1, checkpoint_every_s=0)
SETTINGS = TuningSettings(
    optimiser=OptimiserConfig(learning_rate=0.01, batch_sequences=2, warmup_steps=4, schedule="linear"),
    numerics=narrowed(TRAINER, Numerics),
)
TRAINED = [supervised_sequence([5, 6, 7], [20 + number, 21, 22, 23]) for number in range(32)]
"""Of 16 steps; a rank is asked for one loss a step, because two sequences are a row or two."""
FUSE, RANK, MACHINE = "fuse", "rank", "machine "
"""A file beside the artifacts, as long as nobody was killed: whom to kill. `RANK`, the number of a process, or
`MACHINE` and that of a machine's raylet, without which its ranks die soon, and do no step until then."""

_asked: Counter[Path] = Counter()


@dataclass(frozen=True)
class Deadly:
    """The likelihood; where a fuse lies, the last rank's loss of a step kills, once."""

    fuse: Path
    n_taken: int
    """Steps before."""
    name = Supervised.name
    columns = Supervised.columns

    def loss(self, *arguments: Any) -> Any:
        """Return the loss of a micro-batch."""
        from torch import distributed

        _asked[self.fuse] += 1
        is_last = distributed.get_rank() == distributed.get_world_size() - 1
        if is_last and self.fuse.exists() and _asked[self.fuse] == self.n_taken + 1:
            whom = self.fuse.read_text()
            self.fuse.unlink()
            os.kill(os.getpid() if whom == RANK else int(whom.removeprefix(MACHINE)), signal.SIGKILL)
            if whom.startswith(MACHINE):
                time.sleep(600)
        return Supervised().loss(*arguments)


def begin(context: StageContext[None]) -> None:
    """Write a model and what it is trained on."""
    qwen3_checkpoint(context.output.path(MODEL))
    rows = [sequence.row(f"{number:02d}") for number, sequence in enumerate(TRAINED)]
    context.output.write_rows(rows, SequenceRow, table="sequences")


def optimise(context: StageContext[TuningSettings]) -> None:
    """Train; where a fuse lies, the sixth step is deadly."""
    fuse = context.output.final_folder.parent / f"{FUSE}-{context.stage.name}"
    sequences = StoredSequences([context.inputs["policy"].path("sequences.parquet")])
    optimise_sequences(context, Deadly(fuse, 5), sequences)


def stages(name: str) -> list[Stage[Any]]:
    """Return an optimisation of that name, and what it begins with."""
    start = Stage(name="start", run=begin, seed=1)
    return [start, Stage(name=name, run=optimise, settings=SETTINGS, inputs={"policy": start}, seed=1)]


def main(folder: Path, n_ranks: int) -> None:
    """Run it; a fuse that is there is told whom to kill: this process."""
    root = folder / "artifacts"
    fuse = root / f"{FUSE}-optimise"
    if fuse.exists():
        fuse.write_text(str(os.getpid()))
    config = SMOKE.model_copy(update={"trainer": TRAINER.model_copy(update={"n_ranks": n_ranks})})
    with Workers(config, folder) as workers:
        workers.run(stages("optimise"), root=root)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""A loop of four updates with a real trainer and engine, as a command that a test starts and kills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conftest import BLOCKS, BLOCKS_TEXT, NAMES, random_problem
from smoke_runs import SMOKE

from pipelines.run.workers import MODEL, PROBE, Workers
from pipelines.stages.generating import GENERATION
from pipelines.stages.rejection import Rejection
from pipelines.stages.training import OPTIMISATION, write_probe
from pipelines.stages.update_loop import Lesson, Tried, UpdateSettings, run_updates
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import SolvedProblemRow
from plansmith.judging.judge import PlanJudge
from plansmith.learning.models import make_model
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import supervised_sequence
from plansmith.learning.tokenizer import word_tokenizer
from plansmith.pddl.printer import print_problem
from plansmith.stages import Stage, StageContext

NUMERICS = narrowed(SMOKE.trainer, Numerics)
SETTINGS = UpdateSettings(
    sampling=SamplingConfig(temperature=1.0, max_new_tokens=80, n=4), engine=narrowed(SMOKE.policy, EngineNumerics),
    prompting="compact", updates=4, optimiser=OptimiserConfig(learning_rate=0.003, batch_sequences=4, warmup_steps=1),
    numerics=NUMERICS,
)  # fmt: skip


class Everything(Rejection):
    """Learns from every rollout, which a policy that has learnt nothing has; counts them; asks for the reference."""

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        rollouts = [item.rollout for item in tried]
        sequences = [supervised_sequence(row.prompt_token_ids, row.token_ids) for row in rollouts]
        seen = len(tried) + (state["seen"] if state else 0)
        column = "reference_logprobs" if rollouts[0].iteration == 2 else ""
        return Lesson(Supervised(), sequences, {"seen": seen}, reference_column=column, figures={"seen": seen})


def begin(context: StageContext[None]) -> None:
    """Make a model from nothing."""
    folder = context.output.path(MODEL)
    make_model(folder, word_tokenizer([BLOCKS], NAMES), SMOKE.model, max_position_embeddings=512, seed=0)
    write_probe(context.resources.trainer(folder, NUMERICS), range(5, 40), context.output.path(PROBE))


def loop(context: StageContext[UpdateSettings]) -> None:
    """Make the updates."""
    texts = [print_problem(random_problem(3, seed)) for seed in range(6)]
    rows = (SolvedProblemRow(f"p{i}", "", BLOCKS_TEXT, text, ("(a)",)) for i, text in enumerate(texts))
    run_updates(context, Everything(tuple(rows), PlanJudge("compact"), 3, HeldOut()))


def stages(name: str = "loop", max_staleness: int = 0) -> list[Stage[Any]]:
    """Return the policy that a loop begins with, and the loop; of any name it does the same."""
    start = Stage(name="start", run=begin, seed=1)
    roots, settings = (*GENERATION, *OPTIMISATION), SETTINGS.model_copy(update={"max_staleness": max_staleness})
    return [start, Stage(name=name, run=loop, settings=settings, inputs={"policy": start}, seed=1, code_roots=roots)]


def main(folder: Path) -> None:
    """Run both stages."""
    with Workers(SMOKE, folder) as workers:
        workers.run(stages(), root=folder / "artifacts")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

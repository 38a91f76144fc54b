"""A loop of updates with a real trainer and engine, as a command that a test starts and kills.

Either four updates that learn from everything, handed over by folder; or six of GRPO in two segments, handed over
directly.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from conftest import BLOCKS, BLOCKS_TEXT, NAMES, random_problem
from smoke_runs import SMOKE
from strikes import once, strike_in_handover

from pipelines.run.workers import MODEL, PROBE, Workers
from pipelines.stages.generating import GENERATION
from pipelines.stages.group_relative import group_relative_settings, learn_from_groups
from pipelines.stages.rejection import Rejection
from pipelines.stages.training import OPTIMISATION, write_probe
from pipelines.stages.update_loop import SEGMENT_START, Lesson, Tried, UpdateSettings, run_updates
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.reinforcement import ReinforcementConfig, RewardConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import ProblemRow, SolvedProblemRow, Split
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
N_PROBLEMS = 12
LEARNING = ReinforcementConfig(
    learning_rate=0.003, batch_sequences=8, updates=6, segments=2, problems_per_update=2, rollouts_per_problem=4,
    temperature=1.0, max_new_tokens=80, beta=0.04, weight_limit=2.0, rewards=RewardConfig(cut=-0.5),
    may_start_cold=True,
)  # fmt: skip
"""Every problem is asked once. A policy that has learnt nothing is cut, or ends with nonsense: two rewards."""


def config(handover: str = "folder") -> PddlInstructConfig:
    """Return the settings of a run whose engines get their weights that way."""
    return SMOKE.model_copy(update={"policy": SMOKE.policy.model_copy(update={"handover": handover})})


class Everything(Rejection):
    """Learns from every rollout, which a policy that has learnt nothing has; counts them; asks for the reference."""

    def lesson(self, tried: Sequence[Tried], state: Any) -> Lesson:
        rollouts = [item.rollout for item in tried]
        sequences = [supervised_sequence(row.prompt_token_ids, row.token_ids) for row in rollouts]
        seen = len(tried) + (state["seen"] if state else 0)
        column = "reference_logprobs" if rollouts[0].iteration == 2 else ""
        return Lesson(Supervised(), sequences, {"seen": seen}, reference_column=column, figures={"seen": seen})


def begin(context: StageContext[None]) -> None:
    """Make a model from nothing, and problems."""
    folder = context.output.path(MODEL)
    make_model(folder, word_tokenizer([BLOCKS], NAMES), SMOKE.model, max_position_embeddings=512, seed=0)
    write_probe(context.resources.trainer(folder, NUMERICS), range(5, 40), context.output.path(PROBE))
    texts = [print_problem(random_problem(3, seed)) for seed in range(N_PROBLEMS)]
    rows = [ProblemRow(f"p{i:02d}", f"{i}", "blocks", "L1", Split.PHASE2, 3, BLOCKS_TEXT, text, "sampler")
            for i, text in enumerate(texts)]  # fmt: skip
    context.output.write_rows(rows, ProblemRow)


def loop(context: StageContext[UpdateSettings]) -> None:
    """Make the updates."""
    texts = [print_problem(random_problem(3, seed)) for seed in range(6)]
    rows = (SolvedProblemRow(f"p{i}", "", BLOCKS_TEXT, text, ("(a)",)) for i, text in enumerate(texts))
    run_updates(context, Everything(tuple(rows), PlanJudge("compact"), 3, HeldOut()))


def stages(max_staleness: int = 0, *, learns_from_groups: bool = False) -> list[Stage[Any]]:
    """Return the policy that a loop begins with, and the loop, of GRPO its segments; the last is ``loop``."""
    roots, start = (*GENERATION, *OPTIMISATION), Stage(name="start", run=begin, seed=1)
    if not learns_from_groups:
        settings = SETTINGS.model_copy(update={"max_staleness": max_staleness})
        return [start, Stage(name="loop", run=loop, settings=settings, inputs={"policy": start}, seed=1,
                             code_roots=roots)]  # fmt: skip
    learning = LEARNING.model_copy(update={"max_staleness": max_staleness})
    made: list[Stage[Any]] = [start]
    for before, last in pairwise((0, *learning.ends)):
        settings = group_relative_settings(
            learning, engine=SETTINGS.engine, numerics=NUMERICS, prompting="compact", split=Split.PHASE2,
            segment=(before + 1, last),
        )  # fmt: skip
        inputs = {"policy": made[-1], "problems": start, **({SEGMENT_START: start} if before else {})}
        name = "loop" if last == learning.updates else f"loop_to_{last}"
        made.append(Stage(name=name, run=learn_from_groups, settings=settings, inputs=inputs, seed=1, code_roots=roots))
    return made


def main() -> None:
    """Run the stages that are asked for; in the second segment's first hand-over it may be deadly for this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--groups", action="store_true", help="GRPO in segments, handed over directly")
    parser.add_argument("--max-staleness", type=int, default=0)
    parser.add_argument("--dies", action="store_true")
    given = parser.parse_args()
    with Workers(config("direct" if given.groups else "folder"), given.folder) as workers, ExitStack() as strikes:
        if given.dies:
            strike = partial(strike_in_handover, workers, os.getpid())
            strikes.enter_context(once(given.folder, lambda work: work.doing == "update 4, training", strike))
        steps = stages(given.max_staleness, learns_from_groups=given.groups)
        workers.run(steps, root=given.folder / "artifacts")


if __name__ == "__main__":
    main()

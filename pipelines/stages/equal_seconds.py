"""Controls of reinforcement learning that have its start and its seconds: more imitation, and plans of one's own.

What a policy learns from rewards it might have learnt as well from more of the planner's plans, or from those of its
own that are valid, in the same time. The seconds are those that the updates of the reinforcement learning took, as its
tables have them; machines differ, and what is equal is what one machine could do. Not here: equal supervision
(`control`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.stages.direct_plans import rounds_of
from pipelines.stages.rejection import ORDER, Rejection
from pipelines.stages.training import SEQUENCES, TuningSettings, check_fitting, optimise_sequences
from pipelines.stages.update_loop import UpdateSettings, in_random_order, run_updates
from plansmith.data.artifacts import Artifact
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import MetricRow, ProblemRow, Split
from plansmith.data.update_times import TIMES, spent
from plansmith.errors import PlansmithError
from plansmith.judging.judge import PlanJudge
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequence_files import StoredSequences
from plansmith.stages import StageContext

SEGMENT = "segment"
"""How the inputs begin whose seconds are counted."""
HELD_OUT = "held_out"
"""The input whose test problems nothing is learnt from."""


def seconds_of(segments: list[Artifact]) -> float:
    """Return how long the updates of some segments took, whatever was repeated after a crash."""
    return spent((row.name, row.value) for artifact in segments for row in artifact.rows(MetricRow, TIMES))


def tune_as_long(context: StageContext[TuningSettings]) -> None:
    """Tune on more of the planner's plans by likelihood, on as many tokens as fit into the seconds.

    How many these are is told by the speed at which the policy's own tuning went.

    Raises:
        PlansmithError: nothing says how fast that was.
    """
    settings, stored = context.settings, StoredSequences(context.inputs["sequences"].parts(SEQUENCES))
    figures = {row.name: row.value for row in context.inputs["policy"].rows(MetricRow, "metrics")}
    speed = figures.get("training/tokens_per_s", 0.0)
    if speed <= 0:
        raise PlansmithError("nobody measured how fast the policy was tuned", where=context.stage.name,
                             got=f"training/tokens_per_s={speed:g}", cure="run the tuning again")  # fmt: skip
    budget_s = seconds_of(_segments(context))
    longest = settings.optimiser.max_length_tokens or settings.numerics.row_length_tokens
    check_fitting(stored.lengths.tolist(), longest, where=context.stage.name)
    fitting = [position for position in range(len(stored)) if stored.lengths[position] <= longest]
    order = sorted(fitting, key=lambda position: context.row_seed(stored.ids[position]))
    rounds = list(rounds_of(stored.lengths, order, max(1, round(budget_s * speed))))
    context.logger.info("%.0f s at %.0f tokens/s: %.2f rounds of %d plans",
                        budget_s, speed, sum(map(len, rounds)) / len(order), len(order))  # fmt: skip
    optimise_sequences(context, Supervised(), stored.in_order(np.concatenate(rounds).tolist()))


class OwnPlansSettings(UpdateSettings):
    """What the policy tries and learns."""

    n_problems: int
    """Problems of D1 in one update, the next ones in a fixed random order."""


def learn_own_plans(context: StageContext[OwnPlansSettings]) -> None:
    """Let the policy try problems of D1 and train on its valid plans, update by update, until the seconds are over."""
    judge, settings = PlanJudge(context.settings.prompting), context.settings
    found = (row for row in context.inputs["problems"].rows(ProblemRow) if row.split == Split.PHASE1)
    held_out = HeldOut.of(context.inputs[HELD_OUT].rows(ProblemRow))
    rule = Rejection(in_random_order(found, context.seed, ORDER), judge, settings.n_problems, held_out)
    run_updates(context, rule, budget_s=seconds_of(_segments(context)))


def _segments(context: StageContext[Any]) -> list[Artifact]:
    return [artifact for name, artifact in context.inputs.items() if name.startswith(SEGMENT)]

"""Stages of a label budget: a policy tuned on a share of the plans, and the problems that it then tries without theirs.

What is told by it is what a plan is worth beside the validator's verdicts. Not here: reinforcement learning on the rest
(`group_relative`), which is that of any other arm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.stages.direct_plans import rounds_of
from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.training import SEQUENCES, TuningSettings, check_fitting, optimise_sequences
from plansmith.config.basics import StrictModel
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import ProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequence_files import StoredSequences
from plansmith.report.finished_stages import read_columns
from plansmith.report.gap_labels import LABELLED
from plansmith.stages import StageContext, row_seed


class SharingSettings(StrictModel):
    """How many plans are learnt from."""

    share: float
    """Of the solved problems of D1."""


def share_labels(context: StageContext[SharingSettings]) -> None:
    """Write the solved problems of D1 whose plans are learnt from (`LABELLED`), and all others of D1 as the rest.

    The rest has the problems without a plan, too: a verdict needs none.

    Raises:
        BadInputError: the share has no plan.
    """
    problems, share = context.inputs["problems"], context.settings.share
    solved = [row.problem_id for row in solved_problems(problems, context.inputs["plans"], Split.PHASE1)]
    learnt = set(in_share(solved, share, seed=context.seed))
    if not learnt:
        raise BadInputError("a share of the plans that has none", where=f"share {share:g} (labels, plan_share)",
                            got=f"{len(solved)} plans of D1", expected="one plan at least",
                            cure="raise the share, or draw more problems (problems.domains: phase1)")  # fmt: skip
    of_d1 = [row for row in problems.rows(ProblemRow) if row.split == Split.PHASE1]
    context.output.write_rows((row for row in of_d1 if row.problem_id not in learnt), ProblemRow)
    context.output.write_rows((row for row in of_d1 if row.problem_id in learnt), ProblemRow, table=LABELLED)
    context.logger.info("%d of %d plans; %d problems are left", len(learnt), len(solved), len(of_d1) - len(learnt))


def in_share(problem_ids: Sequence[str], share: float, *, seed: int) -> list[str]:
    """Return a share of the problems, rounded; a smaller share is a part of a larger one."""
    order = sorted(problem_ids, key=lambda problem_id: row_seed(seed, "order of labels", problem_id))
    return order[: round(share * len(order))]


def labelled(labels: Artifact) -> frozenset[str]:
    """Return the problems whose plans a share has."""
    return frozenset(read_columns(labels, ProblemRow, "problem_id", table=LABELLED)[0])


def tune_labelled(context: StageContext[TuningSettings]) -> None:
    """Tune on the plans of the share by likelihood, round after round, as long as its epochs over all plans would take.

    So every share is trained on as many tokens, and the schedule goes over all of them.

    Raises:
        BadInputError: more than a few examples are too long to be trained on, or all of the share.
    """
    settings, stored = context.settings, StoredSequences(context.inputs["sequences"].parts(SEQUENCES))
    longest = settings.optimiser.max_length_tokens or settings.numerics.row_length_tokens
    learnt = labelled(context.inputs["labels"])
    own = [place for place, name in enumerate(stored.ids) if name.rpartition("-plan-")[0] in learnt]
    fitting = [place for place in own if stored.lengths[place] <= longest]
    checked = range(len(stored)) if fitting else own
    check_fitting([int(stored.lengths[place]) for place in checked], longest, where=context.stage.name)
    order = sorted(fitting, key=lambda place: context.row_seed(stored.ids[place]))
    wanted = settings.optimiser.epochs * int(stored.lengths[stored.lengths <= longest].sum())
    rounds = list(rounds_of(stored.lengths, order, wanted))
    context.logger.info("%d plans, %.2f rounds", len(order), sum(map(len, rounds)) / len(order))
    optimiser = settings.optimiser.model_copy(update={"epochs": 1})
    optimise_sequences(context, Supervised(), stored.in_order(np.concatenate(rounds).tolist()), optimiser)

"""The control of the feedback loop: as much supervision on the same problems, and nothing that the policy tried.

Iteration t of the control learns chains of the planner's plans for the problems that iteration t of the loop rolled
out. Equal are: the problems; the tokens with a likelihood weight, exactly; all tokens, to within a sequence, and with
them, where batches are counted in tokens, the optimiser steps; rates, schedule and fresh moments, those of stage 1.
What is read without a weight, as the loop reads its prompts and its own wrong words, are further chains here. Not here:
the optimisation, which is that of phase 1 (`training.tune`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.run.workers import MODEL
from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.training import SEQUENCES
from plansmith.config.basics import StrictModel
from plansmith.config.chains import ChainConfig
from plansmith.data.examples import chain_examples
from plansmith.data.rows import FinalPlanRow, MetricRow, SequenceRow, SolvedProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import NLL_WEIGHT, Sequences, TrainingSequence
from plansmith.report.finished_stages import read_columns
from plansmith.stages import StageContext
from plansmith.text.rendering import rendering_of


class ControlSettings(StrictModel):
    """How the control's chains are written."""

    rendering: str
    """Of the run."""
    chains: ChainConfig
    """What they tell beside their steps."""
    object_names: tuple[str, ...]
    """Names that objects get, other ones in every chain."""
    longest_tokens: int
    """Longest sequence that stage 1 trains on; longer ones count on neither side."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """How much is learnt from: tokens with a likelihood weight, and all of the sequences that have them."""

    n_weighted: int
    n_tokens: int

    @classmethod
    def of(cls, sequences: Sequences, longest_tokens: int) -> Supervision:
        """Return what some sequences hold, without those that are too long to be trained on."""
        held = (sequences[position] for position in range(len(sequences)))
        counts = [(n_weighted(sequence), len(sequence)) for sequence in held if len(sequence) <= longest_tokens]
        return cls(sum(weighted for weighted, _ in counts), sum(tokens for _, tokens in counts))


def write_supervision(context: StageContext[ControlSettings]) -> None:
    """Write chains for the problems of the loop's iteration with as many weighted tokens as its stage 1 had."""
    settings, datasets = context.settings, context.inputs["datasets"]
    paths = [datasets.path("stage1.parquet"), *context.inputs["reasoned"].parts(SEQUENCES)]
    wanted = Supervision.of(StoredSequences(paths), settings.longest_tokens)
    tried = set(read_columns(datasets, FinalPlanRow, "problem_id", table="final_plans")[0])
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE2)
    order = sorted((row for row in solved if row.problem_id in tried), key=lambda row: context.row_seed(row.problem_id))
    drawn = list(as_much(wanted, _chains(context, order)))
    context.output.parts(SEQUENCES, SequenceRow).write("chains", drawn, SequenceRow)
    _write_metrics(context, wanted)


def as_much(wanted: Supervision, chains: Iterable[tuple[str, TrainingSequence]]) -> Iterator[SequenceRow]:
    """Yield chains until they hold the supervision that is wanted.

    Their weights end where there are enough, be it within a chain; what follows is read without a weight.
    """
    weighted = tokens = 0
    for name, chain in chains:
        if weighted == wanted.n_weighted and tokens + len(chain) > wanted.n_tokens:
            return
        taken = with_first_weights(chain, wanted.n_weighted - weighted)
        weighted, tokens = weighted + n_weighted(taken), tokens + len(taken)
        yield taken.row(name)


def with_first_weights(sequence: TrainingSequence, n: int) -> TrainingSequence:
    """Return a sequence with a likelihood weight at no more than the first n of the tokens that have one."""
    weights = sequence.columns[NLL_WEIGHT].copy()
    weights[np.flatnonzero(weights)[n:]] = 0
    return replace(sequence, columns={**sequence.columns, NLL_WEIGHT: weights})


def n_weighted(sequence: TrainingSequence) -> int:
    """Return how many tokens have a likelihood weight."""
    return int(np.count_nonzero(sequence.columns.get(NLL_WEIGHT, ())))


def _chains(
    context: StageContext[ControlSettings], problems: Sequence[SolvedProblemRow]
) -> Iterator[tuple[str, TrainingSequence]]:
    """Yield the problems' chains with their ids, under ever other names, round after round.

    Raises:
        BadInputError: none is short enough to be trained on.
    """
    settings, encoder = context.settings, ExampleEncoder(str(context.inputs["policy"].path(MODEL)))
    rendering, names, seed = rendering_of(settings.rendering), settings.object_names, context.row_seed()
    copies = [
        chain_examples(row, rendering, names, n_renamings=sys.maxsize, seed=seed, chains=settings.chains)
        for row in problems
    ]
    while True:
        written = [(row.example_id, encoder.encode(row)) for row in map(next, copies)]
        fitting = [(name, chain) for name, chain in written if len(chain) <= settings.longest_tokens]
        if not fitting:
            raise BadInputError("the control has nothing to learn: no chain of the planner's plans is short enough",
                                got=f"{len(written)} chains", expected=f"at most {settings.longest_tokens} tokens",
                                cure="raise row_length_tokens and stage 1's max_length_tokens")  # fmt: skip
        yield from fitting


def _write_metrics(context: StageContext[ControlSettings], wanted: Supervision) -> None:
    """Write what the loop had and what the control has."""
    stored = StoredSequences([context.output.parts(SEQUENCES, SequenceRow).path("chains")])
    given = Supervision.of(stored, context.settings.longest_tokens)
    context.logger.info(
        "%d tokens with a likelihood weight of %d, as the loop's stage 1 had of %d",
        given.n_weighted, given.n_tokens, wanted.n_tokens,
    )  # fmt: skip
    numbers = {"weighted_tokens": given.n_weighted, "tokens": given.n_tokens,
               "loop_weighted_tokens": wanted.n_weighted, "loop_tokens": wanted.n_tokens}  # fmt: skip
    rows = [MetricRow(context.stage.name, 0, "", "", f"supervision/{name}", float(n)) for name, n in numbers.items()]
    context.output.write_rows(rows, MetricRow, table="metrics")

"""Stages that pair right answers with proved mistakes, and let the reference read the pairs (NL-PDDL-Bench, 3.3)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from pipelines.run.workers import MODEL
from pipelines.stages.training import ROWS_PER_PART, SEQUENCES
from plansmith.config.basics import StrictModel
from plansmith.config.training import Numerics
from plansmith.data.rows import ExampleKind, ExampleRow, PairRow, PerturbedRow, SequenceRow, TextRow
from plansmith.errors import BadInputError
from plansmith.judging.formalisation import Fault
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.objectives.preference import response_logprobs
from plansmith.learning.sequences import NLL_WEIGHT, TrainingSequence, preference_sequences, with_reference
from plansmith.stages import StageContext

FAULTS = {
    "paper": (Fault.UNPARSEABLE, Fault.UNSOLVABLE, Fault.WORSE),
    "faithful": tuple(Fault),
}
"""Of which faults the rejected answers are. The paper's have no plan, or a worse one; a problem with a good plan that
means another thing is what flatters, and is among the second."""


class PairSettings(StrictModel):
    """Which problems with a mistake become pairs."""

    negatives: Literal["paper", "faithful"]
    """Of which faults."""
    per_problem: int
    """Pairs of one problem, at most; faults take turns."""


def write_pairs(context: StageContext[PairSettings]) -> None:
    """Write pairs of the right answer and one with a mistake.

    Raises:
        BadInputError: there is none of the wanted faults.
    """
    settings, faults = context.settings, FAULTS[context.settings.negatives]
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    faulty: dict[str, list[PerturbedRow]] = defaultdict(list)
    for row in context.inputs["perturbed"].rows(PerturbedRow):
        if row.fault in faults:
            faulty[row.problem_id].append(row)
    pairs = [
        PairRow(row.perturbed_id, problem_id, row.fault or "", texts[problem_id].prompt,
                texts[problem_id].problem_pddl, row.problem_pddl)
        for problem_id, rows in faulty.items()
        for row in _by_turns(rows, random.Random(context.row_seed(problem_id)))[: settings.per_problem]
    ]  # fmt: skip
    if not pairs:
        raise BadInputError(
            "no preference pair", got=f"no problem with a proved fault among {len(texts)}",
            expected=f"one or more that are {' or '.join(faults)}",
            cure="draw more problems, or take preference.negatives=faithful",
        )  # fmt: skip
    context.output.write_rows(pairs, PairRow)


def _by_turns(rows: Sequence[PerturbedRow], rng: random.Random) -> list[PerturbedRow]:
    """Return rows so that each fault comes once before any comes again, in random order otherwise."""
    seen: dict[str | None, int] = defaultdict(int)
    turns = []
    for row in rng.sample(rows, len(rows)):
        turns.append((seen[row.fault], row))
        seen[row.fault] += 1
    return [row for _, row in sorted(turns, key=lambda turn: turn[0])]


def read_reference(context: StageContext[Numerics]) -> None:
    """Write the pairs as training sequences with the log-probabilities that the policy gives their answers.

    The policy is the reference of what is trained on them (f0 of equation 5), adapter included.
    """
    folder, parts = context.inputs["policy"].path(MODEL), context.output.parts(SEQUENCES, SequenceRow)
    rows, encoder = context.inputs["pairs"].rows(PairRow), ExampleEncoder(str(folder))
    trainer = context.resources.trainer(folder, context.settings)
    with context.progress(len(rows), "reading the reference", unit="pair") as bar:
        for first in range(0, len(rows), ROWS_PER_PART):
            part, name = rows[first : first + ROWS_PER_PART], f"pairs-{first // ROWS_PER_PART:06d}"
            if not parts.is_finished(name):
                halves = [half for row in part for half in _halves(encoder, row)]
                read = response_logprobs(trainer.token_logprobs(halves), halves)
                known = [with_reference(half, logprob) for half, logprob in zip(halves, read, strict=True)]
                parts.write(name, (half.row(f"{half.unit}-{k % 2}") for k, half in enumerate(known)), SequenceRow)
            bar.update(len(part))


def _halves(encoder: ExampleEncoder, row: PairRow) -> Iterator[TrainingSequence]:
    """Yield a pair as two sequences that nobody has read yet."""
    chosen, rejected = (
        encoder.encode(ExampleRow(row.pair_id, row.problem_id, ExampleKind.FORMALISE, None, row.prompt, answer))
        for answer in (row.chosen, row.rejected)
    )
    n_prompt = int((chosen.columns[NLL_WEIGHT] == 0).sum())
    prompt, *responses = (ids.tolist() for ids in (chosen.token_ids[:n_prompt], chosen.token_ids[n_prompt:],
                                                   rejected.token_ids[n_prompt:]))  # fmt: skip
    yield from preference_sequences(prompt, *responses, unit=row.pair_id)

"""Stages that pair right answers with proved mistakes, and let the reference read the pairs (NL-PDDL-Bench, 3.3)."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pipelines.run.workers import MODEL
from pipelines.stages.training import ROWS_PER_PART, SEQUENCES
from plansmith.config.basics import StrictModel
from plansmith.config.training import Numerics
from plansmith.data.rows import (
    ExampleKind,
    ExampleRow,
    FormalisedRow,
    PairReadingRow,
    PairRow,
    PerturbedRow,
    SequenceRow,
    Split,
    TextRow,
)
from plansmith.errors import BadInputError
from plansmith.judging.formalisation import Fault
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.objectives.preference import response_logprobs
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import NLL_WEIGHT, TrainingSequence, preference_sequences, with_reference
from plansmith.stages import StageContext

FAULTS = {
    "paper": (Fault.UNPARSEABLE, Fault.UNSOLVABLE, Fault.WORSE),
    "faithful": tuple(Fault),
    "sampled": tuple(Fault),
}
"""Of which faults the rejected answers are. The paper's have no plan, or a worse one; a problem with a good plan that
means another thing is what flatters, and is among the second."""


HELD_OUT = "held_out"
"""Table of the pairs that only measure."""


class PairSettings(StrictModel):
    """Which problems with a mistake become pairs."""

    negatives: Literal["paper", "faithful", "sampled"]
    """Of which faults; a policy's own answers may have any."""
    per_problem: int
    """Pairs of one problem, at most; faults take turns."""
    held_out_share: float
    """Share of the problems whose pairs only measure."""


def collect_failures(context: StageContext[None]) -> None:
    """Write a policy's own answers with their faults, as problems with a mistake."""
    judged = context.inputs["judged"].rows(FormalisedRow)
    rows = (PerturbedRow(x.rollout_id, x.problem_id, "sampled", x.fault, x.problem_pddl, x.feedback) for x in judged)
    context.output.write_rows(rows, PerturbedRow)


def write_pairs(context: StageContext[PairSettings]) -> None:
    """Write pairs of the right answer and one with a mistake, of some problems apart from the others.

    Raises:
        BadInputError: there is none of the wanted faults.
    """
    settings, faults = context.settings, FAULTS[context.settings.negatives]
    texts = {row.problem_id: row for row in context.inputs["texts"].rows(TextRow)}
    faulty: dict[str, dict[str, PerturbedRow]] = defaultdict(dict)
    drawn = context.inputs["perturbed"].rows(PerturbedRow)
    context.logger.info("%d draws%s", len(drawn), _counted(row.fault for row in drawn))
    for row in drawn:
        if row.fault in faults and row.problem_pddl.strip() not in ("", texts[row.problem_id].problem_pddl.strip()):
            faulty[row.problem_id][row.problem_pddl] = row  # equal answers once
    pairs = [
        PairRow(row.perturbed_id, problem_id, row.fault or "", texts[problem_id].prompt,
                _ended(texts[problem_id].problem_pddl), _ended(row.problem_pddl))
        for problem_id, rows in faulty.items()
        for row in _by_turns([*rows.values()], context.rng(problem_id))[: settings.per_problem]
    ]  # fmt: skip
    n_held_out = round(settings.held_out_share * len(faulty))
    held_out = set(sorted(faulty, key=lambda name: context.row_seed("held out", name))[:n_held_out])
    taught = [row for row in pairs if row.problem_id not in held_out]
    if not taught:
        raise BadInputError(
            "no preference pair", where=", ".join(sorted({row.domain for row in texts.values()})),
            got=f"{len(drawn)} draws{_counted(row.fault for row in drawn)}",
            expected=f"one or more to learn from that are {' or '.join(faults)}",
            cure="draw more problems, or take dpo.pairs.negatives=faithful",
        )  # fmt: skip
    context.output.write_rows(taught, PairRow)
    context.output.write_rows((row for row in pairs if row.problem_id in held_out), PairRow, table=HELD_OUT)


def _ended(answer: str) -> str:
    """Return an answer with one line end: were it a mark of either kind, preferring would be telling the mark."""
    return f"{answer.rstrip()}\n"


def _counted(faults: Iterable[str | None]) -> str:
    """Return how many draws were proved to be what."""
    counts = Counter(fault or "of no proved fault" for fault in faults)
    return ": " * bool(counts) + ", ".join(f"{count} {fault}" for fault, count in sorted(counts.items()))


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
                read = response_logprobs(trainer.token_logprobs(halves, as_trained=True), halves)
                known = [with_reference(half, logprob) for half, logprob in zip(halves, read, strict=True)]
                parts.write(name, (half.row(f"{half.unit}-{k % 2}") for k, half in enumerate(known)), SequenceRow)
            bar.update(len(part))


def read_held_out(context: StageContext[Numerics]) -> None:
    """Write what a tuned policy and its reference give to the pairs that only measure."""
    rows, read = context.inputs["pairs"].rows(PairRow, HELD_OUT), []
    for name in ("policy", "reference"):
        folder = context.inputs[name].path(MODEL)
        encoder = ExampleEncoder(str(folder))
        halves = [half for row in rows for half in _halves(encoder, row)]
        numbers = context.resources.trainer(folder, context.settings).token_logprobs(halves) if halves else []
        read.append(response_logprobs(numbers, halves))
    policy, reference = read
    found = [
        PairReadingRow(row.pair_id, row.fault, *policy[2 * k : 2 * k + 2], *reference[2 * k : 2 * k + 2])
        for k, row in enumerate(rows)
    ]
    context.output.write_rows(found, PairReadingRow)


def write_supervision(context: StageContext[None]) -> None:
    """Write texts of D2 with their problems, in as many tokens as the pairs have: what the pairs' control learns.

    The last sequence may go beyond.
    """
    wanted = int(StoredSequences(context.inputs["pairs"].parts(SEQUENCES)).lengths.sum())
    encoder = ExampleEncoder(str(context.inputs["policy"].path(MODEL)))
    texts = [row for row in context.inputs["texts"].rows(TextRow) if row.split == Split.PHASE2]
    texts.sort(key=lambda row: context.row_seed(row.problem_id))
    rows, n_tokens = list[SequenceRow](), 0
    for copy, row in ((copy, row) for copy in itertools.count() for row in texts):
        if n_tokens >= wanted:
            break
        name, kind = f"{row.problem_id}-{copy:03d}", ExampleKind.FORMALISE
        sequence = encoder.encode(ExampleRow(name, row.problem_id, kind, None, row.prompt, row.problem_pddl))
        rows.append(sequence.row(name))
        n_tokens += len(sequence)
    context.output.parts(SEQUENCES, SequenceRow).write("texts", rows, SequenceRow)
    context.logger.info("%d tokens of texts beside %d of pairs", n_tokens, wanted)


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

"""The optimisation loop: epochs, batches, micro-batches, schedule, report. It knows no DeepSpeed and no Ray.

An `Engine` hides where the model lives. All ranks run this loop over the same sequences and cut the same batches from
them; each works off its share of the rows, and sums of losses over ranks are what is reported.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from torch import Tensor

from plansmith.errors import BadInputError, PlansmithError
from plansmith.learning.objectives import METRICS, BatchCounts, Objective, VerdictTokens, objective_loss
from plansmith.learning.packing import (
    PackedBatch,
    PackingReport,
    Row,
    build_batch,
    fitting_indices,
    pack_rows,
    packing_report,
    split_batches,
    without_loss,
)
from plansmith.learning.printed_losses import LossWeights
from plansmith.learning.sequences import TrainingSequence

logger = logging.getLogger(__name__)


class Schedule(StrEnum):
    """Course of the learning rate after the linear warm-up; all but the first end at 0."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    TRAPEZOID = "trapezoid"
    """Constant for the first half, then linearly to 0."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Everything that differs between phases (the paper's table 2). Defaults: its phase 1, except the warm-up.

    Exactly one of ``batch_sequences`` (the paper's batch size) and ``batch_tokens`` is set.
    """

    learning_rate: float = 2e-5
    batch_sequences: int | None = 16
    batch_tokens: int | None = None
    small_batch_share: float = 0.0
    """Share of the first epoch's tokens, its beginning, in batches of half the size."""
    epochs: int = 1
    warmup_steps: int = 0
    schedule: Schedule = Schedule.CONSTANT
    weight_decay: float = 0.01
    """On matrices only; norms and biases do not decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    gradient_clipping: float = 1.0
    """Largest norm of a gradient; 0 is off."""
    muon_momentum: float = 0.95
    muon_learning_rate: float | None = None
    """Muon only. ``None``: matrices use ``learning_rate`` times 0.2 * sqrt(larger side), which gives their updates the
    size AdamW's have (arXiv:2502.16982). A number: that rate times sqrt(max(1, rows / columns)), as Muon's author."""
    seed: int = 0
    is_shuffled: bool = True
    """False keeps the order of the sequences: a curriculum."""
    is_optimizer_reset: bool = True
    """Start with fresh moments: those of another phase describe another loss."""

    def __post_init__(self) -> None:
        if (self.batch_sequences is None) == (self.batch_tokens is None):
            raise BadInputError(
                "exactly one of batch_sequences and batch_tokens must be set",
                got=f"batch_sequences={self.batch_sequences}, batch_tokens={self.batch_tokens}",
            )
        is_in_range = (
            self.learning_rate > 0
            and self.epochs >= 1
            and self.warmup_steps >= 0
            and self.gradient_clipping >= 0
            and 0 <= self.small_batch_share <= 1
        )
        if not is_in_range:
            raise BadInputError(
                "hyperparameters out of range",
                got=f"learning_rate={self.learning_rate}, epochs={self.epochs}, warmup_steps={self.warmup_steps}, "
                f"gradient_clipping={self.gradient_clipping}, small_batch_share={self.small_batch_share}",
                expected="learning_rate > 0, epochs >= 1, warmup_steps >= 0, gradient_clipping >= 0, "
                "small_batch_share from 0 to 1",
            )
        if any(size is not None and size < 1 for size in (self.batch_sequences, self.batch_tokens)):
            size = self.batch_sequences if self.batch_tokens is None else self.batch_tokens
            raise BadInputError("a batch needs at least one sequence", got=str(size))


@dataclass(frozen=True, slots=True)
class OptimisationReport:
    """One optimisation; a tuple holds one number per optimiser step and is empty where it has no meaning.

    ``gradient_norms`` are before clipping. ``n_sequences`` and ``n_tokens`` are of one epoch, padding and dropped
    sequences not included. The dropped ones were too long; ``n_dropped_tokens`` is what they held.
    """

    objective: Objective
    losses: tuple[float, ...]
    nll: tuple[float, ...]
    score: tuple[float, ...]
    bce: tuple[float, ...]
    clamped_share: tuple[float, ...]
    learning_rates: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    n_steps: int
    n_sequences: int
    n_dropped: int
    n_dropped_tokens: int
    n_tokens: int
    fill: float
    wall_time_s: float


class Engine(Protocol):
    """A model with its optimizer, on one rank of ``world_size``."""

    rank: int
    world_size: int

    def __call__(self, batch: PackedBatch) -> Tensor:
        """Return logits (B, T, V)."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``; over all ranks gradients add up, they are not averaged."""

    def step(self) -> float:
        """Apply and clear the gradient; return its norm before clipping."""

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the rate of the next step."""

    def sum_over_ranks(self, numbers: Sequence[float]) -> list[float]:
        """Return the element-wise sum over ranks."""


class Progress(Protocol):
    """What hears of every step; `plansmith.live.LiveProgress` fits."""

    def advance(self, n: float = 1, values: Mapping[str, float] | None = None) -> None:
        """Advance by n steps, with the latest figures."""


def learning_rate_at(step: int, n_steps: int, hyperparameters: Hyperparameters) -> float:
    """Return the learning rate of optimiser step ``step`` (0-based) of ``n_steps``.

    Linear warm-up from peak/warmup_steps to the peak at step warmup_steps - 1, then the schedule; a decaying one would
    reach 0 at step n_steps, so that every step that is taken counts.
    """
    peak, warmup = hyperparameters.learning_rate, hyperparameters.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    remaining = 1.0 - (step - warmup) / max(n_steps - warmup, 1)
    if hyperparameters.schedule == Schedule.LINEAR:
        return peak * remaining
    if hyperparameters.schedule == Schedule.COSINE:
        return peak * 0.5 * (1.0 - math.cos(math.pi * remaining))
    if hyperparameters.schedule == Schedule.TRAPEZOID:
        return peak * min(1.0, 2.0 * remaining)
    return peak


@dataclass(frozen=True, slots=True)
class OptimisationPlan:
    """All batches of all epochs, each as rows, made before the first step; identical on every rank."""

    batches: tuple[tuple[Row, ...], ...]
    packing: PackingReport


def plan_optimisation(
    lengths: Sequence[int],
    hyperparameters: Hyperparameters,
    *,
    row_length_tokens: int,
    micro_batch_rows: int,
    n_ranks: int = 1,
    max_length_tokens: int | None = None,
) -> OptimisationPlan:
    """Return which sequence goes where; epoch e shuffles with seed + e, if at all. The batches are of all ranks.

    Sequences longer than ``max_length_tokens`` or a row are left out whole, counted in the report and warned about.

    Raises:
        BadInputError: no sequence fits.
    """
    longest = min(row_length_tokens, max_length_tokens or row_length_tokens)
    indices = fitting_indices(lengths, longest)
    if not indices:
        raise BadInputError(
            "nothing to optimise on: no sequence fits in a row",
            got=f"{len(lengths)} sequences, the shortest of {min(lengths, default=0)} tokens",
            expected=f"at most {longest} tokens",
            cure="raise row_length_tokens and max_length_tokens, or make shorter examples",
        )
    epochs = [
        [
            tuple(pack_rows(lengths, batch, row_length_tokens, n_ranks=n_ranks))
            for batch in split_batches(
                lengths,
                indices,
                batch_sequences=hyperparameters.batch_sequences,
                batch_tokens=hyperparameters.batch_tokens,
                seed=hyperparameters.seed + epoch if hyperparameters.is_shuffled else None,
                small_batch_share=0.0 if epoch else hyperparameters.small_batch_share,
            )
        ]
        for epoch in range(hyperparameters.epochs)
    ]
    packing = packing_report(lengths, epochs[0], micro_batch_rows=micro_batch_rows)
    if packing.n_dropped:
        logger.warning("%d of %d sequences, %d tokens in all, are longer than %d tokens and are not trained on",
                       packing.n_dropped, len(lengths), packing.n_dropped_tokens, longest)  # fmt: skip
    return OptimisationPlan(tuple(batch for epoch in epochs for batch in epoch), packing)


def micro_batches(
    sequences: Sequence[TrainingSequence], rows: Sequence[Row], *, rank: int, world_size: int, micro_batch_rows: int
) -> Iterator[PackedBatch]:
    """Yield this rank's micro-batches: every world_size-th row, as many on each rank.

    A rank that runs out of rows repeats the first row without its loss, because the others wait for it in collectives.
    """
    rounds = math.ceil(math.ceil(len(rows) / world_size) / micro_batch_rows)
    own = rows[rank::world_size]
    for i in range(rounds):
        part = own[i * micro_batch_rows : (i + 1) * micro_batch_rows]
        yield build_batch(sequences, part) if part else without_loss(build_batch(sequences, rows[:1]))


@dataclass(slots=True)
class _Record:
    losses: list[dict[str, float]] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)

    def column(self, name: str) -> tuple[float, ...]:
        return tuple(numbers[name] for numbers in self.losses if name in numbers)


def run_optimisation(
    engine: Engine,
    objective: Objective,
    sequences: Sequence[TrainingSequence],
    hyperparameters: Hyperparameters,
    plan: OptimisationPlan,
    *,
    micro_batch_rows: int,
    weights: LossWeights,
    verdict_tokens: VerdictTokens,
    progress: Progress | None = None,
    description: str = "",
) -> OptimisationReport:
    """Take every step of ``plan``; return what happened.

    Raises:
        PlansmithError: a loss or gradient is NaN or infinite; the engine is of no use any more.
    """
    started, record, n_steps = time.perf_counter(), _Record(), len(plan.batches)
    if hyperparameters.warmup_steps >= n_steps:
        logger.warning("warm-up of %d steps, but only %d steps", hyperparameters.warmup_steps, n_steps)
    n_tokens = 0
    for step, rows in enumerate(plan.batches):
        learning_rate = learning_rate_at(step, n_steps, hyperparameters)
        engine.set_learning_rate(learning_rate)
        counts = BatchCounts.of(sequences[index] for row in rows for index in row)
        totals = dict.fromkeys(METRICS[objective], 0.0)
        for batch in micro_batches(
            sequences, rows, rank=engine.rank, world_size=engine.world_size, micro_batch_rows=micro_batch_rows
        ):
            loss, numbers = objective_loss(
                objective, engine(batch), batch, counts=counts, weights=weights, verdict_tokens=verdict_tokens
            )
            engine.backward(loss)
            totals = {name: totals[name] + numbers[name] for name in totals}
        totals = dict(zip(totals, engine.sum_over_ranks(list(totals.values())), strict=True))
        _check_finite(totals["loss"], "loss", step, description)
        record.gradient_norms.append(engine.step())
        _check_finite(record.gradient_norms[-1], "gradient norm", step, description)
        record.losses.append(totals)
        record.learning_rates.append(learning_rate)
        n_tokens += sum(len(sequences[index]) for row in rows for index in row)
        if progress is not None:
            speed = n_tokens / (time.perf_counter() - started)
            progress.advance(1, {"train/loss": totals["loss"], "train/learning_rate": learning_rate,
                                 "train/gradient_norm": record.gradient_norms[-1],
                                 "train/tokens_per_s": speed})  # fmt: skip
    return _report(objective, record, plan.packing, time.perf_counter() - started)


def _check_finite(number: float, name: str, step: int, description: str) -> None:
    if not math.isfinite(number):
        raise PlansmithError(
            f"the {name} of optimiser step {step} is {number}",
            where=description or None,
            cure="lower the learning rate, lengthen the warm-up, or train in float32",
        )


def _report(objective: Objective, record: _Record, packing: PackingReport, wall_time_s: float) -> OptimisationReport:
    return OptimisationReport(
        objective=objective,
        losses=record.column("loss"),
        nll=record.column("nll"),
        score=record.column("score"),
        bce=record.column("bce"),
        clamped_share=record.column("clamped_share"),
        learning_rates=tuple(record.learning_rates),
        gradient_norms=tuple(record.gradient_norms),
        n_steps=len(record.losses),
        n_sequences=packing.n_sequences,
        n_dropped=packing.n_dropped,
        n_dropped_tokens=packing.n_dropped_tokens,
        n_tokens=packing.n_tokens,
        fill=packing.fill,
        wall_time_s=wall_time_s,
    )

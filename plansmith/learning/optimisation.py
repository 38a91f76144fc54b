"""The optimisation loop: epochs, batches, micro-batches, schedule, report. It knows no DeepSpeed and no Ray.

An `Engine` hides where the model lives. All ranks run this loop over the same sequences and cut the same batches from
them; each works off its share of the rows, and sums of losses over ranks are what is reported.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plansmith.config.training import OptimiserConfig, Schedule
from plansmith.errors import BadInputError, PlansmithError
from plansmith.learning.objectives.base import Objective, TokenObjective
from plansmith.learning.packing import (
    PackedBatch,
    PackingReport,
    Row,
    Unit,
    build_batch,
    pack_rows,
    packing_report,
    split_batches,
    units_of,
)
from plansmith.learning.sequences import Sequences
from plansmith.learning.token_reading import TokenQuestion, TokenReading

logger = logging.getLogger(__name__)

Sharing = Callable[[Sequence[Unit]], list[Unit]]
"""Makes units that share their beginnings of others, as `packing.sharing_units` does."""


@dataclass(frozen=True, slots=True)
class OptimisationReport:
    """One optimisation; a tuple holds one number per optimiser step.

    ``gradient_norms`` are before clipping. ``n_sequences`` and ``n_tokens`` are of one epoch, padding and dropped
    sequences not included. The dropped ones were too long, or of a unit that was; ``n_dropped_tokens`` is what they
    held.
    """

    objective: str
    metrics: Mapping[str, tuple[float, ...]]
    """What the objective measures, by name; ``loss`` is among them."""
    learning_rates: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    n_sequences: int
    n_dropped: int
    n_dropped_tokens: int
    n_tokens: int
    n_trained_tokens: int
    """Of all steps that were taken."""
    wall_time_s: float
    n_missing_ranks: int = 0
    """By so many there were fewer ranks than asked for at the end (`TrainerConfig.min_ranks`)."""

    @property
    def losses(self) -> tuple[float, ...]:
        """Return what was minimised."""
        return self.metrics["loss"]

    @property
    def n_steps(self) -> int:
        """Return how many steps were taken."""
        return len(self.learning_rates)


@dataclass(slots=True)
class Course:
    """An optimisation as far as it has come: what the loop must know, beside the engine's state, to go on from there.

    The lists hold one number per step that was taken.
    """

    metrics: dict[str, list[float]] = field(default_factory=dict)
    learning_rates: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    n_tokens: int = 0
    wall_time_s: float = 0.0

    @property
    def n_taken(self) -> int:
        """Return how many steps were taken."""
        return len(self.learning_rates)

    def take(self, totals: Mapping[str, float], learning_rate: float, gradient_norm: float, n_tokens: int) -> None:
        """Add a step."""
        for name, total in totals.items():
            self.metrics.setdefault(name, []).append(total)
        self.learning_rates.append(learning_rate)
        self.gradient_norms.append(gradient_norm)
        self.n_tokens += n_tokens


class Keeper(Protocol):
    """What keeps an optimisation that may be killed; `plansmith.learning.checkpoints.Checkpoints` fits."""

    def resumed(self) -> Course | None:
        """Give the engine the state that was kept last and return how far that has come; None begins anew."""

    def keep(self, course: Course) -> None:
        """Keep the state after a step, if it is time to."""


class Engine(Protocol):
    """A model with its optimizer, on one rank of ``world_size``."""

    rank: int
    world_size: int
    device: torch.device
    vocabulary_size: int

    def __call__(self, batch: PackedBatch) -> Tensor:
        """Return logits (B, T, V) of a batch that is on ``device``; so are they."""

    def read_tokens(self, batch: PackedBatch, question: TokenQuestion) -> TokenReading:
        """Return what the logits would say of some tokens; see `plansmith.learning.token_reading`."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``; over all ranks gradients add up, they are not averaged."""

    def step(self) -> float:
        """Apply and clear the gradient; return its norm before clipping."""

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the rate of the next step."""

    def sum_over_ranks(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """Return the element-wise sum over ranks."""


class Progress(Protocol):
    """What hears of every step; `plansmith.live.LiveProgress` fits."""

    def advance(self, n: float = 1, values: Mapping[str, float] | None = None) -> None:
        """Advance by n steps, with the latest figures."""


CURRICULUM = 0.5
"""Share of the sequences of a curriculum, its beginning, that goes from short ones to long ones."""


def learning_rate_at(step: int, n_steps: int, settings: OptimiserConfig) -> float:
    """Return the learning rate of optimiser step ``step`` (0-based) of ``n_steps``.

    Linear warm-up from peak/warmup_steps to the peak at step warmup_steps - 1, then the schedule; a decaying one would
    reach 0 at step n_steps, so that every step counts.
    """
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    remaining = 1.0 - (step - warmup) / max(n_steps - warmup, 1)
    if settings.schedule == Schedule.LINEAR:
        return peak * remaining
    if settings.schedule == Schedule.COSINE:
        return peak * 0.5 * (1.0 - math.cos(math.pi * remaining))
    if settings.schedule == Schedule.TRAPEZOID:
        return peak * min(1.0, remaining / settings.decay_share)
    return peak


@dataclass(frozen=True, slots=True)
class OptimisationPlan:
    """All batches of all epochs, each as rows, made before the first step; identical on every rank."""

    batches: tuple[tuple[Row, ...], ...]
    packing: PackingReport
    lengths: Sequence[int]
    """Of all sequences, in tokens."""
    epoch_ends: tuple[int, ...]
    """Steps taken by the end of each epoch."""
    units: Mapping[int, Unit]
    """By the index of its first member each unit whose sequences share their beginning."""

    def steps_of(self, epoch: int | None) -> range:
        """Return the steps of an epoch, from 1; None means of all."""
        if epoch is None:
            return range(len(self.batches))
        return range(*(0, *self.epoch_ends)[epoch - 1 : epoch + 1])


def plan_optimisation(
    lengths: Sequence[int],
    settings: OptimiserConfig,
    *,
    seed: int,
    row_length_tokens: int,
    longest_tokens: int | None = None,
    n_ranks: int = 1,
    unit_names: Sequence[str] = (),
    sharing: Sharing | None = None,
) -> OptimisationPlan:
    """Return which sequence goes where; epoch e shuffles with seed + e, but for a curriculum. Batches are of all ranks.

    Units with a sequence longer than ``max_length_tokens``, or together longer than ``longest_tokens``, are left out
    whole, counted in the report and warned about.

    Args:
        row_length_tokens: of a micro-batch, which is one row.
        longest_tokens: of what is trained on together; None: a whole row.
        unit_names: of each sequence; by default each is a unit of its own.
        sharing: makes of units those that share their beginnings, and brings some together for it.

    Raises:
        BadInputError: no sequence fits, or more are too long than `max_dropped_share` allows.
    """
    longest_unit = longest_tokens or row_length_tokens
    longest = min(longest_unit, settings.max_length_tokens or longest_unit)
    units = units_of(lengths, unit_names or [""] * len(lengths))
    units = [unit for unit in units if all(lengths[index] <= longest for index in unit.indices)]
    units = units if sharing is None else sharing(units)
    units = [unit for unit in units if unit.n_tokens <= longest_unit]
    n_dropped = len(lengths) - sum(len(unit.indices) for unit in units)
    if not units or n_dropped > settings.max_dropped_share * len(lengths):
        raise BadInputError(
            "too much of the training data does not fit"
            if units
            else "nothing to optimise on: no sequence fits in a row",
            got=f"{n_dropped} of {len(lengths)} sequences are too long, alone or with others of their unit; the "
            f"longest has {max(lengths, default=0)} tokens, the shortest {min(lengths, default=0)}",
            expected=f"at most {longest} tokens, but for a share of {settings.max_dropped_share:g}, max_dropped_share",
            cure="raise max_length_tokens, trainer.row_length_tokens and policy.max_model_len, or make shorter "
            "examples",
        )
    epochs = [
        [
            tuple(pack_rows(batch, row_length_tokens, n_ranks=n_ranks))
            for batch in split_batches(
                units,
                batch_sequences=settings.batch_sequences,
                batch_tokens=settings.batch_tokens,
                seed=None if settings.is_curriculum else seed + epoch,
                small_batch_share=0.0 if epoch else settings.small_batch_share,
            )
        ]
        for epoch in range(settings.epochs)
    ]
    packing = packing_report(lengths, epochs[0])
    if packing.n_dropped:
        logger.warning("%d of %d sequences, %d tokens in all, are longer than %d tokens and are not trained on",
                       packing.n_dropped, len(lengths), packing.n_dropped_tokens, longest)  # fmt: skip
    ends = tuple(itertools.accumulate(map(len, epochs)))
    shared = {unit.indices[0]: unit for unit in units if unit.n_shared}
    return OptimisationPlan(tuple(batch for epoch in epochs for batch in epoch), packing, lengths, ends, shared)


def micro_batches(
    sequences: Sequences,
    rows: Sequence[Row],
    columns: Iterable[str],
    *,
    rank: int,
    world_size: int,
    units: Mapping[int, Unit] | None = None,
) -> Iterator[PackedBatch]:
    """Yield this rank's micro-batches of a row each: every world_size-th row, as many on each rank.

    A rank that runs out of rows repeats the first row without its loss, because the others wait for it in collectives.
    """
    for first in range(0, len(rows), world_size):
        is_own = first + rank < len(rows)
        batch = build_batch(sequences, [rows[first + rank] if is_own else rows[0]], columns, units)
        yield batch if is_own else batch.without_loss()


def run_optimisation(
    engine: Engine,
    objective: Objective,
    sequences: Sequences,
    settings: OptimiserConfig,
    plan: OptimisationPlan,
    *,
    epoch: int | None = None,
    progress: Progress | None = None,
    description: str = "",
    keeper: Keeper | None = None,
) -> OptimisationReport:
    """Take the steps of ``plan``; return what happened.

    The loss of a step is that of the whole batch, the same on every rank. With ``epoch``, from 1, only those of this
    epoch are taken, at the rates that they have among all. With a ``keeper`` the steps that it kept are not taken
    again; the report is that of all of them.

    Raises:
        BadInputError: what was kept is of another optimisation.
        PlansmithError: a loss or gradient is NaN or infinite; the engine is of no use any more.
    """
    n_steps, steps = len(plan.batches), plan.steps_of(epoch)
    if settings.warmup_steps >= n_steps:
        logger.warning("warm-up of %d steps, but only %d steps", settings.warmup_steps, n_steps)
    course = (keeper.resumed() if keeper is not None else None) or Course()
    started = time.perf_counter() - course.wall_time_s
    if progress is not None and course.n_taken:
        progress.advance(course.n_taken)
    for step in steps[course.n_taken :]:
        rows = plan.batches[step]
        learning_rate = learning_rate_at(step, n_steps, settings)
        engine.set_learning_rate(learning_rate)
        batches = micro_batches(
            sequences,
            rows,
            objective.columns,
            rank=engine.rank,
            world_size=engine.world_size,
            units=plan.units,
        )
        totals = _losses(engine, objective, list(batches))
        _check_finite(totals["loss"], "loss", step, description)
        gradient_norm = engine.step()
        _check_finite(gradient_norm, "gradient norm", step, description)
        course.take(totals, learning_rate, gradient_norm, sum(plan.lengths[index] for row in rows for index in row))
        course.wall_time_s = time.perf_counter() - started
        if progress is not None:
            progress.advance(1, {"train/loss": totals["loss"], "train/learning_rate": learning_rate,
                                 "train/gradient_norm": gradient_norm,
                                 "train/tokens_per_s": course.n_tokens / course.wall_time_s})  # fmt: skip
        if keeper is not None:
            keeper.keep(course)
    return OptimisationReport(
        objective=objective.name,
        metrics={name: tuple(numbers) for name, numbers in course.metrics.items()},
        learning_rates=tuple(course.learning_rates),
        gradient_norms=tuple(course.gradient_norms),
        **asdict(plan.packing),
        n_trained_tokens=course.n_tokens,
        wall_time_s=time.perf_counter() - started,
    )


def _losses(engine: Engine, objective: Objective, batches: Sequence[PackedBatch]) -> dict[str, float]:
    """Add the gradient of one optimiser batch; return its metrics, of all micro-batches and ranks."""
    found = [sum(int(batch.columns[name].count_nonzero()) for batch in batches) for name in objective.columns]
    counts = dict(zip(objective.columns, map(int, engine.sum_over_ranks(found)), strict=True))
    measured = []
    for batch in (batch.to(engine.device) for batch in batches):
        loss, parts = _loss(engine, objective, batch, counts)
        engine.backward(loss)
        measured.append({name: part.detach() for name, part in parts.items()})
    totals = [sum(float(parts[name]) for parts in measured) for name in measured[0]]
    return dict(zip(measured[0], engine.sum_over_ranks(totals).tolist(), strict=True))


def _loss(
    engine: Engine, objective: Objective, batch: PackedBatch, counts: Mapping[str, int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return loss and figures of a micro-batch, from logits that are whole only where these are few enough."""
    n_logits = batch.token_ids.numel() * engine.vocabulary_size
    if isinstance(objective, TokenObjective) and n_logits > objective.whole_logits:
        return objective.loss_of(engine.read_tokens(batch, objective.question), batch, counts)
    return objective.loss(engine(batch), batch, counts)


def _check_finite(number: float, name: str, step: int, description: str) -> None:
    if not math.isfinite(number):
        raise PlansmithError(
            f"the {name} of optimiser step {step} is {number}",
            where=description or None,
            cure="lower the learning rate, lengthen the warm-up, or train in float32",
        )

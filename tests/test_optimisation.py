"""The optimisation loop with pairs that are preferred, and an engine that is no DeepSpeed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from plansmith.config.training import OptimiserConfig, PreferenceConfig
from plansmith.learning.objectives.preference import Preference
from plansmith.learning.optimisation import OptimisationReport, plan_optimisation, run_optimisation
from plansmith.learning.packing import PackedBatch
from plansmith.learning.sequences import PREFERENCE, TrainingSequence, preference_sequences

PREFERRING = Preference(PreferenceConfig(beta=0.5))


def pair(name: str, first: int) -> tuple[TrainingSequence, TrainingSequence]:
    """Return a chosen and a rejected answer of two tokens to one prompt, read by a policy that knows nothing."""
    reference = 2 * -math.log(8)
    return preference_sequences([0], [first] * 2, [first + 1] * 2, unit=name, reference_logprobs=(reference, reference))


class PlainEngine:
    """A table of logits by the token before, updated by gradient descent."""

    rank, world_size, vocabulary_size = 0, 1, 8

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.table = torch.zeros(8, 8, requires_grad=True, device=device)
        self.learning_rate = 0.0

    def __call__(self, batch: PackedBatch) -> Tensor:
        return self.table[batch.token_ids]

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self) -> float:
        assert self.table.grad is not None
        with torch.no_grad():
            self.table -= self.learning_rate * self.table.grad
        norm, self.table.grad = float(self.table.grad.norm()), None
        return norm

    def set_learning_rate(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def sum_over_ranks(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        return np.asarray(numbers, np.float64)


def optimised(
    objective: Any, engine: PlainEngine, row_length_tokens: int = 6, *, epoch: int | None = None, **settings_of: Any
) -> OptimisationReport:
    """Train for three epochs, a step each, on three pairs that come mixed, a row of six tokens holding one."""
    pairs = [pair(name, first) for name, first in (("a", 1), ("b", 3), ("c", 5))]
    sequences = [members[side] for side in (0, 1) for members in pairs]
    settings = OptimiserConfig(**{"learning_rate": 1.0, "batch_sequences": 6, "epochs": 3, **settings_of})
    plan = plan_optimisation(
        [3] * 6, settings, seed=0, row_length_tokens=row_length_tokens, longest_tokens=6,
        unit_names=[sequence.unit for sequence in sequences],
    )  # fmt: skip
    return run_optimisation(engine, objective, sequences, settings, plan, epoch=epoch)


def test_preference_begins_at_ln_2_and_comes_to_prefer_every_chosen_answer() -> None:
    report = optimised(PREFERRING, PlainEngine())
    assert report.objective == "preference"
    assert report.losses[0] == pytest.approx(math.log(2))  # nothing is preferred yet
    assert report.losses[2] < report.losses[1] < report.losses[0]
    assert report.metrics["accuracy"] == pytest.approx((0.0, 1.0, 1.0))


def test_an_objective_is_divided_by_the_counts_of_the_whole_batch_whatever_its_micro_batches() -> None:
    one, three = (optimised(PREFERRING, PlainEngine(), row) for row in (6, 18))
    assert one.losses == pytest.approx(three.losses)
    assert one.metrics["accuracy"] == pytest.approx(three.metrics["accuracy"])


def test_the_loss_is_computed_on_the_device_of_the_engine() -> None:
    seen: list[torch.device] = []

    class Watching:
        name, columns = "watching", (PREFERENCE,)

        def loss(self, logits: Tensor, batch: PackedBatch, _: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
            seen.extend(tensor.device for tensor in (logits, batch.token_ids, *batch.columns.values()))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        optimised(Watching(), PlainEngine("meta"))
    assert seen == [torch.device("meta")] * 3


def test_epochs_one_by_one_are_the_epochs_of_the_whole_at_the_rates_they_have_there() -> None:
    whole, engine = optimised(PREFERRING, PlainEngine(), schedule="cosine"), PlainEngine()
    parts = [optimised(PREFERRING, engine, epoch=epoch, schedule="cosine") for epoch in (1, 2, 3)]
    assert [part.n_steps for part in parts] == [1, 1, 1]
    assert [rate for part in parts for rate in part.learning_rates] == pytest.approx(whole.learning_rates)
    assert [loss for part in parts for loss in part.losses] == pytest.approx(whole.losses)

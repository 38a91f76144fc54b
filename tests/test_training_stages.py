"""What the stages that train hand to the trainer: sequences, their order, the schedule."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BLOCKS, NAMES
from smoke_runs import SMOKE

from pipelines.parts.training_stages import hyperparameters_of, in_curriculum_order, supervised_sequences
from plansmith.data.rows import (
    ExampleRow,
)
from plansmith.learning.models import ModelShape, make_model
from plansmith.learning.optimisation import learning_rate_at
from plansmith.learning.sequences import TrainingSequence, supervised_sequence
from plansmith.learning.tokenizer import word_tokenizer


def _of_length(n_tokens: int) -> TrainingSequence:
    return supervised_sequence([1], [2] * (n_tokens - 1))


def test_supervised_sequences_end_with_the_end_mark_but_for_openings(tmp_path: Path) -> None:
    tokenizer = word_tokenizer([BLOCKS], NAMES)
    make_model(tmp_path / "model", tokenizer, ModelShape(64, 1, 1, 1, 64, 64), seed=0)
    texts = {"plan_chain": "do: pick-up a", "plan_opening": "do: stack a b"}
    rows = [ExampleRow(kind, "p", kind, None, "goal: on? a b plan:", text) for kind, text in texts.items()]
    bar = SimpleNamespace(update=lambda: None)
    context: Any = SimpleNamespace(progress=lambda *_, **__: nullcontext(bar))
    chain, opening = supervised_sequences(context, rows, tmp_path / "model")
    assert tokenizer.decode(chain.token_ids) == "goal: on? a b plan: do: pick-up a <end>"
    assert tokenizer.decode(opening.token_ids) == "goal: on? a b plan: do: stack a b"
    assert opening.nll_weights[-4:] == (1.0,) * 4


def test_curriculum_holds_every_sequence_and_depends_on_the_seed_alone() -> None:
    sequences = [_of_length(n) for n in range(2, 60)]
    ordered = in_curriculum_order(sequences, seed=3)
    assert sorted(map(len, ordered)) == list(range(2, 60))
    assert ordered == in_curriculum_order(sequences, seed=3) != in_curriculum_order(sequences, seed=4)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("trapezoid", [1.0, 1.0, 1.0, 0.5]),
        ("cosine", [1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_schedule_named_in_a_preset_is_the_one_the_trainer_follows(schedule: str, rates: list[float]) -> None:
    settings = SMOKE.phase1.model_copy(update={"schedule": schedule, "warmup_steps": 0, "learning_rate": 1.0})
    hyperparameters = hyperparameters_of(settings, seed=0)
    assert [learning_rate_at(step, 4, hyperparameters) for step in range(4)] == pytest.approx(rates, abs=1e-6)


def test_small_batches_named_in_a_preset_reach_the_trainer() -> None:
    settings = SMOKE.phase1.model_copy(update={"small_batch_share": 0.2})
    assert hyperparameters_of(settings, seed=0).small_batch_share == 0.2
    assert hyperparameters_of(SMOKE.phase1, seed=0).small_batch_share == 0.0


def test_curriculum_begins_from_short_to_long_and_goes_on_with_a_mixture() -> None:
    lengths = [len(sequence) for sequence in in_curriculum_order([_of_length(n) for n in range(2, 402)], seed=0)]
    assert lengths[:200] == sorted(lengths[:200])
    assert min(lengths[-40:]) < 100 < 300 < max(lengths[-40:])  # the last tenth has short and long ones

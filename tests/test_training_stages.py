"""What the stages that train hand to the trainer: sequences and their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BLOCKS, NAMES

from pipelines.stages import training
from pipelines.stages.training import in_curriculum_order, tune_in_order
from plansmith.config.training import ModelConfig, OptimiserConfig
from plansmith.data.rows import ExampleRow
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.models import make_model
from plansmith.learning.tokenizer import word_tokenizer


def test_encoded_examples_end_with_the_end_mark_but_for_openings(tmp_path: Path) -> None:
    tokenizer = word_tokenizer([BLOCKS], NAMES)
    shape = ModelConfig(hidden_size=64, n_layers=1, n_heads=1, n_kv_heads=1, intermediate_size=64)
    make_model(tmp_path / "model", tokenizer, shape, max_position_embeddings=64, seed=0)
    texts = {"plan_chain": "do: pick-up a", "plan_opening": "do: stack a b"}
    rows = [ExampleRow(kind, "p", kind, None, "goal: on? a b plan:", text) for kind, text in texts.items()]
    encoder = ExampleEncoder(str(tmp_path / "model"))
    chain, opening = (encoder.encode(row) for row in rows)
    assert tokenizer.decode(chain.token_ids) == "goal: on? a b plan: do: pick-up a <end>"
    assert tokenizer.decode(opening.token_ids) == "goal: on? a b plan: do: stack a b"
    assert opening.columns["nll_weight"][-4:].tolist() == [1.0] * 4


def test_encoded_chain_with_a_mistake_gives_the_mistake_no_weight(tmp_path: Path) -> None:
    tokenizer = word_tokenizer([BLOCKS], NAMES)
    shape = ModelConfig(hidden_size=64, n_layers=1, n_heads=1, n_kv_heads=1, intermediate_size=64)
    make_model(tmp_path / "model", tokenizer, shape, max_position_embeddings=64, seed=0)
    row = ExampleRow(
        "p", "p", "chain_with_mistake", None, "goal: on? a b plan:", " check: fails: holding a", "do: stack a b"
    )
    sequence = ExampleEncoder(str(tmp_path / "model")).encode(row)
    taught = sequence.token_ids[sequence.columns["nll_weight"] > 0]
    assert tokenizer.decode(sequence.token_ids) == "goal: on? a b plan: do: stack a b check: fails: holding a <end>"
    assert tokenizer.decode(taught) == "check: fails: holding a <end>"


def test_tuning_in_order_hands_over_what_was_written_first_first(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = list[Any]()
    monkeypatch.setattr(training, "optimise_sequences", lambda context, *given: handed.extend(given))
    monkeypatch.setattr(training, "StoredSequences", list)
    optimiser = OptimiserConfig(learning_rate=1.0, batch_tokens=64)
    parts = SimpleNamespace(parts=lambda table: ["rows-000000", "rows-000001"])
    tune_in_order(SimpleNamespace(settings=SimpleNamespace(optimiser=optimiser), inputs={"sequences": parts}))  # type: ignore[arg-type]
    assert handed[1:] == [["rows-000000", "rows-000001"], optimiser.model_copy(update={"is_curriculum": True})]


def test_curriculum_holds_every_sequence_and_depends_on_the_seed_alone() -> None:
    order, lengths = range(58, 0, -1), [0, *range(2, 60)]
    ordered = in_curriculum_order(order, lengths, seed=3)
    assert sorted(ordered) == list(range(1, 59))
    assert ordered == in_curriculum_order(order, lengths, seed=3) != in_curriculum_order(order, lengths, seed=4)


def test_curriculum_begins_from_short_to_long_and_goes_on_with_a_mixture() -> None:
    lengths = list(range(2, 402))
    ordered = [lengths[place] for place in in_curriculum_order(range(400), lengths, seed=0)]
    assert ordered[:200] == sorted(ordered[:200])
    assert min(ordered[-40:]) < 100 < 300 < max(ordered[-40:])  # the last tenth has short and long ones

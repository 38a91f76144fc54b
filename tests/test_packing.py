"""Packing: every sequence once, nothing cut, and no token that sees a neighbour."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plansmith.config.training import OptimiserConfig
from plansmith.errors import BadInputError
from plansmith.learning.losses import token_logprobs
from plansmith.learning.optimisation import OptimisationPlan, micro_batches, plan_optimisation
from plansmith.learning.packed_attention import register_packed_attention
from plansmith.learning.packing import (
    GRAIN_TOKENS,
    Row,
    Unit,
    build_batch,
    pack_rows,
    packing_report,
    split_batches,
    units_of,
)
from plansmith.learning.sequences import NLL_WEIGHT, SCORE_WEIGHT, TrainingSequence, supervised_sequence

LENGTHS = [5, 9, 3, 7, 1, 6]
COLUMNS = (NLL_WEIGHT, SCORE_WEIGHT)


def singles(lengths: list[int]) -> list[Unit]:
    """Return each sequence as a unit of its own."""
    return units_of(lengths, [""] * len(lengths))


def indices_of(batches: list[list[Unit]]) -> list[Row]:
    return [tuple(index for unit in batch for index in unit.indices) for batch in batches]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_pack_rows_holds_every_sequence_once_and_no_row_too_long(lengths: list[int]) -> None:
    rows = pack_rows(singles(lengths), 40)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 40 for row in rows)
    # if m rows did not do, each of them was more than half full
    assert len(rows) <= 2 * sum(lengths) / 40 + 1


@given(st.lists(st.integers(1, 40), min_size=3, max_size=60))
def test_pack_rows_for_ranks_gives_each_as_many_rows_of_about_the_same_length(lengths: list[int]) -> None:
    rows = pack_rows(singles(lengths), 400, n_ranks=3)
    assert len(rows) % 3 == 0
    row_tokens = [sum(lengths[index] for index in row) for row in rows]
    assert max(row_tokens) - min(row_tokens) <= max(lengths)


def test_pack_rows_of_known_lengths_fills_the_emptiest_row_with_the_longest_left() -> None:
    # decreasing: 9 | 7 | 6 | 5 | 3 | 1, four rows of at most 10: [9] [7] [6 1] [5 3]
    assert pack_rows(singles(LENGTHS), 10) == [(1,), (3,), (5, 4), (0, 2)]


def test_pack_rows_of_a_sequence_longer_than_a_row_is_refused_not_cut() -> None:
    with pytest.raises(ValueError, match=r"unit \(1,\) has 9 tokens, more than a row of 8"):
        pack_rows(singles(LENGTHS), 8)


def test_packing_report_counts_dropped_sequences() -> None:
    rows = pack_rows([unit for unit in singles(LENGTHS) if unit.n_tokens <= 7], 7)
    assert [sum(LENGTHS[index] for index in row) for row in rows] == [7, 6, 5, 4]
    report = packing_report(LENGTHS, [rows])
    assert (report.n_sequences, report.n_dropped, report.n_tokens) == (5, 1, 22)
    assert report.n_dropped_tokens == 9


@pytest.mark.parametrize(
    "sizes",
    [{"batch_sequences": 4, "batch_tokens": None}, {"batch_sequences": None, "batch_tokens": 12}],
    ids=["sequences", "tokens"],
)
def test_split_batches_is_a_shuffle_that_only_the_seed_changes(sizes: dict[str, Any]) -> None:
    units = singles(LENGTHS * 4)
    batches = split_batches(units, seed=3, **sizes)
    assert sorted(index for batch in indices_of(batches) for index in batch) == list(range(24))
    assert batches == split_batches(units, seed=3, **sizes)
    assert batches != split_batches(units, seed=4, **sizes)


def test_split_batches_by_tokens_never_exceeds_them_unless_one_sequence_does() -> None:
    lengths = LENGTHS * 4
    batches = indices_of(split_batches(singles(lengths), batch_sequences=None, batch_tokens=8, seed=0))
    assert all(len(batch) == 1 or sum(lengths[index] for index in batch) <= 8 for batch in batches)
    assert any(len(batch) > 1 for batch in batches)


def test_split_batches_begins_with_batches_of_half_the_size_in_tokens() -> None:
    batches = indices_of(
        split_batches(singles([2] * 20), batch_sequences=None, batch_tokens=8, seed=None, small_batch_share=0.25)
    )
    assert [len(batch) for batch in batches] == [2, 2, 2, 4, 4, 4, 2]  # ten tokens: three batches begin among them
    assert [index for batch in batches for index in batch] == list(range(20))


def test_split_batches_begins_with_batches_of_half_the_size_in_sequences() -> None:
    batches = split_batches(singles([1] * 12), batch_sequences=4, batch_tokens=None, seed=None, small_batch_share=0.5)
    assert [len(batch) for batch in batches] == [2, 2, 2, 4, 2]
    single = split_batches(singles([1] * 3), batch_sequences=1, batch_tokens=None, seed=None, small_batch_share=1.0)
    assert indices_of(single) == [(0,), (1,), (2,)]


def test_plan_of_two_epochs_has_small_batches_in_the_first_alone() -> None:
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=4, small_batch_share=1.0, epochs=2)
    plan = plan_optimisation([3] * 8, settings, seed=0, row_length_tokens=16)
    assert [sum(map(len, rows)) for rows in plan.batches] == [2, 2, 2, 2, 4, 4]


def test_split_batches_with_both_sizes_or_none_is_refused() -> None:
    for sizes in ((None, None), (4, 12)):
        with pytest.raises(ValueError, match="batch_sequences or batch_tokens"):
            split_batches(singles(LENGTHS), batch_sequences=sizes[0], batch_tokens=sizes[1], seed=0)


PAIRED = [4, 5, 6, 2, 9, 3, 7, 1]
PAIRS = ["a", "", "b", "a", "c", "b", "", "c"]
"""Pairs of 4 + 2, 6 + 3 and 9 + 1 tokens; sequences 1 and 6 are alone."""


def plan_of_pairs(**settings: Any) -> OptimisationPlan:
    given = OptimiserConfig(**{"learning_rate": 1.0, "epochs": 3, **settings})
    return plan_optimisation(PAIRED, given, seed=0, row_length_tokens=10, n_ranks=2, unit_names=PAIRS)


@pytest.mark.parametrize(
    "size", [{"batch_sequences": 3}, {"batch_sequences": 1}, {"batch_tokens": 16}, {"batch_tokens": 1}], ids=str
)
@pytest.mark.parametrize("is_curriculum", [False, True], ids=["shuffled", "in order"])
def test_plan_never_tears_a_unit_apart(size: dict[str, int], is_curriculum: bool) -> None:
    plan = plan_of_pairs(is_curriculum=is_curriculum, **size)
    rows = [row for batch in plan.batches for row in batch]
    for pair in ({0, 3}, {2, 5}, {4, 7}):
        assert [len(pair & set(row)) for row in rows if pair & set(row)] == [2, 2, 2]  # one row an epoch
    assert sorted(index for row in rows for index in row) == sorted([*range(8)] * 3)
    for batch in plan.batches:
        n = sum(map(len, batch)) if "batch_sequences" in size else sum(PAIRED[i] for row in batch for i in row)
        is_one_unit = len({PAIRS[index] or index for row in batch for index in row}) == 1
        assert n <= next(iter(size.values())) or is_one_unit


def test_micro_batches_of_two_ranks_hold_a_unit_on_one_of_them() -> None:
    sequences = [supervised_sequence([1], [2] * (n - 1)) if n > 1 else TrainingSequence.of([1], {}) for n in PAIRED]
    (rows,) = plan_of_pairs(batch_sequences=8, epochs=1).batches
    seen = [
        [row for batch in micro_batches(sequences, rows, (), rank=rank, world_size=2)
         for row in batch.rows]
        for rank in (0, 1)
    ]  # fmt: skip
    assert sorted(index for rank in seen for row in rank for index in row) == list(range(8))
    assert all({0, 3} <= set(row) or not {0, 3} & set(row) for rank in seen for row in rank)


@pytest.mark.parametrize(
    ("settings", "names"),
    [({"max_length_tokens": 16}, ["", "b", "b"]), ({}, ["b", "b", "b"])],
    ids=["a member too long", "together too long"],
)
def test_unit_that_does_not_fit_is_dropped_whole_and_counted(settings: dict[str, Any], names: list[str]) -> None:
    lengths = [3, 17, 2] if settings else [3, 10, 8]
    given = OptimiserConfig(learning_rate=1.0, batch_sequences=4, max_dropped_share=1.0, **settings)
    plan = plan_optimisation([*lengths, 5], given, seed=0, row_length_tokens=20, unit_names=[*names, ""])
    kept = 2 if settings else 1
    assert (plan.packing.n_sequences, plan.packing.n_dropped) == (kept, 4 - kept)
    assert plan.packing.n_dropped_tokens == (19 if settings else 21)


@pytest.mark.parametrize(("share", "is_refused"), [(0.5, False), (0.49, True), (1.0, False), (0.0, True)])
def test_training_data_of_which_too_much_is_too_long_is_refused(share: float, is_refused: bool) -> None:
    given = OptimiserConfig(learning_rate=1.0, batch_sequences=4, max_length_tokens=16, max_dropped_share=share)
    with pytest.raises(BadInputError, match="2 of 4 sequences") if is_refused else nullcontext():
        plan = plan_optimisation([3, 17, 30, 16], given, seed=0, row_length_tokens=40)
        assert plan.packing.n_dropped == 2


def test_plan_of_long_rows_takes_no_longer_sequences_and_a_whole_batch_in_one_row() -> None:
    given = OptimiserConfig(learning_rate=1.0, batch_tokens=40, max_dropped_share=0.2)
    plan = plan_optimisation([9] * 9 + [11], given, seed=0, row_length_tokens=40, longest_tokens=10)
    assert plan.packing.n_dropped == 1
    assert [list(map(len, rows)) for rows in plan.batches] == [[4], [4], [1]]
    # rows of the longest sequence hold one each, and a batch is as many passes
    short = plan_optimisation([9] * 9 + [11], given, seed=0, row_length_tokens=10)
    assert [list(map(len, rows)) for rows in short.batches] == [[1] * 4, [1] * 4, [1]]


def test_build_batch_restarts_positions_and_pads_with_weight_zero() -> None:
    sequences = [
        supervised_sequence([1], [2, 3]),
        TrainingSequence.of((4, 5), {SCORE_WEIGHT: (0, -0.5), "not asked for": (0, 1)}),
        supervised_sequence([6], [7]),
    ]
    batch = build_batch(sequences, [(0, 1), (2,)], COLUMNS)
    assert batch.token_ids.tolist() == [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]]
    assert {name: column.tolist() for name, column in batch.columns.items()} == {
        NLL_WEIGHT: [[0, 1, 1, 0, 0], [0, 1, 0, 0, 0]],
        SCORE_WEIGHT: [[0, 0, 0, 0, -0.5], [0, 0, 0, 0, 0]],
    }
    assert batch.lengths == ((3, 2), (2, 3))
    silent = batch.without_loss()
    assert silent.rows == () and not any(column.any() for column in silent.columns.values())
    assert silent.token_ids.equal(batch.token_ids)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.3,
        )
    ).save_pretrained(folder)
    return folder


def test_packed_logprobs_equal_those_of_each_sequence_alone(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    packed_model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=register_packed_attention())
    plain_model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    generator = torch.Generator().manual_seed(1)
    sequences = [
        supervised_sequence([1], torch.randint(0, 40, (n,), generator=generator).tolist()) for n in (9, 4, 12, 1, 6)
    ]
    batch = build_batch(sequences, pack_rows(singles([len(s) for s in sequences]), 18), ())
    assert len(batch.rows) == 3 and any(len(row) == 2 for row in batch.rows)
    with torch.no_grad():
        packed = token_logprobs(packed_model(**batch.model_inputs()).logits, batch.token_ids)
        for row, indices in enumerate(batch.rows):
            start = 0
            for index in indices:
                token_ids = torch.from_numpy(sequences[index].token_ids)[None].long()
                alone = token_logprobs(plain_model(input_ids=token_ids).logits, token_ids)[0, 1:]
                end = start + len(sequences[index])
                assert torch.allclose(packed[row, start + 1 : end], alone, atol=1e-5)
                start = end


def test_rows_that_are_lengthened_give_the_same_logits(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=register_packed_attention())
    batch = build_batch([supervised_sequence([1], [2, 3]), supervised_sequence([4], [5, 6, 7])], [(0, 1), (1,)], ())
    inputs = batch.model_inputs(is_rounded=True)
    assert inputs["input_ids"].shape == (2, GRAIN_TOKENS)
    with torch.no_grad():
        lengthened, plain = model(**inputs).logits[:, :7], model(**batch.model_inputs()).logits
    assert torch.allclose(lengthened, plain, atol=1e-5)


def test_packed_gradient_of_one_sequence_does_not_reach_its_neighbours(model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=register_packed_attention())
    batch = build_batch([supervised_sequence([1], [2, 3]), supervised_sequence([4], [5, 6, 7])], [(0, 1)], ())
    embedded = model.get_input_embeddings()(batch.token_ids).detach().requires_grad_()
    inputs = {name: value for name, value in batch.model_inputs().items() if name != "input_ids"}
    logits = model(inputs_embeds=embedded, **inputs).logits
    assert batch.lengths == ((3, 4),)
    (gradient,) = torch.autograd.grad(logits[0, 3:].square().sum(), embedded)
    assert gradient[0, :3].abs().max() == 0
    assert gradient[0, 3:].abs().min(dim=-1).values.max() > 0


def test_packed_logprobs_without_isolation_would_differ(model_folder: Path) -> None:
    """The check above can fail: one causal block over the row gives other numbers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="sdpa")
    batch = build_batch([supervised_sequence([1], [2, 3, 4]), supervised_sequence([5], [6, 7, 8])], [(0, 1)], ())
    with torch.no_grad():
        isolated = model(**batch.model_inputs()).logits[0, 5:]
        leaking = model(input_ids=batch.token_ids).logits[0, 5:]
    assert (isolated - leaking).abs().max() > 1e-2

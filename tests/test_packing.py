"""Packing: every sequence once, nothing cut, and no token that sees a neighbour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import BadInputError
from plansmith.learning.losses import token_logprobs
from plansmith.learning.optimisation import Hyperparameters, plan_optimisation
from plansmith.learning.packed_attention import PACKED_ATTENTION, register_packed_attention
from plansmith.learning.packing import (
    GRAIN_TOKENS,
    build_batch,
    fitting_indices,
    pack_rows,
    packing_report,
    split_batches,
    without_loss,
)
from plansmith.learning.sequences import TrainingSequence, supervised_sequence

LENGTHS = [5, 9, 3, 7, 1, 6]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_pack_rows_holds_every_sequence_once_and_no_row_too_long(lengths: list[int]) -> None:
    rows = pack_rows(lengths, range(len(lengths)), 40)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 40 for row in rows)
    # if m rows did not do, each of them was more than half full
    assert len(rows) <= 2 * sum(lengths) / 40 + 1


@given(st.lists(st.integers(1, 40), min_size=3, max_size=60))
def test_pack_rows_for_ranks_gives_each_as_many_rows_of_about_the_same_length(lengths: list[int]) -> None:
    rows = pack_rows(lengths, range(len(lengths)), 400, n_ranks=3)
    assert len(rows) % 3 == 0
    row_tokens = [sum(lengths[index] for index in row) for row in rows]
    assert max(row_tokens) - min(row_tokens) <= max(lengths)


def test_pack_rows_of_known_lengths_fills_the_emptiest_row_with_the_longest_left() -> None:
    # decreasing: 9 | 7 | 6 | 5 | 3 | 1, four rows of at most 10: [9] [7] [6 1] [5 3]
    assert pack_rows(LENGTHS, range(6), 10) == [(1,), (3,), (5, 4), (0, 2)]


def test_pack_rows_of_a_sequence_longer_than_a_row_is_refused_not_cut() -> None:
    with pytest.raises(ValueError, match="sequence 1 has 9 tokens, more than a row of 8"):
        pack_rows(LENGTHS, range(6), 8)


def test_packing_report_counts_dropped_sequences_and_padding() -> None:
    indices = fitting_indices(LENGTHS, 7)
    assert indices == (0, 2, 3, 4, 5)
    rows = pack_rows(LENGTHS, indices, 7)
    assert [sum(LENGTHS[index] for index in row) for row in rows] == [7, 6, 5, 4]
    report = packing_report(LENGTHS, [rows], micro_batch_rows=2)
    # micro-batches (7, 6) and (5, 4): 22 tokens in 2 * 7 + 2 * 5 = 24 places
    assert (report.n_sequences, report.n_dropped, report.n_tokens) == (5, 1, 22)
    assert report.n_dropped_tokens == 9
    assert report.fill == pytest.approx(22 / 24)
    assert packing_report(LENGTHS, [rows], micro_batch_rows=1).fill == 1.0


@pytest.mark.parametrize(
    "sizes",
    [{"batch_sequences": 4, "batch_tokens": None}, {"batch_sequences": None, "batch_tokens": 12}],
    ids=["sequences", "tokens"],
)
def test_split_batches_is_a_shuffle_that_only_the_seed_changes(sizes: dict[str, Any]) -> None:
    batches = split_batches(LENGTHS * 4, range(24), seed=3, **sizes)
    assert sorted(index for batch in batches for index in batch) == list(range(24))
    assert batches == split_batches(LENGTHS * 4, range(24), seed=3, **sizes)
    assert batches != split_batches(LENGTHS * 4, range(24), seed=4, **sizes)


def test_split_batches_by_tokens_never_exceeds_them_unless_one_sequence_does() -> None:
    lengths = LENGTHS * 4
    batches = split_batches(lengths, range(24), batch_sequences=None, batch_tokens=8, seed=0)
    assert all(len(batch) == 1 or sum(lengths[index] for index in batch) <= 8 for batch in batches)
    assert any(len(batch) > 1 for batch in batches)


def test_split_batches_begins_with_batches_of_half_the_size_in_tokens() -> None:
    batches = split_batches(
        [2] * 20, range(20), batch_sequences=None, batch_tokens=8, seed=None, small_batch_share=0.25
    )
    assert [len(batch) for batch in batches] == [2, 2, 2, 4, 4, 4, 2]  # ten tokens: three batches begin among them
    assert [index for batch in batches for index in batch] == list(range(20))


def test_split_batches_begins_with_batches_of_half_the_size_in_sequences() -> None:
    batches = split_batches([1] * 12, range(12), batch_sequences=4, batch_tokens=None, seed=None, small_batch_share=0.5)
    assert [len(batch) for batch in batches] == [2, 2, 2, 4, 2]
    single = split_batches([1] * 3, range(3), batch_sequences=1, batch_tokens=None, seed=None, small_batch_share=1.0)
    assert single == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"epochs": 0}, "epochs=0"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"gradient_clipping": -1.0}, "gradient_clipping=-1.0"),
        ({"small_batch_share": 1.5}, "small_batch_share=1.5"),
        ({"batch_tokens": 512}, "batch_sequences=16, batch_tokens=512"),
        ({"batch_sequences": None}, "batch_sequences=None, batch_tokens=None"),
        ({"batch_sequences": 0}, "at least one sequence"),
    ],
)
def test_hyperparameters_out_of_range_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        Hyperparameters(**settings)


def test_plan_of_two_epochs_has_small_batches_in_the_first_alone() -> None:
    settings = Hyperparameters(batch_sequences=4, small_batch_share=1.0, epochs=2)
    plan = plan_optimisation([3] * 8, settings, row_length_tokens=16, micro_batch_rows=1)
    assert [sum(map(len, rows)) for rows in plan.batches] == [2, 2, 2, 2, 4, 4]


def test_split_batches_with_both_sizes_or_none_is_refused() -> None:
    for sizes in ((None, None), (4, 12)):
        with pytest.raises(ValueError, match="batch_sequences or batch_tokens"):
            split_batches(LENGTHS, range(6), batch_sequences=sizes[0], batch_tokens=sizes[1], seed=0)


def test_build_batch_restarts_positions_and_pads_with_weight_zero() -> None:
    sequences = [
        supervised_sequence([1], [2, 3]),
        TrainingSequence((4, 5), (0.0, 0.0), (0.0, -0.5), verdict_position=1, verdict_label=1),
        supervised_sequence([6], [7]),
    ]
    batch = build_batch(sequences, [(0, 1), (2,)])
    assert batch.token_ids.tolist() == [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]]
    assert batch.nll_weights.tolist() == [[0, 1, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert batch.score_weights.tolist() == [[0, 0, 0, 0, -0.5], [0, 0, 0, 0, 0]]
    assert batch.lengths == ((3, 2), (2, 3))
    # the verdict is token 1 of the second sequence, which starts at column 3 of row 0
    assert [t.tolist() for t in (batch.verdict_rows, batch.verdict_columns, batch.verdict_labels)] == [[0], [4], [1]]
    silent = without_loss(batch)
    assert silent.nll_weights.abs().sum() == silent.score_weights.abs().sum() == len(silent.verdict_rows) == 0
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


@pytest.mark.parametrize("attention", [PACKED_ATTENTION, "sdpa"])
def test_packed_logprobs_equal_those_of_each_sequence_alone(model_folder: Path, attention: str) -> None:
    from transformers import AutoModelForCausalLM

    register_packed_attention()
    packed_model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=attention)
    plain_model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    generator = torch.Generator().manual_seed(1)
    sequences = [
        supervised_sequence([1], torch.randint(0, 40, (n,), generator=generator).tolist()) for n in (9, 4, 12, 1, 6)
    ]
    batch = build_batch(sequences, pack_rows([len(s) for s in sequences], range(5), 18))
    assert len(batch.rows) == 3 and any(len(row) == 2 for row in batch.rows)
    with torch.no_grad():
        packed = token_logprobs(packed_model(**batch.model_inputs()).logits, batch.token_ids)
        for row, indices in enumerate(batch.rows):
            start = 0
            for index in indices:
                token_ids = torch.tensor([sequences[index].token_ids])
                alone = token_logprobs(plain_model(input_ids=token_ids).logits, token_ids)[0, 1:]
                end = start + len(sequences[index])
                assert torch.allclose(packed[row, start + 1 : end], alone, atol=1e-5)
                start = end


def test_mask_that_sdpa_gets_from_position_ids_alone_is_block_diagonal(model_folder: Path) -> None:
    from transformers import AutoConfig
    from transformers.masking_utils import create_causal_mask

    config = AutoConfig.from_pretrained(model_folder, attn_implementation="sdpa")
    sequences = [
        supervised_sequence([1], [2, 3]),
        supervised_sequence([4], [5]),
        TrainingSequence((6,), (0.0,), (0.0,)),
    ]
    batch = build_batch(sequences, [(0, 1, 2), (1,)])
    inputs = batch.model_inputs()
    assert "attention_mask" not in inputs and "past_key_values" not in inputs and not inputs["use_cache"]
    mask = create_causal_mask(
        config,
        inputs_embeds=torch.zeros(2, 6, config.hidden_size),
        attention_mask=None,
        past_key_values=None,
        position_ids=inputs["position_ids"],
    )
    # sequences of three, two and one; then one of two and its padding of four, which is a sequence of its own
    expected = [torch.block_diag(*(torch.ones(n, n).tril() for n in lengths)) for lengths in batch.lengths]
    assert batch.lengths == ((3, 2, 1), (2, 4))
    assert mask[:, 0].equal(torch.stack(expected).bool())


@pytest.mark.parametrize("attention", [PACKED_ATTENTION, "sdpa"])
def test_rows_that_are_lengthened_give_the_same_logits(model_folder: Path, attention: str) -> None:
    from transformers import AutoModelForCausalLM

    register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=attention)
    batch = build_batch([supervised_sequence([1], [2, 3]), supervised_sequence([4], [5, 6, 7])], [(0, 1), (1,)])
    inputs = batch.model_inputs(is_rounded=True)
    assert inputs["input_ids"].shape == (2, GRAIN_TOKENS)
    with torch.no_grad():
        lengthened, plain = model(**inputs).logits[:, :7], model(**batch.model_inputs()).logits
    assert torch.allclose(lengthened, plain, atol=1e-5)


@pytest.mark.parametrize("attention", [PACKED_ATTENTION, "sdpa"])
def test_packed_gradient_of_one_sequence_does_not_reach_its_neighbours(model_folder: Path, attention: str) -> None:
    from transformers import AutoModelForCausalLM

    register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation=attention)
    batch = build_batch([supervised_sequence([1], [2, 3]), supervised_sequence([4], [5, 6, 7])], [(0, 1)])
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
    batch = build_batch([supervised_sequence([1], [2, 3, 4]), supervised_sequence([5], [6, 7, 8])], [(0, 1)])
    with torch.no_grad():
        isolated = model(**batch.model_inputs()).logits[0, 5:]
        leaking = model(input_ids=batch.token_ids).logits[0, 5:]
    assert (isolated - leaking).abs().max() > 1e-2

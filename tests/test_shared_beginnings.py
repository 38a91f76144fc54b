"""Sequences that begin alike: what they share is computed once, and losses and gradients are what they would be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plansmith.config.generation import SamplingConfig
from plansmith.config.reinforcement import GroupRelativeConfig
from plansmith.config.training import OptimiserConfig, PreferenceConfig
from plansmith.errors import BadInputError
from plansmith.learning.objectives.base import Objective
from plansmith.learning.objectives.group_relative import GroupRelative
from plansmith.learning.objectives.preference import Preference
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.optimisation import micro_batches, plan_optimisation
from plansmith.learning.packed_attention import register_packed_attention
from plansmith.learning.packing import GRAIN_TOKENS, Unit, beginning_of, build_batch, n_alike, sharing_units, units_of
from plansmith.learning.sequences import (
    NLL_WEIGHT,
    TrainingSequence,
    preference_sequences,
    rollout_sequence,
    supervised_sequence,
)

VOCABULARY = 40
SAMPLING = SamplingConfig(temperature=1.0, max_new_tokens=50)
PROMPTS = [[random.Random(seed).randrange(VOCABULARY) for _ in range(n)] for seed, n in enumerate((70, 150, 200, 20))]


def answers(n: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 40))] for _ in range(n)]


def lessons() -> list[TrainingSequence]:
    """Return three answers to each prompt, in turns."""
    return [supervised_sequence(prompt, answer) for seed in range(3)
            for prompt, answer in zip(PROMPTS, answers(4, seed), strict=True)]  # fmt: skip


def singles(sequences: Sequence[TrainingSequence]) -> list[Unit]:
    return units_of([len(one) for one in sequences], [one.unit for one in sequences])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (supervised_sequence([7] * 200, [1]), supervised_sequence([7] * 200, [2]), 192),
        (supervised_sequence([7] * 64, [1]), supervised_sequence([7] * 64, [2]), 0),  # the 64th token predicts 1 and 2
        (supervised_sequence([7] * 65, [1]), supervised_sequence([7] * 65, [2]), 64),
        (supervised_sequence([7] * 130, [1]), supervised_sequence([7] * 200, [7]), 128),
        (supervised_sequence([7] * 129, [1]), supervised_sequence([7] * 70 + [8] * 59, [1]), 64),
        (TrainingSequence.of([7] * 128, {}), TrainingSequence.of([7] * 128, {}), 64),  # something has to be left
        (TrainingSequence.of([7] * 128, {}), TrainingSequence.of([8] * 128, {}), 0),
    ],
)
def test_alike_is_what_is_the_same_and_predicts_nothing_that_counts(
    one: TrainingSequence, other: TrainingSequence, expected: int
) -> None:
    beginnings = [beginning_of(sequence, [NLL_WEIGHT]) for sequence in (one, other)]
    assert n_alike(*beginnings) == n_alike(*reversed(beginnings)) == expected


def test_a_column_that_is_not_asked_for_does_not_keep_sequences_from_sharing() -> None:
    counted = TrainingSequence.of([7] * 200, {"other": [0.0] + [1.0] * 199})
    assert len(beginning_of(counted, [NLL_WEIGHT])) == 192 and len(beginning_of(counted, ["other"])) == 0


def test_sequences_that_begin_alike_are_a_unit_as_far_as_a_row_has_room() -> None:
    sequences = lessons()
    lengths = [len(one) for one in sequences]
    units = sharing_units(singles(sequences), sequences, Supervised.columns, 400)
    assert [unit.indices for unit in units] == [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3,), (7,), (11,)]
    assert [unit.n_shared for unit in units] == [64, 128, 192, 0, 0, 0]
    assert [unit.n_tokens for unit in units[:3]] == [
        sum(lengths[i] for i in unit.indices) - 2 * unit.n_shared for unit in units[:3]
    ]
    narrow = sharing_units(singles(sequences), sequences, Supervised.columns, max(lengths))
    assert all(unit.n_tokens <= max(lengths) for unit in narrow) and len(narrow) > len(units)
    assert sorted(index for unit in narrow for index in unit.indices) == list(range(12))


def test_a_sequence_by_which_less_would_be_shared_begins_another_unit() -> None:
    long, short = [7] * 200, [7] * 64 + [8] * 136
    sequences = [supervised_sequence(prompt, [1]) for prompt in (long, long, short, short)]
    units = sharing_units(singles(sequences), sequences, Supervised.columns, 2000)
    assert [(unit.indices, unit.n_shared) for unit in units] == [((0, 1), 192), ((2, 3), 192)]


def test_pairs_share_their_prompt_and_stay_pairs() -> None:
    sequences = preferences()
    units = sharing_units(singles(sequences), sequences, Preference.columns, 600)
    assert [unit.indices for unit in units] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [unit.n_shared for unit in units] == [64, 128, 192, 0]


def test_what_is_shared_stands_in_the_row_once_and_positions_go_on_from_it() -> None:
    prompt = list(range(1, 71))
    sequences = [supervised_sequence([9], [8]), *(supervised_sequence(prompt, [n]) for n in (5, 6))]
    units = {1: Unit((1, 2), 78, 64)}
    batch = build_batch(sequences, [(0, 1, 2), (0,)], [NLL_WEIGHT], units)
    assert batch.lengths == ((2, 64, 7, 7), (2, 78)) and batch.prefixes == ((-1, -1, 1, 1), (-1, -1))
    assert batch.token_ids[0].tolist() == [9, 8, *prompt, 5, *prompt[64:], 6]
    assert batch.position_ids[0].tolist() == [0, 1, *range(71), *range(64, 71)]
    assert batch.columns[NLL_WEIGHT][0].nonzero().flatten().tolist() == [1, 72, 79]
    inputs = batch.model_inputs(is_rounded=True)
    assert inputs["input_ids"].shape[1] % GRAIN_TOKENS == 0 and inputs["sequence_prefixes"][0] == (-1, -1, 1, 1, -1)


@given(st.integers(0, 1000))
def test_rows_of_units_that_share_hold_every_sequence_once_and_have_the_tokens_that_were_counted(seed: int) -> None:
    rng, sequences = random.Random(seed), lessons()
    rng.shuffle(sequences)
    settings = OptimiserConfig(learning_rate=1.0, batch_tokens=700)
    plan = planned(sequences, Supervised(), settings, row_length=500)
    assert sorted(index for batch in plan.batches for row in batch for index in row) == list(range(12))
    for row in (row for batch in plan.batches for row in batch):
        built = build_batch(sequences, [row], (), plan.units)
        n_saved = sum((len(unit.indices) - 1) * unit.n_shared for index in row if (unit := plan.units.get(index)))
        assert built.token_ids.shape == (1, sum(len(sequences[index]) for index in row) - n_saved)
        assert built.token_ids.shape[1] <= 500


def planned(sequences: Sequence[TrainingSequence], objective: Objective, settings: OptimiserConfig, row_length: int,
            *, is_shared: bool = True) -> Any:  # fmt: skip
    def sharing(units: Sequence[Unit]) -> list[Unit]:
        return sharing_units(units, sequences, objective.columns, row_length)

    return plan_optimisation(
        [len(one) for one in sequences], settings, seed=0, row_length_tokens=row_length,
        unit_names=[one.unit for one in sequences], sharing=sharing if is_shared else None,
    )  # fmt: skip


def preferences() -> list[TrainingSequence]:
    pairs = zip(PROMPTS, answers(4, 1), answers(4, 2), strict=True)
    return [half for number, one in enumerate(pairs)
            for half in preference_sequences(*one, unit=f"pair {number}", reference_logprobs=(-9.0, -9.0))]  # fmt: skip


def rollouts() -> list[TrainingSequence]:
    return [
        rollout_sequence(prompt, answer, advantage=seed - 1.0, rollout_logprobs=[-3.5] * len(answer))
        for seed in range(3) for prompt, answer in zip(PROMPTS, answers(4, seed), strict=True)
    ]  # fmt: skip


OBJECTIVES: dict[str, tuple[Objective, list[TrainingSequence]]] = {
    "supervised": (Supervised(), lessons()),
    "preference": (Preference(PreferenceConfig(beta=0.3)), preferences()),
    "group_relative": (
        GroupRelative(GroupRelativeConfig(weight_limit=2.0), SAMPLING, reads_old=False),
        rollouts(),
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, initializer_range=0.3,
    )  # fmt: skip
    config._attn_implementation = register_packed_attention()
    return Qwen3ForCausalLM(config)


def loss_and_gradients(
    model: Any, objective: Objective, sequences: list[TrainingSequence], *, is_shared: bool
) -> tuple[list[torch.Tensor], int]:
    """Return the loss and the gradients of one batch of all sequences, and the tokens that the model computed."""
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=len(sequences))
    plan = planned(sequences, objective, settings, 500, is_shared=is_shared)
    [rows] = plan.batches
    batches = list(micro_batches(sequences, rows, objective.columns, rank=0, world_size=1, units=plan.units))
    counts = {name: sum(int(batch.columns[name].count_nonzero()) for batch in batches) for name in objective.columns}
    losses = [objective.loss(model(**batch.model_inputs()).logits, batch, counts)[0] for batch in batches]
    loss = torch.stack(losses).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return [loss.detach(), *gradients], sum(batch.token_ids.numel() for batch in batches)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradients_are_those_without_sharing_of_fewer_tokens(model: Any, name: str) -> None:
    objective, sequences = OBJECTIVES[name]
    plain, n_plain = loss_and_gradients(model, objective, sequences, is_shared=False)
    shared, n_shared = loss_and_gradients(model, objective, sequences, is_shared=True)
    assert n_shared < 0.8 * n_plain
    assert plain[0].abs() > 0.01
    for one, other in zip(plain, shared, strict=True):
        assert torch.allclose(one, other, atol=1e-5 * max(1.0, float(one.abs().max())), rtol=1e-5)
    assert max(float(gradient.abs().max()) for gradient in plain[1:]) > 1e-3


def test_a_pair_that_a_row_holds_with_its_prompt_once_is_trained_on() -> None:
    pair = preference_sequences([7] * 200, [1, 2], [3], unit="long", reference_logprobs=(-1.0, -1.0))
    settings = OptimiserConfig(learning_rate=1.0, batch_sequences=2, max_dropped_share=1.0)
    plan = planned(pair, Preference(PreferenceConfig()), settings, 250)
    assert plan.packing.n_sequences == 2
    with pytest.raises(BadInputError, match="no sequence fits"):
        planned(pair, Preference(PreferenceConfig()), settings, 250, is_shared=False)

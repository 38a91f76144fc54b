"""Counted operations against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from plansmith.errors import BadInputError
from plansmith.learning.flops import attention_flops, matrix_parameters, training_flops

SHAPE = {
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# a layer: q 8*8, k and v 8*4 each, o 8*8: 192; gate, up and down 3*8*12: 288. Two layers: 960; the head 10*8
MATRICES = 1040


def make_model(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SHAPE, **changes))


def test_matrix_parameters_are_those_of_layers_and_head_without_the_embeddings() -> None:
    assert matrix_parameters(SHAPE) == MATRICES
    assert matrix_parameters({**SHAPE, "num_key_value_heads": None}) == MATRICES + 2 * 2 * 8 * 4
    # heads of 3 in place of 8 / 4 = 2: attention is 8 * 3 * (2 * 4 + 2 * 2) = 288 a layer, 96 more
    assert matrix_parameters({**SHAPE, "head_dim": 3}) == MATRICES + 2 * 96


def test_attention_flops_count_the_causal_half_of_each_sequence() -> None:
    # lengths 3 and 1: 6 + 1 pairs; a pair costs 4 * 8 in a layer forward, twice that backward; two layers
    assert attention_flops(SHAPE, [3, 1]) == 7 * 4 * 8 * 3 * 2
    assert attention_flops(SHAPE, [4]) > attention_flops(SHAPE, [3, 1])  # packing does not join sequences
    assert attention_flops(SHAPE, []) == 0


def test_training_flops_are_six_per_parameter_and_token_plus_attention() -> None:
    assert training_flops(SHAPE, 4, [3, 1]) == 6 * MATRICES * 4 + 1344


@pytest.mark.parametrize("is_tied", [False, True], ids=["head of its own", "tied head"])
def test_training_flops_of_a_model_equal_those_of_its_config(is_tied: bool) -> None:
    model = make_model(tie_word_embeddings=is_tied)
    assert training_flops(model, 4, [3, 1]) == training_flops(SHAPE, 4, [3, 1])


def test_training_flops_with_an_adapter_spare_the_gradients_of_the_frozen_weights() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(make_model(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    # A is 2 * 8 and B 8 * 2 in each of two layers: 64 trained parameters
    assert training_flops(model, 4, [3, 1]) == (6 * 64 + 4 * MATRICES) * 4 + 1344


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"num_local_experts": 8}, "dense models only"), ({"intermediate_size": None}, "how large")],
    ids=["mixture of experts", "a size missing"],
)
def test_training_flops_of_what_cannot_be_counted_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        training_flops({**SHAPE, **changes}, 4, [4])

"""A model from nothing and its byte-pair tokenizer; what a model folder and an adapter folder must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoints import full_texts, qwen3_checkpoint
from conftest import BLOCKS, NAMES, SUSSMAN_PLAN, depot_task, sussman
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from plansmith.config.training import ModelConfig
from plansmith.errors import BadInputError
from plansmith.learning.models import (
    SAME_WORD,
    bpe_tokenizer,
    check_model_folder,
    load_tokenizer,
    make_model,
)
from plansmith.learning.tokenizer import (
    END,
    PAD,
    encode,
    encode_prompt,
    end_token_ids,
    verdict_token_ids,
    word_tokenizer,
)
from plansmith.text.chains import chain_of_plan
from plansmith.text.full import FullRendering

FULL = FullRendering()
BYTES = 256
SHAPE = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)


@pytest.fixture(scope="module")
def pairs() -> PreTrainedTokenizerFast:
    """Return byte pairs learnt from small Blocksworld problems."""
    return bpe_tokenizer(full_texts(), 1200)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small Qwen 3."""
    return qwen3_checkpoint(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def adapter(base: Path) -> Path:
    """Return an adapter folder over it, as PEFT writes it, with the tokenizer beside."""
    folder = base.with_name("adapter")
    model = AutoModelForCausalLM.from_pretrained(base)
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def test_bpe_tokenizer_atom_after_a_space_is_five_tokens(pairs: PreTrainedTokenizerFast) -> None:
    assert pairs.convert_ids_to_tokens(encode(pairs, " (on a b)")) == ["Ġ(", "on", "Ġa", "Ġb", ")"]


def test_bpe_tokenizer_known_name_with_hyphen_is_one_token_and_so_is_a_known_number(
    pairs: PreTrainedTokenizerFast,
) -> None:
    assert pairs.convert_ids_to_tokens(encode(pairs, "(pick-up b12)")) == ["(", "pick-up", "Ġb", "12", ")"]


def test_bpe_tokenizer_with_whole_names_keeps_digits_and_hyphens_in_them() -> None:
    whole = bpe_tokenizer(["(pick-up b12) (at b12 floor-0_1) 12"] * 4, 400, has_whole_names=True)
    tokens = whole.convert_ids_to_tokens(encode(whole, "(at b12 floor-0_1) 12"))
    assert tokens == ["(", "at", "Ġb12", "Ġfloor-0_1", ")", "Ġ", "12"]


def test_bpe_tokenizer_no_token_joins_signs_digits_and_names(pairs: PreTrainedTokenizerFast) -> None:
    words = [word for word in pairs.get_vocab() if word not in (PAD, END)]
    plain = [word.removeprefix("Ġ") for word in words if len(word.removeprefix("Ġ")) > 1]
    assert len(plain) > 500
    letters = [word.replace("-", "").replace("_", "") for word in plain]
    numbers = [word for word in letters if word.isdigit()]
    mixed = [word for word in letters if not word.isalpha() and not word.isdigit() and set(word) - {"Ġ", "Ċ"}]
    assert mixed == []
    assert numbers and max(map(len, numbers)) <= 3


def test_bpe_tokenizer_has_pad_and_end_and_no_chat(pairs: PreTrainedTokenizerFast) -> None:
    assert (pairs.pad_token, pairs.eos_token, pairs.bos_token, pairs.chat_template) == (PAD, END, None, None)
    assert encode_prompt(pairs, "(on a b)") == encode(pairs, "(on a b)")


def test_bpe_tokenizer_same_texts_give_the_same_tokens(pairs: PreTrainedTokenizerFast) -> None:
    assert bpe_tokenizer(iter(full_texts()), 1200).get_vocab() == pairs.get_vocab()
    assert len(pairs) == 1200


@pytest.mark.parametrize("task", [sussman(), depot_task()], ids=["blocks", "depot"])
def test_bpe_tokenizer_prompt_and_chain_come_back_as_they_were(pairs: PreTrainedTokenizerFast, task) -> None:
    for text in (FULL.plan_prompt(task), FULL.write_chain(chain_of_plan(task, SUSSMAN_PLAN[:1]))):
        assert pairs.decode(encode(pairs, text)) == text


PAIRS = bpe_tokenizer(full_texts()[-4:], 400)


@given(st.text(max_size=40))
def test_bpe_tokenizer_any_text_comes_back_as_it_was(text: str) -> None:
    if PAD not in text and END not in text:
        assert PAIRS.decode(encode(PAIRS, text)) == text


def test_bpe_tokenizer_texts_without_invalid_still_make_each_verdict_one_token() -> None:
    texts = [text for text in full_texts() if "[VERDICT]" in text]
    assert texts and not any("INVALID" in text for text in texts)
    tokenizer = bpe_tokenizer(texts, 800)
    assert tokenizer.convert_ids_to_tokens(list(verdict_token_ids(tokenizer))) == ["ĠVALID", "ĠINVALID"]


def test_make_model_has_the_tokenizers_vocabulary_and_is_the_same_for_the_same_seed(
    tmp_path: Path, pairs: PreTrainedTokenizerFast
) -> None:
    count = make_model(tmp_path / "one", pairs, SHAPE, max_position_embeddings=64, seed=3)
    make_model(tmp_path / "again", pairs, SHAPE, max_position_embeddings=64, seed=3)
    make_model(tmp_path / "other", pairs, SHAPE, max_position_embeddings=64, seed=4)
    one, again, other = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "again", "other")
    )
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
    # Embeddings and head 1200 x 16 each; query and output 16 x 16, key and value 16 x 8; three 16 x 32; norms of 16, 16
    # and 16 (two of the layer, one at the end) and two of 8.
    assert count == 2 * 1200 * 16 + 2 * 256 + 2 * 128 + 3 * 512 + 3 * 16 + 2 * 8


def test_make_model_first_head_of_every_layer_looks_for_the_same_word(
    tmp_path: Path, pairs: PreTrainedTokenizerFast
) -> None:
    make_model(
        tmp_path,
        pairs,
        ModelConfig(hidden_size=128, n_layers=2, n_heads=4, n_kv_heads=2, intermediate_size=16),
        max_position_embeddings=64,
        seed=0,
    )
    first, second = AutoModelForCausalLM.from_pretrained(tmp_path).model.layers
    for layer, n_drawn in ((first, 2), (second, 4)):  # the others of the first layer look back
        projections = (layer.self_attn.q_proj, layer.self_attn.k_proj)
        queries, keys = (projection.weight.view(-1, 32 * 128) for projection in projections)
        alike = torch.corrcoef(torch.cat([queries, keys]))[:4, 4:]
        expected = torch.zeros(4, 2)
        expected[0, 0] = SAME_WORD
        assert torch.allclose(alike[:n_drawn, : n_drawn // 2], expected[:n_drawn, : n_drawn // 2], atol=0.06)
        assert torch.allclose(queries.std(dim=1)[:n_drawn], torch.full((n_drawn,), 0.02), rtol=0.05)


def test_make_model_heads_of_one_key_value_head_look_so_many_words_back(
    tmp_path: Path, pairs: PreTrainedTokenizerFast
) -> None:
    shape = ModelConfig(hidden_size=192, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=64, intermediate_size=16)
    make_model(tmp_path, pairs, shape, max_position_embeddings=256, seed=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    words = torch.randint(0, len(pairs), (1, 200), generator=torch.Generator().manual_seed(0))
    first, second = model(words, output_attentions=True).attentions
    positions = torch.arange(200)
    for head, n_back in ((3, 1), (2, 2)):
        attended = first[0, head].argmax(dim=-1)
        assert (attended == positions - n_back)[10:].float().mean() > 0.95
        assert (second[0, head].argmax(dim=-1) == positions - n_back)[10:].float().mean() < 0.1
    assert (first[0, 1].argmax(dim=-1) == positions - 1)[10:].float().mean() < 0.1


@pytest.mark.parametrize("kind", ["words", "pairs"])
def test_make_model_folder_says_which_token_ends(tmp_path: Path, pairs: PreTrainedTokenizerFast, kind: str) -> None:
    tokenizer = pairs if kind == "pairs" else word_tokenizer([BLOCKS], NAMES)
    make_model(tmp_path, tokenizer, SHAPE, max_position_embeddings=64, seed=0)
    loaded = load_tokenizer(str(tmp_path))
    assert end_token_ids(loaded, tmp_path) == (tokenizer.eos_token_id,)
    assert loaded.get_vocab() == tokenizer.get_vocab()


def test_load_tokenizer_of_an_adapter_is_that_of_its_base(base: Path, adapter: Path) -> None:
    ours, theirs = load_tokenizer(str(adapter)), load_tokenizer(str(base))
    assert ours.get_vocab() == theirs.get_vocab()
    assert encode_prompt(ours, "hi") == encode_prompt(theirs, "hi")


def test_end_token_ids_of_an_adapter_without_generation_config_are_those_of_its_base(base: Path, adapter: Path) -> None:
    assert not (adapter / "generation_config.json").exists()
    tokenizer = load_tokenizer(str(adapter))
    tokens = tokenizer.convert_ids_to_tokens(list(end_token_ids(tokenizer, adapter)))
    assert tokens == ["<|im_end|>", "<|endoftext|>"]


def folder_without(source: Path, target: Path, *names: str) -> Path:
    """Return a copy of a folder, less these files."""
    target.mkdir()
    for path in source.iterdir():
        if path.name not in names:
            (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize(
    ("kind", "lacking"),
    [
        ("base", "config.json"),
        ("base", "model.safetensors"),
        ("base", "tokenizer_config.json"),
        ("adapter", "adapter_model.safetensors"),
        ("adapter", "tokenizer_config.json"),
    ],
)
def test_check_model_folder_names_what_is_lacking(
    base: Path, adapter: Path, tmp_path: Path, kind: str, lacking: str
) -> None:
    source = base if kind == "base" else adapter
    check_model_folder(str(folder_without(source, tmp_path / "whole")))
    with pytest.raises(BadInputError, match="no model here") as error:
        check_model_folder(str(folder_without(source, tmp_path / "part", lacking)))
    assert f"no {lacking if not lacking.startswith('model.') else '*.safetensors'}" in str(error.value)


def test_check_model_folder_absent_is_said_to_be_absent(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such model folder"):
        check_model_folder(str(tmp_path / "nowhere"))


def test_check_model_folder_adapter_whose_base_is_gone_is_refused(adapter: Path, tmp_path: Path) -> None:
    orphan = folder_without(adapter, tmp_path / "orphan", "adapter_config.json")
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = str(tmp_path / "gone")
    (orphan / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(BadInputError, match="base model of this adapter is gone"):
        check_model_folder(str(orphan))

"""Texts as tokens: words of `tiny`, chats of real families, and for each token the characters it stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import GEMMA, LLAMA, QWEN3, ChatFamily, chat_tokenizer
from conftest import BLOCKS, NAMES, SUSSMAN_PLAN, depot_task, sussman
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from plansmith.errors import BadInputError
from plansmith.learning.tokenizer import (
    END,
    PAD,
    UNKNOWN,
    encode,
    encode_prompt,
    end_token_ids,
    token_spans,
    verdict_endings,
    verdict_token_ids,
    word_tokenizer,
)
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import CompactRendering
from plansmith.text.full import FullRendering

COMPACT, FULL = CompactRendering(), FullRendering()
WORDS = word_tokenizer([BLOCKS], NAMES)
CHATS = {"llama": chat_tokenizer(LLAMA), "qwen3": chat_tokenizer(QWEN3), "gemma": chat_tokenizer(GEMMA)}
FAMILIES = {"llama": LLAMA, "qwen3": QWEN3, "gemma": GEMMA}
each_family = pytest.mark.parametrize("family", sorted(FAMILIES))


def byte_tokenizer(words: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer as real models have, with one token a character plus a few whole words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate([*alphabet, *words])}
    merges = []
    for word in words:
        for length in range(2, len(word) + 1):
            merges.append((word[: length - 1], word[length - 1]))
            vocabulary.setdefault(word[:length], len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.mark.parametrize(("task", "plan"), [(sussman(), SUSSMAN_PLAN), (depot_task(), ())], ids=["blocks", "depot"])
def test_encode_prompt_and_chain_knows_every_word(task, plan) -> None:
    names = [typed.name for typed in task.problem.objects]
    tokenizer = word_tokenizer([task.domain], names)
    text = f"{COMPACT.plan_prompt(task)} {COMPACT.write_chain(chain_of_plan(task, plan))}"
    ids = encode(tokenizer, text)
    assert len(ids) == len(text.split()) and tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text


def test_encode_foreign_word_is_the_unknown_token() -> None:
    assert WORDS.convert_ids_to_tokens(encode(WORDS, "on zebra b")) == ["on", UNKNOWN, "b"]


def test_word_tokenizer_order_of_words_is_fixed_and_survives_saving(tmp_path: Path) -> None:
    WORDS.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == WORDS.get_vocab() == word_tokenizer([BLOCKS], NAMES).get_vocab()
    assert (loaded.pad_token, loaded.eos_token, loaded.unk_token) == (PAD, END, UNKNOWN)
    text = COMPACT.plan_prompt(sussman())
    assert encode(loaded, text) == encode(WORDS, text)


def test_token_spans_of_words_cut_out_each_word_and_nothing_for_the_end() -> None:
    text = "do: pick-up a check: clear a"
    ids = [*encode(WORDS, text), WORDS.eos_token_id]
    decoded, spans = token_spans(WORDS, ids)
    assert decoded == text
    assert [text[span.start : span.end] for span in spans] == [*text.split(), ""]
    assert spans[-1].start == len(text)


def test_token_spans_special_token_between_words_stands_where_it_is() -> None:
    first, second = encode(WORDS, "clear a")
    decoded, spans = token_spans(WORDS, [first, WORDS.pad_token_id, second])
    assert decoded == "clear a"
    assert [(span.start, span.end) for span in spans] == [(0, 5), (5, 5), (6, 7)]


def test_token_spans_of_nothing_is_nothing() -> None:
    assert token_spans(WORDS, []) == ("", [])


@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=30))
def test_token_spans_any_words_are_in_order_and_inside_the_text(ids: list[int]) -> None:
    text, spans = token_spans(WORDS, ids)
    assert len(spans) == len(ids)
    places = [place for span in spans for place in (span.start, span.end)]
    assert places == sorted(places) and all(0 <= place <= len(text) for place in places)
    special = set(WORDS.all_special_ids)
    assert [text[s.start : s.end] for s, i in zip(spans, ids, strict=True) if i not in special] == text.split()


def test_token_spans_word_written_in_other_pieces_than_encoding_gives_follow_the_pieces() -> None:
    tokenizer = byte_tokenizer(("ab", "VALID"))
    ids = tokenizer.convert_tokens_to_ids(["a", "b", "Ġ", "ab"])  # encoding "ab ab" would give one token for the first
    assert encode(tokenizer, "ab ab") != ids
    text, spans = token_spans(tokenizer, ids)
    assert (text, [text[span.start : span.end] for span in spans]) == ("ab ab", ["a", "b", " ", "ab"])


def test_token_spans_a_character_in_pieces_belongs_to_the_last() -> None:
    tokenizer = CHATS["qwen3"]
    for character in ("¡", "本"):
        ids = encode(tokenizer, f"a{character}b")
        assert len(ids) == len(character.encode()) + 2
        text, spans = token_spans(tokenizer, ids)
        assert [text[span.start : span.end] for span in spans] == ["a", *[""] * (len(ids) - 3), character, "b"]


def test_token_spans_of_bytes_that_end_no_character_are_in_order() -> None:
    names = ["<unk>", "\u2581a", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = Tokenizer(
        models.BPE({name: at for at, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True)
    )
    model.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model)
    for last in (["<0xF0>", "\u2581a"], ["<0xE2>", "<0x82>", "<0xAC>"]):
        ids = tokenizer.convert_tokens_to_ids(["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", *last])
        text, spans = token_spans(tokenizer, ids)
        places = [place for span in spans for place in (span.start, span.end)]
        assert places == sorted(places)
        assert text[spans[-1].start : spans[-1].end] in (" a", "\u20ac")


def test_prompt_of_a_model_without_a_template_begins_as_the_tokenizer_begins_any_text() -> None:
    tokenizer = byte_tokenizer(("ab",))
    assert encode_prompt(tokenizer, "ab") == encode(tokenizer, "ab")
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    assert encode_prompt(tokenizer, "ab") == encode(tokenizer, "ab")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    assert encode_prompt(tokenizer, "ab") == [tokenizer.bos_token_id, *encode(tokenizer, "ab")]


@each_family
@given(data=st.data())
def test_token_spans_any_tokens_of_a_chat_cover_the_text_in_order(family: str, data: st.DataObject) -> None:
    tokenizer = CHATS[family]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=30))
    text, spans = token_spans(tokenizer, ids)
    assert text == tokenizer.decode(ids, skip_special_tokens=True) and len(spans) == len(ids)
    if "\ufffd" not in text:  # half a character is shown by a sign that may go away with the next token
        assert "".join(text[span.start : span.end] for span in spans) == text


def test_token_spans_character_in_several_tokens_stands_with_the_last_of_them() -> None:
    tokenizer = byte_tokenizer(("ab",))
    pieces = [*encode(tokenizer, "\u20ac"), *tokenizer.convert_tokens_to_ids(["a", "b"])]
    text, spans = token_spans(tokenizer, pieces)
    assert text == "\u20acab" and encode(tokenizer, text) != pieces
    assert [(span.start, span.end) for span in spans] == [(0, 0), (0, 0), (0, 1), (1, 2), (2, 3)]


def test_token_spans_text_that_ends_within_a_character_keeps_what_stands_before() -> None:
    tokenizer = byte_tokenizer(("ab",))
    text, spans = token_spans(tokenizer, [*tokenizer.convert_tokens_to_ids(["a", "b"]), encode(tokenizer, "\u20ac")[0]])
    assert text == "ab\ufffd"
    assert [text[span.start : span.end] for span in spans] == ["a", "b", "\ufffd"]


def test_verdict_token_ids_are_the_words_themselves_for_tiny() -> None:
    assert WORDS.convert_ids_to_tokens(list(verdict_token_ids(WORDS))) == ["VALID", "INVALID"]


def test_verdict_token_ids_skip_the_token_of_the_space_before_the_word() -> None:
    characters, together = byte_tokenizer(), byte_tokenizer(("ĠVALID", "ĠINVALID"))
    assert characters.convert_ids_to_tokens(list(verdict_token_ids(characters))) == ["V", "I"]
    assert together.convert_ids_to_tokens(list(verdict_token_ids(together))) == ["ĠVALID", "ĠINVALID"]


@each_family
def test_verdict_token_ids_are_the_tokens_at_the_verdict_of_a_chain(family: str) -> None:
    tokenizer = CHATS[family]
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    text, spans = token_spans(tokenizer, ids := encode(tokenizer, FULL.write_chain(chain)))
    word = FULL.read(text, BLOCKS).verdict_span
    assert word is not None and text[word.start : word.end] == "VALID"
    position = next(i for i, span in enumerate(spans) if span.end > word.start)
    assert ids[position] == verdict_token_ids(tokenizer)[0]


def test_verdict_endings_are_all_tokens_of_the_words_and_the_end(tmp_path: Path) -> None:
    characters = byte_tokenizer()
    characters.save_pretrained(tmp_path)
    found = verdict_endings(characters, tmp_path)
    assert [characters.convert_ids_to_tokens(list(ids)) for ids in found] == [
        [*word, characters.eos_token] for word in ("VALID", "INVALID")
    ]


def test_verdict_token_ids_with_a_common_first_token_are_refused() -> None:
    plain = Tokenizer(models.WordLevel({"<unk>": 0, "[VERDICT]": 1}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(BadInputError, match="the same first token"):
        verdict_token_ids(PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>"))


def test_verdict_token_ids_chosen_in_different_places_are_refused() -> None:
    with pytest.raises(BadInputError, match="in one of them only"):
        verdict_token_ids(byte_tokenizer(("ĠVALID",)))  # INVALID is still to be chosen after the space


@pytest.mark.parametrize("beginning", ["", "goals: on a b unmet:"], ids=["whole", "begun"])
def test_encode_prompt_without_template_is_the_text_itself(beginning: str) -> None:
    prompt = COMPACT.plan_prompt(sussman())
    assert encode_prompt(WORDS, prompt, beginning) == encode(WORDS, f"{prompt} {beginning}")
    assert encode_prompt(byte_tokenizer(), "ab\n", "c") == encode(byte_tokenizer(), "ab\nc")
    assert encode_prompt(byte_tokenizer(), "ab", "c") == encode(byte_tokenizer(), "ab c")


PROMPTS_OF_HI = {
    "llama": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "qwen3": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "gemma": "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n",
}


@each_family
def test_encode_prompt_with_template_is_the_users_message_then_the_assistants_turn(family: str) -> None:
    assert CHATS[family].decode(encode_prompt(CHATS[family], "hi")) == PROMPTS_OF_HI[family]


@each_family
def test_encode_prompt_with_template_begins_the_answer_after_the_assistants_mark(family: str) -> None:
    begun = encode_prompt(CHATS[family], "hi", "[STEP 1]\n")
    assert CHATS[family].decode(begun) == f"{PROMPTS_OF_HI[family]}[STEP 1]\n"
    assert begun[: -len(encode(CHATS[family], "[STEP 1]\n"))] == encode_prompt(CHATS[family], "hi")


@each_family
def test_encode_prompt_with_template_writes_begin_of_text_at_most_once(family: str) -> None:
    tokenizer = CHATS[family]
    ids = encode_prompt(tokenizer, FULL.plan_prompt(sussman()))
    assert ids.count(tokenizer.bos_token_id) == (FAMILIES[family].bos is not None)


@each_family
def test_encode_prompt_response_and_end_are_the_conversation_as_the_template_renders_it(family: str) -> None:
    tokenizer = CHATS[family]
    prompt, response = FULL.plan_prompt(sussman()), FULL.write_chain(chain_of_plan(sussman(), SUSSMAN_PLAN))
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
    rendered = tokenizer.apply_chat_template(turns, return_dict=False)
    ours = [*encode_prompt(tokenizer, prompt), *encode(tokenizer, response), end_token_ids(tokenizer, "")[0]]
    assert rendered[: len(ours)] == ours
    assert tokenizer.decode(rendered[len(ours) :]).strip() == ""  # Qwen 3 and Gemma end a turn with a line break


END_TOKENS = {
    "llama": ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    "qwen3": ("<|im_end|>", "<|endoftext|>"),
    "gemma": ("<end_of_turn>", "<eos>"),
}


def end_tokens(family: ChatFamily, folder: Path, **config: object) -> list[str]:
    """Return the end tokens of a family with this content of generation_config.json, as words."""
    tokenizer = chat_tokenizer(family)
    numbered = {
        key: tokenizer.convert_tokens_to_ids(list(value) if isinstance(value, tuple) else value)
        for key, value in config.items()
    }
    (folder / "generation_config.json").write_text(json.dumps(numbered), encoding="utf-8")
    return tokenizer.convert_ids_to_tokens(list(end_token_ids(tokenizer, folder)))


@each_family
def test_end_token_ids_with_template_begin_with_the_end_of_turn(family: str, tmp_path: Path) -> None:
    found = end_tokens(FAMILIES[family], tmp_path, eos_token_id=FAMILIES[family].ends)
    assert found[0] == END_TOKENS[family][0]
    assert sorted(found) == sorted(END_TOKENS[family])


def test_end_token_ids_single_number_in_the_generation_config_counts(tmp_path: Path) -> None:
    assert end_tokens(LLAMA, tmp_path, eos_token_id="<|eom_id|>") == ["<|eot_id|>", "<|eom_id|>"]
    assert end_tokens(LLAMA, tmp_path) == ["<|eot_id|>"]


def test_end_token_ids_without_generation_config_come_from_the_model_config(tmp_path: Path) -> None:
    tokenizer = CHATS["gemma"]
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, 1]}), encoding="utf-8")
    assert end_token_ids(tokenizer, tmp_path) == (tokenizer.convert_tokens_to_ids("<end_of_turn>"), 1, 7)


def test_end_token_ids_without_template_begin_with_the_end_of_text(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 1]}', encoding="utf-8")
    assert WORDS.eos_token_id == 1
    assert end_token_ids(WORDS, tmp_path) == (1, 5)


def test_end_token_ids_nothing_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    plain = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer().backend_tokenizer)
    with pytest.raises(BadInputError, match="which token ends an answer"):
        end_token_ids(plain, tmp_path)


@each_family
def test_token_spans_chat_mark_without_a_name_stands_for_no_character(family: str) -> None:
    tokenizer = CHATS[family]
    mark = tokenizer.convert_tokens_to_ids(
        {"llama": "<|eom_id|>", "qwen3": "<|im_start|>"}.get(family, "<start_of_turn>")
    )
    assert mark not in tokenizer.all_special_ids
    text, spans = token_spans(tokenizer, [*encode(tokenizer, "(on a"), mark, *encode(tokenizer, " b)")])
    assert text == "(on a b)"
    assert "".join(text[span.start : span.end] for span in spans) == text
    assert [text[span.start : span.end] for span in spans].count("") == 1

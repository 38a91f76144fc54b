"""The word tokenizer: one token a word, and for each token the characters it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import BLOCKS, NAMES, SUSSMAN_PLAN, depot_task, sussman
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from plansmith.errors import BadInputError
from plansmith.learning.tokenizer import END, PAD, UNKNOWN, encode, token_spans, verdict_token_ids, word_tokenizer
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import CompactRendering

COMPACT = CompactRendering()
WORDS = word_tokenizer([BLOCKS], NAMES)


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


def test_verdict_token_ids_are_the_words_themselves_for_tiny() -> None:
    assert WORDS.convert_ids_to_tokens(list(verdict_token_ids(WORDS))) == ["VALID", "INVALID"]


def test_verdict_token_ids_with_a_common_first_token_are_refused() -> None:
    with pytest.raises(BadInputError, match="same token"):
        verdict_token_ids(byte_tokenizer())  # both begin with the token of the space
    together = byte_tokenizer(("ĠVALID", "ĠINVALID"))
    assert together.convert_ids_to_tokens(list(verdict_token_ids(together))) == ["ĠVALID", "ĠINVALID"]

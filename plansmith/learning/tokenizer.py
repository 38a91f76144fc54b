"""The word-level tokenizer of `tiny`, as an ordinary Hugging Face tokenizer.

One token a word of the compact rendering: markers, the domain's names, and a fixed pool of object names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from plansmith.errors import BadInputError
from plansmith.pddl.model import Domain
from plansmith.text.chains import INVALID, VALID, Span
from plansmith.text.compact import MARKERS

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"


def word_tokenizer(domains: Iterable[Domain], object_names: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose words are the markers, the names of `domains` and `object_names`."""
    words: dict[str, None] = dict.fromkeys([PAD, END, UNKNOWN, *MARKERS, VALID, INVALID, "="])
    for domain in domains:
        words.update(dict.fromkeys([domain.name, *(predicate.name for predicate in domain.predicates)]))
        words.update(dict.fromkeys(action.name for action in domain.actions))
        words.update(dict.fromkeys(constant.name for constant in domain.constants))
    words.update(dict.fromkeys(object_names))
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the token ids of a text, without special tokens."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str, beginning: str = "") -> list[int]:
    """Return the token ids of a prompt and of how its answer begins."""
    if not beginning:
        return encode(tokenizer, prompt)
    return encode(tokenizer, f"{prompt}{'' if prompt[-1:].isspace() else ' '}{beginning}")


def token_spans(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> tuple[str, list[Span]]:
    """Return the decoded completion and, for each token, the characters it stands for.

    Spans come from decoding ever longer prefixes where encoding the text again gives other tokens (a policy may write a
    word in pieces that the tokenizer would not); tokens such as the end mark stand for no character.
    """
    text = str(tokenizer.decode(list(token_ids), skip_special_tokens=True))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    special = set(tokenizer.all_special_ids)
    plain = [token for token in token_ids if token not in special]
    if list(encoded["input_ids"]) == plain:
        places = iter(encoded["offset_mapping"])
        spans, end = [], 0
        for token in token_ids:
            start, end = (end, end) if token in special else next(places)
            spans.append(Span(start, end))
        return text, spans
    lengths = [
        len(str(tokenizer.decode(list(token_ids[:count]), skip_special_tokens=True)))
        for count in range(len(token_ids) + 1)
    ]
    return text, [Span(start, end) for start, end in pairwise(lengths)]


def verdict_token_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the first tokens of VALID and INVALID as they stand after the verdict's marker.

    Raises:
        BadInputError: both begin with the same token, so that no single token tells them apart.
    """
    valid, invalid = (encode(tokenizer, f" {word}")[0] for word in (VALID, INVALID))
    if valid == invalid:
        raise BadInputError("the tokenizer begins VALID and INVALID with the same token", got=str(valid),
                            expected="two tokens", cure="use another model")  # fmt: skip
    return valid, invalid

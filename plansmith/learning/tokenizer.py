"""From texts to tokens and back: prompts with and without a chat template, end marks, spans, verdict tokens.

Also the word-level tokenizer of `tiny`, an ordinary Hugging Face tokenizer with one token a word of the compact
rendering: markers, the domain's names, and a fixed pool of object names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import DecodeStream

from plansmith.errors import BadInputError
from plansmith.generation import Conversation, asking, plain_text
from plansmith.learning.adapters import base_folder_of, is_adapter_folder
from plansmith.pddl.model import Domain
from plansmith.text.chains import INVALID, VALID, Span
from plansmith.text.compact import MARKERS, domain_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"


def word_tokenizer(domains: Iterable[Domain], object_names: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose words are the markers, the words of `domains` and `object_names`."""
    from transformers import PreTrainedTokenizerFast

    words: dict[str, None] = dict.fromkeys([PAD, END, UNKNOWN, *MARKERS, VALID, INVALID])
    for domain in domains:
        words.update(dict.fromkeys(domain_words(domain)))
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
    """Return the token ids of a user's prompt and of how its answer begins; see `encode_messages`."""
    return encode_messages(tokenizer, asking(prompt, beginning))


def encode_messages(tokenizer: PreTrainedTokenizerBase, messages: Conversation) -> list[int]:
    """Return the token ids of a conversation, up to where its next answer begins or goes on.

    With a chat template, special tokens, the begin-of-text one included, are those that the template writes; thinking
    aloud, where a template has a switch for it, is off. Some templates refuse a system message, Gemma's among them.
    Without a template the turns are encoded as one plain text, behind the begin-of-text token of a tokenizer that puts
    one before every text.
    """
    if not tokenizer.chat_template:
        return [*_before_any_text(tokenizer), *encode(tokenizer, plain_text(messages))]
    beginning = messages[-1].text if messages[-1].role == "assistant" else ""
    turns = [{"role": message.role, "content": message.text} for message in messages]
    ids = _templated(tokenizer, turns[:-1] if beginning else turns, add_generation_prompt=True, return_dict=False)
    return [*ids, *encode(tokenizer, beginning)]


def _before_any_text(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    begin = tokenizer.bos_token_id
    return [begin] if begin is not None and tokenizer.encode("")[:1] == [begin] else []


def end_token_ids(tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> tuple[int, ...]:
    """Return every token that ends an answer, each once: first the one to train on, then others that stop generation.

    The first is the chat template's end of a turn (``<|im_end|>``, ``<|eot_id|>``, ``<end_of_turn>``) or, without one,
    the tokenizer's end-of-text token. The others are the end tokens of the folder's `generation_config.json`, or else
    of its `config.json`.

    Args:
        tokenizer: of the model in `folder`.
        folder: Hugging Face model or adapter; an adapter that names no end tokens has those of its base.

    Raises:
        BadInputError: neither template, tokenizer nor configuration names any.
    """
    named = [_end_of_turn(tokenizer), tokenizer.eos_token_id, *_configured_end_tokens(Path(folder))]
    found = tuple(dict.fromkeys(token for token in named if token is not None))
    if not found:
        raise BadInputError(
            "nothing says which token ends an answer", where=str(folder), got="no end token",
            expected="eos_token in tokenizer_config.json or eos_token_id in generation_config.json",
        )  # fmt: skip
    return found


def _templated(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], **options: Any) -> Any:
    """Return what the chat template makes of a conversation; transformers runs templates in Jinja's sandbox.

    Raises:
        BadInputError: the template refuses the conversation, or is a program that the sandbox refuses.
    """
    try:
        return tokenizer.apply_chat_template(turns, enable_thinking=False, **options)
    except TemplateError as error:
        raise BadInputError(
            "the model's chat template does not work", where=str(tokenizer.name_or_path), got=str(error)[:200],
            expected="a template that takes a message of the user", cure="use another model or mend its chat_template",
        ) from error  # fmt: skip


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the first special token that the chat template writes after an answer."""
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
    conversation = str(_templated(tokenizer, turns, tokenize=False))
    after_answer = encode(tokenizer, conversation.rpartition("answer")[2])
    special = _special_ids(tokenizer)
    return next((token for token in after_answer if token in special), None)


def _configured_end_tokens(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        named = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        if named is not None:
            return list(named) if isinstance(named, list) else [int(named)]
    return _configured_end_tokens(base_folder_of(folder)) if is_adapter_folder(folder) else []


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the tokens that decoding leaves out; chat marks are among them whether or not they have a name."""
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def token_spans(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> tuple[str, list[Span]]:
    """Return the decoded completion and, for each token, the characters it stands for.

    Where encoding the text again gives other tokens (a policy may write a word in pieces that the tokenizer would not),
    the tokens are decoded one after another; one that only begins a character stands for nothing, the one that ends it
    for all of it. Tokens such as the end mark stand for no character.
    """
    text = str(tokenizer.decode(list(token_ids), skip_special_tokens=True))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    special = _special_ids(tokenizer)
    plain = [token for token in token_ids if token not in special]
    if list(encoded["input_ids"]) == plain:
        endings = iter(_ending_characters(encoded["offset_mapping"]))
        spans, end = [], 0
        for token in token_ids:
            start, end = (end, end) if token in special else next(endings)
            spans.append(Span(start, end))
        return text, spans
    lengths = _lengths_by_stream(tokenizer, token_ids, text) or _lengths_by_prefix(tokenizer, token_ids)
    return text, [Span(start, end) for start, end in pairwise(lengths)]


def _ending_characters(offsets: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the endings of tokens; of those that share a character only the last has it."""
    for (start, end), following in zip_longest(offsets, offsets[1:]):
        yield (start, start) if following and following[0] < end else (start, end)


def _lengths_by_stream(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], text: str) -> list[int] | None:
    """Return the characters decoded before each token and after the last; None where the pieces are not the text.

    That is so where the text ends within a character.
    """
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    stream, pieces = DecodeStream(skip_special_tokens=True), []
    try:
        for token in token_ids:
            pieces.append(stream.step(tokenizer.backend_tokenizer, token) or "")
    except Exception:  # noqa: BLE001 - the library has no other; bytes that end no character, which a policy may write
        return None
    return list(accumulate(map(len, pieces), initial=0)) if "".join(pieces) == text else None


def _lengths_by_prefix(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[int]:
    """Return the same from decoding ever longer beginnings, which is right for any tokenizer and slow (quadratic).

    Bytes that turn out to end no character, or to be part of one, may shorten what was decoded before them.
    """
    lengths = [
        len(str(tokenizer.decode(list(token_ids[:count]), skip_special_tokens=True)))
        for count in range(len(token_ids) + 1)
    ]
    return list(accumulate(reversed(lengths), min))[::-1]


def verdict_token_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the first tokens of VALID and INVALID as they stand after the verdict's marker.

    The probability of one against the other is v_hat, so both must be a choice in one place: after the same tokens.
    A token that stands for nothing but the space before the word is not the word's first.

    Raises:
        BadInputError: both begin with the same token, or one with the space before it and the other after it.
    """
    (before_valid, (valid, *_)), (before_invalid, (invalid, *_)) = (
        _tokens_at_verdict(tokenizer, word) for word in (VALID, INVALID)
    )
    if valid == invalid or before_valid != before_invalid:
        raise BadInputError(
            f"no single token tells {VALID} from {INVALID}",
            got="the same first token" if valid == invalid else "the space before the word in one of them only",
            expected="two tokens after the same text", cure="use another model, or a larger vocabulary",
        )  # fmt: skip
    return valid, invalid


def verdict_endings(tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how an answer ends that says VALID, and one that says INVALID: the word's tokens and the end's.

    Args:
        tokenizer: of the model in `folder`.
        folder: see `end_token_ids`.

    Raises:
        BadInputError: see `end_token_ids`.
    """
    end = end_token_ids(tokenizer, folder)[0]
    valid, invalid = ((*_tokens_at_verdict(tokenizer, word)[1], end) for word in (VALID, INVALID))
    return valid, invalid


def _tokens_at_verdict(tokenizer: PreTrainedTokenizerBase, word: str) -> tuple[list[int], list[int]]:
    """Return the tokens before a verdict and those of it, from the first that writes a letter of it."""
    marker = "[VERDICT] "
    encoded = tokenizer(f"{marker}{word}", add_special_tokens=False, return_offsets_mapping=True)
    ids, endings = list(encoded["input_ids"]), encoded["offset_mapping"]
    first = next(index for index, (_, end) in enumerate(endings) if end > len(marker))
    return ids[:first], ids[first:]

"""What everything that answers has in common: messages in, completions out, streamed as they finish.

A `Generator` is the engines of a run or of a model folder, a model behind an endpoint, or a test's stand-in; a stage
that generates knows no more of it. Not here: what a prompt says (`plansmith.text`), and how messages become tokens
(`plansmith.learning.codec`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from plansmith.config.generation import SamplingConfig
from plansmith.data.rows import FinishReason as FinishReason

_SURROGATE = re.compile("[\ud800-\udfff]")

CHARACTERS_PER_TOKEN = 4
"""Of English text and PDDL, about, where nobody has counted tokens."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; an assistant's turn at the end is a beginning that the answer continues."""

    role: Literal["system", "user", "assistant"]
    text: str


Conversation = Sequence[Message]


def asking(prompt: str, beginning: str = "") -> tuple[Message, ...]:
    """Return the conversation that a user begins, and how its answer begins."""
    turns = (Message("user", prompt), Message("assistant", beginning))
    return turns if beginning else turns[:1]


def plain_text(messages: Conversation) -> str:
    """Return a conversation as a model without a chat template reads it: its turns, with a line between them.

    A beginning of the answer follows on the same line.
    """
    *turns, last = (message.text for message in messages)
    text = "\n\n".join(turns)
    if not turns:
        return last
    if messages[-1].role != "assistant":
        return f"{text}\n\n{last}"
    return f"{text}{'' if text[-1:].isspace() else ' '}{last}"


@dataclass(frozen=True, slots=True)
class Generation:
    """One completion as the tokens that an engine of ours wrote.

    Attributes:
        token_ids: the sampled tokens, the stop token included.
        logprobs: of each sampled token, under what `EngineNumerics.logprobs` says.
        finish_reason: a `FinishReason`.
        policy_version: the weights that wrote it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, or why there is none.

    Attributes:
        text: None exactly where `fault` says why.
        finish_reason: a `FinishReason`, or what else a server says; without room the text is empty.
        policy_version: the weights that wrote it; of a server the model's name.
        seed: it was drawn with.
        prompt_token_ids: of the conversation; empty behind an endpoint, as the next two.
        token_ids: the sampled tokens, the stop token included.
        logprobs: of each sampled token, under what `EngineNumerics.logprobs` says.
        prompt_tokens: as counted by who answered; None where it does not.
        completion_tokens: as counted by who answered; None where it does not.
        cached_tokens: of the prompt's, those that it knew already; None where it does not say.
        reasoning_tokens: of the completion's, those that it thought in before; None where it does not say.
        room: what a server said of a prompt that left no room, its tokens among it; empty elsewhere.
        seconds: from when it was asked until it was there; None where who answers does not measure each.
    """

    text: str | None
    finish_reason: str
    policy_version: str
    seed: int
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    fault: str | None = None
    room: str = ""
    seconds: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.text is None) != (self.fault is not None):
            raise ValueError(f"a completion is a text or a fault, got text={self.text!r}, fault={self.fault!r}")


Answers = Iterator[tuple[int, list[Completion]]]
"""The number of a conversation with its completions, in the order of their seeds."""


class Generator(Protocol):
    """Completes conversations."""

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield each conversation's `n` completions, as soon as all of them are there; each conversation once.

        Equal conversations, seeds and sampling give equal completions. One without room, or whose request failed, is a
        completion that says so. Closing the iterator gives up what is under way.

        Args:
            conversations: each with a message at least. More may be put behind them, with their seeds, from one answer
                to the next: a server is asked for these as well, engines answer those that were there at the beginning.
            sampling: shared by all.
            seeds: (conversations * n,); seed ``i * n + k`` belongs to completion k of conversation i.
            description: what is said to be going on; None says nothing.

        Raises:
            BadInputError: who is to answer cannot be asked at all, or not so.
            ValueError: not a seed for each completion.
        """
        ...


def encodable(text: str) -> str:
    """Return a text of a model that UTF-8 has bytes for: half a pair of surrogates, which JSON may name, replaced."""
    return _SURROGATE.sub("\ufffd", text)


def seeds_by_conversation(seeds: Sequence[int], n_conversations: int, n: int) -> list[Sequence[int]]:
    """Return the seeds of each conversation.

    Raises:
        ValueError: there are more or fewer than `n` for each.
    """
    if len(seeds) != n_conversations * n:
        raise ValueError(f"every completion needs its own seed: {len(seeds)} seeds, {n_conversations} * {n} wanted")
    return [seeds[start : start + n] for start in range(0, len(seeds), n)]

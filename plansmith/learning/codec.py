"""From conversations to an engine's tokens and back, and a `Generator` made of engines that know tokens only.

The one place where text meets the tokens of what is generated: the engines of a run, of a model folder and of the
service all answer through it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from plansmith.config.generation import SamplingConfig
from plansmith.generation import Answers, Completion, Conversation, FinishReason, Generation, seeds_by_conversation
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_messages, end_token_ids, token_spans

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Codec:
    """What lies between a conversation and the tokens of one model.

    Attributes:
        end_tokens: each ends an answer.
        window: tokens of prompt and answer together.
    """

    tokenizer: Any
    end_tokens: tuple[int, ...]
    window: int

    @classmethod
    def of(cls, folder: Path, window: int) -> Codec:
        """Return the codec of a model folder.

        Raises:
            BadInputError: no tokenizer there, or nothing says which token ends an answer.
        """
        tokenizer = load_tokenizer(str(folder))
        return cls(tokenizer, end_token_ids(tokenizer, folder), window)

    def sampling(self, sampling: SamplingConfig) -> SamplingConfig:
        """Return how an engine draws: the model's end tokens stop it as well."""
        stops = tuple(dict.fromkeys((*self.end_tokens, *sampling.stop_token_ids)))
        return sampling.model_copy(update={"stop_token_ids": stops})

    def encode(self, messages: Conversation) -> list[int]:
        """Return the tokens of a conversation."""
        return encode_messages(self.tokenizer, messages)

    def has_room(self, prompt_ids: Sequence[int]) -> bool:
        """Return whether a prompt leaves room for an answer."""
        return 0 < len(prompt_ids) < self.window

    def completion(
        self, prompt_ids: Sequence[int], generation: Generation, *, seed: int, stop: Sequence[str] = ()
    ) -> Completion:
        """Return what an engine wrote, up to the first text of `stop`."""
        text = str(self.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))
        ends = [(position + len(mark), position) for mark in stop if (position := text.find(mark)) >= 0]
        if ends:
            end, position = min(ends)
            _, spans = token_spans(self.tokenizer, generation.token_ids)
            n = next(number for number, span in enumerate(spans, 1) if span.end >= end)
            cut = replace(generation, token_ids=generation.token_ids[:n], logprobs=generation.logprobs[:n])
            text, generation = text[:position], replace(cut, finish_reason=FinishReason.STOP)
        return Completion(
            text,
            generation.finish_reason,
            generation.policy_version,
            seed,
            tuple(prompt_ids),
            generation.token_ids,
            generation.logprobs,
            len(prompt_ids),
            len(generation.token_ids),
        )


class TokenEngines(Protocol):
    """Engines that hold one policy and complete tokens."""

    @property
    def policy_version(self) -> str:
        """Return the name of the weights that they hold."""
        ...

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None,
    ) -> Iterator[tuple[int, list[Generation]]]:
        """Yield the number of each prompt with its completions; see `actors.policy.PolicyActor.generate`."""
        ...


@dataclass(frozen=True)
class EngineGenerator:
    """Engines as a `plansmith.generation.Generator`.

    Attributes:
        n_together: completions that the engines get at once; the next ones wait until these are there. What is decoded
            together changes its rounding, and so this may change a result.
    """

    codec: Codec
    engines: TokenEngines
    n_together: int

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield each conversation's completions; see `plansmith.generation.Generator`."""
        seeds_of = seeds_by_conversation(seeds, len(conversations), sampling.n)
        size, asked = max(1, self.n_together // sampling.n), tuple(conversations)
        for start in range(0, len(asked), size):
            chosen = slice(start, start + size)
            for number, group in self._chunk(asked[chosen], sampling, seeds_of[chosen], description):
                yield start + number, group

    def _chunk(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        seeds_of: Sequence[Sequence[int]],
        description: str | None,
    ) -> Answers:
        encoded = [self.codec.encode(messages) for messages in conversations]
        fitting = [number for number, prompt in enumerate(encoded) if self.codec.has_room(prompt)]
        if len(fitting) < len(encoded):
            logger.warning(
                "%d of %d prompts do not fit in the engine's window of %d tokens (the longest has %d); they get no "
                "answer", len(encoded) - len(fitting), len(encoded), self.codec.window, max(map(len, encoded)),
            )  # fmt: skip
        for number in sorted(set(range(len(encoded))) - set(fitting)):
            none = Generation((), (), FinishReason.NO_ROOM, self.engines.policy_version)
            yield number, [self.codec.completion(encoded[number], none, seed=seed) for seed in seeds_of[number]]
        if not fitting:
            return
        stream = self.engines.stream(
            [encoded[number] for number in fitting],
            self.codec.sampling(sampling),
            seeds=[seed for number in fitting for seed in seeds_of[number]],
            description=description,
        )
        for position, group in stream:
            number = fitting[position]
            yield (
                number,
                [
                    self.codec.completion(encoded[number], generation, seed=seed, stop=sampling.stop)
                    for seed, generation in zip(seeds_of[number], group, strict=True)
                ],
            )

"""A generator without a model: what it writes follows from the conversation and the seed.

Behind the same protocol as engines and endpoints, and held to the same contract by test_generation.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plansmith.config.generation import SamplingConfig
from plansmith.generation import (
    Answers,
    Completion,
    Conversation,
    FinishReason,
    plain_text,
    seeds_by_conversation,
)

WORDS = ["on", "ontable", "clear", "handempty", "holding", "pick-up", "put-down", "stack", "unstack"]


def babble(conversation: Conversation, seed: int) -> str:
    """Return 30 to 60 words."""
    rng = random.Random(f"{plain_text(conversation)} {seed}")
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(30, 60)))


@dataclass
class StandInGenerator:
    """Writes what a function says, a word a token; the last conversation is answered first.

    Attributes:
        write: the answer to a conversation under a seed; None for a request that fails.
        window: words of conversation and answer together.
        asked: every conversation, in order.
    """

    write: Callable[[Conversation, int], str | None] = babble
    window: int = 512
    policy_version: str = "stand-in"
    asked: list[Conversation] = field(default_factory=list)

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the completions of each conversation."""
        groups = seeds_by_conversation(seeds, len(conversations), sampling.n)
        for number in reversed(range(len(conversations))):
            self.asked.append(conversations[number])
            yield number, [self._completion(conversations[number], sampling, seed) for seed in groups[number]]

    def _completion(self, conversation: Conversation, sampling: SamplingConfig, seed: int) -> Completion:
        n_prompt = len(plain_text(conversation).split())
        if n_prompt >= self.window:
            return self._written("", FinishReason.NO_ROOM, seed, n_prompt)
        text = self.write(conversation, seed if sampling.temperature else 0)
        if text is None:
            return Completion(None, "", self.policy_version, seed, fault="the request failed")
        words = text.split(" ")
        room = min(sampling.max_new_tokens, self.window - n_prompt)
        text, reason = " ".join(words[:room]), FinishReason.STOP if len(words) <= room else FinishReason.LENGTH
        places = [text.find(mark) for mark in sampling.stop if mark in text]
        return (
            self._written(text[: min(places)], FinishReason.STOP, seed, n_prompt)
            if places
            else self._written(text, reason, seed, n_prompt)
        )

    def _written(self, text: str, reason: str, seed: int, n_prompt: int) -> Completion:
        n = len(text.split())
        return Completion(
            text, reason, self.policy_version, seed, (0,) * n_prompt, tuple(range(n)), (0.0,) * n, n_prompt, n
        )

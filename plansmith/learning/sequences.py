"""One training sequence: tokens with a weight per token and, for judged plans, a verdict.

A phase differs from another only in these weights, so that one loss code serves all. Not here: how rows become
sequences (the text and the pipelines) and how sequences become tensors (`packing`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NO_VERDICT = -1


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """Prompt and response as tokens, with what each token adds to the loss.

    Attributes:
        token_ids: prompt, then response.
        nll_weights: per token, weight w >= 0 of ``-w * log p(token)``; 0 on the prompt.
        score_weights: per token, coefficient c of ``c * log p(token)``: loss of the step (or plan) minus the baseline.
            Minimising it with c > 0 makes a bad step less likely, with c < 0 a good one more likely.
        verdict_position: index of the token VALID or INVALID; -1 without one.
        verdict_label: the validator's v at that position, 1 valid, 0 invalid; -1 without one.
    """

    token_ids: tuple[int, ...]
    nll_weights: tuple[float, ...]
    score_weights: tuple[float, ...]
    verdict_position: int = NO_VERDICT
    verdict_label: int = NO_VERDICT

    def __post_init__(self) -> None:
        n_tokens = len(self.token_ids)
        if n_tokens == 0:
            raise ValueError("a training sequence needs at least one token")
        _check_weights("nll_weights", self.nll_weights, n_tokens)
        _check_weights("score_weights", self.score_weights, n_tokens)
        if any(weight < 0 for weight in self.nll_weights):
            raise ValueError("nll_weights must be >= 0; to push a token down give it a score weight")
        if (self.verdict_position == NO_VERDICT) != (self.verdict_label == NO_VERDICT):
            raise ValueError(f"verdict_position={self.verdict_position} does not fit label={self.verdict_label}")
        if self.verdict_position != NO_VERDICT and not 1 <= self.verdict_position < n_tokens:
            raise ValueError(f"verdict_position must be in 1..{n_tokens - 1}, got {self.verdict_position}")
        if self.verdict_label not in (NO_VERDICT, 0, 1):
            raise ValueError(f"verdict_label must be 0, 1 or {NO_VERDICT}, got {self.verdict_label}")

    def __len__(self) -> int:
        return len(self.token_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as packed numbers; the copy shares equal ones, where plain pickling would make an object of each."""
        packed = array("i", self.token_ids), array("d", self.nll_weights), array("d", self.score_weights)
        return _unpacked, (*packed, self.verdict_position, self.verdict_label)

    @property
    def n_nll_tokens(self) -> int:
        """Return how many tokens carry a likelihood weight."""
        return sum(weight != 0 for weight in self.nll_weights)

    @property
    def n_score_tokens(self) -> int:
        """Return how many tokens carry a score weight; a step exactly at the baseline carries none."""
        return sum(weight != 0 for weight in self.score_weights)


def _unpacked(
    token_ids: array[int], nll: array[float], score: array[float], verdict_position: int, verdict_label: int
) -> TrainingSequence:
    shared: dict[float, float] = {}
    nll_weights, score_weights = (
        tuple(shared.setdefault(weight, weight) for weight in weights) for weights in (nll, score)
    )
    return TrainingSequence(tuple(token_ids), nll_weights, score_weights, verdict_position, verdict_label)


def _check_weights(name: str, weights: Sequence[float], n_tokens: int) -> None:
    if len(weights) != n_tokens:
        raise ValueError(f"{name} has {len(weights)} entries for {n_tokens} tokens")
    if not all(math.isfinite(weight) for weight in weights):
        raise ValueError(f"{name} holds NaN or infinity")
    if weights[0] != 0:
        raise ValueError(f"{name}[0] must be 0: nothing predicts the first token; got {weights[0]}")


def supervised_sequence(prompt_ids: Sequence[int], response_ids: Sequence[int]) -> TrainingSequence:
    """Return a sequence whose loss is the plain next-token loss on the response only.

    Raises:
        ValueError: an empty prompt (then nothing predicts the response's first token) or an empty response.
    """
    if not prompt_ids or not response_ids:
        raise ValueError(f"prompt has {len(prompt_ids)}, response {len(response_ids)} tokens; both need one or more")
    n_prompt, n_response = len(prompt_ids), len(response_ids)
    return TrainingSequence(
        token_ids=(*prompt_ids, *response_ids),
        nll_weights=(0.0,) * n_prompt + (1.0,) * n_response,
        score_weights=(0.0,) * (n_prompt + n_response),
    )

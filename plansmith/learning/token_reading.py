"""What an objective wants to know of each counted token, its log-probability and entropy, without all logits at once.

The logits of 4,096 tokens are 2.5 GB in float32 with a vocabulary of 152,000, held several times over by a loss and its
gradient. Here the output head is applied to some counted tokens at a time, and again in the backward pass; prompts are
left out altogether. Not here: which tokens count, and what is made of what is read (`objectives`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plansmith.learning.packing import PackedBatch

CHUNK_TOKENS = 512
"""Tokens whose logits are there together, at most."""
CHUNK_NUMBERS = 2**24
"""Logits that are there together: 64 MiB in float32, of which a chunk holds a handful of copies."""
WHOLE_LOGITS = 2**26
"""Logits of a micro-batch up to which it is quicker to have them whole: 256 MiB in float32."""

SCALED_HEADS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
"""Settings by which some architectures change logits after the head; theirs are taken whole."""


class TokenReading(NamedTuple):
    """Of M counted tokens, row by row, (M,) float32 each.

    Attributes:
        logprobs: log p of the token given those before it, differentiable.
        kept: log of the mass of the nucleus that it was drawn from, differentiable with the nucleus as it is; exactly 0
            where nothing is cut. ``logprobs - kept`` is of what the token was drawn from.
        entropies: of p, in nats, without gradient; 0 where they are not asked for.
    """

    logprobs: Tensor
    kept: Tensor
    entropies: Tensor


@dataclass(frozen=True, slots=True)
class TokenQuestion:
    """Which tokens are read, and how.

    Attributes:
        column: not 0 where a token counts; never at the first of a row, which nothing predicts.
        temperature: that logits are divided by.
        top_p, top_k: that tokens were drawn with; 1 and 0 draw from all.
        has_entropies: whether these are read, too: two more passes over all logits.
    """

    column: str
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    has_entropies: bool = False

    @property
    def is_cut(self) -> bool:
        """Return whether tokens were drawn from a nucleus."""
        return self.top_p < 1 or self.top_k > 0

    def is_counted(self, batch: PackedBatch) -> Tensor:
        """Return (B, T) bool."""
        return batch.columns[self.column] != 0

    def answer(self, logits: Tensor, batch: PackedBatch) -> TokenReading:
        """Return what whole logits (B, T, V) say."""
        is_counted = self.is_counted(batch)
        drawn_from = logits[:, :-1][is_counted[:, 1:]]
        return _in_chunks(_itself, drawn_from, batch.token_ids[is_counted], self, logits.shape[-1])


@contextmanager
def reading_head(model: Any, batch: PackedBatch, question: TokenQuestion) -> Iterator[Callable[[Any], TokenReading]]:
    """Let the model's head answer a question where it would give logits, and give what reads the model's output.

    The head stays the module that it is, called once a forward pass by the model, so that whatever hangs on it (shares
    of weights, adapters) works as ever. A batch without a counted token is read at one of its tokens, which is dropped:
    every rank's pass is made of the same parts.

    Args:
        model: a causal language model of transformers, or an adapter on one.
        batch: on the device of the model.
        question: what to read.
    """
    config = model.config.get_text_config()
    if any(getattr(config, name, None) not in (None, 1.0) for name in SCALED_HEADS):
        n_tokens = batch.token_ids.shape[1]
        yield lambda output: question.answer(output.logits[:, :n_tokens], batch)
        return
    head = model.get_output_embeddings()
    had_own = "forward" in vars(head)
    plain, is_counted = head.forward, question.is_counted(batch)
    n_counted = int(is_counted.sum())
    if n_counted == 0:
        is_counted = is_counted.clone()
        is_counted[0, -1] = True

    def read(hidden: Tensor) -> Tensor:
        predicting = hidden[:, : batch.token_ids.shape[1] - 1][is_counted[:, 1:]]
        wanted = batch.token_ids[is_counted]
        return torch.stack(_in_chunks(plain, predicting, wanted, question, config.vocab_size), dim=1)

    head.forward = read
    try:
        yield lambda output: _reading(output.logits[:n_counted])
    finally:
        if had_own:
            head.forward = plain
        else:
            del head.forward  # the attribute of this one module; that of its class is there again


def _reading(numbers: Tensor) -> TokenReading:
    return TokenReading(numbers[:, 0], numbers[:, 1], numbers[:, 2].detach())


def _in_chunks(
    head: Callable[[Tensor], Tensor], hidden: Tensor, token_ids: Tensor, question: TokenQuestion, vocabulary_size: int
) -> TokenReading:
    """Return what is read of tokens by what stands before each of them: (M, H)."""
    read, size = partial(_chunk, head, question), max(1, min(CHUNK_TOKENS, CHUNK_NUMBERS // vocabulary_size))
    parts = zip(hidden.split(size), token_ids.split(size), strict=True)
    return _reading(torch.cat([checkpoint(read, *part, use_reentrant=False) for part in parts]))


def _chunk(head: Callable[[Tensor], Tensor], question: TokenQuestion, hidden: Tensor, token_ids: Tensor) -> Tensor:
    logits = head(hidden).float()
    logits = logits if question.temperature == 1.0 else logits / question.temperature
    logs = logits.log_softmax(dim=-1)
    logprobs = -F.nll_loss(logs, token_ids, reduction="none")
    kept = _kept(logits, token_ids, question) if question.is_cut else torch.zeros_like(logprobs)
    entropies = torch.zeros_like(logprobs)
    if question.has_entropies:
        with torch.no_grad():
            entropies = -(logs.exp() * logs).sum(dim=-1)
    return torch.stack([logprobs, kept, entropies], dim=1)


def _kept(logits: Tensor, token_ids: Tensor, question: TokenQuestion) -> Tensor:
    """Return log of the mass of what each token was drawn from: (M,).

    Cut as vLLM cuts (`apply_top_k_top_p_pytorch`): all as likely as the last of the ``top_k``; of these, in their own
    shares, the fewest likeliest that reach ``top_p``, whichever of equals that takes. An engine has kept what it drew:
    among equals the drawn token comes first, and where it is beyond the cut all the same it is kept besides.
    """
    places = token_ids[:, None]
    drawn = logits.gather(1, places)
    ordered = torch.cat([logits.scatter(1, places, -torch.inf), drawn], dim=1).sort(dim=1, stable=True).values
    with torch.no_grad():
        is_cut = torch.zeros_like(ordered, dtype=torch.bool)
        if question.top_k > 0:
            is_cut = ordered < ordered[:, -min(question.top_k, logits.shape[1]), None]
        if question.top_p < 1:
            shares = ordered.masked_fill(is_cut, -torch.inf).softmax(dim=1)
            is_cut |= shares.cumsum(dim=1) <= 1 - question.top_p
            is_cut[:, -1] = False
        is_beyond = drawn < ordered.masked_fill(is_cut, torch.inf).amin(dim=1, keepdim=True)
    mass = ordered.masked_fill(is_cut, -torch.inf).logsumexp(dim=1, keepdim=True)
    mass = torch.where(is_beyond, torch.logaddexp(mass, drawn), mass)
    return (mass - logits.logsumexp(dim=1, keepdim=True))[:, 0]


def _itself(logits: Tensor) -> Tensor:
    return logits

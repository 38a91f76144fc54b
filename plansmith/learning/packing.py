"""Packing: several sequences in one row, with attention that never crosses from one to its neighbour.

Position ids restart at each sequence. On CPU `plansmith.learning.packed_attention` attends sequence by sequence, and a
micro-batch of one row needs no padding. Elsewhere the attention of transformers builds a block-diagonal mask from the
position ids (it does so only if there is neither an attention mask nor a key-value cache, so models are called without
both). Not here: the order of batches in time (`optimisation`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from plansmith.learning.sequences import NO_VERDICT, TrainingSequence

GRAIN_TOKENS = 64
"""What is computed is padded to a multiple of this: on a CPU matrix products of every other length would be compiled
anew, on a GPU those of round lengths are the quick ones."""

Row = tuple[int, ...]
"""Indices of the sequences that share a row, in their order in it."""


@dataclass(frozen=True, slots=True)
class PackingReport:
    """What packing did; ``fill`` is the share of row tokens that are not padding."""

    n_sequences: int
    n_dropped: int
    n_dropped_tokens: int
    n_tokens: int
    fill: float


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch of B rows of T tokens.

    Attributes:
        token_ids, position_ids: (B, T) int64.
        nll_weights, score_weights: (B, T) float32; 0 on padding.
        lengths: per row the lengths of its sequences, and of its padding if any; each sums to T.
        rows: per row the indices of its sequences.
        verdict_rows, verdict_columns, verdict_labels: (J,) int64.
    """

    token_ids: Tensor
    position_ids: Tensor
    nll_weights: Tensor
    score_weights: Tensor
    lengths: tuple[tuple[int, ...], ...]
    rows: tuple[Row, ...]
    verdict_rows: Tensor
    verdict_columns: Tensor
    verdict_labels: Tensor

    def to(self, device: torch.device | str) -> PackedBatch:
        """Return the same batch with its tensors on ``device``."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        moved: dict[str, Any] = {name: value.to(device) for name, value in values if isinstance(value, Tensor)}
        return replace(self, **moved)

    def model_inputs(self, *, is_rounded: bool = False) -> dict[str, Any]:
        """Return the keyword arguments for a causal language model of transformers.

        Args:
            is_rounded: lengthen the rows to a multiple of `GRAIN_TOKENS`; the logits beyond T mean nothing.
        """
        n_tokens = self.token_ids.shape[1]
        n_more = rounded_up(n_tokens) - n_tokens if is_rounded else 0
        return {
            "input_ids": F.pad(self.token_ids, (0, n_more)),
            "position_ids": F.pad(self.position_ids, (0, n_more)),
            "sequence_lengths": tuple((*lengths, n_more) for lengths in self.lengths) if n_more else self.lengths,
            "use_cache": False,
        }


def rounded_up(n_tokens: int) -> int:
    """Return the next multiple of `GRAIN_TOKENS`."""
    return n_tokens + -n_tokens % GRAIN_TOKENS


def fitting_indices(lengths: Sequence[int], max_length_tokens: int) -> tuple[int, ...]:
    """Return the indices of the sequences that are no longer; the caller counts and reports the others."""
    return tuple(index for index, length in enumerate(lengths) if length <= max_length_tokens)


def pack_rows(lengths: Sequence[int], indices: Sequence[int], row_length_tokens: int, *, n_ranks: int = 1) -> list[Row]:
    """Return rows of at most ``row_length_tokens`` tokens that hold every index once, as equally full as can be.

    Their number is a multiple of ``n_ranks`` unless there are too few sequences, so that ranks, which take turns at
    them, have equal work. Longest first, each into the emptiest row (Graham's rule); deterministic: equal lengths keep
    the order of ``indices``.

    Raises:
        ValueError: a sequence is longer than a row; nothing is ever truncated.
    """
    for index in indices:
        if lengths[index] > row_length_tokens:
            raise ValueError(f"sequence {index} has {lengths[index]} tokens, more than a row of {row_length_tokens}")
    by_length = sorted(indices, key=lambda i: -lengths[i])
    n_tokens = sum(lengths[index] for index in indices)
    n_rows = n_ranks * math.ceil(n_tokens / (row_length_tokens * n_ranks))
    while True:
        rows: list[list[int]] = [[] for _ in range(n_rows)]
        emptiest = [(0, row) for row in range(n_rows)]
        for index in by_length:
            row_tokens, row = heapq.heappop(emptiest)
            rows[row].append(index)
            heapq.heappush(emptiest, (row_tokens + lengths[index], row))
        if all(row_tokens <= row_length_tokens for row_tokens, _ in emptiest):
            return [tuple(row) for row in rows if row]
        n_rows += n_ranks


def split_batches(
    lengths: Sequence[int],
    indices: Sequence[int],
    *,
    batch_sequences: int | None,
    batch_tokens: int | None,
    seed: int | None,
    small_batch_share: float = 0.0,
) -> list[Row]:
    """Return the optimiser batches of one epoch: a shuffle, cut after so many sequences or before so many tokens.

    Without a seed the sequences keep their order: a curriculum.

    Exactly one of the two sizes is given. With ``batch_tokens`` a batch holds at least one sequence. The last batch may
    be smaller; its loss is divided by its own counts. Batches that begin within the first ``small_batch_share`` of the
    tokens have half the size.
    """
    if (batch_sequences is None) == (batch_tokens is None):
        raise ValueError(f"give batch_sequences or batch_tokens, got {batch_sequences} and {batch_tokens}")
    order = list(indices)
    if seed is not None:
        random.Random(seed).shuffle(order)
    n_small_tokens = small_batch_share * sum(lengths[index] for index in order)
    batches: list[list[int]] = []
    n_tokens = n_tokens_before = 0
    for index in order:
        halving = 2 if n_tokens_before < n_small_tokens else 1
        if batch_tokens is None:
            is_full = bool(batches) and len(batches[-1]) >= max((batch_sequences or 1) // halving, 1)
        else:
            is_full = n_tokens + lengths[index] > batch_tokens // halving
        if not batches or is_full:
            batches.append([])
            n_tokens_before, n_tokens = n_tokens_before + n_tokens, 0
        batches[-1].append(index)
        n_tokens += lengths[index]
    return [tuple(batch) for batch in batches]


def packing_report(lengths: Sequence[int], batches: Sequence[Sequence[Row]], *, micro_batch_rows: int) -> PackingReport:
    """Return what packing did to ``lengths``; a row is padded to the longest of its micro-batch, no further."""
    n_used = n_tokens = n_padded = 0
    for rows in batches:
        row_tokens = [sum(lengths[index] for index in row) for row in rows]
        n_used += sum(len(row) for row in rows)
        n_tokens += sum(row_tokens)
        parts = [row_tokens[i : i + micro_batch_rows] for i in range(0, len(rows), micro_batch_rows)]
        n_padded += sum(len(part) * max(part) for part in parts)
    return PackingReport(
        n_sequences=n_used,
        n_dropped=len(lengths) - n_used,
        n_dropped_tokens=sum(lengths) - n_tokens,
        n_tokens=n_tokens,
        fill=n_tokens / n_padded if n_padded else 0.0,
    )


def build_batch(sequences: Sequence[TrainingSequence], rows: Sequence[Row]) -> PackedBatch:
    """Return the tensors for ``rows``; shorter rows are padded at the end with a sequence of their own."""
    n_tokens = max(sum(len(sequences[index]) for index in row) for row in rows)
    lengths = tuple(_row_lengths(sequences, row, n_tokens) for row in rows)
    verdicts = [place for row, indices in enumerate(rows) for place in _verdict_places(sequences, row, indices)]
    verdict_columns = torch.tensor(verdicts, dtype=torch.int64).reshape(-1, 3)
    return PackedBatch(
        token_ids=_stack([[t for i in row for t in sequences[i].token_ids] for row in rows], n_tokens, torch.int64),
        position_ids=torch.stack([torch.cat([torch.arange(length) for length in row]) for row in lengths]),
        nll_weights=_stack([[w for i in row for w in sequences[i].nll_weights] for row in rows], n_tokens),
        score_weights=_stack([[w for i in row for w in sequences[i].score_weights] for row in rows], n_tokens),
        lengths=lengths,
        rows=tuple(rows),
        verdict_rows=verdict_columns[:, 0],
        verdict_columns=verdict_columns[:, 1],
        verdict_labels=verdict_columns[:, 2],
    )


def without_loss(batch: PackedBatch) -> PackedBatch:
    """Return the batch without weights, verdicts and indices: filler for a rank that has run out of rows."""
    nothing = torch.zeros(0, dtype=torch.int64)
    zeros = torch.zeros_like(batch.nll_weights)
    return replace(
        batch,
        nll_weights=zeros,
        score_weights=zeros,
        rows=(),
        verdict_rows=nothing,
        verdict_columns=nothing,
        verdict_labels=nothing,
    )


def _row_lengths(sequences: Sequence[TrainingSequence], row: Row, n_tokens: int) -> tuple[int, ...]:
    lengths = tuple(len(sequences[index]) for index in row)
    n_padding = n_tokens - sum(lengths)
    return (*lengths, n_padding) if n_padding else lengths


def _verdict_places(sequences: Sequence[TrainingSequence], row: int, indices: Row) -> Iterator[tuple[int, int, int]]:
    start = 0
    for index in indices:
        sequence = sequences[index]
        if sequence.verdict_position != NO_VERDICT:
            yield row, start + sequence.verdict_position, sequence.verdict_label
        start += len(sequence)


def _stack(rows: Sequence[Sequence[float]], n_tokens: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack([F.pad(torch.tensor(row, dtype=dtype), (0, n_tokens - len(row))) for row in rows])

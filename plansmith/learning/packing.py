"""Packing: several sequences in one row, with attention that never crosses from one to its neighbour.

Position ids restart at each sequence, `plansmith.learning.packed_attention` attends sequence by sequence, and a
micro-batch of one row needs no padding. Sequences of a unit that begin alike, as rollouts of one prompt do, can have
their beginning in common: it stands in the row once, each sequence goes on from it, and every number is what it would
be without. Not here: the order of batches in time (`optimisation`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from plansmith.learning.sequences import Sequences, TrainingSequence

GRAIN_TOKENS = 64
"""What is computed is padded to a multiple of this: on a CPU matrix products of every other length would be compiled
anew, on a GPU those of round lengths are the quick ones."""

Row = tuple[int, ...]
"""Indices of the sequences that share a row, in their order in it."""


@dataclass(frozen=True, slots=True)
class PackingReport:
    """What is trained on of what was given, and what is not."""

    n_sequences: int
    n_dropped: int
    n_dropped_tokens: int
    n_tokens: int


class Unit(NamedTuple):
    """Sequences that are trained on together, in one row, or not at all.

    Attributes:
        indices: of them.
        n_tokens: of all, what they share counted once.
        n_shared: tokens with which each of them begins and which stand in the row once.
    """

    indices: tuple[int, ...]
    n_tokens: int
    n_shared: int = 0


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch of B rows of T tokens.

    Attributes:
        token_ids, position_ids: (B, T) int64.
        columns: (B, T) float32 by name; 0 on padding.
        lengths: per row the lengths of its parts; each sums to T. A part is a sequence, the beginning that some share,
            what follows of each of these, or padding.
        prefixes: per row and part the number of the part in this row that comes before it, -1 for none.
        rows: per row the indices of its sequences.
    """

    token_ids: Tensor
    position_ids: Tensor
    columns: Mapping[str, Tensor]
    lengths: tuple[tuple[int, ...], ...]
    prefixes: tuple[tuple[int, ...], ...]
    rows: tuple[Row, ...]

    def to(self, device: torch.device | str) -> PackedBatch:
        """Return the same batch with its tensors on ``device``."""
        return replace(
            self,
            token_ids=self.token_ids.to(device),
            position_ids=self.position_ids.to(device),
            columns={name: column.to(device) for name, column in self.columns.items()},
        )

    def without_loss(self) -> PackedBatch:
        """Return the batch with columns of 0 and no indices: filler for a rank that has run out of rows."""
        return replace(self, columns={name: torch.zeros_like(c) for name, c in self.columns.items()}, rows=())

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
            "sequence_prefixes": tuple((*row, -1) for row in self.prefixes) if n_more else self.prefixes,
            "use_cache": False,
        }


def rounded_up(n_tokens: int) -> int:
    """Return the next multiple of `GRAIN_TOKENS`."""
    return n_tokens + -n_tokens % GRAIN_TOKENS


def units_of(lengths: Sequence[int], names: Sequence[str]) -> list[Unit]:
    """Return the units of sequences in the order of their first members; one without a name is a unit of its own."""
    members: dict[str | int, list[int]] = {}
    for index, name in enumerate(names):
        members.setdefault(name or index, []).append(index)
    return [Unit(tuple(indices), sum(lengths[index] for index in indices)) for indices in members.values()]


def beginning_of(sequence: TrainingSequence, columns: Iterable[str]) -> NDArray[np.int32]:
    """Return the first tokens of a sequence as far as others may have them in common: a multiple of `GRAIN_TOKENS`.

    Nothing of these columns counts among them or at the token after them, which the last of them would have to predict.
    """
    counted = (np.flatnonzero(sequence.columns[name])[:1] for name in columns if name in sequence.columns)
    end = min([len(sequence), *(int(place) for places in counted for place in places)])
    return sequence.token_ids[: _whole_grains(end - 1)].copy()


def n_alike(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Return how many tokens two beginnings have in common: a multiple of `GRAIN_TOKENS`."""
    size = min(len(one), len(other))
    return _whole_grains(min([size, *np.flatnonzero(one[:size] != other[:size])[:1].tolist()]))


def _whole_grains(n_tokens: int) -> int:
    return n_tokens // GRAIN_TOKENS * GRAIN_TOKENS


def sharing_units(
    units: Sequence[Unit], sequences: Sequences, columns: Sequence[str], row_length_tokens: int
) -> list[Unit]:
    """Return units whose sequences have their beginnings in common, those of one sequence brought together for it.

    Together come those that begin with the same `GRAIN_TOKENS` tokens, in their order, while a row has room for them
    and another one makes them share more. Each unit stands where its first member stood.
    """
    found: list[Unit] = []
    open_units: dict[bytes, tuple[int, NDArray[np.int32]]] = {}
    for unit in units:
        first = beginning_of(sequences[unit.indices[0]], columns)
        if len(unit.indices) > 1:
            others = (beginning_of(sequences[index], columns) for index in unit.indices[1:])
            n_shared = min(n_alike(first, other) for other in others)
            found.append(Unit(unit.indices, unit.n_tokens - (len(unit.indices) - 1) * n_shared, n_shared))
            continue
        grain = first[:GRAIN_TOKENS].tobytes()
        if grain in open_units:
            place, beginning = open_units[grain]
            longer = _joined(found[place], unit, n_alike(beginning, first))
            if longer is not None and longer.n_tokens <= row_length_tokens:
                found[place] = longer
                continue
        open_units[grain] = len(found), first
        found.append(unit)
    return found


def _joined(unit: Unit, single: Unit, n_shared: int) -> Unit | None:
    """Return a unit with one more sequence, which begins as its first one; None where less would be shared by that."""
    n_before = len(unit.indices)
    n_shared = min(n_shared, unit.n_shared) if n_before > 1 else n_shared
    saved, saved_before = n_before * n_shared, (n_before - 1) * unit.n_shared
    if saved <= saved_before:
        return None
    return Unit((*unit.indices, *single.indices), unit.n_tokens + saved_before + single.n_tokens - saved, n_shared)


def pack_rows(units: Sequence[Unit], row_length_tokens: int, *, n_ranks: int = 1) -> list[Row]:
    """Return rows of at most ``row_length_tokens`` tokens that hold every unit once, as equally full as can be.

    Their number is a multiple of ``n_ranks`` unless there are too few units, so that ranks, which take turns at them,
    have equal work. Longest first, each into the emptiest row (Graham's rule); deterministic: equal lengths keep the
    order of ``units``.

    Raises:
        ValueError: a unit is longer than a row; nothing is ever truncated.
    """
    for indices, length, _ in units:
        if length > row_length_tokens:
            raise ValueError(f"unit {indices} has {length} tokens, more than a row of {row_length_tokens}")
    by_length = sorted(units, key=lambda unit: -unit.n_tokens)
    n_rows = n_ranks * math.ceil(sum(unit.n_tokens for unit in units) / (row_length_tokens * n_ranks))
    while True:
        rows: list[list[int]] = [[] for _ in range(n_rows)]
        emptiest = [(0, row) for row in range(n_rows)]
        for indices, length, _ in by_length:
            row_tokens, row = heapq.heappop(emptiest)
            rows[row].extend(indices)
            heapq.heappush(emptiest, (row_tokens + length, row))
        if all(row_tokens <= row_length_tokens for row_tokens, _ in emptiest):
            return [tuple(row) for row in rows if row]
        n_rows += n_ranks


def split_batches(
    units: Sequence[Unit],
    *,
    batch_sequences: int | None,
    batch_tokens: int | None,
    seed: int | None,
    small_batch_share: float = 0.0,
) -> list[list[Unit]]:
    """Return the optimiser batches of one epoch: a shuffle, cut before so many sequences or tokens are exceeded.

    Without a seed the units keep their order: a curriculum.

    Exactly one of the two sizes is given. A batch holds at least one unit. The last batch may be smaller; its loss is
    divided by its own counts. Batches that begin within the first ``small_batch_share`` of the tokens have half the
    size.
    """
    if (batch_sequences is None) == (batch_tokens is None):
        raise ValueError(f"give batch_sequences or batch_tokens, got {batch_sequences} and {batch_tokens}")
    order = list(units)
    if seed is not None:
        random.Random(seed).shuffle(order)
    n_small_tokens = small_batch_share * sum(unit.n_tokens for unit in order)
    size = batch_tokens or batch_sequences or 1
    batches: list[list[Unit]] = []
    filled = n_tokens = n_tokens_before = 0
    for unit in order:
        limit = max(size // 2, 1) if n_tokens_before < n_small_tokens else size
        weight = len(unit.indices) if batch_tokens is None else unit.n_tokens
        if not batches or filled + weight > limit:
            batches.append([])
            n_tokens_before, n_tokens, filled = n_tokens_before + n_tokens, 0, 0
        batches[-1].append(unit)
        n_tokens, filled = n_tokens + unit.n_tokens, filled + weight
    return batches


def packing_report(lengths: Sequence[int], batches: Sequence[Sequence[Row]]) -> PackingReport:
    """Return what the batches of an epoch hold of ``lengths``."""
    used = [index for rows in batches for row in rows for index in row]
    n_tokens = sum(lengths[index] for index in used)
    return PackingReport(
        n_sequences=len(used),
        n_dropped=len(lengths) - len(used),
        n_dropped_tokens=sum(lengths) - n_tokens,
        n_tokens=n_tokens,
    )


class _Part(NamedTuple):
    """Tokens ``start`` up to ``end`` of a sequence, after those of another part of the row, if of any."""

    sequence: TrainingSequence
    start: int
    end: int
    prefix: int = -1


def build_batch(
    sequences: Sequences, rows: Sequence[Row], columns: Iterable[str], units: Mapping[int, Unit] | None = None
) -> PackedBatch:
    """Return the tensors for ``rows`` with these columns; shorter rows are padded with a part of their own.

    Args:
        sequences: all.
        rows: indices of some; members of a unit are neighbours.
        columns: names.
        units: by the index of its first member each unit whose sequences share their beginning; others share nothing.
    """
    packed = [list(_parts(sequences, row, units or {})) for row in rows]
    n_tokens = max(sum(part.end - part.start for part in row) for row in packed)
    token_ids, position_ids = np.zeros((2, len(rows), n_tokens), np.int64)
    numbers = {name: np.zeros(token_ids.shape, np.float32) for name in columns}
    lengths, prefixes = [], []
    for row, parts in enumerate(packed):
        place = 0
        for sequence, start, end, _ in parts:
            own, here = slice(start, end), slice(place, place + end - start)
            token_ids[row, here], position_ids[row, here] = sequence.token_ids[own], np.arange(start, end)
            for name in numbers.keys() & sequence.columns.keys():
                numbers[name][row, here] = sequence.columns[name][own]
            place = here.stop
        n_padded = n_tokens - place
        position_ids[row, place:] = np.arange(n_padded)
        lengths.append((*(part.end - part.start for part in parts), *[n_padded] * (n_padded > 0)))
        prefixes.append((*(part.prefix for part in parts), *[-1] * (n_padded > 0)))
    return PackedBatch(
        token_ids=torch.from_numpy(token_ids),
        position_ids=torch.from_numpy(position_ids),
        columns={name: torch.from_numpy(column) for name, column in numbers.items()},
        lengths=tuple(lengths),
        prefixes=tuple(prefixes),
        rows=tuple(rows),
    )


def _parts(sequences: Sequences, row: Row, units: Mapping[int, Unit]) -> Iterator[_Part]:
    """Yield the parts of a row: what a unit shares, then the rest of each of its sequences."""
    prefix, n_shared, left, n_parts = -1, 0, 0, 0
    for index in row:
        sequence = sequences[index]
        if not left and (unit := units.get(index)) is not None and unit.n_shared:
            prefix, n_shared, left = n_parts, unit.n_shared, len(unit.indices)
            yield _Part(sequence, 0, n_shared)
            n_parts += 1
        yield _Part(sequence, n_shared, len(sequence), prefix) if left else _Part(sequence, 0, len(sequence))
        n_parts, left = n_parts + 1, max(0, left - 1)

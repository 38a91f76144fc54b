"""Training sequences in Parquet files, read by position when they are needed, so that no process holds them all.

Row groups are kept once read, up to `CACHE_BYTES`; small data is read once. Not here: who writes the files (`actors`,
`pipelines`) and what a row holds (`plansmith.data.rows.SequenceRow`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from plansmith.learning.sequences import Sequences, TrainingSequence

CACHE_BYTES = 256 * 2**20


class StoredSequences:
    """The sequences in some files of `SequenceRow`, in the files' order or another; pickles as paths and order.

    Args:
        paths: on a file system that every rank sees.
        order: positions among the rows of all files; they may leave some out.
    """

    def __init__(self, paths: Iterable[Path | str], order: Sequence[int] | NDArray[np.int64] | None = None) -> None:
        self.paths = tuple(map(str, paths))
        self.order = None if order is None else np.asarray(order, np.int64)
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()
        self._n_kept_bytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredSequences, (self.paths, self.order)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.order is None else len(self.order)

    def __getitem__(self, position: int) -> TrainingSequence:
        place = position if self.order is None else int(self.order[position])
        number = int(np.searchsorted(self._ends, place, side="right"))
        group = self._group(number)
        row = place - int(self._ends[number]) + group.num_rows
        names, token_ids = group["columns"][row].as_py(), group["token_ids"][row].values.to_numpy()
        numbers = group["numbers"][row].values.to_numpy().reshape(len(names), len(token_ids))
        return TrainingSequence(token_ids, dict(zip(names, numbers, strict=True)), group["unit"][row].as_py())

    def in_order(self, order: Sequence[int]) -> StoredSequences:
        """Return these sequences in another order."""
        return StoredSequences(self.paths, order if self.order is None else self.order[np.asarray(order, np.int64)])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Return the tokens of each sequence; they are counted group by group."""
        found = [pc.list_value_length(group["token_ids"]).to_numpy() for group in self._columns("token_ids")]
        counted = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
        return counted if self.order is None else np.take(counted, self.order)

    @cached_property
    def units(self) -> list[str]:
        """Return the unit of each sequence."""
        return self._texts("unit")

    @cached_property
    def ids(self) -> list[str]:
        """Return the id under which each sequence is stored."""
        return self._texts("sequence_id")

    def _texts(self, column: str) -> list[str]:
        found = [text for group in self._columns(column) for text in group[column].to_pylist()]
        return found if self.order is None else [found[place] for place in self.order]

    def _columns(self, name: str) -> Iterator[pa.Table]:
        return (self._read(number, [name]) for number in range(len(self._groups)))

    @cached_property
    def _files(self) -> list[pq.FileMetaData]:
        return [pq.read_metadata(path) for path in self.paths]

    @cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """Return the file of each row group, and its number there."""
        return [(file, group) for file, metadata in enumerate(self._files) for group in range(metadata.num_row_groups)]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Return the place after the last row of each row group."""
        n_rows = [self._files[file].row_group(group).num_rows for file, group in self._groups]
        return np.cumsum([*n_rows] or [0], dtype=np.int64)

    def _read(self, number: int, columns: list[str] | None = None) -> pa.Table:
        file, group = self._groups[number]
        with pq.ParquetFile(self.paths[file], metadata=self._files[file], memory_map=True) as parquet:
            return parquet.read_row_group(group, columns=columns).combine_chunks()

    def _group(self, number: int) -> pa.Table:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        group = self._kept[number] = self._read(number)
        self._n_kept_bytes += group.nbytes
        while self._n_kept_bytes > CACHE_BYTES and len(self._kept) > 1:
            self._n_kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return group


def lengths_of(sequences: Sequences) -> NDArray[np.int64]:
    """Return the tokens of each sequence."""
    if isinstance(sequences, StoredSequences):
        return sequences.lengths
    return np.array([len(sequences[position]) for position in range(len(sequences))], np.int64)


def storage_order(sequences: Sequences) -> list[int]:
    """Return all positions in an order in which reading them is quick."""
    order = sequences.order if isinstance(sequences, StoredSequences) else None
    return list(range(len(sequences))) if order is None else np.argsort(order, kind="stable").tolist()


def unit_names_of(sequences: Sequences) -> list[str]:
    """Return the unit of each sequence."""
    if isinstance(sequences, StoredSequences):
        return sequences.units
    return [sequences[position].unit for position in range(len(sequences))]

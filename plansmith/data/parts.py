"""Tables kept as many Parquet files, written in any process, and where the time of writing them went.

Not here: artifacts, which part files belong to (`plansmith.data.artifacts`), and who writes them (`actors`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from plansmith.data.rows import PartTimeRow
from plansmith.data.storage import TEMPORARY_SUFFIX, inner_name
from plansmith.data.tables import RowT, write_table

PARTS = ".parts"
"""Ending of the folder of a table that is kept as many files."""


class Parts:
    """A table kept as many Parquet files, each whole or absent, named by whoever makes them, in any process.

    What a file holds must depend on its name and the stage's inputs alone: a killed session's files are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for temporary in folder.rglob(f".*{TEMPORARY_SUFFIX}"):
            temporary.unlink()

    def path(self, name: str) -> Path:
        """Return where the part of that name lies or will lie; a slash in the name makes a folder.

        Raises:
            BadInputError: the name leads out of the table's folder.
        """
        return self.folder / f"{inner_name(name)}.parquet"

    def is_finished(self, name: str) -> bool:
        """Return whether the part of that name is there."""
        return self.path(name).is_file()

    def write(self, name: str, rows: Iterable[RowT], row_type: type[RowT]) -> int:
        """Write one part, all or nothing, and return the number of its rows."""
        return write_part(self.path(name), rows, row_type)


def part_path(folder: Path, table: str, name: str) -> Path:
    """Return where a part of a table lies in the folder of an artifact, finished or in the making.

    Raises:
        BadInputError: the name leads out of the table's folder.
    """
    return folder / f"{table}{PARTS}" / f"{inner_name(name)}.parquet"


def write_part(path: Path, rows: Iterable[RowT], row_type: type[RowT]) -> int:
    """Write one part file, all or nothing, and return the number of its rows; for processes without the `Parts`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_table(path, rows, row_type)


class Stopwatch:
    """Seconds by kind of work."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measuring(self, work: str) -> Iterator[None]:
        """Count the time of the block for `work`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[work] += time.perf_counter() - start

    def rows(self, job_id: str) -> list[PartTimeRow]:
        """Return what was counted."""
        return [PartTimeRow(job_id, work, seconds) for work, seconds in self._seconds.items()]

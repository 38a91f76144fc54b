"""One progress bar for all long work: a bar on a terminal, a line now and then elsewhere.

Not here: log messages (`logging` per module) and metrics.
"""

from __future__ import annotations

import sys
from typing import IO, Any

from tqdm.std import tqdm

LINE_INTERVAL_S = 15.0
"""Least time between two lines where stderr is no terminal, a log file for example."""


class _Lines:
    """A file that gets one whole line for each time tqdm redraws its bar."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        if text.strip():
            self._file.write(text.strip() + "\n")

    def flush(self) -> None:
        self._file.flush()


def progress_bar(total: int | None, description: str, *, unit: str = "row", file: IO[str] | None = None) -> tqdm[Any]:
    """Return a bar to be used as a context manager and advanced with ``update(n)``.

    Args:
        total: number of units, or None when nobody knows.
        description: what is being done, in words for the user.
        unit: what is counted.
        file: where to write; stderr by default.
    """
    file = file or sys.stderr
    common: dict[str, Any] = {"total": total, "desc": description, "unit": unit}
    if file.isatty():
        return tqdm(**common, file=file, dynamic_ncols=True)
    return tqdm(
        **common, file=_Lines(file), mininterval=LINE_INTERVAL_S, maxinterval=LINE_INTERVAL_S, ncols=100, ascii=True
    )

"""One progress bar for all long work: a bar on a terminal, a line now and then elsewhere, and the live page.

Not here: log messages (`logging` per module) and metrics.
"""

from __future__ import annotations

import sys
from typing import IO, Any

from tqdm.std import tqdm

from plansmith import live

LINE_INTERVAL_S = 15.0
"""Least time between two lines where stderr is no terminal, a log file for example."""


class _Bar(tqdm):  # type: ignore[type-arg]  # tqdm's stubs make it generic, tqdm itself is not
    """tqdm's bar, whose movements `plansmith.live` gets as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _open.append(self)
        self._report()

    def close(self) -> None:
        """Leave the bar as it is."""
        super().close()
        _open[:] = [bar for bar in _open if bar is not self]  # two bars are equal for tqdm where they are in one place

    def update(self, n: float | None = 1) -> bool | None:
        """Advance by n units."""
        was_drawn = super().update(n)
        self._report()
        return was_drawn

    def _report(self) -> None:
        live.report(self.desc.removesuffix(": "), self.n, self.total, unit=self.unit)


_open: list[_Bar] = []
"""The bars of this process that are not closed, the innermost last."""


def say_behind_bar(text: str) -> None:
    """Show a text behind the innermost bar: how far work is of which no unit is finished yet."""
    if _open and text:
        _open[-1].set_postfix_str(text, refresh=False)
        _open[-1].update(0)


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
    # no least number of units between two lines: what stands behind the bar may move while its units do not
    common: dict[str, Any] = {"total": total, "desc": description, "unit": unit, "miniters": 0}
    if file.isatty():
        return _Bar(**common, file=file, dynamic_ncols=True)
    return _Bar(
        **common, file=_Lines(file), mininterval=LINE_INTERVAL_S, maxinterval=LINE_INTERVAL_S, ncols=120, ascii=True
    )

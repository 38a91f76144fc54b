"""What a run is doing right now, as small JSON files that anybody may read while it goes on.

Each process of a run writes its own file ``live/SOURCE.json`` in the run folder, at most once a second, whole or not at
all; no process waits for another. `plansmith watch` shows them, and the watchdog (`plansmith.watchdog`) tells from them
whether anything still moves. They are no result: nothing is lost when they are deleted. Progress of a bar arrives here
through `plansmith.progress`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import ConfigDict, TypeAdapter

logger = logging.getLogger(__name__)

LIVE_FOLDER = "live"
RUN = "run"
"""Source of the process that conducts the stages."""
STAGE = "stage"
"""Source that is no process: its `doing` is the stage whose turn it is."""
WRITE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class LiveWork:
    """What one process of a run is doing.

    Attributes:
        source: the process: `RUN`, ``trainer``, ``policy-0`` and so on; or `STAGE`.
        doing: in words for the user; what it waits for, when it waits.
        done: units finished.
        total: units in all, or None when nobody knows.
        unit: what is counted.
        values: latest figures, named like ``train/loss``.
        started: when this work began, in seconds since 1970.
        moved: when what is done, or its figures, last changed.
    """

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid")

    source: str
    doing: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    moved: float = 0.0

    @property
    def is_of_an_actor(self) -> bool:
        """Return whether another process than the conducting one said this of itself."""
        return self.source not in (RUN, STAGE)

    @property
    def rate(self) -> float | None:
        """Return units a second since the work began, or None before there is one."""
        elapsed = self.moved - self.started
        return self.done / elapsed if self.done and elapsed > 0 else None


_SAID = TypeAdapter(LiveWork)
"""What a program of ours can have said; a file that was written by hand may hold anything."""


class LiveFile:
    """The file of one process.

    Args:
        run_folder: of the run.
        source: name of the process.
    """

    def __init__(self, run_folder: Path, source: str) -> None:
        self._path = run_folder / LIVE_FOLDER / f"{source}.json"
        self._work = LiveWork(source, "")
        self._written = 0.0
        self._is_broken = False

    def update(
        self,
        doing: str,
        done: float = 0,
        total: float | None = None,
        *,
        unit: str = "",
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Say what this process is doing; written at once when that is something else than before, or finished."""
        now, old = time.time(), self._work
        is_other = doing != old.doing
        begins = is_other or done < old.done  # the same work again, such as the next prompts of many
        has_moved = is_other or done != old.done or (values is not None and dict(values) != old.values)
        self._work = LiveWork(
            old.source,
            doing,
            done,
            total,
            unit,
            dict(values or ({} if is_other else old.values)),
            started=now if begins else old.started,
            moved=now if has_moved else old.moved,
        )
        if is_other or (has_moved and (done == total or now - self._written >= WRITE_INTERVAL_S)):
            self._write(now)

    def _write(self, now: float) -> None:
        """Write the file; a full disk is said once and stops no run, whose own writing will meet it."""
        self._written = now
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(asdict(self._work)), encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            if not self._is_broken:
                logger.warning("what the run is doing cannot be shown: %s", error)
            self._is_broken = True


class Listener(Protocol):
    """Hears what a process is doing; see `LiveFile.update`."""

    def update(
        self, doing: str, done: float, total: float | None, *, unit: str, values: Mapping[str, float] | None
    ) -> None:
        """Take what `report` was given."""


_listeners: list[Listener] = []
"""Where the progress of this process goes. Like logging handlers, they belong to the process."""


@contextlib.contextmanager
def reporting_to(*listeners: Listener) -> Iterator[None]:
    """Send what `report` is told in this process to listeners as well, until the block ends."""
    _listeners.extend(listeners)
    try:
        yield
    finally:
        for listener in listeners:
            _listeners.remove(listener)


def report_to(*listeners: Listener) -> None:
    """Send what `report` is told in this process to listeners as long as the process lives."""
    _listeners.extend(listeners)


def report(
    doing: str,
    done: float = 0,
    total: float | None = None,
    *,
    unit: str = "",
    values: Mapping[str, float] | None = None,
) -> None:
    """Say what this process is doing; without `report_to` or `reporting_to` nobody listens."""
    for listener in _listeners:
        listener.update(doing, done, total, unit=unit, values=values)


class LiveProgress:
    """Progress of one work of a process that shows no bar of its own."""

    def __init__(self, doing: str, total: float | None, *, unit: str) -> None:
        self._doing, self._done, self._total, self._unit = doing, 0.0, total, unit
        report(doing, 0, total, unit=unit)

    def advance(self, n: float = 1, values: Mapping[str, float] | None = None) -> None:
        """Report n further units, and the latest figures."""
        self._done += n
        report(self._doing, self._done, self._total, unit=self._unit, values=values)


def read_live(run_folder: Path) -> list[LiveWork]:
    """Return what every process of a run last said, the latest movement first; a file that cannot be read is left out.

    The clocks of several machines may differ; `moved` is by the clock of the process.
    """
    found = []
    for path in (run_folder / LIVE_FOLDER).glob("[!.]*.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(replace(_SAID.validate_json(path.read_bytes()), source=path.stem))
    return sorted(found, key=lambda work: work.moved, reverse=True)

"""Checkpoints within an optimisation: when one is due, which are whole, and how an interrupted one goes on.

One lies in ``step-N/`` of a folder of the stage: what the ranks write of weights, optimizer and random states, and
`RECORD`, written last, without which it is none. Position in the data and schedule follow from the number of steps,
because all batches are planned before the first. Not here: the state of an engine (`TrainerActor.save_checkpoint`), and
the loop (`optimisation`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plansmith.data.artifacts import RECORD, remove
from plansmith.data.storage import atomic_file
from plansmith.errors import BadInputError
from plansmith.learning.optimisation import Course

logger = logging.getLogger(__name__)

VERSION = 3
"""Of a record; a change of what it or the ranks' files mean raises it."""
N_KEPT = 2
REACHED = ".reached"
"""Holds how many steps were taken, written after each: what a kill cost is seen from it."""


class Trainer(Protocol):
    """One rank of what is trained; `actors.trainer.TrainerActor` fits."""

    rank: int

    def sum_over_ranks(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """Return the element-wise sum over ranks."""

    def save_checkpoint(self, folder: str | Path) -> None:
        """Write the share of this rank; see `TrainerActor.save_checkpoint`."""

    def load_checkpoint(self, folder: str | Path) -> None:
        """Take the share of this rank."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a checkpoint has beside the state of the ranks.

    Attributes:
        made_for: the optimisation and the ranks that it is of, as JSON values by dotted name.
        course: the optimisation as far as it has come.
        n_planned: steps of the whole call.
        files: sizes in bytes by path.
    """

    made_for: Mapping[str, Any]
    course: Course
    n_planned: int
    files: Mapping[str, int]
    version: int = VERSION

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Return the record of a checkpoint.

        Raises:
            BadInputError: another version wrote it.
        """
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise BadInputError(
                "a checkpoint of another version of Plansmith", where=str(folder), got=f"version {found['version']}",
                expected=f"version {VERSION}",
                cure=f"go on with the version that wrote it, or remove {folder.parent}: the optimisation begins anew",
            )  # fmt: skip
        return cls(**{**found, "course": Course(**found["course"])})

    @property
    def progress(self) -> str:
        """Return where it is, in words."""
        return f"step {self.course.n_taken} of {self.n_planned}"


def interruption(folder: Path) -> str:
    """Return in words where an interrupted optimisation goes on and what the interruption cost; empty without one."""
    n_reached, whole = _n_reached(folder), _whole(folder)
    if not n_reached:
        return ""
    if not whole:
        return f"interrupted before its first checkpoint: {n_reached} steps are taken again"
    record = Record.read(whole[0])
    return f"interrupted: goes on after {record.progress}, {n_reached - record.course.n_taken} steps are taken again"


class Checkpoints:
    """The checkpoints of one optimisation; every rank has this and makes the same calls."""

    def __init__(
        self,
        folder: Path,
        trainer: Trainer,
        made_for: Mapping[str, Any],
        *,
        n_planned: int,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep a trainer's optimisation in a folder that all ranks see.

        Args:
            folder: holds nothing else; made when absent.
            trainer: whose state is kept.
            made_for: what must be the same for a checkpoint to be gone on from, as JSON values by dotted name.
            n_planned: steps of the whole call.
            every_s: seconds between checkpoints, by the clock of rank 0; 0 keeps every step.
            clock: returns seconds.
        """
        self._folder, self._trainer, self._made_for, self._n_planned = folder, trainer, dict(made_for), n_planned
        self._every_s, self._clock, self._last_s = every_s, clock, clock()

    def resumed(self) -> Course | None:
        """Return how far the newest whole checkpoint has come, whose state the trainer has now; None without one.

        Raises:
            BadInputError: it is of another optimisation, of other ranks, or of another version.
        """
        whole = _whole(self._folder) if self._trainer.rank == 0 else []
        number = int(self._trainer.sum_over_ranks([_number(whole[0]) if whole else 0])[0])  # as rank 0 sees the disk
        if not number:
            return None
        folder = self._folder / _name(number)
        record = Record.read(folder)
        self._check(record, folder)
        self._trainer.load_checkpoint(folder)
        return record.course

    def _check(self, record: Record, folder: Path) -> None:
        made_for: Mapping[str, Any] = json.loads(json.dumps(self._made_for))
        names = sorted(record.made_for.keys() | made_for.keys())
        unlike = [name for name in names if record.made_for.get(name) != made_for.get(name)]
        if unlike:
            got, expected = (
                ", ".join(f"{name}={values.get(name)}" for name in unlike) for values in (record.made_for, made_for)
            )
            raise BadInputError(
                "a checkpoint of other settings", where=str(folder), got=got, expected=expected,
                cure=f"take the change back, or remove {self._folder}: the optimisation begins anew",
            )  # fmt: skip

    def keep(self, course: Course) -> None:
        """Write a checkpoint if rank 0 says that one is due, and remove all but the last `N_KEPT`.

        One that cannot be written, on a full disk for one, is warned about and tried again an interval later.
        """
        is_first, folder = self._trainer.rank == 0, self._folder / _name(course.n_taken)
        if is_first:
            self._note_reached(course.n_taken)
        is_due = is_first and self._clock() - self._last_s >= self._every_s
        if not self._trainer.sum_over_ranks([float(is_due)])[0]:
            return
        try:
            self._trainer.save_checkpoint(folder)
            if is_first:
                self._write_record(folder, course)
        except OSError as error:
            logger.warning("no checkpoint after step %d, the last whole one stays: %s", course.n_taken, error)
        if is_first:
            self._remove_others()
        self._last_s = self._clock()

    def _write_record(self, folder: Path, course: Course) -> None:
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        record = Record(self._made_for, course, self._n_planned, sizes)
        with atomic_file(folder / RECORD) as file:
            file.write(json.dumps(asdict(record), allow_nan=False).encode())

    def _remove_others(self) -> None:
        kept = _whole(self._folder)[:N_KEPT]
        for path in self._folder.iterdir():
            if path not in kept and path.name != REACHED:
                remove(path)

    def _note_reached(self, n_taken: int) -> None:
        """Write in place, which no kill of the process undoes; nothing hangs on it, so nobody waits for the disk."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / REACHED, os.O_WRONLY | os.O_CREAT)
            try:
                os.pwrite(descriptor, b"%-12d" % n_taken, 0)
            finally:
                os.close(descriptor)


def _whole(folder: Path) -> list[Path]:
    """Return the checkpoints that are as they were written, the newest first."""
    found = [path.parent for path in folder.glob(f"step-*/{RECORD}")]
    return [path for path in sorted(found, key=_number, reverse=True) if _is_whole(path)]


def _is_whole(folder: Path) -> bool:
    found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    for name, size in found["files"].items() if found["version"] == VERSION else ():  # others are refused when read
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            logger.warning("%s is not as it was written, %s is cut short: it is not used", folder, name)
            return False
    return True


def _n_reached(folder: Path) -> int:
    path = folder / REACHED
    return int(path.read_text(encoding="ascii") or 0) if path.is_file() else 0


def _name(n_taken: int) -> str:
    return f"step-{n_taken:08d}"


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))

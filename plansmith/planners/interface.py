"""What every planner is: a warm worker process with a lock, limits, and a word for each outcome."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plansmith.config.planner import PlannerConfig
from plansmith.planners.process import WorkerProcess
from plansmith.planners.result import PlannerResult

ANSWER_GRACE_S = 15.0
"""How long a worker may be late with its answer, which it keeps the limits of itself."""

MESSAGE_CHARACTERS = 2000
"""How much of a planner's own words is quoted."""


class Planner(ABC):
    """Solves problems one at a time; holds processes, so close it, or use it as a context manager.

    Concurrent calls wait for each other. A worker that died is replaced and the problem given to the new one.
    """

    def __init__(self, settings: PlannerConfig | None, worker: WorkerProcess) -> None:
        self.settings = settings or PlannerConfig()
        self._worker, self._lock = worker, threading.Lock()

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the planner, with its search where it has one, as rows name it."""

    @property
    def worker_pid(self) -> int | None:
        """Return the process id of the warm worker; None when closed."""
        return self._worker.pid

    @abstractmethod
    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem.

        Raises:
            PddlParseError: the domain or the problem cannot be read.
            PlannerCrashError: the planner ended in no way that it is known for, the worker died twice over this
                problem, or `close` was called meanwhile.
        """

    @contextlib.contextmanager
    def _problem_folder(self, domain_pddl: str, problem_pddl: str) -> Iterator[Path]:
        """Give the folder of one problem, with its input files, once the worker is free."""
        with self._lock, tempfile.TemporaryDirectory(prefix="plansmith-planner-") as name:
            folder = Path(name)
            (folder / "domain.pddl").write_text(domain_pddl, encoding="utf-8")
            (folder / "problem.pddl").write_text(problem_pddl, encoding="utf-8")
            yield folder

    def close(self) -> None:
        """End the worker, and with it a call that another thread waits for; closing twice does no harm."""
        self._worker.hang_up()
        with self._lock:
            self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def request_of(folder: Path, settings: PlannerConfig, **more: Any) -> dict[str, Any]:
    """Return what a worker is asked about the problem in a folder."""
    limits = settings.model_dump(include={"time_limit_s", "kill_after_s", "memory_limit_mib"})
    return {"folder": str(folder), **limits, **more}


def stopped_message(settings: PlannerConfig, *, is_killed: bool) -> str:
    """Return which of its time limits a planner met: `is_killed` where it was the wall clock's."""
    if is_killed:
        return (
            f"stopped at {settings.kill_after_s} wall-clock seconds (kill_after_s): the machine is busy, or it waited"
        )
    return f"stopped at {settings.time_limit_s} CPU seconds (time_limit_s)"

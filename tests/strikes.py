"""Processes of a run struck while they work: when to strike, and whom."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from plansmith.live import LiveWork, read_live

Record = Callable[[str, object], None]
"""Figures that ``--junitxml`` shows: seconds from the fault to the end of the work that it struck."""


@contextmanager
def once(run_folder: Path, is_due: Callable[[LiveWork], bool], strike: Callable[[], Any]) -> Iterator[list[float]]:
    """Strike once, from beside, as soon as a process of the run says what is waited for; yield when it happened."""
    stop, struck = threading.Event(), list[float]()

    def watch() -> None:
        while not stop.wait(0.01):
            if any(is_due(work) for work in read_live(run_folder)):
                struck.append(time.monotonic())
                strike()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield struck
    finally:
        stop.set()
        thread.join()
    assert struck, "nobody said what was waited for before the work had ended: nothing was struck"


def is_halfway(doing: str) -> Callable[[LiveWork], bool]:
    """Return whether a process says that it has finished some of this work, and not all."""
    return lambda work: work.doing == doing and 1 <= work.done < (work.total or 0)


def pid_of(actor: Any) -> int:
    """Return the process of an actor, once it has one."""
    pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return pid


def strike_in_handover(workers: Any, pid: int | None = None) -> None:
    """Have a process killed once the trainer sends weights to the engine the next time, while it takes them.

    Args:
        workers: of the run, with one engine.
        pid: of the process; None: the engine's own.
    """
    ray.get(workers._policies[0].__ray_call__.remote(_arm, pid))


def _arm(policy: Any, pid: int | None) -> None:
    receive = policy._engine.receive

    def deadly(call: str, *arguments: Any) -> None:
        if call == "update_weights":
            policy._engine.receive = receive
            os.kill(os.getpid() if pid is None else pid, signal.SIGKILL)
        receive(call, *arguments)

    policy._engine.receive = deadly

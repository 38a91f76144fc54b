"""An error instead of a silent hang: a run in which nothing has moved for too long is stopped with the stage's name.

A dead worker, a collective that waits for a rank, a resource that nobody offers: all of them look like patience from
outside. The watchdog looks at what the processes of the run say of themselves (`plansmith.live`), and interrupts the
main thread, whatever that waits for. It is a timer and a signal; it starts no thread and no process.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from plansmith.errors import StalledError
from plansmith.live import STAGE, LiveWork, read_live

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def watchdog(run_folder: Path, *, limit_s: float) -> Iterator[None]:
    """Raise `StalledError` in the block when no process of the run has moved for ``limit_s`` seconds; 0 is off.

    Only the main thread can be interrupted; in another one there is no watchdog, and a warning. What was found before
    the block began does not count. Movement is noticed when it is written, so that clocks of other machines may differ.
    """
    if not limit_s:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        logger.warning("no watchdog: the run is not conducted by the main thread")
        yield
        return
    last_seen, since = _movement(run_folder), time.monotonic()
    stalled: StalledError | None = None

    def look(_signal: int, _frame: FrameType | None) -> None:
        nonlocal last_seen, since, stalled
        seen, now = _movement(run_folder), time.monotonic()
        if seen != last_seen:
            last_seen, since = seen, now
        if now - since < limit_s:
            return
        since = now  # interrupt again after as long, in case this one is swallowed
        stalled = _stalled(run_folder, limit_s)
        raise KeyboardInterrupt  # the only exception of a signal that `ray.get` lets through

    previous = signal.signal(signal.SIGALRM, look)
    interval_s = limit_s / 10
    signal.setitimer(signal.ITIMER_REAL, interval_s, interval_s)
    try:
        yield
    except KeyboardInterrupt:
        if stalled is None:
            raise
        raise stalled from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _movement(run_folder: Path) -> dict[str, float]:
    return {work.source: work.moved for work in read_live(run_folder)}


def _stalled(run_folder: Path, limit_s: float) -> StalledError:
    works = read_live(run_folder)
    stage = next((work.doing for work in works if work.source == STAGE), "")
    last = next((work for work in works if work.source != STAGE), None)
    return StalledError(
        f"nothing has moved for {limit_s:g} s",
        where=f"stage {stage}" if stage else str(run_folder),
        got=f"last: {_said(last)}" if last else "no process has said what it is doing",
        expected="progress of some process within cluster.stall_limit_s",
        cure="look at the log of that process; the same command continues with what is finished; a stage that is right "
        "to take so long needs a larger cluster.stall_limit_s",
    )


def _said(work: LiveWork) -> str:
    count = f" ({work.done:g} of {work.total:g})" if work.total else ""
    return f"{work.source}: {work.doing}{count}"

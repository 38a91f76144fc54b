"""Who may work, who waits, and who is sent away: slots for requests and a queue that has an end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from plansmith.errors import PlansmithError

LONGEST_RETRY_S = 60
SMOOTHING = 0.1
"""Weight of the latest request in the mean time that a slot is taken."""


class OverloadedError(PlansmithError):
    """There is no slot and no room to wait; ``retry_after_s`` is when there may be."""

    def __init__(self, message: str, *, retry_after_s: int = 1, **details: str | None) -> None:
        super().__init__(message, **details)
        self.retry_after_s = retry_after_s


class Admission:
    """Slots for the requests of one process. A slot is given back however its request ends, cancelled included.

    Args:
        max_concurrent: slots.
        max_queued: requests that may wait for one, first come, first served.
        on_change: is told how many requests have a slot and how many wait.
    """

    def __init__(self, *, max_concurrent: int, max_queued: int, on_change: Callable[[int, int], None]) -> None:
        self._max_concurrent, self._max_queued, self._on_change = max_concurrent, max_queued, on_change
        self._slots = asyncio.Semaphore(max_concurrent)
        self._mean_s = 1.0
        self.running = self.queued = 0

    async def keep_telling(self, period_s: float) -> None:
        """Say how many there are again and again, until cancelled: Ray forgets a gauge that nobody sets."""
        while True:
            self._on_change(self.running, self.queued)
            await asyncio.sleep(period_s)

    @asynccontextmanager
    async def slot(self, *, wait_s: float) -> AsyncIterator[float]:
        """Hold a slot while the block runs; yield the seconds that were waited for it.

        Raises:
            OverloadedError: the queue is full, or no slot was free in `wait_s`.
        """
        start = time.perf_counter()
        await self._take(wait_s)
        begun = time.perf_counter()
        self._count(running=1)
        try:
            yield begun - start
        finally:
            self._count(running=-1)
            self._slots.release()
            self._mean_s += SMOOTHING * (time.perf_counter() - begun - self._mean_s)

    async def _take(self, wait_s: float) -> None:
        if self._slots.locked() and self.queued >= self._max_queued:
            raise self._overloaded("every slot is taken and the queue is full")
        self._count(queued=1)
        try:
            async with asyncio.timeout(wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise self._overloaded(f"no slot was free in {wait_s:.1f} s") from None
        finally:
            self._count(queued=-1)

    def _count(self, *, running: int = 0, queued: int = 0) -> None:
        self.running, self.queued = self.running + running, self.queued + queued
        self._on_change(self.running, self.queued)

    def _overloaded(self, message: str) -> OverloadedError:
        """Return the error with the time in which the queue should have moved up, by the latest requests."""
        expected_s = self._mean_s * (self.queued + 1) / self._max_concurrent
        return OverloadedError(message, retry_after_s=min(max(1, math.ceil(expected_s)), LONGEST_RETRY_S))

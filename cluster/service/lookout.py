"""Asking somebody who may not answer for minutes, without a thread for each who wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence


class Lookout:
    """Asks a function that may block, one call at a time; who comes meanwhile waits for the same answer.

    Args:
        look: the function.
        limit_s: how long anybody waits, in seconds.
        otherwise: the answer where there is none so soon, or none at all.
        failures: errors of the function that mean no answer.
    """

    def __init__(
        self,
        look: Callable[[], Sequence[str]],
        *,
        limit_s: float,
        otherwise: Sequence[str],
        failures: tuple[type[Exception], ...] = (),
    ) -> None:
        self._look, self._limit_s, self._otherwise = look, limit_s, otherwise
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *failures)
        self._call: asyncio.Future[Sequence[str]] | None = None

    async def answer(self) -> Sequence[str]:
        """Return what the function says, or what holds otherwise."""
        if self._call is None or self._call.done():
            self._call = asyncio.ensure_future(asyncio.to_thread(self._look))
        try:
            return await asyncio.wait_for(asyncio.shield(self._call), self._limit_s)
        except self._failures:
            return self._otherwise

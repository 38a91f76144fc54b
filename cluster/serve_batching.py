"""Requests that come while the engine works share its next call.

`ray.serve.batch` closes a batch a fixed time after its first request, whether or not the engine is free: behind a call
of a second it lines up many small batches, to be worked off one by one. Here a batch is closed when the engine takes
it, so that it holds all who wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

QuestionT = TypeVar("QuestionT")
AnswerT = TypeVar("AnswerT")


class Batcher(Generic[QuestionT, AnswerT]):
    """Answers questions in batches, one batch at a time. For one event loop.

    Args:
        answer: returns the answers to questions, in their order; runs in `executor`.
        executor: of one thread, so that an engine sees one thread only.
        max_size: of a batch.
        gather_s: how long a first question waits for others while nothing is running.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[QuestionT]], Sequence[AnswerT]],
        executor: Executor,
        *,
        max_size: int,
        gather_s: float,
    ) -> None:
        self._answer, self._executor = answer, executor
        self._max_size, self._gather_s = max_size, gather_s
        self._waiting: deque[tuple[QuestionT, asyncio.Future[AnswerT]]] = deque()
        self._work: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """What the last batch ended in, or None after a good one."""

    async def ask(self, question: QuestionT) -> AnswerT:
        """Return the answer; a question whose asker is cancelled before its batch begins is not asked."""
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._work_off())
        return await future

    async def _work_off(self) -> None:
        await asyncio.sleep(self._gather_s)
        while batch := self._take():
            questions = [question for question, _ in batch]
            done = asyncio.get_running_loop().run_in_executor(self._executor, self._answer, questions)
            await asyncio.wait([done])
            self.failure = done.exception()
            for place, (_, future) in enumerate(batch):
                if future.done():  # its asker is gone
                    continue
                if self.failure is not None:
                    future.set_exception(self.failure)
                else:
                    future.set_result(done.result()[place])

    def _take(self) -> list[tuple[QuestionT, asyncio.Future[AnswerT]]]:
        """Return the next batch, without those who are gone; empty when nobody waits."""
        batch: list[tuple[QuestionT, asyncio.Future[AnswerT]]] = []
        while self._waiting and len(batch) < self._max_size:
            question, future = self._waiting.popleft()
            if not future.done():
                batch.append((question, future))
        return batch

"""In-flight (continuous) batching: one thread steps the engine, and every prompt joins and leaves it on its own.

A prompt joins between two steps, whatever is under way, and its answer goes out with the step that ends it, so that a
short answer waits for no longer one. Ray Serve has no part for this: `ray.serve.batch` lines requests up into calls.
Not here: what a prompt is made of (`plansmith.learning.codec`), and vLLM (`actors.engine`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from plansmith.config.generation import SamplingConfig
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import Generation

logger = logging.getLogger(__name__)


class SteppedEngine(Protocol):
    """What is asked of an engine, from one thread; `actors.policy.PolicyActor` is one."""

    def add_requests(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, *, seeds: Sequence[int]
    ) -> Sequence[int]:
        """Queue prompts and return the number of each.

        Raises:
            BadInputError: a prompt that it cannot read; any other error means that the engine is broken.
        """
        ...

    def step(self) -> Mapping[int, Generation]:
        """Decode one token of everything under way; return what finished, by number."""
        ...

    def abort_requests(self, requests: Collection[int]) -> None:
        """Stop what nobody wants any more."""
        ...

    def has_unfinished_requests(self) -> bool:
        """Return whether anything is under way."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with the future of its answer, which is cancelled when the asker is gone."""

    prompt: Sequence[int]
    seed: int
    answer: Future[Generation]


class InFlightEngine:
    """An engine in a thread of its own, for askers on any event loop. Once broken, it is not asked again.

    Args:
        start: builds the engine, in the thread that steps it.
        sampling: how every answer is drawn; one for each prompt.

    Raises:
        Exception: what `start` raised.
    """

    def __init__(self, start: Callable[[], SteppedEngine], sampling: SamplingConfig) -> None:
        self._sampling = sampling
        self._inbox: SimpleQueue[Question] = SimpleQueue()
        self._under_way: dict[int, Future[Generation]] = {}
        self.failure: BaseException | None = None
        """What the engine ended in; every question is answered with it from then on."""
        started: Future[None] = Future()
        threading.Thread(target=self._run, args=(start, started), name="engine", daemon=True).start()
        started.result()

    async def ask(self, prompt: Sequence[int], seed: int) -> Generation:
        """Return the answer to a prompt; cancelled, the engine drops it before its next step.

        Raises:
            BadInputError: the engine cannot read the prompt.
            PlansmithError: the engine failed.
        """
        question = Question(prompt, seed, Future())
        self._inbox.put(question)
        return await asyncio.wrap_future(question.answer)

    def _run(self, start: Callable[[], SteppedEngine], started: Future[None]) -> None:
        try:
            engine = start()
        except BaseException as error:  # noqa: BLE001  # goes on to who waits for the start
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            while True:
                self._turn(engine)
        except BaseException as error:
            logger.exception("the engine failed")
            self._refuse_all(error)

    def _turn(self, engine: SteppedEngine) -> None:
        """Let prompts in, drop those of nobody, and give out what one step finished."""
        while not self._under_way or not self._inbox.empty():  # an idle engine waits here
            self._begin(engine, self._inbox.get())
        if gone := [number for number, answer in self._under_way.items() if answer.cancelled()]:
            engine.abort_requests(gone)
            for number in gone:
                del self._under_way[number]
        if not self._under_way:
            return
        if not engine.has_unfinished_requests():
            raise PlansmithError("the engine lost prompts", got="nothing under way", expected=str(len(self._under_way)))
        for number, generation in engine.step().items():
            _give(self._under_way.pop(number), generation)

    def _begin(self, engine: SteppedEngine, question: Question) -> None:
        if question.answer.cancelled():
            return
        try:
            [number] = engine.add_requests([question.prompt], self._sampling, seeds=[question.seed])
        except BadInputError as error:  # of this prompt, not of the engine
            _fail(question.answer, error)
        except BaseException as error:
            _fail(question.answer, _failed(error))
            raise
        else:
            self._under_way[number] = question.answer

    def _refuse_all(self, error: BaseException) -> None:
        """Tell everyone who waits, and everyone who will come, that there is no engine; never returns."""
        self.failure = error
        for answer in self._under_way.values():
            _fail(answer, _failed(error))
        self._under_way.clear()
        while True:
            _fail(self._inbox.get().answer, _failed(error))


def _failed(error: BaseException) -> PlansmithError:
    """Return an error of our own for each asker, which every process can read; engines raise what only they know."""
    return PlansmithError("the engine failed", got=f"{type(error).__name__}: {error}")


def _give(answer: Future[Generation], generation: Generation) -> None:
    if answer.set_running_or_notify_cancel():  # or its asker has just gone
        answer.set_result(generation)


def _fail(answer: Future[Generation], error: BaseException) -> None:
    if answer.set_running_or_notify_cancel():
        answer.set_exception(error)

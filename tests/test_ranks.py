"""The desk between a run and the ranks of its trainer: who is asked, whose answer counts, and what a lost rank means.

No Ray: the desk is a plain asyncio class. With Ray Train the ranks are in `test_workers.py` and `test_faults.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors import ranks
from actors.ranks import CallDesk, Failure, Place
from plansmith.errors import BadInputError, LostWorkerError, PlansmithError

PLACE = Place("here", (), 1)


def run(story: Callable[[CallDesk], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        await asyncio.wait_for(story(CallDesk()), 60)

    asyncio.run(told())


async def joined(desk: CallDesk, group: str) -> None:
    for rank in (1, 0):
        await desk.join(group, rank, 2, PLACE)


def test_answer_of_rank_0_is_returned_when_every_rank_has_answered() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        assert await desk.next("a", 0) == (1, ["call"])
        await desk.answer("a", 1, 0, ["of rank 0"])
        await asyncio.sleep(0)
        assert not asked.done()
        await desk.answer("a", 1, 1, [None])
        assert await asked == ["of rank 0"]

    run(story)


def test_call_is_given_to_a_rank_once() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        waiting = asyncio.create_task(desk.next("a", 1))
        for rank in range(2):
            await desk.answer("a", 1, rank, [rank])
        await asked
        assert not waiting.done()
        again = asyncio.create_task(desk.ask("a", ["another"]))
        assert await waiting == (2, ["another"])
        again.cancel()

    run(story)


def test_error_of_any_rank_is_raised_and_the_next_call_is_done() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        await desk.answer("a", 1, 0, [None])
        await desk.answer("a", 1, 1, [BadInputError("nothing to train on")])
        with pytest.raises(BadInputError, match="nothing to train on"):
            await asked
        asked = asyncio.create_task(desk.ask("a", ["another"]))
        assert await desk.next("a", 1) == (2, ["another"])
        for rank in range(2):
            await desk.answer("a", 2, rank, [rank])
        assert await asked == [0]

    run(story)


def test_new_group_says_that_the_call_of_the_old_one_is_lost() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        await desk.join("b", 1, 2, PLACE)
        with pytest.raises(LostWorkerError, match="a rank of the trainer was lost"):
            await asked
        places = asyncio.create_task(desk.places())
        await asyncio.sleep(0)
        assert not places.done()
        await desk.join("b", 0, 2, PLACE)
        assert await places == ("b", [PLACE, PLACE])
        await desk.answer("a", 1, 0, ["too late"])
        with pytest.raises(LostWorkerError):
            await desk.ask("a", ["to those that are gone"])

    run(story)


def test_group_that_is_smaller_than_the_one_before_is_asked_like_it() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        await desk.join("b", 0, 1, PLACE)
        assert await desk.places() == ("b", [PLACE])
        asked = asyncio.create_task(desk.ask("b", ["call"]))
        assert await desk.next("b", 0) == (1, ["call"])
        await desk.answer("b", 1, 0, ["of the only one"])
        assert await asked == ["of the only one"]

    run(story)


def test_failed_rank_whose_neighbour_never_answers_loses_the_group_before_another_has_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranks, "PATIENCE_S", 0.01)

    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        await desk.answer("a", 1, 0, Failure("RuntimeError: connection closed by peer"))
        with pytest.raises(LostWorkerError) as caught:
            await asked
        assert caught.value.got == "rank 0: RuntimeError: connection closed by peer"
        places = asyncio.create_task(desk.places())
        await asyncio.sleep(0)
        assert not places.done(), "the group that is on its way out is asked no more"
        await joined(desk, "b")
        assert await places == ("b", [PLACE, PLACE])

    run(story)


def test_failure_while_every_rank_answers_is_no_lost_worker_and_still_ends_the_group() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        for rank in range(2):
            await desk.answer("a", 1, rank, Failure("ValueError: a bug"))
        with pytest.raises(PlansmithError) as caught:
            await asked
        assert not isinstance(caught.value, LostWorkerError)
        assert caught.value.got == "rank 0: ValueError: a bug; rank 1: ValueError: a bug"
        with pytest.raises(LostWorkerError):
            await desk.ask("a", ["another"])

    run(story)


def test_failure_beside_a_rank_that_lost_an_engine_is_a_lost_worker() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        asked = asyncio.create_task(desk.ask("a", ["call"]))
        await desk.next("a", 0)
        await desk.answer("a", 1, 0, [LostWorkerError("an engine was lost as it took weights")])
        await desk.answer("a", 1, 1, Failure("RuntimeError: connection closed by peer"))
        with pytest.raises(LostWorkerError):
            await asked

    run(story)


def test_ranks_are_told_that_there_will_be_no_more() -> None:
    async def story(desk: CallDesk) -> None:
        await joined(desk, "a")
        waiting = [asyncio.create_task(desk.next("a", 0)) for _ in range(2)]
        await desk.end()
        assert [await one for one in waiting] == [None, None]

    run(story)

"""The ranks of the trainer, as Ray Train runs them: a loop that waits for calls, and the desk where they are left.

Ray Train places the ranks, joins them in a process group, watches them and starts all anew when one is lost; a fit that
began anew for each optimisation would pay its start, 10 to 25 s on two cores, every time. So a run has one fit, whose
`serve_calls` holds a `TrainerActor` and does what the run asks of it. A `CallDesk` is between them, as nobody but Ray
Train may call its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plansmith.errors import LostWorkerError, PlansmithError

MAKE = "make"
"""The call that has a rank make its `TrainerActor` anew; any other is a method's name."""

PATIENCE_S = 60.0
"""How long the ranks have to answer once one of them has failed: those that wait for it in a sum never will."""


@dataclass(frozen=True, slots=True)
class Call:
    """What every rank is to do: the method of a `TrainerActor`, and what it is given; Ray's references as values."""

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is: Ray's name of the machine, the devices there that are its own, and its process."""

    node_id: str
    devices: tuple[str, ...]
    pid: int


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank failed in a call, as text: the error refers to what cannot leave its process."""

    said: str


class CallDesk:
    """Where a run leaves one call at a time for its ranks, and each of them its answer. For `ray.remote`.

    The ranks of one start of Ray Train's are a *group*, of as many as it found room for. A group that joins says that
    the one before is gone, and with it what that was asked.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._group, self._n_ranks = "", 0
        self._places: dict[int, Place] = {}
        self._number, self._call = 0, list[Any]()
        self._answers: dict[int, list[Any]] = {}
        self._failures: dict[int, Failure] = {}
        self._is_over = False
        self._controller: Any = None

    # --- for Ray Train's controller

    async def meet(self, controller: Any) -> None:
        """Hear who starts the ranks and watches over them."""
        async with self._changed:
            self._controller = controller
            self._changed.notify_all()

    # --- for the ranks

    async def join(self, group: str, rank: int, n_ranks: int, place: Place) -> None:
        """Hear that a rank is there, one of so many."""
        async with self._changed:
            if group != self._group:
                self._enter(group)
            self._n_ranks = n_ranks
            self._places[rank] = place
            self._changed.notify_all()

    async def next(self, group: str, done: int) -> tuple[int, list[Any]] | None:
        """Return the call after the ``done``-th, with its number; None once there will be no more."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_over or self._has_next(group, done))
            return None if self._is_over else (self._number, self._call)

    def _has_next(self, group: str, done: int) -> bool:
        return self._group == group and bool(self._call) and self._number > done

    async def answer(self, group: str, number: int, rank: int, answer: list[Any] | Failure) -> None:
        """Hear what a rank made of a call: in a list its answer, or an error of this project's; or how it failed."""
        async with self._changed:
            if (group, number) != (self._group, self._number):
                return
            if isinstance(answer, Failure):
                self._failures[rank] = answer
            else:
                self._answers[rank] = answer
            self._changed.notify_all()

    # --- for the run

    async def controller(self) -> Any:
        """Return who starts the ranks, once that is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._controller is not None)
            return self._controller

    async def places(self) -> tuple[str, list[Place]]:
        """Return the name of the group and where its ranks are, once all are there."""
        async with self._changed:
            await self._changed.wait_for(lambda: 0 < len(self._places) == self._n_ranks)
            return self._group, [self._places[rank] for rank in range(self._n_ranks)]

    async def ask(self, group: str, call: list[Any]) -> list[Any]:
        """Let every rank do a call; return rank 0's answer.

        Args:
            group: whose ranks are asked.
            call: in a list, a `Call` or a reference to one.

        Raises:
            LostWorkerError: the ranks are not, or no longer, those of this group, or one of them does not answer.
            PlansmithError: a rank's own, of several the first rank's; or ranks failed and none is gone.
        """
        async with self._changed:
            if group == self._group:
                self._number, self._call, self._answers, self._failures = self._number + 1, call, {}, {}
                self._changed.notify_all()
            await self._changed.wait_for(lambda: self._is_answered(group) or bool(self._failures))
            if self._failures and not self._is_answered(group):
                await self._wait_for_the_others(group)
            if group != self._group or self._failures:
                raise self._failed(group)
            self._call = []
            for rank in range(self._n_ranks):
                [found] = self._answers[rank]
                if isinstance(found, PlansmithError):
                    raise found
            return self._answers[0]

    def _is_answered(self, group: str) -> bool:
        return group != self._group or len(self._answers) + len(self._failures) == self._n_ranks

    async def _wait_for_the_others(self, group: str) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait_for(lambda: self._is_answered(group)), PATIENCE_S)

    def _failed(self, group: str) -> PlansmithError:
        """Return the error of a group that is gone or on its way out, which nobody shall ask again.

        Where every rank has answered, and none of a loss, none is gone: the same work would fail again.
        """
        said = "; ".join(f"rank {rank}: {failure.said}" for rank, failure in sorted(self._failures.items()))
        is_lost = any(isinstance(found, LostWorkerError) for [found] in self._answers.values())
        is_there = group == self._group and self._is_answered(group) and not is_lost
        if group == self._group:
            self._enter("")
        if is_there:
            return PlansmithError("the trainer failed", got=said, cure="its traceback is in Ray's logs of the workers")
        return LostWorkerError("a rank of the trainer was lost", got=said or "its process is gone")

    def _enter(self, group: str) -> None:
        self._group, self._places, self._call, self._answers, self._failures = group, {}, [], {}, {}

    async def end(self) -> None:
        """Let the ranks' loops end when they have done what they are doing."""
        async with self._changed:
            self._is_over = True
            self._changed.notify_all()


def introducing(desk: Any) -> Any:
    """Return a callback of Ray Train's with which its controller tells a desk who it is (2.60)."""
    from ray.train.v2._internal.execution.callback import ControllerCallback

    class Introducing(ControllerCallback):
        def after_controller_start(self, train_run_context: Any) -> None:
            import ray

            desk.meet.remote(ray.get_runtime_context().current_actor)

    return Introducing()


def serve_calls(config: Mapping[str, Any]) -> None:
    """Do what is asked of a rank until nothing more will be: the loop of one worker of Ray Train.

    An error of this project's is an answer: every rank has it alike, and can do the next call. Any other ends the loop
    and with it the group, as a neighbour that was lost does; Ray Train starts another.

    Args:
        config: ``desk``, the handle of a `CallDesk`.
    """
    import ray
    from ray import train
    from ray.train.collective import broadcast_from_rank_zero
    from ray.train.v2._internal.execution import context as reporting

    logging.getLogger(reporting.__file__).setLevel(logging.WARNING)  # it repeats each report on the user's screen
    desk, context = config["desk"], train.get_context()
    rank, n_ranks = context.get_world_rank(), context.get_world_size()
    group = broadcast_from_rank_zero(uuid.uuid4().hex)
    ray.get(desk.join.remote(group, rank, n_ranks, _own_place()))
    trainer, done = None, 0
    while (given := ray.get(desk.next.remote(group, done))) is not None:
        done, [reference] = given
        try:
            call = ray.get(reference)
            arguments = [ray.get(value) if isinstance(value, ray.ObjectRef) else value for value in call.arguments]
            if call.method == MAKE:
                if trainer is not None:  # before the other is made: two would not fit
                    trainer.end()
                    trainer = None
                trainer, answer = _made(*arguments, rank=rank, n_ranks=n_ranks, **call.keywords), None
            else:
                answer = getattr(trainer, call.method)(*arguments, **call.keywords)
        except PlansmithError as error:
            ray.get(desk.answer.remote(group, done, rank, [error]))
            continue
        except BaseException as error:
            said = "".join(traceback.format_exception_only(error)).strip()
            ray.get(desk.answer.remote(group, done, rank, Failure(said[-400:])))
            raise
        _report(call, answer)
        ray.get(desk.answer.remote(group, done, rank, [ray.put(answer) if rank == 0 else None]))


def _made(*arguments: Any, **keywords: Any) -> Any:
    from actors.trainer import TrainerActor

    return TrainerActor(*arguments, **keywords)


def _report(call: Call, answer: Any) -> None:
    """Tell Ray Train, whose dashboard shows it, how an optimisation ended; all ranks must."""
    from ray import train

    from plansmith.learning.optimisation import OptimisationReport

    if isinstance(answer, OptimisationReport):
        train.report(
            {
                "doing": call.keywords.get("description", ""),
                **{name: values[-1] for name, values in answer.metrics.items() if values},
            }
        )


def _own_place() -> Place:
    import ray

    context = ray.get_runtime_context()
    return Place(context.get_node_id(), tuple(context.get_accelerator_ids().get("GPU", ())), os.getpid())

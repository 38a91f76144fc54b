"""What Ray raises when a process or a machine is gone, as errors of this project.

Not here: what is done about it. A stage whose workers were lost is run again (`plansmith.stages`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ray import exceptions
from ray.exceptions import RayError

from plansmith.errors import LostWorkerError, PlansmithError

LOST = (
    exceptions.ActorUnschedulableError,
    exceptions.LocalRayletDiedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.RayActorError,
    exceptions.WorkerCrashedError,
)
"""A process or a machine is gone, or what it held; another one can do the same work."""


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Let a `PlansmithError` of a worker leave as itself rather than wrapped in Ray's, and a lost worker as ours.

    Raises:
        LostWorkerError: a process or a machine died. Ray's error is in its text only: that refers to every frame it
            came through, and these to the actors that are left, which would keep their places.
    """
    lost: LostWorkerError | None = None
    try:
        yield
    except RayError as error:
        own = next((cause for cause in _causes(error) if isinstance(cause, PlansmithError)), None)
        if own is not None:
            raise own from None
        if not isinstance(error, LOST) or getattr(error, "actor_init_failed", False):  # its constructor would again
            raise
        lost = LostWorkerError("a worker process was lost", got=_first_lines(error))
    if lost is not None:
        raise lost


def _causes(error: RayError) -> Iterator[BaseException]:
    """Yield what lies beneath Ray's wrappers: the wrapper of a PlansmithError is one itself, with Ray's text."""
    cause: BaseException | None = error
    while isinstance(cause, RayError):
        cause = getattr(cause, "cause", None) or cause.__cause__
    if cause is not None:
        yield cause


def _first_lines(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:400]}"

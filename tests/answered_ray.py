"""A stand-in for the module `ray` whose remote calls are answered before anybody waits for them; engines asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Answer:
    """What a remote call returns: a value that is there, or an error to be raised by whoever gets it."""

    value: Any = None
    error: Exception | None = None


class AnsweredRay:
    """What `pipelines.run.ray_session` uses of Ray."""

    @staticmethod
    def wait(answers: Sequence[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        """Return all answers, or streams of them, as ready."""
        return list(answers), []

    @staticmethod
    def get(answers: Sequence[Answer]) -> list[Any]:
        """Return the values, or raise the first error."""
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]

    @staticmethod
    def put(value: Any) -> Any:
        """Return the value itself."""
        return value


def generated(workers: Any, prompts: Sequence[Sequence[int]], sampling: Any, **options: Any) -> list[list[Any]]:
    """Return what the engines of some workers write to prompts, in their order."""
    found = dict(workers.engines().stream(prompts, sampling, **options))
    return [found[number] for number in range(len(prompts))]

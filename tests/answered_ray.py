"""A stand-in for the module `ray` whose remote calls are answered before anybody waits for them."""

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
    """What `pipelines.parts.ray_session` uses of Ray."""

    @staticmethod
    def wait(answers: Sequence[Answer], **_: Any) -> tuple[list[Answer], list[Answer]]:
        """Return all answers as ready."""
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

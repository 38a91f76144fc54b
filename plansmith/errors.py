"""Typed errors: what, where, what was got, what was expected, how to mend it.

An *outcome* (unsolvable, out of time, an invalid plan) is a value, not an error; see `docs/method.md`. Every error
takes one message plus optional keywords, so that it crosses a Ray call unchanged.
"""

from __future__ import annotations

from typing import Any


class PlansmithError(Exception):
    """A failure that ends the command with exit code 1."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        got: str | None = None,
        expected: str | None = None,
        cure: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.where, self.got, self.expected, self.cure = message, where, got, expected, cure

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        details = (("got", self.got), ("expected", self.expected), ("to mend it", self.cure))
        return "\n".join([head, *(f"  {label}: {text}" for label, text in details if text)])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), self.__dict__


class BadInputError(PlansmithError):
    """The user's input cannot be used; ends the command with exit code 2."""

    exit_code = 2


class PddlParseError(BadInputError):
    """PDDL text that cannot be read; `where` is ``file:line:column``."""


class ConfigError(BadInputError):
    """A preset, a setting or a command-line option that cannot be used."""


class ArtifactError(PlansmithError):
    """A stage result on disk is missing, damaged or not what its manifest says."""


class PlannerCrashError(PlansmithError):
    """The planner ended in a way its documentation does not name."""


class StalePolicyError(PlansmithError):
    """The engine answers with other weights than the trainer's, or a rollout carries another policy version."""


class StalledError(PlansmithError):
    """A run in which nothing has moved for too long; the message names the stage and what was done last."""


class LostWorkerError(PlansmithError):
    """A process or a machine of the run is gone; the same work can be done again by another."""

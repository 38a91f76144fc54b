"""Bounds on what strangers send: the texts of a request, and the calls of the tools that agents are given."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from plansmith.config.basics import StrictModel
from plansmith.errors import BadInputError


def _encodable(text: str) -> str:
    """Return a text that is one; JSON can also write halves of a character."""
    if not text.isascii():
        text.encode()
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""Raises UnicodeEncodeError, a ValueError, which pydantic reports as a mistake of the request."""


class TooLargeError(BadInputError):
    """A text is longer than is read."""


class TextLimits(StrictModel):
    """How long a text may be."""

    max_domain_bytes: int = Field(128 * 1024, ge=1)
    """Longest domain that is read, in bytes of UTF-8; a longer one is refused."""
    max_problem_bytes: int = Field(512 * 1024, ge=1)
    """The same for a problem."""
    max_plan_bytes: int = Field(512 * 1024, ge=1)
    """The same for a plan to be judged."""

    @property
    def max_body_bytes(self) -> int:
        """Return the longest body that is read: twice the texts, for JSON writes a line end as two signs."""
        return 2 * (self.max_domain_bytes + self.max_problem_bytes + self.max_plan_bytes) + 16 * 1024

    def check(self, **texts: str) -> None:
        """Raise unless texts called ``domain``, ``problem`` and ``plan`` are short enough.

        Raises:
            TooLargeError: one of them is not.
        """
        for name, text in texts.items():
            size, most = len(text.encode()), getattr(self, f"max_{name}_bytes")
            if size > most:
                raise TooLargeError("too long", where=name, got=f"{size} bytes", expected=f"{most} at most")


class ToolSettings(TextLimits):
    """What one call of a tool may take, and how many are worked on."""

    workers: int = Field(2, ge=1)
    """Calls that are worked on together; others wait."""
    time_limit_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Wall-clock seconds that a call may wait for a worker, and that each part of it may take: reading, planning,
    judging."""
    memory_limit_mib: int = Field(2048, ge=64)
    """Address space of the process that works on a call, and of each process of its planner."""
    max_problems: int = Field(50, ge=1)
    """Problems that a call of ``problems`` may ask for."""
    max_answer_bytes: int = Field(1024 * 1024, ge=1)
    """Longest answer, in bytes of JSON; a longer one is refused."""
    max_text_bytes: int = Field(32 * 1024, ge=1)
    """Longest text that ``nl2plan`` models, in bytes of UTF-8."""
    policy: str = ""
    """Who answers ``nl2plan``: a model folder, or the address of an OpenAI-compatible server; empty leaves it out."""
    model: str = ""
    """The model's name on that server; empty for its only one."""
    modelling_time_limit_s: float = Field(600.0, gt=0, allow_inf_nan=False)
    """Wall-clock seconds that a call of ``nl2plan`` may take."""
    max_calls: int = Field(200, ge=1)
    """Questions that a call of ``nl2plan`` may ask the model."""

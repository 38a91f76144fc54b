"""What a chain of thought tells beside its steps."""

from __future__ import annotations

from pydantic import Field

from plansmith.config.basics import StrictModel


class ChainConfig(StrictModel):
    """What chains by template tell beside their steps."""

    tells_start: bool = False
    """Begin with the state of the problem: it is copied before anything is looked up in it."""
    alternatives: int = Field(0, ge=0)
    """Other actions told before each step, at most, each with why it is not taken (`plansmith.text.branches`)."""
    backtracks: int = Field(0, ge=0)
    """Branches that fail and are taken back, told in a whole chain, at most."""

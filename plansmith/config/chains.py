"""What a chain of thought tells beside its steps."""

from __future__ import annotations

from pydantic import Field

from plansmith.config.basics import StrictModel


class BranchesConfig(StrictModel):
    """What else could have been done at a step, and what would have failed (`plansmith.text.branches`)."""

    alternatives: int = Field(0, ge=0)
    """Other actions told before each step, at most, each with why it is not taken."""
    backtracks: int = Field(0, ge=0)
    """Branches that fail and are taken back, told in a whole chain, at most."""

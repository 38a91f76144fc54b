"""What all settings have in common: frozen, nothing unknown accepted; ranges."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, PositiveInt


class StrictModel(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _in_order(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"a range goes from its least to its greatest value, got {list(bounds)}")
    return bounds


Range = Annotated[tuple[NonNegativeInt, NonNegativeInt], AfterValidator(_in_order)]
"""Least and greatest value, both included."""

PositiveRange = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_in_order)]

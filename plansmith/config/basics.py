"""What all settings have in common: frozen, nothing unknown accepted; ranges."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, PositiveInt


class StrictModel(BaseModel):
    """Frozen settings that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SettingError(ValueError):
    """Settings that do not go together, as a validator finds them; users read it as `ConfigError`, with the place."""

    def __init__(
        self, message: str, *, setting: str = "", got: str, expected: str | None = None, cure: str | None = None
    ) -> None:
        """Take what `ConfigError` tells.

        Args:
            message: what is wrong.
            setting: dotted name below the validator's model; without one the place is this model's.
            got, expected, cure: as `PlansmithError` has them.
        """
        super().__init__(f"{message}, got {got}" + f": {cure}" * bool(cure))
        self.message, self.setting, self.got, self.expected, self.cure = message, setting, got, expected, cure


SettingsT = TypeVar("SettingsT", bound=StrictModel)


def narrowed(settings: StrictModel, kind: type[SettingsT]) -> SettingsT:
    """Return the part of some settings that a class they are made of describes: what a stage depends on, no more."""
    return kind(**{name: getattr(settings, name) for name in kind.model_fields})


def _in_order(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"a range goes from its least to its greatest value, got {list(bounds)}")
    return bounds


def checked_name(name: str) -> str:
    """Return a name of an object as it is.

    Raises:
        ValueError: PDDL cannot hold it.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"no name that PDDL can hold: {name!r}; expected a letter, then letters, digits, - and _")
    return name


_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.IGNORECASE | re.ASCII)

ObjectName = Annotated[str, AfterValidator(checked_name)]
"""A name that an object gets."""

Range = Annotated[tuple[NonNegativeInt, NonNegativeInt], AfterValidator(_in_order)]
"""Least and greatest value, both included."""

PositiveRange = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_in_order)]

"""The outcome of one planner run, the same for every planner; how a planner is run is not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PlannerStatus(StrEnum):
    """What a planner run came to; every member is a result, none an error."""

    SOLVED = "solved"
    UNSOLVABLE = "unsolvable"
    """Proven: there is no plan."""
    GAVE_UP = "gave_up"
    """An incomplete search ended without a plan and without a proof; never counted as unsolvable."""
    OUT_OF_TIME = "out_of_time"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    """The planner, or this search, does not know a feature of the problem."""
    CRASHED = "crashed"
    """The planner reported an internal error of its own; ``PlannerResult.message`` quotes it."""


@dataclass(frozen=True, slots=True)
class PlannerResult:
    """Outcome of one planner run; a plan and its cost are present exactly when ``SOLVED``.

    ``plan`` holds ground actions in lower case, such as ``(pick-up a)``. ``is_optimal`` is True only if the planner
    guarantees that no plan is cheaper. ``message`` is for people: the planner's own last words.
    """

    status: PlannerStatus
    plan: tuple[str, ...] | None
    cost: float | None
    wall_time_s: float
    is_optimal: bool = False
    message: str = ""

    def __post_init__(self) -> None:
        is_solved = self.status is PlannerStatus.SOLVED
        if is_solved != (self.plan is not None) or is_solved != (self.cost is not None):
            raise ValueError(f"status {self.status.name} does not fit plan={self.plan!r}, cost={self.cost!r}")
        if self.is_optimal and not is_solved:
            raise ValueError(f"status {self.status.name} cannot be optimal: there is no plan")

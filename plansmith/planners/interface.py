"""What every planner can do, and planners by name."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError
from plansmith.planners.fast_downward import FastDownward
from plansmith.planners.result import PlannerResult
from plansmith.planners.up_planner import PREFIX, UnifiedPlanningPlanner

DEFAULT_PLANNER = "fast-downward"


class Planner(Protocol):
    """Solves problems one at a time; holds processes, so close it, or use it as a context manager."""

    @property
    def name(self) -> str:
        """Return the planner, with its search where it has one, as rows name it."""
        ...

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem.

        Raises:
            PddlParseError: the domain or the problem cannot be read.
            PlannerCrashError: the planner ended in no way that it is known for.
        """
        ...

    def close(self) -> None:
        """End the planner's processes; closing twice does no harm."""
        ...

    def __enter__(self) -> Self:
        """Return the planner."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close it."""
        ...


def make_planner(settings: PlannerConfig) -> Planner:
    """Return a started planner; an engine of unified-planning takes of the settings its name and the limits only.

    Raises:
        ConfigError: no planner has this name.
    """
    name = settings.name
    if name == DEFAULT_PLANNER:
        return FastDownward(settings)
    if name.startswith(PREFIX):
        return UnifiedPlanningPlanner(name.removeprefix(PREFIX), settings)
    raise ConfigError("unknown planner", where="planner", got=repr(name), expected=f"{DEFAULT_PLANNER}, or up:ENGINE")

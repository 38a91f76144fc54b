"""Planners by name."""

from __future__ import annotations

from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError
from plansmith.planners.fast_downward import FastDownward
from plansmith.planners.interface import Planner
from plansmith.planners.up_planner import PREFIX, UnifiedPlanningPlanner

DEFAULT_PLANNER = "fast-downward"


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

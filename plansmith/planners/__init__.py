"""Planners behind one result type: Fast Downward in a warm process."""

from plansmith.planners.fast_downward import FastDownward, PlannerSettings, status_from_exit_code
from plansmith.planners.result import PlannerResult, PlannerStatus

__all__ = ["FastDownward", "PlannerResult", "PlannerSettings", "PlannerStatus", "status_from_exit_code"]

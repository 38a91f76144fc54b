"""Planners behind one interface and one result type: Fast Downward, and any engine of unified-planning."""

from plansmith.planners.by_name import DEFAULT_PLANNER, make_planner
from plansmith.planners.diverse import diverse_plans
from plansmith.planners.fast_downward import FastDownward, status_from_exit_code
from plansmith.planners.interface import Planner
from plansmith.planners.judging import judged_result
from plansmith.planners.result import PlannerResult, PlannerStatus
from plansmith.planners.up_planner import UnifiedPlanningPlanner

__all__ = [
    "DEFAULT_PLANNER",
    "FastDownward",
    "Planner",
    "PlannerResult",
    "PlannerStatus",
    "UnifiedPlanningPlanner",
    "diverse_plans",
    "judged_result",
    "make_planner",
    "status_from_exit_code",
]

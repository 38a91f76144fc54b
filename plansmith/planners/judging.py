"""Whether a planner's plan counts: our validator's word on it. Not here: how plans are validated (`plansmith.pddl`)."""

from __future__ import annotations

import dataclasses

from plansmith.errors import PddlParseError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.planners.result import PlannerResult, PlannerStatus


def judged_result(task: PlanningTask, result: PlannerResult) -> PlannerResult:
    """Return the result with the cost that the validator counts; a crash, with the reason, if the plan is not valid."""
    if result.plan is None:
        return result
    try:
        verdict = validate_plan(task, [parse_step(step) for step in result.plan])
    except PddlParseError as error:
        return crashed(result, f"not a plan: {error}")
    if not verdict.is_valid:
        return crashed(result, f"{verdict.reason}; plan: {' '.join(result.plan)}")
    cost = len(result.plan) if verdict.cost is None else verdict.cost
    return dataclasses.replace(result, cost=float(cost))


def crashed(result: PlannerResult, reason: str) -> PlannerResult:
    """Return the result of a planner that took what is no valid plan for one."""
    message = f"the planner's plan is not valid for our validator: {reason}"
    return PlannerResult(PlannerStatus.CRASHED, None, None, result.wall_time_s, message=message)

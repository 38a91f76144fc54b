"""A wrong choice in a plan: a plausible action that cannot be applied where another would be right.

It is drawn near the right one, then proved: it counts only when the validator finds a precondition false, best exactly
one. Not here: wrong plans as they are shown for explanation (`corruption`).
"""

from __future__ import annotations

import random
from dataclasses import replace

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.validation import FeedbackCode, judge_step


def draw_mistake(
    task: PlanningTask, state: int, right: PlanStep, rng: random.Random, *, attempts: int = 50
) -> GroundAction | None:
    """Return an action that cannot be applied in a state, or None when `attempts` draws gave none.

    The first draw that lacks exactly one precondition, else the first that lacks more.
    """
    far: GroundAction | None = None
    for _ in range(attempts):
        action = task.ground(_near(task, right, rng))
        if not isinstance(action, GroundAction):
            continue
        judgement = judge_step(task, state, action.step, state)
        if judgement.code is FeedbackCode.PRECONDITION and len(judgement.unsatisfied) == 1:
            return action
        if judgement.code is FeedbackCode.PRECONDITION:
            far = far or action
    return far


def _near(task: PlanningTask, right: PlanStep, rng: random.Random) -> PlanStep:
    """Return the right step with one object replaced, or any other action schema; no object stands in it twice."""
    schemas = [schema for schema in task.domain.actions if schema.name != right.name]
    if right.arguments and (not schemas or rng.random() < 0.5):
        place, arguments = rng.randrange(len(right.arguments)), list(right.arguments)
        others = [name for name in task.objects if name not in arguments]
        arguments[place] = rng.choice(others) if others else arguments[place]
        return replace(right, arguments=tuple(arguments))
    if not schemas:
        return right
    schema, chosen = rng.choice(schemas), list[str]()
    for parameter in schema.parameters:
        fitting = [name for name in task.objects_of(parameter.types) if name not in chosen]
        chosen += [rng.choice(fitting)] if fitting else []
    return PlanStep(schema.name, tuple(chosen))

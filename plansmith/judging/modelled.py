"""What a planner says of a domain and a problem that a model has written, and what the plan is in words.

A plan in one's own model proves nothing about the text; `interpretation` holds it against a reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plansmith.errors import BadInputError, ConfigError
from plansmith.modelling import folder as files
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.products import ActionSketch
from plansmith.modelling.reading import read_actions
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import ActionSchema, CostIncrease, conjuncts_of
from plansmith.pddl.parser import parse_domain, parse_step, read_domain
from plansmith.pddl.validation import validate_plan
from plansmith.planners import Planner, PlannerStatus
from plansmith.planners.batch import solve_task

REFUSED = "refused"
"""The domain or the problem cannot be read: no planner has seen them."""
NO_PLAN = {
    PlannerStatus.UNSOLVABLE: "proven: the problem as it is modelled has no plan",
    PlannerStatus.GAVE_UP: "the search gave up, without a proof",
    PlannerStatus.OUT_OF_TIME: "the planner ran out of time",
    PlannerStatus.OUT_OF_MEMORY: "the planner ran out of memory",
    PlannerStatus.UNSUPPORTED: "the planner does not know a feature of the domain or the problem",
    PlannerStatus.CRASHED: "the planner crashed",
    REFUSED: "the PDDL cannot be read",
}
"""Why there is no plan, by status."""


def equal_actions(domain_pddl: str, reference_pddl: str) -> dict[str, bool]:
    """Return of every action of a reference whether a written domain has the same, whatever the order of its parts.

    What cannot be read of the written domain is not the same.
    """
    reference, written = parse_domain(reference_pddl, source="a reference"), read_domain(domain_pddl).value
    made = {action.name: action for action in written.actions}
    return {own.name: own.name in made and _content(own) == _content(made[own.name]) for own in reference.actions}


def _content(action: ActionSchema) -> tuple[object, ...]:
    increases = Counter(own for own in action.effects if isinstance(own, CostIncrease))  # two equal ones add up
    return action.parameters, frozenset(conjuncts_of(action.precondition)), frozenset(action.effects), increases


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """What planning came to: a `PlannerStatus`, or `REFUSED`; a plan where it is solved."""

    status: str
    plan: tuple[str, ...] = ()
    message: str = ""

    @property
    def is_solved(self) -> bool:
        """Return whether there is a plan."""
        return self.status == PlannerStatus.SOLVED


def is_plan(plan: Sequence[str], domain_pddl: str, problem_pddl: str) -> bool:
    """Return whether steps are a plan of a written problem; PDDL that cannot be read, or knows them not, has none."""
    try:
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        return bool(plan) and validate_plan(task, [parse_step(text) for text in plan]).is_valid
    except BadInputError:
        return False


def plan_task(planner: Planner, domain_pddl: str, problem_pddl: str) -> PlannedTask:
    """Return the outcome of planning; PDDL that cannot be read is one."""
    try:
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        result = solve_task(planner, task, domain_pddl, problem_pddl)
    except ConfigError:
        raise
    except BadInputError as error:
        return PlannedTask(REFUSED, message=str(error))
    return PlannedTask(result.status, result.plan or (), result.message)


def plan_in_words(plan: Iterable[str], actions: Iterable[ActionSketch]) -> str:
    """Return a plan, a numbered line a step, each with what its action is."""
    said = {action.name: action.description for action in actions}
    lines = []
    for number, text in enumerate(plan, 1):
        step = parse_step(text)
        more = f": {said[step.name]}" if said.get(step.name) else ""
        lines.append(f"{number}. {' '.join((step.name, *step.arguments))}{more}")
    return "\n".join(lines)


def outcome_text(planned: PlannedTask) -> str:
    """Return what came of planning, for people."""
    if planned.is_solved:
        steps, n_steps = "\n".join(planned.plan), len(planned.plan)
        return f"{steps}\n\na plan of {n_steps} steps in this model; whether the model is right nobody has checked"
    return f"No plan found: {NO_PLAN[planned.status]}.\n{planned.message}".rstrip()


def write_plan(folder: TaskFolder, planned: PlannedTask, actions: Iterable[ActionSketch] = ()) -> str:
    """Leave the plan in a task's folder, in PDDL and in words, or why there is none; return what came of it.

    Args:
        folder: of the task.
        planned: what came of planning.
        actions: what is said of them, where the folder does not say it.
    """
    said = outcome_text(planned)
    if not planned.is_solved:
        folder.remove(files.PLAN)
        folder.write(files.PLAN_IN_WORDS, said)
        return said
    known = read_actions(folder.current(files.ACTIONS))[0] if folder.has(files.ACTIONS) else actions
    folder.write(files.PLAN, "\n".join(planned.plan))
    folder.write(files.PLAN_IN_WORDS, plan_in_words(planned.plan, known))
    return said

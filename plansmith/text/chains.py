"""A chain of thought as data: what each step claims. Written and read by `compact` and `full`.

A chain is s0, a1, s1, ..., an, sn with, for each step, which goals are met where one was reached, why this action, its
preconditions, and the state it claims to lead to; then the final plan and the writer's own verdict. `chain_of_plan`
builds the true chain of a plan; a reader builds the chain a policy wrote, claims and all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plansmith.errors import BadInputError
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Literal, PlanStep
from plansmith.text.purpose import purposes

VALID, INVALID = "VALID", "INVALID"


@dataclass(frozen=True, slots=True)
class GoalMark:
    """One goal literal with whether it is claimed to hold."""

    literal: Literal
    is_met: bool


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step as claimed.

    ``next_state`` is the claimed state after the action; None when the step says that its action cannot be applied, and
    then ``unsatisfied`` says why.
    """

    action: PlanStep
    preconditions: tuple[Literal, ...] = ()
    unsatisfied: tuple[Literal, ...] = ()
    added: tuple[Atom, ...] = ()
    deleted: tuple[Atom, ...] = ()
    next_state: tuple[Atom, ...] | None = None
    goal_check: tuple[GoalMark, ...] | None = None
    purpose: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of thought: its steps, the goal check at its end, its final plan, its verdict."""

    steps: tuple[ChainStep, ...]
    goal_check: tuple[GoalMark, ...] | None
    final_plan: tuple[PlanStep, ...] | None
    verdict: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of a completion."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StepSpans:
    """Where a step stands: its choice (goals, reason, action), then its outcome (precondition check, next state)."""

    choice: Span
    outcome: Span


@dataclass(frozen=True, slots=True)
class ReadChain:
    """What a completion claims; ``fault`` is None when it is well formed to its end, else what is wrong and where.

    ``spans`` has one entry for each step of ``chain``; ``verdict_span`` is the word VALID or INVALID.
    """

    chain: Chain
    spans: tuple[StepSpans, ...]
    final_plan_span: Span | None
    verdict_span: Span | None
    fault: str | None


def in_order(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return atoms in the order in which states are told: by arguments, then by predicate.

    Every state lists what is said of one object together and the objects in the same order, so that a state is mostly a
    copy of the one before.
    """
    return tuple(sorted(atoms, key=lambda atom: (atom.arguments, atom.predicate)))


def chain_of_plan(task: PlanningTask, plan: Sequence[PlanStep], *, with_purpose: bool = True) -> Chain:
    """Return the true chain of `plan`: it stops at the first step that cannot be applied.

    Goals are checked at the start, after each step that reaches the goal it aimed at, and at the end. (Checked wherever
    the outcome changes, a policy would have to know the outcome before it decides to check.)

    Raises:
        BadInputError: a precondition or the goal is not a conjunction of literals.
    """
    grounded = [task.ground(step) for step in plan]
    actions = _resolved_along(task, grounded)
    is_explained = with_purpose and len(actions) == len(plan)
    reasons = purposes(actions, goal_literals(task)) if is_explained else [None] * len(plan)
    state = in_order(task.problem.init)
    steps: list[ChainStep] = []
    is_checking = with_purpose
    for action, reason in zip(grounded, reasons, strict=True):
        purpose = reason.literals if reason else ()
        step = true_step(task, state, action, with_goals=is_checking, purpose=purpose)
        steps.append(step)
        is_checking = len(purpose) == 1
        if step.next_state is None:
            break
        state = step.next_state
    goal_check = check_goals(task, state)
    is_valid = all(mark.is_met for mark in goal_check) and all(step.next_state is not None for step in steps)
    return Chain(tuple(steps), goal_check, tuple(plan), VALID if is_valid else INVALID)


def continued_chain(task: PlanningTask, kept: Sequence[ChainStep], plan: Sequence[PlanStep]) -> Chain:
    """Return the chain that keeps a writer's sound steps and goes on with `plan` from the state they lead to.

    The kept steps keep their reasons and the places of their goal checks; what they claim is told as it truly is.
    """
    state = in_order(task.problem.init)
    steps: list[ChainStep] = []
    for step in kept:
        action, is_checking = task.ground(step.action), step.goal_check is not None
        steps.append(true_step(task, state, action, with_goals=is_checking, purpose=step.purpose))
        state = steps[-1].next_state or state
    rest = chain_of_plan(PlanningTask(task.domain, replace(task.problem, init=state)), plan)
    steps += rest.steps
    if rest.steps and kept and len(kept[-1].purpose) != 1:
        steps[len(kept)] = replace(rest.steps[0], goal_check=None)
    return Chain(tuple(steps), rest.goal_check, (*(step.action for step in kept), *plan), rest.verdict)


def check_goals(task: PlanningTask, state: Iterable[Atom]) -> tuple[GoalMark, ...]:
    """Return every goal literal with whether it holds in a state."""
    bits = task.state_of(state)
    return tuple(GoalMark(literal, task.holds(literal, bits)) for literal in goal_literals(task))


def goal_literals(task: PlanningTask) -> tuple[Literal, ...]:
    """Return the goal as literals.

    Raises:
        BadInputError: it is not a conjunction of literals.
    """
    return _literals(task.goal, f"the goal of {task.problem.name}")


def true_step(
    task: PlanningTask,
    state: tuple[Atom, ...],
    action: GroundAction | MalformedStep,
    *,
    with_goals: bool,
    purpose: tuple[Literal, ...] = (),
) -> ChainStep:
    """Return the step that a faithful writer writes for `action` in `state`."""
    bits = task.state_of(state)
    goal_check = check_goals(task, state) if with_goals else None
    if isinstance(action, MalformedStep):
        return ChainStep(action.step, goal_check=goal_check, purpose=purpose)
    preconditions = _literals(action.preconditions, f"action {action.step.name}")
    unsatisfied = tuple(literal for literal in preconditions if not task.holds(literal, bits))
    if unsatisfied:
        return ChainStep(action.step, preconditions, unsatisfied, goal_check=goal_check, purpose=purpose)
    action = action.resolved(bits)
    gone = {*action.delete_effects, *action.add_effects}
    return ChainStep(
        action=action.step,
        preconditions=preconditions,
        added=action.add_effects,
        deleted=tuple(atom for atom in action.delete_effects if atom in state),
        next_state=in_order([*(atom for atom in state if atom not in gone), *action.add_effects]),
        goal_check=goal_check,
        purpose=purpose,
    )


def _literals(conditions: Iterable[Condition], where: str) -> tuple[Literal, ...]:
    literals = []
    for condition in conditions:
        if not isinstance(condition, Literal):
            raise BadInputError(
                "chains of thought need conjunctive preconditions and goals", where=where, got=str(condition),
                expected="a conjunction of literals",
            )  # fmt: skip
        literals.append(condition)
    return tuple(literals)


def _resolved_along(task: PlanningTask, grounded: Iterable[GroundAction | MalformedStep]) -> list[GroundAction]:
    """Return the well-formed actions with the conditional effects that take place where the plan applies them.

    A step that cannot be applied changes nothing.
    """
    state, actions = task.initial_state, list[GroundAction]()
    for action in grounded:
        if isinstance(action, GroundAction):
            actions.append(action.resolved(state))
            state = action.apply(state) if action.is_applicable(state) else state
    return actions

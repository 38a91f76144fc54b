"""A chain of thought as data: what each step claims. Written and read by `compact` and `full`.

A chain is s0, a1, s1, ..., an, sn with, for each step, which goals are met where one was aimed at, why this action, its
preconditions, and the state it claims to lead to; then the final plan and the writer's own verdict. `chain_of_plan`
builds the true chain of a plan; a reader builds the chain a policy wrote, claims and all.

Preconditions and goals are told conjunct by conjunct, whatever their form. States list basic atoms only: derived ones
follow from them and stand in conditions, with their truth value there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import TOTAL_COST, Atom, Condition, Literal, Number, PlanStep
from plansmith.text.purpose import Purpose, goals_as_achieved, is_basic_literal, purposes

VALID, INVALID = "VALID", "INVALID"

COST_DIGITS = 6
"""Decimal places to which costs are told: sums of fractions would end in digits that nobody can check."""


@dataclass(frozen=True, slots=True)
class GoalMark:
    """One conjunct of the goal with whether it is claimed to hold."""

    condition: Condition
    is_met: bool


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step adds to the total cost, and the total after it; told where the problem minimises it."""

    amount: Number
    total: Number

    @classmethod
    def after(cls, total_before: Number, amount: Number) -> StepCost:
        """Return the cost of a step, rounded as it is told."""
        return cls(_told(amount), _told(total_before + amount))


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step as claimed.

    ``next_state`` is the claimed state after the action; None when the step says that its action cannot be applied, and
    then ``unsatisfied`` says why. ``added`` and ``deleted`` are what the action does in this state: of its conditional
    effects those that take place. ``purpose`` says why the action is taken: a goal, what it needs, and so on to the
    effect of the action; ``support``, as long or empty, what of each of these is there already: the true
    preconditions of the action that brings it about.
    """

    action: PlanStep
    preconditions: tuple[Condition, ...] = ()
    unsatisfied: tuple[Condition, ...] = ()
    added: tuple[Atom, ...] = ()
    deleted: tuple[Atom, ...] = ()
    next_state: tuple[Atom, ...] | None = None
    goal_check: tuple[GoalMark, ...] | None = None
    purpose: tuple[Condition, ...] = ()
    support: tuple[tuple[Condition, ...], ...] = ()
    cost: StepCost | None = None

    @property
    def reasons(self) -> Iterator[tuple[Condition, tuple[Condition, ...]]]:
        """Return each condition of the purpose with its support."""
        return zip(self.purpose, self.support or ((),) * len(self.purpose), strict=True)


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

    Goals are checked at the start, after each step that served a goal directly (which it reached, unless the goal needs
    more than one effect), and at the end. (Checked wherever the outcome changes, a policy would have to know the
    outcome before it decides to check.) They are named in the order in which the plan achieves them for good: the aim
    is the first that is not met, unless one that is has to be broken first. Without purpose there is one check, in the
    problem's order.
    """
    start = _Point(in_order(task.problem.init), total_at_start(task))
    return _chain_from(task, start, plan, task.goal, with_purpose=with_purpose)


def continued_chain(task: PlanningTask, kept: Sequence[ChainStep], plan: Sequence[PlanStep]) -> Chain:
    """Return the chain that keeps a writer's sound steps and goes on with `plan` from the state they lead to.

    The kept steps keep their reasons and their goal checks, with the order of the goals; what they claim is told as it
    truly is, and the support of a reason only where it holds. Then goals are told in the order of `plan`.
    """
    point, goals = _Point(in_order(task.problem.init), total_at_start(task)), task.goal
    steps: list[ChainStep] = []
    for step in kept:
        if step.goal_check is not None:
            goals = _in_order_of(task.goal, step.goal_check)
        steps.append(
            _step_at(
                task,
                point,
                task.ground(step.action),
                goals=goals if step.goal_check is not None else None,
                purpose=step.purpose,
                support=tuple(_true_literals(conditions, point.state) for conditions in step.support),
            )
        )
        point = point.after(steps[-1])
    rest = _chain_from(task, point, plan, goals, with_purpose=True)
    steps += rest.steps
    if rest.steps and kept and not is_direct(task, kept[-1].purpose):
        steps[len(kept)] = replace(rest.steps[0], goal_check=None)
    return Chain(tuple(steps), rest.goal_check, (*(step.action for step in kept), *plan), rest.verdict)


def check_goals(
    task: PlanningTask, state: Iterable[Atom], goals: Sequence[Condition] | None = None
) -> tuple[GoalMark, ...]:
    """Return conjuncts of the goal, by default all in the problem's order, with whether they hold in a state."""
    bits = task.state_of(state)
    return tuple(GoalMark(goal, task.holds(goal, bits)) for goal in (task.goal if goals is None else goals))


def is_direct(task: PlanningTask, purpose: tuple[Condition, ...]) -> bool:
    """Return whether a step serves a goal itself: the goal is its effect, or needs it (see `purpose`)."""
    return len(purpose) == 1 or (len(purpose) == 2 and not is_basic_literal(task, purpose[0]))


def total_at_start(task: PlanningTask) -> Number | None:
    """Return the total cost before the first step; None where the problem does not minimise it."""
    return _told(task.cost_at_start) if task.problem.metric == TOTAL_COST else None


def basic_only(task: PlanningTask, atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return atoms without the derived ones; what a state says of these follows from the rest, or is wrong."""
    return tuple(atom for atom in atoms if atom.predicate not in task.rules)


def true_step(
    task: PlanningTask,
    state: tuple[Atom, ...],
    action: GroundAction | MalformedStep,
    *,
    goals: Sequence[Condition] | None = None,
    total_before: Number | None = None,
) -> ChainStep:
    """Return the step that a faithful writer writes for `action` in `state`, without a reason.

    Args:
        task: domain and problem.
        state: the atoms that hold before; derived ones among them are left out.
        action: well formed or not.
        goals: what the goal check names with which the step begins; by default it begins with none.
        total_before: the total cost so far; None tells no cost.
    """
    state = basic_only(task, state)
    bits = task.state_of(state)
    goal_check = None if goals is None else check_goals(task, state, goals)
    if isinstance(action, MalformedStep):
        return ChainStep(action.step, goal_check=goal_check)
    unsatisfied = task.unsatisfied(action.preconditions, bits)
    if unsatisfied:
        return ChainStep(action.step, action.preconditions, unsatisfied, goal_check=goal_check)
    amount = None if total_before is None else action.cost(bits)
    action = action.resolved(bits)
    gone = {*action.delete_effects, *action.add_effects}
    return ChainStep(
        action=action.step,
        preconditions=action.preconditions,
        added=action.add_effects,
        deleted=tuple(atom for atom in action.delete_effects if atom in state),
        next_state=in_order([*(atom for atom in state if atom not in gone), *action.add_effects]),
        goal_check=goal_check,
        cost=None if total_before is None or amount is None else StepCost.after(total_before, amount),
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """Where a chain stands: the state, and the total cost if it is told."""

    state: tuple[Atom, ...]
    total: Number | None

    def after(self, step: ChainStep) -> _Point:
        """Return the point after a step; one that cannot be applied changes nothing."""
        if step.next_state is None:
            return self
        return _Point(step.next_state, step.cost.total if step.cost else None)


def _chain_from(
    task: PlanningTask, point: _Point, plan: Sequence[PlanStep], goals: Sequence[Condition], *, with_purpose: bool
) -> Chain:
    """Return the chain of a plan that begins at `point`; where the plan does not order goals, they stand as given."""
    grounded = [task.ground(step) for step in plan]
    reasons: Sequence[Purpose | None] = [None] * len(plan)
    actions = [action for action in grounded if isinstance(action, GroundAction)]
    if with_purpose and len(actions) == len(grounded):
        start = task.state_of(point.state)
        reasons = purposes(task, actions, start=start)
        goals = goals_as_achieved(task, actions, goals, start=start)
    steps: list[ChainStep] = []
    is_checking = with_purpose
    for action, reason in zip(grounded, reasons, strict=True):
        purpose, support = (reason.conditions, reason.support) if reason else ((), ())
        named = goals if is_checking else None
        steps.append(_step_at(task, point, action, goals=named, purpose=purpose, support=support))
        point, is_checking = point.after(steps[-1]), is_direct(task, purpose)
        if steps[-1].next_state is None:
            break
    goal_check = check_goals(task, point.state, goals)
    is_valid = all(mark.is_met for mark in goal_check) and all(step.next_state is not None for step in steps)
    return Chain(tuple(steps), goal_check, tuple(plan), VALID if is_valid else INVALID)


def _step_at(
    task: PlanningTask,
    point: _Point,
    action: GroundAction | MalformedStep,
    *,
    goals: Sequence[Condition] | None,
    purpose: tuple[Condition, ...],
    support: tuple[tuple[Condition, ...], ...],
) -> ChainStep:
    step = true_step(task, point.state, action, goals=goals, total_before=point.total)
    return replace(step, purpose=purpose, support=support)


def _true_literals(conditions: Iterable[Condition], state: tuple[Atom, ...]) -> tuple[Condition, ...]:
    return tuple(condition for condition in conditions
                 if isinstance(condition, Literal) and (condition.atom in state) == condition.is_positive)  # fmt: skip


def _in_order_of(goals: Sequence[Condition], marks: Sequence[GoalMark]) -> tuple[Condition, ...]:
    """Return goals in the order of a writer's marks, those it left out last."""
    places = {mark.condition: place for place, mark in reversed(list(enumerate(marks)))}
    return tuple(sorted(goals, key=lambda goal: places.get(goal, len(marks))))


def _told(value: Number) -> Number:
    """Return a number as it is told: rounded, and whole if it can be."""
    rounded = round(value, COST_DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded

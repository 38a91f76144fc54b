"""A chain of thought as data: what each step claims. Written and read by `compact` and `full`.

A chain is s0, a1, s1, ..., an, sn with, for each step, which goals are met where one was aimed at, why this action, its
preconditions, and the state it claims to lead to; then the final plan and the writer's own verdict. `chain_of_plan`
builds the true chain of a plan; a reader builds the chain a policy wrote, claims and all. A step may also say what else
could have been done, and what would have failed (`branches`).

A step that says its action cannot be applied is withdrawn: the state stays as it is, the chain may go on from there,
and its plan leaves the action out.

Preconditions and goals are told conjunct by conjunct, whatever their form. States list what actions change: derived
atoms follow from that and stand in conditions, with their truth value there; what never changes stands in the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from plansmith.pddl.goal_orders import GoalOrders
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import TOTAL_COST, Atom, Condition, Literal, Number, PlanStep
from plansmith.text.purpose import Purpose, effects_of, is_basic_literal, purposes

VALID, INVALID = "VALID", "INVALID"

COST_DIGITS = 6
"""Decimal places to which costs are told: sums of fractions would end in digits that nobody can check."""


@dataclass(frozen=True, slots=True)
class GoalMark:
    """One conjunct of the goal with whether it is claimed to hold, and the open goals that should come before it.

    A goal that holds and has such is in their way. They are, like a purpose, a reason for what follows and not judged:
    marks that differ in them alone are equal.
    """

    condition: Condition
    is_met: bool
    after: tuple[Condition, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step adds to the total cost, and the total after it; told where the problem minimises it."""

    amount: Number
    total: Number

    @classmethod
    def after(cls, total_before: Number, amount: Number) -> StepCost:
        """Return the cost of a step, rounded as it is told."""
        return cls(_told(amount), _told(total_before + amount))


class Drawback(StrEnum):
    """Why an action that could be applied is not taken; of several reasons the first of these is told."""

    UNDOES = "undoes"
    """It undoes goals that are reached."""
    RETURNS = "returns"
    """It leads to a state that the chain has been in."""
    DEAD_END = "dead end"
    """From there the goal cannot be reached."""
    LONGER = "longer"
    """It brings the goal no nearer: from there as many steps are needed as from here, or more."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another action that can be applied before a step, and why it is not taken; ``undone`` are the goals it undoes."""

    action: PlanStep
    drawback: Drawback
    undone: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Backtrack:
    """A branch that fails: its actions, the last of which lacks preconditions, and where the chain goes on.

    ``culprit`` is the action of the branch that made ``unsatisfied`` false. ``back_to`` is the action after which the
    branch began, None for the start: all of the branch is taken back.
    """

    branch: tuple[PlanStep, ...]
    unsatisfied: tuple[Condition, ...]
    culprit: PlanStep
    back_to: PlanStep | None


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step as claimed.

    ``next_state`` is the claimed state after the action, of which `told_state` is told; None when the step says that
    its action cannot be applied, and then ``unsatisfied`` says why. ``added`` and ``deleted`` are what the action does
    in this state: of its conditional effects those that take place. ``purpose`` says why the action is taken: a goal,
    what it needs, and so on to the effect of the action; ``support``, as long or empty, what of each of these is there
    already: the true preconditions of the action that brings it about. ``servants``, as long or empty, are these
    actions, None for what no action brings about by itself; only told chains name them (`plansmith.text.told`).
    ``alternatives`` and ``backtracks`` are told before the action.
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
    servants: tuple[PlanStep | None, ...] = field(default=(), compare=False)
    cost: StepCost | None = None
    alternatives: tuple[Alternative, ...] = ()
    backtracks: tuple[Backtrack, ...] = ()

    @property
    def is_withdrawn(self) -> bool:
        """Return whether the step says that its action cannot be applied."""
        return self.next_state is None

    @property
    def reasons(self) -> Iterator[tuple[Condition, tuple[Condition, ...]]]:
        """Return each condition of the purpose with its support."""
        return zip(self.purpose, self.support or ((),) * len(self.purpose), strict=True)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of thought: its steps, the goal check at its end, its final plan, its verdict.

    ``start`` is the state that it says it starts from, where it says so: whoever is shown a state with mistakes may
    believe in another. Without, it starts from the state of the problem.
    """

    steps: tuple[ChainStep, ...]
    goal_check: tuple[GoalMark, ...] | None
    final_plan: tuple[PlanStep, ...] | None
    verdict: str | None
    start: tuple[Atom, ...] | None = None

    @property
    def plan_of_steps(self) -> tuple[PlanStep, ...]:
        """Return the actions of the steps without those withdrawn: the plan, unless another is listed at the end."""
        return tuple(step.action for step in self.steps if not step.is_withdrawn)


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of a completion."""

    start: int
    end: int


class Part(StrEnum):
    """What words of a chain are about."""

    START = "start"
    """The state that the chain starts from."""
    GOALS = "goals"
    ORDER = "order"
    """What goals should wait for."""
    SUPPORT = "support"
    BRANCH = "branch"
    """What else could have been done, or would have failed."""
    PRECONDITIONS = "preconditions"
    APPLICABLE = "applicable"
    ADDED = "added"
    DELETED = "deleted"
    UNREAD = "unread"
    """A reason that cannot be read; nobody knows what it is about."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Words that a state, or an action in it, proves right or wrong, and where they stand.

    Attributes:
        part: what they are about.
        span: of what is told; of a list's end the word after it, of a reason that cannot be read the word where
            reading broke.
        condition: what is told; None at the end of a list, which claims that nothing is left out.
        is_true: whether the condition, or that the action can be applied, is said to hold; of a goal in the order,
            whether it is said to be ready.
        mark: the word that says so, where there is one; at the end of the order the word that it begins with.
        wanted: of a support, the condition that it supports; of what a goal should wait for, and at the end of the list
            of such, that goal.
        fault: why a reason cannot be read.
        branch: what else could have been done, or would have failed.
    """

    part: Part
    span: Span
    condition: Condition | None = None
    is_true: bool = True
    mark: Span | None = None
    wanted: Condition | None = None
    fault: str = ""
    branch: Alternative | Backtrack | None = None


@dataclass(frozen=True, slots=True)
class StepSpans:
    """Where a step stands: its choice (goals, reason, action), then its outcome (precondition check, next state).

    ``action`` are the words of the action, ``state`` those of each atom of the next state; ``claims`` are in the order
    of the text.
    """

    choice: Span
    outcome: Span
    action: Span
    state: tuple[Span, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadChain:
    """What a completion claims; ``fault`` is None when it is well formed to its end, else what is wrong and where.

    ``spans`` has one entry for each step of ``chain``; ``verdict_span`` is the word VALID or INVALID. ``closing`` are
    the claims of the last goal check. ``broken_action`` is the action of the step in which reading broke off, if it
    came that far; its step claims nothing.
    """

    chain: Chain
    spans: tuple[StepSpans, ...]
    final_plan_span: Span | None
    verdict_span: Span | None
    fault: str | None
    closing: tuple[Claim, ...] = ()
    broken_action: PlanStep | None = None


def in_order(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return atoms in the order in which states are told: by arguments, then by predicate.

    Every state lists what is said of one object together and the objects in the same order, so that a state is mostly a
    copy of the one before.
    """
    return tuple(sorted(atoms, key=lambda atom: (atom.arguments, atom.predicate)))


def told_state(task: PlanningTask, atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return what a chain tells of a state: the basic atoms that some action changes, in order."""
    return in_order(atom for atom in basic_only(task, atoms) if not task.is_static(atom.predicate))


def whole_state(task: PlanningTask, told: Iterable[Atom]) -> tuple[Atom, ...]:
    """Return the state of which a chain tells these atoms: with what never changes."""
    return in_order({*told, *(atom for atom in task.problem.init if task.is_static(atom.predicate))})


def chain_of_plan(
    task: PlanningTask, plan: Sequence[PlanStep], *, with_purpose: bool = True, tells_start: bool = False
) -> Chain:
    """Return the true chain of `plan`: it stops at the first step that cannot be applied, and lists the plan it is of.

    Goals are checked at the start, after each step that served a goal directly (which it reached, unless the goal needs
    more than one effect), and at the end. (Checked wherever the outcome changes, a policy would have to know the
    outcome before it decides to check.) A goal is told with the open ones that should come before it
    (`plansmith.pddl.goal_orders`).
    """
    start = _Point(in_order(task.problem.init), total_at_start(task))
    chain = _chain_from(task, start, plan, with_purpose=with_purpose)
    return replace(chain, start=told_state(task, start.state)) if tells_start else chain


def continued_chain(
    task: PlanningTask, kept: Sequence[ChainStep], plan: Sequence[PlanStep], *, tells_start: bool = False
) -> Chain:
    """Return the chain that keeps a writer's sound steps and goes on with `plan` from the state they lead to.

    The kept steps keep their reasons and the places of their goal checks; what they claim is told as it truly is, the
    support of a reason only where it holds, and of branches nothing.
    """
    point, orders = _Point(in_order(task.problem.init), total_at_start(task)), GoalOrders.of(task)
    steps: list[ChainStep] = []
    for step in kept:
        goal_check = None if step.goal_check is None else check_goals(task, point.state, orders)
        support = tuple(_true_literals(conditions, point.state) for conditions in step.support)
        true = true_step(task, point.state, task.ground(step.action), total_before=point.total)
        steps.append(replace(true, goal_check=goal_check, purpose=step.purpose, support=support))
        point = point.after(task, steps[-1])
    rest = _chain_from(task, point, plan, with_purpose=True)
    before = Chain(tuple(steps), None, None, None)
    steps += rest.steps
    if rest.steps and kept and (steps[len(kept) - 1].is_withdrawn or not is_direct(task, kept[-1].purpose)):
        steps[len(kept)] = replace(rest.steps[0], goal_check=None)
    start = told_state(task, task.problem.init) if tells_start else None
    return Chain(tuple(steps), rest.goal_check, (*before.plan_of_steps, *plan), rest.verdict, start)


def state_before(task: PlanningTask, chain: Chain, place: int) -> tuple[Atom, ...]:
    """Return the state in which a chain takes the step at an index; at the number of its steps, the one it ends in."""
    states = (step.next_state for step in reversed(chain.steps[:place]))
    return next((whole_state(task, state) for state in states if state is not None), in_order(task.problem.init))


def recovering_chain(task: PlanningTask, chain: Chain, place: int, mistake: GroundAction) -> Chain:
    """Return a true chain in which, before the step at an index, an action that cannot be applied is withdrawn.

    It is tried for the reason of that step, as it would read if the action's preconditions held.
    """
    chosen, state = chain.steps[place], state_before(task, chain, place)
    purpose, support = _mistaken_reason(task, state, chosen, mistake)
    tried = replace(true_step(task, state, mistake), purpose=purpose, support=support)
    steps = (replace(tried, goal_check=chosen.goal_check), replace(chosen, goal_check=None))
    return replace(chain, steps=(*chain.steps[:place], *steps, *chain.steps[place + 1 :]))


def abandoned_chain(task: PlanningTask, chain: Chain, n_steps: int) -> Chain:
    """Return the chain that ends after so many steps, none if negative, with goals and verdict as they are there."""
    n_steps = max(0, n_steps)
    closing = check_goals(task, state_before(task, chain, n_steps), GoalOrders.of(task))
    kept = replace(chain, steps=chain.steps[:n_steps], goal_check=closing)
    verdict = VALID if all(mark.is_met for mark in closing) else INVALID
    return replace(kept, final_plan=kept.plan_of_steps, verdict=verdict)


def check_goals(task: PlanningTask, state: Iterable[Atom], orders: GoalOrders | None = None) -> tuple[GoalMark, ...]:
    """Return every conjunct of the goal with whether it holds in a state.

    Args:
        task: domain and problem.
        state: atoms; what is not named is false.
        orders: of the task; what should come before a goal and is open is named.
    """
    bits = task.state_of(state)
    before = {} if orders is None else orders.before(bits)
    return tuple(GoalMark(goal, task.holds(goal, bits), before.get(goal, ())) for goal in task.goal)


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
    total_before: Number | None = None,
) -> ChainStep:
    """Return the step that a faithful writer writes for `action` in `state`, without goal check and reason.

    Args:
        task: domain and problem.
        state: the atoms that hold before; derived ones among them are left out.
        action: well formed or not.
        total_before: the total cost so far; None tells no cost.
    """
    state = basic_only(task, state)
    bits = task.state_of(state)
    if isinstance(action, MalformedStep):
        return ChainStep(action.step)
    unsatisfied = task.unsatisfied(action.preconditions, bits)
    if unsatisfied:
        return ChainStep(action.step, action.preconditions, unsatisfied)
    amount = None if total_before is None else action.cost(bits)
    action = action.resolved(bits)
    gone = {*action.delete_effects, *action.add_effects}
    return ChainStep(
        action=action.step,
        preconditions=action.preconditions,
        added=action.add_effects,
        deleted=tuple(atom for atom in action.delete_effects if atom in state),
        next_state=told_state(task, [*(atom for atom in state if atom not in gone), *action.add_effects]),
        cost=None if total_before is None or amount is None else StepCost.after(total_before, amount),
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """Where a chain stands: the state, and the total cost if it is told."""

    state: tuple[Atom, ...]
    total: Number | None

    def after(self, task: PlanningTask, step: ChainStep) -> _Point:
        """Return the point after a step; one that cannot be applied changes nothing."""
        if step.next_state is None:
            return self
        return _Point(whole_state(task, step.next_state), step.cost.total if step.cost else None)


def _chain_from(task: PlanningTask, point: _Point, plan: Sequence[PlanStep], *, with_purpose: bool) -> Chain:
    """Return the chain of a plan that begins at `point`."""
    grounded = [task.ground(step) for step in plan]
    reasons = _reasons(task, point, grounded) if with_purpose else [None] * len(plan)
    orders = GoalOrders.of(task) if with_purpose else None
    steps: list[ChainStep] = []
    is_checking = with_purpose
    for action, reason in zip(grounded, reasons, strict=True):
        purpose, support = (reason.conditions, reason.support) if reason else ((), ())
        servants = reason.servants if reason else ()
        serving = tuple(None if place is None else plan[place] for place in servants)
        goal_check = check_goals(task, point.state, orders) if is_checking else None
        true = true_step(task, point.state, action, total_before=point.total)
        steps.append(replace(true, goal_check=goal_check, purpose=purpose, support=support, servants=serving))
        point, is_checking = point.after(task, steps[-1]), is_direct(task, purpose)
        if steps[-1].is_withdrawn:
            break
    closing = check_goals(task, point.state, orders)
    is_valid = all(mark.is_met for mark in closing) and not any(step.is_withdrawn for step in steps)
    return Chain(tuple(steps), closing, tuple(plan), VALID if is_valid else INVALID)


def _mistaken_reason(
    task: PlanningTask, state: Iterable[Atom], chosen: ChainStep, mistake: GroundAction
) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]:
    """Return the purpose and support of a step's action, told of another as if nothing were missing for it."""
    if not chosen.purpose:
        return (), ()
    effects = effects_of(mistake.resolved(task.state_of(state)))
    is_another = len(chosen.purpose) > 1 and chosen.purpose[-1] not in effects
    last = effects[0] if is_another and effects else chosen.purpose[-1]
    believed = tuple(condition for condition in mistake.preconditions
                     if isinstance(condition, Literal) and condition.is_positive)  # fmt: skip
    return (*chosen.purpose[:-1], last), (*chosen.support[:-1], believed)


def _true_literals(conditions: Iterable[Condition], state: tuple[Atom, ...]) -> tuple[Condition, ...]:
    return tuple(condition for condition in conditions
                 if isinstance(condition, Literal) and (condition.atom in state) == condition.is_positive)  # fmt: skip


def _reasons(
    task: PlanningTask, point: _Point, grounded: Sequence[GroundAction | MalformedStep]
) -> Sequence[Purpose | None]:
    """Return the purpose of each step; none is told where the plan has a malformed one."""
    actions = [action for action in grounded if isinstance(action, GroundAction)]
    if len(actions) < len(grounded):
        return [None] * len(grounded)
    return purposes(task, actions, start=task.state_of(point.state))


def _told(value: Number) -> Number:
    """Return a number as it is told: rounded, and whole if it can be."""
    rounded = round(value, COST_DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded

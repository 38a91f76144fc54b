"""A completion judged: the plan as a whole, every step of the chain by itself.

The policy never grades itself. What it claims (next states, a verdict) is compared with what the validator finds; a
completion that cannot be read is a malformed plan, with what is wrong with it in the feedback.

A step claims a state and, where the problem minimises the total cost, a cost: a wrong one is a wrong effect. What it
says of preconditions and goals is compared too, but only named (`JudgedStep.wrong_marks`): equations 5 to 7 of arXiv
2509.13351 are about transitions. Not here: the rows that keep all this (`judge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Number, PlanStep
from plansmith.pddl.val_report import verbose_report
from plansmith.pddl.validation import (
    FeedbackCode,
    PlanVerdict,
    StepJudgement,
    Verdict,
    judge_step,
    validate_plan,
)
from plansmith.text.chains import (
    ChainStep,
    GoalMark,
    ReadChain,
    StepCost,
    basic_only,
    check_goals_in,
    in_order,
    total_at_start,
)
from plansmith.text.explanations import Attempt
from plansmith.text.rendering import Prompting


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """One claimed transition with its judgement; states as atoms, in the order of the text.

    ``wrong_marks`` are the preconditions and goals whose truth in ``s_prev`` the step tells wrongly, those that it
    leaves out, and those that are none. ``claimed`` is ``s_claimed`` as the task knows it. ``total_before`` is the
    total cost that the chain had come to; None where no cost is told.
    """

    action: PlanStep
    s_prev: tuple[Atom, ...]
    s_claimed: tuple[Atom, ...]
    claimed: int
    judgement: StepJudgement
    wrong_marks: tuple[Condition, ...] = ()
    total_before: Number | None = None


@dataclass(frozen=True, slots=True)
class JudgedChain:
    """A completion with everything the validator says about it; ``plan`` is the judgement of the final plan."""

    read: ReadChain
    steps: tuple[JudgedStep, ...]
    plan: PlanVerdict
    report: str

    @property
    def verdict(self) -> Verdict:
        """Return what the final plan is."""
        return self.plan.verdict

    @property
    def first_fault(self) -> int | None:
        """Return the index of the first step that is wrong, or None."""
        return next((i for i, step in enumerate(self.steps) if step.judgement.code.is_fault), None)


def sound_steps(task: PlanningTask, judged: JudgedChain) -> int:
    """Return how many steps a better continuation can keep.

    Those before the first fault; or, if the chain comes back to a state before that, those up to its first visit; or,
    if it tries again what it withdrew, those before the second trial.
    """
    kept_at = {task.initial_state: 0}
    withdrawn: set[tuple[int, PlanStep]] = set()
    for number, step in enumerate(judged.steps, 1):
        is_tried_again = (step.claimed, step.action) in withdrawn
        if is_tried_again or not step.judgement.code.is_outcome_right:
            return number - 1
        if step.judgement.code is FeedbackCode.WITHDRAWN:
            withdrawn.add((step.claimed, step.action))
            continue
        if step.claimed in kept_at:
            return kept_at[step.claimed]
        kept_at[step.claimed] = number
    return len(judged.steps)


def judge_completion(task: PlanningTask, completion: str, rendering: Prompting) -> JudgedChain:
    """Return the judgement of a completion.

    The plan judged is the final plan; without one, there is no plan and the verdict is `MALFORMED_PLAN`. Steps are
    judged one by one from the state the chain itself claims to be in (VAL-step in algorithm 1).
    """
    read = rendering.read(completion, task.domain)
    steps = judge_steps(task, read)
    verdict = judge_plan(task, read)
    is_read = read.fault is None and read.chain.final_plan is not None
    report = verbose_report(task, verdict) if is_read else f"Bad plan description!\n{verdict.reason}"
    return JudgedChain(read, steps, verdict, report)


def judge_plan(task: PlanningTask, read: ReadChain) -> PlanVerdict:
    """Return the verdict on the final plan of a completion that was read."""
    plan = read.chain.final_plan
    if plan is not None and read.fault is None:
        return validate_plan(task, plan)
    reason = read.fault or "no final plan"
    return PlanVerdict(Verdict.MALFORMED_PLAN, plan or (), None, (), (task.initial_state,), reason)


def judge_steps(task: PlanningTask, read: ReadChain) -> tuple[JudgedStep, ...]:
    """Return the judgement of every step of a chain.

    A step that says its action cannot be applied claims that the state stays as it is. Where that is so, it is right
    and no fault, if the plan leaves the action out; else the fault is the action itself. At the last step that is not
    withdrawn, a missed goal is its fault (equation 7) unless it has another.
    """
    judged: list[JudgedStep] = []
    is_plan_of_steps = read.chain.final_plan in (None, read.chain.plan_of_steps)
    state, total = in_order(task.problem.init), total_at_start(task)
    before = _bits(task, state)
    for step in read.chain.steps:
        judged.append(_judge(task, step, state, before, total))
        if step.is_withdrawn and is_plan_of_steps:
            judged[-1] = _withdrawn(judged[-1])
        total = _total_after(task, judged[-1], step, before)
        state, before = judged[-1].s_claimed, judged[-1].claimed
    taken = [i for i, step in enumerate(judged) if step.judgement.code is not FeedbackCode.WITHDRAWN]
    if taken and judged[taken[-1]].judgement.code is FeedbackCode.OK:
        last = judged[taken[-1]]
        missed = task.unsatisfied(task.goal, last.judgement.expected_state)
        if missed:
            judged[taken[-1]] = _missing_goal(last, " ".join(map(str, missed)))
    return tuple(judged)


def _judge(
    task: PlanningTask, step: ChainStep, state: tuple[Atom, ...], before: int, total: Number | None
) -> JudgedStep:
    """Return the judgement of a step from the state and the total cost that the chain claims to have come to.

    Args:
        task: domain and problem.
        step: as it was read.
        state: the atoms claimed before.
        before: the same as the task knows it.
        total: the total cost so far; None where no cost is told.
    """
    s_claimed, claimed = state, before
    if step.next_state is not None:
        s_claimed, claimed = step.next_state, _bits(task, step.next_state)
    judgement = judge_step(task, before, step.action, claimed)
    judgement = _with_cost(judgement, step, _true_cost(task, step.action, before, total))
    return JudgedStep(step.action, state, s_claimed, claimed, judgement, _wrong_marks(task, step, before), total)


def _true_cost(task: PlanningTask, step: PlanStep, state: int, total: Number | None) -> StepCost | None:
    """Return what a step costs and comes to; None where no cost is told, or it has no value."""
    action = task.ground(step)
    if total is None or not isinstance(action, GroundAction):
        return None
    amount = action.cost(state)
    return None if amount is None else StepCost.after(total, amount)


def _with_cost(judgement: StepJudgement, step: ChainStep, true_cost: StepCost | None) -> StepJudgement:
    """Return the judgement of a step with its cost looked at too, if its state is right."""
    if judgement.code is not FeedbackCode.OK or step.cost is None or true_cost is None or step.cost == true_cost:
        return judgement
    reason = f"{step.action} costs {true_cost.amount}, which makes {true_cost.total} in all"
    return replace(judgement, code=FeedbackCode.EFFECT, reason=reason)


def _total_after(task: PlanningTask, judged: JudgedStep, step: ChainStep, before: int) -> Number | None:
    """Return the total cost that a chain has come to: as it claims, else as it truly is."""
    if step.cost is not None and judged.total_before is not None:
        return step.cost.total
    if step.is_withdrawn:
        return judged.total_before
    cost = _true_cost(task, step.action, before, judged.total_before)
    return None if cost is None else cost.total


def _wrong_marks(task: PlanningTask, step: ChainStep, state: int) -> tuple[Condition, ...]:
    """Return the conditions on which a step and the validator differ; conditions made up are not evaluated.

    A step that is withdrawn need not name every precondition: its check may end at the first that is false.
    """
    action = task.ground(step.action)
    conditions = action.preconditions if isinstance(action, GroundAction) else ()
    told = dict.fromkeys((*step.preconditions, *step.unsatisfied))
    due = [condition for condition in conditions if condition in told or not step.is_withdrawn]
    true = [GoalMark(condition, task.holds(condition, state)) for condition in due]
    claimed = [GoalMark(condition, condition not in step.unsatisfied) for condition in told]
    wrong = _differing(true, claimed)
    if step.goal_check is not None:
        wrong += _differing(check_goals_in(task, state), step.goal_check)
    return tuple(dict.fromkeys(wrong))


def _differing(true: Sequence[GoalMark], claimed: Sequence[GoalMark]) -> list[Condition]:
    differing = set(true) ^ set(claimed)
    return [mark.condition for mark in (*true, *claimed) if mark in differing]


def _bits(task: PlanningTask, atoms: Iterable[Atom]) -> int:
    """Return a claimed state; the derived atoms that it names, perhaps with too few arguments, do not count."""
    return task.state_of(basic_only(task, atoms))


def _withdrawn(step: JudgedStep) -> JudgedStep:
    """Return the judgement of a step that says that its action cannot be applied, and takes it back."""
    if step.judgement.code is not FeedbackCode.PRECONDITION:
        return step
    return replace(step, judgement=replace(step.judgement, code=FeedbackCode.WITHDRAWN))


def _missing_goal(step: JudgedStep, missed: str) -> JudgedStep:
    judgement = StepJudgement(FeedbackCode.GOAL, step.judgement.expected_state, reason=f"the goal lacks {missed}")
    return replace(step, judgement=judgement)


def attempt_of(task: PlanningTask, judged: JudgedChain) -> Attempt:
    """Return the attempt as a feedback prompt shows it: steps that were not withdrawn, marked up to the first fault."""
    fault_index = judged.first_fault
    told = judged.steps if fault_index is None else judged.steps[: fault_index + 1]
    shown = [step for step in told if step.judgement.code is not FeedbackCode.WITHDRAWN]
    marks = tuple(step.judgement.code.is_outcome_right for step in shown)
    fault = shown[-1].judgement if shown and not marks[-1] else None
    unmet = judged.plan.unsatisfied if judged.verdict is Verdict.GOAL_NOT_REACHED else ()
    if shown and shown[-1].judgement.code is FeedbackCode.GOAL:  # also where no plan could be read, as after a cut
        unmet = task.unsatisfied(task.goal, shown[-1].judgement.expected_state)
    return Attempt(tuple(step.action for step in shown), marks, fault, unmet, _report(judged, fault))


def _report(judged: JudgedChain, fault: StepJudgement | None) -> str:
    """Return the validator's text; a wrongly claimed state is a fault that VAL, seeing the plan only, cannot name."""
    if fault is not None and fault.code is FeedbackCode.EFFECT:
        return f"{judged.report}\n\nState claimed wrongly: {fault.reason}"
    return judged.report

"""A completion judged: the plan as a whole, every step of the chain by itself.

The policy never grades itself. What it claims (next states, a verdict) is compared with what the validator finds; a
completion that cannot be read is a malformed plan, with what is wrong with it in the feedback.

A step claims a state and, where the problem minimises the total cost, a cost: a wrong one is a wrong effect. What else
it says of the state it starts from (`claims`) is judged too. Equations 5 to 7 of arXiv 2509.13351 are about
transitions, so a step's code is what they say of it; only where they find nothing wrong is a false claim its fault, and
its code `CLAIM`. The place of the fault is that of the first false word, whatever its kind. Not here: the rows that
keep all this (`judge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plansmith.judging.claims import FalseClaim, false_claims
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Number, PlanStep
from plansmith.pddl.val_report import verbose_report
from plansmith.pddl.validation import (
    FeedbackCode,
    PlanVerdict,
    StepJudgement,
    Verdict,
    judge_step,
    validate_plan,
)
from plansmith.text.branches import Passed
from plansmith.text.chains import (
    ChainStep,
    ReadChain,
    Span,
    StepCost,
    StepSpans,
    basic_only,
    in_order,
    total_at_start,
    whole_state,
)
from plansmith.text.explanations import Attempt
from plansmith.text.rendering import Prompting


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """One claimed transition with its judgement; states as atoms, in the order of the text.

    ``false_claims`` are what the step says wrongly of ``s_prev``. ``fault_span`` are the first false words: a literal,
    a mark, an action; after the last step also of the closing goal check. It is None where nothing is wrong, and where
    a chain that misses the goal says so. ``claimed`` is ``s_claimed`` as the task knows it. ``total_before`` is the
    total cost that the chain had come to; None where no cost is told.
    """

    action: PlanStep
    s_prev: tuple[Atom, ...]
    s_claimed: tuple[Atom, ...]
    claimed: int
    judgement: StepJudgement
    false_claims: tuple[FalseClaim, ...]
    fault_span: Span | None
    total_before: Number | None = None


@dataclass(frozen=True, slots=True)
class JudgedChain:
    """A completion with everything the validator says about it.

    ``closing`` is what the last goal check says wrongly; ``plan`` is the judgement of the final plan.
    """

    read: ReadChain
    steps: tuple[JudgedStep, ...]
    closing: tuple[FalseClaim, ...]
    plan: PlanVerdict
    report: str

    @property
    def verdict(self) -> Verdict:
        """Return what the final plan is."""
        return self.plan.verdict

    @property
    def first_fault(self) -> int | None:
        """Return the index of the first step that is wrong, or withdrawn and yet says something false, or None."""
        return next((i for i, step in enumerate(self.steps) if step.judgement.code.is_fault or step.false_claims), None)


def sound_steps(task: PlanningTask, judged: JudgedChain) -> int:
    """Return how many steps a better continuation can keep.

    Those before the first that says anything false; or, if the chain comes back to a state before that, those up to its
    first visit; or, if it tries again what it withdrew, those before the second trial.
    """
    kept_at = {task.initial_state: 0}
    withdrawn: set[tuple[int, PlanStep]] = set()
    for number, step in enumerate(judged.steps, 1):
        is_tried_again = (step.claimed, step.action) in withdrawn
        if is_tried_again or step.false_claims or not step.judgement.code.is_outcome_right:
            return number - 1
        if step.judgement.code is FeedbackCode.WITHDRAWN:
            withdrawn.add((step.claimed, step.action))
            continue
        if step.claimed in kept_at:
            return kept_at[step.claimed]
        kept_at[step.claimed] = number
    return len(judged.steps)


def judge_completion(task: PlanningTask, completion: str, rendering: Prompting, *, is_cut: bool = False) -> JudgedChain:
    """Return the judgement of a completion.

    The plan judged is the final plan; without one, there is no plan and the verdict is `MALFORMED_PLAN`. Steps are
    judged one by one from the state the chain itself claims to be in (VAL-step in algorithm 1). What was cut, by its
    limit or as it went in circles, has no plan, even where what is there reads as one: more was to come.
    """
    read = rendering.read(completion, task.domain)
    if is_cut and read.fault is None:
        read = replace(read, fault="the answer does not end: it was cut")
    steps, closing = judge_steps(task, read)
    verdict = judge_plan(task, read)
    is_read = read.fault is None and read.chain.final_plan is not None
    report = verbose_report(task, verdict) if is_read else f"Bad plan description!\n{verdict.reason}"
    return JudgedChain(read, steps, closing, verdict, report)


def judge_plan(task: PlanningTask, read: ReadChain) -> PlanVerdict:
    """Return the verdict on the final plan of a completion that was read."""
    plan = read.chain.final_plan
    if plan is not None and read.fault is None:
        return validate_plan(task, plan)
    reason = read.fault or "no final plan"
    return PlanVerdict(Verdict.MALFORMED_PLAN, plan or (), None, (), (task.initial_state,), reason)


def judge_actions(task: PlanningTask, read: ReadChain) -> Verdict:
    """Return what the actions of a completion come to by themselves, as far as they could be read."""
    plan = read.chain.final_plan
    if plan is not None and read.fault is None:
        return validate_plan(task, plan).verdict
    actions = [*read.chain.plan_of_steps]
    if read.broken_action is not None:
        actions.append(read.broken_action)
    return validate_plan(task, actions).verdict if actions else Verdict.MALFORMED_PLAN


def judge_steps(task: PlanningTask, read: ReadChain) -> tuple[tuple[JudgedStep, ...], tuple[FalseClaim, ...]]:
    """Return the judgement of every step of a chain, and what its last goal check says wrongly.

    A step that says its action cannot be applied claims that the state stays as it is. Where that is so, it is right
    and no fault, if the plan leaves the action out; else the fault is the action itself. At the last step that is not
    withdrawn, a missed goal is its fault (equation 7) unless it has another; a false word of the last goal check is its
    fault, too. A chain that says where it starts is judged from there, and what it says so by its first step.
    """
    judged: list[JudgedStep] = []
    is_plan_of_steps = read.chain.final_plan in (None, read.chain.plan_of_steps)
    state, total = in_order(task.problem.init), total_at_start(task)
    if read.chain.start is not None:
        state = whole_state(task, read.chain.start)
    before = _bits(task, state)
    passed = Passed({before})
    for step, spans in zip(read.chain.steps, read.spans, strict=True):
        judged.append(_judge(task, step, spans, _Before(state, before, total, passed)))
        if step.is_withdrawn and is_plan_of_steps:
            judged[-1] = _withdrawn(judged[-1])
        total = _total_after(task, judged[-1], step, before)
        state, before = judged[-1].s_claimed, judged[-1].claimed
        if not step.is_withdrawn:
            passed = Passed({*passed.states, before}, step.action)
    closing = false_claims(task, read.closing, before)
    taken = [i for i, step in enumerate(judged) if step.judgement.code is not FeedbackCode.WITHDRAWN]
    if taken:
        judged[taken[-1]] = _closed(task, judged[taken[-1]], closing)
    return tuple(judged), closing


@dataclass(frozen=True, slots=True)
class _Before:
    """What a chain claims to have come to: atoms, the same as the task knows it, the cost if told, and its way."""

    atoms: tuple[Atom, ...]
    state: int
    total: Number | None
    passed: Passed


def _judge(task: PlanningTask, step: ChainStep, spans: StepSpans, before: _Before) -> JudgedStep:
    """Return the judgement of a step from where the chain claims to be."""
    s_claimed, claimed = before.atoms, before.state
    if step.next_state is not None:
        s_claimed = whole_state(task, step.next_state)
        claimed = _bits(task, s_claimed)
    judgement = judge_step(task, before.state, step.action, claimed)
    judgement = _with_cost(judgement, step, _true_cost(task, step.action, before.state, before.total))
    false = false_claims(task, spans.claims, before.state, task.ground(step.action), before.passed)
    faults = [one.span for one in false]
    if judgement.code in (FeedbackCode.PRECONDITION, FeedbackCode.MALFORMED):
        faults.append(spans.action)
    if judgement.code is FeedbackCode.EFFECT and step.next_state is not None:  # else it is wrong to say that it fails
        faults.append(_false_state(task, spans, step.next_state, judgement.expected_state))
    judged = JudgedStep(step.action, before.atoms, s_claimed, claimed, judgement, false, _first(faults), before.total)
    return _with_claims(judged, false)


def _first(spans: Iterable[Span]) -> Span | None:
    return min(spans, key=lambda span: span.start, default=None)


def _false_state(task: PlanningTask, spans: StepSpans, claimed: Sequence[Atom], expected: int) -> Span:
    """Return the first atom of a claimed state that is not true; the outcome where what is wrong is another thing."""
    is_true = set(task.atoms_of(expected))
    told = zip(claimed, spans.state, strict=True)
    false = (span for atom, span in told if atom.predicate not in task.rules and atom not in is_true)
    return next(false, spans.outcome)


def _with_claims(step: JudgedStep, false: Sequence[FalseClaim]) -> JudgedStep:
    """Return a step whose fault, if it has no other, is the first of its false claims."""
    if not false or step.judgement.code is not FeedbackCode.OK:
        return step
    return replace(step, judgement=replace(step.judgement, code=FeedbackCode.CLAIM, reason=false[0].reason))


def _closed(task: PlanningTask, last: JudgedStep, closing: Sequence[FalseClaim]) -> JudgedStep:
    """Return the last step with what is wrong after it: the goal it misses, false words of the last goal check."""
    if last.judgement.code in (FeedbackCode.OK, FeedbackCode.CLAIM):
        missed = task.unsatisfied(task.goal, last.judgement.expected_state)
        if missed:
            reason = f"the goal lacks {' '.join(map(str, missed))}"
            last = replace(last, judgement=replace(last.judgement, code=FeedbackCode.GOAL, reason=reason))
    fault_span = last.fault_span or _first(false.span for false in closing)
    return _with_claims(replace(last, fault_span=fault_span), closing)


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


def _bits(task: PlanningTask, atoms: Iterable[Atom]) -> int:
    """Return a claimed state; the derived atoms that it names, perhaps with too few arguments, do not count."""
    return task.state_of(basic_only(task, atoms))


def _withdrawn(step: JudgedStep) -> JudgedStep:
    """Return the judgement of a step that says that its action cannot be applied, and takes it back."""
    if step.judgement.code is not FeedbackCode.PRECONDITION:
        return step
    fault_span = _first(false.span for false in step.false_claims)
    return replace(step, judgement=replace(step.judgement, code=FeedbackCode.WITHDRAWN), fault_span=fault_span)


def attempt_of(task: PlanningTask, judged: JudgedChain) -> Attempt:
    """Return the attempt as a feedback prompt shows it: steps marked up to the first whose transition is wrong.

    Steps that were withdrawn are left out. What is said wrongly of a state is not handed back: the feedback is on plans
    and states, as the paper's.
    """
    taken = [step for step in judged.steps if step.judgement.code is not FeedbackCode.WITHDRAWN]
    is_wrong = [step.judgement.code not in (FeedbackCode.OK, FeedbackCode.CLAIM) for step in taken]
    shown = taken[: is_wrong.index(True) + 1] if True in is_wrong else taken
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

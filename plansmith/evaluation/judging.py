"""From a completion to its verdict: the plan judged as a whole, every step judged by itself, the losses as printed.

The policy never grades itself. What it claims (next states, a verdict) is compared with what the validator finds; a
completion that cannot be read is a malformed plan, with what is wrong with it in the feedback.

A step claims a state and, where the problem minimises the total cost, a cost: a wrong one is a wrong effect. What it
says of preconditions and goals is compared too, but only named (`JudgedStep.wrong_marks`): equations 5 to 7 of arXiv
2509.13351 are about transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from plansmith.data.rows import JudgingRow, ProblemRow, ReasoningStepRow, RolloutRow, VerdictRow
from plansmith.evaluation.progress_score import progress_score
from plansmith.evaluation.results import AttemptExample, StepMark, StepView
from plansmith.evaluation.taxonomy import classify_failure
from plansmith.learning.printed_losses import LossWeights, step_loss
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
    check_goals,
    in_order,
    total_at_start,
)
from plansmith.text.explanations import Attempt
from plansmith.text.rendering import Prompting, rendering_of


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """One claimed transition with its judgement; states as atoms, in the order of the text.

    ``wrong_marks`` are the preconditions and goals whose truth in ``s_prev`` the step tells wrongly, those that it
    leaves out, and those that are none. ``total_before`` is the total cost that the chain had come to; None where no
    cost is told.
    """

    action: PlanStep
    s_prev: tuple[Atom, ...]
    s_claimed: tuple[Atom, ...]
    judgement: StepJudgement
    wrong_marks: tuple[Condition, ...] = ()
    total_before: Number | None = None


@dataclass(frozen=True, slots=True)
class JudgedChain:
    """A completion with everything the validator says about it."""

    read: ReadChain
    steps: tuple[JudgedStep, ...]
    verdict: PlanVerdict
    report: str

    @property
    def first_fault(self) -> int | None:
        """Return the index of the first step that is wrong, or None."""
        return next((i for i, step in enumerate(self.steps) if step.judgement.code is not FeedbackCode.OK), None)


def sound_steps(task: PlanningTask, judged: JudgedChain) -> int:
    """Return how many steps a better continuation can keep.

    Those before the first fault; or, if the chain comes back to a state before that, those up to its first visit.
    """
    kept_at = {task.initial_state: 0}
    for number, step in enumerate(judged.steps, 1):
        if step.judgement.code not in (FeedbackCode.OK, FeedbackCode.GOAL):
            return number - 1
        state = _bits(task, step.s_claimed)
        if state in kept_at:
            return kept_at[state]
        kept_at[state] = number
    return len(judged.steps)


def judge_completion(task: PlanningTask, completion: str, rendering: Prompting) -> JudgedChain:
    """Return the judgement of a completion.

    The plan judged is the final plan; without one, there is no plan and the verdict is `MALFORMED_PLAN`. Steps are
    judged one by one from the state the chain itself claims to be in (VAL-step in algorithm 1).
    """
    read = rendering.read(completion, task.domain)
    steps = judge_steps(task, read)
    plan = read.chain.final_plan
    if plan is None or read.fault is not None:
        reason = read.fault or "no final plan"
        verdict = PlanVerdict(Verdict.MALFORMED_PLAN, plan or (), None, (), (task.initial_state,), reason)
        return JudgedChain(read, steps, verdict, f"Bad plan description!\n{reason}")
    verdict = validate_plan(task, plan)
    return JudgedChain(read, steps, verdict, verbose_report(task, verdict))


def judge_steps(task: PlanningTask, read: ReadChain) -> tuple[JudgedStep, ...]:
    """Return the judgement of every step of a chain.

    A step that says its action cannot be applied claims that the state stays as it is; where that is so, it is right
    about the state, and the fault is the action itself. At the last step, a missed goal is its fault (equation 7)
    unless it has another.
    """
    judged: list[JudgedStep] = []
    state, total = in_order(task.problem.init), total_at_start(task)
    for step in read.chain.steps:
        judged.append(_judge(task, step, state, total))
        state, total = judged[-1].s_claimed, _total_after(task, judged[-1], step)
    if judged and judged[-1].judgement.code is FeedbackCode.OK:
        missed = task.unsatisfied(task.goal, judged[-1].judgement.expected_state)
        if missed:
            judged[-1] = _missing_goal(judged[-1], " ".join(map(str, missed)))
    return tuple(judged)


def _judge(task: PlanningTask, step: ChainStep, state: tuple[Atom, ...], total: Number | None) -> JudgedStep:
    """Return the judgement of a step from the state and the total cost that the chain claims to have come to."""
    claimed = step.next_state if step.next_state is not None else state
    before = _bits(task, state)
    judgement = judge_step(task, before, step.action, _bits(task, claimed))
    judgement = _with_cost(judgement, step, _true_cost(task, step.action, before, total))
    return JudgedStep(step.action, state, claimed, judgement, _wrong_marks(task, step, state), total)


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


def _total_after(task: PlanningTask, judged: JudgedStep, step: ChainStep) -> Number | None:
    """Return the total cost that a chain has come to: as it claims, else as it truly is."""
    if step.cost is not None and judged.total_before is not None:
        return step.cost.total
    if step.next_state is None:
        return judged.total_before
    cost = _true_cost(task, step.action, _bits(task, judged.s_prev), judged.total_before)
    return None if cost is None else cost.total


def _wrong_marks(task: PlanningTask, step: ChainStep, state: tuple[Atom, ...]) -> tuple[Condition, ...]:
    """Return the conditions on which a step and the validator differ; conditions made up are not evaluated."""
    action, known = task.ground(step.action), basic_only(task, state)
    bits = task.state_of(known)
    conditions = action.preconditions if isinstance(action, GroundAction) else ()
    true = [GoalMark(condition, task.holds(condition, bits)) for condition in conditions]
    told = dict.fromkeys((*step.preconditions, *step.unsatisfied))
    claimed = [GoalMark(condition, condition not in step.unsatisfied) for condition in told]
    wrong = _differing(true, claimed)
    if step.goal_check is not None:
        wrong += _differing(check_goals(task, known), step.goal_check)
    return tuple(dict.fromkeys(wrong))


def _differing(true: Sequence[GoalMark], claimed: Sequence[GoalMark]) -> list[Condition]:
    differing = set(true) ^ set(claimed)
    return [mark.condition for mark in (*true, *claimed) if mark in differing]


def _bits(task: PlanningTask, atoms: Iterable[Atom]) -> int:
    """Return a claimed state; the derived atoms that it names, perhaps with too few arguments, do not count."""
    return task.state_of(basic_only(task, atoms))


def _missing_goal(step: JudgedStep, missed: str) -> JudgedStep:
    judgement = StepJudgement(FeedbackCode.GOAL, step.judgement.expected_state, reason=f"the goal lacks {missed}")
    return replace(step, judgement=judgement)


def attempt_of(task: PlanningTask, judged: JudgedChain) -> Attempt:
    """Return the attempt as a feedback prompt shows it: steps marked up to the first fault."""
    fault_index = judged.first_fault
    shown = judged.steps if fault_index is None else judged.steps[: fault_index + 1]
    marks = tuple(step.judgement.code in (FeedbackCode.OK, FeedbackCode.GOAL) for step in shown)
    fault = shown[-1].judgement if shown and not marks[-1] else None
    unmet = judged.verdict.unsatisfied if judged.verdict.verdict is Verdict.GOAL_NOT_REACHED else ()
    if shown and shown[-1].judgement.code is FeedbackCode.GOAL:  # also where no plan could be read, as after a cut
        unmet = task.unsatisfied(task.goal, shown[-1].judgement.expected_state)
    return Attempt(tuple(step.action for step in shown), marks, fault, unmet, _report(judged, fault))


def _report(judged: JudgedChain, fault: StepJudgement | None) -> str:
    """Return the validator's text; a wrongly claimed state is a fault that VAL, seeing the plan only, cannot name."""
    if fault is not None and fault.code is FeedbackCode.EFFECT:
        return f"{judged.report}\n\nState claimed wrongly: {fault.reason}"
    return judged.report


def verdict_row(task: PlanningTask, rollout: RolloutRow | JudgingRow, judged: JudgedChain) -> VerdictRow:
    """Return the row of one judged rollout."""
    attempt = attempt_of(task, judged)
    first_wrong = next((i for i, s in enumerate(judged.steps, 1) if s.judgement.code is FeedbackCode.EFFECT), None)
    error_class = classify_failure(
        judged.verdict.verdict, judged.verdict.failed_step, first_wrong, judged.read.fault is None
    )
    marked = zip(attempt.plan, attempt.marks, strict=True)
    marks = [f"{step} - {'VALID' if is_valid else 'INVALID'}" for step, is_valid in marked]
    return VerdictRow(
        rollout_id=rollout.rollout_id,
        problem_id=rollout.problem_id,
        iteration=rollout.iteration,
        policy_version=rollout.policy_version,
        verdict=judged.verdict.verdict,
        error_class=error_class,
        failed_step=judged.verdict.failed_step,
        unsatisfied=tuple(str(literal) for literal in judged.verdict.unsatisfied),
        plan=tuple(str(step) for step in judged.verdict.plan),
        step_distances=tuple(step.judgement.state_distance for step in judged.steps),
        claimed_verdict=judged.read.chain.verdict,
        binary_feedback="\n".join(marks),
        detailed_feedback=attempt.report,
        plan_cost=None if judged.verdict.cost is None else float(judged.verdict.cost),
        progress=progress_score(task, judged.verdict),
    )


def judge_row(row: JudgingRow, prompting: Prompting) -> VerdictRow:
    """Return the verdict on one rollout joined with its problem."""
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    return verdict_row(task, row, judge_completion(task, row.completion, prompting))


def loss_of_step(step: JudgedStep, weights: LossWeights, *, is_binary: bool) -> float:
    """Return L_step of a judged step (equation 5)."""
    return step_loss(step.judgement.state_distance, step.judgement.code, weights, is_binary=is_binary)


def reasoning_rows(
    task: PlanningTask, rollout: RolloutRow, judged: JudgedChain, weights: LossWeights, *, is_binary: bool
) -> list[ReasoningStepRow]:
    """Return the triplets of one rollout with equations 5 to 7 as printed (D_reasoning, equation 10)."""
    return [
        ReasoningStepRow(
            rollout_id=rollout.rollout_id,
            problem_id=rollout.problem_id,
            iteration=rollout.iteration,
            policy_version=rollout.policy_version,
            step=number,
            s_prev=tuple(str(atom) for atom in step.s_prev),
            action=str(step.action),
            s_claimed=tuple(str(atom) for atom in step.s_claimed),
            s_expected=tuple(str(atom) for atom in task.atoms_of(step.judgement.expected_state)),
            feedback_code=step.judgement.code,
            state_distance=step.judgement.state_distance,
            step_loss=loss_of_step(step, weights, is_binary=is_binary),
        )
        for number, step in enumerate(judged.steps, 1)
    ]


def attempt_example(
    problem: ProblemRow, completion: str, planner_plan: tuple[str, ...], rendering_name: str, *, arm: str
) -> AttemptExample:
    """Return an attempt as the report shows it: the policy's own words step by step, each with its mark."""
    task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
    judged = judge_completion(task, completion, rendering_of(rendering_name))
    first_wrong = next((i for i, s in enumerate(judged.steps, 1) if s.judgement.code is FeedbackCode.EFFECT), None)
    is_readable = judged.read.fault is None
    return AttemptExample(
        problem_id=problem.problem_id,
        level=problem.level,
        arm=arm,
        initial_state=" ".join(str(atom) for atom in in_order(task.problem.init)),
        goal=" ".join(str(literal) for literal in task.goal),
        steps=_step_views(judged, completion),
        error_class=classify_failure(judged.verdict.verdict, judged.verdict.failed_step, first_wrong, is_readable),
        validator_text=judged.report,
        planner_plan=planner_plan,
        completion=completion,
    )


def _step_views(judged: JudgedChain, completion: str) -> tuple[StepView, ...]:
    views, is_reached = [], True
    for number, (step, spans) in enumerate(zip(judged.steps, judged.read.spans, strict=True), 1):
        mark = _MARKS[step.judgement.code] if is_reached else StepMark.UNREACHED
        text = completion[spans.choice.start : spans.outcome.end]
        views.append(StepView(number, str(step.action), text, mark, _note(step) if is_reached else ""))
        is_reached = is_reached and mark is not StepMark.FAILED
    return tuple(views)


def _note(step: JudgedStep) -> str:
    """Return what is wrong with a step, false words about its preconditions and the goal if nothing else is."""
    if step.judgement.reason or not step.wrong_marks:
        return step.judgement.reason
    return f"says wrongly what holds: {' '.join(map(str, step.wrong_marks))}"


_MARKS = {
    FeedbackCode.OK: StepMark.OK,
    FeedbackCode.GOAL: StepMark.OK,
    FeedbackCode.EFFECT: StepMark.WRONG_STATE,
    FeedbackCode.PRECONDITION: StepMark.FAILED,
    FeedbackCode.MALFORMED: StepMark.FAILED,
}

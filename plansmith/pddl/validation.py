"""Is this plan right, and if not, where and why?

`validate_plan` judges a whole plan as VAL does: apply each step to the state it meets, stop at the first whose
preconditions do not hold, check the goal at the end. `judge_step` judges one claimed transition of a chain of thought
(``VAL-step`` in algorithm 1 of arXiv 2509.13351). Verdicts are values: nothing here raises because a plan is bad. (A
task whose quantifiers have too many instances to be expanded does raise: `BadInputError`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from plansmith.errors import PddlParseError
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Number, PlanStep
from plansmith.pddl.parser import parse_plan

STATES_LIMIT_BYTES = 64 * 2**20
"""The most memory for the states that a plan meets."""
PLAN_EXPANSION_LIMIT_BYTES = 128 * 2**20
"""The most that the quantifiers of all steps of a plan may come to; some seconds."""


class Verdict(StrEnum):
    """What a plan is."""

    VALID = "valid"
    GOAL_NOT_REACHED = "goal_not_reached"
    PRECONDITION_UNSATISFIED = "precondition_unsatisfied"
    MALFORMED_PLAN = "malformed_plan"
    BAD_INPUT = "bad_input"


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """The judgement of one plan.

    ``failed_step`` counts from 1 and is None when no step failed. ``unsatisfied`` are *all* false conjuncts of that
    step's precondition, or of the goal. ``states`` are the states met, the initial one first, up to the failure.
    ``cost`` is the value of the problem's metric after the steps executed (VAL's "Final value"): the total cost, or
    their number where that is not the metric.
    """

    verdict: Verdict
    plan: tuple[PlanStep, ...]
    failed_step: int | None
    unsatisfied: tuple[Condition, ...]
    states: tuple[int, ...]
    reason: str
    cost: Number | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether the plan reaches the goal."""
        return self.verdict is Verdict.VALID


def validate_plan(task: PlanningTask, plan: Sequence[PlanStep]) -> PlanVerdict:
    """Return the verdict on `plan`.

    A malformed step (unknown action or object, wrong arity or type) makes the whole plan malformed wherever it stands,
    as VAL's type check of the whole plan does. A step whose cost has no value makes the verdict `BAD_INPUT`.
    """
    plan = tuple(plan)
    for number, step in enumerate(plan, 1):
        if malformed := task.malformed(step):
            return PlanVerdict(Verdict.MALFORMED_PLAN, plan, number, (), (task.initial_state,), malformed.reason)
    return _validate(task, plan, (action for action in map(task.ground, plan) if isinstance(action, GroundAction)))


def validate_plan_text(task: PlanningTask, text: str, *, source: str = "<plan>") -> PlanVerdict:
    """Return the verdict on the plan that `text` tells; text that is no plan is malformed, with the reason.

    A text whose every line the task has seen before is judged without being parsed.
    """
    actions = task.ground_lines(text)
    if actions is not None:
        return _validate(task, tuple([action.step for action in actions]), actions)
    try:
        plan = parse_plan(text, source=source)
    except PddlParseError as error:
        return PlanVerdict(Verdict.MALFORMED_PLAN, (), None, (), (task.initial_state,), str(error))
    verdict = validate_plan(task, plan)
    task.remember_lines(text, plan)
    return verdict


def _validate(task: PlanningTask, plan: tuple[PlanStep, ...], actions: Iterable[GroundAction]) -> PlanVerdict:
    """Execute the actions up to the first that fails, then look at the goal; none is made before its turn."""
    state, states = task.initial_state, [task.initial_state]
    total: Number = 0
    n_bytes = 0
    for action in actions:
        n_bytes += action.expanded_bytes
        if len(plan) * len(task.atoms) // 8 > STATES_LIMIT_BYTES:
            return _too_much(task, plan, f"{len(plan)} steps over {len(task.atoms)} atoms are more than can be kept")
        if n_bytes > PLAN_EXPANSION_LIMIT_BYTES:
            return _too_much(task, plan, f"{len(states)} steps have more instances of quantifiers than can be expanded")
        if not action.is_applicable(state):
            return _precondition_verdict(task, plan, action, states, total)
        if action.has_cost:
            cost = action.cost(state)
            if cost is None:
                return _cost_verdict(plan, action, states)
            total += cost
        state = action.apply(state)
        states.append(state)
    if task.is_goal(state):
        final = task.metric_value(len(plan), total)
        return PlanVerdict(Verdict.VALID, plan, None, (), tuple(states), "the plan reaches the goal", final)
    return _goal_verdict(task, plan, states, total)


def _too_much(task: PlanningTask, plan: tuple[PlanStep, ...], reason: str) -> PlanVerdict:
    return PlanVerdict(Verdict.BAD_INPUT, plan, None, (), (task.initial_state,), reason)


def _precondition_verdict(
    task: PlanningTask, plan: tuple[PlanStep, ...], action: GroundAction, states: Sequence[int], total: Number
) -> PlanVerdict:
    number, unsatisfied = len(states), task.unsatisfied(action.preconditions, states[-1])
    reason = f"step {number} {action.step} needs {_join(unsatisfied)}"
    final = task.metric_value(number - 1, total)
    return PlanVerdict(
        Verdict.PRECONDITION_UNSATISFIED, plan, number, unsatisfied, tuple(states), reason, final
    )  # fmt: skip


def _cost_verdict(plan: tuple[PlanStep, ...], action: GroundAction, states: Sequence[int]) -> PlanVerdict:
    undefined = [term for term in action.increases(states[-1]) if isinstance(term, Atom)]
    reason = f"step {len(states)} {action.step} costs {_join(undefined)}, which has no value in the problem"
    return PlanVerdict(Verdict.BAD_INPUT, plan, len(states), (), tuple(states), reason)


def _goal_verdict(task: PlanningTask, plan: tuple[PlanStep, ...], states: Sequence[int], total: Number) -> PlanVerdict:
    missed = task.unsatisfied(task.goal, states[-1])
    reason, final = f"the goal lacks {_join(missed)}", task.metric_value(len(plan), total)
    return PlanVerdict(Verdict.GOAL_NOT_REACHED, plan, None, missed, tuple(states), reason, final)


class FeedbackCode(StrEnum):
    """What is wrong with one claimed transition; equation 7 of arXiv 2509.13351 gives each fault its penalty."""

    OK = "ok"
    WITHDRAWN = "withdrawn"
    """The action cannot be applied, which the step says itself, and the plan leaves it out: no fault."""
    PRECONDITION = "precondition"
    EFFECT = "effect"
    GOAL = "goal"
    MALFORMED = "malformed"
    CLAIM = "claim"
    """Ours: the transition is right, and the step says something false of the state before it."""

    @property
    def is_fault(self) -> bool:
        """Return whether anything is wrong."""
        return self not in (FeedbackCode.OK, FeedbackCode.WITHDRAWN)

    @property
    def is_outcome_right(self) -> bool:
        """Return whether the next state is claimed as it should be; it may be for a wrong reason, or miss the goal."""
        return not self.is_fault or self in (FeedbackCode.GOAL, FeedbackCode.CLAIM)


@dataclass(frozen=True, slots=True)
class StepJudgement:
    """The judgement of one claimed transition ``(s_prev, action, s_claimed)``.

    ``missing_effects``: add effects the claim leaves out. ``kept_deletes``: deleted atoms the claim keeps.
    ``lost_atoms`` and ``invented_atoms``: changes the action does not make, violations of the frame axiom.
    """

    code: FeedbackCode
    expected_state: int
    unsatisfied: tuple[Condition, ...] = ()
    missing_effects: tuple[Atom, ...] = ()
    kept_deletes: tuple[Atom, ...] = ()
    lost_atoms: tuple[Atom, ...] = ()
    invented_atoms: tuple[Atom, ...] = ()
    state_distance: int = 0
    reason: str = ""

    @property
    def is_effect_error(self) -> bool:
        """Return whether an effect of the action itself is claimed wrongly."""
        return bool(self.missing_effects or self.kept_deletes)

    @property
    def is_frame_error(self) -> bool:
        """Return whether an atom changed that the action does not touch."""
        return bool(self.lost_atoms or self.invented_atoms)


def state_distance(state: int, other: int) -> int:
    """Return the number of atoms in one state but not the other (equation 6 of arXiv 2509.13351)."""
    return (state ^ other).bit_count()


def judge_step(task: PlanningTask, previous: int, step: PlanStep, claimed: int) -> StepJudgement:
    """Return the judgement of the claim that `step` leads from state `previous` to state `claimed`.

    An action whose preconditions are false changes nothing, so the expected state is then `previous` (the paper leaves
    it open: it defines s_expected only for an action that can be applied). Derived atoms follow from a state, so those
    that a claim names are ignored.
    """
    previous, claimed = task.basic_atoms(previous), task.basic_atoms(claimed)
    action = task.ground(step)
    if isinstance(action, MalformedStep):
        distance = state_distance(previous, claimed)
        return StepJudgement(FeedbackCode.MALFORMED, previous, state_distance=distance, reason=action.reason)
    if not action.is_applicable(previous):
        unsatisfied = task.unsatisfied(action.preconditions, previous)
        return StepJudgement(
            FeedbackCode.PRECONDITION,
            previous,
            unsatisfied=unsatisfied,
            state_distance=state_distance(previous, claimed),
            reason=f"{step} needs {_join(unsatisfied)}",
        )
    return _judge_effects(task, previous, action, claimed)


def _judge_effects(task: PlanningTask, previous: int, action: GroundAction, claimed: int) -> StepJudgement:
    added, deleted = action.changes(previous)
    expected = (previous & ~deleted) | added
    missing, invented = expected & ~claimed, claimed & ~expected
    judgement = StepJudgement(
        code=FeedbackCode.OK if claimed == expected else FeedbackCode.EFFECT,
        expected_state=expected,
        missing_effects=task.atoms_of(missing & added),
        kept_deletes=task.atoms_of(invented & deleted),
        lost_atoms=task.atoms_of(missing & ~added),
        invented_atoms=task.atoms_of(invented & ~deleted),
        state_distance=state_distance(claimed, expected),
    )
    return judgement if judgement.code is FeedbackCode.OK else _with_reason(judgement, action)


def _with_reason(judgement: StepJudgement, action: GroundAction) -> StepJudgement:
    faults = (
        ("must add", judgement.missing_effects),
        ("must delete", judgement.kept_deletes),
        ("does not delete", judgement.lost_atoms),
        ("does not add", judgement.invented_atoms),
    )
    reason = f"{action.step} " + ", ".join(f"{label} {_join(atoms)}" for label, atoms in faults if atoms)
    return StepJudgement(
        judgement.code, judgement.expected_state, judgement.unsatisfied, judgement.missing_effects,
        judgement.kept_deletes, judgement.lost_atoms, judgement.invented_atoms, judgement.state_distance, reason,
    )  # fmt: skip


def _join(items: Iterable[Atom | Condition]) -> str:
    return " ".join(str(item) for item in items)

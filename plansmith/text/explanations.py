"""What a judged attempt is told: the marks on its steps, the validator's feedback, and the fault of an explained plan.

Appendix B of arXiv 2509.13351 gives the shapes; the words are ours. Rendering is in `compact` and `full`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, PlanStep
from plansmith.pddl.validation import FeedbackCode, StepJudgement, judge_step
from plansmith.text.chains import INVALID, Chain, ChainStep, chain_of_plan


class FeedbackKind(StrEnum):
    """Binary: each step is valid or invalid. Detailed: the validator's reasons and repair advice as well."""

    BINARY = "binary"
    DETAILED = "detailed"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier plan with the validator's mark on each judged step (True: valid) and the first fault."""

    plan: tuple[PlanStep, ...]
    marks: tuple[bool, ...]
    fault: StepJudgement | None
    unmet_goals: tuple[Condition, ...]
    report: str


@dataclass(frozen=True, slots=True)
class ClaimedPlan:
    """A plan as shown for explanation; ``claims`` holds the state claimed after each step, or nothing."""

    plan: tuple[PlanStep, ...]
    claims: tuple[tuple[Atom, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The true chain of a claimed plan up to its first fault, and that fault."""

    chain: Chain
    fault: StepJudgement | None


def explain(task: PlanningTask, shown: ClaimedPlan) -> Explanation:
    """Return the explanation of a plan: its true chain, cut at the first step that is wrong or claimed wrongly."""
    chain = chain_of_plan(task, shown.plan, with_purpose=False)
    fault = first_false_claim(task, shown)
    if fault is None:
        last = chain.steps[-1] if chain.steps else None
        if last is not None and last.is_withdrawn:
            return Explanation(_without_goal_check(chain, chain.steps), None)
        return Explanation(Chain(chain.steps, chain.goal_check, None, chain.verdict), None)
    number, judgement = fault
    return Explanation(_without_goal_check(chain, chain.steps[:number]), judgement)


def first_false_claim(task: PlanningTask, shown: ClaimedPlan) -> tuple[int, StepJudgement] | None:
    """Return the number (from 1) and judgement of the first claimed state that is wrong, or None."""
    state = task.initial_state
    for number, (step, claim) in enumerate(zip(shown.plan, shown.claims, strict=False), 1):
        judgement = judge_step(task, state, step, task.state_of(claim))
        if judgement.code is FeedbackCode.EFFECT:
            return number, judgement
        if judgement.code is not FeedbackCode.OK:
            return None
        state = judgement.expected_state
    return None


def _without_goal_check(chain: Chain, steps: Sequence[ChainStep]) -> Chain:
    return Chain(tuple(steps), None, None, INVALID)

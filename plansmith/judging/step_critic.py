"""What a domain says of each step of a plan: R (equation 10) and C (equation 11) of Self-CriTeach.

How we read them. The paper sums R over all states, which pays for idling with goals met, while its appendix A.3.2
counts one state: `potential`, the default, is R(X_{t+1}) - R(X_t), so that a plan earns what holds in the end. A legal
step cannot reach an inconsistent state, so the second term of C is about the state that the chain claims. A violated
precondition leads to no state at all (A.2.4): it costs 1 + lambda, and nothing is counted after it. Not here: baselines
and advantages (`plansmith.learning.constrained`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.config.constrained import CriticConfig
from plansmith.data.rows import FinishReason, JudgedStepRow, VerdictRow
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import FeedbackCode, PlanVerdict, Verdict, validate_plan


@dataclass(frozen=True, slots=True)
class StepScore:
    """R and C of one step; ``place`` is the number, from 0, of the judged step that it is, None for a whole answer."""

    reward: float
    cost: float
    place: int | None


@dataclass(frozen=True, slots=True)
class Criticism:
    """A plan step by step. ``start`` is R(X_0), which the plan has not earned; one step at least."""

    start: float
    steps: tuple[StepScore, ...]

    @property
    def reward(self) -> float:
        """Return what the plan comes to, R(X_0) included."""
        return self.start + sum(step.reward for step in self.steps)

    @property
    def cost(self) -> float:
        """Return what the plan costs."""
        return sum(step.cost for step in self.steps)


def criticise(
    task: PlanningTask,
    verdict: VerdictRow,
    steps: Sequence[JudgedStepRow],
    config: CriticConfig,
    *,
    finish_reason: str = FinishReason.STOP,
) -> Criticism | None:
    """Return R and C of every step up to the first that violates a precondition; None where nobody could judge.

    An unreadable plan earns R(X_0) and costs 1 + lambda. Steps of the chain are those of the plan only where the plan
    is what they do; a plan without them has no claims.

    Args:
        task: of the domain that judges.
        verdict: on the rollout.
        steps: judged of its chain.
        config: of the critic.
        finish_reason: of the rollout.
    """
    if verdict.verdict == Verdict.BAD_INPUT or finish_reason == FinishReason.NO_ROOM:
        return None
    start = _share_of_goals(task, task.initial_state)
    if verdict.verdict == Verdict.MALFORMED_PLAN:
        return Criticism(start, (StepScore(0.0, 1.0 + config.state_cost, None),))
    plan = validate_plan(task, [parse_step(step) for step in verdict.plan])
    found = tuple(_scores(task, plan, _places(plan, steps), steps, config))
    return Criticism(start, found or (StepScore(0.0, 0.0, None),))


def _scores(
    task: PlanningTask,
    plan: PlanVerdict,
    places: Sequence[int | None],
    steps: Sequence[JudgedStepRow],
    config: CriticConfig,
) -> list[StepScore]:
    shares = [_share_of_goals(task, state) for state in plan.states]
    found = []
    for number, place in enumerate(places):
        if number + 1 >= len(shares):  # no state follows: the precondition does not hold
            found.append(StepScore(0.0, 1.0 + config.state_cost, place))
            break
        is_potential = config.step_reward == "potential"
        reward = shares[number + 1] - (shares[number] if is_potential else 0.0)
        is_false = place is not None and not FeedbackCode(steps[place].feedback_code).is_outcome_right
        found.append(StepScore(reward, config.state_cost if is_false else 0.0, place))
    return found


def _places(plan: PlanVerdict, steps: Sequence[JudgedStepRow]) -> list[int | None]:
    """Return for each step of a plan which judged step it is; None for all where the plan is another."""
    taken = [place for place, step in enumerate(steps) if step.feedback_code != FeedbackCode.WITHDRAWN]
    if [steps[place].action for place in taken] != [str(step) for step in plan.plan]:
        return [None] * len(plan.plan)
    return [*taken]


def _share_of_goals(task: PlanningTask, state: int) -> float:
    """Return R(X), the share of the goal's conjuncts that hold (equation 10)."""
    if not task.goal:
        return 1.0
    return 1.0 - len(task.unsatisfied(task.goal, state)) / len(task.goal)

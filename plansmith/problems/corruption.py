"""The four ways in which a plan is shown wrong (arXiv 2509.13351, sec. 5.1), each proved by the validator.

A corruption is drawn, then judged: it counts only when the validator finds exactly the error it is meant to show. The
first and last class change the plan; the second and third change the states claimed along a valid plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, PlanStep
from plansmith.pddl.simulation import applicable_actions
from plansmith.pddl.validation import FeedbackCode, Verdict, judge_step, validate_plan


class Corruption(StrEnum):
    """What is wrong with a plan as shown."""

    UNSATISFIED_PRECONDITION = "unsatisfied_precondition"
    WRONG_EFFECT = "wrong_effect"
    FRAME_VIOLATED = "frame_violated"
    GOAL_NOT_REACHED = "goal_not_reached"


@dataclass(frozen=True, slots=True)
class CorruptedPlan:
    """A plan with the states claimed after its steps (empty: none shown) and the one thing wrong with it."""

    corruption: Corruption
    plan: tuple[PlanStep, ...]
    claims: tuple[tuple[Atom, ...], ...]


def corrupt_plan(
    task: PlanningTask, plan: Sequence[PlanStep], corruption: Corruption, rng: random.Random, *, attempts: int = 50
) -> CorruptedPlan | None:
    """Return a corrupted version of a valid plan, or None when `attempts` draws gave none.

    Raises:
        ValueError: `plan` is not valid to begin with.
    """
    if not validate_plan(task, plan).is_valid:
        raise ValueError(f"only a valid plan can be corrupted, got {[str(step) for step in plan]}")
    sound = _SoundPlan(task, tuple(plan))
    for _ in range(attempts if plan else 0):
        candidate = _DRAWS[corruption](sound, rng)
        if candidate is not None and shows_exactly(task, candidate):
            return candidate
    return None


def shows_exactly(task: PlanningTask, shown: CorruptedPlan) -> bool:
    """Return whether the validator finds the named error and no other."""
    verdict = validate_plan(task, shown.plan)
    if shown.corruption is Corruption.UNSATISFIED_PRECONDITION:
        return verdict.verdict is Verdict.PRECONDITION_UNSATISFIED and not shown.claims
    if shown.corruption is Corruption.GOAL_NOT_REACHED:
        return verdict.verdict is Verdict.GOAL_NOT_REACHED and not shown.claims
    if not verdict.is_valid or len(shown.claims) != len(shown.plan):
        return False
    return _false_claims(task, shown) == [shown.corruption]


def _false_claims(task: PlanningTask, shown: CorruptedPlan) -> list[Corruption | None]:
    """Return the class of every wrong claim; None stands for a claim wrong in both ways."""
    faults: list[Corruption | None] = []
    state = task.initial_state
    for step, claim in zip(shown.plan, shown.claims, strict=True):
        judgement = judge_step(task, state, step, task.state_of(claim))
        if judgement.code is not FeedbackCode.OK:
            both = judgement.is_effect_error and judgement.is_frame_error
            single = Corruption.WRONG_EFFECT if judgement.is_effect_error else Corruption.FRAME_VIOLATED
            faults.append(None if both else single)
        state = judgement.expected_state
    return faults


@dataclass(frozen=True)
class _SoundPlan:
    """A valid plan with what draws look up again and again."""

    task: PlanningTask
    plan: tuple[PlanStep, ...]

    @cached_property
    def possible_steps(self) -> tuple[PlanStep, ...]:
        """Every ground action of the task, of which an untyped domain has very many."""
        return tuple(action.step for action in self.task.ground_actions())

    @cached_property
    def states(self) -> tuple[int, ...]:
        """The states met, the initial one first."""
        return validate_plan(self.task, self.plan).states

    def claims(self) -> list[tuple[Atom, ...]]:
        """Return the true states after each step."""
        return [self.task.atoms_of(state) for state in self.states[1:]]

    def action_at(self, index: int) -> GroundAction:
        """Return the action of a step with the conditional effects that take place there."""
        action = self.task.ground(self.plan[index])
        assert isinstance(action, GroundAction)
        return action.resolved(self.states[index])


def _draw_unsatisfied(sound: _SoundPlan, rng: random.Random) -> CorruptedPlan | None:
    """Drop, swap or replace one step."""
    steps, index = list(sound.plan), rng.randrange(len(sound.plan))
    way = rng.randrange(3)
    if way == 0:
        del steps[index]
    elif way == 1 and index + 1 < len(steps):
        steps[index], steps[index + 1] = steps[index + 1], steps[index]
    else:
        others = [step for step in sound.possible_steps if step != steps[index]]
        if not others:
            return None
        steps[index] = rng.choice(others)
    return CorruptedPlan(Corruption.UNSATISFIED_PRECONDITION, tuple(steps), ()) if steps else None


def _draw_goal_missed(sound: _SoundPlan, rng: random.Random) -> CorruptedPlan | None:
    """Cut the plan short, or replace its tail by an applicable detour of the same length."""
    task, plan = sound.task, sound.plan
    cut = rng.randrange(1, len(plan)) if len(plan) > 1 else 0
    steps, state = list(plan[:cut]), sound.states[cut]
    for _ in range(len(plan) - cut if rng.random() < 0.5 else 0):
        choices = applicable_actions(task, state)
        if not choices:
            break
        action = rng.choice(choices)
        steps.append(action.step)
        state = action.apply(state)
    return CorruptedPlan(Corruption.GOAL_NOT_REACHED, tuple(steps), ()) if steps else None


def true_claims(task: PlanningTask, plan: Sequence[PlanStep]) -> tuple[tuple[Atom, ...], ...]:
    """Return the states after each step of a valid plan."""
    return tuple(task.atoms_of(state) for state in validate_plan(task, plan).states[1:])


def _draw_wrong_effect(sound: _SoundPlan, rng: random.Random) -> CorruptedPlan | None:
    """Leave out one add effect, or keep one deleted atom."""
    claims, index = sound.claims(), rng.randrange(len(sound.plan))
    action = sound.action_at(index)
    before = claims[index - 1] if index else tuple(sound.task.problem.init)
    deleted = [atom for atom in action.delete_effects if atom in before]
    choices = [(atom, True) for atom in action.add_effects] + [(atom, False) for atom in deleted]
    if not choices:
        return None
    atom, is_add = rng.choice(choices)
    claims[index] = tuple(a for a in claims[index] if a != atom) if is_add else (*claims[index], atom)
    return CorruptedPlan(Corruption.WRONG_EFFECT, sound.plan, tuple(claims))


def _draw_frame_violated(sound: _SoundPlan, rng: random.Random) -> CorruptedPlan | None:
    """Lose an atom the action does not touch, or gain one it does not add."""
    claims, index = sound.claims(), rng.randrange(len(sound.plan))
    action = sound.action_at(index)
    touched = {*action.add_effects, *action.delete_effects}
    stays = [atom for atom in claims[index] if atom not in touched]
    known = {atom for claim in claims for atom in claim} | set(sound.task.problem.init)
    absent = sorted(known - set(claims[index]) - touched)
    choices = [(atom, True) for atom in stays] + [(atom, False) for atom in absent]
    if not choices:
        return None
    atom, is_loss = rng.choice(choices)
    claims[index] = tuple(a for a in claims[index] if a != atom) if is_loss else (*claims[index], atom)
    return CorruptedPlan(Corruption.FRAME_VIOLATED, sound.plan, tuple(claims))


_Draw = Callable[[_SoundPlan, random.Random], CorruptedPlan | None]
_DRAWS: dict[Corruption, _Draw] = {
    Corruption.UNSATISFIED_PRECONDITION: _draw_unsatisfied,
    Corruption.WRONG_EFFECT: _draw_wrong_effect,
    Corruption.FRAME_VIOLATED: _draw_frame_violated,
    Corruption.GOAL_NOT_REACHED: _draw_goal_missed,
}

"""What else could have been done at a step, and what would have failed: found, proved, and written into a chain.

Source: Self-CriTeach, section 5.2, two of its four aspects: alternative exploration (other applicable actions, where
each leads, why it is not taken) and failure backtracking (a violated constraint traced back to the decision that caused
it). There a model is asked for both, and believed; here each is proved before it is told, and a policy's are judged by
the same proofs. Where nobody knows whether an action leads nearer to the goal (`GoalDistances`), it is not told, and
what a policy says of it is not judged.

A branch that fails is told from the state that it begins in: an action that could be applied, then those of the plan up
to one that lacks what the first has deleted. None of it belongs to the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from plansmith.pddl.goal_distances import GoalDistances
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Condition, PlanStep
from plansmith.pddl.simulation import applicable_actions
from plansmith.text.chains import Alternative, Backtrack, Chain, Drawback, state_before

MAX_BRANCH = 4
"""Longest branch that is looked at, in actions."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Where a chain has been: its states, the one it is in among them, and the action it took last, if any."""

    states: Collection[int]
    last: PlanStep | None = None


NOWHERE = Passed(())


def with_branches(task: PlanningTask, chain: Chain, *, n_alternatives: int = 0, n_backtracks: int = 0) -> Chain:
    """Return a true chain that also tells what else could have been done, and what would have failed.

    Args:
        task: domain and problem.
        chain: true, no step of it withdrawn.
        n_alternatives: told before each step, at most, in the order of `Drawback`.
        n_backtracks: told in the whole chain, at most, one before a step: the earliest.
    """
    plan, left, steps = chain.plan_of_steps, n_backtracks, list(chain.steps)
    states = [task.state_of(state_before(task, chain, place)) for place in range(len(steps))]
    for place, step in enumerate(steps):
        passed = Passed(frozenset(states[: place + 1]), plan[place - 1] if place else None)
        others = [action for action in applicable_actions(task, states[place]) if action.step != step.action]
        found = _alternatives(task, states[place], others, passed) if n_alternatives else iter(())
        alternatives = sorted(found, key=lambda told: [*Drawback].index(told.drawback))[:n_alternatives]
        backtracks = _backtracks(task, states[place], others, plan[place:], passed) if left else iter(())
        told = tuple(islice(backtracks, 1))
        left -= len(told)
        steps[place] = replace(step, alternatives=tuple(alternatives), backtracks=told)
    return replace(chain, steps=tuple(steps))


def _alternatives(
    task: PlanningTask, state: int, others: Sequence[GroundAction], passed: Passed
) -> Iterator[Alternative]:
    """Yield of the actions that can be applied those for which there is a reason not to be taken."""
    for action in others:
        undone = tuple(goal for goal in task.goal if _undoes(task, action, state, goal))
        for drawback in Drawback:
            found = Alternative(action.step, drawback, undone if drawback is Drawback.UNDOES else ())
            if _has_drawback(task, action, state, found, passed):
                yield found
                break


def _undoes(task: PlanningTask, action: GroundAction, state: int, goal: Condition) -> bool:
    return task.holds(goal, state) and not task.holds(goal, action.apply(state))


def _has_drawback(
    task: PlanningTask, action: GroundAction, state: int, told: Alternative, passed: Passed
) -> bool | None:
    """Return whether an action that can be applied has a drawback; None where nobody knows."""
    after = action.apply(state)
    if told.drawback is Drawback.UNDOES:
        return bool(told.undone) and all(
            goal in task.goal and _undoes(task, action, state, goal) for goal in told.undone
        )
    if told.drawback is Drawback.RETURNS:
        return after in passed.states
    here, there = (GoalDistances.of(task).steps(each) for each in (state, after))
    if here is None or there is None:
        return None
    return there == float("inf") if told.drawback is Drawback.DEAD_END else there >= here


def _backtracks(
    task: PlanningTask, state: int, others: Sequence[GroundAction], ahead: Sequence[PlanStep], passed: Passed
) -> Iterator[Backtrack]:
    """Yield branches in which one of the other actions takes from those of the plan what they need."""
    for action in others:
        branch, reached = [action.step], action.apply(state)
        for step in ahead[: MAX_BRANCH - 1]:
            branch.append(step)
            following = task.ground(step)
            assert isinstance(following, GroundAction), "the chain is true"
            if lacking := task.unsatisfied(following.preconditions, reached):
                found = Backtrack(tuple(branch), lacking, action.step, passed.last)
                if not why_false(task, found, state, None, passed):
                    yield found
                break
            reached = following.apply(reached)


def why_false(
    task: PlanningTask, told: Alternative | Backtrack, state: int, chosen: PlanStep | None, passed: Passed
) -> str:
    """Return what is wrong with what is told before a step; nothing where it is true, or nobody knows.

    Args:
        task: domain and problem.
        told: what else could have been done, or would have failed.
        state: that the chain is in.
        chosen: the action of the step.
        passed: where the chain has been.
    """
    if isinstance(told, Alternative):
        return _why_false(task, told, state, chosen, passed)
    return _why_not(task, told, state, passed)


def _why_false(task: PlanningTask, told: Alternative, state: int, chosen: PlanStep | None, passed: Passed) -> str:
    action = task.ground(told.action)
    if isinstance(action, MalformedStep):
        return f"{told.action} is no action of the problem"
    if told.action == chosen:
        return f"{told.action} is the action taken"
    if not action.is_applicable(state):
        return f"{told.action} cannot be applied"
    if _has_drawback(task, action, state, told, passed) is False:
        said = " ".join([told.drawback, *map(str, told.undone)])
        return f"of {told.action} it is not true: {said}"
    return ""


def _why_not(task: PlanningTask, told: Backtrack, state: int, passed: Passed) -> str:
    """Return what is wrong with a branch that is said to fail."""
    if told.back_to != passed.last:
        return f"the branch began after {passed.last or 'nothing'}, not after {told.back_to or 'nothing'}"
    actions, states = [task.ground(step) for step in told.branch], [state]
    for action in actions:
        if isinstance(action, MalformedStep):
            return f"{action.step} is no action of the problem"
    *before, last = [action for action in actions if isinstance(action, GroundAction)]
    for action in before:
        if not action.is_applicable(states[-1]):
            return f"{action.step} cannot be applied"
        states.append(action.apply(states[-1]))
    lacking = task.unsatisfied(last.preconditions, states[-1])
    if not lacking:
        return f"{last.step} can be applied"
    if not told.unsatisfied:
        return f"it is not said what {last.step} lacks"
    for condition in told.unsatisfied:
        if condition not in lacking:
            return f"{last.step} does not lack {condition}"
        truths = [task.holds(condition, each) for each in states]
        lost = [
            action.step for action, was, is_now in zip(before, truths, truths[1:], strict=False) if was and not is_now
        ]
        if not lost or lost[-1] != told.culprit:
            return f"{told.culprit} is not what took {condition} away"
    return ""

"""Chains of thought as data: true steps, the reason for each action, the goals still open."""

from __future__ import annotations

import random

import pytest
from conftest import (
    BLOCKS,
    SUSSMAN_PLAN,
    atoms,
    blocks_problems,
    blocks_task,
    depot_task,
    random_walk,
    shortest_plan,
    sussman,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_plan, parse_problem
from plansmith.pddl.validation import validate_plan
from plansmith.text.chains import Chain, chain_of_plan, check_goals, continued_chain, in_order
from plansmith.text.purpose import effects_of, purposes


def before(chain: Chain) -> list[list[str]]:
    """Return for each goal check the goals that are said to come before each goal."""
    checks = [*(step.goal_check for step in chain.steps if step.goal_check is not None), chain.goal_check or ()]
    return [[" ".join(map(str, mark.after)) for mark in check] for check in checks]


def reasons(task: PlanningTask, plan: str) -> list[str | None]:
    """Return the purpose of each step of a plan as text."""
    actions = [action for step in parse_plan(plan) if isinstance(action := task.ground(step), GroundAction)]
    assert len(actions) == len(parse_plan(plan))
    found = purposes(task, actions)
    return [None if purpose is None else " ".join(map(str, purpose.conditions)) for purpose in found]


def test_purposes_of_sussmans_plan_are_its_causal_links() -> None:
    plan = " ".join(map(str, SUSSMAN_PLAN))
    assert reasons(sussman(), plan) == [
        "(on a b) (holding a) (clear a)",  # (on b c) is reached first, but c, which it needs clear, is clear now
        "(on b c) (clear c)",
        "(on b c) (holding b)",
        "(on b c)",
        "(on a b) (holding a)",
        "(on a b)",
    ]


@settings(max_examples=40)
@given(blocks_problems(max_blocks=4))
def test_purposes_in_a_shortest_plan_lead_from_a_goal_over_what_is_open_to_an_effect(
    problem: Problem,
) -> None:
    task = PlanningTask(BLOCKS, problem)
    state = task.initial_state
    actions = [task.ground(step) for step in shortest_plan(task)]
    for action, purpose in zip(actions, purposes(task, actions), strict=True):
        assert purpose is not None and purpose.conditions[0] in task.goal
        assert purpose.conditions[-1] in effects_of(action)
        assert not any(task.holds(condition, state) for condition in purpose.conditions[1:])
        assert [literal.atom for literal in purpose.support[-1]] == [literal.atom for literal in action.preconditions]
        assert all(task.holds(literal, state) for settled in purpose.support for literal in settled)
        state = action.apply(state)


def test_purposes_of_one_goal_prefer_what_is_open_and_then_the_shorter_way() -> None:
    init = "(on a b) (clear a) (on b c) (ontable c) (ontable d) (clear d) (handempty)"
    task = blocks_task(init, "(on c d)", "a b c d")
    plan = "(unstack a b) (put-down a) (unstack b c) (put-down b) (pick-up c) (stack c d)"
    assert reasons(task, plan)[:3] == [
        "(on c d) (holding c) (clear c) (clear b)",  # the hand must be empty for that, and is
        "(on c d) (holding c) (clear c) (handempty)",
        "(on c d) (holding c) (clear c)",
    ]


def test_purposes_of_needless_steps_are_none() -> None:
    there_and_back = f"(pick-up b) (put-down b) {' '.join(map(str, SUSSMAN_PLAN))} (unstack a b)"
    found = reasons(sussman(), there_and_back)
    assert found[-1] is None  # undoes a goal, so nothing before it achieves (on a b) for good either
    assert found[-2] is None and found[-3] is None
    assert found[5] == "(on b c)"


def test_purposes_link_is_broken_by_a_step_that_undoes_or_repeats_the_effect() -> None:
    found = reasons(sussman(), "(unstack c a) (stack c a) (unstack c a) (put-down c) (pick-up b) (stack b c)")
    assert found[0] == "(on b c) (holding c) (clear a)"  # c is held again only after it was put down
    assert found[2] == "(on b c) (holding c)"
    assert found[3] == "(on b c) (clear c)"


def test_purposes_of_delete_effects_serve_negative_goals() -> None:
    assert reasons(depot_task(), "(open l2) (move t1 l1 hub)") == ["(not (closed l2))", "(at t1 hub)"]


def test_in_order_sorts_by_arguments_then_predicate() -> None:
    shuffled = atoms("(ontable b) (on a b) (holding a) (clear b) (handempty)")
    assert in_order(shuffled) == atoms("(handempty) (holding a) (on a b) (clear b) (ontable b)")


def test_chain_of_plan_checks_goals_at_the_start_after_an_aim_is_reached_and_at_the_end() -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    told = [None if step.goal_check is None else [mark.is_met for mark in step.goal_check] for step in chain.steps]
    assert told == [[False, False], None, None, None, [False, True], None]
    assert chain.goal_check is not None and [mark.is_met for mark in chain.goal_check] == [True, True]
    assert (chain.final_plan, chain.verdict) == (SUSSMAN_PLAN, "VALID")


def test_chain_of_plan_names_the_open_goals_that_come_before_an_open_one() -> None:
    init = "(ontable a) (ontable b) (ontable c) (ontable d) (clear a) (clear b) (clear c) (clear d) (handempty)"
    task = blocks_task(init, "(on a b) (on b c) (on c d)", "a b c d")
    plan = parse_plan("(pick-up c) (stack c d) (pick-up b) (stack b c) (pick-up a) (stack a b)")
    chain = chain_of_plan(task, plan)
    assert before(chain) == [["(on b c)", "(on c d)", ""], ["(on b c)", "", ""], ["", "", ""], ["", "", ""]]
    continued = continued_chain(task, chain_of_plan(task, plan[:2]).steps, plan[2:])
    assert continued == chain and before(continued) == before(chain)


def test_chain_of_plan_does_not_check_goals_where_one_is_only_broken() -> None:
    # the goal (on b c) is broken on the way to reaching it again below a
    plan = parse_plan(
        "(unstack b c) (put-down b) (unstack c a) (put-down c) (pick-up b) (stack b c) (pick-up a) (stack a b)"
    )
    init, goal = "(on b c) (on c a) (ontable a) (clear b) (handempty)", "(and (on a b) (on b c))"
    text = f"(define (problem p) (:domain blocksworld) (:objects a b c) (:init {init}) (:goal {goal}))"
    chain = chain_of_plan(PlanningTask(BLOCKS, parse_problem(text, BLOCKS)), plan)
    told = [None if step.goal_check is None else [mark.is_met for mark in step.goal_check] for step in chain.steps]
    assert told == [[False, True], None, None, None, None, None, [False, True], None]


def test_chain_of_plan_without_purpose_says_neither_goals_nor_reasons() -> None:
    steps = chain_of_plan(sussman(), SUSSMAN_PLAN, with_purpose=False).steps
    assert {step.goal_check for step in steps} == {None} and {step.purpose for step in steps} == {()}


@pytest.mark.parametrize(
    ("plan", "n_steps", "unsatisfied"),
    [("(pick-up b) (pick-up a) (put-down b)", 2, "(clear a) (handempty)"), ("(pick-up b) (fly b) (put-down b)", 2, "")],
    ids=["precondition", "unknown action"],
)
def test_chain_of_plan_stops_at_the_first_step_that_cannot_be_applied(
    plan: str, n_steps: int, unsatisfied: str
) -> None:
    chain = chain_of_plan(sussman(), parse_plan(plan))
    assert (len(chain.steps), chain.verdict, chain.final_plan) == (n_steps, "INVALID", parse_plan(plan))
    assert chain.steps[-1].next_state is None
    assert tuple(literal.atom for literal in chain.steps[-1].unsatisfied) == atoms(unsatisfied)


def test_chain_of_plan_empty_plan_is_invalid_where_goals_are_open() -> None:
    chain = chain_of_plan(sussman(), ())
    assert (chain.steps, chain.goal_check, chain.verdict) == ((), check_goals(sussman(), ()), "INVALID")


@settings(max_examples=30)
@given(blocks_problems(max_blocks=3), st.randoms(use_true_random=False))
def test_chain_of_plan_states_and_verdict_are_the_validators(problem: Problem, rng: random.Random) -> None:
    task = PlanningTask(BLOCKS, problem)
    for plan in (shortest_plan(task), random_walk(task, 6, rng)):
        chain, verdict = chain_of_plan(task, plan), validate_plan(task, plan)
        assert tuple(task.state_of(step.next_state or ()) for step in chain.steps) == verdict.states[1:]
        assert (chain.verdict == "VALID") == verdict.is_valid
        unmet = tuple(mark.condition for mark in chain.goal_check or () if not mark.is_met)
        assert unmet == task.unsatisfied(task.goal, verdict.states[-1])
        assert all(len(set(step.next_state or ())) == len(step.next_state or ()) for step in chain.steps)

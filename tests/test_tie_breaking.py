"""One plan among many of the same length: valid, as short, and the same whatever the planner's accidents."""

from __future__ import annotations

import pytest
from conftest import BLOCKS, blocks_problems, blocks_task, shortest_plan, sussman
from hypothesis import given, settings

from actors.planner import PlannerActor
from plansmith.config.planner import PlannerConfig
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners.tie_breaking import plan_with_late_goals

IN_THE_WAY = blocks_task(
    "(on c a) (clear c) (ontable a) (ontable b) (clear b) (ontable d) (clear d) (handempty)", "(on a b)", "a b c d"
)
OVER_D = parse_plan("(unstack c a) (stack c d) (pick-up a) (stack a b)")


def test_a_block_that_is_in_the_way_goes_on_the_table() -> None:
    assert validate_plan(IN_THE_WAY, OVER_D).is_valid
    found = plan_with_late_goals(IN_THE_WAY, OVER_D, max_states=1000)
    assert found == parse_plan("(unstack c a) (put-down c) (pick-up a) (stack a b)")


def test_plan_takes_apart_before_it_builds() -> None:
    """To put a on b is open from the start; d, which is wanted too, is under c."""
    towers = "(ontable a) (clear a) (ontable b) (clear b) (on c d) (clear c) (ontable d) (handempty)"
    task = blocks_task(towers, "(on a b) (on d a)", "a b c d")
    early = parse_plan("(pick-up a) (stack a b) (unstack c d) (put-down c) (pick-up d) (stack d a)")
    assert validate_plan(task, early).is_valid
    late = parse_plan("(unstack c d) (put-down c) (pick-up a) (stack a b) (pick-up d) (stack d a)")
    assert plan_with_late_goals(task, early, max_states=1000) == late


@settings(max_examples=30)
@given(blocks_problems(max_blocks=4))
def test_plan_with_late_goals_is_valid_and_as_short(problem: Problem) -> None:
    task = PlanningTask(BLOCKS, problem)
    plan = shortest_plan(task)
    found = plan_with_late_goals(task, plan, max_states=10**5)
    assert validate_plan(task, found).is_valid
    assert len(found) == len(plan)


@pytest.mark.parametrize(("max_states", "why"), [(5, "40 ground actions"), (45, "over a hundred states")])
def test_plan_that_takes_too_long_to_find_is_the_planners(max_states: int, why: str) -> None:
    tower = "(on d c) (on c b) (on b a) (ontable a) (clear d) (handempty)"
    task = blocks_task(tower, "(on b c) (on c d) (on a b)", "a b c d")
    plan = parse_plan(
        "(unstack d c) (put-down d) (unstack c b) (stack c d) (unstack b a) (stack b c) (pick-up a) (stack a b)"
    )
    assert plan_with_late_goals(task, plan[::-1], max_states=max_states) == tuple(plan[::-1]), why
    assert plan_with_late_goals(task, plan[::-1], max_states=1000) == tuple(plan)


def test_planner_actor_breaks_ties_only_where_it_is_told_to() -> None:
    task = sussman()
    texts = print_domain(task.domain), print_problem(task.problem)
    plans = []
    for actor in (PlannerActor(PlannerConfig()), PlannerActor(PlannerConfig(tie_break_states=1000))):
        plans.append(actor._plan_row("p", *texts))
        actor.close()
    assert [row.status for row in plans] == ["solved", "solved"]
    assert len(plans[0].plan) == len(plans[1].plan) == 6
    steps = parse_plan(" ".join(plans[1].plan))
    assert tuple(steps) == plan_with_late_goals(task, steps, max_states=1000)


def test_ties_are_broken_among_plans_that_cost_as_much_not_among_as_long_ones() -> None:
    domain = """(define (domain ways) (:requirements :action-costs) (:predicates (at ?x) (near ?x ?y) (far ?x ?y))
      (:functions (total-cost))
      (:action walk :parameters (?x ?y) :precondition (and (at ?x) (near ?x ?y))
        :effect (and (at ?y) (not (at ?x)) (increase (total-cost) 1)))
      (:action taxi :parameters (?x ?y) :precondition (and (at ?x) (far ?x ?y))
        :effect (and (at ?y) (not (at ?x)) (increase (total-cost) 5))))"""
    problem = """(define (problem p) (:domain ways) (:objects a b c d)
      (:init (at a) (near a b) (near b c) (near c d) (far a d) (= (total-cost) 0))
      (:goal (at d)) (:metric minimize (total-cost)))"""
    actor = PlannerActor(PlannerConfig(search="optimal", tie_break_states=1000))
    row = actor._plan_row("p", domain, problem)
    actor.close()
    assert (row.plan, row.cost, row.is_optimal) == (("(walk a b)", "(walk b c)", "(walk c d)"), 3.0, True)

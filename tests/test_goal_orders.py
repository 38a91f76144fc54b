"""Reasonable orders between goals."""

from __future__ import annotations

import random

import pytest
from conftest import BLOCKS, blocks_problems, blocks_task, shortest_plan, sussman
from hypothesis import given, settings

from plansmith.pddl.goal_orders import GoalOrders
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.pddl.validation import validate_plan

TABLE = "(ontable a) (ontable b) (ontable c) (ontable d) (clear a) (clear b) (clear c) (clear d) (handempty)"


def orders(task: PlanningTask) -> dict[str, list[str]]:
    """Return the orders of a task that hold from any state, as text."""
    return {str(late): list(map(str, before)) for late, before in GoalOrders(task).always.items()}


def orders_now(task: PlanningTask) -> dict[str, list[str]]:
    """Return the orders of a task as they are at its start, as text."""
    return {str(late): list(map(str, before)) for late, before in GoalOrders(task).before(task.initial_state).items()}


def task_of(actions: str, goal: str, init: str = "(free)", objects: str = "b - part") -> PlanningTask:
    """Return a task of a small workshop with these actions."""
    domain = f"""(define (domain workshop) (:requirements :adl) (:types part tool) (:constants a - part)
      (:predicates (cut ?x - part) (glued ?x) (free) (raw ?x - part) (shown) (held ?t - tool)) {actions})"""
    problem = f"(define (problem p) (:domain workshop) (:objects {objects}) (:init {init}) (:goal {goal}))"
    return PlanningTask.from_text(domain, problem)


CUT = "(:action cut :parameters (?x - part) :precondition (raw ?x) :effect (and (cut ?x) (not (raw ?x))))"


def test_reasonable_orders_of_a_tower_are_from_the_bottom() -> None:
    assert orders(sussman()) == {"(on a b)": ["(on b c)"]}
    task = blocks_task(TABLE, "(on a b) (on b c) (ontable c) (clear a)", "a b c d")
    assert orders(task) == {"(on a b)": ["(on b c)"], "(on b c)": ["(ontable c)"]}


def test_reasonable_orders_a_goal_that_uses_something_up_comes_after_all_that_need_it() -> None:
    task = blocks_task(TABLE, "(holding d) (on a b) (on b c)", "a b c d")
    assert orders(task) == {"(holding d)": ["(on a b)", "(on b c)"], "(on a b)": ["(on b c)"]}


@given(blocks_problems(max_blocks=4))
@settings(max_examples=40)
def test_reasonable_orders_are_those_of_shortest_plans_in_blocksworld(problem: Problem) -> None:
    task = PlanningTask(BLOCKS, problem)
    states = validate_plan(task, shortest_plan(task)).states

    def achieved_at(goal: object) -> int:
        return min(n for n in range(len(states)) if all(task.holds(goal, state) for state in states[n:]))

    orders_of, found = GoalOrders(task), GoalOrders(task).always
    for n, state in enumerate(states):
        for late, before in orders_of.before(state).items():
            opened = [min(m for m in range(n, len(states)) if task.holds(early, states[m])) for early in before]
            assert max(opened) <= achieved_at(late)
    assert all(achieved_at(early) <= achieved_at(late) for late, before in found.items() for early in before)
    supported = {goal.atom.arguments[0] for goal in task.goal if goal.atom.predicate == "on"}
    assert set(found) >= {
        goal for goal in task.goal if goal.atom.predicate == "on" and goal.atom.arguments[1] in supported
    }


@pytest.mark.parametrize(
    ("actions", "goal", "expected"),
    [
        (CUT, "(and (cut a) (raw b))", {}),
        (  # gluing needs a raw part, and cutting leaves none
            f"{CUT} (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))",
            "(and (cut a) (cut b) (glued a))",
            {"(cut a)": ["(glued a)"]},
        ),
        (  # the same, through what gluing has to be prepared with
            f"""{CUT} (:action take :parameters () :precondition (forall (?x - part) (raw ?x)) :effect (free))
            (:action clean :parameters (?x - part) :precondition (raw ?x) :effect (shown))
            (:action glue :parameters (?x - part) :precondition (shown) :effect (glued ?x))""",
            "(and (cut a) (glued b))",
            {},  # which part is cleaned is open, so cutting one of them rules nothing out
        ),
        (  # another way to glue needs no raw part
            f"""{CUT} (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))
            (:action melt :parameters (?x - part) :precondition (free) :effect (glued ?x))""",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # another way to cut leaves it raw
            f"""{CUT} (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))
            (:action nick :parameters (?x - part) :precondition (free) :effect (cut ?x))""",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # a conditional effect takes place or not: it may achieve, and rules nothing out
            """(:action cut :parameters (?x - part) :precondition (raw ?x)
              :effect (and (when (free) (cut ?x)) (when (free) (not (raw ?x)))))
            (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))""",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # what cuts every part cuts a, and gluing uses up what that needs
            """(:action cut-all :parameters () :precondition (free) :effect (forall (?x - part) (cut ?x)))
            (:action glue :parameters (?x - part) :precondition (free) :effect (and (glued ?x) (not (free))))""",
            "(and (cut a) (glued a))",
            {"(glued a)": ["(cut a)"]},
        ),
        (  # which part has to be raw is open: the one that is quantified is another
            """(:action cut-all :parameters (?x - part) :precondition (raw ?x) :effect (forall (?x - part) (cut ?x)))
            (:action glue :parameters (?x - part) :precondition (free) :effect (and (glued ?x) (not (raw ?x))))""",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # both use up what the other needs
            """(:action cut :parameters (?x - part) :precondition (free) :effect (and (cut ?x) (not (free))))
            (:action glue :parameters (?x - part) :precondition (free) :effect (and (glued ?x) (not (free))))""",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # a negative goal, and a negative precondition
            """(:action sell :parameters (?x - part) :precondition (raw ?x) :effect (not (raw ?x)))
            (:action glue :parameters (?x - part) :precondition (not (free)) :effect (glued ?x))
            (:action show :parameters () :precondition (shown) :effect (free))
            (:action cut :parameters (?x - part) :precondition (raw ?x) :effect (cut ?x))""",
            "(and (not (raw a)) (free) (glued b) (cut a))",
            {"(not (raw a))": ["(cut a)"], "(free)": ["(glued b)"]},
        ),
        (  # to cut takes a raw part and leaves none, but once a is cut nothing has to be prepared for gluing
            f"{CUT} (:action glue :parameters (?x - part) :precondition (cut ?x) :effect (glued ?x))",
            "(and (cut a) (glued a))",
            {},
        ),
        (  # an action for tools cuts no part
            f"""{CUT} (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))
            (:action snap :parameters (?x - tool) :precondition (free) :effect (glued ?x))""",
            "(and (cut a) (glued a) (or (free) (shown)))",
            {"(cut a)": ["(glued a)"]},
        ),
    ],
    ids=["unrelated", "used up", "open which", "another way", "another outcome", "conditional", "universal", "shadowed",
         "mutual", "negative", "prepared by it", "types"],
)  # fmt: skip
def test_reasonable_orders_of_a_workshop(actions: str, goal: str, expected: dict[str, list[str]]) -> None:
    assert orders(task_of(actions, goal)) == expected


def test_reasonable_orders_do_not_depend_on_the_order_of_the_goal() -> None:
    goals = ["(on a b)", "(on b c)", "(on c d)"]
    for seed in range(6):
        random.Random(seed).shuffle(goals)
        task = blocks_task(TABLE, " ".join(goals), "a b c d")
        assert orders(task) == {"(on a b)": ["(on b c)"], "(on b c)": ["(on c d)"]}


TOWERS = "(on c d) (on d a) (ontable a) (clear c) (ontable e) (clear e) (ontable f) (clear f) (handempty)"


@pytest.mark.parametrize(
    ("init", "goal", "expected"),
    [
        (TOWERS, "(on a f) (on e c)", {"(on e c)": ["(clear d)"]}),  # c is on d, which is on a, which has to be moved
        (TOWERS, "(on a f) (on c e)", {}),  # to move c is what both take
        (TOWERS, "(on f d) (on e c)", {"(on e c)": ["(clear d)"]}),
        (TOWERS, "(on a f) (on c d)", {"(on c d)": ["(clear a)"]}),  # it holds, and will have to be undone
        (TOWERS, "(on e f) (on f c)", {"(on e f)": ["(on f c)"]}),  # nothing has to be moved from under c
        (TOWERS, "(on a e) (on e c)", {"(on a e)": ["(on e c)"], "(on e c)": ["(clear d)"]}),
    ],
    ids=["below", "both", "beside", "undone", "nothing", "anomaly"],
)
def test_orders_of_a_state_have_a_goal_wait_for_what_must_come_from_under_it(
    init: str, goal: str, expected: dict[str, list[str]]
) -> None:
    assert orders_now(blocks_task(init, goal, "a b c d e f")) == expected


def test_orders_of_sussmans_anomaly_have_each_goal_wait_for_a_part_of_the_other() -> None:
    assert orders_now(sussman()) == {"(on a b)": ["(on b c)"], "(on b c)": ["(clear a)"]}


def test_orders_of_a_state_two_goals_that_use_up_what_both_need_are_left_alone() -> None:
    actions = """(:action cut :parameters (?x - part) :precondition (free) :effect (and (cut ?x) (not (free))))
      (:action glue :parameters (?x - part) :precondition (free) :effect (and (glued ?x) (not (free))))"""
    assert orders_now(task_of(actions, "(and (cut a) (glued a))")) == {}


def test_orders_of_a_state_with_derived_predicates_are_those_between_goals() -> None:
    derived = "(:derived (shown) (free))"
    actions = f"{CUT} {derived} (:action glue :parameters (?x - part) :precondition (raw ?x) :effect (glued ?x))"
    task = task_of(actions, "(and (cut a) (glued a))", "(free) (raw a)")
    assert orders_now(task) == {"(cut a)": ["(glued a)"]}

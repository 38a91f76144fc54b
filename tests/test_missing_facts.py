"""Goals out of reach, and the initial facts that are lacking."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from plansmith.config.planner import PlannerConfig
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.missing_facts import OutOfReach, out_of_reach
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import PlannerStatus
from plansmith.planners.fast_downward import FastDownward
from plansmith.problems.library import load_domain

ROADS = parse_domain(
    """(define (domain roads)
      (:types truck place)
      (:predicates (road ?a ?b - place) (at ?t - truck ?p - place) (open ?p - place) (seen ?p - place))
      (:action drive :parameters (?t - truck ?a ?b - place)
        :precondition (and (road ?a ?b) (at ?t ?a) (open ?b))
        :effect (and (at ?t ?b) (not (at ?t ?a)) (seen ?b)))
      (:action unlock :parameters (?t - truck ?p - place)
        :precondition (at ?t ?p) :effect (forall (?q - place) (when (road ?p ?q) (open ?q)))))"""
)


def roads(init: str, goal: str) -> Problem:
    return parse_problem(
        f"(define (problem p) (:domain roads) (:objects t - truck a b c - place) (:init {init}) (:goal (and {goal})))",
        ROADS,
    )


@pytest.mark.parametrize(
    ("init", "goal", "lost", "missing"),
    [
        ("(at t a) (road a b) (road b c)", "(seen c)", [], []),
        ("(at t a) (road a b)", "(seen b) (seen c)", ["(seen c)"], ["(road a c)"]),
        ("(road a b) (road b c)", "(seen c)", ["(seen c)"], ["(at t b)"]),
        ("(at t c) (road a b)", "(road b a)", ["(road b a)"], ["(road b a)"]),
        ("(at t a)", "(not (at t a)) (seen b)", ["(seen b)"], ["(road a b)"]),
    ],
    ids=["nothing lacks", "a road", "a place", "a static goal", "a negative goal beside it"],
)
def test_out_of_reach_names_the_goals_and_the_cheapest_facts(
    init: str, goal: str, lost: list[str], missing: list[str]
) -> None:
    found = out_of_reach(PlanningTask(ROADS, roads(init, goal)))
    assert found is not None
    assert ([str(item) for item in found.goals], [str(item) for item in found.missing]) == (lost, missing)


def test_out_of_reach_of_an_untyped_task_that_is_too_large_with_its_kinds_leaves_the_kinds_alone() -> None:
    domain = load_domain("zenotravel")
    problem = domain.sample("L1", random.Random(1))
    lacking = replace(problem, init=tuple(atom for atom in problem.init if atom.predicate != "at"))
    found = out_of_reach(PlanningTask(domain.domain, lacking))
    assert found is not None and found.goals
    assert {atom.predicate for atom in found.missing} <= {"at", "in"}


def test_out_of_reach_of_such_a_task_whose_goal_is_a_kind_names_the_goal() -> None:
    domain = load_domain("zenotravel")
    problem = domain.sample("L1", random.Random(1))
    plane = next(atom.arguments[0] for atom in problem.init if atom.predicate == "aircraft")
    goal = parse_problem(print_problem(problem).replace("(:goal (and", f"(:goal (and (city {plane})"), domain.domain)
    found = out_of_reach(PlanningTask(domain.domain, goal))
    assert found is not None
    assert [str(atom) for atom in found.missing] == [str(goal) for goal in found.goals] == [f"(city {plane})"]


def test_diagnose_with_reachability_warns_of_each_goal_and_says_what_would_mend_it() -> None:
    text = print_problem(roads("(at t a) (road a b)", "(seen b) (seen c)"))
    assert diagnose(print_domain(ROADS), text) == ()
    (warning,) = diagnose(print_domain(ROADS), text, has_reachability=True)
    assert (str(warning.code), warning.is_error) == ("unreachable-goal", False)
    assert warning.message.startswith("(seen c) is out of reach")
    assert "(road a c)" in (warning.repair or "")


def perturbed(names: tuple[str, ...], n: int) -> Iterator[tuple[Domain, Problem]]:
    """Yield problems that lack three of their facts."""
    for name in names:
        domain, rng = load_domain(name), random.Random(7)
        for _ in range(n):
            problem = domain.sample(domain.levels[0], rng)
            left_out = set(rng.sample(problem.init, 3))
            yield domain.domain, replace(problem, init=tuple(x for x in problem.init if x not in left_out))


@pytest.mark.parametrize("n", [4, pytest.param(400, marks=pytest.mark.long)])
def test_out_of_reach_problems_are_proved_unsolvable_and_the_named_facts_are_enough_and_none_too_many(n: int) -> None:
    n_found = 0
    with FastDownward(PlannerConfig()) as planner:
        for domain, problem in perturbed(("ferry", "rovers", "tpp", "blocksworld", "openstacks"), n):
            found = out_of_reach(PlanningTask(domain, problem))
            assert found is not None
            if found.goals:
                n_found += 1
                result = planner.solve(print_domain(domain), print_problem(problem))
                assert result.status is PlannerStatus.UNSOLVABLE
                check_missing(domain, problem, found)
    assert n_found > 2.5 * n


def check_missing(domain: Domain, problem: Problem, found: OutOfReach) -> None:
    """Check that the missing facts are enough, and that none of them can be left out."""
    for left_out in (None, *found.missing):
        added = tuple(atom for atom in found.missing if atom != left_out)
        mended = out_of_reach(PlanningTask(domain, replace(problem, init=(*problem.init, *added))))
        assert mended is not None and bool(mended.goals) == (left_out is not None)

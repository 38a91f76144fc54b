"""Applicable actions by joins against brute force, walks, successors, goals still missing."""

from __future__ import annotations

import random
from itertools import pairwise

from conftest import atoms, depot_task, sussman
from hypothesis import given
from hypothesis import strategies as st

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.simulation import applicable_actions, successors

LITERALS = ["(p ?x)", "(q ?x ?y)", "(q ?y ?x)", "(q ?x ?x)", "(q ?y k)", "(not (p ?y))", "(not (q ?x ?z))", "(= ?x ?y)"]
LITERALS += ["(not (= ?y ?z))", "(s ?x ?z)", "(d ?x)", "(not (d ?z))", "(or (p ?x) (q ?y ?z))"]
LITERALS += ["(forall (?w - t) (imply (q ?x ?w) (p ?w)))", "(exists (?x - u) (p ?x))"]
EFFECTS = ["(p ?x)", "(not (p ?y))", "(q ?x ?z)", "(not (q ?y ?x))", "(when (p ?y) (not (p ?x)))"]
EFFECTS += ["(forall (?w - u) (when (q ?x ?w) (p ?w)))"]


def random_task(rng: random.Random) -> PlanningTask:
    """Return a small random task with typed objects, static, fluent and derived predicates."""
    actions = []
    for number in range(3):
        types = [rng.choice(["t", "u", "(either u v)", "object"]) for _ in range(3)]
        parameters = " ".join(f"?{name} - {kind}" for name, kind in zip("xyz", types, strict=True))
        precondition = " ".join(rng.sample(LITERALS, rng.randrange(5)))
        effect = " ".join(rng.sample(EFFECTS, rng.randrange(1, 3)))
        actions.append(
            f"(:action a{number} :parameters ({parameters}) :precondition (and {precondition}) :effect (and {effect}))"
        )
    names = ["k", "o1", "o2", "o3", "o4"]
    pairs = [f"({predicate} {a} {b})" for predicate in "qs" for a in names for b in names if rng.random() < 0.4]
    init = " ".join([*(f"(p {name})" for name in names if rng.random() < 0.6), *pairs])
    domain = f"""(define (domain d) (:types u v - t) (:constants k - t)
      (:predicates (p ?x) (q ?x ?y) (s ?x ?y) (d ?x))
      (:derived (d ?x) (exists (?y) (and (q ?x ?y) (or (p ?y) (d ?y))))) {" ".join(actions)})"""
    problem = f"""(define (problem p) (:domain d) (:objects o1 - t o2 - u o3 - v o4 - (either u v)) (:init {init})
      (:goal (and (p k) (not (p o1)))))"""
    return PlanningTask.from_text(domain, problem)


def by_brute_force(task: PlanningTask, state: int) -> list[GroundAction]:
    """Return the applicable actions among all ground actions."""
    return [action for action in task.ground_actions() if action.is_applicable(state)]


@given(st.integers(0, 10**6))
def test_applicable_actions_are_those_found_by_brute_force_in_the_same_order(seed: int) -> None:
    rng = random.Random(seed)
    task = random_task(rng)
    state = task.initial_state
    for _ in range(4):
        found = applicable_actions(task, state)
        assert list(found) == by_brute_force(task, state)
        if not found:
            break
        state = rng.choice(found).apply(state)


def test_applicable_actions_with_types_are_those_found_by_brute_force() -> None:
    task = depot_task()
    assert list(applicable_actions(task, task.initial_state)) == by_brute_force(task, task.initial_state)


def test_applicable_actions_of_a_claimed_state_with_an_ill_typed_atom_ignore_it() -> None:
    task = depot_task()
    state = task.state_of(atoms("(at k1 l1) (at t1 l1)"))  # a parcel is no vehicle
    assert {step.split()[1] for action in applicable_actions(task, state) if (step := str(action.step))[1] == "m"} == {
        "t1"
    }


LINE = """(define (domain line) (:types node car)
  (:predicates (road ?a ?b - node) (at ?c - car ?n - node) (free ?n - node))
  (:action drive :parameters (?c ?d - car ?from ?via ?to - node)
    :precondition (and (free ?to) (road ?from ?via) (road ?via ?to) (at ?c ?from) (at ?d ?via) (not (= ?c ?d)))
    :effect (and (at ?c ?to) (not (at ?c ?from)))))"""


def test_applicable_actions_with_many_objects_and_parameters_are_found_fast() -> None:
    nodes = [f"n{number}" for number in range(120)]
    roads = " ".join(f"(road {a} {b})" for a, b in pairwise(nodes))
    cars = " ".join(f"(at c{number} n{2 * number}) (at d{number} n{2 * number + 1})" for number in range(50))
    names = " ".join(f"c{number} d{number}" for number in range(50))
    task = PlanningTask.from_text(
        LINE,
        f"(define (problem p) (:domain line) (:objects {' '.join(nodes)} - node {names} - car)"
        f" (:init {roads} {cars} (free n2) (free n100)) (:goal (at c0 n2)))",
    )
    found = applicable_actions(task, task.initial_state)  # of a product of 1.7e10: going through it would never end
    # to n2 goes who stands at n0 with someone at n1; to n100 who stands at n98 with someone at n99
    assert [str(action.step) for action in found] == ["(drive c0 d0 n0 n1 n2)", "(drive c49 d49 n98 n99 n100)"]


def test_successors_pair_each_applicable_action_with_its_state() -> None:
    task = sussman()
    found = successors(task, task.initial_state)
    assert [str(action.step) for action, _ in found] == ["(pick-up b)", "(unstack c a)"]
    assert [state == action.apply(task.initial_state) for action, state in found] == [True, True]

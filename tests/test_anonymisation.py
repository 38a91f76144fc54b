"""Names replaced by symbols: the structure and every verdict stay, and nothing of the old names is left."""

from __future__ import annotations

import random
import re

import pytest
from conftest import BLOCKS, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, SUSSMAN_PLAN, blocks_problems, random_walk, sussman
from hypothesis import given
from hypothesis import strategies as st

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import applicable_actions
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.problems.library import domain_names, load_domain
from plansmith.text.anonymisation import AnonymisedTuple, anonymise

ADL = parse_domain("""(define (domain lamps)
  (:requirements :adl :action-costs :derived-predicates)
  (:types lamp switch - object)
  (:constants main - switch)
  (:predicates (wired ?l - lamp ?s - switch) (lit ?l - lamp) (broken ?l - lamp) (dark))
  (:functions (price ?s - switch) (total-cost) - number)
  (:derived (dark) (forall (?l - lamp) (not (lit ?l))))
  (:action press
    :parameters (?s - switch)
    :precondition (and (or (dark) (not (= ?s main))) (exists (?s - lamp) (imply (broken ?s) (lit ?s))))
    :effect (and (forall (?l - lamp) (when (and (wired ?l ?s) (not (broken ?l))) (lit ?l)))
      (increase (total-cost) (price ?s)))))""")

ADL_PROBLEM = parse_problem("""(define (problem room) (:domain lamps)
  (:objects l1 l2 - lamp lit - switch)
  (:init (wired l1 main) (wired l2 lit) (= (price main) 2) (= (price lit) 3) (= (total-cost) 0))
  (:goal (and (lit l1) (lit l2))) (:metric minimize (total-cost)))""", ADL)  # fmt: skip


def words_of(text: str) -> set[str]:
    """Return the words of a PDDL text."""
    return set(re.findall(r"[^\s()]+", text))


def verdicts_of(named: AnonymisedTuple) -> tuple[Verdict, int | None, float | None]:
    """Return what the validator says of the plan of a tuple, read again from its text."""
    domain = parse_domain(print_domain(named.domain))
    problem = parse_problem(print_problem(named.problem), domain)
    assert (domain, problem) == (named.domain, named.problem)
    verdict = validate_plan(PlanningTask(domain, problem), named.plan)
    return verdict.verdict, verdict.failed_step, verdict.cost


@given(blocks_problems(2, 4), st.integers(0, 10**6), st.integers(0, 8))
def test_anonymise_keeps_the_verdict_of_any_plan_and_gives_the_plan_back(problem, seed: int, length: int) -> None:
    rng = random.Random(seed)
    task = PlanningTask(BLOCKS, problem)
    plan = [*random_walk(task, length, rng), *rng.choices([PlanStep("fly", ("a",)), *SUSSMAN_PLAN], k=1)]
    named = anonymise(BLOCKS, problem, plan, rng)
    original = validate_plan(task, plan)
    assert verdicts_of(named) == (original.verdict, original.failed_step, original.cost)
    assert named.names.restore_plan(named.plan) == tuple(plan)


@pytest.mark.parametrize("name", domain_names())
def test_anonymise_every_domain_leaves_no_name_and_valid_texts(name: str) -> None:
    loaded = load_domain(name)
    problem = loaded.sample(loaded.levels[0], random.Random(1))
    task = PlanningTask(loaded.domain, problem)
    plan = [action.step for action in applicable_actions(task, task.initial_state)[:1]] * 2
    named = anonymise(loaded.domain, problem, plan, random.Random(3))
    original = validate_plan(task, plan)
    assert verdicts_of(named) == (original.verdict, original.failed_step, original.cost)
    allowed = r"[apotf]_\d+|[di]_0|\?x\d+|:[a-z-]+|object|total-cost|total-time|=|-|number|either|\d+(\.\d+)?|define" \
              r"|domain|problem|and|or|not|imply|exists|forall|when|increase|minimize"  # fmt: skip
    text = print_domain(named.domain) + print_problem(named.problem)
    assert {word for word in words_of(text) if not re.fullmatch(allowed, word)} == set()


def test_anonymise_with_every_construct_is_worked_out() -> None:
    named = anonymise(ADL, ADL_PROBLEM, parse_plan("(press main) (press lit)"), random.Random(0))
    names = named.names
    press, price, lamp = names.actions["press"], names.functions["price"], names.types["lamp"]
    wired, lit, broken, dark = (names.predicates[name] for name in ("wired", "lit", "broken", "dark"))
    assert print_domain(named.domain).splitlines()[-4:] == [
        f"  (:action {press}",
        f"    :parameters (?x0 - {names.types['switch']})",
        f"    :precondition (and (or ({dark}) (not (= ?x0 {names.objects['main']}))) "
        f"(exists (?x1 - {lamp}) (imply ({broken} ?x1) ({lit} ?x1))))",
        f"    :effect (and (forall (?x2 - {lamp}) (and (when (and ({wired} ?x2 ?x0) (not ({broken} ?x2))) "
        f"(and ({lit} ?x2))))) (increase (total-cost) ({price} ?x0)))))",
    ]  # fmt: skip
    assert named.problem.metric == "total-cost"
    assert names.objects["lit"] != names.predicates["lit"]
    assert verdicts_of(named) == (Verdict.VALID, None, 5)


def test_anonymise_types_constants_and_either_stay_in_place() -> None:
    domain = parse_domain(DEPOT_TEXT)
    problem = parse_problem(DEPOT_PROBLEM_TEXT, domain)
    named = anonymise(domain, problem, (), random.Random(5))
    types = named.names.types
    assert sorted(types.values()) == ["object", *(f"t_{i}" for i in range(len(domain.types)))]
    assert {t.name: t.types for t in named.domain.types}[types["parcel"]] == (types["movable"], types["thing"])
    assert named.domain.constants[0].types == (types["place"],)
    assert [len(typed.types) for typed in named.problem.objects] == [len(typed.types) for typed in problem.objects]


def test_anonymise_draws_anew_for_each_tuple_and_again_for_equal_seeds() -> None:
    task = sussman()
    first, again, other = (anonymise(BLOCKS, task.problem, SUSSMAN_PLAN, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first.names.actions != other.names.actions
    assert sorted(first.names.actions.values()) == sorted(other.names.actions.values()) == ["a_0", "a_1", "a_2", "a_3"]
    assert sorted(first.names.objects.values()) == ["o_0", "o_1", "o_2"]


def test_restore_plan_never_turns_an_unknown_name_into_a_known_one() -> None:
    task = sussman()
    names = anonymise(BLOCKS, task.problem, SUSSMAN_PLAN, random.Random(1)).names
    stack = names.actions["stack"]
    plan = (PlanStep("stack", ("a", names.objects["b"])), PlanStep(stack, ("o_9", "o_0")))
    restored = names.restore_plan(plan)
    assert restored[0] == PlanStep("unknown_stack", ("unknown_a", "b"))
    assert restored[1].name == "stack" and restored[1].arguments[0] == "unknown_o_9"
    assert validate_plan(task, restored).verdict is Verdict.MALFORMED_PLAN


def test_rename_plan_is_the_inverse_of_restore_plan_and_refuses_other_names() -> None:
    names = anonymise(BLOCKS, sussman().problem, (), random.Random(1)).names
    assert names.restore_plan(names.rename_plan(SUSSMAN_PLAN)) == SUSSMAN_PLAN
    with pytest.raises(KeyError, match="fly"):
        names.rename_plan((PlanStep("fly"),))

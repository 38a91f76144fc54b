"""Ground conditions, ground actions, derived atoms, and what a task remembers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise, product

import pytest
from conftest import BLOCKS_TEXT, SUSSMAN_PLAN, atoms, blocks_task, depot_task, print_plan, sussman
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import BadInputError
from plansmith.pddl import grounding
from plansmith.pddl.conditions import FALSE, TRUE, AllOf, AnyOf, ExpansionBudget, all_of, any_of
from plansmith.pddl.derived import DerivedRules
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    Implication,
    Literal,
    Negation,
    Quantification,
    TypedName,
)
from plansmith.pddl.parser import parse_plan, parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import Verdict, validate_plan, validate_plan_text

P, Q, R = AllOf(required=1), AllOf(required=2), AllOf(required=4)
NOT_P = AllOf(forbidden=1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (all_of([]), TRUE),
        (any_of([]), FALSE),
        (all_of([P, Q, NOT_P]), FALSE),
        (any_of([P, NOT_P]), TRUE),
        (all_of([P, TRUE, Q]), AllOf(required=3)),
        (all_of([P, FALSE]), FALSE),
        (any_of([P, TRUE]), TRUE),
        (any_of([P, FALSE]), P),
        (any_of([P, FALSE, Q]), AnyOf(true_atoms=3)),
        (any_of([any_of([P, Q]), R]), AnyOf(true_atoms=7)),
        (any_of([NOT_P]), NOT_P),
        (all_of([any_of([P, Q])]), AnyOf(true_atoms=3)),
        (any_of([all_of([P, Q]), R]), AnyOf(true_atoms=4, parts=(AllOf(required=3),))),
    ],
    ids=["empty and", "empty or", "p and not p", "p or not p", "true left out", "false in and", "true in or",
         "single literal", "false left out", "nested or", "negative literal", "single part", "and in or"],
)  # fmt: skip
def test_all_of_and_any_of_simplify(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize("state", range(8))
def test_holds_follows_the_truth_table(state: int) -> None:
    p, q, r = bool(state & 1), bool(state & 2), bool(state & 4)
    assert AllOf(required=1, forbidden=2).holds(state) == (p and not q)
    assert AnyOf(true_atoms=1, false_atoms=6).holds(state) == (p or not q or not r)
    assert AllOf(1, 0, (AnyOf(2, 4),)).holds(state) == (p and (q or not r))
    assert AnyOf(1, 0, (AllOf(2, 4),)).holds(state) == (p or (q and not r))


def test_all_of_stops_at_a_false_part() -> None:
    assert all_of(iter([FALSE, *[P] * 3])) == FALSE
    parts = iter([P, FALSE, Q])
    all_of(parts)
    assert next(parts) == Q


def test_expansion_budget_spent_twice_counts_together() -> None:
    budget = ExpansionBudget(10)
    budget.spend(6, "(forall (?x) (p ?x))")
    with pytest.raises(BadInputError, match="at most 10") as caught:
        budget.spend(5, "(exists (?y) (q ?y))")
    assert "11 bytes at (exists (?y) (q ?y))" in str(caught.value)


MAP = """(define (domain map) (:types city) (:predicates (road ?a ?b - city) (at ?a - city) (open ?a - city))
  (:action leave :parameters (?a - city) :precondition (and (at ?a) (exists (?b - city) (and (road ?a ?b) (open ?b))))
    :effect (not (at ?a)))
  (:action enter :parameters (?a - city) :effect (and (at ?a) (open ?a)))
  (:action stay :parameters (?a ?b - city) :precondition (and (road ?a ?b) (not (= ?a ?b))) :effect (at ?b)))"""


def map_task() -> PlanningTask:
    """Return a task whose roads never change: x to y and z, none from y."""
    return PlanningTask.from_text(
        MAP,
        "(define (problem p) (:domain map) (:objects x y z - city) (:init (road x y) (road x z) (at x) (at y))"
        " (:goal (not (at x))))",
    )


def grounded(task: PlanningTask, step: str) -> GroundAction:
    """Return the ground action of a step."""
    action = task.ground(parse_step(step))
    assert isinstance(action, GroundAction)
    return action


def test_ground_static_atoms_in_a_quantifier_are_folded_away() -> None:
    task = map_task()
    leave = grounded(task, "(leave x)")
    # of (exists ?b) only the cities y and z at the end of a road are left
    assert leave.others == (AnyOf(true_atoms=task.state_of(atoms("(open y) (open z)"))),)
    assert grounded(task, "(leave y)").others == (FALSE,) and not grounded(task, "(leave y)").is_possible


def test_ground_static_precondition_is_looked_up_in_the_state() -> None:
    task = map_task()
    stay = grounded(task, "(stay x y)")
    assert stay.is_applicable(task.initial_state)
    assert not stay.is_applicable(task.state_of(atoms("(at x)")))  # a claimed state that lost the road


def test_ground_preconditions_are_the_conjuncts_of_the_text() -> None:
    stay = grounded(map_task(), "(stay x y)")
    assert stay.preconditions == (
        Literal(Atom("road", ("x", "y"))),
        Literal(Atom("=", ("x", "y")), is_positive=False),
    )


def test_ground_actions_leave_out_those_that_can_never_be_applied() -> None:
    steps = {str(action.step) for action in map_task().ground_actions()}
    assert "(stay x x)" not in steps and "(leave y)" not in steps and {"(stay y x)", "(leave x)"} <= steps


TWICE = """
(define (domain twice) (:predicates (p ?x) (q ?x ?y))
  (:constants c)
  (:action act :parameters (?x ?y)
    :precondition (and (p ?x) (not (q ?x c)) (p ?x) (q ?y ?x))
    :effect (and (not (p ?x)) (p ?y) (q c ?x) (q c ?y) (not (q ?x ?y)) (not (p ?y)))))
"""
LAMPS = """
(define (domain lamps)
  (:requirements :strips :conditional-effects)
  (:predicates (lit ?x) (dark ?x) (wired ?x ?y))
  (:action shine :parameters (?x) :precondition (wired ?x ?x) :effect (and (lit ?x) (not (dark ?x))))
  (:action press :parameters (?x ?y)
    :precondition (wired ?x ?y)
    :effect (and (lit ?x) (when (lit ?x) (lit ?y)))))
"""
THREE_LAMPS = "(define (problem one) (:domain lamps) (:objects a b c) (:init (wired a b)) (:goal (lit b)))"
TWO_OBJECTS = "(define (problem one) (:domain twice) (:objects a b) (:init (p a) (q b a)) (:goal (p b)))"


@pytest.mark.parametrize("texts", [(BLOCKS_TEXT, print_problem(sussman().problem)), (TWICE, TWO_OBJECTS)])
def test_schemas_of_literals_alone_are_grounded_as_any_other(
    texts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Atoms that become one with their objects are told once, and get their bits in the same order."""
    quick = PlanningTask.from_text(*texts)
    found = quick.ground_actions()
    monkeypatch.setattr(grounding.PlainSchema, "is_plain", staticmethod(lambda _: False))
    general = PlanningTask.from_text(*texts)
    assert found == general.ground_actions() and len(found) > 5
    assert quick.atoms == general.atoms


@pytest.mark.parametrize(
    "texts", [(BLOCKS_TEXT, print_problem(sussman().problem)), (TWICE, TWO_OBJECTS), (LAMPS, THREE_LAMPS)],
    ids=["blocks", "some impossible", "conditional, deleted alone"],
)  # fmt: skip
def test_relaxed_actions_are_what_ground_actions_need_and_may_add(texts: tuple[str, str]) -> None:
    task, whole = (PlanningTask.from_text(*texts) for _ in range(2))
    pairs = list(task.relaxed_actions())
    actions = whole.ground_actions()
    assert task.atoms == whole.atoms
    assert len(pairs) == len(actions) > 1
    for (needed, added), action in zip(pairs, actions, strict=True):
        assert needed == action.required
        assert set(task.atoms_of(added)) == {
            *action.add_effects,
            *(a for part in action.conditional for a in part.adds),
        }


def test_ground_same_step_twice_is_one_object() -> None:
    task = sussman()
    assert task.ground(SUSSMAN_PLAN[0]) is task.ground(parse_step("(unstack c a)"))


def test_task_atoms_get_their_bits_when_they_are_named() -> None:
    task = sussman()
    n_before = len(task.atoms)
    assert n_before == len(task.problem.init)
    task.ground(parse_step("(pick-up b)"))
    assert task.atoms[n_before:] == [Atom("holding", ("b",))]


def test_objects_of_types_follows_hierarchy_and_either() -> None:
    task = depot_task()
    assert task.objects_of(("vehicle",)) == ("t1", "c1", "m")
    assert task.objects_of(("truck", "place")) == ("hub", "t1", "l1", "l2", "m")
    assert task.objects_of(("object",)) == ("hub", "t1", "c1", "l1", "l2", "k1", "m", "o1")


def test_unsatisfied_keeps_the_order_of_the_conditions() -> None:
    task = sussman()
    assert task.unsatisfied(task.goal, task.initial_state) == task.goal
    assert task.unsatisfied(task.goal, task.state_of(atoms("(on a b)"))) == task.goal[1:]


FLUENTS = """(define (domain f) (:types u v) (:predicates (p ?x) (q ?x ?y))
  (:action set :parameters (?x ?y) :effect (and (p ?x) (q ?x ?y))))"""
OBJECTS = {"a": ("object", "u"), "b": ("object", "u"), "c": ("object", "v")}


def random_condition(rng: random.Random, scope: tuple[str, ...], depth: int) -> Condition:
    """Return a random condition over the terms in scope."""
    kind = rng.randrange(7) if depth else 0
    if kind == 0:
        predicate, arity = rng.choice([("p", 1), ("q", 2), ("=", 2)])
        return Literal(Atom(predicate, tuple(rng.choice(scope) for _ in range(arity))), rng.random() < 0.5)
    if kind <= 2:
        parts = tuple(random_condition(rng, scope, depth - 1) for _ in range(rng.randrange(4)))
        return Conjunction(parts) if kind == 1 else Disjunction(parts)
    if kind == 3:
        return Negation(random_condition(rng, scope, depth - 1))
    if kind == 4:
        return Implication(random_condition(rng, scope, depth - 1), random_condition(rng, scope, depth - 1))
    parameter = TypedName(rng.choice(["?x", "?y"]), rng.choice([("u",), ("v",), ("object",), ("u", "v")]))
    return Quantification(kind == 5, (parameter,), random_condition(rng, (*scope, parameter.name), depth - 1))


def by_definition(condition: Condition, true: set[Atom], binding: Mapping[str, str]) -> bool:
    """Return whether a condition holds, straight from the definition, without grounding."""
    match condition:
        case Literal():
            atom = condition.atom.substitute(binding)
            is_true = atom.arguments[0] == atom.arguments[1] if atom.predicate == "=" else atom in true
            return is_true == condition.is_positive
        case Conjunction():
            return all(by_definition(part, true, binding) for part in condition.parts)
        case Disjunction():
            return any(by_definition(part, true, binding) for part in condition.parts)
        case Negation():
            return not by_definition(condition.part, true, binding)
        case Implication():
            return by_definition(condition.conclusion, true, binding) or not by_definition(
                condition.premise, true, binding
            )
        case Quantification():
            (parameter,) = condition.parameters
            found = [
                by_definition(condition.part, true, {**binding, parameter.name: name})
                for name, types in OBJECTS.items()
                if set(types) & set(parameter.types)
            ]
            return all(found) if condition.is_universal else any(found)


@given(st.integers(0, 10**6))
def test_holds_random_condition_is_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    task = PlanningTask.from_text(
        FLUENTS, "(define (problem p) (:domain f) (:objects a b - u c - v) (:init) (:goal (p a)))"
    )
    everything = [Atom("p", (x,)) for x in OBJECTS] + [Atom("q", pair) for pair in product(OBJECTS, repeat=2)]
    condition = random_condition(rng, ("a", "b"), 4)
    for _ in range(5):
        true = {atom for atom in everything if rng.random() < 0.5}
        assert task.holds(condition, task.state_of(true)) == by_definition(condition, true, {})


CHAIN = """(define (domain chain) (:predicates (next ?a ?b) (on) (far ?a ?b) (apart ?a ?b))
  (:derived (far ?a ?b) (or (next ?a ?b) (exists (?c) (and (next ?a ?c) (far ?c ?b)))))
  (:derived (apart ?a ?b) (not (far ?a ?b)))
  (:action cut :parameters (?a ?b) :precondition (next ?a ?b) :effect (not (next ?a ?b)))
  (:action go :parameters (?a ?b) :precondition (far ?a ?b) :effect (on)))"""


def chain_task(length: int) -> PlanningTask:
    """Return a task with a chain of `length` objects."""
    names = [f"n{number}" for number in range(length)]
    links = " ".join(f"(next {a} {b})" for a, b in pairwise(names))
    return PlanningTask.from_text(
        CHAIN, f"(define (problem p) (:domain chain) (:objects {' '.join(names)}) (:init {links}) (:goal (on)))"
    )


def test_holds_transitive_closure_of_a_long_chain_is_complete() -> None:
    task = chain_task(20)
    state = task.initial_state
    for a in range(20):
        for b in range(20):
            terms = (f"n{a}", f"n{b}")
            assert task.holds(Literal(Atom("far", terms)), state) == (a < b)
            assert task.holds(Literal(Atom("apart", terms)), state) == (a >= b)


@given(st.integers(0, 10**6))
def test_holds_transitive_closure_of_a_random_graph_is_what_walking_it_finds(seed: int) -> None:
    rng, task = random.Random(seed), chain_task(6)
    names = list(task.objects)
    pairs = list(product(names, repeat=2))
    links = [pair for pair in pairs if rng.random() < 0.25]
    state = task.state_of(Atom("next", pair) for pair in links)
    for source, target in rng.sample(pairs, 8):
        reached, waiting = set[str](), [source]
        while waiting:
            name = waiting.pop()
            found = {b for a, b in links if a == name} - reached
            reached |= found
            waiting += found
        assert task.holds(Literal(Atom("far", (source, target))), state) == (target in reached)
        assert task.holds(Literal(Atom("apart", (source, target))), state) == (target not in reached)


def test_holds_derived_atom_follows_the_state_it_is_asked_in() -> None:
    task = chain_task(6)
    go, cut = grounded(task, "(go n0 n5)"), grounded(task, "(cut n2 n3)")
    assert go.is_applicable(task.initial_state)
    assert not go.is_applicable(cut.apply(task.initial_state))
    assert go.is_applicable(task.initial_state)  # the first answer was not overwritten


def test_holds_derived_atoms_beyond_the_budget_are_refused_every_time() -> None:
    task = chain_task(6)
    task.rules = DerivedRules(task, task.domain.derived, limit_bytes=5_000)  # 6 heads with 6 instances each: 9,216
    go = grounded(task, "(go n0 n5)")
    for _ in range(2):
        with pytest.raises(BadInputError, match="too many instances"):
            go.is_applicable(task.initial_state)


def test_task_without_derived_predicates_wraps_no_condition() -> None:
    task = map_task()
    assert task.rules.mask == 0 and all(isinstance(part, AnyOf | AllOf) for part in grounded(task, "(leave x)").others)


SUSSMAN_TEXT = print_plan(SUSSMAN_PLAN)


@pytest.mark.parametrize(
    "text",
    [SUSSMAN_TEXT, SUSSMAN_TEXT.replace("\n", "\r\n"), "; a plan\n\n" + SUSSMAN_TEXT, SUSSMAN_TEXT.upper()],
    ids=["plain", "carriage returns", "comment and blank line", "upper case"],
)
def test_validate_plan_text_twice_gives_the_same_verdict_from_memory(text: str) -> None:
    task = sussman()
    assert task.ground_lines(text) is None
    first = validate_plan_text(task, text)
    assert task.ground_lines(text) is not None
    assert first == validate_plan_text(task, text) == validate_plan(task, SUSSMAN_PLAN)


@pytest.mark.parametrize(
    "text",
    ["(pick-up b)(stack b c)", "(pick-up\nb)", "(pick-up b) ; so\n", "(pick-up z)", "; x\r(pick-up b)"],
    ids=["two on a line", "step over two lines", "comment behind", "malformed", "comment ended by carriage return"],
)
def test_validate_plan_text_lines_that_are_not_one_step_are_read_every_time(text: str) -> None:
    task = sussman()
    validate_plan_text(task, text)
    assert task.ground_lines(text) is None


def test_validate_plan_text_unreadable_is_malformed_with_the_reason() -> None:
    verdict = validate_plan_text(sussman(), "(pick-up b", source="sas_plan")
    assert verdict.verdict is Verdict.MALFORMED_PLAN and "sas_plan" in verdict.reason and verdict.plan == ()


def test_validate_plan_text_empty_is_the_empty_plan() -> None:
    assert validate_plan_text(blocks_task("(on a b)", "(on a b)"), "\n").is_valid


def test_ground_malformed_step_says_why() -> None:
    assert task_reason("(stack a)") == "'stack' takes 2 arguments, got 1"


def task_reason(step: str) -> str:
    """Return why a step of Sussman's anomaly is malformed."""
    found = sussman().ground(parse_step(step))
    assert isinstance(found, MalformedStep)
    return found.reason


def test_quantifier_over_static_atoms_expands_only_what_they_allow() -> None:
    """300 nodes in a row: naively, `far` has 300 * 300 atoms with 300 * 300 instances of its rule each."""
    nodes = [f"n{number}" for number in range(300)]
    edges = " ".join(f"(edge {a} {b})" for a, b in pairwise(nodes))
    domain = """(define (domain d) (:predicates (edge ?a ?b) (far ?a ?b) (cut ?a) (done))
      (:derived (far ?a ?b) (exists (?c ?d) (and (= ?d ?b) (edge ?a ?c) (not (cut ?c)) (or (= ?c ?d) (far ?c ?d)))))
      (:action snip :parameters (?a) :effect (cut ?a))
      (:action heal :parameters (?a) :effect (forall (?b ?c) (when (and (edge ?a ?b) (edge ?b ?c)) (not (cut ?b)))))
      (:action end :parameters (?a ?b)
        :precondition (forall (?c ?d) (imply (and (edge ?a ?c) (edge ?c ?d)) (far ?d ?b)))
        :effect (done)))"""
    problem = f"(define (problem p) (:domain d) (:objects {' '.join(nodes)}) (:init {edges}) (:goal (done)))"
    task = PlanningTask.from_text(domain, problem)
    assert validate_plan(task, parse_plan("(end n0 n299)")).is_valid
    cut = validate_plan(task, parse_plan("(snip n150) (end n0 n299)"))
    assert (cut.verdict, cut.failed_step) == (Verdict.PRECONDITION_UNSATISFIED, 2)
    assert validate_plan(task, parse_plan("(snip n150) (end n150 n299)")).is_valid
    assert validate_plan(task, parse_plan("(snip n150) (heal n149) (end n0 n299)")).is_valid


def test_from_text_of_long_texts_leaves_nothing_behind() -> None:
    problem = print_problem(sussman().problem)
    remembered = grounding._read_texts.cache_info().currsize
    long = PlanningTask.from_text(BLOCKS_TEXT, f"{problem}\n;{'x' * grounding.LONGEST_REMEMBERED}")
    assert grounding._read_texts.cache_info().currsize == remembered
    assert long.goal == PlanningTask.from_text(BLOCKS_TEXT, problem).goal

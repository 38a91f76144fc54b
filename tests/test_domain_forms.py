"""The form of a domain is equal exactly for domains that differ in names and order; so is that of an action."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from conftest import BLOCKS, BLOCKS_TEXT, DEPOT_TEXT

from plansmith.pddl.domain_forms import action_form, action_forms, domain_form
from plansmith.pddl.model import (
    EQUALITY,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    Conjunction,
    CostIncrease,
    Disjunction,
    Domain,
    Effect,
    Implication,
    Literal,
    Negation,
    Problem,
    Quantification,
    TypedName,
    UniversalEffect,
    conjuncts_of,
)
from plansmith.pddl.parser import parse_domain
from plansmith.problems.library import domain_names, load_domain
from plansmith.text.anonymisation import anonymise

ADL_TEXT = """(define (domain lamps)
  (:requirements :adl :derived-predicates :action-costs)
  (:types lamp switch - thing room)
  (:constants hall - room)
  (:predicates (wired ?s - switch ?l - lamp) (on ?l - lamp) (in ?x - thing ?r - room) (broken ?l - lamp)
    (at ?r - room) (bright ?r - room) (door ?a ?b - room))
  (:functions (total-cost) (length ?a ?b - room))
  (:derived (bright ?r - room) (exists (?l - lamp) (and (in ?l ?r) (on ?l))))
  (:action go
    :parameters (?a ?b - room)
    :precondition (and (at ?a) (or (door ?a ?b) (door ?b ?a)) (imply (bright ?a) (bright ?b)) (not (= ?a ?b)))
    :effect (and (at ?b) (not (at ?a)) (increase (total-cost) (length ?a ?b))))
  (:action press
    :parameters (?s - switch ?r - room)
    :precondition (and (at ?r) (in ?s ?r) (forall (?l - lamp) (or (not (wired ?s ?l)) (not (broken ?l)))))
    :effect (and (increase (total-cost) 2)
      (forall (?l - lamp) (when (wired ?s ?l) (on ?l)))))
  (:action home :parameters () :precondition (not (at hall)) :effect (forall (?r - room) (not (at ?r)))))
"""
DOMAINS = [*(load_domain(name).domain for name in domain_names()), parse_domain(DEPOT_TEXT), parse_domain(ADL_TEXT)]
SMALL = [domain for domain in DOMAINS if len(domain.actions) <= 5]


def shuffled(items: Sequence, rng: random.Random) -> tuple:  # type: ignore[type-arg]
    return tuple(rng.sample(items, len(items)))


def in_other_words(domain: Domain, rng: random.Random) -> Domain:
    """Return a domain with everything renamed, and in another order, arguments of predicates and actions included."""
    orders = {s.name: shuffled(range(len(s.parameters)), rng) for s in (*domain.predicates, *domain.functions)}
    orders[EQUALITY] = (1, 0)

    def atom(old: Atom) -> Atom:
        return Atom(old.predicate, tuple(old.arguments[place] for place in orders[old.predicate]))

    def condition(old: Condition) -> Condition:
        match old:
            case Literal():
                return Literal(atom(old.atom), old.is_positive)
            case Conjunction() | Disjunction():
                return type(old)(shuffled([condition(part) for part in old.parts], rng))
            case Negation():
                return Negation(condition(old.part))
            case Implication():
                return Implication(condition(old.premise), condition(old.conclusion))
            case Quantification():
                return replace(old, parameters=shuffled(old.parameters, rng), part=condition(old.part))

    def effect(old: Effect) -> Effect:
        match old:
            case Literal():
                return Literal(atom(old.atom), old.is_positive)
            case ConditionalEffect():
                return ConditionalEffect(condition(old.condition), effects(old.effects))
            case UniversalEffect():
                return UniversalEffect(shuffled(old.parameters, rng), effects(old.effects))
            case CostIncrease():
                return CostIncrease(atom(old.amount)) if isinstance(old.amount, Atom) else old

    def effects(old: Sequence[Effect]) -> tuple[Effect, ...]:
        return shuffled([effect(member) for member in old], rng)

    def action(old: ActionSchema) -> ActionSchema:
        parameters = shuffled(old.parameters, rng)
        return ActionSchema(old.name, parameters, condition(old.precondition), effects(old.effects))

    reordered = Domain(
        name="other",
        requirements=(),
        types=shuffled(domain.types, rng),
        constants=shuffled(domain.constants, rng),
        predicates=shuffled([replace(s, parameters=atom(Atom(s.name, s.parameters)).arguments)  # type: ignore[arg-type]
                             for s in domain.predicates], rng),
        actions=shuffled([action(old) for old in domain.actions], rng),
        functions=shuffled([replace(s, parameters=atom(Atom(s.name, s.parameters)).arguments)  # type: ignore[arg-type]
                            for s in domain.functions], rng),
        derived=shuffled([replace(rule, condition=condition(rule.condition),
                                  parameters=atom(Atom(rule.predicate, rule.parameters)).arguments)  # type: ignore[arg-type]
                          for rule in domain.derived], rng),
    )  # fmt: skip
    return anonymise(reordered, Problem("p", "other", (), (), Conjunction()), (), rng).domain


def changed_action(domain: Domain, change: Callable[[ActionSchema], ActionSchema], rng: random.Random) -> Domain:
    """Return a domain in which one action that a change changes is changed."""
    position = rng.choice([n for n, action in enumerate(domain.actions) if change(action) != action])
    actions = list(domain.actions)
    actions[position] = change(actions[position])
    return replace(domain, actions=tuple(actions))


def without_condition(action: ActionSchema) -> ActionSchema:
    """Return an action with one condition fewer; an equality may say nothing."""
    if str(action.precondition).startswith("(= "):
        return action
    return replace(action, precondition=Conjunction(conjuncts_of(action.precondition)[1:]))


def with_condition_negated(action: ActionSchema) -> ActionSchema:
    first, *others = conjuncts_of(action.precondition) or (Conjunction(),)
    if not isinstance(first, Literal):
        return action
    return replace(action, precondition=Conjunction((Literal(first.atom, not first.is_positive), *others)))


def without_effect(action: ActionSchema) -> ActionSchema:
    return replace(action, effects=action.effects[1:])


def with_effect_negated(action: ActionSchema) -> ActionSchema:
    first, *others = action.effects or (CostIncrease(1),)
    if not isinstance(first, Literal):
        return action
    return replace(action, effects=(Literal(first.atom, not first.is_positive), *others))


def with_parameter(action: ActionSchema) -> ActionSchema:
    return replace(action, parameters=(*action.parameters, TypedName("?more")))


def with_effect_under_condition(action: ActionSchema) -> ActionSchema:
    condition = next((p for p in conjuncts_of(action.precondition) if isinstance(p, Literal)), None)
    if condition is None or condition.atom.predicate == EQUALITY or not action.effects:
        return action
    return replace(action, effects=(ConditionalEffect(condition, action.effects[:1]), *action.effects[1:]))


CHANGES = (without_condition, with_condition_negated, without_effect, with_effect_negated, with_parameter,
           with_effect_under_condition)  # fmt: skip
"""Each changes how many parts of a kind there are, so that no renaming undoes it."""


def blocks(old: str, new: str) -> Domain:
    """Return Blocksworld with one piece of its text replaced."""
    assert BLOCKS_TEXT.count(old) == 1
    return parse_domain(BLOCKS_TEXT.replace(old, new))


def lamps(old: str, new: str) -> Domain:
    """Return the domain of lamps with one piece of its text replaced."""
    assert ADL_TEXT.count(old) == 1
    return parse_domain(ADL_TEXT.replace(old, new))


def test_form_of_a_domain_in_other_words_is_equal_1000_times() -> None:
    forms = [domain_form(domain) for domain in SMALL]
    for number in range(1000):
        domain, form = SMALL[number % len(SMALL)], forms[number % len(SMALL)]
        assert domain_form(in_other_words(domain, random.Random(number))) == form, (domain.name, number)


def test_forms_of_every_domain_and_its_actions_in_other_words_are_equal() -> None:
    for number, domain in enumerate(DOMAINS):
        other = in_other_words(domain, random.Random(number))
        assert domain_form(other) == domain_form(domain), domain.name
        assert action_forms(other) == action_forms(domain), domain.name


def test_form_of_a_domain_changed_in_one_place_is_another_1000_times() -> None:
    forms = [domain_form(domain) for domain in SMALL]
    for number in range(1000):
        rng, domain, form = random.Random(number), SMALL[number % len(SMALL)], forms[number % len(SMALL)]
        possible = [change for change in CHANGES if any(change(action) != action for action in domain.actions)]
        changed = changed_action(domain, rng.choice(possible), rng)
        assert domain_form(in_other_words(changed, rng)) != form, (domain.name, number)


def test_form_of_mystery_blocksworld_is_that_of_blocksworld() -> None:
    blocksworld, mystery = (load_domain(name).domain for name in ("blocksworld", "mystery-blocksworld"))
    assert domain_form(blocksworld) == domain_form(mystery)
    assert action_forms(blocksworld) == action_forms(mystery)


def test_form_of_the_domains_of_the_library_is_shared_by_robotic_blocks_and_by_blocksworld_only() -> None:
    shared: dict[str, list[str]] = {}
    for name in domain_names():
        shared.setdefault(domain_form(load_domain(name).domain), []).append(name)
    assert [names for names in shared.values() if len(names) > 1] == [
        ["blocks-classic", "blocks-hard", "blocks-reorder", "blocks-stack", "blocks-unstack"],
        ["blocksworld", "mystery-blocksworld"],
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(when (wired ?s ?l) (on ?l))", "(when (wired ?s ?l) (when (in ?l ?r) (on ?l)))"),
        ("lamp switch - thing room", "lamp switch - thing room - thing"),
        ("(:constants hall - room)", "(:constants hall den - room)"),
        ("(exists (?l", "(forall (?l"),
        ("(or (door ?a ?b) (door ?b ?a))", "(and (door ?a ?b) (door ?b ?a))"),
        ("(or (door ?a ?b) (door ?b ?a))", "(or (door ?a ?b) (door ?b ?b))"),
        ("(imply (bright ?a) (bright ?b))", "(imply (bright ?b) (bright ?a))"),
        ("(not (= ?a ?b))", "(= ?a ?b)"),
        ("(increase (total-cost) 2)", "(increase (total-cost) 3)"),
        ("(increase (total-cost) 2)", "(increase (total-cost) 2) (increase (total-cost) 2)"),
        ("(length ?a ?b))))", "(length ?b ?b))))"),
        ("(not (at hall))", "(at hall)"),
        ("(when (wired ?s ?l) (on ?l))", "(when (broken ?l) (on ?l))"),
        ("(in ?x - thing ?r - room)", "(in ?x - object ?r - room)"),
        ("(wired ?s - switch ?l - lamp)", "(wired ?s - switch ?l - lamp) (unused)"),
    ],
    ids=["nested when", "hierarchy", "constant", "quantifier", "or", "argument", "imply", "equality", "cost",
         "cost twice", "function", "sign of a constant's atom", "when", "type of a place", "predicate more"],
)  # fmt: skip
def test_form_of_a_domain_with_adl_notices(old: str, new: str) -> None:
    assert domain_form(lamps(old, new)) != domain_form(parse_domain(ADL_TEXT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(imply (bright ?a) (bright ?b))", "(or (not (bright ?a)) (bright ?b))"),
        ("(at ?a) (or", "(and (at ?a) (at ?a)) (or"),
        ("(not (= ?a ?b))", "(not (= ?b ?a))"),
        ("(not (at hall))", "(and (not (at hall)))"),
        ("(when (wired ?s ?l) (on ?l))", "(when (and (wired ?s ?l)) (and (on ?l)))"),
        ("(exists (?l - lamp)", "(exists (?y - lamp)"),
        (":adl :derived-predicates :action-costs", ":adl :derived-predicates :action-costs :equality"),
        ("lamp switch - thing room", "lamp switch - thing thing room - object"),
    ],
    ids=["imply", "and", "equality", "one part", "when", "bound variable", "requirement", "type declared"],
)
def test_form_of_a_domain_said_otherwise_is_equal(old: str, new: str) -> None:
    if old == "(exists (?l - lamp)":
        old, new = f"{old} (and (in ?l ?r) (on ?l)))", f"{new} (and (in ?y ?r) (on ?y)))"
    assert domain_form(lamps(old, new)) == domain_form(parse_domain(ADL_TEXT))


def test_form_of_effects_under_one_condition_is_that_of_effects_under_one_each() -> None:
    pick_up = BLOCKS.actions[0]
    first, second, *others = pick_up.effects
    condition = Literal(Atom("clear", ("?x",)))
    together = replace(pick_up, effects=(ConditionalEffect(condition, (first, second)), *others))
    apart = replace(pick_up, effects=(ConditionalEffect(condition, (second,)), *others,
                                      ConditionalEffect(condition, (first,))))  # fmt: skip
    assert action_form(together) == action_form(apart) != action_form(pick_up)


def test_form_of_a_bound_variable_that_hides_a_parameter_is_that_of_another_name() -> None:
    def domain(variable: str) -> Domain:
        return parse_domain(f"""(define (domain d) (:requirements :adl) (:predicates (p ?a) (q ?a))
          (:action a :parameters (?x) :precondition (and (p ?x) (forall ({variable}) (p {variable})))
            :effect (forall ({variable}) (when (p {variable}) (q {variable})))))""")

    assert domain_form(domain("?x")) == domain_form(domain("?y"))


def test_form_of_two_names_for_two_arguments_is_not_that_of_one_name_for_both() -> None:
    stacked = blocks("(holding ?x) (clear ?y))", "(holding ?x) (clear ?x))")
    assert domain_form(stacked) != domain_form(BLOCKS)


def test_form_of_arguments_swapped_in_one_action_alone_is_another() -> None:
    assert domain_form(blocks("(on ?x ?y)))\n  (:action unstack", "(on ?y ?x)))\n  (:action unstack")) != domain_form(
        BLOCKS
    )


def test_form_of_an_action_does_not_hang_on_its_domain() -> None:
    typed = parse_domain("""(define (domain d) (:requirements :typing) (:types u - t t)
      (:predicates (q ?a - t) (p ?a - t) (h))
      (:action take :parameters (?o - u) :precondition (and (h) (p ?o) (q ?o)) :effect (and (not (h)) (p ?o))))""")
    untyped = parse_domain("""(define (domain e) (:predicates (at-hand) (x ?a) (y ?a) (z ?a))
      (:action get :parameters (?b) :precondition (and (x ?b) (y ?b) (at-hand)) :effect (and (y ?b) (not (at-hand)))))
      """)
    assert action_form(typed.actions[0]) == action_form(untyped.actions[0])


def test_form_of_an_action_tells_parameters_of_one_type_from_parameters_of_two() -> None:
    def action(types: str) -> ActionSchema:
        return parse_domain(f"""(define (domain d) (:requirements :typing) (:types t u) (:predicates (p ?a ?b))
          (:action a :parameters (?x ?y {types}) :precondition (p ?x ?y) :effect (not (p ?x ?y))))""").actions[0]

    assert action_form(action("- t")) == action_form(action("- u"))
    assert action_form(action("- t ?z - t")) != action_form(action("- t ?z - u"))

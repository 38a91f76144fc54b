"""Mistakes in written problems: those of form cannot be read, those of meaning can; each is one mistake."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conftest import BLOCKS

from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import conjuncts_of
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import load_domain
from plansmith.problems.perturbation import FORM, Perturbation, perturb

TYPED = parse_domain(
    "(define (domain roads) (:types truck place) (:predicates (at ?t - truck ?p - place) (road ?a ?b - place))"
    " (:action drive :parameters (?t - truck ?a ?b - place) :precondition (and (at ?t ?a) (road ?a ?b))"
    " :effect (and (at ?t ?b) (not (at ?t ?a)))))"
)
PROBLEM = parse_problem(
    "(define (problem p) (:domain roads) (:objects t - truck a b - place) (:init (at t a) (road a b))"
    " (:goal (and (at t b) (road a b))))",
    TYPED,
)


def drawn(perturbation: Perturbation, n: int = 60) -> set[str]:
    """Return the texts that many draws give."""
    texts = {perturb(PlanningTask(TYPED, PROBLEM), perturbation, random.Random(seed)) for seed in range(n)}
    return {text for text in texts if text is not None}


def sections(text: str) -> tuple[str, str]:
    """Return facts and goals of a text that can be read."""
    problem = parse_problem(text, TYPED)
    return " ".join(map(str, problem.init)), " ".join(map(str, conjuncts_of(problem.goal)))


FACTS, GOALS = "(at t a) (road a b)", "(at t b) (road a b)"


@pytest.mark.parametrize(
    ("perturbation", "expected"),
    [
        (Perturbation.FACT_DROPPED, {("(road a b)", GOALS), ("(at t a)", GOALS)}),
        (
            Perturbation.FACT_ADDED,
            {(f"{FACTS} {more}", GOALS) for more in ("(at t b)", "(road b b)", "(road a a)")},
        ),
        (
            Perturbation.FACT_MOVED,
            {("(at t b) (road a b)", GOALS), ("(at t a) (road b b)", GOALS), ("(at t a) (road a a)", GOALS)},
        ),
        (Perturbation.ARGUMENTS_SWAPPED, {("(at t a) (road b a)", GOALS), (FACTS, "(at t b) (road b a)")}),
        (Perturbation.OBJECT_DROPPED, {("(road a b)", "(road a b)"), ("", "(at t b)")}),  # b would leave no goal
        (Perturbation.GOAL_DROPPED, {(FACTS, "(at t b)"), (FACTS, "(road a b)")}),
        (
            Perturbation.GOAL_CHANGED,
            {(FACTS, "(at t a) (road a b)"), (FACTS, "(at t b) (road b b)"), (FACTS, "(at t b) (road a a)")},
        ),
    ],
)  # fmt: skip
def test_perturb_in_meaning_gives_every_problem_one_change_away(
    perturbation: Perturbation, expected: set[tuple[str, str]]
) -> None:
    assert {sections(text) for text in drawn(perturbation)} == expected


@pytest.mark.parametrize("perturbation", sorted(FORM))
def test_perturb_in_form_gives_a_text_that_cannot_be_read(perturbation: Perturbation) -> None:
    texts = drawn(perturbation)
    assert texts
    for text in texts:
        assert any(found.is_error for found in diagnose(print_domain(TYPED), text)), text


@pytest.mark.parametrize("name", ["logistics", "rovers", "assembly", "tpp"])
def test_perturb_of_a_domain_in_meaning_can_be_read_and_is_another_text(name: str) -> None:
    domain = load_domain(name)
    problem = domain.sample(domain.levels[0], random.Random(3))
    task, text = PlanningTask(domain.domain, problem), print_problem(problem)
    for perturbation in set(Perturbation) - FORM:
        found = [perturb(task, perturbation, random.Random(seed)) for seed in range(4)]
        for changed in filter(None, found):
            assert changed != text
            assert not any(item.is_error for item in diagnose(print_domain(domain.domain), changed))


def test_perturb_of_a_domain_without_types_has_no_wrong_type() -> None:
    problem = parse_problem(
        "(define (problem p) (:domain blocksworld) (:objects a b) (:init (clear a)) (:goal (on a b)))", BLOCKS
    )
    assert perturb(PlanningTask(BLOCKS, problem), Perturbation.WRONG_TYPE, random.Random(0)) is None


def test_perturb_of_a_problem_without_facts_drops_none() -> None:
    task = PlanningTask(TYPED, replace(PROBLEM, init=()))
    assert perturb(task, Perturbation.FACT_DROPPED, random.Random(0)) is None

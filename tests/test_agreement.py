"""How far a written problem agrees with its reference: atoms and plans, by hand."""

from __future__ import annotations

import pytest
from conftest import BLOCKS

from plansmith.judging.agreement import atom_similarity, plan_similarity, plans_agree
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_problem


def problem(init: str, goal: str) -> Problem:
    text = f"(define (problem p) (:domain blocksworld) (:objects a b) (:init {init}) (:goal (and {goal})))"
    return parse_problem(text, BLOCKS)


@pytest.mark.parametrize(
    ("init", "goal", "expected"),
    [
        ("(clear a) (ontable a) (handempty)", "(on a b)", 1.0),
        ("(handempty) (clear a) (ontable a)", "(on a b)", 1.0),
        ("(clear a) (ontable a)", "(on a b)", 3 / 4),
        ("(clear a) (ontable a) (handempty)", "(on b a)", 3 / 5),
        ("(clear a) (ontable a) (handempty) (on a b)", "(clear a)", 3 / 6),
        ("", "", 0.0),
    ],
    ids=["equal", "another order", "a fact dropped", "arguments swapped", "a goal among the facts", "nothing"],
)
def test_atom_similarity_is_shared_atoms_over_all_atoms_by_section(init: str, goal: str, expected: float) -> None:
    reference = problem("(clear a) (ontable a) (handempty)", "(on a b)")
    assert atom_similarity(problem(init, goal), reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "d c b a", 1.0),  # the same actions in any order
        ("a b c d", "a b x d", 0.75),  # one edit of four; 3 of 5 actions shared
        ("a b c d", "a b c", 0.75),
        ("a a b", "a b b", 2 / 3),  # one edit of three; 2 of 4
        ("a b", "c d", 0.0),
        ("", "a", 0.0),
        ("", "", 1.0),
    ],
)
def test_plan_similarity_is_the_greater_of_edit_and_multiset_similarity(
    first: str, second: str, expected: float
) -> None:
    assert plan_similarity(first.split(), second.split()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_more", "n_changed", "is_agreed"),
    [(0, 8, True), (0, 9, False), (2, 0, True), (3, 0, False)],
    ids=["a fifth changed", "more than a fifth", "a twentieth longer", "longer than that"],
)
def test_plans_agree_within_a_twentieth_of_the_length_and_four_fifths_of_the_actions(
    n_more: int, n_changed: int, is_agreed: bool
) -> None:
    reference = [f"(act {k})" for k in range(40)]
    changed = [f"(other {k})" for k in range(n_changed)] + reference[n_changed:] + ["(more)"] * n_more
    assert plans_agree(changed, reference) is is_agreed


def test_plans_agree_about_short_plans_one_step_apart() -> None:
    reference = list("abcde")
    assert plans_agree([*reference, "f"], reference)  # 1 edit of 6; the tolerance is at least 1
    assert not plans_agree([*reference, "f", "g"], reference)

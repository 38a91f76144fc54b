"""The canonical form is equal exactly for problems that differ in names and order only."""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from conftest import BLOCKS, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, blocks_problems
from hypothesis import given
from hypothesis import strategies as st

from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.samplers.blocksworld import Towers, blocksworld_problem, on_atoms
from plansmith.problems.renaming import random_renaming, rename_problem

DEPOT = parse_domain(DEPOT_TEXT)
DEPOT_PROBLEM = parse_problem(DEPOT_PROBLEM_TEXT, DEPOT)


@given(blocks_problems(max_blocks=7), st.randoms(use_true_random=False))
def test_canonical_form_renamed_and_shuffled_problem_has_the_same(problem: Problem, rng: random.Random) -> None:
    names = [f"n{number}" for number in range(20)]
    copy = rename_problem(problem, random_renaming(problem, names, rng), rng)
    assert copy != problem
    assert canonical_form(BLOCKS, copy) == canonical_form(BLOCKS, problem)


@given(st.randoms(use_true_random=False))
def test_canonical_form_names_exchanged_among_the_same_objects_has_the_same(rng: random.Random) -> None:
    names = [typed.name for typed in DEPOT_PROBLEM.objects]
    copy = rename_problem(DEPOT_PROBLEM, random_renaming(DEPOT_PROBLEM, names, rng), rng)
    assert canonical_form(DEPOT, copy) == canonical_form(DEPOT, DEPOT_PROBLEM)


def arrangements(blocks: str) -> list[Towers]:
    """Return every arrangement of blocks in towers, found without the sampler's recurrence."""
    found = set()
    for order in permutations(blocks):
        for cuts in product([False, True], repeat=len(blocks) - 1):
            towers: list[list[str]] = [[order[0]]]
            for block, is_cut in zip(order[1:], cuts, strict=True):
                towers.append([block]) if is_cut else towers[-1].append(block)
            found.add(tuple(sorted(tuple(tower) for tower in towers)))
    return sorted(found)


def least_renaming(init: Towers, goal: Towers, blocks: str) -> tuple[object, ...]:
    """Return the least text of a pair of arrangements over all names, the brute-force canonical form."""
    texts = []
    for order in permutations(blocks):
        name = dict(zip(blocks, order, strict=True))
        sides = [sorted((name[a.arguments[0]], name[a.arguments[1]]) for a in on_atoms(side)) for side in (init, goal)]
        texts.append(tuple(map(tuple, sides)))
    return min(texts)


@pytest.mark.parametrize(("blocks", "n_arrangements"), [("ab", 3), ("abc", 13)], ids=["2 blocks", "3 blocks"])
def test_canonical_form_all_small_problems_fall_into_the_brute_force_classes(blocks: str, n_arrangements: int) -> None:
    states = arrangements(blocks)
    assert len(states) == n_arrangements
    form_of_class: dict[tuple[object, ...], set[str]] = {}
    for init, goal in product(states, states):
        problem = blocksworld_problem(blocks, init, on_atoms(goal), random.Random(0))
        form_of_class.setdefault(least_renaming(init, goal, blocks), set()).add(canonical_form(BLOCKS, problem))
    assert all(len(forms) == 1 for forms in form_of_class.values())
    assert len(set().union(*form_of_class.values())) == len(form_of_class) > n_arrangements


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("t1 - truck c1 - car", "t1 - car c1 - car"),
        ("k1 - parcel", "k1 - (either parcel movable)"),
        ("(at c1 hub)", "(at c1 l1)"),
        ("(closed l2)", "(closed hub)"),
        ("(closed l2))\n", "(closed l2) (closed l1))\n"),
        ("(not (closed l2))", "(closed l2)"),
        ("(at t1 hub) (not", "(at c1 hub) (not"),
        (" o1)", " o1 o2)"),
    ],
    ids=["type", "either", "constant", "constant for object", "more init", "sign", "goal", "one more object"],
)
def test_canonical_form_of_another_problem_differs(before: str, after: str) -> None:
    text = DEPOT_PROBLEM_TEXT.replace(before, after)
    assert text != DEPOT_PROBLEM_TEXT
    assert canonical_form(DEPOT, parse_problem(text, DEPOT)) != canonical_form(DEPOT, DEPOT_PROBLEM)


def test_canonical_form_of_the_same_problem_in_another_domain_differs() -> None:
    other = parse_domain(DEPOT_TEXT.replace("(not (closed ?to))", ""))
    assert canonical_form(other, DEPOT_PROBLEM) != canonical_form(DEPOT, DEPOT_PROBLEM)


def test_canonical_form_needs_more_than_counting_neighbours() -> None:
    """One ring of six and two rings of three look alike to every object; only the search tells them apart."""
    domain = parse_domain("(define (domain d) (:predicates (to ?x ?y)))")

    def rings(*sizes: int) -> Problem:
        facts, first = [], 0
        for size in sizes:
            facts += [f"(to n{first + i} n{first + (i + 1) % size})" for i in range(size)]
            first += size
        objects = " ".join(f"n{number}" for number in range(first))
        text = f"(define (problem p) (:domain d) (:objects {objects}) (:init {' '.join(facts)}) (:goal (and)))"
        return parse_problem(text, domain)

    assert canonical_form(domain, rings(6)) != canonical_form(domain, rings(3, 3))
    assert canonical_form(domain, rings(2, 4)) == canonical_form(domain, rings(4, 2))


def test_canonical_form_place_of_an_argument_matters() -> None:
    up = blocksworld_problem("ab", (("a",), ("b",)), on_atoms((("a", "b"),)), random.Random(0))
    tower_kept = blocksworld_problem("ab", (("b", "a"),), on_atoms((("b", "a"),)), random.Random(0))
    tower_turned = blocksworld_problem("ab", (("b", "a"),), on_atoms((("a", "b"),)), random.Random(0))
    assert len({canonical_form(BLOCKS, problem) for problem in (up, tower_kept, tower_turned)}) == 3


def test_canonical_form_many_identical_objects_is_found() -> None:
    """Eight blocks on the table are 40,320 renamings and 20 are 10^18: objects that can be swapped are tried once."""
    for n_blocks in (8, 20):
        blocks = [f"b{number}" for number in range(n_blocks)]
        towers = tuple((block,) for block in blocks)
        forms = {
            canonical_form(BLOCKS, blocksworld_problem(blocks, towers, on_atoms(((first, second),)), random.Random(0)))
            for first, second in (("b0", "b1"), ("b7", "b3"))
        }
        assert len(forms) == 1

"""The split is honest: a problem's set follows from its canonical form, whatever its names and order."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from conftest import BLOCKS, NAMES, blocks_problems, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from plansmith.data.drawing import SplitShares, choose_problems, draw_problems, problem_row, split_of_form
from plansmith.data.rows import Split
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.renaming import random_renaming, rename_problem

SHARES = SplitShares(test=0.3, phase2=0.4, seed=5)
ALL = dict.fromkeys(Split, 10000)


def renamed(problem: Problem, rng: random.Random) -> Problem:
    """Return the problem under other names, in another order."""
    return rename_problem(problem, random_renaming(problem, NAMES, rng), rng)


@settings(max_examples=25)
@given(
    st.lists(blocks_problems(max_blocks=4), min_size=5, max_size=20),
    st.randoms(use_true_random=False),
    st.integers(0, 1000),
)
def test_choose_problems_renamed_copies_of_training_problems_never_enter_the_test_set(
    problems: list[Problem], rng: random.Random, seed: int
) -> None:
    copies = [renamed(problem, rng) for problem in problems for _ in range(3)]
    shares = SplitShares(test=0.4, phase2=0.5, seed=seed)
    chosen = choose_problems(draw_problems(BLOCKS, [*problems, *copies]), shares, ALL)
    forms = {split: {canonical_form(BLOCKS, item.problem) for item in chosen[split]} for split in Split}
    assert sum(map(len, forms.values())) == len(set().union(*forms.values()))
    for split in (Split.PHASE1, Split.PHASE2):
        assert len(chosen[split]) == len(forms[split])  # one problem a form
        for item in chosen[split]:
            assert split_of_form(canonical_form(BLOCKS, renamed(item.problem, rng)), shares) is split


def test_choose_problems_every_set_has_each_form_once() -> None:
    drawn = draw_problems(BLOCKS, [random_problem(3, seed) for seed in range(600)])
    chosen = choose_problems(drawn, SHARES, ALL)
    assert len(drawn) > 100 and len(chosen[Split.TEST]) > 5
    counts = Counter(item.form for items in chosen.values() for item in items)
    assert len(counts) == 22 and set(counts.values()) == {1}  # all forms of three blocks


def test_choose_problems_split_of_a_form_does_not_depend_on_order_or_number_drawn() -> None:
    problems = [random_problem(4, seed) for seed in range(120)]
    by_split = []
    for order in (problems, problems[::-1], problems[:40]):
        chosen = choose_problems(draw_problems(BLOCKS, order), SHARES, ALL)
        by_split.append({item.form: split for split in Split for item in chosen[split]})
    assert by_split[0] == by_split[1]
    assert by_split[2].items() <= by_split[0].items() and len(by_split[2]) > 20


def test_choose_problems_gives_at_most_what_is_wanted() -> None:
    drawn = draw_problems(BLOCKS, [random_problem(4, seed) for seed in range(100)])
    chosen = choose_problems(drawn, SHARES, {Split.PHASE1: 7, Split.PHASE2: 0, Split.TEST: 3})
    assert [len(chosen[split]) for split in (Split.PHASE1, Split.PHASE2, Split.TEST)] == [7, 0, 3]
    assert choose_problems([], SHARES, ALL) == {split: [] for split in Split}


@pytest.mark.parametrize(
    ("test", "phase2", "expected"),
    [(0.0, 0.0, {Split.PHASE1}), (0.0, 1.0, {Split.PHASE2}), (1.0, 0.5, {Split.TEST})],
    ids=["all phase 1", "all phase 2", "all test"],
)
def test_split_of_form_extreme_shares_leave_one_set(test: float, phase2: float, expected: set[Split]) -> None:
    shares = SplitShares(test=test, phase2=phase2, seed=1)
    assert {split_of_form(str(number), shares) for number in range(200)} == expected


def test_split_of_form_shares_are_kept_and_depend_on_the_seed() -> None:
    forms = [str(number) for number in range(4000)]
    counts = Counter(split_of_form(form, SHARES) for form in forms)
    assert abs(counts[Split.TEST] / 4000 - 0.3) < 0.03
    assert abs(counts[Split.PHASE2] / 4000 - 0.7 * 0.4) < 0.03
    other = SplitShares(test=0.3, phase2=0.4, seed=6)
    assert [split_of_form(form, other) for form in forms] != [split_of_form(form, SHARES) for form in forms]


def test_draw_problems_same_text_counts_once() -> None:
    problem = random_problem(3, 1)
    assert len(draw_problems(BLOCKS, [problem, problem, random_problem(3, 2)])) == 2


def test_problem_row_texts_parse_back_and_id_follows_the_text() -> None:
    (item,) = draw_problems(BLOCKS, [random_problem(4, 1)])
    row = problem_row(BLOCKS, item, level="4", split=Split.TEST, source="blocksworld sampler")
    again = problem_row(BLOCKS, item, level="four", split=Split.PHASE1, source="elsewhere")
    (other,) = draw_problems(BLOCKS, [renamed(item.problem, random.Random(0))])
    other_row = problem_row(BLOCKS, other, level="4", split=Split.TEST, source="blocksworld sampler")
    assert parse_problem(row.problem_pddl, parse_domain(row.domain_pddl)) == item.problem
    assert (row.n_objects, row.domain, row.split) == (4, "blocksworld", "test")
    assert row.problem_id == again.problem_id != other_row.problem_id
    assert row.canonical_form == other_row.canonical_form

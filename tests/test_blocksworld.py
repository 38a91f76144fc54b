"""The Blocksworld sampler: uniform over arrangements, the same for the same seed, never a solved problem."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from conftest import BLOCKS, NAMES, blocks_problems, random_problem, shortest_plan
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import ConfigError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Problem, literals_of
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.problems.renaming import random_renaming, rename_plan
from plansmith.problems.samplers.blocksworld import (
    BlocksworldSampler,
    _completions,
    blocksworld_problem,
    moved_towers,
    on_atoms,
    random_towers,
)


@pytest.mark.parametrize(("n_blocks", "count"), [(1, 1), (2, 3), (3, 13), (4, 73), (5, 501), (6, 4051)])
def test_completions_from_nothing_count_the_arrangements(n_blocks: int, count: int) -> None:
    assert _completions(n_blocks, 0) == count  # sets of lists, OEIS A000262


def test_random_towers_three_blocks_are_uniform_over_the_thirteen_arrangements() -> None:
    rng, n_draws = random.Random(7), 13_000
    counts = Counter(tuple(sorted(random_towers("abc", rng))) for _ in range(n_draws))
    assert len(counts) == 13
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 26.2  # 12 degrees of freedom, 1%


@given(st.integers(2, 7), st.integers(1, 4), st.integers(0, 10**6))
def test_moved_towers_keeps_every_block_and_moves_at_most_so_many(n_blocks: int, n_moves: int, seed: int) -> None:
    rng = random.Random(seed)
    towers = random_towers(NAMES[:n_blocks], rng)
    moved = moved_towers(towers, n_moves, rng)
    assert sorted(block for tower in moved for block in tower) == sorted(NAMES[:n_blocks])
    assert all(moved)
    below = [{a.arguments[0]: a.arguments[1] for a in on_atoms(x)} for x in (towers, moved)]
    assert sum(below[0].get(block) != below[1].get(block) for block in NAMES[:n_blocks]) <= n_moves


@pytest.mark.parametrize("goal_moves", [1, 2])
def test_sample_with_goal_moves_has_plans_of_at_most_two_actions_a_move(goal_moves: int) -> None:
    sampler = BlocksworldSampler(4, NAMES, goal_moves)
    lengths = {len(shortest_plan(PlanningTask(BLOCKS, sampler.sample(random.Random(seed))))) for seed in range(40)}
    assert max(lengths) == 2 * goal_moves


@given(blocks_problems(max_blocks=8))
def test_sample_is_a_consistent_state_with_an_open_goal(problem: Problem) -> None:
    task = PlanningTask(BLOCKS, problem)
    blocks = {typed.name for typed in problem.objects}
    below = {atom.arguments[0]: atom.arguments[1] for atom in problem.init if atom.predicate == "on"}
    tables = {atom.arguments[0] for atom in problem.init if atom.predicate == "ontable"}
    clear = {atom.arguments[0] for atom in problem.init if atom.predicate == "clear"}
    assert blocks == tables | set(below) and not tables & set(below)
    assert len(set(below.values())) == len(below)
    assert clear == blocks - set(below.values())
    assert Atom("handempty") in problem.init and not task.is_goal(task.initial_state)
    assert {literal.atom.predicate for literal in literals_of(problem.goal)} == {"on"}


def test_sample_same_seed_gives_the_same_text_and_other_seeds_others() -> None:
    texts = [print_problem(random_problem(4, seed)) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_sample_two_blocks_ends_though_most_goals_are_drawn_again() -> None:
    assert {len(random_problem(2, seed).objects) for seed in range(30)} == {2}


def test_blocksworld_problem_order_of_atoms_depends_on_the_generator_alone() -> None:
    towers = (("a", "b"), ("c",))
    goal = on_atoms((("c", "a", "b"),))
    problems = [blocksworld_problem("abc", towers, goal, random.Random(seed)) for seed in range(20)]
    assert len({problem.init for problem in problems}) > 1
    assert len({frozenset(problem.init) for problem in problems}) == 1
    assert on_atoms(towers) == [Atom("on", ("b", "a"))]


@pytest.mark.parametrize(("n_blocks", "names"), [(9, NAMES), (1, NAMES), (0, NAMES), (3, ("a", "b", "a"))])
def test_sampler_that_cannot_name_its_blocks_is_refused(n_blocks: int, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="cannot name the blocks") as caught:
        BlocksworldSampler(n_blocks, names)
    assert f"{n_blocks} blocks and {len(set(names))} names" in (caught.value.got or "")


def test_random_renaming_with_too_few_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 objects and 2 names"):
        random_renaming(random_problem(3, 0), ("x", "y"), random.Random(0))


def test_rename_plan_changes_objects_and_leaves_actions() -> None:
    plan = parse_plan("(pick-up a) (stack a b)")
    assert rename_plan(plan, {"a": "b", "b": "a"}) == parse_plan("(pick-up b) (stack b a)")

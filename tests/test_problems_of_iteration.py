"""Which problems of D2 an iteration tries."""

from __future__ import annotations

from typing import Any

from smoke_runs import SMOKE

from pipelines.stages.rollout import RollOutSettings, problems_of_iteration, roll_out_settings
from plansmith.data.rows import SolvedProblemRow

SOLVED = [SolvedProblemRow(f"p{i}", "3 blocks", "", "", ("(a)",)) for i in range(5)]


def turn(iteration: int, count: int, **settings: Any) -> RollOutSettings:
    """Return what iteration t rolls out."""
    loop = SMOKE.phase2.model_copy(update={"problems_per_iteration": count, **settings})
    return roll_out_settings(SMOKE.model_copy(update={"phase2": loop}), iteration)


def test_problems_of_iteration_goes_round_before_it_repeats() -> None:
    turns = [[row.problem_id for row in problems_of_iteration(SOLVED, turn(t, 2), seed=3)] for t in range(1, 6)]
    flat = [problem for turn in turns for problem in turn]
    assert [len(turn) for turn in turns] == [2] * 5
    assert set(flat[:5]) == {row.problem_id for row in SOLVED}
    assert flat[5:] == flat[:5]


def test_problems_of_iteration_ignores_the_order_it_is_given() -> None:
    backwards = problems_of_iteration(SOLVED[::-1], turn(2, 3), seed=3)
    assert problems_of_iteration(SOLVED, turn(2, 3), seed=3) == backwards


def test_problems_of_iteration_with_fewer_than_wanted_has_each_once() -> None:
    chosen = problems_of_iteration(SOLVED, turn(3, 9), seed=3)
    assert sorted(row.problem_id for row in chosen) == ["p0", "p1", "p2", "p3", "p4"]


def test_problems_of_iteration_short_first_draws_from_the_shortest_plans_of_each_domain() -> None:
    solved = [
        SolvedProblemRow(f"{domain}{length}", "", domain, "", ("(a)",) * length)
        for domain, longest in (("x", 6), ("y", 3))
        for length in range(1, longest + 1)
    ]
    settings = [turn(t, 99, curriculum="short_first", eta=3) for t in (1, 2, 3)]
    turns = [{row.problem_id for row in problems_of_iteration(solved, of_turn, seed=0)} for of_turn in settings]
    assert turns[0] == {"x1", "x2", "y1"}
    assert turns[1] == {"x1", "x2", "x3", "x4", "y1", "y2"}
    assert turns[2] == {row.problem_id for row in solved}

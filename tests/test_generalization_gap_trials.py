"""Trials of `generalization_gap`: random walks, the floor; test prompts without room for an answer are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCKS_TEXT, random_problem
from stand_in_generator import StandInGenerator

from pipelines.stages.plan_trials import WALK, try_fitting, walk
from pipelines.stages.rollout import TrialSettings
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import FinishReason, PlanRow, ProblemRow, RolloutRow, Split
from plansmith.errors import BadInputError
from plansmith.pddl.printer import print_problem
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext, run_stages

SETTINGS = TrialSettings(sampling=SamplingConfig(max_new_tokens=5), engine=EngineNumerics(), prompting="plan_compact",
                         iteration=0, split=Split.TEST)  # fmt: skip


class SmallWindow(Resources):
    """Lends a generator into whose window the prompt of three blocks fits, of 146 words, and none of eight."""

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        return StandInGenerator(window=150)


def tried(root: Path, n_large: int) -> Artifact:
    """Return what was tried of twenty problems, so many of them large."""
    problems = [print_problem(random_problem(8 if number < n_large else 3, number)) for number in range(20)]
    names = [f"p{number:02d}" for number in range(20)]

    def write_problems(context: StageContext[None]) -> None:
        rows = [ProblemRow(name, name, "blocks", "L1", Split.TEST, 3, BLOCKS_TEXT, text, "sampler")
                for name, text in zip(names, problems, strict=True)]  # fmt: skip
        context.output.write_rows(rows, ProblemRow)

    def write_plans(context: StageContext[None]) -> None:
        rows = [PlanRow(name, "fd", "solved", ("(a)",), 1.0, 0.1, is_optimal=False) for name in names]
        context.output.write_rows(rows, PlanRow)

    given = {"problems": Stage(name="problems", run=write_problems), "plans": Stage(name="plans", run=write_plans)}
    stage = Stage(name="try_compact_1", run=try_fitting, settings=SETTINGS, inputs=given)
    return run_stages([stage], root=root, resources=SmallWindow())["try_compact_1"]


def test_prompts_without_room_are_bad_input_above_a_share_of_5_in_100(tmp_path: Path) -> None:
    reasons = [row.finish_reason for row in tried(tmp_path / "one", 1).rows(RolloutRow)]
    assert reasons.count(FinishReason.NO_ROOM) == 1
    with pytest.raises(BadInputError, match="leave no room for an answer") as caught:
        tried(tmp_path / "two", 2)
    assert (caught.value.where, caught.value.got) == ("try_compact_1", "2 of 20")
    assert caught.value.cure and "policy.max_model_len" in caught.value.cure


ONE_BLOCK = "(define (problem p) (:domain blocks) (:objects a) (:init (ontable a) (clear a) (handempty)) (:goal {}))"
"""What can be done is one action in every state: to pick it up, to put it down."""


def test_walk_is_as_long_as_the_planners_plan_and_ends_at_the_goal(tmp_path: Path) -> None:
    problems = {"reached": "(holding a)", "never": "(and (holding a) (handempty))", "unsolved": "(holding a)"}

    def write_problems(context: StageContext[None]) -> None:
        rows = [ProblemRow(name, name, "blocks", "L1", Split.TEST, 1, BLOCKS_TEXT, ONE_BLOCK.format(goal), "sampler")
                for name, goal in problems.items()]  # fmt: skip
        context.output.write_rows([*rows, replace(rows[0], problem_id="d1", split=Split.PHASE1)], ProblemRow)

    def write_plans(context: StageContext[None]) -> None:
        rows = [PlanRow(name, "fd", "solved", ("(a)",) * 3, 1.0, 0.1, is_optimal=False)
                for name in ("reached", "never", "d1")]  # fmt: skip
        unsolved = PlanRow("unsolved", "fd", "out_of_time", (), None, 0.1, is_optimal=False)
        context.output.write_rows([*rows, unsolved], PlanRow)

    given = {"problems": Stage(name="problems", run=write_problems), "plans": Stage(name="plans", run=write_plans)}
    made = run_stages([Stage(name="try_walk", run=walk, inputs=given)], root=tmp_path)["try_walk"]
    assert {row.problem_id: (row.policy_version, row.completion) for row in made.rows(RolloutRow)} == {
        "reached": (WALK, "pick-up a\n"),
        "never": (WALK, "pick-up a\nput-down a\npick-up a\n"),
    }

"""No problem that only measures is solved in training: not whole, and not as the rest of another problem."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCKS, NAMES, random_problem

from pipelines.stages.phase1_data import (
    DrawingSettings,
    pddl_digest,
    sample_problems,
    solved_problems,
    synthesize_plans,
)
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import DomainLevelConfig, ProblemsConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.drawing import SplitShares, choose_problems, draw_problems, problem_row
from plansmith.data.held_out import MEASURING, HeldOut
from plansmith.data.rows import ProblemRow, SolvedProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.planners.tie_breaking import plan_with_late_goals
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext

LEARNT = (Split.PHASE1, Split.PHASE2)


class Here(Resources):
    """A worker that is here."""

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        options["shards"].append(worker(**options["worker_settings"])(rows))


class Shortest:
    """A planner that searches by itself."""

    name = "shortest"

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        plan = tuple(map(str, plan_with_late_goals(task, (), max_states=20_000)))
        return PlannerResult(PlannerStatus.SOLVED, plan, float(len(plan)), 0.0, is_optimal=True)


def drawn_problems() -> list[ProblemRow]:
    """Return problems of three and of four blocks; a third of the forms only measures."""
    shares = SplitShares(test=0.25, phase2=0.4, probe=0.2, seed=3)
    problems = [random_problem(n_blocks, seed) for n_blocks in (3, 4) for seed in range(150)]
    chosen = choose_problems(draw_problems(BLOCKS, problems), shares, dict.fromkeys(Split, 40))
    return [
        problem_row(BLOCKS, item, level=f"{len(item.problem.objects)} blocks", split=split, source="sampler")
        for split, items in chosen.items()
        for item in items
    ]


def finished(writer: ArtifactWriter, stage: str, key: str) -> Artifact:
    return writer.finish(Provenance(stage, key, {}, {}, 0), wall_time_s=0.0)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Artifact]:
    """Return problems and their plans as the stage leaves them."""
    monkeypatch.setattr("actors.planner.make_planner", lambda config: Shortest())
    return plans_for(tmp_path, drawn_problems())


def plans_for(tmp_path: Path, rows: Sequence[ProblemRow]) -> dict[str, Artifact]:
    """Return problems and their plans as the stage leaves them."""
    writer = ArtifactWriter(tmp_path, "problems", "p" * 40)
    writer.write_rows(rows, ProblemRow)
    problems = finished(writer, "problems", "p" * 40)
    stage = Stage(name="synthesize_plans", run=synthesize_plans, settings=PlannerConfig())
    output = ArtifactWriter(tmp_path, stage.name, stage.key)
    synthesize_plans(StageContext(stage, {"problems": problems}, output, Here()))
    return {"problems": problems, "plans": finished(output, stage.name, stage.key)}


def forms_solved(row: SolvedProblemRow) -> set[str]:
    """Return the form of what is left before every step of a plan."""
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    states = validate_plan(task, [parse_step(step) for step in row.plan]).states[:-1]
    return {canonical_form(BLOCKS, replace(task.problem, init=task.atoms_of(state))) for state in states}


def test_solved_problems_to_learn_from_solve_no_held_out_problem_on_the_way(planned: dict[str, Artifact]) -> None:
    rows = planned["problems"].rows(ProblemRow)
    held_out = {row.canonical_form for row in rows if row.split in MEASURING}
    assert {row.split for row in rows} == set(Split)
    for split in LEARNT:
        solved = solved_problems(planned["problems"], planned["plans"], split)
        n_drawn = sum(row.split == split for row in rows)
        assert 10 < len(solved) < n_drawn - 5
        assert not held_out & set().union(*map(forms_solved, solved))
    for split in MEASURING:
        n_drawn = sum(row.split == split for row in rows)
        assert len(solved_problems(planned["problems"], planned["plans"], split)) == n_drawn


@pytest.mark.parametrize("split", LEARNT)
def test_synthesize_plans_that_leave_nothing_to_learn_from_say_so(
    split: Split, tmp_path: Path, planned: dict[str, Artifact]
) -> None:
    left = {row.problem_id for row in solved_problems(planned["problems"], planned["plans"], split)}
    rows = [row for row in planned["problems"].rows(ProblemRow) if row.problem_id not in left]
    n_drawn = sum(row.split == split for row in rows)
    with pytest.raises(BadInputError, match=f"no problem of {split} is left") as caught:
        plans_for(tmp_path / "again", rows)
    assert n_drawn > 5 and f"{n_drawn}, each without a plan" in (caught.value.got or "")


def test_synthesize_plans_of_test_problems_alone_leaves_nobody_anything_to_learn(
    tmp_path: Path, planned: dict[str, Artifact]
) -> None:
    rows = [row for row in planned["problems"].rows(ProblemRow) if row.split == Split.TEST]
    made = plans_for(tmp_path / "own", rows)
    assert len(solved_problems(made["problems"], made["plans"], Split.TEST)) == len(rows) > 5


def test_synthesize_plans_says_how_many_of_each_level_are_left_out(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    logger = logging.getLogger("plansmith.stages")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    planned = request.getfixturevalue("planned")
    logger.removeHandler(caplog.handler)
    rows = planned["problems"].rows(ProblemRow)
    for split in LEARNT:
        kept = {row.problem_id for row in solved_problems(planned["problems"], planned["plans"], split)}
        for level in ("3 blocks", "4 blocks"):
            ids = {row.problem_id for row in rows if (row.split, row.level) == (split, level)}
            expected = f"{level}, {split}: {len(ids - kept)} of {len(ids)} problems left out"
            assert expected in caplog.text
    assert f"blocks, {Split.TEST}" not in caplog.text and f"blocks, {Split.PROBE}" not in caplog.text


def test_first_met_of_a_renamed_held_out_problem_is_found_and_other_sizes_are_not_looked_at() -> None:
    problem = random_problem(4, 1)
    rng = random.Random(0)
    copy = rename_problem(problem, random_renaming(problem, NAMES, rng), rng)
    task = PlanningTask(BLOCKS, copy)
    step = next(action for action in task.ground_actions() if action.is_applicable(task.initial_state))
    states = [task.atoms_of(step.apply(task.initial_state)), copy.init]
    form = canonical_form(BLOCKS, problem)
    assert HeldOut(frozenset({form}), frozenset({4})).first_met(task, states) == 1
    claimed = [(*copy.init, Atom("clear", ("nobody",))), copy.init]  # a policy names a block that is not there
    assert HeldOut(frozenset({form}), frozenset({4})).first_met(task, claimed) == 1
    assert HeldOut(frozenset({form}), frozenset({3, 5})).first_met(task, states) is None
    assert HeldOut().first_met(task, states) is None


def test_words_of_a_policy_that_are_no_step_meet_nothing() -> None:
    problem = random_problem(4, 1)
    known = HeldOut(frozenset({canonical_form(BLOCKS, problem)}), frozenset({4}))
    assert not known.is_met_by(PlanningTask(BLOCKS, problem), (), ("(pick-up a;)",))
    assert known.is_met_by(PlanningTask(BLOCKS, problem), (), ())


def test_sample_problems_of_a_domain_under_other_words_has_each_form_in_one_split(tmp_path: Path) -> None:
    """Mystery Blocksworld is Blocksworld; a level that holds nothing out must not train on what another one tests."""
    counts = {"phase1": 50, "phase2": 50, "test": 50, "n_draws": 300, "level": "small", "sizes": {"blocks": (3, 4)}}
    levels = (
        DomainLevelConfig(domain="blocksworld", **counts),
        DomainLevelConfig(domain="mystery-blocksworld", **counts, test_share=0.0),
    )
    config = ProblemsConfig(domains=levels)
    settings = DrawingSettings(problems=config, pddl=pddl_digest(config), is_word_level=False)
    stage = Stage(name="sample_problems", run=sample_problems, settings=settings)
    output = ArtifactWriter(tmp_path, stage.name, stage.key)
    sample_problems(StageContext(stage, {}, output, Here()))
    rows = finished(output, stage.name, stage.key).rows(ProblemRow)
    splits_of: dict[str, set[str]] = {}
    for row in rows:
        splits_of.setdefault(row.canonical_form, set()).add(row.split)
    assert {len(splits) for splits in splits_of.values()} == {1}
    assert len({(row.domain, row.canonical_form) for row in rows}) == len(rows)
    assert len(rows) - len(splits_of) > 20  # forms of both domains

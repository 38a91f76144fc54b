"""Stack, unstack and reorder as tasks of their own, and tests that are chosen by the length of their plans."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.self_criteach import PIPELINE, learnt_domains
from pipelines.stages.chosen_tests import choose_tests
from pipelines.stages.self_teaching import apportioned
from plansmith.ablation.criteach_seeds import mean_table
from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import ChosenTestsConfig, LengthShare
from plansmith.data.rows import PlanRow, ProblemRow, Split
from plansmith.errors import BadInputError, ConfigError
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.model import Atom, Literal, Problem, conjuncts_of
from plansmith.problems.library import load_domain
from plansmith.problems.samplers import blocks_reorder, blocks_stack, blocks_unstack
from plansmith.report.criteach_paper import LLAMA, QWEN, paper_of
from plansmith.report.criteach_plots import draw_problems
from plansmith.report.criteach_report import noise_table, overall_table, task_tables
from plansmith.report.criteach_results import (
    MeanTest,
    NoiseFigures,
    Overall,
    TaskProblems,
    by_task,
    over_all,
    trained_tasks,
)
from plansmith.report.metrics import EvaluatedProblem, summarise_level
from plansmith.stages import Stage, run_stages

# --- what each task is

TASKS = ("blocks-stack", "blocks-unstack", "blocks-reorder")
DRAWN = [(name, level) for name in TASKS for level in load_domain(name).levels]


def rests(atoms: Sequence[Atom]) -> tuple[dict[str, str], dict[str, str]]:
    """Return which blocks rest on others, and which on tables."""
    found = {name: dict[str, str]() for name in ("above", "on-table")}
    for atom in atoms:
        if atom.predicate in found:
            block, below = atom.arguments
            found[atom.predicate][block] = below
    return found["above"], found["on-table"]


def goal_of(problem: Problem) -> list[Atom]:
    parts = conjuncts_of(problem.goal)
    assert all(isinstance(part, Literal) and part.is_positive for part in parts)
    return [part.atom for part in parts if isinstance(part, Literal)]


def is_of_task(name: str, problem: Problem) -> bool:
    """Return whether start and goal are those of a task, as its README says."""
    (stacked, flat), (wanted, put_down) = rests(problem.init), rests(goal_of(problem))
    if name == "blocks-stack":
        return not stacked and bool(wanted) and wanted.items().isdisjoint(flat.items())
    if name == "blocks-unstack":
        return bool(stacked) and not wanted and {*stacked} <= {*put_down}
    return bool(stacked) and bool(wanted.items() - stacked.items())


@pytest.mark.parametrize(("name", "level"), DRAWN)
def test_problems_of_a_task_are_of_it_and_of_no_other(name: str, level: str) -> None:
    drawn = [load_domain(name).sample(level, random.Random(seed)) for seed in range(25)]
    for problem in drawn:
        assert [task for task in TASKS if is_of_task(task, problem)] == [name]


@pytest.mark.parametrize("sampler", [blocks_stack, blocks_unstack, blocks_reorder], ids=lambda module: module.__name__)
def test_smallest_problems_of_a_task_are_of_it(sampler: Any) -> None:
    name = sampler.__name__.rpartition(".")[2].replace("_", "-")
    for seed in range(25):
        problem = sampler.sample(random.Random(seed), blocks=1, tables=1, robots=1, moves=1)
        assert is_of_task(name, problem)


def test_reorder_without_moves_is_of_one() -> None:
    problem = blocks_reorder.sample(random.Random(0), blocks=3, tables=1, robots=1, moves=0)
    assert is_of_task("blocks-reorder", problem)


# --- tests by the lengths of their plans

QUOTA = ChosenTestsConfig(
    tasks=("stack", "align"), problems=4, lengths=(LengthShare(up_to=2, share=1), LengthShare(up_to=4, share=1))
)


def chosen(folder: Path, lengths: Mapping[str, Sequence[int]], quota: ChosenTestsConfig = QUOTA) -> list[ProblemRow]:
    """Return what is left of problems by level, each with the length of its plan, -1 without one; and one to learn."""
    rows, plans = list[ProblemRow](), list[PlanRow]()
    for level, found in {**lengths, "stack L9": [1]}.items():
        split = Split.PHASE1 if level == "stack L9" else Split.TEST
        for number, length in enumerate(found):
            name = f"{level}/{number}/{length}"
            rows.append(ProblemRow(name, name, "blocks", level, split, 3, "", "", "sampler"))
            status = "solved" if length >= 0 else "out_of_time"
            plans.append(PlanRow(name, "fd", status, ("(a)",) * length, float(length), 1.0, False))

    def given(row_type: Any, made: Sequence[Any]) -> Any:
        return lambda context: context.output.write_rows(made, row_type)

    problems = Stage(name="problems", run=given(ProblemRow, rows))
    planned = Stage(name="plans", run=given(PlanRow, plans))
    stage = Stage(name="choose", run=choose_tests, settings=quota, inputs={"problems": problems, "plans": planned})
    return run_stages([problems, planned, stage], root=folder)["choose"].rows(ProblemRow)


@pytest.mark.parametrize(
    ("total", "shares", "parts"),
    [
        (200, (1, 1, 1), [67, 67, 66]),
        (10, (1, 1, 1, 1), [3, 3, 2, 2]),
        (1, (1, 1), [1, 0]),
        (10, (6, 2, 1, 1), [6, 2, 1, 1]),
    ],
)
def test_parts_of_a_total_add_up_to_it(total: int, shares: tuple[float, ...], parts: list[int]) -> None:
    lengths = [LengthShare(up_to=10 * number, share=share) for number, share in enumerate(shares, 1)]
    assert apportioned(total, lengths) == parts


def lengths_of(rows: Sequence[ProblemRow], task: str) -> Counter[int]:
    names = [row.problem_id for row in rows if task_of_level(row.level) == task and row.split == Split.TEST]
    return Counter(int(name.rpartition("/")[2]) for name in names)


def test_tests_have_equal_shares_of_the_lengths_of_all_levels_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = chosen(tmp_path, {"stack L1": [1, 2, 1, 2, 3], "stack L2": [2, 1, 3, 4, 4], "align L1": [2, 2, 4, 3, 3]})
    assert sum(lengths_of(found, "stack")[n] for n in (1, 2)) == sum(lengths_of(found, "stack")[n] for n in (3, 4)) == 2
    assert lengths_of(found, "align").total() == 4
    assert {row.level for row in found if row.split == Split.TEST} == {"stack L1", "stack L2", "align L1"}
    assert [row.level for row in found if row.split == Split.PHASE1] == ["stack L9"], "what is learnt stays"
    assert "fewer tests" not in caplog.text


def test_too_few_tests_of_a_length_are_told_and_all_there_are_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = chosen(tmp_path, {"stack L1": [1, 1, 1, 3], "align L1": [-1, 5, 2, 3, 4]})
    assert lengths_of(found, "stack") == {1: 2, 3: 1}
    assert lengths_of(found, "align") == {2: 1, 3: 1, 4: 1}, "nor is one without a plan, nor one too long"
    [warned] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.split() for line in warned.splitlines()[-2:]] == [
        ["stack", "3", "to", "4", "steps", "1", "2"], ["align", "1", "to", "2", "steps", "1", "2"],
    ]  # fmt: skip


def test_tests_of_other_tasks_are_all_kept_whatever_their_plans(tmp_path: Path) -> None:
    found = chosen(tmp_path, {"stack L1": [1, 3], "room L1": [-1, 9, 9, 9, 9, 9]})
    assert lengths_of(found, "room") == {-1: 1, 9: 5}


def test_no_test_left_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no test is left"):
        chosen(tmp_path, {"stack L1": [-1, 9]})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tests={tasks: [blocks-hard], problems: 4, lengths: [{up_to: 10, share: 1}]}", "those that do are blocks-cla"),
        ("tests={tasks: [a, a], problems: 4, lengths: [{up_to: 10, share: 1}]}", "must differ"),
        ("tests={tasks: [a], problems: 4, lengths: [{up_to: 9, share: 1}, {up_to: 8, share: 1}]}", "lengths must grow"),
        ("tests={tasks: [], problems: 4, lengths: []}", "at least 1"),
    ],
    ids=["no such task", "twice", "lengths", "nothing"],
)
def test_tests_that_cannot_be_chosen_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings("smoke", overrides=[override])


def test_chosen_tests_are_tried_and_judged_and_nothing_that_learns_depends_on_them() -> None:
    chosen_by = "tests={tasks: [blocks-classic], problems: 4, lengths: [{up_to: 4, share: 1}]}"
    plain, quota = (
        {stage.name: stage for stage in PIPELINE.stages(PIPELINE.settings("smoke", overrides=given))}
        for given in ([], [chosen_by])
    )
    assert {*quota} - {*plain} == {"choose_tests", "adopt_tests"}
    assert quota["adopt_tests"].inputs["problems"] is quota["choose_tests"]
    assert all(quota[f"try_{arm}"].inputs["problems"] is quota["adopt_tests"] for arm in ("base", "vote", "sft_cpo"))
    anew = {name for name, stage in plain.items() if stage.key != quota[name].key}
    assert {f"try_{arm}" for arm in ("base", "vote", "sft", "sft_cpo")} < anew
    tried = ("try_", "judge_", "check_claims_", "criticise_", "failures_", "noise_", "nearest_", "plan_n", "read_votes",
             "vote")  # fmt: skip
    assert not [name for name in anew if not name.startswith(tried)]
    assert not [
        name
        for name, stage in quota.items()
        if name.startswith("try_") and quota["adopt_domains"] in stage.inputs.values()
    ]


# --- the report, and the preset


def tried(level: str, *, is_valid: bool, steps: int = 2) -> EvaluatedProblem:
    name = f"{level}/{is_valid}/{steps}"
    error = None if is_valid else ErrorClass.GOAL_NOT_ACHIEVED
    return EvaluatedProblem(name, "blocks-classic", level, name, is_valid, error, steps, steps, 10)


def test_tables_have_a_row_for_each_task_and_one_for_the_three_together() -> None:
    items = [
        tried("blocks-stack L1", is_valid=True), tried("blocks-stack L2", is_valid=False),
        tried("blocks-reorder L1", is_valid=False), tried("blocks-unstack L1", is_valid=True),
        tried("blocks-align L1", is_valid=True), tried("blocks-unstack L1", is_valid=False, steps=12),
    ]  # fmt: skip
    tasks = by_task(items)
    assert {task: len(found) for task, found in tasks.items()} == {
        "blocks-stack": 2, "blocks-reorder": 1, "blocks-unstack": 2, "blocks-align": 1, "blocks-hard": 5
    }  # fmt: skip
    config = PIPELINE.settings("paper")
    arm = SimpleNamespace(
        by_task={task: summarise_level(found) for task, found in tasks.items()},
        tokens_by_task=dict.fromkeys(tasks, 10.0),
    )
    results: Any = SimpleNamespace(
        arms={"sft_cpo": arm}, last=arm, trained_domains=trained_tasks(config), config=config.model_dump()
    )
    table, *_ = task_tables(results)
    assert table.rows == (
        ("blocks-stack", "2", "50%"), ("blocks-reorder", "1", "0%"), ("blocks-unstack", "2", "50%"),
        ("blocks-align", "1", "100% (75)"), ("blocks-hard", "5", "40% (45)"),
    )  # fmt: skip
    assert "together" in table.note


def test_task_never_trained_on_and_noise_have_intervals() -> None:
    items = [
        tried("blocks-align L1", is_valid=True),
        *(tried(f"reorganize-room L{n}", is_valid=n == 1) for n in (1, 2)),
    ]
    arm = SimpleNamespace(by_task={task: summarise_level(found) for task, found in by_task(items).items()},
                          tokens_by_task={"blocks-align": 1.0, "reorganize-room": 1.0})  # fmt: skip
    config = PIPELINE.settings("paper").model_dump()
    results: Any = SimpleNamespace(arms={"symbol": arm}, last=arm, trained_domains=("blocks-align",), config=config,
                                   noise=(NoiseFigures(0.1, 100, 50, 0, 100, 20),))  # fmt: skip
    rows = next(iter(task_tables(results))).rows
    assert [row[2] for row in rows] == ["100% (84)", "50% [9.5% to 90.5%] (14)"]
    [noise] = noise_table(results).rows
    assert noise[2:4] == ("50% [40.4% to 59.6%]", "0% [0% to 3.7%]")  # 50 and 0 of 100: Wilson's


def test_change_of_cost_over_seeds_has_an_interval() -> None:
    seeds = {seed: (MeanTest("sft", "sft_cpo", "progress", 0.5, after, 1.0),) for seed, after in ((0, 0.6), (1, 0.8))}
    found: Any = SimpleNamespace(
        seeds=(0, 1), by_seed=seeds, pooled=(MeanTest("sft", "sft_cpo", "progress", 0.5, 0.7, 1.0),)
    )
    [row] = mean_table(found).rows
    assert row[5] == "-1.071 to +1.471"  # 0.2 +- 12.706 * 0.1414 / sqrt(2)
    found.by_seed = {0: seeds[0]}
    assert mean_table(found).rows[0][5] == "-", "one seed tells nothing about the spread"


def test_overall_is_over_the_seven_sets_and_over_all_tests_and_the_mean_of_six_columns() -> None:
    unseen = ("prepare-experiment", "reorganize-room", "machine-parts-assembly")
    items = [tried(f"{task} L1", is_valid=task in ("blocks-stack", "blocks-align")) for task in
             ("blocks-stack", "blocks-unstack", "blocks-reorder", "blocks-align", *unseen)]  # fmt: skip
    items += [tried("blocks-classic L1", is_valid=True, steps=steps) for steps in (1, 2, 3)]
    items = [replace(item, progress=float(item.is_valid)) for item in items]
    tokens = {item.problem_id: 100 if "classic" in item.level else 10 for item in items}
    found = over_all(by_task(items), tokens)
    assert found["the seven sets"] == Overall(7, pytest.approx(2 / 7), pytest.approx(2 / 7), 10.0)
    assert found["all tests"] == Overall(10, 0.5, 0.5, 37.0)
    six = pytest.approx((1 + 1 / 3 + 1) / 6)
    assert found["mean of the six columns"] == Overall(10, six, six, 25.0)
    assert over_all(by_task(items[:-3]), tokens) == {}, "without Classic nothing is the paper's"
    arm = SimpleNamespace(overall=found)
    table = overall_table(SimpleNamespace(arms={"sft_cpo": arm}, config=PIPELINE.settings("paper").model_dump()))  # type: ignore[arg-type]
    assert [row[1:] for row in table.rows] == [
        ("7", "28.6% (46)", "0.29 (0.76)", "10 (7543)"), ("10", "50%", "0.50", "37"), ("10", "38.9%", "0.39", "25")
    ]  # fmt: skip


def test_three_in_one_are_there_only_where_one_of_them_is() -> None:
    assert list(by_task([tried("blocks-hard L1", is_valid=True)])) == ["blocks-hard"]
    assert list(by_task([tried("blocks-classic L1", is_valid=True)])) == ["blocks-classic"]
    assert trained_tasks(PIPELINE.settings("demo")) == ("blocks-classic",)
    paper = PIPELINE.settings("paper")
    assert trained_tasks(paper)[-1] == "blocks-hard"
    levels = tuple(
        level.model_copy(update={"phase1": 0} if level.domain == "blocks-reorder" else {})
        for level in paper.problems.domains
    )
    mixed = paper.model_copy(update={"problems": paper.problems.model_copy(update={"domains": levels})})
    assert "blocks-hard" not in trained_tasks(mixed), "one of the three is only tested"


def test_paper_beside_a_run_is_that_of_its_model_and_not_of_its_folder() -> None:
    assert paper_of("/models/llama-factory/Qwen3-4B") is paper_of(None) is QWEN
    assert paper_of("meta-llama/Meta-Llama-3-8B-Instruct") is LLAMA


def test_problems_by_task_and_length_are_drawn_as_bars_with_their_numbers() -> None:
    stack = TaskProblems({"1-10": 31, "11-20": 0}, {"1-10": 12, "11-20": 13})
    room = TaskProblems({"1-10": 0, "11-20": 0}, {"1-10": 24, "11-20": 25})
    svg = draw_problems({"blocks-stack": stack, "reorganize-room": room}).svg
    for number in (31, 12, 13, 24, 25):
        assert f">{number}</text>" in svg
    assert svg.count(", to learn from<") == svg.count(", tests<") == 2


def test_paper_preset_asks_for_the_papers_test_sets() -> None:
    config = PIPELINE.settings("paper")
    assert config.tests is not None
    sets = (*TASKS, "blocks-align", "prepare-experiment", "reorganize-room", "machine-parts-assembly")
    assert (config.tests.tasks, config.tests.problems) == (sets, 200)
    assert [(part.up_to, part.share) for part in config.tests.lengths] == [(10, 1), (20, 1), (30, 1), (60, 1)]
    assert config.problems.tested_tasks == ("blocks-classic", *sets)
    assert sum(level.test for level in config.problems.domains if level.domain == "blocks-classic") == 100
    for task in sets:
        assert sum(level.test for level in config.problems.domains if level.domain_name == task) >= 400
    assert config.trained_domains == ("blocks-classic", *TASKS, "blocks-align")
    assert learnt_domains(config) == ["blocks-classic", "blocks-align"], "four kinds of problems share the first"

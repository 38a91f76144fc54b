"""The whole pipeline at its smallest, with real Ray, vLLM, DeepSpeed, Fast Downward: run, reused, killed, resumed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import BLOCKS_TEXT, give_command, random_problem
from processes import RAY_AGENTS, survivors
from safetensors import safe_open
from smoke_runs import SMOKE, FinishedRun, finish, kill_after, manifests

from pipelines import pddl_instruct
from pipelines.commands import evaluate
from pipelines.run.workers import MODEL, PROBE, Probe, policy_version
from pipelines.trials.options import EXAMPLES
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.data.rows import (
    ExampleRow,
    FinalPlanRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    Split,
    StepLossRow,
    VerdictRow,
)
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.report.arms import chosen_iteration

ROOT = Path(__file__).resolve().parent.parent
ARMS = ["untrained", "phase1", "iteration_1", "iteration_2", "final"]
ERROR_CLASSES = {"precondition_violation", "incorrect_effect", "goal_not_achieved", "invalid_action_sequence"}


# --- the run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(runs: Path) -> FinishedRun:
    return finish(runs, "whole")


def rollouts_with_policy(run: FinishedRun) -> Iterator[tuple[str, Artifact, list[RolloutRow]]]:
    """Yield each stage that sampled, with the artifact of its policy and its rollouts."""
    by_key = {artifact.key: artifact for artifact in run.artifacts.values()}
    for name, artifact in run.artifacts.items():
        if name.startswith(("try_", "roll_out_")):
            yield name, by_key[artifact.manifest.provenance.inputs["policy"]], artifact.rows(RolloutRow)


def test_run_writes_results_with_the_figures_of_every_arm(run: FinishedRun) -> None:
    results = json.loads((run.folder / "report" / "results.json").read_text(encoding="utf-8"))
    assert list(results["arms"]) == ARMS
    for arm in results["arms"].values():
        assert set(arm["by_level"]) == {"3 blocks", "4 blocks"}
        for figures in [arm, *arm["by_level"].values()]:
            low, high = figures["ci95"]
            assert figures["n"] == 4
            assert 0 <= low <= figures["accuracy"] <= high <= 1
            assert set(figures["errors"]) == ERROR_CLASSES
            assert figures["n_valid"] + sum(figures["errors"].values()) == figures["n"]
    assert results["arms"]["final"] == results["arms"]["iteration_2"] | {"name": "final"}
    assert set(results["time_s"]) == set(run.artifacts)
    assert len(results["rollout_valid_rate"]) == len(results["losses"]["reasoning"]) == 2
    assert results["policy_versions"]["final"] == policy_version(run.artifacts["final_policy"])
    assert chosen_iteration(run.artifacts["final_policy"]) == 2
    assert [turn["turn"] for turn in results["feedback_turns"]] == [0, 1]


def test_run_writes_a_page_and_prints_its_table(run: FinishedRun) -> None:
    page = (run.folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "phase 1" in run.done.stdout
    assert "report/index.html" in run.done.stdout


def test_run_records_its_resolved_config(run: FinishedRun) -> None:
    record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    assert record["preset"] == "smoke"
    assert PddlInstructConfig.model_validate(record["config"]) == SMOKE.model_copy(update={"name": "whole"})


def test_every_rollout_carries_the_version_of_the_policy_it_was_sampled_from(run: FinishedRun) -> None:
    sampled = list(rollouts_with_policy(run))
    assert len(sampled) == 2 + len(ARMS) - 1
    for name, policy, rollouts in sampled:
        assert rollouts, name
        assert {row.policy_version for row in rollouts} == {policy_version(policy)}, name
    versions = {policy_version(policy) for _, policy, _ in sampled}
    assert len(versions) == 4  # untrained, phase 1, and each iteration


def test_rollouts_and_verdicts_are_one_to_one(run: FinishedRun) -> None:
    for name, _, rollouts in rollouts_with_policy(run):
        verdicts = run.artifacts[name.replace("try_", "judge_").replace("roll_out_", "judge_")].rows(VerdictRow)
        assert sorted(row.rollout_id for row in rollouts) == sorted(row.rollout_id for row in verdicts)
        assert all(len(row.rollout_logprobs) == len(row.token_ids) for row in rollouts)


def test_no_canonical_form_of_the_test_set_occurs_in_training(run: FinishedRun) -> None:
    problems = run.artifacts["sample_problems"].rows(ProblemRow)
    splits = (Split.PHASE1, Split.PHASE2, Split.TEST)
    forms = {split: {row.canonical_form for row in problems if row.split == split} for split in splits}
    assert all(forms.values())
    assert not forms[Split.TEST] & (forms[Split.PHASE1] | forms[Split.PHASE2])
    assert not forms[Split.PHASE1] & forms[Split.PHASE2]
    split_of = {row.problem_id: row.split for row in problems}
    for name, _, rollouts in rollouts_with_policy(run):
        wanted = Split.TEST if name.startswith("try_") else Split.PHASE2
        assert {split_of[row.problem_id] for row in rollouts} == {wanted}, name


def test_every_planner_plan_is_valid(run: FinishedRun) -> None:
    problem_of = {row.problem_id: row for row in run.artifacts["sample_problems"].rows(ProblemRow)}
    plans = run.artifacts["synthesize_plans"].rows(PlanRow)
    assert {row.problem_id for row in plans} == set(problem_of)
    for row in plans:
        problem = problem_of[row.problem_id]
        task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
        assert row.status == "solved"
        assert validate_plan(task, [parse_step(step) for step in row.plan]).is_valid


def test_feedback_data_has_the_rollouts_of_its_iteration_only(run: FinishedRun) -> None:
    for iteration in (1, 2):
        datasets = run.artifacts[f"build_datasets_{iteration}"]
        rollouts = {row.rollout_id for row in run.artifacts[f"roll_out_{iteration}"].rows(RolloutRow)}
        finals = datasets.rows(FinalPlanRow, "final_plans")
        assert {row.rollout_id for row in finals} == rollouts
        assert {row.iteration for row in finals} == {iteration}
        assert {row.rollout_id for row in datasets.rows(StepLossRow, "reasoning_steps")} <= rollouts


def tensors(artifact: Artifact) -> dict[str, list[float]]:
    with safe_open(artifact.path(MODEL) / "model.safetensors", framework="numpy") as file:
        return {name: file.get_tensor(name).ravel().tolist() for name in file.keys()}  # noqa: SIM118 - not a mapping


def test_every_optimisation_changes_the_weights_and_none_their_shape(run: FinishedRun) -> None:
    names = ("initial_policy", "phase1", "stage1_1", "stage2_1", "stage1_2", "stage2_2")
    for before, after in pairwise(tensors(run.artifacts[name]) for name in names):
        assert {name: len(values) for name, values in before.items()} == {n: len(v) for n, v in after.items()}
        assert before != after


def test_rates_of_the_second_iteration_are_the_decay_times_those_of_the_first(run: FinishedRun) -> None:
    for stage in ("stage1", "stage2"):
        curves = [run.artifacts[f"{stage}_{t}"].rows(OptimisationStepRow, "curve") for t in (1, 2)]
        first, second = (max(row.learning_rate for row in curve) for curve in curves)
        assert second == pytest.approx(SMOKE.phase2.learning_rate_decay * first)
        assert second < first


def test_every_policy_has_a_probe_that_is_its_own(run: FinishedRun) -> None:
    names = ("initial_policy", "phase1", "stage1_1", "stage2_1", "stage1_2", "stage2_2")
    probes = [Probe.read(run.artifacts[name].path(PROBE)) for name in names]
    assert all(len(probe.token_ids) == len(probe.logprobs) > 1 for probe in probes)
    assert len({probe.logprobs for probe in probes}) == len(probes)


def test_same_run_again_reuses_every_stage_and_starts_no_ray(run: FinishedRun, runs: Path) -> None:
    before = manifests(run.folder)
    again = give_command(pddl_instruct.main, "--preset", "smoke", "--runs", runs, "--name", "whole")
    assert again.code == 0
    lines = [line for line in again.stderr.splitlines() if " stage " in line]
    assert len(lines) == len(run.artifacts)
    assert [line for line in lines if not line.endswith(": reused")] == []
    assert "starting" not in again.stderr
    assert manifests(run.folder) == before
    assert again.stdout == run.done.stdout


# --- killed


@pytest.fixture(scope="module")
def killed_session(run: FinishedRun, runs: Path) -> int:
    """Return the session of a run killed in its second iteration, with planners, engine and trainer at work.

    It was given the model and the first iteration of the whole run; problems, plans and texts it makes itself.
    """
    names = [stage.name for stage in pddl_instruct.pddl_instruct(SMOKE)]
    own = {"sample_problems", "synthesize_plans", "write_chains"}
    for name in set(names[: names.index("roll_out_2")]) - own:
        folder = run.artifacts[name].folder
        shutil.copytree(folder, runs / "killed" / "artifacts" / folder.name)
    return kill_after("stage1_2", runs, "killed")


@pytest.mark.faults
def test_run_killed_in_phase_2_leaves_no_process_and_continues(
    run: FinishedRun, runs: Path, killed_session: int
) -> None:
    assert survivors(killed_session, besides=RAY_AGENTS) == []
    before = manifests(runs / "killed")
    assert {"write_chains", "roll_out_2", "stage1_2"} <= {name.rpartition("-")[0] for name in before}
    assert "final_policy" not in {name.rpartition("-")[0] for name in before}

    resumed = finish(runs, "killed")
    after = manifests(runs / "killed")
    assert {name: after[name] for name in before} == before
    assert set(after) == set(manifests(run.folder))
    assert resumed.done.stderr.count(": reused") == len(before)
    for stage, row_type, table in [
        ("sample_problems", ProblemRow, "rows"), ("write_chains", ExampleRow, "chains"),
        ("write_chains", ExampleRow, "explanations"),
    ]:  # fmt: skip
        assert resumed.artifacts[stage].rows(row_type, table) == run.artifacts[stage].rows(row_type, table)
    results = json.loads((resumed.folder / "report" / "results.json").read_text(encoding="utf-8"))
    assert list(results["arms"]) == ARMS


# --- evaluated


COLOURS = """(define (problem colours) (:domain blocksworld) (:objects red green blue)
  (:init (on red green) (ontable green) (ontable blue) (clear red) (clear blue) (handempty))
  (:goal (and (on green blue) (on blue red))))
"""


def test_evaluate_without_problems_shows_the_stored_figures(
    run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([str(run.folder), "--out", str(tmp_path / "final.json")]) == 0
    shown = json.loads((tmp_path / "final.json").read_text(encoding="utf-8"))
    stored = json.loads((run.folder / "report" / "results.json").read_text(encoding="utf-8"))["arms"]["final"]
    assert {name: shown[name] for name in stored} == stored
    assert len(shown["attempts"]) == 8
    assert "95% interval" in capsys.readouterr().out


@pytest.fixture(scope="module")
def place_of_the_help(run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has what the examples of the help name."""
    folder = tmp_path_factory.mktemp("help")
    shutil.copytree(run.folder, folder / "runs" / "pddl_instruct-demo")
    (folder / "my-problems").mkdir()
    (folder / "my-problems" / "colours.pddl").write_text(COLOURS, encoding="utf-8")
    (folder / "my-problems" / "letters.pddl").write_text(print_problem(random_problem(3, 5)), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("running_ray")
def test_evaluate_help_examples_of_a_run_work_as_they_stand(
    place_of_the_help: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place_of_the_help)
    commands = [line.split()[2:] for line in EXAMPLES.splitlines() if "evaluate runs/" in line]
    assert len(commands) == 2
    for words in commands:
        assert evaluate.main(words) == 0
    assert "the planner's plan: (unstack red green)" in capsys.readouterr().out  # in the names of the file


@pytest.mark.usefixtures("running_ray")
def test_evaluate_own_problems_renames_unknown_objects_and_answers_in_their_names(
    run: FinishedRun, place_of_the_help: Path, tmp_path: Path
) -> None:
    folder, out = place_of_the_help, tmp_path / "out.json"
    words = [
        folder / "runs" / "pddl_instruct-demo",
        "--arm",
        "phase1",
        "--problems",
        folder / "my-problems",
        "--out",
        out,
    ]
    first = give_command(evaluate.main, *words)
    assert first.code == 0, first.stderr
    shown = json.loads(out.read_text(encoding="utf-8"))
    assert shown["policy_version"] == policy_version(run.artifacts["phase1"])
    attempts = {attempt["problem"]: attempt for attempt in shown["attempts"]}
    assert set(attempts) == {"colours", "letters"}
    for name, attempt in attempts.items():
        text = (folder / "my-problems" / f"{name}.pddl").read_text(encoding="utf-8")
        steps = [parse_step(step) for step in attempt["planner_plan"]]
        assert validate_plan(PlanningTask.from_text(BLOCKS_TEXT, text), steps).is_valid
    tried = complete_artifacts(folder / "runs" / "pddl_instruct-demo" / "evaluations")
    [problems] = [artifact for artifact in tried if "read_problems" in artifact.folder.name]
    prompted = {row.problem_id: row.problem_pddl for row in problems.rows(ProblemRow)}
    assert not {"red", "green", "blue"} & set(prompted["colours"].replace("(", " ").replace(")", " ").split())

    command = [sys.executable, "-m", "plansmith.cli", "evaluate", *map(str, words)]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.stderr.count(": reused") == 4
    assert "starting" not in again.stderr
    assert again.stdout == first.stdout


MANY = " ".join(f"x{number}" for number in range(9))
BAD_PROBLEMS = {
    "no problems here": {},
    "p.pddl:3:16: undeclared predicate": {"p.pddl": COLOURS.replace("(on green blue)", "(above green blue)")},
    "more objects than the model knows names for": {"p.pddl": COLOURS.replace("blue)", f"blue {MANY})", 1)},
}


@pytest.mark.parametrize("message", BAD_PROBLEMS)
def test_evaluate_bad_problems_ends_with_code_2_before_anything_starts(
    message: str, run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in BAD_PROBLEMS[message].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(run.folder.rglob("*"))
    assert evaluate.main([str(run.folder), "--problems", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert sorted(run.folder.rglob("*")) == before


def test_evaluate_unknown_arm_names_the_nearest(run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main([str(run.folder), "--arm", "fase1"]) == 2
    assert "did you mean phase1?" in capsys.readouterr().err


def test_evaluate_unfinished_arm_names_the_finished_ones(
    run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.folder, tmp_path / "whole")
    for stage in ("stage2_2", "final_policy"):
        shutil.rmtree(tmp_path / "whole" / "artifacts" / run.artifacts[stage].folder.name)
    assert evaluate.main([str(tmp_path / "whole")]) == 2
    message = capsys.readouterr().err
    assert "the arm final is not finished" in message
    assert "expected: an arm whose policy is finished: untrained, phase1, iteration_1\n" in message


@pytest.mark.faults
def test_agents_of_a_killed_ray_end_as_well(killed_session: int) -> None:
    assert survivors(killed_session) == []  # a minute after they were left alone, which other tests have used

"""The whole pipeline at its smallest, with real Ray, vLLM, DeepSpeed and Fast Downward: run, reused, killed, resumed.

Below it, the helpers of the stages with hand-written stand-ins for the engine and for Ray.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from answered_ray import Answer, AnsweredRay
from conftest import BLOCKS, BLOCKS_TEXT, NAMES, SUSSMAN_PLAN, give_command, random_problem, sussman
from processes import RAY_AGENTS, survivors
from safetensors import safe_open

from actors.policy import Generation, SamplingSettings
from pipelines import evaluate, pddl_instruct
from pipelines.parts.evaluation_options import EXAMPLES
from pipelines.parts.evaluation_stages import CHOSEN, best_iteration, chosen_iteration, is_still_gaining, keep_policy
from pipelines.parts.rollout_stages import (
    GenerationSettings,
    RollOutSettings,
    Sampling,
    problems_of_iteration,
    roll_out_settings,
    sample_rollouts,
)
from pipelines.parts.training_stages import in_curriculum_order
from pipelines.parts.workers import MODEL, PROBE, Probe, Workers, _seeds_of, policy_version
from plansmith.config.loading import load_preset
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import EngineNumerics, ModelConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance, complete_artifacts
from plansmith.data.rows import (
    ExampleRow,
    FinalPlanRow,
    FinishReason,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    SolvedProblemRow,
    Split,
    StepLossRow,
    VerdictRow,
)
from plansmith.errors import PlansmithError
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.models import load_tokenizer, make_model
from plansmith.learning.tokenizer import encode, word_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import CompactRendering

COMPACT = CompactRendering()
LONG_PROBLEM = print_problem(random_problem(8, 0))
ROOT = Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "pipelines" / "pddl_instruct.py"
SMOKE = load_preset("smoke", ROOT / "pipelines" / "presets")
ARMS = ["untrained", "phase1", "iteration_1", "iteration_2", "final"]
ERROR_CLASSES = {"precondition_violation", "incorrect_effect", "goal_not_achieved", "invalid_action_sequence"}


# --- the run


@dataclass
class FinishedRun:
    """A run folder and what the command said."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = complete_artifacts(self.folder / "artifacts")
        self.artifacts = {artifact.manifest.provenance.stage: artifact for artifact in found}


def start(runs: Path, name: str) -> subprocess.Popen[str]:
    """Start the preset smoke in a session of its own, which all its processes share."""
    command = [sys.executable, str(PIPELINE), "--preset", "smoke", "--runs", str(runs), "--name", name]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(runs: Path, name: str) -> FinishedRun:
    process = start(runs, name)
    try:
        out, err = process.communicate()
    finally:
        process.kill()  # its session is its own: an interrupt of the tests does not reach it
    assert process.returncode == 0, err
    return FinishedRun(runs / name, subprocess.CompletedProcess(process.args, 0, out, err))


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
    assert len({probe.token_ids for probe in probes}) == 1
    assert len({probe.logprobs for probe in probes}) == len(probes)


def manifests(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes when an artifact is written again, by its folder."""
    stats = {path.parent.name: path.stat() for path in (folder / "artifacts").glob("*/manifest.json")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items() if not name.endswith(".partial")}


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


def kill_after(stage: str, runs: Path, name: str) -> int:
    """Start a run, kill its driver as soon as a stage is finished, and return the session of its processes."""
    process = start(runs, name)
    try:
        while not any(folder.startswith(f"{stage}-") for folder in manifests(runs / name)) and process.poll() is None:
            time.sleep(0.05)
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    return process.pid


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
    shutil.copytree(run.folder, folder / "runs" / "demo")
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
    words = [folder / "runs" / "demo", "--arm", "phase1", "--problems", folder / "my-problems", "--out", out]
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
    tried = complete_artifacts(folder / "runs" / "demo" / "evaluations")
    [problems] = [artifact for artifact in tried if "read_problems" in artifact.folder.name]
    prompted = {row.problem_id: row.problem_pddl for row in problems.rows(ProblemRow)}
    assert not {"red", "green", "blue"} & set(prompted["colours"].replace("(", " ").replace(")", " ").split())

    command = [sys.executable, str(ROOT / "pipelines" / "evaluate.py"), *map(str, words)]
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


# --- parts, with stand-ins


SOLVED = [SolvedProblemRow(f"p{i}", "3 blocks", "", "", ("(a)",)) for i in range(5)]


def context_of(tmp_path: Path, resources: Resources, settings: Any, **inputs: Artifact) -> StageContext[Any]:
    stage = Stage(name="roll_out_1", run=lambda _: None, settings=settings, seed=3)
    return StageContext(stage, inputs, ArtifactWriter(tmp_path / "out", stage.name, stage.key), resources)


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


@pytest.mark.parametrize(
    ("number", "count", "expected"),
    [(0, 1, [10, 11, 20, 21, 30, 31]), (0, 2, [10, 11, 30, 31]), (1, 2, [20, 21]), (3, 4, [])],
)
def test_seeds_of_an_engine_are_those_of_its_prompts(number: int, count: int, expected: list[int]) -> None:
    assert _seeds_of([10, 11, 20, 21, 30, 31], 2, number, count) == expected


@dataclass
class StandInEngine:
    """Answers each completion with its prompt's first token and its seed."""

    version: str
    calls: list[tuple[list[int], list[int]]] = field(default_factory=list)

    @property
    def generate(self) -> Any:
        """Return something with `remote`, as the method of a Ray actor."""
        engine = self

        class Method:
            @staticmethod
            def remote(prompts: Any, sampling: SamplingSettings, *, seeds: list[int], description: str | None) -> Any:
                engine.calls.append(([prompt[0] for prompt in prompts], seeds))
                n = sampling.n
                return Answer(
                    [
                        [Generation((prompt[0], seeds[i * n + k]), (), "stop", engine.version) for k in range(n)]
                        for i, prompt in enumerate(prompts)
                    ]
                )

        return Method


class WorkersWithoutRay(Workers):
    """Workers whose remote calls are already answered."""

    def __init__(
        self, config: PddlInstructConfig, folder: Path, engines: Sequence[StandInEngine], version: str
    ) -> None:
        super().__init__(config, folder)
        self._policies, self._policy_version = list(engines), version

    def ray(self) -> Any:
        return AnsweredRay


SAMPLED = SamplingSettings(temperature=1.0, max_new_tokens=8, n=2, stop_token_ids=())


@pytest.mark.parametrize("n_engines", [1, 2, 3])
def test_generate_gives_each_prompt_its_own_completions_however_many_engines(tmp_path: Path, n_engines: int) -> None:
    engines = [StandInEngine("v1") for _ in range(n_engines)]
    workers = WorkersWithoutRay(SMOKE, tmp_path, engines, "v1")
    seeds = [10, 11, 20, 21, 30, 31, 40, 41, 50, 51]
    groups = workers.generate([[1], [2], [3], [4], [5]], SAMPLED, seeds=seeds, description="")
    assert [[g.token_ids for g in group] for group in groups] == [[(i, 10 * i), (i, 10 * i + 1)] for i in range(1, 6)]
    assert sorted(prompt for engine in engines for prompts, _ in engine.calls for prompt in prompts) == [1, 2, 3, 4, 5]


def test_generate_with_an_engine_left_behind_is_refused(tmp_path: Path) -> None:
    workers = WorkersWithoutRay(SMOKE, tmp_path, [StandInEngine("v2"), StandInEngine("v1")], "v2")
    with pytest.raises(PlansmithError, match="other weights") as caught:
        workers.generate([[1], [2]], SAMPLED, seeds=[1, 2, 3, 4], description="")
    assert (caught.value.got, caught.value.expected) == ("v1", "v2")


@dataclass
class StandInResources(Resources):
    """A policy that answers VALID to everything, until it breaks."""

    n_decoded: int = 256
    breaks_at_call: int | None = None
    answer: tuple[int, ...] = (1,)
    loaded: list[str] = field(default_factory=list)
    seeds_of_calls: list[list[int]] = field(default_factory=list)

    def load_policy(self, policy: Artifact, numerics: EngineNumerics) -> None:
        self.loaded.append(policy_version(policy))

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, *, seeds: list[int], description: str
    ) -> list[list[Generation]]:
        if len(self.seeds_of_calls) == self.breaks_at_call:
            raise InterruptedError
        self.seeds_of_calls.append(seeds)
        one = Generation(self.answer, (-0.5,) * len(self.answer), "stop", self.loaded[-1])
        return [[one] * sampling.n for _ in prompts]


def artifact_of(root: Path, name: str, key: str, *rows: Any) -> Artifact:
    """Return an artifact with one table of the given rows."""
    writer = ArtifactWriter(root, name, key)
    writer.write_rows(rows, type(rows[0]))
    return writer.finish(Provenance(name, key, {}, {}, 0), wall_time_s=0.0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return the artifact of an untrained model."""
    writer = ArtifactWriter(tmp_path_factory.mktemp("policy"), "phase1", "policykey" * 4)
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=16)
    make_model(writer.path(MODEL), word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=64, seed=0)
    return writer.finish(Provenance("phase1", "policykey" * 4, {}, {}, 0), wall_time_s=0.0)


def problem_rows(count: int) -> list[SolvedProblemRow]:
    texts = [print_problem(random_problem(3, seed)) for seed in range(count)]
    return [SolvedProblemRow(f"p{i}", "3 blocks", BLOCKS_TEXT, text, ("(a)",)) for i, text in enumerate(texts)]


TWO_EACH = Sampling(n_rollouts=2, temperature=1.0, max_new_tokens=8, iteration=1, prompting="compact")


def sampled(
    tmp_path: Path, resources: StandInResources, policy: Artifact, rows: Sequence[SolvedProblemRow], **changes: Any
) -> StageContext[GenerationSettings]:
    """Return the context after sampling two rollouts of each row, or as the changed settings say."""
    window = changes.pop("max_model_len", 512)
    sampling, engine = TWO_EACH.model_copy(update=changes), EngineNumerics(max_model_len=window)
    settings = GenerationSettings(sampling=sampling, engine=engine)
    context = context_of(tmp_path, resources, settings, policy=policy)
    sample_rollouts(context, rows, description="")
    return context


def test_sample_rollouts_works_in_chunks_that_fill_the_engine_twice(tmp_path: Path, policy: Artifact) -> None:
    resources = StandInResources(n_decoded=2)
    context = sampled(tmp_path, resources, policy, problem_rows(5))
    assert [len(seeds) for seeds in resources.seeds_of_calls] == [4, 4, 2]  # 2 problems, 2 problems, 1 problem
    rows = context.output.shards("rows", RolloutRow).merged_rows()
    assert [row.rollout_id for row in rows] == [f"p{i}-01-{k}" for i in range(5) for k in range(2)]
    assert {row.policy_version for row in rows} == {policy_version(policy)}
    assert len({row.seed for row in rows}) == 10


def test_sample_rollouts_killed_between_chunks_asks_again_only_for_the_rest(tmp_path: Path, policy: Artifact) -> None:
    whole, broken, again = (StandInResources(2, breaks_at_call=call) for call in (None, 2, None))
    sampled(tmp_path / "whole", whole, policy, problem_rows(5))
    with pytest.raises(InterruptedError):
        sampled(tmp_path, broken, policy, problem_rows(5))
    context = sampled(tmp_path, again, policy, problem_rows(5))
    assert broken.seeds_of_calls + again.seeds_of_calls == whole.seeds_of_calls
    assert len(context.output.shards("rows", RolloutRow).merged_rows()) == 10


def test_sample_rollouts_without_a_valid_one_spends_the_resample_budget(tmp_path: Path, policy: Artifact) -> None:
    context = sampled(tmp_path, StandInResources(), policy, problem_rows(2), resample_budget=3)
    rows = context.output.shards("rows", RolloutRow).merged_rows()
    assert [row.rollout_id for row in rows] == [f"p{i}-01-{k}" for i in range(2) for k in range(5)]
    assert len({row.seed for row in rows}) == 10


def test_sample_rollouts_with_a_valid_one_samples_no_more(tmp_path: Path, policy: Artifact) -> None:
    text = print_problem(sussman().problem)
    row = SolvedProblemRow("p", "3 blocks", BLOCKS_TEXT, text, ("(a)",))
    right = COMPACT.write_chain(chain_of_plan(sussman(), SUSSMAN_PLAN))
    resources = StandInResources(answer=tuple(encode(load_tokenizer(str(policy.path(MODEL))), right)))
    context = sampled(tmp_path, resources, policy, [row], resample_budget=3)
    assert len(context.output.shards("rows", RolloutRow).merged_rows()) == 2


def test_sample_rollouts_prompt_that_fills_the_window_gets_an_empty_completion(
    tmp_path: Path, policy: Artifact, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [problem_rows(1)[0], replace(problem_rows(1)[0], problem_id="long", problem_pddl=LONG_PROBLEM)]
    context = sampled(tmp_path, StandInResources(), policy, rows, max_model_len=40)
    found = context.output.shards("rows", RolloutRow).merged_rows()
    assert [(row.problem_id, row.finish_reason) for row in found] == [
        *[("long", FinishReason.NO_ROOM)] * 2,
        *[("p0", FinishReason.STOP)] * 2,
    ]
    assert [len(row.token_ids) for row in found] == [0, 0, 1, 1]
    assert "1 of 2 prompts do not fit" in caplog.text


# --- which iterations, which policy


def probes(root: Path, *accuracies: float) -> dict[str, Artifact]:
    """Return the judged probe sets, of four problems each, of the policies 0, 1, ..."""
    return {
        f"judge_probe_{t}": artifact_of(root, f"judge_probe_{t}", f"{t}" * 40, *(
            VerdictRow(f"r{i}", f"p{i}", t, "v", "valid" if i < 4 * accuracy else "malformed_plan", "", None, None, (),
                       (), "")
            for i in range(4)
        ))
        for t, accuracy in enumerate(accuracies)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("accuracies", "patience", "expected"),
    [
        ([0.5], 1, True),
        ([0.5, 0.75], 1, True),
        ([0.5, 0.5], 1, False),
        ([0.5, 0.5], 2, True),
        ([0.5, 0.25, 0.5], 2, False),
        ([0.5, 0.25, 0.75], 2, True),
    ],
)
def test_is_still_gaining_stops_after_so_many_iterations_without_a_gain(
    tmp_path: Path, accuracies: list[float], patience: int, expected: bool
) -> None:
    done = probes(tmp_path, *accuracies)
    assert is_still_gaining(done, iteration=len(accuracies), patience=patience) is expected


def test_best_iteration_of_equal_ones_is_the_first() -> None:
    assert best_iteration({0: 0.5, 1: 0.75, 2: 0.75, 3: 0.25}) == 1


def keeping(tmp_path: Path, **inputs: Artifact) -> Artifact:
    """Return what the stage `final_policy` makes of its inputs."""
    stage = Stage(name="final_policy", run=keep_policy)
    writer = ArtifactWriter(tmp_path / "kept", stage.name, stage.key)
    keep_policy(StageContext(stage, inputs, writer, Resources()))
    return writer.finish(Provenance(stage.name, stage.key, {}, {}, 0), wall_time_s=0.0)


def policies(root: Path, count: int) -> dict[str, Artifact]:
    """Return artifacts of `count` policies, told apart by their probes."""
    found = {}
    for t in range(count):
        writer = ArtifactWriter(root, f"stage2_{t}", f"{t}" * 40)
        writer.path(MODEL).mkdir()
        (writer.path(MODEL) / "config.json").write_text(f'{{"t": {t}}}', encoding="utf-8")
        Probe((t,), (0.0,)).write(writer.path(PROBE))
        found[f"policy_{t}"] = writer.finish(Provenance("stage2", f"{t}" * 40, {}, {}, 0), wall_time_s=0.0)
    return found


def test_keep_policy_without_a_probe_set_keeps_the_last(tmp_path: Path) -> None:
    kept = keeping(tmp_path, **policies(tmp_path, 3))
    assert chosen_iteration(kept) == 2
    assert json.loads((kept.path(MODEL) / "config.json").read_text(encoding="utf-8")) == {"t": 2}
    assert Probe.read(kept.path(PROBE)).token_ids == (2,)


def test_keep_policy_with_a_probe_set_keeps_the_best(tmp_path: Path) -> None:
    judged = {name.removeprefix("judge_"): artifact for name, artifact in probes(tmp_path, 0.25, 1.0, 0.5).items()}
    kept = keeping(tmp_path, **policies(tmp_path, 3), **judged)
    assert chosen_iteration(kept) == 1
    assert json.loads((kept.path(MODEL) / "config.json").read_text(encoding="utf-8")) == {"t": 1}
    record = json.loads(kept.path(CHOSEN).read_text(encoding="utf-8"))
    assert record["probe_accuracy"] == {"0": 0.25, "1": 1.0, "2": 0.5}


def test_sample_rollouts_with_nothing_left_starts_no_engine(tmp_path: Path, policy: Artifact) -> None:
    first, second = StandInResources(), StandInResources()
    for resources in (first, second):
        sampled(tmp_path, resources, policy, problem_rows(2))
    assert first.loaded == [policy_version(policy)]
    assert second.loaded == []


def test_probe_survives_its_file(tmp_path: Path) -> None:
    probe = Probe((1, 2, 3), (-0.5, -1.25, 0.0))
    probe.write(tmp_path / PROBE)
    assert Probe.read(tmp_path / PROBE) == probe
    assert replace(probe, token_ids=(1, 2, 4)) != probe


def test_encoded_examples_end_with_the_end_mark_but_for_openings(tmp_path: Path) -> None:
    tokenizer = word_tokenizer([BLOCKS], NAMES)
    shape = ModelConfig(hidden_size=64, n_layers=1, n_heads=1, n_kv_heads=1, intermediate_size=64)
    make_model(tmp_path / "model", tokenizer, shape, max_position_embeddings=64, seed=0)
    texts = {"plan_chain": "do: pick-up a", "plan_opening": "do: stack a b"}
    rows = [ExampleRow(kind, "p", kind, None, "goal: on? a b plan:", text) for kind, text in texts.items()]
    encoder = ExampleEncoder(str(tmp_path / "model"))
    chain, opening = (encoder.encode(row) for row in rows)
    assert tokenizer.decode(chain.token_ids) == "goal: on? a b plan: do: pick-up a <end>"
    assert tokenizer.decode(opening.token_ids) == "goal: on? a b plan: do: stack a b"
    assert opening.columns["nll_weight"][-4:].tolist() == [1.0] * 4


def test_curriculum_holds_every_sequence_and_depends_on_the_seed_alone() -> None:
    order, lengths = range(58, 0, -1), [0, *range(2, 60)]
    ordered = in_curriculum_order(order, lengths, seed=3)
    assert sorted(ordered) == list(range(1, 59))
    assert ordered == in_curriculum_order(order, lengths, seed=3) != in_curriculum_order(order, lengths, seed=4)


def test_curriculum_begins_from_short_to_long_and_goes_on_with_a_mixture() -> None:
    lengths = list(range(2, 402))
    ordered = [lengths[place] for place in in_curriculum_order(range(400), lengths, seed=0)]
    assert ordered[:200] == sorted(ordered[:200])
    assert min(ordered[-40:]) < 100 < 300 < max(ordered[-40:])  # the last tenth has short and long ones


# --- at last


def test_agents_of_a_killed_ray_end_as_well(killed_session: int) -> None:
    assert survivors(killed_session) == []  # a minute after they were left alone, which other tests have used

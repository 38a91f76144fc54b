"""What finished stages measured: worked out by hand, and the same as the report says of the same artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCKS_TEXT

from pipelines.pddl_instruct import PIPELINE
from plansmith.ablation.seeds import seeds_results
from plansmith.ablation.variants import ablation_results
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.rows import (
    FinalPlanRow,
    FinishReason,
    JudgedStepRow,
    MetricRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    StepLossRow,
    VerdictRow,
    VerificationRow,
)
from plansmith.errors import ArtifactError
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.validation import Verdict
from plansmith.report.arms import after_turns, evaluated_problems
from plansmith.report.finished_stages import FinishedStage, RunSoFar, find_rows
from plansmith.report.measurements import measurements_of
from plansmith.report.metric_list import METRICS, Measurement
from plansmith.report.results import Results
from plansmith.report.run_facts import WRITING
from plansmith.report.run_results import results_so_far

PROBLEM_TEXT = """(define (problem p) (:domain blocksworld) (:objects a b)
  (:init (ontable a) (ontable b) (clear a) (clear b) (handempty)) (:goal (on a b)))"""
SETTINGS = ["phase2.eta=1", "evaluation.n_failures_shown=0", "evaluation.feedback_turns=2", "name=by-hand"]
CONFIG = PIPELINE.settings("smoke", overrides=SETTINGS)
PROBING = ["phase2.eta=2", "phase2.patience=2", "problems.probe_share=0.2"]
CONFIGS = (PIPELINE.settings("smoke", overrides=PROBING), CONFIG)
DECLARED = {stage.name: stage for config in CONFIGS for stage in PIPELINE.stages(config)}
"""What the stages say of themselves: kind, iteration, labels, and what they read."""


# --- artifacts by hand


def write_artifact(root: Path, stage: str, *, files: Mapping[str, str] | None = None, **tables: Any) -> Artifact:
    """Write the artifact of a stage as the pipeline declares it: tables as (row type, rows), and small files."""
    writer = ArtifactWriter(root, stage, key_of(stage))
    for table, (row_type, rows) in tables.items():
        writer.write_rows(rows, row_type, table=table)
    for name, text in (files or {}).items():
        writer.path(name).parent.mkdir(exist_ok=True)
        writer.path(name).write_text(text, encoding="utf-8")
    declared, inputs, said = DECLARED.get(stage), {}, {}
    if declared is not None:
        inputs = {name: key_of(given.name) for name, given in declared.inputs.items()}
        said = {"kind": declared.kind, "iteration": declared.iteration, "labels": declared.labels}
    return writer.finish(Provenance(stage, key_of(stage), {}, inputs, 0, **said), wall_time_s=2.0)


def key_of(stage: str) -> str:
    return stage.encode().hex().ljust(64, "0")


def measured(artifact: Artifact, *others: Artifact) -> list[Measurement]:
    return measurements_of(FinishedStage(artifact, {found.key: found for found in others}))


def problem(problem_id: str, domain: str, level: str, split: str = "test") -> ProblemRow:
    return ProblemRow(problem_id, problem_id, domain, level, split, 2, BLOCKS_TEXT, PROBLEM_TEXT, "sampler")


def plan(problem_id: str, status: str = "solved") -> PlanRow:
    steps = ("(pick-up a)", "(stack a b)") if status == "solved" else ()
    return PlanRow(problem_id, "fd", status, steps, 2.0 if steps else None, 0.25, is_optimal=bool(steps))


def rollout(problem_id: str, n_tokens: int, reason: str = "stop", iteration: int = 0) -> RolloutRow:
    tokens = tuple(range(n_tokens))
    return RolloutRow(f"{problem_id}-r", problem_id, iteration, "v", "", "", (1,), tokens, (0.0,) * n_tokens, reason, 0)


def verdict(problem_id: str, error: ErrorClass | None, claimed: str | None = None, **more: Any) -> VerdictRow:
    row = VerdictRow(
        f"{problem_id}-r",
        problem_id,
        0,
        "v",
        Verdict.GOAL_NOT_REACHED if error else Verdict.VALID,
        "",
        error.value if error else None,
        None,
        (),
        ("(pick-up a)", "(stack a b)"),
        "",
        claimed_verdict=claimed,
        plan_cost=None if error else 2.0,
        progress=0.5 if error else 1.0,
    )
    return replace(row, **more)


PROBLEMS = [
    problem("p1", "blocksworld", "3 blocks"),
    problem("p2", "blocksworld", "4 blocks"),
    problem("p3", "ferry", "4 blocks"),
    problem("p4", "ferry", "4 blocks"),
    problem("d1", "blocksworld", "3 blocks", "d2"),
    problem("d2", "ferry", "3 blocks", "d2"),
]
EFFECT, GOAL = ErrorClass.INCORRECT_EFFECT, ErrorClass.GOAL_NOT_ACHIEVED
BEFORE = [verdict(f"p{i}", GOAL) for i in range(1, 5)]
AFTER = [
    verdict("p1", None, "VALID"),
    verdict("p2", EFFECT, "VALID"),
    verdict("p3", None, "INVALID"),
    verdict("p4", GOAL),
]
TRIED = [rollout("p1", 3), rollout("p2", 5, "length"), rollout("p3", 2), rollout("p4", 0, FinishReason.NO_ROOM)]


@dataclass
class Run:
    """A finished run that was written by hand: its artifacts, and what each stage read."""

    root: Path
    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def add(self, stage: str, **content: Any) -> None:
        self.artifacts[stage] = write_artifact(self.root, stage, **content)

    def measured(self, stage: str) -> list[Measurement]:
        return measured(self.artifacts[stage], *self.artifacts.values())

    def value(self, stage: str, name: str, /, **labels: str) -> float:
        [found] = [m.value for m in self.measured(stage) if m.name == name and dict(m.labels) == labels]
        return found


def metric_rows(stage: str, **values: float) -> tuple[type, list[MetricRow]]:
    return MetricRow, [MetricRow(stage, 0, "", "", name.replace("__", "/"), value) for name, value in values.items()]


def add_training(run: Run, stage: str, losses: list[float]) -> None:
    curve = [OptimisationStepRow(step, loss, 0.01 * step, 1.0) for step, loss in enumerate(losses, 1)]
    numbers = {"n_sequences": 4, "n_dropped": 1, "n_dropped_tokens": 9, "n_tokens": 70, "tokens_per_s": 35}
    metrics = metric_rows(stage, **{f"training__{name}": float(value) for name, value in numbers.items()})
    weights = {"model/model.safetensors": ""}
    run.add(stage, files=weights, curve=(OptimisationStepRow, curve), metrics=metrics)


def add_evaluation(run: Run, arm: str, verdicts: list[VerdictRow]) -> None:
    run.add(f"try_{arm}", rows=(RolloutRow, TRIED))
    run.add(f"judge_{arm}", rows=(VerdictRow, verdicts), steps=(JudgedStepRow, []))


def add_iteration(run: Run) -> None:
    """Add iteration 1: a valid rollout and one that fails with a goal that is not reached."""
    rolled = [rollout("d1", 4, iteration=1), rollout("d2", 6, "length", iteration=1)]
    run.add("roll_out_1", rows=(RolloutRow, rolled))
    verdicts = [verdict("d1", None, iteration=1), verdict("d2", GOAL, iteration=1)]
    run.add("judge_1", rows=(VerdictRow, verdicts), steps=(JudgedStepRow, []))
    steps = [("d1", 1.0), ("d1", 2.0), ("d2", 6.0)]
    reasoning = [StepLossRow(f"{p}-r", p, n, loss) for n, (p, loss) in enumerate(steps, 1)]
    finals = [
        FinalPlanRow("d1-r", "d1", 1, "v", (), 1, 0.5, 0.5),
        FinalPlanRow("d2-r", "d2", 1, "v", (), 0, None, 2.0),
    ]
    metrics = {"loss__reasoning_as_printed": 3.0, "loss__final_as_printed": 1.25, "rollout__valid_plan_rate": 0.5,
               "rollout__unreadable_rate": 0.25, "rollout__truncated_rate": 0.5, "rollout__tokens": 10.0}  # fmt: skip
    run.add(
        "build_datasets_1",
        reasoning_steps=(StepLossRow, reasoning),
        final_plans=(FinalPlanRow, finals),
        metrics=metric_rows("build_datasets_1", **metrics),
    )
    add_training(run, "stage1_1", [3.0, 2.0])
    add_training(run, "stage2_1", [1.0])
    add_evaluation(run, "iteration_1", AFTER)


def add_end(run: Run) -> None:
    """Add what comes after the loop; turn 1 solves p4, turn 2 does not solve p2."""
    chosen = {"chosen.json": json.dumps({"iteration": 1, "probe_accuracy": {}}), "model/config.json": "{}"}
    run.add("final_policy", files=chosen)
    stated = [("p1", 1, "VALID", 0.75), ("p2", 0, "VALID", 0.5), ("p3", 1, "INVALID", 0.25), ("p4", 0, None, None)]
    rows = [VerificationRow(f"{p}-r", p, None, v, said, v_hat, "") for p, v, said, v_hat in stated]
    run.add("verify_attempts", rows=(VerificationRow, rows))
    turns = [rollout("p2", 2, iteration=1), rollout("p4", 2, iteration=1), rollout("p2", 2, iteration=2)]
    verdicts = [verdict("p2", GOAL, iteration=1), verdict("p4", None, iteration=1), verdict("p2", GOAL, iteration=2)]
    run.add("feedback_turns", rows=(RolloutRow, turns), verdicts=(VerdictRow, verdicts))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(tmp_path_factory.mktemp("run") / "artifacts")
    made.add("sample_problems", rows=(ProblemRow, PROBLEMS))
    plans = [plan(row.problem_id) for row in PROBLEMS] + [plan("p9", "out_of_time")]
    plans[-2] = replace(plans[-2], held_out_after=1)
    made.add("synthesize_plans", rows=(PlanRow, plans))
    made.add("initial_policy", files={"model/config.json": "{}"})
    add_evaluation(made, "untrained", BEFORE)
    add_training(made, "phase1", [4.0, 3.5, 3.0])
    add_evaluation(made, "phase1", BEFORE)
    add_iteration(made)
    add_end(made)
    return made


# --- worked out by hand


def test_judged_attempts_accuracy_is_of_all_of_each_domain_each_level_and_both(run: Run) -> None:
    found = {
        tuple(sorted(m.labels.items())): m.value
        for m in run.measured("judge_iteration_1")
        if m.name == "evaluation/accuracy"
    }
    arm, level = ("arm", "iteration_1"), "level"
    assert found == {
        (arm,): 0.5,
        (arm, ("domain", "blocksworld")): 0.5,
        (arm, ("domain", "ferry")): 0.5,
        (arm, (level, "3 blocks")): 1.0,
        (arm, (level, "4 blocks")): pytest.approx(1 / 3),
        (arm, ("domain", "blocksworld"), (level, "3 blocks")): 1.0,
        (arm, ("domain", "blocksworld"), (level, "4 blocks")): 0.0,
        (arm, ("domain", "ferry"), (level, "4 blocks")): 0.5,
    }


def test_judged_attempts_errors_have_every_class_and_add_up_to_the_failures(run: Run) -> None:
    found = {
        c: run.value("judge_iteration_1", "evaluation/errors", arm="iteration_1", error_class=c) for c in ErrorClass
    }
    assert found == {
        ErrorClass.PRECONDITION_VIOLATION: 0,
        ErrorClass.INCORRECT_EFFECT: 1,
        ErrorClass.GOAL_NOT_ACHIEVED: 1,
        ErrorClass.INVALID_ACTION_SEQUENCE: 0,
    }
    of_level = {"arm": "iteration_1", "level": "4 blocks"}
    assert run.value("judge_iteration_1", "evaluation/problems", **of_level) == 3
    assert run.value("judge_iteration_1", "evaluation/errors", error_class="incorrect_effect", **of_level) == 1


def test_judged_attempts_own_verdicts_count_only_where_one_was_stated(run: Run) -> None:
    # p1 VALID and right, p2 VALID and wrong, p3 INVALID and wrong, p4 nothing
    assert run.value("judge_iteration_1", "evaluation/stated_verdicts", arm="iteration_1") == 3
    assert run.value("judge_iteration_1", "evaluation/self_verification", arm="iteration_1") == pytest.approx(1 / 3)
    assert "evaluation/self_verification" not in {m.name for m in run.measured("judge_untrained")}


def test_judged_attempts_progress_is_the_mean_over_attempts(run: Run) -> None:
    assert run.value("judge_iteration_1", "evaluation/mean_progress", arm="iteration_1") == 0.75


def test_judged_rollouts_rate_belongs_to_its_iteration(run: Run) -> None:
    rates = {tuple(m.labels.items()): (m.value, m.iteration) for m in run.measured("judge_1")
             if m.name == "rollout/valid_plan_rate"}  # fmt: skip
    assert rates[()] == (0.5, 1)
    assert rates[("domain", "blocksworld"),] == (1.0, 1)
    assert rates[("domain", "ferry"),] == (0.0, 1)
    assert run.value("judge_1", "rollout/errors", error_class="goal_not_achieved") == 1
    assert run.value("judge_1", "rollout/judged") == 2


def test_judged_probe_is_one_accuracy(run: Run, tmp_path: Path) -> None:
    judged = write_artifact(tmp_path, "judge_probe_2", rows=(VerdictRow, AFTER))
    found = measured(judged, run.artifacts["sample_problems"])
    named = {m.name: (m.value, m.iteration) for m in found}
    assert (named["probe/accuracy"], named["probe/problems"]) == ((0.5, 2), (4, 2))


def test_judged_rollouts_none_at_all_have_no_rate(run: Run, tmp_path: Path) -> None:
    judged = write_artifact(tmp_path, "judge_2", rows=(VerdictRow, []))
    found = measured(judged, run.artifacts["sample_problems"])
    assert {m.name for m in found} == {"stage/wall_time_s", "stage/rows"}


def test_losses_are_as_written_and_by_domain_level_and_error_class(run: Run) -> None:
    def loss(kind: str, **labels: str) -> float:
        return run.value("build_datasets_1", f"loss/{kind}_as_printed", **labels)

    assert (loss("reasoning"), loss("final")) == (3.0, 1.25)
    assert (loss("reasoning", domain="blocksworld"), loss("reasoning", domain="ferry")) == (1.5, 6.0)
    assert loss("reasoning", level="3 blocks") == 3.0
    assert (loss("final", error_class="valid"), loss("final", error_class="goal_not_achieved")) == (0.5, 2.0)
    assert run.value("build_datasets_1", "rollout/unreadable_rate") == 0.25


def test_generation_counts_tokens_and_what_was_cut_off(run: Run) -> None:
    stage = {"stage": "try_iteration_1"}
    assert run.value("try_iteration_1", "generation/tokens", **stage) == 10
    assert run.value("try_iteration_1", "generation/tokens_per_s", **stage) == 5.0  # in two seconds
    assert run.value("try_iteration_1", "generation/completions", **stage) == 4
    assert run.value("try_iteration_1", "generation/truncated_rate", **stage) == 0.25
    assert run.value("try_iteration_1", "generation/no_room_rate", **stage) == 0.25


def test_what_went_in_circles_counts_as_cut_off(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("try_iteration_1", rows=(RolloutRow, [rollout("p1", 3), rollout("p2", 5, FinishReason.REPETITION)]))
    assert run.value("try_iteration_1", "generation/truncated_rate", stage="try_iteration_1") == 0.5


def test_generation_of_a_resumed_stage_has_no_speed(tmp_path: Path) -> None:
    (tmp_path / f"roll_out_1-{b'roll_out_1'.hex()[:12]}.partial").mkdir()
    resumed = write_artifact(tmp_path, "roll_out_1", rows=(RolloutRow, TRIED))
    assert resumed.manifest.was_resumed
    names = {m.name for m in measured(resumed)}
    assert "generation/tokens" in names
    assert "generation/tokens_per_s" not in names


def test_optimisation_gives_its_curve_by_step_and_its_figures_once(run: Run) -> None:
    found = run.measured("stage1_1")
    losses = [(m.step, m.value, m.iteration, dict(m.labels)) for m in found if m.name == "train/loss"]
    labels = {"stage": "stage1_1"}
    assert losses == [(1, 3.0, 1, labels), (2, 2.0, 1, labels)]
    assert [m.value for m in found if m.name == "train/learning_rate"] == [0.01, 0.02]
    assert run.value("phase1", "training/steps", stage="phase1") == 3
    assert run.value("phase1", "training/last_loss", stage="phase1") == 3.0
    assert run.value("stage2_1", "training/n_dropped", stage="stage2_1") == 1


def test_problems_and_planner_outcomes_are_counted(run: Run) -> None:
    def drawn(split: str, domain: str, level: str) -> float:
        return run.value("sample_problems", "data/problems", split=split, domain=domain, level=level)

    assert (drawn("test", "ferry", "4 blocks"), drawn("d2", "ferry", "3 blocks")) == (2, 1)
    left_out = [m for m in run.measured("synthesize_plans") if m.name == "data/left_out"]
    assert [(m.value, dict(m.labels)) for m in left_out] == [
        (1, {"split": "d2", "domain": "ferry", "level": "3 blocks"})
    ]
    stage = {"stage": "synthesize_plans"}
    assert run.value("synthesize_plans", "planner/problems", status="solved", **stage) == 6
    assert run.value("synthesize_plans", "planner/problems", status="out_of_time", **stage) == 1
    assert run.value("synthesize_plans", "planner/solve_time_s", **stage) == 1.75


def test_verification_without_a_stated_verdict_is_wrong_and_has_no_brier(run: Run) -> None:
    stage = {"stage": "verify_attempts"}
    assert run.value("verify_attempts", "verification/accuracy", **stage) == 0.25
    # (1 - 0.75)^2, 0.5^2, (1 - 0.25)^2 over three plans
    assert run.value("verify_attempts", "verification/brier", **stage) == pytest.approx((0.0625 + 0.25 + 0.5625) / 3)


def test_every_stage_has_its_time_and_its_rows_and_a_training_one_its_version(run: Run) -> None:
    assert run.value("build_datasets_1", "stage/rows", stage="build_datasets_1", table="reasoning_steps") == 3
    version = run.artifacts["stage2_1"].key[:12]
    assert run.value("stage2_1", "policy/version", stage="stage2_1", policy_version=version) == 1
    assert run.value("final_policy", "loop/kept_iteration") == 1


def test_stage_that_declares_nothing_has_time_and_rows_only(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path, "polish_3", rows=(PlanRow, [plan("p1")]), files={"note.txt": "x"})
    found = [(m.name, m.value, m.iteration, dict(m.labels)) for m in measured(artifact)]
    assert found == [
        ("stage/wall_time_s", 2.0, 0, {"stage": "polish_3"}),
        ("stage/rows", 1.0, 0, {"stage": "polish_3", "table": "rows"}),
    ]


# --- agreement with the report


@pytest.fixture(scope="module")
def results(run: Run) -> Results:
    found = results_so_far(RunSoFar(PIPELINE.name, CONFIG, "smoke", run.artifacts))
    assert found is not None
    return found


def shown_arms(results: Results) -> Iterator[tuple[str, Any]]:
    """Yield the arms of the report with the name each is measured under; the final one is the iteration kept."""
    for name, arm in results.arms.items():
        yield "iteration_1" if name == "final" else name, arm


def test_figures_of_arms_are_those_of_the_report(run: Run, results: Results) -> None:
    compared = 0
    for name, arm in shown_arms(results):
        places = [("level", key, value) for key, value in arm.by_level.items()]
        places += [("domain", key, value) for key, value in arm.by_domain.items()]
        for label, place, figures in places:
            labels = {"arm": name, label: place}
            stage = f"judge_{name}"
            assert run.value(stage, "evaluation/accuracy", **labels) == pytest.approx(figures.accuracy)
            assert run.value(stage, "evaluation/problems", **labels) == figures.n
            assert run.value(stage, "evaluation/mean_progress", **labels) == pytest.approx(figures.mean_progress)
            for error in ErrorClass:
                value = run.value(stage, "evaluation/errors", error_class=error.value, **labels)
                assert value == figures.errors[error]
            compared += 1
    assert compared == 4 * 4  # untrained, phase1, iteration_1 and final, each with two levels and two domains


def test_figures_of_the_loop_are_those_of_the_report(run: Run, results: Results) -> None:
    assert (run.value("judge_1", "rollout/valid_plan_rate"),) == results.rollout_valid_rate
    assert (run.value("build_datasets_1", "loss/reasoning_as_printed"),) == results.losses.reasoning
    assert (run.value("build_datasets_1", "loss/final_as_printed"),) == results.losses.final
    turns = [run.value("feedback_turns", "feedback/accuracy", turn=str(x.turn)) for x in results.feedback_turns]
    assert turns == [x.accuracy for x in results.feedback_turns] == [0.5, 0.75, 0.75]
    calibration = results.arms["final"].calibration
    assert calibration is not None
    assert run.value("verify_attempts", "verification/brier", stage="verify_attempts") == calibration.brier


def test_curves_times_and_tokens_are_those_of_the_report(run: Run, results: Results) -> None:
    for curve in results.curves:
        stage = f"{curve.stage}_{curve.iteration}" if curve.iteration else curve.stage
        points = [(m.step, m.value) for m in run.measured(stage) if m.name == "train/loss"]
        assert points == list(zip(curve.steps, curve.losses, strict=True))
    assert {name: run.value(name, "stage/wall_time_s", stage=name) for name in results.time_s} == results.time_s
    for stage, tokens in results.tokens.items():
        name = "generation/tokens" if DECLARED[stage].kind in WRITING else "training/n_tokens"
        assert [m.value for m in run.measured(stage) if m.name == name] == [tokens]
    stages = {"untrained": "initial_policy", "phase1": "phase1", "iteration_1": "stage2_1", "final": "final_policy"}
    versions = {
        name: next(m.labels["policy_version"] for m in run.measured(stage) if m.name == "policy/version")
        for name, stage in stages.items()
    }
    assert versions == results.policy_versions


# --- names


def test_every_metric_of_finished_stages_is_measured_in_some_stage(run: Run, tmp_path: Path) -> None:
    measured = {m.name for stage in run.artifacts for m in run.measured(stage)} | {"probe/accuracy", "probe/problems"}
    others = {name for name in METRICS if name.startswith(("formalisation/", "preference/"))}  # of nl_pddl_bench
    finished = {name for name, metric in METRICS.items() if metric.source != "running process"}
    assert finished - others == measured


def test_measurement_of_an_unknown_name_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no metric is named 'train/los'"):
        Measurement("train/los", 1.0)


def test_measurement_with_a_label_its_metric_lacks_is_a_bug() -> None:
    with pytest.raises(ValueError, match=r"probe/accuracy has labels \(\), not \['arm'\]"):
        Measurement("probe/accuracy", 1.0, labels={"arm": "final"})


def test_measurements_without_an_input_they_need_say_which(run: Run) -> None:
    with pytest.raises(ArtifactError, match="its input 'problems' is lacking"):
        measured(run.artifacts["judge_1"])


def test_find_rows_of_some_ids_and_of_none(tmp_path: Path) -> None:
    writer = ArtifactWriter(tmp_path, "s", "k" * 64)
    writer.write_rows([MetricRow(stage, 0, "", "", "x", 1.0) for stage in ("a", "b", "c")], MetricRow)
    artifact = writer.finish(Provenance("s", "k" * 64, {}, {}, 0), wall_time_s=0.0)
    assert [row["stage"] for row in find_rows(artifact, "stage", ["c", "a", "x"])] == ["a", "c"]
    assert find_rows(artifact, "stage", []) == []


def test_ablation_counts_the_last_attempt_of_the_turns_and_each_arm_once(run: Run) -> None:
    config = PIPELINE.settings("smoke", overrides=["phase2.eta=2", "ablation.eta_low=1", "evaluation.feedback_turns=2"])
    finished = RunSoFar("pddl_instruct", CONFIG, "smoke", run.artifacts)
    results = ablation_results(config, [("detailed", finished), ("binary", finished)], "")
    cells = {cell.arm: cell for cell in results.cells if cell.scope == "ferry"}
    assert list(cells) == [
        "baseline",
        "phase1",
        "binary_eta1",
        "detailed_eta1",
        "binary_eta2_turns",
        "detailed_eta2_turns",
    ]
    assert {arm: cell.mean for arm, cell in cells.items()} == {
        "baseline": 0.0, "phase1": 0.0, "binary_eta1": 0.5, "detailed_eta1": 0.5,
        "binary_eta2_turns": 1.0, "detailed_eta2_turns": 1.0,
    }  # fmt: skip
    arm = after_turns(finished)
    assert arm is not None
    after = {item.problem_id: item for item in evaluated_problems(arm)}
    assert list(after) == ["p1", "p2", "p3", "p4"]
    assert {problem_id: item.is_valid for problem_id, item in after.items()} == {
        "p1": True, "p2": False, "p3": True, "p4": True,
    }  # fmt: skip
    assert [after[problem_id].completion_tokens for problem_id in ("p1", "p2", "p4")] == [3, 2, 2]
    assert after["p2"].error_class is GOAL  # as in the last turn; at first its effects were wrong
    assert [(cell.arm, cell.iteration) for cell in results.iterations if cell.scope == "ferry"] == [
        ("binary_eta2", 1), ("detailed_eta2", 1),
    ]  # fmt: skip


def test_seeds_results_are_read_from_the_artifacts_of_finished_runs(run: Run) -> None:
    runs = [
        RunSoFar("pddl_instruct", CONFIG.model_copy(update={"seed": seed}), "smoke", run.artifacts)
        for seed in (100, 101)
    ]
    results = seeds_results("smoke-seeds100-101", runs, "plansmith run")
    assert (results.seeds, results.arms[0], results.arms[-1]) == ((100, 101), "untrained", "final")
    one = results_so_far(runs[0])
    assert one is not None
    figures = one.arms["final"].all_levels
    final = next(cell for cell in results.of_level(results.levels[0]) if cell.arm == "final")
    assert [(seed.n, seed.n_forms, seed.n_valid) for seed in final.seeds] == [
        (figures.n, figures.n_forms, figures.n_valid)
    ] * 2
    headline, alone = results.tests[0], one.paired_tests[0]
    assert (headline.before, headline.after, headline.scope) == (alone.before, alone.after, alone.level)
    assert [test.test for test in headline.by_seed] == [alone.test] * 2
    assert "seed" not in results.config and "phase1" in results.config

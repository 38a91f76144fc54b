"""Evaluating a policy on Dtest, and the report of a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.parts.feedback_stages import Sampling, sample_rollouts
from pipelines.parts.problem_stages import solved_problems
from pipelines.parts.workers import policy_version
from plansmith.config.models import PddlInstructConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import MetricRow, OptimisationStepRow, PlanRow, ProblemRow, RolloutRow, Split, VerdictRow
from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.evaluation.judging import attempt_example
from plansmith.evaluation.metrics import EvaluatedProblem, compare_arms, summarise_arm
from plansmith.evaluation.results import AttemptExample, Losses, Results, TrainingCurve
from plansmith.evaluation.taxonomy import ErrorClass
from plansmith.stages import StageContext


@dataclass(frozen=True)
class Arm:
    """One evaluated policy: its name in the report, and the artifacts of its weights, completions and verdicts."""

    name: str
    policy: Artifact
    rollouts: Artifact
    verdicts: Artifact


def try_test_problems(context: StageContext, iteration: int) -> None:
    """Let the policy try every test problem once; nothing is fed back (section 5.3)."""
    config: PddlInstructConfig = context.resources.config
    rows = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.TEST)
    sampling = Sampling(1, config.evaluation.temperature, config.evaluation.max_new_tokens, iteration)
    sample_rollouts(context, rows, sampling, description=context.stage.name.replace("_", " "))


def evaluated_problems(arm: Arm, problems: Artifact, plans: Artifact) -> list[EvaluatedProblem]:
    """Return the attempts of one arm with the facts of their problems."""
    problem_of = {row.problem_id: row for row in problems.rows(ProblemRow)}
    plan_of = {row.problem_id: row for row in plans.rows(PlanRow)}
    rollouts = {row.rollout_id: row for row in arm.rollouts.rows(RolloutRow)}
    return [
        EvaluatedProblem(
            problem_id=verdict.problem_id,
            canonical_form=problem_of[verdict.problem_id].canonical_form,
            domain=problem_of[verdict.problem_id].domain,
            level=problem_of[verdict.problem_id].level,
            is_valid=verdict.verdict == "valid",
            error_class=ErrorClass(verdict.error_class) if verdict.error_class else None,
            plan_length=len(verdict.plan),
            planner_plan_length=len(plan_of[verdict.problem_id].plan),
            completion_tokens=len(rollouts[verdict.rollout_id].token_ids),
        )
        for verdict in arm.verdicts.rows(VerdictRow)
    ]


def results_of_run(
    config: PddlInstructConfig, preset: str, arms: Sequence[Arm], artifacts: Mapping[str, Artifact]
) -> Results:
    """Return everything the report says about a run whose stages are complete."""
    problems, plans = artifacts["sample_problems"], artifacts["synthesize_plans"]
    evaluated = {arm.name: evaluated_problems(arm, problems, plans) for arm in arms}
    primary = config.problems.primary_level
    levels = sorted({item.level for item in evaluated[arms[0].name]}, key=lambda level: level != primary)
    metrics = [
        row
        for t in range(1, config.phase2.eta + 1)
        for row in artifacts[f"build_datasets_{t}"].rows(MetricRow, "metrics")
    ]

    def by_iteration(name: str) -> tuple[float, ...]:
        return tuple(row.value for row in metrics if row.name == name)

    return Results(
        run_name=config.name,
        preset=preset,
        seed=config.seed,
        primary_level=primary,
        arms={name: summarise_arm(name, items, primary_level=primary) for name, items in evaluated.items()},
        paired_tests=tuple(
            compare_arms(before, "final", level, evaluated_before=evaluated[before], evaluated_after=evaluated["final"])
            for before in ("phase1", "untrained")
            for level in levels
        ),
        losses=Losses(
            by_iteration("loss/reasoning_as_printed"), by_iteration("loss/final_as_printed"), _curves(artifacts)
        ),
        rollout_valid_rate=by_iteration("rollout/valid_plan_rate"),
        time_s={name: artifact.manifest.wall_time_s for name, artifact in artifacts.items()},
        tokens=_tokens(artifacts),
        policy_versions={arm.name: policy_version(arm.policy) for arm in arms},
        config=config.model_dump(mode="json"),
        versions=dict(artifacts["phase1"].manifest.provenance.tool_versions),
        command=shlex.join(["plansmith", "run", "pddl_instruct", "--preset", preset, "--seed", str(config.seed)]),
        failures=tuple(
            _shown(config, arms[-1], problems, plans, is_valid=False, count=config.evaluation.n_failures_shown)
        ),
        solved=next(iter(_shown(config, arms[-1], problems, plans, is_valid=True, count=1)), None),
    )


def _curves(artifacts: Mapping[str, Artifact]) -> tuple[TrainingCurve, ...]:
    curves = []
    for name, artifact in artifacts.items():
        stage, _, iteration = name.partition("_")
        if stage in ("phase1", "stage1", "stage2"):
            rows = artifact.rows(OptimisationStepRow, "curve")
            number = int(iteration or 0)
            curves.append(TrainingCurve(stage, number, tuple(r.step for r in rows), tuple(r.loss for r in rows)))
    return tuple(curves)


def _tokens(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    """Return the tokens trained on or generated, by stage."""
    tokens = {}
    for name, artifact in artifacts.items():
        if name.startswith(("phase1", "stage1", "stage2")):
            rows = artifact.rows(MetricRow, "metrics")
            tokens[name] = int(next(row.value for row in rows if row.name == "training/n_tokens"))
        elif name.startswith(("roll_out", "try_")):
            tokens[name] = sum(len(row.token_ids) for row in artifact.rows(RolloutRow))
    return tokens


def _shown(
    config: PddlInstructConfig, arm: Arm, problems: Artifact, plans: Artifact, *, is_valid: bool, count: int
) -> list[AttemptExample]:
    """Return attempts to show, spread over the levels and error classes."""
    problem_of = {row.problem_id: row for row in problems.rows(ProblemRow)}
    plan_of = {row.problem_id: row.plan for row in plans.rows(PlanRow)}
    completions = {row.rollout_id: row.completion for row in arm.rollouts.rows(RolloutRow)}
    groups: dict[tuple[str, str | None], list[VerdictRow]] = {}
    for verdict in arm.verdicts.rows(VerdictRow):
        if (verdict.verdict == "valid") == is_valid:
            groups.setdefault((problem_of[verdict.problem_id].level, verdict.error_class), []).append(verdict)
    chosen = [group[place] for place in range(count) for group in groups.values() if place < len(group)][:count]
    return [
        attempt_example(
            problem_of[v.problem_id], completions[v.rollout_id], plan_of[v.problem_id], config.rendering, arm=arm.name
        )
        for v in chosen
    ]


def save_run_record(run_folder: Path, config: PddlInstructConfig, *, preset: str, commit: str) -> None:
    """Write what the run is before anything starts: resolved config, preset, commit."""
    record: dict[str, Any] = {"preset": preset, "commit": commit, "config": config.model_dump(mode="json")}
    make_folder(run_folder)
    with storage_errors(run_folder), atomic_file(run_folder / "run.json") as file:
        file.write((json.dumps(record, indent=2) + "\n").encode())

"""Evaluating a policy on Dtest, and the report of a run."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pipelines.parts.workers import MODEL, PROBE, policy_version
from plansmith.config.models import PddlInstructConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import (
    MetricRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    VerdictRow,
    VerificationRow,
)
from plansmith.data.storage import link_folder
from plansmith.evaluation.feedback_turns import FeedbackTurn, accuracy_by_turn
from plansmith.evaluation.finished_stages import judged_steps
from plansmith.evaluation.metrics import EvaluatedProblem, compare_arms, summarise_arm
from plansmith.evaluation.results import AttemptExample, Losses, Results, TrainingCurve
from plansmith.evaluation.shown_attempts import attempt_example
from plansmith.judging.taxonomy import ErrorClass
from plansmith.stages import StageContext
from plansmith.text.chains import VALID

CHOSEN = "chosen.json"
"""Which iteration's policy was kept, beside its weights."""


@dataclass(frozen=True)
class Arm:
    """One evaluated policy: its name in the report, and the artifacts of its weights, completions and verdicts."""

    name: str
    policy: Artifact
    rollouts: Artifact
    verdicts: Artifact


def is_still_gaining(done: Mapping[str, Artifact], *, iteration: int, patience: int) -> bool:
    """Return whether iteration t is worth its while: one of the last ``patience`` iterations was the best so far."""
    accuracies = probe_accuracies(done, range(iteration))
    return iteration - 1 - best_iteration(accuracies) < patience


def probe_accuracies(judged: Mapping[str, Artifact], iterations: Iterable[int]) -> dict[int, float]:
    """Return the share of the probe set that the policy of each iteration solved."""
    return {t: fmean(row.is_valid for row in judged[f"judge_probe_{t}"].rows(VerdictRow)) for t in iterations}


def best_iteration(accuracies: Mapping[int, float]) -> int:
    """Return the first iteration of the greatest accuracy."""
    return max(accuracies, key=lambda t: (accuracies[t], -t))


def keep_policy(context: StageContext[None]) -> None:
    """Keep the last policy, or with a probe set the best; its weights are linked, not copied."""
    policies = {int(name.removeprefix("policy_")): name for name in context.inputs if name.startswith("policy_")}
    probes = {f"judge_{name}": artifact for name, artifact in context.inputs.items() if name.startswith("probe_")}
    accuracies = probe_accuracies(probes, [int(name.removeprefix("judge_probe_")) for name in probes])
    chosen = best_iteration(accuracies) if accuracies else max(policies)
    source = context.inputs[policies[chosen]]
    link_folder(source.path(MODEL), context.output.path(MODEL))
    shutil.copy(source.path(PROBE), context.output.path(PROBE))
    record = {"iteration": chosen, "probe_accuracy": accuracies}
    context.output.path(CHOSEN).write_text(json.dumps(record), encoding="utf-8")


def chosen_iteration(kept: Artifact) -> int:
    """Return the iteration whose policy was kept; 0 is the policy before the loop."""
    return int(json.loads(kept.path(CHOSEN).read_text(encoding="utf-8"))["iteration"])


def evaluated_problems(
    arm: Arm, problems: Artifact, plans: Artifact, *, verification: Artifact | None = None
) -> list[EvaluatedProblem]:
    """Return the attempts of one arm with the facts of their problems; ``verification`` has the arm's v_hat."""
    problem_of = {row.problem_id: row for row in problems.rows(ProblemRow)}
    plan_of = {row.problem_id: row for row in plans.rows(PlanRow)}
    rollouts = {row.rollout_id: row for row in arm.rollouts.rows(RolloutRow)}
    v_hats = {row.example_id: row.v_hat for row in verification.rows(VerificationRow)} if verification else {}
    evaluated = []
    for verdict in arm.verdicts.rows(VerdictRow):
        problem, planned = problem_of[verdict.problem_id], plan_of[verdict.problem_id]
        stated = verdict.claimed_verdict
        evaluated.append(
            EvaluatedProblem(
                problem_id=verdict.problem_id,
                canonical_form=problem.canonical_form,
                domain=problem.domain,
                level=problem.level,
                is_valid=verdict.is_valid,
                error_class=ErrorClass(verdict.error_class) if verdict.error_class else None,
                plan_length=len(verdict.plan),
                planner_plan_length=len(planned.plan),
                completion_tokens=len(rollouts[verdict.rollout_id].token_ids),
                plan_cost=verdict.plan_cost,
                planner_cost=planned.cost,
                is_planner_optimal=planned.is_optimal,
                progress=verdict.progress,
                stated_verdict=None if stated is None else stated == VALID,
                v_hat=v_hats.get(verdict.rollout_id),
            )
        )
    return evaluated


def arms_of(stages: Mapping[str, tuple[str, str]], artifacts: Mapping[str, Artifact]) -> list[Arm]:
    """Return the arms that were run; an iteration that was not needed is none."""
    return [
        Arm(name, artifacts[policy], artifacts[f"try_{evaluation}"], artifacts[f"judge_{evaluation}"])
        for name, (policy, evaluation) in stages.items()
        if policy in artifacts
    ]


def results_of_run(
    config: PddlInstructConfig, preset: str, arms: Sequence[Arm], artifacts: Mapping[str, Artifact]
) -> Results:
    """Return everything the report says about a run whose stages are complete."""
    problems, plans = artifacts["sample_problems"], artifacts["synthesize_plans"]
    verification = artifacts["verify_attempts"]
    evaluated = {
        arm.name: evaluated_problems(arm, problems, plans, verification=verification if arm.name == "final" else None)
        for arm in arms
    }
    primary = config.primary_level
    levels = sorted({item.level for item in evaluated[arms[0].name]}, key=lambda level: level != primary)
    datasets = [artifacts.get(f"build_datasets_{t}") for t in range(1, config.phase2.eta + 1)]
    metrics = [row for found in datasets if found is not None for row in found.rows(MetricRow, "metrics")]

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
            if before in evaluated
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
        versions=dict(artifacts["final_policy"].manifest.provenance.tool_versions),
        command=shlex.join(["plansmith", "run", "pddl_instruct", "--preset", preset, "--seed", str(config.seed)]),
        failures=tuple(_shown(arms[-1], problems, plans, is_valid=False, count=config.evaluation.n_failures_shown)),
        solved=next(iter(_shown(arms[-1], problems, plans, is_valid=True, count=1)), None),
        feedback_turns=_feedback_turns(config, arms[-1], artifacts),
    )


def _feedback_turns(
    config: PddlInstructConfig, final: Arm, artifacts: Mapping[str, Artifact]
) -> tuple[FeedbackTurn, ...]:
    if not config.evaluation.feedback_turns:
        return ()
    found = solved_at(artifacts["feedback_turns"], final.verdicts.rows(VerdictRow))
    return accuracy_by_turn(found, range(config.evaluation.feedback_turns + 1))


def solved_at(turns: Artifact, verdicts: Sequence[VerdictRow]) -> list[int | None]:
    """Return for each problem the turn whose plan was valid, None where none was; ``verdicts`` are those of turn 0."""
    found: dict[str, int | None] = {row.problem_id: 0 if row.is_valid else None for row in verdicts}
    for row in turns.rows(VerdictRow, "verdicts"):
        if row.is_valid:
            found[row.problem_id] = row.iteration
    return list(found.values())


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


def _shown(arm: Arm, problems: Artifact, plans: Artifact, *, is_valid: bool, count: int) -> list[AttemptExample]:
    """Return attempts to show, spread over the levels and error classes."""
    problem_of = {row.problem_id: row for row in problems.rows(ProblemRow)}
    plan_of = {row.problem_id: row.plan for row in plans.rows(PlanRow)}
    completions = {row.rollout_id: row.completion for row in arm.rollouts.rows(RolloutRow)}
    groups: dict[tuple[str, str | None], list[VerdictRow]] = {}
    for verdict in arm.verdicts.rows(VerdictRow):
        if verdict.is_valid == is_valid:
            groups.setdefault((problem_of[verdict.problem_id].level, verdict.error_class), []).append(verdict)
    chosen = [group[place] for place in range(count) for group in groups.values() if place < len(group)][:count]
    steps_of = judged_steps(arm.verdicts, [verdict.rollout_id for verdict in chosen])
    return [
        attempt_example(
            problem_of[v.problem_id],
            completions[v.rollout_id],
            v,
            steps_of[v.rollout_id],
            plan_of[v.problem_id],
            arm=arm.name,
        )
        for v in chosen
    ]

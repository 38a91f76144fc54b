"""What a finished stage measured, as plain numbers with names and labels: what every window of a run shows.

The figures of arms agree with the report's (`plansmith.evaluation.metrics`), whose inputs include the planner's plans;
here each stage is measured by itself, as soon as it is finished. Only the columns that are needed are read. Not here:
the list of names (`metric_list`), and where numbers go (`pipelines.parts.telemetry`, `plansmith watch`).
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from plansmith.data.artifacts import KEY_DIGITS, Artifact
from plansmith.data.rows import (
    FinalPlanRow,
    FinishReason,
    MetricRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    StepLossRow,
    VerdictRow,
    VerificationRow,
)
from plansmith.data.tables import read_arrow
from plansmith.evaluation.calibration import calibrate
from plansmith.evaluation.feedback_turns import accuracy_by_turn
from plansmith.evaluation.finished_stages import FinishedStage, places_of, read_columns
from plansmith.evaluation.metric_list import METRICS, Measurement, Metric, Source
from plansmith.evaluation.verdict_measurements import judged_attempts, judged_probe, judged_rollouts
from plansmith.pddl.validation import Verdict
from plansmith.text.chains import VALID as STATED_VALID

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["METRICS", "Measurement", "Metric", "Source", "iteration_of", "measurements_of"]

OBJECTIVES = {"phase1": "supervised", "stage1": "reasoning", "stage2": "final"}
"""The training stages, without the number of their iteration, and what each optimises."""

MAKES_WEIGHTS = ("initial_policy", *OBJECTIVES, "final_policy")


def measurements_of(stage_name: str, artifact: Artifact, inputs: Mapping[str, Artifact]) -> list[Measurement]:
    """Return what a finished stage measured; of a stage that nothing is known about, its time and its rows.

    Args:
        stage_name: as the pipeline names it, with the number of the iteration at its end if it has one.
        artifact: of the stage.
        inputs: the artifacts that it read, under the names it knows them by; some figures need them.

    Raises:
        ArtifactError: a table cannot be read, or an input that a figure needs is not given.
    """
    family, iteration = _FAMILY.sub("", stage_name), iteration_of(stage_name)
    stage = FinishedStage(stage_name, family, iteration, artifact, inputs)
    reader = _READERS.get(family)
    if reader is None and family.startswith("judge_"):
        reader = judged_attempts
    elif reader is None and family.startswith("try_"):
        reader = _generation
    return [*_of_every_stage(stage), *(reader(stage) if reader else ())]


def iteration_of(stage_name: str) -> int:
    """Return the number at the end of a stage's name, or 0: 2 of ``stage1_2``, 0 of ``phase1``."""
    found = _FAMILY.search(stage_name)
    return int(found[1]) if found else 0


_FAMILY = re.compile(r"_(\d+)$")


def _of_every_stage(stage: FinishedStage) -> list[Measurement]:
    """Return time and rows, and the version of the weights that the stage made."""
    manifest = stage.artifact.manifest
    found = [stage.measured("stage/wall_time_s", manifest.wall_time_s, stage=stage.name)]
    rows: Counter[str] = Counter()
    for name, entry in manifest.files.items():
        if entry.n_rows is not None:
            rows[name.split("/")[0].partition(".")[0]] += entry.n_rows
    found += [stage.measured("stage/rows", count, stage=stage.name, table=table) for table, count in rows.items()]
    if stage.family in MAKES_WEIGHTS:
        version = stage.artifact.key[:KEY_DIGITS]
        found.append(stage.measured("policy/version", 1, stage=stage.name, policy_version=version))
    return found


def _problems_drawn(stage: FinishedStage) -> list[Measurement]:
    columns = read_columns(stage.artifact, ProblemRow, "split", "domain", "level")
    counts = Counter(zip(*columns, strict=True))
    return [
        stage.measured("data/problems", count, split=split, domain=domain, level=level)
        for (split, domain, level), count in sorted(counts.items())
    ]


def _planner_outcomes(stage: FinishedStage) -> list[Measurement]:
    statuses, times_s = read_columns(stage.artifact, PlanRow, "status", "wall_time_s")
    return [
        stage.measured("planner/solve_time_s", sum(times_s), stage=stage.name),
        *(
            stage.measured("planner/problems", count, stage=stage.name, status=status)
            for status, count in sorted(Counter(statuses).items())
        ),
    ]


def _optimisation(stage: FinishedStage) -> list[Measurement]:
    """Return the curve of an optimisation, and the figures that the trainer wrote beside it."""
    objective = OBJECTIVES[stage.family]
    curve = stage.artifact.rows(OptimisationStepRow, "curve")
    columns = {
        "train/loss": [row.loss for row in curve],
        "train/learning_rate": [row.learning_rate for row in curve],
        "train/gradient_norm": [row.gradient_norm for row in curve],
    }
    labels = {"objective": objective}
    found = [
        Measurement(name, value, stage.iteration, labels, step=row.step)
        for name, values in columns.items()
        for row, value in zip(curve, values, strict=True)
    ]
    found.append(stage.measured("training/steps", len(curve), objective=objective))
    if curve:
        found.append(stage.measured("training/last_loss", curve[-1].loss, objective=objective))
    written = stage.artifact.rows(MetricRow, "metrics")
    return found + [stage.measured(row.name, row.value, objective=objective) for row in written]


def _generation(stage: FinishedStage) -> list[Measurement]:
    """Return how much a stage wrote and how fast; no speed of a resumed one, whose time is its last session's."""
    table = read_arrow(stage.artifact.path("rows.parquet"), RolloutRow, ["token_ids", "finish_reason"])
    reasons, manifest = table.column("finish_reason").to_pylist(), stage.artifact.manifest
    n_tokens = int(pc.sum(pc.list_value_length(table.column("token_ids"))).as_py() or 0)
    found = {"generation/tokens": float(n_tokens), "generation/completions": len(reasons)}
    if reasons:
        found["generation/truncated_rate"] = reasons.count(FinishReason.LENGTH) / len(reasons)
        found["generation/no_room_rate"] = reasons.count(FinishReason.NO_ROOM) / len(reasons)
    if manifest.wall_time_s > 0 and not manifest.was_resumed:
        found["generation/tokens_per_s"] = n_tokens / manifest.wall_time_s
    return [stage.measured(name, value, stage=stage.name) for name, value in found.items()]


def _losses(stage: FinishedStage) -> list[Measurement]:
    """Return equations 4 and 8 as printed, also by domain, level and class of error; and what could not be read."""
    wanted = ("loss/reasoning_as_printed", "loss/final_as_printed", "rollout/unreadable_rate")
    written = stage.artifact.rows(MetricRow, "metrics")
    found = [stage.measured(row.name, row.value) for row in written if row.name in wanted]
    place_of = places_of(stage.input("problems"))
    class_of = dict(zip(*read_columns(stage.input("verdicts"), VerdictRow, "rollout_id", "error_class"), strict=True))
    tables: list[tuple[str, type[DataclassInstance], str, str]] = [
        ("loss/reasoning_as_printed", StepLossRow, "step_loss", "reasoning_steps"),
        ("loss/final_as_printed", FinalPlanRow, "plan_loss", "final_plans"),
    ]
    for name, row_type, column, table in tables:
        groups: dict[tuple[str, str], list[float]] = defaultdict(list)
        columns = read_columns(stage.artifact, row_type, "rollout_id", "problem_id", column, table=table)
        for rollout_id, problem_id, loss in zip(*columns, strict=True):
            domain, level = place_of[problem_id]
            error_class = class_of[rollout_id] or Verdict.VALID
            for label in (("domain", domain), ("level", level), ("error_class", error_class)):
                groups[label].append(loss)
        found += [stage.measured(name, fmean(losses), **{key: value}) for (key, value), losses in groups.items()]
    return found


def _verification(stage: FinishedStage) -> list[Measurement]:
    """Return how often the stated verdicts are right, and how good the probability of VALID is."""
    columns = read_columns(stage.artifact, VerificationRow, "v", "stated_verdict", "v_hat")
    rows = list(zip(*columns, strict=True))
    found = {"verification/plans": float(len(rows))}
    if rows:
        right = sum(stated is not None and (stated == STATED_VALID) == bool(v) for v, stated, _ in rows)
        found["verification/accuracy"] = right / len(rows)
    pairs = [(bool(v), v_hat) for v, _, v_hat in rows if v_hat is not None]
    if pairs:
        found["verification/brier"] = calibrate(pairs).brier
    return [stage.measured(name, value, stage=stage.name) for name, value in found.items()]


def _feedback_turns(stage: FinishedStage) -> list[Measurement]:
    """Return the accuracy after each turn; turn 0 failed where there is a turn 1, because every failure has one."""
    tried = stage.input(f"tried_{_kept_iteration(stage.input('policy'))}")
    solved: dict[str, int | None] = dict.fromkeys(read_columns(tried, RolloutRow, "problem_id")[0], 0)
    columns = read_columns(stage.artifact, VerdictRow, "problem_id", "iteration", "verdict", table="verdicts")
    turns = sorted(zip(*columns, strict=True), key=lambda row: row[1])
    for problem_id, turn, verdict in turns:
        solved[problem_id] = turn if verdict == Verdict.VALID else None
    numbers = range(1 + max((turn for _, turn, _ in turns), default=0))
    found = accuracy_by_turn(list(solved.values()), numbers) if solved else ()
    return _generation(stage) + [stage.measured("feedback/accuracy", x.accuracy, turn=str(x.turn)) for x in found]


def _kept(stage: FinishedStage) -> list[Measurement]:
    return [stage.measured("loop/kept_iteration", _kept_iteration(stage.artifact))]


def _kept_iteration(kept: Artifact) -> int:
    return int(json.loads(kept.path("chosen.json").read_text(encoding="utf-8"))["iteration"])


_READERS: Mapping[str, Callable[[FinishedStage], list[Measurement]]] = {
    "sample_problems": _problems_drawn,
    "synthesize_plans": _planner_outcomes,
    "replan": _planner_outcomes,
    **dict.fromkeys(OBJECTIVES, _optimisation),
    "roll_out": _generation,
    "probe": _generation,
    "judge": judged_rollouts,
    "judge_probe": judged_probe,
    "build_datasets": _losses,
    "explain_plans": _verification,
    "verify_attempts": _verification,
    "feedback_turns": _feedback_turns,
    "final_policy": _kept,
}
"""How each kind of stage is read; those of arms (``try_ARM``, ``judge_ARM``) besides."""

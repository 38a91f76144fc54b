"""What a finished stage measured, as plain numbers with names and labels: what every window of a run shows.

Which reader a stage has is told by the kind that it declared, never by its name. Figures of arms and rollouts are those
of the report, made by the same functions (`arms`, `metrics`). Not here: the list of names (`metric_list`), and where
numbers go (`pipelines.run.telemetry`, `plansmith watch`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from plansmith.data.artifacts import KEY_DIGITS, WEIGHTS, StageKind
from plansmith.data.rows import (
    CUT,
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
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.validation import Verdict
from plansmith.report.arms import Arm, chosen_iteration, evaluated_problems
from plansmith.report.calibration import brier_score
from plansmith.report.direct_plans import plan_measurements
from plansmith.report.finished_stages import DomainLevel, FinishedStage, domain_levels_of, read_columns
from plansmith.report.formalisation_measurements import answer_measurements, pair_measurements, turn_measurements
from plansmith.report.metric_list import Measurement
from plansmith.report.metrics import summarise_level
from plansmith.report.results import IterationRollouts
from plansmith.report.run_facts import WRITING, n_tokens
from plansmith.report.run_results import accuracy_after_turns
from plansmith.text.chains import VALID as STATED_VALID

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ItemT = TypeVar("ItemT")


def measurements_of(stage: FinishedStage) -> list[Measurement]:
    """Return what a finished stage measured; of one that declares no kind, its time and its rows.

    Raises:
        ArtifactError: a table cannot be read, or an artifact that a figure needs is not there.
    """
    reader = _READERS.get(stage.provenance.kind)
    return [*_of_every_stage(stage), *(reader(stage) if reader else ())]


def _of_every_stage(stage: FinishedStage) -> list[Measurement]:
    """Return time and rows, and the version of the weights that the stage made."""
    manifest = stage.artifact.manifest
    found = [stage.measured("stage/wall_time_s", manifest.wall_time_s, stage=stage.name)]
    rows: Counter[str] = Counter()
    for name, entry in manifest.files.items():
        if entry.n_rows is not None:
            rows[name.split("/")[0].partition(".")[0]] += entry.n_rows
    found += [stage.measured("stage/rows", count, stage=stage.name, table=table) for table, count in rows.items()]
    if version := policy_version(stage):
        found.append(stage.measured("policy/version", 1, stage=stage.name, policy_version=version))
    return found


def policy_version(stage: FinishedStage) -> str | None:
    """Return the version of the weights that a stage made, or None of one that made none."""
    has_weights = any(name.startswith(f"{WEIGHTS}/") for name in stage.artifact.manifest.files)
    return stage.artifact.key[:KEY_DIGITS] if has_weights else None


def tokens_per_s(stage: FinishedStage) -> float | None:
    """Return the tokens a second of an optimisation, in all its epochs, or those written of a stage that generates.

    None of other stages, and of a resumed generation, whose time is its last session's.
    """
    manifest = stage.artifact.manifest
    if stage.provenance.kind == StageKind.OPTIMISES:
        written = stage.artifact.rows(MetricRow, "metrics")
        return next((row.value for row in written if row.name == "training/tokens_per_s"), None)
    is_timed = stage.provenance.kind in WRITING and manifest.wall_time_s > 0 and not manifest.was_resumed
    return n_tokens(stage.artifact) / manifest.wall_time_s if is_timed else None


def _problems_drawn(stage: FinishedStage) -> list[Measurement]:
    columns = read_columns(stage.artifact, ProblemRow, "split", "domain", "level")
    return _by_place(stage, "data/problems", zip(*columns, strict=True))


def _by_place(stage: FinishedStage, name: str, places: Iterable[Sequence[str]]) -> list[Measurement]:
    """Return how many problems there are of each split, domain and level."""
    return [
        stage.measured(name, count, split=split, domain=domain, level=level)
        for (split, domain, level), count in sorted(Counter(places).items())
    ]


def _planner_outcomes(stage: FinishedStage) -> list[Measurement]:
    statuses, times_s = read_columns(stage.artifact, PlanRow, "status", "wall_time_s")
    ids, met = read_columns(stage.artifact, PlanRow, "problem_id", "held_out_after")
    left_out = {problem_id for problem_id, place in zip(ids, met, strict=True) if place is not None}
    columns = read_columns(stage.input("problems").artifact, ProblemRow, "problem_id", "split", "domain", "level")
    return [
        *_by_place(
            stage, "data/left_out", (tuple(place) for name, *place in zip(*columns, strict=True) if name in left_out)
        ),
        stage.measured("planner/solve_time_s", sum(times_s), stage=stage.name),
        *(
            stage.measured("planner/problems", count, stage=stage.name, status=status)
            for status, count in sorted(Counter(statuses).items())
        ),
    ]


def _optimisation(stage: FinishedStage) -> list[Measurement]:
    """Return the curve of an optimisation, and the figures that the trainer wrote beside it."""
    labels = {"stage": stage.name}
    curve = stage.artifact.rows(OptimisationStepRow, "curve")
    columns = {
        "train/loss": [row.loss for row in curve],
        "train/learning_rate": [row.learning_rate for row in curve],
        "train/gradient_norm": [row.gradient_norm for row in curve],
    }
    found = [
        replace(stage.measured(name, value, **labels), step=row.step)
        for name, values in columns.items()
        for row, value in zip(curve, values, strict=True)
    ]
    found.append(stage.measured("training/steps", len(curve), **labels))
    if curve:
        found.append(stage.measured("training/last_loss", curve[-1].loss, **labels))
    written = stage.artifact.rows(MetricRow, "metrics")
    return found + [stage.measured(row.name, row.value, **labels) for row in written]


def _generation(stage: FinishedStage) -> list[Measurement]:
    """Return how much a stage wrote and how fast."""
    (reasons,) = read_columns(stage.artifact, RolloutRow, "finish_reason")
    found = {"generation/tokens": float(n_tokens(stage.artifact)), "generation/completions": len(reasons)}
    if reasons:
        found["generation/truncated_rate"] = sum(reason in CUT for reason in reasons) / len(reasons)
        found["generation/no_room_rate"] = reasons.count(FinishReason.NO_ROOM) / len(reasons)
    if (speed := tokens_per_s(stage)) is not None:
        found["generation/tokens_per_s"] = speed
    return [stage.measured(name, value, stage=stage.name) for name, value in found.items()]


def _losses(stage: FinishedStage) -> list[Measurement]:
    """Return equations 4 and 8 as printed, also by domain, level and class of error; and what could not be read."""
    wanted = ("loss/reasoning_as_printed", "loss/final_as_printed", "rollout/unreadable_rate")
    written = stage.artifact.rows(MetricRow, "metrics")
    found = [stage.measured(row.name, row.value) for row in written if row.name in wanted]
    level_of = domain_levels_of(stage.input("problems").artifact)
    class_of = dict(
        zip(*read_columns(stage.input("verdicts").artifact, VerdictRow, "rollout_id", "error_class"), strict=True)
    )
    tables: list[tuple[str, type[DataclassInstance], str, str]] = [
        ("loss/reasoning_as_printed", StepLossRow, "step_loss", "reasoning_steps"),
        ("loss/final_as_printed", FinalPlanRow, "plan_loss", "final_plans"),
    ]
    for name, row_type, column, table in tables:
        groups: dict[tuple[str, str], list[float]] = defaultdict(list)
        columns = read_columns(stage.artifact, row_type, "rollout_id", "problem_id", column, table=table)
        for rollout_id, problem_id, loss in zip(*columns, strict=True):
            domain, level = level_of[problem_id]
            error_class = class_of[rollout_id] or Verdict.VALID
            for label in (("domain", domain), ("level", level), ("error_class", error_class)):
                groups[label].append(loss)
        found += [stage.measured(name, fmean(losses), **{key: value}) for (key, value), losses in groups.items()]
    return found


def _judged(stage: FinishedStage) -> list[Measurement]:
    """Return what the attempts that a stage judged reached; whose they are stands in its labels."""
    labels = stage.provenance.labels
    if "arm" in labels:
        return _judged_attempts(stage, labels["arm"])
    return _judged_probe(stage) if "probe" in labels else _judged_rollouts(stage)


def _judged_attempts(stage: FinishedStage, arm: str) -> list[Measurement]:
    """Return what an arm reached on the test problems."""
    found, n_stated = [], 0
    for place, items in _groups(evaluated_problems(Arm.of(stage)), lambda item: (item.domain, item.level)):
        figures, labels = summarise_level(items), {"arm": arm, **place}
        found += [
            stage.measured("evaluation/accuracy", figures.accuracy, **labels),
            stage.measured("evaluation/problems", figures.n, **labels),
        ]
        if figures.mean_progress is not None:
            found.append(stage.measured("evaluation/mean_progress", figures.mean_progress, **labels))
        found += _errors(stage, "evaluation/errors", figures.errors, labels)
        if not place and (own := figures.self_verification) is not None:
            n_stated = own.n
            found.append(stage.measured("evaluation/self_verification", own.accuracy, arm=arm))
    return [*found, stage.measured("evaluation/stated_verdicts", n_stated, arm=arm)]


def _judged_rollouts(stage: FinishedStage) -> list[Measurement]:
    """Return how the rollouts of an iteration fared, before anything is learnt from them."""
    found = []
    for labels, classes in _groups(_error_classes(stage), lambda item: item[1]):
        figures = IterationRollouts.of(stage.provenance.iteration, [error for error, _ in classes])
        found += [
            stage.measured("rollout/valid_plan_rate", figures.n_valid / figures.n, **labels),
            stage.measured("rollout/judged", figures.n, **labels),
            *_errors(stage, "rollout/errors", figures.errors, labels),
        ]
    return found


def _judged_probe(stage: FinishedStage) -> list[Measurement]:
    """Return what share of the probe set the policy solved."""
    classes = [error for error, _ in _error_classes(stage)]
    figures = IterationRollouts.of(stage.provenance.iteration, classes)
    accuracy = [stage.measured("probe/accuracy", figures.n_valid / figures.n)] if classes else []
    return [*accuracy, stage.measured("probe/problems", figures.n)]


def _error_classes(stage: FinishedStage) -> list[tuple[str | None, DomainLevel]]:
    """Return the class of error of every attempt, None where its plan is valid, and where its problem belongs."""
    level_of = domain_levels_of(stage.input("problems").artifact)
    columns = read_columns(stage.artifact, VerdictRow, "error_class", "problem_id")
    return [(error, level_of[problem_id]) for error, problem_id in zip(*columns, strict=True)]


def _errors(
    stage: FinishedStage, name: str, errors: Mapping[ErrorClass, int], labels: Mapping[str, str]
) -> list[Measurement]:
    """Return the number of failures of every class; not for single levels of single domains, to have fewer."""
    if {"domain", "level"} <= labels.keys():
        return []
    return [stage.measured(name, count, error_class=error.value, **labels) for error, count in errors.items()]


def _groups(
    items: Iterable[ItemT], level_of: Callable[[ItemT], DomainLevel]
) -> list[tuple[dict[str, str], Sequence[ItemT]]]:
    """Return all items, those of each domain, each level, and each level of each domain, with their labels."""
    groups: dict[tuple[tuple[str, str], ...], list[ItemT]] = defaultdict(list)
    for item in items:
        domain, level = level_of(item)
        of_domain, of_level = ("domain", domain), ("level", level)
        for labels in ((), (of_domain,), (of_level,), (of_domain, of_level)):
            groups[labels].append(item)
    return [(dict(labels), found) for labels, found in groups.items()]


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
        found["verification/brier"] = brier_score(pairs)
    return [stage.measured(name, value, stage=stage.name) for name, value in found.items()]


def _feedback_turns(stage: FinishedStage) -> list[Measurement]:
    """Return the accuracy after each turn, and what was written in all of them."""
    tried = stage.input(f"tried_{chosen_iteration(stage.input('policy').artifact)}")
    (turns,) = read_columns(stage.artifact, VerdictRow, "iteration", table="verdicts")
    found = accuracy_after_turns(stage, tried.artifact, max(turns, default=0))
    return _generation(stage) + [stage.measured("feedback/accuracy", x.accuracy, turn=str(x.turn)) for x in found]


def _kept(stage: FinishedStage) -> list[Measurement]:
    return [stage.measured("loop/kept_iteration", chosen_iteration(stage.artifact))]


def _further_answers(stage: FinishedStage) -> list[Measurement]:
    return _generation(stage) + turn_measurements(stage)


_READERS: Mapping[str, Callable[[FinishedStage], list[Measurement]]] = {
    StageKind.DRAWS: _problems_drawn,
    StageKind.PLANS: _planner_outcomes,
    StageKind.BUILDS: _losses,
    StageKind.OPTIMISES: _optimisation,
    StageKind.GENERATES: _generation,
    StageKind.JUDGES: _judged,
    StageKind.JUDGES_TEXTS: answer_measurements,
    StageKind.JUDGES_PLANS: plan_measurements,
    StageKind.REPAIRS: _further_answers,
    StageKind.READS_PAIRS: pair_measurements,
    StageKind.VERIFIES: _verification,
    StageKind.HANDS_BACK: _feedback_turns,
    StageKind.KEEPS: _kept,
}

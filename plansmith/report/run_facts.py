"""What the results of a run have whatever it trains: its training curves, time and tokens by stage, its command.

Not here: how good its policies are.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow.compute as pc

from plansmith.data.artifacts import KEY_DIGITS, Artifact, Provenance, StageKind
from plansmith.data.rows import USAGE, MetricRow, ObjectiveFigureRow, OptimisationStepRow, RolloutRow, UsageRow
from plansmith.data.tables import read_arrow
from plansmith.data.update_times import TIMES
from plansmith.report.finished_stages import FinishedStage, RunSoFar, read_columns
from plansmith.report.results import TrainingCurve

FIGURES = "figures"
"""Table of `ObjectiveFigureRow`, where an optimisation has one."""
UPDATES = "updates"
"""Table of `MetricRow` of a loop: what was measured in each update."""
WRITING = (StageKind.GENERATES, StageKind.HANDS_BACK, StageKind.REPAIRS)
"""Stages in which a policy writes, with a table of `RolloutRow`."""
Updates = dict[str, tuple[float | None, ...]]
"""What was measured in each update of a loop, by name; None where an update has no such figure."""


def facts_of(run: RunSoFar[Any], made: Provenance, policies: Mapping[str, Artifact]) -> dict[str, Any]:
    """Return the fields of `plansmith.report.results.RunResults` by name.

    Args:
        run: finished or not.
        made: of what the results are about; it has the versions of the tools.
        policies: the weights of each policy that was tried.
    """
    curves, n_not_finite = training_curves(run)
    command = ["plansmith", "run", run.pipeline, "--preset", run.preset, "--seed", str(run.config.seed)]
    return {
        "run_name": run.config.name,
        "preset": run.preset,
        "seed": run.config.seed,
        "curves": curves,
        "n_not_finite": n_not_finite,
        "n_dropped": {name: int(count) for name, count in _trainer_figures(run, "training/n_dropped")},
        "time_s": {name: artifact.manifest.wall_time_s for name, artifact in run.artifacts.items()},
        "tokens": tokens_by_stage(run),
        "policy_versions": {name: policy.key[:KEY_DIGITS] for name, policy in policies.items()},
        "config": run.config.model_dump(mode="json"),
        "versions": dict(made.tool_versions),
        "command": shlex.join(command),
    }


def training_curves(run: RunSoFar[Any]) -> tuple[tuple[TrainingCurve, ...], int]:
    """Return every training curve without steps whose loss or gradient is NaN or infinite, and how many there are."""
    curves, n_not_finite = [], 0
    for stage in run.stages(StageKind.OPTIMISES):
        rows = stage.artifact.rows(OptimisationStepRow, "curve")
        kept = [row for row in rows if math.isfinite(row.loss) and math.isfinite(row.gradient_norm)]
        n_not_finite += len(rows) - len(kept)
        columns = (
            tuple(row.step for row in kept),
            tuple(row.loss for row in kept),
            tuple(row.learning_rate for row in kept),
            tuple(row.gradient_norm for row in kept),
        )
        figures = _figures(stage.artifact, columns[0])
        curves.append(TrainingCurve(stage.family, stage.provenance.iteration, *columns, figures))
    return tuple(curves), n_not_finite


def _figures(optimised: Artifact, steps: tuple[int, ...]) -> dict[str, tuple[float, ...]]:
    """Return what the objective measured at these steps, by name; figures that are not finite at one are left out."""
    if f"{FIGURES}.parquet" not in optimised.manifest.files:
        return {}
    by_name: dict[str, dict[int, float]] = {}
    for row in optimised.rows(ObjectiveFigureRow, FIGURES):
        by_name.setdefault(row.name, {})[row.step] = row.value
    found = {name: tuple(values[step] for step in steps) for name, values in by_name.items()}
    return {name: values for name, values in found.items() if all(map(math.isfinite, values))}


def tokens_by_stage(run: RunSoFar[Any]) -> dict[str, int]:
    """Return the tokens written, or trained on in one epoch, by stage."""
    trained = {name: int(count) for name, count in _trainer_figures(run, "training/n_tokens")}
    found = trained | {s.name: n_tokens(s.artifact) for kind in WRITING for s in run.stages(kind)}
    return {name: found[name] for name in run.artifacts if name in found}


def _trainer_figures(run: RunSoFar[Any], metric: str) -> Iterator[tuple[str, float]]:
    """Yield a figure that the trainer wrote, by stage."""
    for stage in run.stages(StageKind.OPTIMISES):
        rows = stage.artifact.rows(MetricRow, "metrics")
        yield from ((stage.name, row.value) for row in rows if row.name == metric)


def n_tokens(generated: Artifact) -> int:
    """Return how many tokens the policy wrote in a stage; a server's model as it counted them."""
    if (generated.folder / f"{USAGE}.parquet").is_file():
        (counts,) = read_columns(generated, UsageRow, "completion_tokens", table=USAGE)
        return sum(count or 0 for count in counts)
    table = read_arrow(generated.path("rows.parquet"), RolloutRow, ["token_ids"])
    return int(pc.sum(pc.list_value_length(table.column("token_ids"))).as_py() or 0)


def updates_of(stages: Iterable[FinishedStage]) -> Updates:
    """Return what was measured in every update of a loop, seconds too; losses that are not finite are left out."""
    rows = [
        row
        for stage in stages
        for table in (UPDATES, TIMES)
        if f"{table}.parquet" in stage.artifact.manifest.files
        for row in stage.artifact.rows(MetricRow, table)
        if math.isfinite(row.value)
    ]
    n_updates = max((row.iteration for row in rows), default=0)
    found: dict[str, list[float | None]] = {}
    for row in rows:
        found.setdefault(row.name, [None] * n_updates)[row.iteration - 1] = row.value
    return {name: tuple(values) for name, values in found.items()}

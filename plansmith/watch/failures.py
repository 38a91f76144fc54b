"""The worst failed attempts of each judged stage, as the report shows attempts, with the prompt and the completion.

Runs have hundreds of thousands of rollouts, so only the columns that rank them are read of all, and texts only of those
that are shown. Not here: judging; the marks on the steps are the validator's, as it left them in the judged stage.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plansmith.data.artifacts import Artifact
from plansmith.data.rows import VerdictRow
from plansmith.data.tables import row_of
from plansmith.errors import PlansmithError
from plansmith.groups import grouped
from plansmith.report.attempts import AttemptExample, read_attempts
from plansmith.report.finished_stages import (
    DomainLevel,
    FinishedStage,
    RunSoFar,
    domain_levels_of,
    find_rows,
    read_columns,
)
from plansmith.report.wording import shortened, spoken

logger = logging.getLogger(__name__)

N_SHOWN = 8
"""Failures of one judged stage."""


@dataclass(frozen=True, slots=True)
class WatchedFailure:
    """A failed attempt, whose ``arm`` says in words who made it; ``progress`` is how far it came towards the goal."""

    rollout_id: str
    domain: str
    prompt: str
    progress: float | None
    attempt: AttemptExample


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What ranks a failed attempt."""

    rollout_id: str
    problem_id: str
    error_class: str
    failed_step: int | None
    progress: float | None
    domain_level: DomainLevel


class FailureShelf:
    """Looks for the failures of each judged stage once."""

    def __init__(self) -> None:
        self._known: dict[Artifact, tuple[WatchedFailure, ...]] = {}

    def failures(self, run: RunSoFar[Any]) -> dict[str, tuple[WatchedFailure, ...]]:
        """Return the worst failures by judged stage, in the order of the stages."""
        found = {}
        for stage in run.stages():
            table = stage.artifact.manifest.files.get("rows.parquet")
            if table is not None and table.row_type == VerdictRow.__name__:
                if stage.artifact not in self._known:
                    self._known[stage.artifact] = _failures(stage)
                found[stage.name] = self._known[stage.artifact]
        return {stage: failures for stage, failures in found.items() if failures}


def policy_of(stage: FinishedStage) -> str:
    """Return in words whose attempts a stage judged: those of an arm, or the rollouts of an iteration."""
    labels, iteration = stage.provenance.labels, stage.provenance.iteration
    if "arm" in labels:
        return spoken(labels["arm"])
    return f"{'probe' if 'probe' in labels else 'rollouts'} of iteration {iteration}"


def worst_first(verdicts: Iterable[_Verdict], count: int) -> list[_Verdict]:
    """Return so many failures: the worst of each domain, level and error class in turn, the commonest kind first."""
    groups = grouped(verdicts, lambda verdict: (verdict.domain_level, verdict.error_class))
    common_first = sorted(groups, key=lambda key: (-len(groups[key]), key))
    worst = [
        heapq.nsmallest(count, groups[key], key=lambda x: (x.progress or 0.0, x.failed_step or 0, x.rollout_id))
        for key in common_first
    ]
    rounds = itertools.zip_longest(*worst)
    return [verdict for one_of_each in rounds for verdict in one_of_each if verdict is not None][:count]


def _failures(stage: FinishedStage) -> tuple[WatchedFailure, ...]:
    try:
        chosen = worst_first(_failed(stage.artifact, stage.input("problems").artifact), N_SHOWN)
        return tuple(_shown(stage, chosen))
    except (PlansmithError, KeyError, ValueError, TypeError) as error:
        logger.warning("the failures of stage %s cannot be shown: %s", stage.name, error)
        return ()


def _failed(judged: Artifact, problems: Artifact) -> Iterator[_Verdict]:
    """Yield the failed attempts of a judged stage."""
    level_of = domain_levels_of(problems)
    columns = read_columns(judged, VerdictRow, "rollout_id", "problem_id", "error_class", "failed_step", "progress")
    for rollout_id, problem_id, error_class, failed_step, progress in zip(*columns, strict=True):
        if error_class is not None:
            yield _Verdict(rollout_id, problem_id, error_class, failed_step, progress, level_of[problem_id])


def _shown(stage: FinishedStage, chosen: Sequence[_Verdict]) -> Iterator[WatchedFailure]:
    """Yield the chosen failures with their texts."""
    judged, rollouts, ids = stage.artifact, stage.input("rollouts"), [verdict.rollout_id for verdict in chosen]
    verdict_of = {row["rollout_id"]: row_of(row, VerdictRow) for row in find_rows(judged, "rollout_id", ids)}
    asked = find_rows(rollouts.artifact, "rollout_id", ids, "rollout_id", "prompt")
    prompt_of = {row["rollout_id"]: row["prompt"] for row in asked}
    attempts = read_attempts(
        [verdict_of[name] for name in ids],
        arm=policy_of(stage),
        judged=judged,
        rollouts=rollouts.artifact,
        problems=stage.input("problems").artifact,
        plans=rollouts.input("plans").artifact if "plans" in rollouts.provenance.inputs else None,
    )
    for verdict, attempt in zip(chosen, attempts, strict=True):
        name, (domain, _) = verdict.rollout_id, verdict.domain_level
        shown = replace(attempt, completion=shortened(attempt.completion))
        yield WatchedFailure(name, domain, shortened(prompt_of[name]), verdict.progress, shown)

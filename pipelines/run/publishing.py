"""The kept policy as a model folder of its own, with a card that says how it was made and how well it plans."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.run.workers import MODEL, policy_version
from pipelines.stages.training import example_rows
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import ProblemRow, Split
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.learning.export import MeasuredAccuracy, ModelCard, TrainedOn, export_model
from plansmith.learning.hub import is_repository
from plansmith.pddl.grounding import PlanningTask
from plansmith.report.arms import FINAL
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.results import Results
from plansmith.report.statistics import interval_name
from plansmith.text.rendering import rendering_of

logger = logging.getLogger(__name__)

RECORD = "plansmith.json"
"""Which policy a published folder holds."""


def publish_policy(card: ModelCard, run: RunSoFar[Any], target: Path) -> None:
    """Write the kept policy to ``target``, complete or not at all; one that is there already is left as it is."""
    kept = run.one(StageKind.KEEPS)
    assert kept is not None, "a pipeline with a model card keeps weights"
    record = {"policy_version": policy_version(kept.artifact), "run": run.config.name}
    path = target / RECORD
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) == record:
        return
    with storage_errors(target):
        export_model(kept.artifact.path(MODEL), target, card)
        with atomic_file(path) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())
    logger.info("the kept policy: %s", target)


def model_card(run: RunSoFar[PddlInstructConfig], results: Results, method: str) -> ModelCard:
    """Return what the world is told about the kept policy of a run; ``method`` is how it was trained, in a sentence."""
    config, drawn = run.config, run.one(StageKind.DRAWS)
    assert drawn is not None, "a finished run has drawn problems"
    rows = drawn.artifact.rows(ProblemRow)
    tests = [row for row in rows if row.split == Split.TEST]
    task = PlanningTask.from_text(tests[0].domain_pddl, tests[0].problem_pddl)
    learnt = [row for row in rows if row.split in (Split.PHASE1, Split.PHASE2)]
    test_forms = {row.canonical_form for row in tests}
    trained = Counter((row.domain, row.level) for row in learnt)
    final = results.arms[FINAL].all_levels
    written = (row for stage in run.stages(StageKind.WRITES) for row in example_rows(stage.artifact))
    examples = Counter(str(row.kind) for row in written)
    return ModelCard(
        name=config.name,
        base_model=config.model.folder and base_name(config.model.folder),
        method=method,
        rendering=config.rendering,
        example_prompt=rendering_of(config.rendering).plan_prompt(task),
        max_new_tokens=config.evaluation.max_new_tokens,
        accuracies=tuple(_accuracies(results, {row.level: row.domain for row in rows})),
        training=tuple(TrainedOn(domain, level, count) for (domain, level), count in trained.items()),
        config=config.model_dump(mode="json"),
        n_test_forms=len(test_forms),
        n_trained_forms=len(test_forms & {row.canonical_form for row in learnt}),
        interval=f"95% {interval_name(final.n, final.n_forms)}",
        examples=tuple(sorted(examples.items())),
    )


def base_name(folder: str) -> str:
    """Return the name of a model: as it is if it names a repository of the hub, else the last part of the path.

    What no name of the hub may hold becomes a dash.
    """
    if is_repository(folder):
        return folder
    return re.sub(r"[^\w.-]+", "-", Path(folder).expanduser().resolve().name).strip("-.") or "model"


def _accuracies(results: Results, domain_of: Mapping[str, str]) -> list[MeasuredAccuracy]:
    final, before = results.arms[FINAL], results.arms.get("untrained")
    return [
        MeasuredAccuracy(
            domain=domain_of[level],
            level=level,
            n_problems=figures.n,
            n_valid=figures.n_valid,
            low=figures.ci95[0],
            high=figures.ci95[1],
            n_valid_before=None if before is None else before.by_level[level].n_valid,
        )
        for level, figures in final.by_level.items()
    ]

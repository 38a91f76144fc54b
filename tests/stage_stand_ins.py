"""Contexts and artifacts of stages for tests that start no run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext


def context_of(tmp_path: Path, resources: Resources, settings: Any, **inputs: Artifact) -> StageContext[Any]:
    stage = Stage(name="roll_out_1", run=lambda _: None, settings=settings, seed=3)
    return StageContext(stage, inputs, ArtifactWriter(tmp_path / "out", stage.name, stage.key), resources)


def artifact_of(root: Path, name: str, key: str, *rows: Any) -> Artifact:
    """Return an artifact with one table of the given rows."""
    writer = ArtifactWriter(root, name, key)
    writer.write_rows(rows, type(rows[0]))
    return writer.finish(Provenance(name, key, {}, {}, 0), wall_time_s=0.0)

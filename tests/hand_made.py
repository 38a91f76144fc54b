"""Artifacts written by hand, as stages leave them; tests of whoever reads runs import them from here by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance


def write_artifact(
    root: Path,
    stage: str,
    tables: Mapping[str, tuple[type[Any], Sequence[Any]]],
    *,
    key: str = "",
    inputs: Mapping[str, str] | None = None,
    settings: Any = None,
    wall_time_s: float = 2.0,
    cpu_time_s: float | None = None,
    **said: Any,
) -> Artifact:
    """Write the artifact of a stage; its key is that of its name unless given, and it says what else of itself."""
    key = key or hashlib.sha256(stage.encode()).hexdigest()
    writer = ArtifactWriter(root, stage, key)
    for table, (row_type, rows) in tables.items():
        writer.write_rows(rows, row_type, table=table)
    provenance = Provenance(stage, key, settings or {}, dict(inputs or {}), 0, **said)
    return writer.finish(provenance, wall_time_s=wall_time_s, cpu_time_s=cpu_time_s)

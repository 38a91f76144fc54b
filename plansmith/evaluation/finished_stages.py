"""A finished stage as what measures it sees it: its tables by column, and where its problems belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plansmith.data.artifacts import Artifact
from plansmith.data.rows import JudgedStepRow, ProblemRow
from plansmith.data.tables import read_arrow, row_of
from plansmith.errors import ArtifactError
from plansmith.evaluation.metric_list import Measurement

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Place = tuple[str, str]
"""Domain and level of a problem."""


@dataclass(frozen=True, slots=True)
class FinishedStage:
    """An artifact with its inputs; ``family`` is the stage's name without the number of the iteration."""

    name: str
    family: str
    iteration: int
    artifact: Artifact
    inputs: Mapping[str, Artifact]

    def input(self, name: str) -> Artifact:
        """Return an artifact that the stage read.

        Raises:
            ArtifactError: it is not given.
        """
        if name not in self.inputs:
            raise ArtifactError(f"its input {name!r} is lacking", where=str(self.artifact.folder))
        return self.inputs[name]

    def measured(self, name: str, value: float, **labels: str) -> Measurement:
        """Return a number of this stage's iteration."""
        return Measurement(name, float(value), self.iteration, labels)


def read_columns(
    artifact: Artifact, row_type: type[DataclassInstance], *names: str, table: str = "rows"
) -> list[list[Any]]:
    """Return some columns of a table, without reading the others."""
    found = read_arrow(artifact.path(f"{table}.parquet"), row_type, list(names))
    return [found.column(name).to_pylist() for name in names]


def places_of(problems: Artifact) -> dict[str, Place]:
    """Return domain and level of each problem."""
    problem_ids, *places = read_columns(problems, ProblemRow, "problem_id", "domain", "level")
    return dict(zip(problem_ids, zip(*places, strict=True), strict=True))


def judged_steps(judged: Artifact, rollout_ids: Iterable[str]) -> dict[str, list[JudgedStepRow]]:
    """Return the judged steps of some rollouts; a chain that could not be read at all has none."""
    found: dict[str, list[JudgedStepRow]] = {name: [] for name in rollout_ids}
    for row in find_rows(judged, "rollout_id", found, table="steps"):
        found[row["rollout_id"]].append(row_of(row, JudgedStepRow))
    return found


def find_rows(
    artifact: Artifact, id_column: str, ids: Iterable[str], *columns: str, table: str = "rows"
) -> list[dict[str, Any]]:
    """Return the rows of a table that have one of some ids, one row group of the file in memory at a time.

    Args:
        artifact: holds the table.
        id_column: where the ids are.
        ids: of the rows.
        columns: those to be read; none means all.
        table: its name.

    Raises:
        ArtifactError: the table is not there or cannot be read.
    """
    path, wanted = artifact.path(f"{table}.parquet"), pa.array(sorted(set(ids)))
    found: list[dict[str, Any]] = []
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                known = file.read_row_group(group, columns=[id_column]).column(id_column)
                places = pc.indices_nonzero(pc.is_in(known, value_set=wanted))
                if len(places):
                    found += file.read_row_group(group, columns=list(columns) or None).take(places).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ArtifactError("not a readable table", where=str(path), got=str(error)) from error
    return found

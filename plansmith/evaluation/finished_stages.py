"""A finished stage as what measures it sees it: its tables by column, and where its problems belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plansmith.data.artifacts import Artifact
from plansmith.data.rows import ProblemRow
from plansmith.data.tables import read_arrow
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

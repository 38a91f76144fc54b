"""What a run has finished so far: its stages by what they do, each with its tables by column and what it was made from.

Nothing here needs more than the run folder: what a stage is stands in the manifest of its artifact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plansmith.data.artifacts import Artifact, Provenance, StageKind
from plansmith.data.rows import JudgedStepRow, ProblemRow
from plansmith.data.tables import read_arrow, row_of
from plansmith.errors import ArtifactError
from plansmith.report.metric_list import Measurement

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ConfigT = TypeVar("ConfigT")
DomainLevel = tuple[str, str]
"""Domain and level of a problem."""


@dataclass(frozen=True)
class FinishedStage:
    """An artifact among those of its run, which are given by their keys."""

    artifact: Artifact
    by_key: Mapping[str, Artifact]

    @property
    def provenance(self) -> Provenance:
        """Return what the stage is, and what its artifact was made from."""
        return self.artifact.manifest.provenance

    @property
    def name(self) -> str:
        """Return the name of the stage."""
        return self.provenance.stage

    @property
    def family(self) -> str:
        """Return the name without the number of the iteration: what the stages of all iterations share."""
        return family_of(self.name, self.provenance.iteration)

    def input(self, name: str) -> FinishedStage:
        """Return a stage whose artifact this one read, by the name it knows it by.

        Raises:
            ArtifactError: it is not there.
        """
        found = self.by_key.get(self.provenance.inputs.get(name, ""))
        if found is None:
            raise ArtifactError(f"its input {name!r} is lacking", where=str(self.artifact.folder))
        return FinishedStage(found, self.by_key)

    def measured(self, name: str, value: float, **labels: str) -> Measurement:
        """Return a number of this stage's iteration."""
        series = self.provenance.labels.get("series", "")
        return Measurement(name, float(value), self.provenance.iteration, labels, series=series)


@dataclass(frozen=True)
class RunSoFar(Generic[ConfigT]):
    """A run, finished or not: its settings, and the artifact of each finished stage in their order.

    ``folder`` is the run's own, in which its report lies; None where nothing is written of it.
    """

    pipeline: str
    config: ConfigT
    preset: str
    artifacts: Mapping[str, Artifact]
    folder: Path | None = None

    def stages(self, kind: StageKind | None = None) -> Iterator[FinishedStage]:
        """Yield the finished stages, all or those of a kind."""
        by_key = {artifact.key: artifact for artifact in self.artifacts.values()}
        for artifact in self.artifacts.values():
            if kind is None or artifact.manifest.provenance.kind == kind:
                yield FinishedStage(artifact, by_key)

    def one(self, kind: StageKind) -> FinishedStage | None:
        """Return the first finished stage of a kind, or None."""
        return next(self.stages(kind), None)


def family_of(stage: str, iteration: int) -> str:
    """Return the name of a stage without the number of its iteration: ``roll_out`` of ``roll_out_2``."""
    return stage.removesuffix(f"_{iteration}")


def read_columns(
    artifact: Artifact, row_type: type[DataclassInstance], *names: str, table: str = "rows"
) -> list[list[Any]]:
    """Return some columns of a table, without reading the others."""
    found = read_arrow(artifact.path(f"{table}.parquet"), row_type, list(names))
    return [found.column(name).to_pylist() for name in names]


def domain_levels_of(problems: Artifact) -> dict[str, DomainLevel]:
    """Return domain and level of each problem."""
    problem_ids, *places = read_columns(problems, ProblemRow, "problem_id", "domain", "level")
    return dict(zip(problem_ids, zip(*places, strict=True), strict=True))


def forms_of(problems: Artifact) -> dict[str, str]:
    """Return the canonical form of each problem."""
    return dict(zip(*read_columns(problems, ProblemRow, "problem_id", "canonical_form"), strict=True))


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
    path, wanted = artifact.path(f"{table}.parquet"), pa.array(sorted(set(ids)), pa.string())  # of none, too
    found: list[dict[str, Any]] = []
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                known = file.read_row_group(group, columns=[id_column]).column(id_column)
                rows = pc.indices_nonzero(pc.is_in(known, value_set=wanted))
                if len(rows):
                    found += file.read_row_group(group, columns=list(columns) or None).take(rows).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ArtifactError("not a readable table", where=str(path), got=str(error)) from error
    return found

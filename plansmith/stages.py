"""The durable stage graph: named functions whose results are artifacts, run once per distinct input and setting.

A stage's key hashes its name, version, settings, seed and the keys of its inputs, so it is known before anything runs;
an artifact of that key is the stage's result, whoever made it. That is resume, and it is how the arms of an ablation
share phase 1. Not here: what an artifact is on disk (`plansmith.data.artifacts`), parallel work (`actors.mapping`), and
any knowledge of what the stages do (`pipelines`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel
from tqdm.std import tqdm

from plansmith.data.artifacts import (
    Artifact,
    ArtifactWriter,
    Provenance,
    artifact_folder,
    find_artifact,
    has_shards,
    installed_tool_versions,
    remove_working_folders,
    set_aside,
)
from plansmith.data.storage import run_lock, storage_errors
from plansmith.errors import ArtifactError, LostWorkerError
from plansmith.progress import progress_bar

logger = logging.getLogger(__name__)

MAX_REPEATS = 2
"""How often a stage whose workers were lost is run again, from what it has finished."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """One node of a pipeline; two stages with equal keys have the same result.

    Raises:
        TypeError: a setting that cannot be written as JSON.
    """

    name: str
    run: Callable[[StageContext], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything that may change the result: plain values, lists, mappings, dataclasses, pydantic models."""

    inputs: Mapping[str, Stage] = field(default_factory=dict)
    """Stages whose artifacts it reads, under the names it knows them by."""

    version: str = "1"
    """Change it when the code comes to mean something else; older artifacts are then not reused."""

    seed: int = 0

    is_needed: Callable[[Mapping[str, Artifact]], bool] | None = None
    """Asked with the artifacts so far, by stage, when the stage's turn has come; False leaves it out, and with it every
    stage that needs it. The answer must follow from these artifacts, so that a resumed run gives the same."""

    needs_all_inputs: bool = True
    """False: runs with those of its inputs that were not left out."""

    def __post_init__(self) -> None:
        _ = self.key  # settings that are changed later must not change it

    @functools.cached_property
    def settings_json(self) -> Any:
        """Return the settings as plain JSON values."""
        return _plain(self.settings, f"settings of stage {self.name!r}")

    @functools.cached_property
    def key(self) -> str:
        """Return the hash of everything the result depends on; computable without running anything."""
        return _digest(self.name, self.version, self.settings_json, self.seed, self.input_keys)

    @property
    def input_keys(self) -> dict[str, str]:
        """Return the key of each input."""
        return {name: stage.key for name, stage in self.inputs.items()}


@dataclass(frozen=True)
class StageContext:
    """What a stage function gets: its inputs, where its output goes, and the run's resources."""

    stage: Stage
    inputs: Mapping[str, Artifact]
    output: ArtifactWriter
    resources: Any
    """Whatever the pipeline hands to its stages, for example handles of actors; never part of the key."""

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return self.stage.seed

    @property
    def logger(self) -> logging.Logger:
        """Return the stage's own logger."""
        return logger.getChild(self.stage.name)

    def row_seed(self, *ids: str | int) -> int:
        """Return a seed in [0, 2**63) that depends on the run's seed, the stage's name and the ids only."""
        return row_seed(self.seed, self.stage.name, *ids)

    def rng(self, *ids: str | int) -> random.Random:
        """Return a random source for one row; never share one between rows, or their order would matter."""
        return random.Random(self.row_seed(*ids))

    def progress(self, total: int | None, description: str, *, unit: str = "row") -> tqdm[Any]:
        """Return a progress bar, to be used as a context manager."""
        return progress_bar(total, description, unit=unit)


class StageStatus(StrEnum):
    """What a run would do with a stage."""

    REUSED = "reused"
    RESUMES = "resumes"
    TO_RUN = "to run"


@dataclass(frozen=True)
class StagePreview:
    """One line of a dry run; ``inputs`` are names of stages."""

    name: str
    key: str
    status: StageStatus
    inputs: tuple[str, ...]


class Observer(Protocol):
    """Hears of every stage of a run; it changes nothing."""

    def started(self, stage: Stage, *, number: int, count: int) -> None:
        """Hear that the turn of a stage has come, the ``number``-th of ``count``, from 1."""

    def finished(self, stage: Stage, artifact: Artifact, inputs: Mapping[str, Artifact], *, was_reused: bool) -> None:
        """Hear that a stage has its artifact, made now or found; ``inputs`` are those that it reads."""


def run_stages(
    stages: Sequence[Stage],
    *,
    root: Path,
    resources: Any = None,
    tool_versions: Mapping[str, str] | None = None,
    observers: Sequence[Observer] = (),
) -> dict[str, Artifact]:
    """Return the artifact of each stage by name; a stage runs only when no artifact of its key lies under ``root``.

    A stage that is not needed has none, nor has a stage that needs it.

    Stages run in the given order, except that the inputs of a stage come before it, listed or not. Killed at any
    moment, the same call continues with the first unfinished stage and that one's first unfinished shard.

    Args:
        stages: names must differ.
        root: folder of the artifacts; made when absent.
        resources: given to every stage function.
        tool_versions: recorded in the manifests beside those found installed.
        observers: told of every stage that is due.

    Raises:
        BadInputError: another run holds the folder, or it is full or cannot be written.
        LostWorkerError: workers of a stage died again and again.
        ValueError: two stages with one name.
    """
    ordered = _in_order(stages)
    versions = installed_tool_versions() | dict(tool_versions or {})
    done: dict[str, Artifact] = {}
    with run_lock(root):
        for number, stage in enumerate(ordered, start=1):
            label = f"stage {number}/{len(ordered)} {stage.name}"
            if not _is_due(stage, done):
                logger.info("%s: not needed", label)
                continue
            for observer in observers:
                observer.started(stage, number=number, count=len(ordered))
            inputs = {name: done[given.name] for name, given in stage.inputs.items() if given.name in done}
            with storage_errors(root):
                found = _reused(stage, root, label)
                done[stage.name] = found or _run_despite_losses(stage, root, inputs, resources, versions, label)
            for observer in observers:
                observer.finished(stage, done[stage.name], inputs, was_reused=found is not None)
    return done


def _is_due(stage: Stage, done: Mapping[str, Artifact]) -> bool:
    """Return whether a stage is needed and has what it needs."""
    has_input = [given.name in done for given in stage.inputs.values()]
    if has_input and not (all(has_input) if stage.needs_all_inputs else any(has_input)):
        return False
    return stage.is_needed is None or stage.is_needed(done)


def preview_stages(stages: Sequence[Stage], root: Path) -> list[StagePreview]:
    """Return what `run_stages` would do, in its order; changes nothing on disk."""
    return [
        StagePreview(stage.name, stage.key, _status(stage, root), tuple(given.name for given in stage.inputs.values()))
        for stage in _in_order(stages)
    ]


def row_seed(seed: int, stage: str, *ids: str | int) -> int:
    """Return a seed in [0, 2**63) that depends on the arguments only, for use where there is no `StageContext`."""
    return int(_digest("row", seed, stage, list(ids))[:16], 16) >> 1


def row_rng(seed: int, stage: str, *ids: str | int) -> random.Random:
    """Return a random source for one row, for use where there is no `StageContext`."""
    return random.Random(row_seed(seed, stage, *ids))


def _run_despite_losses(stage: Stage, *arguments: Any) -> Artifact:
    """Return the artifact of a stage, which begins again when a worker was lost; what it finished is kept.

    Raises:
        LostWorkerError: once more than `MAX_REPEATS` allows.
    """
    for repeat in range(1, MAX_REPEATS + 1):
        try:
            return _run_stage(stage, *arguments)
        except LostWorkerError as error:
            logger.warning("stage %s is run again (%d of %d): %s", stage.name, repeat, MAX_REPEATS, error)
    return _run_stage(stage, *arguments)


def _run_stage(
    stage: Stage,
    root: Path,
    inputs: Mapping[str, Artifact],
    resources: Any,
    tool_versions: Mapping[str, str],
    label: str,
) -> Artifact:
    output = ArtifactWriter(root, stage.name, stage.key)
    logger.info("%s: %s", label, "continuing" if output.was_resumed else "running")
    start_s = time.monotonic()
    stage.run(StageContext(stage, inputs, output, resources))
    provenance = Provenance(
        stage=stage.name,
        key=stage.key,
        version=stage.version,
        settings=stage.settings_json,
        inputs=stage.input_keys,
        seed=stage.seed,
        tool_versions=tool_versions,
    )
    artifact = output.finish(provenance, wall_time_s=time.monotonic() - start_s)
    logger.info("%s: done in %.1f s", label, artifact.manifest.wall_time_s)
    return artifact


def _reused(stage: Stage, root: Path, label: str) -> Artifact | None:
    try:
        artifact = find_artifact(root, stage.name, stage.key)
    except ArtifactError as error:
        aside = set_aside(artifact_folder(root, stage.name, stage.key))
        logger.warning("%s: its artifact is damaged and is made again (the old one is now %s): %s", label, aside, error)
        return None
    if artifact is not None:
        remove_working_folders(artifact.folder)
        logger.info("%s: reused", label)
    return artifact


def _status(stage: Stage, root: Path) -> StageStatus:
    try:
        if find_artifact(root, stage.name, stage.key) is not None:
            return StageStatus.REUSED
    except ArtifactError as error:
        logger.warning("stage %s: its artifact is damaged and would be made again: %s", stage.name, error)
    return StageStatus.RESUMES if has_shards(root, stage.name, stage.key) else StageStatus.TO_RUN


def _in_order(stages: Iterable[Stage]) -> list[Stage]:
    ordered: dict[str, Stage] = {}

    def add(stage: Stage) -> None:
        known = ordered.get(stage.name)
        if known is not None and known.key != stage.key:
            raise ValueError(f"two different stages are named {stage.name!r}: keys {known.key} and {stage.key}")
        if known is None:
            for given in stage.inputs.values():
                add(given)
            ordered[stage.name] = stage

    for stage in stages:
        add(stage)
    return list(ordered.values())


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any, where: str) -> Any:
    """Return ``value`` as JSON values, copied; what JSON cannot hold exactly is refused, not turned into text."""
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"), where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({item.name: getattr(value, item.name) for item in dataclasses.fields(value)}, where)
    if isinstance(value, Mapping):
        return {_name(key, where): _plain(item, f"{where}, {key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}, item {index}") for index, item in enumerate(value)]
    if isinstance(value, Enum):
        return _plain(value.value, where)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and value - value != 0:
        raise TypeError(f"{where}: JSON has no {value}")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{where}: {type(value).__name__} cannot be written as JSON; got {value!r}")


def _name(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where}: names of settings must be text; got {key!r}")
    return key

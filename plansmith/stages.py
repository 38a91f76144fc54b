"""The durable stage graph: named functions whose results are artifacts, run once per distinct input and setting.

A stage gets its own settings, the artifacts it reads and what the run lends it, and nothing else. So its key, a hash of
its name, settings, code, seed and the keys of its inputs, holds everything that its result depends on. It is known
before anything runs, and an artifact of that key is the stage's result, whoever made it. That is resume, and it is how
the arms of an ablation share phase 1. Not here: what an artifact is on disk (`plansmith.data.artifacts`), parallel work
(`actors.mapping`), which code counts (`plansmith.code_digest`), and what the stages do (`pipelines`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel
from tqdm.std import tqdm

from plansmith.code_digest import code_of
from plansmith.data.artifacts import (
    MANIFEST,
    Artifact,
    ArtifactWriter,
    Provenance,
    StageKind,
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
from plansmith.resources import Resources

logger = logging.getLogger(__name__)

MAX_REPEATS = 2
"""How often a stage whose workers were lost is run again, from what it has finished."""


SettingsT = TypeVar("SettingsT")


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(Generic[SettingsT]):
    """One node of a pipeline; two stages with equal keys have the same result.

    Raises:
        TypeError: a setting that cannot be written as JSON.
    """

    name: str
    run: Callable[[StageContext[SettingsT]], None]
    settings: SettingsT = None  # type: ignore[assignment]  # of a stage that has none
    """All it gets to know of the run's settings. What its class excludes (``Field(exclude=True)``) it can read without
    being made again when that changes: limits that only end a run."""

    inputs: Mapping[str, Stage[Any]] = field(default_factory=dict)
    """Stages whose artifacts it reads, under the names it knows them by."""

    code_roots: tuple[str, ...] = ()
    """Dotted names of code that decides the result, but which ``run`` reaches only through its resources."""

    seed: int = 0

    is_needed: Callable[[Mapping[str, Artifact]], bool] | None = None
    """Asked with the artifacts so far, by stage, when the stage's turn has come; False leaves it out, and with it every
    stage that needs it. The answer must follow from these artifacts, so that a resumed run gives the same."""

    needs_all_inputs: bool = True
    """False: runs with those of its inputs that were not left out."""

    kind: StageKind = StageKind.OTHER
    """What it does, for whoever reads its artifact: figures, curves and speeds go by it. The next two as well; none of
    the three is a part of the key."""

    iteration: int = 0
    """Of the loop; 0 before and after it. A stage of every iteration has the number at the end of its name."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """What else its figures go by, as `StageKind` says; also ``series``: the figures of arms of one series are one
    curve over the iterations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", dict(self.inputs))  # a pipeline goes on filling the mapping that it gave
        _ = self.key  # settings that are changed later must not change it

    @functools.cached_property
    def settings_json(self) -> Any:
        """Return the settings as plain JSON values."""
        return _plain(self.settings, f"settings of stage {self.name!r}")

    @functools.cached_property
    def code(self) -> dict[str, str]:
        """Return the digest of the code that decides the result, by module."""
        return code_of(self.run, *self.code_roots)

    @functools.cached_property
    def key(self) -> str:
        """Return the hash of everything the result depends on; computable without running anything."""
        return _digest(self.name, self.settings_json, self.code, self.seed, self.input_keys)

    @property
    def input_keys(self) -> dict[str, str]:
        """Return the key of each input."""
        return {name: stage.key for name, stage in self.inputs.items()}


@dataclass(frozen=True)
class StageContext(Generic[SettingsT]):
    """What a stage function gets: its settings, its inputs, where its output goes, and the run's resources."""

    stage: Stage[SettingsT]
    inputs: Mapping[str, Artifact]
    output: ArtifactWriter
    resources: Resources

    @property
    def settings(self) -> SettingsT:
        """Return the stage's settings; there is no other way to the run's."""
        return self.stage.settings

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
    """One line of a dry run; ``inputs`` are names of stages.

    ``reason`` says why a stage that was run before would run again: what of settings, inputs, code or seed is another
    than for the latest artifact of its name, or who reads weights that were removed. Empty where there is none, or the
    stage would be reused.
    """

    name: str
    key: str
    status: StageStatus
    inputs: tuple[str, ...]
    reason: str = ""


class Observer(Protocol):
    """Hears of every stage of a run; it changes nothing."""

    def started(self, stage: Stage[Any], *, number: int, count: int) -> None:
        """Hear that the turn of a stage has come, the ``number``-th of ``count``, from 1."""

    def finished(
        self, stage: Stage[Any], artifact: Artifact, inputs: Mapping[str, Artifact], *, was_reused: bool
    ) -> None:
        """Hear that a stage has its artifact, made now or found; ``inputs`` are those that it reads."""


def run_stages(
    stages: Sequence[Stage[Any]],
    *,
    root: Path,
    resources: Resources | None = None,
    tool_versions: Mapping[str, str] | None = None,
    observers: Sequence[Observer] = (),
    keep_weights: int | None = None,
) -> dict[str, Artifact]:
    """Return the artifact of each stage by name; a stage runs only when no artifact of its key lies under ``root``.

    A stage that is not needed has none, nor has a stage that needs it. One whose weights were removed runs again when a
    stage that will run reads it.

    Stages run in the given order, except that the inputs of a stage come before it, listed or not. Killed at any
    moment, the same call continues with the first unfinished stage and that one's first unfinished shard.

    Args:
        stages: names must differ.
        root: folder of the artifacts; made when absent.
        resources: given to every stage function; None lends nothing.
        tool_versions: recorded in the manifests beside those found installed.
        observers: told of every stage that is due.
        keep_weights: of how many iterations of a loop, the latest, the weights are kept; those of others are removed
            once the turn of every stage that reads them has come. None keeps all.

    Raises:
        BadInputError: another run holds the folder, or it is full or cannot be written.
        LostWorkerError: workers of a stage died again and again.
        ValueError: two stages with one name.
    """
    ordered = _in_order(stages)
    versions = installed_tool_versions() | dict(tool_versions or {})
    _tell_of_other_code(ordered, root)
    done: dict[str, Artifact] = {}
    lent = resources or Resources()
    with run_lock(root):
        remade = _remade(ordered, root)
        for number, stage in enumerate(ordered, start=1):
            label = f"stage {number}/{len(ordered)} {stage.name}"
            if not _is_due(stage, done):
                logger.info("%s: not needed", label)
                continue
            for observer in observers:
                observer.started(stage, number=number, count=len(ordered))
            inputs = {name: done[given.name] for name, given in stage.inputs.items() if given.name in done}
            with storage_errors(root):
                found = None if stage.name in remade else _reused(stage, root, label)
                done[stage.name] = found or _run_despite_losses(stage, root, inputs, lent, versions, label)
            for observer in observers:
                observer.finished(stage, done[stage.name], inputs, was_reused=found is not None)
            if keep_weights is not None:
                _remove_superseded(ordered[:number], ordered[number:], done, keep_weights)
    return done


def _remade(stages: Sequence[Stage[Any]], root: Path) -> dict[str, str]:
    """Return why stages run again whose weights were removed: a stage that will run reads them."""
    found: dict[str, Artifact] = {}
    for stage in stages:
        with contextlib.suppress(ArtifactError):
            found[stage.name] = Artifact(artifact_folder(root, stage.name, stage.key))
    removed = {name for name, artifact in found.items() if artifact.manifest.removed}
    reasons: dict[str, str] = {}
    readers: dict[str, str] = {}
    for stage in reversed(stages) if removed else ():
        if stage.name in removed & readers.keys():
            reasons[stage.name] = f"its weights were removed, and {readers[stage.name]} reads them"
        if stage.name in reasons or stage.name not in found or found[stage.name].damage():
            readers |= {given.name: stage.name for given in stage.inputs.values()}
    return reasons


def _remove_superseded(
    past: Sequence[Stage[Any]], to_come: Sequence[Stage[Any]], done: Mapping[str, Artifact], keep: int
) -> None:
    """Remove the weights of all but the last iterations that no stage to come reads."""
    made = [stage for stage in past if stage.kind is StageKind.OPTIMISES and stage.iteration and stage.name in done]
    latest = max((stage.iteration for stage in made), default=0)
    read = {given.name for stage in to_come for given in stage.inputs.values()}
    for stage in made:
        if stage.iteration <= latest - keep and stage.name not in read and not done[stage.name].manifest.removed:
            done[stage.name].remove_weights(f"iteration {latest} is there, keep_weights={keep}")
            logger.info("%s: its weights were removed (keep_weights=%d)", stage.name, keep)


def _is_due(stage: Stage[Any], done: Mapping[str, Artifact]) -> bool:
    """Return whether a stage is needed and has what it needs."""
    has_input = [given.name in done for given in stage.inputs.values()]
    if has_input and not (all(has_input) if stage.needs_all_inputs else any(has_input)):
        return False
    return stage.is_needed is None or stage.is_needed(done)


def preview_stages(stages: Sequence[Stage[Any]], root: Path) -> list[StagePreview]:
    """Return what `run_stages` would do, in its order; changes nothing on disk."""
    latest, ordered = _latest_artifacts(root), _in_order(stages)
    previews, remade = [], _remade(ordered, root)
    for stage in ordered:
        status, inputs = _status(stage, root), tuple(given.name for given in stage.inputs.values())
        known, reason = latest.get(stage.name), remade.get(stage.name, "")
        if reason:
            status = StageStatus.TO_RUN
        elif known and status is not StageStatus.REUSED:
            reason = _difference(stage, known.manifest.provenance)
        previews.append(StagePreview(stage.name, stage.key, status, inputs, reason))
    return previews


def _latest_artifacts(root: Path) -> dict[str, Artifact]:
    """Return the newest artifact of each stage's name."""
    found = []
    for manifest in root.glob(f"*/{MANIFEST}"):
        with contextlib.suppress(ArtifactError):  # of a version that wrote other manifests
            found.append(Artifact(manifest.parent))
    found.sort(key=lambda artifact: artifact.manifest.created)
    return {artifact.manifest.provenance.stage: artifact for artifact in found}


def _difference(stage: Stage[Any], made: Provenance) -> str:
    """Return what is another for a stage than for an artifact of its name."""
    values = dict(_leaves(stage.settings_json)), dict(_leaves(made.settings))
    changed = {
        "settings": _unlike(*values),
        "input": _unlike(stage.input_keys, made.inputs),
        "code": _unlike(stage.code, made.code),
        "seed": [] if stage.seed == made.seed else [str(stage.seed)],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in changed.items() if names)


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*one, *other} if name not in one or name not in other or one[name] != other[name])


def _leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its dotted name."""
    if not isinstance(settings, dict):
        yield prefix, settings
        return
    for name, value in settings.items():
        yield from _leaves(value, f"{prefix}.{name}" if prefix else name)


def _tell_of_other_code(stages: Sequence[Stage[Any]], root: Path) -> None:
    """Say which stages of a folder were made by other code and are made again, and which code it is."""
    latest = _latest_artifacts(root)
    changed: dict[str, list[str]] = {}
    for stage in stages:
        known, is_there = latest.get(stage.name), (artifact_folder(root, stage.name, stage.key) / MANIFEST).is_file()
        if known is not None and not is_there:
            modules = _unlike(stage.code, known.manifest.provenance.code)
            changed |= {stage.name: modules} if modules else {}
    if changed:
        modules = sorted({module for names in changed.values() for module in names})
        logger.warning("%s was made by other code (%s changed): %s, and what needs them, run again",
                       root, ", ".join(modules), ", ".join(changed))  # fmt: skip


def row_seed(seed: int, stage: str, *ids: str | int) -> int:
    """Return a seed in [0, 2**63) that depends on the arguments only, for use where there is no `StageContext`."""
    return int(_digest("row", seed, stage, list(ids))[:16], 16) >> 1


def row_rng(seed: int, stage: str, *ids: str | int) -> random.Random:
    """Return a random source for one row, for use where there is no `StageContext`."""
    return random.Random(row_seed(seed, stage, *ids))


def _run_despite_losses(stage: Stage[Any], *arguments: Any) -> Artifact:
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
    stage: Stage[Any],
    root: Path,
    inputs: Mapping[str, Artifact],
    resources: Resources,
    tool_versions: Mapping[str, str],
    label: str,
) -> Artifact:
    output = ArtifactWriter(root, stage.name, stage.key)
    logger.info("%s: %s", label, "continuing" if output.was_resumed else "running")
    start_s, cpu_s = time.monotonic(), _cpu_seconds(resources)
    stage.run(StageContext(stage, inputs, output, resources))
    provenance = Provenance(
        stage=stage.name,
        key=stage.key,
        settings=stage.settings_json,
        code=stage.code,
        inputs=stage.input_keys,
        kind=stage.kind,
        iteration=stage.iteration,
        labels=dict(stage.labels),
        seed=stage.seed,
        tool_versions=tool_versions,
    )
    spent_s = _cpu_seconds(resources) - cpu_s
    artifact = output.finish(provenance, wall_time_s=time.monotonic() - start_s, cpu_time_s=spent_s)
    logger.info("%s: done in %.1f s", label, artifact.manifest.wall_time_s)
    return artifact


def _cpu_seconds(resources: Resources) -> float:
    """Return what this process and row workers have taken so far; a trainer and engines are not counted."""
    return time.process_time() + resources.worker_cpu_s


def _reused(stage: Stage[Any], root: Path, label: str) -> Artifact | None:
    try:
        artifact = find_artifact(root, stage.name, stage.key)
    except ArtifactError as error:
        aside = set_aside(artifact_folder(root, stage.name, stage.key))
        logger.warning("%s: its artifact is damaged and is made again (the old one is now %s): %s", label, aside, error)
        return None
    if artifact is not None:
        remove_working_folders(artifact)
        logger.info("%s: reused", label)
    return artifact


def _status(stage: Stage[Any], root: Path) -> StageStatus:
    try:
        if find_artifact(root, stage.name, stage.key) is not None:
            return StageStatus.REUSED
    except ArtifactError as error:
        logger.warning("stage %s: its artifact is damaged and would be made again: %s", stage.name, error)
    return StageStatus.RESUMES if has_shards(root, stage.name, stage.key) else StageStatus.TO_RUN


def _in_order(stages: Iterable[Stage[Any]]) -> list[Stage[Any]]:
    ordered: dict[str, Stage[Any]] = {}

    def add(stage: Stage[Any]) -> None:
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

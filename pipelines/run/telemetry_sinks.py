"""Where points of curves are written: TensorBoard files, and Weights & Biases where a run asks for it.

Both get the same points under the same tags, each point once however often a run is resumed. Not here: when they are
told (`telemetry`), and Ray's metrics (`actors.telemetry`).
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import getpid
from pathlib import Path
from typing import Any, Protocol

from plansmith.data.artifacts import Artifact
from plansmith.data.storage import atomic_file
from plansmith.errors import ConfigError
from plansmith.report.finished_stages import family_of
from plansmith.report.metric_list import METRICS, Measurement, Source

logger = logging.getLogger(__name__)

SERVICE_WAIT_S = 120.0
"""How long the process of Weights & Biases may take to start, on a machine that is busy with the run."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve; ``step`` is a feedback iteration, an optimiser step or a turn of feedback."""

    tag: str
    value: float
    step: int


class Sink(Protocol):
    """A place for points."""

    failures: tuple[type[Exception], ...]
    """What may befall it that is no bug: a full disk, a server that is away."""

    def write(self, points: Sequence[Point], artifact: Artifact) -> None:
        """Write the points of a finished stage, those that are not there yet."""

    def close(self) -> None:
        """Write what is left."""


def points_of(measurements: Iterable[Measurement]) -> list[Point]:
    """Return the points of measurements; what is no number has none, nor has what only names a version."""
    return [
        Point(tag_of(item), item.value, _step(item))
        for item in measurements
        if math.isfinite(item.value) and "policy_version" not in item.labels
    ]


def tag_of(measurement: Measurement) -> str:
    """Return the curve that a measurement belongs to: the name, then each label and its value.

    Arms of one series are one curve. The number of the iteration is no part of it but in the curve of one optimisation,
    whose points are its steps; that is one of its stage, as several minimise the same.
    """
    parts = [measurement.name]
    for label in METRICS[measurement.name].labels:
        value = measurement.labels.get(label)
        if value is None or label == "turn" or (label == "arm" and measurement.series):
            continue
        parts += [label, family_of(value, measurement.iteration) if label == "stage" else value]
    if METRICS[measurement.name].source is Source.CURVE and measurement.iteration:
        parts.append(f"iteration_{measurement.iteration}")
    return "/".join(parts)


def _step(measurement: Measurement) -> int:
    if measurement.step is not None:
        return measurement.step
    return int(measurement.labels.get("turn", measurement.iteration))


class TensorBoardSink:
    """TensorBoard files of one run, a further file for each session.

    A point that is there with the same value is not written again; with another one it is, because its stage was made
    anew with other settings. Written at once and in this thread, so that a full disk is met here.
    """

    failures: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int], bytes] | None = None
        self._records: Any = None

    def write(self, points: Sequence[Point], artifact: Artifact) -> None:
        """Write points, dated when their stage was finished."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._known is None:
            self._known = _known_points(self._folder)
        wall_time = datetime.fromisoformat(artifact.manifest.created).timestamp()
        by_step: dict[int, list[Any]] = {}
        for point in points:
            if self._known.get((point.tag, point.step)) != _stored(point.value):
                by_step.setdefault(point.step, []).append(Summary.Value(tag=point.tag, simple_value=point.value))
        for step, values in sorted(by_step.items()):
            self._add(wall_time=wall_time, step=step, summary=Summary(value=values))
        if by_step:
            self._records.flush()
        self._known.update({(point.tag, point.step): _stored(point.value) for point in points})

    def close(self) -> None:
        """Close the file."""
        if self._records is not None:
            self._records.close()

    def _add(self, **fields: Any) -> None:
        """Append one event; the first opens the file."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._records is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{getpid()}"  # read in this order
            self._records = RecordWriter((self._folder / name).open("xb"))
            self._records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        self._records.write(Event(**fields).SerializeToString())


def _stored(value: float) -> bytes:
    """Return a value as a TensorBoard file holds it: four bytes."""
    return struct.pack("<f", value)


def _known_points(folder: Path) -> dict[tuple[str, int], bytes]:
    """Return the values that earlier sessions wrote; a file with a torn or damaged end counts up to there."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return {
        (item.tag, event.step): _stored(item.simple_value)
        for path in sorted(folder.glob("*tfevents*"))
        for event in LegacyEventFileLoader(str(path)).Load()
        for item in event.summary.value
    }


class WandbSink:
    """A run of Weights & Biases; a resumed run continues it.

    Args:
        run_folder: its files go there, and which run it is, with the artifacts whose points it has.
        name: of the run.
        project: as the user set it.
        config: resolved settings, to be shown; they hold no secrets.

    Raises:
        ConfigError: the package is not installed.
    """

    RECORD = "wandb.json"
    failures: tuple[type[Exception], ...] = (Exception,)  # its client's errors have no common type

    def __init__(self, run_folder: Path, *, name: str, project: str, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError(
                "Weights & Biases is not installed",
                where="telemetry.wandb_project",
                got=project,
                cure="install it: pip install 'plansmith[wandb]'; or leave out the setting",
            ) from None
        self._wandb = wandb
        self._run: Any = None
        self._path = run_folder / self.RECORD
        self._settings: dict[str, Any] = {"project": project, "name": name, "config": dict(config), "dir": run_folder}
        self._id, self._written = self._read()

    def write(self, points: Sequence[Point], artifact: Artifact) -> None:
        """Log the points of an artifact that this run does not have yet."""
        if artifact.key in self._written or not points:
            return
        run = self._opened()
        for step in sorted({point.step for point in points}):
            run.log({"at": step, **{point.tag: point.value for point in points if point.step == step}})
        self._written.append(artifact.key)
        self._save()

    def close(self) -> None:
        """Finish the session; the run can be continued."""
        if self._run is not None:
            self._run.finish()

    def _opened(self) -> Any:
        """Return the run; the first call opens it. Points go by their own step, not by the order they are logged in."""
        if self._run is None:
            self._save()
            quiet = self._wandb.Settings(
                console="off", disable_code=True, disable_git=True, silent=True, x_service_wait=SERVICE_WAIT_S
            )
            self._run = self._wandb.init(id=self._id, resume="allow", settings=quiet, **self._settings)
            self._run.define_metric("*", step_metric="at")
        return self._run

    def _read(self) -> tuple[str, list[str]]:
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            return str(record["id"]), list(record["written"])
        except (OSError, ValueError, KeyError, TypeError):
            return secrets.token_hex(8), []

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._path) as file:
            file.write(json.dumps({"id": self._id, "written": self._written}).encode())

"""Shows a run while it goes on: hears of every stage and hands what it measured to Ray, TensorBoard and W&B.

It changes nothing: a window that fails says so once and stays shut, and the run goes on. Not here: what is measured
(`plansmith.report.measurements`), where points go (`telemetry_sinks`), and the live page (`plansmith watch`), which
reads the run folder itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from actors.telemetry import ITERATION, RUN, is_recording, record
from pipelines.run.telemetry_sinks import Sink, TensorBoardSink, WandbSink, points_of
from plansmith.config.run import RunConfig
from plansmith.data.artifacts import Artifact
from plansmith.errors import PlansmithError
from plansmith.live import STAGE, read_live
from plansmith.report.finished_stages import FinishedStage
from plansmith.report.measurements import measurements_of
from plansmith.report.metric_list import METRICS, Measurement, Source
from plansmith.stages import Stage

logger = logging.getLogger(__name__)

TENSORBOARD_FOLDER = "tensorboard"
REFRESH_INTERVAL_S = 8.0
"""How often Ray hears everything: it reports every ten seconds what was recorded since, and forgets after twenty."""


class Telemetry:
    """The windows of one run, told by `run_stages`; use as a context manager within that of the workers.

    Args:
        config: of the run.
        run_folder: of the run.

    Raises:
        ConfigError: a window is asked for that is not installed.
    """

    def __init__(self, config: RunConfig, run_folder: Path) -> None:
        self._sinks: list[Sink] = []
        if config.telemetry.tensorboard:
            self._sinks.append(TensorBoardSink(run_folder / TENSORBOARD_FOLDER))
        if (project := config.telemetry.wandb_project) is not None:
            plain = config.model_dump(mode="json")
            self._sinks.append(WandbSink(run_folder, name=config.name, project=project, config=plain))
        self._gauges = RunGauges(config.name, run_folder) if config.telemetry.ray_metrics else None
        self._by_key: dict[str, Artifact] = {}

    def __enter__(self) -> Self:
        if self._gauges:
            self._gauges.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._gauges:
            self._gauges.stop()
        for sink in list(self._sinks):
            self._guarded(sink, sink.close)

    def started(self, stage: Stage[Any], *, number: int, count: int) -> None:
        """Show which stage the run is at."""
        if self._gauges:
            self._gauges.started(stage, number=number, count=count)

    def finished(
        self, stage: Stage[Any], artifact: Artifact, inputs: Mapping[str, Artifact], *, was_reused: bool
    ) -> None:
        """Show what a stage measured, a reused one as well: points that are there already are not written again."""
        self._by_key |= {found.key: found for found in (artifact, *inputs.values())}
        try:
            measurements = measurements_of(FinishedStage(artifact, self._by_key))
        except (PlansmithError, OSError) as error:
            logger.warning("the figures of stage %s cannot be shown: %s", stage.name, error)
            return
        if self._gauges:
            self._gauges.measured(measurements)
        points = points_of(measurements)
        for sink in list(self._sinks):
            self._guarded(sink, lambda sink=sink: sink.write(points, artifact))

    def _guarded(self, sink: Sink, call: Any) -> None:
        """Call a sink; one that fails is heard of once and told no more."""
        try:
            call()
        except sink.failures as error:
            self._sinks.remove(sink)
            name = type(sink).__name__.removesuffix("Sink")
            logger.warning("%s gets no more figures of this run: %s: %s", name, type(error).__name__, error)


class RunGauges:
    """What Ray knows of a run: the figures of its stages, where it is, and whether anything moves.

    Ray forgets a gauge that is not recorded anew, and the first stages of a run may need no Ray at all. So all values
    are kept here, and a thread records them every few seconds while the run lasts. It also looks at what the processes
    say of themselves (`plansmith.live`), because a stage can take hours.
    """

    def __init__(self, run: str, run_folder: Path) -> None:
        self._run, self._run_folder = run, run_folder
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._stage: str | None = None
        self._version: str | None = None
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="telemetry", daemon=True)

    def start(self) -> None:
        """Say that the run is at work, and keep looking."""
        self._set("run/is_active", 1)
        self._set("run/last_movement", time.time())
        self._thread.start()

    def stop(self) -> None:
        """Say that the run has ended, whatever the way."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._set("run/is_active", 0)
        if self._stage is not None:
            self._set("run/stage", 0, stage=self._stage)

    def started(self, stage: Stage[Any], *, number: int, count: int) -> None:
        """Say which stage it is now."""
        if self._stage is not None:
            self._set("run/stage", 0, stage=self._stage)
        self._stage = stage.name
        self._set("run/stage", 1, stage=stage.name)
        self._set("run/stage_number", number)
        self._set("run/stage_count", count)
        self._set("run/iteration", stage.iteration)
        self._set("run/last_movement", time.time())

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Take the figures of a finished stage; curves are recorded where they are made."""
        for item in measurements:
            if METRICS[item.name].source is Source.STAGE:
                self._set(item.name, item.value, **{ITERATION: str(item.iteration)}, **item.labels)
            if item.name == "policy/version":
                if self._version is not None:
                    self._set("run/policy_version", 0, policy_version=self._version)
                self._version = item.labels["policy_version"]
                self._set("run/policy_version", 1, policy_version=self._version)

    def look(self) -> None:
        """Take what the processes say; movement is dated here, because the clocks of machines may differ."""
        works = [work for work in read_live(self._run_folder) if work.source != STAGE]
        moved = {work.source: work.moved for work in works}
        if moved != self._seen:
            self._seen = moved
            self._set("run/last_movement", time.time())
        for work in works:
            self._set("work/done", work.done, source=work.source)
            self._set("work/total", work.total or 0, source=work.source)

    def refresh(self) -> None:
        """Record all values anew, if there is a Ray."""
        if is_recording():
            with self._lock:
                for (name, labels), value in self._values.items():
                    record(name, value, **{RUN: self._run}, **dict(labels))

    def _watch(self) -> None:
        while not self._is_over.wait(REFRESH_INTERVAL_S):
            self.look()
            self.refresh()

    def _set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] = value
            if is_recording():
                record(name, value, **{RUN: self._run}, **labels)

"""Ray metrics: numbers that any process of a run hands to Ray, which serves them to Prometheus.

The names are those of `plansmith.report.metric_list`. They are gauges and counters only, because the sums of Ray's
histograms are estimates. Outside Ray nothing happens, and Ray is not imported. Not here: TensorBoard and Weights &
Biases, which only the process that conducts the run writes to (`pipelines.run.telemetry`).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from plansmith.report.metric_list import METRICS, Metric, Source

PREFIX = "plansmith"
RUN, ITERATION = "run", "iteration"


def record(name: str, value: float, **tags: str) -> None:
    """Hand a number to Ray; outside Ray nothing happens. What is not finite is left out: Prometheus could not add it.

    Args:
        name: one of `METRICS`, such as ``train/loss``.
        value: what a gauge shows, which Ray forgets when it is not recorded anew within twenty seconds; or what a
            counter grows by.
        tags: labels of the metric, and ``run``. Those of `record_as` need not be repeated, and one that lacks is empty.

    Raises:
        ValueError: no such metric, or a label that it does not have.
    """
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"no metric is named {name!r}; add it to METRICS")
    if unknown := sorted(tags.keys() - set(tag_keys(metric))):
        raise ValueError(f"{name} has labels {tag_keys(metric)}, not {unknown}")
    if not is_recording() or not math.isfinite(value):
        return
    every = {key: {**_common, **tags}.get(key, "") for key in tag_keys(metric)}
    recorder = _recorder(metric)
    if metric.kind == "gauge":
        recorder.set(value, tags=every)
    elif value > 0:
        recorder.inc(value, tags=every)


def is_recording() -> bool:
    """Return whether this process belongs to a Ray; asking imports none, and another thread may be at it."""
    is_initialized = getattr(sys.modules.get("ray"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def record_as(**tags: str) -> None:
    """Set labels of whatever this process records from now on, such as the ``objective`` of a trainer."""
    _common.update(tags)


class RayListener:
    """Hands what a process reports (`plansmith.live.report`) to Ray; for `report_to`, beside its file.

    Args:
        run: name of the run.
        source: name of the process, as on the live page.
    """

    def __init__(self, run: str, source: str) -> None:
        record_as(run=run, source=source)
        self._finished = 0.0
        if was_restarted():
            record("actor/restarts", 1)

    def update(
        self, doing: str, done: float, total: float | None, *, unit: str, values: Mapping[str, float] | None
    ) -> None:
        """Record the figures, and finished rollouts; other work is recorded by the process that conducts the run.

        Raises:
            ValueError: a figure that is no metric.
        """
        figures = dict(values or {})
        if unit == "rollout":
            figures["rollout/finished"] = self._newly(done)
        for name, value in figures.items():
            record(name, value)

    def _newly(self, finished: float) -> float:
        """Return how many more are finished; a number that is smaller than before belongs to other work."""
        before, self._finished = self._finished, finished
        return finished - before if finished >= before else finished


def was_restarted() -> bool:
    """Return whether this process is a Ray actor that has been started before."""
    if not is_recording():
        return False
    import ray

    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray asks itself in a way that it no longer likes
        return bool(context.was_current_actor_reconstructed)


def tag_keys(metric: Metric) -> tuple[str, ...]:
    """Return the labels under which Prometheus gets a metric: few values each, so that its memory stays small."""
    return (RUN, ITERATION, *metric.labels) if metric.source is Source.STAGE else (RUN, *metric.labels)


def ray_name(metric: Metric) -> str:
    """Return the name of a metric as Ray's own API knows it: ``plansmith_train_loss``."""
    return f"{PREFIX}_{metric.name.replace('/', '_')}"


def exported_name(metric: Metric) -> str:
    """Return the name under which Prometheus finds a metric: Ray puts its own name before it."""
    return f"ray_{ray_name(metric)}" + ("_total" if metric.kind == "counter" else "")


def metrics_table() -> str:
    """Return every metric as a table in Markdown, as `docs/telemetry.md` has it."""
    rows = [("metric", "in Prometheus", "labels", "unit", "from", "what it is"), ("---",) * 6]
    for metric in METRICS.values():
        names, keys = (f"`{metric.name}`", f"`{exported_name(metric)}`"), ", ".join(tag_keys(metric))
        rows.append((*names, keys, metric.unit, metric.source.value, metric.description))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_common: dict[str, str] = {}
"""Labels of this process, like the name of a logger."""

_recorders: dict[str, Any] = {}
_recorded_by: list[str] = []
"""Which Ray worker the recorders belong to; another Ray in this process needs its own."""


def _recorder(metric: Metric) -> Any:
    """Return Ray's object for a metric, made once for each connection to a Ray."""
    import ray
    from ray.util.metrics import Counter, Gauge

    worker = ray.get_runtime_context().get_worker_id()
    if _recorded_by != [worker]:
        _recorded_by[:] = [worker]
        _recorders.clear()
    if metric.name not in _recorders:
        make = Gauge if metric.kind == "gauge" else Counter
        _recorders[metric.name] = make(ray_name(metric), metric.description, tag_keys(metric))
    return _recorders[metric.name]

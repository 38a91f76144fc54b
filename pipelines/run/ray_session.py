"""Ray and its parallel work for the stages of one run, started when a stage first needs it, and the watch over them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from actors.endpoint import Endpoint
from pipelines.run.ray_start import start_ray
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import EndpointConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.storage import atomic_file, check_free, make_folder, storage_errors
from plansmith.live import RUN, STAGE, LiveFile, LiveWork, read_live, reporting_to
from plansmith.progress import progress_bar, say_behind_bar
from plansmith.resources import Resources
from plansmith.stages import Observer, Stage, run_stages
from plansmith.watchdog import watchdog

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 400 * 2**20
"""Of a Ray of our own; rows are small, weights go through files."""

IDLE_PROCESS_MS = 120_000
"""How long a Ray of our own keeps an idle process. Its default, a second, ends the processes of one stage while the
next is being prepared, and starting and importing anew takes three seconds."""

STAGES = "stages.json"
"""Key and iteration of every stage of the run by name, for `plansmith watch`."""

POLL_S = 0.5
"""How often the progress of actors is looked at."""


class HasCluster(Protocol):
    """Settings of any kind of run that say which Ray it uses."""

    @property
    def cluster(self) -> ClusterConfig:
        """Return the settings of Ray."""


class RaySession(Resources):
    """Ray for one run, which lends workers; use as a context manager, which ends a Ray that it started itself.

    Args:
        config: settings of the run.
        run_folder: where its processes say what they are doing; every machine of the cluster must see it.
    """

    def __init__(self, config: HasCluster, run_folder: Path) -> None:
        self._cluster = config.cluster
        self.run_folder = run_folder
        self._is_ray_ours = False
        self._open = contextlib.ExitStack()
        self._servers: dict[str, Endpoint] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        if self._is_ray_ours:
            import ray

            ray.shutdown()

    def server(self, config: EndpointConfig) -> Endpoint:
        """Return who asks a server, the same until the session ends: it keeps connections and limits a minute."""
        name = config.model_dump_json()
        if name not in self._servers:
            self._servers[name] = self._open.enter_context(Endpoint(config))
        return self._servers[name]

    def run(
        self,
        stages: Sequence[Stage[Any]],
        *,
        root: Path,
        observers: Sequence[Observer] = (),
        keep_weights: int | None = None,
    ) -> dict[str, Artifact]:
        """Return the artifacts of stages, run under the watch of the session; see `plansmith.stages.run_stages`.

        Raises:
            StalledError: nothing has moved for `cluster.stall_limit_s`.
        """
        check_free(root)  # or what is said here would be said of the run that works there
        make_folder(self.run_folder)
        said = {stage.name: {"key": stage.key, "iteration": stage.iteration} for stage in stages}
        with storage_errors(self.run_folder), atomic_file(self.run_folder / STAGES) as file:
            file.write(json.dumps(said, indent=1).encode())
        with (
            reporting_to(LiveFile(self.run_folder, RUN)),
            LiveStages(self.run_folder) as live,
            watchdog(self.run_folder, limit_s=self._cluster.stall_limit_s),
        ):
            told = [live, *observers]
            return run_stages(stages, root=root, resources=self, observers=told, keep_weights=keep_weights)

    def ray(self) -> Any:
        """Return the `ray` module with a Ray running.

        Raises:
            PlansmithError: it did not start.
        """
        if self._cluster.is_local:
            _lock_out_others()
        import ray

        if not ray.is_initialized():
            cluster = self._cluster
            logger.info("starting Ray (%s)" if cluster.is_local else "joining Ray (%s)", cluster.ray_address)
            with _own_signals():
                if cluster.is_local:
                    start_ray(ray, logging_level=logging.ERROR, **_local_options(cluster.num_cpus))
                else:
                    ray.init(address=cluster.ray_address, logging_level=logging.ERROR)
            self._is_ray_ours = True
        return ray

    def n_workers(self) -> int:
        """Return how many worker processes a parallel stage may have."""
        cluster = self._cluster
        if cluster.max_workers is not None:
            return cluster.max_workers
        return cluster.num_cpus if cluster.is_local else max(1, int(self.ray().cluster_resources().get("CPU", 1)))

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        """Apply a worker to rows in parallel; see `actors.mapping.map_rows`."""
        from actors.mapping import map_rows

        map_rows(rows, row_type_in, worker, pool_size=self._pool_size, spent=self._spent, **options)

    def map_jobs(
        self, jobs: Sequence[Any], row_type_in: type, worker: Any, row_type_out: type, **options: Any
    ) -> Iterator[list[Any]]:
        """Yield what a worker makes of each job, in order; see `actors.mapping.map_jobs`."""
        from actors.mapping import map_jobs

        how = {"pool_size": self._pool_size, "spent": self._spent, **options}
        return map_jobs(jobs, row_type_in, worker, row_type_out, **how)

    def _pool_size(self) -> int:
        """Return how many worker processes there may be, with a Ray running for them."""
        self.ray()
        return self.n_workers()

    def _spent(self, seconds: float) -> None:
        self.worker_cpu_s += seconds

    def wait_for(self, answers: Sequence[Any], *, doing: str | None = None, unit: str = "") -> list[Any]:
        """Return the answers of actors, in order; the first error ends the wait.

        Args:
            answers: what their remote calls returned.
            doing: what they say they are doing (`plansmith.live`), shown as one bar for all of them; None shows none.
            unit: of the bar.

        Raises:
            LostWorkerError: an actor died.
            PlansmithError: an actor's own.
        """
        from actors.failures import own_errors

        ray, waiting = self.ray(), list(answers)
        found: dict[Any, Any] = {}
        with own_errors(), _BarOfActors(self.run_folder, doing, unit) as bar:
            while waiting:
                ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
                # an error is raised now: the others may wait for the one that is gone
                found.update(zip(ready, ray.get(ready), strict=True))
                bar.look()
            bar.fill()
        return [found[answer] for answer in answers]

    def streamed(self, streams: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield what actors yield, as it comes, each with the number of its stream.

        Args:
            streams: what the remote calls of methods that yield returned.

        Raises:
            LostWorkerError: an actor died.
            PlansmithError: an actor's own.
        """
        from actors.failures import own_errors

        ray, numbers = self.ray(), {stream: number for number, stream in enumerate(streams)}
        began = time.time()
        with own_errors():
            while numbers:
                ready, _ = ray.wait(list(numbers), num_returns=1, timeout=POLL_S)
                if not ready:
                    say_behind_bar(_figures([work for work in read_live(self.run_folder) if work.moved > began]))
                for stream in ready:
                    answer = next(stream, None)
                    if answer is None:
                        del numbers[stream]
                        continue
                    [value] = ray.get([answer])
                    yield numbers[stream], value


class LiveStages:
    """Says which stage's turn it is, and how the run ended."""

    def __init__(self, run_folder: Path) -> None:
        self._file = LiveFile(run_folder, STAGE)
        self._number = self._count = 0

    def __enter__(self) -> Self:
        self._say("starting")
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        self._say("finished" if error is None else f"ended: {type(error).__name__}")

    def started(self, stage: Stage[Any], *, number: int, count: int) -> None:
        """Hear that the turn of a stage has come."""
        self._number, self._count = number - 1, count
        self._say(stage.name)

    def finished(
        self, stage: Stage[Any], artifact: Artifact, inputs: Mapping[str, Artifact], *, was_reused: bool
    ) -> None:
        """Hear that a stage has its artifact."""
        self._number += 1

    def _say(self, doing: str) -> None:
        self._file.update(doing, self._number, self._count or None, unit="stage")


def _local_options(num_cpus: int) -> dict[str, Any]:
    """Return how a Ray of our own is started."""
    return {
        "num_cpus": num_cpus,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_system_config": {
            "idle_worker_killing_time_threshold_ms": IDLE_PROCESS_MS,
            "num_workers_soft_limit": 2 * num_cpus + 1,
        },
    }


def _lock_out_others() -> None:
    """Give a Ray of our own a token that only its processes have: whoever reaches a Ray can run code in it.

    Which mode is the default changes with Ray's versions, so it is said here. What the user has set stays. Ray reads
    the mode when it is imported; if that was before, its default holds, which in 2.60 is a token in the user's folder.
    """
    if "ray" in sys.modules or "RAY_AUTH_MODE" in os.environ:
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what the command does when it is told to end; Ray would put its own in the place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _figures(works: Sequence[LiveWork]) -> str:
    """Return what stands behind a bar: the loss, or how fast the engines write, and how long the longest answer is."""

    def said(name: str) -> list[float]:
        return [work.values[name] for work in works if name in work.values]

    if losses := said("train/loss"):
        return f"loss {losses[0]:.3f}"
    if speeds := said("rollout/tokens_per_s"):
        return f"{sum(speeds):,.0f} tokens/s, longest {max(said('rollout/longest_tokens')):,.0f}"
    return ""


class _BarOfActors:
    """One bar for what several actors say they have done of one work; there is none before its total is known.

    What they said before the work began was of another one. The bar itself is what the run is doing: counted with the
    actors' it would feed itself, and no watchdog would ever see a run stand still.
    """

    def __init__(self, run_folder: Path, doing: str | None, unit: str) -> None:
        self._run_folder, self._doing, self._unit = run_folder, doing, unit
        self._said_before = {work.source: work.moved for work in self._said()}
        self._bar: Any = None

    def __enter__(self) -> Self:
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def look(self) -> None:
        """Bring the bar to the sum of what the actors have done."""
        if not self._doing:
            return
        works = [work for work in self._said() if work.moved != self._said_before.get(work.source)]
        if self._bar is None:
            total = next((int(work.total) for work in works if work.total), None)
            self._bar = progress_bar(total, self._doing, unit=self._unit) if total else None
        if self._bar is not None:
            self._bar.set_postfix_str(_figures(works), refresh=False)
            self._bar.update(max(0, int(sum(work.done for work in works)) - self._bar.n))

    def _said(self) -> list[LiveWork]:
        """Return what the actors say of the work."""
        return [work for work in read_live(self._run_folder) if work.is_of_an_actor and work.doing == self._doing]

    def fill(self) -> None:
        """Bring the bar to its end: all answers are there."""
        if self._bar is not None:
            self._bar.update(self._bar.total - self._bar.n)

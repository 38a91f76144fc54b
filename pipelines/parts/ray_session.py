"""Ray and its parallel work for the stages of one run, started when a stage first needs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

from plansmith.config.models import ClusterConfig

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 400 * 2**20
"""Of a Ray of our own; rows are small, weights go through files."""

IDLE_PROCESS_MS = 120_000
"""How long a Ray of our own keeps an idle process. Its default, a second, ends the processes of one stage while the
next is being prepared, and starting and importing anew takes three seconds."""


class HasCluster(Protocol):
    """Settings of any kind of run that say which Ray it uses."""

    @property
    def cluster(self) -> ClusterConfig:
        """Return the settings of Ray."""


class RaySession:
    """Ray for one run; use as a context manager, which ends a Ray that it started itself."""

    def __init__(self, config: HasCluster) -> None:
        self.config: Any = config
        self._is_ray_ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ray_ours:
            import ray

            ray.shutdown()

    def ray(self) -> Any:
        """Return the `ray` module with a Ray running."""
        import ray

        if not ray.is_initialized():
            cluster: ClusterConfig = self.config.cluster
            logger.info("starting Ray (%s)", cluster.address)
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            local = {
                "num_cpus": cluster.num_cpus,
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_system_config": {
                    "idle_worker_killing_time_threshold_ms": IDLE_PROCESS_MS,
                    "num_workers_soft_limit": 2 * cluster.num_cpus + 1,
                },
            }
            ray.init(
                address=cluster.address,
                logging_level=logging.ERROR,
                **(local if cluster.address == "local" else {}),
            )
            self._is_ray_ours = True
        return ray

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, row_type_out: type, **options: Any) -> None:
        """Apply a worker to rows in parallel; see `actors.mapping.map_rows`."""
        from actors.mapping import map_rows

        self.ray()
        map_rows(rows, row_type_in, worker, row_type_out, concurrency=self.config.cluster.num_cpus, **options)

    def map_jobs(
        self, jobs: Sequence[Any], row_type_in: type, worker: Any, row_type_out: type, **options: Any
    ) -> Iterator[list[Any]]:
        """Yield what a worker makes of each job, in order; see `actors.mapping.map_jobs`."""
        from actors.mapping import map_jobs

        if jobs:
            self.ray()
        return map_jobs(jobs, row_type_in, worker, row_type_out, concurrency=self.config.cluster.num_cpus, **options)

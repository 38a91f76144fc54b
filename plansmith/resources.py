"""What a run lends to its stages: workers, a trainer and a policy. It holds no setting that changes a result.

On Ray they are `pipelines.run.ray_session` and `workers`; tests have stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plansmith.config.training import Numerics
from plansmith.generation import Generator


class Resources:
    """What a stage may ask of its run; here everything is refused, a kind of run overrides what it has.

    Raises:
        TypeError: (by each) this run does not lend it.
    """

    worker_cpu_s: float = 0.0
    """CPU seconds that row workers have taken so far, with the processes that they started."""

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        """Apply a worker to rows in parallel, into shards; see `actors.mapping.map_rows`."""
        raise self._refusal("workers")

    def map_jobs(
        self, jobs: Sequence[Any], row_type_in: type, worker: Any, row_type_out: type, **options: Any
    ) -> Iterator[list[Any]]:
        """Yield what a worker makes of each job, in order; see `actors.mapping.map_jobs`."""
        raise self._refusal("workers")

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        """Return the trainer, holding the weights of a folder, a whole model or an adapter."""
        raise self._refusal("trainer")

    def trainer_group(self) -> str | None:
        """Return a name of the processes that hold the trainer; None where none do, be it that new ones came."""
        raise self._refusal("trainer")

    def load_policy(self, policy: Any, engine: Any) -> None:
        """Let the engines hold the weights of an artifact, proved to be those, before anybody asks them.

        Args:
            policy, engine: see `generator`.
        """
        raise self._refusal("policy")

    def generator(self, policy: Any, engine: Any) -> Generator:
        """Return who answers with the weights of an artifact, proved to be those; of an endpoint the policy is None.

        Args:
            policy: the artifact.
            engine: what the answers depend on beside it, as the stage's key has it: an `EngineNumerics`, or of a server
                an `EndpointModel`.
        """
        raise self._refusal("policy")

    def _refusal(self, what: str) -> TypeError:
        return TypeError(f"{type(self).__name__} lends no {what}")

"""The ranks of a run's trainer: one fit of Ray Train, started beside the run, and calls to all of its workers.

What the workers do is `actors.ranks`. Ray Train places them, joins them and starts them anew when one is lost; from
then on they hold nothing, and the stage that needed them begins again (`plansmith.stages`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.run.placement import CLUSTER_WAIT_S
from plansmith import live
from plansmith.config.training import TrainerConfig
from plansmith.errors import ConfigError, LostWorkerError, PlansmithError

if TYPE_CHECKING:
    from actors.ranks import Place

logger = logging.getLogger(__name__)

LOCAL_WAIT_S = 300.0
"""Longest wait for the ranks of a Ray of this run's own, to which no machine is added: for the slowest of starts."""
RESIZE_S = 60.0
"""Least time between two looks whether there is room for more ranks."""
POLL_S = 1.0
END_WAIT_S = 30.0

DRIVER_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # settings may name folders as the run sees them
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "60",
}
"""What Ray Train reads in the process that starts a fit; what the user has set stays."""


@dataclass
class Ranks:
    """The ranks of one run. Nothing is started before `start` or the first `make`.

    Args:
        ray: returns the module, with a Ray running.
        wait_for: see `pipelines.run.ray_session.RaySession.wait_for`.
        config: of the trainer.
        resources: what each rank asks Ray for.
        folder: where Ray Train may write; all machines must see it.
        is_local: no machine will be added.
    """

    ray: Callable[[], Any]
    wait_for: Callable[..., list[Any]]
    config: TrainerConfig
    resources: Mapping[str, float]
    folder: Path
    is_local: bool
    _fit: threading.Thread | None = None
    _desk: Any = None
    _error: BaseException | None = None
    _group: str | None = None
    _is_busy: bool = False
    _is_given_up: bool = False

    def start(self) -> None:
        """Let Ray Train start the ranks, and do not wait."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from actors.ranks import CallDesk

        if self._fit is not None:
            return
        ray, count = self.ray(), self.config.n_ranks
        logger.info("starting the trainer (%d rank%s)", count, "s" * (count > 1))
        # on the machine of whoever asks, which is not taken away without it
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._desk = ray.remote(CallDesk).options(num_cpus=0, scheduling_strategy=here).remote()
        trainer = self._torch_trainer(ray)
        self._fit = threading.Thread(target=self._run_fit, args=[trainer], name="ray-train", daemon=True)
        self._fit.start()

    def _run_fit(self, trainer: Any) -> None:
        try:
            trainer.fit()
        except Exception as error:  # noqa: BLE001 - whoever waits for the ranks raises it
            self._error = error

    def _torch_trainer(self, ray: Any) -> Any:
        for variable, value in DRIVER_ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        # a Ray of our own has no dashboard that would show it, and no machines that are taken away
        os.environ.setdefault("RAY_TRAIN_ENABLE_STATE_TRACKING", "0" if self.is_local else "1")
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0" if self.is_local else "1")
        from ray import train
        from ray.train.torch import TorchConfig, TorchTrainer

        from actors.ranks import introducing, serve_calls
        from actors.trainer import rank_environment

        # mypy takes them for those of the first Ray Train
        run_config: Any = train.RunConfig
        scaling_config: Any = train.ScalingConfig

        least, count = self._least, self.config.n_ranks
        # with nothing to reserve, a sliver of this machine's own name: ranks stay here and leave the cores to others
        here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
        trainer = TorchTrainer(
            serve_calls,
            train_loop_config={"desk": self._desk},
            torch_config=TorchConfig(
                backend="gloo" if self.config.device == "cpu" else "nccl", timeout_s=int(self.config.rank_timeout_s)
            ),
            scaling_config=scaling_config(
                num_workers=(least, count) if least < count else count,
                elastic_resize_monitor_interval_s=max(RESIZE_S, self.config.checkpoint_every_s),
                use_gpu=bool(self.resources.get("GPU")),
                resources_per_worker=dict(self.resources) or here,
            ),
            run_config=run_config(
                name=f"{self.folder.name}-{uuid.uuid4().hex[:8]}",
                storage_path=str(self.folder.resolve()),
                failure_config=train.FailureConfig(max_failures=-1),
                worker_runtime_env={"env_vars": {**rank_environment(self.config), **_allocator(self.config)}},
                logging_config=train.LoggingConfig(log_level="ERROR"),
            ),
        )
        return _with_callbacks(trainer, introducing(self._desk), is_local=self.is_local)

    @property
    def _least(self) -> int:
        """Return how many ranks must be there; to a Ray of our own nothing comes, and nothing is taken from it."""
        return self.config.n_ranks if self.is_local else self.config.min_ranks or self.config.n_ranks

    def places(self) -> list[Place]:
        """Return where the ranks are; start them if they are not there.

        Raises:
            ConfigError: what they need is not there in time.
        """
        return self._joined()[1]

    def _joined(self) -> tuple[str, list[Place]]:
        self.start()
        ray, asked = self.ray(), self._desk.places.remote()
        limit_s = LOCAL_WAIT_S if self.is_local else CLUSTER_WAIT_S
        wanted = " and ".join(f"{amount:g} {name}" for name, amount in self.resources.items())
        live.report(f"waiting for {self._least} ranks" + f" of {wanted}" * bool(wanted))
        for _ in range(int(limit_s / POLL_S)):
            ready, _ = ray.wait([asked], timeout=POLL_S)
            if ready:
                group, places = ray.get(asked)
                return str(group), list(places)
            if self._fit is not None and not self._fit.is_alive():
                raise PlansmithError("Ray Train ended", got=str(self._error)[:400]) from self._error
        offered, self._is_given_up = ray.cluster_resources(), True
        raise ConfigError(
            "Ray does not offer what the ranks need",
            got=", ".join(f"{offered.get(name, 0):g} {name}" for name in self.resources or ["CPU"]) + " in all",
            expected=f"{self._least} times {wanted or 'a process'}, free within {limit_s:g} s",
            cure="lower trainer.n_ranks or policy.n_replicas, set policy.placement=colocated, or enlarge the cluster",
        )

    @property
    def group(self) -> str | None:
        """Return the name of the ranks that hold a trainer; others that take their place have another."""
        return self._group

    @property
    def is_made(self) -> bool:
        """Say whether the ranks hold a trainer; those that were started anew do not."""
        return self._group is not None and self._joined()[0] == self._group

    def make(self, *arguments: Any, **keywords: Any) -> None:
        """Let every rank make a `TrainerActor`, in place of the one it has.

        Raises:
            ConfigError: what the ranks need is not there in time.
            LostWorkerError, PlansmithError: see `ask`.
        """
        from actors.ranks import MAKE

        self._group, places = self._joined()
        if len(places) < self.config.n_ranks:
            logger.warning("the trainer has %d of %d ranks: steps take longer, batches stay what they are",
                           len(places), self.config.n_ranks)  # fmt: skip
        self.ask(MAKE, *arguments, **keywords)

    def ask(self, method: str, *arguments: Any, doing: str | None = None, unit: str = "", **keywords: Any) -> Any:
        """Return rank 0's answer to a call of every rank.

        Args:
            method: of `TrainerActor`.
            arguments, keywords: of the method; a reference of Ray's is given as its value.
            doing, unit: of the bar (`RaySession.wait_for`).

        Raises:
            LostWorkerError: a rank is gone, and with it what all of them held.
            PlansmithError: a rank's own.
        """
        from actors.ranks import Call

        call = self.ray().put(Call(method, arguments, keywords))
        self._is_busy = True
        try:
            [[answer]] = self.wait_for([self._desk.ask.remote(self._group, [call])], doing=doing, unit=unit)
            found = self.wait_for([answer])[0]
        except PlansmithError as error:
            self._is_busy = False
            if isinstance(error, LostWorkerError):
                self._group = None
            raise
        self._is_busy = False
        return found

    def end(self) -> None:
        """Let the ranks end, and wait a while; not for those that never came, or were interrupted.

        The fit is over then: Ray ends a process that waits for something of it when it shuts down, without a word.
        """
        if self._fit is None:
            return
        with contextlib.suppress(Exception):  # a Ray that is gone took them along
            self._desk.end.remote()
        if not self._is_busy and not self._is_given_up:
            self._fit.join(END_WAIT_S)
        if self._fit.is_alive():
            self._break_off(self._fit)
        self._fit, self._desk, self._group, self._is_busy, self._is_given_up = None, None, None, False, False

    def _break_off(self, fit: threading.Thread) -> None:
        """End the fit where it is: without its controller nobody waits for anything, nor do the ranks live on."""
        import ray

        with contextlib.suppress(Exception):  # it is gone, or Ray is
            ray.kill(ray.get(self._desk.controller.remote(), timeout=END_WAIT_S))
        fit.join(END_WAIT_S)
        if fit.is_alive():
            logger.warning("Ray Train has not ended after %g s", END_WAIT_S)


def _with_callbacks(trainer: Any, own: Any, *, is_local: bool) -> Any:
    """Give Ray Train a callback, and take those from it that have nothing to do here (2.60).

    One starts a process for the Ray Datasets of the ranks, which are given none. In a Ray of our own another watches
    over what the fit reserved, which ends with that Ray; its watch asks a dashboard, which that has not, or any Ray of
    the machine's, and says so in a traceback.
    """
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    unused = (DatasetsCallback, PlacementGroupCleanerCallback) if is_local else DatasetsCallback
    kept = [callback for callback in trainer._create_default_callbacks() if not isinstance(callback, unused)]
    trainer._create_default_callbacks = lambda: [*kept, own]
    return trainer


def _allocator(config: TrainerConfig) -> dict[str, str]:
    """Return the variables that give a trainer on a CPU jemalloc, which Ray has with it.

    Packed rows need tensors of ever other sizes; glibc looks for room among its free blocks one by one, for a sixth to
    a fifth of the time of a step (docs/log.md). jemalloc keeps what is freed, and may take small tensors from large
    free extents: with its default limit to that, a trainer was seen to grow to 13 GiB.
    """
    import ray

    library = Path(ray.__file__).parent / "core" / "libjemalloc.so"
    if config.device != "cpu" or "LD_PRELOAD" in os.environ or not library.is_file():
        return {}
    keeping = "dirty_decay_ms:-1,muzzy_decay_ms:-1,lg_extent_max_active_fit:63"
    return {"LD_PRELOAD": str(library), "MALLOC_CONF": keeping}

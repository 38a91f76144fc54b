"""The resident actors of a run, each started when a stage first needs it.

A run whose stages are all reused starts nothing. Where they go is `pipelines.run.placement`. An actor that dies is
forgotten with its siblings, and the stage that needed it begins again with others (`plansmith.stages`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.run.engines import Engines
from pipelines.run.placement import PlacementGroups, placement_of
from pipelines.run.ray_session import HasCluster, RaySession
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.training import EngineNumerics, Numerics, PolicyConfig, TrainerConfig
from plansmith.data.artifacts import WEIGHTS, Artifact
from plansmith.errors import LostWorkerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from plansmith.config.training import OptimiserConfig
    from plansmith.learning.codec import EngineGenerator
    from plansmith.learning.objectives.base import Objective, Reader
    from plansmith.learning.objectives.trust_region import TrustRegion
    from plansmith.learning.optimisation import OptimisationReport
    from plansmith.learning.sequences import Sequences

logger = logging.getLogger(__name__)

MODEL, PROBE = WEIGHTS, "probe.json"
POLICY_RESTARTS = 2
CHUNKS_IN_ENGINE = 2
"""The engines get so many times at once what they decode together: the half that waits fills the places of those that
end."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A token sequence with the log-probabilities the trainer gave it when it saved the weights beside it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def write(self, path: Path) -> None:
        """Write the probe next to the weights it belongs to."""
        path.write_text(json.dumps({"token_ids": self.token_ids, "logprobs": self.logprobs}), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Probe:
        """Return the probe in a file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(values["token_ids"]), tuple(values["logprobs"]))


class HasActors(HasCluster, Protocol):
    """Settings of any kind of run with a trainer and a policy."""

    @property
    def seed(self) -> int:
        """Return the seed of the run."""

    @property
    def trainer(self) -> TrainerConfig:
        """Return the settings of the trainer."""

    @property
    def policy(self) -> PolicyConfig:
        """Return the settings of the engines."""


def _check_same(asked: StrictModel, held: StrictModel) -> None:
    """Raise unless a stage has in its key what the run's actors were made with."""
    if asked != held:
        raise ValueError(f"a stage counts on {asked!r}, the run has {held!r}")


def policy_version(policy: Any) -> str:
    """Return the name of the weights in an artifact, or in what stands for one."""
    return str(policy.key[:12])


class Workers(RaySession):
    """What the stages of a run share; use as a context manager, which ends all it started."""

    def __init__(self, config: HasActors, run_folder: Path) -> None:
        super().__init__(config, run_folder)
        self._trainer_config, self._policy_config, self._seed = config.trainer, config.policy, config.seed
        self._trainers: list[Any] = []
        self._trainer_weights: Path | None = None
        self._trainer_base: str | None = None
        self._is_trainer_changed = False
        self._policies: list[Any] = []
        self._policy_version: str | None = None
        self._placement = placement_of(config.trainer, config.policy, config.cluster)
        self._groups = PlacementGroups(self._placement, config.cluster.is_local)
        # transformers imports DeepSpeed wherever it is installed, and that looks for an accelerator aloud
        os.environ.setdefault("DS_ACCELERATOR", config.trainer.device)

    def __exit__(self, *error: object) -> None:
        """Let go of what is reserved, and with it of the actors there; then of Ray."""
        self._groups.release()
        super().__exit__(*error)

    def trainer(self, model_folder: Path, numerics: Numerics) -> TrainerHandle:
        """Return the trainer holding the weights of a folder, a whole model or an adapter; shared GPUs are its alone.

        Raises:
            ConfigError: the resources it needs are not there.
            ValueError: a stage's key tells of another trainer than the run has.
        """
        _check_same(numerics, narrowed(self._trainer_config, Numerics))
        if self._placement.is_shared:
            self._ask_policies("sleep")
        base = None if self._trainer_config.lora is None else _base_of(model_folder)
        if base != self._trainer_base:
            self._end_trainers()
        if not self._trainers:
            self._trainers, self._trainer_base = self._start_trainers(model_folder), base
        elif self._placement.is_shared:
            self._ask_trainers("wake_up")
        handle = TrainerHandle(self.ray().put, self._ask_trainers, self._weights_changed)
        if self._trainer_weights not in (None, model_folder) or self._is_trainer_changed:
            handle.load(str(model_folder))
        self._trainer_weights, self._is_trainer_changed = model_folder, False
        return handle

    def _start_trainers(self, model_folder: Path) -> list[Any]:
        from actors.trainer import TrainerActor

        ray, count = self.ray(), self._trainer_config.n_ranks
        logger.info("starting the trainer (%d rank%s)", count, "s" * (count > 1))
        actor = ray.remote(TrainerActor)
        address, port = self._groups.meeting_point(ray) if count > 1 else ("127.0.0.1", 0)
        return [
            actor.options(**self._groups.options(ray, "ranks", rank), **_allocator(self._trainer_config)).remote(
                str(model_folder),
                config=self._trainer_config,
                seed=self._seed,
                rank=rank,
                master_addr=address,
                master_port=port,
                run_folder=str(self.run_folder),
            )
            for rank in range(count)
        ]

    def _ask_trainers(
        self, method: str, *arguments: Any, doing: str | None = None, unit: str = "", **keywords: Any
    ) -> Any:
        """Return rank 0's answer to a call of every rank; without one of them the others are of no use."""
        from actors.failures import is_any_dead

        answers = [getattr(rank, method).remote(*arguments, **keywords) for rank in self._trainers]
        try:
            return self.wait_for(answers, doing=doing, unit=unit)[0]
        except LostWorkerError:
            self._end_trainers()
            raise
        except RuntimeError as error:  # what torch raises in a rank whose neighbour is gone
            if not is_any_dead(self._trainers):
                raise
            self._end_trainers()
            raise LostWorkerError("a rank of the trainer was lost", got=str(error).splitlines()[-1][:400]) from error

    def _end_trainers(self) -> None:
        """End the ranks: an adapter's base is frozen in them. A base moves when the stage that made it is finished."""
        for rank in self._trainers:
            self.ray().kill(rank)
        self._trainers, self._trainer_weights, self._is_trainer_changed = [], None, False

    def end_actors(self) -> None:
        """End trainer and engines and let go of what they reserved; they are started anew when a stage needs them."""
        self._end_trainers()
        for policy in self._policies:
            self.ray().kill(policy)
        self._policies = []
        self._groups.release()

    def _weights_changed(self, folder: Path | None = None) -> None:
        """Note that the trainer's weights are no longer those of their folder, or those that were saved in this one."""
        self._trainer_weights, self._is_trainer_changed = folder or self._trainer_weights, folder is None

    def load_policy(self, artifact: Artifact, numerics: EngineNumerics) -> None:
        """Let every engine sample from the weights of an artifact, and prove it by the artifact's probe.

        Raises:
            ConfigError: the resources they need are not there.
            ValueError: a stage's key tells of another engine than the run has.
            StalePolicyError: an engine's log-probabilities are not the trainer's.
        """
        _check_same(numerics, narrowed(self._policy_config, EngineNumerics))
        version, folder = policy_version(artifact), str(artifact.path(MODEL))
        if self._placement.is_shared and self._trainers:
            self._ask_trainers("sleep")
        if not self._policies:
            self._policies = self._start_policies(folder, version)
        elif self._policy_version != version:
            self._ask_policies("load_weights", folder, version)
        elif self._placement.is_shared:
            self._ask_policies("wake_up")
        self._policy_version = version
        probe, tolerance = Probe.read(artifact.path(PROBE)), self._policy_config.probe_tolerance
        # the engine has nothing to say on the first token
        differences = self._ask_policies("prove", probe.token_ids, probe.logprobs[1:], tolerance=tolerance)
        logger.info("policy %s: engine and trainer agree within %.1e", version, max(differences))
        if self._trainer_config.lora is not None:
            self._weigh_proof(version, probe)

    def _weigh_proof(self, version: str, probe: Probe) -> None:
        """Warn where the probe could not tell an adapter from none: of adapters no tensors are compared."""
        effects = [effect for effect in self._ask_policies("adapter_effect", probe.token_ids) if effect is not None]
        if effects and min(effects) <= self._policy_config.probe_tolerance:
            logger.warning(
                "policy %s: the probe proves nothing, the adapter changes it by %.1e and probe_tolerance is %g",
                version, min(effects), self._policy_config.probe_tolerance,
            )  # fmt: skip

    def _start_policies(self, folder: str, version: str) -> list[Any]:
        from actors.engine_weights import read_weight_shapes
        from actors.policy import PolicyActor

        # an error here says what is wrong, one in an actor only that it died
        read_weight_shapes(_base_of(Path(folder)))
        ray, count = self.ray(), self._policy_config.n_replicas
        logger.info("starting %d vLLM engine%s", count, "s" * (count > 1))
        actor = ray.remote(PolicyActor)
        restarts = {"max_restarts": POLICY_RESTARTS, "max_task_retries": 1}
        return [
            actor.options(**self._groups.options(ray, "engines", number), **restarts).remote(
                folder,
                version,
                **self._engine_options(),
                pointer=str(self.run_folder / f"current-{number}.json"),
                run_folder=str(self.run_folder),
                number=number,
            )
            for number in range(count)
        ]

    def _engine_options(self) -> dict[str, Any]:
        lora, shared = self._trainer_config.lora, self._placement.is_shared
        how = {"settings": self._policy_config, "seed": self._seed}
        return {**how, "lora_rank": None if lora is None else lora.rank, "has_sleep_mode": shared}

    def _ask_policies(self, method: str, *arguments: Any, **keywords: Any) -> list[Any]:
        """Return the answer of every engine to a call."""
        with self._together():
            return self.wait_for([getattr(policy, method).remote(*arguments, **keywords) for policy in self._policies])

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Let an engine that died for good end the others, and all be started anew."""
        try:
            yield
        except LostWorkerError:
            for policy in self._policies:
                self.ray().kill(policy)
            self._policies = []
            raise

    def generator(self, policy: Artifact, engine: EngineNumerics) -> EngineGenerator:
        """Return the engines with the weights of an artifact, proved to be those."""
        from plansmith.learning.codec import Codec, EngineGenerator

        self.load_policy(policy, engine)
        codec, config = Codec.of(policy.path(MODEL), engine.max_model_len), self._policy_config
        return EngineGenerator(codec, self.engines(), CHUNKS_IN_ENGINE * config.max_num_seqs * config.n_replicas)

    def engines(self) -> Engines:
        """Return the engines with the policy loaded last."""
        return Engines(self._policies, self._policy_version or "", self._streamed_together)

    def _streamed_together(self, streams: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        with self._together():
            yield from self.streamed(streams)


@dataclass(frozen=True)
class TrainerHandle:
    """The ranks of the trainer, called together and waited for; the answer is rank 0's.

    Together always: with ZeRO 3 a question is only answered when every rank is asked it.
    """

    put: Callable[[Any], Any]
    ask: Callable[..., Any]
    weights_changed: Callable[..., None]

    def optimise(
        self,
        objective: Objective | TrustRegion,
        sequences: Sequences,
        settings: OptimiserConfig,
        *,
        description: str = "training",
        **options: Any,
    ) -> OptimisationReport:
        """Train on the sequences, of which each rank reads its own; see `TrainerActor.optimise`.

        Args:
            objective, sequences, settings, description: as there.
            options: `seed`, `keeps_moments` and `epoch`, as there.
        """
        self.weights_changed()
        given = (objective, self.put(sequences), settings)
        report: OptimisationReport = self.ask(
            "optimise", *given, description=description, doing=description, unit="step", **options
        )
        return report

    def load(self, folder: str) -> None:
        """Let every rank take the weights of a folder."""
        self.ask("load", folder)

    def save(self, folder: str) -> None:
        """Write the weights; rank 0 writes, the others wait. The trainer holds those of this folder then."""
        self.ask("save", folder)
        self.weights_changed(Path(folder))

    def save_checkpoint(self, folder: str) -> None:
        """Write weights and optimizer state; see `TrainerActor.save_checkpoint`."""
        self.ask("save_checkpoint", folder)

    def load_checkpoint(self, folder: str) -> None:
        """Let every rank train on from a checkpoint."""
        self.weights_changed()
        self.ask("load_checkpoint", folder)

    def predict(self, reader: Reader, sequences: Sequences) -> list[NDArray[np.float32]]:
        """Return what a reader reads at each token of each sequence; see `TrainerActor.predict`."""
        answer: list[NDArray[np.float32]] = self.ask("predict", reader, self.put(sequences))
        return answer

    def token_logprobs(self, sequences: Sequences, **options: float) -> list[NDArray[np.float32]]:
        """Return the log-probability of each token of each sequence; see `TrainerActor.token_logprobs`."""
        answer: list[NDArray[np.float32]] = self.ask("token_logprobs", self.put(sequences), **options)
        return answer


def _allocator(config: TrainerConfig) -> dict[str, Any]:
    """Return the option that gives a trainer on a CPU jemalloc, which Ray has with it.

    Packed rows need tensors of ever other sizes; glibc looks for room among its free blocks one by one, for a sixth to
    a fifth of the time of a step (docs/log.md). jemalloc keeps what is freed, and may take small tensors from large
    free extents: with its default limit to that, a trainer was seen to grow to 13 GiB.
    """
    import ray

    library = Path(ray.__file__).parent / "core" / "libjemalloc.so"
    if config.device != "cpu" or "LD_PRELOAD" in os.environ or not library.is_file():
        return {}
    keeping = "dirty_decay_ms:-1,muzzy_decay_ms:-1,lg_extent_max_active_fit:63"
    return {"runtime_env": {"env_vars": {"LD_PRELOAD": str(library), "MALLOC_CONF": keeping}}}


def _base_of(model_folder: Path) -> str:
    from actors.engine_weights import base_of

    return base_of(str(model_folder.resolve()))

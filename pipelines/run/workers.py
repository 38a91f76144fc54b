"""The resident actors of a run, each started when a stage first needs it.

A run whose stages are all reused starts nothing. Where they go is `pipelines.run.placement`. An actor that dies is
forgotten with its siblings, and the stage that needed it begins again with others (`plansmith.stages`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.run.engines import Engines
from pipelines.run.placement import EngineGroup, Placement, placement_of
from pipelines.run.ranks import Ranks
from pipelines.run.ray_session import HasCluster, RaySession
from plansmith.config.basics import StrictModel, narrowed
from plansmith.config.training import EngineNumerics, Numerics, PolicyConfig, TrainerConfig
from plansmith.data.artifacts import WEIGHTS, Artifact, StageKind
from plansmith.errors import ConfigError, LostWorkerError, PlansmithError
from plansmith.stages import Stage, StageStatus, preview_stages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from plansmith.config.training import OptimiserConfig
    from plansmith.generation import Generator
    from plansmith.learning.objectives.base import Objective, Reader
    from plansmith.learning.objectives.trust_region import TrustRegion
    from plansmith.learning.optimisation import OptimisationReport
    from plansmith.learning.sequences import Sequences

logger = logging.getLogger(__name__)

MODEL, PROBE = WEIGHTS, "probe.json"
RANKS, MERGED = "ranks", "merged"
"""Folders of a run: where Ray Train keeps what it notes down, and of adapters that are merged for the engines."""
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


def _check_direct(trainer: TrainerConfig, policy: PolicyConfig, placement: Placement) -> None:
    """Raise where a trainer cannot send its weights to engines."""
    where, cure = "policy.handover=direct", "set policy.handover=folder"
    if trainer.lora is not None:
        raise ConfigError("adapters go by folder", where=where, got="trainer.lora", expected="whole models", cure=cure)
    if placement.is_shared:
        raise ConfigError("trainer and engines take turns on the same devices", where=where,
                          got="policy.placement=colocated", expected="separate", cure=cure)  # fmt: skip
    if trainer.device == "cpu" and policy.tensor_parallel_size > 1:
        raise ConfigError("on a CPU an engine of one process takes weights", where=where,
                          got=f"policy.tensor_parallel_size={policy.tensor_parallel_size}", expected="1",
                          cure=cure)  # fmt: skip


def policy_version(policy: Any) -> str:
    """Return the name of the weights in an artifact, or in what stands for one."""
    return str(policy.key[:12])


class Workers(RaySession):
    """What the stages of a run share; use as a context manager, which ends all it started."""

    def __init__(self, config: HasActors, run_folder: Path) -> None:
        super().__init__(config, run_folder)
        self._trainer_config, self._policy_config, self._seed = config.trainer, config.policy, config.seed
        self._trainer_weights: Path | None = None
        self._trainer_made_for: tuple[str | None, str] | None = None
        self._is_trainer_changed = self._starts_ranks = False
        self._policies: list[Any] = []
        self._policy_version: str | None = None
        self._met: tuple[Any, ...] = ()
        self._has_adapters = config.trainer.lora is not None and config.policy.adapters == "beside"
        if config.policy.adapters == "merged" and config.trainer.quantisation != "none":
            raise ConfigError("an adapter on four bits cannot be merged into what it was trained on",
                              got=f"policy.adapters=merged, trainer.quantisation={config.trainer.quantisation}",
                              cure="set policy.adapters=beside")  # fmt: skip
        self._placement = placement_of(config.trainer, config.policy, config.cluster)
        if config.policy.handover == "direct":
            _check_direct(config.trainer, config.policy, self._placement)
        self._group = EngineGroup(self._placement, config.cluster.is_local)
        self._ranks = Ranks(
            super().ray,
            self.wait_for,
            config.trainer,
            resources=self._placement.rank,
            folder=run_folder / RANKS,
            is_local=config.cluster.is_local,
        )
        # transformers imports DeepSpeed wherever it is installed, and that looks for an accelerator aloud
        os.environ.setdefault("DS_ACCELERATOR", config.trainer.device)

    def __exit__(self, *error: object) -> None:
        """Let go of what is reserved, and with it of the actors there; then of Ray."""
        self._ranks.end()
        self._group.release()
        super().__exit__(*error)
        shutil.rmtree(self.run_folder / MERGED, ignore_errors=True)

    def run(self, stages: Sequence[Stage[Any]], *, root: Path, **options: Any) -> dict[str, Artifact]:
        """Return the artifacts of stages; see `RaySession.run`. Ranks start with Ray, beside the first stages."""
        trained = {stage.name for stage in stages if stage.kind is StageKind.OPTIMISES}
        left = {stage.name for stage in preview_stages(stages, root) if stage.status is not StageStatus.REUSED}
        self._starts_ranks = bool(trained & left)
        return super().run(stages, root=root, **options)

    def ray(self) -> Any:
        """Return the `ray` module with a Ray running, and ranks on their way if this run will train."""
        ray = super().ray()
        if self._starts_ranks:
            self._ranks.start()
        return ray

    def trainer(self, model_folder: Path, numerics: Numerics) -> TrainerHandle:
        """Return the trainer holding the weights of a folder, a whole model or an adapter; shared GPUs are its alone.

        Raises:
            ConfigError: the resources it needs are not there.
            ValueError: a stage's key tells of another trainer than the run has.
        """
        held = narrowed(self._trainer_config, Numerics)
        _check_same(numerics, held.model_copy(update={"optimizer": numerics.optimizer}))  # of each optimisation its own
        if self._placement.is_shared:
            self._ask_policies("sleep")
        base = None if self._trainer_config.lora is None else _base_of(model_folder)
        made_for = (base, numerics.optimizer)
        if made_for != self._trainer_made_for or not self._ranks.is_made:
            self._make_trainer(model_folder, *made_for)
        elif self._placement.is_shared:
            self._ranks.ask("wake_up")
        sends = self._policy_config.handover == "direct"
        handle = TrainerHandle(self.ray().put, self._ranks.ask, self._weights_changed, sends)
        if self._trainer_weights not in (None, model_folder) or self._is_trainer_changed:
            handle.load(str(model_folder))
        self._trainer_weights, self._is_trainer_changed = model_folder, False
        return handle

    def trainer_group(self) -> str | None:
        """Return the name of the ranks that hold the trainer; None where none do, be it that new ones came."""
        return self._ranks.group if self._ranks.is_made else None

    def _make_trainer(self, model_folder: Path, base: str | None, optimizer: str) -> None:
        """Let the ranks load a model; an adapter's base is frozen in them, and moves when its stage is finished."""
        self._trainer_weights, self._is_trainer_changed = None, False
        config = self._trainer_config.model_copy(update={"optimizer": optimizer})
        self._ranks.make(str(model_folder), config=config, seed=self._seed, run_folder=str(self.run_folder))
        self._trainer_made_for = (base, optimizer)

    def end_actors(self) -> None:
        """End trainer and engines and let go of what they reserved; they are started anew when a stage needs them."""
        self._ranks.end()
        self._end_policies()
        self._group.release()

    def _end_policies(self) -> None:
        for policy in self._policies:
            self.ray().kill(policy)
        self._policies, self._policy_version = [], None

    def _weights_changed(self, folder: Path | None = None) -> None:
        """Note that the trainer's weights are no longer those of their folder, or those that were saved in this one."""
        self._trainer_weights, self._is_trainer_changed = folder or self._trainer_weights, folder is None

    def load_policy(self, artifact: Artifact, numerics: EngineNumerics) -> None:
        """Let every engine sample from the weights of an artifact, and prove it by the artifact's probe.

        Raises:
            ConfigError: the resources they need are not there.
            LostWorkerError: trainer or engines that had weights which no folder has are gone.
            ValueError: a stage's key tells of another engine than the run has.
            StalePolicyError: an engine's log-probabilities are not the trainer's.
        """
        from actors.engine_weights import has_tensors

        _check_same(numerics, narrowed(self._policy_config, EngineNumerics))
        version = policy_version(artifact)
        folder = str(self._as_the_engines_read_it(artifact.path(MODEL), version))
        if self._placement.is_shared and self._ranks.is_made:
            self._ranks.ask("sleep")
        is_known, is_sent = self._policy_version == version, self._can_send(artifact.path(MODEL))
        if not (self._policies and (is_known or is_sent)) and not has_tensors(folder):
            raise LostWorkerError("who had these weights, which nobody wrote, is gone", where=folder)
        if not self._policies:
            self._policies = self._start_policies(folder, version)
        elif not is_known and is_sent:
            self._send_weights(folder, version)
        elif not is_known:
            self._ask_policies("load_weights", folder, version)
        elif self._placement.is_shared:
            self._ask_policies("wake_up")
        self._policy_version = version
        probe, tolerance = Probe.read(artifact.path(PROBE)), self._policy_config.probe_tolerance
        # the engine has nothing to say on the first token
        differences = self._ask_policies("prove", probe.token_ids, probe.logprobs[1:], tolerance=tolerance)
        logger.info("policy %s: engine and trainer agree within %.1e", version, max(differences))
        for path in (self.run_folder / MERGED).glob("*"):
            if path.name != version:  # no engine reads it any more, not even one that is started anew
                shutil.rmtree(path)
        if self._has_adapters:
            self._weigh_proof(version, probe)

    def _can_send(self, folder: Path) -> bool:
        """Return whether the trainer holds the weights of a folder and the engines take them from it."""
        holds = self._trainer_weights == folder and not self._is_trainer_changed and self._ranks.is_made
        return holds and self._policy_config.handover == "direct"

    def _send_weights(self, folder: str, version: str) -> None:
        """Let the trainer send its weights, which a folder also holds, to the engines."""
        met, config = (self._ranks.group, *self._ask_policies("incarnation")), self._policy_config
        n_parts, dtype = config.tensor_parallel_size, config.dtype
        try:
            self._ranks.ask("send_weights", self._policies, n_parts=n_parts, dtype=dtype, is_new=met != self._met)
        except PlansmithError:
            self._end_policies()  # some may still be waiting for the rest
            raise
        self._met = met
        logger.info("policy %s: sent to the engines", version)
        self._ask_policies("keep_received", folder, version)

    def _as_the_engines_read_it(self, folder: Path, version: str) -> Path:
        """Return a model's folder, or where engines take no adapters, that of the adapter merged into its base."""
        from plansmith.learning.adapters import is_adapter_folder, merge_adapter

        if self._has_adapters or not is_adapter_folder(folder):
            return folder
        merged = self.run_folder / MERGED / version
        if not merged.is_dir():
            merge_adapter(folder, merged)
        return merged

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
        actor, shared = ray.remote(PolicyActor), self._ranks.places() if self._placement.is_shared else []
        restarts = {"max_restarts": POLICY_RESTARTS, "max_task_retries": 1}
        return [
            actor.options(**self._group.options(ray, number, shared), **restarts).remote(
                folder,
                version,
                **self._engine_options(),
                pointer=str(self.run_folder / f"current-{number}.json"),
                run_folder=str(self.run_folder),
                number=number,
                devices=[device for place in self._placement.hosts(shared, number) for device in place.devices] or None,
            )
            for number in range(count)
        ]

    def _engine_options(self) -> dict[str, Any]:
        lora = self._trainer_config.lora if self._has_adapters else None
        how = {"settings": self._policy_config, "seed": self._seed}
        return {**how, "lora_rank": None if lora is None else lora.rank, "has_sleep_mode": self._placement.is_shared}

    def _ask_policies(self, method: str, *arguments: Any, **keywords: Any) -> list[Any]:
        """Return the answer of every engine to a call."""
        with self._together():
            return self.wait_for([getattr(policy, method).remote(*arguments, **keywords) for policy in self._policies])

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Let an engine that died for good end the others, and all be started anew."""
        from ray.exceptions import RayActorError

        try:
            yield
        except LostWorkerError:
            self._end_policies()
            raise
        except RayActorError as error:
            if self._policy_version is None:  # they have never been there
                raise
            self._end_policies()
            raise LostWorkerError("an engine did not come back", got=str(error)[:400]) from None

    def generator(self, policy: Artifact, engine: EngineNumerics) -> Generator:
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
    sends: bool

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
            options: `seed`, `keeps_moments`, `epoch` and `checkpoints`, as there.
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

    def save(self, folder: str, *, has_weights: bool = True) -> None:
        """Write the weights; rank 0 writes, the others wait. The trainer holds those of this folder then."""
        self.ask("save", folder, has_weights=has_weights)
        self.weights_changed(Path(folder))

    def hand_over(self, folder: str) -> None:
        """Save what engines read to take the weights, all but the weights where the trainer sends them."""
        self.save(folder, has_weights=not self.sends)

    def save_checkpoint(self, folder: str) -> None:
        """Write weights and optimizer state; see `TrainerActor.save_checkpoint`."""
        self.ask("save_checkpoint", folder)

    def load_checkpoint(self, folder: str, weights: Path | None = None) -> None:
        """Let every rank train on from a checkpoint, whose weights are those of a folder, if one is given."""
        self.weights_changed()
        self.ask("load_checkpoint", folder)
        if weights is not None:
            self.weights_changed(weights)

    def predict(self, reader: Reader, sequences: Sequences) -> list[NDArray[np.float32]]:
        """Return what a reader reads at each token of each sequence; see `TrainerActor.predict`."""
        answer: list[NDArray[np.float32]] = self.ask("predict", reader, self.put(sequences))
        return answer

    def token_logprobs(self, sequences: Sequences, **options: Any) -> list[NDArray[np.float32]]:
        """Return the log-probability of each token of each sequence; see `TrainerActor.token_logprobs`."""
        answer: list[NDArray[np.float32]] = self.ask("token_logprobs", self.put(sequences), **options)
        return answer


def _base_of(model_folder: Path) -> str:
    from actors.engine_weights import base_of

    return base_of(str(model_folder.resolve()))

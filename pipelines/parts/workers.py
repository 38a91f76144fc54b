"""The resident actors of a run, each started when a stage first needs it.

A run whose stages are all reused starts nothing. Trainer and policy take turns on a small machine, so they reserve no
core and leave all of them to the parallel stages. On GPUs they take turns too, or have their own: `Placement`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.parts.ray_session import RaySession
from plansmith.config.models import PddlInstructConfig
from plansmith.config.training import PolicyConfig, TrainerConfig
from plansmith.data.artifacts import Artifact
from plansmith.errors import ConfigError, PlansmithError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from actors.policy import Generation, SamplingSettings

logger = logging.getLogger(__name__)

MODEL, PROBE = "model", "probe.json"
POLICY_RESTARTS = 2
GPU_WAIT_S = 600.0
"""Longest wait for GPUs: time for a cluster to add a machine."""
LOCAL_GPU_WAIT_S = 5.0
"""The same for a Ray of this run's own, to which no machine is added."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The GPUs that the actors of a run ask Ray for.

    Attributes:
        trainer_gpus: devices to reserve for the ranks, one for each; the engines lie on the same ones if `is_shared`.
        engine_gpus: devices to reserve for the engines, one for each; the same devices if `is_shared`.
        gpus_an_actor: what each actor takes of its device.
        is_shared: trainer and engines are on the same devices and must not hold their memory at the same time.
    """

    trainer_gpus: int
    engine_gpus: int
    gpus_an_actor: float
    is_shared: bool


def placement_of(trainer: TrainerConfig, policy: PolicyConfig) -> Placement:
    """Return where trainer and engines go.

    On a CPU nothing is reserved, and `placement` has no effect: all share one memory, from which an engine could give
    nothing back. Colocated, a rank and an engine take half a device each; no device has two ranks or two engines, and
    the larger number of the two decides how many there are.
    """
    if trainer.device == "cpu":
        return Placement(trainer_gpus=0, engine_gpus=0, gpus_an_actor=0.0, is_shared=False)
    if policy.placement == "separate":
        return Placement(
            trainer_gpus=trainer.n_ranks, engine_gpus=policy.n_replicas, gpus_an_actor=1.0, is_shared=False
        )
    count = max(trainer.n_ranks, policy.n_replicas)
    return Placement(trainer_gpus=count, engine_gpus=count, gpus_an_actor=0.5, is_shared=True)


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


def policy_version(artifact: Artifact) -> str:
    """Return the name of the weights in an artifact."""
    return artifact.key[:12]


class Workers(RaySession):
    """What the stages of a run share; use as a context manager, which ends all it started."""

    config: PddlInstructConfig

    def __init__(self, config: PddlInstructConfig, run_folder: Path) -> None:
        super().__init__(config)
        self.run_folder = run_folder
        self._trainers: list[Any] = []
        self._trainer_weights: Path | None = None
        self._trainer_base: str | None = None
        self._is_trainer_changed = False
        self._policies: list[Any] = []
        self._policy_version: str | None = None
        self._placement = placement_of(config.trainer, config.policy)
        self._gpus: list[Any] = []
        # transformers imports DeepSpeed wherever it is installed, and that looks for an accelerator aloud
        os.environ.setdefault("DS_ACCELERATOR", config.trainer.device)

    def __exit__(self, *error: object) -> None:
        """Let go of the GPUs, and with them of the actors on them; then of Ray."""
        if self._gpus:
            from ray.util.placement_group import remove_placement_group

            for gpus in self._gpus:
                remove_placement_group(gpus)
        super().__exit__(*error)

    def trainer(self, model_folder: Path, tokenizer: PreTrainedTokenizerBase) -> TrainerHandle:
        """Return the trainer holding the weights of a folder, a whole model or an adapter; shared GPUs are its alone.

        Raises:
            ConfigError: the GPUs it needs are not there.
        """
        if self._placement.is_shared:
            self.ray().get([policy.sleep.remote() for policy in self._policies])
        base = None if self.config.trainer.lora is None else _base_of(model_folder)
        if base != self._trainer_base:
            self._end_trainers()
        if not self._trainers:
            self._trainers, self._trainer_base = self._start_trainers(model_folder, tokenizer), base
        handle = TrainerHandle(self.ray(), self._trainers, self._weights_changed)
        if self._trainer_weights not in (None, model_folder) or self._is_trainer_changed:
            handle.load(str(model_folder))
        self._trainer_weights, self._is_trainer_changed = model_folder, False
        return handle

    def _start_trainers(self, model_folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[Any]:
        from actors.trainer import TrainerActor

        ray, count = self.ray(), self.config.trainer.n_ranks
        logger.info("starting the trainer (%d rank%s)", count, "s" * (count > 1))
        settings = trainer_settings(self.config.trainer, tokenizer, self.config.seed)
        actor, gpus = ray.remote(TrainerActor), self._reserve_gpus(self._placement.trainer_gpus, on_one_node=True)
        port = _free_port() if count > 1 else 0
        return [
            actor.options(**self._actor_options(gpus, rank)).remote(
                str(model_folder), settings=settings, rank=rank, world_size=count, master_port=port
            )
            for rank in range(count)
        ]

    def _end_trainers(self) -> None:
        """End the ranks: an adapter's base is frozen in them. A base moves when the stage that made it is finished."""
        for rank in self._trainers:
            self.ray().kill(rank)
        self._trainers, self._trainer_weights, self._is_trainer_changed = [], None, False

    def _weights_changed(self) -> None:
        self._is_trainer_changed = True

    def load_policy(self, artifact: Artifact) -> None:
        """Let every engine sample from the weights of an artifact, and prove it by the artifact's probe.

        Raises:
            ConfigError: the GPUs they need are not there.
            StalePolicyError: an engine's log-probabilities are not the trainer's.
        """
        version, folder = policy_version(artifact), str(artifact.path(MODEL))
        ray = self.ray()
        if self._placement.is_shared:
            ray.get([rank.__ray_call__.remote(_free_device_cache) for rank in self._trainers])
        if not self._policies:
            self._policies = self._start_policies(folder, version)
        elif self._policy_version != version:
            ray.get([policy.load_weights.remote(folder, version) for policy in self._policies])
        elif self._placement.is_shared:
            ray.get([policy.wake_up.remote() for policy in self._policies])
        self._policy_version = version
        probe, tolerance = Probe.read(artifact.path(PROBE)), self.config.policy.probe_tolerance
        # the engine has nothing to say on the first token
        differences = ray.get(
            [policy.prove.remote(probe.token_ids, probe.logprobs[1:], tolerance=tolerance) for policy in self._policies]
        )
        logger.info("policy %s: engine and trainer agree within %.1e", version, max(differences))

    def _start_policies(self, folder: str, version: str) -> list[Any]:
        from actors.engine_weights import read_weight_shapes
        from actors.policy import PolicyActor

        # an error here says what is wrong, one in an actor only that it died
        read_weight_shapes(_base_of(Path(folder)))
        ray, count = self.ray(), self.config.policy.n_replicas
        logger.info("starting %d vLLM engine%s", count, "s" * (count > 1))
        settings = _policy_settings(self.config.policy, self.config.trainer, self.config.seed)
        actor, gpus = ray.remote(PolicyActor), self._reserve_gpus(self._placement.engine_gpus, on_one_node=False)
        restarts = {"max_restarts": POLICY_RESTARTS, "max_task_retries": 1}
        return [
            actor.options(**self._actor_options(gpus, number), **restarts).remote(
                folder, version, settings=settings, pointer=str(self.run_folder / f"current-{number}.json")
            )
            for number in range(count)
        ]

    def _reserve_gpus(self, count: int, *, on_one_node: bool) -> Any:
        """Return a placement group of GPUs, the same for both kinds of actors if they share; None without GPUs.

        A group, because Ray would put two actors of half a GPU on one device. The ranks of a trainer meet on their own
        machine.

        Raises:
            ConfigError: the GPUs are not there in time.
        """
        if not count:
            return None
        if self._placement.is_shared and self._gpus:
            return self._gpus[0]
        from ray.util.placement_group import placement_group, remove_placement_group

        is_packed = on_one_node or self._placement.is_shared
        gpus = placement_group([{"GPU": 1}] * count, strategy="STRICT_PACK" if is_packed else "PACK")
        if not gpus.wait(LOCAL_GPU_WAIT_S if self.config.cluster.address == "local" else GPU_WAIT_S):
            remove_placement_group(gpus)
            raise ConfigError(
                "not enough GPUs", got=f"{self.ray().cluster_resources().get('GPU', 0):g} in the cluster",
                expected=f"{count} free" + " on one machine" * is_packed,
                cure="lower trainer.n_ranks or policy.n_replicas, or set policy.placement=colocated",
            )  # fmt: skip
        self._gpus.append(gpus)
        return gpus

    def _actor_options(self, gpus: Any, number: int) -> dict[str, Any]:
        if gpus is None:
            return {"num_cpus": 0}
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(gpus, placement_group_bundle_index=number)
        return {"num_cpus": 0, "num_gpus": self._placement.gpus_an_actor, "scheduling_strategy": strategy}

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, *, seeds: Sequence[int], description: str
    ) -> list[list[Generation]]:
        """Return the completions of each prompt; the engines share the prompts, and seeds make the cut irrelevant.

        Raises:
            PlansmithError: an engine answered with other weights than those loaded.
        """
        count = len(self._policies)
        answers = self.ray().get(
            [
                policy.generate.remote(
                    prompts[number::count],
                    sampling,
                    seeds=_seeds_of(seeds, sampling.n, number, count),
                    description=description if number == 0 else None,
                )
                for number, policy in enumerate(self._policies)
            ]
        )
        merged: list[list[Generation]] = [[] for _ in prompts]
        for number, answer in enumerate(answers):
            merged[number::count] = answer
        stale = {g.policy_version for group in merged for g in group} - {self._policy_version}
        if stale:
            raise PlansmithError("an engine answered with other weights", got=", ".join(sorted(stale)),
                                 expected=self._policy_version)  # fmt: skip
        return merged


@dataclass(frozen=True)
class TrainerHandle:
    """The ranks of the trainer, called together and waited for; the answer is rank 0's.

    Together always: with ZeRO 3 a question is only answered when every rank is asked it.
    """

    ray: Any
    ranks: Sequence[Any]
    weights_changed: Callable[[], None]

    def optimise(self, objective: Any, sequences: Sequence[Any], hyperparameters: Any, **options: Any) -> Any:
        """Train on the sequences, which are stored once and cut by the ranks; see `TrainerActor.optimise`.

        Args:
            objective, sequences, hyperparameters: as there.
            options: `weights`, `description` and `max_length_tokens`, as there.
        """
        self.weights_changed()
        return self._call("optimise", objective, self.ray.put(list(sequences)), hyperparameters, **options)

    def load(self, folder: str) -> None:
        """Let every rank take the weights of a folder."""
        self._call("load", folder)

    def save(self, folder: str) -> None:
        """Write the weights; rank 0 writes, the others wait."""
        self._call("save", folder)

    def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Return the trainer's side of the probe."""
        answer: list[float] = self._call("logprobs", token_ids)
        return answer

    def verdict_probabilities(self, sequences: Sequence[Any]) -> list[float | None]:
        """Return v_hat of each sequence."""
        answer: list[float | None] = self._call("verdict_probabilities", self.ray.put(list(sequences)))
        return answer

    def _call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self.ray.get([getattr(rank, name).remote(*arguments, **keywords) for rank in self.ranks])[0]


def _free_device_cache(_: Any) -> None:
    """Give back what torch keeps on the device after training; runs in the trainer's process."""
    import torch

    torch.cuda.empty_cache()


def _base_of(model_folder: Path) -> str:
    from actors.engine_weights import base_of

    return base_of(str(model_folder.resolve()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _seeds_of(seeds: Sequence[int], n: int, number: int, count: int) -> list[int]:
    """Return the seeds of every `count`-th prompt from `number`, n for each."""
    n_prompts = len(seeds) // n
    return [seed for prompt in range(number, n_prompts, count) for seed in seeds[prompt * n : (prompt + 1) * n]]


def trainer_settings(config: TrainerConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> Any:
    """Return the settings of the trainer's actors."""
    from actors.trainer import TrainerSettings
    from plansmith.learning.adapters import LoraSettings
    from plansmith.learning.tokenizer import verdict_token_ids

    valid, invalid = verdict_token_ids(tokenizer)
    return TrainerSettings(
        **config.model_dump(exclude={"n_ranks", "lora"}),
        lora=None if config.lora is None else LoraSettings(**config.lora.model_dump()),
        seed=seed,
        valid_token_id=valid,
        invalid_token_id=invalid,
    )


def _policy_settings(config: PolicyConfig, trainer: TrainerConfig, seed: int) -> Any:
    from actors.policy import PolicySettings

    return PolicySettings(
        **config.model_dump(exclude={"n_replicas", "probe_tolerance", "placement"}),
        seed=seed,
        lora_rank=None if trainer.lora is None else trainer.lora.rank,
        has_sleep_mode=placement_of(trainer, config).is_shared,
    )

"""The resident actors of a run, each started when a stage first needs it.

A run whose stages are all reused starts nothing. Trainer and policy take turns on a small machine, so they reserve no
core and leave all of them to the parallel stages.
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
from plansmith.errors import PlansmithError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from actors.policy import Generation, SamplingSettings

logger = logging.getLogger(__name__)

MODEL, PROBE = "model", "probe.json"
POLICY_RESTARTS = 2


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
        self._is_trainer_changed = False
        self._policies: list[Any] = []
        self._policy_version: str | None = None
        # transformers imports DeepSpeed wherever it is installed, and that looks for an accelerator aloud
        os.environ.setdefault("DS_ACCELERATOR", config.trainer.device)

    def trainer(self, model_folder: Path, tokenizer: PreTrainedTokenizerBase) -> TrainerHandle:
        """Return the trainer holding the weights of a folder."""
        if not self._trainers:
            self._trainers = self._start_trainers(model_folder, tokenizer)
        handle = TrainerHandle(self.ray(), self._trainers, self._weights_changed)
        if self._trainer_weights not in (None, model_folder) or self._is_trainer_changed:
            handle.load(str(model_folder))
        self._trainer_weights, self._is_trainer_changed = model_folder, False
        return handle

    def _start_trainers(self, model_folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[Any]:
        from actors.trainer import TrainerActor

        ray, count = self.ray(), self.config.trainer.n_ranks
        logger.info("starting the trainer (%d rank%s)", count, "s" * (count > 1))
        settings = _trainer_settings(self.config.trainer, tokenizer, self.config.seed)
        actor = ray.remote(TrainerActor).options(num_cpus=0)
        port = _free_port() if count > 1 else 0
        return [
            actor.remote(str(model_folder), settings=settings, rank=rank, world_size=count, master_port=port)
            for rank in range(count)
        ]

    def _weights_changed(self) -> None:
        self._is_trainer_changed = True

    def load_policy(self, artifact: Artifact) -> None:
        """Let every engine sample from the weights of an artifact, and prove it by the artifact's probe.

        Raises:
            StalePolicyError: an engine's log-probabilities are not the trainer's.
        """
        version, folder = policy_version(artifact), str(artifact.path(MODEL))
        ray = self.ray()
        if not self._policies:
            self._policies = self._start_policies(folder, version)
        elif self._policy_version != version:
            ray.get([policy.load_weights.remote(folder, version) for policy in self._policies])
        self._policy_version = version
        probe, tolerance = Probe.read(artifact.path(PROBE)), self.config.policy.probe_tolerance
        # the engine has nothing to say on the first token
        differences = ray.get(
            [policy.prove.remote(probe.token_ids, probe.logprobs[1:], tolerance=tolerance) for policy in self._policies]
        )
        logger.info("policy %s: engine and trainer agree within %.1e", version, max(differences))

    def _start_policies(self, folder: str, version: str) -> list[Any]:
        from actors.policy import PolicyActor, read_weight_shapes

        read_weight_shapes(folder)
        ray, policy = self.ray(), self.config.policy
        logger.info("starting %d vLLM engine%s", policy.n_replicas, "s" * (policy.n_replicas > 1))
        actor = ray.remote(PolicyActor).options(num_cpus=0, max_restarts=POLICY_RESTARTS, max_task_retries=1)
        settings = _policy_settings(policy, self.config.seed)
        return [
            actor.remote(folder, version, settings=settings, pointer=str(self.run_folder / f"current-{number}.json"))
            for number in range(policy.n_replicas)
        ]

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
    """The ranks of the trainer, called together and waited for; the answer is rank 0's."""

    ray: Any
    ranks: Sequence[Any]
    weights_changed: Callable[[], None]

    def optimise(self, objective: Any, sequences: Sequence[Any], hyperparameters: Any, **options: Any) -> Any:
        """Train on the sequences, which are stored once and cut by the ranks; see `TrainerActor.optimise`."""
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
        answer: list[float] = self.ray.get(self.ranks[0].logprobs.remote(token_ids))
        return answer

    def verdict_probabilities(self, sequences: Sequence[Any]) -> list[float | None]:
        """Return v_hat of each sequence."""
        answer: list[float | None] = self.ray.get(self.ranks[0].verdict_probabilities.remote(sequences))
        return answer

    def _call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self.ray.get([getattr(rank, name).remote(*arguments, **keywords) for rank in self.ranks])[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _seeds_of(seeds: Sequence[int], n: int, number: int, count: int) -> list[int]:
    """Return the seeds of every `count`-th prompt from `number`, n for each."""
    n_prompts = len(seeds) // n
    return [seed for prompt in range(number, n_prompts, count) for seed in seeds[prompt * n : (prompt + 1) * n]]


def _trainer_settings(config: TrainerConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> Any:
    from actors.trainer import TrainerSettings
    from plansmith.learning.tokenizer import verdict_token_ids

    valid, invalid = verdict_token_ids(tokenizer)
    return TrainerSettings(
        **config.model_dump(exclude={"n_ranks", "offload", "lora", "quantisation"}),
        seed=seed,
        valid_token_id=valid,
        invalid_token_id=invalid,
    )


def _policy_settings(config: PolicyConfig, seed: int) -> Any:
    from actors.policy import PolicySettings

    return PolicySettings(**config.model_dump(exclude={"n_replicas", "probe_tolerance", "placement"}), seed=seed)

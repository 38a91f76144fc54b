"""A model folder as a policy: its digest, an engine fit for its window, and Ray to run it on."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.run.engines import Engines
from pipelines.run.ray_session import RaySession
from pipelines.run.workers import CHUNKS_IN_ENGINE, MODEL, policy_version
from pipelines.trials.own_problems import TrialConfig
from plansmith.config.training import EngineNumerics, PolicyConfig
from plansmith.errors import BadInputError, ConfigError, LostWorkerError
from plansmith.generation import Conversation
from plansmith.learning.codec import Codec, EngineGenerator
from plansmith.learning.model_folder import (
    adapter_rank,
    engine_for,
    folder_digest,
    is_word_level,
    reach_of,
    whole_model_of,
)
from plansmith.learning.models import check_model_folder, load_tokenizer
from plansmith.learning.tokenizer import encode_messages

logger = logging.getLogger(__name__)

SEQUENCES_DECODED = 64
"""Problems decoded together; an interrupt loses what twice as many were writing."""


@dataclass(frozen=True)
class FolderPolicy:
    """A model folder, where the stages of a run have the artifact of a policy; ``key`` is the digest of its files."""

    folder: Path
    key: str

    @classmethod
    def read(cls, folder: Path) -> FolderPolicy:
        """Return the policy in a folder, a whole model or an adapter over one.

        Raises:
            BadInputError: no such folder, or no model in it.
        """
        check_model_folder(str(folder))
        return cls(folder.resolve(), folder_digest(folder))

    @functools.cached_property
    def tokenizer(self) -> Any:
        """Return the tokenizer."""
        return load_tokenizer(str(self.folder))

    @property
    def is_word_level(self) -> bool:
        """Return whether the model reads only the words that it was made with, as `tiny` does."""
        return is_word_level(self.tokenizer)

    def path(self, name: str) -> Path:
        """Return where the model lies."""
        if name != MODEL:
            raise KeyError(name)
        return self.folder


def engine_config(
    policy: FolderPolicy,
    conversations: Mapping[str, Conversation],
    *,
    room: int,
    dtype: str | None,
    n_threads: int,
) -> PolicyConfig:
    """Return an engine whose window holds the longest conversation and what follows, as far as the model reaches.

    Args:
        policy: in the engine.
        conversations: by what they are about.
        room: tokens of what follows, such as those of a whole answer.
        dtype: of the weights; None takes what fits the machine.
        n_threads: of an engine on a CPU.

    Raises:
        BadInputError: a conversation that fills the model's window.
    """
    lengths = {name: len(encode_messages(policy.tokenizer, messages)) for name, messages in conversations.items()}
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] >= reach_of(policy.folder):
        raise BadInputError(
            "a problem too long for the model", where=longest, got=f"a prompt of {lengths[longest]} tokens",
            expected=f"fewer than the {reach_of(policy.folder)} that the model reads",
            cure="leave it out or shorten it, or take a model that reads more",
        )  # fmt: skip
    return engine_for(
        policy.folder,
        window=lengths[longest] + room,
        dtype=dtype,
        max_num_seqs=SEQUENCES_DECODED,
        n_threads=n_threads,
        is_cpu=not has_gpu(),
    )


def has_gpu() -> bool:
    """Return whether there is a GPU to decode on."""
    import torch

    return torch.cuda.is_available()


class FolderWorkers(RaySession):
    """Ray and the engines that hold the model of a folder, started when a stage first needs them.

    There is no trainer to compare with, so nothing is proved: engines hold what they were started with.
    """

    def __init__(self, config: TrialConfig, run_folder: Path, *, seed: int) -> None:
        super().__init__(config, run_folder)
        self._settings, self._seed = config.policy, seed
        self._engines: list[Any] = []
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if has_gpu() else "cpu")  # or looking for one is said aloud

    def generator(self, policy: FolderPolicy, engine: EngineNumerics) -> EngineGenerator:
        """Return the engines with the model of a folder.

        Raises:
            BadInputError: damaged weights.
            ConfigError: fewer GPUs than the engines need.
        """
        version = policy_version(policy)
        self._engines = self._engines or self._start(policy, version)
        codec = Codec.of(policy.folder, engine.max_model_len)
        n_together = CHUNKS_IN_ENGINE * self._settings.max_num_seqs * len(self._engines)
        return EngineGenerator(codec, Engines(self._engines, version, self._streamed_together), n_together)

    def _streamed_together(self, streams: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Let an engine that died end the others, so that who asks again gets new ones."""
        try:
            yield from self.streamed(streams)
        except LostWorkerError:
            self.end_engines()
            raise

    def end_engines(self) -> None:
        """End the engines, if they were started."""
        for engine in self._engines:
            self.ray().kill(engine)
        self._engines = []

    def _start(self, policy: FolderPolicy, version: str) -> list[Any]:
        from actors.engine_weights import read_weight_shapes
        from actors.policy import PolicyActor

        # an error here says what is wrong, one in an actor only that it died
        read_weight_shapes(str(whole_model_of(policy.folder)))
        settings = self._settings
        logger.info("starting %d vLLM engine%s", settings.n_replicas, "s" * (settings.n_replicas > 1))
        n_gpus = settings.tensor_parallel_size if has_gpu() else 0
        there = int(self.ray().cluster_resources().get("GPU", 0))
        if n_gpus * settings.n_replicas > there:
            raise ConfigError("more engines than there are GPUs for",
                              got=f"policy.n_replicas={settings.n_replicas} of {n_gpus} GPUs each",
                              expected=f"{there} GPUs in all, which Ray has",
                              cure="lower policy.n_replicas or policy.tensor_parallel_size")  # fmt: skip
        actor = self.ray().remote(PolicyActor).options(num_cpus=0, num_gpus=n_gpus)
        told = {"settings": settings, "seed": self._seed, "lora_rank": adapter_rank(policy.folder),
                "run_folder": str(self.run_folder)}  # fmt: skip
        folder = str(policy.folder)
        return [actor.remote(folder, version, number=number, **told) for number in range(settings.n_replicas)]

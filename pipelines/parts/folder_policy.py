"""A model folder as a policy: its digest, an engine fit for its window, and Ray to run it on."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.parts.own_problems import TrialConfig
from pipelines.parts.ray_session import RaySession
from pipelines.parts.rollout_stages import Sampling
from pipelines.parts.workers import MODEL, policy_version
from plansmith.config.training import EngineNumerics, PolicyConfig
from plansmith.data.rows import ProblemRow
from plansmith.errors import BadInputError
from plansmith.learning.model_folder import (
    adapter_rank,
    cache_size_gib,
    folder_digest,
    is_word_level,
    text_config,
    whole_model_of,
)
from plansmith.learning.models import check_model_folder, load_tokenizer
from plansmith.learning.tokenizer import encode_prompt
from plansmith.pddl.grounding import PlanningTask
from plansmith.text.rendering import prompting_of

if TYPE_CHECKING:
    from actors.policy import Generation, SamplingSettings

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
    policy: FolderPolicy, rows: Sequence[ProblemRow], sampling: Sampling, *, dtype: str, n_threads: int
) -> PolicyConfig:
    """Return an engine whose window holds the longest prompt and a whole answer, as far as the model reaches.

    Raises:
        BadInputError: a prompt that fills the model's window.
    """
    prompting, lengths = prompting_of(sampling.prompting), {}
    for row in rows:
        prompt = prompting.plan_prompt(PlanningTask.from_text(row.domain_pddl, row.problem_pddl))
        lengths[row.problem_id] = len(encode_prompt(policy.tokenizer, prompt))
    model = text_config(policy.folder)
    longest = max(lengths, key=lengths.__getitem__)
    reach = int(model.get("max_position_embeddings") or 2**31)
    if lengths[longest] >= reach:
        raise BadInputError(
            "a problem too long for the model", where=longest, got=f"a prompt of {lengths[longest]} tokens",
            expected=f"fewer than the {reach} that the model reads", cure="leave this problem out",
        )  # fmt: skip
    window = max(32, min(lengths[longest] + sampling.max_new_tokens, reach))
    cache_gib = None if has_gpu() else cache_size_gib(model, window, dtype)
    settings = {"max_model_len": window, "max_num_seqs": SEQUENCES_DECODED, "kv_cache_gib": cache_gib, "dtype": dtype}
    return PolicyConfig.model_validate({**settings, "n_threads": n_threads, "enforce_eager": cache_gib is not None})


def has_gpu() -> bool:
    """Return whether there is a GPU to decode on."""
    import torch

    return torch.cuda.is_available()


class FolderWorkers(RaySession):
    """Ray and one engine that holds the model of a folder, started when a stage first needs it.

    There is no trainer to compare with, so nothing is proved: the engine holds what it was started with.
    """

    def __init__(self, config: TrialConfig, run_folder: Path, *, seed: int) -> None:
        super().__init__(config, run_folder)
        self._settings = config.policy
        self._seed = seed
        self._engine: Any = None
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if has_gpu() else "cpu")  # or looking for one is said aloud

    @property
    def n_decoded(self) -> int:
        """Return how many rollouts the engine decodes together."""
        return self._settings.max_num_seqs

    def load_policy(self, policy: FolderPolicy, numerics: EngineNumerics) -> None:
        """Start the engine.

        Raises:
            BadInputError: damaged weights.
        """
        if self._engine is not None:
            return
        from actors.engine_weights import read_weight_shapes
        from actors.policy import PolicyActor, PolicySettings

        # an error here says what is wrong, one in an actor only that it died
        read_weight_shapes(str(whole_model_of(policy.folder)))
        ray, settings = self.ray(), self._settings
        logger.info("starting the vLLM engine")
        shared = {"max_model_len", "max_num_seqs", "kv_cache_gib", "dtype", "n_threads", "enforce_eager"}
        actor = ray.remote(PolicyActor).options(num_cpus=0, num_gpus=1 if has_gpu() else 0)
        rank = adapter_rank(policy.folder)
        self._engine = actor.remote(
            str(policy.folder),
            policy_version(policy),  # type: ignore[arg-type]  # of the key only
            settings=PolicySettings(**settings.model_dump(include=shared), lora_rank=rank, seed=self._seed),
            run_folder=str(self.run_folder),
        )

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, *, seeds: Sequence[int], description: str
    ) -> list[list[Generation]]:
        """Return the completions of each prompt."""
        answer = self._engine.generate.remote(prompts, sampling, seeds=seeds, description=description)
        total = len(prompts) * sampling.n
        completions: list[list[Generation]]
        [completions] = self.wait_for([answer], doing=description, unit="rollout", total=total)
        return completions

"""A model folder as a policy: its digest, an engine fit for its window, and Ray to run it on."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.parts.own_problems import TrialConfig
from pipelines.parts.ray_session import RaySession
from pipelines.parts.rollout_stages import Sampling
from pipelines.parts.workers import MODEL, policy_version
from plansmith.config.training import PolicyConfig
from plansmith.data.rows import ProblemRow
from plansmith.errors import BadInputError
from plansmith.learning.adapters import ADAPTER_CONFIG, base_folder_of, is_adapter_folder
from plansmith.learning.models import check_model_folder, load_tokenizer
from plansmith.learning.tokenizer import encode_prompt
from plansmith.pddl.grounding import PlanningTask
from plansmith.text.rendering import prompting_of

if TYPE_CHECKING:
    from actors.policy import Generation, SamplingSettings

logger = logging.getLogger(__name__)

GIB = 2**30
DIGESTED = ("*.json", "*.jinja", "*.safetensors", "*.model")
"""Files of a model folder that change what it writes: configuration, chat template, tokenizer, weights."""
SEQUENCES_DECODED = 64
"""Problems decoded together; an interrupt loses what twice as many were writing."""
SEQUENCES_IN_CACHE = 4
"""Sequences of full length that the key-value cache on a CPU has room for, at least; the others wait."""
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}


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
        return self.tokenizer.is_fast and type(self.tokenizer.backend_tokenizer.model).__name__ == "WordLevel"

    def path(self, name: str) -> Path:
        """Return where the model lies."""
        if name != MODEL:
            raise KeyError(name)
        return self.folder


def folder_digest(folder: Path) -> str:
    """Return a hash of the names and whole contents of the `DIGESTED` files, those of an adapter's base as well."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in DIGESTED for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            digest.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    if is_adapter_folder(folder):
        digest.update(folder_digest(base_folder_of(folder)).encode())
    return digest.hexdigest()


def base_of(folder: Path) -> Path:
    """Return the model that an adapter lies over, or the folder itself for a whole model."""
    return base_folder_of(folder) if is_adapter_folder(folder) else folder


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


def cache_size_gib(model: Mapping[str, Any], window: int, dtype: str) -> float:
    """Return the memory of a key-value cache for `SEQUENCES_IN_CACHE` full windows, half a GiB at least.

    A token takes 2 (key and value) * layers * key-value heads * head size numbers.
    """
    heads = int(model["num_attention_heads"])
    kv_heads = int(model.get("num_key_value_heads") or heads)
    head_size = int(model.get("head_dim") or model["hidden_size"] // heads)
    token_bytes = 2 * int(model["num_hidden_layers"]) * kv_heads * head_size * BYTES_OF[dtype]
    return max(0.5, SEQUENCES_IN_CACHE * window * token_bytes / GIB)


def has_gpu() -> bool:
    """Return whether there is a GPU to decode on."""
    import torch

    return torch.cuda.is_available()


def text_config(folder: Path) -> Mapping[str, Any]:
    """Return the configuration of the language model; an adapter has its base's, models that also see have it inside.

    Raises:
        BadInputError: it cannot be read.
    """
    config = _json(base_of(folder) / "config.json")
    return {**config, **config.get("text_config", {})}


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError("not a model folder", where=str(path), got=str(error), expected="JSON",
                            cure="give a folder written by save_pretrained") from error  # fmt: skip
    return content


class FolderWorkers(RaySession):
    """Ray and one engine that holds the model of a folder, started when a stage first needs it.

    There is no trainer to compare with, so nothing is proved: the engine holds what it was started with.
    """

    config: TrialConfig

    def __init__(self, config: TrialConfig, run_folder: Path, *, seed: int) -> None:
        super().__init__(config, run_folder)
        self._seed = seed
        self._engine: Any = None
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if has_gpu() else "cpu")  # or looking for one is said aloud

    def load_policy(self, policy: FolderPolicy) -> None:
        """Start the engine.

        Raises:
            BadInputError: damaged weights.
        """
        if self._engine is not None:
            return
        from actors.engine_weights import read_weight_shapes
        from actors.policy import PolicyActor, PolicySettings

        # an error here says what is wrong, one in an actor only that it died
        read_weight_shapes(str(base_of(policy.folder)))
        ray, settings = self.ray(), self.config.policy
        logger.info("starting the vLLM engine")
        shared = {"max_model_len", "max_num_seqs", "kv_cache_gib", "dtype", "n_threads", "enforce_eager"}
        actor = ray.remote(PolicyActor).options(num_cpus=0, num_gpus=1 if has_gpu() else 0)
        self._engine = actor.remote(
            str(policy.folder),
            policy_version(policy),  # type: ignore[arg-type]  # of the key only
            settings=PolicySettings(**settings.model_dump(include=shared), lora_rank=_rank(policy), seed=self._seed),
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


def _rank(policy: FolderPolicy) -> int | None:
    """Return the rank of an adapter, None for a whole model."""
    return int(_json(policy.folder / ADAPTER_CONFIG)["r"]) if is_adapter_folder(policy.folder) else None

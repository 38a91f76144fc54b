"""A model folder as the service needs it: tokenizer, engine settings, and the card that the front asks for.

Read where the engine runs; the front has neither torch nor a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.service.args import EngineArgs
from cluster.service.view import PolicyCard
from plansmith.config.generation import SamplingConfig
from plansmith.config.loading import build_model
from plansmith.config.training import PolicyConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.learning.codec import Codec
from plansmith.learning.model_folder import adapter_rank, engine_for, folder_digest, is_word_level, whole_model_of

VERSION_DIGITS = 12
GENERATION_CONFIG = "generation_config.json"
UNSAID: Mapping[str, float] = {"max_new_tokens": 1024, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""What holds where a folder that asks for sampling does not say; one that does not ask is answered greedily."""


@dataclass(frozen=True)
class ServedModel:
    """A model folder with everything between a conversation and its completion."""

    folder: Path
    codec: Codec
    settings: PolicyConfig
    lora_rank: int | None
    card: PolicyCard

    @classmethod
    def read(cls, folder: Path, args: EngineArgs) -> ServedModel:
        """Return the model in a folder, a whole one or an adapter.

        Raises:
            BadInputError: no model there, or its `generation_config.json` cannot be used.
        """
        sampling = _sampling(folder, args)  # first: it says what is wrong with a damaged file that the codec reads too
        settings = engine_for(
            folder,
            window=args.max_model_len,
            dtype=args.dtype,
            max_num_seqs=args.max_batch_size,
            n_threads=args.engine_threads,
            is_cpu=args.gpus_per_engine == 0,
        )
        settings = settings.model_copy(
            update={
                "tensor_parallel_size": max(1, int(args.gpus_per_engine)),
                "gpu_memory_utilization": settings.gpu_memory_utilization * min(1.0, args.gpus_per_engine or 1.0),
            }
        )
        codec = Codec.of(folder, settings.max_model_len)
        words = frozenset(codec.tokenizer.get_vocab()) if is_word_level(codec.tokenizer) else None
        card = PolicyCard(
            policy_version=folder_digest(folder)[:VERSION_DIGITS],
            prompting=args.rendering or ("full" if words is None else "compact"),
            max_model_len=settings.max_model_len,
            sampling=codec.sampling(sampling),
            words=words,
            object_names=args.object_names,
        )
        return cls(folder, codec, settings, adapter_rank(folder), card)


def _sampling(folder: Path, args: EngineArgs) -> SamplingConfig:
    """Return how answers are drawn: as the user says; else as the folder says, read as transformers reads it.

    Raises:
        BadInputError: the folder says what no engine can do.
    """
    said = _generation_config(folder)
    greedy = {} if said.get("do_sample") else {"temperature": 0.0}
    wanted = {**UNSAID, **{name: said[name] for name in UNSAID if said.get(name) is not None}, **greedy}
    wanted |= {name: value for name in UNSAID if (value := getattr(args, name)) is not None}
    try:
        return build_model(SamplingConfig, wanted, where=str(folder))
    except ConfigError as error:
        raise BadInputError(f"{GENERATION_CONFIG} cannot be used", where=str(folder), got=error.message,
                            expected=", ".join(UNSAID), cure="mend it, or set these with --set") from error  # fmt: skip


def _generation_config(folder: Path) -> dict[str, Any]:
    """Return what a folder says of drawing answers; an adapter that says nothing is drawn from as its base is."""
    path = next((where / GENERATION_CONFIG for where in (folder, whole_model_of(folder))
                 if (where / GENERATION_CONFIG).exists()), None)  # fmt: skip
    try:
        content = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"{type(content).__name__}")
    except (OSError, ValueError) as error:
        raise BadInputError(f"damaged {GENERATION_CONFIG}", where=str(folder), got=str(error),
                            expected="JSON") from error  # fmt: skip
    return content

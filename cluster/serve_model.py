"""A model folder as the service needs it: tokenizer, engine settings, and the card that the front asks for.

Read where the engine runs; the front has neither torch nor a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.planning_service import Completion
from actors.planning_view import PolicyCard
from actors.policy import Generation, PolicySettings, SamplingSettings
from cluster.serve_args import EngineArgs
from plansmith.data.rows import FinishReason
from plansmith.errors import BadInputError
from plansmith.learning.model_folder import (
    adapter_rank,
    cache_size_gib,
    folder_digest,
    is_word_level,
    text_config,
    whole_model_of,
)
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_prompt, end_token_ids

VERSION_DIGITS = 12
GENERATION_CONFIG = "generation_config.json"
UNSAID: Mapping[str, float] = {"max_new_tokens": 1024, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""What holds where a folder that asks for sampling does not say; one that does not ask is answered greedily."""


@dataclass(frozen=True)
class ServedModel:
    """A model folder with everything between a prompt as text and a completion as text."""

    folder: Path
    tokenizer: Any
    settings: PolicySettings
    sampling: SamplingSettings
    card: PolicyCard

    @classmethod
    def read(cls, folder: Path, args: EngineArgs) -> ServedModel:
        """Return the model in a folder, a whole one or an adapter.

        Raises:
            BadInputError: no model there, or its `generation_config.json` cannot be used.
        """
        tokenizer = load_tokenizer(str(folder))
        words, settings = _words(tokenizer), _engine_settings(folder, args)
        sampling = _sampling(folder, args, tokenizer)
        card = PolicyCard(
            policy_version=folder_digest(folder)[:VERSION_DIGITS],
            prompting=args.rendering or ("full" if words is None else "compact"),
            max_model_len=settings.max_model_len,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            words=words,
            object_names=args.object_names,
        )
        return cls(folder, tokenizer, settings, sampling, card)

    def encode(self, prompt: str) -> list[int] | None:
        """Return the tokens of a prompt; None where they leave the engine no room for an answer."""
        ids = encode_prompt(self.tokenizer, prompt)
        return ids if 0 < len(ids) < self.settings.max_model_len else None

    def no_room(self) -> Completion:
        """Return what is answered to a prompt without room."""
        return Completion("", FinishReason.NO_ROOM, 0, self.card.policy_version)

    def completion(self, generation: Generation) -> Completion:
        """Return an answer of the engine as text."""
        text = str(self.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))
        return Completion(text, generation.finish_reason, len(generation.token_ids), generation.policy_version)


def _words(tokenizer: Any) -> frozenset[str] | None:
    """Return the vocabulary of a word-level tokenizer; None for one that reads any text."""
    return frozenset(tokenizer.get_vocab()) if is_word_level(tokenizer) else None


def _sampling(folder: Path, args: EngineArgs, tokenizer: Any) -> SamplingSettings:
    """Return how answers are drawn: as the user says; else as the folder says, read as transformers reads it.

    Raises:
        BadInputError: the folder says what no engine can do.
    """
    said = _generation_config(folder)
    greedy = {} if said.get("do_sample") else {"temperature": 0.0}
    wanted = {**UNSAID, **{name: said[name] for name in UNSAID if said.get(name) is not None}, **greedy}
    wanted |= {name: value for name in UNSAID if (value := getattr(args, name)) is not None}
    try:
        return SamplingSettings(**wanted, n=1, stop_token_ids=end_token_ids(tokenizer, folder))
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{GENERATION_CONFIG} cannot be used", where=str(folder), got=str(error),
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


def _engine_settings(folder: Path, args: EngineArgs) -> PolicySettings:
    model = text_config(folder)
    window = min(args.max_model_len, int(model.get("max_position_embeddings") or args.max_model_len))
    is_cpu = args.gpus_per_engine == 0
    dtype = args.dtype or ("float32" if is_cpu else "bfloat16")
    return PolicySettings(
        max_model_len=window,
        max_num_seqs=args.max_batch_size,
        kv_cache_gib=cache_size_gib(model, window, dtype) if is_cpu else None,
        dtype=dtype,
        n_threads=args.engine_threads,
        enforce_eager=is_cpu,
        seed=args.seed,
        lora_rank=adapter_rank(folder),
    )

"""A model folder as the service needs it: tokenizer, engine settings, and the card that the front asks for.

Read where the engine runs; the front has neither torch nor a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.planning_service import NO_ROOM, Completion
from actors.planning_view import PolicyCard
from actors.policy import Generation, PolicySettings, SamplingSettings
from cluster.serve_args import EngineArgs
from plansmith.errors import BadInputError
from plansmith.learning.adapters import ADAPTER_CONFIG, base_folder_of, is_adapter_folder
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_prompt, end_token_ids

GIB = 2**30
DIGESTED = ("*.json", "*.jinja", "*.safetensors", "*.model")
"""Files of a model folder that change what it writes."""
VERSION_DIGITS = 12
SEQUENCES_IN_CACHE = 4
"""Sequences of full length that the key-value cache on a CPU has room for, at least; the others wait."""
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}


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
            BadInputError: no model there.
        """
        tokenizer = load_tokenizer(str(folder))
        words, settings = _words(tokenizer), _engine_settings(folder, args)
        sampling = SamplingSettings(
            temperature=args.temperature,
            max_new_tokens=args.max_new_tokens,
            n=1,
            stop_token_ids=end_token_ids(tokenizer, folder),
        )
        card = PolicyCard(
            policy_version=folder_digest(folder)[:VERSION_DIGITS],
            prompting=args.rendering or ("full" if words is None else "compact"),
            max_model_len=settings.max_model_len,
            max_new_tokens=args.max_new_tokens,
            words=words,
            object_names=args.object_names,
        )
        return cls(folder, tokenizer, settings, sampling, card)

    def encode(self, prompt: str) -> list[int] | None:
        """Return the tokens of a prompt; None where they leave the engine no room for an answer."""
        ids = encode_prompt(self.tokenizer, prompt)
        return ids if 0 < len(ids) < self.settings.max_model_len else None

    def completions(self, prompts: Sequence[list[int] | None], answers: Sequence[Generation]) -> list[Completion]:
        """Return a completion for each prompt; `answers` are those to the prompts that had room."""
        remaining = iter(answers)
        return [self._no_room() if ids is None else self._completion(next(remaining)) for ids in prompts]

    def _no_room(self) -> Completion:
        return Completion("", NO_ROOM, 0, self.card.policy_version)

    def _completion(self, generation: Generation) -> Completion:
        text = str(self.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))
        return Completion(text, generation.finish_reason, len(generation.token_ids), generation.policy_version)


def folder_digest(folder: Path) -> str:
    """Return a hash of the names and contents of the `DIGESTED` files, those of an adapter's base as well."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in DIGESTED for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            digest.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    if is_adapter_folder(folder):
        digest.update(folder_digest(base_folder_of(folder)).encode())
    return digest.hexdigest()


def _words(tokenizer: Any) -> frozenset[str] | None:
    """Return the vocabulary of a word-level tokenizer; None for one that reads any text."""
    if not tokenizer.is_fast or type(tokenizer.backend_tokenizer.model).__name__ != "WordLevel":
        return None
    return frozenset(tokenizer.get_vocab())


def _engine_settings(folder: Path, args: EngineArgs) -> PolicySettings:
    is_adapter = is_adapter_folder(folder)
    model = _read_json((base_folder_of(folder) if is_adapter else folder) / "config.json")
    model = {**model, **model.get("text_config", {})}
    window = min(args.max_model_len, int(model.get("max_position_embeddings") or args.max_model_len))
    is_cpu = args.gpus_per_engine == 0
    dtype = args.dtype or ("float32" if is_cpu else "bfloat16")
    return PolicySettings(
        max_model_len=window,
        max_num_seqs=args.max_batch_size,
        kv_cache_gib=_cache_gib(model, window, dtype) if is_cpu else None,
        dtype=dtype,
        n_threads=args.engine_threads,
        enforce_eager=is_cpu,
        seed=args.seed,
        lora_rank=int(_read_json(folder / ADAPTER_CONFIG)["r"]) if is_adapter else None,
    )


def _cache_gib(model: Mapping[str, Any], window: int, dtype: str) -> float:
    """Return the memory of a key-value cache for `SEQUENCES_IN_CACHE` full windows, half a GiB at least.

    A token takes 2 (key and value) * layers * key-value heads * head size numbers.
    """
    heads = int(model["num_attention_heads"])
    kv_heads = int(model.get("num_key_value_heads") or heads)
    head_size = int(model.get("head_dim") or model["hidden_size"] // heads)
    token_bytes = 2 * int(model["num_hidden_layers"]) * kv_heads * head_size * BYTES_OF[dtype]
    return max(0.5, SEQUENCES_IN_CACHE * window * token_bytes / GIB)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError("not a model folder", where=str(path), got=str(error), expected="JSON",
                            cure="give a folder written by save_pretrained") from error  # fmt: skip
    return content

"""What a model folder says of itself: its digest, its configuration, and the engine that fits it.

Not here: loading it (`plansmith.learning.models`), and whether its files may be loaded
(`plansmith.learning.weight_files`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plansmith.config.training import PolicyConfig
from plansmith.errors import BadInputError
from plansmith.learning.adapters import ADAPTER_CONFIG, base_folder_of, is_adapter_folder
from plansmith.learning.tokenizer import END, PAD
from plansmith.learning.weight_files import NO_FOREIGN_CODE

GIB = 2**30
DIGESTED = ("*.json", "*.jinja", "*.safetensors", "*.model")
"""Files of a model folder that change what it writes: configuration, chat template, tokenizer, weights."""
SEQUENCES_IN_CACHE = 4
"""Sequences of full length that the key-value cache on a CPU has room for, at least; the others wait."""
_SIZES = ("max_position_embeddings", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size",
          "num_hidden_layers")  # fmt: skip
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}


def folder_digest(folder: Path) -> str:
    """Return a hash of the names and whole contents of the `DIGESTED` files, those of an adapter's base as well."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in DIGESTED for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            digest.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    if is_adapter_folder(folder):
        digest.update(folder_digest(base_folder_of(folder)).encode())
    return digest.hexdigest()


def whole_model_of(folder: Path) -> Path:
    """Return the model that an adapter lies over, or the folder itself for a whole model."""
    return base_folder_of(folder) if is_adapter_folder(folder) else folder


def adapter_rank(folder: Path) -> int | None:
    """Return the rank of an adapter, None for a whole model."""
    return int(_read_json(folder / ADAPTER_CONFIG)["r"]) if is_adapter_folder(folder) else None


def text_config(folder: Path) -> Mapping[str, Any]:
    """Return the configuration of the language model; an adapter has its base's, models that also see have it inside.

    Published files leave out what is the default of their kind, and some kinds have names of their own for it.

    Raises:
        BadInputError: it cannot be read.
    """
    from transformers import AutoConfig

    whole = whole_model_of(folder)
    config = _read_json(whole / "config.json")
    try:
        known = AutoConfig.from_pretrained(whole, local_files_only=True, **NO_FOREIGN_CODE).get_text_config()
    except (OSError, ValueError, KeyError):  # a kind that the library does not know
        return {**config, **config.get("text_config", {})}
    common = {name: getattr(known, name, None) for name in _SIZES}
    return {**config, **config.get("text_config", {}), **{name: own for name, own in common.items() if own is not None}}


def reach_of(folder: Path) -> int:
    """Return how many tokens a model reads at most."""
    return int(text_config(folder).get("max_position_embeddings") or 2**31)


def engine_for(
    folder: Path, *, window: int, dtype: str | None, max_num_seqs: int, n_threads: int, is_cpu: bool
) -> PolicyConfig:
    """Return the settings of an engine for the model in a folder.

    Args:
        folder: with the model.
        window: tokens of prompt and answer, at most; less where the model reaches less far.
        dtype: None takes bfloat16 on a GPU and float32 on a CPU.
        max_num_seqs: prompts decoded together.
        n_threads: of an engine on a CPU.
        is_cpu: whether it runs on one.
    """
    model, dtype = text_config(folder), dtype or ("float32" if is_cpu else "bfloat16")
    window = max(32, min(window, reach_of(folder)))
    return PolicyConfig.model_validate({
        "max_model_len": window,
        "max_num_seqs": max_num_seqs,
        "kv_cache_gib": cache_size_gib(model, window, dtype) if is_cpu else None,
        "dtype": dtype,
        "n_threads": n_threads,
        "enforce_eager": is_cpu,
    })  # fmt: skip


def cache_size_gib(model: Mapping[str, Any], window: int, dtype: str) -> float:
    """Return the memory of a key-value cache for `SEQUENCES_IN_CACHE` full windows, half a GiB at least.

    A token takes 2 (key and value) * layers * key-value heads * head size numbers.

    Args:
        model: its `text_config`.
        window: tokens of prompt and completion together.
        dtype: of the cache.
    """
    heads = int(model["num_attention_heads"])
    kv_heads = int(model.get("num_key_value_heads") or heads)
    head_size = int(model.get("head_dim") or model["hidden_size"] // heads)
    token_bytes = 2 * int(model["num_hidden_layers"]) * kv_heads * head_size * BYTES_OF[dtype]
    return max(0.5, SEQUENCES_IN_CACHE * window * token_bytes / GIB)


def is_word_level(tokenizer: Any) -> bool:
    """Return whether a tokenizer reads only the words that it was made with, as that of `tiny` does."""
    return tokenizer.is_fast and type(tokenizer.backend_tokenizer.model).__name__ == "WordLevel"


def is_from_nothing(tokenizer: Any) -> bool:
    """Return whether a tokenizer was made here, as that of every model that is trained from nothing."""
    return not tokenizer.chat_template and (tokenizer.pad_token, tokenizer.eos_token) == (PAD, END)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError("not a model folder", where=str(path), got=str(error), expected="JSON",
                            cure="give a folder written by save_pretrained") from error  # fmt: skip
    return content

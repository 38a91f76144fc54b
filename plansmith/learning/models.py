"""Building the embedded `tiny` model and loading any other from a Hugging Face folder or name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from plansmith.errors import BadInputError


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The shape of a Qwen3 trained from nothing."""

    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    intermediate_size: int
    max_position_embeddings: int


def make_tiny(folder: Path, tokenizer: PreTrainedTokenizerFast, shape: TinyShape, *, seed: int) -> int:
    """Write a new, untrained Qwen3 with its tokenizer to `folder`; return its number of parameters.

    Qwen3 is a Llama that normalises queries and keys, which at this size about halves the tokens it takes to learn to
    look things up in a state (docs/log.md).
    """
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.n_layers,
            num_attention_heads=shape.n_heads,
            num_key_value_heads=shape.n_kv_heads,
            head_dim=shape.hidden_size // shape.n_heads,
            max_position_embeddings=shape.max_position_embeddings,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    transformers_logging.disable_progress_bar()  # of the writing of a few megabytes
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return int(sum(parameter.numel() for parameter in model.parameters()))


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model folder.

    Raises:
        BadInputError: there is no such folder, or no tokenizer in it.
    """
    check_model_folder(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer


def check_model_folder(folder: str) -> None:
    """Raise a `BadInputError` unless `folder` holds a Hugging Face model with safetensors weights."""
    path = Path(folder)
    lacking = [name for name in ("config.json", "*.safetensors", "tokenizer_config.json") if not any(path.glob(name))]
    if lacking:
        raise BadInputError(
            "no model here" if path.is_dir() else "no such model folder",
            where=str(path), got=f"no {', '.join(lacking)}" if path.is_dir() else "nothing",
            expected="a Hugging Face model folder: config.json, *.safetensors and a tokenizer",
            cure="give the path of a downloaded model, or leave out model.folder to train `tiny`",
        )  # fmt: skip

"""Models that come as one GGUF file: made into a Hugging Face folder, which every command takes.

transformers reads the file by the package ``gguf`` (extra ``gguf``) and undoes its quantisation; the folder holds the
numbers that the file stands for, in float32 or bfloat16, so a model of four bits takes eight times its size. Not here:
where the file comes from (`plansmith.commands.model`).
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any, Literal

from plansmith.errors import BadInputError
from plansmith.garbage import no_garbage
from plansmith.learning.adapters import written_whole
from plansmith.learning.weight_files import NO_FOREIGN_CODE, SAFE_LOADING

MAGIC = b"GGUF"


def import_gguf(file: Path, folder: Path, *, dtype: Literal["float32", "bfloat16"] = "float32") -> int:
    """Write the model in a GGUF file as a Hugging Face folder; return its number of parameters.

    Args:
        file: with weights and tokenizer.
        folder: to be made, complete or not at all.
        dtype: of the weights; bfloat16 rounds what four bits and a scale stand for.

    Raises:
        BadInputError: the package ``gguf`` is lacking, the file is none, or of a model that transformers does not know.
    """
    _check(file)
    with no_garbage():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # that it is read to be kept is what is wanted
    source: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source, local_files_only=True, **NO_FOREIGN_CODE)
        model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=getattr(torch, dtype), **SAFE_LOADING)
    except (ValueError, KeyError, IndexError, OSError, NotImplementedError, struct.error) as error:
        raise BadInputError(
            "a GGUF file that cannot be read", where=str(file), got=" ".join(str(error).split())[:300],
            expected="a language model of an architecture whose GGUF files transformers reads",
            cure="download it again, or take the model as a Hugging Face folder",
        ) from error  # fmt: skip
    # the weights are whole numbers no longer, and a folder that says otherwise is refused by whoever loads it
    model.hf_quantizer = None
    del model.config.quantization_config
    with written_whole(folder) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    return int(sum(parameter.numel() for parameter in model.parameters()))


def _check(file: Path) -> None:
    if not file.is_file():
        raise BadInputError("no such file", where=str(file), expected="a GGUF file")
    with file.open("rb") as opened:
        start = opened.read(len(MAGIC))
    if start != MAGIC:
        raise BadInputError("this is no GGUF file", where=str(file), got=f"a beginning of {start!r}",
                            expected=f"{MAGIC!r}", cure="give the file itself, not a page about it")  # fmt: skip
    if importlib.util.find_spec("gguf") is None:
        raise BadInputError("the package gguf is not installed", where=str(file), expected="what reads GGUF files",
                            cure="pip install 'plansmith[gguf]', or pip install gguf")  # fmt: skip

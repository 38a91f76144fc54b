"""Low-rank adapters (LoRA, QLoRA): made, written, read back and merged through PEFT.

An adapter folder holds ``adapter_config.json``, which names its base by absolute path, ``adapter_model.safetensors``
and the tokenizer; the weights of the base stay where they are. Not here: training (the trainer actor) and how an engine
serves an adapter (the policy actor). Heavy libraries are imported when a function needs them.

Precision. The adapter is held, trained and saved in float32, whatever the base has: its updates are about a thousandth
of its weights, and bfloat16 would round most of them away. PEFT casts at the two edges of the adapter.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.config.training import LoraConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.learning.weight_files import SAFE_LOADING, check_weight_files

if TYPE_CHECKING:
    import torch

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_NAME = "default"

# PEFT imports bitsandbytes for every adapter, which on a CPU warns of a faster kernel for inference that is not there.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

TRAVELLING_FILES = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.tiktoken",
    "chat_template*", "additional_chat_templates", "generation_config.json", "LICENSE*", "NOTICE*",
)  # fmt: skip
"""What goes along with trained weights. A list of what to take, because downloaded models bring second copies of their
weights in other formats and subfolders."""


def is_adapter_folder(folder: str | Path) -> bool:
    """Return whether the folder holds an adapter and not a whole model."""
    return (Path(folder) / ADAPTER_CONFIG).is_file()


def base_folder_of(folder: str | Path) -> Path:
    """Return the folder of the model that an adapter belongs to.

    Raises:
        BadInputError: no complete adapter in ``folder``, or its base is gone.
    """
    path = Path(folder)
    lacking = [name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if not (path / name).is_file()]
    if lacking:
        raise BadInputError("no adapter here", where=str(path), got=f"no {', '.join(lacking)}",
                            expected="a folder written by the trainer with `lora`", cure="check the path")  # fmt: skip
    base = Path(_adapter_config(path).get("base_model_name_or_path") or "")
    if not (base / "config.json").is_file():
        raise BadInputError(
            "the base model of this adapter is gone",
            where=str(path / ADAPTER_CONFIG),
            got=f"base_model_name_or_path {str(base)!r}, where there is no config.json",
            cure="put the base back, or write its new absolute path into base_model_name_or_path",
        )
    return base.resolve()


def quantised_loading(quantisation: str, *, is_bfloat16: bool) -> dict[str, Any]:
    """Return the keywords with which `from_pretrained` holds the frozen matrices in four bits; none for ``none``.

    NF4 with double quantisation (QLoRA, arXiv:2305.14314, section 3). Embeddings, norms and head stay as they are. How
    we differ: they are not widened to float32, which with a large vocabulary would cost much of what is saved.

    Args:
        quantisation: ``none`` or ``nf4``.
        is_bfloat16: multiply in bfloat16, not in float32.
    """
    if quantisation == "none":
        return {}
    import torch
    from transformers import BitsAndBytesConfig

    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantisation,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if is_bfloat16 else torch.float32,
    )
    return {"quantization_config": config}


def write_quantised_values(source: str | Path, target: str | Path, quantisation: str) -> None:
    """Write a whole model whose matrices have the values that four bits can hold, in the precision of the source.

    An engine without four-bit weights that serves it answers as the trainer that holds it in four bits computes; from
    the source itself the two differ. Quantised again, the values stay within the rounding of their scales.

    Args:
        source: a whole model.
        target: is complete or not there; replaced if it exists.
        quantisation: ``nf4``.
    """
    source = Path(source)
    from transformers import AutoModelForCausalLM

    loading = quantised_loading(quantisation, is_bfloat16=False)
    check_weight_files(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto", **SAFE_LOADING, **loading).dequantize()
    with written_whole(Path(target)) as partial:
        model.save_pretrained(partial)
        copy_tokenizer(source, partial)


def keep_differentiable(model: Any) -> None:
    """Keep four-bit layers on a CPU from turning into ones that only infer.

    With bitsandbytes 0.50, where the CPU multiplies bfloat16, the first pass without gradients repacks the weights for
    a kernel that has no backward pass. It goes on being used in training, and the gradients are silently wrong.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def attach_adapter(model: Any, settings: LoraConfig, *, base_folder: Path, seed: int) -> Any:
    """Return the model frozen, with a fresh adapter whose product is zero; the same for the same seed.

    Raises:
        ConfigError: a target module does not exist, or belongs to the vocabulary, which stays frozen.
    """
    import torch
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    targets = settings.target_modules
    config = PeftConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # any number will do
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    try:
        adapted = get_peft_model(model, config, adapter_name=ADAPTER_NAME)
    except ValueError as error:
        raise ConfigError("no adapter for these target modules", got=str(targets), expected=str(error)) from error
    config.base_model_name_or_path = str(base_folder.resolve())
    _check_vocabulary_is_frozen(model, targets)
    return adapted


def save_adapter(model: Any, folder: Path, *, weights: Mapping[str, torch.Tensor], base_folder: Path) -> None:
    """Write an adapter folder; it is complete or not there.

    Args:
        model: from `attach_adapter`.
        folder: is replaced if it exists.
        weights: the trained parameters by name. The model's own may lie scattered over ranks.
        base_folder: whose tokenizer goes along.
    """
    with written_whole(folder) as partial:
        model.save_pretrained(partial, state_dict=dict(weights), save_embedding_layers=False)
        (partial / "README.md").unlink(missing_ok=True)  # an empty form for publishing a model
        copy_tokenizer(base_folder, partial)


def read_adapter(
    folder: Path, settings: LoraConfig, *, base_folder: Path, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """Return the weights of an adapter by the names they have in the model.

    Args:
        folder: an adapter folder.
        settings: of the model's adapter; rank and alpha must be the same, as alpha scales what the weights mean.
        base_folder: of the model.
        shapes: of the parameters the model trains.

    Raises:
        BadInputError: another base, another rank or alpha, or other tensors.
    """
    if base_folder_of(folder) != base_folder.resolve():
        raise BadInputError("this adapter belongs to another base model", where=str(folder),
                            got=str(base_folder_of(folder)), expected=str(base_folder.resolve()))  # fmt: skip
    config = _adapter_config(folder)
    got = {name: config.get(name) for name in ("peft_type", "r", "lora_alpha", "use_rslora")}
    expected = {"peft_type": "LORA", "r": settings.rank, "lora_alpha": settings.alpha, "use_rslora": False}
    if got != expected:
        raise BadInputError("this adapter has other settings than the trainer's", where=str(folder), got=str(got),
                            expected=str(expected), cure="set trainer.lora as it was trained")  # fmt: skip
    from safetensors.torch import load_file

    weights = load_file(folder / ADAPTER_WEIGHTS)
    named = {name: weights.get(_saved_name(name)) for name in shapes}
    fitting = {name: w for name, w in named.items() if w is not None and tuple(w.shape) == tuple(shapes[name])}
    if len(fitting) != len(shapes) or len(weights) != len(shapes):
        unlike = sorted(set(shapes) - set(fitting))[:3] or sorted(set(weights) - set(map(_saved_name, shapes)))[:3]
        raise BadInputError("the adapter does not fit the trainer's", where=str(folder),
                            got=f"{len(weights)} tensors, unlike are {', '.join(unlike)}",
                            expected=f"{len(shapes)} tensors of the model's shapes")  # fmt: skip
    return fitting


def merge_adapter(folder: str | Path, target: str | Path) -> None:
    """Add an adapter to the weights of its base and write the whole model in Hugging Face layout.

    The result has the precision in which the base is stored. An adapter trained on a base in four bits is merged into
    the whole one, which is not quite the model it was trained with.

    Args:
        folder: an adapter folder.
        target: is complete or not there; replaced if it exists.

    Raises:
        BadInputError: no adapter, or its base is gone.
    """
    folder, base = Path(folder), base_folder_of(folder)
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    check_weight_files(base)
    transformers_logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto", **SAFE_LOADING)
    merged = PeftModel.from_pretrained(model, folder).merge_and_unload()
    with written_whole(Path(target)) as partial:
        merged.save_pretrained(partial)
        copy_tokenizer(folder, partial)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy tokenizer, chat template, generation settings and licence of a model into another folder."""
    for path in sorted({path for pattern in TRAVELLING_FILES for path in source.glob(pattern)}):
        if path.is_dir():
            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
        else:
            shutil.copy2(path, target / path.name)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``folder`` at the end, or vanishes after an error."""
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    replaced = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if folder.exists():
            folder.rename(replaced)
        partial.rename(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _adapter_config(folder: Path) -> dict[str, Any]:
    path = folder / ADAPTER_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInputError("a damaged adapter", where=str(path), got=str(error), expected="JSON") from error
    return config


def _saved_name(name: str) -> str:
    """Return the name under which PEFT saves a parameter: without that of the adapter."""
    return name.replace(f".{ADAPTER_NAME}.", ".")


def _check_vocabulary_is_frozen(model: Any, targets: str | tuple[str, ...]) -> None:
    vocabulary = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(parameter.requires_grad for module in vocabulary for parameter in module.parameters()):
        raise ConfigError("embeddings and head stay frozen", got=f"target_modules={targets}",
                          expected="linear layers of the blocks", cure="leave them out of target_modules")  # fmt: skip

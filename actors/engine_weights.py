"""What the policy checks about weights on disk, and the file that names the current ones.

Folders are whole models (`config.json` and `*.safetensors`) or PEFT adapters over one of them (`adapter_config.json`
and `adapter_model.safetensors`). Nothing here calls vLLM: `actors.policy` does, and asks these functions before an
engine sees a folder and after it took one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.errors import BadInputError

if TYPE_CHECKING:
    import torch

TensorShapes = dict[str, tuple[int, ...]]

ADAPTER_PREFIX = "base_model.model."
"""What PEFT puts before the name of the layer that an adapter belongs to."""
A, B = ".lora_A.weight", ".lora_B.weight"
"""The two factors of an adapter: (rank, inputs) and (outputs, rank)."""


def base_of(weights_folder: str) -> str:
    """Return the folder of the whole model: the folder itself, or the base that an adapter names.

    Args:
        weights_folder: absolute path.

    Raises:
        BadInputError: a damaged adapter, or its base is gone.
    """
    from plansmith.learning.adapters import base_folder_of, is_adapter_folder

    if not is_adapter_folder(weights_folder):
        return weights_folder
    read_adapter_shapes(weights_folder)  # a damaged one is an error that says so, before its config is read
    return str(base_folder_of(weights_folder))


def has_tensors(weights_folder: str) -> bool:
    """Return whether a folder has weights at all, and not only what goes with them."""
    return any(Path(weights_folder).glob("*.safetensors"))


def read_weight_shapes(weights_folder: str) -> TensorShapes:
    """Return the shape of every tensor in a Hugging Face folder; this is also the check that the folder is a model.

    Raises:
        BadInputError: no folder, no readable `config.json`, no `*.safetensors`, or a damaged one.
    """
    return _read_shapes(Path(weights_folder), "config.json", "*.safetensors", "model")


def read_adapter_shapes(adapter_folder: str) -> TensorShapes:
    """Return the shape of every tensor of an adapter; this is also the check that the folder is one.

    Raises:
        BadInputError: no folder, no readable `adapter_config.json`, no `adapter_model.safetensors`, or a damaged one.
    """
    return _read_shapes(Path(adapter_folder), "adapter_config.json", "adapter_model.safetensors", "adapter")


def _read_shapes(folder: Path, config_name: str, pattern: str, kind: str) -> TensorShapes:
    from safetensors import SafetensorError, safe_open

    from plansmith.learning.weight_files import check_weight_files

    config, files = folder / config_name, sorted(folder.glob(pattern))
    cure = f"give a folder written by save_pretrained, with {config_name} and {pattern}"
    if not config.is_file() or not files:
        missing = "no such folder" if not folder.is_dir() else f"no {config_name}" if files else f"no {pattern}"
        raise BadInputError(f"not {_with_article(kind)} folder", where=str(folder), got=missing, cure=cure)
    check_weight_files(folder)
    shapes: TensorShapes = {}
    try:
        json.loads(config.read_text(encoding="utf-8"))
        for file in files:
            with safe_open(file, framework="numpy") as tensors:
                names = tensors.keys()
                shapes.update((name, tuple(tensors.get_slice(name).get_shape())) for name in names)
    except (SafetensorError, ValueError) as error:
        raise BadInputError(f"damaged {kind} folder", where=str(folder), got=str(error), cure=cure) from error
    return shapes


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def check_same_shapes(weights_folder: str, got: TensorShapes, expected: TensorShapes) -> None:
    """Refuse a model whose tensors are not those of the running engine.

    Raises:
        BadInputError: a tensor is missing, unknown or of another shape.
    """
    differing = sorted(name for name in got.keys() | expected.keys() if got.get(name) != expected.get(name))
    if differing:
        name = differing[0]
        raise BadInputError(
            f"these weights do not fit the running engine ({len(differing)} tensors differ)",
            where=weights_folder,
            got=f"{name} {got.get(name, 'absent')}",
            expected=f"{name} {expected.get(name, 'absent')}",
        )


def check_adapter(adapter_folder: str, base_shapes: TensorShapes, *, max_rank: int) -> None:
    """Refuse an adapter that does not fit its base or the engine.

    vLLM 0.32.0 takes an adapter of another base without a word when the names of the layers agree, and computes
    something with it.

    Args:
        adapter_folder: as PEFT writes it.
        base_shapes: of the base that the engine holds.
        max_rank: that the engine was built for.

    Raises:
        BadInputError: damaged, no factors at all, a rank above `max_rank`, or a factor that fits no layer of the base.
    """
    shapes = read_adapter_shapes(adapter_folder)
    if not shapes:
        raise BadInputError("the adapter is empty", where=adapter_folder, expected=f"tensors named *{A} and *{B}")
    for name, shape in sorted(shapes.items()):
        expected = _factor_shape(name, shape, base_shapes)
        if shape != expected:
            raise BadInputError(
                "this adapter does not fit its base",
                where=adapter_folder,
                got=f"{name} {shape}",
                expected=f"{name} {expected}" if expected else "only factors of linear layers of the base",
            )
        rank = shape[0] if name.endswith(A) else shape[1]
        if rank > max_rank:
            raise BadInputError("the adapter's rank is above the engine's", where=adapter_folder,
                                got=f"rank {rank} in {name}", expected=f"at most {max_rank}",
                                cure="build the engine with the adapter's rank as lora_rank")  # fmt: skip


def _factor_shape(name: str, shape: tuple[int, ...], base_shapes: TensorShapes) -> tuple[int, ...] | None:
    """Return the shape that a factor of this name must have given its rank, or None if no layer wants it."""
    if not name.startswith(ADAPTER_PREFIX) or not name.endswith((A, B)) or len(shape) != 2:
        return None
    layer = base_shapes.get(name.removeprefix(ADAPTER_PREFIX).removesuffix(A).removesuffix(B) + ".weight")
    if layer is None or len(layer) != 2:
        return None
    return (shape[0], layer[1]) if name.endswith(A) else (layer[0], shape[1])


def first_different_tensor(model: Any, folder: str) -> str | None:
    """Return a tensor whose values in the engine are not the folder's, or None; runs beside the model.

    Query, key and value (and gate and up) are one matrix in the engine, in that order. Tensors that the engine holds in
    another form, such as linear layers on a CPU, or those of which it holds a part, are passed over.
    """
    import torch

    # A layer that may carry an adapter is wrapped, its own weights are the wrapper's `base_layer`.
    held = {name.replace(".base_layer.", "."): tensor for name, tensor in model.named_parameters()}
    for name, holder, pieces in _engine_tensors(held, getattr(model, "packed_modules_mapping", {}), folder):
        values = torch.cat(pieces).to(holder)
        rows = holder[: len(values)] if holder.dim() else holder  # the vocabulary is padded
        if rows.shape == values.shape and not torch.equal(rows, values):
            return name
    return None


def _engine_tensors(
    held: dict[str, torch.Tensor], packed: dict[str, list[str]], folder: str
) -> Iterator[tuple[str, torch.Tensor, list[torch.Tensor]]]:
    """Yield each tensor of the folder's files that the engine holds, with the pieces of the engine's matrix."""
    from safetensors import safe_open

    parts = {part: (whole, names) for whole, names in packed.items() for part in names}
    files: list[Any] = [safe_open(path, framework="pt") for path in sorted(Path(folder).glob("*.safetensors"))]
    found = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - it is no mapping
    for name in found:
        module = name.split(".")[-2] if name.count(".") else ""
        whole, pieces = parts.get(module, (module, [module]))
        wanted = [name.replace(f".{module}.", f".{piece}.") for piece in pieces]
        holder = held.get(name.replace(f".{module}.", f".{whole}."))
        if holder is not None and found.keys() >= set(wanted):
            yield name, holder, [found[piece].get_tensor(piece) for piece in wanted]


def read_pointer(pointer: Path) -> tuple[str, str]:
    """Return folder and version of the current weights."""
    content = json.loads(pointer.read_text(encoding="utf-8"))
    return content["weights_folder"], content["policy_version"]


def write_pointer(pointer: Path, weights_folder: str, policy_version: str) -> None:
    """Name the current weights; the file is complete or as before."""
    content = {"weights_folder": str(Path(weights_folder).resolve()), "policy_version": policy_version}
    partial = pointer.with_name(f"{pointer.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(pointer)

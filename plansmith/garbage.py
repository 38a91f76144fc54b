"""Python's collector of cycles, paused where much is made that stays: words of a long text, modules of a library."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Keep the collector from walking what grows: half of the time of a long text, a fifth of that of an import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

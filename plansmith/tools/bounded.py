"""Work in a process of its own, which is killed at its limits: whatever a stranger sends, the server stays.

A server process that has read our code is forked for each call, which takes some hundredths of a second.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from plansmith.config.tools import ToolSettings
from plansmith.errors import BadInputError, PlansmithError

Row = dict[str, Any]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["__main__", "plansmith.tools.work"])


class OutOfBoundsError(BadInputError):
    """A call took more than it may."""


def bounded(settings: ToolSettings, limit_s: float, work: Callable[..., Row], *arguments: Any) -> Row:
    """Return what a function of `plansmith.tools.work` returns for these arguments.

    Raises:
        BadInputError: the function raises it.
        OutOfBoundsError: it took longer than `limit_s`, or more memory than it may have, or has too much to say.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_answer, args=(sender, settings, work, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            raise OutOfBoundsError("out of time", got=f"more than {limit_s:g} s", cure="send less")
        answer = json.loads(receiver.recv_bytes())
    except EOFError:
        raise OutOfBoundsError("the process that worked on it ended", expected=_memory(settings)) from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if "refused" in answer:
        raise BadInputError(**answer["refused"])
    return dict(answer)


def _memory(settings: ToolSettings) -> str:
    return f"{settings.memory_limit_mib} MiB of memory to be enough"


def _answer(sender: Connection, settings: ToolSettings, work: Callable[..., Row], arguments: tuple[Any, ...]) -> None:
    """Send what the work returns, or why it does not; a bug ends the process with its traceback on stderr."""
    limit = settings.memory_limit_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        text = json.dumps(work(*arguments)).encode()
    except PlansmithError as error:
        parts = {"where": error.where, "got": error.got, "expected": error.expected, "cure": error.cure}
        text = json.dumps({"refused": {"message": error.message, **parts}}).encode()
    except MemoryError:
        text = json.dumps({"refused": {"message": "out of memory", "expected": _memory(settings)}}).encode()
    if len(text) > settings.max_answer_bytes:
        size = {"got": f"{len(text)} bytes", "expected": f"{settings.max_answer_bytes} at most"}
        text = json.dumps({"refused": {"message": "the answer is too long", **size}}).encode()
    sender.send_bytes(text)

"""A server on this machine that speaks OpenAI's protocol, in chat and in plain text; what it answers is scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from plansmith.modelling import script_server
from plansmith.modelling.script_server import Reply, Request, Server

MODEL = "scripted"


@contextlib.contextmanager
def serving(reply: Reply) -> Iterator[Server]:
    """Give a server that answers every request with what a function says."""
    with script_server.serving(reply, models=(MODEL,)) as server:
        yield server


def completion(text: str, tokens: int = 7) -> dict[str, Any]:
    """Return an answer in both protocols at once."""
    return script_server.completion(text, model=MODEL, prompt_tokens=100, completion_tokens=tokens)


def fail(_: Request) -> tuple[int, Any]:
    """Answer with an internal error."""
    return 500, {"error": {"message": "out of memory", "type": "server_error"}}

"""Reads the body of a request before anything else sees it, up to a size and for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]


class TooLongError(Exception):
    """Stays within this module: the body goes beyond the limit."""


class BodyLimit:
    """ASGI middleware that answers 413 to a body above `max_bytes`, and 408 to one that does not come in time.

    A length that the client announces is believed only if it is too large; otherwise bytes are counted.
    """

    def __init__(self, app: Any, *, max_bytes: int, time_limit_s: float) -> None:
        self._app, self._max_bytes, self._time_limit_s = app, max_bytes, time_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._time_limit_s):
                body = await self._body(scope, receive)
        except TooLongError:
            await _reply(scope, receive, send, 413, f"a request of at most {self._max_bytes} bytes is read")
        except TimeoutError:
            await _reply(scope, receive, send, 408, f"the request did not come in {self._time_limit_s:g} s")
        else:
            if body is not None:
                await self._app(scope, _replayed(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body; None where the client is gone."""
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            raise TooLongError
        pieces, size, is_more = [], 0, True
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            size, is_more = size + len(pieces[-1]), message.get("more_body", False)
            if size > self._max_bytes:
                raise TooLongError
        return b"".join(pieces)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body in one piece, and then what the server says."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _reply(scope: Scope, receive: Receive, send: Send, status: int, message: str) -> None:
    name = "too_large" if status == 413 else "bad_request"
    reply = JSONResponse({"error": name, "message": message}, status, {"Connection": "close"})
    await reply(scope, receive, send)

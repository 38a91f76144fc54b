"""A server on this machine that speaks OpenAI's protocol, in chat and in plain text; what it answers is scripted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "scripted"
Reply = Callable[["Request"], tuple[int, Any]]


@dataclass(frozen=True)
class Request:
    """One request as the server got it; `number` counts from 0."""

    number: int
    path: str
    body: dict[str, Any]
    key: str

    @property
    def prompt(self) -> str:
        return str(self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"])


@dataclass
class Server:
    """A server on this machine whose answers are scripted."""

    reply: Reply
    models: Any = (MODEL,)
    requests: list[Request] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextlib.contextmanager
def serving(reply: Reply) -> Iterator[Server]:
    """Give a server that answers every request with what a function says."""
    scripted = Server(reply)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = [{"id": name, "object": "model"} for name in scripted.models]
            self.send(200, {"object": "list", "data": data} if data else "no list")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                key = self.headers.get("Authorization", "").removeprefix("Bearer ")
                request = Request(len(scripted.requests), self.path, body, key)
                scripted.requests.append(request)
            self.send(*scripted.reply(request))

        def send(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                return  # nobody waits for it any more

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        scripted.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield scripted
        finally:
            scripted.is_over.set()
            http.shutdown()
            thread.join()


def completion(text: str, tokens: int = 7) -> dict[str, Any]:
    """Return an answer in both protocols at once."""
    choice = {"index": 0, "finish_reason": "stop", "text": text, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice], "usage": usage}


def fail(_: Request) -> tuple[int, Any]:
    """Answer with an internal error."""
    return 500, {"error": {"message": "out of memory", "type": "server_error"}}

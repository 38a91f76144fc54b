"""A server on this machine that speaks OpenAI's protocol, and whose answers are scripted: no model, whoever asks.

`serving` is such a server, `ServedScript` what the script answers in it. Beside the mistakes of answers (`script`) a
plan may hold what requests meet before one: with ``task: [429, hang, pred_nargs, ""]`` the first two requests for the
problem fail, the third is answered with a mistake, and the answer after that has none. Not here: who asks
(`actors.endpoint`).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from plansmith.config.loading import read_yaml
from plansmith.errors import BadInputError
from plansmith.generation import Conversation, Message, plain_text
from plansmith.modelling.references import Reference
from plansmith.modelling.script import REFUSAL, SCRIPT, Asked, Script

HOST = "127.0.0.1"
HANG = "hang"
"""A request that nobody answers for as long as the server is there."""
STATUSES = {"429": 429, "500": 500, HANG: 503}
FAILURES = frozenset(STATUSES)
"""What a request may meet in the place of an answer."""


@dataclass(frozen=True)
class Request:
    """One request as the server got it.

    Attributes:
        number: from 0.
        path, body, key: what came.
        port: at the other end, one of each connection.
        is_over: set once the server ends.
    """

    number: int
    path: str
    body: dict[str, Any]
    key: str
    port: int
    is_over: threading.Event

    @property
    def prompt(self) -> str:
        """Return the last message, or the plain text."""
        return str(self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"])


Reply = Callable[[Request], tuple[int, Any]]
"""Returns the status and the content of an answer."""


@dataclass
class Server:
    """A server whose answers are scripted; all of it may be changed while it serves."""

    reply: Reply
    models: Any
    requests: list[Request] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    under_way: int = 0
    most_under_way: int = 0
    """Requests that waited for their answers at the same time, now and at most."""

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://{HOST}:{self.port}/v1"


@contextlib.contextmanager
def serving(reply: Reply, *, models: Sequence[str] = (SCRIPT,), port: int = 0) -> Iterator[Server]:
    """Give a server that answers every request with what a function says.

    Args:
        reply: the function; it is called in a thread of each connection.
        models: that the server says it has.
        port: of this machine; 0 is a free one.

    Raises:
        OSError: the port is taken.
        OverflowError: there is no such port.
    """
    server = Server(reply, models)
    with ThreadingHTTPServer((HOST, port), _handler_of(server)) as http:
        http.daemon_threads = True
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            http.shutdown()
            thread.join()


def _handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay, as those of a real server
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            data = [{"id": name, "object": "model"} for name in server.models]
            self.send(200, {"object": "list", "data": data} if data else "no list")

        def do_POST(self) -> None:
            try:
                body = dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0))))
            except (TypeError, ValueError) as error:
                self.send(400, _error(f"no object in JSON: {error}"))
                return
            with lock:
                key, port = self.headers.get("Authorization", "").removeprefix("Bearer "), self.client_address[1]
                request = Request(len(server.requests), self.path, body, key, port, server.is_over)
                server.requests.append(request)
                server.under_way += 1
                server.most_under_way = max(server.most_under_way, server.under_way)
            answer = server.reply(request)
            with lock:  # before it is sent: who has it may ask the next
                server.under_way -= 1
            self.send(*answer)

        def send(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                self.close_connection = True  # nobody waits for it any more

        def log_message(self, *_: object) -> None:
            return

    return Handler


def completion(text: str, *, model: str, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return an answer in both protocols at once: a chat's, and that of plain text."""
    choice = {"index": 0, "finish_reason": "stop", "text": text, "message": {"role": "assistant", "content": text}}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    return {"id": "x", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}


# --- the script


def read_plans(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the mistakes and failures that a YAML file plans, by step, or step and action.

    Raises:
        ConfigError: no YAML, or no lists.
    """
    plans = read_yaml(path)
    for key, planned in plans.items():
        if not isinstance(planned, list):
            raise BadInputError("no list of mistakes", where=f"{path}, {key}", got=str(planned),
                                expected='one for each attempt, such as [param_types, ""]')  # fmt: skip
    return {str(key): tuple(map(str, planned)) for key, planned in plans.items()}


@dataclass
class ServedScript:
    """The script as what a server replies; what it counts as tokens are words.

    Attributes:
        references: by whose texts questions are recognised.
        plans: by step, or step and action: what requests meet, of `FAILURES`, and the mistake of each attempt.
        say: is told what each request asks for, and what it meets.

    Raises:
        BadInputError: plans that the script cannot follow.
    """

    references: tuple[Reference, ...]
    plans: Mapping[str, Sequence[str]] = field(default_factory=dict)
    say: Callable[[str], None] = lambda _: None
    script: Script = field(init=False)
    _met: Counter[Conversation] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        mistakes = {key: [one for one in planned if one not in FAILURES] for key, planned in self.plans.items()}
        self.script = Script(self.references, mistakes)

    def __call__(self, request: Request) -> tuple[int, Any]:
        """Return what a request meets: an answer, a failure, or that nobody else is here to be asked."""
        body = request.body
        if not request.path.endswith("/chat/completions") or body.get("model") != SCRIPT:
            return 404, _error(f"here answers nobody but the {SCRIPT}, and in a chat; asked is {body.get('model')!r}")
        try:
            messages = tuple(Message(turn["role"], turn["content"]) for turn in body["messages"])
            asked = Asked.by(messages)
            failure = self._failure(asked, messages)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            return 400, _error(f"no messages: {error!r}")
        what = "/".join(filter(None, (asked.step, asked.subject)))
        self.say(f"{what}, attempt {asked.attempt}: {failure or self.script.fault_of(asked) or 'no mistake'}")
        if failure:
            if failure == HANG:
                request.is_over.wait()
            return STATUSES[failure], _error("as the script plans")
        return self._answer(messages)

    def _failure(self, asked: Asked, messages: Conversation) -> str:
        """Return what a request meets in the place of an answer, empty for nothing."""
        failures = failures_before(asked.planned(self.plans), asked.attempt)
        with self._lock:
            self._met[messages] += 1
            number = self._met[messages]
        return failures[number - 1] if number <= len(failures) else ""

    def _answer(self, messages: Conversation) -> tuple[int, Any]:
        try:
            text = self.script.answer(messages)
        except BadInputError as error:  # a mistake that this domain has no room for
            return 400, _error(str(error))
        if text == REFUSAL:
            self.say("  refused, as planned or since no reference has this text")
        n_asked, n_said = len(plain_text(messages).split()), len(text.split())
        return 200, completion(text, model=SCRIPT, prompt_tokens=n_asked, completion_tokens=n_said)


def failures_before(planned: Sequence[str], attempt: int) -> list[str]:
    """Return what the requests for the answer of an attempt, from 1, meet before it."""
    found = []
    for one in planned:
        if one not in FAILURES:
            attempt -= 1
        elif attempt == 1:
            found.append(one)
    return found


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": SCRIPT}}

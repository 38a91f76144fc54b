"""The server of the live page: requests to parts of pages, and to nothing else.

A server for one reader or a few, from the standard library. It only reads; an address names a page, a part or a run
that was found in the folder, and never becomes the path of a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.errors import BadInputError
from plansmith.hosts import answered_names, cannot_listen, host_name
from plansmith.watch.page import ReportOfRun, RunPage, RunsPage
from plansmith.watch.run_view import is_run, report_of, run_folders

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: HTTPStatus
    content_type: str
    body: bytes
    etag: str = ""


class Site:
    """The pages of one folder: that of a run, or a list of runs with the page of each."""

    def __init__(self, folder: Path, report_of_run: ReportOfRun) -> None:
        kind = RunPage if is_run(folder) else RunsPage
        self._page: RunPage | RunsPage = kind(folder, report_of_run)

    def answer(self, target: str, etag: str = "") -> Answer:
        """Return the answer to a GET request.

        Args:
            target: path of the request.
            etag: of the answer that the browser has.
        """
        path = unquote(urlsplit(target).path).removeprefix("/")
        page: RunPage | RunsPage = self._page
        if isinstance(page, RunsPage) and path.startswith("run/"):
            found = {f"run/{name}/": run for name, run in page.pages().items()}
            name = next((name for name in found if path.startswith(name)), None)
            if name is None:
                return _NOT_FOUND
            page, path = found[name], path.removeprefix(name)
        return _of_page(page, path, etag)


def _of_page(page: RunPage | RunsPage, path: str, etag: str) -> Answer:
    """Return the page, the list of its parts, one of its parts, or the report."""
    if path == "":
        return Answer(HTTPStatus.OK, HTML, page.html().encode())
    if path == "parts.json":
        return _parts(page, etag)
    if path.startswith("part/"):
        parts = {part.name: part for part in page.parts()}
        part = parts.get(path.removeprefix("part/"))
        return _NOT_FOUND if part is None else Answer(HTTPStatus.OK, JSON, json.dumps({"html": part.html}).encode())
    report = report_of(page.folder) if path == "report" else None
    if report is not None:
        with contextlib.suppress(OSError):
            return Answer(HTTPStatus.OK, HTML, report.read_bytes())
    return _NOT_FOUND


def _parts(page: RunPage | RunsPage, etag: str) -> Answer:
    rows = [{"name": part.name, "group": part.group, "digest": part.digest} for part in page.parts()]
    body = json.dumps({"parts": rows}).encode()
    found = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    is_known = etag == found
    return Answer(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK, JSON, b"" if is_known else body, found)


_NOT_FOUND = Answer(HTTPStatus.NOT_FOUND, TEXT, b"nothing here\n")
_REFUSED = Answer(HTTPStatus.MISDIRECTED_REQUEST, TEXT, b"this page answers to the name it was started for only\n")


def server_of(site: Site, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that listens and has yet to be told to serve, and answers to some names only.

    Raises:
        BadInputError: the address is taken, or none of this machine.
    """
    names = answered_names(host)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            is_known = names is None or host_name(self.headers.get("Host", "")) in names
            self._send(site.answer(self.path, self.headers.get("If-None-Match", "")) if is_known else _REFUSED)

        do_HEAD = do_GET  # noqa: N815

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            length = {} if answer.status == HTTPStatus.NOT_MODIFIED else {"Content-Length": str(len(answer.body))}
            etag = {"ETag": answer.etag} if answer.etag else {}
            for name, value in {"Content-Type": answer.content_type, **length, **etag, **HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, *_: Any) -> None:
            """Say nothing: a page asks every two seconds."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, *client: Any) -> None:
            """Say nothing of a browser that has gone away; anything else is a bug and shows its traceback."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(*client)

    try:
        return Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise cannot_listen(host, port, error) from error


def write_page(folder: Path, target: Path, report_of_run: ReportOfRun) -> None:
    """Write the page of a run as one file.

    Raises:
        BadInputError: the folder holds no run, or several.
    """
    found = run_folders(folder)
    if len(found) != 1:
        raise BadInputError(
            "--once writes the page of one run", where=str(folder), got=f"{len(found)} runs: {', '.join(found)}",
            expected="the folder of one of them",
        )  # fmt: skip
    (run_folder,) = found.values()
    page, report = RunPage(run_folder, report_of_run), report_of(run_folder)
    link = os.path.relpath(report.resolve(), target.resolve().parent) if report else None
    make_folder(target.absolute().parent)
    with storage_errors(target), atomic_file(target) as file:
        file.write(page.snapshot(link).encode())

"""The workbench over HTTP: for whoever has its address, on this machine, and for no page of another site.

The address holds a token. A request must name this machine as its host, and come from a page of the workbench if it
comes from one at all. A name in a request is one of the products that are there, and never becomes the path of a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from plansmith.errors import BadInputError
from plansmith.hosts import host_name
from plansmith.modelling.reading import Fault
from plansmith.workbench.bench import Bench, ConflictError, FaultyError
from plansmith.workbench.going_on import Progress
from plansmith.workbench.meaning import keep_meaning
from plansmith.workbench.pages import (
    Editing,
    address_of,
    editing_of,
    fields_of,
    meaning_page,
    overview,
    plan_page,
    predicates_page,
    product_page,
    rendered,
    text_of_form,
)
from plansmith.workbench.renaming import Kind

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_FIELDS = 2000

Form = dict[str, str]


class Gate:
    """ASGI middleware that lets in who knows the token, on a name of this machine, from no page of another site."""

    def __init__(self, app: ASGIApp, *, token: str, names: frozenset[str] | None) -> None:
        self._app, self._token, self._names = app, token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Request(scope))

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._names is not None and host_name(host) not in self._names:
            return PlainTextResponse("the workbench answers to the names of this machine only\n", 421)
        if origin is not None and urlsplit(origin).netloc != host:
            return PlainTextResponse("the workbench takes nothing from other pages\n", 403)
        given = request.url.path.removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse("nothing here\n", 404)
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return PlainTextResponse("too long\n", 413)
        return None


async def _form(request: Request) -> Form:
    """Return the fields of a form."""
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, "too long")
    text = b"".join(pieces).decode(errors="replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HTTPException(413, f"more than {MAX_FIELDS} fields") from error


Fields = Annotated[Form, Depends(_form)]


def make_app(bench: Bench, progress: Progress, *, token: str, names: frozenset[str] | None) -> FastAPI:
    """Return the workbench of one folder as an application.

    Args:
        bench: the folder.
        progress: what goes on in it.
        token: without which nothing is answered.
        names: of hosts that are answered to; None for all.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Gate, token=token, names=names)

    @app.exception_handler(BadInputError)
    def unusable(_: Request, error: BadInputError) -> Response:
        """Say what file of the folder cannot be used, where a page has nothing else to show."""
        return PlainTextResponse(f"{error}\n", 422)

    _add_pages(app, bench, progress)
    _add_editing(app, bench, progress)
    _add_changes(app, bench, progress)
    _add_progress(app, bench, progress)
    return app


def _add_pages(app: FastAPI, bench: Bench, progress: Progress) -> None:
    @app.get("/{_token}/")
    def first() -> Response:
        return HTMLResponse(overview(bench, progress))

    @app.get("/{_token}/product")
    def product(name: str, view: str = "form") -> Response:
        return _page_of(bench, progress, name, as_text=view == "text")

    @app.get("/{_token}/predicates")
    def predicates() -> Response:
        return HTMLResponse(predicates_page(bench, progress))

    @app.get("/{_token}/plan")
    def plan() -> Response:
        return HTMLResponse(plan_page(bench, progress))

    @app.get("/{_token}/meaning")
    def meaning() -> Response:
        return HTMLResponse(meaning_page(bench, progress))

    @app.get("/{_token}/style.css")
    def style() -> Response:
        return Response(rendered("workbench.css.j2"), media_type="text/css")

    @app.get("/{_token}/page.js")
    def script() -> Response:
        return Response(rendered("workbench.js.j2"), media_type="text/javascript")


def _page_of(bench: Bench, progress: Progress, name: str, *, as_text: bool) -> Response:
    try:
        product = bench.product(name)
    except BadInputError as error:
        return HTMLResponse(overview(bench, progress, error=str(error)), 404)
    return HTMLResponse(product_page(bench, progress, product, editing_of(bench, product), as_text=as_text))


def _add_editing(app: FastAPI, bench: Bench, progress: Progress) -> None:
    @app.post("/{_token}/check")
    def check(form: Fields) -> Response:
        """Say what is wrong with what is being typed, and keep it as a draft."""
        try:
            name, text = form.get("name", ""), text_of_form(form.get("name", ""), form)
            bench.keep_draft(name, text, form.get("version", ""), form=form.get("form", ""))
            faults = [_fault_row(fault, text) for fault in bench.faults(name, text)]
            shown = fields_of(name, text, ())["pddl"] if bench.product(name).action else None
        except BadInputError as error:
            return JSONResponse({"error": str(error)}, 404)
        return JSONResponse({"faults": faults, "pddl": shown, "is_draft": bench.draft(name) is not None})

    @app.post("/{_token}/save")
    def save(form: Fields) -> Response:
        name, as_text, own = form.get("name", ""), "text" in form, form.get("form", "")
        text, version = text_of_form(name, form), form.get("version", "")

        def again(status: int, editing: Editing, error: str) -> Response:
            page = product_page(bench, progress, bench.product(name), editing, as_text=as_text, error=error)
            return HTMLResponse(page, status)

        try:
            with bench.lock:
                if progress.is_running:
                    bench.keep_draft(name, text, version, form=own)
                _check_quiet(progress)
                bench.save(name, text, version, form=own)
        except ConflictError as error:
            editing = Editing(text, error.version, bench.faults(name, text), conflict=error.text, form=own)
            return again(409, editing, f"{error}. Below is in what they differ; what you save now replaces it.")
        except FaultyError as error:
            return again(422, Editing(text, version, error.faults, form=own), str(error))
        except BadInputError as error:
            return HTMLResponse(overview(bench, progress, error=str(error)), 409 if progress.is_running else 422)
        return _to(address_of(name) + ("&view=text" if as_text else ""))

    @app.post("/{_token}/discard")
    def discard(form: Fields) -> Response:
        def work() -> str:
            name = bench.product(form.get("name", "")).name
            bench.drop_draft(name)
            return address_of(name)

        return _done(bench, progress, work)


def _add_changes(app: FastAPI, bench: Bench, progress: Progress) -> None:
    @app.post("/{_token}/take-made")
    def take_made(form: Fields) -> Response:
        def work() -> str:
            bench.take_made(form.get("name", ""), form.get("version", ""))
            return address_of(form["name"])

        return _done(bench, progress, work, is_change=True)

    @app.post("/{_token}/rename")
    def rename(form: Fields) -> Response:
        def work() -> str:
            kind: Kind = "predicate" if form.get("kind") == "predicate" else "type"
            bench.rename(kind, form.get("old", ""), form.get("new", ""))
            return form["back"] if form.get("back") in ("predicates",) else "."

        return _done(bench, progress, work, is_change=True)

    @app.post("/{_token}/interpret")
    def interpret(form: Fields) -> Response:
        try:
            with bench.lock:
                _check_quiet(progress)
                keep_meaning(bench.folder, bench.reference, form.get("text", ""), is_confirmed="confirm" in form)
        except BadInputError as error:
            page = meaning_page(bench, progress, typed=form.get("text"), error=str(error))
            return HTMLResponse(page, 409 if progress.is_running else 422)
        return _to("meaning")

    @app.post("/{_token}/undo")
    def undo() -> Response:
        def work() -> str:
            bench.undo()
            return "."

        return _done(bench, progress, work, is_change=True)


def _add_progress(app: FastAPI, bench: Bench, progress: Progress) -> None:
    @app.get("/{_token}/status")
    def status() -> Response:
        return JSONResponse(progress.state())

    @app.post("/{_token}/go-on")
    def go_on(form: Fields) -> Response:
        def work() -> str:
            name = form.get("after")
            after = None if not name else bench.product(name).name
            with bench.lock:  # what is being changed is changed to its end before
                progress.start("planning" if after is None else f"going on from {after}", after)
            return ".#going-on"

        return _done(bench, progress, work)

    @app.post("/{_token}/stop")
    def stop() -> Response:
        progress.stop()
        return _to(".#going-on")

    @app.post("/{_token}/advise")
    def advise(form: Fields) -> Response:
        def work() -> str:
            number, said = form.get("question", ""), "" if "accept" in form else form.get("advice", "")
            if not number.isdecimal() or not progress.desk.answer(int(number), said):
                raise BadInputError("that question has been answered already")
            return ".#going-on"

        return _done(bench, progress, work)


def _done(bench: Bench, progress: Progress, work: Callable[[], str], *, is_change: bool = False) -> Response:
    """Return where something leads, or the first page with what was wrong with it; nothing begins during a change."""
    try:
        if not is_change:
            return _to(work())
        with bench.lock:
            _check_quiet(progress)
            return _to(work())
    except BadInputError as error:
        status = 409 if isinstance(error, ConflictError) or progress.is_running else 422
        return HTMLResponse(overview(bench, progress, error=str(error)), status)


def _to(address: str) -> Response:
    return RedirectResponse(address, 303)


def _check_quiet(progress: Progress) -> None:
    if progress.is_running:
        raise BadInputError("nothing can be changed while something is going on", got=progress.label,
                            cure="wait for it, or stop it; your draft is kept")  # fmt: skip


def _fault_row(fault: Fault, text: str) -> dict[str, Any]:
    lines = text.split("\n")
    quoted = lines[fault.line - 1].strip() if 0 < fault.line <= len(lines) else ""
    return {"check": fault.check, "line": fault.line, "message": fault.message, "quoted": quoted}

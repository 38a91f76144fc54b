"""The service as HTTP: routes, limits on what comes in, errors as JSON. No Ray here, so that it is tested without."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from cluster.service.admission import Admission, OverloadedError
from cluster.service.answer import PddlRejectedError, PlanAnswer, PlanRequest
from cluster.service.args import LimitArgs
from cluster.service.body import BodyLimit
from cluster.service.planning import PlanningService, ServiceUnavailableError
from plansmith import __version__
from plansmith.config.basics import StrictModel
from plansmith.config.tools import Text, TooLargeError
from plansmith.errors import BadInputError, PlansmithError
from plansmith.pddl.cases import diagnostic_row, judge_texts

logger = logging.getLogger(__name__)

RETRY_S = 5
"""When to ask again a service that starts, or has lost its policy or planner."""

GAUGE_PERIOD_S = 5.0
"""How often the gauges are set while nothing changes; Ray forgets one after about 20 s."""

DESCRIPTION = """Plans for PDDL problems. A language model is asked first, a planner after it; every plan that is given
out has been accepted by a validator. What was tried and what it took stands in the answer."""


class PlanBody(StrictModel):
    """A problem, and how much may be spent on it."""

    domain: Text
    """PDDL domain."""
    problem: Text
    """PDDL problem."""
    time_limit_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Wall-clock seconds, waiting included; the service has a default and a maximum, see `GET /v1/model`."""
    max_feedback_turns: int | None = Field(None, ge=0)
    """How often a failed plan goes back to the policy."""
    fallback: bool | None = None
    """Whether the planner is asked when the policy has no plan."""


class ValidationBody(StrictModel):
    """A plan to be judged."""

    domain: Text
    """PDDL domain."""
    problem: Text
    """PDDL problem."""
    plan: Text
    """One (action argument ...) a line."""


class ErrorReply(BaseModel):
    """Why there is no answer."""

    error: Literal["bad_request", "bad_input", "too_large", "overloaded", "not_ready", "unavailable"]
    message: str
    where: str | None = None
    got: str | None = None
    expected: str | None = None
    cure: str | None = None
    diagnostics: list[dict[str, Any]] | None = None


ERRORS: dict[int | str, dict[str, Any]] = {
    413: {"model": ErrorReply, "description": "a text is too long"},
    422: {"model": ErrorReply, "description": "the request, the domain or the problem cannot be used"},
    503: {"model": ErrorReply, "description": "overloaded or not ready; see Retry-After"},
}


class Metrics(Protocol):
    """Counts; see `cluster.service.metrics`."""

    def finished(self, path: str, outcome: str, seconds: float) -> None:
        """Count a request that ended."""

    def answered(self, answer: PlanAnswer, queued_s: float) -> None:
        """Count what is in an answer about a plan."""

    def loaded(self, running: int, queued: int) -> None:
        """Set how many requests there are."""


class Backend(Protocol):
    """What stands behind the routes."""

    @property
    def limits(self) -> LimitArgs:
        """Return the limits on requests."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Return where to count."""
        ...

    def service(self) -> PlanningService:
        """Return the service.

        Raises:
            ServiceUnavailableError: it is not ready.
        """
        ...

    def model(self) -> Mapping[str, Any]:
        """Return what is known of the policy; nothing for a service without one."""
        ...

    async def waiting_for(self) -> list[str]:
        """Return what the service cannot work without and does not have yet."""
        ...

    def exported_metrics(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            OSError: they cannot be had.
        """
        ...


class Front:
    """Lets requests in, sends them on, and counts how they end."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._limits, self._metrics = backend, backend.limits, backend.metrics
        self._admission = Admission(
            max_concurrent=self._limits.max_concurrent,
            max_queued=self._limits.max_queued,
            on_change=self._metrics.loaded,
        )

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Keep the gauges set while the application lives."""
        telling = asyncio.create_task(self._admission.keep_telling(GAUGE_PERIOD_S))
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling

    async def plan(self, body: PlanBody) -> PlanAnswer:
        """Return what a request came to."""
        async with self._counted("/v1/plans") as end:
            request, service = self._request(body), self._backend.service()
            async with self._admission.slot(wait_s=request.time_limit_s) as queued_s:
                left_s = max(0.0, request.time_limit_s - queued_s)
                answer = await service.plan(replace(request, time_limit_s=left_s))
            self._metrics.answered(answer, queued_s)
            end.append(answer.status.value)
            timings = {"queued_s": queued_s, **answer.timings}
        return replace(answer, timings=timings)

    async def validate(self, body: ValidationBody) -> dict[str, Any]:
        """Return the verdict on a plan."""
        async with self._counted("/v1/validations") as end:
            self._limits.check(domain=body.domain, problem=body.problem, plan=body.plan)
            async with self._admission.slot(wait_s=self._limits.time_limit_s):
                judged = await asyncio.to_thread(judge_texts, body.domain, body.problem, body.plan)
            end.append(judged.verdict.verdict.value)
            return judged.to_row()

    def _request(self, body: PlanBody) -> PlanRequest:
        """Return a request within the limits of the service.

        Raises:
            BadInputError: it asks for more than the service gives.
        """
        limits = self._limits
        limits.check(domain=body.domain, problem=body.problem)
        asked = {"time_limit_s": body.time_limit_s, "max_feedback_turns": body.max_feedback_turns}
        most = {"time_limit_s": limits.max_time_limit_s, "max_feedback_turns": limits.max_feedback_turns}
        for name, value in asked.items():
            if value is not None and value > most[name]:
                raise BadInputError("above the limit of this service", where=name, got=str(value)[:20],
                                    expected=f"{most[name]:g} at most")  # fmt: skip
        return PlanRequest(
            body.domain,
            body.problem,
            limits.time_limit_s if body.time_limit_s is None else body.time_limit_s,
            limits.feedback_turns if body.max_feedback_turns is None else body.max_feedback_turns,
            limits.fallback if body.fallback is None else body.fallback,
        )

    @asynccontextmanager
    async def _counted(self, path: str) -> AsyncIterator[list[str]]:
        """Count how the block ends; the block appends its outcome to the list that it gets."""
        start, outcome = time.perf_counter(), ["failed"]
        try:
            yield outcome
        except PlansmithError as error:
            outcome.append(_error_of(error)[1])
            raise
        except asyncio.CancelledError:
            outcome.append("cancelled")
            raise
        finally:
            self._metrics.finished(path, outcome[-1], time.perf_counter() - start)


def make_api(backend: Backend) -> FastAPI:
    """Return the HTTP application in front of a backend."""
    front = Front(backend)
    api = FastAPI(title="Plansmith", version=__version__, description=DESCRIPTION, lifespan=front.lifespan)
    api.add_middleware(
        BodyLimit, max_bytes=backend.limits.max_body_bytes, time_limit_s=backend.limits.body_time_limit_s
    )
    api.add_exception_handler(PlansmithError, _as_reply)
    api.add_exception_handler(RequestValidationError, _as_mistakes)
    _add_work(api, front)
    _add_windows(api, backend)
    return api


def _add_work(api: FastAPI, front: Front) -> None:
    @api.post("/v1/plans", responses=ERRORS, summary="Plan")
    async def plan(body: Annotated[PlanBody, Body()]) -> PlanAnswer:
        return await front.plan(body)

    @api.post("/v1/validations", responses=ERRORS, summary="Judge a plan")
    async def validate(body: Annotated[ValidationBody, Body()]) -> dict[str, Any]:
        return await front.validate(body)


def _add_windows(api: FastAPI, backend: Backend) -> None:
    @api.get("/v1/model", summary="Policy and limits")
    async def model() -> dict[str, Any]:
        return {"policy": dict(backend.model()) or None, "limits": backend.limits.model_dump()}

    @api.get("/healthz", summary="Does the front answer?")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @api.get("/readyz", summary="Can the service plan?", responses={503: {"description": "not yet"}})
    async def readyz() -> JSONResponse:
        missing = await backend.waiting_for()
        headers = {"Retry-After": str(RETRY_S)} if missing else {}
        return JSONResponse({"ready": not missing, "waiting_for": missing}, 503 if missing else 200, headers)

    @api.get("/metrics", summary="The service's metrics on this node", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        try:
            return PlainTextResponse(await asyncio.to_thread(backend.exported_metrics))
        except OSError as error:
            raise ServiceUnavailableError("Ray's metrics agent does not answer", got=str(error)) from error


def _error_of(error: PlansmithError) -> tuple[int, str, int | None]:
    """Return status code, name and seconds until a retry."""
    if isinstance(error, OverloadedError):
        return 503, "overloaded", error.retry_after_s
    if isinstance(error, TooLargeError):
        return 413, "too_large", None
    if isinstance(error, BadInputError):
        return 422, "bad_input", None
    if isinstance(error, ServiceUnavailableError):
        return 503, "unavailable", RETRY_S
    raise error


async def _as_reply(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlansmithError)
    status, name, retry_s = _error_of(error)
    reply: dict[str, Any] = {"error": name, "message": error.message}
    reply |= {key: value for key in ("where", "got", "expected", "cure") if (value := getattr(error, key))}
    if isinstance(error, PddlRejectedError):
        reply["diagnostics"] = [diagnostic_row(diagnostic) for diagnostic in error.diagnostics]
    return JSONResponse(reply, status, {"Retry-After": str(retry_s)} if retry_s is not None else None)


async def _as_mistakes(_: Request, error: Exception) -> JSONResponse:
    """Say which part of a request is wrong; what was sent is not repeated, it may be long or no text at all."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = "not text in UTF-8" if isinstance(first.get("ctx", {}).get("error"), UnicodeError) else first["msg"]
    return JSONResponse({"error": "bad_request", "message": message, "where": where}, 422)

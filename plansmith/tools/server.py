"""The tools by the Model Context Protocol: what each takes and gives, and which limits hold.

A mistake of who asks is an answer marked as an error, in the words of the command; an outcome, such as an invalid plan
or PDDL that cannot be read, is none. Not here: the work itself (`work`) and the command (`plansmith.commands.mcp`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import Field
from starlette.applications import Starlette

from plansmith import __version__
from plansmith.config.loading import build_model
from plansmith.config.planner import SEARCH_ALIASES, PlannerConfig
from plansmith.config.tools import Text, ToolSettings
from plansmith.errors import BadInputError, PlannerCrashError, PlansmithError
from plansmith.hosts import answered_names
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus
from plansmith.planners.batch import BAD_INPUT
from plansmith.tools import work
from plansmith.tools.bounded import Row, bounded
from plansmith.tools.modelling import modelled

KILL_GRACE_S = 0.5
"""Wall-clock seconds beyond a planner's CPU time after which it is killed."""

INSTRUCTIONS = """\
Tools for classical planning in PDDL 2.1, level 1, with ADL, action costs and derived predicates. Write a domain and a
problem, mend them with `diagnose` until it reports no errors, then `plan`. Judge a plan of your own with `validate`,
which names the first step that fails and everything it lacks. `problems` gives PDDL that is known to be sound."""

DESCRIPTIONS = {
    "validate": "Judge a plan step by step. `verdict` is valid, goal_not_reached, precondition_unsatisfied (step "
    "`failed_step`, from 1, lacks `unsatisfied`), malformed_plan or bad_input (with `diagnostics`).",
    "diagnose": "List every mistake in a domain and a problem: line, column, what was expected, how to mend it.",
    "plan": "Solve a problem with Fast Downward. `status` is solved (with `plan` and `cost`; our validator has "
    "accepted it), unsolvable (proven), gave_up, out_of_time, out_of_memory, unsupported, crashed or bad_input (with "
    "`diagnostics`).",
    "problems": "Draw solvable problems of a well-known planning domain, with the domain; or list the domains.",
    "nl2plan": "Let a language model write a domain and a problem of a text in plain words, and plan them; it takes "
    "minutes. `status` is solved or no_plan, `in_words` has the plan in words or says why there is none. It is a "
    "plan of that model of the text: read `domain` and `problem` before you trust it.",
}
"""What an agent reads of each tool."""

Domain = Annotated[Text, Field(description="the whole PDDL domain")]
Problem = Annotated[Text, Field(description="the whole PDDL problem")]
Plan = Annotated[Text, Field(description="one ground action a line: (pick-up a)")]


class Desk:
    """Takes calls, so many at a time, and holds the warm planners."""

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._slots = anyio.Semaphore(settings.workers)
        self._idle: list[FastDownward] = []

    def close(self) -> None:
        """End the planners."""
        while self._idle:
            self._idle.pop().close()

    async def validate(
        self, domain: Domain, problem: Problem, plan: Plan,
        verbose: Annotated[bool, Field(description="add VAL's report: every change of state, repair advice")] = False,
    ) -> Row:  # fmt: skip
        """Return the verdict on a plan."""
        self._check(domain=domain, problem=problem, plan=plan)
        return await self._call(self._bounded(work.validation, domain, problem, plan, verbose))

    async def diagnose(
        self, domain: Domain,
        problem: Annotated[Text | None, Field(description="a PDDL problem of that domain, if there is one")] = None,
        reachability: Annotated[bool, Field(description="also name goals that no plan reaches, and facts that may be "
                                            "lacking; needs texts without errors")] = False,
    ) -> Row:  # fmt: skip
        """Return every mistake in the texts."""
        self._check(domain=domain, **({} if problem is None else {"problem": problem}))
        return await self._call(self._bounded(work.diagnosis, domain, problem, reachability))

    async def plan(
        self, domain: Domain, problem: Problem,
        search: Annotated[str, Field(json_schema_extra={"enum": list(SEARCH_ALIASES)},
                                     description="any plan, soon; ever better ones until the time is up; a cheapest "
                                     "one")] = "first",
        time_limit_s: Annotated[float | None, Field(gt=0, allow_inf_nan=False,
                                                    description="CPU seconds; default: the most it gives")] = None,
    ) -> Row:  # fmt: skip
        """Return what Fast Downward makes of a problem."""
        self._check(domain=domain, problem=problem)
        planner_settings = self._planner_settings(search, time_limit_s)
        return await self._call(lambda: self._solve(domain, problem, planner_settings))

    async def problems(
        self,
        domain: Annotated[str | None, Field(description="a domain of the project; without it, all are listed")] = None,
        level: Annotated[str | None, Field(description="of the domain; default: its first")] = None,
        n: Annotated[int, Field(ge=1, description="problems, no two the same under other names")] = 1,
        seed: Annotated[int, Field(description="the same seed gives the same problems")] = 0,
        text: Annotated[bool, Field(description="each problem in words as well")] = False,
    ) -> Row:  # fmt: skip
        """Return problems of a domain of the project, or its domains."""
        if domain is None:
            return await self._call(self._bounded(work.domains))
        most = self._settings.max_problems
        if n > most:
            raise ToolError(str(BadInputError("too many problems", where="n", got=str(n), expected=f"{most} at most")))
        return await self._call(self._bounded(work.drawn_problems, domain, level, n, seed, text))

    async def nl2plan(
        self,
        text: Annotated[Text, Field(description="what there is, what can be done, how things are, and what is wanted")],
    ) -> Row:
        """Return what a model makes of a text."""
        self._check(text=text)
        return await self._call(partial(modelled, self._settings, text))

    def _check(self, **texts: str) -> None:
        with _as_tool_error():
            self._settings.check(**texts)

    def _bounded(self, function: Callable[..., Row], *arguments: Any) -> Callable[[], Row]:
        return partial(bounded, self._settings, self._settings.time_limit_s, function, *arguments)

    async def _call(self, function: Callable[[], Row]) -> Row:
        """Return what a function returns, called in a thread as soon as there is a slot."""
        limit_s = self._settings.time_limit_s
        with anyio.move_on_after(limit_s) as waiting:
            await self._slots.acquire()
        if waiting.cancelled_caught:
            raise ToolError(f"busy: no worker was free within {limit_s:g} s; ask again later")
        try:
            with _as_tool_error():
                return await run_sync(function)
        finally:
            self._slots.release()

    def _planner_settings(self, search: str, time_limit_s: float | None) -> PlannerConfig:
        most = self._settings.time_limit_s
        limit_s = most if time_limit_s is None else time_limit_s
        with _as_tool_error():
            if search not in SEARCH_ALIASES:
                raise BadInputError("no such search", where="search", got=repr(search),
                                    expected=f"one of {', '.join(SEARCH_ALIASES)}")  # fmt: skip
            if limit_s > most:
                raise BadInputError("above the limit of this server", where="time_limit_s", got=f"{limit_s:g}",
                                    expected=f"{most:g} at most")  # fmt: skip
            limits = {"time_limit_s": limit_s, "kill_after_s": limit_s + KILL_GRACE_S}
            given = {"search": search, "memory_limit_mib": self._settings.memory_limit_mib, **limits}
            return build_model(PlannerConfig, given, where="plan")

    def _solve(self, domain: str, problem: str, settings: PlannerConfig) -> Row:
        """Return what `plan` says: no planner sees what we cannot read, nobody a plan that the validator refuses."""
        found = self._bounded(work.mistakes, domain, problem)()
        if found["diagnostics"]:
            return {"status": BAD_INPUT, "plan": None, **found}
        try:
            result = self._planned(domain, problem, settings)
        except PlannerCrashError as error:
            result = PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))
        if result.plan is None:
            return dataclasses.asdict(result)
        return self._bounded(work.judged_plan, domain, problem, result)()

    def _planned(self, domain: str, problem: str, settings: PlannerConfig) -> PlannerResult:
        planner = self._idle.pop() if self._idle else FastDownward()
        try:
            return planner.solve_with(settings, domain, problem)
        finally:
            self._idle.append(planner)


@contextlib.contextmanager
def _as_tool_error() -> Any:
    """Let who asks read an error that we foresee; a bug propagates."""
    try:
        yield
    except PlansmithError as error:
        raise ToolError(str(error)) from error


def make_server(settings: ToolSettings) -> MCPServer[None]:
    """Return the server, which has yet to be run on stdio or handed to `http_app`."""
    desk = Desk(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            desk.close()

    server: MCPServer[None] = MCPServer(
        "plansmith", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING", lifespan=lifespan
    )
    harmless = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (desk.validate, desk.diagnose, desk.plan, desk.problems):
        server.add_tool(tool, description=DESCRIPTIONS[tool.__name__], annotations=harmless)
    if settings.policy:
        asking = ToolAnnotations(read_only_hint=True, idempotent_hint=False, open_world_hint=True)
        server.add_tool(desk.nl2plan, description=DESCRIPTIONS["nl2plan"], annotations=asking)
    return server


def http_app(server: MCPServer[None], settings: ToolSettings, host: str) -> Starlette:
    """Return the server as an application of the streamable HTTP transport, at ``/mcp``, without sessions."""
    names = answered_names(host)
    shown = [f"[{name}]" if ":" in name else name for name in names or ()]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=names is not None,
        allowed_hosts=[*shown, *(f"{name}:*" for name in shown)],
        allowed_origins=[f"http://{name}{port}" for name in shown for port in ("", ":*")],
    )
    return server.streamable_http_app(
        stateless_http=True, json_response=True, host=host,
        max_request_body_size=settings.max_body_bytes, transport_security=security,
    )  # fmt: skip

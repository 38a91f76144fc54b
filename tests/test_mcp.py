"""`plansmith mcp`, spoken to by the client of the protocol's own package: in process, on stdio and over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult
from modelled import reference

from plansmith.config.tools import ToolSettings
from plansmith.pddl.cases import judge_texts
from plansmith.problems.library import domain_names, load_domain
from plansmith.tools import bounded as bounded_module
from plansmith.tools.bounded import OutOfBoundsError, bounded
from plansmith.tools.server import make_server
from tests.test_nl2plan_command import script_server
from tests.test_planners import BLOCKSWORLD, HARD, SUSSMAN, UNSOLVABLE

PLAN = "(unstack c a)\n(put-down c)\n(pick-up b)\n(stack b c)\n(pick-up a)\n(stack a b)\n"
SUSSMANS = {"domain": BLOCKSWORLD, "problem": SUSSMAN}
COMMAND = [sys.executable, "-m", "plansmith.cli", "mcp"]


def talk(work: Callable[[Client], Awaitable[Any]], target: Any = None, **settings: Any) -> Any:
    """Return what comes of a talk with a server, by default one in this process."""

    async def run() -> Any:
        server = make_server(ToolSettings(**settings)) if target is None else target
        async with Client(server) as client:
            return await work(client)

    return anyio.run(run)


def called(tool: str, target: Any = None, *, given: dict[str, Any], **settings: Any) -> CallToolResult:
    """Return the answer to one call."""
    return talk(lambda client: client.call_tool(tool, given), target, **settings)


def row_of(tool: str, given: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return what a call gives, which must be no error."""
    answer = called(tool, given=given, **settings)
    assert not answer.is_error, answer.content
    return dict(answer.structured_content or {})


def complaint_of(tool: str, given: dict[str, Any], **settings: Any) -> str:
    """Return what is said of a call that must be an error."""
    answer = called(tool, given=given, **settings)
    assert answer.is_error
    return answer.content[0].text


def test_tools_are_listed_with_a_text_for_each_argument() -> None:
    async def listed(client: Client) -> Any:
        return await client.list_tools()

    tools = {tool.name: tool for tool in talk(listed).tools}
    assert set(tools) == {"validate", "diagnose", "plan", "problems"}
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert [name for name, schema in tool.input_schema["properties"].items() if not schema.get("description")] == []
    assert tools["plan"].input_schema["properties"]["search"]["enum"][:2] == ["optimal", "first"]
    assert tools["validate"].input_schema["required"] == ["domain", "problem", "plan"]


def test_validate_gives_the_verdict_of_the_command() -> None:
    assert row_of("validate", {**SUSSMANS, "plan": PLAN}) == judge_texts(BLOCKSWORLD, SUSSMAN, PLAN).to_row()
    broken = row_of("validate", {**SUSSMANS, "plan": "(pick-up a)", "verbose": True})
    assert (broken["verdict"], broken["failed_step"]) == ("precondition_unsatisfied", 1)
    assert broken["unsatisfied"] == ["(clear a)"]
    assert "Plan Repair Advice" in broken["report"]


def test_diagnose_lists_every_mistake_with_its_line() -> None:
    found = row_of("diagnose", {"domain": BLOCKSWORLD.replace("(holding ?x)", "(holdin ?x)", 2)})
    assert found["n_errors"] == len(found["diagnostics"]) > 0
    assert all(each["line"] and each["source"] == "domain" for each in found["diagnostics"])
    assert row_of("diagnose", SUSSMANS)["n_errors"] == 0


def test_plan_of_a_problem_is_valid_and_that_of_an_unsolvable_one_is_a_proof() -> None:
    async def both(client: Client) -> list[Any]:
        unsolvable = {"domain": BLOCKSWORLD, "problem": UNSOLVABLE}
        return [await client.call_tool("plan", {**given, "search": "optimal"}) for given in (SUSSMANS, unsolvable)]

    solved, unsolvable = (answer.structured_content for answer in talk(both))
    assert (solved["status"], solved["cost"], solved["is_optimal"]) == ("solved", 6.0, True)
    assert judge_texts(BLOCKSWORLD, SUSSMAN, "\n".join(solved["plan"])).verdict.is_valid
    assert (unsolvable["status"], unsolvable["plan"]) == ("unsolvable", None)


def test_plan_of_broken_pddl_is_an_outcome_with_diagnostics() -> None:
    answer = row_of("plan", {"domain": BLOCKSWORLD, "problem": SUSSMAN.replace("(on b c)", "(onn b c)")})
    assert (answer["status"], answer["plan"]) == ("bad_input", None)
    assert answer["diagnostics"][0]["got"]


def test_problems_are_the_same_for_the_same_seed_and_can_be_planned() -> None:
    given = {"domain": "ferry", "n": 2, "seed": 3, "text": True}
    drawn = row_of("problems", given)
    assert row_of("problems", given) == drawn
    assert len({each["problem"] for each in drawn["problems"]}) == 2
    assert all("ferry" in each["text"] for each in drawn["problems"])
    answer = row_of("plan", {"domain": drawn["domain"], "problem": drawn["problems"][0]["problem"]})
    assert answer["status"] == "solved"


def test_problems_without_a_domain_lists_them() -> None:
    listed = row_of("problems", {})["domains"]
    assert [each["name"] for each in listed] == domain_names()
    assert all(each["levels"] for each in listed)


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("problems", {"domain": "../../etc"}, "no such domain"),
        ("problems", {"domain": str(load_domain("ferry").folder)}, "no such domain"),
        ("problems", {"domain": "ferry", "level": "L9"}, "no such level"),
        ("problems", {"domain": "ferry", "n": 51}, "50 at most"),
        ("plan", {**SUSSMANS, "search": "astar(blind())"}, "no such search"),
        ("plan", {**SUSSMANS, "time_limit_s": 31}, "30 at most"),
        ("validate", {**SUSSMANS, "plan": "x" * 600_000}, "524288 at most"),
        ("diagnose", {"domain": "\ud800"}, "surrogates not allowed"),
        ("diagnose", {}, "domain"),
    ],
    ids=["no domain", "path of a domain", "level", "too many", "search", "time", "size", "half a character",
         "domain left out"],
)  # fmt: skip
def test_call_with_a_mistake_is_an_error_that_says_what_is_expected(tool: str, given: Any, said: str) -> None:
    assert said in complaint_of(tool, given)


def test_answer_that_is_too_long_is_refused() -> None:
    assert "100 at most" in complaint_of("problems", {}, max_answer_bytes=100)


def test_plan_that_takes_too_long_is_out_of_time() -> None:
    given = {"domain": BLOCKSWORLD, "problem": HARD, "search": "optimal"}
    assert row_of("plan", {**given, "time_limit_s": 0.5})["status"] == "out_of_time"


def spin(_: str) -> dict[str, Any]:
    """Never return."""
    while True:
        time.sleep(0.01)


def hoard(_: str) -> dict[str, Any]:
    """Take more memory than there may be."""
    return {"length": len(bytearray(2**32))}


def die(_: str) -> dict[str, Any]:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


@pytest.mark.parametrize(
    ("work", "said"),
    [(spin, "out of time"), (hoard, "out of memory"), (die, "the process that worked on it ended")],
    ids=["endless", "greedy", "dying"],
)
def test_bounded_work_beyond_its_limits_is_an_error_and_its_process_is_gone(work: Any, said: str) -> None:
    with pytest.raises(Exception, match=said) as caught:
        bounded(ToolSettings(), 0.5 if work is spin else 60.0, work, "text")
    assert isinstance(caught.value, OutOfBoundsError) or work is hoard
    assert bounded_module.multiprocessing.active_children() == []


def test_calls_beyond_the_workers_wait_and_then_are_told_to_come_again() -> None:
    given = {"domain": BLOCKSWORLD, "problem": HARD, "search": "optimal"}
    answers: dict[str, Any] = {}

    async def crowd(client: Client) -> None:
        async def call(name: str, tool: str, given: dict[str, Any]) -> None:
            answers[name] = await client.call_tool(tool, given)

        async with anyio.create_task_group() as group:
            group.start_soon(call, "long", "plan", {**given, "time_limit_s": 1.0})
            await anyio.sleep(0.05)
            group.start_soon(call, "late", "validate", {**SUSSMANS, "plan": PLAN})

    talk(crowd, workers=1, time_limit_s=1.0)
    assert answers["late"].is_error
    assert "no worker was free" in answers["late"].content[0].text
    assert "no worker was free" not in answers["long"].content[0].text  # whatever a slow machine did to the search


def test_nl2plan_models_a_text_with_the_policy_of_the_server() -> None:
    own = reference("isr-easy")
    with script_server() as server:
        made = row_of("nl2plan", {"text": own.text}, policy=server.url)
        assert (made["status"], made["calls"]) == ("solved", len(server.requests))
        assert row_of("validate", {name: made[name] for name in ("domain", "problem")} | {
            "plan": "\n".join(made["plan"])})["verdict"] == "valid"  # fmt: skip
        said = complaint_of("nl2plan", {"text": own.text}, policy=server.url, max_calls=2)
    assert "the budget is spent" in said


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("x" * 40_000, {}, "too long"),
        (" ", {}, "empty"),
        ("A text.", {"modelling_time_limit_s": 0.01}, "out of time"),
    ],
    ids=["long", "empty", "time"],
)
def test_nl2plan_of_a_text_that_cannot_be_used_is_an_error(text: str, settings: dict[str, Any], said: str) -> None:
    assert said in complaint_of("nl2plan", {"text": text}, policy="http://127.0.0.1:9/v1", model="m", **settings)


def test_stdio_serves_the_tools_and_ends_with_the_agent() -> None:
    server = stdio_client(StdioServerParameters(command=COMMAND[0], args=COMMAND[1:]))
    answer = called("validate", server, given={**SUSSMANS, "plan": PLAN})
    assert answer.structured_content["verdict"] == "valid"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Give the address of a server in a process of its own, which must end with 0 when it is interrupted."""
    with subprocess.Popen([*COMMAND, "--http"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        select.select([process.stderr], [], [])
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait()
        assert status == 0


def test_http_serves_the_tools_to_this_machine_alone(address: str) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    assert called("plan", address, given=SUSSMANS).structured_content["status"] == "solved"
    parts = urlsplit(address)
    assert parts.hostname
    statuses = []
    for headers in ({}, {"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        client = http.client.HTTPConnection(parts.hostname, parts.port or 80)
        client.request("POST", parts.path, json.dumps(ping), {**plain, **headers})
        statuses.append(client.getresponse().status)
    assert statuses == [200, 421, 403]
    client = http.client.HTTPConnection(parts.hostname, parts.port or 80)
    client.request("POST", parts.path, headers={**plain, "Content-Length": str(10**9)})
    assert client.getresponse().status == 413


def test_mcp_on_a_port_that_is_taken_exits_2_and_says_so(address: str) -> None:
    port = str(urlsplit(address).port)
    again = subprocess.run([*COMMAND, "--http", "--port", port], capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "cannot listen there" in again.stderr

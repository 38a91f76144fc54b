"""Serving: what is let in, how it is answered over HTTP, and the whole service on a Ray of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import BLOCKS, BLOCKS_TEXT, NAMES, SUSSMAN_PLAN, sussman
from processes import RAY_AGENTS, survivors

from cluster.service.admission import Admission, OverloadedError
from cluster.service.answer import PlanAnswer
from cluster.service.args import EngineArgs, LimitArgs, ServeArgs
from cluster.service.http import make_api
from cluster.service.inflight import InFlightEngine
from cluster.service.lookout import Lookout
from cluster.service.model import ServedModel
from cluster.service.planning import PlanningService, ServiceUnavailableError
from pipelines.commands.serve import _check_gpus, main
from plansmith.cli import main as plansmith
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.loading import build_model
from plansmith.config.training import ModelConfig
from plansmith.errors import BadInputError, ConfigError, PlansmithError
from plansmith.generation import Generation
from plansmith.learning.models import make_model
from plansmith.learning.tokenizer import word_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.problems.library import load_domain

SUSSMAN = print_problem(sussman().problem)
PLAN = tuple(map(str, SUSSMAN_PLAN))
GENEROUS_S, START_S = 300.0, 1200.0
"""Ends of waiting, far beyond what anything takes on a machine that has other work."""
TOWER = [f"b{number}" for number in range(30)]
HARD = (
    f"(define (problem towers) (:domain blocksworld) (:objects {' '.join(TOWER)}) (:init (handempty) (ontable b0) "
    f"(clear b29) {' '.join(f'(on {upper} {lower})' for lower, upper in pairwise(TOWER))}) (:goal (and "
    f"{' '.join(f'(on {upper} {lower})' for lower, upper in pairwise(TOWER[::2] + TOWER[1::2]))})))"
)
"""One tower to be built from another, too high for an optimal planner."""
UNSOLVABLE = """(define (problem p) (:domain blocksworld) (:objects a b)
  (:init (ontable a) (ontable b) (clear a) (clear b) (handempty)) (:goal (and (on a b) (on b a))))"""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something to happen."""
    for _ in range(int(GENEROUS_S / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"waited in vain for {what}")


# --- who is let in


def admission_of(max_concurrent: int, max_queued: int) -> Admission:
    """Return slots that tell nobody how many of them are taken."""
    return Admission(max_concurrent=max_concurrent, max_queued=max_queued, on_change=lambda *_: None)


def test_admission_full_queue_refuses_and_says_when_to_come_back() -> None:
    async def run() -> None:
        admission, gate = admission_of(1, 1), asyncio.Event()

        async def hold() -> None:
            async with admission.slot(wait_s=GENEROUS_S):
                await gate.wait()

        held = [asyncio.create_task(hold()) for _ in range(2)]
        await until(lambda: (admission.running, admission.queued) == (1, 1), "a full queue")
        with pytest.raises(OverloadedError, match="queue is full") as refused:
            async with admission.slot(wait_s=1.0):
                pytest.fail("let in")
        assert refused.value.retry_after_s == 2  # one second a request at first, two before the next
        gate.set()
        await asyncio.gather(*held)
        assert (admission.running, admission.queued) == (0, 0)

    asyncio.run(run())


def test_admission_cancelled_while_working_or_waiting_gives_its_place_back() -> None:
    async def run() -> None:
        admission = admission_of(1, 1)

        async def hold() -> None:
            async with admission.slot(wait_s=GENEROUS_S):
                await asyncio.Event().wait()

        working, waiting = (asyncio.create_task(hold()) for _ in range(2))
        await until(lambda: (admission.running, admission.queued) == (1, 1), "a full queue")
        waiting.cancel()
        await until(lambda: admission.queued == 0, "an empty queue")
        working.cancel()
        await until(lambda: admission.running == 0, "a free slot")
        async with admission.slot(wait_s=GENEROUS_S) as queued_s:
            assert queued_s < GENEROUS_S

    asyncio.run(run())


def test_admission_no_place_in_time_is_refused_and_leaves_the_queue() -> None:
    async def run() -> None:
        admission = admission_of(1, 5)
        async with admission.slot(wait_s=GENEROUS_S):
            with pytest.raises(OverloadedError, match=r"no slot was free in 0\.1 s"):
                async with admission.slot(wait_s=0.1):
                    pytest.fail("let in")
        assert (admission.running, admission.queued) == (0, 0)

    asyncio.run(run())


# --- prompts that join and leave an engine


ENDLESS = [10**9]
"""A prompt for `SteppingEngine` whose answer no test lives to see."""
GREEDY = SamplingConfig(max_new_tokens=4)


@dataclass
class SteppingEngine:
    """Answers the prompt [n] after n steps; a prompt that is empty cannot be read, [-1] breaks `add_requests`.

    Attributes:
        n_places: prompts that a step works on; the others wait.
        is_broken: the next step fails.
        is_lossy: the engine has forgotten everything.
        is_in_step: set once a step has begun, which goes on when `may_step` is set.
    """

    n_places: int = 8
    left: dict[int, int] = field(default_factory=dict)
    n_added: int = 0
    n_steps: int = 0
    aborted: list[int] = field(default_factory=list)
    is_broken: bool = False
    is_lossy: bool = False
    is_in_step: threading.Event = field(default_factory=threading.Event)
    may_step: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Let it step."""
        self.may_step.set()

    def add_requests(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, *, seeds: Sequence[int]
    ) -> list[int]:
        """Queue one prompt."""
        [[*prompt]], [_] = prompts, seeds
        if not prompt:
            raise BadInputError("prompt length", got="0 tokens")
        if prompt == [-1]:
            raise ValueError("broken queue")
        self.left[self.n_added] = prompt[0]
        self.n_added += 1
        return [self.n_added - 1]

    def step(self) -> dict[int, Generation]:
        """Work on the first prompts."""
        self.is_in_step.set()
        assert self.may_step.wait(GENEROUS_S)
        time.sleep(0.001)  # for others to run
        if self.is_broken:
            raise ValueError("broken engine")
        self.n_steps += 1
        for number in list(self.left)[: self.n_places]:
            self.left[number] -= 1
        finished = [number for number, steps in self.left.items() if steps == 0]
        return {number: self._answer(number) for number in finished}

    def _answer(self, number: int) -> Generation:
        del self.left[number]
        return Generation((number,), (0.0,), "stop", "v1")

    def abort_requests(self, requests: Collection[int]) -> None:
        """Forget prompts."""
        for number in requests:
            del self.left[number]
            self.aborted.append(number)

    def has_unfinished_requests(self) -> bool:
        """Return whether any prompt is left."""
        return bool(self.left) and not self.is_lossy


def in_flight(engine: SteppingEngine, run: Callable[[InFlightEngine], Any]) -> None:
    """Run a coroutine function with an engine in its thread; nothing that it waits for may take for ever."""
    asyncio.run(asyncio.wait_for(run(InFlightEngine(lambda: engine, GREEDY)), GENEROUS_S))


def asked(engine: InFlightEngine, prompt: Sequence[int]) -> asyncio.Task[Generation]:
    """Return the answer that is waited for."""
    return asyncio.create_task(engine.ask(prompt, 0))


def test_in_flight_short_prompt_that_joins_a_long_one_is_answered_before_it() -> None:
    stepping = SteppingEngine()

    async def run(engine: InFlightEngine) -> None:
        long = asked(engine, ENDLESS)
        await until(lambda: stepping.n_steps > 2, "the first steps")
        assert [(await asked(engine, [steps])).token_ids for steps in (3, 1, 2)] == [(1,), (2,), (3,)]
        assert not long.done()
        long.cancel()

    in_flight(stepping, run)


def test_in_flight_prompt_whose_asker_is_gone_is_aborted_and_its_place_is_free() -> None:
    stepping = SteppingEngine(n_places=1)

    async def run(engine: InFlightEngine) -> None:
        gone = asked(engine, ENDLESS)
        await until(lambda: stepping.n_steps > 0, "the first step")
        waiting = asked(engine, [2])
        await until(lambda: stepping.n_added == 2, "a prompt that waits")
        assert stepping.left[1] == 2
        gone.cancel()
        assert (await waiting).token_ids == (1,)
        assert (stepping.aborted, stepping.left) == ([0], {})
        steps = stepping.n_steps
        assert (await asked(engine, [1])).token_ids == (2,)
        assert stepping.n_steps == steps + 1  # an idle engine has not stepped

    in_flight(stepping, run)


def test_in_flight_only_prompt_given_up_leaves_an_engine_that_waits_for_the_next() -> None:
    stepping = SteppingEngine()

    async def run(engine: InFlightEngine) -> None:
        gone = asked(engine, ENDLESS)
        await until(lambda: stepping.n_steps > 0, "the first step")
        gone.cancel()
        await until(lambda: not stepping.left, "an engine without work")
        assert (await asked(engine, [1])).token_ids == (1,)
        assert engine.failure is None

    in_flight(stepping, run)


def test_in_flight_prompt_given_up_during_its_last_step_is_answered_to_nobody() -> None:
    stepping = SteppingEngine()
    stepping.may_step.clear()

    async def run(engine: InFlightEngine) -> None:
        gone = asked(engine, [1])
        await until(stepping.is_in_step.is_set, "the step that answers")
        gone.cancel()
        await asyncio.wait([gone])
        stepping.may_step.set()
        assert (await asked(engine, [1])).token_ids == (1,)
        assert (stepping.aborted, engine.failure) == ([], None)

    in_flight(stepping, run)


def test_in_flight_failed_engine_is_said_to_all_who_wait_and_to_all_who_come() -> None:
    stepping = SteppingEngine()

    async def run(engine: InFlightEngine) -> None:
        waiting = [asked(engine, ENDLESS) for _ in range(3)]
        await until(lambda: stepping.n_added == 3, "three prompts")
        assert engine.failure is None
        stepping.is_broken = True
        for answer in (*waiting, asked(engine, [1])):
            with pytest.raises(PlansmithError, match="the engine failed") as caught:
                await answer
            assert caught.value.got == "ValueError: broken engine"
        assert isinstance(engine.failure, ValueError)
        with pytest.raises(PlansmithError, match="the engine failed"):
            await engine.ask([1], 0)

    in_flight(stepping, run)


def test_in_flight_queue_that_breaks_is_said_to_the_newcomer_and_to_those_under_way() -> None:
    async def run(engine: InFlightEngine) -> None:
        first, newcomer = asked(engine, ENDLESS), asked(engine, [-1])
        for answer in (first, newcomer):
            with pytest.raises(PlansmithError, match="the engine failed"):
                await answer

    in_flight(SteppingEngine(), run)


def test_in_flight_prompt_that_cannot_be_read_is_refused_and_the_engine_goes_on() -> None:
    async def run(engine: InFlightEngine) -> None:
        other = asked(engine, [50])
        with pytest.raises(BadInputError, match="prompt length"):
            await engine.ask([], 0)
        assert (await other).token_ids == (0,)
        assert engine.failure is None

    in_flight(SteppingEngine(), run)


def test_in_flight_engine_that_loses_a_prompt_is_a_failure_and_no_silence() -> None:
    stepping = SteppingEngine()

    async def run(engine: InFlightEngine) -> None:
        lost = asked(engine, ENDLESS)
        await until(lambda: stepping.n_steps > 0, "the first step")
        stepping.is_lossy = True
        with pytest.raises(PlansmithError, match="the engine failed") as caught:
            await lost
        assert "the engine lost prompts" in str(caught.value.got)

    in_flight(stepping, run)


def test_in_flight_engine_that_does_not_start_says_why() -> None:
    def start() -> SteppingEngine:
        raise ConfigError("no such engine")

    with pytest.raises(ConfigError, match="no such engine"):
        InFlightEngine(start, GREEDY)


# --- how answers are drawn


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a `tiny` without training, which writes garbage."""
    folder = tmp_path_factory.mktemp("model")
    shape = ModelConfig(hidden_size=64, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=128)
    make_model(folder, word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=256, seed=0)
    return folder


@pytest.fixture
def model_folder(untrained: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder which says nothing of drawing answers."""
    shutil.copytree(untrained, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").unlink(missing_ok=True)
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("said", "given", "expected"),
    [
        (None, {}, (1024, 0.0, 1.0, 0)),
        ({"max_new_tokens": 77, "do_sample": False}, {}, (77, 0.0, 1.0, 0)),
        ({"do_sample": True}, {}, (1024, 1.0, 1.0, 0)),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}, {}, (1024, 0.6, 0.95, 20)),
        ({"temperature": 0.6, "top_p": None}, {}, (1024, 0.0, 1.0, 0)),  # greedy, as transformers reads it
        ({"do_sample": True, "temperature": 0.6, "max_new_tokens": 9}, {"temperature": 0.0, "max_new_tokens": 5},
         (5, 0.0, 1.0, 0)),
        ({"do_sample": False}, {"temperature": 0.5, "top_p": 0.9, "top_k": 3}, (1024, 0.5, 0.9, 3)),
    ],
    ids=["nothing", "tokens", "sampled", "all", "not sampled", "user first", "user samples"],
)  # fmt: skip
def test_sampling_is_the_users_then_the_folders(
    said: dict[str, Any] | None, given: dict[str, Any], expected: tuple[float, ...], model_folder: Path
) -> None:
    if said is not None:
        (model_folder / "generation_config.json").write_text(json.dumps(said), encoding="utf-8")
    found = ServedModel.read(model_folder, EngineArgs(**given)).card.sampling
    assert (found.max_new_tokens, found.temperature, found.top_p, found.top_k) == expected
    assert found.stop_token_ids


def test_sampling_of_an_adapter_that_says_nothing_is_that_of_its_base(model_folder: Path, tmp_path: Path) -> None:
    (model_folder / "generation_config.json").write_text('{"max_new_tokens": 77}', encoding="utf-8")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for path in model_folder.glob("tokenizer*"):
        shutil.copy(path, adapter)
    config = {"base_model_name_or_path": str(model_folder), "r": 4, "peft_type": "LORA"}
    (adapter / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    (adapter / "adapter_model.safetensors").touch()
    assert ServedModel.read(adapter, EngineArgs()).card.sampling.max_new_tokens == 77
    (adapter / "generation_config.json").write_text('{"max_new_tokens": 9}', encoding="utf-8")
    assert ServedModel.read(adapter, EngineArgs()).card.sampling.max_new_tokens == 9


@pytest.mark.parametrize("said", ["{", "[]", '{"do_sample": true, "temperature": "hot"}', '{"max_new_tokens": 0}'])
def test_sampling_of_a_folder_that_says_nonsense_is_bad_input(said: str, model_folder: Path) -> None:
    (model_folder / "generation_config.json").write_text(said, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"generation_config\.json") as caught:
        ServedModel.read(model_folder, EngineArgs())
    assert caught.value.where == str(model_folder)


# --- over HTTP, without Ray


@dataclass
class Counted:
    """Metrics as a list."""

    ends: list[tuple[str, str]] = field(default_factory=list)
    loads: list[tuple[int, int]] = field(default_factory=list)

    def finished(self, path: str, outcome: str, seconds: float) -> None:
        """Note."""
        assert seconds >= 0
        self.ends.append((path, outcome))

    def answered(self, answer: PlanAnswer, queued_s: float) -> None:
        """Check."""
        assert queued_s >= 0

    def loaded(self, running: int, queued: int) -> None:
        """Note."""
        self.loads.append((running, queued))


@dataclass
class GatedPlanner:
    """Knows the answer, and gives it once the gate is open."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    n_asked: int = 0

    async def solve(self, domain_pddl: str, problem_pddl: str, *, time_limit_s: float) -> PlannerResult:
        """Return the plan of Sussman's anomaly."""
        self.n_asked += 1
        await self.gate.wait()
        return PlannerResult(PlannerStatus.SOLVED, PLAN, 6.0, 0.01)


@dataclass
class Behind:
    """A backend with a planner only."""

    limits: LimitArgs
    planner: GatedPlanner = field(default_factory=GatedPlanner)
    metrics: Counted = field(default_factory=Counted)
    missing: list[str] = field(default_factory=list)

    def service(self) -> PlanningService:
        """Return the service, unless something is missing."""
        if self.missing:
            raise ServiceUnavailableError("still starting")
        return PlanningService(self.planner)

    def model(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    async def waiting_for(self) -> list[str]:
        """Return what is missing."""
        return self.missing

    def exported_metrics(self) -> str:
        """Return one metric."""
        return "plansmith_serve_requests_total 1\n"


def talk(use: Callable[[httpx.AsyncClient, Behind], Any], **limits: Any) -> Behind:
    """Run a coroutine function with a client of an application whose planner answers at once."""

    async def run() -> Behind:
        behind = Behind(LimitArgs(**limits))
        behind.planner.gate.set()
        transport = httpx.ASGITransport(make_api(behind))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await use(client, behind)
        return behind

    return asyncio.run(run())


def body(**more: Any) -> dict[str, Any]:
    """Return a request for Sussman's anomaly."""
    return {"domain": BLOCKS_TEXT, "problem": SUSSMAN, **more}


def test_plans_answer_has_plan_verdict_and_timings() -> None:
    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        reply = await client.post("/v1/plans", json=body())
        found = reply.json()
        assert (reply.status_code, found["status"], found["source"]) == (200, "solved", "planner")
        assert tuple(found["plan"]) == PLAN
        assert found["verdict"]["verdict"] == "valid"
        assert found["timings"]["total_s"] >= found["timings"]["planner_s"] >= 0
        assert found["timings"]["queued_s"] >= 0

    assert talk(use).metrics.ends == [("/v1/plans", "solved")]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"time_limit_s": 121}, "time_limit_s"),
        ({"max_feedback_turns": 5}, "max_feedback_turns"),
        ({"max_feedback_turns": 10**400}, "max_feedback_turns"),
        ({"time_limit_s": 0}, "body.time_limit_s"),
        ({"max_feedback_turns": -1}, "body.max_feedback_turns"),
        ({"tmie_limit_s": 3}, "body.tmie_limit_s"),
        ({"domain": 7}, "body.domain"),
        ({"problem": "\ud800"}, "body.problem"),
    ],
    ids=["long", "turns", "turns without end", "zero", "negative", "unknown", "number", "half a character"],
)
def test_plans_request_that_asks_wrongly_is_told_where(changes: dict[str, Any], where: str) -> None:
    async def use(client: httpx.AsyncClient, behind: Behind) -> None:
        content = json.dumps(body(**changes)).encode()
        reply = await client.post("/v1/plans", content=content, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["where"]) == (422, where)
        assert behind.planner.n_asked == 0

    talk(use)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"NaN"])
def test_plans_body_that_is_no_request_is_refused(content: bytes) -> None:
    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        reply = await client.post("/v1/plans", content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (400, 422)

    talk(use)


def test_plans_time_limit_that_is_no_number_is_refused() -> None:
    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        content = json.dumps(body(time_limit_s=float("nan"))).encode()
        reply = await client.post("/v1/plans", content=content, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["where"]) == (422, "body.time_limit_s")

    talk(use)


def test_plans_bad_pddl_gets_the_diagnostics_of_both_files() -> None:
    broken = {
        "domain": BLOCKS_TEXT.replace(":action pick-up", ":action stack"),
        "problem": SUSSMAN.replace("on c a", "on c"),
    }

    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        reply = await client.post("/v1/plans", json=broken)
        found = reply.json()
        assert (reply.status_code, found["error"]) == (422, "bad_input")
        errors = [row for row in found["diagnostics"] if row["severity"] == "error"]
        assert [(row["source"], row["code"]) for row in errors] == [
            ("domain", "duplicate-name"), ("problem", "wrong-arity")
        ]  # fmt: skip
        assert all({"line", "column", "got", "expected", "repair"} <= set(row) for row in found["diagnostics"])

    assert talk(use).metrics.ends == [("/v1/plans", "bad_input")]


@pytest.mark.parametrize("name", ["domain", "problem"])
def test_plans_text_beyond_its_limit_is_too_large_to_the_byte(name: str) -> None:
    size = {"domain": len(BLOCKS_TEXT.encode()), "problem": len(SUSSMAN.encode())}

    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        assert (await client.post("/v1/plans", json=body())).status_code == 200
        reply = await client.post("/v1/plans", json=body(**{name: body()[name] + " "}))
        assert (reply.status_code, reply.json()["where"]) == (413, name)

    talk(use, max_domain_bytes=size["domain"], max_problem_bytes=size["problem"])


def test_plans_body_beyond_the_limit_is_not_read_announced_or_not() -> None:
    limits = {"max_domain_bytes": 1, "max_problem_bytes": 1, "max_plan_bytes": 1}
    most, sent = LimitArgs(**limits).max_body_bytes, []

    async def pieces() -> Any:
        for number in range(1000):
            sent.append(number)
            yield b" " * 1000

    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        announced = await client.post("/v1/plans", content=b" " * (most + 1))
        assert (announced.status_code, announced.json()["error"]) == (413, "too_large")
        assert (await client.post("/v1/plans", content=pieces())).status_code == 413

    talk(use, **limits)
    assert len(sent) <= most // 1000 + 2


def test_plans_body_announced_too_long_is_refused_before_any_of_it_is_read() -> None:
    limits, sent = LimitArgs(), []

    async def receive() -> dict[str, Any]:
        return pytest.fail("read")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(limits.max_body_bytes + 1).encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/plans", "headers": headers, "query_string": b""}
    asyncio.run(make_api(Behind(limits))(scope, receive, send))
    assert sent[0]["status"] == 413


def test_plans_body_that_does_not_come_ends_with_408() -> None:
    async def run() -> None:
        api, sent = make_api(Behind(LimitArgs(body_time_limit_s=0.05))), []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/plans", "headers": [], "query_string": b""}
        await api(scope, receive, send)
        assert sent[0]["status"] == 408

    asyncio.run(run())


def test_plans_beyond_the_queue_get_503_and_the_others_their_plans() -> None:
    async def use(client: httpx.AsyncClient, behind: Behind) -> None:
        behind.planner.gate.clear()
        tasks = [asyncio.create_task(client.post("/v1/plans", json=body())) for _ in range(8)]
        await until(lambda: sum(task.done() for task in tasks) == 5, "five refusals")
        refused = [task.result() for task in tasks if task.done()]
        assert {(reply.status_code, reply.json()["error"]) for reply in refused} == {(503, "overloaded")}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        await until(lambda: behind.planner.n_asked == 2, "two requests to be read and handed on")
        behind.planner.gate.set()
        assert sorted(reply.status_code for reply in await asyncio.gather(*tasks)) == [200] * 3 + [503] * 5

    behind = talk(use, max_concurrent=2, max_queued=1)
    assert behind.metrics.loads[-1] == (0, 0)
    assert max(behind.metrics.loads) == (2, 1)


def test_gauges_of_an_idle_application_are_set_again_and_again_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.service.http.GAUGE_PERIOD_S", 0.001)

    async def run() -> None:
        behind = Behind(LimitArgs())
        api, loads = make_api(behind), behind.metrics.loads
        async with api.router.lifespan_context(api):
            await until(lambda: len(loads) > 3, "a gauge that is set again")
        assert set(loads) == {(0, 0)}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_plans_client_that_goes_away_frees_its_place() -> None:
    async def use(client: httpx.AsyncClient, behind: Behind) -> None:
        behind.planner.gate.clear()
        gone = asyncio.create_task(client.post("/v1/plans", json=body()))
        await until(lambda: behind.planner.n_asked == 1, "the planner to be asked")
        gone.cancel()
        await until(lambda: behind.metrics.ends == [("/v1/plans", "cancelled")], "the end of the request")
        behind.planner.gate.set()
        assert (await client.post("/v1/plans", json=body())).status_code == 200

    talk(use, max_concurrent=1, max_queued=0)


def test_plans_service_that_is_not_ready_says_so() -> None:
    async def use(client: httpx.AsyncClient, behind: Behind) -> None:
        assert (await client.get("/readyz")).status_code == 200
        behind.missing.append("policy")
        ready, alive = await client.get("/readyz"), await client.get("/healthz")
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "waiting_for": ["policy"]})
        assert alive.status_code == 200
        reply = await client.post("/v1/plans", json=body())
        assert (reply.status_code, reply.json()["error"], reply.headers["retry-after"]) == (503, "unavailable", "5")

    talk(use)


@pytest.mark.parametrize(("plan", "verdict"), [("\n".join(PLAN), "valid"), ("(pick-up b)", "goal_not_reached"),
                                               ("(fly a)", "malformed_plan")])  # fmt: skip
def test_validations_answer_is_that_of_the_command(
    plan: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"domain": BLOCKS_TEXT, "problem": SUSSMAN, "plan": plan}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plansmith(["validate", *(str(tmp_path / name) for name in texts), "--json"])
    printed = json.loads(capsys.readouterr().out)

    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        reply = await client.post("/v1/validations", json=texts)
        assert (reply.status_code, reply.json()["verdict"]) == (200, verdict)
        assert reply.json() == printed

    assert talk(use).metrics.ends == [("/v1/validations", verdict)]


def test_validations_bad_pddl_is_a_verdict_with_diagnostics() -> None:
    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        reply = await client.post("/v1/validations", json={"domain": "(", "problem": "(", "plan": ""})
        found = reply.json()
        assert (reply.status_code, found["verdict"]) == (200, "bad_input")
        assert found["diagnostics"]

    talk(use)


def test_openapi_names_every_route_and_how_it_refuses() -> None:
    async def use(client: httpx.AsyncClient, _: Behind) -> None:
        found = (await client.get("/openapi.json")).json()
        assert set(found["paths"]) == {"/v1/plans", "/v1/validations", "/v1/model", "/healthz", "/readyz", "/metrics"}
        assert set(found["paths"]["/v1/plans"]["post"]["responses"]) == {"200", "413", "422", "503"}
        assert "description" in found["components"]["schemas"]["PlanBody"]["properties"]["time_limit_s"]
        assert (await client.get("/docs")).status_code == 200
        assert (await client.get("/metrics")).text == "plansmith_serve_requests_total 1\n"
        model = (await client.get("/v1/model")).json()
        assert (model["policy"], model["limits"]["max_queued"]) == (None, 7)

    talk(use, max_queued=7)


# --- settings


def test_settings_as_texts_of_a_command_line_are_read() -> None:
    args = build_model(ServeArgs, {"max_queued": "5", "fallback": "false", "object_names": "A, b c"}, where="test")
    assert (args.max_queued, args.fallback, args.object_names) == (5, False, ("a", "b", "c"))
    assert narrowed(args, EngineArgs).object_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_quued": 5}, "max_quued"),
        ({"time_limit_s": 300}, "time_limit_s=300.0 is above max_time_limit_s=120.0"),
        ({"engines": 3, "max_engines": 2}, "max_engines=2 is below engines=3"),
        ({"temperature": 3}, "temperature"),
        ({"gpus_per_engine": 1.5}, "neither a share of one GPU nor whole ones"),
    ],
    ids=["unknown", "time", "engines", "temperature", "GPUs"],
)
def test_settings_that_do_not_fit_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        build_model(ServeArgs, given, where="test")


@pytest.mark.parametrize(
    ("given", "expected"), [({"max_engines": 4}, 4), ({"max_engines": 2, "fronts": 8}, 32), ({"max_engines": 99}, 1)]
)
def test_engines_up_to_the_most_are_asked_for_once_the_fronts_are_full(given: dict[str, int], expected: int) -> None:
    assert build_model(ServeArgs, given, where="test").prompts_per_engine == expected


def test_gpus_of_engines_are_whole_or_a_share(model_folder: Path) -> None:
    for gpus, tensors, share in ((0, 1, 0.9), (0.5, 1, 0.45), (2, 2, 0.9)):
        args = build_model(EngineArgs, {"gpus_per_engine": gpus}, where="test")
        settings = ServedModel.read(model_folder, args).settings
        assert (settings.tensor_parallel_size, settings.gpu_memory_utilization) == (tensors, pytest.approx(share))
    serve_args = build_model(ServeArgs, {"policy": "x", "gpus_per_engine": 1, "engines": 2}, where="test")
    _check_gpus(serve_args, 2)
    with pytest.raises(ConfigError, match="not enough GPUs"):
        _check_gpus(serve_args, 1)


def test_lookout_asks_who_does_not_answer_once_and_says_what_holds_otherwise() -> None:
    asked, gate = list[int](), threading.Event()

    def look() -> list[str]:
        asked.append(1)
        if len(asked) == 2:
            raise OSError("away")
        gate.wait()
        return ["planner"]

    async def run() -> None:
        lookout = Lookout(look, limit_s=0.02, otherwise=["controller"], failures=(OSError,))
        for _ in range(3):
            assert await lookout.answer() == ["controller"]
        assert len(asked) == 1
        gate.set()
        while await lookout.answer() == ["controller"]:
            await asyncio.sleep(0.001)
        lookout._limit_s = 60.0
        assert await lookout.answer() == ["controller"]  # the second call fails
        assert await lookout.answer() == ["planner"]

    asyncio.run(run())


def test_command_dry_run_prints_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--set", "max_queued=3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == set(ServeArgs.model_fields)
    assert printed["max_queued"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "max_queued"], "not a setting"),
        (["--set", "planner_search=quick"], "unknown search"),
        (["--policy", "no/such/folder"], "no such folder"),
        (["--num-cpus", "1", "--set", "planners=3"], "not enough cores"),
        (["--host", "203.0.113.1"], "cannot listen"),  # of nobody, by RFC 5737
    ],
    ids=["setting", "search", "policy", "cores", "host"],
)
def test_command_bad_input_ends_with_2_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


# --- the whole, on a Ray of its own


@dataclass(frozen=True)
class Service:
    """A running ``plansmith serve``, and the folder in which it keeps temporary files."""

    process: subprocess.Popen[str]
    url: str
    temporary: Path

    def ask(self, path: str, data: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and content of an answer."""
        content = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, content, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=GENEROUS_S) as answer:
                return answer.status, _content(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _content(error.read())

    def hold(self, data: Mapping[str, Any]) -> socket.socket:
        """Ask for a plan and return the connection, which gives it up when it is closed."""
        content, (host, port) = json.dumps(data).encode(), self.url.removeprefix("http://").split(":")
        head = "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client = socket.create_connection((host, int(port)))
        client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        return client

    def refusal(self, data: Mapping[str, Any]) -> Any:
        """Return how a request is refused because the queue is full; None where something else came of it."""
        status, found = self.ask("/v1/plans", data)
        return found if status == 503 and "the queue is full" in found["message"] else None

    def searches(self) -> list[int]:
        """Return the processes that work in a folder of a planner's run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_search = str((folder / "cwd").readlink()).startswith(str(self.temporary / "plansmith-planner-"))
            except OSError:  # gone in the meantime
                continue
            found += [int(folder.name)] * is_search
        return found


def _content(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel and Ray hand out while the service starts."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    return pytest.fail("no free port")


def eventually(condition: Callable[[], Any], what: str, *, limit_s: float = GENEROUS_S) -> Any:
    """Return what a condition comes to as soon as it is true."""
    for _ in range(int(limit_s / 0.1)):
        if found := condition():
            return found
        time.sleep(0.1)
    return pytest.fail(f"waited in vain for {what}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, untrained: Path) -> Iterator[Service]:
    """Start the command with an untrained `tiny` and an optimal planner behind it."""
    temporary = tmp_path_factory.mktemp("temporary")
    settings = [
        "max_new_tokens=16",
        "time_limit_s=120",
        "planner_search=optimal",
        "max_concurrent=4",
        "max_queued=4",
        "feedback_turns=2",
    ]
    port, said = free_port(), temporary / "log"
    command = [sys.executable, "-m", "plansmith.cli", "serve", "--policy", str(untrained), "--port", str(port)]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "TMPDIR": str(temporary), "RAY_TMPDIR": "/tmp"}
    del environment["RAY_enable_open_telemetry"]  # it has one Ray, whose metrics are asked for
    with said.open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
        )
    try:
        eventually(
            lambda: "Ctrl-C" in said.read_text() or process.poll() is not None, "the service to start", limit_s=START_S
        )
        assert process.poll() is None, said.read_text()
        yield Service(process, f"http://127.0.0.1:{port}", temporary)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(GENEROUS_S)
        survivors(process.pid, besides=RAY_AGENTS)


def test_service_is_ready_once_it_says_its_address_and_names_its_policy(service: Service) -> None:
    assert eventually(lambda: service.ask("/readyz")[0] == 200, "the service to be ready")
    policy = service.ask("/v1/model")[1]["policy"]
    assert (policy["prompting"], policy["max_model_len"], policy["is_word_level"]) == ("compact", 256, True)
    assert (policy["max_new_tokens"], policy["temperature"], policy["top_p"], policy["top_k"]) == (16, 0.0, 1.0, 0)
    assert re.fullmatch("[0-9a-f]{12}", policy["policy_version"])


def test_service_untrained_policy_is_asked_handed_its_failures_and_backed_by_the_planner(service: Service) -> None:
    status, found = service.ask("/v1/plans", body())
    assert (status, found["status"], found["source"], len(found["turns"])) == (200, "solved", "planner", 3)
    assert "valid" not in found["turns"]
    assert found["policy_version"] == service.ask("/v1/model")[1]["policy"]["policy_version"]
    assert validate_plan(sussman(), parse_plan(" ".join(found["plan"]))).is_valid
    assert found["timings"]["policy_s"] > 0
    status, found = service.ask("/v1/plans", body(fallback=False))
    assert (status, found["status"], found["plan"]) == (200, "not_solved", None)


def test_service_problem_without_a_plan_is_proven_unsolvable(service: Service) -> None:
    status, found = service.ask("/v1/plans", body(problem=UNSOLVABLE))
    assert (status, found["status"], found["plan"]) == (200, "unsolvable", None)


def test_service_problem_too_hard_for_its_time_is_out_of_time(service: Service) -> None:
    status, found = service.ask("/v1/plans", body(problem=HARD, time_limit_s=2, max_feedback_turns=0))
    assert (status, found["status"], found["plan"]) == (200, "out_of_time", None)
    assert eventually(lambda: not service.searches(), "the search to end")


def test_service_client_that_goes_away_ends_its_search_and_the_next_one_is_served(service: Service) -> None:
    with service.hold(body(problem=HARD, max_feedback_turns=0)):
        assert eventually(service.searches, "the search to begin")
    assert eventually(lambda: not service.searches(), "the search of nobody to end")
    assert service.ask("/v1/plans", body(max_feedback_turns=0))[1]["status"] == "solved"


def test_service_beyond_its_limits_refuses_and_is_free_again_when_the_others_have_gone(service: Service) -> None:
    with contextlib.ExitStack() as holders:

        def hold() -> None:
            holders.enter_context(service.hold(body(problem=HARD, max_feedback_turns=0)))

        def refusal_or_one_more() -> Any:
            if not (found := service.refusal(body(time_limit_s=0.5))):
                hold()  # one was refused itself, because a slot of an earlier test was not free yet
            return found

        for _ in range(8):  # four slots and a queue of four
            hold()
        refused = eventually(refusal_or_one_more, "a queue that is full")
        assert refused["error"] == "overloaded"
        assert service.ask("/healthz")[0] == 200
    assert eventually(lambda: service.ask("/v1/plans", body())[0] == 200, "a slot")
    assert eventually(lambda: not service.searches(), "the searches of nobody to end")


def test_service_under_load_every_plan_it_gives_is_right(service: Service) -> None:
    rng, sizes = random.Random(0), {"blocks": (3, 5)}
    problems = [load_domain("blocksworld").sample("any", rng, sizes=sizes) for _ in range(24)]
    requests = [body(problem=print_problem(problem)) for problem in problems]
    with ThreadPoolExecutor(len(requests)) as clients:
        answers = list(clients.map(lambda request: service.ask("/v1/plans", request), requests))
    assert 200 in {status for status, _ in answers}
    for problem, (status, found) in zip(problems, answers, strict=True):
        if status != 200:
            assert (status, found["error"]) == (503, "overloaded")
        else:
            plan = parse_plan(" ".join(found["plan"]))
            assert validate_plan(PlanningTask(BLOCKS, problem), plan).is_valid


def test_service_metrics_reach_the_exporter_of_ray(service: Service) -> None:
    service.ask("/v1/plans", body())
    service.ask("/v1/plans", {"domain": "(", "problem": "("})
    pattern = r'plansmith_serve_requests_total\{[^}]*outcome="bad_input"[^}]*path="/v1/plans"[^}]*\} [1-9]'
    names = ("request_seconds_bucket", "policy_turns_total", "plans_total", "seconds_total", "running_requests")
    patterns = [pattern, *(rf"ray_plansmith_serve_{name}\{{" for name in names)]
    for wanted in patterns:
        assert eventually(lambda w=wanted: re.search(w, service.ask("/metrics")[1]), f"{wanted} among the metrics")


def test_service_told_to_end_ends_with_everything_it_started(service: Service) -> None:
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(GENEROUS_S) == 0
    assert survivors(service.process.pid, besides=RAY_AGENTS) == []
    assert service.searches() == []

"""Whoever answers, answers alike: one contract for engines of ours, endpoints, and the stand-in of other tests.

The engine is vLLM with an untrained word-level model; the endpoint a server on this machine in front of a stand-in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BLOCKS, NAMES
from stand_in_generator import StandInGenerator

from actors import endpoint
from actors.endpoint import Endpoint
from pipelines.trials import folder_policy
from pipelines.trials.endpoint_policy import EndpointSession
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.trials.own_problems import TrialConfig
from pipelines.trials.speaking import _FolderSpeaker
from plansmith.config.basics import narrowed
from plansmith.config.generation import EndpointConfig, EndpointModel, SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics, ModelConfig, PolicyConfig
from plansmith.errors import BadInputError, ConfigError, LostWorkerError
from plansmith.generation import (
    CHARACTERS_PER_TOKEN,
    Completion,
    Conversation,
    FinishReason,
    Generation,
    Generator,
    Message,
    asking,
    plain_text,
    seeds_by_conversation,
)
from plansmith.learning.codec import Codec, EngineGenerator
from plansmith.learning.models import load_tokenizer, make_model
from plansmith.learning.tokenizer import encode, encode_messages, word_tokenizer

WINDOW = 128
SAMPLED = SamplingConfig(temperature=1.0, max_new_tokens=20, n=2)
GREEDY = SamplingConfig(max_new_tokens=20)
ASKED = [asking(text) for text in ("clear a on b", "holding c", "ontable a ontable b ontable c")]
TOO_LONG = asking("clear a " * WINDOW)


# --- who answers


@dataclass
class Served:
    """A server that asks a stand-in, and the bodies that it got."""

    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)
    failing: int = 0
    """So many of the next requests get an error of the server's own."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def reply_of(body: dict[str, Any]) -> tuple[int, Any]:
    """Return what a server says to a request: a completion of the stand-in, or that the prompt is too long."""
    turns = [Message(turn["role"], turn["content"]) for turn in body.get("messages", [])]
    conversation = turns or [Message("user", body["prompt"])]
    sampling = SamplingConfig(
        temperature=body.get("temperature", 1.0), max_new_tokens=body["max_tokens"], stop=tuple(body.get("stop", ()))
    )
    [(_, [written])] = StandInGenerator(window=WINDOW).complete([conversation], sampling, seeds=[body.get("seed", 0)])
    if written.finish_reason == FinishReason.NO_ROOM:
        said = f"This model's maximum context length is {WINDOW} tokens. However, your request has 256 input tokens."
        return 400, {"error": {"message": said, "type": "BadRequestError", "code": 400}}
    choice = {"index": 0, "finish_reason": written.finish_reason, "text": written.text,
              "message": {"role": "assistant", "content": written.text}}  # fmt: skip
    usage = {
        "prompt_tokens": written.prompt_tokens,
        "completion_tokens": written.completion_tokens,
        "total_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    return 200, {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.bodies.append(body)
            served.connections.add(self.client_address[1])
            status, content = reply_of(body)
            if served.failing:
                served.failing -= 1
                status, content = 503, {"error": {"message": "busy"}}
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Retry-After-Ms", "1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        served.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        http.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an untrained word-level model, which babbles."""
    folder = tmp_path_factory.mktemp("generation") / "model"
    shape = ModelConfig(hidden_size=64, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=64)
    make_model(folder, word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=WINDOW, seed=0)
    return folder


@pytest.fixture(scope="module")
def engine(model: Path, running_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
    folder = FolderPolicy.read(model)
    policy = engine_config(folder, {"the longest": ASKED[2]}, room=WINDOW, dtype=None, n_threads=1)  # as commands do
    workers = FolderWorkers(TrialConfig(planner=PlannerConfig(), policy=policy), tmp_path_factory.mktemp("run"), seed=0)
    with workers:
        yield workers.generator(folder, narrowed(policy, EngineNumerics))


@pytest.fixture(params=["stand_in", "endpoint", "kept endpoint", "engine"])
def generator(request: pytest.FixtureRequest) -> Iterator[Generator]:
    """Give each kind of generator in turn."""
    if request.param == "stand_in":
        yield StandInGenerator(window=WINDOW)
    elif request.param == "engine":
        yield request.getfixturevalue("engine")
    else:
        endpoint = Endpoint(EndpointConfig(url=request.getfixturevalue("served").url, model="m", concurrency=3))
        with endpoint if request.param == "kept endpoint" else contextlib.nullcontext():
            yield endpoint


def completed(
    generator: Generator, conversations: Sequence[Conversation], sampling: SamplingConfig, seeds: Sequence[int]
) -> list[list[Completion]]:
    """Return the completions in the order of the conversations, each of which has been answered once."""
    answers = list(generator.complete(conversations, sampling, seeds=seeds, description=None))
    assert sorted(number for number, _ in answers) == list(range(len(conversations)))
    return [group for _, group in sorted(answers, key=lambda answer: answer[0])]


def texts(groups: Sequence[Sequence[Completion]]) -> list[list[str | None]]:
    return [[completion.text for completion in group] for group in groups]


# --- the contract


def test_complete_n_answers_each_conversation_so_often_in_the_order_of_its_seeds(generator: Generator) -> None:
    groups = completed(generator, ASKED, SAMPLED, range(6))
    assert [[found.seed for found in group] for group in groups] == [[0, 1], [2, 3], [4, 5]]
    assert all(group[0].text != group[1].text for group in groups)
    assert all(found.fault is None and found.policy_version for group in groups for found in group)


def test_complete_equal_seeds_give_equal_completions_in_any_order_of_conversations(generator: Generator) -> None:
    first = texts(completed(generator, ASKED, SAMPLED, range(6)))
    assert texts(completed(generator, ASKED, SAMPLED, range(6))) == first
    assert texts(completed(generator, ASKED[::-1], SAMPLED, [4, 5, 2, 3, 0, 1])) == first[::-1]
    assert texts(completed(generator, ASKED, SAMPLED, range(6, 12))) != first


def test_complete_temperature_zero_takes_no_notice_of_seeds(generator: Generator) -> None:
    assert texts(completed(generator, ASKED, GREEDY, [1, 2, 3])) == texts(
        completed(generator, ASKED, GREEDY, [4, 5, 6])
    )


def test_complete_out_of_tokens_says_length_and_counts_them(generator: Generator) -> None:
    short = SamplingConfig(temperature=1.0, max_new_tokens=3, n=2)
    for found in chain.from_iterable(completed(generator, ASKED, short, range(6))):
        assert (found.finish_reason, found.completion_tokens) == (FinishReason.LENGTH, 3)
        assert found.prompt_tokens is not None and found.prompt_tokens > 0


def test_complete_stop_text_ends_the_answer_before_it(generator: Generator) -> None:
    once = SAMPLED.model_copy(update={"n": 1})
    free = max((str(text) for [text] in texts(completed(generator, ASKED * 4, once, range(12)))), key=len)
    mark = free.split()[4]
    cut = once.model_copy(update={"stop": ("no such text", mark)})
    [found] = [
        found for [found] in completed(generator, ASKED * 4, cut, range(12)) if free.startswith(f"{found.text}{mark}")
    ]
    assert (found.text, found.finish_reason) == (free[: free.index(mark)], FinishReason.STOP)


def test_complete_conversation_without_room_is_an_outcome_and_the_others_are_answered(generator: Generator) -> None:
    groups = completed(generator, [ASKED[0], TOO_LONG, ASKED[1]], SAMPLED, range(6))
    assert [(found.text, found.finish_reason) for found in groups[1]] == [("", FinishReason.NO_ROOM)] * 2
    assert texts([groups[0], groups[2]]) == texts(completed(generator, ASKED[:2], SAMPLED, [0, 1, 4, 5]))


def test_complete_beginning_of_an_answer_is_no_part_of_the_completion(generator: Generator) -> None:
    begun = asking("clear a on b", "pick-up a")
    [[found]] = completed(generator, [begun], GREEDY, [0])
    assert found.text and not found.text.startswith("pick-up a pick-up a")
    assert texts([[found]]) != texts(completed(generator, ASKED[:1], GREEDY, [0]))


def test_complete_with_a_seed_too_few_raises(generator: Generator) -> None:
    with pytest.raises(ValueError, match="its own seed"):
        completed(generator, ASKED, SAMPLED, range(5))


def test_complete_closed_early_leaves_a_generator_that_answers(generator: Generator) -> None:
    answers = generator.complete(ASKED, SAMPLED, seeds=range(6), description=None)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert len(completed(generator, ASKED, SAMPLED, range(6))) == 3


# --- an endpoint


def test_endpoint_sends_all_turns_and_what_the_sampling_says(served: Served) -> None:
    served.bodies.clear()
    conversation = (Message("system", "s"), Message("user", "u"), Message("assistant", "a"), Message("user", "v"))
    sampling = SamplingConfig(temperature=0.5, max_new_tokens=9, top_p=0.9, top_k=7, stop=("x",), stop_token_ids=(3,))
    completed(Endpoint(EndpointConfig(url=served.url, model="m")), [conversation], sampling, [11])
    [body] = served.bodies
    assert body == {
        "model": "m", "temperature": 0.5, "max_tokens": 9, "top_p": 0.9, "top_k": 7, "stop": ["x"], "seed": 11,
        "stop_token_ids": [3],
        "messages": [{"role": turn.role, "content": turn.text} for turn in conversation],
    }  # fmt: skip


def test_endpoint_plain_sampling_sends_nothing_that_a_hosted_server_could_refuse(served: Served) -> None:
    served.bodies.clear()
    completed(Endpoint(EndpointConfig(url=served.url, model="m")), ASKED[:1], GREEDY, [1])
    assert set(served.bodies[0]) == {"model", "temperature", "max_tokens", "seed", "messages"}


def test_endpoint_tells_what_the_server_knew_already_and_what_it_thought(served: Served) -> None:
    [[found]] = completed(Endpoint(EndpointConfig(url=served.url, model="m")), ASKED[:1], GREEDY, [1])
    assert (found.cached_tokens, found.reasoning_tokens) == (3, 2) and found.seconds is not None and found.seconds > 0


def test_endpoint_keeps_its_connection_while_it_is_open_and_has_one_a_call_before_and_after(served: Served) -> None:
    served.connections.clear()
    one = Endpoint(EndpointConfig(url=served.url, model="m", concurrency=1))
    n_connections = list[int]()
    for opened in (contextlib.nullcontext(), one, contextlib.nullcontext()):
        with opened:
            for _ in range(3):
                completed(one, ASKED, GREEDY, range(3))
        n_connections.append(len(served.connections))
        served.connections.clear()
    assert n_connections == [3, 1, 3]


@pytest.mark.filterwarnings("error")
def test_endpoint_that_is_closed_ends_answers_that_nobody_waits_for(served: Served) -> None:
    with Endpoint(EndpointConfig(url=served.url, model="m", concurrency=1)) as endpoint:
        answers = endpoint.complete(ASKED, GREEDY, seeds=range(3), description=None)
        next(answers)
    answers.close()  # type: ignore[attr-defined]


def test_pace_lets_so_many_a_minute_begin_at_even_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [100.0], list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(endpoint, "asyncio", SimpleNamespace(sleep=sleep))

    def begun(pace: endpoint._Pace, *counts: int) -> list[float]:
        waited.clear()
        for count in counts:
            asyncio.run(pace.wait(count))
        return waited

    assert begun(endpoint._Pace(30), 1, 1, 1) == [0, 2, 2]
    tokens = endpoint._Pace(600)
    assert begun(tokens, 10, 20, 5) == [0, 1, 2]
    tokens.take(35)  # an answer of so many more than was thought
    assert begun(tokens, 1) == [4]
    now[0] += 60
    assert begun(tokens, 1, 1) == [0, pytest.approx(0.1)]
    assert begun(endpoint._Pace(None), 1, 1000, 1) == [0, 0, 0]


def test_endpoint_waits_for_its_requests_and_their_tokens_over_all_calls(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[Any, list[int]] = {}

    class Pace(endpoint._Pace):
        def take(self, n: int) -> None:
            taken.setdefault(self, []).append(n)

    monkeypatch.setattr(endpoint, "_Pace", Pace)
    limits = {"concurrency": 1, "tokens_per_minute": 10, "requests_per_minute": 1}
    one = Endpoint(EndpointConfig.model_validate({"url": served.url, "model": "m", **limits}))
    for _ in range(2):
        [[found]] = completed(one, ASKED[:1], GREEDY, [1])
    n_guessed = len(plain_text(ASKED[0])) // CHARACTERS_PER_TOKEN
    assert found.prompt_tokens is not None and found.completion_tokens is not None
    more = found.prompt_tokens + found.completion_tokens - n_guessed
    assert list(taken.values()) == [[n_guessed, more] * 2, [1, 1]]


def test_endpoint_that_tries_again_waits_for_its_turn_each_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[int]()
    monkeypatch.setattr(endpoint._Pace, "take", lambda _, n: taken.append(n))
    served.failing = 2
    one = Endpoint(EndpointConfig(url=served.url, model="m", max_retries=2))
    [[found]] = completed(one, ASKED[:1], GREEDY, [1])
    assert (found.fault, served.failing) == (None, 0)
    n_guessed = len(plain_text(ASKED[0])) // CHARACTERS_PER_TOKEN
    assert taken[:4] == [n_guessed, 1, 1, 1]


def test_answer_that_cannot_be_read_is_a_fault_of_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut(*_: Any) -> Any:
        return json.loads("{")

    monkeypatch.setattr(Endpoint, "_ask", cut)
    config = EndpointConfig(url="http://localhost:1/v1", model="m")
    for [found] in completed(Endpoint(config), ASKED, GREEDY, [1, 2, 3]):
        assert found.text is None
        assert "an answer that cannot be read" in str(found.fault)


def test_endpoint_for_models_without_a_chat_template_sends_one_plain_text(served: Served) -> None:
    served.bodies.clear()
    conversation = (Message("system", "s"), Message("user", "u"), Message("assistant", "b"))
    completed(Endpoint(EndpointConfig(url=served.url, model="m", is_chat=False)), [conversation], GREEDY, [1])
    assert served.bodies[0]["prompt"] == "s\n\nu b"


def test_session_asks_a_server_by_one_client_until_it_ends(served: Served, tmp_path: Path) -> None:
    config = EndpointConfig(url=served.url, model="m", requests_per_minute=6000)
    engine, trial = narrowed(config, EndpointModel), TrialConfig(planner=PlannerConfig())
    with EndpointSession(trial, tmp_path, endpoint=config) as session:
        server = session.generator(None, engine)
        completed(server, [asking("a b")], GREEDY, [1])
        assert session.generator(None, engine) is server, "which knows what it has asked a minute"
        client = server._kept
        completed(server, [asking("a b")], GREEDY, [1])
        assert server._kept is client is not None
    assert server._kept is None


def test_endpoint_address_with_a_secret_is_refused() -> None:
    with pytest.raises(BadInputError, match="an address may hold no secret"):
        EndpointConfig(url="http://name:word@host/v1", model="m")


# --- engines of a folder


class Started:
    """Stands for Ray: keeps with what actors were started, and which were ended."""

    def __init__(self) -> None:
        self.options, self.told, self.ended = list[dict[str, Any]](), list[dict[str, Any]](), list[int]()

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": 6.0}

    def remote(self, _: Any) -> Any:
        def start(**options: Any) -> Any:
            def begin(*_: Any, **told: Any) -> int:
                self.options.append(options)
                self.told.append(told)
                return len(self.options)

            return SimpleNamespace(remote=begin)

        return SimpleNamespace(options=start)

    def kill(self, actor: int) -> None:
        self.ended.append(actor)


def test_engines_of_a_folder_are_as_many_as_wanted_and_have_their_gpus(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = Started()
    monkeypatch.setattr(FolderWorkers, "ray", lambda _: ray)
    monkeypatch.setattr(folder_policy, "has_gpu", lambda: True)
    policy = PolicyConfig(n_replicas=3, tensor_parallel_size=2, max_model_len=WINDOW)
    workers = FolderWorkers(TrialConfig(planner=PlannerConfig(), policy=policy), tmp_path, seed=0)
    for _ in range(2):
        workers.generator(FolderPolicy.read(model), narrowed(policy, EngineNumerics))
    assert [options["num_gpus"] for options in ray.options] == [2, 2, 2]
    workers.end_engines()
    assert ray.ended == [1, 2, 3]
    assert [told["number"] for told in ray.told] == [0, 1, 2]


def test_engines_of_a_folder_are_started_anew_once_one_is_lost(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Iterator[Any]:
        raise LostWorkerError("an engine died")
        yield

    ray, policy = Started(), PolicyConfig(max_model_len=WINDOW)
    monkeypatch.setattr(FolderWorkers, "ray", lambda _: ray)
    monkeypatch.setattr(FolderWorkers, "streamed", lost)
    workers = FolderWorkers(TrialConfig(planner=PlannerConfig(), policy=policy), tmp_path, seed=0)
    speaker = _FolderSpeaker(workers, FolderPolicy.read(model), narrowed(policy, EngineNumerics))
    for _ in range(2):
        with pytest.raises(LostWorkerError):
            next(workers._streamed_together([]))
        speaker.complete(ASKED, GREEDY, seeds=[1, 2])
    assert len(ray.told) == 2
    assert ray.ended == [1]


def test_engines_of_a_folder_beyond_the_gpus_are_refused_and_none_waits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderWorkers, "ray", lambda _: Started())
    monkeypatch.setattr(folder_policy, "has_gpu", lambda: True)
    policy = PolicyConfig(n_replicas=4, tensor_parallel_size=2, max_model_len=WINDOW)
    workers = FolderWorkers(TrialConfig(planner=PlannerConfig(), policy=policy), tmp_path, seed=0)
    with pytest.raises(ConfigError, match="6 GPUs in all"):
        workers.generator(FolderPolicy.read(model), narrowed(policy, EngineNumerics))


# --- an engine's tokens


def test_plain_text_of_turns_stands_in_paragraphs_and_an_answer_goes_on_in_its_line() -> None:
    assert plain_text(asking("one")) == "one"
    assert plain_text(asking("one", "two")) == "one two"
    assert plain_text(asking("one\n", "two")) == "one\ntwo"
    assert plain_text([Message("system", "a"), *asking("one"), Message("assistant", "b"), *asking("c")]) == (
        "a\n\none\n\nb\n\nc"
    )


def test_encode_messages_with_a_chat_template_writes_every_turn_and_goes_on_in_the_last(model: Path) -> None:
    tokenizer = load_tokenizer(str(model))
    tokenizer.chat_template = (
        "{% for turn in messages %}{{ turn.role == 'user' and 'on' or 'clear' }} {{ turn.content }} {% endfor %}"
        "{% if add_generation_prompt %}holding {% endif %}"
    )
    turns = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "stack")]
    assert encode_messages(tokenizer, turns) == encode(tokenizer, "on a clear b on c holding stack")
    assert encode_messages(tokenizer, turns[:3]) == encode(tokenizer, "on a clear b on c holding")


@dataclass
class Told:
    """Engines that answer each prompt with its own first token, and write down what they were given together."""

    policy_version: str = "v"
    given: list[tuple[int, int]] = field(default_factory=list)
    sampling: list[SamplingConfig] = field(default_factory=list)

    def stream(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, *, seeds: Sequence[int], **_: Any
    ) -> Iterator[tuple[int, list[Generation]]]:
        self.given.append((len(prompts), len(seeds)))
        self.sampling.append(sampling)
        for number, prompt in reversed(list(enumerate(prompts))):
            yield number, [Generation((prompt[0],), (-1.0,), FinishReason.STOP, "v")] * sampling.n


def test_engine_generator_hands_over_chunks_and_numbers_go_through(model: Path) -> None:
    told = Told()
    asked = [asking(name) for name in ("a", "b", "c", "d", "e")]
    generator = EngineGenerator(Codec.of(model, WINDOW), told, n_together=4)
    groups = completed(generator, asked, SAMPLED, range(10))
    assert told.given == [(2, 4), (2, 4), (1, 2)]
    assert texts(groups) == [["a", "a"], ["b", "b"], ["c", "c"], ["d", "d"], ["e", "e"]]
    assert told.sampling[0].stop_token_ids == Codec.of(model, WINDOW).end_tokens


def test_codec_stop_text_cuts_tokens_and_logprobs_where_the_text_ends(model: Path) -> None:
    codec = Codec.of(model, WINDOW)
    ids = encode(codec.tokenizer, "on a b clear c")
    generation = Generation(tuple(ids), (-1.0, -2.0, -3.0, -4.0, -5.0), FinishReason.LENGTH, "v")
    found = codec.completion([1, 2], generation, seed=3, stop=("clear", "b"))
    assert (found.text, found.finish_reason, found.token_ids) == ("on a ", FinishReason.STOP, tuple(ids[:3]))
    assert (found.logprobs, found.completion_tokens, found.seed) == ((-1.0, -2.0, -3.0), 3, 3)


def test_completion_with_neither_text_nor_fault_raises() -> None:
    with pytest.raises(ValueError, match="a text or a fault"):
        Completion(None, "", "v", 0)


def test_seeds_by_conversation_are_cut_in_order() -> None:
    assert seeds_by_conversation([1, 2, 3, 4], 2, 2) == [[1, 2], [3, 4]]
    assert seeds_by_conversation([], 0, 3) == []

"""`plansmith evaluate`: any model on any problems, against a real server on this machine and a real small checkpoint.

The server speaks the chat protocol over HTTP; what it answers is scripted. Its good answers are plans found by search
in the problem that it was asked about. The checkpoint's engine is a stand-in; a real one, with settings of the same
making, is in `test_generation.py`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from answered_ray import Answer, AnsweredRay
from checkpoints import qwen3_checkpoint
from conftest import BLOCKS, BLOCKS_TEXT, NAMES, REFERENCE, random_problem, shortest_plan
from scripted_server import MODEL, Request, Server, completion, fail, serving

from actors.endpoint import Endpoint, served_models
from pipelines.commands import evaluate
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.trials.options import EXAMPLES, evaluation_parser
from pipelines.trials.own_problems import KnownNames, domain_of_problems, problem_files, read_problems
from plansmith.config.generation import EndpointConfig, SamplingConfig
from plansmith.config.training import ModelConfig, PolicyConfig
from plansmith.errors import BadInputError
from plansmith.generation import Completion, FinishReason, Generation, asking
from plansmith.learning.model_folder import cache_size_gib, engine_for, folder_digest
from plansmith.learning.models import load_tokenizer, make_model
from plansmith.learning.tokenizer import encode, word_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.printer import print_problem
from plansmith.problems.library import load_domain
from plansmith.text.compact import CompactRendering

SECRET = "sk-test-5b1f0c9e"
Capture = pytest.CaptureFixture[str]


# --- the server


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server that answers every request with a shortest plan."""
    with serving(solve) as scripted:
        yield scripted


def asked_problem(request: Request) -> str:
    """Return the PDDL problem that stands in a prompt."""
    start = re.search(r"\(define\s*\(problem", request.prompt)
    assert start is not None, request.prompt
    depth = 0
    for end, letter in enumerate(request.prompt[start.start() :], start.start() + 1):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return request.prompt[start.start() : end]
    raise AssertionError("the problem in the prompt does not end")


def solve(request: Request) -> tuple[int, Any]:
    """Answer with a shortest plan."""
    plan = shortest_plan(PlanningTask.from_text(BLOCKS_TEXT, asked_problem(request)))
    return 200, completion("\n".join(map(str, plan)))


# --- the problems

PILE = """(define (problem {name}) (:domain {domain}) (:objects {objects}) (:init {init}) (:goal (and {goal})))"""
TWO = "(ontable a) (ontable b) (clear a) (clear b) (handempty)"
HELD = PILE.format(name="held", domain="blocksworld", objects="a b", init=TWO, goal="(clear a)")
UNSOLVABLE = PILE.format(name="never", domain="blocksworld", objects="a b", init=TWO, goal="(on a b) (on b a)")
STACK = PILE.format(name="stack", domain="BlocksWorld", objects="a b", init=TWO, goal="(on a b)")


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """Return a folder with a domain and three problems of three blocks."""
    folder = tmp_path / "blocks"
    folder.mkdir()
    (folder / "domain.pddl").write_text(BLOCKS_TEXT, encoding="utf-8")
    for number in (1, 2, 10):
        text = print_problem(random_problem(3, number))
        assert not PlanningTask.from_text(BLOCKS_TEXT, text).is_goal(
            PlanningTask.from_text(BLOCKS_TEXT, text).initial_state
        )
        (folder / f"instance-{number}.pddl").write_text(text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Outcome:
    """What one command left."""

    code: int
    out: str
    err: str
    content: dict[str, Any]


@pytest.fixture
def run(server: Server, problems: Path, tmp_path: Path, capsys: Capture) -> Callable[..., Outcome]:
    """Return a function that evaluates the server's model without a planner; words are further options."""

    def command(*words: str, is_planned: bool = False) -> Outcome:
        out = tmp_path / "out.json"
        out.unlink(missing_ok=True)
        given = ["--policy", server.url, "--rendering", "zero_shot", "--domain", str(problems / "domain.pddl")]
        given += ["--problems", str(problems), "--store", str(tmp_path / "store"), "--out", str(out)]
        code = evaluate.main([*given, *([] if is_planned else ["--no-planner"]), *words])
        shown = capsys.readouterr()
        content = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        return Outcome(code, shown.out, shown.err, content)

    return command


Run = Callable[..., Outcome]


# --- an endpoint


def test_endpoint_that_plans_well_solves_every_problem_and_the_same_command_asks_nothing(
    server: Server, run: Run
) -> None:
    first = run()
    assert first.code == 0, first.err
    assert {name: first.content[name] for name in ("policy", "n", "n_valid", "accuracy", "tokens")} == {
        "policy": MODEL, "n": 3, "n_valid": 3, "accuracy": 1.0, "tokens": 21}  # fmt: skip
    assert [a["problem"] for a in first.content["attempts"]] == ["instance-1", "instance-2", "instance-10"]
    assert {a["verdict"] for a in first.content["attempts"]} == {"valid"}
    assert first.content["mean_planner_plan_length"] is None
    assert len(server.requests) == 3
    again = run()
    assert len(server.requests) == 3
    assert (again.out, again.content) == (first.out, first.content)


def test_endpoint_request_carries_prompt_sampling_and_a_seed_of_its_own(server: Server, run: Run) -> None:
    run("--temperature", "0.5", "--max-new-tokens", "99")
    bodies = [request.body for request in server.requests]
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in bodies} == {(MODEL, 0.5, 99)}
    assert len({body["seed"] for body in bodies}) == 3
    assert {request.path for request in server.requests} == {"/v1/chat/completions"}
    assert all([message["role"] for message in body["messages"]] == ["user"] for body in bodies)
    run("--temperature", "0.6", "--max-new-tokens", "99")
    assert len(server.requests) == 6  # other sampling, other attempts


def test_endpoint_omitted_parameters_are_not_sent_and_completions_are_plain_text(server: Server, run: Run) -> None:
    outcome = run("--omit", "temperature", "--omit", "seed", "--omit", "max_tokens", "--completions")
    assert outcome.content["n_valid"] == 3
    assert {request.path for request in server.requests} == {"/v1/completions"}
    assert {frozenset(request.body) for request in server.requests} == {frozenset({"model", "prompt"})}


def test_endpoint_nonsense_is_an_invalid_action_sequence_and_is_shown(server: Server, run: Run) -> None:
    server.reply = lambda _: (200, completion("I am sorry, I cannot help with this."))
    outcome = run("--show", "1")
    assert outcome.code == 0
    assert outcome.content["errors"] == {"precondition_violation": 0, "incorrect_effect": 0, "goal_not_achieved": 0,
                                         "invalid_action_sequence": 3}  # fmt: skip
    assert outcome.out.count("invalid_action_sequence") == 1
    assert "the answer begins: 'I am sorry" in outcome.out


def test_endpoint_illegal_step_is_named_in_the_json_and_marked_in_the_terminal(
    server: Server, run: Run, problems: Path
) -> None:
    for path in problems.glob("instance-*.pddl"):
        path.unlink()
    (problems / "stack.pddl").write_text(STACK, encoding="utf-8")
    server.reply = lambda _: (200, completion("(pick-up a)\n(pick-up b)\n(stack a b)"))
    outcome = run("--show", "5")
    [attempt] = outcome.content["attempts"]
    assert (attempt["verdict"], attempt["error_class"]) == ("precondition_unsatisfied", "precondition_violation")
    assert (attempt["failed_step"], attempt["unsatisfied"]) == (2, ["(handempty)"])
    assert attempt["plan"] == ["(pick-up a)", "(pick-up b)", "(stack a b)"]
    assert "handempty" in attempt["validator"]
    lines = [line.strip() for line in outcome.out.splitlines()]
    assert "1. (pick-up a)  correct" in lines
    assert "2. (pick-up b)  fails here: step 2 (pick-up b) needs (handempty)" in lines
    assert "3. (stack a b)  not reached" in lines


def test_endpoint_internal_error_that_passes_is_tried_again(server: Server, run: Run) -> None:
    server.reply = lambda request: fail(request) if request.number == 0 else solve(request)
    outcome = run("--concurrency", "1", "--max-retries", "2")
    assert (outcome.code, outcome.content["n_valid"], outcome.content["not_judged"]) == (0, 3, [])
    assert len(server.requests) == 4


def test_endpoint_failed_request_is_counted_apart_and_never_scored(server: Server, run: Run) -> None:
    server.reply = lambda request: fail(request) if request.number == 1 else solve(request)
    outcome = run("--concurrency", "1", "--max-retries", "0", "--max-unjudged-share", "0.5")
    assert outcome.code == 0
    assert (outcome.content["n"], outcome.content["n_valid"]) == (2, 2)
    [failure] = outcome.content["not_judged"]
    assert failure["problem"] not in {attempt["problem"] for attempt in outcome.content["attempts"]}
    assert "out of memory" in failure["fault"]
    assert "not judged: 1 whose request failed" in outcome.out
    strict = run("--concurrency", "1", "--max-unjudged-share", "0.1")
    assert strict.code == 1
    assert "1 of 3" in strict.err


def test_endpoint_too_many_failures_end_the_run_and_the_next_asks_for_what_is_missing(server: Server, run: Run) -> None:
    server.reply = lambda request: fail(request) if request.number == 2 else solve(request)
    broken = run("--concurrency", "1", "--max-retries", "0")
    assert (broken.code, broken.content) == (1, {})
    assert "too many requests failed" in broken.err
    assert "InternalServerError" in broken.err
    assert len(server.requests) == 3
    server.reply = solve
    mended = run("--concurrency", "1", "--max-retries", "0")
    assert (mended.code, mended.content["n_valid"]) == (0, 3)
    assert len(server.requests) == 4


def test_endpoint_that_hangs_is_given_up_after_the_timeout(server: Server, run: Run) -> None:
    def hang(request: Request) -> tuple[int, Any]:
        if request.number == 0:
            server.is_over.wait()
        return solve(request)

    server.reply = hang
    outcome = run("--timeout-s", "4", "--max-retries", "0", "--max-unjudged-share", "0.5")
    assert outcome.content["n"] == 2
    [failure] = outcome.content["not_judged"]
    assert failure["fault"].startswith("APITimeoutError")


def test_endpoint_interrupt_keeps_finished_answers(server: Server, run: Run) -> None:
    def interrupt(request: Request) -> tuple[int, Any]:
        if request.number == 2:
            os.kill(os.getpid(), signal.SIGINT)  # the command waits for this answer, and for nothing else
            server.is_over.wait()
        return solve(request)

    server.reply = interrupt
    assert run("--concurrency", "1").code == 130
    server.reply = solve
    outcome = run("--concurrency", "1")
    assert (outcome.code, outcome.content["n_valid"]) == (0, 3)
    assert len(server.requests) == 4


def test_endpoint_key_is_sent_and_kept_nowhere(
    server: Server, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", SECRET)
    outcome = run("--api-key-env", "OTHER_KEY", "--show", "9")
    assert outcome.code == 0
    assert {request.key for request in server.requests} == {SECRET}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in outcome.out + outcome.err


def test_endpoint_that_refuses_the_key_and_quotes_it_ends_with_code_2_without_the_key(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    server.reply = lambda request: (401, {"error": {"message": f"Incorrect API key provided: {request.key}"}})
    outcome = run()
    assert outcome.code == 2
    assert "the server refuses the key" in outcome.err
    assert "Incorrect API key provided: ***" in outcome.err
    assert SECRET not in outcome.err


def test_endpoint_without_the_named_key_ends_with_code_2(server: Server, run: Run) -> None:
    outcome = run("--api-key-env", "NO_SUCH_VARIABLE")
    assert outcome.code == 2
    assert "NO_SUCH_VARIABLE" in outcome.err
    assert server.requests == []


def test_endpoint_with_several_models_wants_one_named(server: Server, run: Run) -> None:
    server.models = ["small", "large"]
    outcome = run()
    assert outcome.code == 2
    assert "2 models: small, large" in outcome.err
    assert run("--model", "large").code == 0
    assert {request.body["model"] for request in server.requests} == {"large"}


def test_endpoint_that_is_none_raises(server: Server) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_address[1]
    with pytest.raises(BadInputError, match="no endpoint answers here"):
        served_models(EndpointConfig(url=f"http://127.0.0.1:{port}/v1", model=""))
    server.models = ()
    with pytest.raises(BadInputError, match="an answer that is no list of models"):
        served_models(EndpointConfig(url=server.url, model=""))


def answered(server: Server, texts: Sequence[str], **how: Any) -> list[Completion]:
    """Return the completions of prompts, in their order."""
    endpoint = Endpoint(EndpointConfig(url=server.url, model=MODEL, **how))
    answers = endpoint.complete([asking(text) for text in texts], SamplingConfig(), seeds=range(len(texts)))
    return [completion for _, [completion] in sorted(answers, key=lambda answer: answer[0])]


def test_complete_of_more_prompts_than_go_out_together_answers_each_once(server: Server) -> None:
    server.reply = lambda request: (200, completion(request.prompt.upper()))
    found = answered(server, [f"p{number}" for number in range(10)], concurrency=3)
    assert [item.text for item in found] == [f"P{number}" for number in range(10)]
    assert len(server.requests) == 10


def test_answer_without_content_is_an_empty_completion_and_without_choices_a_fault(server: Server) -> None:
    cut: dict[str, Any] = completion("")
    cut["choices"][0]["message"]["content"] = None
    cut["choices"][0]["finish_reason"] = "length"
    del cut["usage"]
    server.reply = lambda _: (200, cut)
    [found] = answered(server, ["p"])
    assert (found.text, found.finish_reason, found.completion_tokens) == ("", "length", None)
    server.reply = lambda _: (200, {**completion(""), "choices": []})
    [found] = answered(server, ["p"])
    assert found.text is None
    assert found.fault is not None
    assert "without a completion" in found.fault


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("This model's maximum context length is 64 tokens. However, your messages resulted in 90 tokens.",
         FinishReason.NO_ROOM),
        ("This model's maximum context length is 64 tokens. However, you requested 90 tokens (30 in the messages, 60 "
         "in the completion).", FinishReason.NO_ROOM),
        ("'max_tokens' or 'max_completion_tokens' is too large: 60. This model's maximum context length is 64 tokens "
         "and your request has 30 input tokens.", FinishReason.NO_ROOM),
        ("This model's maximum context length is 64 tokens. However, you requested 60 output tokens and your prompt "
         "contains at least 5 input tokens, for a total of at least 65 tokens.", FinishReason.NO_ROOM),
        ("This model's maximum context length is 64 tokens, however you requested 70 tokens (30 in your prompt; 40 for "
         "the completion).", FinishReason.NO_ROOM),
        ("temperature must be non-negative", ""),
    ],
    ids=["prompt", "answer of a hosted server", "answer of one's own", "answer of vLLM", "of old", "another mistake"],
)  # fmt: skip
def test_request_too_long_is_an_outcome_where_the_prompt_is_and_a_fault_where_the_answer_is(
    said: str, expected: str, server: Server
) -> None:
    server.reply = lambda _: (400, {"error": {"message": said, "code": 400}})
    [found] = answered(server, ["p"])
    assert (found.finish_reason, found.fault is None) == (expected, "resulted in" in said)


# --- problems


def test_problems_that_need_no_plan_or_have_none_are_listed_and_not_tried(
    server: Server, run: Run, problems: Path
) -> None:
    for name, text in {"held": HELD, "never": UNSOLVABLE}.items():
        (problems / f"{name}.pddl").write_text(text, encoding="utf-8")
    outcome = run(is_planned=True)
    assert (outcome.code, outcome.content["n"], len(server.requests)) == (0, 3, 3)
    assert outcome.content["not_tried"] == [
        {"problem_id": "held", "reason": "the goal holds from the start"},
        {"problem_id": "never", "reason": "proven unsolvable"},
    ]
    assert outcome.content["without_a_plan"] == ["never"]
    assert "1 because proven unsolvable (never)" in outcome.out
    for attempt in outcome.content["attempts"]:
        assert len(attempt["planner_plan"]) >= len(attempt["plan"]) > 0
    server.reply = lambda _: (200, completion("(pick-up a)"))
    unplanned = run("--rendering", "chain_of_thought")
    assert unplanned.content["n"] == 4  # the unsolvable one among them
    assert [item["problem_id"] for item in unplanned.content["not_tried"]] == ["held"]


def test_problems_none_of_which_can_be_tried_end_with_code_2(run: Run, problems: Path) -> None:
    for path in problems.glob("instance-*.pddl"):
        path.write_text(HELD, encoding="utf-8")
    outcome = run()
    assert outcome.code == 2
    assert "3 because the goal holds from the start" in outcome.err


def test_problem_files_are_in_the_order_of_their_numbers_without_domains(problems: Path) -> None:
    (problems / "p3-domain.pddl").write_text(f"; (define (problem x)\n{BLOCKS_TEXT}", encoding="utf-8")
    assert [path.stem for path in problem_files(problems)] == ["instance-1", "instance-2", "instance-10"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "got: nothing"),
        ({"domain.pddl": BLOCKS_TEXT}, "1 domains and no problem"),
        ({"easy/p1.pddl": STACK}, "give one folder, such as .*easy"),
    ],
    ids=["empty", "domain only", "one level too high"],
)
def test_problem_files_of_a_folder_without_problems_raise(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=message):
        problem_files(tmp_path)


def test_problem_that_names_its_domain_in_capitals_is_read_and_another_domain_is_warned_of(
    problems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("pipelines").propagate = True  # as before any command has run
    (problems / "stack.pddl").write_text(STACK, encoding="utf-8")
    read_problems(BLOCKS, problems, known=None, seed=0)
    assert caplog.text == ""
    (problems / "stack.pddl").write_text(STACK.replace("BlocksWorld", "4ops"), encoding="utf-8")
    stack = read_problems(BLOCKS, problems, known=None, seed=0)[-1].row
    assert stack.problem_id == "stack" and "(:domain blocksworld)" in stack.problem_pddl, "which a planner reads"
    assert "1 of 4 problems name another domain than blocksworld" in caplog.text
    assert "stack.pddl (4ops)" in caplog.text


def test_domain_of_a_run_is_the_one_that_the_problems_name(tmp_path: Path) -> None:
    domains = [(load_domain(name).folder / "domain.pddl").read_text() for name in ("ferry", "miconic")]
    for name in ("ferry", "miconic", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p1.pddl").write_text(f"(define (problem p) ; (:domain other)\n (:domain {name.upper()}))")
    assert domain_of_problems(domains * 2, tmp_path / "miconic").name == "miconic"
    assert domain_of_problems(domains, tmp_path / "mine").name == "ferry"
    (tmp_path / "ferry" / "p2.pddl").write_text((tmp_path / "miconic" / "p1.pddl").read_text())
    with pytest.raises(BadInputError, match="problems of several domains"):
        domain_of_problems(domains, tmp_path / "ferry")


PUBLIC = sorted(path.parent for path in REFERENCE.glob("pddl/*/domain.pddl"))


@pytest.mark.skipif(not PUBLIC, reason="the public problems are not beside the repository")
@pytest.mark.parametrize("folder", PUBLIC, ids=lambda path: path.name)
def test_public_problems_are_read_as_they_are(folder: Path) -> None:
    domain = parse_domain((folder / "domain.pddl").read_text(encoding="utf-8"))
    given = read_problems(domain, folder, known=None, seed=0)
    assert [item.row.problem_id for item in given] == ["p1", "p2", "p3"]
    for item in given:
        task = PlanningTask.from_text(item.row.domain_pddl, item.row.problem_pddl)
        assert not task.is_goal(task.initial_state)


# --- a model folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "qwen3"
    qwen3_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def word_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)
    make_model(folder, word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=256, seed=0)
    return folder


class OneEngine(AnsweredRay):
    """Stands in for Ray and an engine in it, which answers each prompt with its beginning and never stops by itself."""

    def __init__(self) -> None:
        self.started, self.asked = list[tuple[str, str, PolicyConfig]](), list[Sequence[int]]()

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": 1.0}

    def remote(self, _: Any) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._start))

    def _start(self, folder: str, version: str, *, settings: PolicyConfig, **_: Any) -> Any:
        self.started.append((folder, version, settings))

        def generate(prompts: Sequence[Sequence[int]], sampling: SamplingConfig, **_: Any) -> Iterator[Answer]:
            self.asked += prompts
            n = sampling.max_new_tokens
            for prompt in prompts:
                yield Answer([Generation(tuple(prompt[:n]), (-1.0,) * n, FinishReason.LENGTH, version)] * sampling.n)

        return SimpleNamespace(generate=SimpleNamespace(remote=generate))


@pytest.mark.usefixtures("_where_the_help_is_read")
def test_help_example_of_a_folder_tries_it_through_its_chat_template_and_again_starts_nothing(
    checkpoint: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = OneEngine()
    monkeypatch.setattr(FolderWorkers, "ray", lambda _: ray)
    [example] = [line for line in examples() if "evaluate --policy my-model" in line]
    command = [*shlex.split(example)[2:], "--max-new-tokens", "12"]
    assert evaluate.main(command) == 0
    first, content = capsys.readouterr(), written_in(tmp_path / "runs" / "evaluations")
    assert (content["policy"], content["prompting"], content["n"]) == ("qwen3", "full", 3)
    assert content["policy_version"] == folder_digest(checkpoint)[:12]
    assert [attempt["tokens"] for attempt in content["attempts"]] == [12] * 3
    assert sum(content["errors"].values()) + content["n_valid"] == 3
    [(folder, version, settings)] = ray.started
    assert (Path(folder), version) == (checkpoint.resolve(), content["policy_version"])
    assert settings.max_model_len == max(map(len, ray.asked)) + 12
    tokenizer = load_tokenizer(str(checkpoint))
    for text in [str(tokenizer.decode(list(prompt))) for prompt in ray.asked]:
        assert text.startswith("<|im_start|>user\n")
        assert text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert evaluate.main(command) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err.count(": reused") == 4
    assert "starting" in first.err
    assert "starting" not in again.err
    assert len(ray.started) == 1


@pytest.fixture
def _where_the_help_is_read(checkpoint: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that has what the examples of the help name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(checkpoint)
    problems.rename(tmp_path / "my-problems")
    (tmp_path / "my-problems" / "domain.pddl").rename(tmp_path / "domain.pddl")


def written_in(store: Path) -> dict[str, Any]:
    """Return the figures that a command left where it was told no file."""
    [path] = [path for path in store.glob("*.json") if path.name != "stages.json"]
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def examples() -> list[str]:
    """Return the commands that `--help` shows."""
    return [line.strip() for line in EXAMPLES.splitlines() if line.strip().startswith("plansmith evaluate ")]


def test_folder_digest_changes_with_weights_template_and_nothing_else(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "chat_template.jinja", "README.md"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    before = folder_digest(tmp_path)
    (tmp_path / "README.md").write_text("other", encoding="utf-8")
    assert folder_digest(tmp_path) == before
    digests = {before}
    for name in ("config.json", "model.safetensors", "chat_template.jinja"):
        (tmp_path / name).write_text(f"{name[:-1]}x", encoding="utf-8")  # as long as before
        digests.add(folder_digest(tmp_path))
    assert len(digests) == 4


def test_word_level_folder_is_told_from_others_and_says_when_it_knows_no_names(
    checkpoint: Path, word_level: Path, problems: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert not FolderPolicy.read(checkpoint).is_word_level
    policy = FolderPolicy.read(word_level)
    assert policy.is_word_level
    (problems / "colours.pddl").write_text(STACK.replace("a b)", "red blue)").replace(" a)", " red)").replace(
        " b)", " blue)").replace("(on a blue)", "(on red blue)"), encoding="utf-8")  # fmt: skip
    command = ["--policy", str(word_level), "--domain", str(problems / "domain.pddl"), "--problems", str(problems)]
    assert evaluate.main([*command, "--store", str(tmp_path / "store")]) == 2
    assert "--object-names" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    given = read_problems(BLOCKS, problems, known=KnownNames.of(policy.tokenizer, ["a", "b", "nobody"]), seed=0)
    [colours] = [item for item in given if item.row.problem_id == "colours"]
    assert sorted(colours.object_of) == ["a", "b"]
    assert sorted(colours.object_of.values()) == ["blue", "red"]


def test_engine_window_holds_the_longest_prompt_and_an_answer_as_far_as_the_model_reaches(
    word_level: Path, problems: Path
) -> None:
    policy = FolderPolicy.read(word_level)
    rows = [item.row for item in read_problems(BLOCKS, problems, known=None, seed=0)]
    tasks = {row.problem_id: PlanningTask.from_text(row.domain_pddl, row.problem_pddl) for row in rows}
    asked = {name: asking(CompactRendering().plan_prompt(task)) for name, task in tasks.items()}

    def window(max_new_tokens: int) -> int:
        return engine_config(policy, asked, room=max_new_tokens, dtype=None, n_threads=1).max_model_len

    longest = max(len(encode(policy.tokenizer, message.text)) for [message] in asked.values())
    assert window(100) == longest + 100
    assert window(10_000) == 256
    short = FolderPolicy(shutil.copytree(word_level, problems / "short"), "key")
    config = json.loads((short.folder / "config.json").read_text(encoding="utf-8"))
    (short.folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": longest}), "utf-8")
    with pytest.raises(BadInputError, match="a problem too long for the model"):
        engine_config(short, asked, room=9, dtype=None, n_threads=1)


def test_sizes_that_a_configuration_leaves_out_are_those_of_its_kind(tmp_path: Path) -> None:
    sizes = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    told = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **sizes}}
    for name, config in {"gemma3": told, "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        found = engine_for(tmp_path / name, window=10**6, dtype=None, max_num_seqs=4, n_threads=1, is_cpu=True)
        assert found.max_model_len == {"gemma3": 131_072, "gpt2": 1024}[name]


def test_cache_size_of_a_small_model_is_half_a_gib_and_of_a_large_one_four_windows() -> None:
    tiny = {"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 128}
    assert cache_size_gib(tiny, 1536, "float32") == 0.5
    # Llama 3 8B: 2 * 32 layers * 8 heads * 128 numbers of 2 bytes = 131072 bytes a token; 4 * 8192 tokens are 4 GiB
    llama = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    assert cache_size_gib(llama, 8192, "bfloat16") == 4.0


# --- the command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "x", "--problems", "p"], "no --domain"),
        (["--policy", "x"], "no --domain and no --problems"),
        (["--policy", "x", "--domain", "d", "--problems", "p", "--arm", "final"], "--arm goes with a run"),
        (["runs/x", "--domain", "d"], "--domain goes with --policy"),
        (["runs/x", "--no-planner"], "--no-planner goes with --policy"),
        (["runs/x", "--temperature", "0.5", "--problems", "p"], "--temperature goes with --policy"),
        (
            ["--policy", "http://x", "--domain", "d", "--problems", "p", "--concurrency", "0"],
            "--concurrency is too small",
        ),
        (["runs/x", "--out", "no/such/folder.json"], "no folder for the JSON file"),
    ],
    ids=["no domain", "nothing to try", "arm", "domain of a run", "planner", "sampling", "concurrency", "out"],
)
def test_options_that_do_not_go_together_end_with_code_2(words: list[str], message: str, capsys: Capture) -> None:
    assert evaluate.main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["runs/x", "--policy", "y"]], ids=["neither", "both"])
def test_options_name_either_a_run_or_a_policy(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        evaluate.main(words)
    assert ended.value.code == 2
    assert "either a run folder or --policy" in capsys.readouterr().err


def test_help_shows_an_example_of_each_form_that_parses(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        evaluate.main(["--help"])
    text = capsys.readouterr().out
    assert all(example in text for example in examples())
    parsed = [evaluation_parser().parse_args(shlex.split(example)[2:]) for example in examples()]
    assert [(bool(found.run), bool(found.policy)) for found in parsed] == [
        (True, False), (True, False), (False, True), (False, True), (False, True)]  # fmt: skip


@pytest.mark.usefixtures("_where_the_help_is_read")
def test_help_example_of_an_endpoint_works_as_it_stands(server: Server, tmp_path: Path) -> None:
    [example] = [line for line in examples() if "--policy http" in line]
    assert evaluate.main(shlex.split(example.replace("http://localhost:8000/v1", server.url))[2:]) == 0
    assert written_in(tmp_path / "runs" / "evaluations")["n"] == 3

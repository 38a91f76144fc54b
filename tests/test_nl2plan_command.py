"""The command from a text to a plan, over HTTP: what it writes, what it asks, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from modelled import reference
from scripted_server import Request, Server, completion, serving

from actors.endpoint import Endpoint
from pipelines.commands.nl2plan import main
from plansmith.config.generation import EndpointConfig, SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.data.storage import run_lock
from plansmith.generation import Message
from plansmith.modelling import dialogue as dialogue_steps
from plansmith.modelling.budget import Budget, Budgeted
from plansmith.modelling.calls import CallLog
from plansmith.modelling.dialogue import Question, QuestionKind
from plansmith.modelling.folder import PROBLEM_SKETCH, TaskFolder
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.references import read_references
from plansmith.modelling.script import SCRIPT, Script
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import RowProducts, make_actions, make_types, put_together
from plansmith.workbench.checking import faults_of

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def script_server(faults: dict[str, list[str]] | None = None, **first: int) -> Iterator[Server]:
    """Give the script behind a server; ``first`` are statuses that the first requests meet, by their number."""
    script, statuses = (
        Script(read_references(), faults or {}),
        {int(name[1:]): status for name, status in first.items()},
    )

    def reply(request: Request) -> tuple[int, Any]:
        if request.number in statuses:
            return statuses[request.number], {"error": {"message": "not now", "type": "server_error"}}
        messages = [Message(turn["role"], turn["content"]) for turn in request.body["messages"]]
        return 200, completion(script.answer(messages))

    with serving(reply) as server:
        server.models = (SCRIPT,)
        yield server


def said(request: Request) -> str:
    """Return what tells a question from others."""
    return str(request.body["messages"])


def test_nl2plan_of_a_text_writes_every_product_and_asks_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "task.txt", tmp_path / "out"
    text.write_text(reference("blocksworld-easy").text)
    with script_server({"construction/stack": ["param_types"]}, n0=429, n3=500) as server:
        command = [str(text), "--policy", server.url, "--out", str(out), "--max-retries", "2"]
        assert main(command) == 0
        n_asked = len(server.requests)
        assert main(command) == 0
        assert len(server.requests) == n_asked
        second = tmp_path / "medium.txt"
        second.write_text(reference("blocksworld-medium").text)
        assert main([str(second), "--policy", server.url, "--domain-from", str(out)]) == 0
        assert len(server.requests) == n_asked + 2  # the problem and feedback on it
    assert "a plan of 4 steps" in capsys.readouterr().out
    assert (out / "plan.txt").read_text().splitlines()[0] == "(unstack blue red)"
    names = ("text.md", "1-types.md", "2-hierarchy.md", "3-actions.md", "4-actions/2/stack.md", "5-problem.md",
             "domain.pddl", "problem.pddl", "plan.md", "calls.jsonl")  # fmt: skip
    assert all((out / name).is_file() for name in names)
    assert len((tmp_path / "medium" / "plan.txt").read_text().splitlines()) == 8


def test_nl2plan_domain_of_another_task_grows_by_what_this_one_needs_and_asks_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out, grown = tmp_path / "task.txt", tmp_path / "out", tmp_path / "grown"
    text.write_text(reference("tyreworld-easy").text)
    with script_server({"actions": ["one_less"]}) as server:  # nobody inflates wheels
        asked = ["--policy", server.url, "--feedback", "none", "--max-validations", "1"]
        assert main([str(text), *asked, "--out", str(out)]) == 1
        other = tmp_path / "other.txt"  # answered first in this folder, and lacking nothing
        other.write_text("A text that the script does not know.")
        assert main([str(other), *asked, "--domain-from", str(out), "--out", str(grown)]) == 1
        command = [str(text), *asked, "--domain-from", str(out), "--grow", "--out", str(grown)]
        assert main(command) == 0
        n_asked = len(server.requests)
        assert main(command) == 0
        assert len(server.requests) == n_asked
        (tmp_path / "pddl").mkdir()
        shutil.copy(out / "domain.pddl", tmp_path / "pddl")
        alone = [str(text), *asked, "--domain-from", str(tmp_path / "pddl"), "--grow", "--out", str(tmp_path / "other")]
        assert main(alone) == 2
    told = capsys.readouterr()
    assert "growing the type pump, of pump1; " in told.out
    assert "the predicate inflated, in (inflated spare1): done" in told.out
    assert "a domain that cannot grow" in told.err
    assert "inflate" not in (out / "domain.pddl").read_text()
    assert "(:action inflate" in (grown / "domain.pddl").read_text()


def test_nl2plan_leaves_a_folder_alone_that_is_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, own = tmp_path / "blocks.txt", tmp_path / "blocks"
    text.write_text(reference("blocksworld-easy").text)
    own.mkdir()
    (own / "domain.pddl").write_text("mine")
    with script_server() as server:
        command = [str(text), "--policy", server.url, "--max-calls", "1"]
        assert main(command) == 2
        assert "a folder of something else" in capsys.readouterr().err
        assert [(path.name, path.read_text()) for path in own.iterdir()] == [("domain.pddl", "mine")]
        shutil.copy(text, own / "text.md")  # as a kill leaves it before the first answer
        assert main(command) == 1
        assert len(server.requests) == 1


def test_nl2plan_calls_that_are_none_are_told_by_their_line_and_a_dry_run_cuts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, calls = tmp_path / "task.txt", tmp_path / "task" / "calls.jsonl"
    text.write_text(reference("blocksworld-easy").text)
    calls.parent.mkdir()
    calls.write_text("half a line")
    assert main([str(text), "--dry-run"]) == 0
    assert calls.read_text() == "half a line"
    calls.write_text('{"key": 1}\n')
    assert main([str(text), "--dry-run"]) == 2
    assert f"{calls}:1" in capsys.readouterr().err


EFFECT = "(and (token ?v) (not (removed)))"
WITHOUT_EFFECT = {"construction/add": ["no_effect"] * 2}


def isr_text(folder: TaskFolder, level: str) -> str:
    """Return the path of a text of independent set reconfiguration beside its folder."""
    path = folder.path.with_suffix(".txt")
    path.write_text(reference(f"isr-assisted-{level}").text)
    return str(path)


def test_nl2plan_domain_of_another_task_comes_whole_and_can_be_mended_here(tmp_path: Path) -> None:
    first, second, third = (TaskFolder(tmp_path / name) for name in ("first", "second", "third"))
    with script_server(WITHOUT_EFFECT) as server:
        asked = ["--policy", server.url, "--feedback", "none"]
        assert main([isr_text(first, "easy"), *asked, "--passes", "1"]) == 1
        n_asked = len(server.requests)
        command = [isr_text(second, "medium"), *asked, "--domain-from", str(first.path)]
        assert main([*command, "--planner-feedback", "1"]) == 1
        assert len(server.requests) == n_asked + 2  # the problem, and again: a domain that was given stays
        assert faults_of(second, ModellingConfig(), PROBLEM_SKETCH, second.read(PROBLEM_SKETCH)) == ()
        second.write("4-actions/2/fly.md", "of another domain")
        second.write_edit("4-actions/1/add.md", second.read("4-actions/1/add.md").replace("(and)", EFFECT))
        assert main(command) == 0
        assert main([isr_text(third, "easy"), *asked, "--domain-from", str(second.path)]) == 0
    assert first.of_steps() == second.of_steps() == third.of_steps()
    assert EFFECT in third.read("4-actions/1/add.md")
    assert second.read("domain.pddl") == third.read("domain.pddl") != first.read("domain.pddl")


def test_nl2plan_domain_of_another_task_that_was_mended_itself_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = TaskFolder(tmp_path / "first"), TaskFolder(tmp_path / "second")
    with script_server(WITHOUT_EFFECT) as server:
        asked = ["--policy", server.url, "--feedback", "none"]
        assert main([isr_text(first, "easy"), *asked, "--passes", "1"]) == 1
        first.write_edit("domain.pddl", first.read("domain.pddl").replace("(and)", EFFECT))
        command = [isr_text(second, "medium"), *asked, "--domain-from", str(first.path)]
        assert main(command) == 0
        assert main([*command, "--grow"]) == 2
    put_together(second, ModellingConfig())
    assert second.of_steps() == ["3-actions.md"]
    assert second.read("domain.pddl") == first.current("domain.pddl")
    assert faults_of(second, ModellingConfig(), PROBLEM_SKETCH, second.read(PROBLEM_SKETCH)) == ()
    assert "got: domain.pddl mended in PDDL" in capsys.readouterr().err


def test_nl2plan_text_without_room_is_asked_again_once_there_is_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, script, window = tmp_path / "task.txt", Script(read_references()), 100
    error = {"error": {"message": "This model's maximum context length is 64 tokens. Your messages have 90."}}

    def reply(request: Request) -> tuple[int, Any]:
        if len(said(request)) > window:
            return 400, error
        return 200, completion(script.answer([Message("user", request.prompt)]))

    with serving(reply) as server:
        server.models = ("m",)
        command = [str(text), "--policy", server.url, "--feedback", "none", "--passes", "1"]
        text.write_text(f"{reference('isr-easy').text}\n{'More. ' * 10_000}")
        assert main(command) == 2  # too long for both windows
        text.write_text(reference("isr-easy").text)
        assert main(command) == 2
        told = capsys.readouterr().err
        assert told.count(f"{text}, step types: a text too long for the model") == 2
        assert told.count("maximum context length is 64 tokens. Your messages have 90.") == 2
        window = 50_000
        assert main(command) == 0


def test_nl2plan_beside_another_on_one_folder_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = tmp_path / "task.txt", tmp_path / "out"
    text.write_text("A text.")
    with run_lock(out):
        assert main([str(text), "--policy", "http://127.0.0.1:9/v1", "--model", "m", "--out", str(out)]) == 2
    assert "another run works on this folder" in capsys.readouterr().err
    assert not (out / "text.md").exists()


def test_nl2plan_edit_of_the_problem_that_is_no_pddl_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, folder = tmp_path / "task.txt", TaskFolder(tmp_path / "task")
    text.write_text(reference("isr-easy").text)
    with script_server() as server:
        command = [str(text), "--policy", server.url, "--feedback", "none", "--passes", "1"]
        assert main(command) == 0
        problem = folder.read("problem.pddl")
        folder.write_edit("problem.pddl", problem.replace("(token v4)", "(token v1)"))
        assert main(command) == 0
        folder.write_edit("problem.pddl", problem.replace("(:goal", "(:gaol"))
        assert main(command) == 2
    told = capsys.readouterr().err
    assert "edits/problem.pddl" in told
    assert all(part in told for part in ("got", "expected", "to mend it"))


def test_more_actions_than_are_written_are_recorded() -> None:
    dialogue = make_actions("A text.", RowProducts({"2-hierarchy.md": "- object"}), ModellingConfig(feedback="none"))
    next(dialogue)
    with pytest.raises(StopIteration) as ended:
        dialogue.send("\n".join(f"### act-{number}\nIt is done." for number in range(201)))
    assert ended.value.value.faults == ("max_actions",)


def dialogue(task: str, n: int = 1) -> Generator[Question, str, None]:
    """Ask for a task by its name, so many times."""
    for number in range(n):
        asked = Message("user", f"{task} {number}")
        yield Question(DialogueStep.TYPES, "", QuestionKind.DRAFT, (asked,))


def test_dialogue_goes_on_while_another_one_waits_and_nothing_under_way_is_asked_twice(tmp_path: Path) -> None:
    last, waited = threading.Event(), list[bool]()

    def reply(request: Request) -> tuple[int, Any]:
        if request.prompt == "quick 2":
            last.set()
        if request.prompt == "slow 0":
            waited.append(last.wait(60))
        return 200, completion("No changes.")

    log = CallLog.open(tmp_path / "calls.jsonl")
    with serving(reply) as server, Endpoint(EndpointConfig(url=server.url, model="m", concurrency=2)) as endpoint:
        speaker = Speaker(Budgeted(endpoint, Budget(4, None)), SamplingConfig(), 0, "", lambda _: log)
        asked = {"slow": dialogue("slow"), "quick": dialogue("quick", 3), "twin": dialogue("quick", 3)}
        assert {task for task, _ in speaker.converse(asked)} == asked.keys()
    assert waited == [True]
    assert sorted(request.prompt for request in server.requests) == ["quick 0", "quick 1", "quick 2", "slow 0"]
    assert {task: len(calls) for task, calls in speaker.said.items()} == {"quick": 3, "twin": 3, "slow": 1}
    assert len(log.calls) == 4


def test_dialogues_of_fifteen_tasks_never_have_more_requests_under_way_than_the_limit(tmp_path: Path) -> None:
    config, log = ModellingConfig(), CallLog.open(tmp_path / "calls.jsonl")
    with script_server() as server:
        full, turn = threading.Barrier(4), server.reply

        def reply(request: Request) -> tuple[int, Any]:
            if request.number < 4:
                full.wait(60)
            return turn(request)

        server.reply = reply
        with Endpoint(EndpointConfig(url=server.url, model="m", concurrency=4)) as endpoint:
            speaker = Speaker(endpoint, SamplingConfig(), 0, "", lambda _: log)
            made = dict(speaker.converse({own.name: make_types(own.text, RowProducts(), config)
                                          for own in read_references()}))  # fmt: skip
    assert len(made) == 15
    assert (len(server.requests), server.most_under_way, server.under_way) == (30, 4, 0)


def test_seconds_of_an_answer_are_its_own(tmp_path: Path) -> None:
    def reply(request: Request) -> tuple[int, Any]:
        time.sleep(0.2)
        return 200, completion("No changes.")

    log = CallLog.open(tmp_path / "calls.jsonl")
    with serving(reply) as server:
        endpoint = Endpoint(EndpointConfig(url=server.url, model="m", concurrency=1))
        speaker = Speaker(endpoint, SamplingConfig(), 0, "", lambda _: log)
        start_s = time.monotonic()
        assert len(list(speaker.converse({task: dialogue(task) for task in "abcd"}))) == 4
    assert 4 * 0.2 <= sum(call.seconds for call in log.calls) <= time.monotonic() - start_s


def test_nl2plan_without_a_plan_says_why_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "task.txt"
    text.write_text(reference("isr-easy").text)
    with script_server({"task": ["pred_nargs"] * 20}) as server:
        assert main([str(text), "--policy", server.url, "--passes", "1"]) == 1
    told = capsys.readouterr().out
    assert "No plan found: the PDDL cannot be read." in told
    assert "accepted with its flaws: pred_nargs" in told
    assert not (tmp_path / "task" / "plan.txt").exists()


def test_nl2plan_refused_everything_is_an_outcome(tmp_path: Path) -> None:
    text = tmp_path / "task.txt"
    text.write_text("Something that the script does not know.")
    with script_server() as server:
        assert main([str(text), "--policy", server.url, "--feedback", "none", "--max-error-messages", "1"]) == 1
    assert (tmp_path / "task" / "domain.pddl").is_file()


def test_nl2plan_failing_server_exits_1_and_goes_on_where_it_was(tmp_path: Path) -> None:
    text = tmp_path / "task.txt"
    text.write_text(reference("isr-easy").text)
    with script_server(n2=500) as server:
        command = [str(text), "--policy", server.url, "--max-retries", "0"]
        assert main(command) == 1
        assert main(command) == 0
        answered = [said(request) for request in server.requests if request.number != 2]
    assert len(answered) == len(set(answered))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--passes", "0"], "--passes is too small"),
        (["--domain-from", "nowhere"], "a task without a finished domain"),
        (["--max-validations", "0"], "--max-validations is too small"),
    ],
)
def test_nl2plan_bad_options_exit_2(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("task.txt").write_text("A text.")
    assert main(["task.txt", "--policy", "http://127.0.0.1:9/v1", "--model", "m", *options]) == 2
    assert message in capsys.readouterr().err


def test_nl2plan_domain_of_a_task_whose_step_4_is_not_finished_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, begun = tmp_path / "task.txt", tmp_path / "begun"
    text.write_text(reference("isr-easy").text)
    with script_server() as server:
        command = [str(text), "--policy", server.url]
        assert main([*command, "--out", str(begun), "--max-calls", "6"]) == 1
        assert sorted(path.name for path in begun.glob("[1-9]-*")) == ["1-types.md", "2-hierarchy.md", "3-actions.md"]
        assert main([*command, "--domain-from", str(begun)]) == 2
        assert len(server.requests) == 6
    assert f"{begun}: a task without a finished domain" in capsys.readouterr().err


def test_nl2plan_without_a_key_where_one_is_wanted_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "task.txt").write_text("A text.")
    with serving(lambda _: (401, {"error": {"message": "no key was given"}})) as server:
        assert main([str(tmp_path / "task.txt"), "--policy", server.url, "--model", "m"]) == 2
        assert len(server.requests) == 1
    told = capsys.readouterr().err
    assert all(part in told for part in (server.url, "no key was given", "expected: a key", "set OPENAI_API_KEY"))


@pytest.mark.parametrize(("content", "message"), [(b"  \n", "empty"), (b"\xff\xfe\xff", "UTF-8")])
def test_nl2plan_text_that_is_none_exits_2(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.txt").write_bytes(content)
    assert main([str(tmp_path / "task.txt"), "--policy", "http://127.0.0.1:9/v1", "--model", "m"]) == 2
    assert message in capsys.readouterr().err


def test_nl2plan_killed_while_it_waits_asks_no_answered_question_again(tmp_path: Path) -> None:
    text, command = tmp_path / "task.txt", [sys.executable, "-m", "plansmith.cli", "nl2plan"]
    text.write_text(reference("isr-assisted-easy").text)
    script, killed_at, answered = Script(read_references()), {3, 9}, list[str]()
    process: subprocess.Popen[bytes] | None = None
    lock = threading.Lock()

    def reply(request: Request) -> tuple[int, Any]:
        with lock:
            if len(answered) in killed_at and process is not None:
                killed_at.remove(len(answered))
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return 500, {}
            answered.append(said(request))
        return 200, completion(
            script.answer([Message(turn["role"], turn["content"]) for turn in request.body["messages"]])
        )

    with serving(reply) as server:
        for expected in (-signal.SIGKILL, -signal.SIGKILL, 0):
            process = subprocess.Popen([*command, str(text), "--policy", server.url, "--model", "m"], cwd=tmp_path)
            assert process.wait() == expected
    assert len(answered) == len(set(answered)) == 16


def test_nl2plan_recorded_and_replayed_writes_the_same_products_and_asks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, cassette = tmp_path / "task.txt", tmp_path / "task.cassette"
    text.write_text(reference("isr-easy").text)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    with script_server({"construction/jump": ["param_types"]}, n2=500) as server:
        command = [str(text), "--policy", server.url, "--out", str(tmp_path / "one"), "--max-retries", "0"]
        assert main([*command, "--record", str(cassette)]) == 1  # a request failed; the same command goes on
        assert main([*command, "--record", str(cassette)]) == 0
        n_asked = len(server.requests)
    capsys.readouterr()
    replay = [str(text), "--replay", str(cassette), "--out", str(tmp_path / "two")]
    assert main(replay) == 0
    told = capsys.readouterr().out
    assert f"nobody was asked: {SCRIPT} (cassette, scripted " in told
    label, *lines = cassette.read_text().splitlines()
    assert json.loads(label)["made"] == "scripted"
    assert len(lines) == n_asked - 1
    assert "sk-0123456789abcdef" not in cassette.read_text()
    for name in ("domain.pddl", "problem.pddl", "plan.txt", "4-actions/1/jump.md"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_nl2plan_replayed_with_another_text_exits_2_with_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, cassette = tmp_path / "task.txt", tmp_path / "task.cassette"
    text.write_text(reference("isr-easy").text)
    with script_server() as server:
        assert main([str(text), "--policy", server.url, "--record", str(cassette)]) == 0
    assert main([str(text), "--replay", str(cassette), "--temperature", "0.5", "--out", str(tmp_path / "hot")]) == 2
    told = capsys.readouterr().err
    assert "task.cassette, request 1, temperature: a request that is not on the cassette" in told
    assert "got: 0.5" in told
    assert "expected: 0.0" in told
    text.write_text("The first line.\n" + reference("isr-easy").text)
    assert main([str(text), "--replay", str(cassette), "--out", str(tmp_path / "other")]) == 2
    told = capsys.readouterr().err
    assert "got: The first line." in told
    assert f"expected: {reference('isr-easy').text.splitlines()[0][:40]}" in told


def test_nl2plan_replayed_after_a_change_of_prompts_exits_2_with_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, cassette = tmp_path / "task.txt", tmp_path / "task.cassette"
    text.write_text(reference("isr-easy").text)
    with script_server() as server:
        assert main([str(text), "--policy", server.url, "--record", str(cassette), "--passes", "1"]) == 0
    asked = step_prompt("worked", "hierarchy", text="T", types="Y").splitlines()[0]
    monkeypatch.setattr(dialogue_steps, "step_prompt", lambda *given, **told: step_prompt(*given, **told).replace(
        asked, "Order them."))  # fmt: skip
    assert main([str(text), "--replay", str(cassette), "--out", str(tmp_path / "other"), "--passes", "1"]) == 2
    told = capsys.readouterr().err
    assert "message 1, line 1: a request that is not on the cassette" in told and "got: Order them." in told
    assert (tmp_path / "other" / "1-types.md").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "who answers?"),
        (["--policy", "http://127.0.0.1:9/v1", "--replay", "x"], "who answers?"),
        (["--record", "x", "--replay", "x"], "who answers?"),
        (["--replay", "nowhere"], "no such cassette"),
        (["--policy", "a-folder", "--answers", "json"], "the engine built in enforces no JSON"),
        (["--replay", "task.txt"], "no cassette"),
        (["--policy", "http://127.0.0.1:9/v1", "--model", "m", "--record", "task.txt"], "no cassette"),
    ],
)
def test_nl2plan_without_one_who_answers_exits_2(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("task.txt").write_text("A text without an end of its line")
    assert main(["task.txt", "--out", "out", *options]) == 2
    assert message in capsys.readouterr().err
    assert Path("task.txt").read_text() == "A text without an end of its line"


def test_nl2plan_dry_run_asks_nobody_and_a_budget_ends_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "task.txt"
    text.write_text(reference("isr-easy").text)
    assert main([str(text), "--dry-run"]) == 0
    told = capsys.readouterr().out
    [row] = [line.split() for line in told.splitlines() if line.startswith("isr ")]
    assert "answered by now: 0 calls, 0 tokens" in told
    assert not (tmp_path / "task").exists()
    with script_server() as server:
        command = [str(text), "--policy", server.url]
        assert main([*command, "--max-calls", "3"]) == 1
        assert len(server.requests) == 3
        assert "the budget is spent" in capsys.readouterr().err
        assert (tmp_path / "task" / "1-types.md").is_file()
        assert main([*command, "--max-tokens", "500"]) == 1  # each answer counts as 107
        assert len(server.requests) == 5
        assert main([*command, "--max-calls", "50"]) == 0
        assert len(server.requests) == int(row[2])
        answered = [said(request) for request in server.requests]
    assert len(answered) == len(set(answered))


def test_nl2plan_planner_feedback_mends_a_model_without_a_plan_and_keeps_edits_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, folder = tmp_path / "task.txt", TaskFolder(tmp_path / "task")
    text.write_text(reference("isr-assisted-easy").text)
    with script_server({"construction/add": ["no_effect"]}) as server:
        command = [str(text), "--policy", server.url, "--feedback", "none"]
        assert main(command) == 1
        n_asked = len(server.requests)
        assert main([*command, "--planner-feedback", "1"]) == 0
        told = capsys.readouterr().out
        assert "no plan: the goal" in told
        assert "planning add: done" in told
        n_again = len(server.requests)
        assert n_again > n_asked
        action = folder.read("4-actions/2/add.md")
        folder.write_edit("4-actions/2/add.md", f"{action}\n\nMended by hand.")
        assert main([*command, "--planner-feedback", "1"]) == 0
        assert len(server.requests) == n_again
        folder.write("edits/4-actions/2/add.md", f"<!-- edit of {'0' * 16} -->\n{action}")
        assert main([*command, "--planner-feedback", "1"]) == 2
    assert "an edit of a product that has changed since" in capsys.readouterr().err


def test_shipped_cassette_of_a_small_model_is_played_to_an_honest_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = reference("blocksworld-easy")
    (tmp_path / "blocks.txt").write_text(own.domain_text + own.task_text, encoding="utf-8")
    cassette = ROOT / "datasets" / "cassettes" / "smollm2-blocksworld.cassette"
    asked = ("--passes", "1", "--max-error-messages", "1", "--max-validations", "2", "--max-new-tokens", "400")
    out = tmp_path / "out"
    assert main([str(tmp_path / "blocks.txt"), "--replay", str(cassette), *asked, "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert "No plan found: the PDDL cannot be read." in said.out + said.err
    assert "smollm2 (cassette, recorded 2026-11-28)" in said.out + said.err
    calls = [json.loads(line) for line in (out / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(calls) == 16
    assert sum(call["finish_reason"] == "length" for call in calls) > 8

"""The script behind an address: the command that serves it, what it plans, and what it says of itself."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from modelled import reference

from pipelines.commands.nl2plan import main
from plansmith.errors import BadInputError
from plansmith.generation import asking
from plansmith.judging.modelled import is_plan
from plansmith.modelling.prompts import opening
from plansmith.modelling.references import read_references
from plansmith.modelling.script import FAULTS, REFUSAL, SCRIPT, Script
from plansmith.modelling.script_server import HANG, ServedScript, Server, failures_before, serving

BLOCKS = reference("blocksworld-easy")


@contextlib.contextmanager
def served(plans: Mapping[str, Sequence[str]]) -> Iterator[Server]:
    """Give the script with its plans behind a server."""
    with serving(ServedScript(read_references(), plans)) as server:
        yield server


def asked(folder: Path, address: str, *options: str) -> int:
    """Return how the command ends that takes a text of Blocksworld through the steps once, and asks for no advice."""
    text = folder / "task.txt"
    text.write_text(BLOCKS.domain_text + BLOCKS.task_text)  # as cat would join the two, spaced otherwise than when read
    once = ("--passes", "1", "--feedback", "none", "--max-retries", "0")
    return main([str(text), "--policy", address, *once, *options])


def test_command_serves_the_script_says_so_and_its_answers_lead_to_a_right_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text('types: [429, ""]\nconstruction/stack: [param_types]\ntask: [500, pred_nargs, ""]\n')
    command = [sys.executable, "-m", "plansmith.cli", "nl2plan", "serve-script", "--faults", str(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
        assert address
        assert "scripted" in process.stdout.readline()
        try:
            assert asked(tmp_path, address[0], "--max-retries", "2") == 0
        finally:
            process.send_signal(signal.SIGINT)
            told = process.stdout.read().splitlines()
            status = process.wait()
    assert status == 0
    for line in ("types, attempt 1: 429", "types, attempt 1: no mistake", "construction/stack, attempt 1: param_types",
                 "construction/stack, attempt 2: no mistake", "task, attempt 1: 500", "task, attempt 1: pred_nargs",
                 "task, attempt 2: no mistake"):  # fmt: skip
        assert told.count(line) == 1
    assert f"no model was asked: {SCRIPT}" in capsys.readouterr().out
    plan = (tmp_path / "task" / "plan.txt").read_text().splitlines()
    assert is_plan(plan, BLOCKS.domain_pddl, BLOCKS.problem_pddl)
    calls = [json.loads(line) for line in (tmp_path / "task" / "calls.jsonl").read_text().splitlines()]
    assert {call["model"] for call in calls} == {SCRIPT}
    assert [call["checks"] for call in calls if call["kind"] == "repair"] == [["param_types"], ["pred_nargs"]]


@pytest.mark.parametrize(
    ("planned", "attempt", "failures"),
    [
        ([], 1, []),
        (["429", "500", "cut", HANG, "empty"], 1, ["429", "500"]),
        (["429", "500", "cut", HANG, "empty"], 2, [HANG]),
        (["429", "500", "cut", HANG, "empty"], 3, []),
        (["cut", "500"], 2, ["500"]),
        (["cut", "500"], 3, []),
        (["500", "cut", "always"], 3, []),
    ],
)
def test_failures_before_an_attempt_are_those_since_the_one_before(
    planned: list[str], attempt: int, failures: list[str]
) -> None:
    assert failures_before(planned, attempt) == failures


def test_request_that_hangs_is_given_up_and_the_next_is_answered(tmp_path: Path) -> None:
    with served({"types": [HANG]}) as server:
        assert asked(tmp_path, server.url, "--timeout-s", "0.5") == 1
        assert asked(tmp_path, server.url) == 0


def test_mistake_that_is_always_made_is_never_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served({"construction/stack": ["", "cut"], "task": ["pred_nargs", "always"]}) as server:
        assert asked(tmp_path, server.url) == 1
    assert "task: done, 7 error messages, accepted with its flaws: pred_nargs" in capsys.readouterr().out


def test_each_of_the_papers_checks_finds_its_mistake_and_the_last_answer_is_right(tmp_path: Path) -> None:
    tyres = reference("tyreworld-easy")
    (tmp_path / "tyres.txt").write_text(tyres.text)
    plans = {"construction/close": FAULTS[:6], "task": FAULTS[6:13]}
    with served(plans) as server:
        assert main([str(tmp_path / "tyres.txt"), "--policy", server.url, "--passes", "1", "--feedback", "none"]) == 0
        connections = {request.port for request in server.requests}
        assert len(server.requests) > 25 and len(connections) < 5  # one, if the machine is not busy for seconds
    calls = [json.loads(line) for line in (tmp_path / "tyres" / "calls.jsonl").read_text().splitlines()]
    assert [call["checks"] for call in calls if call["kind"] == "repair"] == [[check] for check in FAULTS[:13]]
    assert is_plan((tmp_path / "tyres" / "plan.txt").read_text().splitlines(), tyres.domain_pddl, tyres.problem_pddl)


def test_action_that_was_not_asked_for_is_found_by_no_check(tmp_path: Path) -> None:
    with served({"construction/stack": ["unasked_action"]}) as server:
        assert asked(tmp_path, server.url) == 1
    pick_up, stack = (
        (tmp_path / "task" / "4-actions" / "1" / f"{name}.md").read_text() for name in ("pick-up", "stack")
    )
    assert stack.partition("## New")[0] == pick_up.partition("## New")[0]


@pytest.mark.parametrize("spoilt", ["cut", "empty", "refusal", "two_actions"])
def test_answer_that_cannot_be_used_is_asked_for_again(spoilt: str, tmp_path: Path) -> None:
    said = list[str]()
    with serving(ServedScript(read_references(), {"task": [spoilt]}, say=said.append)) as server:
        assert asked(tmp_path, server.url) == 0
    assert (spoilt == "refusal") == any("refused" in line for line in said)
    calls = [json.loads(line) for line in (tmp_path / "task" / "calls.jsonl").read_text().splitlines()]
    assert [(call["step"], call["kind"]) for call in calls[-2:]] == [("task", "draft"), ("task", "repair")]


def test_advice_that_is_harmful_is_taken_and_there_is_no_plan_that_is_right(tmp_path: Path) -> None:
    with served({"construction_feedback/stack": ["harmful"]}) as server:
        assert asked(tmp_path, server.url, "--feedback", "model") == 0
    plan = (tmp_path / "task" / "plan.txt").read_text().splitlines()
    assert not is_plan(plan, BLOCKS.domain_pddl, BLOCKS.problem_pddl)


def test_another_model_is_not_there_and_a_mistake_without_room_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served({"construction/jump": ["unasked_action"]}) as server:
        assert asked(tmp_path, server.url, "--model", "gpt-4") == 2
        assert "the server has no model 'gpt-4'" in capsys.readouterr().err
        (tmp_path / "isr.txt").write_text(reference("isr-easy").text)
        assert main([str(tmp_path / "isr.txt"), "--policy", server.url, "--feedback", "none"]) == 1
    assert "a mistake that cannot be made in this domain" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"model": "script (no model)"}', b"[1]"])
def test_request_that_is_none_is_refused_and_the_server_goes_on(content: bytes) -> None:
    with served({}) as server:
        for _ in range(2):
            request = urllib.request.Request(f"{server.url}/chat/completions", content)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            assert refused.value.code in (400, 404)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("task: [no_such]", "a mistake that the script cannot make"),
        ("task: [always]", "a mistake that the script cannot make"),
        ("task: [always, cut]", "a mistake that the script cannot make"),
        ("constructing: [cut]", "mistakes of no step"),
        ("task: cut", "no list of mistakes"),
        ("- task", "not a mapping"),
    ],
)
def test_faults_that_are_none_exit_2(
    faults: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faults.yaml").write_text(faults)
    assert main(["serve-script", "--faults", str(tmp_path / "faults.yaml")]) == 2
    assert message in capsys.readouterr().err


def test_port_that_is_taken_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with served({}) as server:
        assert main(["serve-script", "--port", str(server.port)]) == 2
    assert "cannot listen there" in capsys.readouterr().err


def test_script_of_failures_is_refused_where_nobody_asks_over_an_address() -> None:
    with pytest.raises(BadInputError, match="a mistake that the script cannot make"):
        Script(read_references(), {"types": ["500"]})


def test_action_that_no_reference_has_is_answered_by_a_refusal() -> None:
    script = Script(read_references())
    actions = "## Action\nfoo: does nothing"
    asked_for = f"{opening('construction')}\n# Your task\n## Text\n{BLOCKS.text}\n{actions}\n"
    assert script.answer(asking(asked_for)) == REFUSAL

"""A run of NL2Plan that is killed in each of its steps, over HTTP: nothing is asked twice, nothing else comes out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_nl2plan_run import exchanges_of, one_task, tables_of

from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.generation import Message
from plansmith.modelling.references import TASKS_FOLDER, read_references
from plansmith.modelling.script import SCRIPT, Asked
from plansmith.modelling.script_server import Request, ServedScript, serving

DEATHS = (("types", 0), ("hierarchy", 1), ("actions", 0), ("construction", 1), ("construction", 8), ("task", 1),
          ("task", None), ("zero_shot", 1), ("zero_shot", None))  # fmt: skip
"""Where the run is killed: at a request of a step, once so many of it are answered; or as soon as that stage is
finished, and one that asks nobody has begun: ``plan``, and ``judge``."""
N_TOGETHER = 1


def artifacts_in(runs: Path) -> dict[str, Artifact]:
    """Return the artifacts of the run there, by stage."""
    found = complete_artifacts(runs / "nl2plan-paper" / "artifacts")
    return {own.manifest.provenance.stage: own for own in sorted(found, key=lambda own: own.folder.name)}


@pytest.mark.faults
def test_nl2plan_killed_in_each_step_has_equal_tables_asks_nothing_twice_and_keeps_the_limit(tmp_path: Path) -> None:
    tasks, killed, whole = Path(one_task(tmp_path / "tasks", "isr-assisted")), tmp_path / "killed", tmp_path / "whole"
    for name in ("medium.md", "medium.pddl"):
        shutil.copy(TASKS_FOLDER / "isr-assisted" / name, tasks / "isr-assisted" / name)
    script = ServedScript(read_references(tasks), {"construction/add": ["param_types", ""], "task": ["pred_nargs", ""]})
    answered, to_come = list[tuple[str, str]](), [*DEATHS]
    lock, is_dead = threading.Lock(), threading.Event()
    process: subprocess.Popen[bytes] | None = None

    def reply(request: Request) -> tuple[int, Any]:
        asked = Asked.by([Message(turn["role"], turn["content"]) for turn in request.body["messages"]])
        step = asked.step.removesuffix("_feedback")
        with lock:
            if is_dead.is_set():  # what it had asked besides
                return 500, {}
            if to_come and to_come[0] == (step, sum(own == step for own, _ in answered)):
                assert process is not None
                kept = killed / "nl2plan-paper" / "artifacts" / "calls.jsonl"
                while answered and kept.read_text().count("\n") < len(answered):
                    time.sleep(0.001)  # it may be about to write one
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                is_dead.set()
                return 500, {}
            answered.append((step, str(request.body["messages"])))
        return script(request)

    def start(runs: Path) -> subprocess.Popen[bytes]:
        told = {"url": server.url, "model": SCRIPT, "concurrency": N_TOGETHER, "max_retries": 0}
        options = [f"--set=speaker.{name}={value}" for name, value in told.items()]
        command = [sys.executable, "-m", "plansmith.cli", "run", "nl2plan", "--preset", "paper", "--runs", str(runs)]
        while server.under_way:
            time.sleep(0.001)
        is_dead.clear()
        return subprocess.Popen([*command, f"--set=tasks.folder={tasks}", *options], cwd=tmp_path)

    with serving(reply) as server:
        while to_come:
            stage, n_answered = to_come[0]
            process = start(killed)
            while n_answered is None and stage not in artifacts_in(killed):
                assert process.poll() is None
            if n_answered is None:
                process.kill()
            assert process.wait() == -signal.SIGKILL
            to_come.pop(0)
        assert "judge" not in artifacts_in(killed)
        assert start(killed).wait() == 0
        n_answered = len(answered)
        assert start(whole).wait() == 0
    assert len(set(answered[:n_answered])) == n_answered
    assert sorted(answered[:n_answered]) == sorted(answered[n_answered:])
    assert server.most_under_way == N_TOGETHER
    disturbed, undisturbed = artifacts_in(killed), artifacts_in(whole)
    assert "judge" in disturbed
    assert tables_of(disturbed) == tables_of(undisturbed)
    assert exchanges_of(disturbed) == exchanges_of(undisturbed)

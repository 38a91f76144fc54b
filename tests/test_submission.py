"""Jobs submitted to a real local head, as a user types them: they run, show their progress, are stopped, and resume."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from processes import free_port

BIN = Path(sys.executable).parent
PATIENCE_S = 600
"""How long something may take on a busy machine before the test says what it waited for."""


def wait_until(happened: Callable[[], Any], what: Callable[[], str]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := happened():
            return found
        time.sleep(0.3)
    raise AssertionError(f"waited {PATIENCE_S} s for {what()}")


@dataclass(frozen=True)
class Head:
    """A running head: where its dashboard is, who may speak to it, and where its jobs keep their runs."""

    address: str
    token: str
    runs: Path
    environment: dict[str, str]

    def ray_job(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return what a `ray job` command says, given in the project's folder."""
        command = [str(BIN / "ray"), "job", words[0], "--address", self.address, *words[1:]]
        return subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)

    def submit(self, *words: str) -> str:
        """Submit and return the id of the job, without waiting for it."""
        done = self.ray_job("submit", "--no-wait", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return next(word for word in done.stdout.replace("'", " ").split() if word.startswith("raysubmit_"))

    def ask(self, path: str, method: str = "GET") -> Any:
        """Return the JSON that the dashboard answers."""
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.address + path, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def status(self, job: str) -> str:
        return str(self.ask(f"/api/jobs/{job}")["status"])

    def log(self, job: str) -> str:
        return str(self.ask(f"/api/jobs/{job}/logs")["logs"])

    def living_actors(self) -> list[str]:
        """Return the classes of living actors, without those that Ray keeps for itself beyond a job."""
        answer = self.ask("/api/v0/actors?detail=1")["data"]["result"]["result"]
        return sorted(x["class_name"] for x in answer if x["state"] != "DEAD" and not x["is_detached"])


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    # sockets have short paths only; what has just been killed may still hold a file
    with tempfile.TemporaryDirectory(prefix="ps-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        port, token = free_port(), secrets.token_hex(32)
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "PLANSMITH_RUNS": str(Path(folder) / "runs"),
        }
        environment.pop("RAY_ADDRESS", None)
        command = [
            str(BIN / "ray"), "start", "--head", "--block", "--port=0", "--num-cpus=2", "--node-ip-address=127.0.0.1",
            "--object-store-memory=300000000", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}",
            f"--dashboard-agent-listen-port={free_port()}", f"--temp-dir={folder}/ray", "--disable-usage-stats",
        ]  # fmt: skip
        with Path(folder, "head.log").open("w") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        started = Head(f"http://127.0.0.1:{port}", token, Path(folder) / "runs", environment)
        try:
            wait_until(lambda: process.poll() is not None or is_up(started), lambda: "the head")
            assert process.poll() is None, Path(folder, "head.log").read_text()
            yield started
        finally:
            while left := processes_of_head(token):  # told to end, a head takes half a minute
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.poll()
                time.sleep(0.1)
            process.wait()


def is_up(head: Head) -> bool:
    try:
        head.ask("/api/jobs/")
    except (OSError, ValueError):
        return False
    return True


def ended(head: Head, job: str) -> str:
    states = ("SUCCEEDED", "FAILED", "STOPPED")
    wait_until(lambda: head.status(job) in states, lambda: f"the end of {job}; its log ends {head.log(job)[-500:]!r}")
    return head.status(job)


@pytest.mark.long
def test_head_with_a_token_refuses_who_has_none(head: Head) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401") as caught:
        urllib.request.urlopen(head.address + "/api/jobs/", timeout=60)
    caught.value.close()


@pytest.mark.long
def test_job_of_the_bare_file_starts_the_demo_and_its_stop_ends_actors_and_planners(head: Head) -> None:
    job = head.submit("--working-dir", ".", "pipelines/pddl_instruct.py")
    wait_until(lambda: "solving problems:" in head.log(job) and planners(head), lambda: "planners at work")
    assert head.status(job) == "RUNNING"
    assert head.ray_job("stop", job).returncode == 0
    assert ended(head, job) == "STOPPED"
    wait_until(lambda: not left_of_jobs(head), lambda: f"the end of {left_of_jobs(head)}")
    assert (head.runs / "pddl_instruct-demo" / "run.json").is_file()


def left_of_jobs(head: Head) -> list[str]:
    """Return what of a job is still there: its actors, and the processes of planners."""
    return head.living_actors() + planners(head)


def planners(head: Head) -> list[str]:
    return [line for line in processes_of_head(head.token).values() if "translate_worker" in line]


def processes_of_head(token: str) -> dict[int, str]:
    """Return the living processes that inherited the token, with their command lines; sessions differ."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:  # gone in the meantime, or another user's
            continue
    return found


LITTLE = {
    "phase2.eta": "1",
    "phase2.continuation_renamings": "0",
    "phase1.epochs": "1",
    "phase1.n_explained": "0",
    "problems.levels": "[{n_blocks: 3, phase1: 8, phase2: 4, test: 4, n_draws: 200}]",
    "evaluation.feedback_turns": "0",
}
"""Settings that leave of the preset `smoke` each kind of stage once; what they turn off, the runs of other tests do."""


@pytest.mark.faults
def test_job_stopped_in_phase_1_and_submitted_again_continues_to_its_end(head: Head) -> None:
    settings = [word for setting in LITTLE.items() for word in ("--set", "=".join(setting))]
    words = ("--working-dir", ".", "--", "pipelines/pddl_instruct.py", "--preset", "smoke", *settings)
    job = head.submit(*words)
    wait_until(lambda: "phase1: running" in head.log(job), lambda: f"phase 1 in {head.log(job)[-500:]!r}")
    assert head.ask(f"/api/jobs/{job}/stop", "POST") == {"stopped": True}
    assert ended(head, job) == "STOPPED"

    job = head.submit(*words)
    assert ended(head, job) == "SUCCEEDED", head.log(job)
    log = head.log(job)
    assert "synthesize_plans: reused" in log
    assert "joining Ray" in log
    assert "rolling out, iteration 1:" in log  # progress, from an actor's process
    assert "phase 1" in log  # the table
    results = json.loads((head.runs / "pddl_instruct-smoke" / "report" / "results.json").read_text(encoding="utf-8"))
    assert results["arms"]["final"]["n"] == 4
    wait_until(lambda: not left_of_jobs(head), lambda: f"the end of {left_of_jobs(head)}")

"""A whole run of the preset smoke in a process of its own, as several tests look at it or kill it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pipelines import pddl_instruct
from plansmith.data.artifacts import Artifact, complete_artifacts

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "pipelines" / "pddl_instruct.py"
SMOKE = pddl_instruct.PIPELINE.settings("smoke")


@dataclass
class FinishedRun:
    """A run folder and what the command said."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = complete_artifacts(self.folder / "artifacts")
        self.artifacts = {artifact.manifest.provenance.stage: artifact for artifact in found}


def start(runs: Path, name: str) -> subprocess.Popen[str]:
    """Start the preset smoke in a session of its own, which all its processes share."""
    command = [sys.executable, str(PIPELINE), "--preset", "smoke", "--runs", str(runs), "--name", name]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(runs: Path, name: str) -> FinishedRun:
    process = start(runs, name)
    try:
        out, err = process.communicate()
    finally:
        process.kill()  # its session is its own: an interrupt of the tests does not reach it
    assert process.returncode == 0, err
    return FinishedRun(runs / name, subprocess.CompletedProcess(process.args, 0, out, err))


def manifests(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes when an artifact is written again, by its folder."""
    stats = {path.parent.name: path.stat() for path in (folder / "artifacts").glob("*/manifest.json")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items() if not name.endswith(".partial")}


def kill_after(stage: str, runs: Path, name: str) -> int:
    """Start a run, kill its driver as soon as a stage is finished, and return the session of its processes."""
    process = start(runs, name)
    try:
        while not any(folder.startswith(f"{stage}-") for folder in manifests(runs / name)) and process.poll() is None:
            time.sleep(0.05)
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    return process.pid

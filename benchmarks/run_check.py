"""Whether a whole run works on this device: the part of `gpu_check` that needs Ray and vLLM.

One iteration of `pddl_instruct` with few problems, by the command that a person would give. That it ends says that
every policy was handed over, and proved by its probe; the loss of its first phase must fall.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FEW = "{domain: blocksworld, level: few, sizes: {blocks: [3, 5]}, phase1: 400, phase2: 60, test: 40, n_draws: 3000}"
RUNS = {
    "cuda": ("small", (f"problems.domains=[{FEW}]", "phase2.eta=1", "phase2.problems_per_iteration=60")),
    "cpu": ("smoke", ("phase2.eta=1",)),
}
"""Preset and settings of the run, by device."""


@dataclass(frozen=True)
class ShortRun:
    """What a run has come to.

    Attributes:
        preset: whose.
        seconds: that it took.
        fault: the end of what it said, where it failed.
        first, last: losses of the first phase, means over its first and its last quarter; 0 where it failed.
        speed: tokens of the first phase a second, loading and saving included.
    """

    preset: str
    seconds: float
    fault: str = ""
    first: float = 0.0
    last: float = 0.0
    speed: float = 0.0


def short_run(device: str, folder: Path) -> ShortRun:
    """Run one iteration with few problems; the run lies below a folder."""
    preset, settings = RUNS[device]
    command = [sys.executable, "pipelines/pddl_instruct.py", "--preset", preset, "--name", preset]
    command += ["--runs", str(folder)]
    given = [word for setting in settings for word in ("--set", setting)]
    start = time.monotonic()
    done = subprocess.run([*command, *given], cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    if done.returncode:
        return ShortRun(preset, seconds, fault=done.stderr.strip()[-500:] or f"exit code {done.returncode}")
    return _read(preset, seconds, json.loads((folder / preset / "report" / "results.json").read_text(encoding="utf-8")))


def _read(preset: str, seconds: float, results: dict[str, Any]) -> ShortRun:
    losses = next(curve["losses"] for curve in results["curves"] if curve["iteration"] == 0)
    quarter = max(1, len(losses) // 4)
    first, last = sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter
    speed = results["tokens"]["phase1"] / results["time_s"]["phase1"]
    return ShortRun(preset, seconds, "", first, last, speed)

"""What a run says of the machine that it worked on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plansmith import machine as machines
from plansmith.machine import cpu_seconds, gpus, machine

FACTS = """processor\t: 0
model name\t: A Processor 9684X
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: Another
"""


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    machine.cache_clear()


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program that stands for the driver's onto the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_machine_has_processor_with_its_fastest_products_memory_and_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text(FACTS)
    monkeypatch.setattr(machines, "CPU_FACTS", facts)
    monkeypatch.setattr(machines.os, "cpu_count", lambda: 384)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = machine().split("; ")
    assert said[0] == "384 logical CPUs, A Processor 9684X (avx512_bf16)"
    assert said[1].endswith(" GiB of memory") and said[2] == "no GPU" and ", kernel " in said[3]


def test_gpus_that_are_equal_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, "printf 'A100, 81920 MiB\\nA100, 81920 MiB\\nT4, 15360 MiB\\n'")
    assert gpus() == ["2 x A100, 81920 MiB", "1 x T4, 15360 MiB"]


def test_gpus_whose_driver_fails_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, "echo no devices were found; exit 6")
    assert gpus() == []


BUSY = "until = time.process_time() + 0.2\nwhile time.process_time() < until: pass\n"
WAITS = "print(flush=True)\nsys.stdin.read()\n"


def test_cpu_seconds_are_also_those_of_processes_that_live_and_of_those_that_these_have_started() -> None:
    inner = [sys.executable, "-S", "-c", f"import sys, time\n{BUSY}{WAITS}"]
    outer = f"import subprocess, time\n{BUSY}subprocess.run({inner!r})"  # speaks and waits through the inner one
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert cpu_seconds(process.pid) >= 0.38  # two processes, less what their clocks have not counted yet
        process.stdin.close()
    assert cpu_seconds(process.pid) == 0.0

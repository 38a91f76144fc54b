"""The machine that a run worked on, in words: what a reader must know to judge its times (NL-PDDL-Bench, table 6)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

CPU_FACTS = Path("/proc/cpuinfo")
MEMORY_FACTS = Path("/proc/meminfo")
GROUP_FACTS = Path("/sys/fs/cgroup")
PROCESSES = Path("/proc")
FAST_PRODUCTS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
"""Flags of a processor that decide how fast it trains, the best first."""
ASK_GPUS = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")


@cache
def machine() -> str:
    """Return processor, memory, GPUs and system of this machine; no name that tells one machine from another."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [_processor(), f"{memory:.0f} GiB of memory", *(gpus() or ["no GPU"]), _system()]
    return "; ".join(parts)


def gpus() -> list[str]:
    """Return the NVIDIA GPUs, equal ones together, such as ``6 x NVIDIA A100 80GB PCIe, 81920 MiB``."""
    if shutil.which(ASK_GPUS[0]) is None:
        return []
    answer = subprocess.run(ASK_GPUS, capture_output=True, text=True, check=False)
    names = answer.stdout.splitlines() if answer.returncode == 0 else []
    return [f"{count} x {name}" for name, count in Counter(filter(None, map(str.strip, names))).items()]


def fast_products() -> str:
    """Return the flag of `FAST_PRODUCTS` that this processor has, the best; empty for none."""
    flags = _cpu_facts().get("flags", "").split()
    return next((flag for flag in FAST_PRODUCTS if flag in flags), "")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of all that it started, ended ones too where somebody waited for them."""
    folder = PROCESSES / str(pid)
    try:
        ticks = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
        children = [name for path in (folder / "task").glob("*/children") for name in path.read_text().split()]
    except OSError:  # it has just ended
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") + sum(cpu_seconds(int(child)) for child in children)


def usable_cores() -> int:
    """Return how many cores this process may use at once: of its affinity and of its control group."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _group_limit("cpu.max").partition(" ")
    return min(cores, max(1, round(int(quota) / int(period)))) if quota.isdigit() and period.isdigit() else cores


def memory_bytes() -> tuple[int, int]:
    """Return how much memory there is and how much is free, of the machine or within its control group."""
    pairs = (line.partition(":") for line in MEMORY_FACTS.read_text(encoding="utf-8").splitlines())
    kilobytes = {name: int(value.split()[0]) for name, _, value in pairs if value.split()}
    total, free = (1024 * kilobytes[name] for name in ("MemTotal", "MemAvailable"))
    limit, used = _group_limit("memory.max"), _group_limit("memory.current")
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        return int(limit), min(free, int(limit) - int(used))
    return total, free


def _group_limit(name: str) -> str:
    """Return what a file of this process's control group says, where there is one."""
    path = GROUP_FACTS / name
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _processor() -> str:
    name, fastest = _cpu_facts().get("model name", platform.machine()), fast_products()
    return f"{os.cpu_count()} logical CPUs, {name}{f' ({fastest})' if fastest else ''}"


def _cpu_facts() -> dict[str, str]:
    """Return what the system says of its first processor."""
    if not CPU_FACTS.is_file():
        return {}
    first, _, _ = CPU_FACTS.read_text(encoding="utf-8").partition("\n\n")
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, kernel {platform.release()}"

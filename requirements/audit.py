"""Look up every package of `requirements/cpu.lock` among the published security advisories, with pip-audit.

pip-audit calls a package that its source does not know "skipped", and ends well even if it skipped them all. So a
package that is known to be vulnerable is asked about first: where it is not reported, no source of advisories answers,
and nothing can be said. Not here: mending. An advisory that does not concern us goes into `IGNORED`, with the reason.

    python requirements/audit.py [--service pypi|osv] [--lock FILE]

Exit codes: 0 no advisory, 1 some, 2 nothing could be looked up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).resolve().parent / "cpu.lock"
CANARY = "jinja2==2.10"
"""Known since 2019 to let a template out of its sandbox (CVE-2019-10906)."""
IGNORED: Mapping[str, str] = {}
"""Advisories by id that do not concern this project, with the reason."""


@dataclass(frozen=True)
class Audit:
    """What a source of advisories said: faults by package, and the packages that it does not know."""

    advisories: Mapping[str, Sequence[str]]
    unknown: Sequence[str]


def audit(requirements: str, service: str) -> Audit | None:
    """Return what pip-audit finds for pinned requirements; None where it could ask nobody."""
    with tempfile.TemporaryDirectory(prefix="plansmith-audit-") as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text(requirements, encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip"]
        command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return read_answer(done.stdout)
    except (ValueError, KeyError):
        print((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:], file=sys.stderr)
        return None


def read_answer(text: str) -> Audit:
    """Return what an answer of pip-audit says, ignored advisories left out.

    Raises:
        ValueError, KeyError: it is no answer.
    """
    packages = json.loads(text)["dependencies"]
    found = {
        f"{package['name']} {package['version']}": [
            f"{one['id']} (mended in {', '.join(one['fix_versions']) or 'no version'})"
            for one in package["vulns"]
            if one["id"] not in IGNORED
        ]
        for package in packages
        if "skip_reason" not in package
    }
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    return Audit({name: faults for name, faults in found.items() if faults}, unknown)


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the lock; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", default="pypi", choices=("pypi", "osv"), help="who is asked (default: pypi)")
    parser.add_argument("--lock", type=Path, default=LOCK, help="pinned requirements")
    arguments = parser.parse_args(argv)
    canary = audit(CANARY, arguments.service)
    if canary is None or not canary.advisories:
        print(
            f"error: no source of advisories answers: {CANARY}, known to be vulnerable, was not reported",
            file=sys.stderr,
        )
        print("  to mend it: run this where the service can be reached, or try --service osv", file=sys.stderr)
        return 2
    found = audit(arguments.lock.read_text(encoding="utf-8"), arguments.service)
    if found is None:
        print(f"error: no answer for {arguments.lock.name}", file=sys.stderr)
        return 2
    for package, faults in found.advisories.items():
        print(f"{package}: {', '.join(faults)}")
    if found.unknown:
        print(f"not known to the service: {', '.join(found.unknown)}")
    print(f"{arguments.lock.name}: {len(found.advisories)} packages with advisories")
    return 1 if found.advisories or found.unknown else 0


if __name__ == "__main__":
    sys.exit(main())

"""``plansmith diagnose``: every mistake in a domain and a problem, in one run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from plansmith.pddl.cases import diagnostic_row, read_text
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.diagnostics import MAX_DIAGNOSTICS


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "diagnose",
        help="list every mistake in a domain and a problem",
        epilog="exit code: 0 no errors (warnings at most); 1 errors; 2 a file that cannot be read.",
    )
    parser.add_argument("domain", type=Path, metavar="DOMAIN")
    parser.add_argument("problem", type=Path, nargs="?", metavar="PROBLEM")
    parser.add_argument("--json", action="store_true", help="a JSON list, one object for each mistake")
    parser.add_argument(
        "--reachability", action="store_true",
        help="also name goals that no plan reaches, and initial facts that may be lacking; needs files without errors",
    )  # fmt: skip
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the mistakes; return the exit code."""
    found = diagnose(
        read_text(arguments.domain),
        None if arguments.problem is None else read_text(arguments.problem),
        domain_source=str(arguments.domain),
        problem_source=str(arguments.problem),
        has_reachability=arguments.reachability,
    )
    n_errors = sum(diagnostic.is_error for diagnostic in found)
    if arguments.json:
        print(json.dumps([diagnostic_row(diagnostic) for diagnostic in found], indent=2))
    else:
        for diagnostic in found:
            print(diagnostic)
        if len(found) >= MAX_DIAGNOSTICS:
            print(f"of each file, {MAX_DIAGNOSTICS} errors and as many warnings are listed at most")
        print(f"{_counted(n_errors, 'error')}, {_counted(len(found) - n_errors, 'warning')}")
    return 1 if n_errors else 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

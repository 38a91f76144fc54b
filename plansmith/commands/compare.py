"""``plansmith compare``: whether two problems of a domain mean the same, and if not, what differs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from plansmith.commands.plan import KILL_FACTOR, KILL_GRACE_S
from plansmith.config.loading import build_model
from plansmith.config.planner import PlannerConfig
from plansmith.layout import printable
from plansmith.pddl.cases import read_text
from plansmith.pddl.equivalence import Comparison, compare_problems
from plansmith.pddl.goal_proofs import AskPlanner
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.planners import FastDownward
from plansmith.planners.goal_questions import goal_questions

MAX_LINES = 20
"""Differences, and pairs of a map, that are printed; ``--json`` has all."""

EPILOG = """\
identical: the same names, in any order. equivalent: the same with objects renamed, or goals that hold in the same
states, as Fast Downward proves. undecided: the search for a map or a proof met its limit.

exit code: 0 identical or equivalent; 1 different or undecided; 2 bad input.

examples:
  plansmith compare domain.pddl a.pddl b.pddl
  plansmith compare domain.pddl a.pddl b.pddl --time-limit 60 --json
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "compare",
        help="say whether two problems of a domain mean the same, and in what they differ",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("domain", type=Path, metavar="DOMAIN")
    parser.add_argument("first", type=Path, metavar="FIRST")
    parser.add_argument("second", type=Path, metavar="SECOND")
    parser.add_argument("--time-limit", type=float, default=5.0, metavar="S",
                        help="CPU seconds for each question about goals to Fast Downward (5)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the outcome as one JSON object")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the outcome; return the exit code."""
    domain = parse_domain(read_text(arguments.domain), source=str(arguments.domain))
    first, second = (parse_problem(read_text(p), domain, source=str(p)) for p in (arguments.first, arguments.second))
    with _asking(domain, _settings(arguments.time_limit)) as ask:
        comparison = compare_problems(domain, first, second, ask=ask)
    if arguments.json:
        print(json.dumps(to_row(comparison), indent=2))
    else:
        print(printable("\n".join(lines_of(comparison))))
    return 0 if comparison.is_same else 1


def _settings(time_limit_s: float) -> PlannerConfig:
    given = {"time_limit_s": time_limit_s, "kill_after_s": time_limit_s * KILL_FACTOR + KILL_GRACE_S}
    return build_model(PlannerConfig, given, where="the command line")


@contextlib.contextmanager
def _asking(domain: Domain, settings: PlannerConfig) -> Iterator[AskPlanner]:
    """Give a planner to ask, which is started with the first question."""
    with contextlib.ExitStack() as stack:
        started = functools.cache(lambda: goal_questions(stack.enter_context(FastDownward(settings)), domain))
        yield lambda problem: started()(problem)


def to_row(comparison: Comparison) -> dict[str, object]:
    """Return a comparison for JSON."""
    found = comparison.object_map
    return {
        "outcome": comparison.outcome.value,
        "reason": comparison.reason,
        "is_proven": comparison.is_proven,
        "object_map": None if found is None else dict(found),
        "differences": [dataclasses.asdict(difference) for difference in comparison.differences],
    }


def lines_of(comparison: Comparison) -> list[str]:
    """Return a comparison for people: the outcome, why, the map if names change, and what differs."""
    found = comparison.object_map or {}
    renamed = [f"{name} is {other}" for name, other in found.items() if name != other]
    differences = [str(difference) for difference in comparison.differences]
    head = f"{comparison.outcome}: {comparison.reason}"
    return [head, *(f"  {line}" for part in (renamed, differences) for line in _shortened(part))]


def _shortened(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return lines[:MAX_LINES] + more

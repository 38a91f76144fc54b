"""``plansmith plan``: solve one problem, or many with several planners side by side."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from plansmith.config.loading import build_model
from plansmith.config.planner import PlannerConfig
from plansmith.data.storage import atomic_file
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.planners import (
    DEFAULT_PLANNER,
    FastDownward,
    PlannerResult,
    PlannerStatus,
    diverse_plans,
    make_planner,
)
from plansmith.planners.batch import (
    PlanningCase,
    SolvedCase,
    asked_of,
    cases_of_folder,
    cases_of_lines,
    read_results,
    solve_cases,
    solve_task,
)
from plansmith.progress import progress_bar

KILL_FACTOR, KILL_GRACE_S = 1.5, 5.0
"""Wall-clock time beyond the CPU limit before a planner is killed: a busy machine is slow, not endless."""

WORDS = {
    PlannerStatus.UNSOLVABLE: "unsolvable: proven, there is no plan",
    PlannerStatus.GAVE_UP: "gave up: the search ended without a plan and without a proof",
    PlannerStatus.OUT_OF_TIME: "out of time",
    PlannerStatus.OUT_OF_MEMORY: "out of memory",
    PlannerStatus.UNSUPPORTED: "unsupported: the planner, or this search, does not know a feature of the problem",
    PlannerStatus.CRASHED: "crashed",
}
TELLING = {PlannerStatus.GAVE_UP, PlannerStatus.UNSUPPORTED, PlannerStatus.CRASHED}
"""Outcomes that the planner's own words explain."""

EPILOG = """\
exit code: 0 a plan was found; 1 none; 2 bad input. A batch ends with 0 when every problem has got its row.
Every plan is judged by our validator before it is printed or stored.

examples:
  plansmith plan domain.pddl problem.pddl
  plansmith plan domain.pddl problem.pddl --search first --k 5 --out plan.txt
  plansmith plan domain.pddl problem.pddl --planner up:fast-downward --json
  plansmith plan --batch problems/ --out results.jsonl --workers 2
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "plan",
        help="solve a problem, or many at once",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = PlannerConfig()
    parser.add_argument("domain", nargs="?", type=Path, metavar="DOMAIN")
    parser.add_argument("problem", nargs="?", type=Path, metavar="PROBLEM")
    parser.add_argument("--planner", default=DEFAULT_PLANNER, metavar="NAME",
                        help=f"{DEFAULT_PLANNER}, or up:ENGINE of unified-planning ({DEFAULT_PLANNER})")  # fmt: skip
    parser.add_argument(
        "--search",
        metavar="SEARCH",
        help=f"first, lama-first, good, optimal, or a search of Fast Downward ({defaults.search})",
    )
    parser.add_argument("--time-limit", type=float, default=defaults.time_limit_s, metavar="S",
                        help=f"CPU seconds a problem ({defaults.time_limit_s:g})")  # fmt: skip
    parser.add_argument("--memory-limit", type=int, default=defaults.memory_limit_mib, metavar="MIB",
                        help=f"of a planner's process ({defaults.memory_limit_mib})")  # fmt: skip
    parser.add_argument("--k", type=int, default=1, metavar="N", help="so many different plans, if there are (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the random searches of --k (0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the plan goes (FILE.1, FILE.2, ... with --k),"
                        " or the rows of a batch")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the outcome as one JSON object")
    parser.add_argument("--batch", type=Path, metavar="PATH",
                        help="a folder of problems, or JSON lines: {id, domain_path, problem_path}")  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="planners of a batch (1)")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Solve what the command line names; return the exit code."""
    settings = _settings(arguments)
    if arguments.batch is not None:
        return _run_batch(arguments, settings)
    if arguments.domain is None or arguments.problem is None:
        raise BadInputError("nothing to solve", expected="DOMAIN PROBLEM, or --batch PATH --out FILE",
                            cure="plansmith plan --help")  # fmt: skip
    if arguments.k < 1:
        raise ConfigError("no plans wanted", where="--k", got=str(arguments.k), expected="at least 1")
    if arguments.k > 1 and (arguments.planner != DEFAULT_PLANNER or arguments.search):
        raise ConfigError("several plans come from several searches of Fast Downward",
                          got=f"--k {arguments.k} with --planner or --search", cure="leave these out")  # fmt: skip
    if (out := arguments.out) is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        got = "a folder" if out.is_dir() else "no folder there"
        raise BadInputError("cannot write the plan", where=str(out), got=got, cure="change --out")
    results = _solve(arguments, settings)
    _print_results(results, arguments)
    return 0 if results[0].plan is not None else 1


def _settings(arguments: argparse.Namespace) -> PlannerConfig:
    if arguments.search is not None and arguments.planner != DEFAULT_PLANNER:
        raise ConfigError("engines of unified-planning have their own search", where="--search", got=arguments.search,
                          cure=f"leave it out, or use --planner {DEFAULT_PLANNER}")  # fmt: skip
    given = {
        "name": arguments.planner,
        "search": arguments.search or PlannerConfig().search,
        "time_limit_s": arguments.time_limit,
        "kill_after_s": arguments.time_limit * KILL_FACTOR + KILL_GRACE_S,
        "memory_limit_mib": arguments.memory_limit,
    }
    return build_model(PlannerConfig, given, where="the command line")


def _solve(arguments: argparse.Namespace, settings: PlannerConfig) -> list[PlannerResult]:
    """Return one result, or with ``--k`` one for every plan; without any plan, the reason."""
    domain_pddl, problem_pddl = read_text(arguments.domain), read_text(arguments.problem)
    domain = parse_domain(domain_pddl, source=str(arguments.domain))
    task = PlanningTask(domain, parse_problem(problem_pddl, domain, source=str(arguments.problem)))
    with make_planner(settings) as planner:
        if arguments.k > 1 and isinstance(planner, FastDownward):
            results = diverse_plans(planner, domain_pddl, problem_pddl, k=arguments.k, seed=arguments.seed)
            if results:
                return results
        return [solve_task(planner, task, domain_pddl, problem_pddl)]


def _print_results(results: Sequence[PlannerResult], arguments: argparse.Namespace) -> None:
    texts = [plan_text(result.plan, result.cost or 0.0) for result in results if result.plan is not None]
    if arguments.out is not None:
        _write_plans(texts, arguments.out, is_numbered=arguments.k > 1)
    if arguments.json:
        rows = [dataclasses.asdict(result) for result in results]
        print(json.dumps(rows[0] if arguments.k == 1 else {"plans": rows if texts else [], "n_plans": len(texts)}))
    elif arguments.out is None:
        print("\n".join(texts), end="")
    for result in results:
        print(summary(result), file=sys.stderr)
    if texts and len(texts) < arguments.k:
        print(f"{len(texts)} different plans; all searches have been tried", file=sys.stderr)


def plan_text(plan: Sequence[str], cost: float) -> str:
    """Return a plan as Fast Downward's plan files have it: an action a line, the cost at the end."""
    kind = "unit cost" if cost == len(plan) else "general cost"
    return "".join(f"{step}\n" for step in plan) + f"; cost = {cost:g} ({kind})\n"


def summary(result: PlannerResult) -> str:
    """Return the outcome in a line, with the planner's own words where there is no plan."""
    if result.plan is None:
        is_telling = result.status in TELLING and result.message.strip()
        words = f": {result.message.strip()}" if is_telling else ""
        return f"no plan, {WORDS[result.status]} after {result.wall_time_s:.2f} s{words}"
    kind = "an optimal plan" if result.is_optimal else "a plan"
    return f"{kind} of {len(result.plan)} steps, cost {result.cost:g}, in {result.wall_time_s:.3f} s"


def _write_plans(texts: Sequence[str], out: Path, *, is_numbered: bool) -> None:
    try:
        for number, text in enumerate(texts, 1):
            path = out.with_name(f"{out.name}.{number}") if is_numbered else out
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError("cannot write the plan", where=str(out), got=error.strerror) from error


def _run_batch(arguments: argparse.Namespace, settings: PlannerConfig) -> int:
    """Give every problem its row; rows that are already there are kept."""
    is_other = arguments.problem is not None or arguments.k != 1 or arguments.json
    if arguments.out is None or is_other or arguments.workers < 1:
        raise BadInputError("a batch needs --batch and --out, at least one worker, and neither PROBLEM, --k nor --json",
                            cure="plansmith plan --help")  # fmt: skip
    cases = _cases(arguments)
    is_default = settings.name == DEFAULT_PLANNER
    known = read_results(arguments.out, f"{settings.name} {settings.search}" if is_default else settings.name)
    asked = {case.id: asked_of(case, settings) for case in cases}
    rows = {case.id: known[case.id] for case in cases if case.id in known and known[case.id].asked == asked[case.id]}
    others = [row for row in known.values() if row.id not in asked]
    if rows:
        print(f"{len(rows)} of {len(cases)} problems have their row already", file=sys.stderr)
    if stale := len(known) - len(rows) - len(others):
        print(f"{stale} have a row of other texts or limits, and are solved again", file=sys.stderr)
    started, n_before = time.perf_counter(), len(rows)
    todo, kept = [case for case in cases if case.id not in rows], [*others, *rows.values()]
    for row in _solved(todo, kept, asked, arguments, settings):
        rows[row.id] = row
    elapsed_s = time.perf_counter() - started
    for line in batch_table(list(rows.values()), n_new=len(rows) - n_before, elapsed_s=elapsed_s):
        print(line)
    print(f"results: {arguments.out}")
    return 0


def _cases(arguments: argparse.Namespace) -> list[PlanningCase]:
    if arguments.batch.is_dir():
        return cases_of_folder(arguments.batch, arguments.domain)
    if arguments.domain is not None:
        raise BadInputError("JSON lines name their own domains", got=str(arguments.domain), cure="leave DOMAIN out")
    return cases_of_lines(read_text(arguments.batch), folder=arguments.batch.parent)


def _solved(
    todo: Sequence[PlanningCase],
    kept: Sequence[SolvedCase],
    asked: Mapping[str, str],
    arguments: argparse.Namespace,
    settings: PlannerConfig,
) -> Iterable[SolvedCase]:
    """Yield the rows to come; each is in the file, after those that are kept, before the next is waited for."""
    if not todo:
        return
    try:
        with atomic_file(arguments.out) as file:
            file.writelines(f"{row.to_json()}\n".encode() for row in kept)
        file = arguments.out.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInputError("cannot write the results", where=str(arguments.out), got=error.strerror) from error
    with (
        file,
        progress_bar(len(todo), "planning", unit="problem") as bar,
        contextlib.closing(solve_cases(todo, partial(make_planner, settings), n_workers=arguments.workers)) as rows,
    ):
        for found in rows:
            row = dataclasses.replace(found, asked=asked[found.id])
            file.write(row.to_json() + "\n")
            file.flush()
            bar.update()
            yield row


def batch_table(rows: Sequence[SolvedCase], *, n_new: int, elapsed_s: float) -> list[str]:
    """Return the lines of a batch's table: outcomes, plan lengths, speed."""
    counts = Counter(row.status for row in rows)
    lengths = [len(row.plan) for row in rows if row.plan is not None]
    lines = [f"{counts[PlannerStatus.SOLVED.value]:8d}  of {len(rows)} solved"]
    lines += [f"{count:8d}  {status}" for status, count in counts.most_common() if status != PlannerStatus.SOLVED]
    if lengths:
        lines.append(f"{statistics.median(lengths):8g}  steps a plan (median; {min(lengths)} to {max(lengths)})")
    if n_new:
        lines.append(f"{n_new / elapsed_s:8.1f}  problems a second")
    return lines

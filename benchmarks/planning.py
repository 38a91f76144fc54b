"""How long one plan takes: our warm planner, unified-planning and Fast Downward's driver script, in turns, one core.

All three run the same search binary with the same search. Ours is a warm worker process; unified-planning is as warm as
it gets, imported and reading the PDDL anew for each problem, its output silenced; the driver is a process a problem, as
one runs Fast Downward by hand. Problems are drawn small, so that what surrounds the search is what is measured; the
long ones ask whether a search of several seconds is as fast in our worker as it is by hand.

    python benchmarks/planning.py [--problems N] [--repeats N] [--no-long] [--domains NAME ...]

The table gives medians over problems of the median over repeats; the last line is one JSON object of ratios, above 1
where we are faster.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from plansmith.config.planner import PlannerConfig
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import FastDownward, PlannerResult
from plansmith.planners.fast_downward import find_search_binary
from plansmith.problems.library import domain_names, load_domain

DOMAINS = ("blocksworld", "logistics", "ferry", "miconic")
LEVEL = "L1"
SEARCH = "first"
DRIVER = find_search_binary().parents[3] / "fast-downward.py"
NO_LIMITS = {"time_limit_s": 3600.0, "kill_after_s": 7200.0, "memory_limit_mib": 16384}


@dataclass(frozen=True)
class Task:
    """One problem as text, and the search that it is solved with."""

    name: str
    domain: str
    problem: str
    settings: PlannerConfig


@dataclass(frozen=True)
class Times:
    """Seconds that each side took for one problem, the median over repeats; unified-planning for small ones only."""

    ours: float
    driver: float
    up: float | None = None


def small_tasks(domain_name: str, n_problems: int) -> list[Task]:
    """Return problems of the first level, the same in each run."""
    domain = load_domain(domain_name)
    text = print_domain(domain.domain)
    settings = PlannerConfig(search=SEARCH, **NO_LIMITS)
    problems = [domain.sample(LEVEL, random.Random(f"{domain_name} {number}")) for number in range(n_problems)]
    return [Task(domain_name, text, print_problem(problem), settings) for problem in problems]


def long_tasks() -> list[Task]:
    """Return problems whose search takes several seconds: a tower to be built anew, and cars for a ferry."""
    blind, lmcut = (PlannerConfig(search=f"astar({name}())", **NO_LIMITS) for name in ("blind", "lmcut"))
    blocksworld, ferry = (print_domain(load_domain(name).domain) for name in ("blocksworld", "ferry"))
    return [
        Task("blocksworld, 9 blocks, blind", blocksworld, tower_problem(9), blind),
        Task("ferry, 8 cars, blind", ferry, ferry_problem(8, 5), blind),
        Task("ferry, 12 cars, lmcut", ferry, ferry_problem(12, 6), lmcut),
    ]


def tower_problem(n_blocks: int) -> str:
    """Return one tower to be built from another one, the even blocks below the odd."""
    blocks = [f"b{number}" for number in range(n_blocks)]
    wanted = blocks[::2] + blocks[1::2]
    stacked = " ".join(f"(on {upper} {lower})" for lower, upper in pairwise(blocks))
    goal = " ".join(f"(on {upper} {lower})" for lower, upper in pairwise(wanted))
    return (
        f"(define (problem towers) (:domain blocksworld) (:objects {' '.join(blocks)})\n"
        f"  (:init (handempty) (ontable {blocks[0]}) (clear {blocks[-1]}) {stacked})\n  (:goal (and {goal})))\n"
    )


def ferry_problem(n_cars: int, n_places: int) -> str:
    """Return cars that all have to go to the next place but one."""
    cars = range(n_cars)
    places = " ".join(f"l{number}" for number in range(n_places))
    init = " ".join(f"(at c{car} l{car % n_places})" for car in cars)
    goal = " ".join(f"(at c{car} l{(car + 2) % n_places})" for car in cars)
    return (
        f"(define (problem cars) (:domain ferry) (:objects {' '.join(f'c{car}' for car in cars)} - car\n"
        f"    {places} - location)\n  (:init (empty-ferry) (at-ferry l0) {init})\n  (:goal (and {goal})))\n"
    )


class Driver:
    """Fast Downward's driver script as a process a problem, in a folder of its own."""

    def solve(self, task: Task) -> None:
        """Solve, and make sure that there is a plan."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "domain.pddl").write_text(task.domain, encoding="utf-8")
            (folder / "problem.pddl").write_text(task.problem, encoding="utf-8")
            command = [sys.executable, str(DRIVER), "domain.pddl", "problem.pddl", "--search"]
            command.append(task.settings.search_string)
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            if not (folder / "sas_plan").exists():
                raise RuntimeError(f"the driver found no plan: {task.name}")


class UnifiedPlanning:
    """unified-planning with its Fast Downward engine; the PDDL is read anew for each problem, as ours is."""

    def __init__(self) -> None:
        import unified_planning.shortcuts as up
        from unified_planning.io import PDDLReader

        up.get_environment().credits_stream = None
        self._planner, self._reader = up.OneshotPlanner, PDDLReader

    def solve(self, task: Task) -> None:
        """Solve, and make sure that there is a plan."""
        problem = self._reader().parse_problem_string(task.domain, task.problem)
        search = {"fast_downward_search_config": task.settings.search_string}
        with self._planner(name="fast-downward", params=search) as planner:
            if planner.solve(problem).plan is None:
                raise RuntimeError(f"unified-planning found no plan: {task.name}")


class Ours:
    """Our warm planner."""

    def __init__(self, planner: FastDownward) -> None:
        self._planner = planner

    def solve(self, task: Task) -> PlannerResult:
        """Solve, and make sure that there is a plan."""
        result = self._planner.solve_with(task.settings, task.domain, task.problem)
        if result.plan is None:
            raise RuntimeError(f"no plan: {task.name}: {result.status} {result.message}")
        return result


def seconds(solve: Callable[[Task], object], task: Task) -> float:
    """Return the time of one plan."""
    started = time.perf_counter()
    solve(task)
    return time.perf_counter() - started


def measure(task: Task, sides: Sequence[Callable[[Task], object]], *, n_repeats: int) -> Times:
    """Return the median time of each side over repeats in which they take turns, each first as often as the others."""
    taken: list[list[float]] = [[] for _ in sides]
    for repeat in range(n_repeats):
        for place in range(len(sides)):
            side = (place + repeat) % len(sides)
            taken[side].append(seconds(sides[side], task))
    return Times(*map(statistics.median, taken))


def measure_small(ours: Ours, arguments: argparse.Namespace) -> dict[str, list[Times]]:
    """Return the times of the small problems by domain, and print them."""
    driver, up = Driver(), UnifiedPlanning()
    times: dict[str, list[Times]] = {}
    print(f"{'small problems':30s} {'ours':>10s} {'UP':>10s} {'ratio':>7s} {'driver':>10s} {'ratio':>7s}")
    for name in arguments.domains:
        sides = (ours.solve, driver.solve, up.solve)
        tasks = small_tasks(name, arguments.problems)
        times[name] = [measure(task, sides, n_repeats=arguments.repeats) for task in tasks]
        own, by_driver, by_up = (
            statistics.median(getattr(t, x) for t in times[name]) for x in ("ours", "driver", "up")
        )
        print(
            f"{name:30s} {own * 1e3:7.2f} ms {by_up * 1e3:7.1f} ms {vs_up(times[name]):6.1f}x "
            f"{by_driver * 1e3:7.1f} ms {vs_driver(times[name]):6.1f}x",
            flush=True,
        )
    return times


def measure_long(ours: Ours, *, n_repeats: int) -> list[Times]:
    """Return the times of the long searches, and print them."""
    times = []
    print(f"\n{'long searches':30s} {'ours':>10s} {'driver':>10s} {'ratio':>7s}")
    for task in long_tasks():
        times.append(measure(task, (ours.solve, Driver().solve), n_repeats=n_repeats))
        last = times[-1]
        print(f"{task.name:30s} {last.ours:8.2f} s {last.driver:8.2f} s {vs_driver([last]):6.2f}x", flush=True)
    return times


def median(times: Sequence[Times], of: Callable[[Times], float]) -> float:
    """Return the median of a number over problems."""
    return statistics.median(map(of, times))


def vs_up(times: Sequence[Times]) -> float:
    """Return how often faster we are than unified-planning, the median over problems."""
    return median(times, lambda t: (t.up or 0.0) / t.ours)


def vs_driver(times: Sequence[Times]) -> float:
    """Return how often faster we are than the driver script, the median over problems."""
    return median(times, lambda t: t.driver / t.ours)


def main() -> None:
    """Print the tables and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [name for name in DOMAINS if name in domain_names()]
    parser.add_argument("--problems", type=int, default=20, help="small problems a domain (20)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of each problem, with the sides in turns (5)")
    parser.add_argument("--domains", nargs="+", default=known, help=f"of the small problems ({' '.join(known)})")
    parser.add_argument("--no-long", action="store_true", help="leave out the searches of several seconds")
    arguments = parser.parse_args()
    with FastDownward() as planner:
        ours = Ours(planner)
        small = measure_small(ours, arguments)
        long = measure_long(ours, n_repeats=arguments.repeats) if not arguments.no_long else []
    every = [one for group in small.values() for one in group]
    ratios = {
        "vs_up": round(vs_up(every), 2),
        "vs_driver": round(vs_driver(every), 2),
        "long_search_vs_driver": round(vs_driver(long), 3) if long else None,
        "vs_up_by_domain": {name: round(vs_up(times), 2) for name, times in small.items()},
        "vs_driver_by_domain": {name: round(vs_driver(times), 2) for name, times in small.items()},
    }
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()

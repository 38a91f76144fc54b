"""How long one verdict takes: ours, unified-planning's and, where it is at hand, VAL's, on the same plans in one run.

Cold is text in, verdict out: domain, problem and plan are read anew each time. Warm is a known problem and a plan text:
what judging the rollouts of one problem costs. A group is judged as it comes from a policy: the valid plan, and others
with a step dropped, swapped or repeated. unified-planning reads the plan text in both, as we do.

    python benchmarks/validation.py [--val PATH] [--rounds N]

The table gives medians over rounds in which the sides take turns; the last line is one JSON object with ratios, each
the median of the ratios of all rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from plansmith.pddl.cases import judge_cases, judge_texts, read_task
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.validation import Verdict, validate_plan_text

BLOCKSWORLD = Path(__file__).resolve().parent.parent / "datasets" / "domains" / "blocksworld" / "domain.pddl"

LOGISTICS = """(define (domain logistics)
  (:requirements :strips :typing)
  (:types truck airplane - vehicle package vehicle - thing airport - location city location thing - object)
  (:predicates (in-city ?l - location ?c - city) (at ?x - thing ?l - location) (in ?p - package ?v - vehicle))
  (:action load :parameters (?p - package ?v - vehicle ?l - location)
    :precondition (and (at ?v ?l) (at ?p ?l)) :effect (and (not (at ?p ?l)) (in ?p ?v)))
  (:action unload :parameters (?p - package ?v - vehicle ?l - location)
    :precondition (and (at ?v ?l) (in ?p ?v)) :effect (and (not (in ?p ?v)) (at ?p ?l)))
  (:action drive :parameters (?t - truck ?from ?to - location ?c - city)
    :precondition (and (at ?t ?from) (in-city ?from ?c) (in-city ?to ?c)) :effect (and (not (at ?t ?from)) (at ?t ?to)))
  (:action fly :parameters (?a - airplane ?from ?to - airport)
    :precondition (at ?a ?from) :effect (and (not (at ?a ?from)) (at ?a ?to))))
"""
LOGISTICS_PROBLEM = """(define (problem deliver) (:domain logistics)
  (:objects c1 c2 - city a1 a2 - airport l1 l2 - location t1 t2 - truck plane - airplane p1 p2 - package)
  (:init (in-city a1 c1) (in-city l1 c1) (in-city a2 c2) (in-city l2 c2) (at t1 l1) (at t2 a2) (at plane a2)
    (at p1 l1) (at p2 l2))
  (:goal (and (at p1 l2) (at p2 l1))))
"""
LOGISTICS_PLAN = [
    "(load p1 t1 l1)", "(drive t1 l1 a1 c1)", "(unload p1 t1 a1)", "(drive t2 a2 l2 c2)", "(load p2 t2 l2)",
    "(drive t2 l2 a2 c2)", "(unload p2 t2 a2)", "(load p2 plane a2)", "(fly plane a2 a1)", "(unload p2 plane a1)",
    "(load p1 plane a1)", "(fly plane a1 a2)", "(unload p1 plane a2)", "(load p2 t1 a1)", "(drive t1 a1 l1 c1)",
    "(unload p2 t1 l1)", "(load p1 t2 a2)", "(drive t2 a2 l2 c2)", "(unload p1 t2 l2)",
]  # fmt: skip

LIFT = """(define (domain lift)
  (:requirements :adl)
  (:types floor passenger - object)
  (:predicates (above ?f ?g - floor) (lift-at ?f - floor) (waits ?p - passenger ?f - floor)
    (wants ?p - passenger ?f - floor) (boarded ?p - passenger) (served ?p - passenger) (vip ?p - passenger))
  (:action move :parameters (?f ?g - floor)
    :precondition (and (lift-at ?f) (or (above ?f ?g) (above ?g ?f))
      (forall (?p - passenger) (imply (and (boarded ?p) (vip ?p)) (wants ?p ?g))))
    :effect (and (not (lift-at ?f)) (lift-at ?g)))
  (:action stop :parameters (?f - floor)
    :precondition (and (lift-at ?f)
      (exists (?p - passenger) (or (and (waits ?p ?f) (not (served ?p))) (and (boarded ?p) (wants ?p ?f)))))
    :effect (and
      (forall (?p - passenger) (when (and (waits ?p ?f) (not (served ?p)))
        (and (boarded ?p) (not (waits ?p ?f)))))
      (forall (?p - passenger) (when (and (boarded ?p) (wants ?p ?f)) (and (served ?p) (not (boarded ?p))))))))
"""
LIFT_PROBLEM = """(define (problem ride) (:domain lift)
  (:objects f1 f2 f3 f4 f5 - floor p1 p2 p3 p4 - passenger)
  (:init (above f1 f2) (above f1 f3) (above f1 f4) (above f1 f5) (above f2 f3) (above f2 f4) (above f2 f5)
    (above f3 f4) (above f3 f5) (above f4 f5) (lift-at f1) (waits p1 f1) (wants p1 f3) (waits p2 f1) (wants p2 f3)
    (waits p3 f3) (wants p3 f5) (waits p4 f5) (wants p4 f2) (vip p1))
  (:goal (forall (?p - passenger) (served ?p))))
"""
LIFT_PLAN = ["(stop f1)", "(move f1 f3)", "(stop f3)", "(move f3 f5)", "(stop f5)", "(move f5 f2)", "(stop f2)"]


@dataclass(frozen=True)
class Case:
    """One problem with a valid plan and the group of plans that is judged."""

    name: str
    domain: str
    problem: str
    plan: Sequence[str]

    @property
    def group(self) -> list[str]:
        """Return the valid plan and seven others, as text."""
        rng = random.Random(0)
        plans = [list(self.plan)]
        for number in range(7):
            steps, place = list(self.plan), rng.randrange(len(self.plan) - 1)
            if number % 3 == 0:
                del steps[place]
            elif number % 3 == 1:
                steps[place], steps[place + 1] = steps[place + 1], steps[place]
            else:
                steps.insert(place, steps[place])
            plans.append(steps)
        return ["\n".join(steps) + "\n" for steps in plans]


def tower(n_blocks: int, name: str) -> Case:
    """Return the case of stacking blocks that stand on the table: 2 (n - 1) steps."""
    blocks = [f"b{i}" for i in range(n_blocks)]
    init = " ".join(f"(ontable {b}) (clear {b})" for b in blocks)
    goal = " ".join(f"(on {upper} {lower})" for lower, upper in pairwise(blocks))
    problem = (
        f"(define (problem tower) (:domain blocksworld)\n  (:objects {' '.join(blocks)})\n"
        f"  (:init (handempty) {init})\n  (:goal (and {goal})))\n"
    )
    plan = [s for lower, upper in pairwise(blocks) for s in (
        f"(pick-up {upper})", f"(stack {upper} {lower})")]  # fmt: skip
    return Case(name, BLOCKSWORLD.read_text(encoding="utf-8"), problem, plan)


CASES = (
    tower(5, "blocksworld, 8 steps"),
    Case("logistics, 19 steps", LOGISTICS, LOGISTICS_PROBLEM, LOGISTICS_PLAN),
    tower(51, "blocksworld, 100 steps"),
    Case("lift (ADL), 7 steps", LIFT, LIFT_PROBLEM, LIFT_PLAN),
)


def seconds_per_plan(judge: Callable[[str], object], group: Sequence[str], *, at_least_s: float = 0.0) -> float:
    """Return the time of one verdict, over whole groups until at least so long has passed."""
    started, n_groups = time.perf_counter(), 0
    while n_groups == 0 or time.perf_counter() - started < at_least_s:
        for plan in group:
            judge(plan)
        n_groups += 1
    return (time.perf_counter() - started) / (n_groups * len(group))


class UnifiedPlanning:
    """unified-planning's reader and sequential plan validator."""

    def __init__(self) -> None:
        import unified_planning.shortcuts as up
        from unified_planning.engines import SequentialPlanValidator
        from unified_planning.io import PDDLReader

        up.get_environment().credits_stream = None
        self._reader, self._validator = PDDLReader, SequentialPlanValidator

    def read(self, case: Case) -> Any:
        """Return the problem."""
        return self._reader().parse_problem_string(case.domain, case.problem)

    def judge(self, problem: Any, plan: str) -> bool:
        """Return whether a plan text is valid."""
        parsed = self._reader().parse_plan_string(problem, plan)
        return bool(self._validator().validate(problem, parsed).status.name == "VALID")


class Val:
    """VAL's ``Validate`` as a process."""

    def __init__(self, path: str, case: Case, folder: Path) -> None:
        self.path, self.folder = path, folder
        (folder / "domain.pddl").write_text(case.domain, encoding="utf-8")
        (folder / "problem.pddl").write_text(case.problem, encoding="utf-8")

    def judge(self, plan: str) -> bool:
        """Return whether a plan text is valid."""
        (self.folder / "q.plan").write_text(plan, encoding="utf-8")
        command = [self.path, "domain.pddl", "problem.pddl", "q.plan"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return "Plan valid" in done.stdout


@dataclass(frozen=True)
class Round:
    """Seconds a plan, of every side, in one round of one case; None without VAL."""

    cold: float
    warm: float
    up_cold: float
    up_warm: float
    val: float | None


def measure(case: Case, up: UnifiedPlanning, val: Val | None, *, n_rounds: int) -> list[Round]:
    """Return the rounds of a case; first, that all sides agree on every plan of the group."""
    group = case.group
    task = read_task(case.domain, case.problem)
    assert isinstance(task, PlanningTask), task
    known = up.read(case)
    for plan in group:
        ours = validate_plan_text(task, plan).verdict is Verdict.VALID
        if up.judge(known, plan) != ours or (val is not None and val.judge(plan) != ours):
            raise SystemExit(f"{case.name}: the sides disagree on this plan, ours says {ours}:\n{plan}")
    rounds = []
    for _ in range(n_rounds):
        rounds.append(
            Round(
                cold=seconds_per_plan(lambda plan: judge_texts(case.domain, case.problem, plan), group, at_least_s=0.1),
                warm=seconds_per_plan(lambda plan: validate_plan_text(task, plan), group, at_least_s=0.1),
                up_cold=seconds_per_plan(lambda plan: up.judge(up.read(case), plan), group[:2]),
                up_warm=seconds_per_plan(lambda plan: up.judge(known, plan), group),
                val=None if val is None else seconds_per_plan(val.judge, group),
            )
        )
    return rounds


def measure_batch(folder: Path, *, n_rounds: int, n_cases: int) -> float:
    """Return the median speed-up of two workers over one on a file of cases."""
    rows = []
    for number, case in enumerate(CASES):
        (folder / f"d{number}.pddl").write_text(case.domain, encoding="utf-8")
        (folder / f"p{number}.pddl").write_text(case.problem, encoding="utf-8")
    for number in range(n_cases):
        place = number % len(CASES)
        plan = CASES[place].group[number // len(CASES) % 8]
        row = {"id": number, "domain_path": f"d{place}.pddl", "problem_path": f"p{place}.pddl", "plan": plan}
        rows.append(json.dumps(row))

    def seconds(n_workers: int) -> float:
        started = time.perf_counter()
        for _ in judge_cases(rows, folder=folder, n_workers=n_workers):
            pass
        return time.perf_counter() - started

    return statistics.median(seconds(1) / seconds(2) for _ in range(n_rounds))


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--val", metavar="PATH", help="VAL's Validate")
    parser.add_argument("--rounds", type=int, default=7, help="rounds a case (7)")
    parser.add_argument("--batch-cases", type=int, default=40_000, help="rows of the batch that two workers share")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    up = UnifiedPlanning()
    rounds: list[list[Round]] = []
    sides = f"{'cold':>10s} {'UP cold':>10s} {'ratio':>7s} {'warm':>10s} {'UP warm':>10s} {'ratio':>7s} {'VAL':>9s}"
    print(f"{'per plan':26s} {sides}")
    with tempfile.TemporaryDirectory() as name:
        for case in CASES:
            val = Val(arguments.val, case, Path(name)) if arguments.val else None
            rounds.append(measure(case, up, val, n_rounds=arguments.rounds))
            print_row(case.name, rounds[-1])
        batch = measure_batch(Path(name), n_rounds=max(1, arguments.rounds // 2), n_cases=arguments.batch_cases)
    everything = [one for group in rounds for one in group]
    has_val = arguments.val is not None
    print(f"{'batch, two workers':26s} {batch:9.2f}x one")
    print(
        json.dumps(
            {
                "cold_vs_up": ratio(everything, lambda r: r.up_cold / r.cold),
                "warm_vs_up": ratio(everything, lambda r: r.up_warm / r.warm),
                "warm_vs_val": ratio(everything, lambda r: (r.val or 0.0) / r.warm) if has_val else None,
                "cold_vs_val": ratio(everything, lambda r: (r.val or 0.0) / r.cold) if has_val else None,
                "batch_two_workers": round(batch, 2),
            }
        )
    )


def ratio(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    """Return the median of a ratio over rounds."""
    return round(statistics.median(map(of, rounds)), 1)


def print_row(name: str, rounds: Sequence[Round]) -> None:
    """Print the medians of one case."""
    cold, warm, up_cold, up_warm = (
        statistics.median(getattr(one, side) for one in rounds) for side in ("cold", "warm", "up_cold", "up_warm")
    )
    val = [one.val for one in rounds if one.val is not None]
    shown = f"{statistics.median(val) * 1e3:6.2f} ms" if val else "-"
    print(
        f"{name:26s} {cold * 1e3:7.2f} ms {up_cold * 1e3:7.2f} ms {ratio(rounds, lambda r: r.up_cold / r.cold):6.1f}x "
        f"{warm * 1e6:7.1f} us {up_warm * 1e3:7.2f} ms {ratio(rounds, lambda r: r.up_warm / r.warm):6.0f}x {shown:>9s}",
        flush=True,
    )


if __name__ == "__main__":
    main()

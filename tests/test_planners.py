"""Planner tests with the real Fast Downward; a missing one fails the run.

Costs are worked out by hand. Stand-in search programs are small shell scripts.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from actors.planner import PlannerActor
from plansmith.config.planner import PlannerConfig
from plansmith.data.held_out import MEASURING, HeldOut
from plansmith.data.rows import ProblemRow, Split
from plansmith.errors import ConfigError, PddlParseError, PlannerCrashError, PlansmithError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.planners import (
    FastDownward,
    PlannerResult,
    PlannerStatus,
    make_planner,
    status_from_exit_code,
)
from plansmith.planners.fast_downward import find_search_binary, parse_plan
from plansmith.problems.renaming import rename_problem

BLOCKSWORLD = """
(define (domain blocksworld)
  (:requirements :strips)
  (:predicates (on ?x ?y) (ontable ?x) (clear ?x) (handempty) (holding ?x))
  (:action pick-up :parameters (?x)
    :precondition (and (clear ?x) (ontable ?x) (handempty))
    :effect (and (not (ontable ?x)) (not (clear ?x)) (not (handempty)) (holding ?x)))
  (:action put-down :parameters (?x)
    :precondition (holding ?x)
    :effect (and (not (holding ?x)) (clear ?x) (handempty) (ontable ?x)))
  (:action stack :parameters (?x ?y)
    :precondition (and (holding ?x) (clear ?y))
    :effect (and (not (holding ?x)) (not (clear ?y)) (clear ?x) (handempty) (on ?x ?y)))
  (:action unstack :parameters (?x ?y)
    :precondition (and (on ?x ?y) (clear ?x) (handempty))
    :effect (and (holding ?x) (clear ?y) (not (clear ?x)) (not (handempty)) (not (on ?x ?y)))))
"""
SUSSMAN_INIT = "(ontable a) (ontable b) (on c a) (clear b) (clear c) (handempty)"


def blocks_problem(goal: str, *, init: str = SUSSMAN_INIT, objects: str = "a b c") -> str:
    return (
        f"(define (problem p) (:domain blocksworld) (:objects {objects})\n  (:init {init})\n  (:goal (and {goal})))\n"
    )


SUSSMAN = blocks_problem("(on a b) (on b c)")
UNSOLVABLE = blocks_problem("(on a b) (on b a)")


def one_tower(n_blocks: int) -> str:
    """Return blocks on the table to be built into one tower: from 14 on, too much for blind search in a second."""
    names = [f"b{number}" for number in range(n_blocks)]
    init = " ".join(f"(ontable {name}) (clear {name})" for name in names) + " (handempty)"
    order = names[::2] + names[1::2]
    goal = " ".join(f"(on {upper} {lower})" for upper, lower in itertools.pairwise(order))
    return blocks_problem(goal, init=init, objects=" ".join(names))


HARD = one_tower(24)


def counter_problem(n_bits: int) -> tuple[str, str]:
    """Return a binary counter to be counted to its end: 2**n_bits - 1 steps."""
    bits = range(n_bits)
    actions = " ".join(
        f"(:action set{i} :parameters () :precondition (and (not (bit{i})) "
        + " ".join(f"(bit{j})" for j in range(i))
        + f") :effect (and (bit{i}) "
        + " ".join(f"(not (bit{j}))" for j in range(i))
        + "))"
        for i in bits
    )
    predicates = " ".join(f"(bit{i})" for i in bits)
    requirements = "(:requirements :strips :negative-preconditions)"
    domain = f"(define (domain counter) {requirements} (:predicates {predicates}) {actions})"
    return domain, f"(define (problem p) (:domain counter) (:init) (:goal (and {predicates})))"


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    with FastDownward() as warm:
        yield warm


LONGER_AND_LONGER = (1.5, 5.0, 20.0, 80.0)
"""Wall-clock limits to be tried in turn, until a process has come to its turn before it is killed."""


def child_pids(pid: int) -> list[int]:
    """Return the living children of a process."""
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listing.stdout.split()]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_dead(pids: list[int]) -> bool:
    """Return whether all end; generous, since a busy machine may take its time."""
    for _ in range(6000):
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def write_script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


# outcomes


def test_solve_sussman_anomaly_returns_the_optimal_plan(planner: FastDownward) -> None:
    result = planner.solve(BLOCKSWORLD, SUSSMAN)
    # c must leave a (2 steps), then b on c (2) and a on b (2)
    assert (result.status, result.cost, result.is_optimal) == (PlannerStatus.SOLVED, 6.0, True)
    expected = "(unstack c a) (put-down c) (pick-up b) (stack b c) (pick-up a) (stack a b)"
    assert result.plan is not None
    assert " ".join(result.plan) == expected
    assert result.wall_time_s > 0


def test_solve_action_costs_returns_cheapest_not_shortest_plan(planner: FastDownward) -> None:
    domain = """(define (domain walk) (:requirements :strips :action-costs)
      (:predicates (at ?x) (road ?x ?y)) (:functions (length ?x ?y) - number (total-cost) - number)
      (:action go :parameters (?x ?y) :precondition (and (at ?x) (road ?x ?y))
        :effect (and (not (at ?x)) (at ?y) (increase (total-cost) (length ?x ?y)))))"""
    problem = """(define (problem p) (:domain walk) (:objects A B C)
      (:init (at A) (road A C) (road A B) (road B C) (= (length A C) 9) (= (length A B) 3) (= (length B C) 4)
             (= (total-cost) 0))
      (:goal (at C)) (:metric minimize (total-cost)))"""
    result = planner.solve(domain, problem)
    assert (result.plan, result.cost, result.is_optimal) == (("(go a b)", "(go b c)"), 7.0, True)


def test_solve_action_without_parameters_returns_bare_name(planner: FastDownward) -> None:
    domain, problem = counter_problem(2)
    assert planner.solve(domain, problem).plan == ("(set0)", "(set1)", "(set0)")


@pytest.mark.parametrize("search", ["first", "good"])
def test_solve_satisficing_search_returns_plan_not_marked_optimal(search: str) -> None:
    with FastDownward(PlannerConfig(search=search)) as planner:
        result = planner.solve(BLOCKSWORLD, SUSSMAN)
    assert result.status is PlannerStatus.SOLVED
    assert result.plan is not None
    assert result.cost == len(result.plan) >= 6
    assert not result.is_optimal


@pytest.mark.parametrize("search", ["optimal", "first", "good"])
def test_solve_contradictory_goal_returns_proven_unsolvable(search: str) -> None:
    with FastDownward(PlannerConfig(search=search)) as planner:
        result = planner.solve(BLOCKSWORLD, UNSOLVABLE)
    assert (result.status, result.plan, result.cost) == (PlannerStatus.UNSOLVABLE, None, None)


def test_solve_relaxed_unreachable_goal_returns_unsolvable_without_search(tmp_path: Path) -> None:
    never = write_script(tmp_path / "downward", "echo searched; exit 35")
    with FastDownward(search_binary=never) as planner:
        result = planner.solve(BLOCKSWORLD, blocks_problem("(holding a) (on b b)", init="(ontable a)"))
    assert result.status is PlannerStatus.UNSOLVABLE


def test_solve_incomplete_search_without_plan_is_not_called_unsolvable() -> None:
    with FastDownward(PlannerConfig(search="ehc(ff())")) as planner:
        result = planner.solve(BLOCKSWORLD, UNSOLVABLE)
    assert result.status is PlannerStatus.GAVE_UP
    assert "without finding a solution" in result.message


@pytest.mark.parametrize("goal", ["(on c a)", "", "(not (on a b))"], ids=["atom", "empty", "negative"])
def test_solve_goal_already_true_returns_empty_plan(planner: FastDownward, goal: str) -> None:
    domain = BLOCKSWORLD.replace(":strips", ":strips :negative-preconditions")
    result = planner.solve(domain, blocks_problem(goal))
    assert (result.status, result.plan, result.cost) == (PlannerStatus.SOLVED, (), 0.0)
    assert result.is_optimal


DERIVED = """(define (domain reach) (:requirements :strips :derived-predicates)
  (:predicates (edge ?x ?y) (path ?x ?y))
  (:derived (path ?x ?y) (or (edge ?x ?y) (exists (?z) (and (edge ?x ?z) (path ?z ?y)))))
  (:action link :parameters (?x ?y) :precondition (path ?x ?x) :effect (edge ?x ?y)))"""


def test_solve_negated_derived_goal_false_in_the_first_state_is_not_taken_for_true() -> None:
    domain = DERIVED.replace(":strips", ":strips :negative-preconditions")
    problem = "(define (problem p) (:domain reach) (:objects a b) (:init (edge a b)) (:goal (not (path a b))))"
    with FastDownward(PlannerConfig(search="astar(blind())")) as planner:
        result = planner.solve(domain, problem)
    assert result.status is PlannerStatus.UNSOLVABLE  # no action takes an edge away


@pytest.mark.parametrize(("init", "cost"), [("(edge a b) (edge b c)", 0.0), ("(edge a a) (edge b c)", 1.0)])
def test_solve_derived_goal_is_left_to_the_search(init: str, cost: float) -> None:
    problem = f"(define (problem p) (:domain reach) (:objects a b c) (:init {init}) (:goal (path a c)))"
    with FastDownward(PlannerConfig(search="astar(blind())")) as planner:
        result = planner.solve(DERIVED, problem)
    assert (result.status, result.cost) == (PlannerStatus.SOLVED, cost)


# bad input


def test_solve_missing_parenthesis_raises_parse_error_naming_the_domain(planner: FastDownward) -> None:
    with pytest.raises(PddlParseError, match=r"Missing '\)'") as caught:
        planner.solve(BLOCKSWORLD.rstrip()[:-1], SUSSMAN)
    assert caught.value.where == "domain"


def test_solve_unknown_object_raises_parse_error_naming_the_problem(planner: FastDownward) -> None:
    with pytest.raises(PddlParseError, match="Undefined object") as caught:
        planner.solve(BLOCKSWORLD, blocks_problem("(on a zebra)"))
    assert (caught.value.where, caught.value.got) == ("problem", "zebra")


def test_solve_unknown_requirement_raises_parse_error(planner: FastDownward) -> None:
    with pytest.raises(PddlParseError, match=":magic"):
        planner.solve(BLOCKSWORLD.replace(":strips", ":strips :magic"), SUSSMAN)


def test_solve_text_the_translator_trips_over_is_crashed_with_its_words(planner: FastDownward) -> None:
    result = planner.solve(BLOCKSWORLD.replace(":parameters (?x ?y)", ":parameters ((?x) ?y)"), SUSSMAN)
    assert result.status is PlannerStatus.CRASHED
    assert "Error: " in result.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (":strips", ":strips :durative-actions"),
        (":strips", ":strips :numeric-fluents"),
        ("(:action pick-up", "(:durative-action lift :parameters (?x)) (:action pick-up"),
        ("(clear ?x) (ontable ?x) (handempty)", "(clear ?x) (ontable ?x) (handempty) (>= (fuel) 1)"),
        (":effect (and (not (ontable ?x))", ":effect (and (increase (fuel) 1) (not (ontable ?x))"),
        (":effect (and (not (ontable ?x))", ":effect (and (decrease (fuel) 1) (not (ontable ?x))"),
    ],
    ids=["durative", "numeric", "durative-action", "comparison", "increase", "decrease"],
)
def test_solve_feature_beyond_the_translator_is_unsupported(planner: FastDownward, old: str, new: str) -> None:
    assert old in BLOCKSWORLD
    assert planner.solve(BLOCKSWORLD.replace(old, new), SUSSMAN).status is PlannerStatus.UNSUPPORTED


def test_solve_feature_beyond_the_search_is_unsupported(planner: FastDownward) -> None:
    problem = "(define (problem p) (:domain reach) (:objects a b c) (:init (edge a a)) (:goal (path a c)))"
    result = planner.solve(DERIVED, problem)  # lmcut knows no axioms
    assert result.status is PlannerStatus.UNSUPPORTED
    assert "axioms" in result.message


def test_solve_after_failures_of_every_kind_still_solves(planner: FastDownward) -> None:
    pid = planner.worker_pid
    planner.solve(BLOCKSWORLD.replace(":strips", ":strips :durative-actions"), SUSSMAN)
    planner.solve(BLOCKSWORLD.replace(":parameters (?x ?y)", ":parameters ((?x) ?y)"), SUSSMAN)
    with pytest.raises(PddlParseError):
        planner.solve("(", SUSSMAN)
    assert planner.solve(BLOCKSWORLD, SUSSMAN).cost == 6.0
    assert planner.worker_pid == pid  # the same warm process, not a new one


def test_solve_same_problem_in_two_workers_returns_same_plan() -> None:
    problem = one_tower(6)
    plans = []
    for _ in range(2):
        with FastDownward(PlannerConfig(search="first")) as planner:
            plans += [planner.solve(BLOCKSWORLD, problem).plan, planner.solve(BLOCKSWORLD, problem).plan]
    assert plans[0] is not None
    assert len(set(plans)) == 1


# limits


def test_solve_cpu_limit_returns_out_of_time_and_leaves_no_process() -> None:
    with FastDownward(PlannerConfig(search="astar(blind())", time_limit_s=0.5, kill_after_s=60.0)) as planner:
        result = planner.solve(BLOCKSWORLD, one_tower(14))
        assert planner.worker_pid is not None
        assert child_pids(planner.worker_pid) == []
        assert planner.solve(BLOCKSWORLD, SUSSMAN).cost == 6.0
    assert result.status is PlannerStatus.OUT_OF_TIME
    assert result.message == "stopped at 0.5 CPU seconds (time_limit_s)"


def test_solve_translation_beyond_cpu_limit_returns_out_of_time(tmp_path: Path) -> None:
    wide = "(:action mix :parameters (?a ?b ?c ?d ?e ?f) :precondition (and (clear ?a) (clear ?b)) :effect (on ?c ?d))"
    never = write_script(tmp_path / "downward", "exit 0")
    with FastDownward(PlannerConfig(time_limit_s=0.5, kill_after_s=60.0), search_binary=never) as planner:
        result = planner.solve(BLOCKSWORLD.replace("(:action pick-up", f"{wide} (:action pick-up"), HARD)
    assert result.status is PlannerStatus.OUT_OF_TIME


def test_solve_wall_limit_kills_the_whole_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    sleeper = write_script(tmp_path / "downward", f"sleep 600 & echo $! $$ > {pids}; wait")
    with FastDownward(search_binary=sleeper) as planner:
        for kill_after_s in LONGER_AND_LONGER:
            settings = PlannerConfig(time_limit_s=0.5, kill_after_s=kill_after_s)
            result = planner.solve_with(settings, BLOCKSWORLD, SUSSMAN)
            assert result.status is PlannerStatus.OUT_OF_TIME
            assert f"{kill_after_s} wall-clock seconds" in result.message
            if pids.exists():
                break
        family = [int(pid) for pid in pids.read_text().split()]
        assert len(family) == 2
        assert wait_until_dead(family)


def test_solve_search_that_leaves_a_process_behind_has_it_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    leaver = write_script(tmp_path / "downward", f"sleep 600 & echo $! > {pids}; exit 12")
    with FastDownward(search_binary=leaver) as planner:
        assert planner.solve(BLOCKSWORLD, SUSSMAN).status is PlannerStatus.GAVE_UP
    assert wait_until_dead([int(pids.read_text())])


def test_solve_memory_limit_in_search_returns_out_of_memory() -> None:
    with FastDownward(PlannerConfig(search="astar(blind())", memory_limit_mib=100)) as planner:
        result = planner.solve(BLOCKSWORLD, one_tower(14))
    assert result.status is PlannerStatus.OUT_OF_MEMORY
    assert "Memory limit has been reached" in result.message  # the search's words, not the translator's


def test_solve_memory_limit_in_translation_returns_out_of_memory(tmp_path: Path) -> None:
    wide = "(:action mix :parameters (?a ?b ?c ?d) :precondition (and (clear ?a) (clear ?b)) :effect (on ?c ?d))"
    never = write_script(tmp_path / "downward", "exit 0")
    with FastDownward(PlannerConfig(memory_limit_mib=64), search_binary=never) as planner:
        result = planner.solve(BLOCKSWORLD.replace("(:action pick-up", f"{wide} (:action pick-up"), HARD)
    assert result.status is PlannerStatus.OUT_OF_MEMORY


def test_solve_process_stuck_at_its_memory_limit_is_killed_as_out_of_memory(tmp_path: Path) -> None:
    hoarder = tmp_path / "downward"
    hoard = "import time\nhoard = []\ntry:\n    while True:\n        hoard.append(bytearray(2**16))"
    hoarder.write_text(f"#!{sys.executable} -S\n{hoard}\nexcept MemoryError:\n    time.sleep(600)\n")
    hoarder.chmod(0o755)
    with FastDownward(PlannerConfig(memory_limit_mib=100), search_binary=hoarder) as planner:
        result = planner.solve(BLOCKSWORLD, SUSSMAN)
    assert result.status is PlannerStatus.OUT_OF_MEMORY


def test_solve_anytime_search_out_of_time_keeps_its_best_plan_not_marked_optimal(tmp_path: Path) -> None:
    script = """printf '(b)\\n(b)\\n; cost = 9 (unit cost)\\n' > plan.1
printf '(a)\\n; cost = 4 (unit cost)\\n' > plan.2
printf '(half' > plan.3
kill -XCPU $$"""
    anytime = write_script(tmp_path / "downward", script)
    with FastDownward(search_binary=anytime) as planner:
        result = planner.solve(BLOCKSWORLD, SUSSMAN)
    assert (result.status, result.plan, result.cost) == (PlannerStatus.SOLVED, ("(a)",), 4.0)
    assert not result.is_optimal


def test_solve_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with FastDownward() as planner:
        planner.solve(BLOCKSWORLD, SUSSMAN)
        with pytest.raises(PddlParseError):
            planner.solve("(", SUSSMAN)
    assert list(tmp_path.iterdir()) == []


# the worker's life


def test_solve_worker_killed_between_calls_recovers() -> None:
    with FastDownward() as planner:
        assert planner.solve(BLOCKSWORLD, SUSSMAN).cost == 6.0
        killed = planner.worker_pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        assert wait_until_dead([killed])
        assert planner.solve(BLOCKSWORLD, SUSSMAN).cost == 6.0
        assert planner.worker_pid != killed


def test_solve_worker_dying_over_the_same_problem_twice_raises_crash_error(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    killer = write_script(tmp_path / "downward", f"echo $$ >> {pids}; kill -9 $PPID; exec sleep 600")
    with FastDownward(search_binary=killer) as planner, pytest.raises(PlannerCrashError, match="worker died"):
        planner.solve(BLOCKSWORLD, SUSSMAN)
    family = [int(pid) for pid in pids.read_text().split()]
    assert len(family) == 2
    assert wait_until_dead(family)


def test_close_ends_the_worker_and_may_be_repeated() -> None:
    planner = FastDownward()
    pid = planner.worker_pid
    planner.close()
    planner.close()
    assert pid is not None
    assert not is_alive(pid)
    assert planner.worker_pid is None


def test_close_while_a_thread_solves_ends_the_call_and_its_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    sleeper = write_script(tmp_path / "downward", f"echo $$ > {pids}.new; mv {pids}.new {pids}; exec sleep 600")
    planner = FastDownward(search_binary=sleeper)
    errors: list[PlannerCrashError] = []

    def solve() -> None:
        try:
            planner.solve(BLOCKSWORLD, SUSSMAN)
        except PlannerCrashError as error:
            errors.append(error)

    thread = threading.Thread(target=solve)
    thread.start()
    while not pids.exists() and thread.is_alive():
        time.sleep(0.05)
    planner.close()
    thread.join()
    assert ["closed" in str(error) for error in errors] == [True]
    assert wait_until_dead([int(pids.read_text())])


def test_solve_after_close_raises_crash_error() -> None:
    planner = FastDownward()
    planner.close()
    with pytest.raises(PlannerCrashError, match="closed"):
        planner.solve(BLOCKSWORLD, SUSSMAN)


@pytest.mark.parametrize("n_blocks", [3, 7])
def test_solve_warm_worker_returns_the_plan_of_a_fresh_translator(tmp_path: Path, n_blocks: int) -> None:
    settings, problem = PlannerConfig(search="first"), one_tower(n_blocks)
    with FastDownward(settings) as planner:
        warm = planner.solve(BLOCKSWORLD, problem)
    (tmp_path / "domain.pddl").write_text(BLOCKSWORLD)
    (tmp_path / "problem.pddl").write_text(problem)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    translate = [sys.executable, "-m", "fast_downward.translate", "domain.pddl", "problem.pddl"]
    subprocess.run(translate, cwd=tmp_path, env=environment, capture_output=True, check=True)
    search = [find_search_binary(), "--search", settings.search_string]
    with (tmp_path / "output.sas").open() as task:
        subprocess.run(search, cwd=tmp_path, stdin=task, capture_output=True, check=True)
    assert parse_plan((tmp_path / "sas_plan").read_text()) == (warm.plan, warm.cost)


def test_make_planner_default_is_fast_downward_with_its_search_in_the_name() -> None:
    with make_planner(PlannerConfig(search="first")) as planner:
        assert planner.name == "fast-downward first"
        assert planner.solve(BLOCKSWORLD, SUSSMAN).status is PlannerStatus.SOLVED


def test_solve_with_other_settings_leaves_the_planners_own(planner: FastDownward) -> None:
    assert not planner.solve_with(PlannerConfig(search="first"), BLOCKSWORLD, SUSSMAN).is_optimal
    assert planner.solve(BLOCKSWORLD, SUSSMAN).is_optimal


def test_worker_and_search_die_with_a_killed_owner(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    sleeper = write_script(tmp_path / "downward", f"echo $$ $PPID > {pids}.new; mv {pids}.new {pids}; sleep 600")
    program = (
        "import sys; from pathlib import Path; from plansmith.planners import FastDownward\n"
        "FastDownward(search_binary=Path(sys.argv[1])).solve(sys.argv[2], sys.argv[3])"
    )
    root = str(Path(__file__).parents[1])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(sleeper), BLOCKSWORLD, SUSSMAN],
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(scratch)},
    )
    while not pids.exists() and owner.poll() is None:
        time.sleep(0.05)
    owner.kill()
    owner.wait()
    assert wait_until_dead([int(pid) for pid in pids.read_text().split()])
    assert list(scratch.iterdir()) == []  # the worker tidies up before it ends


# exit codes, settings, rows


@pytest.mark.parametrize(
    ("exit_code", "status"),
    [
        (0, "solved"),
        (2, "solved"),
        (10, "unsolvable"),
        (11, "unsolvable"),
        (12, "gave_up"),
        (13, "gave_up"),
        (20, "out_of_memory"),
        (22, "out_of_memory"),
        (21, "out_of_time"),
        (23, "out_of_time"),
        (24, "out_of_time"),
        (-signal.SIGXCPU, "out_of_time"),
        (30, "crashed"),
        (32, "crashed"),
        (34, "unsupported"),
    ],
)
def test_status_from_exit_code_documented_returns_status(exit_code: int, status: str) -> None:
    assert status_from_exit_code(exit_code) == status


@pytest.mark.parametrize("exit_code", [99, 127, -signal.SIGSEGV, -signal.SIGKILL, 31, 33])
def test_status_from_exit_code_not_an_outcome_raises_crash_error(exit_code: int) -> None:
    with pytest.raises(PlannerCrashError, match=f"exit code {exit_code}"):
        status_from_exit_code(exit_code)


@pytest.mark.parametrize("ending", ["exit 77", "kill -SEGV $$"], ids=["code", "signal"])
def test_solve_unknown_ending_raises_crash_error_with_the_last_words(tmp_path: Path, ending: str) -> None:
    odd = write_script(tmp_path / "downward", f"echo famous last words; {ending}")
    with FastDownward(search_binary=odd) as planner, pytest.raises(PlannerCrashError, match="famous last words"):
        planner.solve(BLOCKSWORLD, SUSSMAN)


def test_solve_success_without_plan_raises_crash_error(tmp_path: Path) -> None:
    liar = write_script(tmp_path / "downward", "exit 0")
    with FastDownward(search_binary=liar) as planner, pytest.raises(PlannerCrashError, match="left no plan"):
        planner.solve(BLOCKSWORLD, SUSSMAN)


def test_solve_unknown_heuristic_raises_config_error() -> None:
    with (
        FastDownward(PlannerConfig(search="astar(crystal_ball())")) as planner,
        pytest.raises(ConfigError, match="crystal_ball"),
    ):
        planner.solve(BLOCKSWORLD, SUSSMAN)


@pytest.mark.parametrize(
    "values",
    [
        {"search": "fastest"},
        {"time_limit_s": 0.0},
        {"time_limit_s": 50.0, "kill_after_s": 50.0},
        {"memory_limit_mib": 1},
    ],
    ids=["search", "zero-time", "kill-too-early", "memory"],
)
def test_planner_config_out_of_bounds_raises(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        PlannerConfig.model_validate(values)


@pytest.mark.parametrize(
    ("search", "is_optimal"),
    [
        ("optimal", True),
        ("astar( lmcut() )", True),
        ("astar(ff())", False),
        ("astar(lmcut(),bound=9)", False),
        ("first", False),
    ],
)
def test_planner_settings_is_optimal_only_for_admissible_searches(search: str, is_optimal: bool) -> None:
    assert PlannerConfig(search=search).is_optimal is is_optimal


@pytest.mark.parametrize(
    ("status", "plan", "cost", "is_optimal"),
    [
        (PlannerStatus.SOLVED, None, None, False),
        (PlannerStatus.SOLVED, (), None, False),
        (PlannerStatus.UNSOLVABLE, (), None, False),
        (PlannerStatus.OUT_OF_TIME, None, 3.0, False),
        (PlannerStatus.UNSOLVABLE, None, None, True),
    ],
)
def test_planner_result_inconsistent_raises_value_error(
    status: PlannerStatus, plan: tuple[str, ...] | None, cost: float | None, is_optimal: bool
) -> None:
    with pytest.raises(ValueError, match=status.name):
        PlannerResult(status, plan, cost, 0.1, is_optimal=is_optimal)


@pytest.mark.parametrize(
    "result",
    [
        PlannerResult(PlannerStatus.SOLVED, ("(pick-up a)",), 1.0, 0.1, is_optimal=True),
        PlannerResult(PlannerStatus.OUT_OF_MEMORY, None, None, 0.1, message="full"),
    ],
)
def test_planner_result_pickle_round_trip_is_equal(result: PlannerResult) -> None:
    assert pickle.loads(pickle.dumps(result)) == result


def test_parse_plan_without_cost_line_returns_none() -> None:
    assert parse_plan("(pick-up a)\n(stack a") is None


def test_find_search_binary_is_installed_without_importing_it() -> None:
    # an interpreter of its own: in this one, another test's library may have imported the package
    script = (
        "import sys\n"
        "from plansmith.planners.fast_downward import find_search_binary\n"
        "print(find_search_binary().name)\n"
        "print([name for name in sys.modules if name.startswith(('up_fast_downward', 'fast_downward'))])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["downward", "[]"]


def test_translate_worker_alone_is_gpl_and_imports_nothing_of_ours() -> None:
    folder = Path(__file__).parents[1] / "plansmith" / "planners"
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    worker = texts.pop("translate_worker.py")
    assert worker.startswith("# SPDX-License-Identifier: GPL-3.0-or-later\n")
    assert "import plansmith" not in worker
    assert "from plansmith" not in worker
    assert not [name for name, text in texts.items() if "from fast_downward" in text or "import up_fast" in text]


# the actor


@pytest.fixture(scope="module")
def actor() -> Iterator[PlannerActor]:
    actor = PlannerActor(PlannerConfig())
    yield actor
    actor.close()


def problem_row(problem_id: str, problem_pddl: str = SUSSMAN, domain_pddl: str = BLOCKSWORLD) -> ProblemRow:
    return ProblemRow(problem_id, "", "blocksworld", "easy", "d1", 3, domain_pddl, problem_pddl, "test")


def test_planner_actor_batch_returns_a_row_for_each_problem(actor: PlannerActor) -> None:
    solved, unsolvable = actor([problem_row("s", SUSSMAN), problem_row("u", UNSOLVABLE)])
    assert (solved.problem_id, unsolvable.problem_id) == ("s", "u")
    assert solved.planner == unsolvable.planner == "fast-downward optimal"
    assert (solved.status, unsolvable.status) == ("solved", "unsolvable")
    assert solved.plan[0] == "(unstack c a)"
    assert unsolvable.plan == ()
    assert (solved.cost, unsolvable.cost) == (6.0, None)
    assert (solved.is_optimal, unsolvable.is_optimal) == (True, False)


def test_planner_actor_with_a_plan_that_is_not_valid_raises_error_naming_problem_and_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = PlannerResult(PlannerStatus.SOLVED, ("(pick-up a)",), 1.0, 0.1)
    wrong = SimpleNamespace(name="wrong", solve=lambda domain, problem: found)
    monkeypatch.setattr("actors.planner.make_planner", lambda config: wrong)
    with pytest.raises(PlansmithError, match="not valid for our validator") as caught:
        PlannerActor(PlannerConfig())([problem_row("p7")])
    assert (caught.value.where, caught.value.got) == ("p7", "(pick-up a)")


def test_planner_actor_asked_for_several_plans_keeps_its_own_first_and_adds_others(actor: PlannerActor) -> None:
    tower = one_tower(5)
    batch = [problem_row("t", tower), problem_row("u", UNSOLVABLE)]
    several = PlannerActor(PlannerConfig(n_plans=3))
    rows, alone = several(batch), actor(batch)
    several.close()
    assert [row.plan for row in rows] == [row.plan for row in alone]
    others = [item.plan for item in rows[0].alternatives]
    assert len(others) == 2
    assert len({tuple(sorted(plan)) for plan in (rows[0].plan, *others)}) == 3
    task = PlanningTask.from_text(BLOCKSWORLD, tower)
    assert all(validate_plan(task, [parse_step(step) for step in plan]).is_valid for plan in others)
    assert [row.alternatives for row in (rows[1], *alone)] == [(), (), ()]


@pytest.mark.parametrize("split", MEASURING)
def test_planner_actor_notes_after_how_many_steps_a_plan_passes_a_held_out_problem(split: Split) -> None:
    """The plan clears the table with its first two steps; there the held-out problem begins."""
    table = "(ontable a) (ontable b) (ontable c) (clear a) (clear b) (clear c) (handempty)"
    on_the_table = replace(problem_row("h", blocks_problem("(on a b) (on b c)", init=table)), split=split)
    task = PlanningTask.from_text(BLOCKSWORLD, on_the_table.problem_pddl)
    form = canonical_form(task.domain, rename_problem(task.problem, {"a": "z"}, random.Random(0)))
    held_out = HeldOut.of([replace(on_the_table, canonical_form=form)])
    batch = [problem_row("s"), problem_row("t", one_tower(3)), on_the_table, problem_row("u", UNSOLVABLE)]
    for known, expected in ((held_out, [2, 0, None, None]), (HeldOut(), [None] * 4)):
        actor = PlannerActor(PlannerConfig(), known)
        assert [row.held_out_after for row in actor(batch)] == expected
        actor.close()


def test_several_plans_of_another_planner_are_refused() -> None:
    with pytest.raises(ValueError, match="n_plans=2 needs name=fast-downward, got name=up:pyperplan"):
        PlannerConfig(name="up:pyperplan", n_plans=2)


def test_planner_actor_batch_with_bad_problem_raises_error_naming_it(actor: PlannerActor) -> None:
    with pytest.raises(PddlParseError, match="problem p7, domain"):
        actor([problem_row("p7", SUSSMAN, "(")])


def test_planner_actor_crash_over_one_problem_leaves_a_row_and_goes_on(
    actor: PlannerActor, caplog: pytest.LogCaptureFixture
) -> None:
    tripping = BLOCKSWORLD.replace(":parameters (?x ?y)", ":parameters ((?x) ?y)")
    logger = logging.getLogger("actors.planner")
    logger.addHandler(caplog.handler)  # a command run before may have set the logs apart
    rows = actor([problem_row("p1", SUSSMAN, tripping), problem_row("p2", SUSSMAN)])
    logger.removeHandler(caplog.handler)
    assert [(row.status, row.cost) for row in rows] == [("crashed", None), ("solved", 6.0)]
    assert "problem p1: the planner crashed" in caplog.text

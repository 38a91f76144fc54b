"""Engines of unified-planning as planners, with the real Fast Downward engine and small engines written for the tests.

The engines of ``ENGINES`` are looked up as ``module:Class``, so the worker has to find their module on its path.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.planner import PlannerActor
from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError, PddlParseError, PlannerCrashError
from plansmith.planners import PlannerStatus, UnifiedPlanningPlanner, make_planner
from plansmith.planners.up_planner import UP_STATUS
from tests.test_planners import (
    BLOCKSWORLD,
    HARD,
    LONGER_AND_LONGER,
    SUSSMAN,
    UNSOLVABLE,
    blocks_problem,
    is_alive,
    one_tower,
    problem_row,
    wait_until_dead,
)

ENGINES = '''
import os, subprocess, time
import unified_planning.shortcuts as up
from unified_planning.engines import Engine, PlanGenerationResult, PlanGenerationResultStatus as Status
from unified_planning.engines.mixins import OneshotPlannerMixin
from unified_planning.model import ProblemKind
from unified_planning.plans import ActionInstance, PartialOrderPlan, SequentialPlan


class Small(Engine, OneshotPlannerMixin):
    """Knows STRIPS; what it answers depends on its subclass."""

    def __init__(self):
        Engine.__init__(self)
        OneshotPlannerMixin.__init__(self)

    name = property(lambda self: type(self).__name__)
    supported_kind = staticmethod(lambda: ProblemKind({"ACTION_BASED", "FLAT_TYPING", "NEGATIVE_CONDITIONS"}))
    supports = classmethod(lambda cls, kind: kind <= cls.supported_kind())
    satisfies = staticmethod(lambda guarantee: True)

    def _solve(self, problem, heuristic=None, timeout=None, output_stream=None):
        print("an engine that talks")
        return self.answer(problem)

    def steps(self, problem, *wanted):
        return [
            ActionInstance(problem.action(name), tuple(up.ObjectExp(problem.object(item)) for item in items))
            for name, *items in wanted
        ]


class Order(Small):
    """c from a onto the table, then b onto c: the plan as a partial order."""

    def answer(self, problem):
        first, second, third, last = self.steps(
            problem, ("unstack", "c", "a"), ("put-down", "c"), ("pick-up", "b"), ("stack", "b", "c"))
        plan = PartialOrderPlan({last: [], third: [last], second: [third], first: [second]})
        return PlanGenerationResult(Status.SOLVED_OPTIMALLY, plan, self.name)


class Liar(Small):
    def answer(self, problem):
        plan = SequentialPlan(self.steps(problem, ("pick-up", "a")))
        return PlanGenerationResult(Status.SOLVED_OPTIMALLY, plan, self.name)


class Says(Small):
    """Answers with the status that stands in a file beside this one."""

    def answer(self, problem):
        with open(os.path.join(os.path.dirname(__file__), "said")) as file:
            status = Status[file.read()]
        plan = SequentialPlan([]) if status.name.startswith("SOLVED") else None
        return PlanGenerationResult(status, plan, self.name)


class Raises(Small):
    def answer(self, problem):
        raise RuntimeError("famous last words")


class Exits(Small):
    def answer(self, problem):
        print("famous last words", flush=True)
        os._exit(7)


class Hoards(Small):
    def answer(self, problem):
        bytearray(2**40)


class Acts(Small):
    """Does as the engine whose name stands in a file beside this one, so that one worker serves for many."""

    def answer(self, problem):
        with open(os.path.join(os.path.dirname(__file__), "act")) as file:
            return globals()[file.read()].answer(self, problem)


class Leaves(Small):
    """Hides two processes, one below the other, in sessions of their own; then answers, or sleeps, or spins."""

    def answer(self, problem):
        pids = os.environ["LEAVES_PIDS"]
        body = f"setsid sleep 600 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
        subprocess.Popen(["sh", "-c", body], start_new_session=True)
        while not os.path.exists(pids):
            time.sleep(0.01)
        then = os.environ["LEAVES_THEN"]
        while then == "spin":
            pass
        if then == "sleep":
            time.sleep(600)
        return PlanGenerationResult(Status.UNSOLVABLE_INCOMPLETELY, None, self.name)
'''


@pytest.fixture(autouse=True, scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put the engines where a worker finds them; return their folder."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "small_engines.py").write_text(ENGINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield folder


@pytest.fixture(scope="module")
def planner() -> Iterator[UnifiedPlanningPlanner]:
    with UnifiedPlanningPlanner("fast-downward-opt") as warm:
        yield warm


Acting = Callable[[str], UnifiedPlanningPlanner]


def small(name: str, settings: PlannerConfig | None = None) -> UnifiedPlanningPlanner:
    return UnifiedPlanningPlanner(f"small_engines:{name}", settings)


@pytest.fixture(scope="module")
def acting(engines: Path) -> Iterator[Acting]:
    """Return a function that makes one warm planner act as the small engine of a name, and returns it."""
    with small("Acts") as warm:

        def act_as(name: str) -> UnifiedPlanningPlanner:
            (engines / "act").write_text(name)
            return warm

        yield act_as


# outcomes


def test_solve_optimal_engine_returns_optimal_plan_with_the_names_of_the_pddl(planner: UnifiedPlanningPlanner) -> None:
    result = planner.solve(BLOCKSWORLD, SUSSMAN)
    expected = "(unstack c a) (put-down c) (pick-up b) (stack b c) (pick-up a) (stack a b)"
    assert result.plan is not None
    assert " ".join(result.plan) == expected
    assert (result.status, result.cost, result.is_optimal) == (PlannerStatus.SOLVED, 6.0, True)
    assert pickle.loads(pickle.dumps(result)) == result


def test_solve_names_with_dashes_capitals_and_keywords_come_back(planner: UnifiedPlanningPlanner) -> None:
    domain = """(define (domain my-walk) (:requirements :strips :typing) (:types the-place - object)
      (:predicates (is-at ?x - the-place) (Has-Road ?x ?y - the-place))
      (:action go-to :parameters (?x ?y - the-place) :precondition (and (is-at ?x) (has-road ?x ?y))
        :effect (and (not (is-at ?x)) (is-at ?y))))"""
    problem = """(define (problem p-1) (:domain my-walk) (:objects A-1 a_1 b-2 - the-place)
      (:init (is-at A-1) (has-road a-1 a_1) (has-road a_1 b-2)) (:goal (is-at b-2)))"""
    result = planner.solve(domain, problem)
    assert result.plan == ("(go-to a-1 a_1)", "(go-to a_1 b-2)")


def test_solve_action_costs_are_counted_by_our_validator(planner: UnifiedPlanningPlanner) -> None:
    domain = """(define (domain walk) (:requirements :strips :action-costs)
      (:predicates (at-place ?x) (road ?x ?y)) (:functions (len ?x ?y) - number (total-cost) - number)
      (:action go :parameters (?x ?y) :precondition (and (at-place ?x) (road ?x ?y))
        :effect (and (not (at-place ?x)) (at-place ?y) (increase (total-cost) (len ?x ?y)))))"""
    problem = """(define (problem p) (:domain walk) (:objects a b c)
      (:init (at-place a) (road a c) (road a b) (road b c) (= (len a c) 9) (= (len a b) 3) (= (len b c) 4)
             (= (total-cost) 0))
      (:goal (at-place c)) (:metric minimize (total-cost)))"""
    result = planner.solve(domain, problem)
    assert (result.plan, result.cost, result.is_optimal) == (("(go a b)", "(go b c)"), 7.0, True)


def test_solve_goal_already_true_returns_empty_plan(planner: UnifiedPlanningPlanner) -> None:
    result = planner.solve(BLOCKSWORLD, blocks_problem("(on c a)"))
    assert (result.plan, result.cost) == ((), 0.0)


def test_solve_contradictory_goal_is_proven_unsolvable(planner: UnifiedPlanningPlanner) -> None:
    result = planner.solve(BLOCKSWORLD, UNSOLVABLE)
    assert (result.status, result.plan) == (PlannerStatus.UNSOLVABLE, None)


def test_solve_satisficing_engine_is_not_marked_optimal() -> None:
    with make_planner(PlannerConfig(name="up:fast-downward")) as planner:
        result = planner.solve(BLOCKSWORLD, SUSSMAN)
    assert (result.status, result.is_optimal, planner.name) == (PlannerStatus.SOLVED, False, "up:fast-downward")


def test_solve_feature_beyond_the_engine_is_unsupported_and_named(planner: UnifiedPlanningPlanner) -> None:
    domain = BLOCKSWORLD.replace(":strips", ":adl").replace(
        "(handempty) (ontable ?x)))", "(handempty) (forall (?z) (when (clear ?z) (ontable ?z)))))"
    )
    assert domain.count("forall") == 1
    result = planner.solve(domain, SUSSMAN)
    assert result.status is PlannerStatus.UNSUPPORTED
    assert "CONDITIONAL_EFFECTS" in result.message


def test_solve_bad_pddl_raises_parse_error_and_the_planner_goes_on(planner: UnifiedPlanningPlanner) -> None:
    pid = planner.worker_pid
    with pytest.raises(PddlParseError):
        planner.solve("(", SUSSMAN)
    assert planner.solve(BLOCKSWORLD, SUSSMAN).cost == 6.0
    assert planner.worker_pid == pid


def test_solve_partial_order_plan_is_put_in_order_and_keeps_its_guarantee(acting: Acting) -> None:
    result = acting("Order").solve(BLOCKSWORLD, blocks_problem("(on b c)"))
    assert result.plan == ("(unstack c a)", "(put-down c)", "(pick-up b)", "(stack b c)")
    assert result.is_optimal


def test_solve_plan_that_is_not_valid_is_a_crash_whatever_the_engine_claims(acting: Acting) -> None:
    result = acting("Liar").solve(BLOCKSWORLD, SUSSMAN)
    assert (result.status, result.plan, result.is_optimal) == (PlannerStatus.CRASHED, None, False)
    assert "not valid" in result.message
    assert "(pick-up a)" in result.message


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("SOLVED_SATISFICING", "solved"),
        ("SOLVED_OPTIMALLY", "solved"),
        ("UNSOLVABLE_PROVEN", "unsolvable"),
        ("UNSOLVABLE_INCOMPLETELY", "gave_up"),
        ("TIMEOUT", "out_of_time"),
        ("MEMOUT", "out_of_memory"),
        ("INTERNAL_ERROR", "crashed"),
        ("UNSUPPORTED_PROBLEM", "unsupported"),
    ],
)
def test_solve_status_of_the_engine_becomes_ours(engines: Path, acting: Acting, said: str, status: str) -> None:
    (engines / "said").write_text(said)
    result = acting("Says").solve(BLOCKSWORLD, blocks_problem("(on c a)"))
    assert result.status == status
    assert result.is_optimal == (said == "SOLVED_OPTIMALLY")


def test_up_status_knows_every_status_of_unified_planning() -> None:
    from unified_planning.engines import PlanGenerationResultStatus

    assert set(UP_STATUS) == set(PlanGenerationResultStatus.__members__)


def test_solve_engine_that_raises_is_crashed_with_its_words(acting: Acting) -> None:
    result = acting("Raises").solve(BLOCKSWORLD, SUSSMAN)
    assert result.status is PlannerStatus.CRASHED
    assert "RuntimeError: famous last words" in result.message


def test_solve_engine_that_ends_its_process_raises_crash_error_with_its_words(acting: Acting) -> None:
    with pytest.raises(PlannerCrashError, match="famous last words"):
        acting("Exits").solve(BLOCKSWORLD, SUSSMAN)


@pytest.mark.parametrize("engine", ["zebra", "small_engines:Zebra", "no_such_module:Engine"])
def test_make_planner_unknown_engine_raises_config_error_naming_the_installed(engine: str) -> None:
    with pytest.raises(ConfigError, match="up:fast-downward, up:fast-downward-opt"):
        make_planner(PlannerConfig(name=f"up:{engine}"))


@pytest.mark.parametrize("name", ["zebra", "UP:fast-downward", ""])
def test_make_planner_unknown_name_raises_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match="fast-downward, or up:ENGINE"):
        make_planner(PlannerConfig(name=name))


# limits: engines hide processes in sessions of their own


@pytest.mark.parametrize(
    ("then", "status"),
    [("answer", PlannerStatus.GAVE_UP), ("sleep", PlannerStatus.OUT_OF_TIME), ("spin", PlannerStatus.OUT_OF_TIME)],
)
def test_solve_leaves_no_process_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, status: PlannerStatus
) -> None:
    monkeypatch.setenv("LEAVES_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("LEAVES_THEN", then)
    for kill_after_s in LONGER_AND_LONGER if then == "sleep" else (600.0,):
        with small("Leaves", PlannerConfig(time_limit_s=1.0, kill_after_s=kill_after_s)) as planner:
            result = planner.solve(BLOCKSWORLD, SUSSMAN)
            assert result.status is status
            assert ("CPU" in result.message, "wall-clock" in result.message) == (then == "spin", then == "sleep")
            if not (tmp_path / "pids").exists():
                continue
            family = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
            assert len(family) == 2
            assert not [pid for pid in family if is_alive(pid)]  # dead when the answer comes, not some time later
            return
    raise AssertionError("the engine never came to hide its processes")


def test_solve_endless_search_ends_at_the_time_limit_and_the_planner_goes_on() -> None:
    with UnifiedPlanningPlanner("fast-downward-opt", PlannerConfig(time_limit_s=3.0, kill_after_s=600.0)) as planner:
        result = planner.solve(BLOCKSWORLD, one_tower(40))
        assert result.wall_time_s < 600.0
        assert result.message in (
            "the engine stopped at 3.0 wall-clock seconds (time_limit_s)",
            "stopped at 3.0 CPU seconds (time_limit_s)",
        )
        assert downward_pids() == []
        costs = (planner.solve(BLOCKSWORLD, SUSSMAN).cost for _ in range(30))  # beside others it may take seconds, too
        assert 6.0 in costs
    assert result.status is PlannerStatus.OUT_OF_TIME


def downward_pids() -> list[int]:
    """Return the search processes that descend from this test's planner."""
    mark = f"PYTHONPATH={os.environ['PYTHONPATH']}".encode()
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if mark in _read(process / "environ") and b"astar(lmcut())" in _read(process / "cmdline")
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_solve_memory_limit_returns_out_of_memory(acting: Acting) -> None:
    assert acting("Hoards").solve(BLOCKSWORLD, SUSSMAN).status is PlannerStatus.OUT_OF_MEMORY


@pytest.mark.parametrize("how", ["kill-worker", "close"])
def test_solve_interrupted_raises_crash_error_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("LEAVES_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("LEAVES_THEN", "sleep")
    planner = small("Leaves", PlannerConfig(time_limit_s=100.0, kill_after_s=200.0))
    errors: list[BaseException] = []

    def solve() -> None:
        try:
            planner.solve(BLOCKSWORLD, HARD)
        except PlannerCrashError as error:
            errors.append(error)

    thread = threading.Thread(target=solve)
    thread.start()
    families = []
    for _ in range(2 if how == "kill-worker" else 1):  # the problem is given to a second worker before it is given up
        families += _when_written(tmp_path / "pids")
        (tmp_path / "pids").unlink()
        assert planner.worker_pid is not None
        if how == "close":
            planner.close()
        else:
            os.kill(planner.worker_pid, signal.SIGKILL)
    thread.join()
    assert wait_until_dead(families)
    assert [type(error) for error in errors] == [PlannerCrashError]
    planner.close()


def _when_written(path: Path) -> list[int]:
    for _ in range(6000):
        if path.exists():
            return [int(pid) for pid in path.read_text().split()]
        time.sleep(0.05)
    raise AssertionError("the engine did not start")


# the actor


def test_planner_actor_with_an_engine_names_it_in_the_rows_and_leaves_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    actor = PlannerActor(PlannerConfig(name="up:fast-downward-opt"))
    [row] = actor([problem_row("s")])
    actor.close()
    assert (row.planner, row.status, row.cost) == ("up:fast-downward-opt", "solved", 6.0)
    assert list(scratch.iterdir()) == []


def test_planner_actor_crash_over_one_problem_leaves_a_row_and_goes_on(tmp_path: Path) -> None:
    actor = PlannerActor(PlannerConfig(name="up:small_engines:Exits"))
    rows = actor([problem_row("a"), problem_row("b")])
    actor.close()
    assert [(row.status, row.plan) for row in rows] == [("crashed", ())] * 2

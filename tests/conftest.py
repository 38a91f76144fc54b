"""Small domains, tasks and plans that several test files share; tests import them from here by name."""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import gc
import io
import os
import random
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from plansmith.garbage import no_garbage
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, PlanStep, Problem
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem
from plansmith.pddl.simulation import applicable_actions
from plansmith.problems.samplers.blocksworld import BlocksworldSampler

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")  # the same examples every time, and no limit by the clock

USERS_OWN = ("PLANSMITH_", "RAY_ADDRESS", "RAY_AUTH", "WANDB_", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
"""How variables begin that a user has set for work of his own."""

LONG = (
    "test_nl_pddl_bench_run",
    "test_self_criteach_run",
    "test_workers",
    "test_pipeline",
    "test_generalization_gap_run",
    "test_trainer",
    "test_pipeline_models",
    "test_submission",
    "test_faults",
    "test_dataset",
    "test_serving",
    "test_policy",
    "test_up_planner",
    "test_mcp",
    "test_generation",
    "test_update_loop",
    "test_nl2plan_lessons",
    "test_nl2plan_command",
    "test_mapping",
    "test_grafana",
    "test_self_criteach",
    "test_nl2plan_run",
    "test_workbench_browser",
    "test_watch_browser",
)
"""Modules that start runs, Rays or engines, or wait for what takes its time, the longest first. They are begun first:
begun last, one of them keeps one process busy while the others have nothing left to do."""

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT.parent / "shared" / "reference"
"""Public PDDL and VAL's own verdicts; lies beside the repository and may be missing."""


LOST = pytest.StashKey[list[str]]()
"""What is known of each process of the tests that ended before its time."""


def pytest_configure(config: pytest.Config) -> None:
    """Let nothing reach the tests, and what they start, that only holds where they were started from."""
    config.stash[LOST] = []
    for variable in [name for name in os.environ if name.startswith(USERS_OWN)]:
        del os.environ[variable]
    # or every process of a run under test compiles the whole program anew
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # threads of torch that wait leave the cores to the other process of the tests, instead of turning round
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # DeepSpeed reads it once in a process, when it is imported; a run with `device: cuda` tested before would decide it
    os.environ["DS_ACCELERATOR"] = "cpu"
    # Ray starts its workers at niceness 15: a run under test would get a thirtieth of what tests beside it get, and
    # would stand still until they are done
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as Ray spells it
    # each Ray that a process starts after its first (2.60) leaves a thread that reports to OpenTelemetry for ever
    os.environ["RAY_enable_open_telemetry"] = "0"  # noqa: SIM112
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the modules without looking for garbage, a quarter of the time."""
    with no_garbage():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the long modules to the front; within a module, and among the others, the order stays."""
    places = {module: place for place, module in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


def pytest_collection_finish() -> None:
    """Keep what was collected out of the rounds of the garbage collector: trainers under test ask for whole ones."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _subnormal_numbers() -> Iterator[None]:
    """Undo what a trainer in the process of the tests does to its floating-point unit."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(autouse=True, scope="module")
def _last_words(pytestconfig: pytest.Config) -> Iterator[None]:
    """Let a process that dies of a signal say where it was, also after a Ray: its end takes all handlers away."""
    yield
    faulthandler.disable()
    faulthandler.enable(pytestconfig.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note how a process ended that was not told to: of what C++ or a signal ends, pytest says no more than that."""
    if error is not None:
        try:
            status = f"ended with {node.gateway._io.popen.wait(10)}"  # negative: by this signal
        except subprocess.TimeoutExpired:
            status = "runs, but has closed its pipe"
        node.config.stash[LOST].append(f"{node.gateway.id} {status}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[LOST]:
        terminalreporter.write_line(line)


@pytest.fixture
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send the classes of a test's file by value: a process of Ray that imported the file would import torch first."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
def running_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep one Ray, such as a run starts for itself, for all commands that a module gives in its own process."""
    from pipelines.run.ray_session import RaySession
    from plansmith.config.cluster import ClusterConfig

    with RaySession(SimpleNamespace(cluster=ClusterConfig()), tmp_path_factory.mktemp("ray")) as session:
        session.ray()
        yield


@dataclass(frozen=True)
class Said:
    """What a command answered in the process of the tests."""

    code: int
    stdout: str
    stderr: str


def give_command(main: Callable[[Sequence[str]], int], *words: object) -> Said:
    """Give a command in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in words])
    return Said(code, out.getvalue(), err.getvalue())


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module.

    Collecting garbage can let in another thread that parses as well, and CPython 3.11 counts the depth of both in one
    place: ``AST constructor recursion depth mismatch``.
    """
    with no_garbage():
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


NAMES = tuple("abcdefgh")

BLOCKS_TEXT = (ROOT / "datasets" / "domains" / "blocksworld" / "domain.pddl").read_text(encoding="utf-8")
BLOCKS = parse_domain(BLOCKS_TEXT, source="blocksworld.pddl")

DEPOT_TEXT = """(define (domain depot)
  (:requirements :strips :typing :equality :negative-preconditions)
  (:types truck car - vehicle vehicle place - object movable thing - object parcel - (either movable thing))
  (:constants hub - place)
  (:predicates (at ?v - vehicle ?p - place) (in ?x - parcel ?v - (either truck car)) (closed ?p - place) (done))
  (:action move
    :parameters (?v - vehicle ?from ?to - place)
    :precondition (and (at ?v ?from) (not (= ?from ?to)) (not (closed ?to)))
    :effect (and (at ?v ?to) (not (at ?v ?from))))
  (:action load
    :parameters (?x - parcel ?v - (either truck car))
    :precondition (not (in ?x ?v))
    :effect (in ?x ?v))
  (:action flip :parameters (?p - place) :precondition () :effect (and (closed ?p) (not (closed ?p))))
  (:action open :parameters (?p - place) :effect (not (closed ?p)))
  (:action finish :parameters () :precondition (= hub hub) :effect (and (done) (closed hub))))
"""
"""Every feature of the supported language beyond plain STRIPS."""

DEPOT_PROBLEM_TEXT = """(define (problem depot-1)
  (:domain depot)
  (:objects t1 - truck c1 - car l1 l2 - place k1 - parcel m - (either truck parcel) o1)
  (:init (at t1 l1) (at c1 hub) (closed l2))
  (:goal (and (at t1 hub) (not (closed l2)))))
"""


def depot_task() -> PlanningTask:
    """Return the typed task with constants, equality and negative conditions."""
    return PlanningTask.from_text(DEPOT_TEXT, DEPOT_PROBLEM_TEXT)


def blocks_task(init: str, goal: str, objects: str = "a b c") -> PlanningTask:
    """Return a Blocksworld task from the texts of its parts."""
    text = f"(define (problem p) (:domain blocksworld) (:objects {objects}) (:init {init}) (:goal (and {goal})))"
    return PlanningTask(BLOCKS, parse_problem(text, BLOCKS))


def sussman() -> PlanningTask:
    """Return Sussman's anomaly: c on a, and a, b on the table; wanted a on b on c."""
    return blocks_task("(on c a) (ontable a) (ontable b) (clear c) (clear b) (handempty)", "(on a b) (on b c)")


SUSSMAN_PLAN = parse_plan("(unstack c a) (put-down c) (pick-up b) (stack b c) (pick-up a) (stack a b)")


def atoms(text: str) -> tuple[Atom, ...]:
    """Return the atoms written as ``(p a) (q)``."""
    return tuple(Atom(step.name, step.arguments) for step in parse_plan(text))


def random_problem(n_blocks: int, seed: int) -> Problem:
    """Return the Blocksworld problem of a seed."""
    return BlocksworldSampler(n_blocks, NAMES).sample(random.Random(seed))


def blocks_problems(min_blocks: int = 2, max_blocks: int = 5) -> st.SearchStrategy[Problem]:
    """Return a strategy for random Blocksworld problems."""
    return st.builds(random_problem, st.integers(min_blocks, max_blocks), st.integers(0, 10**6))


def shortest_plan(task: PlanningTask) -> tuple[PlanStep, ...]:
    """Return a shortest plan by breadth-first search; for tasks of four blocks or fewer."""
    waiting: deque[tuple[int, tuple[PlanStep, ...]]] = deque([(task.initial_state, ())])
    seen = {task.initial_state}
    while waiting:
        state, plan = waiting.popleft()
        if task.is_goal(state):
            return plan
        for action in applicable_actions(task, state):
            following = action.apply(state)
            if following not in seen:
                seen.add(following)
                waiting.append((following, (*plan, action.step)))
    raise AssertionError("the task has no plan")


def print_plan(plan: Iterable[PlanStep]) -> str:
    """Return a plan as text, one step a line."""
    return "".join(f"{step}\n" for step in plan)


def random_walk(task: PlanningTask, length: int, rng: random.Random) -> tuple[PlanStep, ...]:
    """Return applicable steps from the initial state, fewer where no action applies."""
    state, plan = task.initial_state, list[PlanStep]()
    while len(plan) < length and (choices := applicable_actions(task, state)):
        action = rng.choice(choices)
        plan.append(action.step)
        state = action.apply(state)
    return tuple(plan)

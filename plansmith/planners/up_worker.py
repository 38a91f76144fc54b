"""Warm process with unified-planning: one engine, one forked child a problem; run as ``python -P up_worker.py ENGINE``.

ENGINE is a name that unified-planning knows, or ``module:Class`` of an engine that it does not. The first line out is
``{"is_ready": true}`` or ``{"engines": [...]}``, the names that would do. Then one JSON object a line in (``folder``,
``time_limit_s``, ``kill_after_s``, ``memory_limit_mib``), one a line out (``exit_code``, a negative signal number if a
signal ended the child, and ``killed_for``: null, "time" or "memory").

``folder`` holds ``domain.pddl`` and ``problem.pddl``; the child adds ``answer.json`` with ``status`` (the name of a
``PlanGenerationResultStatus``), ``plan`` and ``message``, keeps its temporary files there, and writes what it and the
engine print into ``log.txt``. Engines start processes in sessions of their own, out of reach of a process group: this
process adopts what its child leaves behind and kills whatever descends from it.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import unified_planning.shortcuts as up
from unified_planning.engines import PlanGenerationResult
from unified_planning.exceptions import UPException, UPNoSuitableEngineAvailableException
from unified_planning.io import PDDLReader
from unified_planning.plans import PlanKind

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PARENT_CHECK_S = 5.0
OUT_OF_TIME, OUT_OF_MEMORY = "time", "memory"
MESSAGE_LINES, MESSAGE_CHARACTERS = 8, 2000

READER_FEATURES = {"REAL_NUMBERS_IN_ACTIONS_COST", "UNDEFINED_INITIAL_NUMERIC"}
"""The PDDL reader takes every function for one of real numbers that may be undefined, whatever its values are."""


class ParentGoneError(Exception):
    """Nobody waits for the answer any more."""


def main() -> None:
    """Answer requests until standard input closes or the parent is gone."""
    parent_pid, libc = os.getppid(), ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    up.get_environment().credits_stream = None
    engine = known_engine(sys.argv[1])
    print(json.dumps({"is_ready": True} if engine else {"engines": planner_names()}), file=replies, flush=True)
    try:
        while engine and (request := read_request(parent_pid)):
            print(json.dumps(run_request(request, engine, libc)), file=replies, flush=True)
    except ParentGoneError:
        return
    finally:
        end_descendants()


def known_engine(name: str) -> str | None:
    """Return the name under which unified-planning knows the engine; None where there is no such planner."""
    module, _, class_name = name.partition(":")
    if class_name:
        try:
            up.get_environment().factory.add_engine(name, module, class_name)
        except (ImportError, AttributeError):
            return None
    return name if name in planner_names() else None


def planner_names() -> list[str]:
    """Return the names of the engines that turn a problem into a plan."""
    factory = up.get_environment().factory
    return sorted(name for name in factory.engines if factory.engine(name).is_oneshot_planner())


def read_request(parent_pid: int) -> dict[str, Any] | None:
    """Return the next request; None when the parent closed the pipe or died."""
    while not select.select([0], [], [], PARENT_CHECK_S)[0]:
        if os.getppid() != parent_pid:
            return None
    line = sys.stdin.buffer.readline()
    return dict(json.loads(line)) if line else None


def run_request(request: dict[str, Any], engine: str, libc: ctypes.CDLL) -> dict[str, Any]:
    """Return how the child of this request ended, with all its descendants."""
    worker_pid = os.getpid()
    child_pid = os.fork()
    if child_pid == 0:
        run_child(request, engine, libc, worker_pid)
    try:
        killed_for = watch_child(child_pid, request)
    except ParentGoneError:
        end_descendants()
        shutil.rmtree(request["folder"], ignore_errors=True)
        raise
    os.kill(child_pid, signal.SIGKILL)  # unreaped, it keeps its number whether it still runs or not
    _, wait_status = os.waitpid(child_pid, 0)
    end_descendants()
    return {"exit_code": os.waitstatus_to_exitcode(wait_status), "killed_for": killed_for}


def watch_child(child_pid: int, request: dict[str, Any]) -> str | None:
    """Return None when the child has ended, else the reason to kill it.

    Raises:
        ParentGoneError: input before the answer is no second request but the end of the pipe.
    """
    pidfd = os.pidfd_open(child_pid)
    try:
        ready, _, _ = select.select([pidfd, 0], [], [], request["kill_after_s"])
    finally:
        os.close(pidfd)
    if pidfd in ready:
        return None
    if ready:
        raise ParentGoneError
    return OUT_OF_MEMORY if is_at_memory_limit(child_pid, request["memory_limit_mib"]) else OUT_OF_TIME


def is_at_memory_limit(pid: int, memory_limit_mib: int) -> bool:
    """Return whether the address space is full; CPython may spin for ever when it has no room to raise the error."""
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return n_pages * resource.getpagesize() > (memory_limit_mib - 1) * 1024**2


def end_descendants() -> None:
    """Kill and reap everything below this process, to which the orphans among them come."""
    while has_children():
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(-1, 0)


def has_children() -> bool:
    """Return whether a child is left, after reaping those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    """Return the processes below this one, parents before their children."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def run_child(request: dict[str, Any], engine: str, libc: ctypes.CDLL, worker_pid: int) -> NoReturn:
    """Leave ``answer.json``; never return into the worker's loop."""
    exit_code = 1
    try:
        enter_cage(request, libc, worker_pid)
        answer = answer_or_explain(engine, request["time_limit_s"])
        Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")
        exit_code = 0
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happens; the text goes into the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def enter_cage(request: dict[str, Any], libc: ctypes.CDLL, worker_pid: int) -> None:
    """Give this process limits that its own processes inherit, a folder, and death with the worker."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:
        os._exit(1)
    folder = request["folder"]
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    whole_s = math.ceil(request["time_limit_s"]) + 1  # the engine is asked to stop first, by the wall clock
    resource.setrlimit(resource.RLIMIT_CPU, (whole_s, whole_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    set_memory_limit(request["memory_limit_mib"] * 1024**2)


def set_memory_limit(n_bytes: int | None) -> None:
    """Limit the address space; None for as much as there may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard if n_bytes is None else n_bytes, hard))


def answer_or_explain(engine: str, time_limit_s: float) -> dict[str, Any]:
    """Return `answer_of`, or what went wrong in the words of the error."""
    try:
        return answer_of(engine, time_limit_s)
    except MemoryError:
        set_memory_limit(None)
        return {"status": "MEMOUT", "plan": None, "message": "the memory limit has been reached"}
    except Exception as error:  # noqa: BLE001 - whatever an engine trips over is its own failure, quoted
        set_memory_limit(None)
        traceback.print_exc()
        return {"status": "INTERNAL_ERROR", "plan": None, "message": f"{type(error).__name__}: {error}"}


def answer_of(engine: str, time_limit_s: float) -> dict[str, Any]:
    """Return the engine's answer to the problem in this folder."""
    try:
        problem = PDDLReader().parse_problem("domain.pddl", "problem.pddl")
    except (UPException, NotImplementedError, SyntaxError, AssertionError, KeyError) as error:
        return unsupported(f"unified-planning cannot read the problem: {type(error).__name__}: {error}")
    try:
        planner = up.OneshotPlanner(name=engine)
    except UPNoSuitableEngineAvailableException as error:
        return unsupported(str(error))
    with planner:
        minimise_length_where_possible(problem, planner)
        if missing := missing_features(problem, planner):
            return unsupported(f"{engine} does not support this kind of problem: {', '.join(missing)}")
        planner.skip_checks = True
        result = planner.solve(problem, timeout=time_limit_s)
    plan = None if result.plan is None else steps_of(result.plan, problem)
    return {"status": result.status.name, "plan": plan, "message": message_of(result)}


def minimise_length_where_possible(problem: Any, planner: Any) -> None:
    """Say that a problem without a metric wants few actions, if the planner knows that wish; else change nothing."""
    if problem.quality_metrics:
        return
    problem.add_quality_metric(up.MinimizeSequentialPlanLength())
    if not planner.supports(problem.kind):
        problem.clear_quality_metrics()


def unsupported(message: str) -> dict[str, Any]:
    """Return the answer for a problem beyond the engine's reach."""
    return {"status": "UNSUPPORTED_PROBLEM", "plan": None, "message": message}


def missing_features(problem: Any, planner: Any) -> list[str]:
    """Return what the problem has and the planner lacks, without what is there only by the way PDDL is read."""
    if planner.supports(problem.kind):
        return []
    missing = problem.kind.features - planner.supported_kind().features
    return sorted(missing - READER_FEATURES) if missing else ["no reason given"]


def steps_of(plan: Any, problem: Any) -> list[str]:
    """Return the ground actions of a plan in an order in which they can be executed."""
    if plan.kind is not PlanKind.SEQUENTIAL_PLAN:
        plan = plan.convert_to(PlanKind.SEQUENTIAL_PLAN, problem)
    return [f"({' '.join([step.action.name, *map(str, step.actual_parameters)])})".lower() for step in plan.actions]


def message_of(result: PlanGenerationResult) -> str:
    """Return the last lines that the engine logged."""
    lines = [line for log in result.log_messages or [] for line in log.message.splitlines() if line.strip()]
    return "\n".join(lines[-MESSAGE_LINES:])[-MESSAGE_CHARACTERS:]


if __name__ == "__main__":
    main()

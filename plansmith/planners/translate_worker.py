# SPDX-License-Identifier: GPL-3.0-or-later
"""Warm Fast Downward process: translates and searches, one forked child a problem.

This file alone is GPL, because it imports Fast Downward's translator. It is run as a program (``python -P
translate_worker.py SEARCH_BINARY``), imports nothing of ours, and is spoken to over a pipe: one JSON object a line in
(``folder``, ``search``, ``time_limit_s``, ``kill_after_s``, ``memory_limit_mib``), one a line out (``exit_code``, a
negative signal number if a signal ended the child, and ``killed_for``: null, "time" at the wall-clock limit, "memory").

``folder`` holds ``domain.pddl`` and ``problem.pddl``; the child adds ``output.sas``, the translation, ``plan`` (or
``plan.1``, ``plan.2``, ...), ``log.txt`` and, when the translator refuses the input, ``error.txt``. A folder that has a
translation is not translated again. The child translates and then *becomes* the
search binary, so that one CPU limit counts both, one process group holds everything, and the translator's module-level
state is fresh for each problem. Exit codes are Fast Downward's own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from fast_downward.translate import main as translate_main
from fast_downward.translate import normalize, options, pddl, pddl_parser

SUCCESS, TRANSLATE_UNSOLVABLE, TRANSLATE_OUT_OF_MEMORY = 0, 10, 20
TRANSLATE_CRITICAL_ERROR, TRANSLATE_INPUT_ERROR = 30, 31
PR_SET_PDEATHSIG = 1
PARENT_CHECK_S = 5.0
TICK_S, TICKS_AT_MEMORY_LIMIT = 0.5, 3
TRANSLATION = "output.sas"
OUT_OF_TIME, OUT_OF_MEMORY, ORPHANED = "time", "memory", "orphaned"

WARM_UP_ROUNDS = 10
"""More than CPython needs to specialise the byte code of the translator's inner loops."""
WARM_UP_DOMAIN = """(define (domain errand) (:requirements :strips :typing)
  (:types thing place - object) (:constants here - place)
  (:predicates (at ?t - thing ?p - place) (held ?t - thing) (free) (road ?p ?q - place) (me ?p - place))
  (:action walk :parameters (?p ?q - place) :precondition (and (me ?p) (road ?p ?q))
    :effect (and (not (me ?p)) (me ?q)))
  (:action take :parameters (?t - thing ?p - place) :precondition (and (me ?p) (at ?t ?p) (free))
    :effect (and (not (at ?t ?p)) (not (free)) (held ?t)))
  (:action drop :parameters (?t - thing ?p - place) :precondition (and (me ?p) (held ?t))
    :effect (and (not (held ?t)) (free) (at ?t ?p))))
"""
WARM_UP_PROBLEM = """(define (problem bring) (:domain errand) (:objects t1 t2 - thing there - place)
  (:init (me here) (free) (at t1 there) (at t2 here) (road here there) (road there here))
  (:goal (and (at t1 here) (at t2 there))))
"""


def main() -> None:
    """Answer requests until standard input closes or the parent is gone."""
    search_binary, parent_pid = sys.argv[1], os.getppid()
    libc = ctypes.CDLL(None)
    replies = os.fdopen(os.dup(1), "w")
    warm_up()
    gc.disable()  # a child is too short-lived to make garbage in cycles that is worth a search
    gc.freeze()  # keep forked children from copying pages that only the collector touches
    print(json.dumps({"is_ready": True}), file=replies, flush=True)
    while request := read_request(parent_pid):
        print(json.dumps(run_request(request, search_binary, libc)), file=replies, flush=True)


def warm_up() -> None:
    """Translate a small problem a few times, for children inherit byte code that CPython has specialised.

    Nothing of it stays in the translator's state: the options, the same for every problem, are meant to, and save each
    child an argument parser.
    """
    options.set_options(["domain.pddl", "problem.pddl", "--sas-file", TRANSLATION])
    old_folder, old_stdout = Path.cwd(), os.dup(1)
    with tempfile.TemporaryDirectory(prefix="plansmith-planner-") as folder, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.chdir(folder)
        write_text("domain.pddl", WARM_UP_DOMAIN)
        write_text("problem.pddl", WARM_UP_PROBLEM)
        for _ in range(WARM_UP_ROUNDS):
            translate()
        sys.stdout.flush()
        os.chdir(old_folder)
    os.dup2(old_stdout, 1)
    os.close(old_stdout)


def read_request(parent_pid: int) -> dict[str, Any] | None:
    """Return the next request; None when the parent closed the pipe or died.

    A fork of the parent may still hold the pipe open after its death, hence the second check.
    """
    while not select.select([0], [], [], PARENT_CHECK_S)[0]:
        if os.getppid() != parent_pid:
            return None
    line = sys.stdin.buffer.readline()
    return dict(json.loads(line)) if line else None


def run_request(request: dict[str, Any], search_binary: str, libc: ctypes.CDLL) -> dict[str, Any]:
    """Return how the child of this request ended, its whole process group with it."""
    worker_pid = os.getpid()
    child_pid = os.fork()
    if child_pid == 0:
        run_child(request, search_binary, libc, worker_pid)
    killed_for = watch_child(child_pid, request)
    kill_group(child_pid)
    _, wait_status = os.waitpid(child_pid, 0)
    if killed_for == ORPHANED:
        shutil.rmtree(request["folder"], ignore_errors=True)
        sys.exit(0)
    return {"exit_code": os.waitstatus_to_exitcode(wait_status), "killed_for": killed_for}


def watch_child(child_pid: int, request: dict[str, Any]) -> str | None:
    """Return None when the child has ended, else the reason to kill it.

    A child that stays at its memory limit is killed too: CPython 3.11 spins for ever if memory is so short that an
    exception cannot be unwound (``exception_unwind`` in ceval.c allocates an integer and, failing, starts again).
    """
    deadline_s, ticks_at_limit = time.monotonic() + request["kill_after_s"], 0
    pidfd = os.pidfd_open(child_pid)
    try:
        while (left_s := deadline_s - time.monotonic()) > 0:
            ready, _, _ = select.select([pidfd, 0], [], [], min(left_s, TICK_S))
            if ready:  # nobody sends a second request before the answer: input means that the parent is gone
                return None if pidfd in ready else ORPHANED
            ticks_at_limit = ticks_at_limit + 1 if is_at_memory_limit(child_pid, request) else 0
            if ticks_at_limit == TICKS_AT_MEMORY_LIMIT:
                return OUT_OF_MEMORY
        return OUT_OF_TIME
    finally:
        os.close(pidfd)


def is_at_memory_limit(child_pid: int, request: dict[str, Any]) -> bool:
    """Return whether the child's address space has no room for another megabyte, Python's unit of growth."""
    n_pages = int(Path(f"/proc/{child_pid}/statm").read_text().split()[0])
    return bool(n_pages * resource.getpagesize() > (request["memory_limit_mib"] - 1) * 1024**2)


def kill_group(child_pid: int) -> None:
    """Kill what is left of the child's process group; the unreaped child keeps the group's number from being reused."""
    try:
        os.killpg(child_pid, signal.SIGKILL)
    except ProcessLookupError:  # the child has not come to setpgid yet
        os.kill(child_pid, signal.SIGKILL)


def run_child(request: dict[str, Any], search_binary: str, libc: ctypes.CDLL, worker_pid: int) -> NoReturn:
    """Translate, then become the search binary; never return into the worker's loop."""
    exit_code = TRANSLATE_CRITICAL_ERROR
    try:
        enter_cage(request, libc, worker_pid)
        settled = None if Path(TRANSLATION).exists() else translate_or_explain()
        if settled is None:
            search = [search_binary, "--search", request["search"], "--internal-plan-file", "plan"]
            os.dup2(os.open(TRANSLATION, os.O_RDONLY), 0)
            sys.stdout.flush()
            os.execv(search_binary, search)
        exit_code = settled
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happens; the text goes into the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(exit_code)


def enter_cage(request: dict[str, Any], libc: ctypes.CDLL, worker_pid: int) -> None:
    """Give this process a group of its own, limits that outlive ``exec``, and death with the worker."""
    os.setpgid(0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:
        os._exit(TRANSLATE_CRITICAL_ERROR)
    os.chdir(request["folder"])
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    memory_bytes = int(request["memory_limit_mib"] * 1024**2)
    _, hard_bytes = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # RLIMIT_CPU counts whole seconds: the timer is the limit, the resource limit its safety net.
    whole_s = math.ceil(request["time_limit_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole_s, whole_s + 1))
    signal.setitimer(signal.ITIMER_PROF, request["time_limit_s"])


def translate_or_explain() -> int | None:
    """Return `translate`'s answer, or the exit code of its failure with the reason in ``error.txt``."""
    try:
        return translate()
    except (pddl_parser.ParseError, SystemExit) as error:
        write_text("error.txt", str(error))
        return TRANSLATE_INPUT_ERROR
    except Exception as error:  # noqa: BLE001 - whatever it trips over is its own failure, quoted, never "unsolvable"
        lift_memory_limit()
        if has_memory_error(error):
            return TRANSLATE_OUT_OF_MEMORY
        write_text("error.txt", f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return TRANSLATE_CRITICAL_ERROR


def lift_memory_limit() -> None:
    """Make room for reporting a failure."""
    _, hard_bytes = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard_bytes, hard_bytes))


def has_memory_error(error: BaseException | None) -> bool:
    """Return whether memory ran out somewhere below this error, which may have been raised on the way out."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


def translate() -> int | None:
    """Write the translation and return None; an exit code instead if no search is needed.

    A goal that already holds has the empty plan; without operators and axioms any other goal is out of reach, which is
    also how the translator writes down every problem that it proves unsolvable.
    """
    task = pddl_parser.open("domain.pddl", "problem.pddl")
    if isinstance(task.goal, pddl.Truth):  # the translator would make an axiom of it, which most searches refuse
        return write_empty_plan()
    normalize.normalize(task)
    sas_task = translate_main.pddl_to_sas(task)
    if has_true_goal(sas_task):
        return write_empty_plan()
    if not sas_task.operators and not sas_task.axioms:
        return TRANSLATE_UNSOLVABLE
    with Path(f"{TRANSLATION}.part").open("w") as sas_file:
        sas_task.output(sas_file)
    Path(f"{TRANSLATION}.part").rename(TRANSLATION)
    return None


def has_true_goal(sas_task: Any) -> bool:
    """Return whether the initial state satisfies the goal; a derived variable in the goal is left to the search."""
    layers, values = sas_task.variables.axiom_layers, sas_task.init.values
    return all(layers[variable] == -1 and values[variable] == value for variable, value in sas_task.goal.pairs)


def write_empty_plan() -> int:
    """Write the plan without steps and return the exit code for success."""
    write_text("plan", "; cost = 0 (empty plan)\n")
    return SUCCESS


def write_text(path: str, text: str) -> None:
    """Write a small file of the answer."""
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

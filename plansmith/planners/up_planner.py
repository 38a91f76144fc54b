"""Any engine of unified-planning as a planner: a warm worker process, our statuses, our judgement of its plans.

The worker (`up_worker.py`) is the only part that imports unified-planning. Whatever an engine claims, a plan counts
when our validator says so; that also gives its cost, which unified-planning does not tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError, PlannerCrashError
from plansmith.pddl.grounding import PlanningTask
from plansmith.planners.interface import ANSWER_GRACE_S, MESSAGE_CHARACTERS, Planner, request_of, stopped_message
from plansmith.planners.judging import judged_result
from plansmith.planners.process import WorkerProcess
from plansmith.planners.result import PlannerResult, PlannerStatus

PREFIX = "up:"

UP_STATUS = {
    "SOLVED_SATISFICING": PlannerStatus.SOLVED,
    "SOLVED_OPTIMALLY": PlannerStatus.SOLVED,
    "UNSOLVABLE_PROVEN": PlannerStatus.UNSOLVABLE,
    "UNSOLVABLE_INCOMPLETELY": PlannerStatus.GAVE_UP,
    "TIMEOUT": PlannerStatus.OUT_OF_TIME,
    "MEMOUT": PlannerStatus.OUT_OF_MEMORY,
    "INTERNAL_ERROR": PlannerStatus.CRASHED,
    "UNSUPPORTED_PROBLEM": PlannerStatus.UNSUPPORTED,
    "INTERMEDIATE": PlannerStatus.GAVE_UP,  # a report on the way, which is no last word
}
MAY_LEAVE_PLAN = {PlannerStatus.SOLVED, PlannerStatus.OUT_OF_TIME, PlannerStatus.OUT_OF_MEMORY, PlannerStatus.GAVE_UP}


class UnifiedPlanningPlanner(Planner):
    """An engine of unified-planning.

    ``time_limit_s`` is given to the engine, whose clock is on the wall, and limits the CPU seconds of each of its
    processes; ``kill_after_s`` ends all of them. The engine's own search is used, not the one of the settings.
    """

    def __init__(self, engine: str, settings: PlannerConfig | None = None) -> None:
        """Start the worker.

        Args:
            engine: a name that unified-planning knows, or ``module:Class`` of an engine that it does not.
            settings: the limits.

        Raises:
            ConfigError: no such engine, with those that are installed.
        """
        worker = WorkerProcess("up_worker.py", engine, cure="pip install unified-planning")
        super().__init__(settings, worker)
        self._engine = engine
        greeting = worker.start()
        if "engines" in greeting:
            worker.stop()
            raise ConfigError(
                "unified-planning has no such planner",
                where="planner",
                got=f"{PREFIX}{engine}",
                expected=f"one of {', '.join(PREFIX + name for name in greeting['engines'])}, or up:MODULE:CLASS",
                cure="install the package of the engine",
            )

    @property
    def name(self) -> str:
        """Return the planner as rows name it."""
        return f"{PREFIX}{self._engine}"

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem; a plan that is not valid is a crash of the engine.

        Raises:
            PddlParseError: the domain or the problem cannot be read.
            PlannerCrashError: the engine's process ended by itself, the worker died twice over this problem, or
                `close` was called meanwhile.
        """
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        with self._problem_folder(domain_pddl, problem_pddl) as folder:
            start = time.perf_counter()
            ending = self._ask(folder)
            return judged_result(task, self._result(folder, ending, time.perf_counter() - start))

    def _ask(self, folder: Path) -> dict[str, Any]:
        pid = self._worker.pid
        try:
            return self._worker.ask(
                request_of(folder, self.settings), limit_s=self.settings.kill_after_s + ANSWER_GRACE_S
            )
        finally:
            if self._worker.pid != pid:  # it died without its descendants
                kill_processes_of(folder)

    def _result(self, folder: Path, ending: dict[str, Any], wall_time_s: float) -> PlannerResult:
        answer = self._answer(folder, ending)
        status = UP_STATUS[answer["status"]]
        plan = answer["plan"] if status in MAY_LEAVE_PLAN else None
        if plan is None:
            if status is PlannerStatus.SOLVED:
                return PlannerResult(PlannerStatus.CRASHED, None, None, wall_time_s, message="solved, but no plan")
            return PlannerResult(status, None, None, wall_time_s, message=answer["message"])
        is_optimal = answer["status"] == "SOLVED_OPTIMALLY"
        return PlannerResult(PlannerStatus.SOLVED, tuple(plan), float(len(plan)), wall_time_s, is_optimal=is_optimal)

    def _answer(self, folder: Path, ending: dict[str, Any]) -> dict[str, Any]:
        """Return the answer that the child left, or one for the way in which it ended.

        Raises:
            PlannerCrashError: it ended by itself and without an answer.
        """
        is_killed, is_over = ending["killed_for"] == "time", ending["exit_code"] == -signal.SIGXCPU
        if is_killed or is_over:
            message = stopped_message(self.settings, is_killed=not is_over)
            return {"status": "TIMEOUT", "plan": None, "message": message}
        if ending["killed_for"]:
            return {"status": "MEMOUT", "plan": None, "message": ""}
        if ending["exit_code"] != 0:
            log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip()
            words = log[-MESSAGE_CHARACTERS:]
            got = f"exit code {ending['exit_code']}"
            raise PlannerCrashError(f"the engine {self._engine} ended without an answer: {words}", got=got)
        answer: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        if answer["status"] == "TIMEOUT" and not answer["message"]:  # unified-planning counts by the wall clock
            answer["message"] = f"the engine stopped at {self.settings.time_limit_s} wall-clock seconds (time_limit_s)"
        return answer


def kill_processes_of(folder: Path) -> None:
    """Kill every process that has the folder of a request as its place for temporary files."""
    mark = f"TMPDIR={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)

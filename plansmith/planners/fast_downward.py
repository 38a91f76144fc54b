"""Fast Downward as a function from PDDL text to `PlannerResult`.

A warm worker process (`translate_worker.py`, the only GPL file) forks one child a problem, which translates and then
becomes the search binary. Here is what exit codes mean, and how plan files are read. Not here: settings
(`plansmith.config.planner`) and the worker's life (`process.py`). Nothing of Fast Downward is imported into this
process.

Exit codes: https://www.fast-downward.org/latest/documentation/exit-codes
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError, PddlParseError, PlannerCrashError, PlansmithError
from plansmith.planners.interface import ANSWER_GRACE_S, MESSAGE_CHARACTERS, Planner, request_of, stopped_message
from plansmith.planners.process import WorkerProcess
from plansmith.planners.result import PlannerResult, PlannerStatus

FAST_DOWNWARD_STATUS = {
    0: PlannerStatus.SOLVED,
    1: PlannerStatus.SOLVED,
    2: PlannerStatus.SOLVED,
    3: PlannerStatus.SOLVED,
    10: PlannerStatus.UNSOLVABLE,
    11: PlannerStatus.UNSOLVABLE,
    12: PlannerStatus.GAVE_UP,
    13: PlannerStatus.GAVE_UP,  # unsolvable within a cost bound only
    20: PlannerStatus.OUT_OF_MEMORY,
    21: PlannerStatus.OUT_OF_TIME,
    22: PlannerStatus.OUT_OF_MEMORY,
    23: PlannerStatus.OUT_OF_TIME,
    24: PlannerStatus.OUT_OF_TIME,  # portfolios: out of memory and time
    30: PlannerStatus.CRASHED,
    32: PlannerStatus.CRASHED,
    34: PlannerStatus.UNSUPPORTED,
    35: PlannerStatus.CRASHED,
    37: PlannerStatus.UNSUPPORTED,
    -signal.SIGPROF: PlannerStatus.OUT_OF_TIME,  # the CPU timer that the worker sets
    -signal.SIGXCPU: PlannerStatus.OUT_OF_TIME,
}
KILL_STATUS = {"time": PlannerStatus.OUT_OF_TIME, "memory": PlannerStatus.OUT_OF_MEMORY}
"""Why the worker killed a child."""

MAY_LEAVE_PLAN = {PlannerStatus.SOLVED, PlannerStatus.OUT_OF_TIME, PlannerStatus.OUT_OF_MEMORY}

TRANSLATE_INPUT_ERROR, SEARCH_INPUT_ERROR = 31, 33

KEPT_FILES = {"domain.pddl", "problem.pddl", "output.sas"}
"""What one search leaves to the next in a problem's folder."""

UNSUPPORTED_INPUT = re.compile(
    r"not (yet )?supported|not \(yet\) implemented|unsupported assignment|invalid metric definition"
    r"|invalid requirement\. got: :(fluents|(numeric|object|action)-\w+|durati\w+-\w+|constraints|preferences"
    r"|timed-\w+-\w+|continuous-effects|time)\b"
    r"|got: \(:(durative-action|process|event|constraints)\b"
    r"|got: (>=?|<=?|=|increase|decrease|assign|scale-(up|down)|at (start|end)|over all|preference)\s*$"
    r"|got: \(increase ",
    re.IGNORECASE,
)
"""What the translator says about correct PDDL beyond its reach; it has one exit code for this and for mistakes."""


def status_from_exit_code(exit_code: int) -> PlannerStatus:
    """Map a documented exit code, or minus the signal of a limit, to its outcome; anything else is loud.

    Input errors (31, 33) are no outcomes: `FastDownward.solve` raises them as errors of their own type.

    Raises:
        PlannerCrashError: an exit code that stands for no outcome; never taken for "unsolved".
    """
    if exit_code not in FAST_DOWNWARD_STATUS:
        expected = f"one of {sorted(FAST_DOWNWARD_STATUS)}"
        raise PlannerCrashError("Fast Downward ended in no known way", got=f"exit code {exit_code}", expected=expected)
    return FAST_DOWNWARD_STATUS[exit_code]


def find_search_binary() -> Path:
    """Return Fast Downward's search binary from the package up-fast-downward, without importing it."""
    spec = importlib.util.find_spec("up_fast_downward")
    folders = (spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        binary = Path(folder, "downward", "builds", "release", "bin", "downward")
        if os.access(binary, os.X_OK):
            return binary
    raise PlansmithError("Fast Downward is not installed", cure="pip install up-fast-downward")


class FastDownward(Planner):
    """Fast Downward, its translator warm."""

    def __init__(self, settings: PlannerConfig | None = None, *, search_binary: Path | None = None) -> None:
        cure = "pip install up-fast-downward (it brings fast-downward.translate)"
        worker = WorkerProcess("translate_worker.py", str(search_binary or find_search_binary()), cure=cure)
        super().__init__(settings, worker)
        worker.start()

    @property
    def name(self) -> str:
        """Return the planner with its search, as rows name it."""
        return f"fast-downward {self.settings.search}"

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem.

        Raises:
            PddlParseError: the translator cannot read the domain or the problem.
            ConfigError: Fast Downward does not know the search.
            PlannerCrashError: an undocumented exit code, the worker died twice over this problem, or `close` was
                called meanwhile.
        """
        return self.solve_with(self.settings, domain_pddl, problem_pddl)

    def solve_with(self, settings: PlannerConfig, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem under other settings than the planner's own; raises as `solve`."""
        with self.opened(domain_pddl, problem_pddl) as search:
            return search(settings)

    @contextlib.contextmanager
    def opened(self, domain_pddl: str, problem_pddl: str) -> Iterator[Callable[[PlannerConfig], PlannerResult]]:
        """Give a function that searches one problem, as often as it is called; the problem is translated once.

        The function raises as `solve`. Other threads wait until the block ends.
        """
        with self._problem_folder(domain_pddl, problem_pddl) as folder:
            yield lambda settings: self._search(folder, settings)

    def _search(self, folder: Path, settings: PlannerConfig) -> PlannerResult:
        for left in folder.iterdir():  # what a search before this one left behind
            if left.name not in KEPT_FILES:
                left.unlink()
        start, run = time.perf_counter(), _Run(folder, settings)
        request = request_of(folder, settings, search=settings.search_string)
        answer = self._worker.ask(request, limit_s=settings.kill_after_s + ANSWER_GRACE_S)
        return run.result(answer["exit_code"], answer["killed_for"], time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class _Run:
    """One problem in its folder, and what the child left behind."""

    folder: Path
    settings: PlannerConfig

    def result(self, exit_code: int, killed_for: str | None, wall_time_s: float) -> PlannerResult:
        """Return the outcome; a plan found before a limit struck counts as solved, though not as optimal."""
        status = KILL_STATUS[killed_for] if killed_for else self._status(exit_code)
        best = self._best_plan() if status in MAY_LEAVE_PLAN else None
        if status is PlannerStatus.SOLVED and best is None:
            raise PlannerCrashError("Fast Downward reports success but left no plan", got=self._message())
        if best is None:
            return PlannerResult(status, None, None, wall_time_s, message=self._reason(status, killed_for))
        is_optimal = status is PlannerStatus.SOLVED and (self.settings.is_optimal or not best[0])
        return PlannerResult(PlannerStatus.SOLVED, *best, wall_time_s, is_optimal=is_optimal)

    def _status(self, exit_code: int) -> PlannerStatus:
        if exit_code == TRANSLATE_INPUT_ERROR:
            if UNSUPPORTED_INPUT.search(self._message()):
                return PlannerStatus.UNSUPPORTED
            self._raise_parse_error()
        if exit_code == SEARCH_INPUT_ERROR:
            raise ConfigError(f"Fast Downward refuses the search: {self._message()}", got=self.settings.search)
        try:
            status = status_from_exit_code(exit_code)
        except PlannerCrashError as error:
            error.message = f"{error.message}: {self._message()}"
            raise
        is_refusal = status is PlannerStatus.CRASHED and UNSUPPORTED_INPUT.search(self._read("error.txt"))
        return PlannerStatus.UNSUPPORTED if is_refusal else status

    def _raise_parse_error(self) -> NoReturn:
        text = self._read("error.txt")
        head, _, got = text.partition("\nGot: ")
        head, _, expected = head.partition("\nSyntax: ")
        where = "problem" if re.search(r"Parsing problem|problem file", head) else "domain"
        raise PddlParseError(head, where=where, got=got or None, expected=expected or None)

    def _best_plan(self) -> tuple[tuple[str, ...], float] | None:
        """Return the cheapest complete plan on disk with its cost; an anytime search leaves ``plan.1``, ``plan.2``."""
        plans = (parse_plan(path.read_text()) for path in self.folder.glob("plan*"))
        return min((plan for plan in plans if plan), key=lambda plan: plan[1], default=None)

    def _reason(self, status: PlannerStatus, killed_for: str | None) -> str:
        """Return which time limit struck, or the planner's own words."""
        if status is PlannerStatus.OUT_OF_TIME:
            return stopped_message(self.settings, is_killed=killed_for is not None)
        return self._message()

    def _message(self) -> str:
        """Return the translator's complaint, or the last words of the log."""
        noise = ("[t=", "Peak memory")
        log = [line for line in self._read("log.txt").splitlines() if line and not line.startswith(noise)]
        return (self._read("error.txt") or "\n".join(log[-5:]))[-MESSAGE_CHARACTERS:]

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def parse_plan(text: str) -> tuple[tuple[str, ...], float] | None:
    """Return the steps and the cost of a Fast Downward plan file; None if its last line, the cost, is missing."""
    cost = re.search(r"^; cost = (\d+) \(.*\)$", text, re.MULTILINE)
    if cost is None:
        return None
    steps = (line.strip() for line in text.splitlines())
    return tuple(f"({' '.join(step.strip('()').split())})" for step in steps if step.startswith("(")), float(cost[1])

"""Many problems, solved by several planners side by side: cases in, one row each out, in the order they are done.

A case that cannot be read is a row, and so is a planner that crashed over one; neither ends the batch. Not here: the
command line (`plansmith.commands.plan`), rows of a training run (`actors.planner`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, ConfigError, PlannerCrashError
from plansmith.pddl.cases import read_task, read_text
from plansmith.pddl.diagnostics import Code
from plansmith.pddl.grounding import PlanningTask
from plansmith.planners.interface import Planner
from plansmith.planners.judging import judged_result
from plansmith.planners.result import PlannerResult, PlannerStatus

BAD_INPUT = "bad_input"
"""The status of a row whose domain or problem cannot be read; no planner has seen it."""

DOMAIN_FILE = "domain.pddl"
ROW_BEGINS = b'{"id": '
"""Of a line of `SolvedCase.to_json`."""


@dataclass(frozen=True, slots=True)
class PlanningCase:
    """One problem to be solved; `mistake` says why the line it comes from names none."""

    id: str
    domain_path: Path | None
    problem_path: Path | None
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class SolvedCase:
    """What came of a case; `plan` is None unless `status` is ``solved``, and valid for our validator if it is."""

    id: str
    planner: str
    status: str
    plan: tuple[str, ...] | None
    cost: float | None
    wall_time_s: float
    is_optimal: bool
    message: str = ""
    asked: str = ""
    """Digest of what was asked: the texts and the limits (`asked_of`)."""

    def to_json(self) -> str:
        """Return the row as one line of JSON."""
        return json.dumps(asdict(self))


def cases_of_folder(folder: Path, domain_path: Path | None = None) -> list[PlanningCase]:
    """Return the problems of a folder by name, with the domain given or the ``domain.pddl`` beside them.

    Raises:
        BadInputError: no domain, or no problems.
    """
    domain_path = domain_path or folder / DOMAIN_FILE
    domains = {path.resolve() for path in (domain_path, folder / DOMAIN_FILE)}
    problems = [path for path in sorted(folder.glob("*.pddl")) if path.resolve() not in domains]
    if not domain_path.is_file():
        raise BadInputError("no domain", where=str(domain_path), expected=f"a {DOMAIN_FILE} beside the problems",
                            cure="name it: plansmith plan DOMAIN --batch FOLDER --out FILE")  # fmt: skip
    if not problems:
        raise BadInputError("no problems here", where=str(folder), expected="*.pddl files")
    return [PlanningCase(path.stem, domain_path, path) for path in problems]


def cases_of_lines(text: str, *, folder: Path) -> list[PlanningCase]:
    """Return the case of every line ``{id, domain_path, problem_path}``; a line that is none becomes a mistake.

    Args:
        text: JSON lines.
        folder: where paths that do not exist from the working directory are looked up.

    Raises:
        BadInputError: two lines have the same id, or there are none.
    """
    cases = [_case_of_line(number, line, folder) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise BadInputError("two lines have the same id", got=repr(case.id), cure="give every line its own")
        seen.add(case.id)
    if not cases:
        raise BadInputError("no lines", expected="one {id, domain_path, problem_path} a line")
    return cases


def _case_of_line(number: int, line: str, folder: Path) -> PlanningCase:
    nameless = f"line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return PlanningCase(nameless, None, None, f"line {number} is no JSON: {error}")
    if not isinstance(row, dict):
        return PlanningCase(nameless, None, None, f"line {number} is no object")
    name = str(row.get("id", nameless))
    paths = [row.get(key) for key in ("domain_path", "problem_path")]
    if not all(isinstance(path, str) for path in paths):
        return PlanningCase(name, None, None, f"line {number} needs domain_path and problem_path")
    try:
        domain, problem = (Path(path) if Path(path).exists() else folder / path for path in map(str, paths))
    except (OSError, ValueError) as error:  # too long, or with a zero byte: PDDL in the place of its path
        return PlanningCase(name, None, None, f"line {number} has what cannot be a path: {error}"[:200])
    return PlanningCase(name, domain, problem)


def asked_of(case: PlanningCase, settings: PlannerConfig) -> str:
    """Return a digest of what the outcome of a case depends on, beside the planner: its texts, and the limits."""
    digest = hashlib.sha256(f"{settings.time_limit_s:g} {settings.memory_limit_mib}\0{case.mistake}".encode())
    for path in (case.domain_path, case.problem_path):
        with contextlib.suppress(OSError):
            digest.update(b"\0" + (b"" if path is None else path.read_bytes()))
    return digest.hexdigest()[:16]


def solve_cases(
    cases: Sequence[PlanningCase], new_planner: Callable[[], Planner], *, n_workers: int = 1
) -> Generator[SolvedCase, None, None]:
    """Yield a row for every case as it is done; a planner each to so many threads.

    Closing the iterator, or an error in a thread, ends all planners at once, in the middle of a problem if need be.
    """
    todo: queue.SimpleQueue[PlanningCase] = queue.SimpleQueue()
    done: queue.SimpleQueue[SolvedCase | BaseException] = queue.SimpleQueue()
    for case in cases:
        todo.put(case)
    planners: list[Planner] = []
    is_over = threading.Event()
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            planners += [new_planner() for _ in range(min(n_workers, len(cases)))]
            for planner in planners:
                pool.submit(_work, planner, todo, done, is_over)
            for _ in cases:
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            is_over.set()
            for planner in planners:
                planner.close()


def _work(
    planner: Planner,
    todo: queue.SimpleQueue[PlanningCase],
    done: queue.SimpleQueue[SolvedCase | BaseException],
    is_over: threading.Event,
) -> None:
    """Solve cases until there are none; an error is handed over, to be raised where the rows are read."""
    try:
        while not is_over.is_set():
            done.put(solve_case(planner, todo.get_nowait()))
    except queue.Empty:
        return
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads the rows
        done.put(error)


def solve_case(planner: Planner, case: PlanningCase) -> SolvedCase:
    """Return the row of one case.

    Raises:
        ConfigError: the planner does not know the search, which no other problem will mend.
    """
    if case.domain_path is None or case.problem_path is None:
        return _unread(planner, case, BAD_INPUT, case.mistake)
    try:
        domain_pddl, problem_pddl = read_text(case.domain_path), read_text(case.problem_path)
        domain_source, problem_source = str(case.domain_path), str(case.problem_path)
        task = read_task(domain_pddl, problem_pddl, domain_source=domain_source, problem_source=problem_source)
    except BadInputError as error:
        return _unread(planner, case, BAD_INPUT, str(error))
    if not isinstance(task, PlanningTask):
        is_beyond = all(diagnostic.code is Code.UNSUPPORTED_FEATURE for diagnostic in task)
        return _unread(planner, case, PlannerStatus.UNSUPPORTED if is_beyond else BAD_INPUT, str(task[0]))
    try:
        return _row(planner, case, solve_task(planner, task, domain_pddl, problem_pddl))
    except ConfigError:
        raise
    except BadInputError as error:  # the planner reads less than we do
        return _unread(planner, case, PlannerStatus.UNSUPPORTED, str(error))


def solve_task(planner: Planner, task: PlanningTask, domain_pddl: str, problem_pddl: str) -> PlannerResult:
    """Return the outcome of a problem that we can read, its plan judged; a planner that fails over it has crashed."""
    try:
        return judged_result(task, planner.solve(domain_pddl, problem_pddl))
    except PlannerCrashError as error:
        return PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))


def proving(planner: Planner) -> Callable[[str, str], PlannerResult]:
    """Return what a planner says, its plans accepted by the validator; what either refuses is an outcome."""

    def solve(domain_pddl: str, problem_pddl: str) -> PlannerResult:
        try:
            return solve_task(planner, PlanningTask.from_text(domain_pddl, problem_pddl), domain_pddl, problem_pddl)
        except ConfigError:
            raise
        except BadInputError as error:
            return PlannerResult(PlannerStatus.UNSUPPORTED, None, None, 0.0, message=str(error))

    return solve


def _unread(planner: Planner, case: PlanningCase, status: str, message: str) -> SolvedCase:
    return SolvedCase(case.id, planner.name, str(status), None, None, 0.0, False, message)


def _row(planner: Planner, case: PlanningCase, result: PlannerResult) -> SolvedCase:
    return SolvedCase(
        id=case.id,
        planner=planner.name,
        status=result.status.value,
        plan=result.plan,
        cost=result.cost,
        wall_time_s=round(result.wall_time_s, 4),
        is_optimal=result.is_optimal,
        message=result.message,
    )


def read_results(path: Path, planner_name: str) -> dict[str, SolvedCase]:
    """Return the rows of an earlier run by id; a half-written last line is none.

    Raises:
        BadInputError: lines that are no results, or results of another planner or search; no file.
    """
    try:
        complete, _, unfinished = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")
    except OSError as error:
        raise BadInputError("cannot be a file of results", where=str(path), got=error.strerror,
                            cure="name another --out") from error  # fmt: skip
    if not ROW_BEGINS.startswith(unfinished[: len(ROW_BEGINS)]):
        raise BadInputError("not a result", where=str(path), got=unfinished[:60].decode(errors="replace"),
                            expected="the results of an earlier run", cure="name another --out")  # fmt: skip
    rows = [_row_of_line(line, path, number) for number, line in enumerate(complete.splitlines(), 1)]
    for row in rows:
        if row.planner != planner_name:
            raise BadInputError("results of another planner", where=str(path), got=row.planner, expected=planner_name,
                                cure="name another --out, or remove the file")  # fmt: skip
    return {row.id: row for row in rows}


def _row_of_line(line: bytes, path: Path, number: int) -> SolvedCase:
    try:
        row: dict[str, Any] = json.loads(line)
        plan = None if row["plan"] is None else tuple(row["plan"])
        return SolvedCase(**{**row, "plan": plan})
    except (ValueError, TypeError, KeyError) as error:
        raise BadInputError("not a result", where=f"{path}:{number}", got=line[:60].decode(errors="replace"),
                            expected="the results of an earlier run", cure="name another --out") from error  # fmt: skip

"""Cases: a domain, a problem and a plan as texts or files in, a verdict for programs out.

`judge_texts` judges one case; `judge_cases` judges many, in order, over worker processes. A case that cannot be read is
a verdict, `Verdict.BAD_INPUT`, and never the end of a run. Not here: the command line (`plansmith.commands`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plansmith.errors import BadInputError, PlansmithError
from plansmith.pddl.diagnostics import Diagnostic
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import read_problem, shared_domain
from plansmith.pddl.validation import PlanVerdict, Verdict, validate_plan_text

CHUNK_CASES = 256
"""Cases a worker takes at a time; neighbours often share their problem, which is then read once."""
CACHED_TASKS = 64

CaseRow = dict[str, Any]
"""A row of ``CASES.jsonl`` or ``VERDICTS.jsonl``."""


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A verdict with the task it was reached in; without a task, the mistakes in domain and problem."""

    verdict: PlanVerdict
    task: PlanningTask | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_row(self, *, with_states: bool = False) -> CaseRow:
        """Return the verdict for JSON; ``state_trace`` lists the true atoms of every state met, the initial first."""
        verdict = self.verdict
        row: CaseRow = {
            "verdict": verdict.verdict.value,
            "failed_step": verdict.failed_step,
            "unsatisfied": [str(condition) for condition in verdict.unsatisfied],
            "reason": verdict.reason,
            "plan_length": len(verdict.plan),
            "cost": verdict.cost,
        }
        if self.diagnostics:
            row["diagnostics"] = [diagnostic_row(diagnostic) for diagnostic in self.diagnostics]
        if with_states and self.task is not None:
            row["state_trace"] = [[str(atom) for atom in self.task.atoms_of(state)] for state in verdict.states]
        return row


def diagnostic_row(diagnostic: Diagnostic) -> dict[str, str | int | None]:
    """Return a diagnostic for JSON."""
    place = diagnostic.place
    return {
        "code": diagnostic.code.value,
        "severity": diagnostic.severity.value,
        "source": place.source,
        "line": place.line,
        "column": place.column,
        "message": diagnostic.message,
        "got": diagnostic.got,
        "expected": diagnostic.expected,
        "repair": diagnostic.repair,
    }


def judge_texts(
    domain_text: str,
    problem_text: str,
    plan_text: str,
    *,
    domain_source: str = "<domain>",
    problem_source: str = "<problem>",
    plan_source: str = "<plan>",
) -> JudgedCase:
    """Return the verdict on three texts; the sources name them in diagnostics."""
    task = read_task(domain_text, problem_text, domain_source=domain_source, problem_source=problem_source)
    return _judge(task, plan_text, plan_source)


def read_task(
    domain_text: str, problem_text: str, *, domain_source: str = "<domain>", problem_source: str = "<problem>"
) -> PlanningTask | tuple[Diagnostic, ...]:
    """Return the task of two texts, or every error in the domain; without one there, in the problem."""
    domain = shared_domain(domain_text, source=domain_source)
    if domain.notebook.errors():
        return domain.notebook.errors()
    problem = read_problem(problem_text, domain.value, source=problem_source)
    return problem.notebook.errors() or PlanningTask(domain.value, problem.value)


def _judge(task: PlanningTask | tuple[Diagnostic, ...], plan_text: str, plan_source: str) -> JudgedCase:
    if not isinstance(task, PlanningTask):
        return JudgedCase(bad_input(str(task[0])), diagnostics=task)
    try:
        return JudgedCase(validate_plan_text(task, plan_text, source=plan_source), task)
    except BadInputError as error:  # quantifiers with more instances than can be expanded
        return JudgedCase(bad_input(str(error)))


def bad_input(reason: str) -> PlanVerdict:
    """Return the verdict on a case that cannot be judged."""
    return PlanVerdict(Verdict.BAD_INPUT, (), None, (), (), reason)


def judge_cases(lines: Sequence[str], *, folder: Path, n_workers: int = 1) -> Iterator[list[CaseRow]]:
    """Yield the verdicts on the cases of a JSON-lines file, chunk by chunk, in the order of the lines.

    Args:
        lines: each an object with ``id``, ``domain_path``, ``problem_path`` and ``plan``, a text or a list of steps.
        folder: where paths that do not exist from the working directory are looked up.
        n_workers: processes; 1 judges in this one.
    """
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    chunks = [numbered[start : start + CHUNK_CASES] for start in range(0, len(numbered), CHUNK_CASES)]
    judge = functools.partial(_judge_chunk, folder=folder)
    if n_workers == 1:
        yield from map(judge, chunks)
        return
    with ProcessPoolExecutor(n_workers) as pool:
        yield from pool.map(judge, chunks)


def _judge_chunk(chunk: Sequence[tuple[int, str]], *, folder: Path) -> list[CaseRow]:
    return [_judge_line(number, line, folder) for number, line in chunk]


def _judge_line(number: int, line: str, folder: Path) -> CaseRow:
    name: Any = None
    try:
        case = json.loads(line)
        if not isinstance(case, dict):
            raise BadInputError("not an object", got=line[:60], expected="{id, domain_path, problem_path, plan}")
        name = case.get("id")
        task = _task_of_files(_path(case, "domain_path", folder), _path(case, "problem_path", folder))
        judged = _judge(task, _plan_text(case), "plan")
    except (PlansmithError, ValueError, RecursionError, OSError) as error:
        judged = JudgedCase(bad_input(f"line {number}: {error}"))
    return {"id": name, **judged.to_row()}


def _path(case: Mapping[str, Any], key: str, folder: Path) -> str:
    given = case.get(key)
    if not isinstance(given, str):
        raise BadInputError(f"no {key}", got=repr(given)[:60], expected="a path")
    return given if Path(given).exists() else str(folder / given)


def _plan_text(case: Mapping[str, Any]) -> str:
    plan = case.get("plan")
    if isinstance(plan, list) and all(isinstance(step, str) for step in plan):
        return "\n".join(plan)
    if not isinstance(plan, str):
        raise BadInputError("no plan", got=repr(plan)[:60], expected="a text or a list of steps")
    return plan


def _task_of_files(domain_path: str, problem_path: str) -> PlanningTask | tuple[Diagnostic, ...]:
    return _task_of_stamped(domain_path, problem_path, _stamp(domain_path), _stamp(problem_path))


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file does; None where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(CACHED_TASKS)
def _task_of_stamped(domain_path: str, problem_path: str, *_: object) -> PlanningTask | tuple[Diagnostic, ...]:
    domain_text, problem_text = read_text(domain_path), read_text(problem_path)
    return read_task(domain_text, problem_text, domain_source=domain_path, problem_source=problem_path)


def read_text(path: str | Path) -> str:
    """Return the text of a file.

    Raises:
        BadInputError: no such file, or no UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInputError("cannot be read", where=str(path), got=error.strerror, cure="check the path") from error
    except UnicodeDecodeError as error:
        raise BadInputError("cannot be read", where=str(path), got=str(error), expected="text in UTF-8") from error
    except ValueError as error:  # a zero byte
        raise BadInputError("no path", where=repr(str(path)), got=str(error), cure="check the path") from error

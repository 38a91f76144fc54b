"""What the tools do with texts: plain values in, plain values out, each call in a process of its own (`bounded`)."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

from plansmith.errors import BadInputError
from plansmith.pddl.cases import diagnostic_row, judge_texts, read_task
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.val_report import val_output
from plansmith.planners.judging import judged_result
from plansmith.planners.result import PlannerResult
from plansmith.problems.distinct import distinct_problems
from plansmith.problems.library import domain_names, load_domain
from plansmith.text.natural_language import problem_text

Row = dict[str, Any]


def validation(domain: str, problem: str, plan: str, is_verbose: bool) -> Row:
    """Return the verdict on a plan, with VAL's verbose text if that is wanted and the task can be read."""
    judged = judge_texts(domain, problem, plan)
    row = judged.to_row()
    if is_verbose and judged.task is not None:
        row["report"] = val_output(judged.task, judged.verdict, "plan", is_verbose=True)
    return row


def diagnosis(domain: str, problem: str | None, has_reachability: bool) -> Row:
    """Return every mistake in the texts, and how many of them are errors."""
    found = diagnose(
        domain, problem, domain_source="domain", problem_source="problem", has_reachability=has_reachability
    )
    return {"n_errors": sum(each.is_error for each in found), "diagnostics": [diagnostic_row(each) for each in found]}


def mistakes(domain: str, problem: str) -> Row:
    """Return the errors for which no planner is asked."""
    task = read_task(domain, problem, domain_source="domain", problem_source="problem")
    return {"diagnostics": [] if isinstance(task, PlanningTask) else [diagnostic_row(each) for each in task]}


def judged_plan(domain: str, problem: str, result: PlannerResult) -> Row:
    """Return a planner's result as our validator sees it."""
    task = read_task(domain, problem)
    assert isinstance(task, PlanningTask)
    return asdict(judged_result(task, result))


def domains() -> Row:
    """Return the project's domains with their levels and the ranges of their sizes."""
    loaded = [load_domain(name) for name in domain_names()]
    return {
        "domains": [
            {"name": each.name, "has_text": each.phrases is not None,
             "levels": {level: {name: list(size) for name, size in sizes.items()}
                        for level, sizes in each.settings.levels.items()}}
            for each in loaded
        ]
    }  # fmt: skip


def drawn_problems(name: str, level: str | None, n: int, seed: int, with_text: bool) -> Row:
    """Return problems of a domain of the project, no two the same under other names.

    Raises:
        BadInputError: no such domain or level; folders are no domains here, for who asks may not name files.
    """
    if name not in domain_names():
        raise BadInputError("no such domain", where="domain", got=repr(name),
                            expected=f"one of {', '.join(domain_names())}")  # fmt: skip
    loaded = load_domain(name)
    phrases = loaded.needed_phrases() if with_text else None
    level = level or loaded.levels[0]
    loaded.sizes_of(level)
    rows = []
    for number, problem in enumerate(itertools.islice(distinct_problems(loaded, level, seed=seed), n)):
        text = {} if phrases is None else {"text": problem_text(loaded.domain, phrases, problem, phrasing=number)}
        rows.append({"problem": print_problem(problem), **text})
    return {"domain": print_domain(loaded.domain), "level": level, "problems": rows}

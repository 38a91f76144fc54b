"""The stage of Self-CriTeach that chooses test problems by the length of their plans (appendix A.2.1 of the paper)."""

from __future__ import annotations

from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.self_teaching import apportioned, by_length, by_quota
from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import ChosenTestsConfig, LibraryConfig
from plansmith.data.rows import ProblemRow, Split
from plansmith.errors import BadInputError
from plansmith.layout import text_table
from plansmith.stages import StageContext


def choose_tests(context: StageContext[ChosenTestsConfig]) -> None:
    """Write the problems without the tests that are too many of their length; of some tasks all are kept.

    Too few of a length are warned about, with a table.

    Raises:
        BadInputError: no test is left.
    """
    wanted, rows = context.settings, context.inputs["problems"].rows(ProblemRow)
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.TEST)
    chosen, short = set[str](), list[tuple[str, str, int, int]]()
    for task in wanted.tasks:
        of_task = [row for row in solved if task_of_level(row.level) == task]
        parts = by_length(of_task, wanted.lengths)
        for (length, fitting), count in zip(parts.items(), apportioned(wanted.problems, wanted.lengths), strict=True):
            if len(fitting) < count:
                short.append((task, length, len(fitting), count))
            if taken := min(count, len(fitting)):
                chosen |= {row.problem_id for row in by_quota(fitting, LibraryConfig(plans=taken))}
    if short:
        lines = [[task, length, str(there), str(count)] for task, length, there, count in short]
        table = text_table(("tests of", "length", "there", "wanted"), lines)
        context.logger.warning("fewer tests than tests.problems wants; draw more, or other sizes:\n%s", table)
    kept = [
        row
        for row in rows
        if row.split != Split.TEST or task_of_level(row.level) not in wanted.tasks or row.problem_id in chosen
    ]
    if not any(row.split == Split.TEST for row in kept):
        raise BadInputError("no test is left", where="tests", got=f"{len(solved)} solved test problems",
                            expected="some of the lengths asked for",
                            cure="draw more problems, or other sizes")  # fmt: skip
    context.output.write_rows(kept, ProblemRow)

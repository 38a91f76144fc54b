"""The stage of Self-CriTeach that chooses test problems by the length of their plans (appendix A.2.1 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.stages.phase1_data import solved_problems
from pipelines.stages.self_teaching import by_quota
from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import ChosenTestsConfig, LibraryConfig
from plansmith.data.rows import ProblemRow, SolvedProblemRow, Split
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
        for length, count, fitting in parts_by_length(of_task, wanted):
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


def parts_by_length(
    rows: Sequence[SolvedProblemRow], wanted: ChosenTestsConfig
) -> Iterator[tuple[str, int, list[SolvedProblemRow]]]:
    """Yield each part of the lengths in words, how many it is to have, and the problems that may be in it."""
    weight, least = sum(part.share for part in wanted.lengths), 0
    for part in wanted.lengths:
        fitting = [row for row in rows if least < len(row.plan) <= part.up_to]
        yield f"{least + 1} to {part.up_to} steps", round(wanted.problems * part.share / weight), fitting
        least = part.up_to

"""One answer to a text as a report shows it: the text, what was written, and how that differs from the reference.

Answers are read from rows; nothing is judged here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from plansmith.data.artifacts import Artifact
from plansmith.data.rows import FormalisedRow, RolloutRow, TextRow
from plansmith.data.tables import row_of
from plansmith.groups import some_of_each
from plansmith.judging.formalisation import Readability, sorted_problem
from plansmith.pddl.equivalence import Outcome
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_problem
from plansmith.report.finished_stages import find_rows
from plansmith.report.wording import shortened


class Flaw(StrEnum):
    """What is wrong with an answer, the gravest first."""

    NO_PROBLEM = "no problem in it"
    UNPARSEABLE = "cannot be read"
    NO_PLAN = "has no plan"
    UNDECIDED = "has a plan, its meaning is undecided"
    UNFAITHFUL = "has a plan, means another thing"


@dataclass(frozen=True, slots=True)
class AnswerExample:
    """An answer that does not mean what its text says; long texts are cut.

    Args:
        problem_id: of the reference.
        level: as tables name it.
        arm: whose answer.
        turn: of the repair; 0 is the first answer.
        flaw: what is wrong.
        why: the same in the words of validator, planner and comparison.
        text: the whole prompt.
        answer: as written.
        diff: from the reference to it, in unified form; both sorted where the answer can be read.
    """

    problem_id: str
    level: str
    arm: str
    turn: int
    flaw: Flaw
    why: str
    text: str
    answer: str
    diff: str


def flaw_of(row: FormalisedRow) -> Flaw | None:
    """Return what is wrong with an answer; None of one that means what the reference does, planned or not."""
    if row.is_same:
        return None
    if not row.is_parsed:
        return Flaw.NO_PROBLEM if row.readability == Readability.NO_PROBLEM else Flaw.UNPARSEABLE
    if not row.is_solved:
        return Flaw.NO_PLAN
    return Flaw.UNDECIDED if row.outcome == Outcome.UNDECIDED else Flaw.UNFAITHFUL


def shown_answers(rows: Iterable[FormalisedRow], place_of: Mapping[str, str], count: int) -> list[FormalisedRow]:
    """Return so many wrong answers: of each flaw and place in turn, in their order."""
    wrong = (row for row in rows if flaw_of(row) is not None)
    return some_of_each(wrong, lambda row: (place_of[row.problem_id], flaw_of(row)), count)


def read_answers(
    rows: Sequence[FormalisedRow],
    *,
    arm: str,
    texts: Artifact,
    written: Sequence[Artifact],
    domain_of: Mapping[str, Domain],
) -> list[AnswerExample]:
    """Return wrong answers as a report shows them; no texts are read but theirs.

    Args:
        rows: their judgements.
        arm: whose they are.
        texts: table of `TextRow`.
        written: tables of `RolloutRow`, in one of which each is.
        domain_of: by problem.
    """
    ids, rollout_ids = [row.problem_id for row in rows], [row.rollout_id for row in rows]
    text_of = {row["problem_id"]: row_of(row, TextRow) for row in find_rows(texts, "problem_id", ids)}
    found = [row for table in written for row in find_rows(table, "rollout_id", rollout_ids)]
    answer_of = {row["rollout_id"]: row_of(row, RolloutRow).completion for row in found}
    return [
        _example(row, text_of[row.problem_id], answer_of[row.rollout_id], domain_of[row.problem_id], arm=arm)
        for row in rows
    ]


def _example(row: FormalisedRow, text: TextRow, answer: str, domain: Domain, *, arm: str) -> AnswerExample:
    flaw = flaw_of(row)
    if flaw is None:
        raise ValueError(f"the answer to {row.problem_id} is right; wrong ones are shown")
    why = "\n".join(filter(None, (row.feedback, row.reason, *row.differences)))
    difference = problem_diff(text.problem_pddl, row.problem_pddl, domain if row.is_parsed else None)
    shown = map(shortened, (why, text.prompt, answer, difference))
    return AnswerExample(row.problem_id, text.level, arm, row.iteration, flaw, *shown)


def problem_diff(reference: str, answer: str, domain: Domain | None) -> str:
    """Return the unified diff of two problems.

    Args:
        reference: in PDDL.
        answer: in PDDL, or meant to be.
        domain: theirs, by which both are read and sorted, so that layout and order are no difference; None where the
            answer cannot be read, which is then compared as it is written.
    """
    if domain is not None:
        reference, answer = (print_problem(sorted_problem(parse_problem(text, domain))) for text in (reference, answer))
    lines = difflib.unified_diff(reference.splitlines(), answer.splitlines(), "reference", "answer", lineterm="")
    return "\n".join(lines)

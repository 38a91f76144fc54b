"""What a turn of the repair loop changed: errors mended and newly made, atoms changed, goals lost.

The paper asks for minimal edits (section 3.4) and measures none. A repair that gives up a goal is rewarded by a plan;
here it is counted. Only the answers are looked at, each beside the one before it; the reference is not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.data.rows import FormalisedRow
from plansmith.judging.agreement import tagged_atoms
from plansmith.judging.formalisation import Readability
from plansmith.pddl.model import Problem

ReadAnswer = Callable[[FormalisedRow], Problem]
"""Gives the problem of an answer that can be read."""


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """Answers that had an error of a code before, those that have it no more, and those that have it only now.

    An answer without any problem in it has no errors to find: it mends none.
    """

    n_seen: int
    n_mended: int
    n_new: int

    @classmethod
    def total(cls, counts: Iterable[CodeCounts]) -> CodeCounts:
        """Return several counts as one."""
        found = list(counts)
        return cls(sum(c.n_seen for c in found), sum(c.n_mended for c in found), sum(c.n_new for c in found))


@dataclass(frozen=True, slots=True)
class RepairTurn:
    """What became of the answers that were handed back in one turn.

    n_handed_back: of them; n_mended: those that have a plan then.
    codes: the errors of the reader, by code, in alphabetical order.
    n_compared: answers that could be read before and after; what follows is of these. Without any, there is no mean.
    mean_atoms_changed: facts and goals that only one of the two has.
    n_goals_lost: goals that were given up, in all answers; a goal that was changed counts as given up.
    n_solved_by_losing: answers that have a plan now and gave up a goal for it.
    """

    turn: int
    n_handed_back: int
    n_mended: int
    codes: dict[str, CodeCounts]
    n_compared: int
    mean_atoms_changed: float | None
    n_goals_lost: int
    n_solved_by_losing: int


@dataclass(frozen=True, slots=True)
class _Edit:
    """How the atoms of two answers differ, the second of which was written for the first."""

    n_changed: int
    n_goals_lost: int
    is_solved: bool


def repair_turns(answers: Sequence[Sequence[FormalisedRow]], read: ReadAnswer) -> tuple[RepairTurn, ...]:
    """Return what each turn did, in the order of the turns.

    Args:
        answers: to each text, turn by turn, the first answer included.
        read: reads those that can be read.
    """
    by_turn: dict[int, list[tuple[FormalisedRow, FormalisedRow]]] = {}
    for rows in answers:
        for before, after in itertools.pairwise(rows):
            by_turn.setdefault(after.iteration, []).append((before, after))
    return tuple(_turn(turn, by_turn[turn], read) for turn in sorted(by_turn))


def _turn(turn: int, pairs: Sequence[tuple[FormalisedRow, FormalisedRow]], read: ReadAnswer) -> RepairTurn:
    edits = list(_edits(pairs, read))
    return RepairTurn(
        turn=turn,
        n_handed_back=len(pairs),
        n_mended=sum(after.is_solved for _, after in pairs),
        codes=_code_counts(pairs),
        n_compared=len(edits),
        mean_atoms_changed=fmean(edit.n_changed for edit in edits) if edits else None,
        n_goals_lost=sum(edit.n_goals_lost for edit in edits),
        n_solved_by_losing=sum(edit.is_solved and edit.n_goals_lost > 0 for edit in edits),
    )


def _code_counts(pairs: Sequence[tuple[FormalisedRow, FormalisedRow]]) -> dict[str, CodeCounts]:
    seen, mended, new = Counter[str](), Counter[str](), Counter[str]()
    for before, after in pairs:
        seen.update(before.codes)
        new.update(set(after.codes) - set(before.codes))
        if after.readability != Readability.NO_PROBLEM:
            mended.update(set(before.codes) - set(after.codes))
    return {code: CodeCounts(seen[code], mended[code], new[code]) for code in sorted(seen | new)}


def _edits(pairs: Sequence[tuple[FormalisedRow, FormalisedRow]], read: ReadAnswer) -> Iterator[_Edit]:
    """Yield how answers differ that could be read before and after."""
    for before, after in pairs:
        if before.is_parsed and after.is_parsed:
            atoms, others = tagged_atoms(read(before)), tagged_atoms(read(after))
            lost = sum(section == "goal" for section, _ in atoms - others)
            yield _Edit(len(atoms ^ others), lost, after.is_solved and not before.is_solved)


def codes_of_all_turns(turns: Sequence[RepairTurn]) -> Mapping[str, CodeCounts]:
    """Return the counts of each code over all turns, those seen most often first."""
    codes = sorted({code for turn in turns for code in turn.codes})
    found = {code: CodeCounts.total(turn.codes[code] for turn in turns if code in turn.codes) for code in codes}
    return dict(sorted(found.items(), key=lambda item: -item[1].n_seen))

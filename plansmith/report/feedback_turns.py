"""Accuracy of a policy that gets its failed plans back with the validator's feedback, by number of such turns.

Source: LLM-Modulo (Kambhampati et al., arXiv:2402.01817), which PDDL-INSTRUCT names as the setting where its policies
would need fewer turns (section 8). Turn 0 is the first attempt, without feedback. Not here: the turns themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.report.statistics import TriedProblem, accuracy_interval


@dataclass(frozen=True, slots=True)
class FeedbackTurn:
    """What was solved after at most ``turn`` turns of feedback; ``ci95`` is `accuracy_interval`."""

    turn: int
    n: int
    n_valid: int
    accuracy: float
    ci95: tuple[float, float]


def accuracy_by_turn(
    solved_at: Sequence[int | None], forms: Sequence[str], turns: Sequence[int]
) -> tuple[FeedbackTurn, ...]:
    """Return the accuracy after each of ``turns``; a problem stays solved, because the loop stops at a valid plan.

    Args:
        solved_at: for each problem the turn whose plan was valid, 0 for the first attempt, None when none was.
        forms: of the problems, in the same order.
        turns: the numbers of turns to report, in ascending order, such as 0, 1, 2, 5.

    Raises:
        ValueError: no problems, turns that are negative or do not ascend, or a problem solved before turn 0.
    """
    if not solved_at:
        raise ValueError("no problems: accuracy over n=0 is undefined")
    numbers = [*turns, *(turn for turn in solved_at if turn is not None)]
    if list(turns) != sorted(set(turns)) or min(numbers, default=0) < 0:
        raise ValueError(f"turns count from 0 and ascend; got turns {list(turns)} and solved_at {list(solved_at)}")
    return tuple(_at(turn, solved_at, forms) for turn in turns)


def _at(turn: int, solved_at: Sequence[int | None], forms: Sequence[str]) -> FeedbackTurn:
    """Return the accuracy after so many turns."""
    by_then = [at is not None and at <= turn for at in solved_at]
    tried = [TriedProblem(solved, form) for solved, form in zip(by_then, forms, strict=True)]
    return FeedbackTurn(turn, len(tried), sum(by_then), sum(by_then) / len(tried), accuracy_interval(tried))

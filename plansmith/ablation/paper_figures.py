"""What the paper reports, copied from its tables, to be put beside our own figures and never mixed with them.

Source: PDDL-INSTRUCT (arXiv:2509.13351), tables 1, 4 and 5, for Llama-3-8B with eta = 10 and 15 and 100 test problems a
domain. Figures are percentages. The paper does not say what its "x +- y" is (table 4), nor over how many runs. Its
figures for GPT-4 are left out: only one model can stand beside ours in a cell.
"""

from __future__ import annotations

from enum import StrEnum

from plansmith.judging.taxonomy import ErrorClass

PAPER_MODEL = "Llama-3-8B"
PAPER_DOMAINS = ("blocksworld", "mystery-blocksworld", "logistics")


class PaperColumn(StrEnum):
    """The columns of table 1, in its order; low and high are its two values of eta."""

    BASELINE = "Baseline"
    ONLY_PHASE1 = "Only P1"
    ONLY_PHASE2 = "Only P2, detailed, eta = 15"
    BINARY_LOW = "Binary, eta = 10"
    BINARY_HIGH = "Binary, eta = 15"
    DETAILED_LOW = "Detailed, eta = 10"
    DETAILED_HIGH = "Detailed, eta = 15"


TABLE_1: dict[PaperColumn, dict[str, float]] = {
    column: dict(zip(PAPER_DOMAINS, figures, strict=True))
    for column, figures in (
        (PaperColumn.BASELINE, (28, 1, 11)),
        (PaperColumn.ONLY_PHASE1, (78, 32, 23)),
        (PaperColumn.ONLY_PHASE2, (72, 17, 45)),
        (PaperColumn.BINARY_LOW, (84, 47, 61)),
        (PaperColumn.BINARY_HIGH, (89, 49, 72)),
        (PaperColumn.DETAILED_LOW, (91, 59, 75)),
        (PaperColumn.DETAILED_HIGH, (94, 64, 79)),
    )
}
"""Plan accuracy by column and domain."""

TABLE_4: dict[PaperColumn, dict[str, tuple[float, float]]] = {
    column: dict(zip(PAPER_DOMAINS, figures, strict=True))
    for column, figures in (
        (PaperColumn.BASELINE, ((28.0, 4.2), (1.0, 1.0), (11.0, 2.8))),
        (PaperColumn.ONLY_PHASE1, ((78.0, 3.1), (32.0, 4.6), (23.0, 3.9))),
        (PaperColumn.ONLY_PHASE2, ((72.0, 6.5), (17.0, 3.2), (45.0, 4.7))),
        (PaperColumn.BINARY_HIGH, ((89.0, 2.7), (49.0, 5.2), (72.0, 4.1))),
        (PaperColumn.DETAILED_HIGH, ((94.0, 1.5), (64.0, 3.8), (79.0, 3.2))),
    )
}
"""Plan accuracy and what follows its "+-", by configuration and domain."""

TABLE_5: dict[ErrorClass, dict[str, float]] = {
    kind: dict(zip(PAPER_DOMAINS, figures, strict=True))
    for kind, figures in (
        (ErrorClass.PRECONDITION_VIOLATION, (2.1, 8.7, 5.3)),
        (ErrorClass.INCORRECT_EFFECT, (1.4, 12.4, 6.8)),
        (ErrorClass.GOAL_NOT_ACHIEVED, (1.8, 9.2, 6.1)),
        (ErrorClass.INVALID_ACTION_SEQUENCE, (0.7, 5.7, 2.8)),
    )
}
"""Failed problems by error class and domain, in percent of all problems; detailed feedback, eta = 15."""

TABLE_5_NAMES: dict[ErrorClass, str] = {
    ErrorClass.PRECONDITION_VIOLATION: "Precondition Violation",
    ErrorClass.INCORRECT_EFFECT: "Incorrect Effect Application",
    ErrorClass.GOAL_NOT_ACHIEVED: "Goal Not Achieved",
    ErrorClass.INVALID_ACTION_SEQUENCE: "Invalid Action Sequence",
}
"""Our classes are the paper's four, one to one. It does not define them; `taxonomy` says how we read them."""

TABLE_5_TOTAL: dict[str, float] = dict(zip(PAPER_DOMAINS, (6.0, 36.0, 21.0), strict=True))
"""Total failure rate by domain."""

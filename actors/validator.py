"""Worker that judges completions; the judging itself is `plansmith.judging`."""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.data.rows import JudgedRow, JudgingRow
from plansmith.judging.judge import Judge


class ValidatorActor:
    """Judges problem by problem, so that the rollouts of a group share one task."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __call__(self, rows: Sequence[JudgingRow]) -> list[JudgedRow]:
        """Return what the judge says of each problem's completions."""
        return [self._judge.judge(row) for row in rows]

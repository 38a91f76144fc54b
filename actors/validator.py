"""Worker that judges completions; the judging itself is `plansmith.judging`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plansmith.data.rows import JudgedRow, JudgingRow
from plansmith.data.tables import columns_of_rows, rows_of_columns
from plansmith.judging.judge import Judge


class ValidatorActor:
    """Judges problem by problem, so that the rollouts of a group share one task."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the columns of `JudgedRow` for a batch of `JudgingRow` columns."""
        return columns_of_rows([self._judge.judge(row) for row in rows_of_columns(batch, JudgingRow)], JudgedRow)

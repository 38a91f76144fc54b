"""Ray actor that judges rollouts; the judging itself is `plansmith.evaluation.judging`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from plansmith.data.rows import JudgingRow, VerdictRow
from plansmith.data.tables import columns_of_rows, rows_of_columns
from plansmith.evaluation.judging import judge_completion, verdict_row
from plansmith.pddl.grounding import PlanningTask
from plansmith.text.rendering import prompting_of


class ValidatorActor:
    """Judges completions; keeps the tasks it met, so that the rollouts of a group share one."""

    def __init__(self, prompting: str) -> None:
        self._prompting = prompting_of(prompting)
        self._task = lru_cache(maxsize=256)(PlanningTask.from_text)

    def judge(self, row: JudgingRow) -> VerdictRow:
        """Return the verdict on one rollout."""
        task = self._task(row.domain_pddl, row.problem_pddl)
        return verdict_row(task, row, judge_completion(task, row.completion, self._prompting))

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the columns of `VerdictRow` for a batch of `JudgingRow` columns."""
        return columns_of_rows([self.judge(row) for row in rows_of_columns(batch, JudgingRow)], VerdictRow)

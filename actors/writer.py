"""Ray workers that write corrupted plans, chains of thought, explanations; the writing is `plansmith.data.examples`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plansmith.data.examples import (
    chain_examples,
    corrupted_row,
    invalid_explanation,
    opening_examples,
    valid_explanation,
)
from plansmith.data.rows import CorruptedPlanRow, ExampleRow, SolvedProblemRow
from plansmith.data.tables import columns_of_rows, rows_of_columns
from plansmith.problems.corruption import Corruption
from plansmith.stages import row_seed
from plansmith.text.rendering import rendering_of

Columns = Mapping[str, Sequence[Any]]


def _is_drawn(share: float, *ids: str | int) -> bool:
    """Return whether a row belongs to the share of rows that are written; depends on its id alone."""
    return row_seed(0, "draw", *ids) / 2**63 < share


class CorruptionWriter:
    """Draws corrupted plans: on average ``per_problem`` for each solved problem, over the four classes."""

    def __init__(self, per_problem: float, seed: int) -> None:
        self._share, self._seed = per_problem / len(Corruption), seed

    def __call__(self, batch: Columns) -> dict[str, list[Any]]:
        """Return the columns of `CorruptedPlanRow` for a batch of `SolvedProblemRow` columns."""
        wanted = [
            (row, corruption)
            for row in rows_of_columns(batch, SolvedProblemRow)
            for corruption in Corruption
            if _is_drawn(self._share, self._seed, row.problem_id, corruption)
        ]
        rows = [corrupted_row(row, corruption, seed=self._seed) for row, corruption in wanted]
        return columns_of_rows([row for row in rows if row is not None], CorruptedPlanRow)


class ChainWriter:
    """Writes chains of thought, whole and their first steps, and explanations of valid plans."""

    def __init__(
        self,
        rendering: str,
        names: Sequence[str],
        n_renamings: Mapping[str, int],
        n_openings: int,
        opening_steps: int,
        valid_share: float,
        seed: int,
    ) -> None:
        self._rendering, self._names = rendering_of(rendering), tuple(names)
        self._n_renamings, self._valid_share, self._seed = n_renamings, valid_share, seed
        self._n_openings, self._opening_steps = n_openings, opening_steps

    def __call__(self, batch: Columns) -> dict[str, list[Any]]:
        """Return the columns of `ExampleRow` for a batch of `SolvedProblemRow` columns."""
        rows: list[ExampleRow] = []
        for row in rows_of_columns(batch, SolvedProblemRow):
            copies = self._n_renamings[row.level]
            rows += chain_examples(row, self._rendering, self._names, n_renamings=copies, seed=self._seed)
            rows += opening_examples(
                row, self._rendering, self._names, n_renamings=self._n_openings, n_steps=self._opening_steps,
                seed=self._seed,
            )  # fmt: skip
            if _is_drawn(self._valid_share, self._seed, row.problem_id):
                rows.append(valid_explanation(row, self._rendering, seed=self._seed))
        return columns_of_rows(rows, ExampleRow)


class ExplanationWriter:
    """Writes explanations of corrupted plans."""

    def __init__(self, rendering: str) -> None:
        self._rendering = rendering_of(rendering)

    def __call__(self, batch: Columns) -> dict[str, list[Any]]:
        """Return the columns of `ExampleRow` for a batch of `CorruptedPlanRow` columns."""
        rows = [invalid_explanation(row, self._rendering) for row in rows_of_columns(batch, CorruptedPlanRow)]
        return columns_of_rows(rows, ExampleRow)

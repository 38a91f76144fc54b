"""Ray workers that write corrupted plans, chains of thought, explanations; the writing is `plansmith.data.examples`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plansmith.config.dataset import PlanExamplesConfig
from plansmith.config.pddl_instruct import ExamplesConfig
from plansmith.data.examples import (
    chain_examples,
    corrupted_row,
    invalid_explanation,
    mistake_example,
    opening_examples,
    valid_explanation,
)
from plansmith.data.plan_examples import plan_examples
from plansmith.data.rows import CorruptedPlanRow, ExampleKind, ExampleRow, SolvedProblemRow
from plansmith.problems.corruption import Corruption
from plansmith.problems.noise import Noise
from plansmith.stages import row_seed
from plansmith.text.rendering import rendering_of


def _is_drawn(share: float, *ids: str | int) -> bool:
    """Return whether a row belongs to the share of rows that are written; depends on its id alone."""
    return row_seed(0, "draw", *ids) / 2**63 < share


class CorruptionWriter:
    """Draws corrupted plans: on average ``per_problem`` for each solved problem, over the four classes."""

    def __init__(self, per_problem: float, seed: int) -> None:
        self._share, self._seed = per_problem / len(Corruption), seed

    def __call__(self, solved: Sequence[SolvedProblemRow]) -> list[CorruptedPlanRow]:
        """Return the corrupted plans of some solved problems."""
        drawn = (
            corrupted_row(row, corruption, seed=self._seed)
            for row in solved
            for corruption in Corruption
            if _is_drawn(self._share, self._seed, row.problem_id, corruption)
        )
        return [row for row in drawn if row is not None]


class ChainWriter:
    """Writes chains of thought, whole, their first steps, and with a mistake; and explanations of valid plans.

    Args:
        rendering: how chains are written.
        names: of the objects; none: each problem keeps its own.
        examples: how many of which kind.
        renamings: `examples.renamings` of the levels that have their own.
        seed: of the run.
        noise: in the prompts of whole chains.
    """

    def __init__(
        self,
        rendering: str,
        names: Sequence[str],
        examples: ExamplesConfig,
        renamings: Mapping[str, int],
        seed: int,
        noise: Noise | None = None,
    ) -> None:
        self._rendering, self._names, self._seed = rendering_of(rendering), names, seed
        self._examples, self._renamings, self._noise = examples, renamings, noise

    def __call__(self, solved: Sequence[SolvedProblemRow]) -> list[ExampleRow]:
        """Return the examples of some solved problems."""
        config, rows = self._examples, list[ExampleRow]()
        for row in solved:
            copies = self._renamings.get(row.level, config.renamings)
            rows += chain_examples(
                row, self._rendering, self._names, n_renamings=copies, seed=self._seed, chains=config,
                noise=self._noise,
            )  # fmt: skip
            rows += opening_examples(
                row, self._rendering, self._names, n_renamings=config.openings, n_steps=config.opening_steps,
                seed=self._seed, tells_start=config.tells_start,
            )  # fmt: skip
            if _is_drawn(config.mistakes, self._seed, row.problem_id, "mistake"):
                mistaken = mistake_example(
                    row, self._rendering, self._names, seed=self._seed, tells_start=config.tells_start
                )
                rows += [] if mistaken is None else [mistaken]
            if _is_drawn(config.valid_explanations, self._seed, row.problem_id):
                rows.append(valid_explanation(row, self._rendering, seed=self._seed))
        return rows


class PlanWriter:
    """Writes solved problems answered by their plans.

    Args:
        config: how.
        seed: of the run.
    """

    def __init__(self, config: PlanExamplesConfig, seed: int) -> None:
        self._config, self._seed = config, seed

    def __call__(self, solved: Sequence[SolvedProblemRow]) -> list[ExampleRow]:
        """Return the examples of some solved problems."""
        return [
            ExampleRow(made.example_id, row.problem_id, ExampleKind.PLAN, None, made.prompt, made.response)
            for row in solved
            for made in plan_examples(row, self._config, seed=self._seed)
        ]


class ExplanationWriter:
    """Writes explanations of corrupted plans."""

    def __init__(self, rendering: str) -> None:
        self._rendering = rendering_of(rendering)

    def __call__(self, corrupted: Sequence[CorruptedPlanRow]) -> list[ExampleRow]:
        """Return each plan with its explanation."""
        return [invalid_explanation(row, self._rendering) for row in corrupted]

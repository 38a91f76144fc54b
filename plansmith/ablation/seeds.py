"""One way of training over several seeds: accuracy by level and arm, and whether the loop gains more than chance.

Not here: tables, plot and sentences (`seeds_report`), ways of training compared with each other (`summary`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from plansmith.ablation.order import OrderTest
from plansmith.ablation.summary import (
    AblationCell,
    ArmRun,
    IsInScope,
    cell_over_seeds,
    made_with,
    problems_by_seed,
    tests_in_scopes,
)
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.pipeline import ConfigT, ResultsT, Variant
from plansmith.report.arms import FINAL, arms_of, compared_with_final, evaluated_problems
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.metrics import ALL_LEVELS, EvaluatedProblem, tested_levels
from plansmith.report.results import Reproducible

ALL_ARMS = "all-arms"
"""The one variant of an ablation that compares the arms of a run."""
DEVELOPMENT_SEEDS = range(100)
"""Settings may be chosen on these; what is claimed of a method is measured on others (docs/evaluation.md)."""


@dataclass(frozen=True, slots=True)
class SeedsResults(Reproducible):
    """The runs of several seeds under the same settings.

    ``levels`` begins with `ALL_LEVELS` if they are several; ``arms`` is in the order of training. ``cells`` has every
    arm on every level; the first of ``tests`` is the headline's.
    """

    name: str
    preset: str
    seeds: tuple[int, ...]
    levels: tuple[str, ...]
    arms: tuple[str, ...]
    cells: tuple[AblationCell, ...]
    tests: tuple[OrderTest, ...]

    def of_level(self, level: str) -> tuple[AblationCell, ...]:
        """Return every arm on one level."""
        return tuple(cell for cell in self.cells if cell.scope == level)


def seeds_results(name: str, runs: Sequence[RunSoFar[PddlInstructConfig]], command: str) -> SeedsResults:
    """Return the figures of finished runs that differ in their seeds."""
    primary, made = runs[0].config.primary_level, made_with(runs[0].config, command)
    return summarise_seeds(name, tried_in(runs), preset=runs[0].preset, primary_level=primary, **made)


def summarise_seeds(name: str, runs: Sequence[ArmRun], *, preset: str, primary_level: str, **made: Any) -> SeedsResults:
    """Return the figures of every arm on every level, and the tests of the final arm against those before it.

    Problems and forms of different seeds are different ones. An arm that some seeds have not, such as an iteration
    after the last that was needed, has the figures of the others. ``made`` has the fields of `Reproducible`.

    Raises:
        ValueError: no final arm, or two arms that tried different problems under one seed.
    """
    arms = list(dict.fromkeys(run.arm for run in runs))
    if FINAL not in arms:
        raise ValueError(f"runs without a final policy cannot be summarised; they have the arms {arms}")
    arms.sort(key=lambda arm: arm == FINAL)
    scopes = {
        level: partial(is_in_level, level)
        for level in tested_levels([item.level for run in runs for item in run.evaluated], primary_level)
    }
    tests = tests_in_scopes(runs, [(before, FINAL) for before in compared_with_final(arms)], scopes)
    return over_seeds(name, runs, arms, scopes, tests, preset=preset, **made)


def tried_in(runs: Sequence[RunSoFar[Any]]) -> list[ArmRun]:
    """Return what every arm of every run tried."""
    return [ArmRun(arm.name, run.config.seed, tuple(evaluated_problems(arm))) for run in runs for arm in arms_of(run)]


def as_it_is(config: ConfigT) -> list[Variant[ConfigT]]:
    """Return the run itself as the one variant: its arms share what is equal in them already."""
    return [Variant(ALL_ARMS, config)]


def of_one_variant(
    results: Callable[[str, Sequence[RunSoFar[ConfigT]], str], ResultsT],
) -> Callable[[ConfigT, Sequence[tuple[str, RunSoFar[ConfigT]]], str], ResultsT]:
    """Return what makes the results of an ablation whose one variant has every arm: those over its seeds."""
    return lambda config, runs, command: results(config.name, [run for _, run in runs], command)


def over_seeds(
    name: str,
    runs: Sequence[ArmRun],
    arms: Sequence[str],
    scopes: Mapping[str, IsInScope],
    tests: tuple[OrderTest, ...],
    **made: Any,
) -> SeedsResults:
    """Return the figures of every arm in every scope that it was tried in, with tests of them; see `SeedsResults`."""
    cells = tuple(
        cell_over_seeds(arm, scope, by_seed)
        for scope, is_in in scopes.items()
        for arm in arms
        if (by_seed := problems_by_seed(runs, arm, is_in))
    )
    seeds = tuple(sorted({run.seed for run in runs}))
    return SeedsResults(
        name=name, seeds=seeds, levels=tuple(scopes), arms=tuple(arms), cells=cells, tests=tests, **made
    )


def is_in_level(level: str, item: EvaluatedProblem) -> bool:
    """Return whether a problem is of a level, or of any if all are meant."""
    return level in (item.level, ALL_LEVELS)

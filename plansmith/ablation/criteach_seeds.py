"""Several seeds of `self_criteach`: success of every arm, and what success does not show, cost and progress of plans.

Not here: the figures of one run (`plansmith.report.criteach_results`), the tables of success (`seeds_report`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from plansmith.ablation.seeds import SeedsResults, is_in_level, over_seeds, tried_in
from plansmith.ablation.seeds_report import seeds_report
from plansmith.ablation.summary import made_with, tests_in_scopes
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.report.criteach_results import MeanTest, compared_arms, mean_tests, measured_in
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.metrics import tested_levels
from plansmith.report.sections import Report, Section, Table
from plansmith.report.statistics import mean_interval
from plansmith.report.wording import p_cell, spoken

Run = RunSoFar[SelfCriteachConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriteachSeeds(SeedsResults):
    """The runs of several seeds; ``pooled`` has the problems of all of them, ``by_seed`` those of each."""

    pooled: tuple[MeanTest, ...]
    by_seed: dict[int, tuple[MeanTest, ...]]


def criteach_seeds_results(name: str, runs: Sequence[Run], command: str) -> CriteachSeeds:
    """Return the figures of finished runs that differ in their seeds; the first of the tests is the headline's."""
    tried = tried_in(runs)
    arms = list(dict.fromkeys(run.arm for run in tried))
    evaluated = [item for run in tried for item in run.evaluated]
    levels = tested_levels([item.level for item in evaluated], evaluated[0].level)
    scopes = {level: partial(is_in_level, level) for level in levels}
    found = over_seeds(
        name,
        tried,
        arms,
        scopes,
        tests_in_scopes(tried, compared_arms(arms), scopes),
        preset=runs[0].preset,
        **made_with(runs[0].config, command),
    )
    return CriteachSeeds(
        **{field: getattr(found, field) for field in SeedsResults.__dataclass_fields__},
        pooled=mean_tests(_of_all_seeds(runs)),
        by_seed={run.config.seed: mean_tests(measured_in(run)) for run in runs},
    )


def _of_all_seeds(runs: Sequence[Run]) -> dict[str, dict[str, dict[Any, float | None]]]:
    """Return what is measured in all runs; equal ids of two seeds are two problems, and equal forms two forms."""
    found: dict[str, dict[str, dict[Any, float | None]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for arm, numbers in measured_in(run).items():
            for what, by_problem in numbers.items():
                seed = run.config.seed
                found[arm][what] |= {(seed, own, (seed, form)): value for (own, form), value in by_problem.items()}
    return found


def criteach_seeds_report(results: CriteachSeeds) -> Report:
    """Return what is said about several seeds."""
    report = seeds_report(results)
    *sections, provenance = report.sections
    cost = Section("Do plans cost less, and come further?", (mean_table(results),))
    return replace(report, sections=(*sections, cost, provenance))


def mean_table(results: CriteachSeeds) -> Table:
    """Return the means of the compared arms with the test over all seeds, and each seed in a column."""
    rows = []
    for test in results.pooled:
        alone = [_of_same(test, results.by_seed.get(seed, ())) for seed in results.seeds]
        means = ("-" if one is None else f"{one.mean_before:.3f} to {one.mean_after:.3f}" for one in alone)
        changes = [one.mean_after - one.mean_before for one in alone if one is not None]
        spread = mean_interval(changes) if changes else None
        change = "-" if spread is None else f"{spread[0]:+.3f} to {spread[1]:+.3f}"
        policies = f"{spoken(test.before)} to {spoken(test.after)}"
        both = (f"{test.mean_before:.3f}", f"{test.mean_after:.3f}")
        rows.append((policies, test.what, *both, p_cell(test.p_value), change, *means))
    note = (
        "Means of all test problems of all seeds; p of a paired permutation test, two-sided; Student's 95% interval of "
        "the change over the seeds. A plan costs 1 for a violated precondition, and more for a state that it claims "
        "wrongly (equation 11)."
    )
    header = ("policies", "of a plan", "before", "after", "p", "change over seeds",
              *(f"seed {seed}" for seed in results.seeds))  # fmt: skip
    return Table("Cost and progress", header, tuple(rows), note)


def _of_same(test: MeanTest, others: Sequence[MeanTest]) -> MeanTest | None:
    wanted = (test.before, test.after, test.what)
    return next((other for other in others if (other.before, other.after, other.what) == wanted), None)

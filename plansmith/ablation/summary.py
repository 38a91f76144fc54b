"""The ablation of the paper over several seeds: accuracy by arm and domain, and whether the arms stand in its order.

An *arm* here is a way of training: which phases, which feedback, how many iterations. Many `ArmRun` become one
`AblationResults`. Not here: tables and sentences (`ablation_tables`, `ablation_report`), the paper's own figures
(`paper_figures`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any, Literal, Self

from plansmith.ablation.order import OrderTest, tests_of
from plansmith.ablation.paper_figures import PaperColumn
from plansmith.config.run import RunConfig
from plansmith.data.artifacts import installed_tool_versions
from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.metrics import EvaluatedProblem
from plansmith.report.results import Reproducible
from plansmith.report.statistics import TriedById, accuracy_interval, interval_over_seeds

IsInScope = Callable[[EvaluatedProblem], bool]
"""Whether a problem belongs to what is looked at, such as a domain or a level."""
ALL_DOMAINS = "all domains"
NEIGHBOURS = (
    (PaperColumn.BASELINE, PaperColumn.ONLY_PHASE1),
    (PaperColumn.ONLY_PHASE1, PaperColumn.BINARY_HIGH),
    (PaperColumn.BINARY_HIGH, PaperColumn.DETAILED_HIGH),
    (PaperColumn.BASELINE, PaperColumn.ONLY_PHASE2),
    (PaperColumn.ONLY_PHASE2, PaperColumn.BINARY_HIGH),
    (PaperColumn.BINARY_LOW, PaperColumn.BINARY_HIGH),
    (PaperColumn.DETAILED_LOW, PaperColumn.DETAILED_HIGH),
    (PaperColumn.BINARY_LOW, PaperColumn.DETAILED_LOW),
)
"""Pairs whose second member is the better one in every domain of tables 1 and 4.

Table 4's chain comes first. Phase 2 alone stands between the baseline and the whole method; against phase 1 alone the
paper's own order depends on the domain, so that pair is not tested. The last three are the claims of table 1 on eta and
on the kind of feedback.
"""


@dataclass(frozen=True, slots=True)
class AblationArm:
    """One way of training; ``paper_label`` is the column of table 1 it stands for, eta matched by rank.

    With ``turns``, its policy gets failed test plans back with feedback so many times.
    """

    id: str
    label: str
    phases: tuple[int, ...]
    feedback: Literal["binary", "detailed"] | None
    eta: int | None
    paper_label: PaperColumn | None
    turns: int = 0

    def __post_init__(self) -> None:
        has_loop = 2 in self.phases
        if has_loop != (self.feedback is not None) or has_loop != (self.eta is not None):
            raise ValueError(
                f"arm {self.id}: feedback and eta belong to phase 2; got phases={self.phases}, "
                f"feedback={self.feedback!r}, eta={self.eta}"
            )

    @property
    def column(self) -> str:
        """Return the arm as table 1 heads its column, with our eta; an arm the paper has not keeps its label."""
        if self.paper_label is None:
            return self.label
        loop = f"{self.feedback}, eta = {self.eta}"
        names = {(): "Baseline", (1,): "Only P1", (2,): f"Only P2, {loop}"}
        return names.get(self.phases, loop.capitalize())


@dataclass(frozen=True, slots=True)
class ArmRun:
    """Every test problem once, tried by one arm trained with one seed.

    ``iteration`` is None for the arm's result, else the number of the feedback iteration that was just done.
    """

    arm: str
    seed: int
    evaluated: tuple[EvaluatedProblem, ...]
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class SeedMean:
    """What one run reached in one scope: the share of ``n`` problems, or the mean of a figure of theirs."""

    seed: int
    n: int
    n_forms: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class SeedFigures(SeedMean):
    """How many problems one run solved in one scope, with `accuracy_interval`."""

    n_valid: int
    ci95: tuple[float, float]
    errors: dict[ErrorClass, int]


@dataclass(frozen=True, slots=True)
class MeanCell:
    """An arm over its seeds in one scope: what is looked at, such as a domain, a level, a figure.

    ``mean`` is the mean of what the seeds reached, ``sd`` their sample standard deviation (None of one seed), ``ci95``
    `interval_over_seeds`; of what is no share it is Student's alone, None of one seed.
    """

    arm: str
    scope: str
    seeds: tuple[SeedMean, ...]
    mean: float
    sd: float | None
    ci95: tuple[float, float] | None

    @classmethod
    def over(
        cls, arm: str, scope: str, seeds: Sequence[SeedMean], ci95: tuple[float, float] | None, **more: Any
    ) -> Self:
        """Return the cell of an arm with the mean over its seeds and its spread."""
        reached = [figures.accuracy for figures in seeds]
        spread = stdev(reached) if len(reached) > 1 else None
        return cls(arm=arm, scope=scope, seeds=tuple(seeds), mean=fmean(reached), sd=spread, ci95=ci95, **more)


@dataclass(frozen=True, slots=True)
class AblationCell(MeanCell):
    """The accuracy of an arm over its seeds: in an ablation of a domain, all its levels together.

    ``error_rates`` is the mean share of all problems that failed, by class.
    """

    seeds: tuple[SeedFigures, ...]
    ci95: tuple[float, float]
    error_rates: dict[ErrorClass, float]
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class AblationResults(Reproducible):
    """A whole ablation: every arm, every seed; ``iterations`` has the cells after single feedback iterations.

    ``tests`` are of the paper's order, ``contrasts`` of pairs of our own, of which the second arm has what the first
    lacks.
    """

    name: str
    model: str
    arms: tuple[AblationArm, ...]
    domains: tuple[str, ...]
    cells: tuple[AblationCell, ...]
    tests: tuple[OrderTest, ...] = ()
    contrasts: tuple[OrderTest, ...] = ()
    iterations: tuple[AblationCell, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return every seed that occurs, in ascending order."""
        return tuple(sorted({figures.seed for cell in self.cells for figures in cell.seeds}))

    def cell(self, arm: str, domain: str) -> AblationCell | None:
        """Return the result of an arm in a domain, or None where it was not tried."""
        return next((cell for cell in self.cells if (cell.arm, cell.scope) == (arm, domain)), None)

    @property
    def best_arm(self) -> AblationArm:
        """Return the arm with the greatest mean accuracy over its domains, the later one where two are equal.

        Arms that try again with feedback are none of these.
        """
        tried = {cell.arm for cell in self.cells} & {arm.id for arm in self.arms if not arm.turns}
        means = {name: fmean(cell.mean for cell in self.cells if cell.arm == name) for name in tried}
        best = max(means.values())
        return [arm for arm in self.arms if means.get(arm.id) == best][-1]


def made_with(config: RunConfig, command: str) -> dict[str, Any]:
    """Return the fields of `Reproducible` for runs that differ in their seeds."""
    settings = config.model_dump(mode="json", exclude={"name", "seed"})
    return {"config": settings, "versions": installed_tool_versions(), "command": command}


def standard_arms(eta_low: int, eta_high: int) -> tuple[AblationArm, ...]:
    """Return the seven arms of table 1 with our two values of eta.

    Raises:
        ValueError: unless 1 <= eta_low < eta_high.
    """
    if not 1 <= eta_low < eta_high:
        raise ValueError(f"the two values of eta ascend from 1; got {eta_low} and {eta_high}")

    def loop(feedback: Literal["binary", "detailed"], eta: int, column: PaperColumn) -> AblationArm:
        label = f"Phase 1 + {feedback} feedback, eta = {eta}"
        return AblationArm(f"{feedback}_eta{eta}", label, (1, 2), feedback, eta, column)

    alone = f"Phase 2 only, detailed feedback, eta = {eta_high}"
    return (
        AblationArm("baseline", "Baseline, no training", (), None, None, PaperColumn.BASELINE),
        AblationArm("phase1", "Phase 1 only", (1,), None, None, PaperColumn.ONLY_PHASE1),
        AblationArm(f"phase2_detailed_eta{eta_high}", alone, (2,), "detailed", eta_high, PaperColumn.ONLY_PHASE2),
        loop("binary", eta_low, PaperColumn.BINARY_LOW),
        loop("binary", eta_high, PaperColumn.BINARY_HIGH),
        loop("detailed", eta_low, PaperColumn.DETAILED_LOW),
        loop("detailed", eta_high, PaperColumn.DETAILED_HIGH),
    )


def summarise_ablation(
    name: str,
    arms: Sequence[AblationArm],
    runs: Sequence[ArmRun],
    *,
    model: str,
    contrasts: Sequence[tuple[str, str]] = (),
    **made: Any,
) -> AblationResults:
    """Return the figures of every arm and the tests of the paper's order; domains keep the order of their occurrence.

    Args:
        name, arms, runs, model: see `AblationResults`.
        contrasts: further pairs of arms to be tested, by id; those that are not both there are left out.
        made: the fields of `Reproducible`.

    Raises:
        ValueError: no results, an arm that is unknown or named twice, a run that occurs twice, a problem that occurs
            twice in one run, or two arms that tried different problems under one seed.
    """
    _check_runs(arms, runs)
    results = [run for run in runs if run.iteration is None]
    domains = tuple(dict.fromkeys(item.domain for run in results for item in run.evaluated))
    numbers = sorted({run.iteration for run in runs if run.iteration is not None})
    return AblationResults(
        name=name,
        model=model,
        arms=tuple(arms),
        domains=domains,
        cells=_cells(arms, domains, results, iteration=None),
        tests=_order_tests(_neighbours(arms), domains, results),
        contrasts=_order_tests(contrasts, domains, results),
        iterations=tuple(
            cell
            for number in numbers
            for cell in _cells(arms, domains, [run for run in runs if run.iteration == number], iteration=number)
        ),
        **made,
    )


def _check_runs(arms: Sequence[AblationArm], runs: Sequence[ArmRun]) -> None:
    """Raise unless every run belongs to one known arm and occurs once, and there is a result at all."""
    ids, columns = [arm.id for arm in arms], [arm.paper_label for arm in arms if arm.paper_label is not None]
    if len(set(ids)) < len(ids) or len(set(columns)) < len(columns):
        raise ValueError(f"two arms share an id or a column of the paper; got {ids} and {columns}")
    if unknown := sorted({run.arm for run in runs} - set(ids)):
        raise ValueError(f"runs of arms that are not in the ablation: {unknown}; known are {ids}")
    if not any(run.iteration is None for run in runs):
        raise ValueError("an ablation without a result: no arm was evaluated")
    seen: set[tuple[str, int, int | None]] = set()
    for run in runs:
        place = (run.arm, run.seed, run.iteration)
        if place in seen:
            raise ValueError(f"arm {run.arm} with seed {run.seed}, iteration {run.iteration}, occurs twice")
        seen.add(place)
        if not run.evaluated or len({item.problem_id for item in run.evaluated}) < len(run.evaluated):
            raise ValueError(f"arm {run.arm} with seed {run.seed}: no problems, or a problem that occurs twice")


def _cells(
    arms: Sequence[AblationArm], domains: Sequence[str], runs: Sequence[ArmRun], *, iteration: int | None
) -> tuple[AblationCell, ...]:
    """Return the cells of every arm and domain that was tried."""
    cells = []
    for arm, domain in itertools.product(arms, domains):
        if by_seed := problems_by_seed(runs, arm.id, partial(_is_in, domain)):
            cells.append(cell_over_seeds(arm.id, domain, by_seed, iteration=iteration))
    return tuple(cells)


def _seed_figures(seed: int, evaluated: Sequence[EvaluatedProblem]) -> SeedFigures:
    """Return the figures of one run in one scope."""
    n, n_valid = len(evaluated), sum(item.is_valid for item in evaluated)
    errors = {kind: sum(item.error_class is kind for item in evaluated) for kind in ErrorClass}
    tried = [item.tried for item in evaluated]
    n_forms = len({item.form for item in tried})
    return SeedFigures(seed, n, n_forms, n_valid / n, n_valid, accuracy_interval(tried), errors)


def cell_over_seeds(
    arm: str, scope: str, by_seed: Mapping[int, Sequence[EvaluatedProblem]], *, iteration: int | None = None
) -> AblationCell:
    """Return the mean over seeds with its spread and interval, from the problems of the scope by seed."""
    seeds = [_seed_figures(seed, items) for seed, items in by_seed.items()]
    ci95 = interval_over_seeds([[item.tried for item in items] for items in by_seed.values()])
    rates = {kind: fmean(figures.errors[kind] / figures.n for figures in seeds) for kind in ErrorClass}
    return AblationCell.over(arm, scope, seeds, ci95, error_rates=rates, iteration=iteration)


def _neighbours(arms: Sequence[AblationArm]) -> list[tuple[str, str]]:
    """Return the pairs of the paper's order by id."""
    id_of = {arm.paper_label: arm.id for arm in arms}
    return [(id_of[first], id_of[second]) for first, second in NEIGHBOURS if first in id_of and second in id_of]


def _order_tests(
    pairs: Sequence[tuple[str, str]], domains: Sequence[str], runs: Sequence[ArmRun]
) -> tuple[OrderTest, ...]:
    """Return the test of every pair of arms, in each domain and, with several, in all of them together."""
    scopes = [*domains, *([ALL_DOMAINS] if len(domains) > 1 else [])]
    return tests_in_scopes(runs, pairs, {scope: partial(_is_in, scope) for scope in scopes})


def _is_in(domain: str, item: EvaluatedProblem) -> bool:
    """Return whether a problem is of a domain, or of any if all are meant."""
    return domain in (item.domain, ALL_DOMAINS)


def tests_in_scopes(
    runs: Sequence[ArmRun], pairs: Iterable[tuple[str, str]], scopes: Mapping[str, IsInScope]
) -> tuple[OrderTest, ...]:
    """Return the test of every pair of arms in every scope that both were tried in under one seed at least."""

    def tried(arm: str, scope: str) -> dict[int, TriedById]:
        found = problems_by_seed(runs, arm, scopes[scope])
        return {seed: {item.problem_id: item.tried for item in items} for seed, items in found.items()}

    return tests_of(((*pair, scope) for pair, scope in itertools.product(pairs, scopes)), tried)


def problems_by_seed(runs: Sequence[ArmRun], arm: str, is_in: IsInScope) -> dict[int, list[EvaluatedProblem]]:
    """Return the problems of a scope that an arm tried, by seed in ascending order; without seeds that have none."""
    found = {run.seed: [item for item in run.evaluated if is_in(item)] for run in runs if run.arm == arm}
    return {seed: items for seed, items in sorted(found.items()) if items}

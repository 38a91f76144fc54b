"""How wrong may a domain be that is learnt in? Self-CriTeach's tuning and reinforcement in damaged domains, over seeds.

Each variant is one run a seed, in which literals were removed from the written domain or added to it; the runs of a
seed share everything up to the damage. Not here: the damage itself (`plansmith.problems.damage`), tables, plot and
sentences (`domain_damage_report`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.ablation.seeds import SeedsResults, over_seeds
from plansmith.ablation.summary import ArmRun, MeanCell, SeedMean, made_with, tests_in_scopes
from plansmith.config.domain_writing import DamageConfig, DamageKind
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.errors import ConfigError
from plansmith.pipeline import Variant
from plansmith.report.arms import arms_of, evaluated_problems
from plansmith.report.criteach_results import CriteachResults, DamagedDomain, criteach_results
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.metrics import ALL_LEVELS, EvaluatedProblem
from plansmith.report.statistics import mean_interval

Run = RunSoFar[SelfCriteachConfig]

INTACT = "intact"
KINDS: tuple[DamageKind, ...] = ("removed", "added")
LITERALS = (1, 2, 4)
"""Of a damage; 0 is the domain as it was written."""
ARMS = ("sft", "sft_cpo")
COST, PROGRESS, DISAGREEMENT, TRUE_PLANS = "cost per plan", "progress", "disagreement", "true plans"
FIGURES = (COST, PROGRESS, DISAGREEMENT, TRUE_PLANS)
"""What is measured beside success: of an arm cost by the domain that it learnt in, progress by the reference, the mean
over the updates of its reinforcement of the share of rollouts that the two judge differently, and the share of the
library's plans that are true."""


@dataclass(frozen=True, slots=True)
class DrawnDamage:
    """What was drawn for a variant and a seed, in the domain of a name."""

    variant: str
    seed: int
    domain: str
    damage: DamagedDomain


@dataclass(frozen=True, slots=True)
class DamageResults:
    """Every variant over the seeds so far.

    ``success`` has each arm of each variant as an arm (`damaged_arm`), its tests are of every damage against none;
    ``measured`` the same arms by `FIGURES`, and every damage that was drawn is in ``drawn``.
    """

    success: SeedsResults
    measured: tuple[MeanCell, ...]
    drawn: tuple[DrawnDamage, ...]

    def cell(self, arm: str, variant: str, figure: str | None = None) -> MeanCell | None:
        """Return an arm of a variant by a figure, or by success; None where it has not been tried."""
        cells: Sequence[MeanCell] = self.success.cells if figure is None else self.measured
        wanted = (damaged_arm(arm, variant), figure or ALL_LEVELS)
        return next((cell for cell in cells if (cell.arm, cell.scope) == wanted), None)


def variant_name(kind: str, n_literals: int) -> str:
    """Return what a damage is called."""
    return f"{kind}_{n_literals}" if n_literals else INTACT


def damaged_arm(arm: str, variant: str) -> str:
    """Return what an arm of a variant is called."""
    return f"{arm}_{variant}"


def damage_variants(config: SelfCriteachConfig) -> list[Variant[SelfCriteachConfig]]:
    """Return the run in the domain as it was written, then those in damaged ones.

    Raises:
        ConfigError: there is no CPO, or the settings damage the domain already.
    """
    if config.cpo is None or config.domain.damage is not None:
        raise ConfigError(
            "the study compares CPO in a written domain with CPO in worse ones", where="cpo and domain.damage",
            got="no cpo" if config.cpo is None else f"domain.damage={config.domain.damage}",
            expected="settings of cpo, and no damage", cure="take the preset demo, and leave domain.damage out",
        )  # fmt: skip
    evaluation = config.evaluation.model_copy(update={"noise_rates": ()})
    intact = config.model_copy(update={"arms": ARMS, "evaluation": evaluation})
    return [
        Variant(INTACT, intact),
        *(
            Variant(variant_name(kind, n), _damaging(intact, DamageConfig(kind=kind, literals=n)))
            for kind in KINDS
            for n in LITERALS
        ),
    ]


def _damaging(config: SelfCriteachConfig, damage: DamageConfig) -> SelfCriteachConfig:
    return config.model_copy(update={"domain": config.domain.model_copy(update={"damage": damage})})


def damage_results(config: SelfCriteachConfig, runs: Sequence[tuple[str, Run]], command: str) -> DamageResults:
    """Return the figures of all runs so far, each given with the name of its variant."""
    tried = [
        ArmRun(damaged_arm(arm.name, variant), run.config.seed, tuple(evaluated_problems(arm)))
        for variant, run in runs
        for arm in arms_of(run)
    ]
    known = [(variant, found) for variant, run in runs if (found := criteach_results(run)) is not None]
    names = list(dict.fromkeys(run.arm for run in tried))
    pairs = [
        (damaged_arm(arm, INTACT), name)
        for arm in reversed(ARMS)
        for kind in KINDS
        for n in reversed(LITERALS)
        if (name := damaged_arm(arm, variant_name(kind, n))) in names and damaged_arm(arm, INTACT) in names
    ]
    scopes = {ALL_LEVELS: _is_any}
    tests = tests_in_scopes(tried, pairs, scopes)
    made = made_with(config, command)
    drawn = [DrawnDamage(variant, found.seed, *item) for variant, found in known for item in found.damage.items()]
    success = over_seeds(config.name, tried, names, scopes, tests, preset=runs[0][1].preset, **made)
    return DamageResults(success, tuple(_measured(known)), tuple(drawn))


def _is_any(_: EvaluatedProblem) -> bool:
    return True


def _measured(runs: Sequence[tuple[str, CriteachResults]]) -> Iterator[MeanCell]:
    """Yield every arm of every variant by each of the figures that it has."""
    for variant in dict.fromkeys(variant for variant, _ in runs):
        of_variant = [found for name, found in runs if name == variant]
        for arm in ARMS:
            for figure in FIGURES:
                seeds = [mean for found in of_variant for mean in _of_seed(found, arm, figure)]
                if seeds:
                    interval = mean_interval([mean.accuracy for mean in seeds])
                    yield MeanCell.over(damaged_arm(arm, variant), figure, seeds, interval)


def _of_seed(found: CriteachResults, arm: str, figure: str) -> Iterator[SeedMean]:
    """Yield what an arm of one run has of a figure, if anything."""
    tried = found.arms.get(arm)
    if tried is None:
        return
    updates = [value for value in found.cpo.get(arm, {}).get("cpo/disagreement", ()) if value is not None]
    n_plans = sum(library.n_plans for library in found.library.values())
    value = {
        COST: tried.cost_per_plan,
        PROGRESS: tried.progress,
        DISAGREEMENT: fmean(updates) if updates else None,
        TRUE_PLANS: sum(library.n_true for library in found.library.values()) / n_plans if n_plans else None,
    }[figure]
    if value is not None:
        yield SeedMean(found.seed, tried.figures.n, tried.figures.n_forms, value)

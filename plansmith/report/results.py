"""Everything a report says about one run, as one value that is written to and read from ``results.json``.

First what the results of every pipeline have, then those of `pddl_instruct`. Not here: computing the figures
(`metrics`, `run_facts`), rendering them (`run_sections`, `run_report`, `plots`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.attempts import AttemptExample
from plansmith.report.feedback_turns import FeedbackTurn
from plansmith.report.metrics import ArmResult, PairedComparison


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """The loss that was optimised in one training stage, by optimiser step; ``iteration`` is 0 before any loop.

    Learning rates and norms of the gradient, before clipping, are of the same steps; results of old runs have none. So
    are ``figures``, what the objective measures beside its loss, by name.
    """

    stage: str
    iteration: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    learning_rates: tuple[float, ...] = ()
    gradient_norms: tuple[float, ...] = ()
    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Losses:
    """``reasoning`` is equation 4 and ``final`` equation 8, both as printed, one number an iteration."""

    reasoning: tuple[float, ...] = ()
    final: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class IterationRollouts:
    """What became of the rollouts of one feedback iteration, before anything was learnt from them."""

    iteration: int
    n: int
    n_valid: int
    errors: dict[ErrorClass, int]

    @classmethod
    def of(cls, iteration: int, error_classes: Sequence[str | None]) -> IterationRollouts:
        """Return the counts of rollouts whose error classes are given; None is a valid plan."""
        counts = Counter(error_classes)
        errors = {kind: counts[kind] for kind in ErrorClass}
        return cls(iteration, len(error_classes), counts[None], errors)


@dataclass(frozen=True, slots=True)
class Reproducible:
    """How results were made: under which settings, with which tools, and by which command they are made again."""

    config: dict[str, Any] = field(default_factory=dict, kw_only=True)
    versions: dict[str, str] = field(default_factory=dict, kw_only=True)
    command: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class RunResults(Reproducible):
    """What the results of one run have, finished or not, whatever it trains (`plansmith.report.run_facts.facts_of`).

    ``n_not_finite`` counts optimiser steps whose loss or gradient is NaN or infinite, which no curve has; ``n_dropped``
    sequences too long to be trained on, by stage. ``time_s`` and ``tokens`` are by stage, in the order of the pipeline;
    ``policy_versions`` by policy.
    """

    run_name: str
    preset: str
    seed: int
    curves: tuple[TrainingCurve, ...] = field(default=(), kw_only=True)
    n_not_finite: int = field(default=0, kw_only=True)
    n_dropped: dict[str, int] = field(default_factory=dict, kw_only=True)
    time_s: dict[str, float] = field(default_factory=dict, kw_only=True)
    tokens: dict[str, int] = field(default_factory=dict, kw_only=True)
    policy_versions: dict[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        check_finite("time_s", self.time_s.values())
        for curve in self.curves:
            check_finite(f"losses of {curve.stage}, iteration {curve.iteration}", curve.losses)
            check_finite(f"rates and gradients of {curve.stage}", (*curve.learning_rates, *curve.gradient_norms))
            for name, numbers in {"losses": curve.losses, **curve.figures}.items():
                if len(curve.steps) != len(numbers):
                    raise ValueError(f"{curve.stage}: {len(curve.steps)} steps and {len(numbers)} {name}")


@dataclass(frozen=True, slots=True)
class Results(RunResults):
    """One run of `pddl_instruct`. ``arms`` is in the order of training; every arm has the same levels.

    ``rollout_valid_rate`` is by iteration, over the rollouts the policy was trained on; ``feedback_turns`` by number of
    turns, of the last arm on all its test problems. The first of ``paired_tests`` is the headline's.
    """

    primary_level: str
    arms: dict[str, ArmResult]
    paired_tests: tuple[PairedComparison, ...] = ()
    losses: Losses = field(default_factory=Losses)
    rollout_valid_rate: tuple[float, ...] = ()
    failures: tuple[AttemptExample, ...] = ()
    solved: AttemptExample | None = None
    feedback_turns: tuple[FeedbackTurn, ...] = ()
    rollouts: tuple[IterationRollouts, ...] = ()

    def __post_init__(self) -> None:
        RunResults.__post_init__(self)
        check_arms(self.arms, self.paired_tests)
        _check_levels(self)
        check_finite("rollout_valid_rate", self.rollout_valid_rate)
        check_finite("losses", (*self.losses.reasoning, *self.losses.final))

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the levels, the primary one first."""
        others = next(iter(self.arms.values())).by_level
        return (self.primary_level, *(level for level in others if level != self.primary_level))

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the domains in the order in which they were tried."""
        return tuple(next(iter(self.arms.values())).by_domain)


def check_arms(arms: Mapping[str, Any], compared: Iterable[Any], *others: str) -> None:
    """Raise unless there are arms, filed under their names, and every test is of two of them or of ``others``."""
    if not arms:
        raise ValueError("results without an arm: nothing was judged")
    for name, arm in arms.items():
        if arm.name != name:
            raise ValueError(f"arm {arm.name!r} is filed under {name!r}")
    for comparison in compared:
        if unknown := {comparison.before, comparison.after} - {*arms, *others}:
            raise ValueError(f"a paired test names arms that were not judged: {sorted(unknown)}")


def _check_levels(results: Results) -> None:
    """Raise unless all arms are on the same levels."""
    levels, domains = list(next(iter(results.arms.values())).by_level), results.domains
    for name, arm in results.arms.items():
        if arm.level != results.primary_level or set(arm.by_level) != set(levels):
            raise ValueError(
                f"arm {name!r} has primary level {arm.level!r} and levels {list(arm.by_level)}; "
                f"expected {results.primary_level!r} and {levels}"
            )
        if set(arm.by_domain) != set(domains):
            raise ValueError(f"arm {name!r} has domains {list(arm.by_domain)}; expected {list(domains)}")
        check_finite(f"figures of {name}", (arm.accuracy, *arm.ci95))


def check_finite(what: str, numbers: Iterable[float]) -> None:
    """Raise when a number is NaN or infinite."""
    if wrong := [number for number in numbers if not math.isfinite(number)]:
        raise ValueError(f"{what}: {len(wrong)} numbers are NaN or infinite, the first is {wrong[0]}")

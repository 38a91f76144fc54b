"""From judged attempts to the figures of an arm: accuracy, errors by class, plan quality, own verdicts, tokens.

An *arm* is one policy evaluated on the test problems: untrained, after phase 1, after each iteration, final.
Not here: judging (`plansmith.pddl`), drawing and printing (`report`, `plots`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from plansmith.groups import KeyT, grouped
from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.calibration import Belief, Calibration, calibrate
from plansmith.report.statistics import PairedTest, TriedProblem, accuracy_interval, paired_test, solved_by_both

ALL_LEVELS = "all levels"
"""Stands for a level where all of them are meant together."""
COST_TOLERANCE = 1e-9
"""Costs that differ by no more are equal; sums of decimals in floating point do."""


@dataclass(frozen=True, slots=True)
class EvaluatedProblem:
    """One attempt at one test problem; an error class is present exactly when the plan is not valid.

    Lengths count actions; costs are values of the problem's metric. ``plan_length`` may be None for a failed attempt
    whose plan cannot be read, and ``plan_cost`` for any failed attempt: only the cost of a valid plan is compared.
    ``form`` is the canonical form of the problem, which its copies share; ``progress`` is `progress_score`,
    ``stated_verdict`` whether the policy itself called its plan VALID, ``v_hat`` the probability it gave to VALID. None
    is "not known", never 0 or False.
    """

    problem_id: str
    domain: str
    level: str
    form: str
    is_valid: bool
    error_class: ErrorClass | None
    plan_length: int | None
    planner_plan_length: int
    completion_tokens: int
    plan_cost: float | None = None
    planner_cost: float | None = None
    is_planner_optimal: bool = False
    progress: float | None = None
    stated_verdict: bool | None = None
    v_hat: float | None = None

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(f"problem {self.problem_id}: {fault}")

    def _faults(self) -> Iterator[str]:
        """Yield what cannot be so."""
        if self.is_valid != (self.error_class is None):
            yield f"is_valid={self.is_valid}, error_class={self.error_class!r}"
        if self.is_valid and self.plan_length is None:
            yield "a valid plan has a length"
        counts = (self.plan_length or 0, self.planner_plan_length, self.completion_tokens)
        if not all(math.isfinite(count) and count >= 0 for count in counts):
            yield f"lengths and tokens are finite and >= 0; got {counts}"
        costs = [cost for cost in (self.plan_cost, self.planner_cost) if cost is not None]
        if not all(math.isfinite(cost) and cost >= 0 for cost in costs):
            yield f"costs are finite and >= 0; got {costs}"
        if self.is_planner_optimal and (self.planner_cost is None or (self.is_valid and self.plan_cost is None)):
            yield "an optimal plan, and a valid plan beside it, have a cost; got " + (
                f"planner_cost={self.planner_cost}, plan_cost={self.plan_cost}"
            )
        if self.is_planner_optimal and self.is_valid and self.cost_over_optimum < -COST_TOLERANCE:
            yield f"the plan costs {self.plan_cost}, less than the optimum {self.planner_cost}"
        shares = [share for share in (self.progress, self.v_hat) if share is not None]
        if not all(0.0 <= share <= 1.0 for share in shares):
            yield f"progress and v_hat lie in [0, 1]; got {shares}"
        if self.is_valid and self.progress not in (None, 1.0):
            yield f"a valid plan has progress 1; got {self.progress}"

    @property
    def tried(self) -> TriedProblem:
        """Return what intervals and tests need to know of it."""
        return TriedProblem(self.is_valid, self.form)

    @property
    def cost_over_optimum(self) -> float:
        """Return by how much a valid plan costs more than the known optimum.

        Raises:
            ValueError: a cost is not known.
        """
        if self.plan_cost is None or self.planner_cost is None:
            raise ValueError(f"problem {self.problem_id}: no costs to compare")
        return self.plan_cost - self.planner_cost


@dataclass(frozen=True, slots=True)
class PlanQuality:
    """How cheap the valid plans are, over the ``n`` problems whose optimal cost is known.

    ``n_solved`` of those were solved, ``n_optimal`` at the optimal cost. ``mean_cost_ratio`` is the mean of plan cost
    over optimal cost among the solved ones, 1 at best; a problem whose optimum is 0 has no ratio unless the plan is
    free as well, which is 1.
    """

    n: int
    n_solved: int
    n_optimal: int
    optimal_of_solved: float | None
    optimal_of_all: float
    mean_cost_ratio: float | None


@dataclass(frozen=True, slots=True)
class SelfVerification:
    """The verdicts the policy stated, against the validator's; completions that state none are left out of ``n``.

    ``ci95`` is `accuracy_interval` of ``accuracy``.
    ``n_said_valid`` tells judging from always saying the same, which is right as often as that verdict occurs.
    """

    n: int
    n_said_valid: int
    n_correct: int
    accuracy: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What one arm reached on one level, in one domain, or on all levels.

    The ``n`` problems are of ``n_forms`` forms; ``ci95`` is `accuracy_interval`. ``errors`` counts failed problems by
    class, every class present. Both mean lengths are over the problems this arm solved, so they compare like with like;
    None when it solved none. ``tokens`` is the total of all completions. ``mean_progress`` is over all attempts whose
    progress is known. ``quality``, ``mean_progress`` and ``self_verification`` are None where nothing is known.
    """

    n: int
    n_forms: int
    n_valid: int
    accuracy: float
    ci95: tuple[float, float]
    errors: dict[ErrorClass, int]
    mean_plan_length: float | None
    mean_planner_plan_length: float | None
    tokens: int
    tokens_per_problem: float
    quality: PlanQuality | None = field(default=None, kw_only=True)
    mean_progress: float | None = field(default=None, kw_only=True)
    self_verification: SelfVerification | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ArmResult(LevelFigures):
    """The figures of an arm on its primary level, with every level (the primary one too) in ``by_level``.

    ``all_levels`` has those of all problems together, ``by_domain`` those of each domain, all its levels together;
    ``calibration`` is over all problems whose v_hat is known, None where there are none.
    """

    name: str
    level: str
    by_level: dict[str, LevelFigures]
    all_levels: LevelFigures
    by_domain: dict[str, LevelFigures] = field(default_factory=dict)
    calibration: Calibration | None = None

    def figures(self, level: str) -> LevelFigures:
        """Return the figures of a level, or of `ALL_LEVELS`."""
        return self.all_levels if level == ALL_LEVELS else self.by_level[level]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two arms on the same problems of one level, or of `ALL_LEVELS`."""

    before: str
    after: str
    level: str
    test: PairedTest


def tested_levels(levels: Iterable[str], primary: str) -> list[str]:
    """Return the levels that two arms are compared on: all of them together if they are several, then one by one.

    The primary level comes first among the single ones, the others as they grow.
    """
    single = sorted(set(levels), key=lambda level: (level != primary, _by_size(level)))
    return [ALL_LEVELS, *single] if len(single) > 1 else single


def _by_size(level: str) -> list[tuple[str, int]]:
    """Return a key that sorts names as people count: 5 blocks before 10 blocks."""
    return [(words, int(number or 0)) for words, number in re.findall(r"(\D*)(\d*)", level)]


def summarise_level(evaluated: Sequence[EvaluatedProblem]) -> LevelFigures:
    """Return the figures of one group of attempts.

    Raises:
        ValueError: no attempts, or a problem that occurs twice.
    """
    if not evaluated:
        raise ValueError("no evaluated problems: accuracy over n=0 is undefined")
    if len({e.problem_id for e in evaluated}) != len(evaluated):
        raise ValueError("a problem occurs twice in one arm; evaluate each problem once")
    solved = [e for e in evaluated if e.is_valid]
    tokens = sum(e.completion_tokens for e in evaluated)
    return LevelFigures(
        n=len(evaluated),
        n_forms=len({e.form for e in evaluated}),
        n_valid=len(solved),
        accuracy=len(solved) / len(evaluated),
        ci95=accuracy_interval([e.tried for e in evaluated]),
        errors={kind: sum(e.error_class is kind for e in evaluated) for kind in ErrorClass},
        mean_plan_length=mean_of_known(e.plan_length for e in solved),
        mean_planner_plan_length=mean_of_known(e.planner_plan_length for e in solved),
        tokens=tokens,
        tokens_per_problem=tokens / len(evaluated),
        quality=plan_quality(evaluated),
        mean_progress=mean_of_known(e.progress for e in evaluated),
        self_verification=self_verification(evaluated),
    )


def summarise_by(
    evaluated: Iterable[EvaluatedProblem], key_of: Callable[[EvaluatedProblem], KeyT]
) -> dict[KeyT, LevelFigures]:
    """Return the figures of attempts by what their problems share, in the order of its first occurrence."""
    return {key: summarise_level(found) for key, found in grouped(evaluated, key_of).items()}


def plan_quality(evaluated: Sequence[EvaluatedProblem]) -> PlanQuality | None:
    """Return the quality of the valid plans, or None when no problem has a known optimum."""
    known = [e for e in evaluated if e.is_planner_optimal]
    if not known:
        return None
    solved = [e for e in known if e.is_valid]
    n_optimal = sum(e.cost_over_optimum <= COST_TOLERANCE for e in solved)
    return PlanQuality(
        n=len(known),
        n_solved=len(solved),
        n_optimal=n_optimal,
        optimal_of_solved=n_optimal / len(solved) if solved else None,
        optimal_of_all=n_optimal / len(known),
        mean_cost_ratio=mean_of_known(map(_cost_ratio, solved)),
    )


def self_verification(evaluated: Sequence[EvaluatedProblem]) -> SelfVerification | None:
    """Return how often the policy's own verdict is the validator's, or None when it never states one."""
    stated = [e for e in evaluated if e.stated_verdict is not None]
    if not stated:
        return None
    told = [TriedProblem(e.stated_verdict == e.is_valid, e.form) for e in stated]
    n_correct = sum(item.is_solved for item in told)
    return SelfVerification(
        n=len(stated),
        n_said_valid=sum(e.stated_verdict is True for e in stated),
        n_correct=n_correct,
        accuracy=n_correct / len(stated),
        ci95=accuracy_interval(told),
    )


def summarise_arm(name: str, evaluated: Sequence[EvaluatedProblem], *, primary_level: str | None = None) -> ArmResult:
    """Return the figures of one arm; levels as they grow, domains in the order in which they first occur.

    Args:
        name: ``untrained``, ``phase1``, ``iteration_1``, ..., ``final``.
        evaluated: one attempt a problem, all levels together.
        primary_level: the level whose figures stand for the arm; may be left out when there is only one.

    Raises:
        ValueError: nothing evaluated, or a primary level that is ambiguous or does not occur.
    """
    if not evaluated:
        raise ValueError(f"arm {name!r}: no evaluated problems: accuracy over n=0 is undefined")
    by_level = dict(sorted(summarise_by(evaluated, lambda e: e.level).items(), key=lambda item: _by_size(item[0])))
    if primary_level is None and len(by_level) == 1:
        (primary_level,) = by_level
    if primary_level not in by_level:
        raise ValueError(f"arm {name!r}: primary level {primary_level!r} is not one of {list(by_level)}")
    beliefs = [Belief(e.is_valid, e.v_hat, e.form) for e in evaluated if e.v_hat is not None]
    shared = {key: getattr(by_level[primary_level], key) for key in LevelFigures.__dataclass_fields__}
    return ArmResult(
        **shared,
        name=name,
        level=primary_level,
        by_level=by_level,
        all_levels=summarise_level(evaluated),
        by_domain=summarise_by(evaluated, lambda e: e.domain),
        calibration=calibrate(beliefs) if beliefs else None,
    )


def compare_arms(
    before: str,
    after: str,
    level: str,
    *,
    evaluated_before: Sequence[EvaluatedProblem],
    evaluated_after: Sequence[EvaluatedProblem],
) -> PairedComparison:
    """Return the paired test of two arms on one level or `ALL_LEVELS`, problems matched by id whatever their order.

    Raises:
        ValueError: the arms did not evaluate the same problems of that level.
    """
    first, second = (
        {e.problem_id: e.tried for e in evaluated if level in (e.level, ALL_LEVELS)}
        for evaluated in (evaluated_before, evaluated_after)
    )
    names, where = f"{before} and {after}", f"of level {level!r}"
    test = paired_test(*solved_by_both(first, second, names=names, where=where))
    return PairedComparison(before, after, level, test)


def _cost_ratio(solved: EvaluatedProblem) -> float | None:
    """Return plan cost over optimal cost; None where that is a division by zero."""
    if solved.cost_over_optimum <= COST_TOLERANCE:
        return 1.0
    return solved.plan_cost / solved.planner_cost if solved.plan_cost and solved.planner_cost else None


def mean_of_known(numbers: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known, or None of nothing."""
    known = [number for number in numbers if number is not None]
    return fmean(known) if known else None

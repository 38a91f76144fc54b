"""From judged attempts to the figures of an arm: accuracy, errors by class, plan length, tokens.

An *arm* is one policy evaluated on the test problems: untrained, after phase 1, after each iteration, final.
Not here: judging (`plansmith.pddl`), drawing and printing (`report`, `plots`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.evaluation.statistics import PairedTest, paired_test, wilson_interval
from plansmith.evaluation.taxonomy import ErrorClass


@dataclass(frozen=True, slots=True)
class EvaluatedProblem:
    """One attempt at one test problem; an error class is present exactly when the plan is not valid.

    Lengths count actions. ``plan_length`` may be None for a failed attempt whose plan cannot be read.
    """

    problem_id: str
    canonical_form: str
    domain: str
    level: str
    is_valid: bool
    error_class: ErrorClass | None
    plan_length: int | None
    planner_plan_length: int
    completion_tokens: int
    wall_time_s: float = 0.0

    def __post_init__(self) -> None:
        if self.is_valid != (self.error_class is None):
            raise ValueError(f"problem {self.problem_id}: is_valid={self.is_valid}, error_class={self.error_class!r}")
        if self.is_valid and self.plan_length is None:
            raise ValueError(f"problem {self.problem_id}: a valid plan has a length")
        counts = (self.plan_length or 0, self.planner_plan_length, self.completion_tokens, self.wall_time_s)
        if not all(math.isfinite(count) and count >= 0 for count in counts):
            raise ValueError(f"problem {self.problem_id}: lengths, tokens and time are finite and >= 0; got {counts}")


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What one arm reached on one level.

    ``errors`` counts failed problems by class, every class present. Both mean lengths are over the problems this arm
    solved, so they compare like with like; None when it solved none. ``tokens`` is the total of all completions.
    """

    n: int
    n_valid: int
    accuracy: float
    ci95: tuple[float, float]
    errors: dict[ErrorClass, int]
    mean_plan_length: float | None
    mean_planner_plan_length: float | None
    tokens: int
    tokens_per_problem: float


@dataclass(frozen=True, slots=True)
class ArmResult(LevelFigures):
    """The figures of an arm on its primary level, with every level (the primary one too) in ``by_level``."""

    name: str
    level: str
    by_level: dict[str, LevelFigures]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two arms on the same problems of one level."""

    before: str
    after: str
    level: str
    test: PairedTest


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
        n_valid=len(solved),
        accuracy=len(solved) / len(evaluated),
        ci95=wilson_interval(len(solved), len(evaluated)),
        errors={kind: sum(e.error_class is kind for e in evaluated) for kind in ErrorClass},
        mean_plan_length=_mean([e.plan_length for e in solved if e.plan_length is not None]),
        mean_planner_plan_length=_mean([e.planner_plan_length for e in solved]),
        tokens=tokens,
        tokens_per_problem=tokens / len(evaluated),
    )


def summarise_arm(name: str, evaluated: Sequence[EvaluatedProblem], *, primary_level: str | None = None) -> ArmResult:
    """Return the figures of one arm; levels keep the order in which they first occur.

    Args:
        name: ``untrained``, ``phase1``, ``iteration_1``, ..., ``final``.
        evaluated: one attempt a problem, all levels together.
        primary_level: the level whose figures stand for the arm; may be left out when there is only one.

    Raises:
        ValueError: nothing evaluated, or a primary level that is ambiguous or does not occur.
    """
    if not evaluated:
        raise ValueError(f"arm {name!r}: no evaluated problems: accuracy over n=0 is undefined")
    levels = list(dict.fromkeys(e.level for e in evaluated))
    if primary_level is None and len(levels) == 1:
        primary_level = levels[0]
    if primary_level not in levels:
        raise ValueError(f"arm {name!r}: primary level {primary_level!r} is not one of {levels}")
    by_level = {level: summarise_level([e for e in evaluated if e.level == level]) for level in levels}
    return _lift(by_level[primary_level], name, primary_level, by_level)


def compare_arms(
    before: str,
    after: str,
    level: str,
    *,
    evaluated_before: Sequence[EvaluatedProblem],
    evaluated_after: Sequence[EvaluatedProblem],
) -> PairedComparison:
    """Return the paired test of two arms on one level, problems matched by id whatever their order.

    Raises:
        ValueError: the arms did not evaluate the same problems of that level.
    """
    valid_before = {e.problem_id: e.is_valid for e in evaluated_before if e.level == level}
    valid_after = {e.problem_id: e.is_valid for e in evaluated_after if e.level == level}
    if valid_before.keys() != valid_after.keys():
        differing = len(valid_before.keys() ^ valid_after.keys())
        raise ValueError(f"{before} and {after} differ in {differing} problems of level {level!r}; a pair needs none")
    ids = sorted(valid_before)
    test = paired_test([valid_before[i] for i in ids], [valid_after[i] for i in ids])
    return PairedComparison(before, after, level, test)


def _lift(figures: LevelFigures, name: str, level: str, by_level: dict[str, LevelFigures]) -> ArmResult:
    """Return an arm that carries the figures of its primary level."""
    shared = {field: getattr(figures, field) for field in LevelFigures.__dataclass_fields__}
    return ArmResult(**shared, name=name, level=level, by_level=by_level)


def _mean(lengths: Sequence[int]) -> float | None:
    """Return the mean, or None of nothing."""
    return sum(lengths) / len(lengths) if lengths else None

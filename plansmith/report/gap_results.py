"""Everything a report says about one run of `generalization_gap`, as one value, from the artifacts of the run.

The value is written to and read from ``results.json``; the live page asks for it at every look. Not here: the figures
of a group of attempts (`metrics`), the tables and sentences (`gap_tables`, `gap_report`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from plansmith.config.generalization_gap import GeneralizationGapConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.drawing import LEAKS
from plansmith.data.rows import FailureRow, InventedDomainRow, LeakRow, LengthRow, Split
from plansmith.groups import grouped
from plansmith.judging.failure_kinds import FailureKind
from plansmith.problems.invention.folders import INVENTED
from plansmith.report.arms import Arm, arms_of, evaluated_problems
from plansmith.report.attempts import AttemptExample
from plansmith.report.finished_stages import FinishedStage, RunSoFar
from plansmith.report.gap_effort import Costs, Effort, LoopSeconds, costs, efforts, loop_seconds, stage_seconds
from plansmith.report.gap_labels import LabelShare, label_shares
from plansmith.report.metrics import (
    ALL_LEVELS,
    EvaluatedProblem,
    LevelFigures,
    PairedComparison,
    compare_arms,
    summarise_by,
    summarise_level,
)
from plansmith.report.results import RunResults, check_arms, check_finite
from plansmith.report.run_facts import Updates, facts_of, updates_of
from plansmith.report.run_results import shown_attempts

Run = RunSoFar[GeneralizationGapConfig]

SEEN, UNSEEN, HELD_OUT = "domains trained on", "domains never trained on", "invented domains held out"
"""Where two arms are compared; settings are chosen on the last."""


def unseen_of_size(size: str) -> str:
    """Return where two arms are compared in domains never trained on, on problems of one size alone."""
    return f"{UNSEEN}, {size}"


@dataclass(frozen=True, slots=True)
class GapArm:
    """One policy on the test problems of the domains that were trained on, of those that never were, of invented ones.

    ``by_domain`` has all domains but invented ones; ``unseen`` and ``held_out`` are None where no such was tested.
    ``unseen_by_size`` has the former by what their level is called in each domain, such as ``smallest``.
    """

    name: str
    seen: LevelFigures
    unseen: LevelFigures | None
    held_out: LevelFigures | None
    by_domain: dict[str, LevelFigures]
    unseen_by_size: dict[str, LevelFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnseenFigures:
    """What became of an arm's attempts in domains never trained on.

    ``by_level`` has the problems by the level that they were drawn from, ``by_length`` by the steps of the planner's
    plan; ``failures`` the failed attempts by `plansmith.judging.failure_kinds.FailureKind`.
    """

    by_level: dict[str, LevelFigures]
    by_length: dict[int, LevelFigures]
    failures: dict[str, int]


@dataclass(frozen=True, slots=True)
class InventedFigures:
    """The invented domains of a run.

    ``n_near`` of them share an action schema with a domain that is only tested. ``sizes`` counts them by each size.
    """

    n: int
    n_held_out: int
    n_near: int
    sizes: dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class GapResults(RunResults):
    """One run, finished or not; ``arms`` in the order of training.

    The first of ``paired_tests`` is the headline's. Each has as its level `SEEN`, `UNSEEN`, `HELD_OUT` or, where
    policies read the domain, one of `unseen_of_size`: every arm is tested against walks and ``mixed``. ``unseen`` is
    by arm, and empty where no domain was left out of training; ``domains`` is None without invented ones. ``effort`` is
    what the training of each arm took, ``labels`` the shares of a label budget. ``rl`` has by loop what was measured in
    every update of reinforcement learning, ``loops`` where its seconds went. ``leak`` is what a split of texts would
    have leaked, ``lengths`` how long the first variant's tuples are. ``cost_s`` has seconds by kind of work.
    """

    trained_domains: tuple[str, ...]
    arms: dict[str, GapArm]
    unseen: dict[str, UnseenFigures] = field(default_factory=dict)
    domains: InventedFigures | None = None
    paired_tests: tuple[PairedComparison, ...] = ()
    effort: dict[str, Effort] = field(default_factory=dict)
    labels: tuple[LabelShare, ...] = ()
    rl: dict[str, Updates] = field(default_factory=dict)
    loops: dict[str, LoopSeconds] = field(default_factory=dict)
    cost: Costs | None = None
    leak: tuple[LeakRow, ...] = ()
    lengths: tuple[LengthRow, ...] = ()
    cost_s: dict[str, float] = field(default_factory=dict)
    failures: tuple[AttemptExample, ...] = ()

    def __post_init__(self) -> None:
        RunResults.__post_init__(self)
        check_arms(self.arms, self.paired_tests)
        for figures in self.rl.values():
            for name, values in figures.items():
                check_finite(name, (value for value in values if value is not None))

    @property
    def last(self) -> GapArm:
        """Return the arm that was trained last."""
        return list(self.arms.values())[-1]

    def figures(self, arm: str, scope: str) -> LevelFigures:
        """Return the figures of an arm on `SEEN`, `UNSEEN`, `HELD_OUT` or one of `unseen_of_size`.

        Raises:
            KeyError: no such domain was tested.
        """
        tried = self.arms[arm]
        by_size = {unseen_of_size(size): figures for size, figures in tried.unseen_by_size.items()}
        found = {SEEN: tried.seen, UNSEEN: tried.unseen, HELD_OUT: tried.held_out, **by_size}[scope]
        if found is None:
            raise KeyError(scope)
        return found


def gap_results(run: Run) -> GapResults | None:
    """Return everything that can be said about a run by now; None before an arm was judged."""
    arms = list(arms_of(run))
    if not arms:
        return None
    config, loops = run.config, _loops(run)
    evaluated = {arm.name: evaluated_problems(arm) for arm in arms}
    return GapResults(
        **facts_of(run, arms[-1].policy.manifest.provenance, {arm.name: arm.policy for arm in arms}),
        trained_domains=tuple(sorted(config.trained_domains)),
        arms={name: _summarised(name, items, config) for name, items in evaluated.items()},
        unseen=dict(_unseen(run, evaluated)),
        domains=_invented(run),
        paired_tests=tuple(_paired_tests(evaluated, config)),
        effort=_efforts(run, arms),
        labels=tuple(label_shares(run, arms)),
        rl={name: updates_of(segments) for name, segments in loops.items()},
        loops={name: loop_seconds(segments) for name, segments in loops.items()},
        cost=costs(run),
        leak=_leaks(run),
        lengths=_lengths(run),
        cost_s=_cost(run),
        failures=tuple(shown_attempts(arms[-1], is_valid=False, count=config.evaluation.n_failures_shown)),
    )


def _summarised(name: str, items: Sequence[EvaluatedProblem], config: GeneralizationGapConfig) -> GapArm:
    seen, unseen, held_out = (_of(items, config, scope) for scope in (SEEN, UNSEEN, HELD_OUT))
    return GapArm(
        name,
        summarise_level(seen),
        summarise_level(unseen) if unseen else None,
        summarise_level(held_out) if held_out else None,
        summarise_by([*seen, *unseen], lambda item: item.domain),
        summarise_by(unseen, partial(_size, config)),
    )


def _size(config: GeneralizationGapConfig, item: EvaluatedProblem) -> str:
    """Return what the level of a problem is called in its domain."""
    return next(level.level for level in config.problems.domains if level.name == item.level)


def scope_of(item: EvaluatedProblem, config: GeneralizationGapConfig) -> str:
    """Return whether a problem is `SEEN`, `UNSEEN` or `HELD_OUT`, by its level: two domains may have one name."""
    if item.level == INVENTED:
        return HELD_OUT
    domains = {level.name: level.domain_name for level in config.problems.domains}
    return SEEN if domains[item.level] in config.trained_domains else UNSEEN


def _of(items: Sequence[EvaluatedProblem], config: GeneralizationGapConfig, scope: str) -> list[EvaluatedProblem]:
    return [item for item in items if scope_of(item, config) == scope]


def _unseen(run: Run, evaluated: Mapping[str, Sequence[EvaluatedProblem]]) -> Iterator[tuple[str, UnseenFigures]]:
    sorted_of = {stage.provenance.labels["arm"]: stage for stage in run.stages(StageKind.SORTS_FAILURES)}
    for name, items in evaluated.items():
        unseen = _of(items, run.config, UNSEEN)
        if unseen and name in sorted_of:
            by_length = summarise_by(unseen, lambda item: item.planner_plan_length)
            kinds, ids = sorted_of[name].artifact.rows(FailureRow), {item.problem_id for item in unseen}
            counts = Counter(row.kind for row in kinds if row.problem_id in ids)
            yield (
                name,
                UnseenFigures(
                    by_level=summarise_by(unseen, lambda item: item.level),
                    by_length=dict(sorted(by_length.items())),
                    failures={kind: counts[kind] for kind in FailureKind},
                ),
            )


def _invented(run: Run) -> InventedFigures | None:
    stage = run.one(StageKind.INVENTS)
    if stage is None:
        return None
    rows = stage.artifact.rows(InventedDomainRow)
    sizes = {
        name: dict(sorted(Counter(getattr(row, f"n_{name}") for row in rows).items()))
        for name in ("actions", "predicates", "parameters", "types")
    }
    n_held_out = sum(row.split == Split.TEST for row in rows)
    return InventedFigures(len(rows), n_held_out, sum(row.n_shared > 0 for row in rows), sizes)


def compared_arms(names: Sequence[str], start: str) -> list[tuple[str, str]]:
    """Return which arms are compared, the headline's first; which it is was fixed before any run.

    Args:
        names: of the arms.
        start: the one that reinforcement learning began with.
    """
    last = {name.rpartition("_")[0] or name: name for name in names}  # the last epoch of each variant
    numbered, compact = last.get("numbered", ""), last.get("compact", "")
    others = [name for name in names if re.fullmatch("grpo_[a-z0-9]+", name)]
    wanted = [("trained", "mixed"), ("walk", "mixed"), ("walk", "trained"), ("mixed", "reinforced"),
              ("invented", "mixed"), ("distant", "mixed"), ("walk", "reinforced"), ("walk", "invented"),
              ("walk", "distant"),
              (start, "grpo"), ("more_sft", "grpo"), ("own_plans", "grpo"), ("grpo_1_of_2", "grpo"),
              *product((start, "more_sft", "own_plans"), others), *product(others, ("grpo",)),
              (compact, "grpo"), (numbered, "grpo"), (numbered, compact),
              (numbered, "anonymised"), ("numbered_1", numbered), ("compact_1", compact),
              ("untrained", numbered), *_of_labels(names)]  # fmt: skip
    return [pair for pair in dict.fromkeys(wanted) if pair[0] in names and pair[1] in names and pair[0] != pair[1]]


def _of_labels(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what reinforcement on the rest adds to a share of the plans, and what is left to having all of them."""
    for name in names:
        if name.startswith("labels") and name.endswith("_grpo"):
            yield name.removesuffix("_grpo"), name
            yield name, "labels100"


def _paired_tests(
    evaluated: Mapping[str, Sequence[EvaluatedProblem]], config: GeneralizationGapConfig
) -> Iterator[PairedComparison]:
    for before, after in compared_arms(list(evaluated), config.start_of_grpo):
        first, second = (_by_scope(evaluated[name], config) for name in (before, after))
        for scope, items in first.items():
            made = compare_arms(before, after, ALL_LEVELS, evaluated_before=items, evaluated_after=second[scope])
            yield PairedComparison(before, after, scope, made.test)


def _by_scope(
    items: Sequence[EvaluatedProblem], config: GeneralizationGapConfig
) -> dict[str, Sequence[EvaluatedProblem]]:
    """Return the problems of each scope that has some, in the order in which these are told."""
    found = {scope: _of(items, config, scope) for scope in (UNSEEN, HELD_OUT, SEEN)}
    if config.reading is None:
        return {scope: found[scope] for scope in (SEEN, UNSEEN) if found[scope]}
    by_size = grouped(found[UNSEEN], partial(_size, config))
    sizes = {unseen_of_size(size): of_size for size, of_size in by_size.items() if len(by_size) > 1}
    return {scope: those for scope, those in ({UNSEEN: found[UNSEEN]} | sizes | found).items() if those}


def _efforts(run: Run, arms: Sequence[Arm]) -> dict[str, Effort]:
    """Return what each arm took; nothing is known of one that nobody trained."""
    known = dict(efforts(run))
    return {arm.name: known[arm.policy.key] for arm in arms if arm.policy.key in known}


def _leaks(run: Run) -> tuple[LeakRow, ...]:
    drawn = run.one(StageKind.DRAWS)
    return () if drawn is None else tuple(drawn.artifact.rows(LeakRow, LEAKS))


def _lengths(run: Run) -> tuple[LengthRow, ...]:
    counted = run.one(StageKind.COUNTS_TOKENS)
    return () if counted is None else tuple(counted.artifact.rows(LengthRow))


def _loops(run: Run) -> dict[str, list[FinishedStage]]:
    """Return the segments of each loop."""
    loops = (stage for stage in run.stages(StageKind.OPTIMISES) if "loop" in stage.provenance.labels)
    return grouped(loops, lambda stage: stage.provenance.labels["loop"])


COST_KINDS = {
    StageKind.DRAWS: "drawing problems",
    StageKind.PLANS: "planning",
    StageKind.WRITES: "writing examples",
    StageKind.OPTIMISES: "training",
    StageKind.GENERATES: "trying test problems",
    StageKind.JUDGES: "judging",
}


def _cost(run: Run) -> dict[str, float]:
    """Return the wall time of the stages by kind of work; in reinforcement learning training is all of the loop."""
    found = dict.fromkeys(COST_KINDS.values(), 0.0)
    for stage in run.stages():
        kind = COST_KINDS.get(StageKind(stage.provenance.kind))
        if kind is not None:
            found[kind] += stage_seconds(stage)
    return {name: seconds for name, seconds in found.items() if seconds}

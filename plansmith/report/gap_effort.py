"""What an arm cost: epochs, rollouts and seconds of its training, and what planning, judging and training cost each.

Source: the appendix of arXiv 2601.14456, whose sums over instances are asymptotic; here they are over the instances of
the run, in seconds that were measured. How we differ: drawing and planning are on the side of imitation alone, as
there, and the plans of the warm start are on the side of reinforcement learning, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from plansmith.config.generalization_gap import GeneralizationGapConfig, PricesConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import MetricRow, PlanRow, ProblemRow, Split
from plansmith.data.update_times import TIMES, spent, work_of
from plansmith.problems.invention.folders import INVENTED
from plansmith.report.finished_stages import FinishedStage, RunSoFar, read_columns
from plansmith.report.run_facts import UPDATES

DRAWING, PLANNING, JUDGING = "drawing it", "planning it", "judging a test attempt"
"""Work of which the CPU seconds are known: of the driver and of row workers, with the planner's processes."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What the training of a policy took, from the start on.

    ``epochs`` are passes over the training problems, of imitation and of reinforcement learning alike.
    """

    epochs: float = 0.0
    rollouts: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanningCost:
    """What the planner took for some training problems of one domain and plan length."""

    domain: str
    plan_length: int
    n: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for one problem, by kind of work, and tokens a second.

    ``imitation_s`` is one pass over a plan; ``generating_s``, ``judging_s`` and ``updating_s`` are one visit with all
    rollouts; None where the run has no such. ``planning`` is by domain and plan length. These are wall times; ``cpu_s``
    has the CPU seconds of `DRAWING`, `PLANNING` and `JUDGING`, each of one, where they were measured in one session.
    """

    n_problems: int
    drawing_s: float
    planning_s: float
    imitation_s: float | None
    n_epochs: int
    generating_s: float | None
    judging_s: float | None
    updating_s: float | None
    generated_per_s: float | None
    trained_per_s: float | None
    planning: tuple[PlanningCost, ...]
    prices: dict[str, float]
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def reinforcement_s(self) -> float | None:
        """Return the seconds of one visit to a problem with all its rollouts."""
        parts = (self.generating_s, self.judging_s, self.updating_s)
        return None if None in parts else sum(part or 0.0 for part in parts)

    @property
    def break_even_s(self) -> float | None:
        """Return the seconds of planning a problem above which reinforcement learning is the cheaper."""
        if self.reinforcement_s is None or self.imitation_s is None:
            return None
        return self.reinforcement_s - self.n_epochs * self.imitation_s

    def price(self, *, cpu_s: float = 0.0, accelerator_s: float = 0.0) -> float:
        """Return what some seconds cost."""
        return (self.prices["cpu"] * cpu_s + self.prices["accelerator"] * accelerator_s) / 3600


def efforts(run: RunSoFar[Any]) -> Iterator[tuple[str, Effort]]:
    """Yield what the policy of each arm took, by the name of the stage that made it."""
    n_problems = n_trained(run)
    known: dict[str, Effort] = {}
    for stage in run.stages(StageKind.OPTIMISES):
        key = stage.provenance.inputs["policy"]
        before = known.get(key, Effort())
        own = _own_effort(stage, n_problems)
        known[stage.artifact.key] = Effort(
            before.epochs + own.epochs, before.rollouts + own.rollouts, before.seconds + own.seconds
        )
        yield stage.artifact.key, known[stage.artifact.key]


def n_trained(run: RunSoFar[Any]) -> int:
    """Return how many problems there are to learn from, those of invented domains too."""
    planned = run.one(StageKind.PLANS)
    problems = None if planned is None else planned.input("problems").artifact
    return 0 if problems is None else read_columns(problems, ProblemRow, "split")[0].count(Split.PHASE1)


def _own_effort(stage: FinishedStage, n_problems: int) -> Effort:
    times = loop_times(stage)
    if times is None:
        figures = {row.name: row.value for row in stage.artifact.rows(MetricRow, "metrics")}
        epochs = figures.get("training/n_sequences", 0.0) / max(1, n_problems)
        return Effort(epochs, 0, stage.artifact.manifest.wall_time_s)
    n_asked = problems_asked(stage)
    n_rollouts = int(stage.provenance.settings["sampling"]["n"])
    return Effort(n_asked / max(1, n_problems), n_asked * n_rollouts, spent(times.items()))


def loop_times(stage: FinishedStage) -> dict[str, float] | None:
    """Return the seconds of a loop's updates by kind of work, None of a stage that is no loop."""
    if f"{TIMES}.parquet" not in stage.artifact.manifest.files:
        return None
    found: dict[str, float] = defaultdict(float)
    for row in stage.artifact.rows(MetricRow, TIMES):
        found[work_of(row.name)] += row.value
    return dict(found)


def problems_asked(stage: FinishedStage) -> int:
    """Return how many problems the updates of a loop asked, each as often as it was asked."""
    rows = stage.artifact.rows(MetricRow, UPDATES)
    asked = [row.value for row in rows if row.name == "group/asked"]
    n_updates = len({row.iteration for row in rows})
    return int(sum(asked)) if asked else n_updates * int(stage.provenance.settings["n_problems"])


def costs(run: RunSoFar[GeneralizationGapConfig]) -> Costs | None:
    """Return what a problem costs; None before its plan is there."""
    drawn, planned = run.one(StageKind.DRAWS), run.one(StageKind.PLANS)
    if drawn is None or planned is None:
        return None
    learnt, planning = n_trained(run), tuple(_planning(planned))
    tuned = [stage for stage in run.stages(StageKind.OPTIMISES) if loop_times(stage) is None]
    loops = [stage for stage in run.stages(StageKind.OPTIMISES) if stage.provenance.labels.get("loop")]
    n_asked = sum(map(problems_asked, loops))
    times: dict[str, float] = defaultdict(float)
    for stage in loops:
        for work, seconds in (loop_times(stage) or {}).items():
            times[work] += seconds
    passes = [figures["training/n_sequences"] for figures in map(_figures, tuned)]
    seconds = sum(stage.artifact.manifest.wall_time_s for stage in tuned)
    of_visit = {work: times[work] / n_asked if n_asked else None for work in ("generating", "judging", "training")}
    speeds = [figures["training/tokens_per_s"] for figures in map(_figures, tuned)]
    n_written = sum(_tokens_written(stage) for stage in loops)
    tuning = (run.config.reading or run.config).sft
    return Costs(
        n_problems=learnt,
        drawing_s=drawn.artifact.manifest.wall_time_s / max(1, _n_drawn(run.config)),
        planning_s=sum(item.seconds for item in planning) / max(1, sum(item.n for item in planning)),
        imitation_s=seconds / sum(passes) if sum(passes) else None,
        n_epochs=tuning.epochs if tuning is not None else 0,
        generating_s=of_visit["generating"],
        judging_s=of_visit["judging"],
        updating_s=of_visit["training"],
        generated_per_s=n_written / times["generating"] if times["generating"] else None,
        trained_per_s=fmean(speeds) if speeds else None,
        planning=planning,
        prices=_prices(run.config.prices),
        cpu_s=dict(_cpu_seconds(run, drawn, planned)),
    )


def _cpu_seconds(
    run: RunSoFar[GeneralizationGapConfig], drawn: FinishedStage, planned: FinishedStage
) -> Iterator[tuple[str, float]]:
    """Yield the CPU seconds of one problem that is drawn, of one that is planned, and of one attempt that is judged."""
    judged = [stage for stage in run.stages(StageKind.JUDGES) if "arm" in stage.provenance.labels]
    n_planned, *n_judged = (stage.artifact.manifest.files["rows.parquet"].n_rows or 0 for stage in (planned, *judged))
    for name, stages, n in (
        (DRAWING, [drawn], _n_drawn(run.config)), (PLANNING, [planned], n_planned), (JUDGING, judged, sum(n_judged)),
    ):  # fmt: skip
        manifests = [stage.artifact.manifest for stage in stages]
        seconds = [found.cpu_time_s for found in manifests if found.cpu_time_s is not None and not found.was_resumed]
        if n and len(seconds) == len(manifests):
            yield name, sum(seconds) / n


def _prices(prices: PricesConfig) -> dict[str, float]:
    return {"cpu": prices.cpu_hour, "accelerator": prices.accelerator_hour}


def _n_drawn(config: GeneralizationGapConfig) -> int:
    return sum(level.n_draws for level in config.problems.sampled_levels)


def _figures(stage: FinishedStage) -> dict[str, float]:
    return {row.name: row.value for row in stage.artifact.rows(MetricRow, "metrics")}


def _tokens_written(stage: FinishedStage) -> float:
    """Return the tokens of all rollouts of a loop."""
    return sum(row.value for row in stage.artifact.rows(MetricRow, UPDATES) if row.name == "rollout/n_tokens")


def _planning(planned: FinishedStage) -> Iterator[PlanningCost]:
    """Yield the planner's seconds for the problems to learn from, by domain, invented ones as one, and plan length."""
    problems = planned.input("problems").artifact
    columns = read_columns(problems, ProblemRow, "problem_id", "domain", "source", "split")
    domain_of = {
        name: INVENTED if source == INVENTED else domain
        for name, domain, source, split in zip(*columns, strict=True)
        if split == Split.PHASE1
    }
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    names, plans, times = read_columns(planned.artifact, PlanRow, "problem_id", "plan", "wall_time_s")
    for name, plan, seconds in zip(names, plans, times, strict=True):
        if name in domain_of:
            found[domain_of[name], len(plan)].append(seconds)
    for (domain, length), seconds in sorted(found.items()):
        yield PlanningCost(domain, length, len(seconds), sum(seconds))

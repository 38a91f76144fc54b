"""What an arm cost: epochs, rollouts and seconds of its training, and what planning, judging and training cost each.

Source: the appendix of arXiv 2601.14456, whose sums over instances are asymptotic; here they are over the instances of
the run, in seconds that were measured. How we differ: drawing and planning are on the side of imitation alone, as
there, and the plans of the warm start are on the side of reinforcement learning, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from plansmith.config.generalization_gap import GeneralizationGapConfig, PricesConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import MetricRow, PlanRow, ProblemRow, Split
from plansmith.data.update_times import BESIDE, CPU, GENERATING, JUDGING, TIMES, TRAINING, WAITING, spent, work_of
from plansmith.problems.invention.folders import INVENTED
from plansmith.report.finished_stages import FinishedStage, RunSoFar, read_columns
from plansmith.report.run_facts import UPDATES

DRAWING, PLANNING = "drawing it", "planning it"
TESTING, VISITING = "judging a test attempt", "one visit: judging"
"""Work of which the CPU seconds are known: of the driver and of row workers, with the planner's processes."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What the training of a policy took, from the start on.

    ``epochs`` are passes over the training problems, of imitation and of reinforcement learning alike; ``seconds`` the
    wall time of the stages, of both alike, too.
    """

    epochs: float = 0.0
    rollouts: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LoopSeconds:
    """Where the seconds of a loop went, whose segments are one.

    ``seconds`` is the wall time of its stages. ``work`` has those of the updates by kind of work; what was done beside
    training stands there under a name of its own, and is part of ``seconds`` as far as it was waited for.
    """

    seconds: float
    work: dict[str, float]

    @property
    def other_s(self) -> float:
        """Return the seconds in which nothing was generated, judged or trained, nor waited for."""
        return self.seconds - sum(self.work.get(name, 0.0) for name in (GENERATING, WAITING, JUDGING, TRAINING))

    def done_s(self, work: str) -> float:
        """Return the seconds of a kind of work, beside other work or not."""
        return self.work.get(work, 0.0) + self.work.get(work + BESIDE, 0.0)


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

    ``drawing_s`` is one of the ``n_drawn``, of which ``n_problems`` are learnt from. ``imitation_s`` is one pass over a
    plan, of ``n_passes``; ``reinforcement_s`` is one visit with all rollouts as it passed, ``generating_s``,
    ``judging_s`` and ``updating_s`` its work, be it done beside other work; None where the run has no such.
    ``planning`` is by domain and plan length. These are wall times; ``cpu_s`` has the CPU seconds of `DRAWING`,
    `PLANNING`, `TESTING` and `VISITING`, each of one, where they were measured in one session.
    """

    n_problems: int
    n_drawn: int
    drawing_s: float
    planning_s: float
    imitation_s: float | None
    n_passes: float
    reinforcement_s: float | None
    generating_s: float | None
    judging_s: float | None
    updating_s: float | None
    generated_per_s: float | None
    trained_per_s: float | None
    planning: tuple[PlanningCost, ...]
    prices: dict[str, float]
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def break_even_s(self) -> float | None:
        """Return the seconds of planning a problem above which reinforcement learning is the cheaper."""
        if self.reinforcement_s is None or self.imitation_s is None:
            return None
        return self.reinforcement_s - self.n_passes * self.imitation_s

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
        own = _own_effort(run, stage, n_problems)
        known[stage.artifact.key] = Effort(
            before.epochs + own.epochs, before.rollouts + own.rollouts, before.seconds + own.seconds
        )
        yield stage.artifact.key, known[stage.artifact.key]


def n_trained(run: RunSoFar[Any]) -> int:
    """Return how many problems there are to learn from, those of invented domains too."""
    planned = run.one(StageKind.PLANS)
    problems = None if planned is None else planned.input("problems").artifact
    return 0 if problems is None else read_columns(problems, ProblemRow, "split")[0].count(Split.PHASE1)


def _own_effort(run: RunSoFar[Any], stage: FinishedStage, n_problems: int) -> Effort:
    seconds = stage_seconds(stage)
    if loop_times(stage) is None:
        return Effort(_n_sequences(run, stage) / max(1, n_problems), 0, seconds)
    n_asked = problems_asked(stage)
    n_rollouts = int(stage.provenance.settings["sampling"]["n"])
    return Effort(n_asked / max(1, n_problems), n_asked * n_rollouts, seconds)


def _n_sequences(run: RunSoFar[Any], stage: FinishedStage) -> float:
    """Return how many sequences a tuning went through: metrics count one epoch, and what reads may have several."""
    n_epochs = run.config.reading.sft.epochs if run.config.reading else 1
    return n_epochs * _figures(stage).get("training/n_sequences", 0.0)


def stage_seconds(stage: FinishedStage) -> float:
    """Return the wall time of a stage; of a resumed one the manifest has the last session's, and updates tell more."""
    return max(stage.artifact.manifest.wall_time_s, spent((loop_times(stage) or {}).items()))


def loop_seconds(stages: Iterable[FinishedStage]) -> LoopSeconds:
    """Return where the seconds of a loop's segments went."""
    seconds, work = 0.0, defaultdict[str, float](float)
    for stage in stages:
        seconds += stage_seconds(stage)
        for name, worked_s in (loop_times(stage) or {}).items():
            work[name] += worked_s
    return LoopSeconds(seconds, dict(work))


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
    planning, n_drawn = tuple(_planning(planned)), _n_drawn(run.config, drawn)
    loops = [stage for stage in run.stages(StageKind.OPTIMISES) if stage.provenance.labels.get("loop")]
    return Costs(
        n_problems=n_trained(run),
        n_drawn=n_drawn,
        drawing_s=drawn.artifact.manifest.wall_time_s / max(1, n_drawn),
        planning_s=sum(item.seconds for item in planning) / max(1, sum(item.n for item in planning)),
        n_passes=_n_passes(run, loops),
        **_of_a_pass(run),
        **_of_a_visit(loops),
        planning=planning,
        prices=_prices(run.config.prices),
        cpu_s={**dict(_cpu_seconds(run, drawn, planned)), **_cpu_of_a_visit(loops)},
    )


def _of_a_pass(run: RunSoFar[GeneralizationGapConfig]) -> dict[str, Any]:
    """Return the fields of `Costs` about imitation."""
    tuned = [stage for stage in run.stages(StageKind.OPTIMISES)
             if loop_times(stage) is None and not stage.artifact.manifest.was_resumed]  # fmt: skip
    n_sequences, seconds = sum(_n_sequences(run, stage) for stage in tuned), sum(map(stage_seconds, tuned))
    speeds = [_figures(stage)["training/tokens_per_s"] for stage in tuned]
    return {
        "imitation_s": seconds / n_sequences if n_sequences else None,
        "trained_per_s": fmean(speeds) if speeds else None,
    }


def _of_a_visit(loops: Sequence[FinishedStage]) -> dict[str, Any]:
    """Return the fields of `Costs` about reinforcement learning."""
    found, n_asked = loop_seconds(loops), sum(map(problems_asked, loops))
    seconds = {
        "reinforcement_s": found.seconds,
        "generating_s": found.done_s(GENERATING),
        "judging_s": found.done_s(JUDGING),
        "updating_s": found.done_s(TRAINING),
    }
    n_written = sum(_tokens_written(stage) for stage in loops)
    return {
        **{name: spent_s / n_asked if n_asked else None for name, spent_s in seconds.items()},
        "generated_per_s": n_written / found.done_s(GENERATING) if found.done_s(GENERATING) else None,
    }


def _cpu_of_a_visit(loops: Sequence[FinishedStage]) -> dict[str, float]:
    seconds, n_asked = loop_seconds(loops).work.get(JUDGING + CPU, 0.0), sum(map(problems_asked, loops))
    return {VISITING: seconds / n_asked} if n_asked and seconds else {}


def _n_passes(run: RunSoFar[GeneralizationGapConfig], loops: Sequence[FinishedStage]) -> float:
    """Return how often a whole imitation goes over a plan.

    Every epoch has all copies. A policy that reads is tuned on so many tokens, round after round: measured is the one
    that reinforcement learning goes on from.
    """
    if run.config.reading is None:
        return run.config.copies * run.config.tuning.epochs
    known = dict(efforts(run))
    return max((known[stage.provenance.inputs["policy"]].epochs for stage in loops[:1]), default=0.0)


def _cpu_seconds(
    run: RunSoFar[GeneralizationGapConfig], drawn: FinishedStage, planned: FinishedStage
) -> Iterator[tuple[str, float]]:
    """Yield the CPU seconds of one problem that is drawn, of one that is planned, and of one attempt that is judged."""
    judged = [stage for stage in run.stages(StageKind.JUDGES) if "arm" in stage.provenance.labels]
    n_planned, *n_judged = (stage.artifact.manifest.files["rows.parquet"].n_rows or 0 for stage in (planned, *judged))
    for name, stages, n in (
        (DRAWING, [drawn], _n_drawn(run.config, drawn)), (PLANNING, [planned], n_planned),
        (TESTING, judged, sum(n_judged)),
    ):  # fmt: skip
        manifests = [stage.artifact.manifest for stage in stages]
        seconds = [found.cpu_time_s for found in manifests if found.cpu_time_s is not None and not found.was_resumed]
        if n and len(seconds) == len(manifests):
            yield name, sum(seconds) / n


def _prices(prices: PricesConfig) -> dict[str, float]:
    return {"cpu": prices.cpu_hour, "accelerator": prices.accelerator_hour}


def _n_drawn(config: GeneralizationGapConfig, drawn: FinishedStage) -> int:
    """Return how many problems were drawn, or taken from a dataset."""
    if config.problems.dataset:
        return drawn.artifact.manifest.files["rows.parquet"].n_rows or 0
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

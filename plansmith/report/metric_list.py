"""The one list of what a run measures: name, kind, unit, meaning and labels, the same in every window; and one number.

What computes the values of a finished stage is in `plansmith.report.measurements`; what the
processes of a run say while they work is recorded where they work (`actors.telemetry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Source(StrEnum):
    """Where the values of a metric come from."""

    STAGE = "finished stage"
    """One number of a finished stage, for a feedback iteration."""
    CURVE = "optimisation"
    """One number of each optimiser step: in Prometheus while it is made, in the other windows from the artifact."""
    LIVE = "running process"
    """What a process of the run says while it works; only in Prometheus and on the live page."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; what has no label of a name is over all of them.

    Attributes:
        name: like ``rollout/valid_plan_rate``.
        kind: a counter only grows, while its process lives.
        unit: of the value; ``1`` for shares and other plain numbers.
        description: what is measured, in one sentence without its full stop.
        labels: names of the labels that a value may carry, besides run and iteration.
        source: where it comes from.
    """

    name: str
    kind: Literal["gauge", "counter"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    source: Source = Source.STAGE


_PLACES = ("domain", "level")
_TRIED = ("arm", *_PLACES)
_S, _C, _L = Source.STAGE, Source.CURVE, Source.LIVE


def _gauges(source: Source, labels: tuple[str, ...], rows: Iterable[tuple[str, str, str]]) -> list[Metric]:
    return [Metric(name, "gauge", unit, description, labels, source) for name, unit, description in rows]


_ALL = [
    *_gauges(_S, _TRIED, [
        ("evaluation/accuracy", "1", "Share of the test problems that the policy solved"),
        ("evaluation/problems", "problems", "Test problems tried"),
        ("evaluation/mean_progress", "1", "Mean share of the way to the goal that an attempt came"),
    ]),
    *_gauges(_S, (*_TRIED, "error_class"), [
        ("evaluation/errors", "problems", "Test problems whose plan is not valid, by class of error"),
    ]),
    *_gauges(_S, ("arm",), [
        ("evaluation/self_verification", "1", "Share of the stated verdicts on own plans that are the validator's"),
        ("evaluation/stated_verdicts", "problems", "Test problems on whose plan the policy stated a verdict"),
    ]),
    *_gauges(_S, (), [
        ("probe/accuracy", "1", "Share of the probe set that the policy solved"),
        ("probe/problems", "problems", "Problems of the probe set"),
        ("loop/kept_iteration", "1", "Feedback iteration whose policy was kept"),
    ]),
    *_gauges(_S, _PLACES, [
        ("rollout/valid_plan_rate", "1", "Share of the rollouts of an iteration whose plan is valid"),
        ("rollout/judged", "rollouts", "Rollouts of an iteration that were judged"),
    ]),
    *_gauges(_S, (*_PLACES, "error_class"), [
        ("rollout/errors", "rollouts", "Rollouts whose plan is not valid, by class of error"),
    ]),
    *_gauges(_S, (), [
        ("rollout/unreadable_rate", "1", "Share of the rollouts that cannot be read as a chain with a plan"),
    ]),
    *_gauges(_S, (*_PLACES, "error_class"), [
        ("loss/reasoning_as_printed", "1", "Equation 4 as printed: mean loss of the steps"),
        ("loss/final_as_printed", "1", "Equation 8 as printed: mean loss of the plans"),
    ]),
    *_gauges(_S, ("stage",), [
        ("generation/tokens", "tokens", "Tokens that the policy wrote in a stage"),
        ("generation/tokens_per_s", "tokens/s", "Tokens written for each second of the stage, loading included"),
        ("generation/completions", "completions", "Completions written in a stage"),
        ("generation/truncated_rate", "1", "Share of the completions that were cut off at the limit"),
        ("generation/no_room_rate", "1", "Share of the prompts that fill the engine's window and got no answer"),
    ]),
    *_gauges(_S, ("stage",), [
        ("training/n_sequences", "sequences", "Sequences trained on, in one epoch"),
        ("training/n_dropped", "sequences", "Sequences that were too long and were not trained on"),
        ("training/n_dropped_tokens", "tokens", "Tokens of the sequences that were not trained on"),
        ("training/n_tokens", "tokens", "Tokens trained on, in one epoch"),
        ("training/tokens_per_s", "tokens/s", "Tokens trained on, in all epochs, for each second of the optimisation"),
        ("training/steps", "steps", "Optimiser steps taken"),
        ("training/last_loss", "1", "Loss of the last optimiser step"),
    ]),
    *_gauges(_S, ("stage",), [
        ("verification/accuracy", "1", "Share of the plans whose stated verdict is the truth; none stated is wrong"),
        ("verification/plans", "plans", "Plans whose validity the policy was to state"),
        ("verification/brier", "1", "Brier score of v_hat, the probability of VALID, against the validator"),
    ]),
    *_gauges(_S, ("turn",), [
        ("feedback/accuracy", "1", "Share of the test problems solved after so many turns of feedback"),
    ]),
    *_gauges(_S, ("arm", "domain", "turn"), [
        ("formalisation/svr", "1", "Share of the test texts whose answer can be read as a problem"),
        ("formalisation/psr_of_all", "1", "Share of the test texts whose answer has a plan"),
        ("formalisation/equivalent", "1", "Share of the test texts whose answer means what the reference does"),
        ("formalisation/task_success", "1", "Share of the test texts the plan of whose answer solves the reference"),
    ]),
    *_gauges(_S, ("arm",), [
        ("preference/accuracy", "1", "Share of the held-out pairs that the policy parts better than its reference"),
        ("preference/margin", "1", "Mean of Delta (equation 5 of NL-PDDL-Bench) on held-out pairs, in nats"),
    ]),
    *_gauges(_S, ("split", *_PLACES), [
        ("data/problems", "problems", "Problems drawn, by what they are for"),
        ("data/left_out", "problems", "Problems not learnt from, as their plans pass one that only measures"),
    ]),
    *_gauges(_S, ("stage", "status"), [
        ("planner/problems", "problems", "Problems given to the planner, by what became of them"),
    ]),
    *_gauges(_S, ("stage",), [
        ("planner/solve_time_s", "s", "Seconds that the planner took for all problems of a stage, over all workers"),
        ("stage/wall_time_s", "s", "Duration of a stage, of its last session where it was resumed"),
    ]),
    *_gauges(_S, ("stage", "table"), [
        ("stage/rows", "rows", "Rows of each table that a stage wrote"),
    ]),
    *_gauges(_S, ("stage", "policy_version"), [
        ("policy/version", "1", "Always 1: the stage that made the weights of this version"),
    ]),
    *_gauges(_C, ("objective", "stage"), [  # the first while it is made, the second of what is finished
        ("train/loss", "1", "Loss of an optimiser step"),
        ("train/learning_rate", "1", "Learning rate of an optimiser step"),
        ("train/gradient_norm", "1", "Norm of the gradient before clipping"),
    ]),
    *_gauges(_L, ("source",), [
        ("train/tokens_per_s", "tokens/s", "Tokens trained on for each second of the present optimisation"),
        ("rollout/tokens_per_s", "tokens/s", "Tokens that an engine writes for each second of the present stage"),
        ("rollout/longest_tokens", "tokens", "Longest completion of the present stage, finished or under way"),
        ("work/done", "1", "Units of the present work that a process has finished"),
        ("work/total", "1", "Units of the present work in all, where that is known"),
    ]),
    Metric("rollout/finished", "counter", "completions", "Completions that an engine has finished", ("source",), _L),
    Metric("actor/restarts", "counter", "restarts", "Starts of an actor after its first", ("source",), _L),
    *_gauges(_L, (), [
        ("run/is_active", "1", "1 while the process that conducts the run is at work, 0 when it has ended in order"),
        ("run/last_movement", "s", "When any process of the run last moved, in seconds since 1970 by its driver"),
        ("run/stage_number", "1", "Number of the present stage, from 1"),
        ("run/stage_count", "1", "Stages of the run"),
        ("run/iteration", "1", "Feedback iteration of the present stage; 0 before and after the loop"),
    ]),
    *_gauges(_L, ("stage",), [("run/stage", "1", "1 for the present stage, 0 for one that has ended")]),
    *_gauges(_L, ("policy_version",), [
        ("run/policy_version", "1", "1 for the version of the newest weights, 0 for older ones"),
    ]),
]  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by name; a measurement of another name is a bug."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number of a run.

    Attributes:
        name: one of `METRICS`.
        value: of the metric's unit.
        iteration: the feedback iteration; 0 before the loop, and for what belongs to none.
        labels: a label that is left out means all: no ``domain`` is all domains together.
        step: the optimiser step, from 1, for curves.
        series: of an arm that is one point of a curve over the iterations; arms without one are curves of their own.

    Raises:
        ValueError: a name or a label that `METRICS` does not have.
    """

    name: str
    value: float
    iteration: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    series: str = ""

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise ValueError(f"no metric is named {self.name!r}; add it to METRICS")
        if unknown := set(self.labels) - set(METRICS[self.name].labels):
            raise ValueError(f"{self.name} has labels {METRICS[self.name].labels}, not {sorted(unknown)}")

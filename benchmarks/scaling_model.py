"""What a dataset and its feedback iterations cost, from measured unit costs: formulas, and the table of them.

All that is computed is processor seconds, wall-clock seconds on a number of CPUs, and GPU hours where a rate is given.
No rate of a GPU is known here: without one the columns say what would have to be measured. `scaling.py` measures the
unit costs; docs/scaling.md says where each number comes from.

    s       seconds of a worker for a problem (or rollout): of the whole build on one CPU, divided by the problems
    d       processor seconds of the driver for it, which no second machine shares
    n, C    problems, CPUs
    e       efficiency on two CPUs, taken as the share of a further CPU that does work
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plansmith.layout import markdown_table

HOUR_S = 3600.0


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of processor time, as measured.

    Attributes:
        sampled_s: drawing a problem with its canonical form.
        planned_s: a plan by Fast Downward.
        chain_s: writing a chain of thought with its prompt.
        judged_s: judging one rollout, step by step.
        driver_problem_s: of the driver, for a problem of a dataset.
        driver_rollout_s: of the driver, for a rollout that is judged.
    """

    sampled_s: float
    planned_s: float
    chain_s: float
    judged_s: float
    driver_problem_s: float
    driver_rollout_s: float

    def __post_init__(self) -> None:
        if min(self.sampled_s, self.planned_s, self.chain_s, self.judged_s) <= 0 or self.driver_s_are_negative:
            raise ValueError(f"costs are seconds above zero: {self}")

    @property
    def driver_s_are_negative(self) -> bool:
        """Return whether a cost of the driver is below zero."""
        return min(self.driver_problem_s, self.driver_rollout_s) < 0


@dataclass(frozen=True)
class GpuRates:
    """What one GPU does in a second; None where nobody has measured it."""

    tokens_generated: float | None = None
    tokens_trained: float | None = None


def wall_s(n: float, worker_s: float, driver_s: float, *, n_cpus: int, efficiency: float) -> float:
    """Return the time of n items on so many CPUs.

    A second CPU adds ``2 e - 1`` of one, and every further one is taken to add as much: C CPUs work as
    ``1 + (C - 1) (2 e - 1)``, never less than one. However many they are, the driver hands out and collects every item.

    Args:
        n: items.
        worker_s: processor time of one, in workers.
        driver_s: processor time of one, in the driver.
        n_cpus: of the workers.
        efficiency: measured on two CPUs, ``t1 / (2 t2)``.
    """
    if n_cpus < 1 or efficiency <= 0:
        raise ValueError(f"no such machine: n_cpus={n_cpus}, efficiency={efficiency}")
    at_work = max(1.0, 1.0 + (n_cpus - 1) * min(1.0, 2.0 * efficiency - 1.0))
    return n * max(worker_s / at_work, driver_s)


def gpu_hours(n_tokens: float, tokens_per_s: float | None) -> float | None:
    """Return the GPU hours of so many tokens; None where the rate is not known."""
    return None if tokens_per_s is None else n_tokens / tokens_per_s / HOUR_S


def cpus_that_keep_pace(costs: UnitCosts, tokens_per_s: float | None, rollout_tokens: int) -> float | None:
    """Return the CPUs that judge as fast as one GPU generates; None where the GPU's rate is not known."""
    return None if tokens_per_s is None else tokens_per_s / rollout_tokens * costs.judged_s


def problems_the_driver_can_feed(costs: UnitCosts) -> float:
    """Return the problems a second of a dataset beyond which further CPUs wait for the driver."""
    return float("inf") if costs.driver_problem_s == 0 else 1.0 / costs.driver_problem_s


def dataset_table(
    problem_s: float, driver_s: float, efficiency: float, *, sizes: Sequence[int], cpus: Sequence[int]
) -> str:
    """Return the time of building datasets of some sizes on some numbers of CPUs, as Markdown.

    Args:
        problem_s: of a worker, for a problem.
        driver_s: of the driver, for a problem.
        efficiency: on two CPUs.
        sizes: problems of the datasets.
        cpus: numbers of them.
    """
    header = ("problems", "CPU hours", *(f"{n} CPUs" if n > 1 else "1 CPU" for n in cpus))
    rows = [
        (
            f"{size:,}",
            f"{size * problem_s / HOUR_S:.3g}",
            *(spoken_time(wall_s(size, problem_s, driver_s, n_cpus=n, efficiency=efficiency)) for n in cpus),
        )
        for size in sizes
    ]
    return markdown_table(header, rows)


def iteration_table(
    costs: UnitCosts, rates: GpuRates, gpus: Sequence[int], *, n_rollouts: int, rollout_tokens: int, epochs: float
) -> str:
    """Return the time of one feedback iteration on some numbers of GPUs, as Markdown.

    Args:
        costs: of judging.
        rates: of one GPU.
        gpus: numbers of them, taken to work without loss: the ideal.
        n_rollouts: of the iteration.
        rollout_tokens: of one.
        epochs: how often the trainer sees a rollout's tokens, both of its stages together.
    """
    n_tokens = n_rollouts * rollout_tokens
    hours = {
        "generating": (gpu_hours(n_tokens, rates.tokens_generated), n_tokens, "g"),
        "training": (gpu_hours(epochs * n_tokens, rates.tokens_trained), epochs * n_tokens, "t"),
    }
    header = ("GPUs", *(f"{name}, hours" for name in hours), "CPUs that judge in that time")
    pace = cpus_that_keep_pace(costs, rates.tokens_generated, rollout_tokens)
    factor = costs.judged_s / rollout_tokens
    rows = [
        (
            str(n),
            *(
                f"{known / n:.3g}" if known is not None else f"{tokens / n / HOUR_S:.3g} / {symbol}"
                for known, tokens, symbol in hours.values()
            ),
            f"{n * pace:.3g}" if pace is not None else f"{n * factor:.3g} g",
        )
        for n in gpus
    ]
    return markdown_table(header, rows)


def unit_table(costs: UnitCosts) -> str:
    """Return the unit costs in milliseconds, as Markdown."""
    names: Mapping[str, float] = {
        "a problem drawn, with its canonical form": costs.sampled_s,
        "a problem solved by Fast Downward": costs.planned_s,
        "a chain of thought written, with its prompt": costs.chain_s,
        "a rollout judged": costs.judged_s,
        "the driver, for a problem of a dataset": costs.driver_problem_s,
        "the driver, for a rollout judged": costs.driver_rollout_s,
    }
    return markdown_table(("unit", "CPU ms"), [(name, f"{1000 * value:.3g}") for name, value in names.items()])


def spoken_time(seconds: float) -> str:
    """Return a time to three digits in the largest unit of which it has one, or in seconds."""
    seconds = float(f"{seconds:.3g}")
    for unit, size in (("d", 86400.0), ("h", HOUR_S), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"

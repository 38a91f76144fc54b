"""What the times of a loop of updates are called, and which of them add up: some work is done beside other work."""

from __future__ import annotations

from collections.abc import Iterable

TIMES = "times"
"""Table of `MetricRow`: the seconds of each update by kind of work."""
GENERATING, JUDGING, TRAINING, WAITING = "generating", "judging", "training", "waiting for rollouts"
HANDING_OVER, SAVING = "handing over", "saving"
"""Kinds of work: weights come to engines and trainer, checkpoint and probe are written."""
CPU = ", CPU seconds"
"""Ends the name of what is no time that passed: how long a processor judged, be it beside other work."""
BESIDE = ", beside other work"
"""Ends the name of a time: of what was judged while engines went on writing, and of what was done while the trainer
worked on the update before."""


def time_name(work: str) -> str:
    """Return what the seconds of a kind of work are called."""
    return f"time/{work}_s"


def work_of(name: str) -> str:
    """Return the kind of work that a time is of."""
    return name.removeprefix("time/").removesuffix("_s")


def spent(times: Iterable[tuple[str, float]]) -> float:
    """Return how long updates took, from names and seconds; work beside other counts as far as it was waited for."""
    return sum(seconds for name, seconds in times if BESIDE not in name and CPU not in name)

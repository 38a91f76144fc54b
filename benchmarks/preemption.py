"""What preempted machines cost an optimisation, with checkpoints in it and without: a simulation, and its table.

`python benchmarks/preemption.py` prints the table of docs/scaling.md. Machines are taken at random moments, on average
every `--every-h`; with one of them all ranks stop, and go on when they have been started anew. What is lost is what had
been done since the last checkpoint, or since the beginning. Nothing here knows a GPU's speed: the table is by the hours
that an optimisation takes undisturbed.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from plansmith.layout import markdown_table

HOUR_S = 3600.0
STATE_BYTES = 14
"""Of a parameter in a checkpoint: weights in bfloat16, and in float32 weights and two moments."""
HOPELESS = 1000.0
"""Times its undisturbed length after which an optimisation is given up: the table says so."""


@dataclass(frozen=True)
class Cluster:
    """What an optimisation meets, in seconds.

    Attributes:
        between_s: mean time between two preemptions, of whichever machine.
        restart_s: from a preemption until the ranks train again.
        checkpoint_every_s: training between two checkpoints; None keeps none.
        checkpoint_s: how long the ranks wait while one is written.
    """

    between_s: float
    restart_s: float
    checkpoint_every_s: float | None
    checkpoint_s: float = 0.0


def checkpoint_seconds(n_parameters: float, n_ranks: int, bytes_per_s: float) -> float:
    """Return how long the ranks write a checkpoint, each its share with so many bytes a second of its own."""
    return n_parameters * STATE_BYTES / (n_ranks * bytes_per_s)


def simulated(length_s: float, cluster: Cluster, rng: random.Random) -> float:
    """Return how long an optimisation takes that lasts ``length_s`` undisturbed; infinity where it is hopeless.

    Preemptions are a Poisson process, also while ranks start or write.
    """
    now = safe = 0.0
    taken = rng.expovariate(1 / cluster.between_s)
    every = cluster.checkpoint_every_s or math.inf
    while now < HOPELESS * length_s:
        part = min(every, length_s - safe)
        is_last = safe + part >= length_s
        end = now + part + (0.0 if is_last else cluster.checkpoint_s)
        if taken >= end:
            now, safe = end, safe + part
            if is_last:
                return now
            continue
        now = taken  # what was done since `safe` is lost, and ranks that start may be taken again
        while True:
            taken = now + rng.expovariate(1 / cluster.between_s)
            if taken >= now + cluster.restart_s:
                now += cluster.restart_s
                break
            now = taken
    return math.inf


def expected_without_checkpoints(length_s: float, between_s: float, restart_s: float) -> float:
    """Return the mean time without checkpoints in closed form: a task that begins anew at each event of a process."""
    rate = 1 / between_s
    return math.exp(rate * restart_s) * (1 / rate) * (math.exp(rate * length_s) - 1)


def rows(
    lengths_h: Sequence[float], cluster: Cluster, *, n_rounds: int, seed: int, n_optimisations: int
) -> list[list[str]]:
    """Return by length what a run of so many optimisations takes, without checkpoints and with them."""

    def mean(length_s: float, cluster: Cluster) -> float:
        rng = random.Random(f"{seed} {length_s} {cluster.checkpoint_every_s}")
        return fmean(simulated(length_s, cluster, rng) for _ in range(n_rounds))

    without = Cluster(cluster.between_s, cluster.restart_s, None)
    found = []
    for hours in lengths_h:
        length_s = hours * HOUR_S
        plain, kept = mean(length_s, without), mean(length_s, cluster)
        found.append(
            [
                f"{hours:g}",
                f"{n_optimisations * hours:.3g}",
                *(_said(value, length_s, n_optimisations) for value in (plain, kept)),
            ]
        )
    return found


def _said(value_s: float, length_s: float, n_optimisations: int) -> str:
    if math.isinf(value_s):
        return "does not end"
    return f"{n_optimisations * value_s / HOUR_S:.3g}, {value_s / length_s - 1:.0%}"


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = print) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parameters", type=float, default=8e9, help="of the model (8e9)")
    add("--ranks", type=int, default=16, help="GPUs that train (16, of two machines)")
    add("--eta", type=int, default=15, help="feedback iterations, of two optimisations each, after phase 1 (15)")
    add("--every-h", type=float, default=1.0, help="hours between two preemptions on average (1)")
    add("--restart-s", type=float, default=300.0, help="from a preemption until the ranks train again: a machine, its "
        "image, the model (300; assumed)")  # fmt: skip
    add("--checkpoint-every-s", type=float, default=600.0, help="trainer.checkpoint_every_s (600)")
    add("--bytes-per-s", type=float, default=100e6, help="that a rank writes to the shared disk (1e8; assumed)")
    add("--lengths-h", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1, 2, 4, 8], help="hours of an optimisation")
    add("--rounds", type=int, default=2000)
    add("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    writing_s = checkpoint_seconds(given.parameters, given.ranks, given.bytes_per_s)
    cluster = Cluster(given.every_h * HOUR_S, given.restart_s, given.checkpoint_every_s, writing_s)
    n_optimisations = 2 * given.eta + 1
    say(f"{given.parameters:g} parameters, {given.ranks} ranks, {n_optimisations} optimisations, a preemption every "
        f"{given.every_h:g} h, {given.restart_s:g} s until the ranks train again; a checkpoint every "
        f"{given.checkpoint_every_s:g} s takes {writing_s:.3g} s\n")  # fmt: skip
    header = ["an optimisation, h", "undisturbed, h", "without checkpoints, h and more", "with, h and more"]
    options = {"n_rounds": given.rounds, "seed": given.seed, "n_optimisations": n_optimisations}
    say(markdown_table(header, rows(given.lengths_h, cluster, **options)))


if __name__ == "__main__":
    main()

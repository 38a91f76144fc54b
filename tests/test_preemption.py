"""benchmarks/preemption.py: the simulation against the closed form, and against runs worked out by hand."""

from __future__ import annotations

import math
import random
import sys
from statistics import fmean

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from preemption import Cluster, checkpoint_seconds, expected_without_checkpoints, main, simulated


class Drawn(random.Random):
    """Gives the times until the next preemption that a test names, then none any more."""

    def __init__(self, *times: float) -> None:
        super().__init__()
        self.times = list(times)

    def expovariate(self, lambd: float = 1.0) -> float:
        return self.times.pop(0) if self.times else math.inf


@pytest.mark.parametrize(
    ("every", "times", "expected"),
    [
        (None, [], 100.0),
        (None, [60.0], 60.0 + 5.0 + 100.0),  # all 60 s are lost
        (30.0, [], 100.0 + 3 * 2.0),  # three checkpoints, none at the end
        (30.0, [60.0], 60.0 + 5.0 + (30.0 + 2.0) + (30.0 + 2.0) + 10.0),  # one checkpoint, at 32; 28 s are lost
        (30.0, [31.0], 31.0 + 5.0 + 100.0 + 3 * 2.0),  # while the first is written, which is lost with it
        (30.0, [60.0, 3.0], 63.0 + 5.0 + (30.0 + 2.0) + (30.0 + 2.0) + 10.0),  # again while ranks start
    ],
)
def test_simulated_time_is_that_worked_out_by_hand(every: float | None, times: list[float], expected: float) -> None:
    cluster = Cluster(1000.0, 5.0, every, 2.0 if every else 0.0)
    assert simulated(100.0, cluster, Drawn(*times)) == pytest.approx(expected)


def test_simulation_without_checkpoints_agrees_with_the_closed_form() -> None:
    rng = random.Random(0)
    times = [simulated(3600.0, Cluster(3600.0, 300.0, None), rng) for _ in range(20_000)]
    spread = 4 * (fmean(time**2 for time in times) - fmean(times) ** 2) ** 0.5 / len(times) ** 0.5
    assert fmean(times) == pytest.approx(expected_without_checkpoints(3600.0, 3600.0, 300.0), abs=spread)


def test_an_optimisation_of_many_times_the_distance_of_preemptions_does_not_end_without_checkpoints() -> None:
    often = Cluster(60.0, 1.0, None)
    assert math.isinf(simulated(3600.0, often, random.Random(0)))
    assert simulated(3600.0, Cluster(60.0, 1.0, 10.0), random.Random(0)) < 2 * 3600.0


def test_table_names_what_it_assumes_and_has_a_row_a_length(capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint_seconds(8e9, 16, 1e8) == pytest.approx(70.0)
    main(["--rounds", "20", "--lengths-h", "0.1", "0.5"])
    said = capsys.readouterr().out
    assert "31 optimisations" in said and "takes 70 s" in said
    assert [line.split("|")[1].strip() for line in said.splitlines()[-2:]] == ["0.1", "0.5"]

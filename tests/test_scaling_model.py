"""The formulas of benchmarks/scaling_model.py, worked out by hand, and the checks of benchmarks/scaling.py."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from conftest import BLOCKS_TEXT, ROOT, random_problem

sys.path.insert(0, str(ROOT / "benchmarks"))

from scaling import Measured, _judge, check_same_tables, digest, efficiencies, medians, result_of
from scaling_model import (
    GpuRates,
    UnitCosts,
    cpus_that_keep_pace,
    dataset_table,
    gpu_hours,
    iteration_table,
    problems_the_driver_can_feed,
    spoken_time,
    wall_s,
)

from plansmith.data.rows import CompletionRow, JudgingRow
from plansmith.pddl.printer import print_problem

COSTS = UnitCosts(0.001, 0.009, 0.010, 0.005, driver_problem_s=0.001, driver_rollout_s=0.0)


@pytest.mark.parametrize(
    ("n_cpus", "efficiency", "expected"),
    [
        (1, 1.0, 20.0),  # 1000 * 20 ms
        (2, 1.0, 10.0),
        (4, 1.0, 5.0),
        (2, 0.75, 20.0 / 1.5),  # the second CPU adds half of one
        (3, 0.75, 10.0),  # 1 + 2 * 0.5 CPUs
        (2, 0.5, 20.0),  # the second adds nothing
        (64, 0.3, 20.0),  # and never takes anything away
        (20, 1.0, 1.0),  # 1000 * 1 ms of the driver
        (400, 1.0, 1.0),  # which more CPUs cannot share
        (2, 1.2, 10.0),  # noise is not taken for more than a CPU
    ],
)
def test_wall_s_follows_the_formula(n_cpus: int, efficiency: float, expected: float) -> None:
    assert wall_s(1000, 0.020, 0.001, n_cpus=n_cpus, efficiency=efficiency) == pytest.approx(expected)


@pytest.mark.parametrize(("n_cpus", "efficiency"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_wall_s_of_no_machine_raises_value_error(n_cpus: int, efficiency: float) -> None:
    with pytest.raises(ValueError, match="no such machine"):
        wall_s(1, 1.0, 0.0, n_cpus=n_cpus, efficiency=efficiency)


@pytest.mark.parametrize("change", [{"sampled_s": 0.0}, {"judged_s": -1.0}, {"driver_problem_s": -0.1}])
def test_unit_costs_that_cannot_be_raise_value_error(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        dataclasses.replace(COSTS, **change)


def test_gpu_hours_without_a_measured_rate_are_unknown() -> None:
    assert gpu_hours(1e6, None) is None
    assert gpu_hours(7.2e6, 1000.0) == 2.0
    assert cpus_that_keep_pace(COSTS, None, 1000) is None
    assert cpus_that_keep_pace(COSTS, 4000.0, 1000) == pytest.approx(0.02)  # 4 rollouts a second of 5 ms


def test_problems_the_driver_can_feed_is_one_over_its_time() -> None:
    assert problems_the_driver_can_feed(COSTS) == pytest.approx(1000.0)
    assert problems_the_driver_can_feed(dataclasses.replace(COSTS, driver_problem_s=0.0)) == float("inf")


def test_dataset_table_tells_cpu_hours_and_times() -> None:
    *_, row = dataset_table(0.020, 0.001, 1.0, sizes=[180_000], cpus=[1, 10, 1000]).splitlines()
    assert row == "| 180,000 | 1 | 1 h | 6 min | 3 min |"  # 3600 s, a tenth, 180 s of the driver


def test_iteration_table_without_rates_leaves_formulas() -> None:
    table = iteration_table(COSTS, GpuRates(), [1, 4], n_rollouts=3600, rollout_tokens=1000, epochs=2.0)
    assert table.splitlines()[-2:] == ["| 1 | 1e+03 / g | 2e+03 / t | 5e-06 g |", "| 4 | 250 / g | 500 / t | 2e-05 g |"]


def test_iteration_table_with_rates_tells_hours() -> None:
    table = iteration_table(
        COSTS, GpuRates(1000.0, 500.0), [2], n_rollouts=7200, rollout_tokens=1000, epochs=1.0
    )  # fmt: skip
    assert table.splitlines()[-1] == "| 2 | 1 | 2 | 0.01 |"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.5, "0.5 s"), (59.96, "1 min"), (59.9, "59.9 s"), (60, "1 min"), (7200, "2 h"), (172800, "2 d")],
)
def test_spoken_time_takes_the_largest_unit(seconds: float, expected: str) -> None:
    assert spoken_time(seconds) == expected


def measured(layout: str, judge_s: float, digest_of_verdicts: str = "v") -> Measured:
    return Measured(
        layout=layout,
        ray_start_s=5.0,
        worker_start_s={"dataset": 3.0, "judge": 4.0},
        seconds={"dataset": 100.0, "judge": judge_s},
        driver_s={"dataset": 2.0, "judge": -0.5},
        digests={"dataset": "d", "verdicts": digest_of_verdicts},
    )


FOUND = [
    measured(layout, judge_s)
    for layout, times in {"1 CPU": (10, 12, 90), "2 CPUs": (6, 8, 8), "2 nodes of 1 CPU": (6, 6, 6)}.items()
    for judge_s in times
]


def test_efficiencies_are_of_medians_against_one_cpu() -> None:
    found = efficiencies(medians(FOUND, "seconds"))
    assert found == {
        "2 CPUs": {"dataset": 0.5, "judge": 0.75},  # 12 / (2 * 8)
        "2 nodes of 1 CPU": {"dataset": 0.5, "judge": 1.0},
    }


def test_result_of_puts_the_driver_of_one_cpu_into_the_unit_costs() -> None:
    units = {"sampled_s": 1.0, "planned_s": 1.0, "chain_s": 1.0, "judged_s": 1.0}
    result = result_of(FOUND, units, {"problems": 1000, "rollouts": 100})
    assert result["rounds"] == 3
    assert result["unit_costs_s"]["driver_problem_s"] == 0.002
    assert result["unit_costs_s"]["driver_rollout_s"] == 0.0  # below the noise of starting


def test_layouts_that_give_other_tables_end_the_program() -> None:
    check_same_tables(FOUND)
    with pytest.raises(SystemExit, match="verdicts: the layouts gave 2 different tables"):
        check_same_tables([*FOUND, measured("2 CPUs", 6, "other")])


def test_digest_depends_on_names_and_contents(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing was written"):
        digest(tmp_path)
    (tmp_path / "a").write_text("1")
    first = digest(tmp_path)
    (tmp_path / "a").write_text("2")
    second = digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, digest(tmp_path)}) == 3


def test_judging_is_measured_on_tables_that_are_equal_each_time(tmp_path: Path) -> None:
    row = JudgingRow("p", BLOCKS_TEXT, print_problem(random_problem(3, 1)), (CompletionRow("p-0", 1, "v", "no plan"),))
    found = [_judge([row], 1, tmp_path / name) for name in ("a", "b")]
    assert found[0][2] == found[1][2] and all(seconds > 0 for seconds, *_ in found)

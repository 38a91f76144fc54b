"""Which arms are tested against each other, and where: in domains trained on and not, by size, and in invented ones."""

from __future__ import annotations

import pytest

from pipelines.generalization_gap import PIPELINE
from plansmith.data.update_times import CPU, JUDGING, spent
from plansmith.judging.taxonomy import ErrorClass
from plansmith.problems.invention.folders import INVENTED
from plansmith.report.gap_results import (
    HELD_OUT,
    SEEN,
    UNSEEN,
    _paired_tests,
    _summarised,
    compared_arms,
    unseen_of_size,
)
from plansmith.report.metrics import EvaluatedProblem

READING = PIPELINE.settings("unseen")
ARMS = ["walk", "trained", "invented", "distant", "mixed", "reinforced"]
LEVELS = ("ferry smallest", "rovers smallest", "briefcase smallest", "rovers L1", "briefcase L1", INVENTED)


def attempts(*solved: str) -> list[EvaluatedProblem]:
    """Return an arm's attempts at two problems of each level, of which those named are valid."""
    names = [f"{level} {number}" for level in LEVELS for number in range(2)]
    return [
        EvaluatedProblem(
            name, name.split()[0], name[:-2], name, name in solved, None if name in solved else list(ErrorClass)[-1],
            plan_length=1, planner_plan_length=1, completion_tokens=1,
        )
        for name in names
    ]  # fmt: skip


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm != "walk"])
def test_every_arm_that_reads_is_tested_against_walks_and_against_the_mixed_one(arm: str) -> None:
    pairs = compared_arms(ARMS, "compact")
    assert pairs[0] == ("trained", "mixed") and len(set(pairs)) == len(pairs)
    assert ("walk", arm) in pairs
    assert arm == "mixed" or {(arm, "mixed"), ("mixed", arm)} & set(pairs)


def test_arms_that_read_are_tested_by_size_in_unseen_domains_and_in_invented_ones_too() -> None:
    solved = {"walk": (), "distant": ("rovers smallest 0", "briefcase smallest 1", "rovers L1 0", f"{INVENTED} 1")}
    evaluated = {arm: attempts(*names) for arm, names in solved.items()}
    tests = list(_paired_tests(evaluated, READING))
    assert [(test.before, test.after) for test in tests] == [("walk", "distant")] * 5
    sizes = [unseen_of_size(size) for size in ("smallest", "L1")]
    assert [test.level for test in tests] == [UNSEEN, *sizes, HELD_OUT, SEEN]
    assert [(test.test.n, test.test.only_after, test.test.only_before) for test in tests] == [
        (8, 3, 0), (4, 2, 0), (4, 1, 0), (2, 1, 0), (2, 0, 0),
    ]  # fmt: skip


def test_figures_of_each_size_are_those_of_its_problems_in_all_unseen_domains() -> None:
    arm = _summarised("distant", attempts("rovers smallest 0", "briefcase smallest 1", "rovers L1 0"), READING)
    assert {size: (found.n, found.n_valid) for size, found in arm.unseen_by_size.items()} == {
        "smallest": (4, 2), "L1": (4, 1),
    }  # fmt: skip


def test_cpu_seconds_of_judging_are_no_time_that_passed() -> None:
    assert spent([(f"time/{JUDGING}_s", 2.0), (f"time/{JUDGING}{CPU}_s", 1.5)]) == 2.0

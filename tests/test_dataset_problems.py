"""Problems of a run that come from a dataset: its splits stay, no id is taken twice, and other files are refused."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from test_feedback import run

from pipelines.stages.phase1_data import DrawingSettings, pddl_digest, sample_problems
from plansmith.config.problems import ProblemsConfig
from plansmith.data.rows import DatasetPlanRow, ProblemRow
from plansmith.data.tables import write_table
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import load_domain
from plansmith.resources import Resources

FERRY = load_domain("ferry")


def problems(n: int) -> list[Problem]:
    """Return problems of different forms."""
    found: dict[str, Problem] = {}
    rng = random.Random(0)
    while len(found) < n:
        problem = FERRY.sample("L2", rng)
        found.setdefault(canonical_form(FERRY.domain, problem), problem)
    return list(found.values())


DRAWN = problems(14)
SPLITS = {"train": DRAWN[:8], "phase2": DRAWN[8:10], "test": DRAWN[10:14]}


def plan_row(number: int, problem: Problem) -> DatasetPlanRow:
    text = print_problem(problem)
    return DatasetPlanRow(f"{number}-{problem.name}", "form", "ferry", "L2", len(problem.objects),
                          print_domain(FERRY.domain), text, None, ("(sail a b)",), 1, 1.0, False, "p")  # fmt: skip


def write_dataset(folder: Path, **splits: list[Problem]) -> Path:
    for split, found in (splits or SPLITS).items():
        rows = [plan_row(number, problem) for number, problem in enumerate(found)]
        rows.append(replace(rows[0], problem_id="other", level="L1"))
        path = folder / "data" / "plans" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, rows, DatasetPlanRow)
    return folder


def config(folder: Path, **changes: Any) -> ProblemsConfig:
    level = {"domain": "ferry", "level": "L2", "phase1": 5, "phase2": 3, "test": 4}
    return ProblemsConfig(domains=(level | changes,), dataset=str(folder), object_names=())


def sampled(root: Path, settings: ProblemsConfig) -> list[ProblemRow]:
    drawing = DrawingSettings(problems=settings, pddl=pddl_digest(settings), is_word_level=False)
    return run(root, "sample_problems", sample_problems, drawing, Resources()).rows(ProblemRow)


def forms(found: list[Problem]) -> set[str]:
    return {canonical_form(FERRY.domain, problem) for problem in found}


def test_problems_of_a_dataset_keep_its_splits_and_phase_2_takes_what_phase_1_leaves(tmp_path: Path) -> None:
    rows = sampled(tmp_path, config(write_dataset(tmp_path / "set")))
    by_split = {split: {row.canonical_form for row in rows if row.split == split} for split in ("d1", "d2", "test")}
    assert {split: len(found) for split, found in by_split.items()} == {"d1": 5, "d2": 3, "test": 4}
    assert by_split["test"] == forms(SPLITS["test"])
    assert forms(SPLITS["phase2"]) < by_split["d2"]  # and one of train
    assert by_split["d1"] | by_split["d2"] < forms(SPLITS["train"] + SPLITS["phase2"])
    assert not by_split["d1"] & by_split["d2"]
    assert {(row.level, row.domain, row.source) for row in rows} == {("ferry L2", "ferry", "dataset")}
    for row in rows:
        assert canonical_form(FERRY.domain, parse_problem(row.problem_pddl, FERRY.domain)) == row.canonical_form


def test_problems_of_a_dataset_get_names_and_what_lacks_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = tuple(f"x{number}" for number in range(60))
    settings = config(write_dataset(tmp_path / "set"), test=9).model_copy(update={"object_names": names})
    rows = sampled(tmp_path, settings)
    objects = {typed.name for row in rows for typed in parse_problem(row.problem_pddl, FERRY.domain).objects}
    assert objects <= set(names)
    assert "ferry L2, test: 4 of 9 problems; the dataset has no more" in caplog.text


def test_unseen_split_of_a_dataset_is_tested(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "set", unseen=DRAWN[:4], train=DRAWN[4:8])
    rows = sampled(tmp_path, config(folder, phase1=2, phase2=1, test=3))
    tested = {row.canonical_form for row in rows if row.split == "test"}
    assert len(tested) == 3 and tested < forms(DRAWN[:4])


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("test", "got: no problem left of test or unseen\n  expected: 4 for test"),
        ("train", "got: no problem left of train\n  expected: 5 for d1"),
    ],
)
def test_dataset_without_a_split_that_a_domain_wants_is_refused(tmp_path: Path, lacking: str, said: str) -> None:
    folder = write_dataset(tmp_path / "set", **{name: found for name, found in SPLITS.items() if name != lacking})
    with pytest.raises(BadInputError, match="lacks a split") as caught:
        sampled(tmp_path, config(folder, phase2=0))
    assert said in str(caught.value) and caught.value.where == f"{folder}, domain ferry"


def test_a_level_without_a_split_is_said_where_another_of_its_domain_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(write_dataset(tmp_path / "set"))
    other = settings.domains[0].model_copy(update={"level": "L3", "phase1": 0, "phase2": 0, "test": 2})
    sampled(tmp_path, settings.model_copy(update={"domains": (*settings.domains, other)}))
    assert "ferry L3, test: 0 of 2 problems; the dataset has no more" in caplog.text


def test_problem_of_a_dataset_whose_form_is_tested_is_not_learnt_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leaking = SPLITS | {"train": [*SPLITS["train"][:4], SPLITS["test"][0]]}
    rows = sampled(tmp_path, config(write_dataset(tmp_path / "set", **leaking), phase2=2))
    learnt = {row.canonical_form for row in rows if row.split != "test"}
    assert len(learnt) == 6 and not learnt & forms(SPLITS["test"])
    assert "1 problems of the dataset have the form of a test problem" in caplog.text


@dataclass(frozen=True, slots=True)
class OtherRow:
    """A row of another table."""

    problem_id: str


def test_dataset_of_other_columns_or_another_domain_or_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no dataset here"):
        pddl_digest(config(tmp_path / "nowhere"))
    other = tmp_path / "other" / "data" / "plans" / "test-00000-of-00001.parquet"
    other.parent.mkdir(parents=True)
    write_table(other, [OtherRow("x")], OtherRow)
    with pytest.raises(BadInputError, match="column") as caught:
        sampled(tmp_path, config(tmp_path / "other"))
    assert caught.value.where == str(other) and "plansmith dataset build" in (caught.value.expected or "")
    changed = [replace(plan_row(0, DRAWN[0]), domain_pddl="(define (domain ferry))")]
    write_table(other, changed, DatasetPlanRow)
    with pytest.raises(BadInputError, match="another domain of this name"):
        sampled(tmp_path, config(tmp_path / "other"))


def test_dataset_without_domains_or_with_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set problems\.domains, without sizes"):
        config(tmp_path, sizes={"cars": [2, 3]})


def test_changed_dataset_is_another_key(tmp_path: Path) -> None:
    settings = config(write_dataset(tmp_path / "set"))
    before = pddl_digest(settings)
    write_dataset(tmp_path / "set", test=DRAWN[10:13])
    assert pddl_digest(settings) != before

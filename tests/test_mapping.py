"""Row mapping on a real, private Ray: same table for any number of workers, resume, errors, quiet progress."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
import ray.data

from actors.mapping import CPU_S, BatchWorker, TimedBatchWorker, map_jobs, map_rows, without_seconds
from pipelines.run.ray_start import start_ray
from plansmith.data.artifacts import ArtifactWriter, Provenance, Shards
from plansmith.data.rows import PartTimeRow, PlanRow, ProblemRow
from plansmith.data.tables import arrow_of_rows, read_table, rows_of_arrow
from plansmith.errors import ArtifactError, BadInputError, LostWorkerError
from plansmith.progress import progress_bar

KEY = "0" * 64


class PlanLetters:
    """Stands in for a planner: the plan of a problem is its object count in letters; odd counts have no plan."""

    def __init__(self, planner: str, log: str | None = None, die_once: str | None = None) -> None:
        self.planner, self.log, self.die_once = planner, log, die_once

    def __call__(self, rows: Sequence[ProblemRow]) -> list[PlanRow]:
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.writelines(f"{row.problem_id}\n" for row in rows)
        texts = [row.problem_pddl for row in rows]
        if "broken" in texts:
            raise BadInputError("no such action", where="broken.pddl:3:1", expected="pick-up")
        if "deadly" in texts:
            os.kill(os.getpid(), 9)
        if self.die_once and not Path(self.die_once).exists():
            Path(self.die_once).touch()
            os.kill(os.getpid(), 9)
        return [self.plan_of(row.problem_id, row.n_objects) for row in rows]

    def plan_of(self, row_id: str, count: int) -> PlanRow:
        is_even = count % 2 == 0
        plan, cost = tuple("abcdef"[: count if is_even else 0]), float(count) if is_even else None
        return PlanRow(row_id, self.planner, "solved" if is_even else "unsolvable", plan, cost, 0.0, False)


def problem(number: int, text: str = "(define)") -> ProblemRow:
    return ProblemRow(f"p{number:03d}", "c", "blocks", "easy", "d1", number % 7, "(define)", text, "test")


def expected_row(row: ProblemRow) -> PlanRow:
    count = row.n_objects if row.n_objects % 2 == 0 else 0
    cost = None if row.n_objects % 2 else float(count)
    return PlanRow(
        row.problem_id, "p", "unsolvable" if row.n_objects % 2 else "solved", tuple("abcdef"[:count]), cost, 0.0, False
    )


@pytest.fixture(scope="module")
def private_ray() -> Iterator[None]:
    module = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(module)  # worker processes cannot import test files
    start_ray(ray, num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(module)


def run_map(
    root: Path, rows: list[ProblemRow], concurrency: int, *, is_resident: bool = True, **worker_settings: Any
) -> ArtifactWriter:
    output = ArtifactWriter(root, "plans", KEY)
    map_rows(
        rows,
        ProblemRow,
        PlanLetters,
        shards=output.shards("rows", PlanRow),
        batch_size=4,
        pool_size=lambda: concurrency,
        num_cpus=1,
        description="planning",
        id_column="problem_id",
        worker_settings={"planner": "p", **worker_settings},
        is_resident=is_resident,
    )
    return output


def finished_table(output: ArtifactWriter) -> Path:
    return output.finish(Provenance("plans", KEY, {}, {}, 0), wall_time_s=0.0).path("rows.parquet")


def test_map_rows_with_one_and_two_workers_and_as_tasks_gives_identical_tables(
    private_ray: None, tmp_path: Path
) -> None:
    rows = [problem(number) for number in reversed(range(30))]
    tables = [finished_table(run_map(tmp_path / str(workers), rows, workers)) for workers in (1, 2)]
    tables.append(finished_table(run_map(tmp_path / "tasks", rows, 2, is_resident=False)))
    assert tables[0].read_bytes() == tables[1].read_bytes() == tables[2].read_bytes()
    expected = [expected_row(row) for row in reversed(rows)]

    assert read_table(tables[1], PlanRow) == expected


def test_map_rows_again_computes_only_rows_without_a_shard(private_ray: None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_map(tmp_path / "run", [problem(number) for number in range(8)], 1)
    output = run_map(tmp_path / "run", [problem(number) for number in range(10)], 1, log=str(log))
    assert sorted(log.read_text().split()) == ["p008", "p009"]
    assert output.shards("rows", PlanRow).finished_ids("problem_id") == {f"p{number:03d}" for number in range(10)}


def test_map_rows_with_an_error_in_a_worker_raises_that_error_and_keeps_other_batches(
    private_ray: None, tmp_path: Path
) -> None:
    rows = [problem(number) for number in range(40)] + [problem(99, "broken")]
    with pytest.raises(BadInputError) as caught:
        run_map(tmp_path, rows, 1)
    assert (caught.value.message, caught.value.where, caught.value.expected) == (
        "no such action",
        "broken.pddl:3:1",
        "pick-up",
    )
    assert "ray" not in str(caught.value).lower()
    finished = ArtifactWriter(tmp_path, "plans", KEY).shards("rows", PlanRow).finished_ids("problem_id")
    assert finished
    assert "p099" not in finished


@pytest.mark.parametrize("is_resident", [True, False], ids=["resident", "task"])
def test_map_rows_whose_worker_process_dies_once_completes(
    private_ray: None, tmp_path: Path, is_resident: bool
) -> None:
    rows = [problem(number) for number in range(8)]
    output = run_map(tmp_path / "run", rows, 1, is_resident=is_resident, die_once=str(tmp_path / "died"))
    assert (tmp_path / "died").exists()
    assert output.shards("rows", PlanRow).merged_rows() == [expected_row(row) for row in rows]


@pytest.mark.faults
def test_map_rows_with_a_row_that_kills_every_worker_raises_in_the_end_and_keeps_the_others(
    private_ray: None, tmp_path: Path
) -> None:
    rows = [problem(99, "deadly"), *(problem(number) for number in range(40))]
    with pytest.raises(LostWorkerError):
        run_map(tmp_path, rows, 1)
    finished = ArtifactWriter(tmp_path, "plans", KEY).shards("rows", PlanRow).finished_ids("problem_id")
    assert finished >= {f"p{number:03d}" for number in range(10, 40)}  # all but those under way beside it
    assert "p099" not in finished


def test_map_rows_leaves_ray_data_settings_and_log_levels_as_they_were(
    private_ray: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    context, level = ray.data.DataContext.get_current(), logging.getLogger("ray.data").level
    run_map(tmp_path, [problem(number) for number in range(5)], 1)
    assert ray.data.DataContext.get_current() is context
    assert logging.getLogger("ray.data").level == level
    captured = capfd.readouterr()
    ours = [line for line in captured.err.splitlines() if line.startswith("planning:")]
    assert "5/5" in ours[-1]
    assert "Dataset" not in captured.err + captured.out
    assert "Progress bars disabled" not in captured.err


class Started:
    """A worker that takes some CPU seconds of a process that it starts, and says whether it was ended."""

    def __init__(self, ended: str) -> None:
        self.ended = Path(ended)

    def __call__(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        busy = "import time\nwhile time.process_time() < 0.1: pass"
        subprocess.run([sys.executable, "-S", "-c", busy], check=True)
        return list(rows)

    def close(self) -> None:
        self.ended.touch()


def no_pool() -> int:
    raise AssertionError("nothing here needs a pool")


def broken(_: Started, rows: Sequence[Any]) -> list[Any]:
    raise BadInputError("no such action")


@pytest.mark.parametrize("has_failed", [False, True], ids=["whole", "failed"])
def test_one_batch_is_worked_on_here_its_worker_ended_and_what_it_started_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:
    rows = [expected_row(problem(number)) for number in range(4)]
    monkeypatch.setattr(Started, "__call__", broken if has_failed else Started.__call__)
    shards, told = Shards(tmp_path, "rows", PlanRow), list[float]()
    with pytest.raises(BadInputError, match="no such action") if has_failed else nullcontext():
        map_rows(
            rows, PlanRow, Started, shards=shards, batch_size=4, pool_size=no_pool, description="planning",
            worker_settings={"ended": str(tmp_path / "ended")}, spent=told.append,
        )  # fmt: skip
    assert (tmp_path / "ended").exists()
    assert shards.merged_rows() == ([] if has_failed else rows)
    assert has_failed or told[0] >= 0.09  # less what its clock had not counted yet


def test_one_job_is_done_here() -> None:
    def process(rows: Sequence[PartTimeRow]) -> list[PartTimeRow]:
        return [replace(row, work=str(os.getpid())) for row in rows]

    jobs = [PartTimeRow("job", "", 0.0)]
    made = list(map_jobs(jobs, PartTimeRow, process, PartTimeRow, pool_size=no_pool))
    assert made == [[PartTimeRow("job", str(os.getpid()), 0.0)]]


def test_map_rows_with_nothing_to_do_needs_no_ray(tmp_path: Path) -> None:
    shards = Shards(tmp_path, "rows", PlanRow)
    map_rows(
        [],
        ProblemRow,
        PlanLetters,
        shards=shards,
        batch_size=4,
        pool_size=no_pool,
        description="planning",
        id_column="problem_id",
    )
    assert shards.files() == []


def test_batch_worker_with_a_function_gets_tuples_and_checks_ids() -> None:
    seen: list[Any] = []

    def echo(batch: Any) -> Any:
        seen.extend(batch)
        return batch

    rows = [PlanRow("a", "p", "solved", ("x", "y"), None, 0.0, True)]
    block = arrow_of_rows(rows, PlanRow)
    assert rows_of_arrow(BatchWorker(echo, {}, (PlanRow, PlanRow), "problem_id")(block), PlanRow) == rows
    assert seen == rows

    def rename(batch: Any) -> Any:
        return [replace(row, problem_id="b") for row in batch]

    with pytest.raises(ArtifactError, match="not in its batch"):
        BatchWorker(rename, {}, (PlanRow, PlanRow), "problem_id")(block)


def test_batch_worker_whose_worker_leaves_a_value_out_names_its_column() -> None:
    block: pa.Table = arrow_of_rows([PlanRow("a", "p", "solved", (), None, 0.0, True)], PlanRow)
    with pytest.raises(ArtifactError, match=r"PlanRow\.planner"):
        BatchWorker(lambda rows: [replace(row, planner=None) for row in rows], {}, (PlanRow, PlanRow), "problem_id")(
            block
        )


def clock_of(readings: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the counter of CPU seconds say these; the true one also counts, and loses, processes of this file's Ray."""
    left = iter(readings)
    monkeypatch.setattr("actors.mapping.cpu_seconds", lambda pid: next(left) if pid == os.getpid() else 0.0)


def test_timed_batch_worker_tells_the_seconds_of_its_making_and_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [expected_row(problem(number)) for number in range(3)]
    settings = {
        "worker": lambda batch: list(batch),
        "worker_settings": {},
        "row_types": (PlanRow, PlanRow),
        "id_column": "problem_id",
    }
    clock_of([2.0, 5.0, 9.0, 8.0], monkeypatch)
    worker, told = TimedBatchWorker(**settings), list[float]()
    for _ in range(3):
        block = worker(arrow_of_rows(rows, PlanRow))
        assert block.column_names[-1] == CPU_S
        assert rows_of_arrow(without_seconds(block, told.append), PlanRow) == rows
    assert told == [3.0, 4.0, 0.0]  # a process that ended and that nobody waited for takes its seconds away


def test_seconds_of_a_batch_without_rows_are_those_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_none(batch: Sequence[Any]) -> list[Any]:
        return [] if batch[0].problem_id == "p000" else list(batch)

    settings = {"worker": first_none, "worker_settings": {}, "row_types": (PlanRow, PlanRow), "id_column": "problem_id"}
    clock_of([1.0, 4.0, 6.0], monkeypatch)
    worker, told = TimedBatchWorker(**settings), list[float]()
    for number in range(2):
        without_seconds(worker(arrow_of_rows([expected_row(problem(number))], PlanRow)), told.append)
    assert told == [0.0, 5.0]


def test_progress_bar_without_a_terminal_writes_whole_lines_first_and_last() -> None:
    file = io.StringIO()
    with progress_bar(3, "judging", file=file) as bar:
        for _ in range(3):
            bar.update(1)
    lines = file.getvalue().splitlines()
    assert len(lines) == 2
    assert "0/3" in lines[0]
    assert "3/3" in lines[1]
    assert "\r" not in file.getvalue()

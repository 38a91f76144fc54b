"""Stages of a dataset: draw problems, solve them, write them with their training examples.

Rows travel in part files of a few hundred problems; the driver sees ids, canonical forms and counts only, so its memory
does not grow with the texts. A part's content depends on the seed and its name, never on which worker wrote it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from tqdm.std import tqdm

from actors.drawer import DrawingWorker
from actors.part_writer import COUNTS, EXAMPLES, PLANS, PartWriter
from actors.planner import REFUSED, PartPlanner
from plansmith.config.basics import StrictModel
from plansmith.config.dataset import Cell, DatasetExamplesConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.dataset_summary import MISSING, SOLVED
from plansmith.data.drawing import problem_id_of
from plansmith.data.parts import Parts
from plansmith.data.quotas import Quota, first_that_fit, next_to_solve
from plansmith.data.rows import (
    CandidateRow,
    CountRow,
    DatasetExampleRow,
    DatasetPlanRow,
    DrawJobRow,
    PartJobRow,
    PartTimeRow,
    PlanRow,
    ProblemRow,
)
from plansmith.data.tables import read_arrow
from plansmith.pddl.printer import print_domain
from plansmith.planners import PlannerStatus
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.stages import StageContext

PROBLEMS, TIMES = "problems", "times"
DRAWS_PER_JOB = 100


class DrawingSettings(StrictModel):
    """What decides which problems are drawn."""

    cells: tuple[Cell, ...]
    """Domains and levels, with the problems wanted of each."""
    reserve: float
    """Share of further problems, to stand in for those that get no plan."""
    max_draws: int
    """Draws for each wanted problem before a level is said to have no more."""
    rows_per_part: int
    """Problems of one part file."""
    pddl: str
    """Hash of the domain folders, see `domains_digest`."""


class SolvingSettings(StrictModel):
    """How problems are solved, and which plans fit."""

    cells: tuple[Cell, ...]
    """Domains and levels, with the solved problems wanted of each."""
    planner: PlannerConfig
    """Which planner, within which limits."""


class WritingSettings(StrictModel):
    """What is written of the solved problems."""

    cells: tuple[Cell, ...]
    """Domains and levels, with the solved problems wanted of each."""
    examples: DatasetExamplesConfig
    """Which training examples."""


def domains_of(cells: Iterable[Cell]) -> dict[str, PlanningDomain]:
    """Return the domains of a dataset as its settings name them.

    Raises:
        BadInputError: a domain or one of its levels does not exist.
    """
    domains: dict[str, PlanningDomain] = {}
    for cell in cells:
        domains.setdefault(cell.domain, load_domain(cell.domain)).sizes_of(cell.level)
    return domains


def domains_digest(cells: Iterable[Cell]) -> str:
    """Return a hash of the domain folders, so that an edited file is not taken for the one of an earlier run."""
    names = [f"{name} {loaded.digest()}" for name, loaded in domains_of(cells).items()]
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def draw_problems(context: StageContext[DrawingSettings]) -> None:
    """Draw problems of every domain and level until each split has enough canonical forms of its own."""
    settings = context.settings
    domains, parts = domains_of(settings.cells), context.output.parts(PROBLEMS, ProblemRow)
    quotas = [
        Quota(cell, reserve=settings.reserve, max_draws=settings.max_draws, seed=context.seed)
        for cell in settings.cells
    ]
    taken = {
        quota.cell.name: _TakenRows(quota.cell, domains[quota.cell.domain], parts, settings.rows_per_part)
        for quota in quotas
    }
    seen, splits = defaultdict[str, set[str]](set), dict[str, str]()
    total = sum(sum(quota.wanted.values()) for quota in quotas)
    with context.progress(total, "drawing problems", unit="problem") as bar:
        while jobs := list(_draw_jobs(quotas, domains, context.seed)):
            owners = {job.job_id: quota for job, quota in jobs}
            drawn = context.resources.map_jobs(
                [job for job, _ in jobs], DrawJobRow, DrawingWorker, CandidateRow, is_resident=False
            )
            for rows in drawn:
                for row in rows:
                    quota = owners[row.job_id]
                    split = quota.take(row.canonical_form, seen[quota.cell.domain], splits)
                    if split is not None:
                        taken[quota.cell.name].add(row, split)
                        bar.update()
    for rows_of_cell in taken.values():
        rows_of_cell.close()
    _report_shortfalls(context, quotas)
    context.output.write_rows([row for quota in quotas for row in _draw_counts(quota)], CountRow, table=COUNTS)


def _draw_jobs(
    quotas: Sequence[Quota], domains: Mapping[str, PlanningDomain], seed: int
) -> Iterator[tuple[DrawJobRow, Quota]]:
    for quota in quotas:
        first, end = quota.drawn, quota.drawn + quota.next_draws()
        for start in range(first, end, DRAWS_PER_JOB):
            count = min(DRAWS_PER_JOB, end - start)
            cell, domain = quota.cell, domains[quota.cell.domain].reference
            yield DrawJobRow(f"{cell.name} {start}", domain, cell.level, start, count, seed), quota


class _TakenRows:
    """The problems taken of one domain and level, written part by part."""

    def __init__(self, cell: Cell, loaded: PlanningDomain, parts: Parts, rows_per_part: int) -> None:
        self._cell, self._parts, self._rows_per_part = cell, parts, rows_per_part
        self._name, self._domain_pddl = loaded.name, print_domain(loaded.domain)
        self._rows: list[ProblemRow] = []
        self._n_parts = 0

    def add(self, row: CandidateRow, split: str) -> None:
        self._rows.append(
            ProblemRow(
                problem_id=problem_id_of(self._domain_pddl, row.problem_pddl),
                canonical_form=row.canonical_form,
                domain=self._name,
                level=self._cell.level,
                split=split,
                n_objects=row.n_objects,
                domain_pddl=self._domain_pddl,
                problem_pddl=row.problem_pddl,
                source=f"sampler, candidate {row.number}",
            )
        )
        if len(self._rows) == self._rows_per_part:
            self.close()

    def close(self) -> None:
        if self._rows:
            self._parts.write(f"{self._cell.name}/{self._n_parts:05d}", self._rows, ProblemRow)
            self._rows, self._n_parts = [], self._n_parts + 1


def _report_shortfalls(context: StageContext[Any], quotas: Sequence[Quota]) -> None:
    for quota in quotas:
        for split, count in quota.cell.wanted.items():
            if quota.taken[split] < count:
                context.logger.warning("%s, %s: only %d of %d problems; no more canonical forms in %d draws",
                                       quota.cell.name, split, quota.taken[split], count, quota.drawn)  # fmt: skip


def _draw_counts(quota: Quota) -> Iterator[CountRow]:
    whats = {"drawn": quota.drawn, "left out: seen before": quota.duplicates, "left out: split full": quota.surplus}
    for what, count in whats.items():
        yield CountRow(quota.cell.domain_name, quota.cell.level, "", what, count)


class _CellProblems:
    """What the driver knows of the problems of one domain and level: where they lie, their splits, which plans fit."""

    def __init__(self, cell: Cell, paths: Sequence[Path]) -> None:
        self.cell, self._places, self.splits, self._number_of = cell, list[tuple[Path, int]](), list[str](), {}
        for path in paths:
            columns = read_arrow(path, ProblemRow, columns=["problem_id", "split"]).to_pydict()
            for row, (problem_id, split) in enumerate(zip(columns["problem_id"], columns["split"], strict=True)):
                self._number_of[problem_id] = len(self.splits)
                self._places.append((path, row))
                self.splits.append(split)
        self.fits: list[bool | None] = [None] * len(self.splits)
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def read_plans(self, path: Path) -> None:
        """Take note of the plans in a part file."""
        table = read_arrow(path, PlanRow, columns=["problem_id", "status", "plan"])
        lengths = pc.list_value_length(table.column("plan")).to_pylist()
        for problem_id, status, length in zip(
            table.column("problem_id").to_pylist(), table.column("status").to_pylist(), lengths, strict=True
        ):
            outcome = self._outcome(status, length)
            number = self._number_of[problem_id]
            self.fits[number] = outcome == SOLVED
            self.outcomes[self.splits[number], outcome] += 1

    def _outcome(self, status: str, length: int) -> str:
        if status != PlannerStatus.SOLVED:
            return f"left out: {status}"
        least, most = self.cell.plan_length or (1, length)
        return SOLVED if least <= length <= most else "left out: plan too short or too long"

    def by_part(self, numbers: Sequence[int]) -> Iterator[tuple[Path, tuple[int, ...]]]:
        """Yield the part files that hold these problems, each with the places in it."""
        for path, group in itertools.groupby((self._places[number] for number in numbers), key=lambda place: place[0]):
            yield path, tuple(row for _, row in group)

    def counts(self) -> Iterator[CountRow]:
        """Yield what became of the problems that were tried, and how many are missing."""
        for (split, outcome), count in sorted(self.outcomes.items()):
            yield CountRow(self.cell.domain_name, self.cell.level, split, outcome, count)
        for split, wanted in self.cell.wanted.items():
            missing = wanted - self.outcomes[split, SOLVED]
            if missing:
                yield CountRow(self.cell.domain_name, self.cell.level, split, MISSING, missing)


def _problems_by_cell(cells: Sequence[Cell], problems: Artifact) -> list[_CellProblems]:
    paths: dict[str, list[Path]] = defaultdict(list)
    for path in problems.parts(PROBLEMS):
        paths[path.parent.name].append(path)
    return [_CellProblems(cell, paths[cell.name]) for cell in cells]


def solve_problems(context: StageContext[SolvingSettings]) -> None:
    """Solve as many problems as are wanted; those without a plan that fits are replaced from the reserve."""
    parts, times = context.output.parts(PLANS, PlanRow), list[PartTimeRow]()
    cells = _problems_by_cell(context.settings.cells, context.inputs["problems"])
    total = sum(sum(cell.cell.wanted.values()) for cell in cells)
    with context.progress(total, "solving problems", unit="problem") as bar:
        for wave in itertools.count():
            jobs = [(job, cell) for cell in cells for job in _plan_jobs(cell, parts, wave)]
            if not jobs:
                break
            times += _run_jobs(
                context,
                [job for job, _ in jobs],
                PartPlanner,
                {"config": context.settings.planner},
                bar,
                is_done=lambda job: Path(job.plans[0]).is_file(),
            )
            for job, cell in jobs:
                cell.read_plans(Path(job.plans[0]))
    counts = [row for cell in cells for row in cell.counts()]
    context.output.write_rows(counts, CountRow, table=COUNTS)
    context.output.write_rows(times, PartTimeRow, table=TIMES)
    _warn(context, counts)


def _plan_jobs(cell: _CellProblems, output: Parts, wave: int) -> Iterator[PartJobRow]:
    for path, rows in cell.by_part(next_to_solve(cell.splits, cell.fits, cell.cell.wanted)):
        name = f"{path.parent.name}/{path.stem}-{wave}"
        yield PartJobRow(name, cell.cell.domain, cell.cell.level, str(path), rows, (str(output.path(name)),), "")


def _run_jobs(
    context: StageContext[Any],
    jobs: Sequence[PartJobRow],
    worker: type[Any],
    settings: Mapping[str, Any],
    bar: tqdm[Any],
    *,
    is_done: Callable[[PartJobRow], bool],
    is_resident: bool = True,
) -> list[PartTimeRow]:
    """Run the jobs that an earlier session has not done; return where the time went."""
    todo = [job for job in jobs if not is_done(job)]
    bar.update(sum(len(job.rows) for job in jobs) - sum(len(job.rows) for job in todo))
    results = context.resources.map_jobs(
        todo, PartJobRow, worker, PartTimeRow, worker_settings=settings, is_resident=is_resident
    )
    times: list[PartTimeRow] = []
    for job, rows in zip(todo, results, strict=True):
        times += rows
        bar.update(len(job.rows))
    return times


def _warn(context: StageContext[Any], counts: Sequence[CountRow]) -> None:
    for row in counts:
        if row.what == MISSING:
            context.logger.warning("%s %s, %s: %d problems are missing", row.domain, row.level, row.split, row.count)
    refused = sum(row.count for row in counts if row.what == f"left out: {REFUSED}")
    if refused:
        context.logger.error("%d plans are not valid for our validator and are left out; report this", refused)


def _solved_by_cell(
    cells: Sequence[Cell], problems: Artifact, plans: Artifact
) -> tuple[list[_CellProblems], dict[str, list[Path]]]:
    """Return what is known of all problems, and the files with the plans of each part."""
    found, parts = _problems_by_cell(cells, problems), defaultdict[str, list[Path]](list)
    for path in plans.parts(PLANS):
        parts[f"{path.parent.name}/{path.stem.rpartition('-')[0]}"].append(path)
    for cell in found:
        for part, _ in cell.by_part(range(len(cell.splits))):
            for path in parts[_part_name(part)]:
                cell.read_plans(path)
    return found, parts


def _part_name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def write_dataset(context: StageContext[WritingSettings]) -> None:
    """Write the solved problems, each with its first plan, and their training examples."""
    cells, plans = _solved_by_cell(context.settings.cells, context.inputs["problems"], context.inputs["plans"])
    output = context.output
    parts = output.parts(COUNTS, CountRow)
    output.parts(PLANS, DatasetPlanRow)
    output.parts(EXAMPLES, DatasetExampleRow)
    domains = domains_of(context.settings.cells)
    jobs = [job for cell in cells for job in _write_jobs(cell, domains[cell.cell.domain], plans, output.folder)]
    with context.progress(sum(len(job.rows) for job in jobs), "writing examples", unit="problem") as bar:
        settings = {"examples": context.settings.examples, "seed": context.seed}
        times = _run_jobs(
            context,
            jobs,
            PartWriter,
            settings,
            bar,
            is_done=lambda job: parts.is_finished(job.job_id),
            is_resident=False,
        )
    output.write_rows(times, PartTimeRow, table=TIMES)


def _write_jobs(
    cell: _CellProblems, loaded: PlanningDomain, plans: Mapping[str, Sequence[Path]], folder: Path
) -> Iterator[PartJobRow]:
    for path, rows in cell.by_part(first_that_fit(cell.splits, cell.fits, cell.cell.wanted)):
        name = f"{path.parent.name}-{path.stem}"
        given = tuple(str(plan) for plan in plans[_part_name(path)])
        yield PartJobRow(name, loaded.reference, cell.cell.level, str(path), rows, given, str(folder))

"""Ray worker that writes a dataset: it reads and writes part files itself, so that no row passes the driver."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from plansmith.config.dataset import DatasetExamplesConfig
from plansmith.data.dataset_examples import ExampleWriter, plan_row
from plansmith.data.dataset_summary import SOLVED
from plansmith.data.parts import Stopwatch, part_path, write_part
from plansmith.data.rows import (
    CountRow,
    DatasetExampleRow,
    DatasetPlanRow,
    ExampleKind,
    PartJobRow,
    PartTimeRow,
    PlanRow,
    ProblemRow,
)
from plansmith.data.tables import read_table
from plansmith.errors import BadInputError
from plansmith.problems.library import load_domain

PLANS, EXAMPLES, COUNTS = "plans", "examples", "counts"
"""Tables that `PartWriter` writes, the last one last: its part says that the job is done."""

WORK_OF = {
    ExampleKind.PLAN: "writing plans",
    ExampleKind.FORMALISE: "writing formalisations",
    ExampleKind.PLAN_CHAIN: "writing chains",
    ExampleKind.EXPLAIN_VALID: "explaining",
    ExampleKind.EXPLAIN_INVALID: "corrupting and explaining",
}
"""What writing each kind is called in a table of times."""

load_domain_once = cache(load_domain)
"""A domain folder is read once in each process."""


class PartWriter:
    """Writes the solved problems of a part and their training examples, in one file for each split."""

    def __init__(self, examples: DatasetExamplesConfig, seed: int) -> None:
        self._examples, self._seed = examples, seed

    def __call__(self, jobs: Sequence[PartJobRow]) -> list[PartTimeRow]:
        """Return where the time of each job went."""
        return [row for job in jobs for row in self._write(job)]

    def _write(self, job: PartJobRow) -> list[PartTimeRow]:
        clock, loaded = Stopwatch(), load_domain_once(job.domain)
        problems = read_table(Path(job.problems), ProblemRow)
        plans = {plan.problem_id: plan for path in job.plans for plan in read_table(Path(path), PlanRow)}
        writer, written = ExampleWriter(loaded, self._examples, self._seed), _Written()
        for problem in (problems[number] for number in job.rows):
            with clock.measuring("describing"):
                row = plan_row(problem, plans[problem.problem_id], writer.text_of(problem))
            written.add_solved(problem.split, row)
            for kind in writer.kinds:
                with clock.measuring(WORK_OF[kind]):
                    written.add_examples(problem.split, kind, partial(writer.write, kind, row))
        with clock.measuring("writing files"):
            written.write(job, loaded.name)
        return clock.rows(job.job_id)


@dataclass(frozen=True)
class _Written:
    """What is written of one part, by split."""

    solved: dict[str, list[DatasetPlanRow]] = field(default_factory=lambda: defaultdict(list))
    examples: dict[str, list[DatasetExampleRow]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add_solved(self, split: str, row: DatasetPlanRow) -> None:
        self.solved[split].append(row)
        self.counts[split, SOLVED] += 1

    def add_examples(self, split: str, kind: str, write: Callable[[], list[DatasetExampleRow]]) -> None:
        """Keep the examples; one that cannot be written is counted with the reason."""
        try:
            rows = write()
        except BadInputError as error:
            self.counts[split, f"no {kind}: {error.message}"] += 1
            return
        self.examples[split] += rows
        self.counts[split, kind] += len(rows)

    def write(self, job: PartJobRow, domain: str) -> None:
        """Write the part's files; that of the counts comes last and says that the job is done."""
        folder = Path(job.output)
        for split, examples in self.examples.items():
            write_part(part_path(folder, EXAMPLES, f"{split}/{job.job_id}"), examples, DatasetExampleRow)
        for split, solved in self.solved.items():
            write_part(part_path(folder, PLANS, f"{split}/{job.job_id}"), solved, DatasetPlanRow)
        counts = [CountRow(domain, job.level, split, what, n) for (split, what), n in sorted(self.counts.items())]
        write_part(part_path(folder, COUNTS, job.job_id), counts, CountRow)

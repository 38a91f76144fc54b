"""Ray worker that writes examples as training sequences; the encoding is `plansmith.learning.encoding`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from plansmith.data.parts import Stopwatch, write_part
from plansmith.data.rows import EncodingJobRow, ExampleRow, PartTimeRow, SequenceRow
from plansmith.data.tables import read_arrow, rows_of_arrow
from plansmith.learning.encoding import ExampleEncoder


class EncodingWorker:
    """Writes a part file for each job, with the tokenizer of one model."""

    def __init__(self, model: str) -> None:
        self._encoder = ExampleEncoder(model)
        self._read = functools.lru_cache(maxsize=1)(read_arrow)

    def __call__(self, jobs: Sequence[EncodingJobRow]) -> list[PartTimeRow]:
        """Return where the time of each job went."""
        watch = Stopwatch()
        times = []
        for job in jobs:
            with watch.measuring("encoding"):
                examples = self._read(Path(job.examples), ExampleRow).slice(job.first, job.count)
                rows = [self._encoder.encode(row).row(row.example_id) for row in rows_of_arrow(examples, ExampleRow)]
                write_part(Path(job.output), rows, SequenceRow)
            times += watch.rows(job.job_id)
        return times

"""Parallel work on rows through Ray Data, its finished rows made durable as they arrive.

One batch in is one Arrow block, one task and one block out, so nothing splits the rows of one id, lists stay lists, and
what a crash loses is at most the batches that were being worked on. A pool that loses a worker, with its process or
with the whole machine, ends, and another one does the rest on the machines that are left: left to itself, Ray Data
waits for ever for a worker whose place is gone. Not here: what is done to a row (the worker) and where the rows go
(`plansmith.data.artifacts.Shards`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from actors.failures import own_errors
from plansmith.data.artifacts import Shards
from plansmith.data.tables import RowT, arrow_of_rows, rows_of_arrow
from plansmith.errors import ArtifactError, LostWorkerError
from plansmith.machine import cpu_seconds
from plansmith.progress import progress_bar

logger = logging.getLogger(__name__)

Worker = Callable[[Sequence[Any]], Sequence[Any]]
"""Takes the rows of a batch and returns what it makes of them, rows of another type."""

Spent = Callable[[float], None]
"""Hears of CPU seconds that a worker has taken, batch by batch."""

PoolSize = Callable[[], int]
"""Says how many worker processes there may be; asked where a pool is needed, and Ray runs when it has answered."""

CPU_S = "CPU seconds"
"""Column beside those of a worker's rows, on their way to the driver; its sum are the seconds of the block."""

MAX_LOSSES = 3
"""How many pools in a row may lose a worker without a finished batch: a row that kills its worker kills the next."""

_LOG_LEVELS = {
    "ray.data": logging.WARNING,
    "ray.data._internal.progress": logging.ERROR,  # says that its bars are off, as we wish
    "ray.data._internal.execution.streaming_executor_state": logging.CRITICAL,  # prints the error that is raised anyway
}


def map_rows(
    rows: Sequence[Any],
    row_type_in: type[Any],
    worker: type[Any] | Worker,
    *,
    shards: Shards[RowT],
    batch_size: int,
    pool_size: PoolSize,
    num_cpus: float = 1.0,
    description: str,
    id_column: str = "problem_id",
    worker_settings: Mapping[str, Any] | None = None,
    is_resident: bool = True,
    spent: Spent = lambda _: None,
) -> None:
    """Apply ``worker`` to the rows whose ids are not yet in ``shards`` and append what it returns.

    Rows arrive in whatever order the workers finish; `ArtifactWriter.finish` puts them in order. ``num_cpus`` must be
    free for at least one worker: where nothing is free, Ray Data waits. A single batch is worked on in this process,
    without Ray: no second worker could share it, and one takes seconds to start.

    Args:
        rows: of ``row_type_in``.
        row_type_in: row type of ``rows``.
        worker: a class, made once per worker process with ``worker_settings``, whose objects take a batch, or a
            function that takes one. Both return rows of the type of ``shards``, all those of each id of the batch.
        shards: where finished rows are and go.
        batch_size: rows per call of the worker, which is also the most that a crash loses per worker.
        pool_size: most worker processes; as many are asked for at once, and the work begins with the first.
        num_cpus: cores that one worker occupies, as far as Ray counts.
        description: of the progress bar.
        id_column: a column of both row types.
        worker_settings: keyword arguments of the worker class.
        is_resident: see `map_jobs`; False makes a worker anew for each batch.
        spent: told of the workers' CPU seconds.

    Raises:
        PlansmithError: the worker's own, unchanged.
        LostWorkerError: workers' processes or machines died, and nothing was finished in between.
        ArtifactError: the worker returned other values, or other ids, than it should.
    """
    settings = {
        "worker": worker,
        "worker_settings": dict(worker_settings or {}),
        "row_types": (row_type_in, shards.row_type),
        "id_column": id_column,
    }
    is_one_batch = len(rows) <= batch_size

    def unfinished(n_lost_pools: int) -> list[pa.Table]:
        finished = shards.finished_ids(id_column)
        todo = [row for row in rows if getattr(row, id_column) not in finished]
        if n_lost_pools % 2:  # so that a row that kills its worker does not stand before all others again
            todo.reverse()
        return [
            arrow_of_rows(todo[start : start + batch_size], row_type_in) for start in range(0, len(todo), batch_size)
        ]

    def outputs_of(blocks: list[pa.Table]) -> Generator[pa.Table, None, None]:
        bar.update(len(rows) - sum(block.num_rows for block in blocks) - bar.n)
        if is_one_batch:
            return _outputs_here(blocks, settings, spent)
        pool = min(pool_size(), len(blocks))
        return _outputs(blocks, settings, pool, num_cpus, is_resident=is_resident, spent=spent)

    with progress_bar(len(rows), description) as bar:
        for block in _despite_losses(unfinished, outputs_of, description):
            shards.append(rows_of_arrow(block, shards.row_type))
            bar.update(len(set(block.column(id_column).to_pylist())))
        bar.update(len(rows) - bar.n)  # found finished, or the worker had nothing to say


def map_jobs(
    jobs: Sequence[Any],
    row_type_in: type[Any],
    worker: type[Any] | Worker,
    row_type_out: type[RowT],
    *,
    pool_size: PoolSize,
    num_cpus: float = 1.0,
    worker_settings: Mapping[str, Any] | None = None,
    is_resident: bool = True,
    spent: Spent = lambda _: None,
) -> Iterator[list[RowT]]:
    """Yield the rows that ``worker`` returns for each job, in the order of the jobs, while later jobs are worked on.

    For work whose results are too many to hold, or go to part files that the worker writes itself. Every row carries
    the ``job_id`` of its job. A worker that is cheap to make, and holds nothing, need not live in processes of its own:
    with ``is_resident=False`` each job is a task in whatever process is free, which saves starting a pool. One job is
    done in this process.

    Args:
        jobs: of ``row_type_in``, each a batch of its own.
        row_type_in: row type of ``jobs``.
        worker: see `map_rows`.
        row_type_out: row type of the results.
        pool_size: most worker processes.
        num_cpus: cores that one worker occupies, as far as Ray counts.
        worker_settings: keyword arguments of the worker class.
        is_resident: keep workers alive from job to job.
        spent: told of the workers' CPU seconds.

    Raises:
        PlansmithError: the worker's own, unchanged.
        LostWorkerError: workers' processes or machines died, and no job was finished in between.
    """
    settings = {
        "worker": worker,
        "worker_settings": dict(worker_settings or {}),
        "row_types": (row_type_in, row_type_out),
        "id_column": "job_id",
    }
    left = deque(arrow_of_rows([job], row_type_in) for job in jobs)
    is_one_job = len(left) == 1

    def outputs_of(blocks: list[pa.Table]) -> Generator[pa.Table, None, None]:
        if is_one_job:
            return _outputs_here(blocks, settings, spent)
        pool = min(pool_size(), len(blocks))
        return _outputs(blocks, settings, pool, num_cpus, is_ordered=True, is_resident=is_resident, spent=spent)

    for block in _despite_losses(lambda _: list(left), outputs_of, "jobs"):
        left.popleft()
        yield rows_of_arrow(block, row_type_out)


class BatchWorker:
    """The worker inside its process: Arrow block in, Arrow block out, checked on the way."""

    def __init__(
        self,
        worker: type[Any] | Worker,
        worker_settings: Mapping[str, Any],
        row_types: tuple[type[Any], type[Any]],
        id_column: str,
    ) -> None:
        self.work: Worker = worker(**worker_settings) if isinstance(worker, type) else worker
        self.row_type_in, self.row_type_out = row_types
        self.id_column = id_column

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return the worker's rows for one block."""
        rows = self.work(rows_of_arrow(block, self.row_type_in))
        foreign = {getattr(row, self.id_column) for row in rows} - set(block.column(self.id_column).to_pylist())
        if foreign:
            raise ArtifactError(
                f"the worker returned rows whose {self.id_column!r} was not in its batch",
                where=type(self.work).__name__,
                got=", ".join(sorted(foreign)[:3]),
            )
        return arrow_of_rows(rows, self.row_type_out)

    def close(self) -> None:
        """End what the worker started, where it can; in a process of its own that ends with the process."""
        if hasattr(self.work, "close"):
            self.work.close()


class TimedBatchWorker:
    """A `BatchWorker` whose blocks also say what CPU seconds they took, its making and what it started included."""

    def __init__(self, **settings: Any) -> None:
        self._counted_s = cpu_seconds(os.getpid())
        self._made = BatchWorker(**settings)

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return the worker's rows for one block, with `CPU_S`; where there is none, its seconds are the next one's."""
        made = self._made(block)
        now_s, seconds = cpu_seconds(os.getpid()), [0.0] * made.num_rows
        if seconds:
            seconds[0], self._counted_s = max(0.0, now_s - self._counted_s), now_s
        return made.append_column(CPU_S, pa.array(seconds, pa.float64()))


def _work_once(block: pa.Table, **settings: Any) -> pa.Table:
    """Return the rows of a worker made for one block."""
    return TimedBatchWorker(**settings)(block)


def without_seconds(block: pa.Table, spent: Spent) -> pa.Table:
    """Return a block as the worker made it, after telling its CPU seconds."""
    spent(pc.sum(block.column(CPU_S)).as_py() or 0.0)
    return block.drop_columns([CPU_S])


def _despite_losses(
    todo: Callable[[int], list[pa.Table]],
    outputs_of: Callable[[list[pa.Table]], Generator[pa.Table, None, None]],
    what: str,
) -> Iterator[pa.Table]:
    """Yield the output blocks of the input blocks left after so many lost pools, until a pool has come to its end.

    Raises:
        LostWorkerError: more than `MAX_LOSSES` pools in a row lost a worker before they had finished anything.
    """
    n_lost_pools = n_in_vain = 0
    while blocks := todo(n_lost_pools):
        try:
            with contextlib.closing(outputs_of(blocks)) as outputs:
                for block in outputs:
                    yield block
                    n_in_vain = 0
            return
        except LostWorkerError as error:
            n_lost_pools, n_in_vain = n_lost_pools + 1, n_in_vain + 1
            if n_in_vain > MAX_LOSSES:
                raise
            logger.warning("%s: others take over what is left: %s", what, str(error))
        gc.collect()  # the workers that are left of a pool keep their places until nothing refers to the pool


def _outputs_here(blocks: list[pa.Table], settings: Mapping[str, Any], spent: Spent) -> Generator[pa.Table, None, None]:
    """Yield what a worker in this process makes of each block; told are the seconds of processes that it started."""
    before_s = _seconds_of_children()
    with contextlib.closing(BatchWorker(**settings)) as worker:
        yield from map(worker, blocks)
    spent(_seconds_of_children() - before_s)


def _seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _outputs(
    blocks: list[pa.Table],
    settings: Mapping[str, Any],
    concurrency: int,
    num_cpus: float,
    *,
    is_ordered: bool = False,
    is_resident: bool = True,
    spent: Spent,
) -> Generator[pa.Table, None, None]:
    """Yield one output block per input block of a pool of workers, as they come or in their order."""
    import ray.data  # takes as long as a small job

    with _quiet_ray_data(is_ordered), own_errors():
        # not `from_arrow`: it asks a task about each block, and waits for a free core to do so
        given = ray.data.from_blocks(blocks)
        common = {"batch_size": None, "batch_format": "pyarrow", "num_cpus": num_cpus}
        if is_resident:
            dataset = given.map_batches(
                TimedBatchWorker,
                fn_constructor_kwargs=dict(settings),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=concurrency, initial_size=concurrency),
                max_restarts=0,
                max_task_retries=0,
                **common,
            )
        else:
            dataset = given.map_batches(
                _work_once,
                fn_kwargs=dict(settings),
                compute=ray.data.TaskPoolStrategy(size=concurrency),
                max_retries=0,
                **common,
            )
        for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield without_seconds(block, spent)


@contextlib.contextmanager
def _quiet_ray_data(is_ordered: bool) -> Iterator[None]:
    """Leave one progress bar, ours, and one block per batch; Ray Data's settings are as before afterwards."""
    import ray.data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of settings that copying touches
        context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = is_ordered
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.target_max_block_size = None  # never split the rows of one batch
    previous = {name: logging.getLogger(name).level for name in _LOG_LEVELS}
    for name, level in _LOG_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    try:
        with ray.data.DataContext.current(context), warnings.catch_warnings():
            # Ray 2.60 announces the end of the only way it has to limit restarts.
            warnings.filterwarnings("ignore", message="`ray_remote_args` is deprecated")
            yield
    finally:
        for name, level in previous.items():
            logging.getLogger(name).setLevel(level)

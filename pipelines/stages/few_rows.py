"""Work on the rows of an iteration: here where they are few, else in workers, which take longer to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any, TypeVar

from plansmith.data.artifacts import Shards
from plansmith.garbage import no_garbage
from plansmith.stages import StageContext

FEW_ROLLOUTS = 2000
"""So many are judged, and turned into data sets, sooner than workers are started: one takes milliseconds."""

BATCH_SIZE = 32
"""Problems that a worker gets at once, and the most that a crash loses per worker."""

InT = TypeVar("InT")
OutT = TypeVar("OutT")


def worked_rows(
    context: StageContext[Any],
    rows: Sequence[InT],
    row_types: tuple[type[InT], type[OutT]],
    worker: type[Any],
    worker_settings: Mapping[str, Any],
    *,
    n_rollouts: int,
    description: str,
) -> list[OutT]:
    """Return what a worker makes of rows that stand for one problem each, in the order of their ids.

    Args:
        context: of the stage; in its scratch folder lies what workers have finished.
        rows: with a ``problem_id`` that no two share, which the results have too.
        row_types: of ``rows`` and of the results.
        worker: class whose objects take and return rows, see `actors.mapping.map_rows`.
        worker_settings: keyword arguments of the class.
        n_rollouts: how many rollouts the rows hold.
        description: of the progress bar.
    """
    row_type_in, row_type_out = row_types
    if n_rollouts > FEW_ROLLOUTS:
        shards: Shards[Any] = Shards(context.output.scratch(description.replace(" ", "_")), "rows", row_type_out)
        context.resources.map_rows(
            rows,
            row_type_in,
            worker,
            shards=shards,
            batch_size=BATCH_SIZE,
            description=description,
            worker_settings=worker_settings,
        )
        return shards.merged_rows()
    made, found = worker(**worker_settings), list[Any]()
    ending = closing(made) if hasattr(made, "close") else nullcontext()
    with ending, no_garbage(), context.progress(len(rows), description, unit="problem") as bar:
        for row in sorted(rows, key=lambda row: row.problem_id):  # type: ignore[attr-defined]
            found += made([row])
            bar.update()
    return found

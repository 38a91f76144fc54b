"""Tables of rows as Parquet files: written atomically, read back exactly, refused when the schema is another.

The schema comes from the annotations of the row type (`plansmith.data.rows`); there is no second description to keep in
step. Not here: manifests and stages (`plansmith.data.artifacts`, `plansmith.stages`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeGuard, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plansmith.data.rows import Float32, Int32
from plansmith.data.storage import atomic_file, inner_name
from plansmith.errors import ArtifactError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")

ROWS_PER_GROUP = 10_000
"""Rows per Parquet row group; keeps each Arrow array of texts far below its limit of 2 GiB. A row
type may have fewer."""

BYTES_PER_GROUP = 32 * 2**20
"""Bytes per Parquet row group that is merged from others."""

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), Int32: pa.int32(), Float32: pa.float32(),
}  # fmt: skip


def arrow_schema(row_type: type[DataclassInstance]) -> pa.Schema:
    """Return the Arrow schema of a row type; ``X | None`` is nullable, ``tuple[X, ...]`` a list, a row type a struct.

    The row type's name and docstring go into the schema's metadata, a field's ``metadata["doc"]`` into the column's.

    Raises:
        TypeError: an annotation that has no column type.
    """
    hints = typing.get_type_hints(row_type)
    fields = [_arrow_field(row_type, field, hints[field.name]) for field in dataclasses.fields(row_type)]
    return pa.schema(fields, metadata={"row_type": row_type.__name__, "doc": inspect.getdoc(row_type) or ""})


def write_table(path: Path, rows: Iterable[RowT], row_type: type[RowT]) -> int:
    """Write ``rows`` to ``path`` as one Parquet file, all or nothing, and return their number.

    Raises:
        ArtifactError: a value does not fit its column; the file is not written.
    """
    with atomic_file(path) as file:
        return _write_parquet(file, rows, row_type)


def read_table(path: Path, row_type: type[RowT]) -> list[RowT]:
    """Return the rows of a Parquet file, or of all Parquet files of a folder in the order of their names.

    Raises:
        ArtifactError: nothing there, not Parquet, or a column that is missing, unexpected or of another type.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ArtifactError("holds no Parquet file", where=str(path))
    return [row for file in files for row in rows_of_arrow(read_arrow(file, row_type), row_type)]


def merge_tables(
    paths: Sequence[Path], folder: Path, name: str, row_type: type[DataclassInstance], *, rows_per_file: int
) -> list[Path]:
    """Return new files ``NAME-00000-of-00002.parquet``, ... that hold the rows of many files, in their order.

    One file of the many is in memory at a time; a new file begins once one has `rows_per_file` rows.

    Raises:
        BadInputError: `name` leads out of the folder.
    """
    inner_name(name)
    groups: list[list[Path]] = []
    left = 0
    for path in paths:
        if left <= 0:
            groups.append([])
            left = rows_per_file
        groups[-1].append(path)
        left -= count_rows(path)
    folder.mkdir(parents=True, exist_ok=True)
    merged = []
    for number, group in enumerate(groups):
        merged.append(folder / f"{name}-{number:05d}-of-{len(groups):05d}.parquet")
        with (
            atomic_file(merged[-1]) as file,
            pq.ParquetWriter(file, arrow_schema(row_type), compression="zstd") as writer,
        ):
            for table in _large_groups(read_arrow(path, row_type) for path in group):
                writer.write_table(table)
    return merged


def _large_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of about `ROWS_PER_GROUP` rows or `BYTES_PER_GROUP`, so that a file has few row groups."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= ROWS_PER_GROUP or sum(t.nbytes for t in waiting) >= BYTES_PER_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def count_rows(path: Path) -> int:
    """Return the number of rows of a Parquet file without reading them."""
    return int(pq.read_metadata(path).num_rows)


def read_column(path: Path, row_type: type[DataclassInstance], column: str) -> list[Any]:
    """Return one column of a Parquet file without reading the others."""
    return list(read_arrow(path, row_type, columns=[column]).column(column).to_pylist())


def read_arrow(path: Path, row_type: type[DataclassInstance], columns: list[str] | None = None) -> pa.Table:
    """Return a Parquet file as an Arrow table, its schema checked against the row type; see `read_table`."""
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(file.schema_arrow, arrow_schema(row_type), where=str(path))
            return file.read(columns=columns)
    except FileNotFoundError:
        raise ArtifactError("no such table", where=str(path)) from None
    # The others are raised by Ray's column types, which a file can name with anything for their parameters.
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise ArtifactError(
            "not a readable Parquet file", where=str(path), got=str(error), cure="remove it; it is made again"
        ) from error


def matching_rows(path: Path, row_type: type[RowT], **values: str) -> Iterator[RowT]:
    """Yield the rows of a Parquet file whose columns have these values, group by group of its rows.

    Raises:
        ArtifactError: see `read_table`.
    """
    read_arrow(path, row_type, columns=list(values))
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number)
            for name, value in values.items():
                table = table.filter(pc.equal(table[name], value))
            yield from rows_of_arrow(table, row_type)


def rows_of_arrow(table: pa.Table, row_type: type[RowT]) -> list[RowT]:
    """Return the rows of an Arrow table, with its columns in any order; lists become tuples.

    Raises:
        ArtifactError: a column is missing or unexpected.
    """
    names = [field.name for field in dataclasses.fields(row_type)]
    if set(table.column_names) != set(names):
        raise _columns_error(row_type.__name__, set(table.column_names), set(names))
    held = _held_row_types(row_type)
    values = (
        [_read_back(value, held[name]) for value in column] if name in held else map(_tuple_if_list, column)
        for name, column in ((name, table.column(name).to_pylist()) for name in names)
    )
    return [row_type(*row) for row in zip(*values, strict=True)]


def arrow_of_rows(rows: Sequence[RowT], row_type: type[RowT], *, where: str | None = None) -> pa.Table:
    """Return the rows as an Arrow table of exactly `arrow_schema`.

    Raises:
        ArtifactError: a value does not fit its column.
    """
    schema = arrow_schema(row_type)
    place = where or row_type.__name__
    arrays = [_arrow_array([getattr(row, field.name) for row in rows], field, place) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def sorted_rows(rows: Iterable[RowT], row_type: type[RowT], *, id_column: str | None = None) -> list[RowT]:
    """Return the rows ordered by the id column (by default the first), then by all others from left to right."""
    names = [field.name for field in dataclasses.fields(row_type)]
    names.sort(key=lambda name: name != id_column)
    return sorted(rows, key=lambda row: [_sort_key(getattr(row, name)) for name in names])


def _sort_key(value: Any) -> tuple[int, Any]:
    """Order None first, then NaN, then values; tuples item by item."""
    if value is None:
        return 0, 0
    if value != value:
        return 1, 0
    return 2, tuple(map(_sort_key, value)) if isinstance(value, tuple) else value


def _write_parquet(file: IO[bytes], rows: Iterable[RowT], row_type: type[RowT]) -> int:
    count = 0
    with pq.ParquetWriter(file, arrow_schema(row_type), compression="zstd") as writer:
        for group in _groups(rows, getattr(row_type, "ROWS_PER_GROUP", ROWS_PER_GROUP)):
            writer.write_table(arrow_of_rows(group, row_type))
            count += len(group)
    return count


def _groups(rows: Iterable[RowT], size: int) -> Iterator[list[RowT]]:
    iterator = iter(rows)
    while group := list(itertools.islice(iterator, size)):
        yield group


def _arrow_field(row_type: type[DataclassInstance], field: dataclasses.Field[Any], annotation: Any) -> pa.Field:
    inner, nullable = _without_none(annotation)
    item = _item_of(inner)
    data_type = _item_type(inner if item is None else item)
    if data_type is None:
        raise TypeError(
            f"{row_type.__name__}.{field.name}: {annotation} has no column type; expected str, int, float, bool, a row "
            "type, tuple[X, ...] of one of these, or any of them with | None"
        )
    if item is not None:
        data_type = pa.list_(pa.field("element", data_type, nullable=False))
    doc = field.metadata.get("doc")
    return pa.field(field.name, data_type, nullable=nullable, metadata={"doc": doc} if doc else None)


def _item_of(annotation: Any) -> Any:
    """Return X of ``tuple[X, ...]``, else None."""
    arguments = typing.get_args(annotation)
    is_list = typing.get_origin(annotation) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    return arguments[0] if is_list else None


def _item_type(annotation: Any) -> pa.DataType | None:
    """Return the type of one value: a scalar's, or a struct for a row; None where there is none."""
    return pa.struct(list(arrow_schema(annotation))) if _is_row_type(annotation) else _SCALARS.get(annotation)


def _is_row_type(annotation: Any) -> TypeGuard[type[DataclassInstance]]:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


@functools.cache
def _held_row_types(row_type: type[DataclassInstance]) -> Mapping[str, Any]:
    """Return the columns of a row type that hold rows, with the type of these."""
    held = {}
    for name, annotation in typing.get_type_hints(row_type).items():
        inner = _without_none(annotation)[0]
        item = _item_of(inner) or inner
        if _is_row_type(item):
            held[name] = item
    return held


def row_of(values: Mapping[str, Any], row_type: type[RowT]) -> RowT:
    """Return the row that Arrow gives as a mapping from columns to values."""
    held = _held_row_types(row_type)
    return row_type(
        **{name: _read_back(x, held[name]) if name in held else _tuple_if_list(x) for name, x in values.items()}
    )


def _read_back(value: Any, row_type: Any) -> Any:
    """Return the row, or the tuple of rows, that Arrow gives as mappings."""
    if isinstance(value, list | tuple):
        return tuple(_read_back(item, row_type) for item in value)
    return row_of(value, row_type) if isinstance(value, dict) else value


def _as_mappings(value: Any) -> Any:
    """Return a row, or a tuple of rows, as the mappings that Arrow takes."""
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        return [_as_mappings(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    return {field.name: _as_mappings(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    members = [member for member in typing.get_args(annotation) if member is not types.NoneType]
    return (members[0], True) if len(members) == 1 else (annotation, False)


def _arrow_array(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    place, is_list = f"{where}.{field.name}", pa.types.is_list(field.type)
    try:
        if is_list and any(isinstance(value, str) for value in values):
            raise TypeError("a text, which Arrow would split into its characters")
        holds_rows = pa.types.is_struct(field.type.value_type if is_list else field.type)
        array = pa.array([_as_mappings(value) for value in values] if holds_rows else values, type=field.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError) as error:
        raise ArtifactError(
            "a value does not fit its column", where=place, got=str(error), expected=str(field.type)
        ) from error
    inner_nulls = array.flatten().null_count if is_list else 0
    if inner_nulls or (array.null_count and not field.nullable):
        raise ArtifactError("a value is missing", where=place, got="None", expected=f"{field.type}, never None")
    return array


def _check_schema(found: pa.Schema, expected: pa.Schema, *, where: str) -> None:
    if set(found.names) != set(expected.names):
        raise _columns_error(where, set(found.names), set(expected.names))
    for field in expected:
        other = found.field(field.name)
        if (other.type, other.nullable) != (field.type, field.nullable):
            raise ArtifactError(
                f"column {field.name!r} has another type",
                where=where,
                got=_type_name(other),
                expected=_type_name(field),
                cure="it was written by another version; remove the run folder or use that version",
            )


def _columns_error(where: str, found: set[str], expected: set[str]) -> ArtifactError:
    missing, extra = sorted(expected - found), sorted(found - expected)
    parts = [f"column {name!r} is missing" for name in missing] + [f"column {name!r} is unexpected" for name in extra]
    got, wanted = ", ".join(sorted(found)), ", ".join(sorted(expected))
    return ArtifactError("; ".join(parts), where=where, got=got, expected=wanted)


def _type_name(field: pa.Field) -> str:
    return f"{field.type}{' or None' if field.nullable else ''}"


def _tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

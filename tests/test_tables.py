"""Parquet tables: exact round trip for every row type, and refusal of what does not fit."""

from __future__ import annotations

import dataclasses
import inspect
import math
import tempfile
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plansmith.data import rows as row_types
from plansmith.data.rows import Float32, Int32, MetricRow, PlanRow, ProblemRow, Split
from plansmith.data.tables import (
    arrow_of_rows,
    arrow_schema,
    count_rows,
    read_column,
    read_table,
    rows_of_arrow,
    sorted_rows,
    write_table,
)
from plansmith.errors import ArtifactError

ROW_TYPES = [kind for _, kind in inspect.getmembers(row_types, dataclasses.is_dataclass) if inspect.isclass(kind)]
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    bool: st.booleans(),
    Int32: st.integers(-(2**31), 2**31 - 1),
    Float32: st.floats(width=32),
}
SOLVED = PlanRow("p1", "lama", "solved", ("(pick-up a)", "(stack a b)"), 2.0, 0.25, True)
UNSOLVABLE = PlanRow("p2", "lama", "unsolvable", (), None, 0.5, False)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(annotation) is types.UnionType:
        return st.one_of([values_of(member) for member in typing.get_args(annotation)])
    if typing.get_origin(annotation) is tuple:
        return st.lists(values_of(typing.get_args(annotation)[0]), max_size=4).map(tuple)
    if dataclasses.is_dataclass(annotation):
        return row_strategy(annotation)
    return st.none() if annotation is types.NoneType else SCALARS[annotation]


def row_strategy(row_type: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(row_type)
    names = [field.name for field in dataclasses.fields(row_type)]
    return st.builds(row_type, **{name: values_of(hints[name]) for name in names})


@pytest.mark.parametrize("row_type", ROW_TYPES, ids=lambda kind: kind.__name__)
def test_round_trip_of_every_row_type_is_exact(row_type: type[Any]) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(row_strategy(row_type), max_size=5))
    def check(rows: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            assert write_table(path, rows, row_type) == len(rows) == count_rows(path)
            assert repr(read_table(path, row_type)) == repr(rows)  # repr tells 1 from True and -0.0 from 0.0

    check()


def test_row_types_all_found() -> None:
    assert {"ProblemRow", "PlanRow", "RolloutRow", "VerdictRow", "MetricRow"} <= {kind.__name__ for kind in ROW_TYPES}


def test_write_table_of_more_rows_than_one_group_keeps_them_all_in_order(tmp_path: Path) -> None:
    rows = [MetricRow("s", i, "d", "l", "n", float(i)) for i in range(25_001)]
    write_table(tmp_path / "m.parquet", rows, MetricRow)
    assert pq.ParquetFile(tmp_path / "m.parquet").num_row_groups == 3
    assert read_table(tmp_path / "m.parquet", MetricRow) == rows


def test_write_table_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        write_table(tmp_path / name, [SOLVED, UNSOLVABLE], PlanRow)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_arrow_schema_names_types_nullability_and_the_row_type() -> None:
    schema, alternative = arrow_schema(PlanRow), "plan: list<element: string not null> not null, cost: double"
    assert [(column.name, str(column.type), column.nullable) for column in schema] == [
        ("problem_id", "string", False),
        ("planner", "string", False),
        ("status", "string", False),
        ("plan", "list<element: string not null>", False),
        ("cost", "double", True),
        ("wall_time_s", "double", False),
        ("is_optimal", "bool", False),
        ("alternatives", f"list<element: struct<{alternative}> not null>", False),
        ("held_out_after", "int64", True),
    ]
    assert schema.metadata[b"row_type"] == b"PlanRow"
    assert schema.metadata[b"doc"].startswith(b"One problem and what the planner found")


def test_written_file_is_zstd_and_carries_docs(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class DocumentedRow:
        """A row for this test."""

        row_id: str = field(metadata={"doc": "who it is"})

    write_table(tmp_path / "r.parquet", [DocumentedRow("a")], DocumentedRow)
    file = pq.ParquetFile(tmp_path / "r.parquet")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.metadata[b"row_type"] == b"DocumentedRow"
    assert file.schema_arrow.field("row_id").metadata[b"doc"] == b"who it is"


def test_arrow_schema_of_a_type_without_a_column_type_names_the_field() -> None:
    @dataclass(frozen=True)
    class OddRow:
        row_id: str
        extra: dict[str, int]

    with pytest.raises(TypeError, match=r"OddRow\.extra.*dict\[str, int\]"):
        arrow_schema(OddRow)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"problem_id": None}, "problem_id"),
        ({"planner": 3}, "planner"),
        ({"planner": "\ud800"}, "planner"),
        ({"plan": ("a", None)}, "plan"),
        ({"plan": "abc"}, "plan"),
        ({"cost": "2"}, "cost"),
        ({"is_optimal": 2}, "is_optimal"),
    ],
    ids=lambda value: str(value).encode("ascii", "backslashreplace").decode(),
)
def test_write_table_of_a_value_that_does_not_fit_names_the_column_and_leaves_no_file(
    tmp_path: Path, change: dict[str, Any], column: str
) -> None:
    with pytest.raises(ArtifactError) as caught:
        write_table(tmp_path / "p.parquet", [SOLVED, dataclasses.replace(SOLVED, **change)], PlanRow)
    assert caught.value.where == f"PlanRow.{column}"
    assert list(tmp_path.iterdir()) == []


def test_write_table_of_an_integer_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="iteration"):
        write_table(tmp_path / "m.parquet", [MetricRow("s", 2**63, "d", "l", "n", 0.0)], MetricRow)


def test_write_table_that_fails_keeps_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    write_table(path, [SOLVED], PlanRow)

    def rows() -> typing.Iterator[PlanRow]:
        yield UNSOLVABLE
        raise RuntimeError("the maker of rows failed")

    with pytest.raises(RuntimeError, match="maker"):
        write_table(path, rows(), PlanRow)
    assert read_table(path, PlanRow) == [SOLVED]
    assert list(tmp_path.iterdir()) == [path]


def test_read_table_of_another_type_names_column_got_and_expected(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class RowNow:
        row_id: str
        size: float

    @dataclass(frozen=True)
    class RowThen:
        row_id: str
        size: int | None

    write_table(tmp_path / "r.parquet", [RowThen("a", 1)], RowThen)
    with pytest.raises(ArtifactError) as caught:
        read_table(tmp_path / "r.parquet", RowNow)
    assert "'size'" in caught.value.message
    assert (caught.value.got, caught.value.expected) == ("int64 or None", "double")


def test_read_table_of_missing_and_unexpected_columns_names_both(tmp_path: Path) -> None:
    write_table(tmp_path / "r.parquet", [SOLVED], PlanRow)
    with pytest.raises(ArtifactError, match=r"column 'domain_pddl' is missing.*column 'plan' is unexpected"):
        read_table(tmp_path / "r.parquet", ProblemRow)


def test_read_table_of_something_else_says_so(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(b"no Parquet at all, only text")
    with pytest.raises(ArtifactError, match="not a readable Parquet file"):
        read_table(tmp_path / "r.parquet", PlanRow)
    with pytest.raises(ArtifactError, match="no such table"):
        read_table(tmp_path / "absent.parquet", PlanRow)


def test_read_table_of_a_folder_reads_its_files_in_the_order_of_names(tmp_path: Path) -> None:
    write_table(tmp_path / "b.parquet", [UNSOLVABLE], PlanRow)
    write_table(tmp_path / "a.parquet", [SOLVED], PlanRow)
    assert read_table(tmp_path, PlanRow) == [SOLVED, UNSOLVABLE]
    with pytest.raises(ArtifactError, match="no Parquet file"):
        read_table(tmp_path.parent / tmp_path.name / "..", PlanRow)


def test_read_column_reads_one_column(tmp_path: Path) -> None:
    write_table(tmp_path / "p.parquet", [SOLVED, UNSOLVABLE], PlanRow)
    assert read_column(tmp_path / "p.parquet", PlanRow, "problem_id") == ["p1", "p2"]


def test_text_enum_reads_back_as_its_text(tmp_path: Path) -> None:
    row = ProblemRow("p", "c", "blocks", "easy", Split.TEST, 3, "d", "p", "s")
    write_table(tmp_path / "p.parquet", [row], ProblemRow)
    assert read_table(tmp_path / "p.parquet", ProblemRow)[0].split == "test"


def test_rows_of_arrow_undoes_arrow_of_rows_and_refuses_a_table_without_a_column() -> None:
    table = arrow_of_rows([SOLVED, UNSOLVABLE], PlanRow)
    assert rows_of_arrow(table, PlanRow) == [SOLVED, UNSOLVABLE]
    with pytest.raises(ArtifactError, match="column 'cost' is missing"):
        rows_of_arrow(table.drop_columns(["cost"]), PlanRow)


def test_sorted_rows_with_equal_ids_none_and_nan_has_one_order() -> None:
    @dataclass(frozen=True)
    class Row:
        row_id: str
        step: int
        score: float | None
        atoms: tuple[str, ...]

    ordered = [
        Row("a", 2, None, ()),
        Row("a", 2, math.nan, ("x",)),
        Row("a", 2, 1.0, ("x",)),
        Row("a", 2, 1.0, ("x", "y")),
        Row("a", 10, 0.0, ()),
        Row("b", 1, 0.0, ()),
    ]
    for shift in range(len(ordered)):
        assert sorted_rows([*ordered[shift:], *ordered[:shift]], Row) == ordered
    assert [row.step for row in sorted_rows(ordered, Row, id_column="step")] == [1, 2, 2, 2, 2, 10]


def test_arrow_type_of_lists_has_no_missing_items() -> None:
    assert not arrow_schema(PlanRow).field("plan").type.value_field.nullable
    assert pa.types.is_list(arrow_schema(PlanRow).field("plan").type)

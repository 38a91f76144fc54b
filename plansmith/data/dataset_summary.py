"""What a dataset holds and what was left out, from the counts of its stages; as tables for people and as its card."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from plansmith.config.dataset import DatasetConfig
from plansmith.data.rows import CountRow, DatasetPlanRow
from plansmith.data.tables import read_arrow
from plansmith.layout import markdown_table, text_table

SOLVED = "solved problems"
"""What counts call the rows of the table of plans."""

MISSING = "missing"
"""What counts call problems that were wanted and not found or not solved."""

SIZE_CATEGORIES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


@dataclass(frozen=True)
class DatasetSummary:
    """Counts of a dataset by domain, level, split and what is counted, and the lengths of its plans."""

    counts: tuple[CountRow, ...]
    plan_lengths: Mapping[tuple[str, str], Sequence[int]]
    """By domain and level."""
    wall_time_s: float
    """Of the stages; of their last sessions where they were resumed."""

    @property
    def splits(self) -> list[str]:
        """Return the splits in the order in which they first occur."""
        return list(dict.fromkeys(row.split for row in self.counts if row.what == SOLVED))

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of examples."""
        return sorted({row.what for row in self.counts if _is_kind(row.what)})

    @property
    def missing(self) -> list[CountRow]:
        """Return what was wanted and is not there."""
        return [row for row in self.counts if row.what == MISSING]

    def total(self, what: str, split: str | None = None, cell: tuple[str, str] | None = None) -> int:
        """Return the sum of the counts of one thing, of one split or cell where given."""
        return sum(
            row.count
            for row in self.counts
            if row.what == what and split in (None, row.split) and cell in (None, (row.domain, row.level))
        )

    @property
    def n_rows(self) -> int:
        """Return the number of rows: solved problems and examples."""
        return self.total(SOLVED) + sum(map(self.total, self.kinds))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows: one line for each domain and level, then their sum."""
        header = ["domain, level", *self.splits, *self.kinds, "plan length, median (quartiles)", "missing"]
        cells = sorted({(row.domain, row.level) for row in self.counts})
        rows = [self._line(f"{domain}, {level}", (domain, level)) for domain, level in cells]
        return header, [*rows, self._line("all", None)]

    def rejects(self) -> list[list[str]]:
        """Return each reason for leaving something out, with its number, the commonest first."""
        reasons: dict[str, int] = defaultdict(int)
        for row in self.counts:
            if row.what.startswith(("left out: ", "no ")):
                reasons[row.what.removeprefix("left out: ")] += row.count
        return [[reason, str(count)] for reason, count in sorted(reasons.items(), key=lambda item: -item[1]) if count]

    def _line(self, title: str, cell: tuple[str, str] | None) -> list[str]:
        lengths = [n for key, ns in self.plan_lengths.items() if cell in (None, key) for n in ns]
        counts = [self.total(SOLVED, split, cell) for split in self.splits]
        counts += [self.total(kind, cell=cell) for kind in self.kinds]
        return [title, *map(str, counts), _quartiles(lengths), str(self.total(MISSING, cell=cell))]


def summarise(counts: Iterable[CountRow], plan_files: Iterable[Path], *, wall_time_s: float) -> DatasetSummary:
    """Return the summary of a dataset; of its plans only the lengths are read."""
    lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for path in plan_files:
        columns = read_arrow(path, DatasetPlanRow, columns=["domain", "level", "plan_length"]).to_pydict()
        for domain, level, length in zip(*columns.values(), strict=True):
            lengths[domain, level].append(length)
    return DatasetSummary(tuple(counts), dict(sorted(lengths.items())), wall_time_s)


def format_summary(summary: DatasetSummary) -> str:
    """Return the tables that the command prints at its end."""
    parts = [text_table(*summary.table())]
    if rejects := summary.rejects():
        parts.append(text_table(("left out", "number"), rejects))
    rate = summary.n_rows / summary.wall_time_s if summary.wall_time_s else 0.0
    parts.append(f"{summary.n_rows} rows in {summary.wall_time_s:.0f} s: {rate:.0f} rows per second")
    return "\n\n".join(parts)


def render_card(summary: DatasetSummary, config: DatasetConfig, configs: Mapping[str, Sequence[str]]) -> str:
    """Return the dataset card, README.md with the metadata that Hugging Face's hub and library read.

    Args:
        summary: what the dataset holds.
        config: what was asked for; the card does not depend on where and how fast it was made.
        configs: table name with its splits.
    """
    size = next((name for bound, name in SIZE_CATEGORIES if summary.n_rows < bound), "n>1M")
    settings = config.model_dump(mode="json", exclude={"cluster", "rows_per_part"})
    return _card_template().render(
        config=config,
        size=size,
        configs=configs,
        table=markdown_table(*summary.table()),
        rejects=markdown_table(("left out", "number"), summary.rejects()) if summary.rejects() else "",
        missing=summary.missing,
        settings=json.dumps(settings, indent=2),
    )


@cache
def _card_template() -> Template:
    text = files("plansmith.data").joinpath("templates", "card.md.j2").read_text(encoding="utf-8")
    return Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False).from_string(text)


def _is_kind(what: str) -> bool:
    return what not in (SOLVED, MISSING, "drawn") and not what.startswith(("left out: ", "no "))


def _quartiles(lengths: Sequence[int]) -> str:
    if len(lengths) < 2:
        return f"{lengths[0]}" if lengths else "-"
    first, second, third = quartiles(lengths)
    return f"{second:g} ({first:g} to {third:g})"


def quartiles(numbers: Sequence[int]) -> tuple[float, float, float]:
    """Return the quartiles of some numbers, the median in the middle; those of a single one are itself."""
    first, second, third = statistics.quantiles([*numbers] * (1 + (len(numbers) == 1)), n=4, method="inclusive")
    return first, second, third

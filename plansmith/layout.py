"""Rows of texts as a table, for a terminal or as Markdown; the first column is words, the others numbers."""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[str]


def text_table(header: Cells, rows: Sequence[Cells]) -> str:
    """Return an aligned table with a line under its header."""
    everything = [header, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in everything
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown_table(header: Cells, rows: Sequence[Cells]) -> str:
    """Return a Markdown table."""
    rule = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))

"""Rows of texts as a table, for a terminal or as Markdown; the first column is words, the others numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys instead of showing, and those that turn the direction of writing."""

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


def printable(text: str) -> str:
    """Return a text of a model or of a stranger's file for a terminal: control characters but line ends and tabs named.

    Written as they are they could hide lines, rename the window or fill the clipboard.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)

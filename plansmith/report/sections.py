"""What a report is made of: a title, the main result, and sections of tables, plots, attempts and words, all as values.

A pipeline says what its report holds; how that looks in a terminal, in Markdown and on a page is in `report`, and the
live page (`watch_page`) shows the same sections of what is known so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from plansmith.report.answers import AnswerExample
from plansmith.report.attempts import AttemptExample


@dataclass(frozen=True, slots=True)
class Table:
    """A table with the words above it.

    Args:
        title: above the table.
        header: one cell a column; the first column is words, the others numbers.
        rows: as many cells each.
        note: what a reader must know to read it.
        is_last_strong: the last row is the one that counts.
        is_folded: folded away on the page.
    """

    block: ClassVar = "table"
    holds: ClassVar = "rows"

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    is_last_strong: bool = False
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One number in large, such as an accuracy, with a line about it."""

    title: str
    value: str
    more: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """Numbers side by side; on pages only."""

    block: ClassVar = "tiles"
    holds: ClassVar = "tiles"

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """One drawing with the words around it; ``svg`` is a complete ``<svg>`` element without outside references."""

    slug: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot that is drawn when it is shown, because that takes longer than all the rest.

    Args:
        slug: tells it from the other drawings of a report.
        shows: what it is drawn from; a drawing of the same slug that shows an equal value is the same plot.
        draw: draws it.
    """

    slug: str
    shows: object
    draw: Callable[[], Plot]


@dataclass(frozen=True, slots=True)
class Plots:
    """Drawings side by side; on pages only."""

    block: ClassVar = "plots"
    holds: ClassVar = "drawings"

    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Statements, one a line; a single one is a paragraph."""

    block: ClassVar = "sentences"
    holds: ClassVar = "lines"

    lines: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Words of the tables with their meanings; on pages only."""

    block: ClassVar = "terms"
    holds: ClassVar = "meanings"

    meanings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts step by step; on pages only, and not on the live page, which chooses its own."""

    block: ClassVar = "attempts"
    holds: ClassVar = "attempts"

    attempts: tuple[AttemptExample, ...]
    is_first_open: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to texts, each folded, with the text and what differs from the reference; on pages only."""

    block: ClassVar = "answers"
    holds: ClassVar = "answers"

    answers: tuple[AnswerExample, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that gives the same again; on pages only."""

    block: ClassVar = "command"
    holds: ClassVar = "text"

    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Names with values, folded away; on pages only. ``more`` is a file with all there is, from the report's folder."""

    block: ClassVar = "listing"
    holds: ClassVar = "pairs"

    title: str
    pairs: Mapping[str, object]
    more: str = ""


BlockT = TypeVar("BlockT")
Block = Table | Tiles | Plots | Sentences | Terms | Attempts | Answers | Command | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report; one without a title goes on from what stands above.

    Args:
        title: above it.
        blocks: in reading order; one that holds nothing is left out.
        note: what a reader must know to read them.
        is_printed: its tables and sentences are shown in a terminal, too.
    """

    title: str
    blocks: tuple[Block, ...]
    note: str = ""
    is_printed: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(block for block in self.blocks if getattr(block, block.holds)))


@dataclass(frozen=True, slots=True)
class Report:
    """What is said about a run, or about all runs of an ablation.

    Args:
        title: names what it is about.
        result: the main result in one sentence.
        evidence: why that may be believed.
        sections: in reading order; a section without blocks is left out.
    """

    title: str
    result: str
    evidence: str
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", tuple(section for section in self.sections if section.blocks))

    @property
    def course(self) -> tuple[Section, ...]:
        """Return what the live page shows: tiles, tables, plots and words, without attempts and how it was made."""
        unshown = Attempts | Command | Listing
        shown = [
            replace(section, blocks=tuple(block for block in section.blocks if not isinstance(block, unshown)))
            for section in self.sections
        ]
        return tuple(section for section in shown if section.blocks)

    def printed(self, kind: type[BlockT]) -> list[BlockT]:
        """Return the blocks of a kind that a terminal shows, in reading order."""
        printed = (block for section in self.sections if section.is_printed for block in section.blocks)
        return [block for block in printed if isinstance(block, kind)]

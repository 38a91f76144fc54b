"""A report in a terminal, as Markdown and as a page; it knows sections (`sections`), and of no pipeline what they say.

The page is one file, needs no network, and every text in it is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from plansmith.data.storage import atomic_file
from plansmith.layout import markdown_table, text_table
from plansmith.report.attempts import MARK_WORDS
from plansmith.report.sections import Block, Drawing, Plot, Report, Sentences, Table
from plansmith.report.wording import clock, percent, spoken


def write_report(report: Report, folder: Path, name: str, results: str) -> Path:
    """Return the path of the page, after writing it, ``NAME.json`` and ``NAME.md`` into ``folder``.

    Equal reports give equal files. Each file appears complete or not at all.

    Args:
        report: what is said.
        folder: made when absent.
        name: of the two files beside ``index.html``.
        results: the text of the JSON file, from which the report can be made again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, text in (
        (f"{name}.json", results),
        (f"{name}.md", render_markdown(report)),
        ("index.html", render_page(report)),
    ):
        with atomic_file(folder / file_name) as file:
            file.write(text.encode())
    return folder / "index.html"


def format_report(report: Report) -> str:
    """Return what a terminal shows: every table, then the sentences, and last the main result."""
    sentences = ("\n".join(block.lines) for block in report.printed(Sentences))
    return "\n\n".join([format_tables(report.printed(Table)), *sentences, report.result])


def format_tables(tables: Sequence[Table]) -> str:
    """Return tables for a terminal, each under its title."""
    return "\n\n".join(f"{table.title}\n{text_table(table.header, table.rows)}" for table in tables)


def render_markdown(report: Report) -> str:
    """Return the main result, every table and every sentence as Markdown."""
    parts = [f"# {report.title}", f"**{report.result}** {report.evidence}".strip()]
    for section in report.sections:
        blocks = [part for block in section.blocks for part in _markdown(block)]
        heading = [f"## {section.title}", section.note] if section.title and blocks else []
        parts += [*filter(None, heading), *blocks]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block) -> Iterator[str]:
    """Yield the paragraphs of a block; what a page alone shows has none."""
    if isinstance(block, Table | Sentences) and block.title:
        yield f"### {block.title}"
    if isinstance(block, Table):
        yield from filter(None, (block.note, markdown_table(block.header, block.rows)))
    elif isinstance(block, Sentences):
        yield "\n".join(block.lines if len(block.lines) == 1 else (f"- {line}" for line in block.lines))


def render_page(report: Report) -> str:
    """Return ``index.html``: one file, no outside resource, every text escaped."""
    template = page_environment().get_template("report.html.j2")
    return template.render(report=report, draw=lambda drawing: shown_plot(drawing.draw()), mark_words=MARK_WORDS)


def page_environment() -> Environment:
    """Return the reader of page templates, which escapes every text put into them."""
    environment = Environment(
        loader=PackageLoader("plansmith.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(spoken=spoken, percent=percent, clock=clock, slug=_slug)
    return environment


def _slug(title: str) -> str:
    """Return a title as the id of its heading."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")


def shown_plot(plot: Plot) -> tuple[Plot, Markup]:
    """Return a plot with its drawing for the page unescaped: matplotlib has escaped the texts in it."""
    return plot, Markup(plot.svg)


class DrawnOnce:
    """Draws each drawing once, and again only when what it shows has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, tuple[Plot, Markup]]] = {}

    def drawn(self, drawing: Drawing) -> tuple[Plot, Markup]:
        """Return the plot of a drawing."""
        known = self._known.get(drawing.slug)
        if known is None or known[0] != drawing.shows:
            known = self._known[drawing.slug] = (drawing.shows, shown_plot(drawing.draw()))
        return known[1]

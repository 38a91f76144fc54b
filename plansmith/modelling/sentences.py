"""The sentences of a text, each behind its number and, where it begins one, that of its paragraph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from plansmith.modelling.reading import COMMENT

MARK, PARAGRAPH = "§", "§§"
"""What the number of a sentence begins with, and that of a paragraph."""
END = "End."
"""The last sentence of every numbered text."""
_BULLET = "- "
_ITEM = re.compile(r"(?P<indent>(?:  )*)- +(?P<text>.*)")
_BREAK = re.compile(r"(?<=[.;])\s+")
_PLACE = re.compile(rf"{PARAGRAPH}\d+ {MARK}\d+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or an item of a text.

    Attributes:
        number: from 1.
        text: it.
        paragraph: that it begins, from 1; 0 where it begins none.
        depth: how far it stands in a list, from 1; 0 where it has no bullet.
    """

    number: int
    text: str
    paragraph: int = 0
    depth: int = 0

    @property
    def place(self) -> str:
        """Return its numbers."""
        return f"{f'{PARAGRAPH}{self.paragraph} ' if self.paragraph else ''}{MARK}{self.number}"

    @property
    def mark(self) -> str:
        """Return its numbers as a comment."""
        return f"{COMMENT} {self.place}"

    @property
    def said(self) -> str:
        """Return its text, behind a bullet for each list that its own is below."""
        return _BULLET * (self.depth - 1) + self.text

    @property
    def quote(self) -> str:
        """Return it as a comment, without the stop at its end."""
        return f"{self.mark} {self.said.rstrip('.;:')}"

    @property
    def opening(self) -> str:
        """Return its numbers and first words as a comment."""
        return f"{self.mark} {self.beginning}"

    @property
    def beginning(self) -> str:
        """Return its first words."""
        return " ".join(self.text.split()[:2]).rstrip(".;:")


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, items as one each, and one that says that it ends."""
    found, n_paragraphs, is_begun = list[Sentence](), 0, False
    for line in [*text.splitlines(), "", END]:
        is_begun = is_begun and bool(line.strip())
        depth, parts = _parts(line)
        for part in parts:
            n_paragraphs += not is_begun
            found.append(Sentence(len(found) + 1, part, 0 if is_begun else n_paragraphs, depth))
            is_begun = True
    return found


def numbered(text: str) -> str:
    """Return a text with its numbers before each of its sentences."""
    numbers, lines = iter(sentences(text)), list[str]()
    for line in [*text.splitlines(), "", END]:
        depth, parts = _parts(line)
        told = (next(numbers) for _ in parts)
        lines.append((_BULLET if depth else "") + " ".join(f"{one.place} {one.said}" for one in told))
    return "\n".join(lines)


def quoted_place(text: str) -> str:
    """Return the numbers of the first paragraph that a text quotes, and of its first sentence; empty without any."""
    found = _PLACE.search(text)
    return found[0] if found else ""


def _parts(line: str) -> tuple[int, list[str]]:
    """Return how far a line stands in a list, and its sentences."""
    item = _ITEM.fullmatch(line)
    depth = len(item["indent"]) // 2 + 1 if item else 0
    return depth, [part for part in _BREAK.split(item["text"] if item else line.strip()) if part]

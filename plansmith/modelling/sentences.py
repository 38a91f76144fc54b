"""The sentences of a text, each behind its number."""

from __future__ import annotations

import re
from dataclasses import dataclass

from plansmith.modelling.reading import COMMENT

MARK = "§"
"""What the number of a sentence begins with."""
END = "End."
"""The last sentence of every numbered text."""
_BULLET = "- "
_BREAK = re.compile(r"(?<=[.;])\s+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or an item of a text.

    Attributes:
        number: from 1.
        text: it.
        is_item: it has a bullet.
    """

    number: int
    text: str
    is_item: bool = False

    @property
    def mark(self) -> str:
        """Return its number as a comment."""
        return f"{COMMENT} {MARK}{self.number}"

    @property
    def quote(self) -> str:
        """Return it as a comment, without the stop at its end."""
        return f"{self.mark} {self.text.rstrip('.;:')}"


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, items as one each, and one that says that it ends."""
    found = [(part, line.startswith(_BULLET)) for line in text.splitlines() for part in _parts(line)]
    return [Sentence(number, *each) for number, each in enumerate([*found, (END, False)], 1)]


def numbered(text: str) -> str:
    """Return a text with a number before each of its sentences."""
    numbers, lines = iter(sentences(text)), list[str]()
    for line in text.splitlines():
        bullet = _BULLET if line.startswith(_BULLET) else ""
        lines.append(bullet + " ".join(_numbered(next(numbers)) for _ in _parts(line)))
    return "\n".join([*lines, "", *map(_numbered, numbers)])


def _parts(line: str) -> list[str]:
    said = line.removeprefix(_BULLET).strip()
    return [said] if "(" in said else [part for part in _BREAK.split(said) if part]


def _numbered(sentence: Sentence) -> str:
    return f"{MARK}{sentence.number} {sentence.text}"

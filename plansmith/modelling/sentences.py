"""The sentences of a text, each behind its number and, where it begins one, that of its paragraph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from plansmith.modelling.products import RESERVED
from plansmith.modelling.reading import COMMENT, Fault
from plansmith.pddl.model import OBJECT
from plansmith.text.natural_language import FRAMING
from plansmith.text.spoken import SLOT

MARK, PARAGRAPH = "§", "§§"
"""What the number of a sentence begins with, and that of a paragraph."""
END = "End."
"""The last sentence of every numbered text."""
STOPS = ".;:"
"""Left out at the end of a quote."""
_BULLET = "- "
_ITEM = re.compile(r"(?P<indent>(?:  )*)- +(?P<text>.*)")
_QUOTE = re.compile(rf"{COMMENT} (?P<paragraph>{PARAGRAPH}\d+ )?{MARK}(?P<number>\d+)\b")
_BREAK = re.compile(r"(?<=[.;])\s+")


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
        return f"{self.mark} {self.said.rstrip(STOPS)}"

    @property
    def opening(self) -> str:
        """Return its numbers and first words as a comment."""
        return f"{self.mark} {self.beginning}"

    @property
    def beginning(self) -> str:
        """Return its first words."""
        return " ".join(self.text.split()[:2]).rstrip(STOPS)


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


def quote_faults(text: str, answer: str) -> tuple[Fault, ...]:
    """Return where an answer quotes what is not in a text, or writes something else than it quotes.

    A line says nothing that its quote does not, and a fact or a condition all of it but words of the frame; no sentence
    is passed over but those of paragraphs of which only the beginning is quoted, and those of a hierarchy, which has an
    order of its own. What else a text leaves open is not looked at. Without a text nothing is quoted.
    """
    said = {one.number: one for one in sentences(text)} if text else {}
    faults, quoted, last, is_tree = list[Fault](), frozenset[str](), 0, False
    for number, line in enumerate(answer.split("\n") if said else [], 1):
        if mark := _QUOTE.match(line):
            before, last = last, int(mark["number"])
            if before and not is_tree and not mark["paragraph"] and last != before + 1:
                faults.append(Fault("quotes", f"sentence {before} is followed by {last}", number))
            one, told = said.get(last), _pieces(line[mark.end() :])
            is_whole = one is not None and told == _pieces(one.said.rstrip(STOPS))
            quoted = _words(one.text) if one is not None and is_whole else frozenset()
            if one is None or (not is_whole and told != _pieces(one.beginning)):
                faults.append(Fault("quotes", f"'{line[:60]}' does not stand in the text", number))
        elif line.startswith("#"):
            quoted, is_tree = frozenset(), line.lower().endswith("hierarchy")
        elif quoted and (words := _words(line)) and line.startswith(("(", "- ")):
            if strange := sorted(words - quoted - RESERVED - {OBJECT, SLOT}):
                faults.append(Fault("quotes", f"the sentence above does not speak of {', '.join(strange)}", number))
            if line.startswith(("(", "- (")) and (missing := sorted(quoted - words - FRAMING)):
                faults.append(Fault("quotes", f"the sentence above also speaks of {', '.join(missing)}", number))
    return tuple(faults)


def _pieces(text: str) -> list[str]:
    """Return words and signs; variables as a text has them, or as PDDL has."""
    return re.findall(r"[a-z0-9]+|[^\sa-z0-9?]", text.lower())


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def _parts(line: str) -> tuple[int, list[str]]:
    """Return how far a line stands in a list, and its sentences."""
    item = _ITEM.fullmatch(line)
    depth = len(item["indent"]) // 2 + 1 if item else 0
    return depth, [part for part in _BREAK.split(item["text"] if item else line.strip()) if part]

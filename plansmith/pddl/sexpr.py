"""Nested lists with the place of every word: the layer below PDDL.

Reads text of any depth without recursion. A text whose brackets do not fit its sections is read by `brackets`, which
tells where the fault is and mends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from plansmith.pddl.diagnostics import Code, Notebook, Source
from plansmith.pddl.model import Number

MAX_DEPTH = 200
"""Deeper nesting is no PDDL anybody writes; refused with its place instead of exhausting the reader's stack."""

SECTION_KEYWORDS = frozenset(
    {":requirements", ":types", ":constants", ":predicates", ":functions", ":derived", ":action", ":durative-action"}
    | {":domain", ":objects", ":init", ":goal", ":metric", ":constraints", ":length"}
)
PART_KEYWORDS = frozenset({":parameters", ":precondition", ":effect"})

LARGEST_NUMBER = 2**53
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)", re.ASCII)
_COMMENT = re.compile(r";[^\r\n]*")
_TOKEN = re.compile(r"[()]|\?[^\s()?]*|[^\s()?]+")
"""A ``?`` begins a new word: published domains write ``aircraft?a``, and every planner reads it so."""


@dataclass(slots=True)
class Word:
    """One word, in lower case: PDDL names are case-insensitive. `offset` is where it begins in the text."""

    text: str
    offset: int


@dataclass(slots=True)
class Group:
    """One bracketed list. `offset` is where it begins in the text."""

    items: list[Word | Group] = field(default_factory=list)
    offset: int = 0

    def head(self) -> str:
        """Return the first word, or an empty text when there is none."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


Node = Word | Group


def describe(node: Node) -> str:
    """Return how an error names what it got."""
    if isinstance(node, Word):
        return f"'{shortened(node.text)}'"
    return f"a list beginning with '{shortened(node.head())}'" if node.head() else "a list"


def words_in(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the words of lists, and of the lists in them."""
    for node in nodes:
        yield from (node.text,) if isinstance(node, Word) else words_in(node.items)


def shortened(text: str, length: int = 60) -> str:
    """Return a text short enough for an error message."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def read_number(text: str) -> Number | None:
    """Return the number a word writes, or None: none, or beyond what a float tells apart."""
    if not _NUMBER.fullmatch(text) or abs(value := float(text)) > LARGEST_NUMBER:
        return None
    return int(value) if value.is_integer() else value


def plain_text(source: Source) -> str:
    """Return the text in lower case, every comment as blanks: no place moves."""
    text = source.text
    lower = text.lower()
    if len(lower) != len(text):  # letters whose lower case is longer would move every place after them
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return _COMMENT.sub(lambda match: " " * len(match.group()), lower) if ";" in lower else lower


def words_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield the brackets and words of a plain text, each with its offset."""
    return ((match.group(), match.start()) for match in _TOKEN.finditer(text))


def read_balanced(notebook: Notebook, text: str) -> Group | None:
    """Return everything that a plain text holds, as one list without brackets; None if brackets do not fit sections."""
    root = Group()
    stack = [root]
    for token, offset in words_of(text):
        if token == "(":
            group = Group([], offset)
            stack[-1].items.append(group)
            stack.append(group)
            if len(stack) > MAX_DEPTH + 1:
                note_depth(notebook, offset)
                return root
        elif token == ")":
            if len(stack) == 1:
                return None
            stack.pop()
        else:
            if token[0] == ":" and _is_misplaced(token, stack):
                return None
            stack[-1].items.append(Word(token, offset))
    return root if len(stack) == 1 else None


def _is_misplaced(keyword: str, stack: list[Group]) -> bool:
    """Return whether brackets put a keyword where it cannot stand: a section in another, a part not in an action."""
    if keyword in PART_KEYWORDS:
        return not stack[-1].head().startswith(":")
    return keyword in SECTION_KEYWORDS and len(stack) > 2 and not stack[-1].items and stack[-2].head() != "define"


def note_depth(notebook: Notebook, offset: int) -> None:
    """Note that lists are nested too deeply."""
    notebook.note(
        Code.TOO_DEEP, offset, "lists nested too deeply", expected=f"at most {MAX_DEPTH} levels",
        repair="nest conditions less deeply",
    )  # fmt: skip

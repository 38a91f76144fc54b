"""Nested lists with the place of every word: the layer below PDDL.

Reads text of any depth without recursion; says where a bracket that is never closed was opened. Knows no PDDL keyword.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from plansmith.errors import PddlParseError

MAX_DEPTH = 200
"""Deeper nesting is no PDDL anybody writes; refused with its place instead of exhausting the reader's stack."""

_TOKEN = re.compile(r"[()]|;.*|\?[^\s();?]*|[^\s();?]+", re.DOTALL)
"""A ``?`` begins a new word: published domains write ``aircraft?a``, and every planner reads it so."""

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a word or a list begins: source name, line and column, both from 1."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Word:
    """One word, in lower case: PDDL names are case-insensitive."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Group:
    """One bracketed list."""

    items: list[Word | Group] = field(default_factory=list)
    place: Place = Place("", 0, 0)

    def head(self) -> str:
        """Return the first word, or an empty text when there is none."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


Node = Word | Group


def describe(node: Node) -> str:
    """Return how an error names what it got."""
    if isinstance(node, Word):
        return f"'{node.text}'"
    return f"a list beginning with '{node.head()}'" if node.head() else "a list"


def read_group(text: str, source: str) -> Group:
    """Return the single bracketed list that `text` holds.

    Raises:
        PddlParseError: no list, a bracket without partner, or text after the list.
    """
    return _only_group(read_root(text, source))


def read_root(text: str, source: str) -> Group:
    """Return everything that `text` holds, as the items of one list without brackets.

    Raises:
        PddlParseError: a bracket without partner.
    """
    root = Group(place=Place(source, 1, 1))
    open_groups = [root]
    for line_number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), 1):
        for match in _TOKEN.finditer(line):
            _take_token(match.group(), Place(source, line_number, match.start() + 1), open_groups)
    if len(open_groups) > 1:
        raise PddlParseError(
            "missing ')'", where=str(open_groups[-1].place), got="the end of the text",
            expected=f"the end of the list opened at line {open_groups[-1].place.line}", cure="add the ')'",
        )  # fmt: skip
    return root


def _take_token(token: str, place: Place, open_groups: list[Group]) -> None:
    if token == "(":
        if len(open_groups) > MAX_DEPTH:
            raise PddlParseError("lists nested too deeply", where=str(place), expected=f"at most {MAX_DEPTH} levels")
        group = Group(place=place)
        open_groups[-1].items.append(group)
        open_groups.append(group)
    elif token == ")":
        if len(open_groups) == 1:
            raise PddlParseError("')' without '('", where=str(place), got="')'", expected="the end of the text or '('")
        open_groups.pop()
    elif not token.startswith(";"):
        open_groups[-1].items.append(Word(token.lower(), place))


def _only_group(root: Group) -> Group:
    if not root.items:
        raise PddlParseError("no PDDL found", where=str(root.place), got="an empty text", expected="'(define ...'")
    first = root.items[0]
    if not isinstance(first, Group):
        raise PddlParseError("unexpected word", where=str(first.place), got=describe(first), expected="'('")
    if len(root.items) > 1:
        extra = root.items[1]
        raise PddlParseError(
            "text after the definition", where=str(extra.place), got=describe(extra), expected="the end of the text",
            cure="check for a ')' too many before this place",
        )  # fmt: skip
    return first

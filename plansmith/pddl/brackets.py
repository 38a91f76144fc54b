"""Where a bracket is missing or too many: nested lists of a text whose brackets do not fit PDDL's sections.

Every ``(:section`` begins in the definition and every ``:effect`` in its action, so the text falls into regions in each
of which the brackets must balance; a fault is told, and mended, in its own region. There it stands before the first
item that cannot stand where the brackets put it: a list among the words of an atom, a third part of a ``when``, a word
between conditions. Where the shape leaves it open, the indentation decides: a line that begins further left than the
others of a list, or no further right than the list itself, is not in it; one further right is in the item before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.garbage import no_garbage
from plansmith.pddl.diagnostics import Code, Notebook
from plansmith.pddl.sexpr import (
    MAX_DEPTH,
    PART_KEYWORDS,
    SECTION_KEYWORDS,
    Group,
    Word,
    describe,
    note_depth,
    plain_text,
    read_balanced,
    read_number,
    shortened,
    words_of,
)

SIZES = {"not": 1, "imply": 2, "when": 2, "exists": 2, "forall": 2, ":goal": 1, ":derived": 2} | dict.fromkeys(
    ("=", "<", ">", "<=", ">=", "increase", "decrease", "assign"), 2
)
"""How many items follow the first word of a list."""

OF_LISTS = frozenset(
    {"and", "or", "not", "imply", "when", "exists", "forall", ":predicates", ":init", ":goal", ":derived"}
)
"""Lists that hold lists and no words after their first."""

OF_NUMBERS = frozenset({"increase", "decrease", "assign"})
"""Lists that hold lists and numbers."""

OF_WORDS = frozenset({":requirements", ":types", ":constants", ":objects", ":domain"})
"""Sections that hold words, and lists of types only."""


def read_root(notebook: Notebook) -> Group:
    """Return everything that the source holds, as the items of one list without brackets; note unmatched brackets."""
    return read_lists(notebook, plain_text(notebook.source))


def read_lists(notebook: Notebook, text: str) -> Group:
    """Return everything that a plain text of the notebook's source holds; note unmatched brackets."""
    with no_garbage():
        balanced = read_balanced(notebook, text)
        return balanced or BracketMender(notebook, tokens_of(text)).build()


@dataclass(frozen=True, slots=True)
class Token:
    """A bracket or a word; `indent` is its column, from 0, where it is the first of its line, and -1 elsewhere."""

    text: str
    offset: int
    indent: int


@dataclass(frozen=True, slots=True)
class Region:
    """Tokens from `start` to before `stop`, after which `depth` lists are open."""

    start: int
    stop: int
    depth: int


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a plain text."""
    found: list[Token] = []
    end = 0
    for word, offset in words_of(text):
        blank = text[end:offset].replace("\r", "\n")
        found.append(Token(word, offset, len(blank) - blank.rfind("\n") - 1 if "\n" in blank or not end else -1))
        end = offset + len(word)
    return found


def regions_of(tokens: Sequence[Token]) -> Iterator[Region]:
    """Yield the regions of a text: the text before the definition, its head, its sections, the parts of its actions."""
    texts = [token.text for token in tokens]
    define = next((i for i in range(len(texts) - 1) if texts[i] == "(" and texts[i + 1] == "define"), None)
    inside = 0 if define is None else 1
    starts = [(0, 0)] if define is None else [(0, 0), (define, 0)]
    for number in range(1 if define is None else define + 2, len(texts)):
        if texts[number] in PART_KEYWORDS:
            starts.append((number, inside + 1))
        elif texts[number] in SECTION_KEYWORDS and texts[number - 1] == "(":
            starts.append((number - 1, inside))
        elif texts[number] in SECTION_KEYWORDS and texts[number - 1] == ")":  # its '(' is lost
            starts.append((number, inside))
    for (start, _), (stop, depth) in zip(starts, [*starts[1:], (len(texts), 0)], strict=True):
        yield Region(start, stop, depth)


class BracketMender:
    """Builds nested lists of tokens, noting and mending each bracket that is missing or too many."""

    def __init__(self, notebook: Notebook, tokens: Sequence[Token]) -> None:
        self.notebook, self.tokens = notebook, tokens
        self.root = Group()
        self.open = [self.root]
        self.closed_at: dict[int, int] = {}
        self.indents: dict[int, int] = {}
        """By the offset of a list its indentation, and that of the first line that begins in it: 0 where unknown."""
        self.aligned: dict[int, int] = {}
        self.floor = 0
        self.n_missing = 0
        """Closing brackets still missing in the region; if negative, too many of them or opening ones missing."""

    def build(self) -> Group:
        """Return the root of the lists."""
        for region in regions_of(self.tokens):
            texts = [token.text for token in self.tokens[region.start : region.stop]]
            self.n_missing = len(self.open) - 1 + texts.count("(") - texts.count(")") - region.depth
            self.floor = region.depth
            for number in range(region.start, region.stop):
                self._take(number)
                if len(self.open) > MAX_DEPTH + 1:
                    note_depth(self.notebook, self.tokens[number].offset)
                    return self.root
            if len(self.open) - 1 > region.depth:
                self._close(region.depth + 1, region.stop)
        return self.root

    def _take(self, number: int) -> None:
        token = self.tokens[number]
        if token.text == ")":
            self._take_closing(number)
            return
        self._make_room(number)
        if token.indent > 0:
            self.aligned.setdefault(self.open[-1].offset, token.indent)
        if token.text != "(":
            self.open[-1].items.append(Word(token.text, token.offset))
            return
        group = Group([], token.offset)
        self.indents[token.offset] = max(token.indent, 0)
        self.open[-1].items.append(group)
        self.open.append(group)

    def _take_closing(self, number: int) -> None:
        offset = self.tokens[number].offset
        if len(self.open) - 1 <= self.floor or (self.n_missing < 0 and _is_short(self.open[-1])):
            self.n_missing += 1
            self._note_surplus(offset, number + 1)
        else:
            self.closed_at[self.open.pop().offset] = offset

    def _make_room(self, number: int) -> None:
        """Open and close lists until the token may stand in the innermost one, or nothing more is missing."""
        while self._is_refused(number):
            group = self.open[-1]
            last = group.items[-1] if group.items else None
            if self.n_missing > 0 and len(self.open) - 1 > self.floor:
                self._close(len(self.open) - 1, number)
            elif self.n_missing < 0 and self._is_opening_lost(number):
                self._open_before(number)
            elif self.n_missing < 0 and isinstance(last, Group):
                self.n_missing += 1
                self._note_surplus(self.closed_at[last.offset], number)
                self.open.append(last)
            else:
                return

    def _is_refused(self, number: int) -> bool:
        token, group = self.tokens[number], self.open[-1]
        if token.text != "(":
            if self.n_missing > 0:  # ``(increase (total-cost 1))``
                return len(self.open) > 2 and self.open[-2].head() in OF_NUMBERS and read_number(token.text) is not None
            return self.n_missing < 0 and not _takes_word(group, token.text)
        if group is self.root:
            last = group.items[-1] if group.items else None
            return self.n_missing < 0 and isinstance(last, Group) and last.head() == "define"
        following = self.tokens[number + 1].text if number + 1 < len(self.tokens) else ""
        return not _takes_list(group, following) or self._is_out_of_line(token, group)

    def _is_out_of_line(self, token: Token, group: Group) -> bool:
        """Return whether a list that begins a line would stand in another against the indentation."""
        aligned = self.aligned.get(group.offset, token.indent)
        if self.n_missing > 0:
            return token.indent > 0 and (token.indent <= self.indents.get(group.offset, 0) or token.indent < aligned)
        return self.n_missing < 0 and aligned < token.indent

    def _is_opening_lost(self, number: int) -> bool:
        """Return whether a word that cannot stand here begins a list of its own, rather than going on with the last."""
        text, group = self.tokens[number].text, self.open[-1]
        if text == "(":
            return False
        if group.head() == "define" and len(group.items) > 1:
            return text.startswith(":")
        return not (text[0] in "?-" and group.items and isinstance(group.items[-1], Group))

    def _open_before(self, number: int) -> None:
        token = self.tokens[number]
        self.n_missing += 1
        self.notebook.note(
            Code.MISSING_PARENTHESIS, token.offset, "missing '('", got=f"'{shortened(token.text)}'", expected="a list",
            repair=f"write '({shortened(token.text)}'",
        )  # fmt: skip
        group = Group([], token.offset)
        self.open[-1].items.append(group)
        self.open.append(group)

    def _close(self, depth: int, number: int) -> None:
        """Close the lists from a depth on before a token, which they must have been meant to end before."""
        group, n_closed = self.open[depth], len(self.open) - depth
        before = self.tokens[number - 1]
        end = before.offset + len(before.text)
        self.closed_at |= {closed.offset: end for closed in self.open[depth:]}
        del self.open[depth:]
        self.n_missing -= n_closed
        line, many = self.notebook.source.place(group.offset).line, "the ')'" if n_closed == 1 else f"{n_closed} ')'"
        self.notebook.note(
            Code.MISSING_PARENTHESIS, end, "missing ')'", got=self._upcoming(number),
            expected=f"the end of the list opened at line {line}, {describe(group)}",
            repair=f"add {many} here, after '{shortened(before.text)}'",
        )  # fmt: skip

    def _note_surplus(self, offset: int, following: int) -> None:
        self.notebook.note(
            Code.EXTRA_PARENTHESIS, offset, "')' without '('", got="')'",
            expected=f"{self._upcoming(following)}, or '('",
            repair="remove this ')', or one before it that ends a list too early",
        )  # fmt: skip

    def _upcoming(self, number: int) -> str:
        """Return what stands at a token, as an error names it."""
        if number >= len(self.tokens):
            return "the end of the text"
        texts = [token.text for token in self.tokens[number : number + 2]]
        return f"'{shortened(''.join(texts) if texts[0] == '(' else texts[0])}'"


def _takes_list(group: Group, following: str) -> bool:
    """Return whether a list that begins with a word may stand in another, by the shape of PDDL alone."""
    head, n_items = group.head(), len(group.items) - 1
    if following == "either":
        return True
    if head in SIZES:
        return n_items < SIZES[head]
    if head == "define":
        return n_items < 1 or following.startswith(":")
    if head == ":action":
        return _is_keyword(group)
    return not head or head in OF_LISTS or (head.startswith(":") and head not in OF_WORDS)


def _takes_word(group: Group, text: str) -> bool:
    """Return whether a word may stand in a list, by the shape of PDDL alone."""
    head = group.head()
    if head == ":action":
        return len(group.items) == 1 or (text in PART_KEYWORDS and not _is_keyword(group))
    if head in OF_NUMBERS:
        return read_number(text) is not None
    return head not in OF_LISTS and head != "define"


def _is_keyword(group: Group) -> bool:
    """Return whether the last item of an action names a part, whose value comes next."""
    last = group.items[-1]
    return isinstance(last, Word) and last.text.startswith(":") and len(group.items) > 1


def _is_short(group: Group) -> bool:
    """Return whether a list lacks an item that its first word demands."""
    if group.head() == ":action":
        return _is_keyword(group)
    return len(group.items) - 1 < SIZES.get(group.head(), 0)

"""Nested lists with the place of every word: the layer below PDDL.

Reads text of any depth without recursion. A missing or surplus bracket is noted and mended where PDDL's own section
keywords show what was meant, so that the rest of the text can still be read: a ``(:action`` begins a section wherever
it stands, and ``:effect`` ends the precondition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from plansmith.garbage import no_garbage
from plansmith.pddl.diagnostics import Code, Notebook

MAX_DEPTH = 200
"""Deeper nesting is no PDDL anybody writes; refused with its place instead of exhausting the reader's stack."""

SECTION_KEYWORDS = frozenset(
    {":requirements", ":types", ":constants", ":predicates", ":functions", ":derived", ":action", ":durative-action"}
    | {":domain", ":objects", ":init", ":goal", ":metric", ":constraints", ":length"}
)
PART_KEYWORDS = frozenset({":parameters", ":precondition", ":effect"})

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


def shortened(text: str, length: int = 60) -> str:
    """Return a text short enough for an error message."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def read_root(notebook: Notebook) -> Group:
    """Return everything that the source holds, as the items of one list without brackets; note unmatched brackets."""
    text = notebook.source.text
    lower = text.lower()
    if len(lower) != len(text):  # letters whose lower case is longer would move every place after them
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    if ";" in lower:
        lower = _COMMENT.sub(lambda match: " " * len(match.group()), lower)
    with no_garbage():
        return _Builder(notebook).build(lower)


class _Builder:
    """Turns words and brackets into nested lists."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.root = Group()
        self.open = [self.root]
        self.closed: Group | None = None
        self.closed_at = 0

    def build(self, text: str) -> Group:
        """Return the root of the lists in `text`."""
        stack = self.open
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token == "(":
                group = Group([], match.start())
                stack[-1].items.append(group)
                stack.append(group)
                if len(stack) > MAX_DEPTH + 1:
                    self._note_depth(match.start())
                    return self.root
            elif token == ")":
                if len(stack) == 1:
                    self._note_extra(match.start())
                else:
                    self.closed, self.closed_at = stack.pop(), match.start()
            else:
                if token[0] == ":" and (token in SECTION_KEYWORDS or token in PART_KEYWORDS):
                    self._mend(token)
                stack[-1].items.append(Word(token, match.start()))
        if len(stack) > 1:
            self._note_missing(stack[-1], "the end of the text")
        return self.root

    def _mend(self, keyword: str) -> None:
        """Close what must have been meant to end before this keyword, or open again what ended too early."""
        stack = self.open
        if keyword in PART_KEYWORDS:
            owner = next((i for i in range(len(stack) - 1, 0, -1) if stack[i].head() == ":action"), None)
            if owner is not None and owner < len(stack) - 1:
                self._note_missing(stack[-1], f"'{keyword}'")
                del stack[owner + 1 :]
        elif stack[-1].items:
            return
        elif len(stack) == 2 and self.closed is not None and self.closed.head() == "define":
            self._reopen(self.closed, keyword)
        elif len(stack) > 3 and stack[1].head() == "define":
            section = stack.pop()
            stack[-1].items.pop()
            self._note_missing(stack[-1], f"'({keyword}'")
            del stack[2:]
            stack[1].items.append(section)
            stack.append(section)

    def _reopen(self, define: Group, keyword: str) -> None:
        section = self.open.pop()
        self.root.items.pop()
        self.notebook.note(
            Code.EXTRA_PARENTHESIS,
            self.closed_at,
            f"')' ends the definition before '({keyword}'",
            got="')'",
            expected=f"'({keyword}'",
            repair="remove this ')' or one before it",
        )
        define.items.append(section)
        self.open += [define, section]

    def _note_depth(self, offset: int) -> None:
        self.notebook.note(
            Code.TOO_DEEP, offset, "lists nested too deeply", expected=f"at most {MAX_DEPTH} levels",
            repair="nest conditions less deeply",
        )  # fmt: skip

    def _note_extra(self, offset: int) -> None:
        self.notebook.note(
            Code.EXTRA_PARENTHESIS, offset, "')' without '('", got="')'", expected="the end of the text or '('",
            repair="remove the ')'",
        )  # fmt: skip

    def _note_missing(self, group: Group, before: str) -> None:
        line = self.notebook.source.place(group.offset).line
        self.notebook.note(
            Code.MISSING_PARENTHESIS,
            group.offset,
            "missing ')'",
            got=before,
            expected=f"the end of the list opened at line {line}",
            repair=f"add the ')' before {before}",
        )

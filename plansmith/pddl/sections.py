"""What domain and problem texts have in common: ``(define ...)``, its sections, requirements, lists of objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from plansmith.pddl.brackets import read_lists
from plansmith.pddl.diagnostics import Code, Notebook, Severity, nearest, one_of, suggestion
from plansmith.pddl.formula_reader import FormulaReader, Names
from plansmith.pddl.model import Domain, Problem, TypedName
from plansmith.pddl.sexpr import Group, Node, Word, describe, plain_text, shortened
from plansmith.pddl.typed_lists import Declaration, typed_list

REPEATABLE = frozenset({":action", ":derived"})
UNSUPPORTED_SECTIONS = frozenset(
    {":durative-action", ":process", ":event", ":constraints", ":axiom", ":method", ":task", ":situation"}
)

_FOREIGN = re.compile(r",(?![^\s()?])|(?m:(?<!\S)(?:#+(?=\s)|//)[^\r\n]*)")
"""What other languages have and PDDL has not: commas after words, and comments that begin with ``# `` or ``//``."""

ValueT = TypeVar("ValueT", Domain, Problem)
PlaceKey = tuple[str, ...]
"""What stands at a place: ``("predicate", name)``, ``("parameter", action, name)``, ``("goal",)``, ..."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[ValueT]):
    """A text as far as it could be read, with the mistakes in it and the places of its parts."""

    value: ValueT
    notebook: Notebook
    places: dict[PlaceKey, int]


@dataclass(slots=True)
class Definition:
    """``(define (KIND NAME) SECTION ...)``."""

    name: str = ""
    offset: int = 0
    sections: list[Group] = field(default_factory=list)

    def tail(self, key: str) -> list[Node]:
        """Return what a section holds, in the order of the text if it stands more than once."""
        return [item for section in self.sections if section.head() == key for item in section.items[1:]]

    def find(self, key: str) -> Group | None:
        """Return the first section of that name."""
        return next((section for section in self.sections if section.head() == key), None)


def read_definition(notebook: Notebook, kind: str) -> Definition:
    """Return the sections of the definition that the source holds; `kind` is ``domain`` or ``problem``."""
    items = read_lists(notebook, _without_foreign(notebook)).items
    define = next((item for item in items if isinstance(item, Group) and item.head() == "define"), None)
    if define is None:
        offset = items[0].offset if items else 0
        notebook.note(
            Code.NOT_PDDL, offset, f"not a {kind}" if items else "no PDDL found",
            got=describe(items[0]) if items else "an empty text", expected=f"(define ({kind} NAME) ...)",
        )  # fmt: skip
        return Definition()
    for item in items:
        if item is not define:
            _note_outside(notebook, item)
            break
    return _definition(notebook, define, kind)


def _without_foreign(notebook: Notebook) -> str:
    """Return the plain text, the commas and foreign comments of the definition as blanks; note them, a line's once."""
    text = plain_text(notebook.source)
    if "," not in text and "#" not in text and "//" not in text:
        return text
    begin = max(text.find("(define"), 0)
    end = text.find("\n", max(text.rfind(")"), begin)) % (len(text) + 1)  # -1, where no line follows, is the end
    noted: set[int] = set()

    def blank(match: re.Match[str]) -> str:
        offset, mark = begin + match.start(), match.group()[:2].rstrip()
        line = notebook.source.place(offset).line
        if line not in noted:
            noted.add(line)
            message, expected, repair = "a comma", "a blank", "remove the commas of this line"
            if mark != ",":
                message, expected = "a comment of another language", "';', which begins a comment"
                repair = f"write ';' instead of '{mark}'"
            notebook.note(Code.UNEXPECTED_TEXT, offset, message, got=f"'{mark}'", expected=expected, repair=repair)
        return " " * len(match.group())

    return text[:begin] + _FOREIGN.sub(blank, text[begin:end]) + text[end:]


def _note_outside(notebook: Notebook, item: Node) -> None:
    notebook.note(
        Code.UNEXPECTED_TEXT, item.offset, "text outside the definition", got=describe(item),
        expected="nothing but (define ...)", repair="remove it, or check for a ')' too many before this place",
    )  # fmt: skip


def _definition(notebook: Notebook, define: Group, kind: str) -> Definition:
    head = define.items[1] if len(define.items) > 1 else Word("", define.items[0].offset + len("define"))
    is_named = isinstance(head, Group) and head.head() == kind and len(head.items) > 1
    name = head.items[1] if is_named and isinstance(head, Group) else None
    if not isinstance(name, Word) or (isinstance(head, Group) and len(head.items) > 2):
        notebook.note(
            Code.NOT_PDDL, head.offset, f"not a {kind}", got=describe(head), expected=f"(define ({kind} NAME) ...)"
        )
        if isinstance(head, Group) and head.head() in ("domain", "problem") and head.head() != kind:
            return Definition()
    has_head = isinstance(head, Group) and not head.head().startswith(":")
    found = Definition(name.text if isinstance(name, Word) else "", define.offset)
    for item in define.items[2 if has_head else 1 :]:
        if isinstance(item, Group):
            found.sections.append(item)
        else:
            notebook.note(Code.UNEXPECTED_TEXT, item.offset, "unexpected word", got=describe(item), expected="'('")
    return found


class TextReader:
    """What domains and problems have in common."""

    def __init__(self, notebook: Notebook, names: Names) -> None:
        self.notebook, self.names = notebook, names
        self.formulas = FormulaReader(notebook, names)
        self.places: dict[PlaceKey, int] = {}

    def check_sections(self, definition: Definition, known: Sequence[str]) -> None:
        """Note sections that are unknown, not supported, or there twice."""
        seen: dict[str, Group] = {}
        for section in definition.sections:
            if self.notebook.is_full:
                return
            head = section.head()
            if head in UNSUPPORTED_SECTIONS:
                self.notebook.note(
                    Code.UNSUPPORTED_FEATURE, section.offset, f"{head} is not supported", got=head,
                    expected="PDDL 2.1 level 1 with ADL, action costs and derived predicates",
                )  # fmt: skip
            elif head not in known:
                key = f":{head.lstrip(':')}"
                self.notebook.note(
                    Code.UNKNOWN_SECTION, section.offset, "unknown section", got=describe(section),
                    expected=one_of(known), repair=suggestion(key, known, "remove it"),
                )  # fmt: skip
                if (meant := nearest(key, known)) is not None:
                    section.items[0] = Word(meant, section.items[0].offset)
            elif head in seen and head not in REPEATABLE:
                first = self.notebook.source.place(seen[head].offset)
                self.notebook.note(
                    Code.DUPLICATE_SECTION, section.offset, f"section {head} stands twice",
                    expected=f"it once; the first is at {first}", repair="join the two",
                )  # fmt: skip
            seen.setdefault(head, section)

    def requirements(self, definition: Definition) -> tuple[str, ...]:
        """Return the flags of ``:requirements``."""
        flags = []
        for item in definition.tail(":requirements"):
            if isinstance(item, Word) and item.text.startswith(":"):
                flags.append(item.text)
                self.places.setdefault(("requirement", item.text), item.offset)
            else:
                self.note_section(item, "not a requirement", "a flag such as :strips or :typing")
        return tuple(dict.fromkeys(flags))

    def objects(self, nodes: Sequence[Node], kind: str) -> tuple[TypedName, ...]:
        """Return declared objects or constants, known to formulas from here on."""
        found: list[TypedName] = []
        for declaration in typed_list(self.notebook, nodes, self.names.ancestors):
            typed = declaration.typed
            self.formulas.check_types(declaration)
            known = self.names.objects.get(typed.name)
            if typed.name.startswith(("?", ":")):
                self.note_name(declaration.offset, typed.name, kind)
            elif known is None:
                found.append(typed)
                self.names.objects[typed.name] = typed
                self.places[(kind, typed.name)] = declaration.offset
            else:
                self._note_redeclared(declaration, known, kind)
        return tuple(found)

    def _note_redeclared(self, declaration: Declaration, known: TypedName, kind: str) -> None:
        typed = declaration.typed
        is_harmless = typed.types == known.types
        self.notebook.note(
            Code.DUPLICATE_NAME, declaration.offset,
            f"{kind} '{typed.name}' is declared twice" + ("" if is_harmless else " with different types"),
            got=None if is_harmless else " or ".join(typed.types),
            expected=None if is_harmless else " or ".join(known.types), repair="remove one of them",
            severity=Severity.WARNING if is_harmless else Severity.ERROR,
        )  # fmt: skip

    def note_lost_section(self, definition: Definition, key: str, code: Code) -> None:
        """Note once that a section is missing whose names are used, in place of an error for each of these."""
        names = self.formulas.undeclared.names(code)
        if names and definition.find(key) is None:
            self.formulas.undeclared.drop(code)
            self.notebook.note(
                Code.MISSING_SECTION, definition.offset, f"no {key}, but names that it declares are used",
                got=shortened(", ".join(names)), expected=f"({key} ...)", repair=f"add ({key} ...) with these names",
            )  # fmt: skip

    def note_section(self, node: Node, message: str, expected: str) -> None:
        """Note that a part of a section has the wrong shape."""
        self.notebook.note(Code.MALFORMED_SECTION, node.offset, message, got=describe(node), expected=expected)

    def note_name(self, offset: int, name: str, kind: str) -> None:
        """Note a name that PDDL gives another meaning."""
        self.notebook.note(
            Code.INVALID_NAME, offset, f"this cannot be the name of a {kind}", got=f"'{name}'",
            expected="a word that neither begins with '?' or ':' nor is a connective", repair="choose another name",
        )  # fmt: skip

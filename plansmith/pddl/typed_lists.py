"""Typed lists, ``a b - t c - (either t u) d``: what objects, types and parameters are declared with.

What models write beside them is noted and read as it is meant: a dash without blanks around it, or none at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from plansmith.pddl.diagnostics import Code, Notebook
from plansmith.pddl.model import OBJECT, TypedName
from plansmith.pddl.sexpr import Group, Node, Word, describe

MAX_ALTERNATIVES = 100
"""Types of one ``either``; more are no PDDL anybody writes."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A typed name with the offsets of the name and of its type."""

    typed: TypedName
    offset: int
    type_offset: int


def typed_list(notebook: Notebook, nodes: Sequence[Node], types: Collection[str] = ()) -> Iterator[Declaration]:
    """Yield what ``a b - t c - (either t u) d`` declares; names without a type belong to `object`.

    A dash without blanks around it, or one that is missing between a variable and one of the declared `types`, is
    noted and read as it is meant.
    """
    pending: list[Word] = []
    nodes = list(_with_dashes(notebook, nodes, types))
    position = 0
    while position < len(nodes):
        node = nodes[position]
        position += 1
        if isinstance(node, Group):
            notebook.note(Code.MALFORMED_SECTION, node.offset, "unexpected list", got=describe(node), expected="a name")
        elif node.text != "-":
            pending.append(node)
        elif position == len(nodes):
            notebook.note(
                Code.MALFORMED_SECTION, node.offset, "'-' without a type", got="the end of the list", expected="a type"
            )
        else:
            types, type_offset = _types(notebook, nodes[position]), nodes[position].offset
            position += 1
            yield from (Declaration(TypedName(word.text, types), word.offset, type_offset) for word in pending)
            pending = []
    yield from (Declaration(TypedName(word.text), word.offset, word.offset) for word in pending)


def joined_types(notebook: Notebook, known: tuple[str, ...], declaration: Declaration) -> tuple[str, ...]:
    """Return the types of a name with those of its next declaration; the known ones, and note it, if these are many."""
    both = tuple(dict.fromkeys((*known, *declaration.typed.types)))
    if len(both) <= MAX_ALTERNATIVES:
        return both
    notebook.note(
        Code.MALFORMED_SECTION, declaration.type_offset, f"'{declaration.typed.name}' has too many types",
        got=str(len(both)), expected=f"at most {MAX_ALTERNATIVES}",
    )  # fmt: skip
    return known


def _with_dashes(notebook: Notebook, nodes: Sequence[Node], types: Collection[str]) -> Iterator[Node]:
    before = ""
    for node, second, third in zip_longest(nodes, nodes[1:], nodes[2:]):
        text = node.text if isinstance(node, Word) else ""
        kind = Word(text[1:], node.offset + 1)
        if text[:1] == "-" and before not in ("", "-") and _is_type(kind, second, types, of=before):
            _note_dash(notebook, node, f"write '- {kind.text}'")
            yield from (Word("-", node.offset), kind)
        elif text[1:] and text[-1] == "-" and _is_type(second, third, types, of=text):
            shown = second.text if isinstance(second, Word) else "(either ...)"
            _note_dash(notebook, node, f"write '{text[:-1]} - {shown}'")
            yield from (Word(text[:-1], node.offset), Word("-", node.offset + len(text) - 1))
            text = "-"
        elif before[:1] == "?" and text in types and _is_type(node, second, types, of=before):
            _note_dash(notebook, node, f"write '- {text}'")
            yield from (Word("-", node.offset), node)
        else:
            yield node
        before = text


def _is_type(node: Node | None, following: Node | None, types: Collection[str], *, of: str) -> bool:
    """Return whether a node can only be the type of the name before it, and no name, which may begin with a dash."""
    if not isinstance(node, Word):
        return node is not None and node.head() == "either"
    is_name = isinstance(following, Word) and following.text == "-"
    return not is_name and (node.text in types or (of[0] == "?" and node.text[:1] not in "?-"))


def _note_dash(notebook: Notebook, node: Node, repair: str) -> None:
    notebook.note(
        Code.MALFORMED_SECTION, node.offset, "a type comes after a '-' with a blank on each side", got=describe(node),
        expected="name - type", repair=repair,
    )  # fmt: skip


def _types(notebook: Notebook, node: Node) -> tuple[str, ...]:
    if isinstance(node, Word):
        return (node.text,)
    names = tuple(item.text for item in node.items[1:] if isinstance(item, Word))
    if node.head() != "either" or not 0 < len(names) <= MAX_ALTERNATIVES or len(names) + 1 < len(node.items):
        notebook.note(
            Code.MALFORMED_SECTION,
            node.offset,
            "not a type",
            got=describe(node),
            expected=f"a type or (either ...) of at most {MAX_ALTERNATIVES}",
        )
        return (OBJECT,)
    return names

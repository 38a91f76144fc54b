"""Names that are used and not declared: one error a name, at the first use or where its declaration is misspelt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from plansmith.pddl.diagnostics import Code, Diagnostic, Notebook, nearest, one_of, suggestion
from plansmith.pddl.sexpr import Node, words_in

SHOWN_LINES = 5
"""Of the other lines on which a name is used."""


@dataclass(slots=True)
class _Name:
    """A name as it was first noted, the known name that is near, if any is, and the offsets of all its uses."""

    name: str
    noted: Diagnostic
    near: str
    offsets: list[int] = field(default_factory=list)


class UndeclaredNames:
    """The undeclared names of a text, noted when first used; what else was learnt of them is added at the end."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self._names: dict[Code, dict[str, _Name]] = {}

    def add(self, code: Code, name: str, offset: int, message: str, *, known: Collection[str], declare: str) -> None:
        """Note the use of a name, unless it has been noted before."""
        names = self._names.setdefault(code, {})
        if name in names:
            names[name].offsets.append(offset)
        elif not self.notebook.is_full:
            noted = self.notebook.note(
                code, offset, message, got=f"'{name[:60]}'", expected=one_of(known),
                repair=suggestion(name, known, declare),
            )  # fmt: skip
            if noted is not None:
                names[name] = _Name(name, noted, nearest(name, known) or "", [offset])

    def names(self, code: Code) -> tuple[str, ...]:
        """Return the undeclared names of a kind, in the order of their first uses."""
        return tuple(self._names.get(code, ()))

    def drop(self, code: Code) -> None:
        """Take back the errors on names of a kind: one fault explains them all."""
        for name in self._names.pop(code, {}).values():
            self.notebook.replace(name.noted, None)

    def finish_all(self) -> None:
        """Tell of every name that is left where else it is used."""
        for code in tuple(self._names):
            self.finish(code, declared={}, within=())

    def finish(self, code: Code, *, declared: Mapping[str, int], within: Sequence[Node]) -> None:
        """Tell of names of a kind where else they are used, and forget them.

        Where a name is used several times and a similar one is declared (at the given offset) and never used `within`
        what may use it, the declaration is misspelt, not each use.
        """
        repeated = [name for name in self._names.pop(code, {}).values() if len(name.offsets) > 1]
        words = Counter(words_in(within)) if repeated else Counter()
        for name in repeated:
            is_declaration = name.near in declared and words[name.near] == 1
            told = self._misspelt(name, declared) if is_declaration else self._told_of_others(name)
            self.notebook.replace(name.noted, told)

    def _misspelt(self, name: _Name, declared: Mapping[str, int]) -> Diagnostic:
        return replace(
            name.noted,
            place=self.notebook.source.place(declared[name.near]),
            message=f"'{name.near}' is declared and never used, '{name.name}' is used and not declared",
            got=f"'{name.near}'",
            expected=f"'{name.name}', as in {self._lines(name.offsets)}",
            repair=f"write '{name.name}'",
        )

    def _told_of_others(self, name: _Name) -> Diagnostic:
        return replace(name.noted, got=f"{name.noted.got}, also in {self._lines(name.offsets[1:])}")

    def _lines(self, offsets: Collection[int]) -> str:
        lines = sorted({self.notebook.source.place(offset).line for offset in offsets})
        more = f" and {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
        return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:SHOWN_LINES]))}{more}"

"""What is wrong with a PDDL text: code, place, message, repair; and the book in which readers note it.

Every reader notes what it finds and goes on, so that one reading of a file finds all its mistakes; `parse_domain` and
`parse_problem` raise the first of them. Not here: the finding.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from plansmith.errors import PddlParseError

MAX_DIAGNOSTICS = 200
"""More errors, or more warnings, than this say no more about a text; the rest is left out."""

KEPT_FREE = 1
"""Of those, kept for saying that a text is no domain or problem at all."""

COMPARED_NAMES = 500
"""The most known names that a misspelt one is compared with."""

_LINE_END = re.compile(r"\r\n|\r|\n")


class Severity(StrEnum):
    """An error leaves the text without a meaning; a warning is a likely mistake in a text that has one."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """The kinds of mistakes; stable names for programs, and for models that are fed them."""

    NOT_PDDL = "not-pddl"
    MISSING_PARENTHESIS = "missing-parenthesis"
    EXTRA_PARENTHESIS = "extra-parenthesis"
    TOO_DEEP = "too-deep"
    UNEXPECTED_TEXT = "unexpected-text"
    MISSING_SECTION = "missing-section"
    DUPLICATE_SECTION = "duplicate-section"
    UNKNOWN_SECTION = "unknown-section"
    MALFORMED_SECTION = "malformed-section"
    UNSUPPORTED_FEATURE = "unsupported-feature"
    UNKNOWN_REQUIREMENT = "unknown-requirement"
    MISSING_REQUIREMENT = "missing-requirement"
    DUPLICATE_NAME = "duplicate-name"
    NAME_CLASH = "name-clash"
    INVALID_NAME = "invalid-name"
    UNDEFINED_TYPE = "undefined-type"
    CYCLIC_TYPES = "cyclic-types"
    UNDEFINED_PREDICATE = "undefined-predicate"
    UNDEFINED_FUNCTION = "undefined-function"
    WRONG_ARITY = "wrong-arity"
    WRONG_ARGUMENT_TYPE = "wrong-argument-type"
    UNDECLARED_OBJECT = "undeclared-object"
    UNBOUND_VARIABLE = "unbound-variable"
    MALFORMED_CONDITION = "malformed-condition"
    MALFORMED_EFFECT = "malformed-effect"
    CONTRADICTORY_EFFECT = "contradictory-effect"
    MALFORMED_INIT = "malformed-init"
    CONTRADICTORY_INIT = "contradictory-init"
    DUPLICATE_ATOM = "duplicate-atom"
    DERIVED_PREDICATE_CHANGED = "derived-predicate-changed"
    NOT_STRATIFIED = "not-stratified"
    UNUSED_PREDICATE = "unused-predicate"
    UNUSED_PARAMETER = "unused-parameter"
    UNREACHABLE_GOAL = "unreachable-goal"
    DOMAIN_MISMATCH = "domain-mismatch"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a word or a list begins: source name, line and column, both from 1."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake.

    Attributes:
        got, expected: what stands there, and what could stand there instead; either may be missing.
        repair: what to do about it.
    """

    code: Code
    place: Place
    message: str
    got: str | None = None
    expected: str | None = None
    repair: str | None = None
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        head = f"{self.place}: {self.severity}: {self.message} [{self.code}]"
        details = (("got", self.got), ("expected", self.expected), ("to mend it", self.repair))
        return "\n".join([head, *(f"  {label}: {text}" for label, text in details if text)])

    @property
    def is_error(self) -> bool:
        """Return whether the text has no meaning before this is mended."""
        return self.severity is Severity.ERROR

    def to_error(self) -> PddlParseError:
        """Return the diagnostic as an exception."""
        return PddlParseError(
            self.message, where=str(self.place), got=self.got, expected=self.expected, cure=self.repair
        )


class Source:
    """A text with its name, able to tell the line and column of an offset."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text.removeprefix("\ufeff"), name
        self._starts: list[int] | None = None

    def place(self, offset: int) -> Place:
        """Return where the character at `offset` stands."""
        if self._starts is None:
            self._starts = [0, *(match.end() for match in _LINE_END.finditer(self.text))]
        line = bisect.bisect_right(self._starts, offset)
        return Place(self.name, line, offset - self._starts[line - 1] + 1)


@dataclass(slots=True)
class Notebook:
    """The mistakes found so far in one source."""

    source: Source
    found: list[Diagnostic] = field(default_factory=list)
    n_left: dict[Severity, int] = field(default_factory=lambda: dict.fromkeys(Severity, MAX_DIAGNOSTICS))

    def note(
        self,
        code: Code,
        offset: int,
        message: str,
        *,
        got: str | None = None,
        expected: str | None = None,
        repair: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> Diagnostic | None:
        """Note a mistake at an offset of the source; return it, None if it was one too many."""
        if self.n_left[severity] <= (0 if code is Code.NOT_PDDL else KEPT_FREE):
            return None
        self.n_left[severity] -= 1
        self.found.append(Diagnostic(code, self.source.place(offset), message, got, expected, repair, severity))
        return self.found[-1]

    def replace(self, old: Diagnostic, new: Diagnostic | None) -> None:
        """Put a mistake in place of one that has been noted, or nothing."""
        position = next(i for i, diagnostic in enumerate(self.found) if diagnostic is old)
        self.found[position : position + 1] = [] if new is None else [new]
        self.n_left[old.severity] += new is None

    @property
    def is_full(self) -> bool:
        """Return whether further errors are left out; then nothing need be worked out about them."""
        return self.n_left[Severity.ERROR] <= KEPT_FREE

    def warn(self, code: Code, offset: int, message: str, *, repair: str | None = None) -> None:
        """Note a likely mistake in a text that has a meaning all the same."""
        self.note(code, offset, message, repair=repair, severity=Severity.WARNING)

    def errors(self) -> tuple[Diagnostic, ...]:
        """Return the errors in the order of the text."""
        errors = [diagnostic for diagnostic in self.found if diagnostic.is_error]
        return tuple(sorted(errors, key=lambda diagnostic: diagnostic.place))

    def raise_first_error(self) -> None:
        """Raise the first error in the order of the text, if there is any."""
        if self.found and (errors := self.errors()):
            raise errors[0].to_error()


def one_of(names: Iterable[str], *, at_most: int = 12) -> str:
    """Return the names as an error lists what it expected."""
    known = list(names)
    if not known:
        return "none is declared"
    more = f" and {len(known) - at_most} more" if len(known) > at_most else ""
    return "one of " + ", ".join(heapq.nsmallest(at_most, known)) + more


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one is likely to mean: of the same letters, or else of nearly the same."""
    names, letters = sorted(itertools.islice(known, COMPARED_NAMES)), sorted(name[:80])
    near = [other for other in names if len(other) == len(name) and sorted(other) == letters]
    near += get_close_matches(name[:80], names, n=1, cutoff=0.75)
    return near[0] if near else None


def suggestion(name: str, known: Iterable[str], declare: str) -> str:
    """Return the repair of an undefined name: the nearest known one, if it is near, or to declare it."""
    near = nearest(name, known)
    return declare if near is None else f"write '{near}', or {declare}"

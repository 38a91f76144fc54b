"""One line of free text as the steps of a plan, whatever decorates it; what `loose_plans` reads plans with.

A step is ``(pick-up a)``, ``pick-up(a)`` or ``pick-up a``, after a bullet, a number, a stamp or "Step 3:", in emphasis
or code signs, and with a remark behind it. Everything else is prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.pddl.model import Domain, PlanStep

MARKUP = re.compile(r"[*`\"]+|__|^\s*>+")

_BULLET = re.compile(r"[-+•\u2013·#]+\s+")
_NUMBER = re.compile(
    r"\[?(?:(?:step|action)\s*)?[#(\[]?(\d+(?:\.\d+)?)(?:[.:)\]]+|\s+[-\u2013\u2014]|(?=\s*\()|$)[:.]?\s*",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:step|action)\s*:\s*", re.IGNORECASE)
_LIST_BRACKETS = re.compile(r"^\[\s*(?=\()|(?<=\))\s*,?\s*\]$")

_GROUP = r"\(\s*([^()]*?)\s*\)"
_GROUPS = re.compile(rf"{_GROUP}(?:\s*(?:[,;]|->|=>|→)?\s*(?:and\s+)?(?:then\s+)?{_GROUP})*\s*(?:\W*|\[[\d.]+\])")
_GROUP_AND_REMARK = re.compile(rf"{_GROUP}\s*(?:\[[\d.]+\]\s*)?(?:[.,;:#=\u2013\u2014→-]|//|\().*")
_REMARK_AND_GROUP = re.compile(rf"[^():]+(?::|\s[-\u2013\u2014])\s*{_GROUP}\s*[.,;]?")
_CALL = re.compile(r"([\w-]+)\(([^()]*)\)\s*[.,;]?")
_OPEN_GROUP = re.compile(r"(?:(?<=\))[\s,;]*|^)\(\s*([^()]*)$")
_NAME = re.compile(r"[a-z0-9_?<][\w<>?-]*")

_PROSE = re.compile(
    "the|is|are|was|were|no|not|that|this|there|these|we|it|its|now|and|or|of|with|note|only|has|have|had|be|been|by|"
    "since|because|so|already|any|all|if|as|for"
)
_PREPOSITION = re.compile("to|from|on|onto|in|into|at|off|up|down")


@dataclass(frozen=True, slots=True)
class LooseLine:
    """What one line is by its form.

    Attributes:
        text: without emphasis and code signs.
        indent: characters of white space before it.
        number: its place in a list, or its stamp.
        steps: usually one; several where a line holds nothing but bracketed steps.
        is_number_only: "Step 3:" with its step on a later line.
        open_group: what stands in a bracket that the line never closes.
    """

    text: str
    indent: int
    number: float | None
    steps: tuple[PlanStep, ...]
    is_number_only: bool
    open_group: str | None

    @property
    def style(self) -> tuple[int, bool]:
        """Return what the lines of one list share."""
        return self.indent, self.number is not None


class StepReader:
    """Reads lines against one domain.

    Args:
        domain: its action names are steps in any form; other names only in brackets.
        is_marked: whether the lines are announced as a plan. Then words without brackets may be a step with the wrong
            number of arguments, and a step may follow a remark: ``1. Take a: (pick-up a)``.
    """

    def __init__(self, domain: Domain, *, is_marked: bool) -> None:
        self.is_marked = is_marked
        self._arities = {action.name: len(action.parameters) for action in domain.actions}
        self._predicates = {predicate.name for predicate in domain.predicates} - set(self._arities)

    def read(self, line: str) -> LooseLine:
        """Return what a line is by its form."""
        text = " ".join(MARKUP.sub("", line).split())  # no pattern here may try out long runs of white space
        body = _BULLET.sub("", text, count=1) if _BULLET.match(text) else text
        numbered = _NUMBER.match(body)
        rest = body[numbered.end() :] if numbered else body
        rest = _LIST_BRACKETS.sub("", _LABEL.sub("", rest, count=1) if _LABEL.match(rest) else rest)
        opened = _OPEN_GROUP.search(rest)
        closed = rest[: opened.start()] if opened else rest
        return LooseLine(
            text=text,
            indent=len(line) - len(line.lstrip()),
            number=float(numbered[1]) if numbered else None,
            steps=tuple(self._steps(closed.strip(), is_numbered=numbered is not None)),
            is_number_only=numbered is not None and not rest,
            open_group=opened[1] if opened else None,
        )

    def are_facts(self, steps: Sequence[PlanStep]) -> bool:
        """Return whether these name predicates only, as a state does that is written between steps."""
        return all(step.name in self._predicates for step in steps)

    def begins_with_action(self, words: str) -> bool:
        """Return whether the first word is an action of the domain."""
        return words.lower().split()[:1] != [] and words.lower().split()[0] in self._arities

    def _steps(self, body: str, *, is_numbered: bool) -> Iterator[PlanStep]:
        if _GROUPS.fullmatch(body):
            yield from filter(None, (self._bracketed(match[1]) for match in re.finditer(_GROUP, body)))
        elif (match := _GROUP_AND_REMARK.fullmatch(body)) and (step := self._bracketed(match[1])):
            yield step
        elif (match := _CALL.fullmatch(body)) and self.begins_with_action(match[1]):
            yield _step([match[1], *match[2].replace(",", " ").split()])
        elif self.is_marked and is_numbered and (match := _REMARK_AND_GROUP.fullmatch(body)):
            if self.begins_with_action(match[1]):
                yield _step(_words(match[1]))
        elif self._is_bare_step(body):
            yield _step(body.split())

    def _bracketed(self, inner: str) -> PlanStep | None:
        """Return the step in brackets, or None where they hold a remark."""
        words = _words(inner)
        if self.begins_with_action(inner):
            return _step(words)
        is_remark = not words or words[0].isdigit() or not all(map(_NAME.fullmatch, words))
        return None if is_remark or any(map(_PROSE.fullmatch, words)) else _step(words)

    def _is_bare_step(self, body: str) -> bool:
        """Return whether words without brackets are an action's name and names."""
        words = body.lower().split()
        if not self.begins_with_action(body) or not all(map(_NAME.fullmatch, words)):
            return False
        is_sentence = any(_PROSE.fullmatch(word) or _PREPOSITION.fullmatch(word) for word in words[1:])
        return not is_sentence and (self.is_marked or len(words) - 1 == self._arities[words[0]])


def _words(inner: str) -> list[str]:
    return re.sub(r"[,']", " ", inner).lower().split()


def _step(words: Sequence[str]) -> PlanStep:
    return PlanStep(words[0].lower(), tuple(word.lower() for word in words[1:]))

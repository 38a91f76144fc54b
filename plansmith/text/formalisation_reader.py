"""PDDL problems in the free text of models: found where one stands, never mended and never made up.

Which one: thinking is cut first; of what is left the last problem that is complete, since models correct themselves;
where none is, the last that was begun, so that a missing bracket can be told. An answer is never bad input: nesting of
any depth, thousands of problems and no problem at all are outcomes. Whether what was found is PDDL is not asked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from plansmith.text.loose_plans import without_thinking

_BEGINNINGS = {
    kind: re.compile(rf"\(\s*define\s*\(\s*{kind}(?![^\s()])", re.IGNORECASE) for kind in ("problem", "domain")
}
_FENCE = re.compile("```|~~~")
_TOKEN = re.compile(r";[^\r\n]*|[()]")
_GOES_ON = re.compile(r"(?:\s++|;[^\r\n]*+)*+(?:\)|\(\s*:)")
"""What follows a problem that a bracket too many has ended before its time. Nothing in it is tried twice."""


@dataclass(frozen=True, slots=True)
class FormalAnswer:
    """What an answer holds.

    Attributes:
        problem_pddl: the problem as it stands there, brackets missing or too many included; None where there is none.
        keeps_contract: the answer is one whole problem and nothing but white space around it.
    """

    problem_pddl: str | None
    keeps_contract: bool


def read_answer(completion: str, *, kind: str = "problem") -> FormalAnswer:
    """Return the problem, or domain, in a completion; see the module, which says problem for either.

    A problem ends with the bracket that closes it, at a code fence, or where the next one begins. Sections and closing
    brackets right after that bracket are part of it: ``(define (problem p) ...)) (:goal ...))`` is one problem with a
    bracket too many. Thinking that never ends leaves no problem.
    """
    answer = without_thinking(completion)
    forms = [] if answer is None else _forms(answer, kind)
    complete = [form for form in forms if form.is_complete]
    if not forms:
        return FormalAnswer(None, keeps_contract=False)
    found = (complete or forms)[-1]
    return FormalAnswer(found.text, keeps_contract=found.is_complete and found.text == completion.strip())


@dataclass(frozen=True, slots=True)
class _Form:
    """A problem; complete where its last bracket closes its first, and none stands between that does."""

    text: str
    is_complete: bool


def _forms(answer: str, kind: str) -> list[_Form]:
    """Return every problem that an answer begins, in order; each character is looked at once."""
    starts = [match.start() for match in _BEGINNINGS[kind].finditer(answer)]
    return [_form(answer[start:end]) for start, end in pairwise([*starts, len(answer)])]


def _form(text: str) -> _Form:
    """Return the problem that a text begins with."""
    fence = _FENCE.search(text)
    text = text[: fence.start()] if fence else text
    depth, is_single = 0, True
    for token in _TOKEN.finditer(text):
        depth = max(0, depth + {"(": 1, ")": -1}.get(token.group(), 0))
        if depth == 0 and token.group() == ")":
            if not _GOES_ON.match(text, token.end()):
                return _Form(text[: token.end()], is_single)
            is_single = False
    return _Form(text.rstrip(), is_complete=False)

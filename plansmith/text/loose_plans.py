"""Plans in the free text of models that were never tuned here: found where they are clear, never made up.

Where the plan is: after the last ``[FINAL PLAN]``; else after the last heading such as "Plan:" that steps follow; else
in the last code fence with steps; else anywhere in the text. What a step looks like is in `loose_steps`. Steps are
never repaired, and an unknown name in brackets stays, for the validator to call malformed. Tuned policies answer in a
rendering, and planners in the form of `plansmith.pddl.plan_text`; both are read strictly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from plansmith.pddl.model import Domain, PlanStep
from plansmith.text.loose_steps import MARKUP, LooseLine, StepReader

_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
"""The beginning or the end of a block of thinking."""

_FINAL_PLAN = re.compile(r"\W*\[\s*final\s+plan\s*\][\s*_:]*", re.IGNORECASE)
_TO_COLON = re.compile(r"[^():]*:\s*")
_PLAN = re.compile(r"\bplan\b", re.IGNORECASE)
_COUNT = re.compile(r"\(\s*\d+\s+\w+\s*\)")
_FENCE = re.compile(r"\s*(?:```|~~~)\s*[\w-]*\s*")
_BRACKETED_HEADING = re.compile(r"\[[A-Z][A-Z ]+\]")
_DISCUSSION = re.compile(
    r"\b(verif\w*|check\w*|validat\w*|explain\w*|explanation\w*|justif\w*|simulat\w*|execut\w*|trac(?:e|ing)|because|"
    r"why|works?|correct\w*|end)\b",
    re.IGNORECASE,
)
"""Words of headings under which steps are discussed, not planned."""
_AFTER_PLAN = re.compile(
    r"\b(plan|verif\w*|validation|explain\w*|explanation\w*|justification|simulat\w*|execution|summary)\b",
    re.IGNORECASE,
)
"""Words of headings that end a plan. Not "check" or "state": those stand between steps too, and state no steps."""
MAX_HEADING_WORDS = 8
MAX_HEADINGS = 50
"""Headings that are tried, the last ones: each takes reading the rest of the text."""


@dataclass(frozen=True, slots=True)
class LoosePlan:
    """The steps found in a completion, and why they are no whole plan where they are none."""

    steps: tuple[PlanStep, ...]
    fault: str | None = None


def read_loose_plan(completion: str, domain: Domain) -> LoosePlan:
    """Return the plan of a completion in free text; see the module.

    Blocks of thinking are cut before anything is looked for. A number that starts again begins another list: after a
    mark the first list is the plan, without one the last. Names become lower case, as everywhere in PDDL.

    The fault is set where thinking never ends, where no step is found (an empty plan cannot be told from none), and
    where a step is cut off; then the steps read so far are returned with it.
    """
    text = without_thinking(completion)
    if text is None:
        return LoosePlan((), "the thinking never ends, so that no answer follows it")
    lines = text.splitlines()
    final = [number for number, line in enumerate(lines) if _FINAL_PLAN.match(_spaced(line))]
    if final:
        line = _spaced(lines[final[-1]])
        found = _read_part(_after(lines, final[-1], line, _FINAL_PLAN.match(line)), domain, is_marked=True)
        return found if found.steps or found.fault else LoosePlan((), "no step follows [FINAL PLAN]")
    for part, is_marked in _likely_parts(lines):
        found = _read_part(part, domain, is_marked=is_marked)
        if found.steps:
            return found
    return LoosePlan((), found.fault or "no step of a plan anywhere in the text")


def without_thinking(completion: str, *, has_lines: bool = False) -> str | None:
    """Return a completion without its blocks of thinking, None where one never ends.

    An end without a beginning ends a block that the chat template itself opened: all before it is thinking.

    Args:
        completion: of a model.
        has_lines: the ends of its lines stay, so that each line keeps its number.
    """
    kept: list[str] = []
    start: int | None = 0  # of what is kept next; None within a block
    block = 0
    for mark in _THINKING.finditer(completion):
        is_end = bool(mark[1])
        if is_end and start is not None:
            kept, block = [], 0
        elif not is_end and start is not None:
            kept.append(completion[start : mark.start()])
            block = mark.start()
        if is_end and has_lines:
            kept.append("\n" * completion.count("\n", block, mark.end()))
        start = mark.end() if is_end else None
    return None if start is None else "".join([*kept, completion[start:]])


def _likely_parts(lines: Sequence[str]) -> Iterator[tuple[Sequence[str], bool]]:
    """Yield where the plan may be, and whether it is announced there: below each heading, each code fence, everywhere.

    Of the headings the last comes first, and so of the fences.
    """
    headings = (number for number in reversed(range(len(lines))) if _is_plan_heading(lines[number]))
    for number in islice(headings, MAX_HEADINGS):
        line = _plain(lines[number])
        yield _after(lines, number, line, _announcement(line)), True
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(_spaced(line))]
    for opening, closing in reversed([*zip_longest(fences[::2], fences[1::2], fillvalue=len(lines))]):
        yield lines[opening + 1 : closing], False
    yield lines, False


def _after(lines: Sequence[str], number: int, line: str, mark: re.Match[str] | None) -> list[str]:
    """Return what stands behind the mark on its line, and the lines that follow."""
    return [line[mark.end() :] if mark else "", *lines[number + 1 :]]


def _announcement(line: str) -> re.Match[str] | None:
    """Return the beginning of a line up to its first colon, if it speaks of a plan."""
    match = _TO_COLON.match(line)
    return match if match and _PLAN.search(match.group()) else None


def _is_plan_heading(line: str) -> bool:
    """Return whether a line announces a plan: "... plan ...:", or a heading or bold line with that word."""
    plain = _plain(line)
    match = _announcement(plain)
    if match is None and not (
        _is_short(plain) and (line.lstrip().startswith(("#", "**", "[")) or _PLAN.fullmatch(plain))
    ):
        return False
    head = match.group() if match else plain
    return _PLAN.search(head) is not None and not _DISCUSSION.search(head)


def _ends_plan(line: LooseLine) -> bool:
    """Return whether a line after steps is a heading under which something else than the plan stands."""
    if _BRACKETED_HEADING.match(line.text):
        return True
    is_heading = line.text.endswith(":") or line.text.startswith("#")
    return is_heading and _is_short(line.text) and _AFTER_PLAN.search(line.text) is not None


def _is_short(text: str) -> bool:
    return "(" not in text and len(text.split()) <= MAX_HEADING_WORDS


def _plain(line: str) -> str:
    """Return a line without emphasis, heading signs, brackets around a mark, and counts such as "(6 steps)"."""
    return _spaced(_COUNT.sub("", _spaced(MARKUP.sub("", line)))).lstrip("#[ ").replace("]", " ").strip()


def _spaced(line: str) -> str:
    """Return a line with one space wherever it has white space: no pattern here may try out long runs of it."""
    return " ".join(line.split())


def _read_part(lines: Sequence[str], domain: Domain, *, is_marked: bool) -> LoosePlan:
    """Return the plan among the lines of a part."""
    reader = _PlanReader(StepReader(domain, is_marked=is_marked))
    for line in lines:
        if _FENCE.fullmatch(_spaced(line)):
            reader.take_fence()
        elif line.strip():
            reader.take(line)
        else:
            reader.take_empty_line()
    cut = reader.cut_off()
    return LoosePlan(tuple(reader.steps), None if cut is None else f"a step is cut off: {cut[:60]!r}")


class _PlanReader:
    """Takes one line after another of a part and keeps the steps of the list that counts."""

    def __init__(self, step_reader: StepReader) -> None:
        self.step_reader = step_reader
        self.steps: list[PlanStep] = []
        self._last: LooseLine | None = None
        self._cut: str | None = None
        self._number: float | None = None
        """Of the latest step, or of the line that announces the next one."""
        self._announced: float | None = None
        self._list_style: tuple[int, bool] | None = None
        """Of the step on the line before."""
        self._is_fresh = step_reader.is_marked
        """Nothing but the mark has been read."""
        self._is_closed = self._is_over = False
        self._n_before_fence: int | None = None

    def cut_off(self) -> str | None:
        """Return the step that is cut off: a bracket never closed around an action, or at the end of the text."""
        if self._cut is None and self._last is not None and self._last.open_group is not None:
            return self._last.text
        return self._cut

    def take_fence(self) -> None:
        """Open or close a code fence; one that held two steps or more held the whole plan."""
        if self._n_before_fence is None:
            self._n_before_fence = len(self.steps)
            return
        self._is_closed = self._is_closed or len(self.steps) - self._n_before_fence >= 2
        self._n_before_fence = None

    def take_empty_line(self) -> None:
        """End the list of steps that facts could belong to."""
        self._list_style = None

    def take(self, text: str) -> None:
        """Read one line that is not empty."""
        line = self.step_reader.read(text)
        if self._is_over:
            return
        self._last = None if self._is_closed else line
        if line.is_number_only:
            self._announced = line.number
        elif not line.steps or self._is_statement(line):
            self._is_closed = self._is_closed or (bool(self.steps) and _ends_plan(line))
            self._list_style = None
        else:
            self._add(line, line.number if line.number is not None else self._announced)
        if line.open_group is not None and self.step_reader.begins_with_action(line.open_group) and not self._is_closed:
            self._cut = self._cut or line.text
        self._is_fresh = False

    def _is_statement(self, line: LooseLine) -> bool:
        """Return whether the line states facts, which are steps only where they stand as one among steps."""
        return self.step_reader.are_facts(line.steps) and not self._is_fresh and line.style != self._list_style

    def _add(self, line: LooseLine, number: float | None) -> None:
        is_next = number is not None and self._number is not None and number > self._number
        is_restart = number is not None and bool(self.steps) and not is_next and number != self._number
        if is_restart and self.step_reader.is_marked:
            self._is_over, self._last = True, None
            return
        if self._is_closed and not is_next and not is_restart:
            return
        if is_restart:
            self.steps, self._cut = [], None
        self.steps += line.steps
        self._number, self._announced = number if number is not None else self._number, None
        self._list_style, self._is_closed = line.style, False

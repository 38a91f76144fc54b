"""Read a completion in the full rendering back into claims; what `compact_reader` is for the compact one.

Real models vary in white space and case, so lines are matched loosely; what they claim is never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from plansmith.errors import PddlParseError
from plansmith.pddl.model import Atom, Domain, Literal, PlanStep
from plansmith.pddl.parser import parse_step
from plansmith.text.chains import Chain, ChainStep, GoalMark, ReadChain, Span, StepSpans

_STEP = re.compile(r"\[STEP\s+\d+[^\]]*\]", re.IGNORECASE)
_FIELD = re.compile(
    r"-\s*(Goals|Purpose|Action|Preconditions|Applicable|Add|Delete|Next state)\s*:\s*(.*)", re.IGNORECASE
)
_CHECK = re.compile(r"-\s*(\(.*\))\s*:\s*(TRUE|FALSE)", re.IGNORECASE)
_VERDICT = re.compile(r"\[VERDICT\]\s*(VALID|INVALID)\b", re.IGNORECASE)
_LITERAL = re.compile(r"\(not\s+\(([^()]*)\)\s*\)|\(([^()]*)\)", re.IGNORECASE)

_SECTIONS = ("start", "step", "goal", "plan", "end")


class _Fault(Exception):
    """The completion stops being well formed; stays within this module."""


@dataclass
class _OpenStep:
    """A step while its lines are read."""

    start: int
    outcome_start: int | None = None
    end: int = 0
    values: dict[str, str] = field(default_factory=dict)
    goals: list[GoalMark] = field(default_factory=list)
    preconditions: list[Literal] = field(default_factory=list)
    unsatisfied: list[Literal] = field(default_factory=list)


def read_chain(completion: str, domain: Domain) -> ReadChain:
    """Return the claims of a completion, as far as it is well formed."""
    reader = _Reader(domain)
    fault = None
    try:
        for line, span in _lines(completion):
            reader.take(line, span)
        reader.finish()
    except _Fault as error:
        fault = str(error)
    chain = Chain(tuple(reader.steps), reader.goal_check, reader.final_plan(), reader.verdict)
    return ReadChain(chain, tuple(reader.spans), reader.plan_span, reader.verdict_span, fault)


def read_literals(text: str) -> tuple[Literal, ...]:
    """Return the bracketed literals of a line, in order."""
    found = []
    for match in _LITERAL.finditer(text):
        negated, plain = match.groups()
        words = (negated if negated is not None else plain).lower().split()
        if words:
            found.append(Literal(Atom(words[0], tuple(words[1:])), negated is None))
    return tuple(found)


def _goal_marks(match: re.Match[str]) -> list[GoalMark]:
    """Return the literals of a ``- (atom): TRUE`` line with their marks."""
    return [GoalMark(literal, match.group(2).upper() == "TRUE") for literal in read_literals(match.group(1))]


def _lines(completion: str) -> Iterator[tuple[str, Span]]:
    for match in re.finditer(r"[^\n]+", completion):
        text = match.group().strip()
        if text:
            start = completion.index(text, match.start())
            yield text, Span(start, start + len(text))


class _Reader:
    """Takes one line after another; the section in force says what a line may be."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.section = "start"
        self.steps: list[ChainStep] = []
        self.spans: list[StepSpans] = []
        self.goal_check: tuple[GoalMark, ...] | None = None
        self.plan: list[PlanStep] | None = None
        self.plan_span: Span | None = None
        self.verdict: str | None = None
        self.verdict_span: Span | None = None
        self.open_step: _OpenStep | None = None

    def final_plan(self) -> tuple[PlanStep, ...] | None:
        """Return the final plan, or None when the section never came."""
        return None if self.plan is None else tuple(self.plan)

    def take(self, line: str, span: Span) -> None:
        """Read one line."""
        if _STEP.match(line):
            self._enter("step")
            self.open_step = _OpenStep(span.start)
        elif line.upper().startswith("[GOAL CHECK]"):
            self._enter("goal")
            self.goal_check = ()
        elif line.upper().startswith("[FINAL PLAN]"):
            self._enter("plan")
            self.plan, self.plan_span = [], Span(span.start, span.end)
        elif match := _VERDICT.match(line):
            self._enter("end")
            start = span.start + match.start(1)
            self.verdict = match.group(1).upper()
            self.verdict_span = Span(start, start + len(match.group(1)))
        else:
            self._take_content(line, span)

    def _enter(self, section: str) -> None:
        """Close the section in force and begin the next; sections come in order, only steps repeat."""
        self.close_step()
        before, after = _SECTIONS.index(self.section), _SECTIONS.index(section)
        if after < before or (after == before and section != "step"):
            raise _Fault(f"section '{section}' after section '{self.section}'")
        self.section = section

    def _take_content(self, line: str, span: Span) -> None:
        if self.section == "step" and self.open_step is not None:
            self._take_field(self.open_step, line, span)
        elif self.section == "goal" and (match := _CHECK.match(line)):
            self.goal_check = (*(self.goal_check or ()), *_goal_marks(match))
        elif self.section == "plan" and self.plan is not None and self.plan_span is not None:
            self.plan.append(self._step(line))
            self.plan_span = Span(self.plan_span.start, span.end)
        elif self.section == "end":
            raise _Fault(f"text after the verdict: {line[:60]!r}")

    def _take_field(self, step: _OpenStep, line: str, span: Span) -> None:
        step.end = span.end
        if match := _FIELD.match(line):
            name = match.group(1).lower()
            if name in step.values:
                raise _Fault(f"step {len(self.steps) + 1}: '{name}' stands twice")
            step.values[name] = match.group(2)
            if name == "preconditions":
                if "action" not in step.values:
                    raise _Fault(f"step {len(self.steps) + 1}: 'preconditions' before 'action'")
                step.outcome_start = span.start
        elif match := _CHECK.match(line):
            marks = _goal_marks(match)
            if "preconditions" not in step.values:
                step.goals += marks
            else:
                step.preconditions += [mark.literal for mark in marks]
                step.unsatisfied += [mark.literal for mark in marks if not mark.is_met]

    def close_step(self) -> None:
        """Turn the lines of the open step into a claimed step."""
        step, self.open_step = self.open_step, None
        if step is None:
            return
        missing = [name for name in ("action", "preconditions", "applicable") if name not in step.values]
        if missing or step.outcome_start is None:
            raise _Fault(f"step {len(self.steps) + 1}: no line for {', '.join(missing)}")
        answer = re.match(r"(YES|NO)\b", step.values["applicable"], re.IGNORECASE)
        if answer is None:
            raise _Fault(f"step {len(self.steps) + 1}: 'applicable' is neither YES nor NO")
        is_applicable = answer.group(1).upper() == "YES"
        if is_applicable and "next state" not in step.values:
            raise _Fault(f"step {len(self.steps) + 1}: no line for next state")
        self.steps.append(self._claimed_step(step, is_applicable=is_applicable))
        choice = Span(step.start, step.outcome_start)
        self.spans.append(StepSpans(choice, Span(step.outcome_start, step.end)))

    def _claimed_step(self, step: _OpenStep, *, is_applicable: bool) -> ChainStep:
        added = tuple(literal.atom for literal in read_literals(step.values.get("add", "")))
        state = tuple(literal.atom for literal in read_literals(step.values.get("next state", "")))
        return ChainStep(
            action=self._step(step.values["action"]),
            preconditions=tuple(step.preconditions),
            unsatisfied=tuple(step.unsatisfied),
            added=added,
            next_state=state if is_applicable else None,
            deleted=tuple(literal.atom for literal in read_literals(step.values.get("delete", ""))),
            goal_check=tuple(step.goals) if "goals" in step.values else None,
            purpose=read_literals(step.values.get("purpose", "")),
        )

    def _step(self, text: str) -> PlanStep:
        try:
            return parse_step(text)
        except PddlParseError as error:
            raise _Fault(f"not an action: {text[:60]!r} ({error.message})") from error

    def finish(self) -> None:
        """Check that the completion came to its end; a step at which it ends may be cut off and is no claim."""
        if self.open_step is not None:
            raise _Fault(f"step {len(self.steps) + 1}: the text ends here")
        if self.verdict is None:
            raise _Fault("no [VERDICT] VALID or INVALID at the end")

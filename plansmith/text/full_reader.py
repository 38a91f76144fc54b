"""Read a completion in the full rendering back into claims; what `compact_reader` is for the compact one.

Real models vary in white space and case, so lines are matched loosely; what they claim is never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from plansmith.errors import PddlParseError
from plansmith.pddl.diagnostics import Notebook, Source
from plansmith.pddl.formula_reader import FormulaReader, Names, read_number
from plansmith.pddl.model import Atom, Condition, Domain, Literal, PlanStep, TypedName
from plansmith.pddl.parser import parse_step
from plansmith.pddl.problem_reader import names_of
from plansmith.pddl.sexpr import read_root
from plansmith.text.chains import Chain, ChainStep, GoalMark, ReadChain, Span, StepCost, StepSpans

_STEP = re.compile(r"\[STEP\s+\d[^\]]*\]", re.IGNORECASE)
_FIELD = re.compile(
    r"-\s*(Goals|Purpose|Action|Preconditions|Applicable|Add|Delete|Cost|Next state)\s*:\s*(.*)", re.IGNORECASE
)
_CHECK = re.compile(r"-\s*(\(.*\))\s*:\s*(TRUE|FALSE)(?:[\s,;]*after\s*(\(.*\)))?", re.IGNORECASE)
_NEEDS = re.compile(r"(?<=\))[\s,;]*needs\s*(?=\()", re.IGNORECASE)
_SINCE = re.compile(r"(?<=\))[\s,;]*since\s*(?=\()", re.IGNORECASE)
_VERDICT = re.compile(r"\[VERDICT\]\s*(VALID|INVALID)\b", re.IGNORECASE)
_COST = re.compile(r"(-?[\d.]+)\s*,\s*total\s*(-?[\d.]+)", re.IGNORECASE)
_LITERAL = re.compile(r"\(not\s+\(([^()]*)\)\s*\)|\(([^()]*)\)", re.IGNORECASE)
_CONNECTIVES = "and|or|imply|exists|forall"
_NO_LITERAL = re.compile(rf"\(\s*(?:{_CONNECTIVES}|not\s*\(\s*(?:{_CONNECTIVES}|not))(?=[\s()])", re.IGNORECASE)
"""The beginning of a condition that is more than an atom or its negation."""

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
    preconditions: list[Condition] = field(default_factory=list)
    unsatisfied: list[Condition] = field(default_factory=list)


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


class _Conditions:
    """Reads the conditions of lines, of any form; objects may be any, predicates and types are the domain's."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._known: dict[str, Condition | None] = {}

    @cached_property
    def _names(self) -> Names:
        return names_of(self.domain)

    def read(self, text: str) -> tuple[Condition, ...]:
        """Return the bracketed conditions of a line, in order; what cannot be read is passed over, as talk is."""
        if not _NO_LITERAL.search(text):
            return read_literals(text)
        found: list[Condition] = []
        for group in _groups(text):
            if not _NO_LITERAL.match(group):
                found += read_literals(group)
            elif (condition := self._formula(group)) is not None:
                found.append(condition)
        return tuple(found)

    def marks(self, match: re.Match[str]) -> list[GoalMark]:
        """Return the conditions of a ``- (condition): TRUE`` line with their marks, and what a goal comes after."""
        is_met, after = match.group(2).upper() == "TRUE", self.read(match.group(3) or "")
        return [GoalMark(condition, is_met, after) for condition in self.read(match.group(1))]

    def _formula(self, text: str) -> Condition | None:
        """Return the condition that a group writes, None if it has any mistake."""
        if text not in self._known:
            notebook = Notebook(Source(text, "<condition>"))
            words = re.findall(r"[^\s()?][^\s()]*", text.lower())
            objects = {word: TypedName(word, ("",)) for word in words}  # of no known type, so they fit everywhere
            reader = FormulaReader(notebook, replace(self._names, objects=objects))
            items = read_root(notebook).items
            condition = reader.condition(items[0], {}) if len(items) == 1 else None
            self._known[text] = None if notebook.found else condition
        return self._known[text]


def _groups(text: str) -> Iterator[str]:
    """Yield the outermost bracketed groups of a text; one that is not closed is none."""
    depth = start = 0
    for match in re.finditer(r"[()]", text):
        if match.group() == "(":
            start = start if depth else match.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield text[start : match.end()]


def _cost(text: str) -> StepCost | None:
    """Return the cost and the total of a line, None where it does not say both."""
    match = _COST.match(text)
    numbers = [read_number(word) for word in match.groups()] if match else [None]
    amount, total = numbers[0], numbers[-1]
    return None if amount is None or total is None else StepCost(amount, total)


def _lines(completion: str) -> Iterator[tuple[str, Span]]:
    for match in re.finditer(r"[^\n]+", completion):
        text = match.group().strip()
        if text:
            start = completion.index(text, match.start())
            yield text, Span(start, start + len(text))


class _Reader:
    """Takes one line after another; the section in force says what a line may be."""

    def __init__(self, domain: Domain) -> None:
        self.conditions = _Conditions(domain)
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
            self.goal_check = (*(self.goal_check or ()), *self.conditions.marks(match))
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
            marks = self.conditions.marks(match)
            if "preconditions" not in step.values:
                step.goals += marks
            else:
                step.preconditions += [mark.condition for mark in marks]
                step.unsatisfied += [mark.condition for mark in marks if not mark.is_met]

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
        purpose, support = self._purpose(step.values.get("purpose", ""))
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
            purpose=purpose,
            support=support,
            cost=_cost(step.values.get("cost", "")) if is_applicable else None,
        )

    def _purpose(self, text: str) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]:
        """Return the conditions of a reason, and what is said to settle each."""
        purpose: list[Condition] = []
        support: list[tuple[Condition, ...]] = []
        for part in _NEEDS.split(text):
            wanted, *settled = _SINCE.split(part, maxsplit=1)
            conditions = self.conditions.read(wanted)
            purpose += conditions
            support += [()] * len(conditions)
            if conditions and settled:
                support[-1] = self.conditions.read(settled[0])
        return tuple(purpose), tuple(support)

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

"""Read a completion in the full rendering back into claims; what `compact_reader` is for the compact one.

Real models vary in white space and case, so lines are matched loosely; what they claim is never repaired. What stands
in a line beside bracketed conditions is talk, so a reason here is never one that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from plansmith.errors import PddlParseError
from plansmith.pddl.brackets import read_root
from plansmith.pddl.diagnostics import Notebook, Source
from plansmith.pddl.formula_reader import FormulaReader, Names
from plansmith.pddl.model import Atom, Condition, Domain, Literal, PlanStep, TypedName
from plansmith.pddl.parser import parse_step
from plansmith.pddl.problem_reader import names_of
from plansmith.pddl.sexpr import read_number
from plansmith.text.chains import (
    Alternative,
    Backtrack,
    Chain,
    ChainStep,
    Claim,
    Drawback,
    GoalMark,
    Part,
    ReadChain,
    Span,
    StepCost,
    StepSpans,
)

_STEP = re.compile(r"\[STEP\s+\d[^\]]*\]", re.IGNORECASE)
_START = re.compile(r"\[STATE\]\s*(.*)", re.IGNORECASE)
_FIELD = re.compile(
    r"-\s*(Goals|Purpose|Action|Preconditions|Applicable|Add|Delete|Cost|Next state)\s*:\s*(.*)", re.IGNORECASE
)
_CHECK = re.compile(r"-\s*(\(.*\))\s*:\s*(TRUE|FALSE)(?:[\s,;]*after\s*(\(.*\)))?", re.IGNORECASE)
_NEEDS = re.compile(r"(?<=\))[\s,;]*needs\s*(?=\()", re.IGNORECASE)
_SINCE = re.compile(r"(?<=\))[\s,;]*since\s*(?=\()", re.IGNORECASE)
_VERDICT = re.compile(r"\[VERDICT\]\s*(VALID|INVALID)\b", re.IGNORECASE)
_ANSWER = re.compile(r"(YES|NO)\b", re.IGNORECASE)
_COST = re.compile(r"(-?[\d.]+)\s*,\s*total\s*(-?[\d.]+)", re.IGNORECASE)
_LITERAL = re.compile(r"\(\s*not\s*\(([^()]*)\)\s*\)|\(([^()]*)\)", re.IGNORECASE)
_CONNECTIVES = "and|or|imply|exists|forall"
_NO_LITERAL = re.compile(rf"\(\s*(?:{_CONNECTIVES}|not\s*\(\s*(?:{_CONNECTIVES}|not))(?=[\s()])", re.IGNORECASE)
"""The beginning of a condition that is more than an atom or its negation."""

DRAWBACKS = {
    "undoes": Drawback.UNDOES,
    "leads back to a state passed before": Drawback.RETURNS,
    "brings the goal no nearer": Drawback.LONGER,
    "leaves no way to the goal": Drawback.DEAD_END,
}
"""What follows another action: why it is not taken."""

_INSTEAD = re.compile(rf"-\s*Instead\s*:\s*(\([^()]*\))[\s,;]*({'|'.join(DRAWBACKS)})\b(.*)", re.IGNORECASE)
_DEAD_BRANCH = re.compile(
    r"-\s*Dead branch\s*:\s*((?:\([^()]*\)\s*)+)lacks\s*+((?:[^\s,;]++|[\s,;]++(?!because of))*+)[\s,;]*because of"
    r"\s*(\([^()]*\))[\s,;]*"
    r"back to the state\s*(?:at the start|after\s*(\([^()]*\)))",
    re.IGNORECASE,
)
_ACTION = re.compile(r"\([^()]*\)")

_SECTIONS = ("start", "step", "goal", "plan", "end")


class _Fault(Exception):
    """The completion stops being well formed; stays within this module."""


class _Text(NamedTuple):
    """A part of a completion, and the character at which it begins."""

    text: str
    start: int

    def span(self) -> Span:
        return Span(self.start, self.start + len(self.text))

    def part(self, start: int, end: int) -> _Text:
        return _Text(self.text[start:end], self.start + start)

    def group(self, match: re.Match[str], number: int) -> _Text:
        """Return a group of a match in the text; an empty one at the end for a group that took no part."""
        return (
            self.part(*match.span(number)) if match.group(number) is not None else self.part(match.end(), match.end())
        )


_NOTHING = _Text("", 0)


@dataclass
class _OpenStep:
    """A step while its lines are read."""

    start: int
    outcome_start: int | None = None
    end: int = 0
    labels: dict[str, Span] = field(default_factory=dict)
    values: dict[str, _Text] = field(default_factory=dict)
    goals: list[GoalMark] = field(default_factory=list)
    goal_claims: list[Claim] = field(default_factory=list)
    checks: list[Claim] = field(default_factory=list)
    branches: list[Claim] = field(default_factory=list)

    def after(self, name: str) -> Span:
        """Return the label of the field that follows another; its own if none does."""
        own = self.labels[name]
        return next((span for span in self.labels.values() if span.start > own.start), own)

    def list_claims(self, part: Part, name: str) -> list[Claim]:
        """Return what a field that lists atoms claims."""
        if name not in self.values:
            return []
        found = [Claim(part, text.span(), literal) for literal, text in _placed_literals(self.values[name])]
        return [*found, Claim(part, self.after(name))]


def read_chain(completion: str, domain: Domain) -> ReadChain:
    """Return the claims of a completion, as far as it is well formed."""
    reader = _Reader(domain)
    fault = None
    try:
        for line in _lines(completion):
            reader.take(line)
        reader.finish()
    except _Fault as error:
        fault = str(error)
    if reader.spans:
        reader.spans[0] = replace(reader.spans[0], claims=(*reader.opening, *reader.spans[0].claims))
    else:
        reader.closing = [*reader.opening, *reader.closing]
    chain = Chain(tuple(reader.steps), reader.goal_check, reader.final_plan(), reader.verdict, reader.start)
    return ReadChain(
        chain,
        tuple(reader.spans),
        reader.plan_span,
        reader.verdict_span,
        fault,
        tuple(reader.closing),
        reader.broken_action,
    )


def read_literals(text: str) -> tuple[Literal, ...]:
    """Return the bracketed literals of a line, in order."""
    return tuple(literal for literal, _ in _placed_literals(_Text(text, 0)))


def _true_literals(text: _Text) -> list[tuple[Literal, _Text]]:
    """Return the facts of a state with their places; that others are false goes without saying, and may be said."""
    return [(literal, place) for literal, place in _placed_literals(text) if literal.is_positive]


def _placed_literals(line: _Text) -> Iterator[tuple[Literal, _Text]]:
    for match in _LITERAL.finditer(line.text):
        negated, plain = match.groups()
        words = (negated if negated is not None else plain).lower().split()
        if words:
            yield Literal(Atom(words[0], tuple(words[1:])), negated is None), line.part(*match.span())


class _Conditions:
    """Reads the conditions of lines, of any form; objects may be any, predicates and types are the domain's."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._known: dict[str, Condition | None] = {}

    @cached_property
    def _names(self) -> Names:
        return names_of(self.domain)

    def read(self, line: _Text) -> list[tuple[Condition, _Text]]:
        """Return the bracketed conditions of a line, in order; what cannot be read is passed over, as talk is."""
        if not _NO_LITERAL.search(line.text):
            return list(_placed_literals(line))
        found: list[tuple[Condition, _Text]] = []
        for group in _groups(line):
            if not _NO_LITERAL.match(group.text):
                found += _placed_literals(group)
            elif (condition := self._formula(group.text)) is not None:
                found.append((condition, group))
        return found

    def marks(self, line: _Text, match: re.Match[str], part: Part) -> Iterator[tuple[GoalMark, Claim]]:
        """Yield the conditions of a ``- (condition): TRUE`` line with their marks, and what a goal comes after."""
        is_true, mark = match.group(2).upper() == "TRUE", line.group(match, 2).span()
        after = tuple(condition for condition, _ in self.read(line.group(match, 3)))
        for condition, text in self.read(line.group(match, 1)):
            yield GoalMark(condition, is_true, after), Claim(part, text.span(), condition, is_true, mark)

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


def _groups(line: _Text) -> Iterator[_Text]:
    """Yield the outermost bracketed groups of a text; one that is not closed is none."""
    depth = start = 0
    for match in re.finditer(r"[()]", line.text):
        if match.group() == "(":
            start = start if depth else match.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield line.part(start, match.end())


def _atoms(line: _Text) -> tuple[Atom, ...]:
    return tuple(literal.atom for literal, _ in _placed_literals(line))


def _read_action(text: str) -> PlanStep | None:
    """Return the action that a text names, None if it names none."""
    try:
        return parse_step(text)
    except PddlParseError:
        return None


def _cost(text: str) -> StepCost | None:
    """Return the cost and the total of a line, None where it does not say both."""
    match = _COST.match(text)
    numbers = [read_number(word) for word in match.groups()] if match else [None]
    amount, total = numbers[0], numbers[-1]
    return None if amount is None or total is None else StepCost(amount, total)


def _lines(completion: str) -> Iterator[_Text]:
    for match in re.finditer(r"[^\n]+", completion):
        text = match.group().strip()
        if text:
            yield _Text(text, completion.index(text, match.start()))


def _split(line: _Text, pattern: re.Pattern[str], maxsplit: int = 0) -> list[_Text]:
    """Return the parts of a line between the matches of a pattern; at most so many matches, if not 0."""
    matches = list(pattern.finditer(line.text))[: maxsplit or None]
    starts, ends = [0, *(match.end() for match in matches)], [*(match.start() for match in matches), len(line.text)]
    return [line.part(start, end) for start, end in zip(starts, ends, strict=True)]


class _Reader:
    """Takes one line after another; the section in force says what a line may be."""

    def __init__(self, domain: Domain) -> None:
        self.conditions = _Conditions(domain)
        self.section = "start"
        self.steps: list[ChainStep] = []
        self.spans: list[StepSpans] = []
        self.start: tuple[Atom, ...] | None = None
        self.opening: list[Claim] = []
        self.goal_check: tuple[GoalMark, ...] | None = None
        self.closing: list[Claim] = []
        self.plan: list[PlanStep] | None = None
        self.plan_span: Span | None = None
        self.verdict: str | None = None
        self.verdict_span: Span | None = None
        self.open_step: _OpenStep | None = None
        self.broken_action: PlanStep | None = None

    def final_plan(self) -> tuple[PlanStep, ...] | None:
        """Return the final plan, or None when the section never came."""
        return None if self.plan is None else tuple(self.plan)

    def take(self, line: _Text) -> None:
        """Read one line."""
        if _STEP.match(line.text):
            self._enter("step", line)
            self.open_step = _OpenStep(line.start)
        elif line.text.upper().startswith("[GOAL CHECK]"):
            self._enter("goal", line)
            self.goal_check = ()
        elif line.text.upper().startswith("[FINAL PLAN]"):
            self._enter("plan", line)
            self.plan, self.plan_span = [], line.span()
        elif match := _VERDICT.match(line.text):
            self._enter("end", line)
            self.verdict = match.group(1).upper()
            self.verdict_span = line.group(match, 1).span()
        elif self.section == "start" and self.start is None and (match := _START.match(line.text)):
            placed = _true_literals(line.group(match, 1))
            self.start = tuple(literal.atom for literal, _ in placed)
            self.opening = [Claim(Part.START, text.span(), literal) for literal, text in placed]
            self.opening.append(Claim(Part.START, line.part(0, match.start(1)).span()))
        else:
            self._take_content(line)

    def _enter(self, section: str, line: _Text) -> None:
        """Close the section in force and begin the next; sections come in order, only steps repeat."""
        self.close_step()
        before, after = _SECTIONS.index(self.section), _SECTIONS.index(section)
        if after < before or (after == before and section != "step"):
            raise _Fault(f"section '{section}' after section '{self.section}'")
        if self.section == "goal":
            self.closing.append(Claim(Part.GOALS, line.span()))
        self.section = section

    def _take_content(self, line: _Text) -> None:
        if self.section == "step" and self.open_step is not None:
            self._take_field(self.open_step, line)
        elif self.section == "goal" and (match := _CHECK.match(line.text)):
            for mark, claim in self.conditions.marks(line, match, Part.GOALS):
                self.goal_check = (*(self.goal_check or ()), mark)
                self.closing.append(claim)
        elif self.section == "plan" and self.plan is not None and self.plan_span is not None:
            self.plan.append(self._step(line.text))
            self.plan_span = Span(self.plan_span.start, line.span().end)
        elif self.section == "end":
            raise _Fault(f"text after the verdict: {line.text[:60]!r}")

    def _take_field(self, step: _OpenStep, line: _Text) -> None:
        step.end = line.span().end
        if match := _FIELD.match(line.text):
            name = match.group(1).lower()
            if name in step.values:
                raise _Fault(f"step {len(self.steps) + 1}: '{name}' stands twice")
            step.values[name], step.labels[name] = line.group(match, 2), line.part(0, match.end(1)).span()
            if name == "action":
                self.broken_action = _read_action(match.group(2))
            if name == "preconditions":
                if "action" not in step.values:
                    raise _Fault(f"step {len(self.steps) + 1}: 'preconditions' before 'action'")
                step.outcome_start = line.start
        elif (told := self._branch(line)) is not None:
            step.branches.append(Claim(Part.BRANCH, line.span(), branch=told))
        elif match := _CHECK.match(line.text):
            if "preconditions" in step.values:
                step.checks += [claim for _, claim in self.conditions.marks(line, match, Part.PRECONDITIONS)]
                return
            for mark, claim in self.conditions.marks(line, match, Part.GOALS):
                step.goals.append(mark)
                step.goal_claims.append(claim)

    def _branch(self, line: _Text) -> Alternative | Backtrack | None:
        """Return what a line says of another action, or of a branch that fails; None if it says nothing of either."""
        if match := _INSTEAD.match(line.text):
            drawback = DRAWBACKS[match.group(2).lower()]
            undone = self.conditions.read(line.group(match, 3)) if drawback is Drawback.UNDOES else []
            return Alternative(self._step(match.group(1)), drawback, tuple(condition for condition, _ in undone))
        if match := _DEAD_BRANCH.match(line.text):
            branch = tuple(map(self._step, _ACTION.findall(match.group(1))))
            lacking = tuple(condition for condition, _ in self.conditions.read(line.group(match, 2)))
            back_to = None if match.group(4) is None else self._step(match.group(4))
            return Backtrack(branch, lacking, self._step(match.group(3)), back_to)
        return None

    def close_step(self) -> None:
        """Turn the lines of the open step into a claimed step."""
        step, self.open_step = self.open_step, None
        if step is None:
            return
        missing = [name for name in ("action", "preconditions", "applicable") if name not in step.values]
        if missing or step.outcome_start is None:
            raise _Fault(f"step {len(self.steps) + 1}: no line for {', '.join(missing)}")
        answer = _ANSWER.match(step.values["applicable"].text)
        if answer is None:
            raise _Fault(f"step {len(self.steps) + 1}: 'applicable' is neither YES nor NO")
        is_applicable = answer.group(1).upper() == "YES"
        if is_applicable and "next state" not in step.values:
            raise _Fault(f"step {len(self.steps) + 1}: no line for next state")
        applicable = Claim(
            Part.APPLICABLE, step.values["applicable"].group(answer, 1).span(), is_true=is_applicable
        )  # fmt: skip
        self._close(step, applicable)

    def _close(self, step: _OpenStep, applicable: Claim) -> None:
        """Keep a step, whose lines are all there, with its places."""
        purpose, support, supported = self._purpose(step.values.get("purpose", _NOTHING))
        placed = _true_literals(step.values.get("next state", _NOTHING)) if applicable.is_true else []
        self.steps.append(
            ChainStep(
                action=self._step(step.values["action"].text),
                preconditions=tuple(claim.condition for claim in step.checks if claim.condition is not None),
                unsatisfied=tuple(x.condition for x in step.checks if x.condition is not None and not x.is_true),
                added=_atoms(step.values.get("add", _NOTHING)),
                next_state=tuple(literal.atom for literal, _ in placed) if applicable.is_true else None,
                deleted=_atoms(step.values.get("delete", _NOTHING)),
                goal_check=tuple(step.goals) if "goals" in step.values else None,
                purpose=purpose,
                support=support,
                cost=_cost(step.values.get("cost", _NOTHING).text) if applicable.is_true else None,
                alternatives=tuple(one.branch for one in step.branches if isinstance(one.branch, Alternative)),
                backtracks=tuple(one.branch for one in step.branches if isinstance(one.branch, Backtrack)),
            )
        )
        claims = [*step.goal_claims, Claim(Part.GOALS, step.after("goals"))] if "goals" in step.values else []
        claims += [
            *supported,
            *step.branches,
            *step.checks,
            Claim(Part.PRECONDITIONS, step.after("preconditions")),
            applicable,
        ]
        if applicable.is_true:
            claims += [*step.list_claims(Part.ADDED, "add"), *step.list_claims(Part.DELETED, "delete")]
        assert step.outcome_start is not None
        self.spans.append(
            StepSpans(
                Span(step.start, step.outcome_start),
                Span(step.outcome_start, step.end),
                step.values["action"].span(),
                tuple(text.span() for _, text in placed),
                tuple(sorted(claims, key=lambda claim: claim.span.start)),
            )
        )
        self.broken_action = None

    def _purpose(self, line: _Text) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...], Sequence[Claim]]:
        """Return the conditions of a reason, what is said to settle each, and the latter as claims."""
        purpose: list[Condition] = []
        support: list[tuple[Condition, ...]] = []
        claims: list[Claim] = []
        for part in _split(line, _NEEDS):
            wanted, *settled = _split(part, _SINCE, maxsplit=1)
            conditions = [condition for condition, _ in self.conditions.read(wanted)]
            purpose += conditions
            support += [()] * len(conditions)
            if conditions and settled:
                told = self.conditions.read(settled[0])
                support[-1] = tuple(condition for condition, _ in told)
                claims += [Claim(Part.SUPPORT, text.span(), one, wanted=conditions[-1]) for one, text in told]
        return tuple(purpose), tuple(support), claims

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

"""Read a completion in the compact rendering back into claims.

The reader takes what it can: a malformed chain gives the steps before the fault and a sentence that says what is wrong
and at which word. A step at which the text ends is no claim: more of its state may have been to come. It never
repairs and never guesses; the verdict on such a rollout is the validator's business.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from plansmith.pddl.model import Atom, Domain, Literal, PlanStep
from plansmith.text.chains import INVALID, VALID, Chain, ChainStep, GoalMark, ReadChain, Span, StepSpans

NOT = "not:"
"""Marks the atom after it as negated."""

WANTED = "?"
"""Ends a predicate that is wanted (a goal, an aim, a need), not told of a state."""

_STEP_START = ("goals:", "aim:", "do:")


class _Fault(Exception):
    """The completion stops being well formed; stays within this module."""


class _Words:
    """The words of a completion with their places, read from left to right."""

    def __init__(self, completion: str, domain: Domain) -> None:
        self.words = completion.split()
        self._ends = _ends_of(self.words, completion)
        self.domain, self.position = domain, 0
        self._known: dict[tuple[str, ...], Literal] = {}
        self._lengths: dict[str, int] = {}

    def span(self, first: int, last: int) -> Span:
        """Return the characters of words `first` up to, not including, `last`."""
        end = self._ends[last - 1] if last else 0
        return Span(self._ends[first] - len(self.words[first]) if first < last else end, end)

    def peek(self) -> str | None:
        return self.words[self.position] if self.position < len(self.words) else None

    def take(self, expected: str) -> str:
        word = self.peek()
        if word != expected:
            raise _Fault(f"word {self.position + 1}: got {word or 'the end'!r}, expected {expected!r}")
        self.position += 1
        return expected

    def name(self) -> str:
        word = self.peek()
        if word is None or word.endswith(":"):
            raise _Fault(f"word {self.position + 1}: got {word or 'the end'!r}, expected a name")
        self.position += 1
        return word

    def literals(self, mark: str = "") -> tuple[Literal, ...]:
        """Take literals whose predicates end in `mark`."""
        found: list[Literal] = []
        words, known, lengths = self.words, self._known, self._lengths
        while self.position < len(words):
            word, start = words[self.position], self.position
            if word[-1] == ":" and word != NOT:
                break
            length = lengths.get(word, 0)
            literal = known.get((mark, *words[start : start + length]))
            if literal is None:
                found.append(self._literal(mark))
            else:  # as most of a state, which was told before
                found.append(literal)
                self.position = start + length
        return tuple(found)

    def _literal(self, mark: str) -> Literal:
        start, is_negative = self.position, self.peek() == NOT
        self.position += is_negative
        word = self.name()
        if not word.endswith(mark):
            raise _Fault(f"word {self.position}: got {word!r}, expected a wanted literal: {word}{mark}")
        predicate = word.removesuffix(mark)
        schema = self.domain.predicate(predicate)
        if schema is None and predicate != "=":
            raise _Fault(f"word {self.position}: got {word!r}, expected a predicate")
        arity = 2 if schema is None else len(schema.parameters)
        literal = Literal(Atom(predicate, tuple(self.name() for _ in range(arity))), not is_negative)
        if not is_negative:
            self._lengths[word] = 1 + arity
            self._known[(mark, *self.words[start : self.position])] = literal
        return literal

    def goal_check(self) -> tuple[GoalMark, ...]:
        self.take("goals:")
        marks: list[GoalMark] = []
        while (word := self.peek()) is not None and (word == NOT or not word.endswith(":")):
            literals = self.literals(WANTED)
            after: tuple[Literal, ...] = ()
            if is_later := self.peek() == "after:":
                self.position += 1
                after = self.literals(WANTED)
            expected = ("met:", "later:" if is_later else "unmet:")
            if len(literals) != 1 or self.peek() not in expected:
                got, wanted = self.peek() or "the end", " or ".join(expected)
                raise _Fault(f"word {self.position + 1}: got {got!r}, expected {wanted}")
            marks.append(GoalMark(literals[0], self.peek() == "met:", after))
            self.position += 1
        return tuple(marks)

    def purpose(self) -> tuple[tuple[Literal, ...], tuple[tuple[Literal, ...], ...]]:
        """Take an aim and the needs that follow from it, and what is said to be there of each."""
        purpose: list[Literal] = []
        support: list[tuple[Literal, ...]] = []
        while self.peek() in ("aim:", "need:"):
            self.position += 1
            wanted = self.literals(WANTED)
            purpose += wanted
            support += [()] * len(wanted)
            if self.peek() == "since:" and wanted:
                self.position += 1
                support[-1] = self.literals()
        return tuple(purpose), tuple(support)

    def atoms(self) -> tuple[Atom, ...]:
        start, literals = self.position, self.literals()
        if not all(literal.is_positive for literal in literals):
            raise _Fault(f"word {start + 1}: a state lists true atoms only")
        return tuple(literal.atom for literal in literals)

    def step(self) -> PlanStep:
        name = self.name()
        schema = self.domain.action(name)
        if schema is None:
            raise _Fault(f"word {self.position}: got {name!r}, expected an action")
        return PlanStep(name, tuple(self.name() for _ in schema.parameters))


def _ends_of(words: Sequence[str], completion: str) -> Sequence[int]:
    """Return where each word of a completion ends; most are told with one space between words."""
    if " ".join(words) == completion:
        return [end + place for place, end in enumerate(accumulate(map(len, words)))]
    return [match.end() for match in re.finditer(r"\S+", completion)]


def read_chain(completion: str, domain: Domain) -> ReadChain:
    """Return the claims of a completion, as far as it is well formed."""
    words = _Words(completion, domain)
    steps: list[ChainStep] = []
    spans: list[StepSpans] = []
    end = _End()
    fault = None
    try:
        while words.peek() in _STEP_START and not _is_closing(words):
            step, span = _read_step(words)
            steps.append(step)
            spans.append(span)
        _read_end(words, end)
    except _Fault as error:
        fault = str(error)
    chain = Chain(tuple(steps), end.goal_check, end.final_plan, end.verdict)
    if end.final_plan is None and end.verdict is not None:
        chain = replace(chain, final_plan=chain.plan_of_steps)
    return ReadChain(chain, tuple(spans), end.plan_span, end.verdict_span, fault)


@dataclass
class _End:
    goal_check: tuple[GoalMark, ...] | None = None
    final_plan: tuple[PlanStep, ...] | None = None
    plan_span: Span | None = None
    verdict: str | None = None
    verdict_span: Span | None = None


def _is_closing(words: _Words) -> bool:
    """Return whether the ``goals:`` here is the last goal check: no action follows it."""
    if words.peek() != "goals:":
        return False
    marks = ("met:", "unmet:", "after:", "later:", NOT)
    following = islice(words.words, words.position + 1, None)
    return next((word for word in following if word.endswith(":") and word not in marks), None) not in ("aim:", "do:")


def _read_step(words: _Words) -> tuple[ChainStep, StepSpans]:
    start = words.position
    goal_check = words.goal_check() if words.peek() == "goals:" else None
    purpose, support = words.purpose()
    words.take("do:")
    action, outcome_start = words.step(), words.position
    words.take("check:")
    preconditions = words.literals()
    unsatisfied: tuple[Literal, ...] = ()
    added: tuple[Atom, ...] = ()
    next_state: tuple[Atom, ...] | None = None
    if words.peek() == "fails:":
        words.take("fails:")
        unsatisfied = words.literals()
        preconditions += unsatisfied
    else:
        words.take("ok:")
        words.take("add:")
        added = words.atoms()
        words.take("now:")
        next_state = words.atoms()
    if words.peek() is None:
        raise _Fault(f"word {words.position + 1}: got 'the end', expected the next step or the goal check")
    step = ChainStep(action, preconditions, unsatisfied, added, (), next_state, goal_check, purpose, support)
    end = words.position
    return step, StepSpans(words.span(start, outcome_start), words.span(outcome_start, end))


def _read_end(words: _Words, end: _End) -> None:
    if words.peek() == "goals:":
        end.goal_check = words.goal_check()
    if words.peek() == "final:":
        start = words.position
        words.take("final:")
        plan = []
        while (word := words.peek()) is not None and not word.endswith(":"):
            plan.append(words.step())
        end.final_plan, end.plan_span = tuple(plan), words.span(start, words.position)
    words.take("verdict:")
    verdict = words.peek()
    if verdict not in (VALID, INVALID):
        raise _Fault(f"word {words.position + 1}: got {verdict or 'the end'!r}, expected VALID or INVALID")
    words.position += 1
    end.verdict, end.verdict_span = verdict, words.span(words.position - 1, words.position)
    if words.peek() is not None:
        raise _Fault(f"word {words.position + 1}: got {words.peek()!r}, expected the end")

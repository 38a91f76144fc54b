"""Read a completion in the compact rendering back into claims.

The reader takes what it can: a malformed chain gives the steps before the fault and a sentence that says what is wrong
and at which word. A step at which the text ends is no claim: more of its state may have been to come. It never
repairs and never guesses; the verdict on such a rollout is the validator's business.

Actions and states are what a plan is made of, and are read strictly. A reason (a goal check, an aim, a need, what is
there of it, what else could be done) is not: one that cannot be read is passed over up to the next marker that is none
of its own, and is a claim that nothing can prove right (`Part.UNREAD`). So a chain with a garbled reason is still
judged as a plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, takewhile
from typing import NamedTuple, TypeVar

from plansmith.pddl.matching import is_variable
from plansmith.pddl.model import Atom, Condition, Domain, Literal, PlanStep
from plansmith.text.chains import (
    INVALID,
    VALID,
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
    StepSpans,
)

NOT = "not:"
"""Marks the atom after it as negated."""

WANTED = "?"
"""Ends a predicate that is wanted (a goal, an aim, a need), not told of a state."""

DRAWBACKS = {
    "undoes:": Drawback.UNDOES,
    "returns:": Drawback.RETURNS,
    "longer:": Drawback.LONGER,
    "dead:": Drawback.DEAD_END,
}
"""What follows another action: why it is not taken."""

_REASONS = ("aim:", "need:", "other:", "try:")
_WITHIN_REASONS = (
    "since:", "met:", "unmet:", "order:", "after:", "later:", "ready:", *DRAWBACKS, "then:", "blocked:", "by:", "back:"
)  # fmt: skip
_AFTER_REASONS = (
    "goals:", *_REASONS, "do:", "check:", "ok:", "fails:", "add:", "delete:", "now:", "final:", "verdict:"
)  # fmt: skip
_STEP_START = ("goals:", *_REASONS, *_WITHIN_REASONS, "do:")


_Branch = TypeVar("_Branch", Alternative, Backtrack)


class _Fault(Exception):
    """The completion stops being well formed at a word, counted from 0; stays within this module."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"word {position + 1}: {problem}")
        self.position = position


class _Placed(NamedTuple):
    """A literal, its first word, and the word after it."""

    literal: Literal
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Reason:
    """What is wanted, the action that shall bring it about where one is named, and what is said to be there of it."""

    wanted: Literal
    support: tuple[Literal, ...] = ()
    servant: PlanStep | None = None


class _Words:
    """The words of a completion with their places, read from left to right; ``claims`` are those of the open step."""

    def __init__(self, completion: str, domain: Domain, *, is_told: bool = False) -> None:
        self.words = completion.split()
        self.is_told = is_told
        self._ends = _ends_of(self.words, completion)
        self.domain, self.position = domain, 0
        self.claims: list[Claim] = []
        self.broken_action: PlanStep | None = None
        self._known: dict[tuple[str, ...], Literal] = {}
        self._lengths: dict[str, int] = {}

    def span(self, first: int, last: int) -> Span:
        """Return the characters of words `first` up to, not including, `last`."""
        end = self._ends[last - 1] if last else 0
        return Span(self._ends[first] - len(self.words[first]) if first < last else end, end)

    def peek(self) -> str | None:
        return self.words[self.position] if self.position < len(self.words) else None

    def fault(self, expected: str) -> _Fault:
        """Return that another word stands here than was expected."""
        return _Fault(self.position, f"got {self.peek() or 'the end'!r}, expected {expected}")

    def take(self, expected: str) -> Span:
        if self.peek() != expected:
            raise self.fault(repr(expected))
        self.position += 1
        return self.span(self.position - 1, self.position)

    def name(self) -> str:
        word = self.peek()
        if word is None or word.endswith(":"):
            raise self.fault("a name")
        self.position += 1
        return word

    def literals(self, mark: str = "") -> list[_Placed]:
        """Take literals whose predicates end in `mark`."""
        found = []
        while self._is_literal():
            found.append(self.literal(mark))
        return found

    def literal(self, mark: str = "") -> _Placed:
        start = self.position
        length = self._lengths.get(self.words[start], 0) if start < len(self.words) else 0
        known = self._known.get((mark, *self.words[start : start + length])) if length else None
        if known is None:
            return _Placed(self._new_literal(mark), start, self.position)
        self.position = start + length  # as most of a state, which was told before
        return _Placed(known, start, self.position)

    def _new_literal(self, mark: str, objects: dict[str, str] | None = None) -> Literal:
        """Take a literal whose predicate ends in `mark`.

        Args:
            mark: of what is wanted, or none.
            objects: of variables, one of which may stand before each object; more are noted. None: no variable does.
        """
        start, is_negative = self.position, self.peek() == NOT
        self.position += is_negative
        word = self.name()
        if not word.endswith(mark):
            raise _Fault(self.position - 1, f"got {word!r}, expected a wanted literal: {word}{mark}")
        predicate = word.removesuffix(mark)
        schema = self.domain.predicate(predicate)
        if schema is None and predicate != "=":
            raise _Fault(self.position - 1, f"got {word!r}, expected a predicate")
        arity = 2 if schema is None else len(schema.parameters)
        arguments = tuple(self.name() if objects is None else self._bound(objects) for _ in range(arity))
        literal = Literal(Atom(predicate, arguments), not is_negative)
        if not is_negative and objects is None:
            self._lengths[word] = 1 + arity
            self._known[(mark, *self.words[start : self.position])] = literal
        return literal

    def goal_check(self) -> tuple[GoalMark, ...]:
        """Take a goal check, as far as it can be read."""
        self.take("goals:")
        marks: list[GoalMark] = []
        try:
            while self._is_literal():
                marks.append(self._goal_mark())
            if self.peek() in _WITHIN_REASONS and (self.peek() != "order:" or not marks):
                raise self.fault("a goal")
            if self.peek() is not None:
                self.claims.append(Claim(Part.GOALS, self.span(self.position, self.position + 1)))
            if self.peek() == "order:":
                order = self._order()
                marks = [replace(mark, after=order.get(mark.condition, ())) for mark in marks]
        except _Fault as error:
            self._pass_over(error)
        return tuple(marks)

    def _goal_mark(self) -> GoalMark:
        goal, first, last = self.literal(WANTED)
        word = self.peek()
        if word not in ("met:", "unmet:"):
            raise self.fault("met: or unmet:")
        mark = self.take(word)
        self.claims.append(Claim(Part.GOALS, self.span(first, last), goal, word == "met:", mark))
        return GoalMark(goal, word == "met:")

    def _order(self) -> dict[Condition, tuple[Literal, ...]]:
        """Take what goals should wait for."""
        start = self.take("order:")
        order: dict[Condition, tuple[Literal, ...]] = {}
        while self._is_literal():
            goal, first, last = self.literal(WANTED)
            if (word := self.peek()) not in ("after:", "ready:"):
                raise self.fault("after: or ready:")
            mark = self.take(word)
            self.claims.append(Claim(Part.ORDER, self.span(first, last), goal, word == "ready:", mark))
            if word == "after:":
                order[goal] = self._waited_for(goal)
        if self.peek() in _WITHIN_REASONS:
            raise self.fault("a goal")
        if self.peek() is not None:
            self.claims.append(Claim(Part.ORDER, self.span(self.position, self.position + 1), mark=start))
        return order

    def _waited_for(self, goal: Literal) -> tuple[Literal, ...]:
        """Take what one goal should wait for."""
        found = self.literals(WANTED)
        for literal, first, last in found:
            self.claims.append(Claim(Part.ORDER, self.span(first, last), literal, wanted=goal))
        self.claims.append(Claim(Part.ORDER, self.take("later:"), wanted=goal))
        return tuple(placed.literal for placed in found)

    def _is_literal(self) -> bool:
        """Return whether what comes next is no marker."""
        return (word := self.peek()) is not None and (word == NOT or not word.endswith(":"))

    def purpose(self) -> list[_Reason]:
        """Take an aim and the needs that follow from it, and what is said to be there of each, as far as it is clear.

        What belongs to no reason is one that cannot be read.
        """
        reasons: list[_Reason] = []
        while (word := self.peek()) is not None and (word in _REASONS or word not in _AFTER_REASONS):
            try:
                self._reason(reasons)
            except _Fault as error:
                self._pass_over(error)
        return reasons

    def _reason(self, reasons: list[_Reason]) -> None:
        if self.peek() not in _REASONS:
            raise self.fault("a reason")
        if self.peek() in ("other:", "try:"):
            start, told = self.position, self._alternative() if self.peek() == "other:" else self._backtrack()
            self.claims.append(Claim(Part.BRANCH, self.span(start, self.position), branch=told))
            return
        self.position += 1
        if self.is_told:
            self._told_reason(reasons)
            return
        wanted = self.literals(WANTED)
        reasons += [_Reason(placed.literal) for placed in wanted]
        if self.peek() == "since:" and wanted:
            self.position += 1
            while self._is_literal():
                literal, first, last = self.literal()
                reasons[-1] = replace(reasons[-1], support=(*reasons[-1].support, literal))
                self.claims.append(Claim(Part.SUPPORT, self.span(first, last), literal, wanted=reasons[-1].wanted))

    def _told_reason(self, reasons: list[_Reason]) -> None:
        """Take a reason as `plansmith.text.told` has it: an effect of an action, and the preconditions of this."""
        objects: dict[str, str] = {}
        wanted = self._new_literal(WANTED, objects)
        while is_variable(self.peek() or ""):
            self._bound(objects)
        name = self.name() if self._is_literal() else ""
        action = self.domain.action(name)
        if name and action is None:
            raise _Fault(self.position - 1, f"got {name!r}, expected an action")
        support = []
        if self.peek() == "since:":
            self.position += 1
            while self._is_literal():
                support += self._marked_support(wanted, objects)
        parameters = [] if action is None else [typed.name for typed in action.parameters]
        if missing := [name for name in parameters if name not in objects]:
            raise self.fault(repr(missing[0]))
        servant = PlanStep(name, tuple(objects[name] for name in parameters)) if name else None
        reasons.append(_Reason(wanted, tuple(support), servant))

    def _marked_support(self, wanted: Literal, objects: dict[str, str]) -> list[Literal]:
        """Take what is said to be there, or to be lacking; return the former."""
        start = self.position
        literal, last = self._new_literal("", objects), self.position
        mark = self.take(word) if (word := self.peek()) in ("met:", "unmet:") else None
        is_true = mark is None or word == "met:"
        self.claims.append(Claim(Part.SUPPORT, self.span(start, last), literal, is_true, mark, wanted))
        return [literal] if is_true else []

    def _bound(self, objects: dict[str, str]) -> str:
        """Take an object, and note which variable it stands for, if one is named."""
        word = self.name()
        if not is_variable(word):
            return word
        known = objects.get(word)
        if known is not None and self.peek() != known:
            raise self.fault(repr(known))
        objects[word] = self.name()
        return objects[word]

    def _alternative(self) -> Alternative:
        """Take another action, and why it is not taken."""
        self.take("other:")
        action, word = self.step(), self.peek()
        if word not in DRAWBACKS:
            raise self.fault(f"one of {' '.join(DRAWBACKS)}")
        self.position += 1
        undone = self.literals(WANTED) if DRAWBACKS[word] is Drawback.UNDOES else []
        return Alternative(action, DRAWBACKS[word], tuple(placed.literal for placed in undone))

    def _backtrack(self) -> Backtrack:
        """Take a branch that is said to fail."""
        self.take("try:")
        branch = [self.step()]
        while self.peek() == "then:":
            self.position += 1
            branch.append(self.step())
        self.take("blocked:")
        unsatisfied = tuple(placed.literal for placed in self.literals())
        self.take("by:")
        culprit = self.step()
        self.take("back:")
        return Backtrack(tuple(branch), unsatisfied, culprit, self.step() if self._is_literal() else None)

    def _pass_over(self, error: _Fault) -> None:
        """Go on after a reason that cannot be read.

        Raises:
            _Fault: `error`, where the text ends with the reason.
        """
        while (word := self.peek()) is not None and word not in _AFTER_REASONS:
            self.position += 1
        if word is None:
            raise error
        self.claims.append(Claim(Part.UNREAD, self.span(error.position, error.position + 1), fault=str(error)))

    def branches(self, kind: type[_Branch]) -> tuple[_Branch, ...]:
        """Return the branches of a kind that the open step claims."""
        return tuple(claim.branch for claim in self.claims if isinstance(claim.branch, kind))

    def changes(self, step: PlanStep) -> tuple[tuple[Atom, ...], tuple[Span, ...]]:
        """Take the atoms that a step is said to change, each object after its variable where variables are told."""
        schema = self.domain.action(step.name)
        if not self.is_told or schema is None:
            return self.atoms()
        objects = dict(zip((typed.name for typed in schema.parameters), step.arguments, strict=True))
        first, found = self.position, list[_Placed]()
        while self._is_literal():
            start = self.position
            found.append(_Placed(self._new_literal("", dict(objects)), start, self.position))
        return self._atoms_of(first, found)

    def atoms(self) -> tuple[tuple[Atom, ...], tuple[Span, ...]]:
        """Take atoms, with their places."""
        return self._atoms_of(self.position, self.literals())

    def _atoms_of(self, start: int, found: Sequence[_Placed]) -> tuple[tuple[Atom, ...], tuple[Span, ...]]:
        if not all(placed.literal.is_positive for placed in found):
            raise _Fault(start, "a state lists true atoms only")
        return tuple(placed.literal.atom for placed in found), tuple(self.span(one.first, one.last) for one in found)

    def step(self) -> PlanStep:
        name = self.name()
        schema = self.domain.action(name)
        if schema is None:
            raise _Fault(self.position - 1, f"got {name!r}, expected an action")
        return PlanStep(name, tuple(self._argument(typed.name) for typed in schema.parameters))

    def _argument(self, parameter: str) -> str:
        """Take an argument, after its parameter where parameters are told."""
        if self.is_told:
            self.take(parameter)
        return self.name()

    def told_action(self) -> PlanStep | None:
        """Return the names that stand here as an action, whether there is one; None where the text ends with them."""
        names = list(takewhile(lambda word: not word.endswith(":"), islice(self.words, self.position, None)))
        is_whole = self.position + len(names) < len(self.words)
        if self.is_told:
            names = [word for word in names if not is_variable(word)]
        return PlanStep(names[0], tuple(names[1:])) if names and is_whole else None


def _ends_of(words: Sequence[str], completion: str) -> Sequence[int]:
    """Return where each word of a completion ends; most are told with one space between words."""
    if " ".join(words) == completion:
        return [end + place for place, end in enumerate(accumulate(map(len, words)))]
    return [match.end() for match in re.finditer(r"\S+", completion)]


def read_chain(completion: str, domain: Domain, *, is_told: bool = False) -> ReadChain:
    """Return the claims of a completion, as far as it is well formed.

    Args:
        completion: of a policy.
        domain: whose predicates and actions it names.
        is_told: as `plansmith.text.told` writes it, with what this adds.
    """
    words = _Words(completion, domain, is_told=is_told)
    steps: list[ChainStep] = []
    spans: list[StepSpans] = []
    end = _End()
    start: _Start = _Start()
    fault = None
    try:
        if words.peek() == "now:":
            start = _read_start(words)
        while words.peek() in _STEP_START and not _is_closing(words):
            step, span = _read_step(words)
            steps.append(step)
            spans.append(span)
        _read_end(words, end)
    except _Fault as error:
        fault = str(error)
    if spans:
        spans[0] = replace(spans[0], claims=(*start.claims, *spans[0].claims))
    else:
        end.claims = (*start.claims, *end.claims)
    chain = Chain(tuple(steps), end.goal_check, end.final_plan, end.verdict, start.state)
    if end.final_plan is None and end.verdict is not None:
        chain = replace(chain, final_plan=chain.plan_of_steps)
    return ReadChain(
        chain, tuple(spans), end.plan_span, end.verdict_span, fault, tuple(end.claims), words.broken_action
    )


class _Start(NamedTuple):
    """The state that a chain says it starts from, if it does, and what it claims so."""

    state: tuple[Atom, ...] | None = None
    claims: tuple[Claim, ...] = ()


def _read_start(words: _Words) -> _Start:
    mark = words.take("now:")
    state, places = words.atoms()
    claims = (Claim(Part.START, place, Literal(atom)) for atom, place in zip(state, places, strict=True))
    return _Start(state, (*claims, Claim(Part.START, mark)))


@dataclass
class _End:
    goal_check: tuple[GoalMark, ...] | None = None
    claims: Sequence[Claim] = ()
    final_plan: tuple[PlanStep, ...] | None = None
    plan_span: Span | None = None
    verdict: str | None = None
    verdict_span: Span | None = None


def _is_closing(words: _Words) -> bool:
    """Return whether the ``goals:`` here is the last goal check: no action follows it."""
    if words.peek() != "goals:":
        return False
    following = islice(words.words, words.position + 1, None)
    return next((word for word in following if word in _AFTER_REASONS), None) not in (*_REASONS, "do:")


def _read_step(words: _Words) -> tuple[ChainStep, StepSpans]:
    start, words.claims, words.broken_action = words.position, [], None
    goal_check = words.goal_check() if words.peek() == "goals:" else None
    reasons = words.purpose()
    words.take("do:")
    words.broken_action = words.told_action()
    action_start, action, outcome_start = words.position, words.step(), words.position
    words.take("check:")
    checked = words.literals()
    unsatisfied: Mapping[Condition, Span] = {}
    added: tuple[Atom, ...] = ()
    deleted: tuple[Atom, ...] = ()
    changes: list[Claim] = []
    next_state: tuple[Atom, ...] | None = None
    state: tuple[Span, ...] = ()
    if words.peek() == "fails:":
        mark = words.take("fails:")
        unsatisfied = {one.literal: words.span(one.first, one.last) for one in words.literals()}
    else:
        mark = words.take("ok:")
        words.take("add:")
        added, places = words.changes(action)
        changes += _listed(Part.ADDED, added, places)
        if words.is_told:
            changes.append(Claim(Part.ADDED, words.take("delete:")))
            deleted, places = words.changes(action)
            changes += _listed(Part.DELETED, deleted, places)
        changes.append(Claim(Part.DELETED if words.is_told else Part.ADDED, words.take("now:")))
        next_state, state = words.atoms()
    if words.peek() is None:
        raise words.fault("the next step or the goal check")
    end, is_applicable = words.position, next_state is not None
    words.claims += [*_checks(words, checked, unsatisfied, mark, is_applicable=is_applicable), *changes]
    preconditions = tuple(dict.fromkeys([*(one.literal for one in checked), *unsatisfied]))
    step = ChainStep(
        action, preconditions, tuple(unsatisfied), added, deleted, next_state, goal_check,
        tuple(reason.wanted for reason in reasons), tuple(reason.support for reason in reasons),
        tuple(reason.servant for reason in reasons),
        alternatives=words.branches(Alternative), backtracks=words.branches(Backtrack),
    )  # fmt: skip
    spans = StepSpans(
        words.span(start, outcome_start),
        words.span(outcome_start, end),
        words.span(action_start, outcome_start),
        state,
        tuple(words.claims),
    )
    words.broken_action = None
    return step, spans


def _listed(part: Part, atoms: Sequence[Atom], places: Sequence[Span]) -> list[Claim]:
    """Return the claims of what an action changes."""
    return [Claim(part, place, Literal(atom)) for atom, place in zip(atoms, places, strict=True)]


def _checks(
    words: _Words, checked: Sequence[_Placed], unsatisfied: Mapping[Condition, Span], mark: Span, *, is_applicable: bool
) -> list[Claim]:
    """Return the claims of a precondition check, in the order of the text.

    One that fails need not be whole: it ends at the first precondition that is false.

    Args:
        words: read up to its end.
        checked: the preconditions that it lists.
        unsatisfied: those that it says are false, with their places.
        mark: the word ``ok:`` or ``fails:``.
        is_applicable: which of both.
    """
    all_true = mark if is_applicable else words.span(words.position, words.position + 1)
    listed = [Claim(Part.PRECONDITIONS, words.span(first, last), literal, literal not in unsatisfied,
                    unsatisfied.get(literal, all_true)) for literal, first, last in checked]  # fmt: skip
    known = {claim.condition for claim in listed}
    further = [Claim(Part.PRECONDITIONS, place, literal, is_true=False, mark=place)
               for literal, place in unsatisfied.items() if literal not in known]  # fmt: skip
    whole = [Claim(Part.PRECONDITIONS, mark)] if is_applicable else []
    return [*listed, *further, *whole, Claim(Part.APPLICABLE, mark, is_true=is_applicable)]


def _read_end(words: _Words, end: _End) -> None:
    words.claims = []
    if words.peek() == "goals:":
        end.goal_check, end.claims = words.goal_check(), words.claims
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
        raise words.fault("VALID or INVALID")
    words.position += 1
    end.verdict, end.verdict_span = verdict, words.span(words.position - 1, words.position)
    if words.peek() is not None:
        raise words.fault("the end")

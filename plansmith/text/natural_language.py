"""Problems, plans and domains in words, by templates: nothing of their structure is left out, and no name changed.

The words of a domain come from its ``phrases.yaml`` (`Phrases`); what is said around them is a `Frame`: a wording of
the sections and a layout. Rule- and template-based, structure-preserving descriptions as in NL-PDDL-Bench
(arXiv 2606.29700, sec. 3.2), whose templates are not published: these are our own. Problems can be read back
(`natural_language_reader`), and so can domains that are called as their texts call them (`domain_text_reader`); plans
are written only.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.groups import grouped
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    TOTAL_COST,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    Conjunction,
    CostIncrease,
    Disjunction,
    Domain,
    Effect,
    FunctionSchema,
    Implication,
    Literal,
    Negation,
    PlanStep,
    Problem,
    Quantification,
    TypedName,
    UniversalEffect,
    literals_in,
    literals_of,
)
from plansmith.pddl.problem_reader import TOTAL_TIME

NAME = r"[a-z0-9_-]+"
"""Names that can be told from the words and stops around them: those of the PDDL standard."""

EITHER = " or else "
"""Between the types of one object; a noun such as "car or lorry" stays one noun."""
NOT = "it is not the case that "
SAME = "{0} is the same as {1}"
NO_FACTS = "nothing"
KINDS, FACTS = "Kinds of objects", "Facts that there can be"
"""What a domain's types and predicates stand below."""
KIND, ONLY_KIND = "every {0} is {1}", "all objects are {0}"
"""What is said of each type, and where there are none."""
ACTION = "Action"
"""What an action begins with, before its name."""
ABOUT = "It is about"
"""What the parameters of an action stand below."""
THINGS = "What there is"
"""What the objects of a problem stand below, where each has a line."""
NO_OBJECTS = "There are no objects to begin with."
ALL, SOME, NONE = "all of these", "at least one of these", "this is not the case"
IF = "if the first of these holds, the second does"
WHEN = "if the first of these holds before it, the second comes about"
EVERY, ANY = "every", "at least one"
HEADS = (ALL, SOME, NONE, IF, WHEN, f"for {EVERY}", f"for {ANY}")
"""What stands above the parts of a condition or a change; with the last two, kinds and names."""
NO_NEED, TRUE, FALSE = "nothing at all", "in any case", "in no case"
"""What is said of an action that needs nothing, and of conditions without parts."""
BEGINS, ENDS = "from then on", "no longer"
"""What stands before a fact that an action brings about, or ends."""
CLOSING = (
    "What an action is not said to change stays as it is. What it changes under a condition depends on how things "
    "stand before it. A fact that it both ends and brings about holds afterwards."
)
"""The last paragraph of a domain."""
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

_POSITION = re.compile(r"\{(\d+)\}")


class Layout(Enum):
    """How the facts of a section are set."""

    PROSE = "one paragraph, a sentence a fact"
    LIST = "an item a fact"
    GROUPED = "a line for all facts of one predicate"


@dataclass(frozen=True, slots=True)
class Wording:
    """What stands around the phrases of a domain; headings come without a stop."""

    opening: str
    """Before and after the topic, ``{0}``."""
    start: str
    values: str
    goal: str
    cheap: str
    """The total cost is to be minimised."""
    short: str
    """The number of steps is to be minimised."""
    needs: str
    changes: str


WORDINGS = (
    Wording(
        opening="{0}",
        start="At the start, this holds and nothing else",
        values="These numbers are given",
        goal="This has to hold in the end",
        cheap="The total cost should be as small as possible.",
        short="The plan should have as few steps as possible.",
        needs="It can be done only if",
        changes="What it changes",
    ),
    Wording(
        opening="Here is a planning problem. {0}",
        start="The following is true to begin with, and all else is false",
        values="The following numbers matter",
        goal="The goal is this",
        cheap="Find a plan of least total cost.",
        short="Find a plan of the fewest steps.",
        needs="Before it, this must be true",
        changes="After it",
    ),
    Wording(
        opening="Imagine this. {0}",
        start="Now the situation is as follows, with nothing true beyond it",
        values="You know these numbers",
        goal="You want to reach a situation like this",
        cheap="You want to keep the total cost as low as you can.",
        short="You want to take as few steps as you can.",
        needs="You need",
        changes="You bring about",
    ),
    Wording(
        opening="{0} You are asked for a plan.",
        start="Initially these statements are true, and only these",
        values="The known quantities",
        goal="Statements to make true",
        cheap="Plans are compared by total cost; the least is best.",
        short="Plans are compared by their number of steps; the fewest are best.",
        needs="Conditions",
        changes="Consequences",
    ),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """All of a description that is the same in every domain."""

    wording: Wording
    layout: Layout


FRAMES = tuple(Frame(WORDINGS[i % 4], tuple(Layout)[(i + i // 4) % 3]) for i in range(12))
"""Every wording with every layout."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """A fact in words; `group` is its predicate."""

    group: str
    text: str
    begins_with_name: bool = False

    @property
    def capitalised(self) -> str:
        return self.text if self.begins_with_name else capital(self.text)


def problem_text(
    domain: Domain,
    phrases: Phrases,
    problem: Problem,
    *,
    phrasing: int,
    mixing: random.Random | None = None,
    one_by_one: bool = False,
) -> str:
    """Return a problem in words: topic, objects, initial facts, function values, goal and metric.

    Args:
        domain: of the problem.
        phrases: of the domain.
        problem: what is said.
        phrasing: chooses among the phrasings of the domain and among `FRAMES`, each modulo its number.
        mixing: draws a phrasing for each fact, value and goal; then `phrasing` chooses the frame only.
        one_by_one: give each object a line instead of all of a type a sentence.

    Raises:
        BadInputError: a goal that is empty or no conjunction of literals, a name other than of lower-case letters,
            digits, ``-`` and ``_``, a predicate without phrases, or a phrase that does not fit its arguments.
    """
    frame = FRAMES[phrasing % len(FRAMES)]
    wording, phrasings = frame.wording, itertools.repeat(phrasing) if mixing is None else _drawn(mixing)
    goal = _goal(phrases, problem.goal, phrasings)
    _check_names(problem)
    facts = [_fact(phrases, atom, next(phrasings)) for atom in problem.init] or [_Clause("", NO_FACTS)]
    values = [_value(phrases, known.term, str(known.value), next(phrasings)) for known in problem.function_values]
    _check_types(domain, problem.objects)
    if one_by_one:
        listed = [f"{typed.name}, {_kind(phrases, typed.types)}" for typed in problem.objects]
        things = _items(THINGS, listed or [NO_FACTS])
    else:
        said = _object_sentences(phrases, problem.objects)
        things = (" " if frame.layout is Layout.PROSE else "\n").join(said)
    blocks = [
        opening_of(wording, phrases),
        things,
        _block(wording.start, facts, frame.layout),
        _block(wording.values, values, frame.layout) if values else "",
        _block(wording.goal, goal, frame.layout),
        metric_sentences(wording)[problem.metric] if problem.metric else "",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def plan_text(phrases: Phrases, plan: Iterable[PlanStep], *, phrasing: int) -> str:
    """Return a plan as numbered instructions, one a line.

    Raises:
        BadInputError: an action without phrases, or with another number of arguments than its phrase.
    """
    steps = [_instruction(phrases, step.name, step.arguments, phrasing).capitalised for step in plan]
    return "".join(f"{number}. {text}.\n" for number, text in enumerate(steps, 1)) or "Nothing needs to be done.\n"


def domain_text(domain: Domain, phrases: Phrases, *, phrasing: int) -> str:
    """Return a domain in words: types, constants, facts, rules, numbers and actions. Variables are in capitals."""
    return "\n\n".join(filter(None, _DomainWriter(domain, phrases, phrasing).blocks())) + "\n"


def opening_of(wording: Wording, phrases: Phrases) -> str:
    """Return the first line of a description."""
    return wording.opening.replace("{0}", " ".join(phrases.topic.split()))


def metric_sentences(wording: Wording) -> dict[str, str]:
    """Return what is said of each metric."""
    return {TOTAL_COST: wording.cheap, TOTAL_TIME: wording.short}


def predicate_phrase(phrases: Phrases, name: str, phrasing: int) -> str:
    """Return the template of a predicate's facts, equality included."""
    return SAME if name == EQUALITY else _chosen(phrases.predicates, name, phrasing, "predicate")


def function_phrase(phrases: Phrases, name: str, arity: int, phrasing: int) -> str:
    """Return the template of a function's value, the last position; a fixed one for functions without phrases."""
    if name in phrases.functions:
        return _chosen(phrases.functions, name, phrasing, "function")
    subject = "the total cost so far" if name == TOTAL_COST else f"the number {name}"
    terms = _listed([f"{{{position}}}" for position in range(arity)])
    return f"{subject} of {terms} is {{{arity}}}" if terms else f"{subject} is {{0}}"


def noun_of(phrases: Phrases, type_name: str) -> tuple[str, str]:
    """Return singular and plural of a type: those of its phrases, or its own name."""
    return phrases.types.get(type_name, (type_name, f"{type_name}s"))


@lru_cache(maxsize=4096)
def cut(template: str) -> tuple[str | int, ...]:
    """Return the words of a template, as they stand, and the positions between them; empty words are left out."""
    parts = _POSITION.split(template)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts) if part)


def capital(text: str) -> str:
    """Return the text with its first letter large."""
    return text[:1].upper() + text[1:]


def _drawn(rng: random.Random) -> Iterator[int]:
    """Yield phrasings without end; as large as to be even modulo any number."""
    while True:
        yield rng.getrandbits(32)


def _chosen(entries: dict[str, tuple[str, ...]], name: str, phrasing: int, kind: str) -> str:
    if name not in entries:
        raise BadInputError(f"no phrases for a {kind}", got=repr(name), expected=f"one of {', '.join(entries)}",
                            cure="add it to phrases.yaml")  # fmt: skip
    return entries[name][phrasing % len(entries[name])]


def fitting(group: str, template: str, n_arguments: int) -> tuple[str | int, ...]:
    """Return what a template is `cut` into.

    Raises:
        BadInputError: an argument has no place, so that two facts would read alike, or there is a place for another.
    """
    pieces = cut(template)
    if {piece for piece in pieces if isinstance(piece, int)} != set(range(n_arguments)):
        raise BadInputError(
            f"a phrase of '{group}' does not fit its arguments",
            got=repr(template),
            expected=f"positions {{0}} to {{{n_arguments - 1}}}" if n_arguments else "no position",
            cure="change it in phrases.yaml, or give the step the arguments of its action",
        )
    return pieces


def _filled(group: str, template: str, arguments: Sequence[str]) -> _Clause:
    """Return the clause of a template.

    Raises:
        BadInputError: see `fitting`.
    """
    pieces = fitting(group, template, len(arguments))
    text = "".join([arguments[piece] if isinstance(piece, int) else piece for piece in pieces])
    return _Clause(group, text, begins_with_name=any(isinstance(piece, int) for piece in pieces[:1]))


def _fact(phrases: Phrases, atom: Atom, phrasing: int) -> _Clause:
    return _filled(atom.predicate, predicate_phrase(phrases, atom.predicate, phrasing), atom.arguments)


def _value(phrases: Phrases, term: Atom, value: str, phrasing: int) -> _Clause:
    template = function_phrase(phrases, term.predicate, len(term.arguments), phrasing)
    return _filled(term.predicate, template, (*term.arguments, value))


def _instruction(phrases: Phrases, name: str, arguments: Sequence[str], phrasing: int) -> _Clause:
    return _filled(name, _chosen(phrases.actions, name, phrasing, "action"), arguments)


def _literal(phrases: Phrases, literal: Literal, phrasing: int) -> _Clause:
    clause = _fact(phrases, literal.atom, phrasing)
    return clause if literal.is_positive else _Clause(clause.group, NOT + clause.text)


def _goal(phrases: Phrases, goal: Condition, phrasings: Iterator[int]) -> list[_Clause]:
    try:
        literals = literals_of(goal)
    except BadInputError as error:
        raise BadInputError("the goal cannot be said in words", got=error.got,
                            expected="a conjunction of literals") from error  # fmt: skip
    if not literals:
        raise BadInputError("the goal cannot be said in words", got="an empty goal", expected="a literal or more")
    return [_literal(phrases, literal, next(phrasings)) for literal in literals]


def _check_names(problem: Problem) -> None:
    terms = [*problem.init, *(known.term for known in problem.function_values)]
    terms += [literal.atom for literal in literals_in(problem.goal)]
    used = [*(typed.name for typed in problem.objects), *(name for term in terms for name in term.arguments)]
    for name in dict.fromkeys(used):
        if not re.fullmatch(NAME, name):
            raise BadInputError("a name that cannot be told from the words around it", got=repr(name),
                                expected="lower-case letters, digits, '-' and '_'", cure="rename it")  # fmt: skip


def _check_types(domain: Domain, objects: Sequence[TypedName]) -> None:
    known = {OBJECT, *(typed.name for typed in domain.types)}
    for typed in objects:
        if not known.issuperset(typed.types):
            raise BadInputError(f"the type of '{typed.name}' is not declared", got=" or ".join(typed.types),
                                expected=", ".join(sorted(known)))  # fmt: skip


def _object_sentences(phrases: Phrases, objects: Sequence[TypedName]) -> list[str]:
    """Return a sentence for the objects of each type, or for each list of types where there are several."""
    by_types = grouped(objects, lambda typed: typed.types).items()
    said = [_object_sentence(phrases, types, [typed.name for typed in own]) for types, own in by_types]
    return said or [NO_OBJECTS]


def _object_sentence(phrases: Phrases, types: tuple[str, ...], names: list[str]) -> str:
    is_one = len(names) == 1
    noun = EITHER.join(noun_of(phrases, name)[0 if is_one else 1] for name in types)
    return f"There {'is' if is_one else 'are'} {count_word(len(names))} {noun}: {_listed(names)}."


def count_word(number: int) -> str:
    """Return a number in words, large ones in digits."""
    return COUNTS[number] if number < len(COUNTS) else str(number)


def _listed(words: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _block(heading: str, clauses: Sequence[_Clause], layout: Layout) -> str:
    if layout is Layout.PROSE:
        return " ".join([f"{heading}.", *(f"{clause.capitalised}." for clause in clauses)])
    if layout is Layout.LIST:
        return "\n".join([f"{heading}:", *(f"- {clause.capitalised}" for clause in clauses)])
    groups = grouped(clauses, lambda clause: clause.group).values()
    lines = ["; ".join([first.capitalised, *(clause.text for clause in rest)]) for first, *rest in groups]
    return "\n".join([f"{heading}:", *(f"{line}." for line in lines)])


@dataclass(frozen=True, slots=True)
class _Item:
    """A line of a list, and the lines below it that it is about."""

    text: str
    below: tuple[_Item, ...] = ()

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Yield it and what is below it, two spaces further in."""
        yield f"{'  ' * depth}- {self.text}{':' if self.below else ''}"
        for item in self.below:
            yield from item.lines(depth + 1)


class _DomainWriter:
    """Writes one domain in one phrasing."""

    def __init__(self, domain: Domain, phrases: Phrases, phrasing: int) -> None:
        self.domain, self.phrases, self.phrasing = domain, phrases, phrasing
        self.wording = FRAMES[phrasing % len(FRAMES)].wording

    def blocks(self) -> list[str]:
        """Return the paragraphs; an empty one where the domain has nothing of the kind."""
        domain = self.domain
        facts = [
            _Item(self._said(_lifted(schema.name, schema.parameters)), self._listed_kinds(schema.parameters))
            for schema in domain.predicates
        ]
        rules = [
            _Item(
                f"{self._with_kinds(self._said(_lifted(rule.predicate, rule.parameters)), rule.parameters)}, whenever "
                "this holds",
                (self._condition(rule.condition),),
            )
            for rule in domain.derived
        ]
        return [
            opening_of(self.wording, self.phrases),
            _items(KINDS, self._types()),
            _items("Always there", [f"{_kind(self.phrases, typed.types)} {typed.name}" for typed in domain.constants]),
            _items(FACTS, facts),
            _items("Facts that follow from others", rules),
            _items("Numbers that are given", [self._number(schema) for schema in domain.functions]),
            *(self._action(action) for action in domain.actions),
            CLOSING,
        ]

    def _types(self) -> list[str]:
        if not self.domain.types:
            return [ONLY_KIND.format(noun_of(self.phrases, OBJECT)[1])]
        return [
            KIND.format(noun_of(self.phrases, typed.name)[0], _kind(self.phrases, typed.types))
            for typed in self.domain.types
        ]

    def _number(self, schema: FunctionSchema) -> str:
        said = self._said_value(_lifted(schema.name, schema.parameters), "some number")
        return self._with_kinds(said, schema.parameters)

    def _action(self, action: ActionSchema) -> str:
        names = [_spoken(typed.name) for typed in action.parameters]
        instruction = _instruction(self.phrases, action.name, names, self.phrasing).text
        parts = action.precondition.parts if isinstance(action.precondition, Conjunction) else (action.precondition,)
        return "\n".join(
            [
                f"{ACTION} {action.name}: {instruction}.",
                *filter(None, [_items(ABOUT, self._listed_kinds(action.parameters))]),
                _items(self.wording.needs, [self._condition(part) for part in parts] or [NO_NEED]),
                _items(self.wording.changes, [self._effect(effect) for effect in action.effects] or [NO_FACTS]),
            ]
        )

    def _said(self, atom: Atom) -> str:
        return _fact(self.phrases, _spoken_atom(atom), self.phrasing).text

    def _said_value(self, term: Atom, value: str) -> str:
        return _value(self.phrases, _spoken_atom(term), value, self.phrasing).text

    def _with_kinds(self, text: str, parameters: Sequence[TypedName]) -> str:
        kinds = [f"{own} {kind}" for own, kind in self._kinds(parameters)]
        return f"{text}, with {_listed(kinds)}" if kinds else text

    def _kinds(self, parameters: Sequence[TypedName]) -> list[tuple[str, str]]:
        return [(_spoken(typed.name), _kind(self.phrases, typed.types)) for typed in parameters]

    def _listed_kinds(self, parameters: Sequence[TypedName]) -> tuple[_Item, ...]:
        return tuple(_Item(f"{own}, {kind}") for own, kind in self._kinds(parameters))

    def _range(self, word: str, parameters: Sequence[TypedName]) -> str:
        """Return ``for every place X and every car C``."""
        kinds = [
            f"{word} {' or '.join(noun_of(self.phrases, name)[0] for name in typed.types)} {_spoken(typed.name)}"
            for typed in parameters
        ]
        return f"for {_listed(kinds)}"

    def _condition(self, condition: Condition) -> _Item:
        """Return a condition in words, what it is made of below it."""
        match condition:
            case Literal():
                return _Item(f"{'' if condition.is_positive else NOT}{self._said(condition.atom)}")
            case Conjunction(parts=()):
                return _Item(TRUE)
            case Disjunction(parts=()):
                return _Item(FALSE)
            case Conjunction():
                head = ALL
            case Disjunction():
                head = SOME
            case Negation():
                head = NONE
            case Implication():
                head = IF
            case Quantification():
                head = self._range(EVERY if condition.is_universal else ANY, condition.parameters)
        return _Item(head, tuple(map(self._condition, condition.members)))

    def _effect(self, effect: Effect) -> _Item:
        """Return one change in words, what it is made of below it."""
        match effect:
            case Literal():
                return _Item(f"{BEGINS if effect.is_positive else ENDS}: {self._said(effect.atom)}")
            case ConditionalEffect():
                return _Item(WHEN, (self._condition(effect.condition), self._effects(effect.effects)))
            case UniversalEffect():
                return _Item(self._range(EVERY, effect.parameters), (self._effects(effect.effects),))
            case CostIncrease(amount=Atom() as term):
                given = self._said_value(term, "that number")
                return _Item(f"the total cost grows by a number, the one given by: {given}")
            case CostIncrease():
                return _Item(f"the total cost grows by {effect.amount}")

    def _effects(self, effects: Sequence[Effect]) -> _Item:
        """Return some changes as one."""
        if len(effects) == 1:
            return self._effect(effects[0])
        return _Item(ALL, tuple(map(self._effect, effects))) if effects else _Item(NO_FACTS)


def _lifted(name: str, parameters: Sequence[TypedName]) -> Atom:
    return Atom(name, tuple(typed.name for typed in parameters))


def _spoken(term: str) -> str:
    """Return a variable in capitals without its question mark, and an object as it is."""
    return term[1:].upper() if term.startswith("?") else term


def _spoken_atom(atom: Atom) -> Atom:
    return Atom(atom.predicate, tuple(map(_spoken, atom.arguments)))


def _kind(phrases: Phrases, types: Iterable[str]) -> str:
    return " or ".join(_with_article(noun_of(phrases, name)[0]) for name in types)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _items(heading: str, items: Sequence[str | _Item]) -> str:
    lines = (line for item in items for line in (_Item(item) if isinstance(item, str) else item).lines())
    return "\n".join([f"{heading}:", *lines]) if items else ""

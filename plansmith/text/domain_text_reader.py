"""Descriptions of domains, and of tasks, back to `Domain` and `Problem`: the inverse of `spoken.SpokenDomain`.

Knows the frames of `natural_language` and no domain. What types and predicates are called follows from the text alone:
one that can be read back says all that is needed. Reads what a `SpokenDomain` writes and nothing else. Lost are the
domain's requirements and the names of its variables. Not here: constants, numbers and rules, of which it never speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    Conjunction,
    Disjunction,
    Domain,
    Effect,
    Implication,
    Literal,
    Negation,
    PredicateSchema,
    Problem,
    Quantification,
    TypedName,
    UniversalEffect,
)
from plansmith.text.anonymisation import DOMAIN_NAME
from plansmith.text.natural_language import (
    ABOUT,
    ACTION,
    ALL,
    ANY,
    BEGINS,
    CLOSING,
    ENDS,
    EVERY,
    FACTS,
    FALSE,
    HEADS,
    IF,
    KIND,
    KINDS,
    NAME,
    NO_FACTS,
    NO_NEED,
    NONE,
    NOT,
    ONLY_KIND,
    SAME,
    SOME,
    TRUE,
    WHEN,
    WORDINGS,
    Wording,
)
from plansmith.text.natural_language_reader import Line, blocks_of, nouns_of, read_problem_blocks
from plansmith.text.spoken import PLURAL, order_of, predicate_name, type_name

_ACTION = re.compile(rf"{ACTION} ({NAME}): .+\.")
_KIND = re.compile(KIND.format("(.+?)", "(an? .+)"))
_ONLY_KIND = ONLY_KIND.format(PLURAL.format(""))
_VARIABLE = "([A-Z][A-Z0-9_-]*)"
_PARAMETER = re.compile(rf"{_VARIABLE}, (an? .+)")

Scope = Mapping[str, str]
"""Variables by what the text calls them."""
Parameters = tuple[TypedName, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """A line of a list without its dash and colon, and what stands below it."""

    line: Line
    text: str
    below: tuple[_Item, ...]

    def error(self, message: str, **details: str | None) -> BadInputError:
        """Return the error that names the line and what stands there."""
        return self.line.error(message, **details)


@dataclass(frozen=True, slots=True)
class _Fact:
    """A predicate, and which of its arguments stands in each gap between the words of its phrase."""

    name: str
    places: tuple[int, ...]


def read_task_text(text: str) -> tuple[Domain, Problem]:
    """Return the domain and the problem that a text describes, one after the other.

    Raises:
        BadInputError: what no `SpokenDomain` writes, with its line.
    """
    blocks = blocks_of(text)
    end = _end_of_domain(blocks)
    domain, phrases = _DomainReader().read(blocks[:end])
    if len(blocks) == end:
        raise blocks[-1][0].error("nothing after the domain", expected="a problem")
    return domain, read_problem_blocks(domain, phrases, blocks[end:])


def read_domain_text(text: str) -> Domain:
    """Return the domain that a text describes; see `read_task_text`."""
    blocks = blocks_of(text)
    if rest := blocks[_end_of_domain(blocks) :]:
        raise rest[0][0].error("more than a domain", expected="the end of the text")
    return _DomainReader().read(blocks)[0]


def _end_of_domain(blocks: Sequence[Sequence[Line]]) -> int:
    """Return how many paragraphs a domain has."""
    for number, block in enumerate(blocks, 1):
        if [line.text for line in block] == [CLOSING]:
            return number
    first = blocks[0][0] if blocks else Line(1, "")
    raise first.error("not the beginning of a domain in words", expected=f"one that ends with the line '{CLOSING}'")


def _wording(blocks: Sequence[Sequence[Line]]) -> Wording:
    """Return the wording in which actions say what they need."""
    headings = {line.text for block in blocks for line in block}
    for wording in WORDINGS:
        if f"{wording.needs}:" in headings:
            return wording
    raise blocks[0][0].error("no action after this", expected=f"one with '{WORDINGS[0].needs}:'")


def _topic(block: Sequence[Line], wording: Wording) -> str:
    before, after = wording.opening.split("{0}")
    first, *rest = block
    if rest or not (first.text.startswith(before) and first.text.endswith(after)):
        raise first.error("not the beginning of a domain in words", expected=f"'{wording.opening.format('...')}'")
    return first.text.removeprefix(before).removesuffix(after)


def _items(lines: Sequence[Line], indent: int = 0) -> tuple[_Item, ...]:
    """Return the items of a list that stand so many blanks in, each with those below it."""
    starts, found = [index for index, line in enumerate(lines) if line.indent <= indent or not index], list[_Item]()
    for start, end in pairwise([*starts, len(lines)]):
        line, below = lines[start], lines[start + 1 : end]
        if line.indent != indent or not line.text.startswith("- ") or line.text.endswith(":") != bool(below):
            raise line.error("no item that fits here", expected=f"{indent} blanks, '- ', and ':' at the end if items "
                             "stand below it")  # fmt: skip
        text = line.text.removeprefix("- ").removesuffix(":")
        found.append(_Item(line, text, _items(below, indent + 2)))
    return tuple(found)


def _scope(variables: Iterable[str]) -> dict[str, str]:
    return {name.removeprefix("?").upper(): name for name in variables}


def _parted(clause: str, names: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the words around the variables of a clause, and these, in order."""
    parts = re.split(rf"(?<![\w-])({'|'.join(names)})(?![\w-])", clause) if names else [clause]
    return tuple(parts[::2]), parts[1::2]


class _DomainReader:
    """Reads the paragraphs of one domain."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.facts = {tuple(re.split(r"\{\d\}", SAME)): _Fact(EQUALITY, order_of(SAME))}
        self.templates: dict[str, tuple[str, ...]] = {}

    def read(self, blocks: Sequence[Sequence[Line]]) -> tuple[Domain, Phrases]:
        """Return the domain with the words that its text has for it."""
        wording, (opening, *sections, _) = _wording(blocks), blocks
        topic, actions = _topic(opening, wording), list[ActionSchema]()
        kinds, predicates = list[TypedName](), list[PredicateSchema]()
        for first, *rest in sections:
            if first.text == f"{KINDS}:":
                kinds += self._kinds(first, _items(rest))
            elif first.text == f"{FACTS}:":
                predicates += map(self._predicate, _items(rest))
            else:
                actions.append(self._action(first, rest, wording))
        nouns = {name: (noun, PLURAL.format(noun)) for noun, name in self.types.items()}
        domain = Domain(DOMAIN_NAME, (), tuple(kinds), (), tuple(predicates), tuple(actions))
        return domain, Phrases(topic=topic, types=nouns, predicates=self.templates)

    def _kinds(self, heading: Line, items: Sequence[_Item]) -> Parameters:
        """Return the types; the one noun above them that is none of theirs is that of `object`."""
        if len(items) == 1 and items[0].text.startswith(_ONLY_KIND):
            noun = items[0].text.removeprefix(_ONLY_KIND)
            self.types = {noun: type_name(noun)}
            return (TypedName(type_name(noun)),)
        above: dict[str, list[str]] = {}
        for item in items:
            match = _KIND.fullmatch(item.text)
            if match is None or match[1] in above or item.below:
                raise item.error("no kind of objects, or one that was there", expected="'every ... is a ...'")
            above[match[1]] = nouns_of(match[2])
        tops = {*chain(*above.values())} - {*above}
        if len(tops) != 1:
            raise heading.error("kinds that are not all below one", expected=f"one kind above {' and '.join(above)}")
        self.types = {noun: type_name(noun) for noun in above} | dict.fromkeys(tops, OBJECT)
        return tuple(self._typed(heading, type_name(noun), kinds) for noun, kinds in above.items())

    def _predicate(self, item: _Item) -> PredicateSchema:
        """Return a predicate, its arguments in the order in which its phrase names them first."""
        types = {typed.name: typed.types for typed in self._parameters(item.below)}
        scope = _scope(types)
        words, said = _parted(item.text, scope)
        names = list(dict.fromkeys(said))
        places = tuple(map(names.index, said))
        template = "".join(chain(*zip(words, (*(f"{{{place}}}" for place in places), ""), strict=True)))
        name = predicate_name(template)
        if len(names) < len(scope) or words in self.facts or name in self.templates or not name[:1].isalpha():
            raise item.error("a fact that does not name all that it is about, or is called like another")
        self.facts[words], self.templates[name] = _Fact(name, places), (template,)
        return PredicateSchema(name, tuple(TypedName(f"?x{n}", types[scope[own]]) for n, own in enumerate(names)))

    def _action(self, first: Line, rest: Sequence[Line], wording: Wording) -> ActionSchema:
        match = _ACTION.fullmatch(first.text)
        starts = [index for index, line in enumerate(rest) if not line.text.startswith("- ")]
        headings, expected = [rest[start].text for start in starts], [f"{wording.needs}:", f"{wording.changes}:"]
        if match is None or starts[:1] != [0] or headings not in (expected, [f"{ABOUT}:", *expected]):
            raise first.error("no action with all that it needs and changes, nor another section that is known",
                              expected=f"'{ACTION} ...: ....', then '{expected[0]}' and '{expected[1]}'")  # fmt: skip
        *about, needs, changes = (_items(rest[start + 1 : end]) for start, end in pairwise([*starts, len(rest)]))
        if not needs or not changes:
            raise first.error("an action that lacks something", expected="items below each of its headings")
        parameters = self._parameters(chain(*about))
        scope = _scope(typed.name for typed in parameters)
        needed = () if [item.text for item in needs] == [NO_NEED] else [self._condition(item, scope) for item in needs]
        return ActionSchema(
            name=match[1],
            parameters=parameters,
            precondition=needed[0] if len(needed) == 1 else Conjunction(tuple(needed)),
            effects=tuple(chain(*(self._effects(item, scope) for item in changes))),
        )

    def _typed(self, line: Line, name: str, nouns: Sequence[str]) -> TypedName:
        if not nouns or not self.types.keys() >= {*nouns}:
            raise line.error("no kind of objects that was told of", expected=f"one of {', '.join(self.types)}")
        return TypedName(name, tuple(self.types[noun] for noun in nouns))

    def _parameters(self, items: Iterable[_Item]) -> Parameters:
        """Return parameters that have an item each."""
        found = list[TypedName]()
        for item in items:
            match = _PARAMETER.fullmatch(item.text)
            if match is None or item.below:
                raise item.error("nothing that has a kind", expected="a name in capitals, and 'a ...'")
            found.append(self._typed(item.line, f"?{match[1].lower()}", nouns_of(match[2])))
        return tuple(found)

    def _bound(self, item: _Item, word: str) -> Parameters:
        """Return what ``for every place X and every car C`` is about."""
        found = list[TypedName]()
        for said in re.split(f"(?:, | and )(?={word} )", item.text.removeprefix("for ")):
            match = re.fullmatch(f"{word} (.+) {_VARIABLE}", said)
            if match is None:
                raise item.error("nothing that has a kind", expected=f"'{word}', a kind, and a name in capitals")
            found.append(self._typed(item.line, f"?{match[2].lower()}", [match[1]]))
        return tuple(found)

    def _condition(self, item: _Item, scope: Scope) -> Condition:
        """Return the condition that an item says with what is below it."""
        if not item.below:
            without: dict[str, Condition] = {TRUE: Conjunction(), FALSE: Disjunction()}
            return without.get(item.text) or self._literal(item, scope)
        for word in (EVERY, ANY):
            if item.text.startswith(f"for {word} ") and len(item.below) == 1:
                parameters = self._bound(item, word)
                inner = {**scope, **_scope(typed.name for typed in parameters)}
                return Quantification(word == EVERY, parameters, self._condition(item.below[0], inner))
        parts = tuple(self._condition(part, scope) for part in item.below)
        if item.text in (ALL, SOME):
            return Conjunction(parts) if item.text == ALL else Disjunction(parts)
        if (item.text, len(parts)) == (NONE, 1):
            return Negation(*parts)
        if (item.text, len(parts)) == (IF, 2):
            return Implication(*parts)
        raise item.error("no condition that is made of so many others", expected=f"one of {', '.join(HEADS)}")

    def _effects(self, item: _Item, scope: Scope) -> tuple[Effect, ...]:
        """Return the changes that an item says with what is below it."""
        if item.text == ALL:
            return tuple(chain(*(self._effects(part, scope) for part in item.below)))
        if (item.text, len(item.below)) == (WHEN, 2):
            condition, change = item.below
            return (ConditionalEffect(self._condition(condition, scope), self._effects(change, scope)),)
        if item.text.startswith(f"for {EVERY} ") and len(item.below) == 1:
            parameters = self._bound(item, EVERY)
            inner = {**scope, **_scope(typed.name for typed in parameters)}
            return (UniversalEffect(parameters, self._effects(item.below[0], inner)),)
        begun, _, fact = item.text.partition(": ")
        if begun in (BEGINS, ENDS) and not item.below:
            return (Literal(self._atom(item, fact, scope), begun == BEGINS),)
        if item.text == NO_FACTS and not item.below:
            return ()
        raise item.error("no change", expected=f"'{BEGINS}: ...', '{ENDS}: ...', or one of {', '.join(HEADS)}")

    def _literal(self, item: _Item, scope: Scope) -> Literal:
        return Literal(self._atom(item, item.text.removeprefix(NOT), scope), not item.text.startswith(NOT))

    def _atom(self, item: _Item, clause: str, scope: Scope) -> Atom:
        """Return the one atom that has the words of a clause; where its phrase names an argument twice, both alike."""
        words, names = _parted(clause, scope)
        fact = self.facts.get(words)
        said = dict(zip(fact.places, names, strict=True)) if fact else {}
        if fact is None or [said[place] for place in fact.places] != names:
            raise item.error(
                "no fact of this domain", expected=f"one of '{FACTS}', about {', '.join(scope) or 'nothing'}"
            )
        return Atom(fact.name, tuple(scope[name] for name in said.values()))

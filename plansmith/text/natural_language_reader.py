"""Descriptions of problems back to `Problem`: the inverse of `natural_language.problem_text`.

Reads what `problem_text` writes, each sentence in any phrasing of the domain, and nothing else; whatever is no fact of
the domain, or could be two, is refused with its line. What words cannot say is lost: the problem's name, and the order
of objects and facts. `ambiguous_phrases` says beforehand which phrases of a domain could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, groupby, product

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.pddl.model import EQUALITY, OBJECT, Atom, Conjunction, Domain, FunctionValue, Literal, Problem, TypedName
from plansmith.pddl.problem_reader import names_of
from plansmith.text.natural_language import (
    EITHER,
    NAME,
    NO_FACTS,
    NO_OBJECTS,
    NOT,
    THINGS,
    WORDINGS,
    Frame,
    Layout,
    Wording,
    capital,
    count_word,
    cut,
    function_phrase,
    metric_sentences,
    noun_of,
    opening_of,
    predicate_phrase,
)

PROBLEM_NAME = "described"
"""The name of every problem that is read: descriptions carry none."""

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_OBJECT = re.compile(rf"({NAME}), (an? .+)")
_OBJECTS = re.compile(rf"There (?:is|are) (\S+) (.+): ({NAME}(?:, {NAME})*(?: and {NAME})?)\.")
_TOKEN = re.compile(rf"\{{\d+\}}|{NAME}(?:\.\d+(?:e[+-]?\d+)?)?|.", re.DOTALL)
_NAME_BESIDE_POSITION = re.compile(r"[a-z0-9_-]\{\d+\}|\{\d+\}[a-z0-9_{-]")
_STOPS = (". ", "; ")


@dataclass(frozen=True, slots=True)
class _Template:
    """A template with what it speaks of; ``{0}`` to ``{arity - 1}`` are its positions."""

    name: str
    text: str
    arity: int

    def __str__(self) -> str:
        return f"{self.name} '{self.text}'"


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a sentence of one, with its number in the text, from 1, and the blanks before it."""

    number: int
    text: str
    indent: int = 0

    def error(self, message: str, **details: str | None) -> BadInputError:
        """Return the error that names the line and what stands there."""
        return BadInputError(message, where=f"line {self.number}", got=repr(self.text), **details)


@dataclass(frozen=True, slots=True)
class _Sections:
    """A description cut into its sentences, without headings and stops."""

    objects: list[Line]
    start: list[Line]
    values: list[Line]
    goal: list[Line]
    metric: str | None


def read_problem_text(domain: Domain, phrases: Phrases, text: str) -> Problem:
    """Return the problem that a description is of.

    Raises:
        BadInputError: a sentence that is no fact of the domain or could be two, an object that is not declared or of
            the wrong type, a section that is missing or unknown; with the line and the sentence.
    """
    return read_problem_blocks(domain, phrases, blocks_of(text))


def read_problem_blocks(domain: Domain, phrases: Phrases, blocks: list[list[Line]]) -> Problem:
    """Return the problem that the paragraphs of a description are of; see `read_problem_text`."""
    wording = _wording(blocks, phrases)
    frame = Frame(wording, _layout(blocks, wording))
    return _ProblemReader(domain, phrases).read(_sections(blocks, frame))


def blocks_of(text: str) -> list[list[Line]]:
    """Return the paragraphs of a text; an empty line stands between two."""
    lines = [
        Line(number, line.strip(), len(line) - len(line.lstrip())) for number, line in enumerate(text.splitlines(), 1)
    ]
    return [list(group) for is_text, group in groupby(lines, key=lambda line: bool(line.text)) if is_text]


def nouns_of(kinds: str) -> list[str]:
    """Return the nouns in ``a car or lorry or a place``, which are two; none where something else is said."""
    nouns = [re.fullmatch("an? (.+)", kind) for kind in re.split(" or (?=an? )", kinds)]
    return [noun[1] for noun in nouns if noun]


def ambiguous_phrases(domain: Domain, phrases: Phrases) -> list[str]:
    """Return what keeps phrases from being told apart: one line for each fault, none where all is well.

    Two templates clash where the same sentence fits both, whatever the types of the objects: fixed words against any
    name. Those of facts and values may be of different phrasings, since a text may mix these; those of actions not. A
    template of its own may drop an argument, touch it with another word, or hold a stop.
    """
    facts, values = _fact_templates(domain, phrases), _value_templates(domain, phrases)
    actions = [_action_templates(domain, phrases, phrasing) for phrasing in range(_number_of_phrasings(phrases))]
    denied = [_Template(f"the negation of {fact.name}", NOT + fact.text, fact.arity) for fact in facts]
    said = [*facts, _Template("the absence of facts", NO_FACTS, 0)]
    pairs = [*combinations(said, 2), *product(said, denied), *combinations(values, 2)]
    pairs += chain.from_iterable(combinations(templates, 2) for templates in actions)
    found = list(_noun_faults(domain, phrases))
    found += [f"{one} {fault}" for one in _each_once(chain(facts, values, *actions)) for fault in _faults(one)]
    found += [f"{one} and {two} can give the same sentence" for one, two in pairs if _can_be_equal(one, two)]
    return found


def _fact_templates(domain: Domain, phrases: Phrases) -> list[_Template]:
    """Return the templates of facts, of every phrasing."""
    arities = {schema.name: len(schema.parameters) for schema in domain.predicates} | {EQUALITY: 2}
    return _each_once(
        _Template(name, predicate_phrase(phrases, name, phrasing), arity)
        for phrasing, (name, arity) in product(range(_number_of_phrasings(phrases)), arities.items())
    )


def _value_templates(domain: Domain, phrases: Phrases) -> list[_Template]:
    """Return the templates of function values, of every phrasing; the value is the last position."""
    arities = [(schema.name, len(schema.parameters)) for schema in domain.functions]
    return _each_once(
        _Template(name, function_phrase(phrases, name, arity, phrasing), arity + 1)
        for phrasing, (name, arity) in product(range(_number_of_phrasings(phrases)), arities)
    )


def _each_once(templates: Iterable[_Template]) -> list[_Template]:
    return list(dict.fromkeys(templates))


def _action_templates(domain: Domain, phrases: Phrases, phrasing: int) -> list[_Template]:
    known = [schema for schema in domain.actions if schema.name in phrases.actions]
    return [_Template(schema.name, phrases.actions[schema.name][phrasing], len(schema.parameters)) for schema in known]


def _number_of_phrasings(phrases: Phrases) -> int:
    return max([len(texts) for texts in (phrases.predicates | phrases.functions | phrases.actions).values()], default=1)


def _noun_faults(domain: Domain, phrases: Phrases) -> Iterator[str]:
    for noun, types in _types_by_noun(domain, phrases).items():
        if not noun or any(stop in noun for stop in (*_STOPS, ": ", EITHER, "\n")):
            yield f"type {types[0]}: '{noun}' is empty or holds a stop or '{EITHER.strip()}'"
        if len(types) > 1:
            yield f"types {' and '.join(types)} share the noun '{noun}'"


def _types_by_noun(domain: Domain, phrases: Phrases) -> dict[str, list[str]]:
    """Return the types that each noun, singular or plural, may stand for; one, in good phrases."""
    found: dict[str, list[str]] = {}
    for name in (OBJECT, *(typed.name for typed in domain.types)):
        for noun in dict.fromkeys(noun_of(phrases, name)):
            found.setdefault(noun, []).append(name)
    return found


def _faults(template: _Template) -> Iterator[str]:
    positions = {piece for piece in cut(template.text) if isinstance(piece, int)}
    if positions != set(range(template.arity)):
        yield f"names the positions {sorted(positions)} of {template.arity}"
    if _NAME_BESIDE_POSITION.search(template.text):
        yield "joins a position with a word"
    if not template.text or template.text != template.text.strip(" .\n"):
        yield "is empty, or begins or ends with a space or stop"
    if any(stop in template.text for stop in (*_STOPS, "\n")):
        yield "is more than one clause"


def _can_be_equal(one: _Template, other: _Template) -> bool:
    """Return whether some names give both templates the same words; exact where `_faults` finds nothing."""
    tokens, others = _tokens(one.text), _tokens(other.text)
    return len(tokens) == len(others) and all(map(_fit, tokens, others))


@lru_cache(maxsize=4096)
def _tokens(template: str) -> tuple[str, ...]:
    """Return the words, stops and positions of a template; its first letter may be small or large in a text."""
    return tuple(_TOKEN.findall(template[:1].lower() + template[1:]))


def _fit(token: str, other: str) -> bool:
    is_open, is_other_open = token.startswith("{"), other.startswith("{")
    if is_open and is_other_open:
        return True
    return token == other or (is_open and _is_term(other)) or (is_other_open and _is_term(token))


def _is_term(token: str) -> bool:
    return bool(re.fullmatch(f"{NAME}|{_NUMBER}", token))


def _wording(blocks: list[list[Line]], phrases: Phrases) -> Wording:
    first, *rest = blocks[0] if blocks else [Line(1, "")]
    for wording in WORDINGS:
        if first.text == opening_of(wording, phrases) and not rest:
            return wording
    raise first.error("not the beginning of a description", expected=repr(opening_of(WORDINGS[0], phrases)))


def _layout(blocks: list[list[Line]], wording: Wording) -> Layout:
    """Return the layout that the section of initial facts has."""
    block = blocks[2] if len(blocks) > 2 else blocks[-1]
    if block[0].text == f"{wording.start}:" and len(block) > 1:
        return Layout.LIST if any(line.text.startswith("- ") for line in block[1:]) else Layout.GROUPED
    if block[0].text.startswith(f"{wording.start}."):
        return Layout.PROSE
    raise block[0].error("no section of initial facts", expected=f"'{wording.start}' as the third paragraph")


def _sections(blocks: list[list[Line]], frame: Frame) -> _Sections:
    """Return the sentences of each section, in the one order there is."""
    wording, rest = frame.wording, blocks[3:]
    has_values = bool(rest) and _has_heading(rest[0][0], wording.values)
    values = rest.pop(0) if has_values else []
    if not rest or not _has_heading(rest[0][0], wording.goal):
        place = rest[0][0] if rest else blocks[-1][-1]
        raise place.error("no goal", expected=f"'{wording.goal}' as the next paragraph")
    goal = rest.pop(0)
    return _Sections(
        objects=_object_lines(blocks[1]),
        start=_sentences(blocks[2], wording.start, frame.layout),
        values=_sentences(values, wording.values, frame.layout) if values else [],
        goal=_sentences(goal, wording.goal, frame.layout),
        metric=_metric(rest, wording),
    )


def _has_heading(line: Line, heading: str) -> bool:
    return line.text == f"{heading}:" or line.text.startswith(f"{heading}. ")


def _sentences(block: list[Line], heading: str, layout: Layout) -> list[Line]:
    """Return the clauses of a section without its heading."""
    first, *rest = block
    if layout is Layout.PROSE:
        if rest or not first.text.startswith(f"{heading}. "):
            raise (rest or block)[0].error("not set as the other sections", expected=f"one paragraph: '{heading}. ...'")
        body = first.text.removeprefix(f"{heading}. ").removesuffix(".")
        return [Line(first.number, part) for part in body.split(". ")]
    if first.text != f"{heading}:":
        raise first.error("not set as the other sections", expected=f"'{heading}:' and a line each")
    if layout is Layout.GROUPED:
        return [Line(line.number, part) for line in rest for part in line.text.removesuffix(".").split("; ")]
    wrong = next((line for line in rest if not line.text.startswith("- ")), None)
    if wrong is not None:
        raise wrong.error("not an item of a list", expected="a line that begins with '- '")
    return [Line(line.number, line.text.removeprefix("- ")) for line in rest]


def _object_lines(block: list[Line]) -> list[Line]:
    """Return the lines on objects where each has one, else the sentences on them, each with its full stop."""
    if block[0].text == f"{THINGS}:":
        return _sentences(block, THINGS, Layout.LIST)
    return [Line(line.number, f"{part}.") for line in block for part in line.text.removesuffix(".").split(". ")]


def _metric(rest: list[list[Line]], wording: Wording) -> str | None:
    if not rest:
        return None
    metrics = {text: metric for metric, text in metric_sentences(wording).items()}
    lines = [line for block in rest for line in block]
    wrong = lines[1:] if lines[0].text in metrics else lines
    if wrong:
        raise wrong[0].error("not what is to be minimised, nor another section", expected=" or ".join(metrics))
    return metrics[lines[0].text]


class _ProblemReader:
    """Reads the sections of one description."""

    def __init__(self, domain: Domain, phrases: Phrases) -> None:
        self.domain = domain
        self.names = names_of(domain)
        self.facts = _patterns(_fact_templates(domain, phrases), is_valued=False)
        self.values = _patterns(_value_templates(domain, phrases), is_valued=True)
        self.types = _types_by_noun(domain, phrases)

    def read(self, sections: _Sections) -> Problem:
        """Return the problem."""
        objects = tuple(typed for line in sections.objects for typed in self._objects(line))
        is_empty = [line.text for line in sections.start] == [capital(NO_FACTS)]
        return Problem(
            name=PROBLEM_NAME,
            domain_name=self.domain.name,
            objects=objects,
            init=() if is_empty else tuple(dict.fromkeys(self._fact(line) for line in sections.start)),
            goal=Conjunction(tuple(dict.fromkeys(self._literal(line) for line in sections.goal))),
            function_values=tuple(self._value(line) for line in sections.values),
            metric=sections.metric,
        )

    def _objects(self, line: Line) -> list[TypedName]:
        if line.text in (NO_OBJECTS, NO_FACTS):
            return []
        if alone := _OBJECT.fullmatch(line.text):
            names, nouns = [alone[1]], nouns_of(alone[2])
        elif match := _OBJECTS.fullmatch(line.text):
            names, nouns = re.split(", | and ", match[3]), match[2].split(EITHER)
            if match[1] != count_word(len(names)):
                raise line.error("objects that do not match their number", expected=count_word(len(names)))
        else:
            raise line.error("not a sentence on objects", expected="'There are two ...: a and b.', or 'a, a ...'")
        meant = [self.types.get(noun, []) for noun in nouns]
        if any(len(types) != 1 for types in meant):
            raise line.error("objects of no type of the domain, or of a noun that two types share",
                             expected=f"one of {', '.join(self.types)}")  # fmt: skip
        return [self._declared(line, TypedName(name, tuple(types[0] for types in meant))) for name in names]

    def _declared(self, line: Line, typed: TypedName) -> TypedName:
        if typed.name in self.names.objects:
            raise line.error(f"'{typed.name}' is there twice")
        self.names.objects[typed.name] = typed
        return typed

    def _fact(self, line: Line) -> Atom:
        literal = self._literal(line)
        if not literal.is_positive or literal.atom.predicate in (EQUALITY, *self.names.derived):
            raise line.error("not a fact that can hold at the start", expected="a fact of the domain, not a negated, "
                             "derived or built-in one")  # fmt: skip
        return literal.atom

    def _literal(self, line: Line) -> Literal:
        literals = [Literal(Atom(name, terms)) for name, terms in _matches(self.facts, line.text)]
        for opening in (NOT, capital(NOT)):
            if line.text.startswith(opening):
                denied = _matches(self.facts, line.text.removeprefix(opening))
                literals += [Literal(Atom(name, terms), is_positive=False) for name, terms in denied]
        return literals[self._only(line, [literal.atom for literal in literals], "fact")]

    def _value(self, line: Line) -> FunctionValue:
        found = [(Atom(name, terms[:-1]), terms[-1]) for name, terms in _matches(self.values, line.text)]
        term, number = found[self._only(line, [term for term, _ in found], "number")]
        return FunctionValue(term, int(number) if number.lstrip("-").isdigit() else float(number))

    def _only(self, line: Line, found: list[Atom], kind: str) -> int:
        """Return the index of the one reading in which every object is known and of a type that fits."""
        faults = [self._fault(atom) for atom in found]
        sound = [index for index, fault in enumerate(faults) if fault is None]
        if len(sound) > 1:
            raise line.error(f"a sentence that can be two {kind}s", expected=" or ".join(str(found[i]) for i in sound))
        if not sound:
            raise line.error(f"no {kind} of the domain" + "".join(f"; as {atom}: {fault}" for atom, fault in
                             zip(found, faults, strict=True)), expected="a phrase of the domain")  # fmt: skip
        return sound[0]

    def _fault(self, atom: Atom) -> str | None:
        """Return what keeps an atom from being one of this problem."""
        schema = self.names.predicates.get(atom.predicate) or self.names.functions.get(atom.predicate)
        for position, name in enumerate(atom.arguments):
            typed = self.names.objects.get(name)
            if typed is None:
                return f"no object '{name}'"
            if schema is not None and not self.names.fits(typed.types, schema.parameters[position]):
                return f"'{name}' is of the wrong type"
        return None


_Patterns = Sequence[tuple[str, re.Pattern[str]]]


def _patterns(templates: Sequence[_Template], *, is_valued: bool) -> _Patterns:
    """Return name and regular expression of each template; of valued ones the last position is a number."""
    return [(one.name, _pattern(one.text, one.arity, one.arity - 1 if is_valued else None)) for one in templates]


@lru_cache(maxsize=4096)
def _pattern(template: str, arity: int, number: int | None) -> re.Pattern[str]:
    parts: list[str] = []
    seen: set[int] = set()
    for index, piece in enumerate(cut(template)):
        if isinstance(piece, int):
            parts.append(f"(?P=p{piece})" if piece in seen else f"(?P<p{piece}>{_NUMBER if piece == number else NAME})")
            seen.add(piece)
        else:
            parts.append(_small_or_large(piece) if index == 0 else re.escape(piece))
    if seen != set(range(arity)):
        raise BadInputError("a phrase that does not fit its arguments", got=repr(template),
                            expected=f"{arity} positions, from {{0}}", cure="change it in phrases.yaml")  # fmt: skip
    return re.compile("".join(parts))


def _small_or_large(words: str) -> str:
    """Return the expression of words that may begin a sentence."""
    return f"(?:{re.escape(words[0])}|{re.escape(capital(words[0]))}){re.escape(words[1:])}"


def _matches(patterns: _Patterns, sentence: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return what a sentence can say, each once: names with their arguments, in order."""
    found = []
    for name, pattern in patterns:
        match = pattern.fullmatch(sentence)
        if match is not None:
            terms = match.groupdict()
            found.append((name, tuple(terms[f"p{position}"] for position in range(len(terms)))))
    return list(dict.fromkeys(found))

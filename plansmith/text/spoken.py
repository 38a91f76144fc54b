"""A domain under the names that its description in words gives away, with that description.

Whoever only reads a text can call things by its words and by nothing else. So a predicate is called by its phrase, a
letter in the place of each argument ("the top of {0} is free": ``the-top-of-x-is-free``), its arguments in the order in
which the phrase names them, and a type by its noun; actions and objects are named in the text and keep their names, so
that a plan in such a domain is a plan in the one it was made of. Not here: the texts (`natural_language`), names
without meaning (`anonymisation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.pddl.model import OBJECT, Domain, Problem, TypedName
from plansmith.text.anonymisation import Anonymisation, Renamer
from plansmith.text.natural_language import cut, domain_text, fitting, noun_of, predicate_phrase, problem_text

SLOT = "x"
"""Stands for an argument in the name of a predicate."""
PLURAL = "things of kind {0}"
"""Several objects of a type: a reader to whom every word is new could not tell which plural is of which noun."""
THING = "thing"
"""What objects are where neither the domain nor its phrases have a word for them."""

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class SpokenDomain:
    """A domain as one of its descriptions tells it.

    Attributes:
        domain: as it is called elsewhere.
        phrases: its words.
        phrasing: which of them; see `problem_text`.

    Raises:
        BadInputError: the description tells of constants, numbers, rules, or one of several types, which steps of
            modelling have no place for; or it calls two things alike.
    """

    domain: Domain
    phrases: Phrases
    phrasing: int

    def __post_init__(self) -> None:
        domain = self.domain
        names = [*self._names.predicates.values(), *self._names.types.values()]
        twice = sorted({name for name in names if names.count(name) > 1 or not name[:1].isalpha()})
        untold = {
            "constants": domain.constants,
            "numbers": domain.functions,
            "rules": domain.derived,
            "one of several types": [typed.name for typed in self._typed() if len(typed.types) > 1],
            "the same name for two things, or none": twice,
        }
        if found := [what for what, there in untold.items() if there]:
            raise BadInputError("a description that no steps of modelling follow", where=f"domain {domain.name}",
                                got=", ".join(found), expected="types, predicates and actions, each called by its "
                                "own words", cure="leave the domain out")  # fmt: skip

    def _typed(self) -> Iterator[TypedName]:
        yield from self.domain.types
        for schema in self.domain.predicates:
            yield from schema.parameters
        for action in self.domain.actions:
            yield from action.parameters

    @cached_property
    def text(self) -> str:
        """Return the description, in which the arguments of a fact are listed as its phrase names them, too.

        Listed as the domain declares them ("B carries A" of A, a package, and B, a vehicle), the first argument of what
        the phrase gives away would have the second one listed's type.
        """
        same = Renamer(_names_of(self.domain, predicates={}, types={}), self._orders)
        phrases = {schema.name: (in_order_of_mention(self._phrase(schema.name)),) for schema in self.domain.predicates}
        said = self._said.model_copy(update={"predicates": phrases})
        return domain_text(same.domain(self.domain), said, phrasing=self.phrasing)

    @cached_property
    def pddl(self) -> Domain:
        """Return the domain under the names of its words; one without types gets the noun of its objects for a type."""
        made = self._renamer.domain(self.domain)
        if self.domain.types:
            return made
        return replace(made, types=(TypedName(self._names.types[OBJECT], (OBJECT,)),))

    def problem_text(self, problem: Problem) -> str:
        """Return a problem in words; see `natural_language.problem_text`."""
        return problem_text(self.domain, self._said, problem, phrasing=self.phrasing, one_by_one=True)

    def problem_pddl(self, problem: Problem) -> Problem:
        """Return a problem under the names of the words."""
        return self._renamer.problem(problem)

    @cached_property
    def _said(self) -> Phrases:
        nouns = {name: self._noun(name) for name in (OBJECT, *self._kinds)}
        said = {name: (noun, PLURAL.replace("{0}", noun)) for name, noun in nouns.items()}
        return self.phrases.model_copy(update={"types": said})

    @property
    def _kinds(self) -> list[str]:
        return [typed.name for typed in self.domain.types] or [OBJECT]

    def _noun(self, name: str) -> str:
        noun = noun_of(self.phrases, name)[0]
        return THING if noun == OBJECT and not self.domain.types else noun

    @cached_property
    def _renamer(self) -> Renamer:
        return Renamer(self._names, self._orders)

    @cached_property
    def _orders(self) -> dict[str, tuple[int, ...]]:
        orders = {schema.name: order_of(self._phrase(schema.name)) for schema in self.domain.predicates}
        for schema in self.domain.predicates:
            fitting(schema.name, self._phrase(schema.name), len(schema.parameters))
        return orders

    def _phrase(self, predicate: str) -> str:
        return predicate_phrase(self.phrases, predicate, self.phrasing)

    @cached_property
    def _names(self) -> Anonymisation:
        return _names_of(
            self.domain,
            predicates={schema.name: predicate_name(self._phrase(schema.name)) for schema in self.domain.predicates},
            types={name: type_name(self._noun(name)) for name in self._kinds},
        )


def predicate_name(phrase: str) -> str:
    """Return what a predicate is called that a phrase says."""
    pieces = (SLOT if isinstance(piece, int) else piece for piece in cut(phrase))
    return "-".join(word for piece in pieces for word in _WORD.findall(piece.lower()))


def order_of(phrase: str) -> tuple[int, ...]:
    """Return the positions of a phrase in the order in which it names them first."""
    return tuple(dict.fromkeys(piece for piece in cut(phrase) if isinstance(piece, int)))


def in_order_of_mention(phrase: str) -> str:
    """Return a phrase whose positions count from 0 in the order in which it names them first."""
    order = order_of(phrase)
    return "".join(f"{{{order.index(piece)}}}" if isinstance(piece, int) else piece for piece in cut(phrase))


def type_name(noun: str) -> str:
    """Return what a type is called that a noun says."""
    return "-".join(_WORD.findall(noun.lower()))


class _Same(dict[str, str]):
    """Names that stay."""

    def __missing__(self, name: str) -> str:
        return name


def _names_of(domain: Domain, *, predicates: dict[str, str], types: dict[str, str]) -> Anonymisation:
    return Anonymisation(_Same(), _Same(predicates), _Same(), _Same(types), _Same())

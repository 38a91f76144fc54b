"""Slips as language models make them, planted by program into a good domain: one fault each, with its lines and cure.

`SLIPS` is the table: a kind of slip to the function that yields what it makes of a domain. `measure` diagnoses a sample
of them. A bracket may stand anywhere in a run of closing brackets, so all lines of the run are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from plansmith.pddl.diagnosis import diagnose

PARTS = (":parameters", ":precondition", ":effect")
SECTIONS = (":requirements", ":types", ":constants", ":predicates", ":functions", ":derived", ":action")
CONNECTIVES = ("and", "or", "not", "imply", "exists", "forall", "when")
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Token:
    """A bracket or a word; `mate` is the number of the other bracket, `path` the heads of the lists around."""

    text: str
    start: int
    mate: int
    path: tuple[str, ...]

    @property
    def end(self) -> int:
        """Return where the token ends."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Slip:
    """A text with one fault: the lines on which it may be reported, and words that its cure must have."""

    text: str
    lines: range
    cure: str


class Anatomy:
    """The tokens of a well-formed domain."""

    def __init__(self, text: str) -> None:
        self.text = text
        plain = re.sub(r";.*", lambda match: " " * len(match.group()), text)
        self.tokens: list[Token] = []
        heads: list[list[str]] = []
        opened: list[int] = []
        for number, match in enumerate(_TOKEN.finditer(plain)):
            word = match.group()
            mate = opened.pop() if word == ")" else -1
            if word == ")":
                heads.pop()
                self.tokens[mate] = Token("(", self.tokens[mate].start, number, self.tokens[mate].path)
            self.tokens.append(Token(word, match.start(), mate, tuple(head[-1] for head in heads)))
            if word == "(":
                opened.append(number)
                heads.append([""])
            elif word != ")" and (heads[-1] == [""] or word in PARTS):
                heads[-1].append(word)  # the parts of an action count as lists of their own

    def line(self, offset: int) -> int:
        """Return the line of an offset, from 1."""
        return self.text.count("\n", 0, offset) + 1

    def lines_of(self, number: int) -> range:
        """Return the lines of a token; of a closing bracket, those of its run and of the word before."""
        first = number
        while self.tokens[first].text == ")" == self.tokens[number].text:
            first -= 1
        last = number
        while self.tokens[number].text == ")" and last + 1 < len(self.tokens) and self.tokens[last + 1].text == ")":
            last += 1
        return range(self.line(self.tokens[first].start), self.line(self.tokens[last].start) + 1)

    def swapped(self, number: int, new: str, cure: str, *, until: int | None = None) -> Slip:
        """Return the slip of writing something else instead of a token, or of all from it to `until`."""
        start, end = self.tokens[number].start, self.tokens[number if until is None else until].end
        return Slip(self.text[:start] + new + self.text[end:], self.lines_of(number), cure)

    def within(self, *heads: str) -> Iterator[int]:
        """Yield the tokens somewhere inside a list, or a part of an action, of one of these names."""
        return (number for number, token in enumerate(self.tokens) if not set(heads).isdisjoint(token.path))

    def atoms(self, *heads: str) -> Iterator[int]:
        """Yield the opening brackets of the atoms within, those with arguments only."""
        for number in self.within(*heads):
            mate = self.tokens[number].mate
            words = [token.text for token in self.tokens[number + 1 : mate]]
            is_flat = self.tokens[number].text == "(" and len(words) > 1 and not {"(", "-", "="} & {*words}
            if is_flat and words[0] not in CONNECTIVES and words[0][0] != "?":
                yield number

    @cached_property
    def declared(self) -> dict[str, str]:
        """Return the declared predicates by name, with their arguments without types."""
        found = {}
        for number in self.within(":predicates"):
            token = self.tokens[number]
            if token.text == "(" and token.path[-1] == ":predicates":
                words = [inner.text for inner in self.tokens[number + 1 : token.mate]]
                found[words[0]] = (
                    f"({' '.join(word for word in (words[0], *words[1:]) if word[0] == '?' or word is words[0])})"
                )
        return found


def misspelt(name: str) -> str:
    """Return a name with two neighbours in the middle swapped, or doubled where that changes nothing."""
    for place in range(len(name) // 2, 0, -1):
        if name[place - 1] != name[place] and name[place - 1] not in "?-" and name[place] != "-":
            return name[: place - 1] + name[place] + name[place - 1] + name[place + 1 :]
    return name + name[-1]


def _keywords(anatomy: Anatomy, keywords: Sequence[str]) -> Iterator[Slip]:
    for number, token in enumerate(anatomy.tokens):
        if token.text in keywords:
            wrong = token.text.removesuffix("s") if token.text.endswith("s") else f"{token.text}s"
            yield anatomy.swapped(number, wrong, f"write '{token.text}'")


def _lost(*heads: str) -> Callable[[Anatomy], Iterator[Slip]]:
    def slips(anatomy: Anatomy) -> Iterator[Slip]:
        for number in anatomy.within(*heads):
            if anatomy.tokens[number].text == ")":
                yield anatomy.swapped(number, "", "add the ')'")

    return slips


def _surplus(*heads: str) -> Callable[[Anatomy], Iterator[Slip]]:
    def slips(anatomy: Anatomy) -> Iterator[Slip]:
        for number in anatomy.within(*heads):
            if anatomy.tokens[number].text == ")":
                yield anatomy.swapped(number, "))", "remove")

    return slips


def _lost_opening(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.within(":precondition", ":effect", ":predicates"):
        token = anatomy.tokens[number]
        if token.text == "(":
            yield anatomy.swapped(number, "", f"write '({anatomy.tokens[number + 1].text.strip('(')}")


def _dashes(write: Callable[[str, str], str], cure: Callable[[str, str], str]) -> Callable[[Anatomy], Iterator[Slip]]:
    def slips(anatomy: Anatomy) -> Iterator[Slip]:
        for number in anatomy.within(":predicates", ":parameters"):
            name, dash, kind = (token.text for token in anatomy.tokens[number - 1 : number + 2])
            if dash == "-" and kind != "(":
                yield anatomy.swapped(number - 1, write(name, kind), cure(name, kind), until=number + 1)

    return slips


def _marks(*heads: str) -> Callable[[Anatomy], Iterator[Slip]]:
    def slips(anatomy: Anatomy) -> Iterator[Slip]:
        for number in anatomy.within(*heads):
            name = anatomy.tokens[number].text
            if name.startswith("?"):
                yield anatomy.swapped(number, name[1:], f"write '{name}'")

    return slips


def _misspelt_predicates(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.atoms(":precondition", ":effect"):
        name = anatomy.tokens[number + 1].text
        if misspelt(name) not in anatomy.declared and name in anatomy.declared:
            yield anatomy.swapped(number + 1, misspelt(name), f"write '{name}'")


def _misspelt_declarations(anatomy: Anatomy) -> Iterator[Slip]:
    used = [anatomy.tokens[number + 1].text for number in anatomy.atoms(":precondition", ":effect")]
    for number in anatomy.within(":predicates"):
        name = anatomy.tokens[number].text
        if name in anatomy.declared and used.count(name) > 1 and misspelt(name) not in anatomy.declared:
            yield anatomy.swapped(number, misspelt(name), f"write '{name}'")


def _arities(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.atoms(":precondition", ":effect"):
        name, last = anatomy.tokens[number + 1].text, anatomy.tokens[number].mate - 1
        if (shape := anatomy.declared.get(name)) is not None:
            yield anatomy.swapped(last, f"{anatomy.tokens[last].text} {anatomy.tokens[last].text}", shape)
            yield anatomy.swapped(last, "", shape)


def _misspelt_types(anatomy: Anatomy) -> Iterator[Slip]:
    names = {token.text for token in anatomy.tokens}
    for before, number in pairwise(anatomy.within(":predicates", ":parameters")):
        kind = anatomy.tokens[number].text
        if anatomy.tokens[before].text == "-" and kind[0].isalpha() and len(kind) > 3 and misspelt(kind) not in names:
            yield anatomy.swapped(number, misspelt(kind), f"write '{kind}'")


def _misspelt_variables(anatomy: Anatomy) -> Iterator[Slip]:
    names = {token.text for token in anatomy.tokens}
    for number in anatomy.within(":precondition", ":effect"):
        token = anatomy.tokens[number]
        wrong = token.text + token.text[-1]
        if token.text[0] == "?" and token.path[-1] in anatomy.declared and wrong not in names:
            yield anatomy.swapped(number, wrong, f"write '{token.text}'")


def _undeclared_objects(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.atoms(":precondition", ":effect"):
        if anatomy.tokens[number + 1].text in anatomy.declared:
            yield anatomy.swapped(number + 2, "somewhere", "declare it as an object or a constant")


def _lost_sections(anatomy: Anatomy) -> Iterator[Slip]:
    for number, token in enumerate(anatomy.tokens):
        if token.text in (":predicates", ":types"):
            slip = anatomy.swapped(number - 1, "", f"add ({token.text}", until=anatomy.tokens[number - 1].mate)
            yield Slip(slip.text, range(anatomy.line(anatomy.tokens[0].start), slip.lines.stop), slip.cure)


def _misspelt_and(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.within(":precondition", ":effect"):
        if anatomy.tokens[number].text == "and":
            yield anatomy.swapped(number, "adn", "write 'and'")


def _bare_not(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.atoms(":precondition", ":effect"):
        atom, mate = anatomy.tokens[number], anatomy.tokens[number].mate
        if atom.path[-1] == "not":
            words = " ".join(token.text for token in anatomy.tokens[number + 1 : mate])
            yield anatomy.swapped(number, words, f"write (not ({words}))", until=mate)


def _commas(anatomy: Anatomy) -> Iterator[Slip]:
    for number in anatomy.within(":predicates", ":parameters"):
        if anatomy.tokens[number].text[0] == "?" and anatomy.tokens[number + 1].text[0] == "?":
            yield anatomy.swapped(number, f"{anatomy.tokens[number].text},", "remove")


def _foreign_comments(anatomy: Anatomy) -> Iterator[Slip]:
    for number, mark in zip(range(8, len(anatomy.tokens), 7), ("#", "//") * len(anatomy.tokens), strict=False):
        end = anatomy.text.find("\n", anatomy.tokens[number].start)
        if end > 0 and ";" not in anatomy.text[anatomy.text.rfind("\n", 0, end) + 1 : end]:
            text = f"{anatomy.text[:end]}  {mark} the (first :effect of it\n{anatomy.text[end + 1 :]}"
            yield Slip(text, range(anatomy.line(end), anatomy.line(end) + 1), "';'")


def _fences(anatomy: Anatomy) -> Iterator[Slip]:
    yield Slip(f"```pddl\n{anatomy.text}\n```\n", range(1, 2), "remove")
    yield Slip(f"Here is the domain (as asked):\n\n{anatomy.text}", range(1, 2), "remove")


SLIPS: dict[str, Callable[[Anatomy], Iterator[Slip]]] = {
    "keyword of a part misspelt": lambda anatomy: _keywords(anatomy, PARTS),
    "keyword of a section misspelt": lambda anatomy: _keywords(anatomy, SECTIONS),
    ") lost in a precondition": _lost(":precondition"),
    ") lost in an effect": _lost(":effect"),
    ") lost in a declaration": _lost(":types", ":predicates", ":parameters"),
    ") too many in a precondition": _surplus(":precondition"),
    ") too many in an effect": _surplus(":effect"),
    ") too many in a declaration": _surplus(":types", ":predicates", ":parameters"),
    "( lost": _lost_opening,
    "dash glued to the type": _dashes(lambda name, kind: f"{name} -{kind}", lambda _, kind: f"write '- {kind}'"),
    "dash glued to the name": _dashes(lambda name, kind: f"{name}- {kind}", lambda name, _: f"write '{name} - "),
    "dash lost": _dashes(lambda name, kind: f"{name} {kind}", lambda _, kind: f"write '- {kind}'"),
    "? lost in parameters": _marks(":parameters", ":predicates"),
    "? lost in a formula": _marks(":precondition", ":effect"),
    "predicate misspelt": _misspelt_predicates,
    "predicate misspelt where declared": _misspelt_declarations,
    "argument lost or added": _arities,
    "type misspelt": _misspelt_types,
    "variable misspelt": _misspelt_variables,
    "object not declared": _undeclared_objects,
    "section lost": _lost_sections,
    "and misspelt": _misspelt_and,
    "not without inner brackets": _bare_not,
    "comma between parameters": _commas,
    "comment of another language": _foreign_comments,
    "fence or words around": _fences,
}


@dataclass(frozen=True)
class Tally:
    """What became of the slips of one kind."""

    n: int
    n_errors: int
    n_single: int
    n_right_line: int
    n_right_cure: int

    @classmethod
    def of(cls, slips: Iterable[Slip]) -> Tally:
        """Return the tally of some slips."""
        return cls(*map(sum, zip(*((1, *judged(slip)) for slip in slips), strict=True)))


def judged(slip: Slip) -> tuple[int, bool, bool, bool]:
    """Return the number of errors, and whether it is one, and whether the first has the right line and cure."""
    errors = [found for found in diagnose(slip.text) if found.is_error]
    if not errors:
        return 0, False, False, False
    is_cured = slip.cure.lower() in (errors[0].repair or "")
    return len(errors), len(errors) == 1, errors[0].place.line in slip.lines, is_cured


anatomy_of = cache(Anatomy)


def sample(text: str, kind: str, at_most: int) -> list[Slip]:
    """Return slips of a kind in a domain, spread evenly over the places where it can be planted."""
    slips = list(SLIPS[kind](anatomy_of(text)))
    return slips if len(slips) <= at_most else [slips[i * len(slips) // at_most] for i in range(at_most)]

"""Answers of steps 4 and 5 from the paper's tasks with one mistake each, of a kind and at a place drawn at random."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from plansmith.modelling.checks import SCHEMA_CHECKS, argument_types
from plansmith.modelling.products import Parameter, Predicate
from plansmith.modelling.reading import HEADINGS, PROBLEM_TITLES, SCHEMA_TITLES
from plansmith.modelling.script import ReferenceAnswers
from plansmith.modelling.writing import write_problem, write_schema

ATOM = re.compile(r"\((?!(?:and|or|not|forall|=)[\s)])(?P<name>[\w-]+)(?P<arguments>(?: [?\w-]+)*)\)")
_IN_SCHEMA, _IN_PROBLEM = ("precondition", "effect"), ("state", "goal")
GIZMOS = ("gizmo", "thingummy", "whatnot", "contraption")
"""Words that no reference knows."""


@dataclass(frozen=True)
class Sound:
    """A right answer, and what it may use.

    Attributes:
        text: the answer.
        own: whose answer it is.
        subject: the action of step 4, empty in step 5.
        things: its parameters, or its objects.
        known: predicates that were known before it.
        new: those that it declares.
        rng: that draws the mistake.
    """

    text: str
    own: ReferenceAnswers
    subject: str
    things: tuple[Parameter, ...]
    known: tuple[Predicate, ...]
    new: tuple[Predicate, ...]
    rng: random.Random

    def start(self, title: str) -> int:
        """Return where what stands below a heading begins."""
        heading = f"## {HEADINGS[title]}\n"
        return self.text.index(heading) + len(heading)

    def end(self, title: str) -> int:
        """Return where it ends: at the next heading, or with the answer."""
        found = self.text.find("## ", self.start(title))
        return len(self.text) if found < 0 else found

    def atom(self, *titles: str, least: int = 0) -> re.Match[str] | None:
        """Return one of the atoms with so many arguments at least below some headings, None where there is none."""
        found = [one for title in titles for one in ATOM.finditer(self.text, self.start(title), self.end(title))
                 if len(one["arguments"].split()) >= least]  # fmt: skip
        return self.rng.choice(found) if found else None

    def line(self, title: str) -> re.Match[str] | None:
        """Return one of the items of the list below a heading, None where there is none."""
        found = list(re.compile(r"^- .*$", re.MULTILINE).finditer(self.text, self.start(title), self.end(title)))
        return self.rng.choice(found) if found else None

    def fits(self, thing: Parameter, wanted: str) -> bool:
        """Return whether something is of a type."""
        parents, kind = {node.name: node.parent for node in self.own.sketch.tree.nodes}, thing.type
        while kind != wanted and kind in parents:
            kind = parents[kind]
        return kind == wanted

    def gizmo(self) -> str:
        """Return a word that means nothing."""
        return f"{self.rng.choice(GIZMOS)}{self.rng.choice(('', '-1', '_x', '2'))}"


@dataclass(frozen=True)
class Spoiling:
    """A mistake: what stands from `start` to `end` is written anew.

    It is wrong from `at` of that on, in some line up to `until`; `at` is None where no line is wrong.
    """

    start: int
    end: int
    new: str
    at: int | None = 0
    until: int = 0


Recipe = Callable[[Sound], Spoiling | None]


def sound_answer(own: ReferenceAnswers, step: int, rng: random.Random) -> Sound:
    """Return the right answer of step 4 about some action, which needs some predicates anew, or that of step 5."""
    every = own.sketch.predicates
    if step == 5:
        objects, facts = ([*one] for one in (own.problem.objects, own.problem.init.split("\n")))
        rng.shuffle(objects)
        rng.shuffle(facts)
        shuffled = replace(own.problem, objects=tuple(objects), init="\n".join(facts))
        return Sound(write_problem(shuffled), own, "", shuffled.objects, every, (), rng)
    schema = rng.choice(own.sketch.schemas)
    used = [one for one in every if re.search(rf"\({re.escape(one.name)}[ )]", f"{schema.precondition}{schema.effect}")]
    new = tuple(one for one in used if one is not every[0] and rng.random() < 0.3)
    broken = {part: re.sub(r" (?=\()", lambda _: rng.choice((" ", "\n  ")), getattr(schema, part))
              for part in ("precondition", "effect")}  # fmt: skip
    text = write_schema(replace(schema, predicates=new, **broken))
    return Sound(text, own, schema.name, schema.parameters, tuple(one for one in every if one not in new), new, rng)


def spoilt(answer: Sound, check: str) -> tuple[str, range] | None:
    """Return an answer with a mistake of some kind that a check is for, and its lines; None where it has no place."""
    made = answer.rng.choice(RECIPES[check])(answer)
    if made is None:
        return None
    text = answer.text[: made.start] + made.new + answer.text[made.end :]
    first = 0 if made.at is None else 1 + text.count("\n", 0, made.start + made.at)
    return text, range(first, first + 1 + text.count("\n", made.start, made.start + made.until))


# --- both steps


def _heading_lost(answer: Sound) -> Spoiling:
    title = answer.rng.choice(SCHEMA_TITLES if answer.subject else PROBLEM_TITLES)
    heading = f"## {HEADINGS[title]}\n"
    said = answer.rng.choice(("", "So it goes on.\n", f"{answer.gizmo()}\n"))
    return Spoiling(answer.start(title) - len(heading), answer.start(title), said, None)


def _heading_twice(answer: Sound) -> Spoiling:
    title = answer.rng.choice(SCHEMA_TITLES[:-1] if answer.subject else PROBLEM_TITLES)
    body = answer.text[answer.start(title) : answer.end(title)].replace("```\n", "").strip()
    again = f"\n\n## {HEADINGS[title]}\n"
    return Spoiling(len(answer.text), len(answer.text), f"{again}{body}\n", len(again))


def _no_pddl(answer: Sound) -> Spoiling:
    title = "effect" if answer.subject else "goal"
    return Spoiling(answer.start(title), answer.end(title), f"It is {answer.gizmo()} that changes.\n\n")


def _declared_again(title: str) -> Recipe:
    """Return what declares a parameter or an object a second time."""

    def spoil(answer: Sound) -> Spoiling | None:
        item, last = answer.line(title), answer.text.rstrip("\n").rfind("\n", 0, answer.end(title) - 1)
        return None if item is None else Spoiling(last, last, f"\n{item[0]}", 1)

    return spoil


def _no_type(title: str) -> Recipe:
    """Return what leaves the type of a parameter or an object out."""

    def spoil(answer: Sound) -> Spoiling | None:
        item, comment = answer.line(title), answer.rng.choice(("", ": it", "; that one"))
        return None if item is None else Spoiling(*item.span(), item[0].rpartition(" - ")[0] + comment)

    return spoil


def _strange_type(title: str) -> Recipe:
    """Return what gives a parameter or an object a type that there is not."""

    def spoil(answer: Sound) -> Spoiling | None:
        item = answer.line(title)
        if item is None:
            return None
        head, _, kind = item[0].rpartition(" - ")
        wrong = answer.rng.choice((answer.gizmo(), f"{kind}s", kind[:-1] + "y", f"(either {kind} {answer.gizmo()})"))
        return Spoiling(*item.span(), f"{head} - {wrong}")

    return spoil


def _one_more(title: str, written: Callable[[Sound], str]) -> Recipe:
    """Return what adds an item at some place of a list."""

    def spoil(answer: Sound) -> Spoiling:
        item = answer.line(title)
        place = answer.start(title) - 1 if item is None else answer.rng.choice((item.start() - 1, item.end()))
        return Spoiling(place, place, f"\n- {written(answer)}", 1)

    return spoil


def _renamed(titles: Sequence[str]) -> Recipe:
    """Return what calls the predicate of an atom as none is called."""

    def spoil(answer: Sound) -> Spoiling | None:
        atom = answer.atom(*titles)
        if atom is None:
            return None
        strange = answer.rng.choice((answer.gizmo(), f"{atom['name']}x", f"not-{atom['name']}-at-all"))
        return Spoiling(atom.start(), atom.end(), f"({strange}{atom['arguments']})")

    return spoil


def _other_count(titles: Sequence[str]) -> Recipe:
    """Return what gives an atom an argument more or less."""

    def spoil(answer: Sound) -> Spoiling | None:
        atom = answer.atom(*titles, least=1)
        if atom is None:
            return None
        given = atom["arguments"].split()
        place = answer.rng.randrange(len(given))
        wrong = answer.rng.choice((given[:place] + given[place + 1 :], [*given, given[place]], given * 3))
        return Spoiling(atom.start(), atom.end(), f"({' '.join([atom['name'], *wrong])})")

    return spoil


def _with_argument(titles: Sequence[str], wrong: Callable[[Sound, str, str], Sequence[str]]) -> Recipe:
    """Return what puts one of `wrong` in the place of an argument, which is told with the type that it has to have."""

    def spoil(answer: Sound) -> Spoiling | None:
        atom = answer.atom(*titles, least=1)
        if atom is None:
            return None
        given = atom["arguments"].split()
        place = answer.rng.randrange(len(given))
        kinds = next(argument_types(one) for one in (*answer.known, *answer.new) if one.name == atom["name"])
        choices = wrong(answer, given[place], kinds[place])
        if not choices:
            return None
        given[place] = answer.rng.choice(choices)
        return Spoiling(atom.start(), atom.end(), f"({' '.join([atom['name'], *given])})")

    return spoil


def _nobody(answer: Sound, given: str, _: str) -> Sequence[str]:
    return [f"{given}-2", f"{given}x", f"?{answer.gizmo()}", *([] if answer.subject else [answer.gizmo()])]


def _misfits(answer: Sound, _: str, wanted: str) -> Sequence[str]:
    return [one.name for one in answer.things if not answer.fits(one, wanted)]


# --- step 4


def _keyword(answer: Sound) -> Spoiling | None:
    atom, word = answer.atom("effect"), answer.rng.choice(("forall", "exists", "if", "FORALL", "Exists"))
    kind, name = answer.own.a_type, answer.rng.choice("uvw")
    said = "(and)" if word == "if" else f"(?{name} - {kind})"
    return None if atom is None else Spoiling(atom.start(), atom.end(), f"({word} {said} {atom[0]})")


def _declared_as_type(answer: Sound) -> str:
    arguments = answer.rng.choice(("?x - object", f"?y - {answer.own.a_type}", "", "?x ?y - object"))
    return f"({' '.join(filter(None, [answer.rng.choice(sorted(answer.own.sketch.tree.names)), arguments]))})"


def _declared_otherwise(answer: Sound) -> str:
    known = answer.rng.choice(answer.known)
    return f"{known.declaration[:-1]} ?{answer.rng.choice('uvw')} - {answer.own.a_type})"


def _new_otherwise(answer: Sound) -> Spoiling | None:
    """Declare a predicate again, differently, below all that are new."""
    if not answer.new:
        return None
    end = len(answer.text.rstrip("\n"))
    declaration = answer.rng.choice(answer.new).declaration
    return Spoiling(end, end, f"\n- {declaration[:-1]} ?{answer.rng.choice('uvw')} - {answer.own.a_type})", 1)


def _declared_without_types(answer: Sound) -> str:
    first = answer.rng.choice(("", f"?a - {answer.own.a_type} ", "?b "))
    return f"({answer.gizmo()} {first}?{answer.rng.choice('xyz')})"


def _declared_of_strange_type(answer: Sound) -> str:
    return f"({answer.gizmo()} ?{answer.rng.choice('xyz')} - {answer.gizmo()})"


def _new_without_type(answer: Sound) -> Spoiling | None:
    item = answer.line("predicate")
    if item is None or " - " not in item[0]:
        return None
    return Spoiling(*item.span(), f"{item[0].rpartition(' - ')[0]})")


def _bracket_lost(titles: Sequence[str]) -> Recipe:
    """Return what leaves the last bracket of a formula out; the reader of PDDL may think that it was another."""

    def spoil(answer: Sound) -> Spoiling:
        title = answer.rng.choice(titles)
        first, last = (find(mark, answer.start(title), answer.end(title)) for find, mark in
                       ((answer.text.index, "("), (answer.text.rindex, ")")))  # fmt: skip
        return Spoiling(first, last + 1, answer.text[first:last], until=last - first)

    return spoil


def _bracket_too_many(titles: Sequence[str]) -> Recipe:
    """Return what closes a formula twice, or the list of the facts after one of them."""

    def spoil(answer: Sound) -> Spoiling:
        title = answer.rng.choice(titles)
        fact = answer.atom("state") if title == "state" else None
        last = fact.end() if fact else 1 + answer.text.rindex(")", answer.start(title), answer.end(title))
        return Spoiling(last, last, ")")

    return spoil


# --- step 5


def _called_as_type(answer: Sound) -> str:
    return f"{answer.rng.choice(sorted(answer.own.sketch.tree.names))} - {answer.own.a_type}"


def _called_as_predicate(answer: Sound) -> str:
    return f"{answer.rng.choice(answer.known).name} - {answer.rng.choice(sorted(answer.own.sketch.tree.names))}"


def _denied(answer: Sound) -> Spoiling | None:
    atom = answer.atom("state")
    return None if atom is None else Spoiling(atom.start(), atom.end(), f"(not {atom[0]})")


RECIPES: dict[str, tuple[Recipe, ...]] = {
    "header_inclusion": (_heading_lost, _heading_twice, _no_pddl),
    "keyword_usage": (_keyword,),
    "param_types": (
        _no_type("parameter"), _strange_type("parameter"), _declared_again("parameter"),
        _one_more("parameter", lambda answer: f"?{answer.gizmo()} - {answer.gizmo()}"),
    ),
    "predicate_names": (
        _one_more("predicate", _declared_as_type), _one_more("predicate", _declared_otherwise), _new_otherwise,
    ),
    "predicate_format": (
        _one_more("predicate", _declared_without_types), _one_more("predicate", _declared_of_strange_type),
        _new_without_type,
    ),
    "predicate_usage": (
        _renamed(_IN_SCHEMA), _other_count(_IN_SCHEMA), _with_argument(_IN_SCHEMA, _nobody),
        _with_argument(_IN_SCHEMA, _misfits), _bracket_lost(_IN_SCHEMA),
        _bracket_too_many(_IN_SCHEMA),
    ),
    "obj_type": (_no_type("object"), _strange_type("object"), _declared_again("object")),
    "obj_type_name": (_one_more("object", _called_as_type),),
    "obj_pred_name": (_one_more("object", _called_as_predicate),),
    "pred_exists": (_renamed(_IN_PROBLEM), _denied, _bracket_lost(_IN_PROBLEM), _bracket_too_many(_IN_PROBLEM)),
    "pred_nargs": (_other_count(_IN_PROBLEM),),
    "pred_objs": (_with_argument(_IN_PROBLEM, _nobody),),
    "pred_types": (_with_argument(_IN_PROBLEM, _misfits),),
}  # fmt: skip
"""By check, what it is for."""


def random_spoilt(answers: Sequence[ReferenceAnswers], rng: random.Random) -> tuple[Sound, str, str, range]:
    """Return a right answer, the check for the mistake that was made in it, the text with it, and its lines."""
    while True:
        check = rng.choice(list(RECIPES))
        step = rng.choice((4, 5)) if check == "header_inclusion" else 4 if check in SCHEMA_CHECKS else 5
        answer = sound_answer(rng.choice(answers), step, rng)
        made = spoilt(answer, check)
        if made is not None:
            return answer, check, *made

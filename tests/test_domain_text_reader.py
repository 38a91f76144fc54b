"""Domains and tasks in words and back, by a reader that knows the frames alone: the texts say all that is needed."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipelines.nl2plan import PIPELINE
from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.modelling.references import Reference, read_references
from plansmith.modelling.scrambling import Scrambler
from plansmith.pddl.model import (
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
    literals_of,
)
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import DOMAINS_FOLDER, PHRASES, domain_names, load_domain
from plansmith.text.domain_text_reader import read_domain_text, read_task_text
from plansmith.text.natural_language import CLOSING, FRAMES, domain_text
from plansmith.text.spoken import SpokenDomain

SAID = [name for name in domain_names() if (DOMAINS_FOLDER / name / PHRASES).is_file()]

CUPS = Domain(
    "cups", (), (TypedName("cup"), TypedName("shelf")), (),
    (
        PredicateSchema("on", (TypedName("?c", ("cup",)), TypedName("?s", ("shelf",)))),
        PredicateSchema("clean", (TypedName("?c", ("cup",)),)),
        PredicateSchema("near", (TypedName("?a", ("shelf",)), TypedName("?b"))),
        PredicateSchema("dark"),
    ),
    (),
)  # fmt: skip
CUP_PHRASES = Phrases(
    topic="Cups stand on shelves.",
    types={"cup": ("cup or mug", "cups or mugs"), "shelf": ("shelf", "shelves"), "object": ("item", "items")},
    predicates={"on": ("on {1} stands {0}, on {1} alone",), "clean": ("{0} is clean",), "near": ("{0} adjoins {1}",),
                "dark": ("it is dark",)},
    actions={"do": ("do it with {0}, {1} and {2}",), "rest": ("rest",)},
)  # fmt: skip
ON, CLEAN, DARK = Literal(Atom("on", ("?c", "?s"))), Literal(Atom("clean", ("?c",))), Literal(Atom("dark"))
SAME_CUP = Literal(Atom("=", ("?c", "?d")), is_positive=False)
SOME_CUPS = (TypedName("?c", ("cup",)), TypedName("?d", ("cup",)), TypedName("?s", ("shelf",)))
TASK = Problem(
    "p", "cups", (TypedName("c1", ("cup",)), TypedName("s1", ("shelf",)), TypedName("it")),
    (Atom("on", ("c1", "s1")), Atom("near", ("s1", "it"))),
    Conjunction((Literal(Atom("clean", ("c1",))), Literal(Atom("dark"), is_positive=False))), metric="total-time",
)  # fmt: skip


def spoken(name: str) -> Iterator[SpokenDomain]:
    """Yield a domain in every phrasing that tells its predicates apart."""
    loaded = load_domain(name)
    for phrasing in range(len(FRAMES)):
        with contextlib.suppress(BadInputError):
            yield SpokenDomain(loaded.domain, loaded.needed_phrases(), phrasing)


def task_text(own: SpokenDomain, problem: Problem) -> str:
    """Return the text of a task."""
    return f"{own.text}\n{own.problem_text(problem)}"


def told(domain: Domain) -> Domain:
    """Return all of a domain that words keep: a condition that must hold alone is not joined to anything."""

    def alone(condition: Condition) -> Condition:
        is_joined = isinstance(condition, Conjunction) and len(condition.parts) == 1
        return alone(condition.parts[0]) if is_joined else condition  # type: ignore[union-attr]

    actions = (replace(action, precondition=alone(action.precondition)) for action in domain.actions)
    return replace(domain, requirements=(), actions=tuple(actions))


def contents(problem: Problem) -> tuple[object, ...]:
    """Return all of a problem that words keep."""
    return problem.objects, Counter(problem.init), Counter(literals_of(problem.goal)), problem.metric


def check(own: SpokenDomain, problem: Problem) -> None:
    """Check that what a text tells is its reference, as the reference is called."""
    domain, read = read_task_text(task_text(own, problem))
    assert domain == told(own.pddl)
    assert contents(read) == contents(own.problem_pddl(problem))


@pytest.mark.parametrize("name", SAID)
def test_task_text_of_every_domain_and_phrasing_reads_back_as_the_reference(name: str) -> None:
    loaded = load_domain(name)
    for own in spoken(name):
        check(own, loaded.sample(loaded.levels[0], random.Random(f"{name} {own.phrasing}")))


def test_task_texts_of_the_demo_are_among_them() -> None:
    config = PIPELINE.settings("demo")
    assert config.lessons is not None
    names = {level.domain for level in config.lessons.problems.domains}
    assert len(names) == 14 and names <= set(SAID)
    assert all(any(spoken(name)) for name in names)
    assert sum(any(spoken(name)) for name in SAID) > 20


def test_task_texts_of_random_domains_read_back_as_the_reference() -> None:
    learnt = [load_domain(name) for name in ("ferry", "transport", "miconic", "briefcase", "satellite", "spanner")]
    scrambler = Scrambler.of((own.domain, own.needed_phrases()) for own in learnt)
    rng, kinds, n_made = random.Random(5), set[type[object]](), 0
    for own in learnt * 20:
        try:
            domain, phrases, problem = scrambler.scrambled(own.domain, own.needed_phrases(), own.sample("L1", rng), rng)
            made = SpokenDomain(domain, phrases, rng.randrange(12))
        except BadInputError:
            continue
        check(made, problem)
        n_made += 1
        kinds.update(type(part) for action in domain.actions for part in parts_of(action.precondition))
    assert n_made > 70
    assert kinds == {Literal, Conjunction, Disjunction, Implication, Quantification}


def parts_of(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and all that it is made of."""
    yield condition
    for part in () if isinstance(condition, Literal) else condition.members:
        yield from parts_of(part)


@pytest.mark.parametrize("phrasing", range(len(FRAMES)))
@pytest.mark.parametrize(
    ("needed", "effects"),
    [
        (Conjunction(), ()),
        (ON, (Literal(CLEAN.atom, is_positive=False),)),
        (
            Conjunction((Conjunction(), Disjunction(), Conjunction((ON,)), Disjunction((CLEAN, SAME_CUP)))),
            (CLEAN, DARK),
        ),
        (Implication(DARK, Negation(Conjunction((ON, Negation(Disjunction((DARK,))))))), (CLEAN,)),
        (
            Quantification(True, (TypedName("?e", ("cup",)), TypedName("?f"), TypedName("?g", ("shelf",))),
                           Quantification(False, (TypedName("?h", ("shelf",)),),
                                          Literal(Atom("near", ("?h", "?f"))))),
            (UniversalEffect((TypedName("?e", ("cup",)),), (Literal(Atom("clean", ("?e",))),)), CLEAN),
        ),
        (
            DARK,
            (
                ConditionalEffect(Disjunction((DARK, CLEAN)), (CLEAN, Literal(ON.atom, is_positive=False))),
                UniversalEffect((TypedName("?e", ("cup",)), TypedName("?s", ("shelf",))),
                                (DARK, ConditionalEffect(Conjunction(), (Literal(Atom("on", ("?e", "?s"))),)))),
                UniversalEffect((TypedName("?e"),), ()),
            ),
        ),
    ],
    ids=["nothing", "one", "joined", "denied", "quantified", "conditional"],
)  # fmt: skip
def test_domain_text_with_conditions_and_changes_of_any_depth_reads_back(
    needed: Condition, effects: tuple[Effect, ...], phrasing: int
) -> None:
    actions = (ActionSchema("do", SOME_CUPS, needed, effects), ActionSchema("rest", (), Conjunction(), (DARK,)))
    own = SpokenDomain(replace(CUPS, actions=actions), CUP_PHRASES, phrasing)
    assert read_domain_text(own.text) == told(own.pddl)
    check(own, TASK)


def test_predicate_is_called_by_its_phrase_with_arguments_in_its_order_and_one_said_twice_is_one() -> None:
    own = SpokenDomain(replace(CUPS, actions=(ActionSchema("do", SOME_CUPS, ON, (DARK,)),)), CUP_PHRASES, 0)
    domain, problem = read_task_text(task_text(own, TASK))
    on = domain.predicates[0]
    assert on.name == "on-x-stands-x-on-x-alone"
    assert on.parameters == (TypedName("?x0", ("shelf",)), TypedName("?x1", ("cup-or-mug",)))
    assert domain.actions[0].precondition == Literal(Atom(on.name, ("?x2", "?x0")))
    assert problem.objects[2] == TypedName("it", (OBJECT,))
    assert own.text.count("on X2 stands X0, on X2 alone") == 1
    with pytest.raises(BadInputError, match=r"line \d+: no fact of this domain"):
        read_domain_text(own.text.replace("on X2 stands X0, on X2 alone", "on X2 stands X0, on X1 alone"))


# --- what cannot be read


@pytest.mark.parametrize("own", read_references(), ids=lambda own: own.name)
def test_free_text_is_refused_with_its_first_line(own: Reference) -> None:
    for text in (own.text, own.domain_text):
        with pytest.raises(BadInputError, match="line 1: not the beginning of a domain in words") as caught:
            read_task_text(text)
        assert str(own.text).splitlines()[0] in str(caught.value)
        assert CLOSING in str(caught.value)


FERRY = """A ferry carries cars.

Kinds of objects:
- every car is an object
- every place is an object

Facts that there can be:
- the ferry lies at X0:
  - X0, a place
- X0 is parked at X1:
  - X0, a car
  - X1, a place
- the ferry is empty

Action board: load X0 at X1.
It is about:
- X0, a car
- X1, a place
It can be done only if:
- X0 is parked at X1
- at least one of these:
  - the ferry lies at X1
  - for every place X2:
    - it is not the case that the ferry lies at X2
What it changes:
- no longer: X0 is parked at X1
- if the first of these holds before it, the second comes about:
  - the ferry is empty
  - no longer: the ferry is empty

What an action is not said to change stays as it is. What it changes under a condition depends on how things stand \
before it. A fact that it both ends and brings about holds afterwards.

A ferry carries cars.

What there is:
- c1, a car
- p1, a place

At the start, this holds and nothing else. c1 is parked at p1. The ferry is empty.

This has to hold in the end. It is not the case that c1 is parked at p1.
"""


def test_task_text_is_read_word_for_word() -> None:
    domain, problem = read_task_text(FERRY)
    assert print_domain(domain) == (
        "(define (domain d_0)\n  (:types car place)\n"
        "  (:predicates (the-ferry-lies-at-x ?x0 - place) (x-is-parked-at-x ?x0 - car ?x1 - place) "
        "(the-ferry-is-empty))\n  (:action board\n    :parameters (?x0 - car ?x1 - place)\n"
        "    :precondition (and (x-is-parked-at-x ?x0 ?x1) "
        "(or (the-ferry-lies-at-x ?x1) (forall (?x2 - place) (not (the-ferry-lies-at-x ?x2)))))\n"
        "    :effect (and (not (x-is-parked-at-x ?x0 ?x1)) "
        "(when (the-ferry-is-empty) (and (not (the-ferry-is-empty)))))))\n"
    )
    assert print_problem(problem) == (
        "(define (problem described)\n  (:domain d_0)\n  (:objects c1 - car p1 - place)\n"
        "  (:init (x-is-parked-at-x c1 p1) (the-ferry-is-empty))\n"
        "  (:goal (and (not (x-is-parked-at-x c1 p1)))))\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("A ferry carries cars.\n\nKinds", "A ferry.\nMore.\n\nKinds", "line 1: not the beginning of a domain"),
        ("- every car is an object", "- a car is an object", "line 4: no kind of objects"),
        ("- every place is", "- every car is", "line 5: no kind of objects, or one that was there"),
        ("- every place is an object", "- every place is a thing", "line 3: kinds that are not all below one"),
        ("  - X1, a place\n- the ferry is", "  - X1, a port\n- the ferry is", "line 12: no kind of objects that was"),
        ("  - X1, a place\n- the ferry is", "  - a place\n- the ferry is", "line 12: nothing that has a kind"),
        ("- X0 is parked at X1:", "- X0 is parked:", "line 10: a fact that does not name all"),
        ("- the ferry is empty\n\nAction", "- the Ferry  lies at X0:\n  - X0, a car\n\nAction", "line 13: a fact that"),
        ("Action board: load", "Board: load", "line 15: no action"),
        ("It can be done only if:\n", "You need:\n", "line 1: not the beginning of a domain in words"),
        ("What it changes:\n", "What it alters:\n", "line 15: no action with all that it needs"),
        ("What it changes:\n- no", "What it changes:\n  - no", "line 26: no item that fits here"),
        ("- at least one of these:", "- at least one of these", "line 21: no item that fits here"),
        ("- at least one of these:", "- two of these:", "line 21: no condition that is made of so many"),
        ("- at least one of these:", "- this is not the case:", "line 21: no condition that is made of so many"),
        ("for every place X2", "for every place and X2", "line 23: no kind of objects that was told of"),
        ("for every place X2", "for every place", "line 23: nothing that has a kind"),
        ("    - it is not the case that the ferry lies at X2", "    - the ferry lies at X3", "line 24: no fact of"),
        ("no longer: X0 is parked", "suddenly: X0 is parked", "line 26: no change"),
        ("no longer: X0 is parked", "no longer: X0 stands", "line 26: no fact of this domain"),
        ("  - the ferry is empty\n  - no", "  - no", "line 27: no change"),
        ("Facts that there can be", "Numbers that are given", "line 7: no action"),
        ("What an action", "What no action", "line 1: not the beginning of a domain in words"),
        ("- c1, a car", "- c1, a van", "line 36: objects of no type"),
        ("- c1, a car", "- c1 a car", "line 36: not a sentence on objects"),
        ("The ferry is empty.\n", "The ferry is full.\n", "line 39: no fact of the domain"),
        ("This has to hold in the end", "You want this", "line 41: no goal"),
    ],
)  # fmt: skip
def test_task_text_with_a_line_that_no_template_has_is_refused_with_it(old: str, new: str, told: str) -> None:
    assert FERRY.count(old) == 1
    with pytest.raises(BadInputError, match=told):
        read_task_text(FERRY.replace(old, new))


def test_task_text_without_a_problem_and_domain_text_with_one_are_refused() -> None:
    domain = FERRY[: FERRY.index("A ferry", 10)]
    assert read_domain_text(domain) == read_task_text(FERRY)[0]
    with pytest.raises(BadInputError, match="line 31: nothing after the domain"):
        read_task_text(domain)
    with pytest.raises(BadInputError, match="line 33: more than a domain"):
        read_domain_text(FERRY)
    with pytest.raises(BadInputError, match="line 1: not the beginning"):
        read_domain_text("")


def test_domain_text_that_tells_of_constants_is_refused() -> None:
    loaded = load_domain("tyreworld")
    text = domain_text(loaded.domain, loaded.needed_phrases(), phrasing=0)
    with pytest.raises(BadInputError, match=r"line \d+: no"):
        read_domain_text(text)

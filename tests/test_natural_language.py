"""Problems in words and back: nothing is lost in any domain and phrasing; what cannot be said or read is refused."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest
from conftest import BLOCKS, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, SUSSMAN_PLAN, atoms, sussman

from plansmith.config.domains import Phrases
from plansmith.errors import BadInputError
from plansmith.pddl.model import (
    Atom,
    Conjunction,
    Domain,
    FunctionValue,
    Literal,
    PlanStep,
    Problem,
    TypedName,
    literals_of,
)
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.library import DOMAINS_FOLDER, PHRASES, domain_names, load_domain
from plansmith.text.coverage import coverage_faults
from plansmith.text.natural_language import FRAMES, Layout, domain_text, plan_text, problem_text
from plansmith.text.natural_language_reader import ambiguous_phrases, read_problem_text

SAID = [name for name in domain_names() if (DOMAINS_FOLDER / name / PHRASES).is_file()]
PHRASINGS = range(len(FRAMES))
NL_PDDL_BENCH = ("assembly", "data-network", "elevators", "logistics", "mprime", "mystery", "openstacks", "rovers",
                 "snake", "spider", "tpp", "woodworking", "zenotravel")  # fmt: skip
"""The domains of arXiv 2606.29700."""

ROUTES = parse_domain("""(define (domain routes)
  (:requirements :adl :action-costs :derived-predicates)
  (:types place vehicle - object car truck - vehicle)
  (:constants hub - place)
  (:predicates (at ?v - vehicle ?p - place) (closed ?p - place) (dirty ?v - vehicle) (reachable ?p - place))
  (:functions (distance ?a ?b - place) (toll ?p - place) (total-cost) - number)
  (:derived (reachable ?p - place) (exists (?v - vehicle) (or (at ?v ?p) (not (dirty ?v)))))
  (:action drive
    :parameters (?v - vehicle ?from ?to - place)
    :precondition (and (at ?v ?from) (not (= ?from ?to)) (imply (closed ?to) (not (and (dirty ?v) (closed hub)))))
    :effect (and (at ?v ?to) (not (at ?v ?from)) (when (closed ?from) (dirty ?v)) (increase (total-cost) (distance ?from
      ?to))))
  (:action wash :parameters () :precondition ()
    :effect (and (forall (?v - car) (not (dirty ?v))) (increase (total-cost) 3))))""")

ROUTES_PROBLEM = parse_problem("""(define (problem r) (:domain routes)
  (:objects c1 c2 - car t1 - truck v1 - vehicle x1 - (either car truck) p1 p2 - place and - place odd)
  (:init (at c1 p1) (at c2 hub) (at t1 and) (closed p2) (dirty x1)
    (= (distance p1 hub) 2.5) (= (distance hub p1) 12) (= (toll p2) -1) (= (total-cost) 0))
  (:goal (and (at c1 hub) (not (closed p2)) (not (= p1 p2)) (reachable p1)))
  (:metric minimize (total-cost)))""", ROUTES)  # fmt: skip

ROUTES_PHRASES = Phrases(
    topic="Vehicles drive\n  between places.",
    types={"place": ("place", "places"), "truck": ("lorry", "lorries"), "vehicle": ("car or lorry", "cars or lorries")},
    predicates={
        "at": ("{0} is at {1}", "at {1} there is {0}"),
        "closed": ("nobody may enter {0}", "{0} is closed to all"),
        "dirty": ("{0} is dirty", "{0} needs a wash"),
        "reachable": ("{0} can be reached", "somebody can reach {0}"),
    },
    functions={"distance": ("from {0} to {1} it is {2} km", "{1} lies {2} km from {0}")},
    actions={"drive": ("drive {0} from {1} to {2}", "take {0} to {2} from {1}"), "wash": ("wash all cars", "clean up")},
)


def contents(problem: Problem) -> tuple[object, ...]:
    """Return all of a problem that words keep."""
    goal = frozenset(literals_of(problem.goal))
    return (
        problem.domain_name, frozenset(problem.objects), frozenset(problem.init), goal,
        frozenset(problem.function_values), problem.metric,
    )  # fmt: skip


def phrases_of(name: str) -> Phrases:
    """Return the phrases of one of the project's domains."""
    phrases = load_domain(name).phrases
    assert phrases is not None
    return phrases


def routes_text(phrasing: int = 0) -> str:
    """Return the description of the problem that has everything."""
    return problem_text(ROUTES, ROUTES_PHRASES, ROUTES_PROBLEM, phrasing=phrasing)


def refusal(text: str, domain: Domain = ROUTES, phrases: Phrases = ROUTES_PHRASES) -> str:
    """Return the error that a description ends in."""
    with pytest.raises(BadInputError) as caught:
        read_problem_text(domain, phrases, text)
    return str(caught.value)


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("name", SAID)
def test_problem_text_of_every_level_and_phrasing_reads_back_as_the_same_problem(name: str, is_whole: bool) -> None:
    loaded, phrases = load_domain(name), phrases_of(name)
    for number, level in enumerate(loaded.levels):
        problem = loaded.sample(level, random.Random(f"{name} {level}"))
        for phrasing in PHRASINGS if is_whole else PHRASINGS[number :: len(loaded.levels)]:
            text = problem_text(loaded.domain, phrases, problem, phrasing=phrasing)
            assert contents(read_problem_text(loaded.domain, phrases, text)) == contents(problem)
            assert not coverage_faults(problem, loaded.domain, text)


@pytest.mark.parametrize("name", NL_PDDL_BENCH)
def test_problem_text_of_mixed_phrasings_reads_back_as_the_same_problem(name: str) -> None:
    loaded, phrases, rng = load_domain(name), phrases_of(name), random.Random(name)
    for level, phrasing in itertools.product(loaded.levels, PHRASINGS[:3]):  # the first three frames have all layouts
        problem = loaded.sample(level, rng)
        text = problem_text(loaded.domain, phrases, problem, phrasing=phrasing, mixing=rng)
        assert contents(read_problem_text(loaded.domain, phrases, text)) == contents(problem)


def test_problem_text_of_mixed_phrasings_with_all_constructs_reads_back() -> None:
    for seed in range(20):
        text = problem_text(ROUTES, ROUTES_PHRASES, ROUTES_PROBLEM, phrasing=seed, mixing=random.Random(seed))
        assert contents(read_problem_text(ROUTES, ROUTES_PHRASES, text)) == contents(ROUTES_PROBLEM)


def test_problem_text_of_mixed_phrasings_draws_one_for_each_fact_and_the_same_by_the_same_seed() -> None:
    phrases, problem = phrases_of("blocksworld"), sussman().problem
    once, again = (
        [problem_text(BLOCKS, phrases, problem, phrasing=0, mixing=random.Random(seed)) for seed in range(60)]
        for _ in range(2)
    )
    assert once == again
    clear_c, clear_b = ([phrase.format(name) for phrase in phrases.predicates["clear"]] for name in "cb")
    found = {
        (one, other)
        for text in once
        for one, other in itertools.product(clear_c, clear_b)
        if f" {one.lower()}." in text.lower() and f" {other.lower()}." in text.lower()
    }
    assert len(found) == 9  # every phrase of the one fact with every phrase of the other


@pytest.mark.parametrize("name", SAID)
def test_phrases_of_every_domain_can_be_told_apart(name: str) -> None:
    assert ambiguous_phrases(load_domain(name).domain, phrases_of(name)) == []


@pytest.mark.parametrize("name", SAID)
def test_domain_text_of_every_domain_says_each_action_predicate_and_type(name: str) -> None:
    domain, phrases = load_domain(name).domain, phrases_of(name)
    for phrasing in PHRASINGS:
        text = domain_text(domain, phrases, phrasing=phrasing)
        for schemas, entries in ((domain.predicates, phrases.predicates), (domain.actions, phrases.actions)):
            for schema in schemas:
                spoken = [typed.name[1:].upper() for typed in schema.parameters]
                assert entries[schema.name][phrasing % len(entries[schema.name])].format(*spoken) in text
        assert all(f"\nAction {action.name}: " in text for action in domain.actions)
        assert all(noun in text for noun, _ in phrases.types.values())


@pytest.mark.parametrize("phrasing", PHRASINGS)
def test_problem_text_with_either_values_negations_and_constants_reads_back(phrasing: int) -> None:
    assert contents(read_problem_text(ROUTES, ROUTES_PHRASES, routes_text(phrasing))) == contents(ROUTES_PROBLEM)


@pytest.mark.parametrize("phrasing", PHRASINGS)
@pytest.mark.parametrize(
    "problem",
    [
        replace(ROUTES_PROBLEM, metric=None, function_values=()),
        replace(ROUTES_PROBLEM, metric="total-time"),
        replace(ROUTES_PROBLEM, init=()),
        replace(ROUTES_PROBLEM, goal=Literal(Atom("at", ("c1", "hub")))),
        replace(ROUTES_PROBLEM, objects=(), init=atoms("(closed hub)"), function_values=(),
                goal=Literal(Atom("closed", ("hub",)), is_positive=False)),
    ],
    ids=["no values", "fewest steps", "nothing true", "one literal", "constants only"],
)  # fmt: skip
def test_problem_text_of_edge_cases_reads_back(problem: Problem, phrasing: int) -> None:
    text = problem_text(ROUTES, ROUTES_PHRASES, problem, phrasing=phrasing)
    assert contents(read_problem_text(ROUTES, ROUTES_PHRASES, text)) == contents(problem)


def test_problem_text_with_types_without_phrases_reads_back() -> None:
    domain = parse_domain(DEPOT_TEXT)
    problem = parse_problem(DEPOT_PROBLEM_TEXT, domain)
    phrases = Phrases(topic="Parcels.", predicates={
        "at": ("{0} is at {1}",), "in": ("{0} is in {1}",), "closed": ("{0} is closed",), "done": ("all is done",),
    })  # fmt: skip
    text = problem_text(domain, phrases, problem, phrasing=0)
    assert "There is one truck or else parcel: m." in text
    assert contents(read_problem_text(domain, phrases, text)) == contents(problem)


def test_problem_text_in_prose_is_word_for_word() -> None:
    assert problem_text(BLOCKS, phrases_of("blocksworld"), sussman().problem, phrasing=0) == (
        "A hand rearranges blocks that stand on one another or on a table, one block at a time.\n\n"
        "There are three blocks: a, b and c.\n\n"
        "At the start, this holds and nothing else. c is on a. a is on the table. b is on the table. c is clear. "
        "b is clear. The hand is empty.\n\n"
        "This has to hold in the end. a is on b. b is on c.\n"
    )


def test_problem_text_grouped_sets_the_facts_of_a_predicate_in_one_line() -> None:
    text = problem_text(BLOCKS, phrases_of("blocksworld"), sussman().problem, phrasing=2)
    assert "\nYou see a standing on the table; you see b standing on the table.\n" in text


def test_problem_text_one_by_one_gives_each_object_a_line() -> None:
    phrases = phrases_of("blocksworld")
    text = problem_text(BLOCKS, phrases, sussman().problem, phrasing=0, one_by_one=True)
    assert "\n\nWhat there is:\n- a, a block\n- b, a block\n- c, a block\n\nAt the start, this holds" in text
    none = problem_text(BLOCKS, phrases, replace(sussman().problem, objects=()), phrasing=0, one_by_one=True)
    assert "\n\nWhat there is:\n- nothing\n\nAt the start" in none
    ghost = replace(sussman().problem, objects=(TypedName("x", ("ghost",)),))
    with pytest.raises(BadInputError, match="the type of 'x' is not declared"):
        problem_text(BLOCKS, phrases, ghost, phrasing=0, one_by_one=True)


@pytest.mark.parametrize("phrasing", PHRASINGS)
@pytest.mark.parametrize("problem", [ROUTES_PROBLEM, replace(sussman().problem, objects=())], ids=["either", "none"])
def test_problem_text_one_by_one_reads_back(problem: Problem, phrasing: int) -> None:
    domain, phrases = (ROUTES, ROUTES_PHRASES) if problem is ROUTES_PROBLEM else (BLOCKS, phrases_of("blocksworld"))
    bare = problem if problem.objects else replace(problem, init=(), goal=Literal(Atom("handempty")))
    text = problem_text(domain, phrases, bare, phrasing=phrasing, one_by_one=True)
    assert contents(read_problem_text(domain, phrases, text)) == contents(bare)


def test_problem_text_says_negations_values_and_metric() -> None:
    text = routes_text()
    assert "It is not the case that nobody may enter p2." in text
    assert "It is not the case that p1 is the same as p2." in text
    assert "From p1 to hub it is 2.5 km. From hub to p1 it is 12 km. The number toll of p2 is -1." in text
    assert "The total cost so far is 0." in text
    assert text.endswith("\n\nThe total cost should be as small as possible.\n")
    assert "There are three places: p1, p2 and and." in text


def test_problem_text_frames_all_differ_and_count_at_least_the_phrasings() -> None:
    texts = {problem_text(BLOCKS, phrases_of("blocksworld"), sussman().problem, phrasing=i) for i in PHRASINGS}
    assert len(texts) == len(FRAMES) == len(set(FRAMES)) == 12
    assert {frame.layout for frame in FRAMES[:3]} == set(Layout)
    assert routes_text(3) == routes_text(3 + len(FRAMES))


def test_problem_text_with_five_phrasings_is_read_whichever_was_chosen() -> None:
    entries = {name: tuple(f"{text} ({i})" for i in range(5)) for name, (text, *_) in
               phrases_of("blocksworld").predicates.items()}  # fmt: skip
    phrases, problem = Phrases(topic="Blocks.", predicates=entries), sussman().problem
    for phrasing in range(60):
        text = problem_text(BLOCKS, phrases, problem, phrasing=phrasing)
        assert f"({phrasing % 5})" in text
        assert contents(read_problem_text(BLOCKS, phrases, text)) == contents(problem)
    broken = problem_text(BLOCKS, phrases, problem, phrasing=4).replace("b is clear (4)", "b is clean (4)")
    assert "'b is clean (4)'" in refusal(broken, BLOCKS, phrases)


@pytest.mark.parametrize(
    ("goal", "got"),
    [("(and)", "an empty goal"), ("(or (on a b) (on b a))", "(or"), ("(forall (?x) (clear ?x))", "(forall")],
    ids=["empty", "disjunction", "quantifier"],
)
def test_problem_text_with_a_goal_that_has_no_words_is_refused(goal: str, got: str) -> None:
    text = f"(define (problem p) (:domain blocksworld) (:objects a b) (:init (on a b)) (:goal {goal}))"
    problem = parse_problem(text, BLOCKS)
    with pytest.raises(BadInputError, match=re.escape(got)):
        problem_text(BLOCKS, phrases_of("blocksworld"), problem, phrasing=0)


def test_problem_text_with_unsayable_names_predicates_or_types_is_refused() -> None:
    problem, phrases = sussman().problem, phrases_of("blocksworld")
    for broken, message in (
        (replace(problem, init=(Atom("clear", ("a.b",)),)), "a.b"),
        (replace(problem, goal=Conjunction((Literal(Atom("clear", ("a;b",))),))), "a;b"),
        (replace(problem, init=(Atom("heavy", ("a",)),)), "heavy"),
        (replace(problem, init=(Atom("clear", ("a", "b")),)), "does not fit its arguments"),
        (replace(problem, objects=(replace(problem.objects[0], types=("brick",)),)), "brick"),
        (replace(problem, function_values=(FunctionValue(Atom("f", ("A",)), 1),)), "'A'"),
    ):
        with pytest.raises(BadInputError, match=re.escape(message)):
            problem_text(BLOCKS, phrases, broken, phrasing=0)


def test_read_problem_text_with_sentences_outside_the_domain_names_line_and_sentence() -> None:
    text = problem_text(BLOCKS, phrases_of("blocksworld"), sussman().problem, phrasing=1)
    phrases = phrases_of("blocksworld")
    for old, new, expected in (
        ("c sits on top of a", "c sits on top of z", ("line 6", "'c sits on top of z'", "no object 'z'")),
        ("c sits on top of a", "c sits beside a", ("line 6", "'c sits beside a'", "no fact of the domain")),
        ("c sits on top of a", "It is not the case that c sits on top of a", ("line 6", "hold at the start")),
        ("- c sits on top of a", "c sits on top of a", ("line 6", "not an item of a list")),
        ("three blocks", "four blocks", ("line 3", "do not match their number", "three")),
        ("three blocks", "three bricks", ("line 3", "'There are three bricks: a, b and c.'", "no type of the domain")),
        ("a, b and c", "a, b and b", ("line 3", "'b' is there twice")),
        ("a, b and c", "a, b, and c", ("line 3", "not a sentence on objects")),
        ("The goal is this:", "The aim is this:", ("line 13", "no goal", "The goal is this")),
        ("The following is true", "This is true", ("line 5", "no section of initial facts")),
        ("Here is a planning", "There is a planning", ("line 1", "not the beginning of a description")),
    ):
        assert old in text
        error = refusal(text.replace(old, new, 1), BLOCKS, phrases)
        assert all(part in error for part in expected), error


def test_read_problem_text_with_a_section_too_many_or_none_is_refused() -> None:
    phrases, text = phrases_of("blocksworld"), problem_text(BLOCKS, phrases_of("blocksworld"), sussman().problem,
                                                            phrasing=1)  # fmt: skip
    assert "line 17" in refusal(f"{text}\nBe quick.\n", BLOCKS, phrases)
    assert "not the beginning" in refusal("", BLOCKS, phrases)
    for paragraphs in (1, 2, 3):
        refusal("\n\n".join(text.split("\n\n")[:paragraphs]), BLOCKS, phrases)


def test_read_problem_text_with_wrong_types_or_derived_facts_is_refused() -> None:
    assert "'p1' is of the wrong type" in refusal(routes_text().replace("c1 is at p1", "p1 is at p1"))
    assert "hold at the start" in refusal(routes_text().replace("c1 is at p1", "p1 can be reached"))
    assert "no number of the domain" in refusal(routes_text().replace("it is 12 km", "it is far"))


def test_read_problem_text_where_a_sentence_can_be_two_facts_is_refused_and_foretold() -> None:
    phrases = Phrases(topic="Blocks.", predicates=phrases_of("blocksworld").predicates | {
        "clear": ("a is on {0}",) * 3, "holding": ("{0} is off",) * 3})  # fmt: skip
    text = problem_text(BLOCKS, phrases, replace(sussman().problem, init=atoms("(on a b)")), phrasing=0)
    error = refusal(text, BLOCKS, phrases)
    assert "line 5" in error
    assert "(on a b) or (clear b)" in error
    assert "on '{0} is on {1}' and clear 'a is on {0}' can give the same sentence" in ambiguous_phrases(BLOCKS, phrases)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"clear": "it is not the case that {0} is on {1}"}, "the negation of on"),
        ({"clear": "{0} is the same as {0}"}, "and = '{0} is the same as {1}'"),
        ({"on": "{0} is on something"}, "names the positions [0] of 2"),
        ({"on": "{0}s are on {1}"}, "joins a position with a word"),
        ({"on": "{0} is low. {1} is high"}, "is more than one clause"),
        ({"on": "{0} is on {1}."}, "ends with a space or stop"),
        ({"clear": "The hand is {0}", "handempty": "the hand is empty"}, "can give the same sentence"),
        ({"handempty": "Nothing"}, "the absence of facts"),
    ],
    ids=["negation", "equality", "lost argument", "joined", "two clauses", "stop", "capital", "nothing"],
)
def test_ambiguous_phrases_finds_a_fault(changed: dict[str, str], fault: str) -> None:
    single = {name: texts[:1] for name, texts in phrases_of("blocksworld").predicates.items()}
    sound = Phrases(topic="Blocks.", predicates=single)
    assert ambiguous_phrases(BLOCKS, sound) == []
    faulty = Phrases(topic="Blocks.", predicates=single | {name: (text,) for name, text in changed.items()})
    assert any(fault in line for line in ambiguous_phrases(BLOCKS, faulty))


def test_ambiguous_phrases_finds_facts_of_two_phrasings_that_a_mixed_text_could_not_tell_apart() -> None:
    predicates = {name: texts[:2] for name, texts in phrases_of("blocksworld").predicates.items()}
    swapped = Phrases(topic="Blocks.", predicates=predicates | {"on": ("{0} is on {1}", "{1} is on {0}")})
    assert ambiguous_phrases(BLOCKS, swapped) == [
        "on '{0} is on {1}' and on '{1} is on {0}' can give the same sentence"
    ]
    text = problem_text(BLOCKS, swapped, replace(sussman().problem, init=atoms("(on a b)")), phrasing=1)
    assert "(on b a) or (on a b)" in refusal(text, BLOCKS, swapped)


def test_ambiguous_phrases_finds_shared_nouns_and_clashing_values_and_actions() -> None:
    faulty = ROUTES_PHRASES.model_copy(update={
        "types": {"car": ("car", "cars"), "truck": ("car", "cars"), "vehicle": ("truck or else car", "all. of them")},
        "functions": {"distance": ("{2} for {0} and {1}",) * 2, "toll": ("{1} for {0} and hub",) * 2},
        "actions": {"drive": ("drive {0} {1} {2}",) * 2, "wash": ("drive all the cars",) * 2},
    })  # fmt: skip
    found = "\n".join(ambiguous_phrases(ROUTES, faulty))
    assert "types car and truck share the noun 'car'" in found
    assert "type vehicle: 'truck or else car' is empty or holds a stop or 'or else'" in found
    assert "type vehicle: 'all. of them' is empty or holds a stop" in found
    assert "distance '{2} for {0} and {1}' and toll '{1} for {0} and hub' can" in found
    assert "drive 'drive {0} {1} {2}' and wash 'drive all the cars' can" in found
    assert ambiguous_phrases(ROUTES, ROUTES_PHRASES) == []


def test_plan_text_numbers_the_instructions() -> None:
    assert plan_text(phrases_of("blocksworld"), SUSSMAN_PLAN[:3], phrasing=0) == (
        "1. Unstack c from a.\n2. Put c down on the table.\n3. Pick b up from the table.\n"
    )
    assert plan_text(phrases_of("blocksworld"), (), phrasing=1) == "Nothing needs to be done.\n"


@pytest.mark.parametrize("step", [PlanStep("fly", ("a",)), PlanStep("stack", ("a",))], ids=["unknown", "too few"])
def test_plan_text_of_a_step_without_phrase_is_refused(step: PlanStep) -> None:
    with pytest.raises(BadInputError, match=step.name):
        plan_text(phrases_of("blocksworld"), (step,), phrasing=0)


def test_domain_text_says_hierarchy_rules_conditions_quantifiers_and_costs() -> None:
    text = domain_text(ROUTES, ROUTES_PHRASES, phrasing=0)
    for part in (
        "- every lorry is a car or lorry",
        "- a place hub",
        "- V is at P:\n  - V, a car or lorry\n  - P, a place\n",
        "- P can be reached, with P a place, whenever this holds:\n  - for at least one car or lorry V:\n"
        "    - at least one of these:\n      - V is at P\n      - it is not the case that V is dirty\n",
        "- from A to B it is some number km, with A a place and B a place",
        "- the number toll of P is some number, with P a place",
        "Action drive: drive V from FROM to TO.\nIt is about:\n- V, a car or lorry\n- FROM, a place\n- TO, a place\n",
        "- it is not the case that FROM is the same as TO",
        "- if the first of these holds, the second does:\n  - nobody may enter TO\n  - this is not the case:\n"
        "    - all of these:\n      - V is dirty\n      - nobody may enter hub\nWhat it changes:\n",
        "- no longer: V is at FROM",
        "- if the first of these holds before it, the second comes about:\n  - nobody may enter FROM\n"
        "  - from then on: V is dirty\n- the total cost",
        "- the total cost grows by a number, the one given by: from FROM to TO it is that number km",
        "Action wash: wash all cars.\nIt can be done only if:\n- nothing at all",
        "- for every car V:\n  - no longer: V is dirty\n",
        "- the total cost grows by 3",
    ):
        assert part in text

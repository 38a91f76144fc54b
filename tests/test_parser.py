"""PDDL text in, domains and problems out; every mistake with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BLOCKS, BLOCKS_TEXT, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, REFERENCE, blocks_problems
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import PddlParseError
from plansmith.pddl.model import Atom, Conjunction, Literal, PlanStep, Problem, TypedName
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.sexpr import MAX_DEPTH

DEPOT = parse_domain(DEPOT_TEXT)


def domain_of(body: str) -> str:
    """Return a domain text whose sections begin in line 2."""
    return f"(define (domain d)\n{body})"


def problem_of(objects: str = "a b", init: str = "", goal: str = "(clear a)", more: str = "") -> str:
    """Return a Blocksworld problem text: objects in line 2, initial state in line 3, goal in line 4."""
    return f"(define (problem p) (:domain blocksworld)\n(:objects {objects})\n(:init {init})\n(:goal {goal}){more})"


def test_parse_domain_blocksworld_gives_schemas_in_the_order_of_the_text() -> None:
    pick_up = BLOCKS.actions[0]
    assert [action.name for action in BLOCKS.actions] == ["pick-up", "put-down", "stack", "unstack"]
    assert (pick_up.name, pick_up.parameters) == ("pick-up", (TypedName("?x"),))
    assert pick_up.effects[0] == Literal(Atom("ontable", ("?x",)), is_positive=False)
    assert pick_up.effects[-1] == Literal(Atom("holding", ("?x",)))


def test_parse_domain_types_hierarchy_and_either_are_kept() -> None:
    assert DEPOT.ancestors()["truck"] == {"truck", "vehicle", "object"}
    assert DEPOT.ancestors()["parcel"] == {"parcel", "movable", "thing", "object"}
    in_predicate = DEPOT.predicate("in")
    assert in_predicate is not None and in_predicate.parameters[1].types == ("truck", "car")
    assert DEPOT.constants == (TypedName("hub", ("place",)),)


def test_parse_domain_undeclared_supertype_is_added_below_object() -> None:
    domain = parse_domain(domain_of("(:types truck - vehicle) (:predicates (p ?x - vehicle))"))
    assert domain.types == (TypedName("truck", ("vehicle",)), TypedName("vehicle"))
    assert domain.ancestors()["truck"] == {"truck", "vehicle", "object"}


@pytest.mark.parametrize(
    "text",
    [
        BLOCKS_TEXT.upper(),
        "\ufeff" + BLOCKS_TEXT,
        BLOCKS_TEXT.replace("\n", "\r\n"),
        BLOCKS_TEXT.replace("\n", "\r"),
        BLOCKS_TEXT.replace("\n", " ; a ) comment ( \x0c \u2028 with (every) thing\n"),
        BLOCKS_TEXT.replace("(", " ( ").replace("\n", "\n\n\t"),
        BLOCKS_TEXT.replace(" ?", "?"),
    ],
    ids=["upper case", "BOM", "CRLF", "CR", "comments", "white space", "glued variables"],
)
def test_parse_domain_other_spelling_gives_the_same_domain(text: str) -> None:
    assert parse_domain(text) == BLOCKS


def test_parse_problem_reads_negative_goals_and_drops_negative_and_repeated_initial_atoms() -> None:
    problem = parse_problem(problem_of(init="(clear a) (not (clear b)) (CLEAR A)", goal="(not (clear a))"), BLOCKS)
    assert problem.init == (Atom("clear", ("a",)),)
    assert problem.goal == Literal(Atom("clear", ("a",)), is_positive=False)


@pytest.mark.parametrize("goal", ["()", "(and)"])
def test_parse_problem_empty_goal_is_true(goal: str) -> None:
    assert parse_problem(problem_of(goal=goal), BLOCKS).goal == Conjunction()


BAD_DOMAINS = {
    "empty": ("", "no PDDL", "1:1", "empty", "define"),
    "comment only": ("; nothing\n", "no PDDL", "1:1", "empty", "define"),
    "no list": ("domain", "not a domain", "1:1", "domain", "(define"),
    "a problem": ("(define (problem p))", "not a domain", "1:9", "problem", "(define (domain NAME)"),
    "no name": ("(define (domain))", "not a domain", "1:9", "domain", "(define (domain NAME)"),
    "missing )": (domain_of("(:predicates (p)"), "missing ')'", "2:18", "end of the text", "line 1"),
    "missing ) inside": ("(define (domain d)\n (:predicates (p)", "missing ')'", "2:18", "end of the text", "line 1"),
    "extra )": (domain_of("(:predicates (p))") + "\n )", "')' without '('", "3:2", ")", "("),
    "text after": (domain_of("(:predicates (p))") + "\n(more)", "text outside", "3:1", "more", "define"),
    "unknown section": (domain_of("(:predicate (p))"), "unknown section", "2:1", ":predicate", ":predicates"),
    "word as section": (domain_of("predicates"), "unexpected word", "2:1", "predicates", "("),
    "section twice": (domain_of("(:predicates (p))\n(:predicates (q))"), "stands twice", "3:1", "", "2:1"),
    "undeclared type": (domain_of("(:types t)\n(:predicates (p ?x - u))"), "undeclared type", "3:22", "u", "t"),
    "types in a circle": (domain_of("(:types a - b b - a)"), "circle", "2:13", "'a' - 'b'", "object"),
    "undeclared type of a parameter": (
        domain_of("(:types t)\n(:action a :parameters (?x - u))"), "undeclared type", "3:30", "u", "t"),
    "- without type": (domain_of("(:types t -)"), "'-' without a type", "2:11", "end of the list", "a type"),
    "no either": (domain_of("(:types t - (or a b))"), "not a type", "2:13", "or", "either"),
    "constant twice": (
        domain_of("(:types t) (:constants a - t a)"), "'a' is declared twice", "2:30", "object", "t"),
    "predicate twice": (domain_of("(:predicates (p) (p ?x))"), "'p' is defined twice", "2:19", "", ""),
    "action twice": (domain_of("(:action a :effect ())\n(:action A)"), "'a' is defined twice", "3:10", "", ""),
    "parameter twice": (
        domain_of("(:action a :parameters (?x ?x))"), "parameter '?x' of action 'a' is defined twice", "2:28", "", ""),
    "parameter no variable": (domain_of("(:action a :parameters (x))"), "no variable", "2:25", "'x'", "?"),
    "action without a name": (domain_of("(:action)"), "without a name", "2:1", "", "NAME"),
    "unknown part": (domain_of("(:action a :pre ())"), "unknown part", "2:12", ":pre", ":precondition"),
    "part twice": (domain_of("(:action a :effect () :effect ())"), "stands twice", "2:23", "", "once"),
    "part without value": (domain_of("(:action a :effect)"), "without a value", "2:12", "", "a list"),
    "undeclared predicate": (
        domain_of("(:predicates (p))\n(:action a :effect (q))"), "undeclared predicate", "3:21", "q", "one of p"),
    "arity": (domain_of("(:predicates (p ?x))\n(:action a :precondition (p))"), "arguments of 'p'", "3:26", "0", "1"),
    "unbound variable": (
        domain_of("(:predicates (p ?x))\n(:action a :parameters () :effect (p ?y))"), "unbound variable", "3:38", "?y",
        "none is declared"),
    "wrong type": (
        domain_of("(:types t u) (:predicates (p ?x - t))\n(:action a :parameters (?y - u) :effect (p ?y))"),
        "wrong type", "3:44", "u", "t"),
    "supertype for subtype": (
        domain_of("(:types t) (:predicates (p ?x - t))\n(:action a :parameters (?y) :effect (p ?y))"),
        "wrong type", "3:40", "object", "t"),
    "not of two": (
        domain_of("(:predicates (p))\n(:action a :precondition (not (p) (p)))"), "one condition", "3:26", "not", "not"),
    "not of and in an effect": (
        domain_of("(:predicates (p))\n(:action a :effect (not (and (p))))"), "one atom", "3:20", "not", "not"),
    "equality as effect": (
        domain_of("(:action a :parameters (?x) :effect (= ?x ?x))"), "cannot be an effect", "2:37", "", "predicate"),
    "list for a term": (
        domain_of("(:predicates (p ?x))\n(:action a :effect (p (f)))"), "is a list", "3:23", "f", "variable"),
    "too deep": (domain_of("(:action a :precondition " + "(and " * MAX_DEPTH), "too deeply", "", "", str(MAX_DEPTH)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place", "got", "expected"), BAD_DOMAINS.values(), ids=BAD_DOMAINS)
def test_parse_domain_with_a_mistake_names_place_got_and_expected(
    text: str, message: str, place: str, got: str, expected: str
) -> None:
    with pytest.raises(PddlParseError) as caught:
        parse_domain(text, source="d.pddl")
    error = caught.value
    assert message in error.message
    assert place == "" or error.where == f"d.pddl:{place}"
    assert got in (error.got or "") and expected in (error.expected or "")


def test_parse_domain_allowed_depth_is_read() -> None:
    depth = MAX_DEPTH - 10
    nested = "(and " * depth + "(p)" + ")" * depth
    domain = parse_domain(domain_of(f"(:predicates (p)) (:action a :precondition {nested})"))
    assert parse_domain(print_domain(domain)) == domain


@pytest.mark.parametrize("feature", ["decrease", "assign", "<=", ">", "preference", "oneof", "always"])
def test_parse_domain_unsupported_condition_is_named_with_its_line(feature: str) -> None:
    with pytest.raises(PddlParseError, match=f"'{feature}' is not supported") as caught:
        parse_domain(domain_of(f"(:predicates (p))\n(:action a :precondition (and\n ({feature} (p) (p))))"), source="d")
    assert caught.value.where == "d:4:2"


@pytest.mark.parametrize("feature", [":durative-action", ":process", ":event", ":constraints"])
def test_parse_domain_unsupported_section_is_named_with_its_line(feature: str) -> None:
    with pytest.raises(PddlParseError, match=f"{feature} is not supported") as caught:
        parse_domain(domain_of(f"(:predicates (p))\n({feature} (p))"), source="d")
    assert caught.value.where == "d:3:1"


BAD_PROBLEMS = {
    "undeclared object": (problem_of(init="(clear z)"), "undeclared object", "3:15", "z", "a, b"),
    "undeclared object in the goal": (problem_of(goal="(and (on a z))"), "undeclared object", "4:19", "z", "a, b"),
    "undeclared predicate": (problem_of(init="(cleer a)"), "undeclared predicate", "3:9", "cleer", "clear"),
    "arity": (problem_of(init="(on a)"), "number of arguments of 'on'", "3:8", "1", "2"),
    "variable": (problem_of(goal="(clear ?x)"), "unbound variable", "4:15", "?x", "none is declared"),
    "object twice": (problem_of(objects="a b A - block"), "undeclared type of 'a'", "2:19", "block", "object"),
    "undeclared type": (problem_of(objects="a b - block"), "undeclared type of 'a'", "2:17", "block", "object"),
    "equality in init": (problem_of(init="(= a b)"), "initial state", "3:8", "=", "(= (function object) number)"),
    "value of an undeclared function": (
        problem_of(init="(= (total-cost) 0)"), "undeclared function", "3:11", "total-cost", "none is declared"),
    "forall in init": (problem_of(init="(forall (?x) (clear ?x))"), "initial state", "3:8", "forall", "atoms"),
    "timed literal": (problem_of(init="(at 5 (clear a))"), "timed initial literals", "3:8", "at", ""),
    "maximised": (problem_of(more="\n(:metric maximize (total-cost))"), "metric", "5:1", "total-cost", "minimize"),
    "two goals": (problem_of(goal="(clear a) (clear b)"), "one condition", "4:1", "2", ":goal"),
    "goal twice": (problem_of(more="\n(:goal (clear b))"), "stands twice", "5:1", "", "4:1"),
    "unknown section": (problem_of(more="\n(:gaol (clear b))"), "unknown section", "5:1", ":gaol", ":goal"),
    "missing )": (problem_of()[:-1], "missing ')'", "4:18", "end of the text", "line 1"),
    "extra )": (problem_of() + ")", "')' without '('", "4:19", ")", "("),
    "a domain": (BLOCKS_TEXT, "not a problem", "2:9", "domain", "problem"),
    "empty": ("\n\n", "no PDDL", "1:1", "empty", "define"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place", "got", "expected"), BAD_PROBLEMS.values(), ids=BAD_PROBLEMS)
def test_parse_problem_with_a_mistake_names_place_got_and_expected(
    text: str, message: str, place: str, got: str, expected: str
) -> None:
    with pytest.raises(PddlParseError) as caught:
        parse_problem(text, BLOCKS, source="p.pddl")
    error = caught.value
    assert message in error.message
    assert error.where == f"p.pddl:{place}"
    assert got in (error.got or "") and expected in (error.expected or "")


@pytest.mark.parametrize("section", [":domain", ":init", ":goal"])
def test_parse_problem_without_a_section_names_it(section: str) -> None:
    text = problem_of().replace(f"({section}", "(:requirements")
    with pytest.raises(PddlParseError, match=f"no {section}"):
        parse_problem(text, BLOCKS)


def test_parse_problem_object_of_wrong_type_is_named_with_both_types() -> None:
    with pytest.raises(PddlParseError) as caught:
        parse_problem(DEPOT_PROBLEM_TEXT.replace("(at t1 l1)", "(at k1 l1)"), DEPOT, source="p")
    assert (caught.value.where, caught.value.got, caught.value.expected) == ("p:4:14", "parcel", "vehicle")


def test_parse_plan_reads_comments_case_bom_and_crlf() -> None:
    text = "\ufeff; a plan\r\n(PICK-UP a)\r\n\r\n(stack a b) ; cost = 2 (unit cost)\r\n"
    assert parse_plan(text) == (PlanStep("pick-up", ("a",)), PlanStep("stack", ("a", "b")))
    assert parse_plan("") == parse_plan("; nothing") == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("(a)\nb (c)", "2:1"),
        ("(a) ()", "1:5"),
        ("(a (b))", "1:4"),
        ("(a)) (b)", "1:4"),
        ("(a)\n(b", "2:3"),
        ("x", "1:1"),
    ],
    ids=["word", "empty step", "list in a step", "extra )", "missing )", "first word"],
)
def test_parse_plan_with_a_mistake_names_its_place(text: str, place: str) -> None:
    with pytest.raises(PddlParseError) as caught:
        parse_plan(text, source="plan")
    assert caught.value.where == f"plan:{place}"


@pytest.mark.parametrize("end", ["\\", "\\\\", "\\  ", " \\\r"], ids=["one", "two", "blanks after", "CR"])
def test_parse_plan_backslashes_that_end_a_line_are_decoration(end: str) -> None:
    text = f"(pick-up a){end}\n(stack a{end}\n b){end}"
    assert parse_plan(text) == (PlanStep("pick-up", ("a",)), PlanStep("stack", ("a", "b")))


def test_parse_plan_backslash_within_a_line_stays() -> None:
    with pytest.raises(PddlParseError) as caught:
        parse_plan("(a)\n\\ (b)")
    assert caught.value.where == "<plan>:2:1"


def test_parse_step_not_one_flat_list_raises() -> None:
    assert parse_step(" (Stack A b) ") == PlanStep("stack", ("a", "b"))
    for text in ("stack a b", "(stack a b", "()", "", "(stack (a) b)", "(a) (b)"):
        with pytest.raises(PddlParseError):
            parse_step(text)


@given(blocks_problems())
def test_print_problem_then_parse_gives_the_same_problem(problem: Problem) -> None:
    assert parse_problem(print_problem(problem), BLOCKS) == problem


@pytest.mark.parametrize("text", [BLOCKS_TEXT, DEPOT_TEXT, "(define (domain bare))"], ids=["blocks", "depot", "bare"])
def test_print_domain_then_parse_gives_the_same_domain(text: str) -> None:
    domain = parse_domain(text)
    assert parse_domain(print_domain(domain)) == domain


def test_print_problem_typed_then_parse_gives_the_same_problem() -> None:
    problem = parse_problem(DEPOT_PROBLEM_TEXT, DEPOT)
    assert parse_problem(print_problem(problem), DEPOT) == problem
    assert problem.objects[-2:] == (TypedName("m", ("truck", "parcel")), TypedName("o1"))


def mistake_in(read: Callable[[str], object], text: str) -> PddlParseError | None:
    """Return the mistake that a reader finds in a text; any other exception passes through."""
    try:
        read(text)
    except PddlParseError as error:
        return error
    return None


@given(st.text(alphabet="()?;:- \nab=", max_size=60) | st.text(max_size=40))
def test_parse_garbage_raises_parse_errors_only(text: str) -> None:
    for read in (parse_plan, parse_step, parse_domain, lambda t: parse_problem(t, BLOCKS)):
        error = mistake_in(read, text)
        assert error is None or error.where


@given(st.data())
def test_parse_domain_with_one_character_lost_raises_parse_errors_only(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(DEPOT_TEXT) - 1))
    error = mistake_in(parse_domain, DEPOT_TEXT[:place] + DEPOT_TEXT[place + 1 :])
    assert error is None or error.where


RICH_DOMAIN = domain_of("""
  (:requirements :adl :action-costs :derived-predicates)
  (:types city - place truck place - object)
  (:constants hub - city)
  (:predicates (at ?t - truck ?p - (either city place)) (road ?a ?b - place) (closed ?p - place) (far ?a ?b - place))
  (:functions (total-cost) - number (length ?a ?b - place) - number)
  (:derived (far ?a ?b - place) (and (not (road ?a ?b)) (not (= ?a ?b))))
  (:action drive :parameters (?t - truck ?a ?b - place)
    :precondition (and (at ?t ?a) (or (road ?a ?b) (road ?b ?a)) (not (and (closed ?a) (closed ?b)))
      (imply (closed ?b) (= ?b hub)) (forall (?c - city) (exists (?p - place ?q) (or (at ?t ?c) (= ?p ?q)))))
    :effect (and (at ?t ?b) (not (at ?t ?a)) (increase (total-cost) (length ?a ?b)) (increase (total-cost) 1.5)
      (when (closed ?b) (and (not (closed ?b)) (closed ?a)))
      (forall (?p - place) (when (road ?p ?b) (closed ?p)))))""")
RICH_PROBLEM = """(define (problem p) (:domain d) (:objects t1 - truck l1 l2 - place)
  (:init (at t1 l1) (road l1 l2) (= (total-cost) 0) (= (length l1 l2) 7) (= (length l2 l1) 2.5))
  (:goal (or (at t1 l2) (exists (?p - place) (and (closed ?p) (not (at t1 ?p)))))) (:metric minimize (total-cost)))"""


def test_print_then_parse_is_the_identity_for_every_construct() -> None:
    domain = parse_domain(RICH_DOMAIN)
    problem = parse_problem(RICH_PROBLEM, domain)
    assert parse_domain(print_domain(domain)) == domain
    assert parse_problem(print_problem(problem), domain) == problem
    effects = domain.actions[0].effects
    assert [type(effect).__name__ for effect in effects[2:]] == ["CostIncrease", "CostIncrease", "ConditionalEffect",
                                                                 "UniversalEffect"]  # fmt: skip
    assert (problem.metric, [value.value for value in problem.function_values]) == ("total-cost", [0, 7, 2.5])


def reference_folders() -> list[Path]:
    """Return the folders of public PDDL, none where they are not at hand."""
    return sorted(path for path in (REFERENCE / "pddl").glob("*") if path.is_dir())


@pytest.mark.skipif(not reference_folders(), reason="public PDDL is not at hand")
@pytest.mark.parametrize("folder", reference_folders(), ids=lambda path: path.name)
def test_parse_public_pddl_reads_back_as_printed(folder: Path) -> None:
    for problem_path in sorted(folder.glob("p?.pddl")):
        own = folder / f"{problem_path.stem}-domain.pddl"
        domain_path = own if own.exists() else folder / "domain.pddl"
        domain = parse_domain(domain_path.read_text(encoding="utf-8"), source=str(domain_path))
        problem = parse_problem(problem_path.read_text(encoding="utf-8"), domain, source=str(problem_path))
        assert parse_domain(print_domain(domain)) == domain
        assert parse_problem(print_problem(problem), domain) == problem


def test_small_numbers_are_printed_without_an_exponent_and_read_back() -> None:
    domain = parse_domain("""(define (domain d) (:predicates (p)) (:functions (total-cost) (length ?x))
      (:action a :parameters () :effect (and (p) (increase (total-cost) 0.00001))))""")
    text = """(define (problem q) (:domain d) (:objects x)
      (:init (= (length x) 0.00005) (= (total-cost) 0)) (:goal (p)) (:metric minimize (total-cost)))"""
    problem = parse_problem(text, domain)
    assert "0.00005" in print_problem(problem) and "0.00001" in print_domain(domain)
    assert parse_domain(print_domain(domain)) == domain and parse_problem(print_problem(problem), domain) == problem


def test_equal_increases_of_the_cost_add_up_and_other_effects_stand_once() -> None:
    domain = parse_domain("""(define (domain d) (:predicates (p)) (:functions (total-cost))
      (:action a :parameters () :effect (and (p) (p) (increase (total-cost) 2) (increase (total-cost) 2))))""")
    assert len(domain.actions[0].effects) == 3

"""Every mistake of a file in one reading: its code, its place, its repair."""

from __future__ import annotations

import pytest
from conftest import BLOCKS_TEXT, DEPOT_PROBLEM_TEXT, DEPOT_TEXT

from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.diagnostics import MAX_DIAGNOSTICS, Code, Diagnostic, Severity
from plansmith.pddl.model import TypedName
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.typed_lists import MAX_ALTERNATIVES

CLEAN = """(define (domain d)
(:requirements :typing)
(:types city - place)
(:constants hub - place)
(:predicates (at ?p - place) (open ?c - city))
(:action go
  :parameters (?a ?b - place)
  :precondition (at ?a)
  :effect (and (at ?b) (not (at ?a))))
(:action unlock
  :parameters (?c - city)
  :precondition (at ?c)
  :effect (open ?c)))
"""
PROBLEM = """(define (problem p) (:domain d)
(:objects c1 - city)
(:init (at c1))
(:goal (open c1)))
"""


def found(domain: str, problem: str | None = None) -> list[tuple[str, str]]:
    """Return code and place of every mistake."""
    reports = diagnose(domain, problem, domain_source="d", problem_source="p")
    return [(report.code, str(report.place)) for report in reports]


def test_diagnose_a_supertype_that_is_not_declared_is_a_warning() -> None:
    (report,) = diagnose(CLEAN, PROBLEM, domain_source="d")
    assert (report.code, str(report.place), report.severity) == (Code.UNDEFINED_TYPE, "d:3:16", Severity.WARNING)
    assert report.repair == "add 'place' to :types"


TIDY = CLEAN.replace("city - place)\n(:con", "city - place place - object)\n(:con")


@pytest.mark.parametrize(
    ("domain", "problem"),
    [(TIDY, PROBLEM), (BLOCKS_TEXT, None), (DEPOT_TEXT, DEPOT_PROBLEM_TEXT)],
    ids=["tidy", "blocksworld", "depot"],
)
def test_diagnose_finds_no_error_in_good_texts(domain: str, problem: str | None) -> None:
    assert [report for report in diagnose(domain, problem) if report.is_error] == []


DOMAIN_MISTAKES = {
    "misspelt section": ("(:constants", "(:constant", [(Code.UNKNOWN_SECTION, "d:4:1")]),
    "undefined predicate": (":precondition (at ?c)", ":precondition (ta ?c)", [(Code.UNDEFINED_PREDICATE, "d:12:18")]),
    "wrong arity": (":precondition (at ?c)", ":precondition (at)", [(Code.WRONG_ARITY, "d:12:17")]),
    "wrong type": ("(?c - city)", "(?c - place)", [(Code.WRONG_ARGUMENT_TYPE, "d:13:17")]),
    "undefined type": ("(?c - city)", "(?c - ctiy)", [(Code.UNDEFINED_TYPE, "d:11:21")]),
    "undeclared object": (
        "(at ?b)", "(at hbu)", [(Code.UNUSED_PARAMETER, "d:7:15"), (Code.UNDECLARED_OBJECT, "d:9:20")]),
    "unbound variable": ("(at ?b)", "(at ?d)", [(Code.UNUSED_PARAMETER, "d:7:15"), (Code.UNBOUND_VARIABLE, "d:9:20")]),
    "predicate twice": ("(open ?c - city))", "(open ?c - city) (open))", [(Code.DUPLICATE_NAME, "d:5:48")]),
    "action twice": ("action unlock", "action go", [(Code.DUPLICATE_NAME, "d:10:10")]),
    "parameter twice": ("(?c - city)", "(?c ?c - city)", [(Code.DUPLICATE_NAME, "d:11:19")]),
    "parameter without ?": (
        "(?c - city)", "(c ?c - city)", [(Code.INVALID_NAME, "d:11:16")]),
    "types in a circle": ("place - object", "place - city", [(Code.CYCLIC_TYPES, "d:3:16")]),
    "unused predicate": ("(open ?c - city))", "(open ?c - city) (shut))", [(Code.UNUSED_PREDICATE, "d:5:48")]),
    "unused parameter": ("(?c - city)", "(?c - city ?x)", [(Code.UNUSED_PARAMETER, "d:11:15")]),
    "adds and deletes": (":effect (open ?c)", ":effect (and (open ?c) (not (open ?c)))", [
        (Code.CONTRADICTORY_EFFECT, "d:13:11")]),
    "keyword in effect": (
        ":effect (open ?c)", ":effect (or (open ?c))",
        [(Code.UNUSED_PREDICATE, "d:5:31"), (Code.MALFORMED_EFFECT, "d:13:11")]),
    "if in effect": (
        ":effect (open ?c)", ":effect (and (open ?c) (if (at ?c) (open ?c)))", [(Code.MALFORMED_EFFECT, "d:13:26")]),
    "forall without variables": (
        ":precondition (at ?c)", ":precondition (forall (at ?c))", [(Code.MALFORMED_CONDITION, "d:12:17")]),
    "predicate named as a type": (
        "(open ?c - city))", "(place) (open ?c - city))",
        [(Code.NAME_CLASH, "d:5:31"), (Code.UNUSED_PREDICATE, "d:5:31")]),
    "constant named as a type": ("(:constants hub", "(:constants city", [(Code.NAME_CLASH, "d:4:13")]),
    "unknown requirement": (":typing)", ":typing :tipping)", [(Code.UNKNOWN_REQUIREMENT, "d:2:24")]),
    "missing requirement": (":precondition (at ?a)", ":precondition (and (at ?a) (not (= ?a ?b)))", [
        (Code.MISSING_REQUIREMENT, "d:2:16")]),
    "durative action": (
        "(:action unlock", "(:durative-action wait) (:action unlock", [(Code.UNSUPPORTED_FEATURE, "d:10:1")]),
    "numeric effect": (":effect (open ?c)", ":effect (and (open ?c) (increase (fuel ?c) 3))", [
        (Code.UNSUPPORTED_FEATURE, "d:13:26")]),
    "missing ) of a condition": (
        ":precondition (at ?a)", ":precondition (and (at ?a)", [(Code.MISSING_PARENTHESIS, "d:8:29")]),
    "missing ) of an action": ("(not (at ?a))))", "(not (at ?a)))", [(Code.MISSING_PARENTHESIS, "d:9:38")]),
    "missing ) of a section": ("(open ?c - city))", "(open ?c - city)", [(Code.MISSING_PARENTHESIS, "d:5:46")]),
    "surplus ) after an action": ("(not (at ?a))))", "(not (at ?a)))))", [
        (Code.EXTRA_PARENTHESIS, "d:9:39")]),
}  # fmt: skip
"""What is replaced in the tidy domain, by what, and every diagnostic that must come of it."""


@pytest.mark.parametrize(("old", "new", "expected"), DOMAIN_MISTAKES.values(), ids=DOMAIN_MISTAKES)
def test_diagnose_one_mistake_in_a_domain_gives_its_code_and_place(
    old: str, new: str, expected: list[tuple[str, str]]
) -> None:
    assert TIDY.count(old) == 1
    assert found(TIDY.replace(old, new)) == expected


PROBLEM_MISTAKES = {
    "undeclared object": ("(at c1)", "(at c2)", [(Code.UNDECLARED_OBJECT, "p:3:12")]),
    "undefined type": ("c1 - city", "c1 - ctiy", [(Code.UNDEFINED_TYPE, "p:2:16")]),
    "wrong type": ("c1 - city", "c1 - place", [(Code.WRONG_ARGUMENT_TYPE, "p:4:14")]),
    "object named as a type": ("(:objects", "(:objects place", [(Code.NAME_CLASH, "p:2:11")]),
    "object named as a predicate": ("(:objects", "(:objects open - city", [(Code.NAME_CLASH, "p:2:11")]),
    "undefined predicate": ("(at c1)", "(in c1)", [(Code.UNDEFINED_PREDICATE, "p:3:9")]),
    "wrong arity": ("(at c1)", "(at c1 c1)", [(Code.WRONG_ARITY, "p:3:8")]),
    "list in a list": ("(at c1)", "(and (at c1))", [(Code.MALFORMED_INIT, "p:3:8")]),
    "atom twice": ("(at c1)", "(at c1) (at c1)", [(Code.DUPLICATE_ATOM, "p:3:16")]),
    "true and false": ("(at c1)", "(at c1) (not (at c1))", [(Code.CONTRADICTORY_INIT, "p:3:21")]),
    "goal never deleted": (
        "(:init", "(:init (open c1) ", []),
    "goal no action reaches": ("(open c1)", "(not (open c1))", []),
    "goal that needs a deletion": ("(:goal (open c1))", "(:goal (and (not (at c1)) (open c1)))", []),
    "other domain": ("(:domain d)", "(:domain e)", [(Code.DOMAIN_MISMATCH, "p:1:30")]),
    "no goal": ("(:goal (open c1))", "", [(Code.MISSING_SECTION, "p:1:1")]),
    "missing )": ("(:init (at c1))", "(:init (at c1)", [(Code.MISSING_PARENTHESIS, "p:3:15")]),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), PROBLEM_MISTAKES.values(), ids=PROBLEM_MISTAKES)
def test_diagnose_one_mistake_in_a_problem_gives_its_code_and_place(
    old: str, new: str, expected: list[tuple[str, str]]
) -> None:
    assert PROBLEM.count(old) == 1
    assert found(TIDY, PROBLEM.replace(old, new)) == expected


def test_diagnose_goal_that_no_action_adds_is_unreachable() -> None:
    domain = TIDY.replace(":effect (open ?c)", ":effect (at ?c)")
    assert (Code.UNREACHABLE_GOAL, "p:4:1") in found(domain, PROBLEM)
    is_open = PROBLEM.replace("(at c1)", "(open c1)").replace("(:goal (open c1)", "(:goal (not (open c1))")
    assert (Code.UNREACHABLE_GOAL, "p:4:1") in found(TIDY, is_open)


DERIVED = "(define (domain d) (:predicates (p ?x) (q ?x) (r ?x))\n{rules}\n(:action a :effect ()))"


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("(:derived (q ?x) (not (q ?x)))", Code.NOT_STRATIFIED),
        ("(:derived (q ?x) (not (r ?x))) (:derived (r ?x) (exists (?y) (imply (p ?x) (q ?y))))", Code.NOT_STRATIFIED),
        ("(:derived (q ?x) (p ?x)) (:action b :parameters (?x) :effect (q ?x))", Code.DERIVED_PREDICATE_CHANGED),
        ("(:derived (s ?x) (p ?x))", Code.UNDEFINED_PREDICATE),
        ("(:derived (q) (p ?x))", Code.WRONG_ARITY),
        ("(:derived (q ?x))", Code.MALFORMED_SECTION),
    ],
    ids=["own negation", "negation of each other", "changed by an action", "undeclared", "arity", "no condition"],
)
def test_diagnose_rules_that_cannot_be_used_are_named(rules: str, code: Code) -> None:
    assert code in [report.code for report in diagnose(DERIVED.format(rules=rules)) if report.is_error]


@pytest.mark.parametrize(
    "rules",
    [
        "(:derived (q ?x) (or (p ?x) (exists (?y) (q ?y))))",
        "(:derived (q ?x) (p ?x)) (:derived (r ?x) (not (q ?x)))",
        "(:derived (q ?x) (r ?x)) (:derived (r ?x) (or (p ?x) (q ?x)))",
    ],
    ids=["recursion", "negation of a lower stratum", "mutual recursion"],
)
def test_diagnose_stratified_rules_are_no_error(rules: str) -> None:
    assert not [report for report in diagnose(DERIVED.format(rules=rules)) if report.is_error]


def test_diagnose_half_broken_text_names_every_mistake() -> None:
    """A text as a model writes it: eight mistakes of different kinds, all in one reading, `raw` but once."""
    text = """(define (domain kitchen)
(:requirements :strips :typing)
(:types cook dish - object)
(:predicates (has ?c - cook ?d - dish) (hot ?d - dihs) (clean)
(:action fry
  :parameters (?c - cook ?d - dish)
  :precondition (and (has ?c ?d) (raw ?d)
  :effect (and (hot ?d) (not (raw ?d)) (hungry ?c ?d)))
(:action wash
  :parameters (?c - cook ?w)
  :precondition (not (clean ?w))
  :effect (or (clean)))
)
"""
    codes = [code for code, _ in found(text)]
    for code, count in {
        Code.MISSING_PARENTHESIS: 2,
        Code.UNDEFINED_TYPE: 1,
        Code.UNDEFINED_PREDICATE: 2,
        Code.WRONG_ARITY: 1,
        Code.MALFORMED_EFFECT: 1,
    }.items():
        assert codes.count(code) == count, code


def test_diagnose_undefined_name_suggests_the_nearest_one() -> None:
    (report,) = [r for r in diagnose(TIDY.replace(":precondition (at ?c)", ":precondition (opne ?c)")) if r.is_error]
    assert report.repair == "write 'open', or declare it under :predicates"


REPEATED = """(define (domain d) (:types city)
(:predicates (ta ?c - city) (open ?c - city))
(:action go :parameters (?a ?b - city)
  :precondition (at ?a)
  :effect (and (at ?b) (not (at ?a)))))"""


def test_diagnose_name_that_is_used_often_is_one_error_where_its_declaration_is_misspelt() -> None:
    (report,) = [report for report in diagnose(REPEATED, domain_source="d") if report.is_error]
    assert (report.code, str(report.place), report.got) == (Code.UNDEFINED_PREDICATE, "d:2:15", "'ta'")
    assert (report.expected, report.repair) == ("'at', as in lines 4, 5", "write 'at'")


def test_diagnose_name_that_is_declared_nowhere_is_one_error_that_tells_all_its_lines() -> None:
    (report,) = [r for r in diagnose(REPEATED.replace("(ta", "(far"), domain_source="d") if r.is_error]
    assert (str(report.place), report.got) == ("d:4:18", "'at', also in line 5")
    assert report.repair == "declare it under :predicates"


@pytest.mark.parametrize(
    ("lost", "place", "repair"),
    [
        ("(:types city)", "d:1:1", "add (:types ...) with these names"),
        ("(:predicates (ta ?c - city) (open ?c - city))", "d:1:1", "add (:predicates ...) with these names"),
        (":parameters (?a ?b - city)", "d:3:1", "add :parameters (?a ?b)"),
    ],
    ids=["types", "predicates", "parameters"],
)
def test_diagnose_section_that_is_lost_is_one_error(lost: str, place: str, repair: str) -> None:
    good = REPEATED.replace("(ta", "(at")
    assert good.replace(lost.replace("(ta", "(at"), "") != good
    (report,) = [r for r in diagnose(good.replace(lost.replace("(ta", "(at"), ""), domain_source="d") if r.is_error]
    assert (report.code, str(report.place), report.repair) == (Code.MISSING_SECTION, place, repair)


def test_diagnose_problem_without_its_objects_is_one_error() -> None:
    (report,) = [r for r in diagnose(TIDY, PROBLEM.replace("(:objects c1 - city)", "")) if r.is_error]
    assert (report.code, report.got) == (Code.MISSING_SECTION, "c1")


def test_diagnose_parameter_twice_in_a_predicate_is_a_warning_and_two_parameters() -> None:
    """As in logistics of 2000, which VAL and Fast Downward read."""
    domain = "(define (domain d) (:predicates (obj ?o) (in ?obj ?obj)) (:action a :parameters (?x ?y)\n" \
        ":precondition (and (obj ?x) (in ?x ?y)) :effect (not (in ?x ?y))))"  # fmt: skip
    (report,) = diagnose(domain)
    assert (report.code, report.severity) == (Code.DUPLICATE_NAME, Severity.WARNING)
    schema = parse_domain(domain).predicate("in")
    assert schema is not None and schema.parameters == (TypedName("?obj"), TypedName("?obj"))


def test_parse_parameter_twice_with_two_types_takes_either_in_both_places() -> None:
    domain = parse_domain("(define (domain d) (:types a b c) (:predicates (p ?x - a ?x - b) (q ?x - a ?x)))")
    assert [[one.types for one in schema.parameters] for schema in domain.predicates] == [
        [("a", "b"), ("a", "b")], [("object",), ("object",)]]  # fmt: skip


def test_diagnose_type_below_object_and_another_is_a_warning_and_below_the_other() -> None:
    """As in storage, which VAL and Fast Downward read."""
    domain = "(define (domain d) (:types surface area - object area crate - surface)\n(:predicates (p ?s - surface)))"
    (report,) = [report for report in diagnose(domain, domain_source="d") if report.code is Code.DUPLICATE_NAME]
    assert (str(report.place), report.severity) == ("d:1:50", Severity.WARNING)
    assert parse_domain(domain).ancestors()["area"] == {"area", "surface", "object"}


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        ("-x --help", ["-x", "--help"]),
        ("-city - city", ["-city"]),
        ("c- - city", ["c-"]),
        ("c- d", ["c-", "d"]),
        ("c,1", ["c,1"]),
    ],
    ids=["options", "a type's name after a dash", "dash at the end", "no type after it", "comma inside"],
)
def test_parse_objects_with_dashes_and_commas_in_their_names_are_taken_as_they_are(
    objects: str, names: list[str]
) -> None:
    problem = parse_problem(PROBLEM.replace("c1 - city", f"c1 - city {objects}"), parse_domain(CLEAN))
    assert [typed.name for typed in problem.objects] == ["c1", *names]


@pytest.mark.parametrize(
    ("old", "new", "repair"),
    [
        ("c1 - city", "c1 -city", "write '- city'"),
        ("c1 - city", "c1- city", "write 'c1 - city'"),
        ("c1 - city", "c1, c2 - city", "remove the commas of this line"),
    ],
    ids=["dash at the type", "dash at the name", "comma"],
)
def test_diagnose_objects_with_a_dash_or_comma_too_close_is_one_error(old: str, new: str, repair: str) -> None:
    assert old in PROBLEM
    (report,) = [report for report in diagnose(CLEAN, PROBLEM.replace(old, new)) if report.is_error]
    assert report.repair == repair


@pytest.mark.parametrize(("types", "repair"), [("a b -c", "write '- c'"), ("a- b", "write 'a - b'")])
def test_diagnose_types_with_a_dash_too_close_is_one_error(types: str, repair: str) -> None:
    (report,) = [report for report in diagnose(f"(define (domain d) (:types {types}))") if report.is_error]
    assert report.repair == repair


def test_diagnose_unbound_variable_of_a_rule_is_not_taken_for_one_of_an_action_without_parameters() -> None:
    rule = "(define (domain d) (:predicates (p ?x) (q)) (:derived (q) (p ?z)) (:action a :effect (p ?w)))"
    errors = [(report.code, report.got) for report in diagnose(rule) if report.is_error]
    assert errors == [(Code.UNBOUND_VARIABLE, "'?z'"), (Code.MISSING_SECTION, "?w")]


def test_diagnose_lost_bracket_of_a_text_that_has_no_name_yet_is_told_first() -> None:
    assert [report.code for report in diagnose("(define")] == [Code.MISSING_PARENTHESIS, Code.NOT_PDDL]


def test_parse_type_below_two_others_is_below_both() -> None:
    domain = parse_domain("(define (domain d) (:types b c - object a - b a - c))")
    assert domain.types[-1] == TypedName("a", ("b", "c"))


def test_diagnose_type_below_too_many_others_is_an_error() -> None:
    text = f"(define (domain d) (:types {' '.join(f'a - b{number}' for number in range(MAX_ALTERNATIVES + 1))}))"
    errors = [(report.code, report.got) for report in diagnose(text) if report.is_error]
    assert errors == [(Code.MALFORMED_SECTION, str(MAX_ALTERNATIVES + 1))]


def test_diagnose_stops_noting_after_many_mistakes() -> None:
    text = PROBLEM.replace("(at c1)", "(nowhere c1)" * (MAX_DIAGNOSTICS + 50))
    assert len(diagnose(TIDY, text)) <= MAX_DIAGNOSTICS


def test_diagnostic_as_text_has_place_severity_code_and_repair() -> None:
    report = diagnose(TIDY.replace(":precondition (at ?c)", ":precondition (at)"), domain_source="d.pddl")[0]
    assert isinstance(report, Diagnostic)
    assert str(report).splitlines() == [
        "d.pddl:12:17: error: wrong number of arguments of 'at' [wrong-arity]",
        "  got: 0",
        "  expected: 1",
        "  to mend it: give as many as its declaration has: (at ?p)",
    ]

"""Texts that went wrong: whatever arrives, there is a verdict and a list of mistakes, never an exception.

Mutations are seeded, so a failure repeats. How long the large inputs take is measured elsewhere; here they must end.
"""

from __future__ import annotations

import random
import re

import pytest
from conftest import BLOCKS_TEXT, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, SUSSMAN_PLAN, print_plan

from plansmith.errors import PddlParseError
from plansmith.pddl.cases import judge_texts
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.diagnostics import MAX_DIAGNOSTICS, Diagnostic
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.sexpr import MAX_DEPTH
from plansmith.pddl.val_report import val_output
from plansmith.pddl.validation import PlanVerdict, Verdict

SIZE = 2**16
"""Characters of a large text: what takes a square of them, or a call for each, does not end."""
Texts = tuple[str, str, str]

ADL_TEXT = """(define (domain lights)  ; every construct beyond STRIPS
  (:requirements :adl :derived-predicates :action-costs)
  (:types lamp - object tall small - lamp)
  (:constants sun - tall)
  (:predicates (lit ?l - lamp) (near ?a ?b - lamp) (bright) (seen ?l - lamp))
  (:functions (total-cost) - number (power ?l - lamp) - number)
  (:derived (bright) (exists (?l - lamp) (lit ?l)))
  (:derived (seen ?l - lamp) (or (lit ?l) (exists (?m - lamp) (and (near ?l ?m) (seen ?m)))))
  (:action press :parameters (?l - lamp)
    :precondition (imply (bright) (or (near ?l sun) (not (= ?l sun)) (forall (?m - small) (not (lit ?m)))))
    :effect (and (when (lit ?l) (not (lit ?l))) (when (not (lit ?l)) (lit ?l)) (increase (total-cost) (power ?l))))
  (:action off :parameters () :precondition (not (and (bright) (lit sun)))
    :effect (and (forall (?l - (either tall small)) (when (seen ?l) (not (lit ?l)))) (increase (total-cost) 2.5))))
"""
ADL_PROBLEM_TEXT = """(define (problem lights-1) (:domain lights)
  (:objects a - small b - (either tall small))
  (:init (near a b) (lit b) (= (power a) 1) (= (power b) 2) (= (power sun) 0.5) (= (total-cost) 0))
  (:goal (and (lit a) (not (lit b)) (or (seen b) (seen a))))
  (:metric minimize (total-cost)))
"""
SUSSMAN_TEXT = """(define (problem p) (:domain blocksworld) (:objects a b c)
  (:init (on c a) (ontable a) (ontable b) (clear c) (clear b) (handempty)) (:goal (and (on a b) (on b c))))
"""
SEEDS: dict[str, Texts] = {
    "blocks": (BLOCKS_TEXT, SUSSMAN_TEXT, print_plan(SUSSMAN_PLAN)),
    "depot": (DEPOT_TEXT, DEPOT_PROBLEM_TEXT, "(move t1 l1 hub)\n(open l2)\n"),
    "lights": (ADL_TEXT, ADL_PROBLEM_TEXT, "0.5: (press a) [1]\n1.5: (press b) [1]\n; cost = 3\n"),
}
WORDS = [
    "(",
    ")",
    "((",
    "))",
    "()",
    "and",
    "or",
    "not",
    "imply",
    "exists",
    "forall",
    "when",
    "=",
    "-",
    "?",
    "?x",
    "?l",
    ":",
    ":action",
    ":effect",
    ":precondition",
    ":parameters",
    ":init\n",
    "",
    ":goal",
    ":objects",
    ":types",
    ":derived",
    ":metric",
    ":predicates",
    "define",
    "domain",
    "problem",
    "either",
    "object",
    "number",
    "increase",
    "total-cost\n",
    "",
    "(and",
    "(not",
    "(forall",
    "(exists",
    "(when",
    "(:action",
    "(:derived",
    "(define",
    ";",
    "0.5:",
    "[1]",
    "-1",
    "1e999",
    "nan",
    "inf",
    "1_0",
    "\x00",
    "\ufeff",
    "\u2028",
    "İ\n",
    "",
    "😀",
    "�",
    "\r",
    "\t",
    "'",
    '"',
    ",",
    "`",
    "```",
    "#",
    "@",
    "|",
    "{",
    "}",
    "%",
    "\\n",
    "99999999999999999999",
]
TOKEN = re.compile(r"[()]|[^\s()]+|\s+")


def mutate_characters(text: str, rng: random.Random) -> str:
    """Return the text with one place deleted, doubled, exchanged, filled or cut off."""
    start = rng.randrange(len(text) + 1)
    end = min(len(text), start + rng.choice([1, 1, 2, 10, 60]))
    middle = text[start:end]
    return rng.choice(
        [
            text[:start] + text[end:],
            text[:start] + middle * 2 + text[end:],
            text[:start] + middle[::-1] + text[end:],
            text[:start] + rng.choice(WORDS) + text[start:],
            text[:start],
            text[start:],
        ]
    )


def mutate_tokens(text: str, rng: random.Random) -> str:
    """Return the text with tokens deleted, doubled, swapped, inserted, exchanged or moved."""
    tokens = TOKEN.findall(text) or [" "]
    one, two = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    match rng.randrange(6):
        case 0:
            del tokens[one]
        case 1:
            tokens.insert(one, tokens[two])
        case 2:
            tokens[one], tokens[two] = tokens[two], tokens[one]
        case 3:
            tokens.insert(one, f" {rng.choice(WORDS)} ")
        case 4:
            tokens[one] = rng.choice(WORDS)
        case _:
            first, last = sorted((one, two))
            tokens = tokens[:first] + tokens[last:] + tokens[first:last]
    return "".join(tokens)


def mutate(text: str, rng: random.Random) -> str:
    """Return the text after one to four mutations."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text = rng.choice([mutate_characters, mutate_tokens, mutate_tokens])(text, rng)
    return text


def splice(text: str, other: str, rng: random.Random) -> str:
    """Return the head of one text and the tail of the other."""
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def outcome_of(domain: str, problem: str, plan: str) -> tuple[PlanVerdict, tuple[Diagnostic, ...]]:
    """Return verdict and mistakes, which must agree with each other and can be printed."""
    judged, found = judge_texts(domain, problem, plan), diagnose(domain, problem)
    assert isinstance(judged.verdict, PlanVerdict) and isinstance(judged.verdict.verdict, Verdict)
    assert all(isinstance(one, Diagnostic) and str(one) for one in found)
    judged.to_row(with_states=True)
    if judged.task is not None:
        val_output(judged.task, judged.verdict, "plan", is_verbose=True)
    has_errors = any(one.is_error for one in found)
    assert has_errors == bool(judged.diagnostics)  # what is found without errors can be read, and only that
    if not has_errors:
        PlanningTask.from_text(domain, problem)
    return judged.verdict, found


# --- mutations


@pytest.mark.parametrize("name", SEEDS)
def test_seed_texts_are_sound(name: str) -> None:
    verdict, found = outcome_of(*SEEDS[name])
    assert (verdict.verdict, [one for one in found if one.is_error]) == (Verdict.VALID, [])


@pytest.mark.parametrize("part", [0, 1, 2], ids=["domain", "problem", "plan"])
@pytest.mark.parametrize("name", SEEDS)
def test_mutated_text_gives_a_verdict_and_a_list_of_mistakes(name: str, part: int) -> None:
    rng = random.Random(f"{name} {part}")
    seen = set()
    for _ in range(120):
        texts = list(SEEDS[name])
        texts[part] = mutate(texts[part], rng)
        seen.add(outcome_of(*texts)[0].verdict)
    assert len(seen) > 1  # some mutations matter


@pytest.mark.parametrize("name", SEEDS)
def test_spliced_texts_give_a_verdict_and_a_list_of_mistakes(name: str) -> None:
    rng = random.Random(name)
    pool = [text for texts in SEEDS.values() for text in texts]
    verdicts = set()
    for _ in range(100):
        texts = list(SEEDS[name])
        part = rng.randrange(3)
        texts[part] = splice(texts[part], rng.choice(pool), rng)
        verdicts.add(outcome_of(*texts)[0].verdict)
    assert {Verdict.BAD_INPUT, Verdict.MALFORMED_PLAN} <= verdicts


@pytest.mark.parametrize("name", SEEDS)
def test_every_truncation_of_the_plan_gives_a_verdict(name: str) -> None:
    domain, problem, plan = SEEDS[name]
    task = PlanningTask.from_text(domain, problem)
    for end in range(len(plan)):
        judged = judge_texts(domain, problem, plan[:end])
        assert isinstance(judged.verdict.verdict, Verdict)
        val_output(task, judged.verdict, "plan", is_verbose=False)


def test_random_words_give_a_verdict_and_a_list_of_mistakes() -> None:
    rng = random.Random(0)
    for _ in range(300):
        texts = [" ".join(rng.choices(WORDS, k=rng.randrange(30))) for _ in range(3)]
        wrapped = [f"(define (domain d) {texts[0]})", f"(define (problem p) {texts[1]})", texts[2]]
        assert outcome_of(*texts)[0].verdict is Verdict.BAD_INPUT
        assert outcome_of(*wrapped)[0].verdict is Verdict.BAD_INPUT
        outcome_of(ADL_TEXT, f"{ADL_PROBLEM_TEXT[:-20]} {texts[1]} {ADL_PROBLEM_TEXT[-20:]}", texts[2])


# --- numbers


COST_TEXT = """(define (domain d) (:predicates (q)) (:functions (total-cost) (c) (e))
  (:action a :effect (and (q) (increase (total-cost) (c))))
  (:action b :effect (and (q) (increase (total-cost) (e)))))"""
NUMBERS = ["0", "1", "-1", "0.5", "-0", "1e308", "1.5e308", "1e999", "nan", "inf", "1e-400", "1_000", "\u0663", "--1"]
NUMBERS += ["+1", "1.", ".5", "1e5", "0x10", "9" * 400, "9" * 4300, "9" * 5000, "1" * 309 + ".5"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: ascii(number)[:12])
@pytest.mark.parametrize("other", ["1", "0.5", "9" * 4300], ids=["int", "float", "long int"])
def test_costs_of_any_size_give_a_verdict(number: str, other: str) -> None:
    problem = f"""(define (problem p) (:domain d) (:init (= (c) {number}) (= (e) {other})) (:goal (q))
      (:metric minimize (total-cost)))"""
    verdict, _ = outcome_of(COST_TEXT, problem, "(a) (b)")
    assert verdict.verdict in (Verdict.VALID, Verdict.BAD_INPUT)


# --- mistakes beyond the number that is listed


def test_errors_behind_many_warnings_are_still_errors() -> None:
    init = "(on c a) " * (MAX_DIAGNOSTICS + 50) + "(on c zz)"
    problem = SUSSMAN_TEXT.replace("(on c a)", init)
    verdict, found = outcome_of(BLOCKS_TEXT, problem, "")
    assert verdict.verdict is Verdict.BAD_INPUT
    assert any(one.is_error for one in found)
    with pytest.raises(PddlParseError):
        PlanningTask.from_text(BLOCKS_TEXT, problem)


def test_errors_behind_many_undeclared_supertypes_are_still_errors() -> None:
    types = " ".join(f"a{number} - b{number}" for number in range(MAX_DIAGNOSTICS + 50))
    domain = f"(define (domain d) (:types {types}) (:predicates (q)) (:action a :effect (zz)))"
    verdict, _ = outcome_of(domain, "(define (problem p) (:domain d) (:init) (:goal (q)))", "(a)")
    assert verdict.verdict is Verdict.BAD_INPUT


def test_text_that_is_no_domain_behind_many_mistakes_leaves_the_problem_unread() -> None:
    found = diagnose(")" * (MAX_DIAGNOSTICS + 1), SUSSMAN_TEXT)
    assert {one.place.source for one in found} == {"<domain>"}
    assert len(found) <= MAX_DIAGNOSTICS


# --- large texts


def many(template: str, length: int = SIZE) -> str:
    """Return the template with the numbers 0, 1, 2, ... filled in, up to a length."""
    step = len(template.format(length))
    return "".join(template.format(number) for number in range(length // step))


def problem_of(objects: str = "o", init: str = "", goal: str = "(q)") -> str:
    """Return a problem of the small domain."""
    return f"(define (problem p) (:domain d) (:objects {objects}) (:init {init}) (:goal {goal}))"


SMALL = """(define (domain d) (:predicates (p ?x) (q)) (:action b :effect (q))
  (:action a :parameters (?x) :precondition (p ?x) :effect (q)))"""
LARGE_TEXTS = {
    "opening brackets": "(" * SIZE,
    "closing brackets": ")" * SIZE,
    "opening words": "(a " * (SIZE // 3),
    "one word": "a" * SIZE,
    "tiny groups": "()" * (SIZE // 2),
    "comment": ";" + "x" * SIZE,
    "comments": ";\n" * (SIZE // 2),
    "line ends": "\r\n" * (SIZE // 2),
    "NUL": "\0" * SIZE,
    "variables": "?" * SIZE,
    "letter that grows in lower case": "\u0130" * (SIZE // 2),
    "sections not closed": "(define (domain d) " + "(:action x :effect (and " * (SIZE // 24),
    "definition closed again and again": "(define (domain d)" + ")(:action x" * (SIZE // 11),
    "groups closed once too often": "(a)" * (SIZE // 4) + ")" * (SIZE // 4),
    "supertypes of one type": "(define (domain d) (:types " + many("a - b{} "),
    "types of one parameter": "(define (domain d) (:predicates (p " + many("?x - b{} "),
    "actions without a name": "(define (domain d) " + "(:action) " * (SIZE // 10) + ")",
    "a word of digits": "1" * SIZE,
}


@pytest.mark.parametrize("text", LARGE_TEXTS.values(), ids=LARGE_TEXTS)
@pytest.mark.parametrize("part", [0, 1, 2], ids=["domain", "problem", "plan"])
def test_large_text_gives_a_verdict_and_few_diagnostics(text: str, part: int) -> None:
    texts = [SMALL, problem_of(), "(b)"]
    texts[part] = text
    judged = judge_texts(*texts)
    assert judged.verdict.verdict in (
        [Verdict.BAD_INPUT, Verdict.BAD_INPUT, Verdict.MALFORMED_PLAN][part],
        Verdict.GOAL_NOT_REACHED,  # a plan of comments is empty
    )
    assert len(judged.diagnostics) <= MAX_DIAGNOSTICS
    assert len(judged.verdict.reason) < 10_000
    if part < 2:
        found = diagnose(*texts[:2])
        assert 0 < len(found) <= (2 - part) * MAX_DIAGNOSTICS
        assert sum(len(str(one)) for one in found) < 200_000


LARGE_CASES: dict[str, tuple[str, str, str, Verdict]] = {
    "objects": (SMALL, problem_of(many("o{} ")), "(b)", Verdict.VALID),
    "initial atoms": (SMALL, problem_of(many("o{} ", SIZE // 2), many("(p o{})", SIZE // 2)), "(a o7)", Verdict.VALID),
    "one initial atom": (SMALL, problem_of(init="(p o)" * (SIZE // 5)), "(b)", Verdict.VALID),
    "initial atoms of no predicate": (SMALL, problem_of(init="(zz o)" * (SIZE // 6)), "(b)", Verdict.BAD_INPUT),
    "long conjunction": (SMALL, problem_of(goal="(and " + "(q)" * (SIZE // 3) + ")"), "(b)", Verdict.VALID),
    "long disjunction": (SMALL, problem_of(goal="(or " + "(q)" * (SIZE // 3) + ")"), "(b)", Verdict.VALID),
    "conjunctions within each other": (
        SMALL, problem_of(goal="(and " * (MAX_DEPTH - 5) + "(q)" * 1000 + ")" * (MAX_DEPTH - 5)), "(b)", Verdict.VALID),
    "negations within each other": (
        SMALL, problem_of(goal="(not " * (MAX_DEPTH - 4) + "(q)" + ")" * (MAX_DEPTH - 4)), "(b)", Verdict.VALID),
    "implications within each other": (
        SMALL, problem_of(goal="(imply " * (MAX_DEPTH - 4) + "(q)" + " (q))" * (MAX_DEPTH - 4)), "(b)", Verdict.VALID),
    "many deep negations": (
        SMALL, problem_of(goal="(and " + ("(not " * 180 + "(q)" + ")" * 180) * 240 + ")"), "(b)", Verdict.VALID),
    "steps": (SMALL, problem_of(), "(b)" * (SIZE // 3), Verdict.VALID),
    "steps on lines": (SMALL, problem_of(), "(b)\n" * (SIZE // 4), Verdict.VALID),
    "timed steps": (SMALL, problem_of(), many("{}: (b)\n"), Verdict.VALID),
    "steps that no domain has": (SMALL, problem_of(), many("(b{})"), Verdict.MALFORMED_PLAN),
    "step of many words": (SMALL, problem_of(), "(b" + " x" * (SIZE // 2) + ")", Verdict.MALFORMED_PLAN),
    "six variables, four objects": (
        SMALL,
        problem_of("o0 o1 o2 o3", "(p o1)", "(forall (?a ?b ?c ?d ?e ?f) (or (p ?a) (not (p ?b)) (q)))"),
        "(b)", Verdict.VALID),
    "eight variables that static atoms leave free, and two that they do not": (
        "(define (domain d) (:predicates (p ?x) (y ?x) (z ?x ?y) (q)) (:action b :parameters () :effect (q)))",
        problem_of(" ".join(f"o{n}" for n in range(20)),
                   " ".join(f"(p o{n})" for n in range(20)) + " (z o1 o2) (y o3)",
                   "(exists (?a ?b ?c ?d ?e ?f ?g ?h ?i ?j) (and (p ?a) (p ?b) (p ?c) (p ?d) (p ?e) (p ?f) (p ?g) "
                   "(p ?h) (z ?i ?j) (y ?j)))"),
        "(b)", Verdict.BAD_INPUT),
    "six variables, 1000 objects, of which static atoms leave none": (
        SMALL, problem_of(many("o{} ", 6000), "", "(exists (?a ?b ?c ?d ?e ?f) (and (p ?a) (p ?f)))"), "(b)",
        Verdict.GOAL_NOT_REACHED),
    "six variables, 1000 objects": (
        SMALL, problem_of(many("o{} ", 6000), "", "(exists (?a ?b ?c ?d ?e ?f) (or (p ?a) (p ?f)))"), "(b)",
        Verdict.BAD_INPUT),
}  # fmt: skip


@pytest.mark.parametrize(("domain", "problem", "plan", "verdict"), LARGE_CASES.values(), ids=LARGE_CASES)
def test_large_case_gives_its_verdict(domain: str, problem: str, plan: str, verdict: Verdict) -> None:
    assert judge_texts(domain, problem, plan).verdict.verdict is verdict
    assert len(diagnose(domain, problem)) <= 2 * MAX_DIAGNOSTICS


def test_advice_on_a_quantifier_of_too_many_instances_is_left_out() -> None:
    domain, problem, plan, _ = LARGE_CASES["six variables, 1000 objects, of which static atoms leave none"]
    judged = judge_texts(domain, problem, plan)
    assert judged.task is not None
    assert "The goal is not satisfied" in val_output(judged.task, judged.verdict, "plan", is_verbose=True)


def test_comma_after_a_bracket_that_is_too_early_is_read_as_what_it_is() -> None:
    text = ")\n," + " " * 6 + "(define (domain d (:action a :parameters (?x ?x"
    assert any(found.is_error for found in diagnose(text, None))

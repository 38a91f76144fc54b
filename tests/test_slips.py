"""One slip of a language model in a good domain: one error, at its line, with the right cure."""

from __future__ import annotations

from functools import cache

import pytest
from conftest import ROOT
from slips import SLIPS, Tally, anatomy_of, judged, sample

from plansmith.pddl.diagnosis import diagnose

DOMAINS = sorted((ROOT / "datasets" / "domains").glob("*/domain.pddl"))
SLIPS_A_DOMAIN = 2


@cache
def texts() -> tuple[str, ...]:
    """Return the texts of all domains."""
    return tuple(path.read_text(encoding="utf-8") for path in DOMAINS)


def test_slips_are_planted_into_good_domains_in_many_places() -> None:
    assert len(DOMAINS) >= 30 and len(SLIPS) >= 18
    assert not [found for text in texts() for found in diagnose(text) if found.is_error]
    for kind in SLIPS:
        assert sum(bool(sample(text, kind, 1)) for text in texts()) >= 20, kind


@pytest.mark.parametrize("kind", SLIPS)
def test_diagnose_one_slip_is_one_error_at_its_line_with_its_cure(kind: str) -> None:
    slips = [slip for text in texts() for slip in sample(text, kind, SLIPS_A_DOMAIN)]
    wrong = [slip.text for slip in slips if judged(slip)[1:] != (True, True, True)]
    assert not wrong, f"{len(wrong)} of {len(slips)} slips; the first:\n{wrong[0]}"


TWO_ACTIONS = """(define (domain d)
  (:predicates (p ?x) (q ?x))
  (:action a :parameters (?x)
    :precondition (p ?x)
    :effect (and (q ?x) (not (p ?x))))
  (:action b :parameters (?x)
    :precondition (q ?x)
    :effect (and (p ?x) (not (q ?x)))))
"""


def test_tally_of_slips_counts_errors_lines_and_cures() -> None:
    """A comma is told as it should be; two keywords in one are two errors, of which the first is asked for."""
    (comma,) = SLIPS["comma between parameters"](anatomy_of(TWO_ACTIONS.replace("(?x)", "(?x ?y)", 1)))
    doubled = SLIPS["keyword of a part misspelt"](anatomy_of(TWO_ACTIONS))
    slip = next(slip for slip in doubled if "preconditions" in slip.text)
    twice = type(slip)(slip.text.replace(":effect", ":effects"), slip.lines, slip.cure)
    assert Tally.of([comma]) == Tally(n=1, n_errors=1, n_single=1, n_right_line=1, n_right_cure=1)
    assert Tally.of([comma, twice]) == Tally(n=2, n_errors=4, n_single=1, n_right_line=2, n_right_cure=2)


@pytest.mark.parametrize(
    ("old", "new", "place", "repair"),
    [
        ("(p ?x)\n", "(p ?x\n", "4:24", "add the ')' here, after '?x'"),
        ("(q ?x) (not", "(q ?x (not", "5:23", "add the ')' here, after '?x'"),
        ("(not (q ?x)))))", "(not (q ?x))))", "8:39", "add the ')' here, after ')'"),
        ("(q ?x) (not (p", "(q ?x)) (not (p", "5:24", "remove this ')', or one before it that ends a list too early"),
        ("(p ?x) (q ?x))", "(p ?x)) (q ?x))", "2:22", "remove this ')', or one before it that ends a list too early"),
        ("(q ?x) (not (p", "q ?x) (not (p", "5:18", "write '(q'"),
        ("(:action b", ":action b", "6:3", "write '(:action'"),
        ("(define (domain d)", "(define (domain d", "1:18", "add the ')' here, after 'd'"),
    ],
    ids=[
        "of an atom",
        "inside",
        "last of all",
        "in an effect",
        "in a section",
        "opening",
        "of an action",
        "of the name",
    ],
)
def test_diagnose_bracket_is_told_where_it_is_missing_or_too_many(old: str, new: str, place: str, repair: str) -> None:
    assert old in TWO_ACTIONS
    (error,) = [found for found in diagnose(TWO_ACTIONS.replace(old, new, 1)) if found.is_error]
    assert (f"{error.place.line}:{error.place.column}", error.repair) == (place, repair)


def test_diagnose_bracket_lost_between_lists_is_told_by_the_indentation() -> None:
    text = TWO_ACTIONS.replace("(p ?x)\n", "(and (or (p ?x)\n         (q ?x))\n      (p ?x))\n", 1)
    (error,) = [found for found in diagnose(text.replace(" (q ?x))\n   ", " (q ?x)\n   ", 1)) if found.is_error]
    assert (error.place.line, error.place.column) == (5, 16)
    assert not [found for found in diagnose(text) if found.is_error]


def test_diagnose_two_faults_in_two_parts_are_two_errors() -> None:
    text = TWO_ACTIONS.replace("(q ?x) (not", "(q ?x (not").replace("(q ?x)\n", "(q ?x))\n")
    assert [(found.code.value, found.place.line) for found in diagnose(text) if found.is_error] == [
        ("missing-parenthesis", 5),
        ("extra-parenthesis", 7),
    ]

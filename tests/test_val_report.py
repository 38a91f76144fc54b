"""The verdict in VAL's words: what each step deletes and adds, where it failed, how to mend it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import REFERENCE, blocks_task, depot_task

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.val_report import repair_advice, val_output, validation_details, verbose_report
from plansmith.pddl.validation import validate_plan, validate_plan_text


def report_on(task: PlanningTask, plan: str) -> str:
    """Return the report on a plan text."""
    return verbose_report(task, validate_plan(task, parse_plan(plan)))


def two_blocks(goal: str = "(on a b)") -> PlanningTask:
    """Return a task with two blocks on the table."""
    return blocks_task("(ontable a) (clear a) (ontable b) (clear b) (handempty)", goal, "a b")


HEAD = """\
Plan Validation details
-----------------------

Checking next happening (time 1)
Deleting (ontable a)
Deleting (clear a)
Deleting (handempty)
Adding (holding a)
"""


def test_verbose_report_valid_plan_has_every_effect_and_no_advice() -> None:
    assert report_on(two_blocks(), "(pick-up a) (stack a b)") == HEAD + """
Checking next happening (time 2)
Deleting (holding a)
Deleting (clear b)
Adding (clear a)
Adding (handempty)
Adding (on a b)
Plan executed successfully - checking goal
Plan valid"""  # fmt: skip


def test_verbose_report_unsatisfied_precondition_with_one_atom_sets_it() -> None:
    assert report_on(two_blocks(), "(pick-up a) (pick-up b) (stack a b)") == HEAD + """
Checking next happening (time 2)
Plan failed because of unsatisfied precondition in:
(pick-up b)

Plan failed to execute

Plan Repair Advice:

(pick-up b) has an unsatisfied precondition at time 2
(Set (handempty) to true)"""  # fmt: skip


def test_verbose_report_missed_goal_with_several_literals_nests_the_advice() -> None:
    assert report_on(two_blocks("(on a b) (not (clear b)) (on b a)"), "(pick-up a)") == HEAD + """\
Plan executed successfully - checking goal
Goal not satisfied
Plan invalid

Plan Repair Advice:

The goal is not satisfied
(Follow each of:
    (Set (on a b) to true)
    and (Set (clear b) to false)
    and (Set (on b a) to true)
)"""  # fmt: skip


def test_repair_advice_negative_precondition_is_set_to_false() -> None:
    task = depot_task()
    advice = repair_advice(task, validate_plan(task, parse_plan("(move t1 l1 l2)")))
    assert advice.splitlines()[-2:] == [
        "(move t1 l1 l2) has an unsatisfied precondition at time 1",
        "(Set (closed l2) to false)",
    ]


def test_repair_advice_valid_plan_is_empty() -> None:
    task = two_blocks()
    assert repair_advice(task, validate_plan(task, parse_plan("(pick-up a) (stack a b)"))) == ""


def test_verbose_report_malformed_plan_names_step_and_reason() -> None:
    assert report_on(two_blocks(), "(pick-up a) (fly a b)").startswith(
        "Bad plan description!\nStep 2: no action is called"
    )


def test_validation_details_of_a_first_step_that_fails_show_no_effect() -> None:
    task = two_blocks()
    details = validation_details(task, validate_plan(task, parse_plan("(put-down a)")))
    assert "Deleting" not in details and "Adding" not in details
    assert details.endswith("(put-down a)\n\nPlan failed to execute")


JUDGED = ("valid", "precondition", "goal_not_reached")
EXCEPTIONS = {
    **dict.fromkeys(
        ["timestamps", "timestamps out of order (sorted by time)"], "VAL shows the times as given, we number the steps"
    ),
    **dict.fromkeys(
        ["CRLF", "BOM", "markdown fence", "commas", "quotes"], "VAL echoes the characters of the plan it cannot read"
    ),
    **dict.fromkeys(
        ["untyped too many args (ignored)", "untyped unknown object", "timestamps identical", 'bullets "- "',
         'bullets "* "', "no parentheses", "leading word", "leading [PLAN]", "text between", "markdown fence pddl",
         "extra close paren (silently truncates)", "function-call syntax"],
        "no well-formed plan: VAL skips what it cannot read",
    ),
    **dict.fromkeys(
        ["duplicate object declarations, same name redeclared with another type", "object of undeclared type",
         "object redeclared so its LAST type is wrong", "undeclared predicate in action (untyped)",
         "predicate arity mismatch in action (untyped)", "two actions with the same name"],
        "the domain or problem is refused",
    ),
}  # fmt: skip
"""The cases that VAL judges and whose text is not compared, with the reason."""


def judged_cases() -> Iterator[dict[str, Any]]:
    """Yield the cases that VAL has judged; none where they are not at hand."""
    path = REFERENCE / "val" / "micro_cases.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        case = json.loads(line)
        if case["val_verdict"] in JUDGED:
            yield case


def without_chatter(text: str) -> list[str]:
    """Return the lines of a text without what VAL tells of its type check and of strata."""
    text = re.sub(
        r"Type-checking .*\n|\.\.\.action passes type checking\.\n|Stratification\n(Strata .*\n)+\n", "", text
    )
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("case", list(judged_cases()), ids=lambda case: case["case"])
def test_val_output_verbose_is_what_val_printed(case: dict[str, Any]) -> None:
    if case["case"] in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[case["case"]])
    task = PlanningTask.from_text(case["domain"], case["problem"])
    ours = val_output(task, validate_plan_text(task, case["plan"]), "q.plan", is_verbose=True)
    assert without_chatter(ours) == without_chatter(case["val_stdout"])


@pytest.mark.skipif(not any(True for _ in judged_cases()), reason="VAL's output is not at hand")
def test_val_output_exceptions_all_name_a_case() -> None:
    assert set(EXCEPTIONS) <= {case["case"] for case in judged_cases()}


NESTED = """(define (domain n) (:predicates (p ?x) (q ?x) (r) (r2)) (:derived (r) (p a))
  (:derived (r2) (not (p b))) (:constants a b)
  (:action t :parameters () :precondition PRECONDITION :effect (q a)))"""


@pytest.mark.parametrize(
    ("precondition", "advice"),
    [
        ("(or (and (p a) (p b)) (q a))", """\
(Follow one of:
    (Follow each of:
        (Set (p a) to true)
        and (Set (p b) to true)
    )
    or (Set (q a) to true)
)"""),
        ("(not (and (not (p a)) (not (q b))))", """\
(Follow one of:
    (Set (p a) to true)
    or (Set (q b) to true)
)"""),
        ("(and (p a) (exists (?x) (and (p ?x) (q ?x))))", """\
(Follow each of:
    (Set (p a) to true)
    and\x20
    (Follow one of:
        (Follow each of:
            (Set (p a) to true)
            and (Set (q a) to true)
        )
        or\x20
        (Follow each of:
            (Set (p b) to true)
            and (Set (q b) to true)
        )
    )
)"""),
        ("(imply (not (p a)) (= a b))", """\
(Follow one of:
    (Set (p a) to true)
    or (Set (= a b) to true)
)"""),
        ("(not (forall (?x) (not (q ?x))))", """\
(Follow one of:
    (Set (q a) to true)
    or (Set (q b) to true)
)"""),
        ("(or (r) (p b))", """\
(Follow one of:
    (Satisfy derived predicate (r)!)
    or (Set (p b) to true)
)"""),
        ("(and (r))", "(Satisfy derived predicate (r)!)"),
        ("(and (not (r2)) (p a))", """\
(Follow each of:
    (Satisfy derived predicate (NOT (r2))!)
    and (Set (p a) to true)
)"""),
    ],
    ids=["and in or", "not and", "exists and", "imply", "not forall", "derived", "derived alone", "not derived"],
)  # fmt: skip
def test_repair_advice_nested_condition_nests_as_val_does(precondition: str, advice: str) -> None:
    task = PlanningTask.from_text(
        NESTED.replace("PRECONDITION", precondition),
        "(define (problem n) (:domain n) (:init) (:goal (q a)))",
    )
    text = repair_advice(task, validate_plan(task, parse_plan("(t)")))
    assert text == f"Plan Repair Advice:\n\n(t) has an unsatisfied precondition at time 1\n{advice}"


def test_repair_advice_derived_literal_that_is_the_whole_precondition_is_none_but_as_a_goal_it_is_told() -> None:
    """VAL 2021 prints nothing for the first; its source asks whether there is advice for preconditions only."""
    domain = NESTED.replace("PRECONDITION", "(r)")
    task = PlanningTask.from_text(domain, "(define (problem n) (:domain n) (:init) (:goal (r)))")
    assert repair_advice(task, validate_plan(task, parse_plan("(t)"))).splitlines()[2:] == [
        "(t) has an unsatisfied precondition at time 1"
    ]
    assert repair_advice(task, validate_plan(task, ())).splitlines()[2:] == [
        "The goal is not satisfied",
        "(Satisfy derived predicate (r)!)",
    ]


@pytest.mark.parametrize(
    ("plan", "printed"),
    [
        ("(pick-up a) (stack a b)", "Checking plan: p\nPlan executed successfully - checking goal\nPlan valid\n"
         "Final value: 2 \n\nSuccessful plans:\nValue: 2\n p 2 \n\n"),
        ("(pick-up a)", "Checking plan: p\nPlan executed successfully - checking goal\nGoal not satisfied\n"
         "Plan invalid\n\nFailed plans:\n p \n"),
        ("(stack a b)", "Checking plan: p\nPlan failed to execute\n\nFailed plans:\n p \n"),
        ("(fly)", "Checking plan: p\nBad plan description!\n\n\nFailed plans:\n p \n"),
    ],
    ids=["valid", "goal", "precondition", "malformed"],
)  # fmt: skip
def test_val_output_brief_tells_outcome_and_footer(plan: str, printed: str) -> None:
    task = two_blocks()
    assert val_output(task, validate_plan(task, parse_plan(plan)), "p", is_verbose=False) == printed


def test_val_output_undefined_cost_is_an_error_of_the_attempt() -> None:
    task = PlanningTask.from_text(
        "(define (domain c) (:predicates (p)) (:functions (total-cost) (f ?x)) (:action t :parameters (?x)"
        " :effect (and (p) (increase (total-cost) (f ?x)))))",
        "(define (problem c) (:domain c) (:objects b) (:init) (:goal (p)))",
    )
    text = val_output(task, validate_plan(task, parse_plan("(t b)")), "p", is_verbose=True)
    assert text.endswith(
        "Checking next happening (time 1)\nError occurred in validation attempt:\n"
        "  Attempt to access undefined numeric expression!\n\n\nQueries (validator failed):\n p \n"
    )

"""The verdict in VAL's words: what each step deletes and adds, where it failed, how to mend it."""

from __future__ import annotations

from conftest import blocks_task, depot_task

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.val_report import repair_advice, validation_details, verbose_report
from plansmith.pddl.validation import validate_plan


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
    advice = repair_advice(validate_plan(task, parse_plan("(move t1 l1 l2)")))
    assert advice.splitlines()[-2:] == [
        "(move t1 l1 l2) has an unsatisfied precondition at time 1",
        "(Set (closed l2) to false)",
    ]


def test_repair_advice_valid_plan_is_empty() -> None:
    assert repair_advice(validate_plan(two_blocks(), parse_plan("(pick-up a) (stack a b)"))) == ""


def test_verbose_report_malformed_plan_names_step_and_reason() -> None:
    assert report_on(two_blocks(), "(pick-up a) (fly a b)").startswith(
        "Bad plan description!\nStep 2: no action is called"
    )


def test_validation_details_of_a_first_step_that_fails_show_no_effect() -> None:
    task = two_blocks()
    details = validation_details(task, validate_plan(task, parse_plan("(put-down a)")))
    assert "Deleting" not in details and "Adding" not in details
    assert details.endswith("(put-down a)\n\nPlan failed to execute")

"""Of what kind a failed attempt is: each kind by a small plan in blocks."""

from __future__ import annotations

import random

import pytest
from conftest import BLOCKS_TEXT, blocks_task

from plansmith.data.rows import CompletionRow, JudgedRow, JudgingRow
from plansmith.judging.failure_kinds import FailureKind, failure_kind
from plansmith.judging.judge import PlanJudge
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.pddl.simulation import random_walk_to_goal
from plansmith.pddl.validation import validate_plan
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import write_chain


def two_goals() -> PlanningTask:
    """Return three blocks on the table, of which a tower is wanted."""
    state = " ".join(f"(ontable {name}) (clear {name})" for name in "abc")
    return blocks_task(f"{state} (handempty)", "(and (on a b) (on b c))", "a b c")


def judged(completion: str, prompting: str = "plan_compact") -> JudgedRow:
    row = JudgingRow("p", BLOCKS_TEXT, print_problem(two_goals().problem), (CompletionRow("r", 0, "v", completion),))
    return PlanJudge(prompting).judge(row)


def kind(completion: str, prompting: str = "plan_compact") -> FailureKind:
    found = judged(completion, prompting)
    return failure_kind(two_goals(), found.verdicts[0], found.steps)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("(pick-up a)\n", FailureKind.UNREADABLE),
        ("stack a b\n", FailureKind.ILLEGAL_ACTION),
        ("fly a b\n", FailureKind.ILLEGAL_ACTION),
        ("pick-up a\nput-down a\n", FailureKind.IN_CIRCLES),
        ("pick-up a\n", FailureKind.NO_GOAL_NEARER),
        ("", FailureKind.NO_GOAL_NEARER),
        ("pick-up b\nstack b c\n", FailureKind.GOAL_MISSED),
    ],
)
def test_failure_kind_of_a_plan_is_the_first_that_holds(plan: str, expected: FailureKind) -> None:
    assert kind(plan) is expected


def test_a_plan_that_was_cut_is_none_though_what_is_there_reaches_the_goal() -> None:
    plan = "pick-up b\nstack b c\npick-up a\nstack a b\n"
    texts = (BLOCKS_TEXT, print_problem(two_goals().problem))
    rows = (CompletionRow("r1", 0, "v", plan), CompletionRow("r2", 0, "v", plan, is_cut=True))
    whole, cut = PlanJudge("plan_compact").judge(JudgingRow("p", *texts, rows)).verdicts
    assert whole.is_valid and not cut.is_valid and cut.reading_fault == "the answer does not end: it was cut"
    assert failure_kind(two_goals(), cut, ()) is FailureKind.UNREADABLE


def test_failure_kind_of_a_chain_with_a_false_state_is_wrong_state_whatever_comes_of_it() -> None:
    text = write_chain(chain_of_plan(two_goals(), parse_plan("(pick-up b) (stack b c)")))
    assert kind(text, "compact") is FailureKind.GOAL_MISSED
    assert kind(text.replace(" now: ", " now: handempty ", 1), "compact") is FailureKind.WRONG_STATE


def test_failure_kind_of_a_cut_chain_that_came_back_to_a_state_is_in_circles() -> None:
    text = write_chain(chain_of_plan(two_goals(), parse_plan("(pick-up b) (put-down b) (pick-up b) (put-down b)")))
    cut = text[: text.rindex("do:") + 5]
    assert judged(cut, "compact").verdicts[0].verdict == "malformed_plan"
    assert kind(cut, "compact") is FailureKind.IN_CIRCLES


def test_failure_kind_of_a_valid_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="not a failed attempt"):
        kind("pick-up b\nstack b c\npick-up a\nstack a b\n")


def test_random_walk_to_goal_is_legal_ends_at_the_goal_and_is_no_longer_than_asked() -> None:
    task = two_goals()
    walks = [random_walk_to_goal(task, 6, random.Random(seed)) for seed in range(200)]
    assert any(reached for _, reached in walks) and not all(reached for _, reached in walks)
    for steps, reached in walks:
        verdict = validate_plan(task, steps)
        assert verdict.failed_step is None and verdict.is_valid is reached and 4 <= len(steps) <= 6

"""What written problems are worth: ten answers to one text, each judged by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import BLOCKS

from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, PddlParseError
from plansmith.judging import formalisation
from plansmith.judging.formalisation import (
    Fault,
    FormalisationJudge,
    Judgement,
    Readability,
    Reference,
    fault_of,
    solve_sorted,
)
from plansmith.pddl.parser import parse_problem
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus
from plansmith.planners.goal_questions import goal_questions


def written(init: str, goal: str, objects: str = "a b c", domain: str = "blocksworld") -> str:
    return (
        f"(define (problem p) (:domain {domain})\n (:objects {objects})\n (:init {init})\n (:goal (and {goal})))"
    )  # fmt: skip


INIT, GOAL = "(on c a) (clear c) (ontable a) (ontable b) (clear b) (handempty)", "(on a b)"
PLAN = ("(unstack c a)", "(put-down c)", "(pick-up a)", "(stack a b)")
REFERENCE = Reference(parse_problem(written(INIT, GOAL), BLOCKS), PLAN)
RENAMED = INIT.replace(" a)", " x)").replace(" b)", " y)").replace(" c)", " z)").replace("(on c", "(on z")


@pytest.fixture(scope="module")
def judge() -> Iterator[FormalisationJudge]:
    with FastDownward(PlannerConfig()) as planner:
        yield FormalisationJudge(BLOCKS, planner.solve, goal_questions(planner, BLOCKS))


def test_judge_of_the_reference_itself_is_right_in_every_respect(judge: FormalisationJudge) -> None:
    found = judge.judge(written(INIT, GOAL), REFERENCE)
    assert found.comparison is not None and found.comparison.outcome == "identical"
    assert (found.readability, found.keeps_contract, found.status) == ("parsed", True, "solved")
    assert (found.atom_similarity, found.is_consistent, found.has_task_success) == (1.0, True, True)
    assert (found.is_flattered, found.feedback, found.plan) == (False, "", PLAN)


def test_judge_of_what_cannot_be_compared_is_undecided(
    judge: FormalisationJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BadInputError("too many instances of a condition")

    monkeypatch.setattr(formalisation, "compare_problems", refuse)
    found = judge.judge(written(INIT, GOAL), REFERENCE)
    assert found.comparison is not None and found.comparison.outcome == "undecided"
    assert (found.readability, found.status, found.has_task_success) == ("parsed", "solved", True)


@pytest.mark.parametrize(
    ("answer", "readability", "similarity", "outcome", "has_success"),
    [
        ("I cannot.", "no_problem", 0.0, None, False),
        (written(INIT, GOAL)[:-1], "unparseable", 0.0, None, False),
        (written(INIT, "(on a q)"), "unparseable", 0.0, None, False),
        (f"Sure!\n```\n{written(INIT, GOAL)}\n```", "parsed", 1.0, "identical", True),
        (written(INIT, GOAL, domain="blocks"), "parsed", 1.0, "identical", True),
        (written(RENAMED, "(on x y)", "x y z"), "parsed", 1 / 13, "equivalent", True),
        (written(INIT, "(on a b) (clear c)"), "parsed", 7 / 8, "different", True),
        (written(INIT, "(on b a)"), "parsed", 6 / 8, "different", False),
        (written(INIT.replace("(handempty)", ""), GOAL), "parsed", 6 / 7, "different", False),
        (written(INIT, "(on a b) (not (clear b))"), "parsed", 7 / 8, "equivalent", True),
    ],
    ids=["no problem", "a bracket lost", "an object that is not there", "fenced", "another domain's name", "renamed",
         "a goal more that holds anyhow in this plan", "arguments swapped", "a fact lost", "a goal in other words"],
)  # fmt: skip
def test_judge_of_an_answer_says_how_far_it_can_be_read_and_what_it_means(
    judge: FormalisationJudge, answer: str, readability: str, similarity: float, outcome: str | None, has_success: bool
) -> None:
    found = judge.judge(answer, REFERENCE)
    assert (found.readability, found.has_task_success) == (readability, has_success)
    assert found.atom_similarity == pytest.approx(similarity)
    assert (None if found.comparison is None else str(found.comparison.outcome)) == outcome


def test_judge_of_a_problem_with_a_plan_that_means_another_thing_calls_it_flattered(judge: FormalisationJudge) -> None:
    found = judge.judge(written(INIT, "(on b a)"), REFERENCE)
    assert found.is_solved and found.is_flattered and not found.has_task_success


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("I cannot.", ["(define (problem"]),
        (written(INIT, "(on a q)"), ["undeclared", "'q'"]),
        (written(INIT.replace("(handempty)", ""), GOAL), ["The planner says: unsolvable.", "with (handempty) all"]),
    ],
    ids=["no problem", "an error", "no plan"],
)  # fmt: skip
def test_judge_without_a_reference_tells_what_to_mend(judge: FormalisationJudge, answer: str, told: list[str]) -> None:
    found = judge.judge(answer)
    assert all(words in found.feedback for words in told), found.feedback
    assert (found.comparison, found.atom_similarity, found.has_task_success) == (None, None, None)


def test_judge_tells_five_errors_at_most(judge: FormalisationJudge) -> None:
    found = judge.judge(written(INIT, " ".join(f"(on q{k} q{k})" for k in range(9))))
    assert found.feedback.count("error:") == 5
    assert found.codes == ("undeclared-object",)


def test_judge_of_the_same_facts_in_another_order_has_the_same_plan(judge: FormalisationJudge) -> None:
    facts = INIT.replace(") (", ")|(").split("|")
    plans = {judge.judge(written(" ".join(facts[k:] + facts[:k]), GOAL)).plan for k in range(len(facts))}
    assert plans == {PLAN}


def test_solve_sorted_of_a_problem_that_the_planner_refuses_is_an_outcome() -> None:
    def refuse(domain_pddl: str, problem_pddl: str) -> PlannerResult:
        raise PddlParseError("not for me")

    assert solve_sorted(BLOCKS, REFERENCE.problem, refuse).status is PlannerStatus.UNSUPPORTED


@pytest.mark.parametrize(
    ("init", "goal", "expected"),
    [
        (INIT + "(", GOAL, Fault.UNPARSEABLE),
        (INIT.replace("(handempty)", ""), GOAL, Fault.UNSOLVABLE),
        (INIT, "(on a b) (on b c)", Fault.WORSE),  # 6 steps, more than 1.2 * 4
        (INIT, "(on b a)", Fault.UNFAITHFUL),  # 4 steps
        (INIT, GOAL, None),
        (INIT, "(on a b) (not (clear b))", None),
    ],
    ids=["form", "no plan", "a longer plan", "another goal", "right", "right in other words"],
)
def test_fault_of_an_answer_is_the_gravest_that_is_proved(
    judge: FormalisationJudge, init: str, goal: str, expected: Fault | None
) -> None:
    assert fault_of(judge.judge(written(init, goal), REFERENCE), REFERENCE) == expected


def test_fault_of_an_answer_that_the_planner_gave_up_on_is_not_known() -> None:
    for status in set(PlannerStatus) - {PlannerStatus.SOLVED, PlannerStatus.UNSOLVABLE}:
        assert fault_of(Judgement(Readability.PARSED, "", True, status=status), REFERENCE) is None


def test_judgement_without_a_plan_is_not_flattered() -> None:
    assert not Judgement(Readability.PARSED, "", True, status=PlannerStatus.UNSOLVABLE).is_flattered

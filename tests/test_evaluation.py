"""The error classes of table 5 and the figures of an arm."""

from __future__ import annotations

import dataclasses
import pickle
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from plansmith.judging.progress_score import progress_score
from plansmith.judging.taxonomy import ErrorClass, classify_failure
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.validation import FeedbackCode, Verdict, validate_plan_text
from plansmith.report import metrics
from plansmith.report.metrics import (
    ALL_LEVELS,
    EvaluatedProblem,
    PlanQuality,
    compare_arms,
    plan_quality,
    self_verification,
    summarise_arm,
    summarise_level,
)


def attempt(
    problem_id: str,
    error_class: ErrorClass | None = None,
    *,
    level: str = "4 blocks",
    plan_length: int | None = 6,
    planner_plan_length: int = 4,
    completion_tokens: int = 100,
) -> EvaluatedProblem:
    return EvaluatedProblem(
        problem_id=problem_id,
        domain="blocksworld",
        level=level,
        form=problem_id,
        is_valid=error_class is None,
        error_class=error_class,
        plan_length=plan_length,
        planner_plan_length=planner_plan_length,
        completion_tokens=completion_tokens,
    )


OK, CLAIM, EFFECT, PRECONDITION = (
    FeedbackCode.OK,
    FeedbackCode.CLAIM,
    FeedbackCode.EFFECT,
    FeedbackCode.PRECONDITION,
)
CUT = Verdict.MALFORMED_PLAN


@pytest.mark.parametrize(
    ("verdict", "codes", "by_actions", "expected"),
    [
        (Verdict.VALID, [OK, EFFECT], Verdict.VALID, None),
        (Verdict.PRECONDITION_UNSATISFIED, [], Verdict.PRECONDITION_UNSATISFIED, ErrorClass.PRECONDITION_VIOLATION),
        (Verdict.PRECONDITION_UNSATISFIED, [CLAIM, PRECONDITION, EFFECT], Verdict.PRECONDITION_UNSATISFIED,
         ErrorClass.PRECONDITION_VIOLATION),
        (Verdict.PRECONDITION_UNSATISFIED, [OK, EFFECT, PRECONDITION], Verdict.PRECONDITION_UNSATISFIED,
         ErrorClass.INCORRECT_EFFECT),
        (Verdict.GOAL_NOT_REACHED, [OK, FeedbackCode.GOAL], Verdict.GOAL_NOT_REACHED, ErrorClass.GOAL_NOT_ACHIEVED),
        (Verdict.GOAL_NOT_REACHED, [EFFECT, OK], Verdict.GOAL_NOT_REACHED, ErrorClass.INCORRECT_EFFECT),
        (CUT, [OK, PRECONDITION], Verdict.PRECONDITION_UNSATISFIED, ErrorClass.PRECONDITION_VIOLATION),
        (CUT, [OK, FeedbackCode.GOAL], Verdict.PRECONDITION_UNSATISFIED, ErrorClass.PRECONDITION_VIOLATION),
        (CUT, [OK, CLAIM], Verdict.GOAL_NOT_REACHED, ErrorClass.GOAL_NOT_ACHIEVED),
        (CUT, [OK, OK], Verdict.VALID, ErrorClass.INVALID_ACTION_SEQUENCE),
        (CUT, [OK, FeedbackCode.MALFORMED, PRECONDITION], CUT, ErrorClass.INVALID_ACTION_SEQUENCE),
        (CUT, [], CUT, ErrorClass.INVALID_ACTION_SEQUENCE),
    ],
    ids=["valid whatever the chain claims", "illegal plan without a chain", "illegal after a false reason",
         "illegal after a wrong state", "goal", "goal after a wrong state", "cut after an illegal step",
         "cut in an illegal step", "cut while legal", "cut at the goal", "no such action", "no action"],
)  # fmt: skip
def test_classify_failure_reads_table_5(
    verdict: Verdict, codes: Sequence[FeedbackCode], by_actions: Verdict, expected: ErrorClass | None
) -> None:
    assert classify_failure(verdict, codes, by_actions) is expected


def test_classify_failure_of_a_problem_that_cannot_be_judged_raises() -> None:
    with pytest.raises(ValueError, match="cannot be judged"):
        classify_failure(Verdict.BAD_INPUT, [], Verdict.BAD_INPUT)


def test_error_class_values_are_the_four_of_table_5() -> None:
    assert [kind.value for kind in ErrorClass] == [
        "precondition_violation",
        "incorrect_effect",
        "goal_not_achieved",
        "invalid_action_sequence",
    ]


def test_summarise_level_counts_by_hand() -> None:
    figures = summarise_level(
        [
            attempt("a", plan_length=6, planner_plan_length=4, completion_tokens=10),
            attempt("b", plan_length=8, planner_plan_length=8, completion_tokens=20),
            attempt("c", ErrorClass.GOAL_NOT_ACHIEVED, plan_length=40, planner_plan_length=30, completion_tokens=30),
            attempt("d", ErrorClass.INVALID_ACTION_SEQUENCE, plan_length=None, completion_tokens=45),
        ]
    )
    assert (figures.n, figures.n_valid, figures.accuracy) == (4, 2, 0.5)
    assert figures.ci95 == pytest.approx((0.15004, 0.84996), abs=5e-6)
    assert figures.errors == {
        ErrorClass.PRECONDITION_VIOLATION: 0,
        ErrorClass.INCORRECT_EFFECT: 0,
        ErrorClass.GOAL_NOT_ACHIEVED: 1,
        ErrorClass.INVALID_ACTION_SEQUENCE: 1,
    }
    assert (figures.mean_plan_length, figures.mean_planner_plan_length) == (7.0, 6.0)  # of the solved ones only
    assert (figures.tokens, figures.tokens_per_problem) == (105, 26.25)


def test_summarise_level_nothing_solved_has_no_mean_length() -> None:
    figures = summarise_level([attempt("a", ErrorClass.INCORRECT_EFFECT)])
    assert (figures.accuracy, figures.mean_plan_length, figures.mean_planner_plan_length) == (0.0, None, None)


def test_summarise_arm_two_levels_the_primary_one_stands_for_the_arm() -> None:
    five = [
        attempt("p", level="5 blocks", completion_tokens=9),
        attempt("q", ErrorClass.INCORRECT_EFFECT, level="5 blocks"),
    ]
    arm = summarise_arm("final", [*five, attempt("a")], primary_level="4 blocks")
    assert (arm.name, arm.level, arm.n, arm.accuracy) == ("final", "4 blocks", 1, 1.0)
    assert list(arm.by_level) == ["4 blocks", "5 blocks"]
    assert (arm.by_level["5 blocks"].n, arm.by_level["5 blocks"].accuracy) == (2, 0.5)
    assert arm.tokens == arm.by_level["4 blocks"].tokens == 100


def test_levels_are_compared_together_then_the_primary_one_then_the_others_as_they_grow() -> None:
    levels = ["10 blocks", "6 blocks", "4 blocks", "6 blocks"]
    assert metrics.tested_levels(levels, "6 blocks") == [ALL_LEVELS, "6 blocks", "4 blocks", "10 blocks"]
    assert metrics.tested_levels(["L1"], "L1") == ["L1"]


def test_summarise_arm_one_level_needs_no_naming() -> None:
    assert summarise_arm("phase1", [attempt("a")]).level == "4 blocks"


@pytest.mark.parametrize(
    ("evaluated", "primary_level", "message"),
    [
        ([], "4 blocks", "n=0"),
        ([attempt("a")], "9 blocks", "not one of"),
        ([attempt("a"), attempt("b", level="5 blocks")], None, "not one of"),
        ([attempt("a"), attempt("a")], None, "occurs twice"),
    ],
    ids=["empty", "level-absent", "level-ambiguous", "problem-twice"],
)
def test_summarise_arm_unusable_input_raises(
    evaluated: list[EvaluatedProblem], primary_level: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        summarise_arm("final", evaluated, primary_level=primary_level)


def test_summarise_level_without_attempts_raises() -> None:
    with pytest.raises(ValueError, match="n=0"):
        summarise_level([])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_valid": True, "error_class": ErrorClass.INCORRECT_EFFECT}, "is_valid"),
        ({"is_valid": False, "error_class": None}, "is_valid"),
        ({"plan_length": None}, "has a length"),
        ({"completion_tokens": float("nan")}, "finite"),
        ({"completion_tokens": float("inf")}, "finite"),
        ({"completion_tokens": -1}, "finite"),
        ({"plan_cost": float("nan")}, "costs are finite"),
        ({"is_planner_optimal": True, "plan_cost": 4.0}, "have a cost"),
        ({"is_planner_optimal": True, "planner_cost": 4.0}, "have a cost"),
        ({"is_planner_optimal": True, "planner_cost": 4.0, "plan_cost": 3.0}, "less than the optimum"),
        ({"v_hat": 1.5}, "lie in"),
        ({"progress": -0.1}, "lie in"),
        ({"progress": 0.5}, "a valid plan has progress 1"),
    ],
    ids=[
        "valid-with-error",
        "failed-without-error",
        "valid-without-plan",
        "nan-time",
        "infinite-time",
        "negative-tokens",
        "nan-cost",
        "optimal-without-cost",
        "valid-without-cost-beside-optimum",
        "cheaper-than-optimal",
        "v-hat-no-probability",
        "negative-progress",
        "valid-without-all-progress",
    ],
)
def test_evaluated_problem_contradiction_raises(changes: dict[str, object], message: str) -> None:
    fields = {name: getattr(attempt("a"), name) for name in EvaluatedProblem.__dataclass_fields__}
    with pytest.raises(ValueError, match=message):
        EvaluatedProblem(**{**fields, **changes})


def test_summarise_arm_any_order_gives_the_same_figures() -> None:
    evaluated = [attempt(str(i), ErrorClass.GOAL_NOT_ACHIEVED if i % 3 else None, plan_length=i) for i in range(30)]
    shuffled = random.Random(5).sample(evaluated, k=30)
    assert summarise_arm("final", shuffled) == summarise_arm("final", evaluated)


def test_compare_arms_matches_problems_by_id_not_by_order() -> None:
    before = [attempt("a"), attempt("b", ErrorClass.INCORRECT_EFFECT), attempt("c", ErrorClass.INCORRECT_EFFECT)]
    after = [attempt("c"), attempt("a"), attempt("b")]
    comparison = compare_arms("phase1", "final", "4 blocks", evaluated_before=before, evaluated_after=after)
    assert (comparison.before, comparison.after, comparison.level) == ("phase1", "final", "4 blocks")
    assert (comparison.test.n, comparison.test.only_before, comparison.test.only_after) == (3, 0, 2)
    assert comparison.test.p_value == pytest.approx(0.5)


def test_compare_arms_leaves_other_levels_out() -> None:
    before = [attempt("a"), attempt("z", ErrorClass.INCORRECT_EFFECT, level="5 blocks")]
    after = [attempt("a"), attempt("z", level="5 blocks")]
    four = compare_arms("phase1", "final", "4 blocks", evaluated_before=before, evaluated_after=after)
    assert (four.test.n, four.test.only_after) == (1, 0)


def test_compare_arms_different_problems_raises() -> None:
    with pytest.raises(ValueError, match="differ in 2 problems"):
        compare_arms("x", "y", "4 blocks", evaluated_before=[attempt("a")], evaluated_after=[attempt("b")])


def test_arm_result_survives_pickling() -> None:
    arm = summarise_arm("final", [attempt("a"), attempt("b", ErrorClass.GOAL_NOT_ACHIEVED)])
    assert pickle.loads(pickle.dumps(arm)) == arm


def priced(problem_id: str, cost: float | None, optimum: float, *, is_optimal: bool = True) -> EvaluatedProblem:
    failed = None if cost is not None else ErrorClass.GOAL_NOT_ACHIEVED
    return dataclasses.replace(
        attempt(problem_id, failed), plan_cost=cost, planner_cost=optimum, is_planner_optimal=is_optimal
    )


def test_plan_quality_counts_only_problems_with_a_known_optimum() -> None:
    evaluated = [priced("a", 4, 4), priced("b", 6, 4), priced("c", None, 4), priced("d", 9, 3, is_optimal=False)]
    assert plan_quality(evaluated) == PlanQuality(
        n=3, n_solved=2, n_optimal=1, optimal_of_solved=0.5, optimal_of_all=1 / 3, mean_cost_ratio=1.25
    )


def test_plan_quality_optimum_of_zero_has_a_ratio_only_when_the_plan_is_free() -> None:
    free, dear = plan_quality([priced("a", 0, 0)]), plan_quality([priced("a", 2, 0)])
    assert free is not None and (free.n_optimal, free.mean_cost_ratio) == (1, 1.0)
    assert dear is not None and (dear.n_optimal, dear.mean_cost_ratio) == (0, None)


def test_plan_quality_nothing_solved_has_no_share_of_solved() -> None:
    quality = plan_quality([priced("a", None, 4)])
    assert quality == PlanQuality(1, 0, 0, None, 0.0, None)
    assert plan_quality([attempt("a")]) is None


def test_self_verification_counts_stated_verdicts_only() -> None:
    said = [("a", True, None), ("b", False, None), ("c", True, ErrorClass.INCORRECT_EFFECT), ("d", None, None)]
    own = self_verification([dataclasses.replace(attempt(i, e), stated_verdict=s) for i, s, e in said])
    assert own is not None
    assert (own.n, own.n_said_valid, own.n_correct, own.accuracy) == (3, 2, 1, 1 / 3)
    assert self_verification([attempt("a")]) is None


def test_summarise_arm_by_domain_puts_all_levels_of_a_domain_together() -> None:
    logistics = [dataclasses.replace(attempt(i, level=level), domain="logistics") for i, level in ("xs", "yl")]
    failed = dataclasses.replace(attempt("z", ErrorClass.INCORRECT_EFFECT, level="s"), domain="logistics")
    arm = summarise_arm("final", [attempt("a"), *logistics, failed], primary_level="4 blocks")
    assert [(d, f.n, f.n_valid) for d, f in arm.by_domain.items()] == [("blocksworld", 1, 1), ("logistics", 3, 2)]


def test_summarise_arm_means_and_calibration_leave_the_unknown_out() -> None:
    known = dataclasses.replace(attempt("a", ErrorClass.GOAL_NOT_ACHIEVED), progress=0.25, v_hat=0.2)
    solved = dataclasses.replace(attempt("b"), progress=1.0, v_hat=0.8)
    arm = summarise_arm("final", [known, solved, attempt("c")])
    assert arm.mean_progress == 0.625
    assert arm.calibration is not None and arm.calibration.n == 2
    assert arm.calibration.brier == pytest.approx(0.04)
    assert summarise_arm("final", [attempt("c")]).calibration is None


LAMPS_DOMAIN = """(define (domain lamps) (:requirements :strips :negative-preconditions)
  (:predicates (dark ?l) (lit ?l))
  (:action light :parameters (?l) :precondition (dark ?l) :effect (and (lit ?l) (not (dark ?l)))))"""
LAMPS_PROBLEM = """(define (problem four) (:domain lamps) (:objects a b c d) (:init (dark a) (dark b) (dark c) (lit d))
  (:goal (and (lit a) (lit b) (not (dark c)) (lit d))))"""


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("(light a)\n(light b)\n(light c)", 1.0),
        ("(light a)\n(light a)\n(light b)", 0.5),
        ("(light c)", 0.5),
        ("", 0.25),
        ("(light a)\n(light nowhere)", 0.25),
        ("no plan at all", 0.25),
    ],
    ids=["valid", "stops-at-the-wrong-action", "negative-conjunct", "empty", "malformed-step", "unreadable"],
)
def test_progress_score_is_the_share_of_the_goal_before_the_first_wrong_action(plan: str, expected: float) -> None:
    task = PlanningTask.from_text(LAMPS_DOMAIN, LAMPS_PROBLEM)
    assert progress_score(task, validate_plan_text(task, plan)) == expected


def test_metrics_import_brings_no_heavy_package() -> None:
    code = (
        "import sys, plansmith.report.metrics, plansmith.report.results; "
        "print([m for m in ('torch', 'ray', 'vllm', 'deepspeed', 'matplotlib', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

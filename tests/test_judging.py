"""From a completion to its verdict: whole plan, every step, the losses as printed, the feedback."""

from __future__ import annotations

import pytest
from conftest import BLOCKS, SUSSMAN_PLAN, atoms, blocks_task, sussman
from hypothesis import given
from hypothesis import strategies as st

from plansmith.data.rows import JudgingRow, ProblemRow, RolloutRow
from plansmith.evaluation.judging import (
    JudgedChain,
    attempt_example,
    attempt_of,
    judge_completion,
    loss_of_step,
    reasoning_rows,
    sound_steps,
    verdict_row,
)
from plansmith.evaluation.results import StepMark
from plansmith.learning.printed_losses import LossWeights
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import FeedbackCode, Verdict
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import MARKERS
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import rendering_of

COMPACT = rendering_of("compact")
WEIGHTS = LossWeights()

PICK = "do: pick-up a check: clear a ontable a handempty ok: add: holding a now: holding a clear b ontable b"
STACK = (
    "do: stack a b check: holding a clear b ok: add: clear a handempty on a b now: handempty clear a on a b ontable b"
)
END = "final: pick-up a stack a b verdict: VALID"
LOST = PICK.replace("now: holding a clear b", "now: holding a")
"""The first step claims a state without (clear b)."""
FAILS = "do: pick-up b check: clear b ontable b handempty fails: handempty"
"""Right after `PICK`, and says so."""
UNAWARE = "do: pick-up b check: clear b ontable b handempty ok: add: holding b now: holding a holding b"
"""Right after `PICK`, and claims that it worked."""


TASK = blocks_task("(ontable a) (clear a) (ontable b) (clear b) (handempty)", "(on a b)", "a b")
"""Two blocks on the table, a wanted on b. One task for all: its states are bits whose meaning it alone knows."""


def judged(*parts: str) -> JudgedChain:
    """Return the judgement of a completion about the two blocks."""
    return judge_completion(TASK, " ".join(parts), COMPACT)


def codes(chain: JudgedChain) -> list[str]:
    """Return the feedback code of every step."""
    return [str(step.judgement.code) for step in chain.steps]


def rollout(completion: str = "") -> RolloutRow:
    """Return a rollout row for a completion."""
    return RolloutRow("r1", "p1", 2, "v2", "prompt", completion, (1,), (2,), (-0.1,), "stop", 0)


def test_judge_completion_right_chain_is_valid_at_every_step() -> None:
    chain = judged(PICK, STACK, END)
    assert (chain.verdict.verdict, codes(chain), chain.first_fault) == (Verdict.VALID, ["ok", "ok"], None)
    assert chain.report.endswith("Plan valid")
    assert [loss_of_step(step, WEIGHTS, is_binary=False) for step in chain.steps] == [0.0, 0.0]


def test_judge_completion_of_a_written_chain_is_what_the_chain_says() -> None:
    task = sussman()
    for n_steps in range(7):
        chain = chain_of_plan(task, SUSSMAN_PLAN[:n_steps])
        found = judge_completion(task, COMPACT.write_chain(chain), COMPACT)
        assert found.verdict.is_valid == (n_steps == 6) == (found.read.chain.verdict == "VALID")
        assert codes(found) == ["ok"] * (n_steps - 1) + ["goal"] * (0 < n_steps < 6) + ["ok"] * (n_steps == 6)


def test_judge_completion_wrong_state_is_judged_from_what_the_chain_claims() -> None:
    chain = judged(LOST, STACK, END)
    first, second = (step.judgement for step in chain.steps)
    assert chain.verdict.is_valid  # the plan itself is right
    assert (first.code, first.lost_atoms) == (FeedbackCode.EFFECT, atoms("(clear b)"))
    assert (second.code, [str(x) for x in second.unsatisfied]) == (FeedbackCode.PRECONDITION, ["(clear b)"])
    assert chain.steps[1].s_prev == chain.steps[0].s_claimed == atoms("(holding a) (ontable b)")


def test_judge_completion_inapplicable_step_that_says_so_claims_no_change() -> None:
    chain = judged(PICK, FAILS, "final: pick-up a pick-up b verdict: INVALID")
    assert (chain.verdict.verdict, chain.verdict.failed_step) == (Verdict.PRECONDITION_UNSATISFIED, 2)
    assert codes(chain) == ["ok", "precondition"]
    assert chain.steps[1].judgement.state_distance == 0 and chain.steps[1].s_claimed == chain.steps[1].s_prev


def test_judge_completion_inapplicable_step_that_claims_a_state_is_off_by_it() -> None:
    chain = judged(PICK, UNAWARE, "final: pick-up a pick-up b verdict: VALID")
    assert codes(chain) == ["ok", "precondition"]
    assert chain.steps[1].judgement.state_distance == 3  # holding b gained, clear b and ontable b gone


def test_judge_completion_applicable_step_called_impossible_is_an_effect_error() -> None:
    chain = judged("do: pick-up a check: clear a fails: clear a", "final: pick-up a verdict: INVALID")
    judgement = chain.steps[0].judgement
    assert (judgement.code, judgement.state_distance) == (FeedbackCode.EFFECT, 4)


def test_judge_completion_missed_goal_is_the_fault_of_the_last_step() -> None:
    chain = judged(PICK, "final: pick-up a verdict: INVALID")
    assert chain.verdict.verdict is Verdict.GOAL_NOT_REACHED
    assert (codes(chain), chain.steps[0].judgement.reason) == (["goal"], "the goal lacks (on a b)")


@pytest.mark.parametrize(
    ("parts", "n_steps", "reason"),
    [
        ((), 0, "verdict:"),
        ((PICK, STACK), 1, "the end"),
        ((PICK, STACK, "final: pick-up a stack a"), 2, "a name"),
        ((PICK, STACK, "goals: on? a b met:"), 2, "expected 'verdict:'"),
        ((PICK, STACK, END, "and more"), 2, "expected the end"),
        ((PICK, "do: jump b", END), 1, "expected an action"),
    ],
    ids=["empty", "cut after a step", "cut in the plan", "cut before the verdict", "words after it", "unknown action"],
)
def test_judge_completion_unreadable_is_a_malformed_plan_with_the_reason(
    parts: tuple[str, ...], n_steps: int, reason: str
) -> None:
    chain = judged(*parts)
    assert (chain.verdict.verdict, chain.verdict.failed_step) == (Verdict.MALFORMED_PLAN, None)
    assert len(chain.steps) == n_steps and reason in chain.verdict.reason and reason in chain.report
    row = verdict_row(TASK, rollout(), chain)
    assert (row.verdict, row.error_class) == ("malformed_plan", "invalid_action_sequence")


def test_judge_completion_without_a_list_of_the_plan_judges_the_actions_of_the_steps() -> None:
    chain = judged(PICK, STACK, "goals: on? a b met: verdict: VALID")
    assert (chain.verdict.verdict, chain.verdict.plan) == (Verdict.VALID, parse_plan("(pick-up a) (stack a b)"))
    assert judged(PICK, "verdict: VALID").verdict.verdict is Verdict.GOAL_NOT_REACHED


def test_judge_completion_final_plan_is_judged_not_the_steps() -> None:
    chain = judged(PICK, STACK, "final: stack a b verdict: VALID")
    assert (chain.verdict.verdict, codes(chain)) == (Verdict.PRECONDITION_UNSATISFIED, ["ok", "ok"])
    unknown_object = judged(PICK, STACK, "final: pick-up z verdict: VALID")
    assert (unknown_object.verdict.verdict, unknown_object.verdict.failed_step) == (Verdict.MALFORMED_PLAN, 1)


@pytest.mark.parametrize(
    ("parts", "detailed", "binary"),
    [
        ((PICK, STACK), [0.0, 0.0], [0.0, 0.0]),
        ((LOST, STACK), [1 + 0.1 * 2, 4 + 0.1 * 3], [1 + 0.1 * 7, 4 + 0.1 * 7]),
        ((PICK, UNAWARE), [0.0, 3 + 0.1 * 3], [0.0, 3 + 0.1 * 7]),
        ((PICK, FAILS), [0.0, 0.1 * 3], [0.0, 0.1 * 7]),
        ((PICK,), [0.1 * 5], [0.1 * 7]),
        ((PICK.replace("pick-up a", "pick-up z"),), [4 + 0.1 * 3], [4 + 0.1 * 7]),
    ],
    ids=["right", "effect then precondition", "inapplicable", "inapplicable and said so", "goal", "unknown object"],
)
def test_loss_of_step_is_equation_5(parts: tuple[str, ...], detailed: list[float], binary: list[float]) -> None:
    """States and penalties by hand; the step after ``LOST`` drops one atom and gains three where nothing may change."""
    weights = LossWeights(alpha_effect=2.0, alpha_precond=3.0, alpha_goal=5.0, alpha_any=7.0, lambda_feedback=0.1)
    chain = judged(*parts, "final: pick-up a verdict: VALID")
    assert [loss_of_step(step, weights, is_binary=False) for step in chain.steps] == pytest.approx(detailed)
    assert [loss_of_step(step, weights, is_binary=True) for step in chain.steps] == pytest.approx(binary)
    rows = reasoning_rows(TASK, rollout(), chain, weights, is_binary=False)
    assert [row.step_loss for row in rows] == pytest.approx(detailed)


def test_reasoning_rows_hold_claimed_and_expected_states() -> None:
    first, second = reasoning_rows(TASK, rollout(), judged(LOST, STACK, END), WEIGHTS, is_binary=False)
    assert (first.step, first.action, first.feedback_code, first.state_distance) == (1, "(pick-up a)", "effect", 1)
    assert set(first.s_prev) == {"(handempty)", "(clear a)", "(ontable a)", "(clear b)", "(ontable b)"}
    assert first.s_claimed == ("(holding a)", "(ontable b)") == second.s_prev
    assert set(first.s_expected) == {"(holding a)", "(ontable b)", "(clear b)"}
    assert (first.rollout_id, first.problem_id, first.iteration, first.policy_version) == ("r1", "p1", 2, "v2")


@pytest.mark.parametrize(
    ("parts", "marks", "unmet"),
    [
        ((PICK, STACK, END), (True, True), ""),
        ((LOST, STACK, END), (False,), ""),
        (
            (PICK, UNAWARE, "do: put-down b check: holding b ok: add: now: final: verdict: VALID"),
            (True, False),
            "(on a b)",
        ),
        ((PICK, "final: pick-up a verdict: VALID"), (True,), "(on a b)"),
        ((PICK, STACK), (True,), "(on a b)"),
        (("final: verdict: VALID",), (), "(on a b)"),
    ],
    ids=["valid", "first wrong", "marks stop at the first fault", "goal", "cut off", "no step"],
)
def test_attempt_of_marks_up_to_the_first_fault_and_names_open_goals(
    parts: tuple[str, ...], marks: tuple[bool, ...], unmet: str
) -> None:
    attempt = attempt_of(TASK, judged(*parts))
    assert attempt.marks == marks and len(attempt.plan) == len(marks)
    assert (attempt.fault is not None) == (False in marks)
    assert tuple(literal.atom for literal in attempt.unmet_goals) == atoms(unmet)


def test_attempt_of_a_wrong_state_names_it_in_the_report_which_val_cannot() -> None:
    attempt = attempt_of(TASK, judged(LOST, STACK, END))
    assert attempt.report.endswith("Plan valid\n\nState claimed wrongly: (pick-up a) does not delete (clear b)")
    assert "feedback: lost: clear b plan:" in COMPACT.correct_prompt(TASK, attempt, FeedbackKind.DETAILED)


@pytest.mark.parametrize(
    ("parts", "verdict", "error_class", "failed_step"),
    [
        ((PICK, STACK, END), "valid", None, None),
        ((LOST, STACK, END), "valid", None, None),
        ((PICK, "final: pick-up a verdict: VALID"), "goal_not_reached", "goal_not_achieved", None),
        ((LOST, "final: pick-up a verdict: VALID"), "goal_not_reached", "incorrect_effect", None),
        ((PICK, FAILS, "final: pick-up a pick-up b verdict: VALID"), "precondition_unsatisfied",
         "precondition_violation", 2),
        ((LOST, UNAWARE, "final: pick-up a pick-up b verdict: VALID"), "precondition_unsatisfied",
         "incorrect_effect", 2),
        (("nothing",), "malformed_plan", "invalid_action_sequence", None),
    ],
    ids=["valid", "valid plan, wrong chain", "goal", "goal after a wrong state", "precondition",
         "precondition after a wrong state", "malformed"],
)  # fmt: skip
def test_verdict_row_has_the_class_of_table_5(
    parts: tuple[str, ...], verdict: str, error_class: str | None, failed_step: int | None
) -> None:
    row = verdict_row(TASK, rollout(), judged(*parts))
    assert (row.verdict, row.error_class, row.failed_step) == (verdict, error_class, failed_step)


def test_verdict_row_holds_both_kinds_of_feedback_and_the_claimed_verdict() -> None:
    chain = judged(PICK, FAILS, "final: pick-up a pick-up b verdict: VALID")
    judging = JudgingRow("r2", "p1", 1, "v1", "", "", "")
    row = verdict_row(TASK, judging, chain)
    assert row.binary_feedback == "(pick-up a) - VALID\n(pick-up b) - INVALID"
    assert "(Set (handempty) to true)" in row.detailed_feedback
    assert (row.claimed_verdict, row.unsatisfied, row.step_distances) == ("VALID", ("(handempty)",), (0, 0))
    assert (row.rollout_id, row.plan) == ("r2", ("(pick-up a)", "(pick-up b)"))


def test_attempt_example_shows_the_policys_words_with_a_mark_each() -> None:
    problem = ProblemRow(
        "p1", "f", "blocksworld", "2", "test", 2, print_domain(BLOCKS), print_problem(TASK.problem), ""
    )
    completion = " ".join((LOST, FAILS, STACK, "final: pick-up a pick-up b verdict: VALID"))
    example = attempt_example(problem, completion, ("(pick-up a)", "(stack a b)"), "compact", arm="final")
    assert [view.mark for view in example.steps] == [StepMark.WRONG_STATE, StepMark.FAILED, StepMark.UNREACHED]
    assert [view.text for view in example.steps] == [LOST, FAILS, STACK]
    assert (example.error_class, example.goal) == ("incorrect_effect", "(on a b)")
    assert example.planner_plan == ("(pick-up a)", "(stack a b)")


WORDS = [*MARKERS, "VALID", "INVALID", "a", "b", "z", "="]
WORDS += [predicate.name for predicate in BLOCKS.predicates] + [action.name for action in BLOCKS.actions]


@given(st.integers(0, 50), st.lists(st.sampled_from(WORDS), max_size=30), st.booleans())
def test_judging_any_completion_never_raises(n_kept: int, garbage: list[str], is_ended: bool) -> None:
    words = f"{PICK} {STACK}".split()[:n_kept] + garbage + END.split() * is_ended
    chain = judge_completion(TASK, " ".join(words), COMPACT)
    attempt = attempt_of(TASK, chain)
    row = verdict_row(TASK, rollout(), chain)
    assert (row.error_class is None) == chain.verdict.is_valid
    assert len(reasoning_rows(TASK, rollout(), chain, WEIGHTS, is_binary=True)) == len(chain.steps)
    for rendering in (COMPACT, rendering_of("full")):
        for kind in FeedbackKind:
            assert rendering.correct_prompt(TASK, attempt, kind)
    assert parse_plan(" ".join(row.plan)) == chain.verdict.plan


BACK = (
    "do: put-down a check: holding a ok: add: clear a handempty ontable a "
    "now: handempty clear a ontable a clear b ontable b"
)
"""Right after `PICK`: the initial state again."""


@pytest.mark.parametrize(
    ("steps", "n_kept"),
    [
        ((PICK, STACK), 2),
        ((PICK, FAILS), 1),
        ((PICK, UNAWARE), 1),
        ((LOST, STACK), 0),
        ((PICK, BACK, PICK, STACK), 0),
        ((), 0),
    ],
    ids=["no fault", "illegal and said so", "illegal", "wrong state", "a circle back to the start", "no step"],
)
def test_sound_steps_end_before_the_first_fault_or_circle(steps: tuple[str, ...], n_kept: int) -> None:
    assert sound_steps(TASK, judged(*steps, END)) == n_kept


def test_judge_completion_what_a_goal_comes_after_is_not_judged() -> None:
    chain = judged("goals: on? a b after: clear? a later:", PICK, STACK, END)
    assert [step.wrong_marks for step in chain.steps] == [(), ()]
    assert (codes(chain), chain.verdict.verdict) == (["ok", "ok"], Verdict.VALID)


def test_judge_completion_false_words_about_preconditions_are_named_and_change_nothing_else() -> None:
    silent, untrue = PICK.replace("ontable a handempty", "handempty"), STACK.replace("clear b ok:", "clear a ok:")
    chain = judged("goals: on? a b met:", silent, untrue, END)
    assert [[str(one) for one in step.wrong_marks] for step in chain.steps] == [
        ["(ontable a)", "(on a b)"], ["(clear b)", "(clear a)"],
    ]  # fmt: skip
    assert (codes(chain), chain.verdict.verdict, chain.first_fault) == (["ok", "ok"], Verdict.VALID, None)
    problem = ProblemRow(
        "p1", "f", "blocksworld", "2", "test", 2, print_domain(BLOCKS), print_problem(TASK.problem), ""
    )
    example = attempt_example(problem, " ".join((silent, STACK, END)), (), "compact", arm="final")
    assert [view.note for view in example.steps] == ["says wrongly what holds: (ontable a)", ""]

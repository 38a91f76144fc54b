"""From a completion to its verdict: whole plan, every step, the losses as printed, the feedback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BLOCKS, SUSSMAN_PLAN, atoms, blocks_task, sussman
from hypothesis import given
from hypothesis import strategies as st

from actors.validator import ValidatorActor
from plansmith.config.training import LossConfig
from plansmith.data.rows import CompletionRow, JudgedRow, JudgedStepRow, JudgingRow, ProblemRow, VerdictRow
from plansmith.data.tables import arrow_of_rows, read_table, rows_of_arrow, write_table
from plansmith.judging.chains import JudgedChain, attempt_of, judge_completion, sound_steps
from plansmith.judging.expected import Expected, expected_words
from plansmith.judging.judge import PlanJudge
from plansmith.judging.rewards import Reward, VerdictRewards, rewarded
from plansmith.judging.taxonomy import ErrorClass
from plansmith.learning.printed_losses import step_loss
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import FeedbackCode, Verdict
from plansmith.report.attempts import StepMark, attempt_example
from plansmith.report.results import IterationRollouts
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import MARKERS
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import rendering_of

COMPACT = rendering_of("compact")
WEIGHTS = LossConfig()

PICK = "do: pick-up a check: clear a ontable a handempty ok: add: holding a now: holding a clear b ontable b"
STACK = (
    "do: stack a b check: holding a clear b ok: add: clear a handempty on a b now: handempty clear a on a b ontable b"
)
END = "final: pick-up a stack a b verdict: VALID"
LOST = PICK.replace("now: holding a clear b", "now: holding a")
"""The first step claims a state without (clear b)."""
FAILS = "do: pick-up b check: clear b ontable b fails: handempty"
"""Right after `PICK`, and says so."""
UNAWARE = "do: pick-up b check: clear b ontable b handempty ok: add: holding b now: holding a holding b"
"""Right after `PICK`, and claims that it worked."""


OPEN = "on? a b unmet: order: on? a b ready:"
"""What a goal check says of the goal while it is open."""
REASON = "goals: on? a b unmet: aim: on? a b since: clear b need: holding? a since: clear a ontable a handempty"
"""What a faithful writer tells before `PICK`."""
MET = "goals: on? a b met: verdict: VALID"


TASK = blocks_task("(ontable a) (clear a) (ontable b) (clear b) (handempty)", "(on a b)", "a b")
"""Two blocks on the table, a wanted on b. One task for all: its states are bits whose meaning it alone knows."""


def judged(*parts: str) -> JudgedChain:
    """Return the judgement of a completion about the two blocks."""
    return judge_completion(TASK, " ".join(parts), COMPACT)


def codes(chain: JudgedChain) -> list[str]:
    """Return the feedback code of every step."""
    return [str(step.judgement.code) for step in chain.steps]


PROBLEM = ProblemRow("p1", "f", "blocksworld", "2", "test", 2, print_domain(BLOCKS), print_problem(TASK.problem), "")


def judging_row(*completions: str) -> JudgingRow:
    """Return the problem of the two blocks with completions to be judged."""
    given = tuple(CompletionRow(f"r{number}", 2, "v2", text) for number, text in enumerate(completions, 1))
    return JudgingRow("p1", print_domain(BLOCKS), print_problem(TASK.problem), given)


def rows(*parts: str, prompting: str = "compact") -> tuple[VerdictRow, tuple[JudgedStepRow, ...]]:
    """Return the verdict and the judged steps of a completion about the two blocks."""
    found = PlanJudge(prompting).judge(judging_row(" ".join(parts)))
    return found.verdicts[0], found.steps


def losses(*steps: JudgedStepRow, weights: LossConfig = WEIGHTS, is_binary: bool = False) -> list[float]:
    """Return L_step of judged steps."""
    return [step_loss(x.state_distance, FeedbackCode(x.feedback_code), weights, is_binary=is_binary) for x in steps]


def test_judge_completion_right_chain_is_valid_at_every_step() -> None:
    chain = judged(PICK, STACK, END)
    assert (chain.verdict, codes(chain), chain.first_fault) == (Verdict.VALID, ["ok", "ok"], None)
    assert chain.report.endswith("Plan valid")
    assert losses(*rows(PICK, STACK, END)[1]) == [0.0, 0.0]


def test_judge_completion_of_a_written_chain_is_what_the_chain_says() -> None:
    task = sussman()
    for n_steps in range(7):
        chain = chain_of_plan(task, SUSSMAN_PLAN[:n_steps])
        found = judge_completion(task, COMPACT.write_chain(chain), COMPACT)
        assert found.plan.is_valid == (n_steps == 6) == (found.read.chain.verdict == "VALID")
        assert codes(found) == ["ok"] * (n_steps - 1) + ["goal"] * (0 < n_steps < 6) + ["ok"] * (n_steps == 6)


def test_judge_completion_wrong_state_is_judged_from_what_the_chain_claims() -> None:
    chain = judged(LOST, STACK, END)
    first, second = (step.judgement for step in chain.steps)
    assert chain.plan.is_valid  # the plan itself is right
    assert (first.code, first.lost_atoms) == (FeedbackCode.EFFECT, atoms("(clear b)"))
    assert (second.code, [str(x) for x in second.unsatisfied]) == (FeedbackCode.PRECONDITION, ["(clear b)"])
    assert chain.steps[1].s_prev == chain.steps[0].s_claimed == atoms("(holding a) (ontable b)")


def test_judge_completion_inapplicable_step_that_says_so_claims_no_change() -> None:
    chain = judged(PICK, FAILS, "final: pick-up a pick-up b verdict: INVALID")
    assert (chain.verdict, chain.plan.failed_step) == (Verdict.PRECONDITION_UNSATISFIED, 2)
    assert codes(chain) == ["ok", "precondition"]
    assert chain.steps[1].judgement.state_distance == 0 and chain.steps[1].s_claimed == chain.steps[1].s_prev


def test_judge_completion_withdrawn_step_is_no_fault_and_no_part_of_the_plan() -> None:
    parts = (PICK, FAILS, STACK, "goals: on? a b met: verdict: VALID")
    chain = judged(*parts)
    assert (codes(chain), chain.first_fault) == (["ok", "withdrawn", "ok"], None)
    assert (chain.verdict, chain.plan.plan) == (Verdict.VALID, parse_plan("(pick-up a) (stack a b)"))
    assert [step.false_claims for step in chain.steps] == [()] * 3
    assert (attempt_of(TASK, chain).plan, attempt_of(TASK, chain).marks) == (chain.plan.plan, (True, True))
    row, steps = rows(*parts)
    assert (losses(*steps), row.expected_words, row.is_flawless) == ([0.0] * 3, None, False)


def test_judge_completion_withdrawn_step_that_could_have_been_taken_is_an_effect_error() -> None:
    chain = judged(PICK, "do: stack a b check: holding a fails: clear b", STACK, "verdict: VALID")
    assert (codes(chain), chain.verdict) == (["ok", "effect", "ok"], Verdict.VALID)
    assert [one.reason for one in chain.steps[1].false_claims] == ["(stack a b) can be applied", "(clear b) holds"]


def test_verdict_row_counts_withdrawn_steps_for_nothing_when_it_says_where_a_state_went_wrong() -> None:
    fails_first = "do: stack a b check: fails: holding a"
    row, _ = rows(fails_first, LOST, UNAWARE, "verdict: VALID")
    assert (row.failed_step, row.error_class, row.first_fault) == (2, "incorrect_effect", 2)


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
    assert chain.verdict is Verdict.GOAL_NOT_REACHED
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
    assert (chain.verdict, chain.plan.failed_step) == (Verdict.MALFORMED_PLAN, None)
    assert len(chain.steps) == n_steps and reason in chain.plan.reason and reason in chain.report
    row, _ = rows(*parts)
    assert row.reading_fault == chain.read.fault and row.report == chain.report
    assert row.verdict == "malformed_plan"


def test_judge_completion_without_a_list_of_the_plan_judges_the_actions_of_the_steps() -> None:
    chain = judged(PICK, STACK, "goals: on? a b met: verdict: VALID")
    assert (chain.verdict, chain.plan.plan) == (Verdict.VALID, parse_plan("(pick-up a) (stack a b)"))
    assert judged(PICK, "verdict: VALID").verdict is Verdict.GOAL_NOT_REACHED


def test_judge_completion_final_plan_is_judged_not_the_steps() -> None:
    chain = judged(PICK, STACK, "final: stack a b verdict: VALID")
    assert (chain.verdict, codes(chain)) == (Verdict.PRECONDITION_UNSATISFIED, ["ok", "ok"])
    unknown_object = judged(PICK, STACK, "final: pick-up z verdict: VALID")
    assert (unknown_object.verdict, unknown_object.plan.failed_step) == (Verdict.MALFORMED_PLAN, 1)


@pytest.mark.parametrize(
    ("parts", "detailed", "binary"),
    [
        ((PICK, STACK), [0.0, 0.0], [0.0, 0.0]),
        ((LOST, STACK), [1 + 0.1 * 2, 4 + 0.1 * 3], [1 + 0.1 * 7, 4 + 0.1 * 7]),
        ((PICK, UNAWARE), [0.0, 3 + 0.1 * 3], [0.0, 3 + 0.1 * 7]),
        ((PICK, FAILS), [0.1 * 5, 0.0], [0.1 * 7, 0.0]),
        ((PICK,), [0.1 * 5], [0.1 * 7]),
        ((PICK.replace("pick-up a", "pick-up z"),), [4 + 0.1 * 3], [4 + 0.1 * 7]),
    ],
    ids=["right", "effect then precondition", "inapplicable", "withdrawn", "goal", "unknown object"],
)
def test_step_loss_of_judged_steps_is_equation_5(
    parts: tuple[str, ...], detailed: list[float], binary: list[float]
) -> None:
    """States and penalties by hand; the step after ``LOST`` drops one atom and gains three where nothing may change."""
    weights = LossConfig(alpha_effect=2.0, alpha_precond=3.0, alpha_goal=5.0, alpha_any=7.0, lambda_feedback=0.1)
    _, steps = rows(*parts, "final: pick-up a verdict: VALID")
    assert losses(*steps, weights=weights) == pytest.approx(detailed)
    assert losses(*steps, weights=weights, is_binary=True) == pytest.approx(binary)


def test_judged_steps_hold_claimed_and_expected_states_and_where_they_stand() -> None:
    _, (first, second) = rows(LOST, STACK, END)
    text = " ".join((LOST, STACK, END))
    assert text[first.choice.start : first.choice.end] == "do: pick-up a"
    assert text[first.outcome.start : first.outcome.end] == LOST.removeprefix("do: pick-up a ")
    assert (first.reason, second.reason) == ("(pick-up a) does not delete (clear b)", "(stack a b) needs (clear b)")
    assert (first.step, first.action, first.feedback_code, first.state_distance) == (1, "(pick-up a)", "effect", 1)
    assert set(first.s_prev) == {"(handempty)", "(clear a)", "(ontable a)", "(clear b)", "(ontable b)"}
    assert first.s_claimed == ("(holding a)", "(ontable b)") == second.s_prev
    assert set(first.s_expected) == {"(holding a)", "(ontable b)", "(clear b)"}
    assert (first.rollout_id, first.problem_id, first.iteration, first.policy_version) == ("r1", "p1", 2, "v2")


def test_plan_judge_keeps_the_rollouts_of_a_problem_apart_and_a_step_tells_the_state_it_starts_from() -> None:
    found = PlanJudge("compact").judge(judging_row(f"{PICK} {STACK} {END}", "nothing", f"{PICK} {END}"))
    assert [(row.rollout_id, row.n_steps) for row in found.verdicts] == [("r1", 2), ("r2", 0), ("r3", 1)]
    assert [(row.rollout_id, row.step) for row in found.steps] == [("r1", 1), ("r1", 2), ("r3", 1)]
    assert found.steps[0].s_prev == found.steps[2].s_prev


def test_judged_rows_come_back_from_a_worker_and_from_a_file_as_they_were(tmp_path: Path) -> None:
    given = [judging_row(f"{LOST} {STACK} {END}", f"{PICK} {FAILS} {END}"), judging_row("nothing")]
    judge = PlanJudge("compact")
    found = ValidatorActor(judge)(rows_of_arrow(arrow_of_rows(given, JudgingRow), JudgingRow))
    assert found == [judge.judge(row) for row in given]
    write_table(tmp_path / "judged.parquet", found, JudgedRow)
    assert read_table(tmp_path / "judged.parquet", JudgedRow) == found


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
    assert "feedback: lost: clear b plan:" in COMPACT.correct_prompt(
        TASK, COMPACT.write_attempt(attempt, FeedbackKind.DETAILED)
    )


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
        ((PICK, STACK[:-1]), "malformed_plan", "invalid_action_sequence", None),
        ((PICK, PICK), "malformed_plan", "precondition_violation", None),
        ((PICK, UNAWARE), "malformed_plan", "precondition_violation", None),
        ((LOST, UNAWARE), "malformed_plan", "incorrect_effect", None),
        ((PICK, "goals: on? a b unmet: aim: on? a b since: clear"), "malformed_plan", "goal_not_achieved", None),
        ((PICK, "do: jump b check:"), "malformed_plan", "invalid_action_sequence", None),
        (("nothing",), "malformed_plan", "invalid_action_sequence", None),
    ],
    ids=["valid", "valid plan, wrong chain", "goal", "goal after a wrong state", "precondition",
         "precondition after a wrong state", "cut at the goal", "cut in an illegal step", "cut after an illegal step",
         "cut after a wrong state", "cut while legal", "no such action", "malformed"],
)  # fmt: skip
def test_verdict_row_has_the_class_of_table_5(
    parts: tuple[str, ...], verdict: str, error_class: str | None, failed_step: int | None
) -> None:
    row, _ = rows(*parts)
    assert (row.verdict, row.error_class, row.failed_step) == (verdict, error_class, failed_step)


def test_verdict_row_of_a_failed_attempt_holds_what_is_handed_back_and_what_was_expected() -> None:
    row, _ = rows(PICK, UNAWARE, "final: pick-up a pick-up b verdict: VALID")
    assert row.binary_feedback == "tried: pick-up a good: pick-up b bad:"
    assert row.detailed_feedback == f"{row.binary_feedback} feedback: fails: handempty"
    assert row.expected_words == "check: clear b ontable b fails: handempty"
    assert "(Set (handempty) to true)" in row.report
    assert (row.claimed_verdict, row.unsatisfied, row.first_fault) == ("VALID", ("(handempty)",), 2)
    assert (row.plan, row.reason) == (("(pick-up a)", "(pick-up b)"), "step 2 (pick-up b) needs (handempty)")


def test_verdict_row_says_where_plan_and_verdict_stand() -> None:
    row, _ = rows(PICK, STACK, END)
    text = " ".join((PICK, STACK, END))
    assert row.final_plan_span is not None and row.verdict_span is not None
    assert text[row.final_plan_span.start : row.final_plan_span.end] == "final: pick-up a stack a b"
    assert text[row.verdict_span.start : row.verdict_span.end] == "VALID"
    assert (row.binary_feedback, row.detailed_feedback, row.expected_words) == (None, None, None)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (LOST, "check: clear a ontable a handempty ok: add: holding a now: holding a clear b ontable b"),
        (PICK.replace("pick-up a", "pick-up z"), None),
        (PICK, None),
    ],
    ids=["wrong state", "no action", "a missed goal"],
)
def test_verdict_row_expected_words_are_told_where_the_outcome_was_wrong(step: str, expected: str | None) -> None:
    row, _ = rows(step, "final: pick-up a verdict: VALID")
    assert (row.first_fault, row.expected_words) == (1, expected)


@pytest.mark.parametrize(
    ("parts", "kept", "expected"),
    [
        ((REASON.replace("unmet:", "met:"), PICK, STACK, MET), "goals:", OPEN),
        ((REASON.replace("on? a b unmet:", "on? b a unmet:"), PICK, STACK, MET), "goals:", OPEN),
        ((REASON.replace("on? a b unmet:", ""), PICK, STACK, MET), "goals:", OPEN),
        ((PICK, "goals: on? a b met: verdict: VALID"), f"{PICK} goals:", OPEN),
        ((PICK, FAILS, "goals: on? a b met: verdict: VALID"), f"{PICK} {FAILS} goals:", OPEN),
        ((PICK, "goals: on? a b unmet: verdict: INVALID"), None, None),
        ((REASON.replace("clear b", "holding a"), PICK, STACK, MET), "goals: on? a b unmet: aim: on? a b since:",
         "clear b"),
        ((REASON.replace("clear a ontable", "holding b ontable"), PICK, STACK, MET), None, None),
        ((REASON.replace("b need:", "b b need:"), PICK, STACK, MET), None, None),
        ((PICK.replace("a handempty ok:", "a ok:"), STACK, MET), "do: pick-up a", PICK.removeprefix("do: pick-up a ")),
        ((PICK, f"aim: holding? b since: clear b handempty {UNAWARE}", MET),
         f"{PICK} aim: holding? b since: clear b", "ontable b"),
    ],
    ids=["goal mark", "made-up goal", "goal left out", "closing check", "closing check after a withdrawn step",
         "missed goal owned up to", "support left out",
         "support that fits no action", "unread reason", "check", "support"],
)  # fmt: skip
def test_verdict_row_expected_words_take_the_place_of_the_first_false_ones(
    parts: tuple[str, ...], kept: str | None, expected: str | None
) -> None:
    row, text = rows(*parts)[0], " ".join(parts)
    assert row.expected_words == expected
    assert expected is None or text[: row.expected_at].rstrip() == kept


@pytest.mark.parametrize(
    ("told", "words", "reason"),
    [
        ("on? b c ready:", "ready:", "(on b c) should wait for (clear a)"),
        ("on? b c after: clear? b later:", "clear? b", "(on b c) does not wait for (clear b)"),
        ("on? b c after: later:", "later:", "leaves out (clear a)"),
        ("", "aim:", "leaves out (on b c)"),
    ],
)
def test_judge_completion_order_is_that_of_goals_and_landmarks(told: str, words: str, reason: str) -> None:
    task, truth = sussman(), "on? b c after: clear? a later:"
    right = COMPACT.write_chain(chain_of_plan(task, SUSSMAN_PLAN))
    assert judge_completion(task, right, COMPACT).first_fault is None
    text = right.replace(truth, told, 1)
    chain = judge_completion(task, text, COMPACT)
    false = chain.steps[0].false_claims[0]
    assert (text[false.span.start : false.span.end], false.reason) == (words, reason)
    assert chain.verdict is Verdict.VALID and chain.first_fault == 0
    expected = expected_words(task, chain, COMPACT)
    assert expected == Expected(text.index("order:"), f"order: on? a b after: on? b c later: {truth}")


def test_verdict_row_expected_support_names_what_is_there_instead_of_what_is_not() -> None:
    task = blocks_task("(on c a) (clear c) (ontable a) (ontable b) (clear b) (handempty)", "(on a b)")
    text = "aim: on? a b since: clear b need: holding? a since: ontable a handempty need: clear? a since: on b a do:"
    text += " unstack b a check: on b a clear b handempty fails: on b a final: unstack b a verdict: INVALID"
    expected = expected_words(task, judge_completion(task, text, COMPACT), COMPACT)
    assert expected == Expected(text.index("on b a"), "on c a clear c handempty")
    full = rendering_of("full")
    text = full.write_chain(chain_of_plan(task, parse_plan("(unstack c a) (put-down c) (pick-up a) (stack a b)")))
    false = text.replace("(clear a) since (on c a)", "(clear a) since (on b a)", 1)
    expected = expected_words(task, judge_completion(task, false, full), full)
    assert expected == Expected(false.index("(on b a)"), "(on c a) (clear c) (handempty)")


def test_plan_judge_of_a_plain_prompt_judges_the_plan_and_hands_nothing_back() -> None:
    row, steps = rows("(pick-up a)", prompting="zero_shot")
    assert (row.verdict, row.plan, steps) == (Verdict.GOAL_NOT_REACHED, ("(pick-up a)",), ())
    assert (row.binary_feedback, row.detailed_feedback, row.expected_words) == (None, None, None)


@pytest.mark.parametrize(
    ("parts", "finish_reason", "expected"),
    [
        ((PICK, STACK, END), "stop", Reward(1.0, "the plan reaches the goal")),
        ((PICK, "final: pick-up a verdict: VALID"), "stop", Reward(0.1, "the goal lacks (on a b)")),
        ((PICK, "final: stack a b verdict: VALID"), "stop", Reward(-0.1, "step 1 (stack a b) needs (holding a)")),
        (("nothing",), "stop", Reward(0.0, "word 1: got 'nothing', expected 'verdict:'")),
        ((PICK, STACK, END), "length", Reward(0.0, "cut at the limit of tokens")),
        ((PICK, STACK, END), "repetition", Reward(0.0, "went in circles")),
        ((), "no_room", Reward(None, "the prompt left no room for an answer")),
    ],
    ids=["valid", "goal", "precondition", "malformed", "cut", "circles", "no room"],
)
def test_verdict_rewards_are_those_of_the_paper(parts: tuple[str, ...], finish_reason: str, expected: Reward) -> None:
    assert VerdictRewards().reward(rows(*parts)[0], finish_reason) == expected


def test_verdict_rewards_of_input_that_cannot_be_judged_is_none_with_the_reason() -> None:
    row = replace(rows(PICK, STACK, END)[0], verdict=Verdict.BAD_INPUT, reason="no cost")
    assert VerdictRewards().reward(row, "stop") == Reward(None, "no cost")


def test_rewarded_leaves_out_and_counts_what_could_not_be_judged() -> None:
    given = [Reward(0.0, "wrong"), Reward(None, "no room"), Reward(1.0, "right"), Reward(None, "no room")]
    assert rewarded("abcd", given) == ([("a", 0.0), ("c", 1.0)], {"no room": 2})
    with pytest.raises(ValueError, match="zip"):
        rewarded("abc", given)


def test_attempt_example_shows_the_policys_words_with_a_mark_each() -> None:
    completion = " ".join((LOST, FAILS, STACK, "final: pick-up a pick-up b verdict: VALID"))
    example = attempt_example(PROBLEM, completion, *rows(completion), ("(pick-up a)", "(stack a b)"), arm="final")
    assert [view.mark for view in example.steps] == [StepMark.WRONG_STATE, StepMark.FAILED, StepMark.UNREACHED]
    assert [view.text for view in example.steps] == [LOST, FAILS, STACK]
    assert (example.error_class, example.goal) == ("incorrect_effect", "(on a b)")
    assert example.planner_plan == ("(pick-up a)", "(stack a b)")


WORDS = [*MARKERS, "VALID", "INVALID", "a", "b", "z", "="]
WORDS += [predicate.name for predicate in BLOCKS.predicates] + [action.name for action in BLOCKS.actions]


@given(st.integers(0, 50), st.lists(st.sampled_from(WORDS), max_size=30), st.booleans())
def test_judging_any_completion_never_raises(n_kept: int, garbage: list[str], is_ended: bool) -> None:
    words = f"{PICK} {STACK}".split()[:n_kept] + garbage + END.split() * is_ended
    chain = judged(*words)
    attempt = attempt_of(TASK, chain)
    row, steps = rows(*words)
    assert (row.error_class is None) == chain.plan.is_valid
    assert len(steps) == row.n_steps == len(chain.steps)
    assert [row.binary_feedback, row.detailed_feedback] == (
        [None, None] if row.is_valid else [COMPACT.write_attempt(attempt, kind) for kind in FeedbackKind]
    )
    for rendering in (COMPACT, rendering_of("full")):
        for kind in FeedbackKind:
            assert rendering.correct_prompt(TASK, rendering.write_attempt(attempt, kind))
    assert parse_plan(" ".join(row.plan)) == chain.plan.plan


BACK = (
    "do: put-down a check: holding a ok: add: clear a handempty ontable a "
    "now: handempty clear a ontable a clear b ontable b"
)
"""Right after `PICK`: the initial state again."""


@pytest.mark.parametrize(
    ("steps", "n_kept"),
    [
        ((PICK, STACK), 2),
        ((PICK, FAILS), 2),
        ((PICK, FAILS, STACK), 3),
        ((PICK, FAILS, FAILS, STACK), 2),
        ((PICK, UNAWARE), 1),
        ((LOST, STACK), 0),
        ((PICK, BACK, PICK, STACK), 0),
        ((PICK, f"aim: on? a b since: clear a {STACK}"), 1),
        ((), 0),
    ],
    ids=[
        "no fault",
        "withdrawn",
        "withdrawn and gone on",
        "withdrawn twice",
        "illegal",
        "wrong state",
        "a circle back to the start",
        "false support",
        "no step",
    ],
)
def test_sound_steps_end_before_the_first_fault_or_circle(steps: tuple[str, ...], n_kept: int) -> None:
    assert sound_steps(TASK, judged(*steps, "verdict: VALID")) == n_kept


def test_judge_completion_opinions_are_not_judged() -> None:
    chain = judged("goals: on? a b unmet: aim: clear? b need: on? b b", PICK, STACK, MET)
    assert [step.false_claims for step in chain.steps] == [(), ()]
    assert (codes(chain), chain.verdict) == (["ok", "ok"], Verdict.VALID)


@pytest.mark.parametrize(
    ("parts", "step", "code", "words", "reason"),
    [
        ((REASON.replace("since: clear b", "since: holding a clear b"), PICK, STACK, MET), 1, "claim", "holding a",
         "(holding a) does not hold"),
        ((REASON.replace("since: clear b", "since: clear z"), PICK, STACK, MET), 1, "claim", "clear z",
         "(clear z) does not hold"),
        ((REASON.replace("unmet:", "met:"), PICK, STACK, MET), 1, "claim", "met:", "(on a b) does not hold"),
        ((REASON.replace("unmet:", "unmet: on? b a unmet:"), PICK, STACK, MET), 1, "claim", "on? b a",
         "(on b a) is no goal"),
        ((REASON.replace("on? a b unmet:", ""), PICK, STACK, MET), 1, "claim", "aim:", "leaves out (on a b)"),
        ((f"goals: {OPEN.replace('ready:', 'after: clear? a later:')}", PICK, STACK, MET), 1, "claim", "after:",
         "(on a b) has nothing to wait for"),
        ((f"goals: {OPEN} on? a b ready:", PICK, STACK, MET), 1, "claim", "ready:", "(on a b) is told twice"),
        ((f"goals: {OPEN} on? b a ready:", PICK, STACK, MET), 1, "claim", "on? b a",
         "(on b a) has nothing to wait for"),
        (("goals: on? a b unmet: order:", PICK, STACK, MET), 1, "claim", "do:", "leaves out (on a b)"),
        ((PICK.replace("ontable a handempty", "handempty"), STACK, MET), 1, "claim", "ok:", "leaves out (ontable a)"),
        ((PICK, STACK.replace("clear b ok:", "clear b clear a ok:"), MET), 2, "claim", "clear a",
         "(clear a) is no precondition"),
        ((PICK.replace("add: holding a", "add: clear b holding a"), STACK, MET), 1, "claim", "clear b",
         "(clear b) is not added"),
        ((PICK.replace("add: holding a", "add:"), STACK, MET), 1, "claim", "now:", "leaves out (holding a)"),
        ((REASON.replace("b need:", "b b need:"), PICK, STACK, MET), 1, "claim", "b",
         "a reason cannot be read: word 13: got 'b', expected a predicate"),
        ((PICK, STACK, "goals: on? a b unmet: verdict: VALID"), 2, "claim", "unmet:", "(on a b) holds"),
        ((PICK, MET), 1, "goal", "met:", "the goal lacks (on a b)"),
        ((REASON.replace("handempty", "handempty clear b on b a"), PICK, MET), 1, "goal", "on b a",
         "the goal lacks (on a b)"),
        ((PICK, "goals: on? a b unmet: verdict: INVALID"), 1, "goal", None, "the goal lacks (on a b)"),
        ((PICK, UNAWARE, MET), 2, "precondition", "pick-up b", "(pick-up b) needs (handempty)"),
        ((PICK, f"aim: holding? b since: handempty {UNAWARE}", MET), 2, "precondition", "handempty",
         "(pick-up b) needs (handempty)"),
        ((PICK, FAILS, "final: pick-up a pick-up b verdict: INVALID"), 2, "precondition", "pick-up b",
         "(pick-up b) needs (handempty)"),
        ((PICK, FAILS, MET), 1, "goal", "met:", "the goal lacks (on a b)"),
        ((PICK, f"aim: holding? b since: handempty {FAILS}", STACK, MET), 2, "withdrawn", "handempty",
         "(pick-up b) needs (handempty)"),
        ((PICK.replace("pick-up a", "pick-up z"), MET), 1, "malformed", "pick-up z", "'z' is no object of the problem"),
        ((PICK.replace("ontable b", "ontable b on a b"), MET), 1, "effect", "on a b",
         "(pick-up a) does not add (on a b)"),
        ((PICK.split(" ok:")[0] + " fails: clear a", MET), 1, "effect", "fails:", None),
        ((LOST, MET), 1, "effect", LOST.removeprefix("do: pick-up a "), "(pick-up a) does not delete (clear b)"),
    ],
    ids=["support", "support of what is not there", "goal mark", "made-up goal", "goal left out", "ready goal",
         "order told twice", "order of no goal", "order left out",
         "precondition left out", "made-up precondition", "made-up effect", "effect left out", "unread reason",
         "closing check", "missed goal", "missed goal after a false support", "missed goal owned up to",
         "inapplicable", "inapplicable for a false reason", "inapplicable and said so",
         "missed goal before a withdrawn step", "withdrawn for a false reason", "no action", "wrong state",
         "applicable and called impossible", "state without an atom"],
)  # fmt: skip
def test_judged_step_is_at_fault_where_its_first_false_word_stands(
    parts: tuple[str, ...], step: int, code: str, words: str | None, reason: str | None
) -> None:
    verdict, found = rows(*parts)
    row, text = found[step - 1], " ".join(parts)
    assert verdict.first_fault == step and not verdict.is_flawless
    assert row.feedback_code == code and reason in (None, row.reason)
    assert (text[row.fault_span.start : row.fault_span.end] if row.fault_span else None) == words


def test_false_words_are_told_in_order_and_change_neither_code_nor_distance_of_a_wrong_transition() -> None:
    text = " ".join((REASON.replace("unmet:", "met:").replace("clear b", "clear a on a b"), LOST, STACK, MET))
    first, second = rows(text)[1]
    assert [text[x.span.start : x.span.end] for x in first.false_words] == ["met:", "on a b"]
    assert (first.feedback_code, first.state_distance) == ("effect", 1)
    assert [x.reason for x in second.false_words] == ["(clear b) does not hold"]
    (view, _) = attempt_example(PROBLEM, text, *rows(text), (), arm="final").steps
    assert view.note == (
        "(pick-up a) does not delete (clear b) (said wrongly: (on a b) does not hold; (on a b) does not hold)"
    )


def test_false_closing_check_is_the_fault_of_the_last_step_that_is_not_withdrawn() -> None:
    retry = "do: pick-up b check: clear b ontable b fails: handempty"
    text = " ".join((PICK, retry, "goals: on? a b met: verdict: VALID"))
    row, (taken, withdrawn) = rows(text)
    assert (row.first_fault, [taken.feedback_code, withdrawn.feedback_code]) == (1, ["goal", "withdrawn"])
    assert [words.reason for words in taken.false_words] == ["(on a b) does not hold"]
    assert withdrawn.false_words == ()
    assert (row.expected_words, row.expected_at) == (OPEN, text.index("on? a b met:"))


def test_false_claim_costs_what_a_precondition_does_and_no_distance() -> None:
    verdict, steps = rows(REASON.replace("unmet:", "met:"), PICK, STACK, MET)
    assert verdict.is_valid and losses(*steps) == [0.1 * 1.0, 0.0]
    text = " ".join((REASON.replace("unmet:", "met:"), PICK, STACK, MET))
    example = attempt_example(PROBLEM, text, verdict, steps, (), arm="final")
    assert [(view.mark, view.note) for view in example.steps] == [
        (StepMark.FALSE_WORDS, "(on a b) does not hold"), (StepMark.OK, ""),
    ]  # fmt: skip
    assert example.first_wrong_step == 1


def test_reason_that_cannot_be_read_leaves_the_plan_and_is_counted() -> None:
    verdict, steps = rows(REASON.replace("b need:", "b b need:"), PICK, "goals: on? a met:", STACK, MET)
    assert (verdict.verdict, verdict.reading_fault, verdict.unread_reasons) == ("valid", None, 2)
    assert [step.feedback_code for step in steps] == ["claim", "claim"]
    assert (verdict.sound_steps, verdict.is_flawless) == (0, False)


def test_flawless_is_a_valid_plan_told_by_a_chain_without_a_false_word() -> None:
    assert rows(REASON, PICK, STACK, MET)[0].is_flawless
    assert not rows(REASON, PICK, STACK, MET.replace("VALID", "INVALID"))[0].is_flawless
    assert not rows("final: pick-up a stack a b verdict: VALID")[0].is_flawless


FULL_CHAIN = rendering_of("full").write_chain(chain_of_plan(TASK, parse_plan("(pick-up a) (stack a b)")))


@pytest.mark.parametrize(
    ("before", "after", "step", "words"),
    [
        ("since (clear b)", "since (clear b) (clear z)", 1, "(clear z)"),
        ("(on a b): FALSE", "(on a b): TRUE", 1, "TRUE"),
        ("(on a b): FALSE", "(on b a): FALSE", 1, "(on b a)"),
        ("  - (on a b): FALSE\n", "", 1, "- Purpose"),
        ("  - (ontable a): TRUE\n", "", 1, "- Applicable"),
        ("(ontable a): TRUE", "(ontable a): FALSE", 1, "FALSE"),
        ("- Add: (holding a)", "- Add: none", 1, "- Delete"),
        ("- Delete: (ontable a)", "- Delete: (on a b) (ontable a)", 1, "(on a b)"),
        ("[GOAL CHECK]\n  - (on a b): TRUE", "[GOAL CHECK]\n  - (on a b): FALSE", 2, "FALSE"),
        ("[GOAL CHECK]\n  - (on a b): TRUE", "[GOAL CHECK]", 2, "[FINAL PLAN]"),
        ("- Next state: (holding a)", "- Next state: (holding a) (on b a)", 1, "(on b a)"),
        ("- Action: (pick-up a)", "- Action: (put-down a)", 1, "(put-down a)"),
    ],
)
def test_judged_step_in_the_full_rendering_is_at_fault_where_its_first_false_word_stands(
    before: str, after: str, step: int, words: str
) -> None:
    assert rows(FULL_CHAIN, prompting="full")[0].is_flawless and before in FULL_CHAIN
    text = FULL_CHAIN.replace(before, after, 1)
    verdict, found = rows(text, prompting="full")
    span = found[step - 1].fault_span
    assert verdict.first_fault == step and span is not None
    assert text[span.start : span.end] == words


def test_a_purpose_of_the_wrong_arity_is_a_false_claim_without_words_that_were_expected() -> None:
    text = FULL_CHAIN.replace("(on a b) since (clear b)", "(on a) since (clear z)", 1)
    assert text != FULL_CHAIN
    verdict, _ = rows(text, prompting="full")
    assert not verdict.is_flawless and verdict.expected_words is None


def test_a_state_may_say_what_is_false_as_well_as_leave_it_out() -> None:
    states = [line for line in FULL_CHAIN.splitlines() if "Next state:" in line]
    told = FULL_CHAIN.replace(states[0], f"{states[0]} (not (handempty))", 1)
    assert rows(told, prompting="full")[0].is_flawless and told != FULL_CHAIN
    lie = FULL_CHAIN.replace(states[0], f"{states[0]} (handempty)", 1)
    assert not rows(lie, prompting="full")[0].is_flawless


def test_a_plan_whose_cost_the_problem_does_not_give_is_no_valid_one() -> None:
    domain = """(define (domain d) (:predicates (p)) (:functions (total-cost) (price ?x))
      (:action buy :parameters (?x) :effect (and (p) (increase (total-cost) (price ?x)))))"""
    problem = "(define (problem q) (:domain d) (:objects a) (:init) (:goal (p)) (:metric minimize (total-cost)))"
    row = JudgingRow("q", domain, problem, (CompletionRow("r", 0, "v", "buy a\n"),))
    [verdict] = PlanJudge("plan_compact").judge(row).verdicts
    assert (verdict.verdict, verdict.error_class) == (Verdict.BAD_INPUT, ErrorClass.INVALID_ACTION_SEQUENCE)
    assert IterationRollouts.of(1, [verdict.error_class]).n_valid == 0

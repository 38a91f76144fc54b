"""Explained plans stop at the first fault; feedback prompts differ in the feedback alone."""

from __future__ import annotations

import random

import pytest
from conftest import BLOCKS, SUSSMAN_PLAN, atoms, sussman

from plansmith.judging.chains import attempt_of, judge_completion
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.validation import FeedbackCode
from plansmith.problems.corruption import CorruptedPlan, Corruption, corrupt_plan, true_claims
from plansmith.text.chains import chain_of_plan
from plansmith.text.explanations import Attempt, ClaimedPlan, FeedbackKind, explain, first_false_claim
from plansmith.text.rendering import Rendering, rendering_of

BOTH = pytest.mark.parametrize("rendering", [rendering_of("compact"), rendering_of("full")], ids=["compact", "full"])
TRUE_CLAIMS = true_claims(sussman(), SUSSMAN_PLAN)


def corrupted(corruption: Corruption, seed: int) -> CorruptedPlan:
    """Return Sussman's plan corrupted."""
    shown = corrupt_plan(sussman(), SUSSMAN_PLAN, corruption, random.Random(seed))
    assert shown is not None
    return shown


@BOTH
@pytest.mark.parametrize("claims", [(), TRUE_CLAIMS], ids=["no states shown", "states shown"])
def test_explain_valid_plan_is_its_chain_without_reasons_and_the_plan_is_not_listed_again(
    rendering: Rendering, claims: tuple[tuple[object, ...], ...]
) -> None:
    found = explain(sussman(), ClaimedPlan(SUSSMAN_PLAN, claims))
    assert found.fault is None and len(found.chain.steps) == 6
    read = rendering.read(rendering.write_explanation(found), BLOCKS)
    assert (read.fault, read.chain.verdict, read.final_plan_span) == (None, "VALID", None)
    assert [step.next_state for step in read.chain.steps] == [step.next_state for step in found.chain.steps]
    assert all(step.purpose == () for step in read.chain.steps)


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_explain_unsatisfied_precondition_ends_at_the_step_that_fails(rendering: Rendering, seed: int) -> None:
    shown = corrupted(Corruption.UNSATISFIED_PRECONDITION, seed)
    found = explain(sussman(), ClaimedPlan(shown.plan, shown.claims))
    *before, last = rendering.read(rendering.write_explanation(found), BLOCKS).chain.steps
    assert last.next_state is None and last.unsatisfied == found.chain.steps[-1].unsatisfied != ()
    assert all(step.next_state is not None for step in before)
    assert (found.chain.verdict, found.chain.goal_check, found.fault) == ("INVALID", None, None)


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_explain_goal_not_reached_names_the_unmet_goals(rendering: Rendering, seed: int) -> None:
    shown = corrupted(Corruption.GOAL_NOT_REACHED, seed)
    found = explain(sussman(), ClaimedPlan(shown.plan, shown.claims))
    read = rendering.read(rendering.write_explanation(found), BLOCKS)
    assert (read.fault, read.chain.verdict, len(read.chain.steps)) == (None, "INVALID", len(shown.plan))
    assert any(not mark.is_met for mark in read.chain.goal_check or ())


@BOTH
@pytest.mark.parametrize("corruption", [Corruption.WRONG_EFFECT, Corruption.FRAME_VIOLATED])
def test_explain_false_claim_ends_there_with_the_true_state_and_the_fault(
    rendering: Rendering, corruption: Corruption
) -> None:
    for seed in range(10):
        shown = corrupted(corruption, seed)
        found = explain(sussman(), ClaimedPlan(shown.plan, shown.claims))
        wrong = [index for index, claim in enumerate(shown.claims) if set(claim) != set(TRUE_CLAIMS[index])]
        assert found.fault is not None and len(found.chain.steps) == wrong[0] + 1
        assert set(found.chain.steps[-1].next_state or ()) == set(TRUE_CLAIMS[wrong[0]])
        assert found.fault.is_effect_error == (corruption is Corruption.WRONG_EFFECT)
        fault = found.fault
        named = {*fault.missing_effects, *fault.kept_deletes, *fault.lost_atoms, *fault.invented_atoms}
        (atom,) = named
        assert {atom} == set(shown.claims[wrong[0]]) ^ set(TRUE_CLAIMS[wrong[0]])
        text = rendering.write_explanation(found)
        words = text.replace("(", " ").replace(")", " ").replace("]", " ").split()
        assert words[-1] == "INVALID" and " ".join(str(atom).strip("()").split()) in " ".join(words[-14:])


def test_write_explanation_compact_marks_each_class_of_fault() -> None:
    compact, claims = rendering_of("compact"), list(TRUE_CLAIMS)
    claims[0] = atoms("(handempty) (clear a) (ontable a) (ontable b) (on a b)")
    text = compact.write_explanation(explain(sussman(), ClaimedPlan(SUSSMAN_PLAN, tuple(claims))))
    assert text.endswith("unadded: holding c undeleted: handempty lost: clear b invented: on a b verdict: INVALID")


def test_first_false_claim_after_a_step_that_cannot_be_applied_is_none() -> None:
    plan = parse_plan("(pick-up a) (put-down a)")
    assert first_false_claim(sussman(), ClaimedPlan(plan, ((), ()))) is None


@BOTH
def test_explain_prompt_shows_plan_and_claims_and_not_the_answer(rendering: Rendering) -> None:
    plain = rendering.explain_prompt(sussman(), ClaimedPlan(SUSSMAN_PLAN))
    with_states = rendering.explain_prompt(sussman(), ClaimedPlan(SUSSMAN_PLAN, TRUE_CLAIMS))
    bare = plain.replace("(", "").replace(")", "")
    assert all(str(step).strip("()") in bare for step in SUSSMAN_PLAN)
    assert len(with_states) > len(plain)
    assert "VALID" not in plain.split("[PLAN]")[-1] and "VALID" not in with_states.split("[PLAN]")[-1]


def attempt(completion_plan: str) -> Attempt:
    """Return the attempt of a policy that writes true states along a plan."""
    task, compact = sussman(), rendering_of("compact")
    completion = compact.write_chain(chain_of_plan(task, parse_plan(completion_plan)))
    return attempt_of(task, judge_completion(task, completion, compact))


@BOTH
@pytest.mark.parametrize(
    ("plan", "compact_feedback", "full_feedback"),
    [
        ("(pick-up b) (pick-up a)", "fails: clear a handempty", "(Set (handempty) to true)"),
        ("(pick-up b) (stack b c)", "unmet: on? a b", "(Set (on a b) to true)"),
    ],
    ids=["precondition", "goal"],
)
def test_correct_prompt_binary_is_detailed_without_the_feedback(
    rendering: Rendering, plan: str, compact_feedback: str, full_feedback: str
) -> None:
    tried = attempt(plan)
    binary, detailed = (
        rendering.correct_prompt(sussman(), rendering.write_attempt(tried, kind)) for kind in FeedbackKind
    )
    if rendering.name == "compact":
        added, rest = f" feedback: {compact_feedback}", " plan:"
    else:
        added, rest = f"[VALIDATOR FEEDBACK]\n{tried.report}\n", "[RESPONSE]\n"
        assert full_feedback in tried.report
    head = binary.removesuffix(rest)
    assert head != binary and detailed == head + added + rest


def test_correct_prompt_marks_the_steps() -> None:
    tried = attempt("(pick-up b) (pick-up a)")
    assert (tried.marks, tried.fault.code if tried.fault else None) == ((True, False), FeedbackCode.PRECONDITION)
    compact, full = (
        rendering.correct_prompt(sussman(), rendering.write_attempt(tried, FeedbackKind.BINARY))
        for rendering in map(rendering_of, ("compact", "full"))
    )
    assert compact.endswith("tried: pick-up b good: pick-up a bad: plan:")
    assert full.endswith("[PREVIOUS PLAN]\n1. (pick-up b) - VALID\n2. (pick-up a) - INVALID\n[RESPONSE]\n")

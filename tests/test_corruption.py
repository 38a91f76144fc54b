"""Corrupted plans: the validator confirms exactly the error that each is meant to show."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conftest import BLOCKS, SUSSMAN_PLAN, atoms, blocks_task, random_problem, shortest_plan, sussman

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem
from plansmith.pddl.validation import FeedbackCode, Verdict, judge_step, validate_plan
from plansmith.problems.corruption import CorruptedPlan, Corruption, corrupt_plan, shows_exactly, true_claims

TASKS = [PlanningTask(BLOCKS, random_problem(3, seed)) for seed in range(12)]
SOLVED = [(task, shortest_plan(task)) for task in TASKS]


def wrong_claims(task: PlanningTask, shown: CorruptedPlan) -> list[tuple[bool, bool]]:
    """Return for each wrong claim whether an effect is wrong and whether the frame is."""
    state, found = task.initial_state, []
    for step, claim in zip(shown.plan, shown.claims, strict=True):
        judgement = judge_step(task, state, step, task.state_of(claim))
        if judgement.code is not FeedbackCode.OK:
            found.append((judgement.is_effect_error, judgement.is_frame_error))
        state = judgement.expected_state
    return found


@pytest.mark.parametrize("corruption", Corruption)
def test_corrupt_plan_over_many_seeds_shows_the_one_error_it_names(corruption: Corruption) -> None:
    n_found = 0
    for seed in range(10):
        for task, plan in SOLVED:
            shown = corrupt_plan(task, plan, corruption, random.Random(seed))
            if shown is None:
                continue
            n_found += 1
            verdict = validate_plan(task, shown.plan).verdict
            if corruption is Corruption.UNSATISFIED_PRECONDITION:
                assert (verdict, shown.claims) == (Verdict.PRECONDITION_UNSATISFIED, ())
            elif corruption is Corruption.GOAL_NOT_REACHED:
                assert (verdict, shown.claims) == (Verdict.GOAL_NOT_REACHED, ())
            else:
                is_effect = corruption is Corruption.WRONG_EFFECT
                assert verdict is Verdict.VALID and shown.plan == plan
                assert wrong_claims(task, shown) == [(is_effect, not is_effect)]
    assert n_found > 100


@pytest.mark.parametrize("corruption", Corruption)
def test_corrupt_plan_varies_with_the_seed_and_only_with_it(corruption: Corruption) -> None:
    drawn = [corrupt_plan(sussman(), SUSSMAN_PLAN, corruption, random.Random(seed)) for seed in range(20)]
    again = [corrupt_plan(sussman(), SUSSMAN_PLAN, corruption, random.Random(seed)) for seed in range(20)]
    assert drawn == again and len(set(drawn)) > 3


def test_shows_exactly_is_false_for_every_other_class() -> None:
    task = sussman()
    for corruption in Corruption:
        shown = corrupt_plan(task, SUSSMAN_PLAN, corruption, random.Random(1))
        assert shown is not None
        assert [other for other in Corruption if shows_exactly(task, replace(shown, corruption=other))] == [corruption]


def changed_claims(*changes: tuple[int, str, str]) -> CorruptedPlan:
    """Return Sussman's plan with, at each step given, some atoms lost and some gained."""
    claims = list(true_claims(sussman(), SUSSMAN_PLAN))
    for index, lost, gained in changes:
        claims[index] = tuple(atom for atom in claims[index] if atom not in atoms(lost)) + atoms(gained)
    return CorruptedPlan(Corruption.WRONG_EFFECT, SUSSMAN_PLAN, tuple(claims))


@pytest.mark.parametrize(
    "shown",
    [
        changed_claims(),
        changed_claims((0, "(holding c)", ""), (1, "(ontable c)", "")),
        changed_claims((0, "(holding c)", "(on b a)")),
        changed_claims((0, "(clear b)", "")),
        replace(changed_claims((0, "(holding c)", "")), claims=changed_claims((0, "(holding c)", "")).claims[:-1]),
        replace(changed_claims((0, "(holding c)", "")), plan=SUSSMAN_PLAN[:-1]),
    ],
    ids=["nothing wrong", "two wrong claims", "effect and frame at once", "frame only", "a claim missing", "plan cut"],
)
def test_shows_exactly_more_or_other_than_one_wrong_effect_is_false(shown: CorruptedPlan) -> None:
    assert not shows_exactly(sussman(), shown)


def test_shows_exactly_one_missing_or_kept_atom_is_a_wrong_effect() -> None:
    assert shows_exactly(sussman(), changed_claims((0, "(holding c)", "")))
    assert shows_exactly(sussman(), changed_claims((3, "", "(holding b)")))


def test_corrupt_plan_invalid_to_begin_with_is_refused() -> None:
    with pytest.raises(ValueError, match="only a valid plan"):
        corrupt_plan(sussman(), SUSSMAN_PLAN[:-1], Corruption.WRONG_EFFECT, random.Random(0))


@pytest.mark.parametrize("corruption", Corruption)
def test_corrupt_plan_empty_plan_gives_none(corruption: Corruption) -> None:
    task = blocks_task("(on a b) (ontable b) (clear a) (handempty)", "(on a b)", "a b")
    assert corrupt_plan(task, (), corruption, random.Random(0)) is None


@pytest.mark.parametrize("corruption", Corruption)
def test_corrupt_plan_domain_with_a_single_ground_action_gives_none_or_a_proof(corruption: Corruption) -> None:
    domain = parse_domain("(define (domain d) (:predicates (p)) (:action a :effect (p)))")
    task = PlanningTask(domain, parse_problem("(define (problem q) (:domain d) (:init) (:goal (p)))", domain))
    shown = corrupt_plan(task, parse_plan("(a)"), corruption, random.Random(0))
    assert (shown is not None) == (corruption is Corruption.WRONG_EFFECT)

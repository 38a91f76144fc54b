"""Verdicts on plans and on single transitions, worked out by hand, and compared with VAL's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import REFERENCE, SUSSMAN_PLAN, atoms, blocks_task, depot_task, sussman

from plansmith.errors import PddlParseError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Literal
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem, parse_step
from plansmith.pddl.simulation import applicable_actions
from plansmith.pddl.validation import (
    FeedbackCode,
    PlanVerdict,
    StepJudgement,
    Verdict,
    judge_step,
    state_distance,
    validate_plan,
    validate_plan_text,
)


def verdict_on(task: PlanningTask, plan: str) -> PlanVerdict:
    """Return the verdict on a plan text."""
    return validate_plan(task, parse_plan(plan))


def told(verdict: PlanVerdict) -> tuple[Verdict, int | None, list[str]]:
    """Return what a verdict says, in short."""
    return verdict.verdict, verdict.failed_step, [str(literal) for literal in verdict.unsatisfied]


def test_validate_plan_reaching_the_goal_is_valid_with_every_state() -> None:
    task = sussman()
    verdict = validate_plan(task, SUSSMAN_PLAN)
    assert verdict.is_valid and told(verdict) == (Verdict.VALID, None, [])
    assert len(verdict.states) == 7
    assert set(task.atoms_of(verdict.states[1])) == set(
        atoms("(holding c) (clear a) (ontable a) (ontable b) (clear b)")
    )
    assert set(task.atoms_of(verdict.states[-1])) == set(atoms("(on a b) (on b c) (ontable c) (clear a) (handempty)"))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("", (Verdict.GOAL_NOT_REACHED, None, ["(on a b)", "(on b c)"])),
        ("(pick-up b) (stack b c)", (Verdict.GOAL_NOT_REACHED, None, ["(on a b)"])),
        ("(pick-up a)", (Verdict.PRECONDITION_UNSATISFIED, 1, ["(clear a)"])),
        ("(pick-up b) (pick-up b)", (Verdict.PRECONDITION_UNSATISFIED, 2, ["(clear b)", "(ontable b)", "(handempty)"])),
        ("(unstack b c)", (Verdict.PRECONDITION_UNSATISFIED, 1, ["(on b c)"])),
        ("(stack a a)", (Verdict.PRECONDITION_UNSATISFIED, 1, ["(holding a)", "(clear a)"])),
        ("(fly a)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(pick-up z)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(pick-up a b)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(stack a)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(pick-up a) (pick-up b) (pick-up z)", (Verdict.MALFORMED_PLAN, 3, [])),
        ("(pick-up z) (fly)", (Verdict.MALFORMED_PLAN, 1, [])),
    ],
    ids=[
        "empty", "goal partly reached", "one atom false", "all false atoms", "true ones left out", "same object twice",
        "unknown action", "unknown object", "too many", "too few", "malformed later beats precondition",
        "two malformed",
    ],
)  # fmt: skip
def test_validate_plan_wrong_names_step_and_every_unsatisfied_atom(plan: str, expected: object) -> None:
    assert told(verdict_on(sussman(), plan)) == expected


def test_validate_plan_with_goal_already_true_needs_no_step() -> None:
    assert verdict_on(blocks_task("(on a b)", "(on a b)"), "").is_valid


def test_validate_plan_states_stop_before_the_failing_step() -> None:
    task = sussman()
    assert len(verdict_on(task, "(pick-up b) (pick-up a) (put-down b)").states) == 2
    assert verdict_on(task, "(pick-up b) (fly)").states == (task.initial_state,)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("(open l2) (move t1 l1 hub)", (Verdict.VALID, None, [])),
        ("(move t1 l1 l2)", (Verdict.PRECONDITION_UNSATISFIED, 1, ["(not (closed l2))"])),
        ("(move t1 l1 l1)", (Verdict.PRECONDITION_UNSATISFIED, 1, ["(not (= l1 l1))"])),
        ("(move c1 l2 l2)",
         (Verdict.PRECONDITION_UNSATISFIED, 1, ["(at c1 l2)", "(not (= l2 l2))", "(not (closed l2))"])),
        ("(move t1 l1 hub)", (Verdict.GOAL_NOT_REACHED, None, ["(not (closed l2))"])),
        ("(load k1 t1) (load k1 t1)", (Verdict.PRECONDITION_UNSATISFIED, 2, ["(not (in k1 t1))"])),
        ("(load k1 c1) (load m m)", (Verdict.GOAL_NOT_REACHED, None, ["(at t1 hub)", "(not (closed l2))"])),
        ("(finish) (move t1 l1 hub)", (Verdict.PRECONDITION_UNSATISFIED, 2, ["(not (closed hub))"])),
        ("(load k1 k1)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(move o1 l1 hub)", (Verdict.MALFORMED_PLAN, 1, [])),
        ("(finish hub)", (Verdict.MALFORMED_PLAN, 1, [])),
    ],
    ids=[
        "valid", "negative", "inequality", "all kinds at once", "negative goal", "negative after add", "either",
        "equality holds", "wrong type", "supertype for subtype", "argument for none",
    ],
)  # fmt: skip
def test_validate_plan_with_types_equality_and_negation(plan: str, expected: object) -> None:
    assert told(verdict_on(depot_task(), plan)) == expected


def test_validate_plan_malformed_step_says_what_is_wrong() -> None:
    task = depot_task()
    assert "'parcel'" not in verdict_on(task, "(load k1 t1)").reason
    assert verdict_on(task, "(load k1 o1)").reason == "'o1' is of type object, expected truck or car"
    assert verdict_on(task, "(load k1 zz)").reason == "'zz' is no object of the problem"
    assert "takes 2 arguments, got 1" in verdict_on(task, "(load k1)").reason
    assert "no action is called 'lift'" in verdict_on(task, "(lift)").reason


@pytest.mark.parametrize("is_before", [False, True])
def test_apply_atom_both_added_and_deleted_is_true_afterwards(is_before: bool) -> None:
    task = depot_task()
    closed = atoms("(closed l2)") if is_before else ()
    action = task.ground(parse_step("(flip l2)"))
    assert task.atoms_of(action.apply(task.state_of(closed))) == atoms("(closed l2)")
    assert (action.add_effects, action.delete_effects) == (atoms("(closed l2)"), ())


def test_ground_parameters_bound_to_one_object_give_each_effect_once() -> None:
    domain = parse_domain(
        "(define (domain d) (:predicates (p ?x) (q ?x))"
        "(:action a :parameters (?x ?y) :effect (and (p ?x) (p ?y) (not (q ?x)) (not (q ?y)))))"
    )
    task = PlanningTask(
        domain, parse_problem("(define (problem p) (:domain d) (:objects o) (:init) (:goal ()))", domain)
    )
    action = task.ground(parse_step("(a o o)"))
    assert (action.add_effects, action.delete_effects) == (atoms("(p o)"), atoms("(q o)"))


def test_applicable_actions_are_those_the_validator_accepts() -> None:
    task = depot_task()
    plans = {str(action.step) for action in applicable_actions(task, task.initial_state)}
    assert {step for step in plans if step.startswith("(move")} == {"(move t1 l1 hub)", "(move c1 hub l1)"}
    for action in task.ground_actions():
        first_step_fails = validate_plan(task, (action.step,)).failed_step == 1
        assert first_step_fails == (str(action.step) not in plans)


BEFORE = "(ontable a) (clear a) (ontable b) (clear b) (handempty)"
AFTER = "(holding a) (ontable b) (clear b)"


def judged(claim: str, step: str = "(pick-up a)") -> StepJudgement:
    """Return the judgement of a claim about two blocks on the table."""
    task = blocks_task(BEFORE, "(on a b)", "a b")
    return judge_step(task, task.initial_state, parse_step(step), task.state_of(atoms(claim)))


@pytest.mark.parametrize(
    ("claim", "missing", "kept", "lost", "invented"),
    [
        ("(ontable b) (clear b)", "(holding a)", "", "", ""),
        (AFTER + " (handempty)", "", "(handempty)", "", ""),
        ("(holding a) (ontable b)", "", "", "(clear b)", ""),
        (AFTER + " (on b a)", "", "", "", "(on b a)"),
        (BEFORE, "(holding a)", "(ontable a) (clear a) (handempty)", "", ""),
        ("(clear a) (on a b)", "(holding a)", "(clear a)", "(ontable b) (clear b)", "(on a b)"),
    ],
    ids=["missing add", "kept delete", "lost", "invented", "nothing changed", "all four"],
)
def test_judge_step_wrong_claim_sorts_every_wrong_atom(
    claim: str, missing: str, kept: str, lost: str, invented: str
) -> None:
    judgement = judged(claim)
    assert judgement.code is FeedbackCode.EFFECT
    found = (judgement.missing_effects, judgement.kept_deletes, judgement.lost_atoms, judgement.invented_atoms)
    assert [set(group) for group in found] == [set(atoms(text)) for text in (missing, kept, lost, invented)]
    assert judgement.state_distance == sum(map(len, found))
    assert judgement.is_effect_error == bool(missing or kept) and judgement.is_frame_error == bool(lost or invented)
    assert all(str(atom) in judgement.reason for group in found for atom in group)


def test_judge_step_right_claim_is_ok_with_distance_zero() -> None:
    judgement = judged(AFTER)
    assert (judgement.code, judgement.state_distance, judgement.reason) == (FeedbackCode.OK, 0, "")


def test_judge_step_inapplicable_expects_no_change() -> None:
    task = blocks_task(BEFORE, "(on a b)", "a b")
    judgement = judged(BEFORE + " (on a b)", "(unstack a b)")
    assert judgement.code is FeedbackCode.PRECONDITION and judgement.expected_state == task.initial_state
    assert judgement.unsatisfied == (Literal(*atoms("(on a b)")),)
    assert judgement.state_distance == 1


def test_judge_step_malformed_expects_no_change_and_says_why() -> None:
    judgement = judged(AFTER, "(pick-up z)")
    assert (judgement.code, judgement.reason) == (FeedbackCode.MALFORMED, "'z' is no object of the problem")
    assert judgement.state_distance == 4  # holding a gained; ontable a, clear a, handempty gone


def test_state_distance_is_the_symmetric_difference() -> None:
    assert [state_distance(0b1010, other) for other in (0b1010, 0b1011, 0b0101, 0)] == [0, 1, 4, 2]


VAL_WORDS = {
    "precondition": Verdict.PRECONDITION_UNSATISFIED,
    "bad_plan": Verdict.MALFORMED_PLAN,
    "input_error": Verdict.BAD_INPUT,
    "val_error": Verdict.BAD_INPUT,
}

IGNORES = "VAL skips what it cannot read; we say that it is no plan"
CRASH = "VAL crashes"
REFUSES = "VAL refuses PDDL that its grammar does not expect; the meaning is clear"
UNCHECKED = "VAL does not check an untyped domain, so the mistake shows as a false precondition or not at all"
REDECLARED = "VAL takes one of two contradicting declarations silently"
RESERVED = ["within", "always", "after", "name", "number", "duration", "assign", "domain", "problem", "or", "and"]
RESERVED += ["total-time", "sometime"]
DIFFERENCES: dict[str, tuple[Verdict, str]] = {
    **dict.fromkeys(
        ["timestamps identical", 'bullets "- "', 'bullets "* "', "no parentheses", "leading word", "leading [PLAN]",
         "text between", "markdown fence pddl", "function-call syntax", "extra close paren (silently truncates)"],
        (Verdict.MALFORMED_PLAN, IGNORES)),
    "trailing [PLAN END]": (Verdict.VALID, "VAL trips over a bracket in the words after a plan; it allows other words"),
    "untyped object in typed domain + forall precondition": (Verdict.VALID, REFUSES),
    **dict.fromkeys(["untyped too many args (ignored)", "untyped unknown object"], (Verdict.MALFORMED_PLAN, UNCHECKED)),
    **dict.fromkeys(["untyped too few args", "typed too few", "typed too many", "typed nullary given an arg"],
                    (Verdict.MALFORMED_PLAN, CRASH)),
    "undeclared variable in action (untyped)": (Verdict.BAD_INPUT, CRASH),
    **dict.fromkeys(["undeclared predicate in action (untyped)", "predicate arity mismatch in action (untyped)"],
                    (Verdict.BAD_INPUT, UNCHECKED)),
    **dict.fromkeys(
        ["action without :precondition", "action without :parameters", "effect before precondition", "empty effect ()",
         "untyped predicate var in typed domain", "variable named ?after (reserved word)",
         "parentless type used where - object is declared (no implicit object root)",
         "object name starting with digit",
         *(f"object named {word}" for word in RESERVED)], (Verdict.VALID, REFUSES)),
    **dict.fromkeys(
        ["two actions with the same name", "object of undeclared type", "object redeclared so its LAST type is wrong",
         "duplicate object declarations, same name redeclared with another type"], (Verdict.BAD_INPUT, REDECLARED)),
}  # fmt: skip
"""Where our verdict is not VAL's, on purpose, and why."""


def micro_cases() -> Iterator[dict[str, Any]]:
    """Yield the cases that VAL has judged; none where they are not at hand."""
    path = REFERENCE / "val" / "micro_cases.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        yield json.loads(line)


def our_verdict(case: dict[str, Any]) -> tuple[Verdict, int | None]:
    """Return our verdict and failing step."""
    try:
        domain = parse_domain(case["domain"])
        problem = parse_problem(case["problem"], domain)
    except PddlParseError:
        return Verdict.BAD_INPUT, None
    verdict = validate_plan_text(PlanningTask(domain, problem), case["plan"])
    return verdict.verdict, verdict.failed_step if verdict.verdict is Verdict.PRECONDITION_UNSATISFIED else None


@pytest.mark.parametrize("case", list(micro_cases()), ids=lambda case: case["case"])
def test_validate_plan_agrees_with_val_but_for_the_listed_differences(case: dict[str, Any]) -> None:
    ours = our_verdict(case)
    val = (VAL_WORDS.get(case["val_verdict"], case["val_verdict"]), case["val_failed_step"])
    if case["case"] in DIFFERENCES:
        assert ours[0] == DIFFERENCES[case["case"]][0] and ours != val
    else:
        assert ours == val


@pytest.mark.skipif(not any(True for _ in micro_cases()), reason="VAL's verdicts are not at hand")
def test_validate_plan_differences_from_val_all_name_a_case() -> None:
    assert set(DIFFERENCES) <= {case["case"] for case in micro_cases()}

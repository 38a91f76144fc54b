"""Openstacks against the public original, whose problems have a domain each: an action for every product and order.

The orders and products, constants there, are objects here; an action such as ``ship-order-o1`` is ``ship-order`` of
``o1``. Both are worked out from the public files.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import REFERENCE

from plansmith.config.planner import PlannerConfig
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, PlanStep
from plansmith.pddl.parser import parse_domain, parse_problem, parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import load_domain

SOURCE = REFERENCE / "pddl" / "openstacks"
NUMBERS = tuple(path.stem for path in sorted(SOURCE.glob("p?.pddl")))
OURS = load_domain("openstacks").domain

pytestmark = pytest.mark.skipif(not NUMBERS, reason="the public originals are not there")


def texts_of(number: str) -> tuple[str, str]:
    """Return the public domain and problem."""
    return (
        (SOURCE / f"{number}-domain.pddl").read_text(encoding="utf-8"),
        (SOURCE / f"{number}.pddl").read_text(encoding="utf-8"),
    )


def task_under_our_domain(domain_text: str, problem_text: str) -> PlanningTask:
    """Return the public problem with the constants of its domain as objects, under our domain."""
    theirs = parse_domain(domain_text)
    problem = parse_problem(problem_text, theirs)
    problem = replace(problem, domain_name=OURS.name, objects=(*theirs.constants, *problem.objects))
    return PlanningTask(OURS, parse_problem(print_problem(problem), OURS))


def step_under_our_domain(step: PlanStep, theirs: Domain) -> PlanStep:
    """Return the step with the constant at the end of its action's name, if there is one, as first argument."""
    name, _, last = step.name.rpartition("-")
    if last in {constant.name for constant in theirs.constants}:
        return PlanStep(name, (last, *step.arguments))
    return step


@pytest.fixture(scope="module")
def planner():
    with FastDownward(PlannerConfig(search="first", time_limit_s=60, kill_after_s=90)) as solver:
        yield solver


@pytest.mark.parametrize("number", NUMBERS)
def test_every_action_of_the_original_has_its_counterpart(number: str) -> None:
    theirs = parse_domain(texts_of(number)[0])
    steps = [step_under_our_domain(PlanStep(action.name, ("?",) * len(action.parameters)), theirs)
             for action in theirs.actions]  # fmt: skip
    assert {step.name for step in steps} == {action.name for action in OURS.actions}
    assert all(len(step.arguments) == len(OURS.action(step.name).parameters) for step in steps)
    made = sum(step.name == "make-product" for step in steps)
    shipped = sum(step.name == "ship-order" for step in steps)
    assert made + shipped == len(theirs.constants)


@pytest.mark.parametrize("number", NUMBERS)
def test_plans_of_the_public_original_are_judged_alike_under_our_domain(number: str, planner: FastDownward) -> None:
    domain_text, problem_text = texts_of(number)
    original = PlanningTask.from_text(domain_text, problem_text)
    ours = task_under_our_domain(domain_text, problem_text)
    result = planner.solve(domain_text, problem_text)
    assert result.status is PlannerStatus.SOLVED
    plan = [parse_step(step) for step in result.plan or ()]
    variants = [plan, *(plan[:i] + plan[i + 1 :] for i in range(len(plan)))]
    variants += [[*plan[:i], plan[j], *plan[i + 1 : j], plan[i], *plan[j + 1 :]]
                 for i in range(len(plan)) for j in range(i + 1, len(plan))]  # fmt: skip
    verdicts = set()
    for steps in variants:
        expected = validate_plan(original, steps)
        got = validate_plan(ours, [step_under_our_domain(step, original.domain) for step in steps])
        assert (got.verdict, got.failed_step, got.cost) == (expected.verdict, expected.failed_step, expected.cost)
        verdicts.add(got.verdict)
    assert {Verdict.VALID, Verdict.PRECONDITION_UNSATISFIED} <= verdicts

"""Our verdicts beside those of others, on public domains: Fast Downward's plans and unified-planning's validator."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import REFERENCE, print_plan

from plansmith.config.planner import PlannerConfig
from plansmith.pddl.cases import judge_texts
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import TOTAL_COST, PlanStep
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.planners import FastDownward, PlannerStatus

PDDL = REFERENCE / "pddl"
DOMAINS = (
    "assembly", "blocksworld", "briefcase", "data-network", "elevators", "ferry", "logistics", "maintenance",
    "miconic", "openstacks", "parking", "spider", "transport", "tyreworld", "woodworking",
)  # fmt: skip
"""All with ADL or action costs among the public domains (but household, slow to solve), and some without."""
N_MUTANTS = 12

needs_reference = pytest.mark.skipif(not PDDL.is_dir(), reason="public PDDL lies beside the repository, not here")


def texts_of(name: str) -> tuple[str, str]:
    """Return domain and first problem of a public domain."""
    folder = PDDL / name
    domain = folder / "domain.pddl"
    own = domain if domain.is_file() else folder / "p1-domain.pddl"
    return own.read_text(encoding="utf-8"), (folder / "p1.pddl").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    with FastDownward(PlannerConfig(search="first", time_limit_s=60.0, kill_after_s=240.0)) as warm:
        yield warm


@functools.cache
def solved(planner: FastDownward, name: str) -> tuple[str, float]:
    """Return a plan of the first problem with its cost as the planner counts it."""
    result = planner.solve(*texts_of(name))
    assert result.status is PlannerStatus.SOLVED, result.message
    assert result.plan is not None and result.cost is not None
    return "\n".join(result.plan), result.cost


@needs_reference
@pytest.mark.parametrize("name", DOMAINS)
def test_plan_of_fast_downward_is_valid_at_its_cost(name: str, planner: FastDownward) -> None:
    plan, cost = solved(planner, name)
    judged = judge_texts(*texts_of(name), plan)
    assert judged.verdict.verdict is Verdict.VALID, judged.verdict.reason
    assert judged.task is not None
    if judged.task.problem.metric == TOTAL_COST:
        assert judged.verdict.cost == cost
    else:
        assert judged.verdict.cost == len(judged.verdict.plan)


def mutants(task: PlanningTask, plan: Sequence[PlanStep], rng: random.Random) -> Iterator[tuple[PlanStep, ...]]:
    """Yield the plan, then plans with a step dropped, swapped, repeated or about another object."""
    yield tuple(plan)
    for number in range(N_MUTANTS):
        steps = list(plan)
        one, two = rng.randrange(len(steps)), rng.randrange(len(steps))
        match number % 4:
            case 0:
                del steps[one]
            case 1:
                steps[one], steps[two] = steps[two], steps[one]
            case 2:
                steps.insert(two, steps[one])
            case _:
                arguments = list(steps[one].arguments)
                if arguments:
                    arguments[rng.randrange(len(arguments))] = rng.choice(list(task.objects))
                steps[one] = PlanStep(steps[one].name, tuple(arguments))
        yield tuple(steps)


class UnifiedPlanning:
    """The other validator, for one problem; `is_valid` is None where it cannot read the plan."""

    def __init__(self, domain: str, problem: str) -> None:
        from unified_planning.engines import SequentialPlanValidator
        from unified_planning.io import PDDLReader
        from unified_planning.shortcuts import get_environment

        get_environment().error_used_name = False  # published domains call a predicate and an action by one name
        self._reader = PDDLReader()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._problem: Any = self._reader.parse_problem_string(domain, problem)
        self._validator = SequentialPlanValidator()
        self._validator.skip_checks = True  # it can judge costs given by functions, but does not say so

    def is_valid(self, plan: str) -> bool | None:
        try:
            own = self._reader.parse_plan_string(self._problem, plan)
        except Exception:  # noqa: BLE001  it raises whatever its expression builder raises
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(self._validator.validate(self._problem, own))


@needs_reference
@pytest.mark.parametrize("name", DOMAINS)
def test_mutated_plan_gets_the_verdict_of_unified_planning(name: str, planner: FastDownward) -> None:
    domain, problem = texts_of(name)
    other, task = UnifiedPlanning(domain, problem), PlanningTask.from_text(domain, problem)
    differing = []
    for plan in mutants(task, parse_plan(solved(planner, name)[0]), random.Random(name)):
        ours, theirs = validate_plan(task, plan), other.is_valid(print_plan(plan))
        if (theirs is None and ours.verdict is not Verdict.MALFORMED_PLAN) or bool(theirs) != ours.is_valid:
            differing.append((ours.verdict, ours.reason, theirs, print_plan(plan)))
    assert differing == []


def test_reference_folder_is_where_the_tests_look_for_it() -> None:
    assert isinstance(PDDL, Path) and PDDL.parts[-2:] == ("reference", "pddl")

"""Workers about problems in words: every perturbation is proved to be what its row says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from actors.formaliser import Perturber
from plansmith.config.planner import PlannerConfig
from plansmith.data.rows import TextRow
from plansmith.judging.formalisation import Fault, solve_sorted
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import load_domain
from plansmith.problems.perturbation import FORM, Perturbation

DOMAINS = ("ferry", "rovers", "logistics")


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    with FastDownward(PlannerConfig(search="first")) as started:
        yield started


@pytest.fixture(scope="module")
def rows(planner: FastDownward) -> list[TextRow]:
    found = []
    for name in DOMAINS:
        loaded = load_domain(name)
        problem = loaded.sample(loaded.levels[0], random.Random(5))
        plan = solve_sorted(loaded.domain, problem, planner.solve).plan
        assert plan is not None
        found.append(TextRow(name, name, "L1", "d1", "", print_problem(problem), plan))
    return found


def test_perturber_proves_what_each_mistake_amounts_to(planner: FastDownward, rows: list[TextRow]) -> None:
    perturber = Perturber(config=PlannerConfig(search="first"), perturbations=tuple(Perturbation), seed=1)
    try:
        found = perturber(rows)
        again = perturber(rows[1:2])
    finally:
        perturber.close()
    assert len(found) > 10 * len(rows)
    assert again == [row for row in found if row.problem_id == rows[1].problem_id]  # whoever draws, and with whom
    faults = Counter(row.fault for row in found)
    assert faults[Fault.UNPARSEABLE] > 15 and faults[Fault.UNSOLVABLE] and faults[Fault.UNFAITHFUL]
    for row in found:
        domain = load_domain(row.problem_id).domain
        is_read = not any(item.is_error for item in diagnose(print_domain(domain), row.problem_pddl))
        assert is_read == (row.fault != Fault.UNPARSEABLE), row
        assert is_read == (row.perturbation not in FORM), row
        if is_read:
            result = planner.solve(print_domain(domain), print_problem(parse_problem(row.problem_pddl, domain)))
            assert (row.fault == Fault.UNSOLVABLE) == (result.status is PlannerStatus.UNSOLVABLE), row

"""Workers about problems in words: every perturbation is proved to be what its row says."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from actors.formaliser import Perturber, TextWriter
from plansmith.config.formalisation import FormalisationConfig, JudgingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.rows import ProblemRow, TextRow
from plansmith.judging.formalisation import Fault
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import load_domain
from plansmith.problems.perturbation import FORM, Perturbation

DOMAINS = ("ferry", "rovers", "logistics")
JUDGING = JudgingConfig(planner=PlannerConfig(search="first"))
NAMES = tuple(f"x{number}" for number in range(20))


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    with FastDownward(PlannerConfig(search="first")) as started:
        yield started


@pytest.fixture(scope="module")
def rows() -> Iterator[list[TextRow]]:
    writer = TextWriter(
        config=PlannerConfig(search="first"),
        formalisation=FormalisationConfig(detail="name", rendering="compact"),
        domains={name: name for name in DOMAINS},
        names=NAMES,
        seed=3,
    )
    yield writer([drawn(name) for name in DOMAINS])
    writer.close()


def drawn(name: str) -> ProblemRow:
    loaded = load_domain(name)
    problem = loaded.sample(loaded.levels[0], random.Random(5))
    return ProblemRow(name, name, name, "L1", "d1", 0, print_domain(loaded.domain), print_problem(problem), "sampler")


def test_text_writer_gives_the_answer_in_the_order_of_the_text_under_names_of_the_pool(rows: list[TextRow]) -> None:
    assert [row.problem_id for row in rows] == list(DOMAINS)
    for row in rows:
        domain = load_domain(row.domain).domain
        problem = parse_problem(row.problem_pddl, domain)
        assert {typed.name for typed in problem.objects} <= set(NAMES)
        assert row.prompt.startswith(f"domain: {domain.name}\n") and row.prompt.endswith("pddl:\n")
        assert canonical_form(domain, problem) == canonical_form(
            domain, parse_problem(drawn(row.domain).problem_pddl, domain)
        )
        assert validate_plan(PlanningTask(domain, problem), [parse_step(step) for step in row.plan]).is_valid


def test_perturber_proves_what_each_mistake_amounts_to(planner: FastDownward, rows: list[TextRow]) -> None:
    perturber = Perturber(config=JUDGING, rendering="compact", perturbations=tuple(Perturbation), seed=1)
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
        assert re.search(
            r";\d+ pddl:\n", row.problem_pddl
        )  # rendered as answers are, or comments would give a mistake away
        domain = load_domain(row.problem_id).domain
        is_read = not any(item.is_error for item in diagnose(print_domain(domain), row.problem_pddl))
        assert is_read == (row.fault != Fault.UNPARSEABLE), row
        assert is_read == (row.perturbation not in FORM), row
        if is_read:
            result = planner.solve(print_domain(domain), print_problem(parse_problem(row.problem_pddl, domain)))
            assert (row.fault == Fault.UNSOLVABLE) == (result.status is PlannerStatus.UNSOLVABLE), row

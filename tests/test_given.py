"""Given problems and texts behind drawn ones: each of them once, none that could have been learnt."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from test_planbench import write_planbench

from pipelines.stages.given import given_stages, planbench_texts
from pipelines.stages.graph import Graph
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import ProblemRow, Split, TextRow
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain
from plansmith.stages import StageContext, run_stages


def write(context: StageContext[str], rows: list[ProblemRow] | list[TextRow]) -> None:
    context.output.write_rows(rows, type(rows[0]))


def added(folder: Path, split: Split, *, is_written_otherwise: bool = False) -> dict[str, Artifact]:
    """Return what stands behind one drawn text of a split, of the form of both instances of PlanBench: (on a b).

    Written otherwise its domain names the same predicates in another order, so that the forms differ.
    """
    root = write_planbench(folder / "plan-bench", {"blocks": {2: "First.", 3: "Second."}})
    given = planbench_texts(root, FormalisationConfig())
    problem = replace(next(row for row in given.problems if row.problem_id == "blocks-3"), problem_id="x", split=split)
    if is_written_otherwise:
        domain = parse_domain(problem.domain_pddl)
        domain = replace(domain, predicates=domain.predicates[::-1])
        form = canonical_form(domain, parse_problem(problem.problem_pddl, domain))
        assert form != problem.canonical_form
        problem = replace(problem, domain_pddl=print_domain(domain), canonical_form=form)
    text = replace(next(row for row in given.texts if row.problem_id == "blocks-3"), problem_id="x", split=split)
    graph = Graph(seed=0)
    drawn = {
        "problems": graph.stage("draw", partial(write, rows=[problem]), "a", {}),
        "texts": graph.stage("say", partial(write, rows=[text]), "b", {}),
    }
    found = given_stages(graph, given, PlannerConfig(search="first"), drawn)
    artifacts = run_stages(graph.stages, root=folder / "run")
    return {name: artifacts[stage.name] for name, stage in found.items()}


def test_given_texts_come_behind_the_drawn_ones_each_with_a_plan(tmp_path: Path) -> None:
    found = added(tmp_path, Split.TEST)
    assert {row.problem_id for row in found["problems"].rows(ProblemRow)} == {"x", "blocks-2", "blocks-3"}
    plans = {row.problem_id: row.plan for row in found["texts"].rows(TextRow)}
    assert plans == {"x": (), "blocks-2": ("(pick-up b)", "(stack b a)"), "blocks-3": ("(pick-up a)", "(stack a b)")}


@pytest.mark.parametrize(
    ("split", "is_written_otherwise"), [(Split.PHASE1, False), (Split.PHASE2, False), (Split.PHASE1, True)]
)
def test_given_problems_of_a_form_that_may_be_learnt_from_are_left_out(
    split: Split, is_written_otherwise: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = added(tmp_path, split, is_written_otherwise=is_written_otherwise)
    assert [row.problem_id for row in found["texts"].rows(TextRow)] == ["x"]
    assert [row.problem_id for row in found["problems"].rows(ProblemRow)] == ["x"]
    assert "2 of 2 given problems have the form of one that may be learnt from" in caplog.text

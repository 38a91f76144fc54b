"""What the report of `nl2plan` counts, by hand: shares, common faults, averages, pages of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from modelled import reference

from plansmith.data.rows import AdviceRow, ModellingCallRow, ModellingStepRow, ModellingTaskRow
from plansmith.report.nl2plan_report import WITHOUT_H2, nl2plan_report
from plansmith.report.nl2plan_results import (
    Cost,
    ModelledTask,
    NL2PlanResults,
    _faults_by_step,
    _page,
    _shares,
    _types_removed,
    _unplanned,
)
from plansmith.report.render import render_markdown, render_page
from plansmith.report.sections import Table

TASK = ModelledTask("blocksworld", "solved", True, "names", False, ("(pick-up a)",), 4)


def step(name: str, n_messages: int = 0, *, before: str = "", after: str = "") -> tuple[str, ModellingStepRow]:
    """Return what is said of an answer about the easy task of Blocksworld."""
    return "blocksworld-easy", ModellingStepRow(name, "", n_messages, (), "advice" if before else "", before, after)


def results(tasks: Mapping[str, ModelledTask], **more: object) -> NL2PlanResults:
    """Return the results of a run of some tasks, about which nothing else is known."""
    made = NL2PlanResults(
        run_name="r", preset="p", seed=0, curves=(), n_not_finite=0, n_dropped={}, time_s={}, tokens={},
        policy_versions={}, speaker="a model", is_scripted=False, tasks=dict(tasks), zero_shot={}, arms={"nl2plan": 1},
        shares={}, cost=Cost(0, 0, 0, None, None, 0.0, None), tokens_by_domain={},
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_shares_of_validation_and_feedback_are_those_that_a_hand_counts() -> None:
    steps = [step("construction", 2), step("construction"), step("construction", 1), step("construction"),
             step("task"), step("types", 3)]  # fmt: skip
    advice = [AdviceRow("t", "construction", "1/a", "harmful"), AdviceRow("t", "construction", "2/a", "helped"),
              AdviceRow("t", "construction", "2/b", "no effect")]  # fmt: skip
    assert _shares(steps, advice) == {
        "actions with an error (step 4)": 50.0,  # 2 of 4
        "actions with advice (step 4)": 75.0,  # 3 of 4
        "advice that is harmful (step 4)": pytest.approx(100 / 3),  # 1 of 3
        "tasks with an error (step 5)": 0.0,  # 0 of 1
        "tasks with advice (step 5)": 0.0,
        "advice that is harmful (step 5)": None,  # none was given
    }


def test_failures_that_end_with_no_plan_found_leave_out_what_waits_for_a_person() -> None:
    wrong = replace(TASK, right=False)
    tasks = [TASK, wrong, replace(wrong, proposed=True), *(replace(wrong, status=own, plan=()) for own in
             ("unsolvable", "refused", "out_of_time"))]  # fmt: skip
    assert _unplanned(tasks) == 75.0  # three of the four that failed; one is right, one waits
    assert _unplanned([TASK]) is None


def test_invalid_types_are_actions_and_predicates_of_the_reference_and_advice_removes_some() -> None:
    own = reference("blocksworld-easy")
    row = ModellingTaskRow(own.name, own.domain, own.level, own.text, own.domain_pddl, own.problem_pddl, 4)
    first = "- block: a cube\n- pick_up: taking one\n- stack: putting one\n- holding: what is held\n- arm: one"
    advised = step("types", before=first, after="- block: a cube\n- holding: what is held")
    untouched = step("types", after="- block\n- clear: free")
    other = step("hierarchy", before="- stack", after="- block")
    assert _types_removed([advised, other], {own.name: row}) == pytest.approx(200 / 3)  # pick_up, stack; not holding
    assert _types_removed([advised, untouched], {own.name: row}) == 50.0  # 2 of 4: nobody removed clear
    assert _types_removed([step("types", after="- block")], {own.name: row}) is None


def test_report_tells_the_most_common_fault_of_each_step_beside_the_papers() -> None:
    calls = [ModellingCallRow("t", 1, "", name, "", "repair", "[]", checks, "", "stop", "m", 1, 1, None, None, 0.0)
             for name, checks in (("construction", ("param_types",)), ("construction", ("predicate_usage",)),
                                  ("construction", ("predicate_usage",)), ("task", ("obj_type", "pred_objs")),
                                  ("task", ("pred_objs",)), ("types", ()))]  # fmt: skip
    found = _faults_by_step(calls)
    assert found == {"construction": {"param_types": 1, "predicate_usage": 2}, "task": {"obj_type": 1, "pred_objs": 2}}
    told = render_markdown(nl2plan_report(results({"blocksworld-easy": TASK}, faults_by_step=found)))
    assert "construction: most often predicate_usage, 2 of 3 (paper: invalid arguments of predicates)." in told
    assert "task: most often pred_objs, 2 of 3 (paper: objects called like a type)." in told


def test_report_has_averages_of_tokens_and_of_the_papers_over_the_same_domains() -> None:
    tokens = {"blocksworld": {"types": 100.0, "task": 7.0}, "isr": {"types": 301.0}, "ferry": {"types": 199.0}}
    report = nl2plan_report(results({"blocksworld-easy": TASK}, tokens_by_domain=tokens))
    [table] = [block for block in report.printed(Table) if block.title == "Tokens"]
    row = dict(zip(table.header, table.rows[-1], strict=True))
    assert (row["domain"], row["types"], row["task"]) == ("average", "200 (5663)", "7 (9542)")  # (5669 + 5657) / 2
    assert table.is_last_strong


@pytest.mark.parametrize(("search", "is_told"), [("lama-first", True), ("optimal", False)])
def test_report_says_where_the_planner_is_not_the_papers(search: str, is_told: bool) -> None:
    report = nl2plan_report(results({"blocksworld-easy": TASK}, config={"planner": {"search": search}}))
    assert (WITHOUT_H2 in render_markdown(report)) == is_told


def test_page_of_the_report_leads_to_the_page_of_each_task() -> None:
    page = "../artifacts/judge-1/pages/a task.md"
    shown = render_page(nl2plan_report(results({"a task": replace(TASK, page=page), "other": TASK})))
    assert shown.count('<a href="../artifacts/judge-1/pages/a%20task.md">a task.md</a>') == shown.count("<a ") == 1


def test_page_of_a_task_that_is_there_is_told_from_the_folder_of_the_report(tmp_path: Path) -> None:
    own, judged = tmp_path / "seed-0" / "steps", SimpleNamespace(folder=tmp_path / "seed-0" / "artifacts" / "judge-1")
    run: Any = SimpleNamespace(folder=own, artifacts={"judge": judged})
    page = judged.folder / "pages" / "isr-easy.md"
    page.parent.mkdir(parents=True)
    page.write_text("# isr-easy")
    assert _page(run, "isr-easy") == "../../artifacts/judge-1/pages/isr-easy.md"
    assert (own / "report" / _page(run, "isr-easy")).resolve() == page.resolve()
    assert _page(run, "isr-hard") == ""

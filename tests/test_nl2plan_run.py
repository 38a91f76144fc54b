"""The pipeline nl2plan from its texts to its report, with the script for a speaker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.nl2plan import PIPELINE, nl2plan
from pipelines.stages.modelling import interpretation_of
from plansmith.cli import main
from plansmith.errors import BadInputError, ConfigError
from plansmith.pipeline import find_pipeline
from plansmith.report.nl2plan_report import SCRIPTED
from plansmith.report.nl2plan_results import NL2PlanResults


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the smallest preset."""
    runs = tmp_path_factory.mktemp("runs")
    assert main(["run", "nl2plan", "--preset", "smoke", "--runs", str(runs)]) == 0
    return runs / "smoke"


def results_of(run: Path) -> NL2PlanResults:
    """Return what a run has reached."""
    return PIPELINE.reporting.read(run)


def test_nl2plan_smoke_all_fifteen_tasks_are_right_and_say_that_they_are_scripted(smoke: Path) -> None:
    results = results_of(smoke)
    assert (len(results.tasks), results.arms["nl2plan"]) == (15, 15)
    assert {task.confirmed for task in results.tasks.values()} == {"names"}
    optima = {name: task.optimum for name, task in results.tasks.items()}
    for domain in ("blocksworld", "tyreworld", "household"):
        assert [optima[f"{domain}-{level}"] for level in ("easy", "medium", "hard")] == [4, 8, 12]
    assert [optima[f"isr-{level}"] for level in ("easy", "medium", "hard")] == [4, 8, 11]
    page = (smoke / "report" / "index.html").read_text()
    assert SCRIPTED.split(":")[0] in page


def test_nl2plan_smoke_results_have_the_names_that_are_promised(smoke: Path) -> None:
    results = json.loads((smoke / "report" / "results.json").read_text())
    task = results["tasks"]["blocksworld-easy"]
    promised = {"status", "right", "confirmed", "plan", "optimum", "calls", "tokens", "faults", "feedback"}
    assert promised <= set(task)
    assert {"arms", "cost", "tasks"} <= set(results)
    assert task["faults"] == {"param_types": 2, "predicate_usage": 2, "pred_nargs": 1}  # two passes of step 4
    assert task["feedback"] == {"construction: no effect": 2}
    assert results["tasks"]["blocksworld-medium"]["calls"].keys() == {"task"}  # the domain is the easy task's


def test_nl2plan_smoke_has_a_page_of_each_task_with_every_call(smoke: Path) -> None:
    [page] = smoke.glob("artifacts/judge-*/pages/isr-easy.md")
    text = page.read_text()
    assert text.count("\n### ") >= 14
    assert "construction 1/jump repair" in text


def test_nl2plan_smoke_again_reuses_every_stage(smoke: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nl2plan", "--preset", "smoke", "--runs", str(smoke.parent), "--dry-run"]) == 0
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "  from " in line]
    assert told == ["reused"] * 11


def test_nl2plan_paper_preset_is_the_papers() -> None:
    config = PIPELINE.settings("paper")
    modelling = config.modelling
    assert (modelling.checks, modelling.max_error_messages, modelling.max_validations) == ("paper", 8, 8)
    assert (modelling.passes, modelling.feedback, config.answers.temperature) == (2, "model", 0)
    assert (config.tasks.shares_domain, config.planner.search, config.zero_shot) == (True, "lama-first", True)
    names = [stage.name for stage in nl2plan(config)]
    assert names == ["tasks", "types", "hierarchy", "actions", "construct_1", "construct_2", "prune", "task", "plan",
                     "zero_shot", "judge"]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("speaker.script=false", "one speaker"),
        ("speaker.url=http://localhost/v1", "one speaker"),
        ("speaker.prices={input: -1}", "prices"),
        ("modelling.feedback=person", "one task at a time"),
    ],
)
def test_nl2plan_settings_that_do_not_fit_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings("smoke", overrides=[override])


def test_nl2plan_a_planned_mistake_that_nobody_can_make_is_refused() -> None:
    with pytest.raises(BadInputError):
        interpretation_of("{", where="x.json")
    assert find_pipeline("nl2plan").name == "nl2plan"

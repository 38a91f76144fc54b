"""The pipeline `generalization_gap` as a whole: its preset smoke, run with the real engine, trainer and planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import give_command

from pipelines import generalization_gap
from pipelines.stages.equal_seconds import seconds_of
from plansmith.data.artifacts import complete_artifacts

RUN = "generalization_gap-smoke"
ARMS = ["numbered_1", "numbered_2", "anonymised", "compact_1", "compact_2", "grpo_binary", "more_sft", "own_plans",
        "grpo_1_of_2", "grpo"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    said = give_command(generalization_gap.main, "--preset", "smoke", "--runs", folder)
    assert said.code == 0, said.stderr
    assert "sent to the engines" in said.stderr, "within a segment weights go straight to them"
    return folder


def results_of(runs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs / RUN / "report" / "results.json").read_text())
    return found


def test_smoke_run_has_every_arm_on_domains_trained_on_and_on_others(runs: Path) -> None:
    results = results_of(runs)
    assert list(results["arms"]) == ARMS
    for arm in results["arms"].values():
        assert set(arm["by_domain"]) == {"miconic", "ferry", "briefcase"}
        assert arm["unseen"]["n"] == arm["by_domain"]["briefcase"]["n"] > 0
        assert arm["seen"]["n"] == arm["by_domain"]["miconic"]["n"] + arm["by_domain"]["ferry"]["n"]


def test_smoke_run_trains_every_epoch_under_one_schedule(runs: Path) -> None:
    rates = {curve["stage"]: curve["learning_rates"] for curve in results_of(runs)["curves"]}
    both = rates["numbered_1"] + rates["numbered_2"]
    assert both == sorted(both, reverse=True) and both[0] == 0.003


def test_smoke_run_learns_in_updates_whose_importance_weights_are_1(runs: Path) -> None:
    rl = results_of(runs)["rl"]["grpo"]
    assert len(rl["rollout/reward"]) == 2
    assert rl["group_relative/ratio"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert rl["group_relative/weight"] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_smoke_run_tells_what_every_arm_took_and_what_a_problem_costs(runs: Path) -> None:
    results = results_of(runs)
    effort = results["effort"]
    assert list(effort) == ARMS
    assert [round(effort[f"numbered_{epoch}"]["epochs"]) for epoch in (1, 2)] == [1, 2]
    half, whole = (effort[name]["rollouts"] for name in ("grpo_1_of_2", "grpo"))
    assert whole == 2 * half == 2 * 4 * 4
    made = {own.manifest.provenance.stage: own for own in complete_artifacts(runs / RUN / "artifacts")}
    has_time = seconds_of([made["own_plans"]]) >= seconds_of([made["grpo_1_of_2"], made["grpo"]]) > 0
    assert has_time or effort["own_plans"]["rollouts"] == generalization_gap.MOST_UPDATES * whole
    cost = results["cost"]
    assert sum(item["n"] for item in cost["planning"]) == cost["n_problems"] > 0
    assert min(cost[name] for name in ("planning_s", "imitation_s", "generating_s", "judging_s", "updating_s")) > 0
    assert cost["prices"] == {"cpu": 0.05, "accelerator": 1.0}


def test_smoke_run_tells_leaks_lengths_and_kinds_of_failure(runs: Path) -> None:
    results = results_of(runs)
    assert {row["domain"] for row in results["leak"]} == {"miconic", "ferry", "briefcase"}
    assert all(row["n_leaked"] <= row["n_test"] <= row["n_texts"] for row in results["leak"])
    assert {row["domain"]: row["n_beyond"] for row in results["lengths"]} == {"miconic": 0, "ferry": 0}
    for name, found in results["unseen"].items():
        arm = results["arms"][name]["unseen"]
        assert sum(found["failures"].values()) == arm["n"] - arm["n_valid"]
        assert sum(figures["n"] for figures in found["by_length"].values()) == arm["n"]
    assert results["domains"] is None


def test_smoke_run_publishes_the_policy_of_its_last_arm(runs: Path) -> None:
    record = json.loads((runs / RUN / "model" / "plansmith.json").read_text())
    assert record["policy_version"] == results_of(runs)["policy_versions"]["grpo"]


def test_smoke_run_given_again_reuses_every_stage(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = results_of(runs)
    assert generalization_gap.main(["--preset", "smoke", "--runs", str(runs)]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if " stage " in line]
    assert said and all(line.endswith("reused") for line in said)
    assert results_of(runs)["arms"] == before["arms"]

"""The pipeline `generalization_gap` as a whole: its preset smoke, run with the real engine, trainer and planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines import generalization_gap

ARMS = ["numbered_1", "numbered_2", "anonymised", "compact_1", "compact_2", "grpo"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert generalization_gap.main(["--preset", "smoke", "--runs", str(folder)]) == 0
    return folder


def results_of(runs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs / "smoke" / "report" / "results.json").read_text())
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
    rl = results_of(runs)["rl"]
    assert len(rl["rollout/reward"]) == 2
    assert rl["group_relative/ratio"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert rl["group_relative/weight"] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_smoke_run_given_again_reuses_every_stage(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = results_of(runs)
    assert generalization_gap.main(["--preset", "smoke", "--runs", str(runs)]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if " stage " in line]
    assert said and all(line.endswith("reused") for line in said)
    assert results_of(runs)["arms"] == before["arms"]

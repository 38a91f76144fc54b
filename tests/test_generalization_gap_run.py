"""The pipeline `generalization_gap` as a whole: its presets smoke, run with the real engine, trainer and planner."""

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


def results_of(runs: Path, name: str = RUN) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs / name / "report" / "results.json").read_text())
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
    loops = results_of(runs)["rl"]
    assert_weights_are_1(loops["grpo"])
    # at T = 0.5 under top-p; a token at the nucleus' edge that one of the two rounds away is a weight apart, and rare
    assert_weights_are_1(loops["grpo_binary"], n_apart=2)


def assert_weights_are_1(rl: dict[str, list[float]], *, n_apart: int = 0) -> None:
    """Check that two updates learnt, and that w of every token is within 1e-3 of 1, but of so many within 1e-2.

    Told are means: that of abs(log w) times the tokens is no less than the largest.
    """
    assert len(rl["rollout/reward"]) == 2 and min(rl["group/advantage without a valid plan"]) > 0
    assert rl["group_relative/ratio"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert rl["group_relative/weight"] == pytest.approx([1.0, 1.0], abs=1e-3)
    for mismatch, n_tokens in zip(rl["group_relative/mismatch"], rl["rollout/n_tokens"], strict=True):
        assert mismatch * n_tokens < 1e-3 + n_apart * 1e-2


def test_smoke_run_replaces_groups_of_equal_rewards_by_other_problems(runs: Path) -> None:
    rl = results_of(runs)["rl"]["grpo_binary"]
    taught = [asked - equal for asked, equal in zip(rl["group/asked"], rl["group/equal"], strict=True)]
    assert max(rl["group/asked"]) > 4, "no group was replaced"
    for asked, n_taught, n_sequences in zip(rl["group/asked"], taught, rl["training/n_sequences"], strict=True):
        assert asked == 6 or (asked < 6 and n_taught == 4)
        assert n_sequences == 4 * n_taught


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


def test_smoke_run_given_again_reuses_every_stage(runs: Path) -> None:
    before = results_of(runs)
    assert_reused(generalization_gap.main, "--preset", "smoke", "--runs", runs)
    assert results_of(runs)["arms"] == before["arms"]


def assert_reused(*command: Any) -> None:
    """Give a command whose run has ended, and see that none of its stages is run."""
    said = give_command(*command)
    lines = [line for line in said.stderr.splitlines() if " stage " in line]
    assert said.code == 0 and lines and all(line.endswith("reused") for line in lines), said.stderr


@pytest.mark.long
def test_smoke_run_of_policies_that_read_domains_has_every_arm_on_those_trained_on_unseen_and_invented(
    tmp_path: Path,
) -> None:
    command = (generalization_gap.main, "--preset", "unseen-smoke", "--runs", tmp_path)
    said = give_command(*command)
    assert said.code == 0, said.stderr
    results = results_of(tmp_path, "generalization_gap-unseen-smoke")
    assert list(results["arms"]) == ["walk", "trained", "mixed", "reinforced"]
    for arm in results["arms"].values():
        assert set(arm["by_domain"]) == {"miconic", "briefcase"}
        assert arm["seen"]["n"] == arm["unseen"]["n"] == 4
        assert arm["held_out"]["n"] == 3
    domains = results["domains"]
    assert (domains["n"], domains["n_held_out"]) == (4, 1)
    assert {name: sum(counts.values()) for name, counts in domains["sizes"].items()} == dict.fromkeys(
        ("actions", "predicates", "parameters", "types"), 4
    )
    assert list(results["effort"]) == ["trained", "mixed", "reinforced"], "nobody trains a walk"
    assert results["effort"]["reinforced"]["rollouts"] == 2 * 3 * 4
    assert_weights_are_1(results["rl"]["reinforced"])
    assert_reused(*command)
    assert results_of(tmp_path, "generalization_gap-unseen-smoke")["arms"] == results["arms"]

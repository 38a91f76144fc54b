"""`plansmith ablate`: which runs give which arms, that they share what is equal, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands import ablate
from pipelines.pddl_instruct import PIPELINE, main, pddl_instruct
from pipelines.run.publishing import base_name
from plansmith.ablation.paper_figures import PaperColumn
from plansmith.ablation.variants import ablation_arms, variants
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.errors import ConfigError


def config(*overrides: str) -> PddlInstructConfig:
    return PIPELINE.settings("smoke", overrides=["phase2.eta=3", "ablation.eta_low=2", *overrides])


def test_variants_give_every_arm_of_table_1_exactly_once() -> None:
    given = Counter(arm for variant in variants(config()) for arm in variant.arm_of.values())
    assert set(given.values()) == {1}
    wanted = ablation_arms(config())
    assert set(given) == {arm.id for arm in wanted}
    assert [arm.paper_label for arm in wanted] == list(PaperColumn)


def test_variants_name_arms_that_their_runs_have() -> None:
    for variant in variants(config("evaluation.baseline_prompts=[zero_shot]")):
        judged = {stage.labels.get("arm") for stage in pddl_instruct(variant.config)}
        assert set(variant.arm_of) <= judged, variant.name
        assert variant.loop in variant.arm_of.values()


def test_variants_share_every_stage_before_they_differ() -> None:
    keys = {
        variant.name: {stage.name: stage.key for stage in pddl_instruct(variant.config)}
        for variant in variants(config())
    }

    def shared(one: str, other: str) -> set[str]:
        return {name for name, key in keys[one].items() if keys[other].get(name) == key}

    data = {"sample_problems", "synthesize_plans", "corrupt_plans", "write_chains", "initial_policy", "try_untrained"}
    both = shared("detailed", "binary")
    assert data | {"phase1", "try_phase1", "roll_out_1", "judge_1", "replan_1"} <= both
    assert not {"build_datasets_1", "stage1_1", "stage2_1", "roll_out_2"} & both
    alone = shared("detailed", "phase2_only")
    assert data <= alone
    assert "phase1" not in keys["phase2_only"]
    assert not {"roll_out_1", "stage2_1"} & alone


def test_smaller_eta_is_the_beginning_of_the_greater_one() -> None:
    short, long = ({s.name: s.key for s in pddl_instruct(config(f"phase2.eta={eta}"))} for eta in (2, 3))
    assert {name: long[name] for name in short if name.endswith(("_1", "_2"))} == {
        name: key for name, key in short.items() if name.endswith(("_1", "_2"))
    }


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["ablation.eta_low=3"], "smaller than phase2.eta"),
        (["problems.probe_share=0.2", "phase2.patience=1"], "patience=0"),
    ],
    ids=["eta", "patience"],
)
def test_variants_that_cannot_be_compared_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        variants(config(*overrides))


def test_dry_run_counts_the_stages_of_every_seed_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    options = ["--preset", "smoke", "--seeds", "2", "--set", "ablation.eta_low=1", "--dry-run"]
    assert ablate.main(["pddl_instruct", *options, "--runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["seed", str(seed), name] for seed in (0, 1) for name in ("detailed", "binary", "phase2_only")
    ]
    assert list(tmp_path.iterdir()) == []


def test_no_seeds_are_refused(capsys: pytest.CaptureFixture[Any]) -> None:
    assert ablate.main(["pddl_instruct", "--seeds", "0"]) == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err


def test_missing_model_is_said_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    options = ["--preset", "smoke", "--set", "ablation.eta_low=1", "--set", f"model.folder={tmp_path}/none"]
    assert ablate.main(["pddl_instruct", *options, "--runs", str(tmp_path / "runs")]) == 2
    assert "no such model folder" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-1.7B"),
        ("/models/my model (new)", "my-model-new"),
        ("/models/Llama-3.1/", "Llama-3.1"),
    ],
)
def test_base_name_is_one_that_a_model_card_may_hold(folder: str, expected: str) -> None:
    assert base_name(folder) == expected


def test_dry_run_of_a_preset_with_a_model_of_the_hub_downloads_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise AssertionError("a dry run asked the hub")

    monkeypatch.setattr("plansmith.learning.hub.snapshot_download", download)
    assert main(["--preset", "paper", "--dry-run", "--runs", str(tmp_path)]) == 0
    assert "stage2_15" in capsys.readouterr().out

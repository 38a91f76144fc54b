"""The presets of the paper with a real model's shape: a small Qwen3, whole and through adapters, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoints import qwen3_checkpoint
from conftest import give_command

from pipelines import generalization_gap
from plansmith.data.artifacts import complete_artifacts
from plansmith.learning.adapters import is_adapter_folder

SMALL = """
base: {preset}
problems:
  test_share: 0.2
  domains:
    - domain: miconic
      level: smallest
      sizes: {{passengers: [1, 2], floors: [2, 3]}}
      phase1: 24
      test: 4
      n_draws: 300
    - domain: briefcase
      level: smallest
      sizes: {{objects: [1, 2], locations: [2, 3]}}
      test: 3
      n_draws: 100
      test_share: 0.5
planner: {{search: first, time_limit_s: 5, kill_after_s: 10}}
trainer: {{device: cpu, dtype: float32}}
policy: {{dtype: float32, max_model_len: 4096, max_num_seqs: 8, kv_cache_gib: 0.5, enforce_eager: true}}
grpo: {{updates: 4, problems_per_update: 2, max_new_tokens: 24, may_start_cold: true}}
evaluation: {{max_new_tokens: 24}}
"""
"""As little of everything as shows that it runs; rates, rollouts of a problem, temperatures, rewards are the preset's.

Spare problems are for a policy that solves some: all groups of a random one are alike.
"""


@pytest.mark.long
@pytest.mark.parametrize("changes", [[], ["trainer.lora={rank: 4, alpha: 8}"]], ids=["whole", "adapters"])
@pytest.mark.parametrize("preset", ["paper", "paper-2026"])
def test_preset_of_the_paper_runs_to_its_end_with_a_qwen3(preset: str, changes: list[str], tmp_path: Path) -> None:
    overrides = [*changes, *(["grpo.spare_problems=0"] if preset == "paper-2026" else [])]
    results, folder = run_of(preset, overrides, tmp_path)
    assert {"numbered_3", "anonymised", "compact_3", "grpo_1_of_2", "grpo"} <= set(results["arms"])
    assert set(results["arms"]["grpo"]["by_domain"]) == {"miconic", "briefcase"}
    assert len(results["rl"]["grpo"]["rollout/reward"]) == 4
    models = {a.manifest.provenance.stage: a.path("model") for a in complete_artifacts(folder / "artifacts")
              if "model" in a.manifest.files or (a.folder / "model").is_dir()}  # fmt: skip
    assert is_adapter_folder(models["grpo"]) == is_adapter_folder(models["compact_3"]) == bool(changes)
    said = (folder / "report" / "results.md").read_text()
    assert "| B, v1, v2 (by likelihood) | 1e-05 (1e-05) | cosine (cosine) | 16 (16) |" in said


def run_of(preset: str, overrides: list[str], folder: Path) -> tuple[dict[str, Any], Path]:
    """Return results and folder of a run of a preset, made small."""
    (folder / "small.yaml").write_text(SMALL.format(preset=preset), encoding="utf-8")
    changes = [f"model.folder={qwen3_checkpoint(folder / 'base')}", *overrides]
    given = [word for change in changes for word in ("--set", change)]
    words = ("--preset", folder / "small.yaml", "--runs", folder / "runs", "--name", "small")
    said = give_command(generalization_gap.main, *words, *given)
    assert said.code == 0, said.stderr[-3000:]
    run = folder / "runs" / "small"
    return json.loads((run / "report" / "results.json").read_text(encoding="utf-8")), run

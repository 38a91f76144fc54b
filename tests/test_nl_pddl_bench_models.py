"""The pipeline `nl_pddl_bench` with real model shapes: adapters on Llama and Qwen3 with their chat templates."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from checkpoints import llama_checkpoint, qwen3_checkpoint
from conftest import Said, give_command
from processes import processes_of
from strikes import once
from transformers import AutoModelForCausalLM

from pipelines import nl_pddl_bench
from pipelines.run.workers import MODEL
from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.data.rows import FormalisedRow, ObjectiveFigureRow, OptimisationStepRow, PairRow, RolloutRow, TextRow
from plansmith.learning.adapters import base_folder_of, is_adapter_folder
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode, encode_prompt
from plansmith.live import LiveWork

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("running_ray")]

PRESET = """
base: smoke
problems:
  domains:
    - {domain: ferry, level: L1, phase1: 8, phase2: 4, test: 3, n_draws: 60}
texts: {detail: summary, rendering: full}
examples: {repair: 0.5}
trainer: {optimizer: adamw, is_autocast: false, row_length_tokens: 4096, lora: {rank: 4, alpha: 8}}
policy: {max_model_len: 4096, max_num_seqs: 8, kv_cache_gib: 0.5}
sft: {learning_rate: 0.01, muon_learning_rate: null, batch_tokens: null, batch_sequences: 4}
dpo: {learning_rate: 0.001, batch_tokens: null, batch_sequences: 4}
sft_longer: null
has_direct_plans: false
repair: {turns: 2, has_resampling: false}
evaluation: {tries_untrained: true, tries_grammar: false, max_new_tokens: 120}
"""


def give_run(folder: Path, base: Path, *overrides: str) -> Said:
    """Give the command of the run ``folder/runs/chat``."""
    preset = folder / "chat.yaml"
    preset.write_text(PRESET, encoding="utf-8")
    changes = [part for override in (f"model.folder={base}", *overrides) for part in ("--set", override)]
    words = ("--preset", preset, "--runs", folder / "runs", "--name", "chat")
    said = give_command(nl_pddl_bench.main, *words, *changes)
    assert said.code == 0, said.stderr
    return said


def artifacts_of(folder: Path) -> dict[str, Artifact]:
    found = complete_artifacts(folder / "runs" / "chat" / "artifacts")
    return {artifact.manifest.provenance.stage: artifact for artifact in found}


def test_run_of_a_llama_trains_adapters_and_an_engine_killed_in_the_repair_loop_comes_back_with_the_right_one(
    tmp_path: Path,
) -> None:
    base = llama_checkpoint(tmp_path / "base")
    run = tmp_path / "runs" / "chat"

    def is_due(work: LiveWork) -> bool:
        is_of_the_adapter = any(run.glob("artifacts/judge_sft-*/manifest.json"))
        is_asking = work.doing == "asking again, turn 1" and work.done < (work.total or 0)  # answers end together
        return is_of_the_adapter and is_asking

    with once(run, is_due, kill_engine):
        said = give_run(tmp_path, base)
    check_run(tmp_path, base, said)
    struck = artifacts_of(tmp_path)["repair_sft"]
    answers = answers_of(struck)
    shutil.rmtree(struck.folder)
    said = give_run(tmp_path, base)
    assert said.stderr.count(": reused") == len(artifacts_of(tmp_path)) - 1
    assert answers_of(artifacts_of(tmp_path)["repair_sft"]) == answers


def answers_of(loop: Artifact) -> list[tuple[Any, ...]]:
    """Return what the answers of a loop say, by which weights, and the verdicts; not how log-probabilities round."""
    said = [(row.rollout_id, row.policy_version, row.token_ids) for row in loop.rows(RolloutRow)]
    return [*said, *((row,) for row in loop.rows(FormalisedRow, "verdicts"))]


def kill_engine() -> None:
    [engine] = [pid for pid, line in processes_of(os.getsid(0)).items() if line.startswith("ray::PolicyActor")]
    os.kill(engine, signal.SIGKILL)


def test_run_of_a_qwen3_in_four_bits(tmp_path: Path) -> None:
    base = qwen3_checkpoint(tmp_path / "base")
    check_run(tmp_path, base, give_run(tmp_path, base, "trainer.quantisation=nf4"))


def check_run(folder: Path, base: Path, said: Said) -> None:
    """What holds of every run of a chat model."""
    artifacts = artifacts_of(folder)
    assert "engine and trainer agree" in said.stderr
    first = artifacts["initial_policy"].path(MODEL)
    for stage in ("sft", "dpo"):
        assert is_adapter_folder(artifacts[stage].path(MODEL))
        assert base_folder_of(artifacts[stage].path(MODEL)) == first.resolve()
    check_reference(artifacts)
    check_prompts(artifacts, base)
    results = json.loads((folder / "runs" / "chat" / "report" / "results.json").read_text(encoding="utf-8"))
    assert list(results["arms"]) == [
        "untrained", "untrained_repaired", "sft", "sft_repaired", "dpo", "dpo_repaired",
    ]  # fmt: skip
    AutoModelForCausalLM.from_pretrained(folder / "runs" / "chat" / "model")


def check_reference(artifacts: dict[str, Artifact]) -> None:
    """The reference is the adapter of fine-tuning, which gave other answers than the bare base: Delta begins at 0."""
    curve = artifacts["dpo"].rows(OptimisationStepRow, "curve")
    assert curve[0].loss == pytest.approx(math.log(2), abs=1e-3)
    margins = {row.step: row.value for row in artifacts["dpo"].rows(ObjectiveFigureRow, "figures")
               if row.name == "margin"}  # fmt: skip
    assert margins[1] == pytest.approx(0.0, abs=1e-3)
    answers = [{row.problem_id: row.completion for row in artifacts[f"try_{arm}"].rows(RolloutRow)}
               for arm in ("untrained", "sft")]  # fmt: skip
    assert answers[0] != answers[1]
    assert artifacts["write_pairs"].rows(PairRow)


def check_prompts(artifacts: dict[str, Artifact], base: Path) -> None:
    """What the engine was asked is in the model's own chat template."""
    tokenizer = load_tokenizer(str(base))
    texts: dict[str, Any] = {row.problem_id: row for row in artifacts["write_texts"].rows(TextRow)}
    for row in artifacts["try_dpo"].rows(RolloutRow):
        assert list(row.prompt_token_ids) == encode_prompt(tokenizer, texts[row.problem_id].prompt)
        assert len(row.prompt_token_ids) > len(encode(tokenizer, texts[row.problem_id].prompt))

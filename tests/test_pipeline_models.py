"""The pipeline with real model shapes: Llama and Gemma with their chat templates, trained through adapters.

Qwen3 is the default model, which test_pipeline.py runs; its chat template is held in test_tokenizer.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoints import gemma_checkpoint, llama_checkpoint
from conftest import give_command
from transformers import AutoModelForCausalLM

from pipelines import pddl_instruct
from pipelines.run.workers import MODEL
from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.data.rows import ExampleKind, ExampleRow, ProblemRow, RolloutRow, Split, VerdictRow
from plansmith.learning.adapters import base_folder_of, is_adapter_folder
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode, encode_prompt, end_token_ids
from plansmith.report.arms import chosen_iteration

pytestmark = pytest.mark.usefixtures("running_ray")

PRESET = """
base: smoke
rendering: full
problems:
  levels:
    - {n_blocks: 3, phase1: 4, phase2: 2, test: 2, n_draws: 120}
examples: {renamings: 1, valid_explanations: 0.5, invalid_explanations: 0.5}
trainer: {optimizer: adamw, row_length_tokens: 4096, lora: {rank: 4, alpha: 8}}
policy: {max_model_len: 4096, max_num_seqs: 8, kv_cache_gib: 0.5}
phase1: {learning_rate: 0.01, muon_learning_rate: null, batch_tokens: null, batch_sequences: 4, epochs: 1}
phase2:
  eta: 1
  problems_per_iteration: 2
  max_new_tokens: 24
  stage1: {learning_rate: 0.001, batch_tokens: null, batch_sequences: 4}
  stage2: {learning_rate: 0.001, batch_tokens: null, batch_sequences: 4}
evaluation: {max_new_tokens: 24, baseline_prompts: [zero_shot], feedback_turns: 1}
"""

NEVER_GAINS = ["problems.probe_share=0.4", "phase2.patience=1", "phase2.eta=2"]
"""A loop that stops after one iteration, because the policies of this test solve nothing."""


def run_pipeline(folder: Path, base: Path, *overrides: str) -> tuple[dict[str, Artifact], dict[str, Any]]:
    """Return artifacts and results of a run; its folder is ``folder/runs/chat``."""
    preset = folder / "chat.yaml"
    preset.write_text(PRESET, encoding="utf-8")
    changes = [part for override in (f"model.folder={base}", *overrides) for part in ("--set", override)]
    words = ("--preset", preset, "--runs", folder / "runs", "--name", "chat")
    said = give_command(pddl_instruct.main, *words, *changes)
    assert said.code == 0, said.stderr
    assert "engine and trainer agree" in said.stderr
    run = folder / "runs" / "chat"
    artifacts = {a.manifest.provenance.stage: a for a in complete_artifacts(run / "artifacts")}
    return artifacts, json.loads((run / "report" / "results.json").read_text(encoding="utf-8"))


@pytest.mark.long
def test_run_of_a_chat_model_trains_adapters_that_reach_the_engine_and_publishes_whole_weights(tmp_path: Path) -> None:
    base = llama_checkpoint(tmp_path / "base")
    artifacts, results = run_pipeline(tmp_path, base)
    check_run(artifacts, results, base, tmp_path)


@pytest.mark.long
def test_run_of_a_gemma_in_four_bits_that_never_gains_stops_and_keeps_the_policy_before_the_loop(
    tmp_path: Path,
) -> None:
    base = gemma_checkpoint(tmp_path / "base")
    levels = "problems.levels=[{n_blocks: 4, goal_moves: 2, phase1: 4, phase2: 2, probe: 2, test: 2, n_draws: 120}]"
    artifacts, results = run_pipeline(tmp_path, base, levels, "trainer.quantisation=nf4", *NEVER_GAINS)
    check_run(artifacts, results, base, tmp_path)
    assert {"probe_0", "probe_1", "stage2_1"} <= set(artifacts)
    assert not {"roll_out_2", "stage2_2", "probe_2", "try_iteration_2"} & set(artifacts)
    assert chosen_iteration(artifacts["final_policy"]) == 0
    problems = {row.problem_id: row for row in artifacts["sample_problems"].rows(ProblemRow)}
    tried = {problems[row.problem_id].split for row in artifacts["probe_1"].rows(RolloutRow)}
    assert tried == {Split.PROBE}


def check_run(artifacts: dict[str, Artifact], results: dict[str, Any], base: Path, folder: Path) -> None:
    """What holds of every run of a chat model; ``folder`` is that of `run_pipeline`."""
    check_policies(artifacts)
    check_prompts(artifacts, base)
    assert list(results["arms"]) == ["untrained", "untrained_zero_shot", "phase1", "iteration_1", "final"]
    assert [turn["turn"] for turn in results["feedback_turns"]] == [0, 1]
    published = folder / "runs" / "chat" / "model"
    AutoModelForCausalLM.from_pretrained(published)
    assert (published / "README.md").is_file()


def check_policies(artifacts: dict[str, Artifact]) -> None:
    """The first policy is the base, every later one an adapter on it."""
    first = artifacts["initial_policy"].path(MODEL)
    assert not is_adapter_folder(first)
    for stage in ("phase1", "stage1_1", "stage2_1", "final_policy"):
        folder = artifacts[stage].path(MODEL)
        assert is_adapter_folder(folder), stage
        assert base_folder_of(folder) == first.resolve(), stage


def check_prompts(artifacts: dict[str, Artifact], base: Path) -> None:
    """What the engine was asked and what the trainer learns are in the model's own chat template."""
    tokenizer = load_tokenizer(str(base))
    ends = end_token_ids(tokenizer, str(base))
    for stage in ("try_untrained", "roll_out_1", "try_iteration_1"):
        for row in artifacts[stage].rows(RolloutRow):
            assert list(row.prompt_token_ids) == encode_prompt(tokenizer, row.prompt)
            assert len(row.prompt_token_ids) > len(encode(tokenizer, row.prompt))
    row = next(r for r in artifacts["write_chains"].rows(ExampleRow, "chains") if r.kind == ExampleKind.PLAN_CHAIN)
    turns = [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.response}]
    whole = tokenizer.apply_chat_template(turns, enable_thinking=False, return_dict=False)
    taught = [*encode_prompt(tokenizer, row.prompt), *encode(tokenizer, row.response), ends[0]]
    assert whole[: len(taught)] == taught
    verdicts = artifacts["judge_untrained_zero_shot"].rows(VerdictRow)
    assert {verdict.claimed_verdict for verdict in verdicts} == {None}

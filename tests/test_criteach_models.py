"""Self-CriTeach with a real model's shape, and a narrator that is a model: a small Qwen3, and a scripted server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import qwen3_checkpoint
from conftest import give_command
from scripted_server import MODEL, completion, serving

from pipelines import self_criteach

SMALL = """
base: smoke
rendering: full
problems: {object_names: []}
library: {renamings: 1, held_out_share: 0.0}
trainer: {row_length_tokens: 4096, optimizer: adamw}
policy: {max_model_len: 4096, max_num_seqs: 8, kv_cache_gib: 0.5}
arms: [base, prompt_cot, symbol, sft, sft_cpo]
sft: {learning_rate: 0.0001, muon_learning_rate: null, batch_tokens: null, batch_sequences: 4, epochs: 1}
cpo: {updates: 1, problems_per_update: 2, rollouts_per_problem: 2, max_new_tokens: 24, batch_sequences: 4}
dpo: null
evaluation: {max_new_tokens: 24, noise_rates: []}
"""


@pytest.mark.long
def test_run_of_a_model_that_is_narrated_to_has_every_arm_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    base = qwen3_checkpoint(tmp_path / "base")
    with serving(lambda _: (200, completion("<REASON>It serves the goal.</REASON>"))) as server:
        narrator = f"narrator={{kind: model, by: step, speaker: {{url: '{server.url}', model: {MODEL}}}}}"
        other = f"evaluation.models={{other: {{url: '{server.url}', model: {MODEL}}}}}"
        given = [word for one in (f"model.folder={base}", narrator, other) for word in ("--set", one)]
        words = (tmp_path / "small.yaml", "--runs", tmp_path / "runs", *given)
        said = give_command(self_criteach.main, "--preset", *words)
    assert said.code == 0, said.stderr[-3000:]
    results = json.loads((tmp_path / "runs" / "small" / "report" / "results.json").read_text(encoding="utf-8"))
    assert set(results["arms"]) == {"base", "other", "prompt_cot", "symbol", "sft", "sft_cpo"}
    assert results["narration"]["kept"] == results["narration"]["told"] > 0
    assert results["arms"]["other"]["tokens_per_problem"] == 7, "as the server counts"
    assert (tmp_path / "runs" / "small" / "model" / "README.md").is_file()

"""Self-CriTeach with a real model's shape, and a narrator that is a model: a small Qwen3, and a scripted server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import qwen3_checkpoint
from conftest import ROOT, give_command
from scripted_server import MODEL, Request, Server, completion, serving
from test_faults import tables_of

from pipelines import self_criteach
from pipelines.stages.generating import WRITE_EVERY_S
from plansmith.data.artifacts import Shards, StageKind, complete_artifacts
from plansmith.data.rows import PlanRow, RolloutRow
from plansmith.pddl.printer import print_domain
from plansmith.problems.library import load_domain

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
        words = (tmp_path / "small.yaml", "--runs", tmp_path / "runs", "--name", "small", *given)
        said = give_command(self_criteach.main, "--preset", *words)
    assert said.code == 0, said.stderr[-3000:]
    results = json.loads((tmp_path / "runs" / "small" / "report" / "results.json").read_text(encoding="utf-8"))
    assert set(results["arms"]) == {"base", "other", "prompt_cot", "symbol", "sft", "sft_cpo"}
    assert results["narration"]["kept"] == results["narration"]["told"] > 0
    assert results["arms"]["other"]["tokens_per_problem"] == 7, "as the server counts"
    assert (tmp_path / "runs" / "small" / "model" / "README.md").is_file()


# --- a driver killed while somebody else narrates: minutes, run by `make faults`

SIZES = "sizes: {blocks: [3, 5], tables: [1, 2], robots: [1, 1], moves: [1, 4]}"
PROBLEMS = ", ".join(
    f"{{domain: blocks-{task}, level: smallest, {SIZES}, phase1: 10, phase2: 4, test: 12, n_draws: 300}}"
    for task in ("stack", "unstack")
)
QUOTA = "{tasks: [blocks-stack, blocks-unstack], problems: 4, lengths: [{up_to: 2, share: 1}, {up_to: 8, share: 1}]}"
TASKS = (f"problems.domains=[{PROBLEMS}]", f"tests={QUOTA}", "arms=[sft]")
"""Two tasks of one domain, tests of each by plan length, and no arm but that which learns what is narrated."""
TOLD = completion("<REASON>It serves the goal.</REASON>")


class Hesitant:
    """Answers some requests at once, one when all of these are due to be written, and no other until it may go on."""

    def __init__(self, n_at_once: int) -> None:
        self.answered, self.may_go_on = list[tuple[str, int]](), threading.Event()
        self._lock, self._left = threading.Lock(), n_at_once + 1

    def __call__(self, request: Request) -> tuple[int, Any]:
        with self._lock:
            self._left -= 1
            left = self._left
            if left >= 0:
                self.answered.append(what(request))
        if left == 0:
            time.sleep(WRITE_EVERY_S + 1)
        elif left < 0:
            self.may_go_on.wait()
        return 200, TOLD


def what(request: Request) -> tuple[str, int]:
    return request.prompt, request.body["seed"]


def start(folder: Path, name: str, given: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "pipelines" / "self_criteach.py"), "--preset", str(folder / "small.yaml")]
    command += ["--runs", str(folder / "runs"), "--name", name, *given]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_in_narration(process: subprocess.Popen[bytes], run: Path, server: Server) -> list[tuple[str, int]]:
    """Kill a driver while requests are under way, some of them answered and written; return those."""
    hesitant = Hesitant(n_at_once=6)
    server.reply = hesitant
    while not (written := list(run.glob("artifacts/narrate-*.partial/shards/rows-*.parquet"))):
        assert process.poll() is None, "it had ended before: nothing was struck"
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    hesitant.may_go_on.set()
    assert len(Shards(written[0].parent, "rows", RolloutRow).merged_rows()) == len(hesitant.answered) == 7
    return hesitant.answered


def content_of(run: Path) -> dict[str, Any]:
    """Return the content of every file of every stage; of plans it is what they are, for they have times as well."""
    found = tables_of(run)
    for artifact in complete_artifacts(run / "artifacts"):
        if artifact.manifest.provenance.kind == StageKind.PLANS:
            rows = [replace(row, wall_time_s=0.0) for row in artifact.rows(PlanRow)]
            found[f"{artifact.manifest.provenance.stage}/rows.parquet"] = rows
    return found


@pytest.mark.faults
def test_driver_killed_while_a_server_narrates_asks_nothing_again_that_was_answered_and_ends_as_a_calm_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    base, runs = qwen3_checkpoint(tmp_path / "base"), tmp_path / "runs"
    with serving(lambda _: (200, TOLD)) as server:
        narrator = f"narrator={{kind: model, by: step, speaker: {{url: '{server.url}', model: {MODEL}}}}}"
        given = [word for one in (f"model.folder={base}", narrator, *TASKS) for word in ("--set", one)]
        assert start(tmp_path, "calm", given).wait() == 0
        asked_calmly = [what(request) for request in server.requests]
        server.requests.clear()
        answered = kill_in_narration(start(tmp_path, "struck", given), runs / "struck", server)
        n_under_way = len(server.requests) - len(answered)
        server.requests.clear()
        server.reply = lambda _: (200, TOLD)
        assert start(tmp_path, "struck", given).wait() == 0
        asked_again = [what(request) for request in server.requests]
    assert n_under_way > 0
    assert not {*asked_again} & {*answered}
    assert sorted([*answered, *asked_again]) == sorted(asked_calmly)
    calm, struck = (content_of(runs / name) for name in ("calm", "struck"))
    assert {"narrate/rows.parquet", "keep_narrations/chains.parquet", "sft/curve.parquet"} <= calm.keys()
    assert [name for name in calm if struck[name] != calm[name]] == [] and struck.keys() == calm.keys()
    first, second = (json.loads((runs / n / "report" / "results.json").read_text()) for n in ("calm", "struck"))
    for part in ("arms", "narration", "library", "problems"):
        assert second[part] == first[part], part
    assert {task: figures["n"] for task, figures in first["arms"]["sft"]["by_task"].items()} == {
        "blocks-stack": 4, "blocks-unstack": 4, "blocks-hard": 8
    }  # fmt: skip


# --- a driver killed while a server writes the domain, and between updates of the policy

REINFORCED = """
base: smoke
arms: [cpo_only]
cpo: {updates: 3}
planner: {time_limit_s: 60, kill_after_s: 600}  # so that no machine is too busy for a plan
evaluation: {noise_rates: []}
"""
BLOCKS = load_domain("blocks-classic").domain


def write_or_mend(request: Request) -> tuple[int, Any]:
    """Answer with a domain that forgets an effect, or the whole one where what is wrong is told."""
    actions = tuple(replace(a, effects=a.effects[1:]) if a.name == "stack" else a for a in BLOCKS.actions)
    is_told = "What is wrong with it" in request.prompt
    return 200, completion(print_domain(BLOCKS if is_told else replace(BLOCKS, actions=actions)))


def kill_once(process: subprocess.Popen[bytes], is_due: Callable[[], bool]) -> None:
    while not is_due():
        assert process.poll() is None, "it had ended before: nothing was struck"
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL


@pytest.mark.faults
def test_driver_killed_while_a_server_writes_the_domain_and_between_updates_of_cpo_ends_as_a_calm_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.yaml").write_text(REINFORCED, encoding="utf-8")
    runs, may_go_on = tmp_path / "runs", threading.Event()

    def hesitate(request: Request) -> tuple[int, Any]:
        if len(server.requests) > 2:
            may_go_on.wait()
        return write_or_mend(request)

    with serving(write_or_mend) as server:
        domain = f"{{writer: model, turns: 2, candidates: 4, speaker: {{url: '{server.url}', model: {MODEL}}}}}"
        given = ["--set", f"domain={domain}"]
        assert start(tmp_path, "calm", given).wait() == 0
        server.requests.clear()
        server.reply = hesitate
        kill_once(start(tmp_path, "struck", given), lambda: len(server.requests) > 2)
        assert list(runs.glob("struck/artifacts/write_domain_*.partial")), "it died while the domain was written"
        may_go_on.set()
        server.reply = write_or_mend
        updated = "struck/artifacts/cpo_only-*.partial/scratch/updates/update-000001/record.json"
        kill_once(start(tmp_path, "struck", given), lambda: bool(list(runs.glob(updated))))
        assert start(tmp_path, "struck", given).wait() == 0
    calm, struck = (
        {file: held for file, held in content_of(runs / name).items() if not file.endswith("/times.parquet")}
        for name in ("calm", "struck")
    )
    assert {"write_domain_blocks-classic/rows.parquet", "prune_domain_blocks-classic/first.parquet"} <= calm.keys()
    assert [name for name in calm if struck[name] != calm[name]] == [] and struck.keys() == calm.keys()
    first, second = (json.loads((runs / n / "report" / "results.json").read_text()) for n in ("calm", "struck"))
    for results in (first, second):
        of_loop = results["cpo"]["cpo_only"]
        results["cpo"] = {name: values for name, values in of_loop.items() if not name.startswith("time/")}
    for part in ("arms", "domain", "library", "cpo"):
        assert second[part] == first[part], part
    [found] = first["domain"].values()
    assert found["first_go"]["reference_plans"] < found["pruned"]["reference_plans"] == 1.0
    assert len(first["cpo"]["cpo/cost"]) == 3

"""`make gpu-check`: its rehearsal without a GPU, and what it says where there is none or losses differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import ROOT

WITHOUT_RAY_AND_VLLM = """
import sys
sys.modules["ray"] = sys.modules["vllm"] = None
sys.path.insert(0, "benchmarks")
import gpu_check
sys.exit(gpu_check.main(sys.argv[1:]))
"""


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gpu_check  # type: ignore[import-not-found]

    module: ModuleType = gpu_check
    return module


@pytest.mark.long
def test_rehearsal_without_ray_and_vllm_finds_that_everything_agrees(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, "-c", WITHOUT_RAY_AND_VLLM, "--device", "cpu", "--out", str(out)]
    # trainers of other tests in this process leave their rank behind, and TRL would wait for the others
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table, _, last = done.stdout.rstrip().rpartition("\n")
    found = json.loads(last)
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert found["device"] == "no GPU: a rehearsal"
    rows = [item for item in found["findings"] if item["is_met"] is not None]
    checked = [item["what"] for item in rows if item["model"] == "Llama"]
    assert len(checked) == 14 and checked == [item["what"] for item in rows if item["model"] == "Qwen3"]
    assert all(item["is_met"] for item in rows) and "NO" not in table.split()
    [loss] = [item for item in rows if item["model"] == "loss"]
    assert loss["what"] == "memory, 128,256 words, 4,096 tokens" and loss["expected"] == "at most 501"
    told = [item["what"] for item in found["findings"] if item["is_met"] is None]
    assert told == ["training, ours", "training, TRL's SFTTrainer", "vLLM is not installed",
                    "vLLM or Ray is not installed"]  # fmt: skip


@pytest.mark.long
def test_engine_says_what_the_trainer_says_before_and_after_it_took_over_what_was_trained(
    gpu_check: ModuleType,
) -> None:
    found = list(gpu_check.check_engines("cpu"))
    rows = [item for item in found if item.is_met is not None]
    assert len(rows) == 2 * 2 * 3 and all(item.is_met for item in rows)
    assert {item.model for item in rows} == {"Llama", "Qwen3"}
    assert [item.what for item in found if item.is_met is None] == [
        "engine, all weights: writing", "engine, adapter: writing"
    ] * 2  # fmt: skip


@pytest.mark.long
def test_whole_run_of_one_iteration_ends_and_learns(gpu_check: ModuleType) -> None:
    ended, loss, speed = gpu_check.check_run("cpu")
    assert (ended.model, ended.expected, ended.is_met) == ("smoke", "exit code 0", True)
    assert (loss.what, loss.is_met) == ("loss of phase 1", True)
    assert (speed.what, speed.is_met) == ("phase 1", None)


def test_run_that_fails_is_told_with_what_it_said(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import run_check  # type: ignore[import-not-found]

    monkeypatch.setitem(run_check.RUNS, "cpu", ("no-such-preset", ()))
    [found] = gpu_check.check_run("cpu")
    assert found.is_met is False
    assert "no-such-preset" in found.measured


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_ends_with_code_2_and_says_so(
    gpu_check: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_check.main([]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: no GPU that torch can use\n")
    assert "rehearse with --device cpu" in said.err


@pytest.mark.parametrize(
    ("losses", "is_met"),
    [([5.0, 4.0, 3.0, 2.0], True), ([5.0, 4.0, 3.0, 2.001], False), ([5.0, 5.0, 5.0, 5.0], False)],
    ids=["equal", "other", "without a step"],
)
def test_losses_must_be_those_of_the_cpu_and_must_have_moved(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, losses: list[float], is_met: bool
) -> None:
    def losses_of(_folder: Path, _size: Any, device: str, *_others: Any) -> list[float]:
        return losses if device == "device" or losses[-1] == losses[0] else [5.0, 4.0, 3.0, 2.0]

    monkeypatch.setattr(gpu_check, "losses_of", losses_of)
    monkeypatch.setattr(gpu_check, "write_model", lambda *_: tmp_path)
    found = list(gpu_check.compare("Llama", gpu_check.SIZES["cpu"], "device"))
    assert [item.is_met for item in found if item.expected == "at most 0.0001"] == [is_met] * 8


@pytest.mark.parametrize(("way", "is_met"), [(9.5, True), (3.0, False)], ids=["far", "near"])
def test_what_is_rounded_may_differ_by_more_where_losses_moved_far(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: float, is_met: bool
) -> None:
    def losses_of(_folder: Path, _size: Any, device: str, *_others: Any) -> list[float]:
        return [way + 1.02, 1.02] if device == "device" else [way + 1, 1.0]

    monkeypatch.setattr(gpu_check, "losses_of", losses_of)
    monkeypatch.setattr(gpu_check, "write_model", lambda *_: tmp_path)
    found = {item.what: item.is_met for item in gpu_check.compare("Llama", gpu_check.SIZES["cpu"], "device")}
    assert found["bfloat16"] is found["adapter, bfloat16"] is is_met and not found["float32"]


def test_table_with_a_difference_ends_with_code_1(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [gpu_check.Finding("Llama", "ZeRO 3", "1.0e-01 of 2.00", "at most 0.0001", False)]
    monkeypatch.setattr(gpu_check, "_findings", lambda _: iter(found))
    assert gpu_check.main(["--device", "cpu"]) == 1
    assert "NO" in capsys.readouterr().out

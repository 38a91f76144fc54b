"""When the loop stops, and which policy is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.run.workers import MODEL, PROBE, Probe
from pipelines.stages.kept_policy import best_iteration, is_still_gaining, keep_policy
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.rows import VerdictRow
from plansmith.report.arms import CHOSEN, chosen_iteration
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext


def artifact_of(root: Path, name: str, key: str, *rows: Any) -> Artifact:
    """Return an artifact with one table of the given rows."""
    writer = ArtifactWriter(root, name, key)
    writer.write_rows(rows, type(rows[0]))
    return writer.finish(Provenance(name, key, {}, {}, 0), wall_time_s=0.0)


def probes(root: Path, *accuracies: float) -> dict[str, Artifact]:
    """Return the judged probe sets, of four problems each, of the policies 0, 1, ..."""
    return {
        f"judge_probe_{t}": artifact_of(root, f"judge_probe_{t}", f"{t}" * 40, *(
            VerdictRow(f"r{i}", f"p{i}", t, "v", "valid" if i < 4 * accuracy else "malformed_plan", "", None, None, (),
                       (), "")
            for i in range(4)
        ))
        for t, accuracy in enumerate(accuracies)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("accuracies", "patience", "expected"),
    [
        ([0.5], 1, True),
        ([0.5, 0.75], 1, True),
        ([0.5, 0.5], 1, False),
        ([0.5, 0.5], 2, True),
        ([0.5, 0.25, 0.5], 2, False),
        ([0.5, 0.25, 0.75], 2, True),
    ],
)
def test_is_still_gaining_stops_after_so_many_iterations_without_a_gain(
    tmp_path: Path, accuracies: list[float], patience: int, expected: bool
) -> None:
    done = probes(tmp_path, *accuracies)
    assert is_still_gaining(done, iteration=len(accuracies), patience=patience) is expected


def test_best_iteration_of_equal_ones_is_the_first() -> None:
    assert best_iteration({0: 0.5, 1: 0.75, 2: 0.75, 3: 0.25}) == 1


def keeping(tmp_path: Path, **inputs: Artifact) -> Artifact:
    """Return what the stage `final_policy` makes of its inputs."""
    stage = Stage(name="final_policy", run=keep_policy)
    writer = ArtifactWriter(tmp_path / "kept", stage.name, stage.key)
    keep_policy(StageContext(stage, inputs, writer, Resources()))
    return writer.finish(Provenance(stage.name, stage.key, {}, {}, 0), wall_time_s=0.0)


def policies(root: Path, count: int) -> dict[str, Artifact]:
    """Return artifacts of `count` policies, told apart by their probes."""
    found = {}
    for t in range(count):
        writer = ArtifactWriter(root, f"stage2_{t}", f"{t}" * 40)
        writer.path(MODEL).mkdir()
        (writer.path(MODEL) / "config.json").write_text(f'{{"t": {t}}}', encoding="utf-8")
        Probe((t,), (0.0,)).write(writer.path(PROBE))
        found[f"policy_{t}"] = writer.finish(Provenance("stage2", f"{t}" * 40, {}, {}, 0), wall_time_s=0.0)
    return found


def test_keep_policy_without_a_probe_set_keeps_the_last(tmp_path: Path) -> None:
    kept = keeping(tmp_path, **policies(tmp_path, 3))
    assert chosen_iteration(kept) == 2
    assert json.loads((kept.path(MODEL) / "config.json").read_text(encoding="utf-8")) == {"t": 2}
    assert Probe.read(kept.path(PROBE)).token_ids == (2,)


def test_keep_policy_with_a_probe_set_keeps_the_best(tmp_path: Path) -> None:
    judged = {name.removeprefix("judge_"): artifact for name, artifact in probes(tmp_path, 0.25, 1.0, 0.5).items()}
    kept = keeping(tmp_path, **policies(tmp_path, 3), **judged)
    assert chosen_iteration(kept) == 1
    assert json.loads((kept.path(MODEL) / "config.json").read_text(encoding="utf-8")) == {"t": 1}
    record = json.loads(kept.path(CHOSEN).read_text(encoding="utf-8"))
    assert record["probe_accuracy"] == {"0": 0.25, "1": 1.0, "2": 0.5}


def test_probe_survives_its_file(tmp_path: Path) -> None:
    probe = Probe((1, 2, 3), (-0.5, -1.25, 0.0))
    probe.write(tmp_path / PROBE)
    assert Probe.read(tmp_path / PROBE) == probe
    assert replace(probe, token_ids=(1, 2, 4)) != probe

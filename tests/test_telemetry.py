"""The windows of a run: what is written where, once only, and that none of them stops a run."""

from __future__ import annotations

import importlib
import json
import logging
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import actors.telemetry as ray_metrics
from actors.telemetry import RayListener, exported_name, is_recording, record, tag_keys
from pipelines.run.telemetry import RunGauges, Telemetry
from pipelines.run.telemetry_sinks import Point, TensorBoardSink, WandbSink, points_of, tag_of
from plansmith.config.telemetry import TelemetryConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance, StageKind
from plansmith.data.rows import MetricRow, OptimisationStepRow
from plansmith.errors import ConfigError
from plansmith.live import LiveFile
from plansmith.report.metric_list import METRICS, Measurement
from plansmith.stages import Stage, StageContext, run_stages


def config_of(**settings: Any) -> Any:
    """Return settings of a run that has a name and windows, as the command gives them."""
    telemetry = TelemetryConfig(**settings)
    plain = {"name": "by-hand", "telemetry": telemetry.model_dump()}
    return SimpleNamespace(name="by-hand", telemetry=telemetry, model_dump=lambda *, mode: plain)


def training(losses: Sequence[float]) -> Any:
    """Return the function of a stage that leaves a training curve."""

    def run(context: StageContext) -> None:
        rows = [OptimisationStepRow(step, loss, 0.5, 1.0) for step, loss in enumerate(losses, 1)]
        context.output.write_rows(rows, OptimisationStepRow, table="curve")
        metrics = [MetricRow(context.stage.name, 0, "", "", "training/n_tokens", 70.0)]
        context.output.write_rows(metrics, MetricRow, table="metrics")

    return run


def stage_of(name: str, iteration: int, run: Any = None, settings: Any = None) -> Stage[Any]:
    """Return a stage that optimises, or with no body one that ends without a table."""
    labels, body = {"objective": "reasoning"}, run or (lambda context: None)
    told = {"kind": StageKind.OPTIMISES, "iteration": iteration, "labels": labels}
    return Stage(name=name, run=body, settings=settings, **told)


def train(root: Path, losses: Sequence[float] = (3.0, 2.0), **settings: Any) -> None:
    """Run one stage under the telemetry of its settings, as the command does."""
    stage = stage_of("stage1_2", 2, training(losses), {"losses": list(losses)})
    with Telemetry(config_of(**settings), root) as telemetry:
        run_stages([stage], root=root / "artifacts", observers=[telemetry])


def points_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return every point of a TensorBoard folder as TensorBoard itself reads it."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def artifact(root: Path, name: str = "stage1_2") -> Artifact:
    writer = ArtifactWriter(root, name, name.encode().hex().ljust(64, "0"))
    return writer.finish(Provenance(name, name.encode().hex().ljust(64, "0"), {}, {}, 0), wall_time_s=1.0)


# --- points


@pytest.mark.parametrize(
    ("measurement", "tag", "step"),
    [
        (Measurement("rollout/valid_plan_rate", 0.5, 3), "rollout/valid_plan_rate", 3),
        (
            Measurement("evaluation/accuracy", 0.5, 2, {"level": "4 blocks", "arm": "iteration_2"}, series="loop"),
            "evaluation/accuracy/level/4 blocks",
            2,
        ),
        (Measurement("evaluation/accuracy", 0.5, 0, {"arm": "phase1"}, series="loop"), "evaluation/accuracy", 0),
        (Measurement("evaluation/accuracy", 0.5, 0, {"arm": "untrained"}), "evaluation/accuracy/arm/untrained", 0),
        (Measurement("stage/wall_time_s", 9, 2, {"stage": "judge_2"}), "stage/wall_time_s/stage/judge", 2),
        (
            Measurement("stage/wall_time_s", 9, 2, {"stage": "judge_iteration_2"}),
            "stage/wall_time_s/stage/judge_iteration",
            2,
        ),
        (Measurement("feedback/accuracy", 0.5, 0, {"turn": "2"}), "feedback/accuracy", 2),
        (
            Measurement("train/loss", 1.0, 2, {"stage": "stage2_2"}, step=7),
            "train/loss/stage/stage2/iteration_2",
            7,
        ),
        (Measurement("train/loss", 1.0, 0, {"stage": "sft_3"}, step=7), "train/loss/stage/sft_3", 7),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_point_has_the_iteration_or_the_step_as_its_place(measurement: Measurement, tag: str, step: int) -> None:
    assert points_of([measurement]) == [Point(tag, measurement.value, step)]


def test_points_leave_out_what_is_no_number_and_what_only_names_a_version() -> None:
    version = {"stage": "phase1", "policy_version": "abc"}
    lost = [Measurement("probe/accuracy", float("nan")), Measurement("policy/version", 1, labels=version)]
    assert points_of(lost) == []


def test_tags_of_two_stages_of_one_iteration_differ() -> None:
    stages = ("judge_2", "judge_iteration_2", "judge_probe_2", "probe_2", "try_iteration_2", "stage1_2", "stage2_2")
    tags = {tag_of(Measurement("stage/wall_time_s", 1, 2, {"stage": stage})) for stage in stages}
    assert len(tags) == len(stages)


# --- TensorBoard


def test_tensorboard_shows_curves_by_step_and_figures_by_iteration(tmp_path: Path) -> None:
    train(tmp_path)
    points = points_in(tmp_path / "tensorboard")
    assert points["train/loss/stage/stage1/iteration_2"] == [(1, 3.0), (2, 2.0)]
    assert points["training/n_tokens/stage/stage1"] == [(2, 70.0)]
    assert points["training/steps/stage/stage1"] == [(2, 2.0)]


def test_tensorboard_of_a_resumed_run_has_every_point_once(tmp_path: Path) -> None:
    train(tmp_path)
    before = points_in(tmp_path / "tensorboard")
    train(tmp_path)
    assert points_in(tmp_path / "tensorboard") == before
    assert len(before) > 5


def test_tensorboard_of_a_stage_made_anew_has_the_new_points_too(tmp_path: Path) -> None:
    train(tmp_path)
    train(tmp_path, losses=[3.0, 1.5])
    points = points_in(tmp_path / "tensorboard")
    assert points["train/loss/stage/stage1/iteration_2"] == [(1, 3.0), (2, 2.0), (2, 1.5)]
    assert points["training/n_tokens/stage/stage1"] == [(2, 70.0)]


@pytest.mark.parametrize("fault", ["cut off", "flipped"])
def test_tensorboard_file_with_a_damaged_end_is_completed_by_the_next_session(tmp_path: Path, fault: str) -> None:
    train(tmp_path)
    whole = points_in(tmp_path / "tensorboard")
    [path] = (tmp_path / "tensorboard").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-20] if fault == "cut off" else content[:-20] + b"?" + content[-19:])
    assert points_in(tmp_path / "tensorboard") != whole
    train(tmp_path)
    assert points_in(tmp_path / "tensorboard") == whole


def test_tensorboard_dates_points_by_when_their_stage_was_finished(tmp_path: Path) -> None:
    made = artifact(tmp_path / "artifacts")
    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write([Point("a", 1.0, 4)], made)
    sink.close()
    [event] = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("a")
    assert (event.step, event.wall_time) == (4, datetime.fromisoformat(made.manifest.created).timestamp())


def test_tensorboard_switched_off_writes_nothing(tmp_path: Path) -> None:
    train(tmp_path, tensorboard=False)
    assert not (tmp_path / "tensorboard").exists()


# --- a window that fails


def test_window_that_cannot_be_written_is_said_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "tensorboard"
    folder.write_text("a file where the folder should be", encoding="utf-8")
    stages = [stage_of(f"stage1_{t}", t, training([1.0 * t])) for t in (1, 2, 3)]
    with Telemetry(config_of(), tmp_path) as telemetry:
        done = run_stages(stages, root=tmp_path / "artifacts", observers=[telemetry])
    assert len(done) == 3
    assert [r.message for r in caplog.records if "gets no more figures" in r.message] == [
        f"TensorBoard gets no more figures of this run: FileExistsError: [Errno 17] File exists: '{folder}'"
    ]


def test_figures_that_cannot_be_read_are_said_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stages = [stage_of("phase1", 0), stage_of("stage1_1", 1, training([1.0]))]
    with Telemetry(config_of(), tmp_path) as telemetry:
        run_stages(stages, root=tmp_path / "artifacts", observers=[telemetry])
    assert "the figures of stage phase1 cannot be shown" in caplog.text
    assert "curve.parquet" in caplog.text
    assert "train/loss/stage/stage1/iteration_1" in points_in(tmp_path / "tensorboard")


# --- Weights & Biases


def wandb_rows(folder: Path) -> list[dict[str, float]]:
    """Return what an offline run logged, read from its file: LevelDB's log format after seven bytes of head."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for path in sorted(folder.rglob("*.wandb")):
        for raw in _log_records(path.read_bytes()):
            items = Record.FromString(raw).history.item
            if items:
                rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def _log_records(content: bytes) -> Iterator[bytes]:
    position, parts = 7, b""
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, size, kind = struct.unpack("<IHB", content[position : position + 7])
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_wandb_offline_gets_every_point_once_over_two_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for first in (1, 2):  # the second session finds stage 1 written
        sink = WandbSink(tmp_path, name="by-hand", project="p", config={"seed": 3})
        for number in range(1, first + 1):
            made = artifact(tmp_path / f"artifacts{first}", f"stage1_{number}")
            sink.write([Point("train/loss", 0.5 * number, 1), Point("train/loss", 0.25, 2)], made)
        sink.close()
    rows = [{"at": row["at"], "train/loss": row["train/loss"]} for row in wandb_rows(tmp_path / "wandb")]
    assert rows == [
        {"at": 1, "train/loss": 0.5},
        {"at": 2, "train/loss": 0.25},
        {"at": 1, "train/loss": 1.0},
        {"at": 2, "train/loss": 0.25},
    ]
    ids = {path.name.rpartition("-")[2] for path in (tmp_path / "wandb").glob("offline-run-*")}
    assert ids == {json.loads((tmp_path / "wandb.json").read_text(encoding="utf-8"))["id"]}


def test_wandb_asked_for_but_not_installed_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as Python says that there is none
    with pytest.raises(ConfigError, match="Weights & Biases is not installed") as caught:
        Telemetry(config_of(wandb_project="p"), tmp_path)
    assert "pip install 'plansmith[wandb]'" in str(caught.value)


def test_wandb_not_asked_for_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError):
        importlib.import_module("wandb")
    assert [type(sink).__name__ for sink in Telemetry(config_of(), tmp_path)._sinks] == ["TensorBoardSink"]


# --- Ray metrics, without a Ray


def test_record_outside_ray_imports_no_ray_and_does_nothing() -> None:
    code = (
        "import sys; from actors.telemetry import record; record('train/loss', 1.0, objective='final');"
        "sys.exit('ray' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_nothing_is_recorded_while_another_thread_is_importing_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    assert not is_recording()


def test_record_of_an_unknown_name_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no metric is named 'train/los'"):
        record("train/los", 1.0)


def test_record_with_a_label_its_metric_lacks_is_a_bug() -> None:
    with pytest.raises(ValueError, match=r"probe/accuracy has labels \('run', 'iteration'\), not \['arm'\]"):
        record("probe/accuracy", 1.0, arm="final")


def test_exported_names_are_unique_and_counters_end_in_total() -> None:
    names = [exported_name(metric) for metric in METRICS.values()]
    assert len(set(names)) == len(names)
    assert exported_name(METRICS["rollout/finished"]) == "ray_plansmith_rollout_finished_total"
    assert exported_name(METRICS["train/loss"]) == "ray_plansmith_train_loss"
    assert tag_keys(METRICS["train/loss"]) == ("run", "objective", "stage")
    assert tag_keys(METRICS["loop/kept_iteration"]) == ("run", "iteration")


Recorded = list[tuple[str, float, Mapping[str, str]]]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Every number that reaches Ray, for tests without one."""
    found: Recorded = []

    def note(name: str, value: float, **tags: str) -> None:
        found.append((name, value, tags))

    conductor = sys.modules[RunGauges.__module__]
    for module in (ray_metrics, conductor):
        monkeypatch.setattr(module, "record", note)
    monkeypatch.setattr(conductor, "is_recording", lambda: True)
    return found


def test_listener_counts_finished_rollouts_once_over_several_works(recorded: Recorded) -> None:
    listener = RayListener("by-hand", "policy-0")
    for done, total in [(0, 8), (3, 8), (8, 8), (0, 4), (4, 4)]:
        listener.update("rolling out", done, total, unit="rollout", values=None)
    listener.update("training", 5, 9, unit="step", values={"train/loss": 2.0})
    assert sum(value for name, value, _ in recorded if name == "rollout/finished") == 12
    assert [value for name, value, _ in recorded if name == "train/loss"] == [2.0]


def test_listener_with_a_figure_that_is_no_metric_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no metric is named 'train/speed'"):
        RayListener("by-hand", "trainer").update("training", 1, 2, unit="step", values={"train/speed": 1.0})


def test_gauges_of_the_run_show_one_stage_at_a_time(tmp_path: Path, recorded: Recorded) -> None:
    gauges = RunGauges("by-hand", tmp_path)
    gauges.started(stage_of("roll_out_2", 2), number=3, count=9)
    gauges.started(stage_of("judge_2", 2), number=4, count=9)
    gauges.stop()
    latest = {(name, tags.get("stage")): value for name, value, tags in recorded}
    assert (latest["run/stage", "roll_out_2"], latest["run/stage", "judge_2"]) == (0, 0)
    assert ("run/stage", 1, {"run": "by-hand", "stage": "judge_2"}) in recorded
    assert (latest["run/stage_number", None], latest["run/stage_count", None]) == (4, 9)
    assert (latest["run/iteration", None], latest["run/is_active", None]) == (2, 0)


def test_gauges_of_the_run_show_the_newest_policy_version_only(tmp_path: Path, recorded: Recorded) -> None:
    gauges = RunGauges("by-hand", tmp_path)
    for number, version in [(1, "aaa"), (1, "bbb"), (2, "ccc")]:
        labels = {"stage": f"stage1_{number}", "policy_version": version}
        gauges.measured([Measurement("policy/version", 1, number, labels)])
    latest = {tags["policy_version"]: value for name, value, tags in recorded if name == "run/policy_version"}
    assert latest == {"aaa": 0, "bbb": 0, "ccc": 1}


def test_gauges_of_the_run_leave_curves_to_the_trainer(tmp_path: Path, recorded: Recorded) -> None:
    gauges = RunGauges("by-hand", tmp_path)
    gauges.measured(
        [Measurement("train/loss", 1.0, 2, {"stage": "stage2_2"}, step=1), Measurement("probe/accuracy", 1)]
    )
    assert recorded == [("probe/accuracy", 1, {"run": "by-hand", "iteration": "0"})]


def test_gauges_of_the_run_date_movement_when_it_is_seen(tmp_path: Path, recorded: Recorded) -> None:
    gauges, file = RunGauges("by-hand", tmp_path), LiveFile(tmp_path, "policy-0")
    file.update("rolling out", 2, 8, unit="rollout")
    gauges.look()
    assert [(n, v) for n, v, _ in recorded if n != "run/last_movement"] == [("work/done", 2), ("work/total", 8)]
    seen = [value for name, value, _ in recorded if name == "run/last_movement"]
    gauges.look()  # nothing has moved since
    assert [value for name, value, _ in recorded if name == "run/last_movement"] == seen
    file.update("judging", 0, 8)
    gauges.look()
    assert len([name for name, _, _ in recorded if name == "run/last_movement"]) == len(seen) + 1 == 2


def test_gauges_of_the_run_are_all_recorded_anew_because_ray_forgets(tmp_path: Path, recorded: Recorded) -> None:
    gauges = RunGauges("by-hand", tmp_path)
    gauges.started(stage_of("judge_2", 2), number=4, count=9)
    gauges.measured([Measurement("probe/accuracy", 0.5, 2), Measurement("probe/accuracy", 0.75, 2)])
    latest = {(name, tuple(sorted(tags.items()))): value for name, value, tags in recorded}
    recorded.clear()
    gauges.refresh()
    assert {(name, tuple(sorted(tags.items()))): value for name, value, tags in recorded} == latest
    assert len(recorded) == len(latest) == 6


def test_telemetry_without_ray_keeps_what_ray_is_to_hear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        train(tmp_path, tensorboard=False)
    assert caplog.text == ""

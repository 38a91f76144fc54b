"""The stage graph: keys, reuse, resume after SIGKILL at any moment, damage, the lock, and disks that refuse."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from plansmith.data.artifacts import Artifact, ArtifactWriter, StageKind, complete_artifacts
from plansmith.data.rows import MetricRow
from plansmith.data.storage import run_lock, storage_errors
from plansmith.errors import ArtifactError, BadInputError, LostWorkerError
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext, StagePreview, StageStatus, preview_stages, row_seed, run_stages

ROOT = Path(__file__).resolve().parent.parent

SCRIPT_HEAD = """
import os, signal, sys, time
from pathlib import Path
from plansmith.data.rows import MetricRow
from plansmith.errors import BadInputError
from plansmith.stages import Stage, run_stages

N_ROWS = 6
root, log = Path(sys.argv[1]), Path(sys.argv[2])

def note(text):
    with log.open("a") as file:
        file.write(text + "\\n")

def metric(name, value=0.0):
    return MetricRow("s", 0, "d", "l", name, value)

def first(context):
    note("first")
    context.output.write_rows([metric(f"r{i}", float(i)) for i in range(N_ROWS)], MetricRow)

def second(context):
    shards = context.output.shards("rows", MetricRow)
    done = shards.finished_ids("name")
    for row in reversed(context.inputs["given"].rows(MetricRow)):
        if row.name not in done:
            note(f"second {row.name}")
            shards.append([metric(row.name, context.rng(row.name).random())])
            if len(sys.argv) > 3 and sys.argv[3] == "block" and len(shards.files()) == 2:
                Path(sys.argv[4]).touch()
                time.sleep(600)

def third(context):
    note("third")
    model = context.output.path("model")
    model.mkdir()
    (model / "weights").write_text(str(sum(row.value for row in context.inputs["given"].rows(MetricRow))))
    if len(sys.argv) > 3 and sys.argv[3] == "block third":
        Path(sys.argv[4]).touch()
        time.sleep(600)

one = Stage(name="one", run=first, seed=7)
two = Stage(name="two", run=second, seed=7, inputs={"given": one})
three = Stage(name="three", run=third, seed=7, inputs={"given": two})
"""
SCRIPT_RUN = SCRIPT_HEAD + "run_stages([one, two, three], root=root)\n"


def metric(name: str, value: float = 0.0) -> MetricRow:
    return MetricRow("s", 0, "d", "l", name, value)


def nothing(context: StageContext) -> None:
    context.output.write_rows([metric(context.stage.name)], MetricRow)


def counted(calls: list[str]) -> Callable[[StageContext], None]:
    def run(context: StageContext) -> None:
        calls.append(context.stage.name)
        nothing(context)

    return run


def command(tmp_path: Path, script: str, *arguments: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    return [sys.executable, str(path), str(tmp_path / "run"), str(tmp_path / "log"), *arguments]


def run_script(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(tmp_path, script, *arguments), env=environment, capture_output=True, text=True, check=False
    )


def kill_when_blocked(tmp_path: Path, where: str) -> None:
    blocked = tmp_path / "blocked"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command(tmp_path, SCRIPT_RUN, where, str(blocked)), env=environment)
    while not blocked.exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def log_lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().split("\n")[:-1]


def artifact_of(root: Path, name: str) -> Artifact:
    return next(artifact for artifact in complete_artifacts(root) if artifact.manifest.provenance.stage == name)


def content(root: Path) -> dict[str, dict[str, str]]:
    """Return the sha256 of every file of every artifact."""
    return {
        artifact.manifest.provenance.stage: {name: entry.sha256 for name, entry in artifact.manifest.files.items()}
        for artifact in complete_artifacts(root)
    }


# --- keys


class Limits(BaseModel):
    time_limit_s: float = 30.0


@dataclasses.dataclass(frozen=True)
class Level:
    n_blocks: int


BASE = Stage(name="s", run=nothing, settings={"n": 3, "limits": Limits(), "level": Level(4)}, seed=1)


def test_key_is_the_same_in_every_process_and_on_every_day() -> None:
    assert BASE.key == "c603246cc24d337ce1996761cc899b581cda8b345e8dd7c686b892971576bb9e"


def test_key_does_not_depend_on_order_of_settings_or_container_kind() -> None:
    settings = {"level": {"n_blocks": 4}, "limits": {"time_limit_s": 30.0}, "n": 3}
    assert Stage(name="s", run=counted([]), settings=settings, seed=1).key == BASE.key
    assert (
        Stage(name="s", run=nothing, settings={"a": (1, 2)}).key
        == Stage(name="s", run=nothing, settings={"a": [1, 2]}).key
    )


@pytest.mark.parametrize(
    "change",
    [
        {"name": "t"},
        {"code_roots": ("plansmith.text.chains.VALID",)},
        {"seed": 2},
        {"settings": {"n": 4, "limits": Limits(), "level": Level(4)}},
        {"settings": {"n": 3, "limits": Limits(time_limit_s=31), "level": Level(4)}},
        {"settings": {"n": 3, "limits": Limits(), "level": Level(5)}},
        {"settings": {"n": "3", "limits": Limits(), "level": Level(4)}},
        {"inputs": {"a": Stage(name="a", run=nothing)}},
    ],
    ids=["name", "code", "seed", "number", "limit", "level", "type", "inputs"],
)
def test_key_depends_on_everything_declared(change: dict[str, Any]) -> None:
    assert dataclasses.replace(BASE, **change).key != BASE.key


def test_key_depends_on_the_settings_of_inputs_and_on_their_names() -> None:
    def downstream(n: int, name: str) -> str:
        early = Stage(name="a", run=nothing, settings={"n": n})
        middle = Stage(name="b", run=nothing, inputs={"x": early})
        return Stage(name="c", run=nothing, inputs={name: middle}).key

    assert len({downstream(1, "y"), downstream(2, "y"), downstream(1, "z")}) == 3


def test_stage_keeps_the_inputs_it_was_given_when_their_mapping_is_filled_further(tmp_path: Path) -> None:
    data = {"one": Stage(name="one", run=nothing)}
    data["two"] = Stage(name="two", run=nothing, inputs=data)
    assert set(data["two"].inputs) == {"one"}
    assert list(run_stages([data["two"]], root=tmp_path)) == ["one", "two"]


def test_manifest_has_the_cpu_seconds_of_this_process_and_of_row_workers_but_no_wait(tmp_path: Path) -> None:
    def work(context: StageContext) -> None:
        context.resources.worker_cpu_s += 5.0
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        time.sleep(2.0)
        nothing(context)

    lent = Resources()
    lent.worker_cpu_s = 100.0  # of stages before it
    manifest = run_stages([Stage(name="s", run=work)], root=tmp_path, resources=lent)["s"].manifest
    assert manifest.cpu_time_s is not None and 5.05 <= manifest.cpu_time_s < 6.5 < 5.0 + manifest.wall_time_s


def test_manifest_of_a_version_that_measured_no_cpu_seconds_is_read(tmp_path: Path) -> None:
    artifact = run_stages([Stage(name="s", run=nothing)], root=tmp_path)["s"]
    path = artifact.folder / "manifest.json"
    path.write_text(json.dumps({name: x for name, x in json.loads(path.read_text()).items() if name != "cpu_time_s"}))
    assert Artifact(artifact.folder).manifest.cpu_time_s is None


def test_key_ignores_settings_changed_after_construction() -> None:
    settings = {"n": [1]}
    stage = Stage(name="s", run=nothing, settings=settings)
    key = stage.key
    settings["n"].append(2)
    assert stage.key == key
    assert stage.settings_json == {"n": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "settings of stage 's', deep, item 1: set"),
        (object(), "object"),
        (float("nan"), "no nan"),
        ({1: 2}, "text"),
    ],
    ids=["set", "object", "nan", "number as name"],
)
def test_stage_with_settings_json_cannot_hold_names_the_setting(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Stage(name="s", run=nothing, settings={"deep": [1, value]})


# --- order, reuse, preview


def test_run_stages_runs_inputs_first_then_in_given_order_and_reuses_everything_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    a = Stage(name="a", run=counted(calls))
    b = Stage(name="b", run=counted(calls), inputs={"a": a})
    c = Stage(name="c", run=counted(calls))
    caplog.set_level(logging.INFO, logger="plansmith")
    artifacts = run_stages([c, b], root=tmp_path)
    assert calls == list(artifacts) == ["c", "a", "b"]
    again = run_stages([c, b], root=tmp_path)
    assert calls == ["c", "a", "b"]
    assert again["b"].folder == artifacts["b"].folder == tmp_path / f"b-{b.key[:12]}"
    assert again["b"].rows(MetricRow) == [metric("b")]
    assert [line for line in caplog.messages if "stage 3/3 b" in line] == [
        "stage 3/3 b: running",
        f"stage 3/3 b: done in {artifacts['b'].manifest.wall_time_s:.1f} s",
        "stage 3/3 b: reused",
    ]


def test_run_stages_with_one_setting_changed_runs_that_stage_and_what_follows_only(tmp_path: Path) -> None:
    calls: list[str] = []

    def graph(n: int) -> list[Stage]:
        a = Stage(name="a", run=counted(calls))
        b = Stage(name="b", run=counted(calls), settings={"n": n}, inputs={"a": a})
        return [a, b, Stage(name="c", run=counted(calls), inputs={"b": b})]

    run_stages(graph(1), root=tmp_path)
    run_stages(graph(2), root=tmp_path)
    assert calls == ["a", "b", "c", "b", "c"]
    run_stages(graph(1), root=tmp_path)
    assert calls == ["a", "b", "c", "b", "c"]


def test_run_stages_with_two_different_stages_of_one_name_is_refused(tmp_path: Path) -> None:
    stages = [Stage(name="a", run=nothing), Stage(name="a", run=nothing, settings={"n": 1})]
    with pytest.raises(ValueError, match="two different stages are named 'a'"):
        run_stages(stages, root=tmp_path)


def test_stage_gets_inputs_resources_seed_and_its_own_random_numbers(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(context: StageContext) -> None:
        seen.update(resources=context.resources, seed=context.seed, given=context.inputs["x"].rows(MetricRow))
        seen["draws"] = [context.rng("p1").random(), context.rng("p2").random(), context.rng("p1").random()]
        with context.progress(2, "looking") as bar:
            bar.update(2)

    a = Stage(name="a", run=nothing)
    lent = Resources()
    run_stages([Stage(name="b", run=look, inputs={"x": a}, seed=5)], root=tmp_path, resources=lent)
    assert (seen["resources"], seen["seed"], seen["given"]) == (lent, 5, [metric("a")])
    assert seen["draws"][0] == seen["draws"][2] != seen["draws"][1]


def test_row_seed_depends_on_each_argument_and_fits_a_column() -> None:
    seeds = [row_seed(1, "s", "a"), row_seed(2, "s", "a"), row_seed(1, "t", "a"), row_seed(1, "s", "a", 1)]
    seeds += [row_seed(1, "s", "a1"), row_seed(1, "s", "a", "1")]
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert row_seed(1, "s", "a") == seeds[0]


def test_preview_tells_reused_resuming_and_to_run_and_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "run"
    a = Stage(name="a", run=nothing)
    b = Stage(name="b", run=nothing, inputs={"x": a})
    c = Stage(name="c", run=nothing, inputs={"y": b, "z": a})
    assert [line.status for line in preview_stages([c], root)] == ["to run"] * 3
    assert not root.exists()
    run_stages([a], root=root)
    ArtifactWriter(root, "b", b.key).shards("rows", MetricRow).append([metric("r0")])
    before = sorted(root.rglob("*"))
    assert preview_stages([a, b, c], root) == [
        StagePreview("a", a.key, StageStatus.REUSED, ()),
        StagePreview("b", b.key, StageStatus.RESUMES, ("a",)),
        StagePreview("c", c.key, StageStatus.TO_RUN, ("b", "a")),
    ]
    assert sorted(root.rglob("*")) == before


def test_manifest_records_where_the_artifact_came_from(tmp_path: Path) -> None:
    a = Stage(name="a", run=nothing)
    b = Stage(
        name="b",
        run=nothing,
        settings={"limits": Limits()},
        inputs={"x": a},
        seed=3,
        code_roots=("plansmith.text.chains.VALID",),
    )
    folder = run_stages([b], root=tmp_path, tool_versions={"fast-downward": "24.06"})["b"].folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["provenance"]["settings"] == {"limits": {"time_limit_s": 30.0}}
    assert manifest["provenance"]["inputs"] == {"x": a.key}
    assert manifest["provenance"]["seed"] == 3
    assert manifest["provenance"]["code"].keys() == {"plansmith.text.chains"}
    assert manifest["provenance"]["tool_versions"]["fast-downward"] == "24.06"
    assert manifest["provenance"]["tool_versions"]["python"].startswith("3.")
    assert manifest["provenance"]["tool_versions"]["pyarrow"]
    entry = manifest["files"]["rows.parquet"]
    assert (entry["row_type"], entry["n_rows"], entry["columns"]["value"]) == ("MetricRow", 1, "double")
    assert entry["size_bytes"] == (folder / "rows.parquet").stat().st_size
    assert manifest["wall_time_s"] >= 0
    assert not manifest["was_resumed"]


# --- told to observers, and run again


@dataclasses.dataclass
class Witness:
    """Writes down what it hears."""

    heard: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)

    def started(self, stage: Stage, *, number: int, count: int) -> None:
        self.heard.append(("started", stage.name, number, count))

    def finished(self, stage: Stage, artifact: Artifact, inputs: dict[str, Artifact], *, was_reused: bool) -> None:
        self.heard.append(("finished", stage.name, artifact.key == stage.key, sorted(inputs), was_reused))


def test_run_stages_tells_observers_of_every_stage_that_is_due(tmp_path: Path) -> None:
    one = Stage(name="one", run=nothing)
    left_out = Stage(name="left_out", run=nothing, is_needed=lambda _: False)
    two = Stage(name="two", run=nothing, inputs={"given": one})
    run_stages([one], root=tmp_path)
    witness = Witness()
    run_stages([one, left_out, two], root=tmp_path, observers=[witness])
    assert witness.heard == [
        ("started", "one", 1, 3), ("finished", "one", True, [], True),
        ("started", "two", 3, 3), ("finished", "two", True, ["given"], False),
    ]  # fmt: skip


def losing(times: int, calls: list[str]) -> Callable[[StageContext], None]:
    """Return a stage that loses its worker so often, each time after it has finished one more shard."""

    def run(context: StageContext) -> None:
        shards = context.output.shards("rows", MetricRow)
        calls.append(f"{len(shards.files())} shards")
        shards.append([metric(f"r{len(calls)}")])
        if len(calls) <= times:
            raise LostWorkerError("a worker process was lost")

    return run


def test_stage_whose_worker_is_lost_runs_again_and_keeps_what_it_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    stage = Stage(name="one", run=losing(2, calls))
    artifact = run_stages([stage], root=tmp_path)["one"]
    assert calls == ["0 shards", "1 shards", "2 shards"]
    assert [row.name for row in artifact.rows(MetricRow)] == ["r1", "r2", "r3"]
    assert caplog.text.count("is run again") == 2


def test_stage_that_loses_its_workers_again_and_again_fails_and_keeps_what_it_finished(tmp_path: Path) -> None:
    calls: list[str] = []
    stage = Stage(name="one", run=losing(99, calls))
    with pytest.raises(LostWorkerError):
        run_stages([stage], root=tmp_path)
    assert len(calls) == 3
    assert [preview.status for preview in preview_stages([stage], tmp_path)] == [StageStatus.RESUMES]


def test_stage_with_an_error_of_its_own_is_not_run_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def run(context: StageContext) -> None:
        calls.append("run")
        raise BadInputError("no")

    with pytest.raises(BadInputError, match="no"):
        run_stages([Stage(name="one", run=run)], root=tmp_path)
    assert calls == ["run"]


# --- killed


def test_run_killed_between_shards_continues_without_repeating_them(tmp_path: Path) -> None:
    uninterrupted, killed = tmp_path / "a", tmp_path / "b"
    for folder in (uninterrupted, killed):
        folder.mkdir()
    assert run_script(uninterrupted, SCRIPT_RUN).returncode == 0
    kill_when_blocked(killed, "block")
    assert log_lines(killed) == ["first", "second r5", "second r4"]
    assert {path.name.split("-")[0] for path in (killed / "run").iterdir()} == {".lock", "one", "two"}
    assert run_script(killed, SCRIPT_RUN).returncode == 0
    assert log_lines(killed) == ["first", *(f"second r{i}" for i in (5, 4, 3, 2, 1, 0)), "third"]
    assert content(killed / "run") == content(uninterrupted / "run")
    two = artifact_of(killed / "run", "two")
    assert two.manifest.was_resumed
    assert [path.name for path in sorted(two.folder.iterdir())] == ["manifest.json", "rows.parquet"]


def test_run_killed_with_a_half_written_model_writes_it_again_from_the_start(tmp_path: Path) -> None:
    kill_when_blocked(tmp_path, "block third")
    assert len(complete_artifacts(tmp_path / "run")) == 2
    assert run_script(tmp_path, SCRIPT_RUN).returncode == 0  # its mkdir of the model folder would fail on a leftover
    assert log_lines(tmp_path).count("third") == 2
    assert log_lines(tmp_path).count("first") == 1
    assert artifact_of(tmp_path / "run", "three").path("model").is_dir()


SCRIPT_KILL_EVERYWHERE = SCRIPT_HEAD + textwrap.dedent(
    """
    os.fsync = lambda descriptor: None  # guards against power cuts, not kills, and is slow
    EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}

    def run_and_die_at(number):
        count = 0

        def hook(event, arguments):
            nonlocal count
            if event in EVENTS:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        run_stages([one, two, three], root=root)

    def in_child(work, *arguments):
        child = os.fork()
        if child == 0:
            work(*arguments)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    import json, shutil
    from plansmith.data.artifacts import complete_artifacts
    N_ROWS = 3
    run_stages([one, two, three], root=root)  # what it imports and caches, every child would do again
    number, died = 1, True
    while died:
        shutil.rmtree(root, ignore_errors=True)
        log.unlink(missing_ok=True)
        died = in_child(run_and_die_at, number) == -signal.SIGKILL
        assert in_child(lambda: run_stages([one, two, three], root=root)) == 0
        hashes = {a.manifest.provenance.stage: {n: e.sha256 for n, e in a.manifest.files.items()}
                  for a in complete_artifacts(root)}
        left = sorted(str(p.relative_to(root)) for p in root.rglob("*") if "-" in p.name and p.is_dir())
        print(json.dumps([number, hashes, log.read_text().split("\\n")[:-1], len(left)]))
        number += 1
    """
)


def test_run_killed_before_each_single_file_operation_always_recovers(tmp_path: Path) -> None:
    result = run_script(tmp_path, SCRIPT_KILL_EVERYWHERE)
    assert result.returncode == 0, result.stderr
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(outcomes) > 30  # renames of shards, tables, manifests and folders, and the removal of what is left over
    *_, undisturbed = outcomes
    for _, hashes, log, n_folders in outcomes:
        assert hashes == undisturbed[1]
        assert n_folders == 3
        assert len(log) <= len(undisturbed[2]) + 1  # at most the work at hand is done twice
        assert set(log) == set(undisturbed[2])


# --- damage


def damage_size(folder: Path) -> None:
    with (folder / "rows.parquet").open("ab") as file:
        file.write(b"x")


def damage_content(folder: Path) -> None:
    data = bytearray((folder / "rows.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "rows.parquet").write_bytes(data)


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {')


def damage_key(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["provenance"]["key"] = "f" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_size, "were written"),
        (damage_content, "other content"),
        (damage_manifest, "manifest cannot be read"),
        (damage_key, "holds another artifact"),
        (lambda folder: (folder / "rows.parquet").unlink(), "is missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest"),
    ],
    ids=["size", "content", "manifest", "key", "file gone", "manifest gone"],
)
def test_damaged_artifact_is_warned_about_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], said: str
) -> None:
    calls: list[str] = []
    stage = Stage(name="a", run=counted(calls))
    folder = run_stages([stage], root=tmp_path)["a"].folder
    damage(folder)
    assert preview_stages([stage], tmp_path)[0].status is StageStatus.TO_RUN
    caplog.clear()
    artifact = run_stages([stage], root=tmp_path)["a"]
    assert calls == ["a", "a"]
    assert artifact.rows(MetricRow) == [metric("a")]
    assert artifact.damage() is None
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said in warning
    assert "made again" in warning


def test_damaged_shard_is_dropped_with_a_warning_and_its_rows_are_unfinished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shards = ArtifactWriter(tmp_path, "a", "0" * 64).shards("rows", MetricRow)
    for name in ("r0", "r1"):
        shards.append([metric(name)])
    shards.files()[0].write_bytes(b"half a shard")
    again = ArtifactWriter(tmp_path, "a", "0" * 64).shards("rows", MetricRow)
    assert again.finished_ids("name") == {"r1"}
    assert "damaged shard" in caplog.text
    again.append([metric("r2")])
    assert again.finished_ids("name") == {"r1", "r2"}
    assert [path.name for path in again.files()] == ["rows-00001.parquet", "rows-00002.parquet"]


# --- artifacts


def test_writer_opened_again_keeps_shards_and_scratch_only(tmp_path: Path) -> None:
    output = ArtifactWriter(tmp_path, "a", "0" * 64)
    output.shards("rows", MetricRow).append([metric("r0")])
    output.write_rows([metric("x")], MetricRow, table="other")
    output.path("model").mkdir()
    output.scratch("checkpoint").write_text("step 100")
    (output.folder / "shards" / ".rows-00001.parquet.1.tmp").touch()
    again = ArtifactWriter(tmp_path, "a", "0" * 64)
    assert sorted(path.name for path in again.folder.iterdir()) == ["scratch", "shards"]
    assert [path.name for path in (again.folder / "shards").iterdir()] == ["rows-00000.parquet"]
    assert again.scratch("checkpoint").read_text() == "step 100"


def test_shards_of_tables_with_similar_names_stay_apart(tmp_path: Path) -> None:
    output = ArtifactWriter(tmp_path, "a", "0" * 64)
    output.shards("rows", MetricRow).append([metric("r0")])
    output.shards("rows-2", MetricRow).append([metric("r1")])
    assert output.shards("rows", MetricRow).finished_ids("name") == {"r0"}
    assert output.shards("rows-2", MetricRow).finished_ids("name") == {"r1"}


def test_finished_table_does_not_depend_on_the_order_and_size_of_shards(tmp_path: Path) -> None:
    def table(root: Path, *shards: list[MetricRow]) -> bytes:
        def run(context: StageContext) -> None:
            for rows in shards:
                context.output.shards("rows", MetricRow).append(rows)

        return run_stages([Stage(name="a", run=run)], root=root)["a"].path("rows.parquet").read_bytes()

    r0, r1, r2 = (metric(f"r{i}") for i in range(3))
    assert table(tmp_path / "one", [r2, r0], [r1]) == table(tmp_path / "two", [r1], [r0], [r2])


@pytest.mark.parametrize("name", ["manifest.json", "shards", "scratch/x", "../x", "/x", ""])
def test_writer_refuses_reserved_and_outside_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        ArtifactWriter(tmp_path, "a", "0" * 64).path(name)


def test_artifact_without_the_named_table_says_what_it_has(tmp_path: Path) -> None:
    artifact = run_stages([Stage(name="a", run=nothing)], root=tmp_path)["a"]
    with pytest.raises(ArtifactError) as caught:
        artifact.rows(MetricRow, table="verdicts")
    assert caught.value.expected == "one of: rows.parquet"


# --- the lock


def test_second_run_on_the_same_folder_is_told_the_process_of_the_first(tmp_path: Path) -> None:
    stage = Stage(name="a", run=nothing)
    with run_lock(tmp_path), pytest.raises(BadInputError) as caught:
        run_stages([stage], root=tmp_path)
    assert f"process {os.getpid()} on " in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert run_stages([stage], root=tmp_path)["a"].rows(MetricRow) == [metric("a")]


def test_lock_of_another_process_holds_until_that_process_is_killed(tmp_path: Path) -> None:
    code = "import sys, time, pathlib; from plansmith.data.storage import run_lock\n"
    code += "with run_lock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(BadInputError, match=f"process {other.pid} on"), run_lock(tmp_path):
        pass
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.stdout.close()
    with run_lock(tmp_path):
        assert f"process {os.getpid()}" in (tmp_path / ".lock").read_text()


# --- disks that refuse


def test_run_folder_under_a_regular_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/plansmith-run")):
        with pytest.raises(BadInputError) as caught:
            run_stages([Stage(name="a", run=nothing)], root=root)
        assert caught.value.exit_code == 2
        assert "cannot be written" in caught.value.message
        assert caught.value.cure


def test_stage_on_a_full_device_is_bad_input_and_leaves_no_artifact(tmp_path: Path) -> None:
    def fill(context: StageContext) -> None:
        with Path("/dev/full").open("w", encoding="utf-8") as file:
            file.write("x")

    with pytest.raises(BadInputError, match="disk is full") as caught:
        run_stages([Stage(name="a", run=fill)], root=tmp_path)
    assert "No space left on device" in str(caught.value)
    assert complete_artifacts(tmp_path) == []


SCRIPT_FILE_LIMIT = SCRIPT_HEAD + textwrap.dedent(
    """
    import resource
    def big(context):
        shards = context.output.shards("rows", MetricRow)
        done = shards.finished_ids("name")
        for name, size in (("small", 1), ("big", 20_000)):
            if name not in done:
                note(name)
                shards.append([metric(name, context.rng(name, i).random()) for i in range(size)])
    if sys.argv[3] != "none":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    try:
        run_stages([Stage(name="big", run=big)], root=root)
    except BadInputError as error:
        print(error)
        sys.exit(error.exit_code)
    """
)


def test_disk_that_fills_up_in_a_shard_exits_2_and_later_continues_after_the_last_whole_one(tmp_path: Path) -> None:
    full = run_script(tmp_path, SCRIPT_FILE_LIMIT, "60000")
    assert full.returncode == 2, full.stderr
    assert "the disk is full, or a quota or file size limit is reached" in full.stdout
    assert "File too large" in full.stdout
    (partial,) = (tmp_path / "run").glob("big-*")
    assert partial.name.endswith(".partial")
    assert [path.name for path in (partial / "shards").iterdir()] == ["rows-00000.parquet"]
    assert run_script(tmp_path, SCRIPT_FILE_LIMIT, "none").returncode == 0
    assert log_lines(tmp_path) == ["small", "big", "big"]
    assert len(artifact_of(tmp_path / "run", "big").rows(MetricRow)) == 20_001


@pytest.mark.parametrize(
    ("error", "is_translated"),
    [
        (OSError(28, "No space left on device"), True),
        (OSError(122, "Disk quota exceeded"), True),
        (OSError(30, "Read-only file system", "/elsewhere"), True),
        (PermissionError(13, "Permission denied", "/run/folder/x"), True),
        (PermissionError(13, "Permission denied", "/usr/bin/planner"), False),
        (FileNotFoundError(2, "No such file", "/run/folder/x"), False),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (RuntimeError("something else"), False),
        (BadInputError("already clear: No space left on device"), False),
    ],
    ids=repr,
)
def test_storage_errors_translates_only_what_the_disk_refused(error: Exception, is_translated: bool) -> None:
    with pytest.raises(BadInputError if is_translated else type(error)) as caught, storage_errors(Path("/run/folder")):
        raise error
    assert (caught.value is not error) == is_translated
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


# --- stages that may be left out


def noting(name: str, ran: list[str], **more: Any) -> Stage:
    def run(context: StageContext) -> None:
        ran.append(f"{name} with {', '.join(context.inputs)}")

    return Stage(name=name, run=run, **more)


def test_run_stages_not_needed_leaves_out_the_stage_and_all_that_need_it(tmp_path: Path) -> None:
    ran: list[str] = []
    first = noting("first", ran)
    second = noting("second", ran, inputs={"a": first}, is_needed=lambda done: "first" not in done)
    third = noting("third", ran, inputs={"b": second})
    last = noting("last", ran, inputs={"a": first, "c": third}, needs_all_inputs=False)
    done = run_stages([first, second, third, last], root=tmp_path)
    assert list(done) == ["first", "last"]
    assert ran == ["first with ", "last with a"]
    assert run_stages([last], root=tmp_path).keys() == done.keys()
    assert len(ran) == 2


def test_run_stages_is_asked_with_the_artifacts_before_it(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def is_needed(done: Any) -> bool:
        asked.append(list(done))
        return True

    ran: list[str] = []
    first = noting("first", ran)
    run_stages([first, noting("second", ran, is_needed=is_needed)], root=tmp_path)
    assert asked == [["first"]]
    assert ran == ["first with ", "second with "]


def test_key_does_not_depend_on_whether_a_stage_is_asked_for() -> None:
    assert noting("x", [], is_needed=lambda _: False, needs_all_inputs=False).key == noting("x", []).key


# --- weights that are superseded


def training(context: StageContext[Any]) -> None:
    """Leave weights made of those before, and a table."""
    given = context.inputs.get("policy")
    text = (given.path("model") / "w").read_text() if given else ""
    context.output.path("model").mkdir()
    (context.output.path("model") / "w").write_text(f"{text}{context.stage.name} ")
    nothing(context)


def reading(context: StageContext[Any]) -> None:
    (context.inputs["policy"].path("model") / "w").read_text()
    nothing(context)


def weights_loop(count: int, *, is_tried_again: int = 0) -> list[Stage[Any]]:
    """Return a start and iterations of two trainings each, whose policies are tried; one is tried once more at last."""
    stages = [Stage(name="start", run=training)]
    for t in range(1, count + 1):
        options: Any = {"run": training, "kind": StageKind.OPTIMISES, "iteration": t}
        stages.append(Stage(name=f"stage1_{t}", inputs={"policy": stages[-2 if t > 1 else -1]}, **options))
        stages.append(Stage(name=f"stage2_{t}", inputs={"policy": stages[-1]}, **options))
        stages.append(Stage(name=f"try_{t}", run=reading, inputs={"policy": stages[-1]}))
    if is_tried_again:
        policy = next(stage for stage in stages if stage.name == f"stage2_{is_tried_again}")
        stages.append(Stage(name="again", run=reading, inputs={"policy": policy}))
    return stages


def with_weights(root: Path) -> set[str]:
    return {path.parent.parent.name.rpartition("-")[0] for path in root.glob("*/model/w")}


def test_keep_weights_removes_those_of_superseded_iterations_and_says_so(tmp_path: Path) -> None:
    run_stages(weights_loop(3), root=tmp_path, keep_weights=1)
    assert with_weights(tmp_path) == {"start", "stage1_3", "stage2_3"}
    made = artifact_of(tmp_path, "stage2_1")
    assert "iteration 2 is there, keep_weights=1" in made.manifest.removed
    assert made.rows(MetricRow) == [metric("stage2_1")]
    assert made.manifest.files["model/w"].size_bytes == len("start stage1_1 stage2_1 ")
    with pytest.raises(ArtifactError, match="its weights were removed") as caught:
        made.path("model/w")
    assert caught.value.got == made.manifest.removed
    assert "keep_weights" in str(caught.value.cure)


def test_keep_weights_none_keeps_all_and_two_keeps_two(tmp_path: Path) -> None:
    run_stages(weights_loop(3), root=tmp_path / "all")
    assert len(with_weights(tmp_path / "all")) == 7
    run_stages(weights_loop(3), root=tmp_path / "two", keep_weights=2)
    assert with_weights(tmp_path / "two") == {"start", "stage1_2", "stage2_2", "stage1_3", "stage2_3"}


def test_weights_that_a_stage_to_come_reads_are_kept_until_its_turn_has_come(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    class Looker:
        def started(self, stage: Stage[Any], *, number: int, count: int) -> None:
            if stage.name == "again":
                seen.append(with_weights(tmp_path))

        def finished(self, *arguments: Any, **options: Any) -> None:
            pass

    run_stages(weights_loop(3, is_tried_again=1), root=tmp_path, keep_weights=1, observers=[Looker()])
    assert seen == [{"start", "stage2_1", "stage1_3", "stage2_3"}]
    assert with_weights(tmp_path) == {"start", "stage1_3", "stage2_3"}


def test_artifact_without_weights_is_reused_for_its_tables(tmp_path: Path) -> None:
    run_stages(weights_loop(3), root=tmp_path, keep_weights=1)
    assert {preview.status for preview in preview_stages(weights_loop(3), tmp_path)} == {StageStatus.REUSED}
    before = content(tmp_path)
    run_stages(weights_loop(3), root=tmp_path)
    assert content(tmp_path) == before
    run_stages(weights_loop(4), root=tmp_path, keep_weights=1)  # a longer loop goes on from the last weights
    assert with_weights(tmp_path) == {"start", "stage1_4", "stage2_4"}


def test_stage_that_reads_removed_weights_has_them_made_again_with_all_that_led_to_them(tmp_path: Path) -> None:
    run_stages(weights_loop(3), root=tmp_path, keep_weights=1)
    before = content(tmp_path)
    stages = weights_loop(3, is_tried_again=2)
    told = {preview.name: (preview.status, preview.reason) for preview in preview_stages(stages, tmp_path)}
    assert told["stage2_2"] == (StageStatus.TO_RUN, "its weights were removed, and again reads them")
    assert told["stage1_2"] == (StageStatus.TO_RUN, "its weights were removed, and stage2_2 reads them")
    assert told["stage2_1"] == (StageStatus.TO_RUN, "its weights were removed, and stage1_2 reads them")
    assert {name for name, (status, _) in told.items() if status is StageStatus.REUSED} == {
        "start", "try_1", "try_2", "stage1_3", "stage2_3", "try_3",
    }  # fmt: skip
    made = run_stages(stages, root=tmp_path)
    assert {name: hashes for name, hashes in content(tmp_path).items() if name != "again"} == before
    assert not any(artifact.manifest.removed for artifact in made.values())
    assert len(with_weights(tmp_path)) == 7


REMOVED_AND_KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from test_stages import weights_loop
from plansmith.stages import run_stages

def remove_and_die_at(root, number):
    count = 0

    def hook(event, arguments):
        nonlocal count
        if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    run_stages(weights_loop(2), root=root, keep_weights=1)

made, number, status = Path(sys.argv[1]), 1, None
while status != 0:
    root = made.with_name(str(number))
    shutil.copytree(made, root)
    child = os.fork()
    if child == 0:
        remove_and_die_at(root, number)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number, status)
    number += 1
"""


def test_run_killed_while_it_removes_weights_removes_them_all_the_next_time(tmp_path: Path) -> None:
    run_stages(weights_loop(2), root=tmp_path / "made")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", REMOVED_AND_KILLED, str(tmp_path / "made")], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    statuses = [int(line.split()[1]) for line in done.stdout.splitlines()]
    for number in range(1, len(statuses) + 1):
        root = tmp_path / str(number)
        made = run_stages(weights_loop(2), root=root, keep_weights=1)
        assert with_weights(root) == {"start", "stage1_2", "stage2_2"}
        assert not list(root.glob("stage?_1-*/model"))
        assert [name for name, artifact in made.items() if artifact.manifest.removed] == ["stage1_1", "stage2_1"]
        assert not list(root.glob("*.damaged"))
    assert len(statuses) > 6
    assert set(statuses[:-1]) == {-signal.SIGKILL}

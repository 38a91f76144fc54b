"""A pipeline from elsewhere goes through every command, and none of them knows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy_pipeline
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from plansmith import cli
from plansmith.pipeline import pipeline_names

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the toy beside what is installed: its entry point, as a package's metadata has it."""
    metadata = tmp_path / "site" / "toy-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[plansmith.pipelines]\ntoy = toy_pipeline:PIPELINE\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr("os.nice", lambda _: 0)


def command(*words: object) -> int:
    return cli.main([str(word) for word in words])


@pytest.fixture
def run(tmp_path: Path, capsys: Capture) -> Path:
    assert command("run", "toy", "--runs", tmp_path / "runs", "--seed", 7, "--set", "rate=0.5") == 0
    capsys.readouterr()
    return tmp_path / "runs" / "toy-demo-seed7"


def test_run_of_a_pipeline_from_elsewhere_prints_its_own_report(tmp_path: Path, capsys: Capture) -> None:
    assert "toy" in pipeline_names()
    assert command("run", "toy", "--runs", tmp_path / "runs", "--seed", 7) == 0
    said = capsys.readouterr().out
    assert said.startswith("Distance from the mean\n")
    assert "The last loss is " in said
    folder = tmp_path / "runs" / "toy-demo-seed7"
    record = json.loads((folder / "run.json").read_text())
    assert (record["pipeline"], record["preset"], record["config"]["n_steps"]) == ("toy", "demo", 4)
    assert len(json.loads((folder / "report" / "results.json").read_text())["losses"]) == 4
    assert not (folder / "model").exists()


def test_run_of_several_seeds_has_a_folder_for_each_and_a_summary_beside_them(tmp_path: Path, capsys: Capture) -> None:
    runs = tmp_path / "runs"
    assert command("run", "toy", "--runs", runs, "--seeds", "7-9") == 0
    said = capsys.readouterr().out
    assert said.count("Distance from the mean\n") == 3
    assert "demo-seeds7-9, seed 8: " in said and said.rstrip().endswith("demo-seeds7-9/report/index.html")
    assert sorted(path.name for path in runs.iterdir()) == [
        "toy-demo-seed7", "toy-demo-seed8", "toy-demo-seed9", "toy-demo-seeds7-9",
    ]  # fmt: skip
    records = [json.loads((runs / f"toy-demo-seed{seed}" / "run.json").read_text()) for seed in (7, 8, 9)]
    seeds = [record["config"]["seed"] for record in records]
    assert seeds == [7, 8, 9]
    made = {path: path.stat().st_mtime_ns for path in runs.rglob("manifest.json")}
    assert len(made) == 6
    summary = (runs / "toy-demo-seeds7-9" / "report" / "seeds.json").read_text()
    assert command("run", "toy", "--runs", runs, "--seeds", "7-9") == 0
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("manifest.json")} == made
    assert (runs / "toy-demo-seeds7-9" / "report" / "seeds.json").read_text() == summary


def test_run_of_several_seeds_under_a_name_and_in_a_dry_run(tmp_path: Path, capsys: Capture) -> None:
    assert command("run", "toy", "--runs", tmp_path, "--seeds", "100-101", "--name", "mine", "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"run folder: {tmp_path}/mine-seed100\n" in said and f"run folder: {tmp_path}/mine-seed101\n" in said
    assert not list(tmp_path.glob("mine*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "expected 2 or more: FIRST-LAST, such as 100-104"),
        (["--seeds", "5-5"], "expected 2 or more"),
        (["--seeds", "5-4"], "expected 2 or more"),
        (["--seeds", "3-4", "--seed", "3"], "not allowed with argument"),
        (["--seeds", "3-4", "--resume"], "--seeds is continued by its own command"),
        (["--seeds", "3-4", "--set", "name=x"], "a run folder of its own"),
    ],
    ids=["number", "one", "descending", "with-seed", "resume", "one-name"],
)
def test_run_of_several_seeds_that_makes_no_sense_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: Capture
) -> None:
    try:
        code = command("run", "toy", "--runs", tmp_path / "runs", *words)
    except SystemExit as ended:  # argparse's way
        code = int(ended.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_report_of_a_run_is_made_again_by_its_own_pipeline(run: Path, capsys: Capture) -> None:
    page = run / "report" / "index.html"
    first = page.read_text()
    page.unlink()
    assert command("report", run) == 0
    assert capsys.readouterr().out.startswith("Distance from the mean\n")
    assert page.read_text() == first
    assert 'id="plot-toy-losses"' in first


def test_page_of_a_run_shows_the_sections_of_its_pipeline(run: Path, tmp_path: Path) -> None:
    assert command("watch", run, "--once", tmp_path / "page.html") == 0
    html = (tmp_path / "page.html").read_text()
    assert "How near it came" in html
    assert 'id="plot-toy-losses"' in html
    assert "The last loss is " in html


def test_figures_of_a_run_are_in_tensorboard_by_what_its_stages_declare(run: Path) -> None:
    tags = EventAccumulator(str(run / "tensorboard")).Reload().Tags()["scalars"]
    assert {"train/loss/stage/learn_mean", "stage/wall_time_s/stage/draw_numbers"} <= set(tags)


def test_ablation_runs_its_variants_and_shares_what_is_equal(tmp_path: Path, capsys: Capture) -> None:
    runs = tmp_path / "runs"
    assert command("ablate", "toy", "--runs", runs, "--seeds", 2) == 0
    assert "Nearest: fast, seed" in capsys.readouterr().out
    folder = runs / "ablation-toy-demo"
    assert len(json.loads((folder / "report" / "comparison.json").read_text())["losses"]) == 4
    artifacts = sorted(path.name.rpartition("-")[0] for path in (folder / "seed0" / "artifacts").glob("*-*"))
    assert artifacts == ["draw_numbers", "learn_mean", "learn_mean"]
    assert command("report", folder) == 0
    assert "Nearest: fast, seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "deep"], ["a preset of another, not of toy", "'deep'", "one of demo"]),
        (["--preset", "{}/another/deep.yaml"], ["a preset of another, not of toy"]),
        (["--set", "unused=3"], ["unused: no stage reads this setting", "it is there for a test"]),
        (["--set", "phase2.eta=3"], ["unknown key", "phase2"]),
    ],
    ids=["preset", "preset by path", "unread", "setting of another"],
)
def test_run_with_what_belongs_to_another_pipeline_ends_with_code_2(
    words: list[str], said: list[str], tmp_path: Path, capsys: Capture
) -> None:
    filled = [word.replace("{}", str(toy_pipeline.PIPELINE.presets.parent)) for word in words]
    assert command("run", "toy", "--runs", tmp_path / "runs", *filled) == 2
    message = capsys.readouterr().err
    assert [word for word in said if word not in message] == [], message
    assert not (tmp_path / "runs").exists()


def test_run_in_the_folder_of_another_pipeline_ends_with_code_2(run: Path, capsys: Capture) -> None:
    where = ("--runs", run.parent, "--name", run.name)
    for words in (["--preset", "smoke"], ["--resume"]):
        assert command("run", "pddl_instruct", *words, *where) == 2
        message = capsys.readouterr().err
        assert "a run of another pipeline" in message
        assert "plansmith run toy" in message


def test_evaluate_of_a_run_without_arms_ends_with_code_2(run: Path, capsys: Capture) -> None:
    assert command("evaluate", run) == 2
    assert "expected: a pipeline that has arms" in capsys.readouterr().err


def test_ablation_of_a_pipeline_that_has_none_or_is_none_ends_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(toy_pipeline, "PIPELINE", toy_pipeline.Pipeline(
        **{name: getattr(toy_pipeline.PIPELINE, name) for name in ("name", "config", "presets", "stages", "session",
                                                                  "results", "reporting")}))  # fmt: skip
    assert command("ablate", "toy") == 2
    assert "a pipeline without an ablation" in capsys.readouterr().err
    assert command("ablate", "chess") == 2
    assert "no such pipeline" in capsys.readouterr().err
    assert command("ablate") == 2

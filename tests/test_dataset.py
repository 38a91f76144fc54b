"""Datasets from the command line with real Ray and Fast Downward: exact counts, equal bytes, killed and continued."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import datasets
import pytest
import yaml
from conftest import Said, give_command
from processes import RAY_AGENTS, survivors

from pipelines.commands import dataset as command
from plansmith.config.dataset import DatasetConfig
from plansmith.config.loading import load_settings, preset_names
from plansmith.data.rows import DatasetExampleRow, DatasetPlanRow
from plansmith.data.tables import read_table
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.text.plans import read_plan_text

Capture = pytest.CaptureFixture[str]

SMALL = {
    "name": "small",
    "description": "For the tests.",
    "parts": [{"domains": ["ferry", "blocksworld"], "levels": {"L1": {"train": 9, "test": 3}}}],
    "examples": {"plan": 1, "formalise": 1, "plan_chain": 1, "explain_valid": 1, "explain_invalid": 2,
                 "anonymise": "curriculum", "copies": 2},
    "rows_per_part": 4,
    "seed": 3,
}  # fmt: skip

TINY_DOMAIN = """; Lamps that are switched on, one after another.
(define (domain lamps)
  (:requirements :strips :negative-preconditions)
  (:predicates (lit ?x))
  (:action light :parameters (?x) :precondition (not (lit ?x)) :effect (lit ?x)))
"""
TINY_SETTINGS = {
    "sampler": "walk",
    "walk": {"objects": {"object": "lamps"}, "init": [{"atom": "(lit ?x)"}], "steps": [1, 3], "goal_size": [1, 2]},
    "levels": {"small": {"lamps": [2, 3]}},
}


@dataclass(frozen=True)
class Built:
    """A finished dataset."""

    folder: Path
    done: Said

    @property
    def digests(self) -> dict[str, str]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def plans(self, split: str) -> list[DatasetPlanRow]:
        return [
            row
            for path in sorted(self.folder.glob(f"data/plans/{split}-*"))
            for row in read_table(path, DatasetPlanRow)
        ]

    def examples(self, split: str) -> list[DatasetExampleRow]:
        paths = sorted(self.folder.glob(f"data/examples/{split}-*"))
        return [row for path in paths for row in read_table(path, DatasetExampleRow)]


def write_preset(folder: Path, settings: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    preset = folder / "preset.yaml"
    preset.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return preset


def start(folder: Path, settings: dict[str, object], *arguments: str) -> subprocess.Popen[str]:
    """Start the command in a session of its own."""
    preset = str(write_preset(folder, settings))
    program = [sys.executable, "-m", "plansmith.cli", "dataset", "build", preset, "--runs", str(folder)]
    return subprocess.Popen([*program, *arguments], start_new_session=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


def build(folder: Path, settings: dict[str, object], *arguments: str) -> Built:
    """Build in this process, on the Ray that runs."""
    said = give_command(command.main, "build", write_preset(folder, settings), "--runs", folder, *arguments)
    assert said.code == 0, said.stderr
    return Built(dataset_in(folder), said)


def dataset_in(folder: Path) -> Path:
    [found] = [path / "dataset" for path in folder.iterdir() if (path / "dataset").is_dir()]
    return found


@pytest.fixture(scope="module")
def built(running_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("one"), SMALL, "--workers", "1")


def test_dataset_has_exactly_the_problems_asked_for_each_with_a_valid_plan(built: Built) -> None:
    for split, count in (("train", 9), ("test", 3)):
        rows = built.plans(split)
        assert Counter(row.domain for row in rows) == {"ferry": count, "blocksworld": count}
        for row in rows:
            task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
            assert validate_plan(task, [parse_step(step) for step in row.plan]).is_valid
            assert row.plan_length == len(row.plan) > 0
            assert row.canonical_form == canonical_form(task.domain, task.problem)
            assert row.problem_text


def test_dataset_has_no_form_twice_in_all_its_splits(built: Built) -> None:
    forms = [row.canonical_form for split in ("train", "test") for row in built.plans(split)]
    assert len(forms) == len(set(forms)) == 24


def test_dataset_has_the_examples_asked_for(built: Built) -> None:
    kinds = Counter(row.kind for row in built.examples("train"))
    assert (kinds["plan"], kinds["formalise"], kinds["plan_chain"], kinds["explain_valid"]) == (36, 18, 18, 18)
    assert kinds["explain_invalid"] > 18
    ids = [row.example_id for row in built.examples("train")]
    assert len(set(ids)) == len(ids)
    plans = {row.problem_id: row.plan for row in built.plans("train")}
    for row in built.examples("train"):
        if row.kind == "plan" and not row.is_anonymised:
            assert tuple(map(str, read_plan_text(row.response))) == plans[row.problem_id]


def test_dataset_hides_names_more_often_late_than_early(built: Built) -> None:
    rows = [row for row in [*built.examples("train"), *built.examples("test")] if row.kind == "plan"]
    early, late = ([row.is_anonymised for row in rows if low <= row.position < low + 0.5] for low in (0, 0.5))
    assert len(early) == len(late) == 24
    assert sum(early) < sum(late)
    hidden = [row for row in rows if row.is_anonymised]
    assert all("ferry" not in row.prompt.lower() and "block" not in row.prompt.lower() for row in hidden)


def test_dataset_is_equal_for_two_workers(built: Built, tmp_path: Path) -> None:
    assert build(tmp_path, SMALL, "--workers", "2").digests == built.digests


def test_dataset_again_reuses_all_stages_and_prints_its_table(built: Built) -> None:
    folder = built.folder.parents[1]
    again = build(folder, SMALL, "--workers", "1")
    assert again.done.stderr.count(": reused") == 3
    assert again.done.stdout == built.done.stdout
    assert again.digests == built.digests


@pytest.mark.faults
def test_dataset_killed_while_solving_continues_and_is_equal(built: Built, tmp_path: Path) -> None:
    process = start(tmp_path, SMALL, "--workers", "1")
    while not (parts := list(tmp_path.glob("*/solve_problems-*/plans.parts/*/*.parquet"))):  # .partial, or just done
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert survivors(process.pid, besides=RAY_AGENTS) == []
    written = {str(path.relative_to(path.parents[1])): path.stat().st_mtime_ns for path in parts}
    continued = build(tmp_path, SMALL, "--workers", "1")
    finished = list(tmp_path.glob("*/solve_problems-*/plans.parts/*/*.parquet"))
    kept = {str(path.relative_to(path.parents[1])): path.stat().st_mtime_ns for path in finished}
    assert "draw_problems: reused" in continued.done.stderr
    assert {name: kept[name] for name in written} == written
    assert continued.digests == built.digests


def test_dataset_loads_with_hugging_face_datasets(built: Built, tmp_path: Path) -> None:
    plans = datasets.load_dataset(str(built.folder), "plans", cache_dir=str(tmp_path))
    assert {split: len(rows) for split, rows in plans.items()} == {"train": 18, "test": 6}
    examples = datasets.load_dataset(str(built.folder), "examples", split="train", cache_dir=str(tmp_path))
    assert {"prompt", "response", "kind"} <= set(examples.column_names)
    files = str(built.folder / "data" / "plans" / "test-*.parquet")
    assert len(datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))) == 6


def own_domain(folder: Path, domain: str = TINY_DOMAIN) -> Path:
    """Return a domain folder as a user writes one: a PDDL file and a settings file."""
    folder.mkdir()
    (folder / "domain.pddl").write_text(domain, encoding="utf-8")
    (folder / "settings.yaml").write_text(yaml.safe_dump(TINY_SETTINGS), encoding="utf-8")
    return folder


def of_domain(folder: Path, **changes: object) -> dict[str, object]:
    part = {"domains": [str(folder)], "levels": {"small": {"train": 40, "test": 10}}}
    return SMALL | {"parts": [part], "examples": {"plan": 1}} | changes


@pytest.mark.usefixtures("running_ray")
def test_dataset_of_a_domain_with_few_problems_says_how_many_are_missing(tmp_path: Path) -> None:
    made = build(tmp_path / "runs", of_domain(own_domain(tmp_path / "lamps")))
    rows = [row for split in ("train", "test") for row in made.plans(split)]
    assert 0 < len(rows) < 50
    assert len({row.canonical_form for row in rows}) == len(rows)
    assert "Fewer than asked for" in (made.folder / "README.md").read_text(encoding="utf-8")
    assert "problems are missing" in made.done.stderr
    assert made.done.stdout.splitlines()[2].split()[-1] == str(50 - len(rows))


@pytest.mark.usefixtures("running_ray")
def test_dataset_of_a_domain_that_the_search_refuses_counts_the_reason(tmp_path: Path) -> None:
    derived = TINY_DOMAIN.replace(
        "(lit ?x))\n  (:action", "(lit ?x) (all))\n  (:derived (all) (forall (?y) (lit ?y)))\n  (:action"
    )
    derived = derived.replace(":precondition (not (lit ?x))", ":precondition (and (not (lit ?x)) (not (all)))")
    folder = own_domain(tmp_path / "lamps", derived.replace(":negative-preconditions", ":adl :derived-predicates"))
    made = build(tmp_path / "runs", of_domain(folder, planner={"search": "astar(lmcut())"}))
    assert "unsupported" in made.done.stdout
    assert list(made.folder.glob("data/*")) == []


@pytest.mark.faults
def test_dataset_of_endless_problems_keeps_the_limit(tmp_path: Path) -> None:
    part = {"domains": ["blocksworld"], "levels": {"L4": {"train": 2}}}
    limits = {"search": "astar(blind())", "time_limit_s": 0.5, "kill_after_s": 5}
    process = start(tmp_path, SMALL | {"parts": [part], "planner": limits, "examples": {"plan": 1}, "reserve": 0.0})
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "out_of_time" in out
    assert survivors(process.pid) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SMALL | {"parts": [{"domains": ["fery"], "levels": {"L1": {"train": 1}}}]}, "did you mean ferry?"),
        (SMALL | {"parts": [{"domains": ["ferry"], "levels": {"L9": {"train": 1}}}]}, "has no such level"),
        (SMALL | {"parts": [{"domains": ["ferry"], "levels": {"L1": {"train": 0}}}]}, "needs a number of problems"),
        (SMALL | {"planer": {}}, "did you mean planner?"),
        (SMALL | {"parts": [SMALL["parts"][0], SMALL["parts"][0]]}, "may be listed once"),
    ],
    ids=["domain", "level", "count", "key", "twice"],
)
def test_dataset_settings_that_do_not_fit_are_said_before_anything_starts(
    settings: dict[str, object], message: str, tmp_path: Path, capsys: Capture
) -> None:
    preset = write_preset(tmp_path, settings)
    assert command.main(["build", str(preset), "--runs", str(tmp_path / "runs")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def a_file(_: Path, out: Path) -> None:
    out.write_text("mine")


def a_folder_with_a_readme(_: Path, out: Path) -> None:
    (out / "data").mkdir(parents=True)
    (out / "README.md").write_text("# mine")


def a_dataset_with_a_file_of_its_user(dataset: Path, out: Path) -> None:
    shutil.copytree(dataset, out)
    (out / "data" / "notes.md").write_text("mine")


@pytest.mark.parametrize("leave", [a_file, a_folder_with_a_readme, a_dataset_with_a_file_of_its_user])
@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "run"])
def test_dataset_takes_the_place_of_nothing_but_a_dataset(
    built: Built, tmp_path: Path, leave: Callable[[Path, Path], None], options: list[str]
) -> None:
    preset, out = write_preset(tmp_path, SMALL), tmp_path / "out"
    leave(built.folder, out)
    before = list(tmp_path.rglob("*"))
    said = give_command(command.main, "build", preset, "--runs", tmp_path / "runs", "--out", out, *options)
    assert said.code == 2
    assert f"{out}: something is there that is no dataset" in said.stderr
    assert "give another --out" in said.stderr
    assert list(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "absent"])
def test_dataset_is_left_where_there_is_nothing(built: Built, tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "out").mkdir()
    again = build(built.folder.parents[1], SMALL, "--workers", "1", "--out", str(tmp_path / "out"))
    assert Built(tmp_path / "out", again.done).digests == built.digests


@pytest.mark.parametrize("name", preset_names(command.DATASET_PRESETS))
def test_presets_are_sound_at_full_size_and_at_one_percent(name: str) -> None:
    whole = load_settings(DatasetConfig, name, command.DATASET_PRESETS)
    small = load_settings(DatasetConfig, name, command.DATASET_PRESETS, overrides=["scale=0.01"])
    assert len(command.dataset(whole)) == len(command.dataset(small)) == 3
    for cell, less in zip(whole.cells(), small.cells(), strict=True):
        assert all(0 < less.wanted[split] <= max(1, count // 50) for split, count in cell.wanted.items())
        assert less.shares == cell.shares == cell.wanted

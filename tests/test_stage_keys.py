"""What is in the key of a stage: every setting and all code that decides what it makes, and nothing else."""

from __future__ import annotations

import functools
import json
import logging
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from pipelines.commands.dataset import dataset
from pipelines.pddl_instruct import pddl_instruct
from pipelines.stages.reading import have_domains
from plansmith.code_digest import code_of
from plansmith.config.dataset import DatasetConfig
from plansmith.config.loading import load_settings
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.rows import MetricRow
from plansmith.stages import Stage, StageContext, preview_stages, run_stages

ROOT = Path(__file__).resolve().parent.parent
PRESETS = ROOT / "pipelines" / "presets"
PROBED = ["phase2.patience=1", "problems.probe_share=0.3"]
"""Settings under which the pipeline has every kind of stage."""


def stages_of(preset: str, *overrides: str) -> list[Stage[Any]]:
    return pddl_instruct(load_settings(PddlInstructConfig, preset, PRESETS / "pddl_instruct", overrides=overrides))


def keys(preset: str, *overrides: str) -> dict[str, str]:
    return {stage.name: stage.key for stage in stages_of(preset, *overrides)}


def made_again(preset: str, *overrides: str) -> set[str]:
    """Return the stages whose key these settings change."""
    before, after = keys(preset), keys(preset, *overrides)
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def own_settings_changed(preset: str, *overrides: str) -> set[str]:
    """Return the stages whose own settings these settings change, not only those of what they read."""
    before, after = ({s.name: s.settings_json for s in stages_of(preset, *given)} for given in ((), overrides))
    return {name for name in before if before[name] != after[name]}


GENERATING = ("try_", "roll_out_", "explain_plans", "feedback_turns", "probe_")


# --- which stages there are


def test_without_a_stage_2_the_policy_of_an_iteration_is_that_of_stage_1() -> None:
    with_both, merged = ({s.name: s for s in stages_of("smoke", *given)} for given in ((), ["phase2.stage2=null"]))
    assert with_both.keys() - merged.keys() == {"stage2_1", "stage2_2"} and not merged.keys() - with_both.keys()
    assert with_both["roll_out_2"].inputs["policy"].name == "stage2_1"
    assert merged["roll_out_2"].inputs["policy"].name == "stage1_1"
    weights = [stages["build_datasets_1"].settings.verdict_weight for stages in (with_both, merged)]
    assert weights == [None, 10.0]


# --- settings


def test_window_of_the_engine_changes_the_stages_that_generate_or_build_a_model_of_its_reach() -> None:
    changed = own_settings_changed("smoke", "policy.max_model_len=900")
    assert changed == {name for name in keys("smoke") if name.startswith(GENERATING)} | {"initial_policy"}
    before_the_model = {"sample_problems", "synthesize_plans", "corrupt_plans", "write_chains"}
    assert made_again("smoke", "policy.max_model_len=900") == keys("smoke").keys() - before_the_model


def test_window_of_the_engine_leaves_a_model_from_a_folder_as_it_is() -> None:
    folder = ["model.folder=/a/model", "rendering=full", "model.tokenizer=bpe"]
    start = [{s.name: s.key for s in stages_of("smoke", *folder, *more)} for more in ((), ["policy.max_model_len=900"])]
    assert start[0]["phase1"] == start[1]["phase1"]
    assert start[0]["try_phase1"] != start[1]["try_phase1"]


def test_precision_of_the_engine_changes_every_stage_that_generates_and_no_other() -> None:
    changed = own_settings_changed("smoke", "policy.dtype=bfloat16")
    assert changed == {name for name in keys("smoke") if name.startswith(GENERATING)}


@pytest.mark.parametrize(
    "override",
    [
        "evaluation.primary_level=4 blocks",
        "evaluation.n_failures_shown=0",
        "policy.probe_tolerance=0.2",
        "policy.n_replicas=2",
        "policy.max_num_seqs=8",
        "policy.kv_cache_gib=1",
        "trainer.n_ranks=2",
        "trainer.n_threads=1",
        "trainer.micro_batch_tokens=4096",
        "phase2.max_unjudged_share=0.5",
        "cluster.num_cpus=1",
        "telemetry.tensorboard=false",
    ],
)
def test_label_or_limit_of_machines_changes_no_key(override: str) -> None:
    assert made_again("smoke", override) == set()


def test_limit_that_only_ends_a_run_reaches_the_body_all_the_same() -> None:
    [stage] = [s for s in stages_of("smoke", "phase2.max_unjudged_share=0.5") if s.name == "build_datasets_1"]
    assert stage.settings.max_unjudged_share == 0.5
    assert "max_unjudged_share" not in stage.settings_json


def all_stages() -> list[Stage[Any]]:
    of_dataset = dataset(load_settings(DatasetConfig, "pddl_instruct", PRESETS / "datasets"))
    return [*stages_of("smoke", *PROBED), *of_dataset]


def test_patience_decides_which_policy_is_kept_and_is_in_its_key() -> None:
    shorter, longer = (keys("smoke", f"phase2.patience={n}", PROBED[1]) for n in (1, 2))
    changed = {name for name in shorter if shorter[name] != longer[name]}
    assert "final_policy" in changed and "try_iteration_1" in shorter.keys() - changed


@pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.name)
def test_body_is_given_settings_of_the_type_that_it_declares_and_no_way_to_others(stage: Stage[Any]) -> None:
    body: Any = stage.run.func if isinstance(stage.run, functools.partial) else stage.run
    [declared] = typing.get_args(typing.get_type_hints(body)["context"])
    assert type(stage.settings) is declared
    assert not isinstance(stage.run, functools.partial)  # what it is given beside them would be in no key
    assert stage.settings is None or stage.settings.model_config["frozen"]


# --- code


KEYS_OF_CHANGED_CODE = """
import json, sys
from pathlib import Path
from pipelines.pddl_instruct import PIPELINE, pddl_instruct
from plansmith import code_digest

def keys():
    for known in (code_digest._module, code_digest._digest, code_digest._references):
        known.cache_clear()
    return {stage.name: stage.key for stage in pddl_instruct(PIPELINE.settings("smoke"))}

found = [keys()]
for file, old, new in json.loads(sys.argv[1]):
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")
    found.append(keys())
    Path(file).write_text(text, encoding="utf-8")
print(json.dumps(found))
"""

CHANGES = {
    "chain text": ("plansmith/text/compact.py", 'parts += ["verdict:"', 'parts += ["judgement:"'),
    "loss": ("plansmith/learning/losses.py", "max(n_plans, 1.0)", "max(n_plans, 2.0)"),
    "docstrings": ("plansmith/text/compact.py", '"""', '"""Other words. '),
}
"""File, a text in it, and what stands there instead."""


@pytest.fixture(scope="module")
def keys_by_change(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return the keys of smoke's stages as a copy of the code computes them: as it is, and after each change."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("plansmith", "actors", "pipelines", "cluster", "datasets"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", KEYS_OF_CHANGED_CODE, json.dumps(list(CHANGES.values()))]
    done = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, check=True, capture_output=True, text=True)
    return dict(zip(["as it is", *CHANGES], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("chain text", {"corrupt_plans": False, "write_chains": True}),
        ("loss", {"write_chains": False, "try_untrained": False, "stage1_1": False, "stage2_1": True}),
        ("docstrings", {"write_chains": False, "phase1": False}),
    ],
)
def test_changed_code_changes_the_keys_of_what_it_makes(
    keys_by_change: dict[str, dict[str, str]], change: str, first: dict[str, bool]
) -> None:
    before, after = keys_by_change["as it is"], keys_by_change[change]
    assert {name: before[name] != after[name] for name in first} == first
    changed = {name for name in before if before[name] != after[name]}
    followers = {
        stage.name for stage in stages_of("smoke") if {given.name for given in stage.inputs.values()} & changed
    }
    assert followers <= changed


def test_code_of_a_body_is_what_it_reaches_by_name_and_not_what_moves_rows() -> None:
    writing = code_of("pipelines.stages.phase1_data.write_chains")
    assert {"plansmith.text.chains", "plansmith.data.examples", "actors.writer"} <= writing.keys()
    moving = {"plansmith.data.tables", "plansmith.data.artifacts", "actors.mapping"}
    assert not moving & writing.keys()


def test_code_of_inventing_domains_is_that_of_drawing_and_breeding_them() -> None:
    assert {f"plansmith.problems.invention.{name}" for name in ("actions", "breeding")} <= code_of(have_domains).keys()


def test_code_of_a_partial_application_or_of_something_nested_is_that_of_its_function() -> None:
    from plansmith.data.examples import chain_examples

    whole = code_of(chain_examples)
    assert code_of(functools.partial(chain_examples, n_renamings=2)) == whole
    assert code_of("plansmith.data.examples.chain_examples") == whole


def test_code_of_a_name_that_stands_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no code is named"):
        code_of("plansmith.learning.optimisation.run_optimization")


def test_code_of_what_lies_outside_the_rooms_that_decide_content_is_none() -> None:
    assert code_of(json.dumps, logging.getLogger, "plansmith.errors.PlansmithError") == {}


# --- why a stage runs again


class Limits(BaseModel):
    n: int = 3
    ends_at: int = Field(9, exclude=True)


def one_row(context: StageContext[Any]) -> None:
    context.output.write_rows([MetricRow(context.stage.name, 0, "", "", "x", 1.0)], MetricRow)


def pair(n: int = 3, *, seed: int = 0, code: tuple[str, ...] = (), ends_at: int = 9) -> list[Stage[Any]]:
    one = Stage(name="one", run=one_row, settings=Limits(n=n, ends_at=ends_at), seed=seed, code_roots=code)
    return [one, Stage(name="two", run=one_row, inputs={"given": one}, seed=seed)]


CHAINS = ("plansmith.text.chains.VALID",)


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        (lambda: pair(), ["", ""]),
        (lambda: pair(ends_at=4), ["", ""]),
        (lambda: pair(4), ["settings n", "input given"]),
        (lambda: pair(seed=5), ["seed 5", "input given; seed 5"]),
        (lambda: pair(code=CHAINS), ["code plansmith.text.chains", "input given"]),
    ],
    ids=["nothing", "a limit", "a setting", "the seed", "code"],
)
def test_preview_says_why_a_stage_would_run_again(
    tmp_path: Path, changed: Callable[[], list[Stage[Any]]], reasons: list[str]
) -> None:
    run_stages(pair(), root=tmp_path)
    assert [line.reason for line in preview_stages(changed(), tmp_path)] == reasons


def test_folder_made_by_other_code_is_named_with_what_runs_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_stages(pair(), root=tmp_path)
    run_stages(pair(4), root=tmp_path)
    assert "other code" not in caplog.text  # settings are the user's own doing
    run_stages(pair(code=CHAINS), root=tmp_path)
    assert "was made by other code (plansmith.text.chains changed): one, and what needs them, run again" in caplog.text
    caplog.clear()
    manifest = tmp_path / f"one-{pair(code=CHAINS)[0].key[:12]}" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"created": "2999-01-01T00:00:00+00:00"}))
    run_stages(pair(), root=tmp_path)  # back at the code of the first run, whose artifacts are there
    assert "other code" not in caplog.text

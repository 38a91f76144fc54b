"""Presets and overrides: every mistake is one message that names the place and, where it can, the cure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pipelines import nl2plan, pddl_instruct
from plansmith.config.loading import build_model, load_settings, preset_names
from plansmith.config.pddl_instruct import PddlInstructConfig, PlannerConfig
from plansmith.errors import ConfigError
from plansmith.pipeline import Pipeline

ROOT = Path(__file__).resolve().parent.parent
PRESETS = ROOT / "pipelines" / "presets" / "pddl_instruct"


def load_preset(preset: str, folder: Path, *, overrides: Sequence[str] = ()) -> PddlInstructConfig:
    return load_settings(PddlInstructConfig, preset, folder, overrides=overrides)


def smoke(*overrides: str) -> PddlInstructConfig:
    return load_preset("smoke", PRESETS, overrides=overrides)


def refused(*overrides: str) -> str:
    """Return the message that overrides of the preset smoke end with."""
    with pytest.raises(ConfigError) as caught:
        smoke(*overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_load_preset_of_every_file_gives_a_config(name: str) -> None:
    config = load_preset(name, PRESETS)
    assert config.problems.sampled_levels or config.problems.folder
    assert (
        build_model(PddlInstructConfig, config.model_dump(mode="json"), where="run.json") == config
    )  # as a resumed run reads it


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [
        (file.parent.name, file.stem)
        for file in sorted(PRESETS.parent.glob("*/*.yaml"))
        if file.parent.name != "datasets"
    ],
)
def test_every_preset_of_every_pipeline_gives_a_config(pipeline: str, name: str) -> None:
    settings = import_module(f"pipelines.{pipeline}").PIPELINE.settings(name)
    assert settings == type(settings).model_validate(settings.model_dump(mode="json"))


def test_preset_names_name_smoke_and_demo() -> None:
    assert {"smoke", "demo"} <= set(preset_names(PRESETS))


def test_load_preset_of_a_path_reads_that_file(tmp_path: Path) -> None:
    settings = yaml.safe_load((PRESETS / "smoke.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(settings | {"seed": 11}), encoding="utf-8")
    assert load_preset(str(path), PRESETS).seed == 11


def test_load_preset_unknown_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no such preset") as caught:
        load_preset("smok", PRESETS)
    message = str(caught.value)
    assert "'smok'" in message
    assert "did you mean smoke?" in message
    assert all(name in message for name in preset_names(PRESETS))


def test_load_preset_unlike_any_lists_them_without_a_guess() -> None:
    with pytest.raises(ConfigError) as caught:
        load_preset("zzzzzz", PRESETS)
    assert "did you mean" not in str(caught.value)
    assert "smoke" in str(caught.value)


def test_load_preset_not_yaml_tells_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("phase1: {learning_rate: 1\nproblems: [\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not YAML") as caught:
        load_preset(str(path), PRESETS)
    assert str(path) in str(caught.value)
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(("text", "got"), [("", "NoneType"), ("- 1\n- 2\n", "list"), ("words", "str")])
def test_load_preset_no_mapping_is_refused(tmp_path: Path, text: str, got: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="not a mapping") as caught:
        load_preset(str(path), PRESETS)
    assert got in str(caught.value)


@pytest.mark.parametrize(
    ("override", "got", "suggestion"),
    [
        ("phse1.epochs=2", "phse1", "phase1"),
        ("phase2.etaa=5", "phase2.etaa", "eta"),
        ("phase2.stage1.learning_rat=0.1", "phase2.stage1.learning_rat", "learning_rate"),
        ("phase2.losses.alpha_gaol=2", "phase2.losses.alpha_gaol", "alpha_goal"),
    ],
    ids=["top level", "one below", "two below", "a part with defaults"],
)
def test_unknown_key_is_named_whole_with_the_nearest(override: str, got: str, suggestion: str) -> None:
    message = refused(override)
    assert "unknown key" in message
    assert f"got: {got}\n" in message
    assert f"did you mean {suggestion}?" in message
    assert "smoke.yaml" in message


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ("[{n_blocks: 3, test: 4}, {n_blocks: 3, goal_moves: 2, test_share: 0.0}]", "share canonical forms"),
        ("[{n_blocks: 3, test: 4}, {n_blocks: 3, phase1: 4}]", "must differ"),
    ],
    ids=["another share held out", "twice the same"],
)
def test_levels_that_could_leak_test_problems_into_training_are_refused(levels: str, said: str) -> None:
    assert said in refused(f"problems.levels={levels}")


def test_unknown_key_in_a_list_of_levels_suggests_a_key_of_a_level() -> None:
    message = refused("problems.levels=[{n_block: 3, test: 4}]")
    assert "problems.levels.0.n_block" in message or "n_blocks" in message


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("phase2.eta=0", "phase2.eta"),
        ("phase2.temperature=-0.1", "phase2.temperature"),
        ("problems.test_share=1", "problems.test_share"),
        ("problems.object_names=[a, 2b]", "problems.object_names.1"),
        ("problems.object_names=[a b]", "problems.object_names.0"),
        ("phase1.learning_rate=0", "phase1.learning_rate"),
        ("phase1.schedule=quadratic", "phase1.schedule"),
        ("seed=-1", "seed"),
        ("seed=many", "seed"),
        ("name=../elsewhere", "name"),
        ("name=", "name"),
        ("phase1=", "phase1"),
    ],
)
def test_value_out_of_bounds_is_refused_at_its_place(override: str, place: str) -> None:
    assert f"{place}: " in refused(override)


def test_several_mistakes_tell_the_first_and_count_the_others() -> None:
    assert "1 more mistakes after it" in refused("phase2.eta=0", "phase2.temperature=-1")


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        (["planner.time_limit_s=50", "planner.kill_after_s=50"], ["50.0", "50.0"]),
        (["model.hidden_size=65"], ["hidden_size=65", "n_heads=2"]),
        (["rendering=full"], ["rendering=full", "tokenizer=words"]),
        (["evaluation.primary_level=9 blocks"], ["'9 blocks'"]),
        (["problems.object_names=[a, b, A]"], ["object_names must differ", "a twice"]),
        (["problems.levels=[]"], ["problems.levels", "problems.domains", "none of them"]),
    ],
    ids=["planner limits", "heads", "rendering of tiny", "primary level", "names", "no problems"],
)
def test_settings_that_do_not_fit_together_are_refused_with_both_values(
    overrides: list[str], values: list[str]
) -> None:
    message = refused(*overrides)
    assert all(value in message for value in values), message


def test_muon_with_another_zero_stage_is_refused() -> None:
    message = refused("trainer.optimizer=muon", "trainer.zero_stage=2")
    assert "optimizer=muon" in message
    assert "zero_stage=2" in message


def test_override_sets_a_nested_value_read_as_yaml() -> None:
    config = smoke("phase2.eta=5", "policy.kv_cache_gib=null", "problems.object_names=[x, y, z, w]", "seed=3")
    assert config.phase2.eta == 5
    assert config.policy.kv_cache_gib is None
    assert config.problems.object_names == ("x", "y", "z", "w")
    assert config.seed == 3


def test_override_leaves_the_rest_of_its_part_alone() -> None:
    before, after = smoke(), smoke("phase2.eta=5")
    assert after.phase2 == before.phase2.model_copy(update={"eta": 5})
    assert after.model_copy(update={"phase2": before.phase2}) == before


def test_override_given_twice_takes_the_last() -> None:
    assert smoke("seed=1", "seed=2").seed == 2


def test_override_of_a_part_the_preset_leaves_out_keeps_its_other_defaults() -> None:
    assert smoke("planner.search=first").planner == PlannerConfig(search="first")


@pytest.mark.parametrize("override", ["phase2.eta", "=3", "eta 5"])
def test_override_without_key_and_value_is_refused(override: str) -> None:
    assert "not an override" in refused(override)


def test_override_below_a_plain_value_is_refused() -> None:
    assert "'eta' holds no settings" in refused("phase2.eta.more=1")


def test_override_that_is_no_yaml_is_refused() -> None:
    assert "not YAML" in refused("phase2.eta=[1")


def test_config_is_frozen_at_every_depth() -> None:
    config: Any = smoke()
    for part, field in [(config, "seed"), (config.phase2, "eta"), (config.phase2.stage1, "epochs")]:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, field, 7)


# --- rates of the feedback iterations


def test_rates_of_an_iteration_fall_by_the_decay_and_nothing_else_changes() -> None:
    rates = "phase2.stage1={learning_rate: 0.008, muon_learning_rate: 0.04, batch_tokens: 64, weight_decay: 0.1}"
    loop = smoke(rates, "phase2.learning_rate_decay=0.5").phase2
    assert loop.optimisation(loop.stage1, 1) == loop.stage1
    third = loop.optimisation(loop.stage1, 3)
    assert (third.learning_rate, third.muon_learning_rate) == (0.002, 0.01)
    changed = {"learning_rate", "muon_learning_rate"}
    assert third.model_dump(exclude=changed) == loop.stage1.model_dump(exclude=changed)


def test_rates_of_an_iteration_without_decay_or_muon_stay() -> None:
    loop = smoke("phase2.stage2={learning_rate: 0.008, batch_tokens: 64}", "phase2.learning_rate_decay=1").phase2
    assert loop.optimisation(loop.stage2, 7) == loop.stage2
    decaying = loop.model_copy(update={"learning_rate_decay": 0.5}).optimisation(loop.stage2, 2)
    assert (decaying.learning_rate, decaying.muon_learning_rate) == (0.004, None)


@pytest.mark.parametrize("decay", ["0", "1.5"])
def test_decay_that_is_no_share_is_refused(decay: str) -> None:
    assert "phase2.learning_rate_decay" in refused(f"phase2.learning_rate_decay={decay}")


# --- presets on presets


def written(folder: Path, **presets: Any) -> Path:
    for name, settings in presets.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


def test_load_preset_with_a_base_changes_only_what_it_names(tmp_path: Path) -> None:
    below = yaml.safe_load((PRESETS / "smoke.yaml").read_text(encoding="utf-8"))
    above = {"base": "below", "phase2": {"eta": 7}, "problems": {"levels": [{"n_blocks": 3, "test": 1}]}}
    written(tmp_path, below=below, above=above)
    base, config = load_preset("below", tmp_path), load_preset("above", tmp_path)
    assert config.phase2.eta == 7
    assert config.phase2.model_copy(update={"eta": base.phase2.eta}) == base.phase2
    assert [level.n_blocks for level in config.problems.levels] == [3]
    assert config.phase1 == base.phase1


def test_load_preset_bases_in_a_circle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a circle"):
        load_preset("a", written(tmp_path, a={"base": "b"}, b={"base": "a"}))


def test_load_preset_unknown_base_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such preset") as caught:
        load_preset("a", written(tmp_path, a={"base": "smooke"}, smoke={}))
    assert "did you mean smoke?" in str(caught.value)


TABLE_2 = {
    "phase1.learning_rate": 2e-5,
    "phase2.stage1.learning_rate": 1e-5,
    "phase2.stage2.learning_rate": 5e-6,
    "phase1.batch_sequences": 16,
    "phase2.stage1.batch_sequences": 8,
    "phase2.stage2.batch_sequences": 8,
    "phase1.max_length_tokens": 2048,
    "phase2.stage1.max_length_tokens": 4096,
    "phase2.stage2.max_length_tokens": 4096,
    "phase1.epochs": 5,
    "phase2.stage1.epochs": 3,
    "phase2.stage2.epochs": 3,
    "phase1.warmup_steps": 500,
    "phase2.stage1.warmup_steps": 200,
    "phase2.stage2.warmup_steps": 200,
    "phase1.weight_decay": 0.01,
    "phase2.stage1.weight_decay": 0.001,
    "phase2.stage2.weight_decay": 0.001,
    "phase1.gradient_clipping": 1.0,
    "phase2.stage1.gradient_clipping": 0.5,
    "phase2.stage2.gradient_clipping": 0.5,
    "phase1.temperature": 0.7,
    "phase2.temperature": 0.3,
    "phase1.max_new_tokens": 1024,
    "phase2.max_new_tokens": 2048,
    "trainer.optimizer": "adamw",
    "phase1.beta1": 0.9,
    "phase1.beta2": 0.999,
    "phase2.stage1.beta1": 0.9,
    "phase2.stage1.beta2": 0.999,
    "phase2.stage2.beta2": 0.999,
    "phase1.eps": 1e-8,
    "phase2.stage1.eps": 1e-8,
    "phase2.stage2.eps": 1e-8,
    "phase2.eta": 15,
    "ablation.eta_low": 10,
    "phase2.losses.alpha_precond": 1.0,
    "phase2.losses.alpha_effect": 1.0,
    "phase2.losses.alpha_goal": 1.5,
    "phase2.losses.lambda_feedback": 0.1,
    "phase2.losses.beta": 2.0,
    "phase2.losses.alpha": 0.5,
}
"""Table 2 and the weights of equations 5 to 9 (arXiv 2509.13351, appendix A)."""
FOR_OUR_CHAINS = {
    "phase1.max_length_tokens": 4096,
    "phase1.max_new_tokens": 4096,
    "phase2.max_new_tokens": 4096,
    "evaluation.max_new_tokens": 4096,
    "phase2.losses.score": 0.0,
}
"""What the presets of models have instead."""


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("paper", {**TABLE_2, "phase2.losses.score": 1.0}),
        ("paper-llama3-8b", TABLE_2 | FOR_OUR_CHAINS),
        ("paper-qwen3", TABLE_2 | FOR_OUR_CHAINS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_presets_of_the_paper_have_the_values_of_table_2(preset: str, values: dict[str, Any]) -> None:
    config = load_preset(preset, PRESETS)
    for key, value in values.items():
        found: Any = config
        for name in key.split("."):
            found = getattr(found, name)
        assert found == value, key
    domains = {level.domain: level.test for level in config.problems.domains}
    assert domains == {"blocksworld": 100, "mystery-blocksworld": 100, "logistics": 100}


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        (["phase1.batch_sequences=16"], ["batch_tokens=2048", "batch_sequences=16"]),
        (["trainer.lora={rank: 4}"], ["optimizer=muon", "lora"]),
        (["trainer.quantisation=nf4"], ["quantisation=nf4", "lora"]),
        (["trainer.optimizer=adamw", "trainer.dtype=bfloat16"], ["dtype=bfloat16", "zero_stage=2"]),
        (["trainer.optimizer=adamw", "trainer.offload=all"], ["offload=all", "zero_stage=1"]),
        (["trainer.offload=optimizer"], ["optimizer=muon", "offload=optimizer"]),
        (["trainer.n_ranks=2", "trainer.min_ranks=3"], ["min_ranks=3", "n_ranks=2"]),
        (["phase2.patience=1"], ["phase2.patience=1", "probe_share"]),
        (["problems.folder=x"], ["levels, folder"]),
        (["problems.levels=[{n_blocks: 3, test: 1, probe: 2}]"], ["probe_share is 0"]),
    ],
    ids=[
        "two batch sizes",
        "muon on adapters",
        "nf4 alone",
        "bfloat16 with zero 1",
        "offload",
        "muon offloaded",
        "more ranks at least than at most",
        "patience alone",
        "two sources",
        "no probes",
    ],
)
def test_settings_of_training_and_loop_that_do_not_fit_together_are_refused(
    overrides: list[str], values: list[str]
) -> None:
    message = refused(*overrides)
    assert all(value in message for value in values), message


@pytest.mark.parametrize(
    ("pipeline", "given", "unread"),
    [
        (pddl_instruct.PIPELINE, ["model.folder=x"], "model.has_whole_names=true"),
        (nl2plan.PIPELINE, [], "model.n_layers=2"),
        (nl2plan.PIPELINE, [], "trainer.n_ranks=1"),
    ],
    ids=["a folder has its own", "no lessons, no model", "no lessons, no trainer"],
)
def test_setting_of_a_model_that_is_not_made_is_refused(
    pipeline: Pipeline[Any, Any], given: list[str], unread: str
) -> None:
    pipeline.settings("smoke", overrides=given)
    with pytest.raises(ConfigError, match="no stage reads this setting"):
        pipeline.settings("smoke", overrides=[*given, unread])

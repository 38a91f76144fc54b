"""Settings of `generalization_gap` that do not go together are refused, each with what is wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from pipelines.generalization_gap import PIPELINE
from pipelines.pddl_instruct import PIPELINE as PDDL_INSTRUCT
from pipelines.run.paths import PRESETS
from pipelines.self_criteach import PIPELINE as SELF_CRITEACH
from plansmith.config.dataset import DatasetConfig
from plansmith.config.loading import load_settings
from plansmith.errors import ConfigError
from plansmith.report.gap_paper import LIMIT_TOKENS, TABLE_2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("variants=[numbered]", "add compact to variants"),
        ("variants=[compact, compact]", "names one twice"),
        ("variants=[]", "nothing would be tuned"),
        ("model.tokenizer=words", "take bpe"),
        ("prompts=named", "prompts=named tells no more of a domain"),
        ("grpo_after_epoch=3", r"grpo_after_epoch=3 of sft\.epochs=2"),
        ("labels=[0.5, 0.5]", r"rising order, each once, got \[0\.5, 0\.5\]"),
        ("labels=[0.5, 0.1]", r"rising order, each once, got \[0\.5, 0\.1\]"),
        ("problems.domains=[{domain: ferry, level: L1, test: 3}]", "nothing would be learnt"),
        ("problems.domains=[{domain: ferry, level: L1, phase1: 3}]", "nothing to compare with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PIPELINE.settings("smoke", overrides=[override])


NONE_DIFFERS = "{valid: 0, goal_not_reached: 0, precondition_unsatisfied: 0, malformed_plan: 0, cut: 0}"


@pytest.mark.parametrize(
    ("override", "got", "expected"),
    [
        ("grpo.top_k=1", "1", "0, all tokens, or above 1"),
        ("grpo.temperature=0", "0", "above 0"),
        ("other_grpo.binary.rollouts_per_problem=1", "1", "2 at least"),
        (f"other_grpo.binary.rewards={NONE_DIFFERS}", "0 for each verdict", "two rewards at least"),
        ("grpo.max_staleness=2", "2", "a whole number, 0 at least, 1 at most"),
        ("grpo.temperature=warm", "'warm'", "a number, 0 at least, 2 at most"),
        ("grpo.baseline=all", "'all'", "group or batch"),
        ("grpo=5", "5", "a mapping or null"),
        ("labels.1=1.5", "1.5", "a number, above 0, 1 at most"),
        ("prices.cpu_hour=-1", "-1", "a number, 0 at least"),
        ("prices.accelerator_hour=-0.5", "-0.5", "a number, 0 at least"),
        ("cpo.budget=-1", "-1", "a number, 0 at least"),
        ("cpo.state_cost=-1", "-1", "a number, 0 at least"),
        ("cpo.beta=-1", "-1", "a number, 0 at least"),
    ],
)
def test_setting_out_of_bounds_is_told_with_its_place_what_was_got_expected_and_a_cure(
    override: str, got: str, expected: str
) -> None:
    pipeline, place = SELF_CRITEACH if override.startswith("cpo") else PIPELINE, override.partition("=")[0]
    override = override.replace("labels.1=1.5", "labels=[0.5, 1.5]")
    with pytest.raises(ConfigError) as caught:
        pipeline.settings("smoke", overrides=[override])
    error = caught.value
    assert (error.where or "").endswith(f"smoke.yaml: {place}")
    assert (error.got, error.expected, error.exit_code) == (got, expected, 2)
    assert error.cure


def test_setting_that_is_missing_is_told_with_what_it_may_be() -> None:
    with pytest.raises(ConfigError, match=r"smoke\.yaml: grpo\.updates: Field required") as caught:
        PIPELINE.settings("smoke", overrides=["grpo.updates=2", "grpo={learning_rate: 1.0, batch_tokens: 1}"])
    assert (caught.value.got, caught.value.expected) == ("nothing", "a whole number, 1 at least")


def test_setting_with_a_default_may_be_left_out() -> None:
    with pytest.raises(ConfigError) as caught:
        PIPELINE.settings("smoke", overrides=["grpo.top_p=2"])
    assert caught.value.cure == "give such a value; the default is 1.0"


@pytest.mark.parametrize("where", ["sft", "grpo", "other_grpo.binary"])
def test_an_optimizer_that_does_not_go_with_the_trainer_is_refused_with_its_place(where: str) -> None:
    adamw = ["trainer.optimizer=adamw", "trainer.zero_stage=2"]
    assert PIPELINE.settings("smoke", overrides=adamw).trainer.optimizer == "adamw"
    with pytest.raises(ConfigError, match=rf"{where}: optimizer=muon works with zero_stage=1, got zero_stage=2"):
        PIPELINE.settings("smoke", overrides=[*adamw, f"{where}.optimizer=muon"])


def test_a_label_budget_without_reinforcement_is_refused() -> None:
    without = ["grpo=null", "other_grpo=null", "controls=[]"]
    assert not PIPELINE.settings("smoke", overrides=without).labels
    with pytest.raises(ConfigError, match=r"labels=\[0\.5\] go on with reinforcement learning on the rest"):
        PIPELINE.settings("smoke", overrides=[*without, "labels=[0.5]"])


def test_a_run_that_learns_from_d2_needs_a_share_for_it() -> None:
    with pytest.raises(ConfigError, match="leaves no problem for D2"):
        PDDL_INSTRUCT.settings("smoke", overrides=["problems.phase2_share=0"])


def test_writing_ahead_needs_weights_for_what_an_older_policy_wrote() -> None:
    with pytest.raises(ConfigError, match="set weight_limit, such as 2"):
        PIPELINE.settings("smoke", overrides=["grpo.max_staleness=1", "grpo.weight_limit=null"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("grpo.spare_problems=4", "leave it at 0"),
        ("grpo.advantage_scale=group", "set advantage_scale to batch or none"),
    ],
)
def test_baseline_of_the_batch_lets_every_group_teach(override: str, message: str) -> None:
    fitting = ["grpo.baseline=batch", "grpo.advantage_scale=none"]
    assert PIPELINE.settings("smoke", overrides=fitting).grpo.baseline == "batch"
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings("smoke", overrides=[*fitting, override])


def test_writing_ahead_on_devices_that_engines_and_trainer_share_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set policy\.placement=separate"):
        PIPELINE.settings("paper-2026", overrides=["policy.placement=colocated"])
    assert PIPELINE.settings("paper-2026").grpo.max_staleness == 1


def test_paper_has_the_values_of_table_2_but_for_the_top_k_of_one() -> None:
    config = PIPELINE.settings("paper")
    sft, grpo = config.tuning.model_dump(), config.grpo
    assert grpo is not None and config.model.folder == "Qwen/Qwen3-1.7B"
    assert {name: sft[name] for name in TABLE_2["sft"]} == TABLE_2["sft"]
    assert {name: getattr(grpo, name) for name in TABLE_2["grpo"]} == {**TABLE_2["grpo"], "top_k": 0}
    assert grpo.batch_sequences == 8 * 3  # an update is one step
    assert config.trainer.row_length_tokens == sft["max_length_tokens"] == LIMIT_TOKENS == 4096


@pytest.mark.parametrize("preset", ["paper", "paper-2026"])
def test_paper_asks_for_what_its_dataset_has_and_goes_through_all_of_it_once(preset: str) -> None:
    config = PIPELINE.settings(preset)
    built = load_settings(DatasetConfig, "generalization_gap", PRESETS / "datasets")
    of_dataset = {(cell.domain, cell.level): cell.wanted for cell in built.cells()}
    learnt, tested = Counter[str](), Counter[str]()
    for level in config.problems.domains:
        counts = of_dataset[level.domain, level.level]
        assert (level.phase1, level.test) == (counts.get("train", 0), counts.get("test") or counts["unseen"])
        learnt[level.domain] += level.phase1
        tested[level.domain] += level.test
    assert {learnt[name] for name in config.trained_domains} == {3200}  # 80 in 100 of 4,000
    assert {tested[name] for name in config.trained_domains} == {100}
    assert {name: tested[name] for name in config.unseen_domains} == {"rovers": 250, "briefcase": 250}
    assert config.grpo is not None
    assert config.grpo.updates * config.grpo.problems_per_update == sum(learnt.values())

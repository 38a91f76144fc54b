"""Settings of `generalization_gap` that do not go together are refused, each with what is wrong."""

from __future__ import annotations

import pytest

from pipelines.generalization_gap import PIPELINE
from pipelines.pddl_instruct import PIPELINE as PDDL_INSTRUCT
from plansmith.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("variants=[numbered]", "add compact to variants"),
        ("variants=[compact, compact]", "names one twice"),
        ("variants=[]", "nothing would be tuned"),
        ("model.tokenizer=words", "take bpe"),
        ("prompts=named", "prompts=named tells no more of a domain"),
        ("grpo.top_k=1", "draws equal ones"),
        ("labels=[0, 0.5]", r"labels\.0: Input should be greater than 0"),
        ("labels=[0.5, 1.5]", r"labels\.1: Input should be less than or equal to 1"),
        ("labels=[0.5, 0.5]", r"rising order, each once, got \[0\.5, 0\.5\]"),
        ("labels=[0.5, 0.1]", r"rising order, each once, got \[0\.5, 0\.1\]"),
        ("problems.domains=[{domain: ferry, level: L1, test: 3}]", "nothing would be learnt"),
        ("problems.domains=[{domain: ferry, level: L1, phase1: 3}]", "nothing to compare with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PIPELINE.settings("smoke", overrides=[override])


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


def test_writing_ahead_on_devices_that_engines_and_trainer_share_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set policy\.placement=separate"):
        PIPELINE.settings("paper-2026", overrides=["policy.placement=colocated"])
    assert PIPELINE.settings("paper-2026").grpo.max_staleness == 1

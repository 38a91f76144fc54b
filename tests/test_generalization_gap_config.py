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
        ("grpo.top_k=1", "draws equal ones"),
        ("problems.domains=[{domain: ferry, level: L1, test: 3}]", "nothing would be learnt"),
        ("problems.domains=[{domain: ferry, level: L1, phase1: 3}]", "nothing to compare with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PIPELINE.settings("smoke", overrides=[override])


def test_a_run_that_learns_from_d2_needs_a_share_for_it() -> None:
    with pytest.raises(ConfigError, match="leaves no problem for D2"):
        PDDL_INSTRUCT.settings("smoke", overrides=["problems.phase2_share=0"])

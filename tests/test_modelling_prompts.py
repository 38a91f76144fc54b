"""The prompts for feedback show what the paper's show: two flawed answers, one accepted, a failure of every item."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from plansmith.modelling.products import MODELLING_STEPS, DialogueStep

N_ITEMS = {"types": 8, "hierarchy": 5, "actions": 6, "construction": 6, "task": 8}
"""Questions of each checklist, which are at least the paper's of figure A12."""


def items_of(text: str) -> list[str]:
    """Return the numbered lines at the beginning of a text, in order."""
    found = re.findall(r"^(\d+)\. (.+)$", text.partition("\n\n")[0], flags=re.MULTILINE)
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [said for _, said in found]


@pytest.mark.parametrize("step", MODELLING_STEPS)
def test_feedback_prompt_fails_every_item_of_its_checklist_in_a_flawed_example_and_accepts_the_last(
    step: DialogueStep,
) -> None:
    prompt = (files("plansmith.modelling") / "templates" / "worked" / f"{step}_feedback.j2").read_text(encoding="utf-8")
    questions = items_of(prompt.partition("Checklist:\n")[2])
    assert len(questions) == N_ITEMS[step]
    examples = re.split(r"^# (?:First|Second|Third) example$", prompt.partition("# Your task")[0], flags=re.MULTILINE)
    told = [example.partition("## Answer\n")[2] for example in examples[1:]]
    answers = [[said.rstrip(".").rpartition(" ")[2] for said in items_of(each)] for each in told]
    advice = [each.partition("## Advice\n")[2].strip() for each in told]
    assert [len(each) for each in answers] == [len(questions)] * 3
    assert {word for each in answers for word in each} == {"Yes", "No"}
    assert [text == "No changes." for text in advice] == [False, False, True]
    *flawed, accepted = answers
    never = [question for question, good, *bad in zip(questions, accepted, *flawed, strict=True) if {*bad} == {good}]
    assert never == []

"""What a text costs: the estimate beforehand, and a budget that ends the asking where it is spent."""

from __future__ import annotations

from pathlib import Path

import pytest
from modelled import SAMPLING, modelled, reference

from plansmith.config.modelling import ModellingConfig
from plansmith.generation import Message
from plansmith.modelling.budget import Budget, Budgeted, BudgetSpentError, Cost, cost_of, estimate, most_calls, steps_of
from plansmith.modelling.products import AT_ONCE
from plansmith.modelling.script import REFUSAL, Script, ScriptedGenerator

ASKED = [(Message("user", f"Question {number}?"),) for number in range(5)]
WORDS = 2 + len(REFUSAL.split())
"""Of a question and the script's answer to it; it counts words."""


def budgeted(max_calls: int | None = None, max_tokens: int | None = None, *, spent: Cost = Cost()) -> Budgeted:  # noqa: B008
    """Return the script within a budget."""
    return Budgeted(ScriptedGenerator(Script(())), Budget(max_calls, max_tokens, spent, n_together=2))


def test_estimate_of_a_task_is_what_the_script_is_asked(tmp_path: Path) -> None:
    own, config = reference("blocksworld-easy"), ModellingConfig()
    foreseen = estimate(own.text, config, own)
    _, log, _ = modelled(own, tmp_path, config=config)
    asked = [call.step for call in log.calls]
    assert {step: cost.calls for step, cost in foreseen.items() if step not in AT_ONCE} == {
        step: asked.count(step) for step in asked
    }
    n_characters = sum(len(text) for call in log.calls for _, text in call.messages) + sum(
        len(call.answer) for call in log.calls
    )
    assert steps_of(foreseen).tokens == pytest.approx(n_characters / 4, rel=0.01)
    assert cost_of(log.calls).calls == len(asked)


@pytest.mark.parametrize(("feedback", "most"), [("model", 131), ("person", 119), ("none", 107)])
def test_most_calls_are_those_of_answers_that_are_never_mended(feedback: str, most: int, tmp_path: Path) -> None:
    config = ModellingConfig.model_validate({"feedback": feedback})
    assert most_calls(config, 4) == most
    own, short = reference("isr-easy"), ModellingConfig(feedback="none", passes=1, max_error_messages=2)
    never = {step: ["cut"] * 40 for step in ("construction", "task")}
    _, log, _ = modelled(own, tmp_path, faults=never, config=short)
    assert len(log.calls) == most_calls(short, 1) - 3 * 2  # steps 1 to 3 make no mistake


def test_budget_of_calls_ends_after_as_many_and_goes_on_with_more() -> None:
    generator = budgeted(3)
    numbers = (number for number, _ in generator.complete(ASKED, SAMPLING, seeds=range(5)))
    assert [next(numbers) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BudgetSpentError, match="the budget is spent") as raised:
        next(numbers)
    assert raised.value.exit_code == 1
    again = budgeted(5, spent=generator.budget.spent)
    assert [number for number, _ in again.complete(ASKED[3:], SAMPLING, seeds=range(2))] == [0, 1]


def test_budget_of_tokens_lets_what_is_under_way_be_finished() -> None:
    generator = budgeted(max_tokens=WORDS)
    numbers = (number for number, _ in generator.complete(ASKED, SAMPLING, seeds=range(5)))
    assert [next(numbers), next(numbers)] == [0, 1]  # the first of the two has spent all
    with pytest.raises(BudgetSpentError):
        next(numbers)
    assert generator.budget.spent == Cost(2, 2 * WORDS)


def test_budget_without_limits_asks_everything_at_once() -> None:
    assert len(list(budgeted().complete(ASKED, SAMPLING, seeds=range(5)))) == 5


def test_budget_counts_what_comes_to_be_asked_later_and_what_is_under_way() -> None:
    asked, seeds = ASKED[:1], [0]
    answers = budgeted(3).complete(asked, SAMPLING, seeds=seeds)
    for number in range(3):
        assert next(answers)[0] == number
        asked.append(ASKED[number + 1])
        seeds.append(0)
    with pytest.raises(BudgetSpentError):
        next(answers)
    budget = Budget(max_calls=5, max_tokens=100, spent=Cost(3, 90), n_together=3)
    assert [budget.room(9, under_way) for under_way in (0, 1, 2)] == [2, 1, 0]
    budget.spent = Cost(4, 100)
    assert budget.room(9, under_way=1) == 0

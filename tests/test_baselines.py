"""Prompts for untrained models, and plans found in what such models answer."""

from __future__ import annotations

import pytest
from conftest import BLOCKS, SUSSMAN_PLAN, depot_task, sussman
from hypothesis import given
from hypothesis import strategies as st

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.text.baselines import chain_of_thought_prompt, zero_shot_prompt
from plansmith.text.chains import chain_of_plan
from plansmith.text.full import FullRendering
from plansmith.text.loose_plans import LoosePlan, read_loose_plan

STEPS = "(unstack c a)\n(put-down c)\n(pick-up b)\n(stack b c)\n(pick-up a)\n(stack a b)"


def steps(text: str) -> tuple[PlanStep, ...]:
    """Return the plan found in a completion, which must have no fault."""
    found = read_loose_plan(text, BLOCKS)
    assert found.fault is None, found.fault
    return found.steps


@pytest.mark.parametrize("write", [zero_shot_prompt, chain_of_thought_prompt])
@pytest.mark.parametrize("task", [sussman(), depot_task()], ids=["blocks", "depot"])
def test_prompt_holds_domain_and_problem_as_they_are_parsed(write, task: PlanningTask) -> None:
    prompt = write(task)
    assert print_domain(task.domain).rstrip() in prompt and print_problem(task.problem).rstrip() in prompt
    _, _, rest = prompt.partition("Domain:\n")
    domain, _, problem = rest.partition("\n\nProblem:\n")
    assert PlanningTask.from_text(domain, problem).domain == task.domain


def test_prompts_differ_in_what_they_ask_to_be_written() -> None:
    plan_alone, reasoned = zero_shot_prompt(sussman()), chain_of_thought_prompt(sussman())
    assert "the plan alone" in plan_alone and "[FINAL PLAN]" not in plan_alone and "step by step" not in plan_alone
    assert "step by step" in reasoned and "[FINAL PLAN]" in reasoned and "the plan alone" not in reasoned


@pytest.mark.parametrize("write", [zero_shot_prompt, chain_of_thought_prompt])
def test_prompt_itself_holds_no_plan(write) -> None:
    domain_and_problem = write(sussman()).partition("Domain:\n")[2]
    assert read_loose_plan(domain_and_problem, BLOCKS).steps == ()


@pytest.mark.parametrize(
    "text", ["", "\n \n", "I cannot solve this.", "The goal is already true, no action is needed."]
)
def test_read_loose_plan_without_a_step_is_a_fault(text: str) -> None:
    assert read_loose_plan(text, BLOCKS) == LoosePlan((), "no step of a plan anywhere in the text")


RIGHT = {
    "plan_alone": STEPS,
    "upper_case": STEPS.upper(),
    "one_line": STEPS.replace("\n", " "),
    "commas": "Plan: " + STEPS.replace("\n", ", "),
    "arrows": STEPS.replace("\n", " -> ") + ".",
    "numbered": "\n".join(f"{i}. {line}" for i, line in enumerate(STEPS.splitlines(), 1)),
    "numbered_lazily": "\n".join(f"1. {line}" for line in STEPS.splitlines()),
    "numbered_in_brackets": "\n".join(f"[{i}] {line}" for i, line in enumerate(STEPS.splitlines(), 1)),
    "step_words": "\n".join(f"Step {i}: {line}" for i, line in enumerate(STEPS.splitlines(), 1)),
    "step_above": "\n".join(f"### Step {i}:\n{line}\n" for i, line in enumerate(STEPS.splitlines(), 1)),
    "stamps": "\n".join(f"{100 * i:05d}: {line}" for i, line in enumerate(STEPS.splitlines(), 1)) + "\nEND",
    "times": "\n".join(f"{i}.000: {line} [1]" for i, line in enumerate(STEPS.splitlines())),
    "bullets": "\n".join(f"- {line}" for line in STEPS.splitlines()),
    "star_bullets_in_code": "\n".join(f"* `{line}`" for line in STEPS.splitlines()),
    "bold": "\n".join(f"{i}. **{line}**" for i, line in enumerate(STEPS.splitlines(), 1)),
    "comments": "\n".join(f"{line} ; move a block" for line in STEPS.splitlines()),
    "reasons": "\n".join(f"{i}. `{line}` - needed for (on b c)" for i, line in enumerate(STEPS.splitlines(), 1)),
    "no_brackets": STEPS.replace("(", "").replace(")", ""),
    "no_brackets_numbered": "\n".join(f"{i}) {x.strip('()')}" for i, x in enumerate(STEPS.splitlines(), 1)),
    "calls": "unstack(c, a)\nput-down(c)\npick-up(b)\nstack(b, c)\npick-up(a)\nstack(a, b)",
    "json": '["' + '", "'.join(STEPS.splitlines()) + '"]',
    "json_lines": '[\n  "' + '",\n  "'.join(STEPS.splitlines()) + '"\n]',
    "fence": f"Here is what to do:\n\n```pddl\n{STEPS}\n```\n\nThis puts a on b and b on c.",
    "fence_after_echoed_problem": f"```\n(define (problem p)\n(:init\n(on c a)\n(clear c))\n)\n```\n```\n{STEPS}\n```",
    "fence_never_closed": f"```\n{STEPS}",
    "heading": f"First some thoughts.\n\n## Plan\n\n{STEPS}\n\n## Explanation\n\n(unstack c a): c is on a.",
    "bold_heading": f"**Plan:**\n{STEPS}",
    "sentence": f"Sure! Here's a plan (6 steps) to achieve the goal:\n\n{STEPS}\n\nLet me know if you need more.",
    "final_plan": f"Let me think.\n(pick-up b) would work.\n\n[FINAL PLAN]\n{STEPS}",
    "final_plan_bold_and_fenced": f"**[FINAL PLAN]**\n```\n{STEPS}\n```\nDone.",
    "final_plan_twice": f"[FINAL PLAN]\n(pick-up b)\n\nNo, that is wrong.\n\n[Final Plan]\n{STEPS}",
    "verdict_behind": f"[FINAL PLAN]\n{STEPS}\n[VERDICT] VALID",
    "thinking": f"<think>\nPlan:\n(pick-up b)\n(stack b a)\n</think>\n\n{STEPS}",
    "thinking_opened_by_the_template": f"Okay, (pick-up b)\n(pick-up b)\n</think>\n{STEPS}",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT.keys())
def test_read_loose_plan_right_plan_in_any_dress_is_found_whole(text: str) -> None:
    assert steps(text) == SUSSMAN_PLAN
    assert validate_plan(sussman(), steps(text)).verdict is Verdict.VALID


def test_read_loose_plan_reasoned_completion_counts_the_final_plan_only() -> None:
    text = """Let me work through this step by step.

**Initial state:** c is on a, b is on the table.

1. `(pick-up b)`: preconditions (clear b), (ontable b), (handempty) hold.
   - State: (holding b)
2. `(stack b c)`: preconditions (holding b), (clear c) hold.

But then a is below c, which must be moved first. So I start over.

1. `(unstack c a)`
2. `(put-down c)`

[FINAL PLAN]
(unstack c a)
(put-down c)
(pick-up b)
(stack b c)
(pick-up a)
(stack a b)
"""
    assert steps(text) == SUSSMAN_PLAN


def test_read_loose_plan_steps_between_explanations_are_all_found() -> None:
    text = """Here is the plan:

1. **Unstack c from a**: (unstack c a)
   - Preconditions: (on c a), (clear c), (handempty).
   - (clear c): TRUE
2. **Put it down**: (put-down c)
   Now the hand is empty.
3. (pick-up b)
   - the hand holds b
4. (stack b c)

So far b is on c.

5. (pick-up a)
6. (stack a b)

Final state:
(on a b)
(on b c)
(ontable c)
"""
    assert steps(text) == SUSSMAN_PLAN


def test_read_loose_plan_later_discussion_of_the_steps_is_not_read_twice() -> None:
    text = f"The plan is:\n{STEPS}\n\nLet's verify this plan:\n(unstack c a): fine\n(put-down c): fine\n"
    assert steps(text) == SUSSMAN_PLAN
    numbered = f"Plan:\n{STEPS}\n\nExplanation:\n1. (unstack c a) - frees a\n2. (put-down c) - frees the hand\n"
    assert steps(numbered) == SUSSMAN_PLAN
    fenced = f"```\n{STEPS}\n```\n(unstack c a) - frees a\n(put-down c) - frees the hand\n"
    assert steps(fenced) == steps(f"Plan:\n{fenced}") == SUSSMAN_PLAN


def test_read_loose_plan_numbers_that_start_again_without_a_mark_begin_another_list() -> None:
    text = "1. (pick-up b)\n2. (stack b c)\n\nThat leaves a below c. Better:\n\n1. (unstack c a)\n2. (put-down c)"
    assert steps(text) == parse_plan("(unstack c a) (put-down c)")


def test_read_loose_plan_numbers_that_start_again_after_a_mark_end_the_plan() -> None:
    text = "Plan:\n1. (pick-up b)\n2. (stack b c)\n\nAnother way would be\n1. (unstack c a)\n2. (put-down c)"
    assert steps(text) == parse_plan("(pick-up b) (stack b c)")


def test_read_loose_plan_last_heading_with_steps_counts() -> None:
    text = "Plan:\n(pick-up b)\n(stack b c)\n\nThat fails.\n\nRevised plan:\n(unstack c a)\n\nThe plan: done.\n"
    assert steps(text) == parse_plan("(unstack c a)")


def test_read_loose_plan_unknown_action_in_brackets_stays_for_the_validator() -> None:
    found = steps("(unstack c a)\n(drop c)\n(pick-up b)")
    assert found == parse_plan("(unstack c a) (drop c) (pick-up b)")
    assert validate_plan(sussman(), found).verdict is Verdict.MALFORMED_PLAN


def test_read_loose_plan_unknown_action_without_brackets_is_prose() -> None:
    assert steps("pick-up b\ndrop b\nhooray") == parse_plan("(pick-up b)")


def test_read_loose_plan_wrong_number_of_arguments_stays_wrong() -> None:
    assert steps("(pick-up a b)\n(stack a)") == parse_plan("(pick-up a b) (stack a)")
    assert steps("Plan:\npick-up a b") == parse_plan("(pick-up a b)")
    assert read_loose_plan("pick-up a b", BLOCKS).steps == ()  # may be any three words


def test_read_loose_plan_fact_among_the_steps_is_a_wrong_step() -> None:
    found = steps("(unstack c a)\n(on b c)\n(put-down c)")
    assert found == parse_plan("(unstack c a) (on b c) (put-down c)")
    assert validate_plan(sussman(), found).verdict is Verdict.MALFORMED_PLAN
    assert steps("[FINAL PLAN]\n(on b c)\n(put-down c)")[0] == PlanStep("on", ("b", "c"))


def test_read_loose_plan_facts_of_a_state_are_no_steps() -> None:
    assert read_loose_plan("The initial state is:\n(on c a)\n(clear c)\n- (handempty)\n", BLOCKS).steps == ()
    assert read_loose_plan("```\n(on c a)\n(clear c)\n```", BLOCKS).steps == ()


@pytest.mark.parametrize(
    "line",
    [
        "Pick-up a from the table",
        "Stack a on b.",
        "stack b on top",
        "We execute (pick-up a) first.",
        "(Note that the hand is empty)",
        "(6 actions)",
        "(pick-up a) requires (clear a)",
        "The action pick-up a is applicable",
        "3 blocks are on the table",
        "put-down it",
        "For example: (pick-up a)",
    ],
)
def test_read_loose_plan_prose_is_no_step(line: str) -> None:
    assert read_loose_plan(line, BLOCKS).steps == ()
    assert steps(f"(unstack c a)\n{line}\n(put-down c)") == parse_plan("(unstack c a) (put-down c)")


CUT = {
    "in_an_argument": "(unstack c a)\n(put-down c)\n(pick-up",
    "in_a_name": "(unstack c a)\n(put-down c)\n(pick-",
    "on_one_line": "Plan: (unstack c a) (put-down c) (pick-up b",
    "numbered": "[FINAL PLAN]\n1. (unstack c a)\n2. (put-down c)\n3. (pick-up b",
    "in_a_fence": "```\n(unstack c a)\n(put-down c)\n(pick-up b",
}


@pytest.mark.parametrize("text", CUT.values(), ids=CUT.keys())
def test_read_loose_plan_truncated_within_a_step_is_a_fault_with_the_steps_before(text: str) -> None:
    found = read_loose_plan(text, BLOCKS)
    assert found.steps == parse_plan("(unstack c a) (put-down c)")
    assert found.fault is not None and "cut off" in found.fault


def test_read_loose_plan_bracket_left_open_in_the_middle_is_a_fault() -> None:
    found = read_loose_plan("(unstack c a)\n(put-down c\n(pick-up b)", BLOCKS)
    assert found.fault is not None and "put-down c" in found.fault


def test_read_loose_plan_truncated_while_thinking_is_a_fault() -> None:
    found = read_loose_plan(f"<think>\nMaybe this plan:\n{STEPS}\nBut then", BLOCKS)
    assert found.steps == () and found.fault is not None and "thinking" in found.fault


def test_read_loose_plan_truncated_behind_the_mark_does_not_fall_back_to_a_draft() -> None:
    found = read_loose_plan(f"{STEPS}\n\n[FINAL PLAN]\n", BLOCKS)
    assert found == LoosePlan((), "no step follows [FINAL PLAN]")


def test_read_loose_plan_chain_in_the_full_rendering_gives_its_final_plan() -> None:
    text = FullRendering().write_chain(chain_of_plan(sussman(), SUSSMAN_PLAN))
    assert steps(text) == SUSSMAN_PLAN
    assert steps(text.partition("[FINAL PLAN]")[0]) == SUSSMAN_PLAN  # the actions of its steps, truncated after them


def test_read_loose_plan_steps_without_numbers_between_states_are_all_found() -> None:
    text = "".join(
        f"Action: {step}\nCheck:\n- (clear a)\nState after this action:\n(on b c)\n\n" for step in SUSSMAN_PLAN
    )
    assert steps(text) == steps(f"**Plan**\n{text}") == SUSSMAN_PLAN


PIECES = st.sampled_from(
    [*STEPS.splitlines(), "Plan:", "[FINAL PLAN]", "```", "<think>", "</think>", "1.", "- ", "**", "(", ")", "(on a b)",
     "stack a b", "pick-up(a)", "Step 2:", "prose", "\n", " ", "[", "]", ":", "[VERDICT] VALID"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=25))
def test_read_loose_plan_of_anything_only_finds_what_is_written(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = read_loose_plan(text, BLOCKS)
    assert found.steps or found.fault
    for step in found.steps:
        assert step.name in text
        assert all(argument in text for argument in step.arguments)


@given(st.text(max_size=80))
def test_read_loose_plan_of_garbage_never_fails(text: str) -> None:
    found = read_loose_plan(text, BLOCKS)
    assert bool(found.steps) or found.fault is not None

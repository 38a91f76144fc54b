"""The full rendering: sections as in appendix B, read back loosely in form and strictly in claims."""

from __future__ import annotations

import random

import pytest
from conftest import (
    BLOCKS,
    SUSSMAN_PLAN,
    blocks_problems,
    blocks_task,
    depot_task,
    random_walk,
    shortest_plan,
    sussman,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from plansmith.errors import ConfigError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Literal, Problem
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem, parse_step
from plansmith.text.chains import ReadChain, Span, chain_of_plan
from plansmith.text.full import FullRendering, outcome_lines, step_lines
from plansmith.text.full_reader import read_literals
from plansmith.text.rendering import rendering_of

FULL = FullRendering()

TWO_BLOCKS_CHAIN = """\
[STEP 1]
- Goals:
  - (on a b): FALSE
- Purpose: (on a b) since (clear b) needs (holding a) since (clear a) (ontable a) (handempty)
- Action: (pick-up a)
- Preconditions:
  - (clear a): TRUE
  - (ontable a): TRUE
  - (handempty): TRUE
- Applicable: YES
- Add: (holding a)
- Delete: (ontable a) (clear a) (handempty)
- Next state: (holding a) (clear b) (ontable b)
[STEP 2]
- Purpose: (on a b) since (holding a) (clear b)
- Action: (stack a b)
- Preconditions:
  - (holding a): TRUE
  - (clear b): TRUE
- Applicable: YES
- Add: (clear a) (handempty) (on a b)
- Delete: (holding a) (clear b)
- Next state: (handempty) (clear a) (on a b) (ontable b)
[GOAL CHECK]
  - (on a b): TRUE
[FINAL PLAN]
(pick-up a)
(stack a b)
[VERDICT] VALID"""


def two_blocks() -> PlanningTask:
    """Return a task with two blocks on the table, a wanted on b."""
    return blocks_task("(ontable a) (clear a) (ontable b) (clear b) (handempty)", "(on a b)", "a b")


def read(completion: str) -> ReadChain:
    """Return the claims of a completion about blocks."""
    return FULL.read(completion, BLOCKS)


def cut(text: str, span: Span | None) -> str:
    """Return the characters of a span."""
    assert span is not None
    return text[span.start : span.end]


def test_plan_prompt_holds_domain_and_problem_as_pddl() -> None:
    prompt = FULL.plan_prompt(two_blocks())
    domain, _, problem = prompt.partition("[DOMAIN]\n")[2].partition("\n[PROBLEM]\n")
    assert prompt.startswith("[INSTRUCTION] ") and prompt.endswith("\n[RESPONSE]\n")
    assert parse_domain(domain) == BLOCKS
    assert parse_problem(problem.removesuffix("[RESPONSE]\n"), BLOCKS) == two_blocks().problem


def test_write_chain_of_a_small_plan_is_as_written_by_hand() -> None:
    assert FULL.write_chain(chain_of_plan(two_blocks(), parse_plan("(pick-up a) (stack a b)"))) == TWO_BLOCKS_CHAIN


def test_outcome_lines_of_a_step_that_fails_mark_the_false_preconditions() -> None:
    step = chain_of_plan(two_blocks(), parse_plan("(pick-up a) (pick-up b)")).steps[1]
    assert outcome_lines(step) == [
        "- Preconditions:", "  - (clear b): TRUE", "  - (ontable b): TRUE", "  - (handempty): FALSE",
        "- Applicable: NO",
    ]  # fmt: skip


@settings(max_examples=50)
@given(blocks_problems(max_blocks=5), st.randoms(use_true_random=False), st.booleans())
def test_read_what_was_written_gives_the_same_claims(problem: Problem, rng: random.Random, with_purpose: bool) -> None:
    task = PlanningTask(BLOCKS, problem)
    walk = random_walk(task, rng.randrange(7), rng)
    malformed = (*walk, parse_step("(fly to the moon)"))
    broken = (*walk, rng.choice(task.ground_actions()).step)
    solved = shortest_plan(task) if len(problem.objects) <= 3 else walk
    for plan in (walk, malformed, broken, solved):
        chain = chain_of_plan(task, plan, with_purpose=with_purpose)
        found = FULL.read(FULL.write_chain(chain), BLOCKS)
        assert (found.fault, found.chain) == (None, chain)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_read_what_was_written_with_negation_and_equality_gives_the_same_claims(rng: random.Random) -> None:
    task = depot_task()
    chain = chain_of_plan(task, (*random_walk(task, 4, rng), rng.choice(task.ground_actions()).step))
    found = FULL.read(FULL.write_chain(chain), task.domain)
    assert (found.fault, found.chain) == (None, chain)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.upper(),
        lambda text: text.replace("\n", "\n\n  ").replace(": ", ":   "),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("(not (", "( not("),
        lambda text: "Let me think about it.\n" + text.replace("- Applicable", "So it can be applied.\n- Applicable"),
    ],
    ids=["upper case", "white space", "CRLF", "brackets", "talk"],
)
def test_read_other_spelling_gives_the_same_claims(change: object) -> None:
    assert callable(change)
    found, true = read(change(TWO_BLOCKS_CHAIN)), read(TWO_BLOCKS_CHAIN)
    assert (found.fault, found.chain) == (None, true.chain)


def test_read_dead_branch_that_goes_on_for_ever_is_read_as_any() -> None:
    assert read(f"{TWO_BLOCKS_CHAIN}\n- Dead branch: (pick-up a) lacks{' ' * 20_000}x").fault
    assert read(f"{TWO_BLOCKS_CHAIN}\n- Dead branch: (pick-up a) lacks (x{' , ' * 20_000}").fault


@pytest.mark.parametrize("indent", ["", "   "], ids=["plain", "indented"])
def test_read_spans_cut_out_what_they_name(indent: str) -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    text = "\n".join(indent + line for line in FULL.write_chain(chain).splitlines()) + "  \n"
    found = read(text)
    assert len(found.spans) == len(SUSSMAN_PLAN)
    for number, (step, spans) in enumerate(zip(chain.steps, found.spans, strict=True), 1):
        choice = [line.strip() for line in cut(text, spans.choice).splitlines() if line.strip()]
        outcome = [line.strip() for line in cut(text, spans.outcome).splitlines()]
        assert choice + outcome == [line.strip() for line in step_lines(number, step)]
        assert outcome == [line.strip() for line in outcome_lines(step)] and spans.choice.end == spans.outcome.start
    assert cut(text, found.final_plan_span).split() == ["[FINAL", "PLAN]", *" ".join(map(str, SUSSMAN_PLAN)).split()]
    assert cut(text, found.verdict_span) == "VALID"


@pytest.mark.parametrize(
    ("before", "after", "n_steps", "fault"),
    [
        ("[VERDICT] VALID", "", 2, "no [VERDICT]"),
        ("[VERDICT] VALID", "[VERDICT] PERHAPS", 2, "not an action"),
        ("[VERDICT] VALID", "[VERDICT] VALID\nor so", 2, "text after the verdict"),
        ("[VERDICT] VALID", "[VERDICT] INVALID\n[VERDICT] VALID", 2, "section 'end' after section 'end'"),
        ("[GOAL CHECK]", "[VERDICT] VALID\n[GOAL CHECK]", 2, "section 'goal' after section 'end'"),
        ("[GOAL CHECK]", "[FINAL PLAN]\n(put-down b)", 2, "not an action"),
        ("[STEP 2]", "[FINAL PLAN]\n(put-down a)\n[STEP 2]", 1, "section 'step' after section 'plan'"),
        ("(stack a b)\n[VER", "(stack a\n[VER", 2, "not an action: '(stack a'"),
        ("(stack a b)\n[VER", "then stack a on b\n[VER", 2, "not an action"),
        ("- Action: (stack a b)", "- Action: stack a b", 1, "not an action: 'stack a b'"),
        ("- Action: (stack a b)\n", "", 1, "step 2: 'preconditions' before 'action'"),
        ("- Applicable: YES\n- Add: (clear a)", "- Add: (clear a)", 1, "step 2: no line for applicable"),
        ("- Applicable: YES\n- Add: (clear a)", "- Applicable: PERHAPS\n- Add: (clear a)", 1, "neither YES nor NO"),
        ("- Next state: (handempty)", "- State: (handempty)", 1, "step 2: no line for next state"),
        ("- Action: (stack a b)", "- Action: (stack a b)\n- Action: (stack b a)", 1, "step 2: 'action' stands twice"),
        ("[STEP 2]", "", 0, "step 1: 'purpose' stands twice"),
    ],
)
def test_read_malformed_gives_the_steps_before_the_fault_and_says_what_is_wrong(
    before: str, after: str, n_steps: int, fault: str
) -> None:
    text = TWO_BLOCKS_CHAIN.replace(before, after)
    assert text != TWO_BLOCKS_CHAIN
    found = read(text)
    assert (len(found.chain.steps), len(found.spans)) == (n_steps, n_steps)
    assert found.fault is not None and fault in found.fault


def test_read_cut_anywhere_gives_a_beginning_of_the_steps_and_a_fault() -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    text, n_before = FULL.write_chain(chain), 0
    for length in range(0, text.index("[VERDICT] VALID") + len("[VERDICT] VALI"), 3):
        found = read(text[:length])
        assert found.fault is not None and found.chain.verdict is None
        assert found.chain.steps == chain.steps[: len(found.chain.steps)]
        assert n_before <= len(found.chain.steps) <= n_before + 1
        n_before = len(found.chain.steps)
    assert n_before == len(chain.steps)


LINES = [*TWO_BLOCKS_CHAIN.splitlines(), "", "talk", "- Applicable: NO", "[VERDICT] INVALID", "(", "- Action:", "- Add"]


@given(st.lists(st.sampled_from(LINES), max_size=30))
def test_read_lines_in_any_order_never_raises(lines: list[str]) -> None:
    found = read("\n".join(lines))
    assert len(found.spans) == len(found.chain.steps)
    assert (found.fault is None) <= (found.chain.verdict in ("VALID", "INVALID"))


@given(st.text(max_size=80))
def test_read_any_text_never_raises(text: str) -> None:
    assert read(text).fault is not None


def test_read_literals_takes_negated_and_plain_ones_in_order() -> None:
    literals = read_literals("(p a), (not (q  b)) and (NOT (= a b)) () none")
    assert [str(literal) for literal in literals] == ["(p a)", "(not (q b))", "(not (= a b))"]
    assert all(isinstance(literal, Literal) for literal in literals)


def test_rendering_of_a_name_gives_it_and_others_are_refused() -> None:
    assert [rendering_of(name).name for name in ("compact", "full")] == ["compact", "full"]
    with pytest.raises(ConfigError, match="unknown rendering"):
        rendering_of("terse")

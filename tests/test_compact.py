"""The compact rendering: written by hand once, read back always, garbage never an exception."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile

import pytest
from conftest import (
    BLOCKS,
    SUSSMAN_PLAN,
    atoms,
    blocks_problems,
    blocks_task,
    depot_task,
    random_walk,
    shortest_plan,
    sussman,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_plan
from plansmith.text.chains import Chain, Part, ReadChain, Span, chain_of_plan
from plansmith.text.compact import MARKERS, CompactRendering, write_chain, write_outcome, write_step
from plansmith.text.rendering import Rendering, rendering_of

COMPACT = CompactRendering()

TWO_BLOCKS_CHAIN = (
    "goals: on? a b unmet: order: on? a b ready: "
    "aim: on? a b since: clear b need: holding? a since: clear a ontable a handempty "
    "do: pick-up a check: clear a ontable a handempty ok: add: holding a now: holding a clear b ontable b "
    "aim: on? a b since: holding a clear b do: stack a b check: holding a clear b ok: add: clear a handempty on a b "
    "now: handempty clear a on a b ontable b "
    "goals: on? a b met: verdict: VALID"
)


def two_blocks() -> PlanningTask:
    """Return a task with two blocks on the table, a wanted on b."""
    return blocks_task("(ontable a) (clear a) (ontable b) (clear b) (handempty)", "(on a b)", "a b")


def as_told(chain: Chain) -> Chain:
    """Return a chain as the compact rendering tells it.

    What is deleted is what the next state no longer lists; a check ends at the first precondition that is false, and
    all that are.
    """
    steps = []
    for step in chain.steps:
        found = takewhile(lambda condition, step=step: condition not in step.unsatisfied, step.preconditions)
        steps.append(replace(step, deleted=(), preconditions=(*found, *step.unsatisfied)))
    return replace(chain, steps=tuple(steps))


def read(completion: str) -> ReadChain:
    """Return the claims of a completion about blocks."""
    return COMPACT.read(completion, BLOCKS)


def cut(text: str, span: Span | None) -> str:
    """Return the characters of a span."""
    assert span is not None
    return text[span.start : span.end]


def test_plan_prompt_tells_initial_state_and_goal_in_order() -> None:
    assert COMPACT.plan_prompt(two_blocks()) == (
        "domain: blocksworld goal: on? a b now: handempty clear a ontable a clear b ontable b plan:"
    )


def test_write_chain_of_a_small_plan_is_as_written_by_hand() -> None:
    assert COMPACT.write_chain(chain_of_plan(two_blocks(), parse_plan("(pick-up a) (stack a b)"))) == TWO_BLOCKS_CHAIN


def test_write_chain_of_a_failing_plan_says_what_fails_and_what_is_open() -> None:
    plan = parse_plan("(pick-up a) (pick-up b)")
    assert write_chain(chain_of_plan(two_blocks(), plan)).endswith(
        "do: pick-up b check: clear b ontable b fails: handempty goals: on? a b unmet: "
        "order: on? a b ready: final: pick-up a pick-up b verdict: INVALID"
    )


def test_write_outcome_check_ends_at_the_first_precondition_that_is_false() -> None:
    task = two_blocks()
    (step,) = chain_of_plan(task, parse_plan("(unstack a b)")).steps
    assert write_outcome(step) == "check: fails: on a b"
    (step,) = chain_of_plan(task, parse_plan("(stack a b)")).steps
    assert write_outcome(step) == "check: fails: holding a"  # (clear b) comes after and is not asked any more
    _, step = chain_of_plan(task, parse_plan("(pick-up a) (pick-up a)")).steps
    assert write_outcome(step) == "check: fails: clear a ontable a handempty"


def test_write_chain_lists_the_plan_where_it_goes_on_after_a_step_that_cannot_be_applied() -> None:
    plan = parse_plan("(pick-up a) (pick-up b) (stack a b)")
    text = write_chain(chain_of_plan(two_blocks(), plan))
    assert text.endswith(
        "goals: on? a b unmet: order: on? a b ready: final: pick-up a pick-up b stack a b verdict: INVALID"
    )
    assert (read(text).fault, read(text).chain.final_plan) == (None, plan)


def test_write_step_tells_needs_and_what_is_there_already() -> None:
    steps = [write_step(step).partition(" check:")[0] for step in chain_of_plan(sussman(), SUSSMAN_PLAN).steps]
    assert steps[:2] == [
        "goals: on? a b unmet: on? b c unmet: order: on? a b after: on? b c later: on? b c after: clear? a later: "
        "aim: on? a b since: clear b need: holding? a "
        "since: ontable a handempty need: clear? a since: on c a clear c handempty do: unstack c a",
        "aim: on? b c need: clear? c since: holding c do: put-down c",
    ]


@pytest.mark.parametrize("rendering", [rendering_of("compact"), rendering_of("full")], ids=["compact", "full"])
def test_goals_that_come_before_another_are_written_and_read(rendering: Rendering) -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    read = rendering.read(rendering.write_chain(chain), BLOCKS)
    assert read.fault is None
    told = [[(str(mark.condition), mark.is_met, [*map(str, mark.after)]) for mark in step.goal_check]
            for step in read.chain.steps if step.goal_check is not None]  # fmt: skip
    assert told == [
        [("(on a b)", False, ["(on b c)"]), ("(on b c)", False, ["(clear a)"])],
        [("(on a b)", False, []), ("(on b c)", True, [])],
    ]


@pytest.mark.parametrize("rendering", [rendering_of("compact"), rendering_of("full")], ids=["compact", "full"])
def test_goal_that_holds_too_early_says_what_it_comes_after(rendering: Rendering) -> None:
    task = blocks_task("(on a b) (ontable b) (ontable c) (clear a) (clear c) (handempty)", "(on a b) (on b c)")
    plan = parse_plan("(unstack a b) (put-down a) (pick-up b) (stack b c) (pick-up a) (stack a b)")
    chain = rendering.read(rendering.write_chain(chain_of_plan(task, plan)), BLOCKS).chain
    assert chain.steps[0].goal_check is not None
    told = [(str(mark.condition), mark.is_met, [*map(str, mark.after)]) for mark in chain.steps[0].goal_check]
    assert told == [("(on a b)", True, ["(on b c)"]), ("(on b c)", False, [])]


def test_write_literals_negation_is_marked() -> None:
    task = depot_task()
    text = write_chain(chain_of_plan(task, parse_plan("(open l2) (move t1 l1 hub)")))
    assert "check: at t1 l1 not: = l1 hub not: closed hub ok:" in text
    assert text.startswith(
        "goals: at? t1 hub unmet: not: closed? l2 unmet: order: at? t1 hub ready: not: closed? l2 ready: "
        "aim: not: closed? l2 do: open l2 check: ok: add: now: "
    )


@settings(max_examples=50)
@given(blocks_problems(max_blocks=5), st.randoms(use_true_random=False), st.booleans())
def test_read_what_was_written_gives_the_same_claims(problem: Problem, rng: random.Random, with_purpose: bool) -> None:
    task = PlanningTask(BLOCKS, problem)
    walk = random_walk(task, rng.randrange(7), rng)
    broken = (*walk, rng.choice(task.ground_actions()).step)
    solved = shortest_plan(task) if len(problem.objects) <= 3 else walk
    for plan in (walk, broken, solved):
        chain = chain_of_plan(task, plan, with_purpose=with_purpose)
        found = COMPACT.read(COMPACT.write_chain(chain), BLOCKS)
        assert found.fault is None
        assert found.chain == as_told(chain)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_read_what_was_written_with_negation_and_equality_gives_the_same_claims(rng: random.Random) -> None:
    task = depot_task()
    plan = (*random_walk(task, 4, rng), rng.choice(task.ground_actions()).step)
    chain = chain_of_plan(task, plan)
    found = COMPACT.read(COMPACT.write_chain(chain), task.domain)
    assert (found.fault, found.chain) == (None, as_told(chain))


def test_read_spans_cut_out_what_they_name() -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    text = f"  {COMPACT.write_chain(chain)}\n"
    found = read(text)
    assert len(found.spans) == len(SUSSMAN_PLAN)
    for step, spans in zip(chain.steps, found.spans, strict=True):
        assert f"{cut(text, spans.choice)} {cut(text, spans.outcome)}" == write_step(step)
        assert cut(text, spans.outcome) == write_outcome(step) == COMPACT.write_outcome(step)
    assert found.chain.final_plan == SUSSMAN_PLAN and found.final_plan_span is None
    assert cut(text, found.verdict_span) == "VALID"


def test_read_step_that_fails_claims_no_state() -> None:
    found = read("do: pick-up a check: fails: clear a handempty goals: on? a b unmet: verdict: INVALID")
    (step,) = found.chain.steps
    assert found.fault is None and step.next_state is None
    assert tuple(literal.atom for literal in step.unsatisfied) == atoms("(clear a) (handempty)")
    assert (found.chain.final_plan, found.chain.verdict) == ((), "INVALID")


STEP = "do: pick-up a check: clear a ok: add: holding a now: holding a"
END = "final: pick-up a verdict: VALID"


@pytest.mark.parametrize(
    ("completion", "n_steps", "plan", "fault"),
    [
        ("", 0, None, "got 'the end', expected 'verdict:'"),
        ("hello", 0, None, "word 1: got 'hello'"),
        (f"{STEP} do: fly a", 1, None, "word 15: got 'fly', expected an action"),
        (f"{STEP} do: stack a check:", 1, None, "got 'check:', expected a name"),
        (f"{STEP} do: stack a b ok:", 1, None, "got 'ok:', expected 'check:'"),
        (f"{STEP} do: stack a b check: shiny a ok:", 1, None, "got 'shiny', expected a predicate"),
        (f"{STEP} do: stack a b check: on a", 1, None, "got 'the end', expected a name"),
        (f"{STEP} do: stack a b check: now: on a b {END}", 1, None, "got 'now:', expected 'ok:'"),
        (f"{STEP} do: stack a b check: ok: add: not: on a b now: {END}", 1, None, "true atoms only"),
        (f"{STEP} {STEP}", 1, None, "got 'the end', expected the next step"),
        (f"{STEP} aim: on? a b {END}", 1, None, "got 'final:', expected 'do:'"),
        (f"{STEP} final: pick-up verdict: VALID", 1, None, "got 'verdict:', expected a name"),
        (f"{STEP} final: pick-up a", 1, "(pick-up a)", "expected 'verdict:'"),
        (f"{STEP} final: pick-up a verdict: MAYBE", 1, "(pick-up a)", "got 'MAYBE', expected VALID or INVALID"),
        (f"{STEP} final: pick-up a verdict: valid", 1, "(pick-up a)", "got 'valid', expected VALID or INVALID"),
        (f"{STEP} {END} VALID", 1, "(pick-up a)", "got 'VALID', expected the end"),
        (f"{STEP} {END} {STEP}", 1, "(pick-up a)", "got 'do:', expected the end"),
        (f"{STEP} goals: on? a b met: goals: on? a b met: {END}", 1, None, "got 'goals:', expected 'verdict:'"),
        (f"{STEP} now: on a b {END}", 1, None, "got 'now:', expected 'verdict:'"),
        (f"{STEP} aim: on? a b since: on? a b clear", 1, None, "got 'on?', expected a predicate"),
    ],
)
def test_read_malformed_gives_the_steps_before_the_fault_and_says_where(
    completion: str, n_steps: int, plan: str | None, fault: str
) -> None:
    found = read(completion)
    assert (len(found.chain.steps), len(found.spans)) == (n_steps, n_steps)
    assert found.chain.final_plan == (None if plan is None else parse_plan(plan))
    assert found.fault is not None and fault in found.fault


@pytest.mark.parametrize(
    ("reason", "word", "fault"),
    [
        ("goals: on? a b", "do:", "word 5: got 'do:', expected met: or unmet:"),
        ("goals: on? a b on? b a met:", "on?", "word 5: got 'on?', expected met: or unmet:"),
        ("goals: on? a b met: met: aim: on? a b", "met:", "word 6: got 'met:', expected a goal"),
        ("goals: on? a b later:", "later:", "got 'later:', expected met: or unmet:"),
        ("goals: on? a b unmet: ready:", "ready:", "got 'ready:', expected a goal"),
        ("goals: order: on? a b ready:", "order:", "got 'order:', expected a goal"),
        ("goals: on? a b unmet: order: on? a b met:", "met:", "got 'met:', expected after: or ready:"),
        ("goals: on? a b unmet: order: on? a b after: on? b a ready:", "ready:", "got 'ready:', expected 'later:'"),
        (
            "goals: on? a b unmet: order: on? a b after: on b a",
            "on",
            "word 11: got 'on', expected a wanted literal: on?",
        ),
        ("goals: on? a b unmet: order: on? a b ready: met:", "met:", "got 'met:', expected a goal"),
        ("goals: on a b unmet:", "on", "word 2: got 'on', expected a wanted literal: on?"),
        ("aim: on? a b need: holding a", "holding", "got 'holding', expected a wanted literal: holding?"),
        ("aim: on? a b since: on? a b need: holding? a", "on?", "got 'on?', expected a predicate"),
        ("aim: on? a b since: on a ontable f need: holding? a", "f", "word 9: got 'f', expected a predicate"),
        ("aim: on? a since: clear b need: holding? a", "since:", "word 4: got 'since:', expected a name"),
        ("aim: plan: since: clear b", "plan:", "word 2: got 'plan:', expected a reason"),
        ("since: clear b aim: on? a b", "since:", "word 1: got 'since:', expected a reason"),
    ],
)
def test_read_reason_that_cannot_be_read_is_passed_over_and_says_where(reason: str, word: str, fault: str) -> None:
    text = f"{reason} {STEP} {END}"
    found = read(text)
    (spans,) = found.spans
    (unread,) = (claim for claim in spans.claims if claim.part is Part.UNREAD)
    assert (found.fault, found.chain.final_plan) == (None, parse_plan("(pick-up a)"))
    assert text[unread.span.start : unread.span.end] == word and fault in unread.fault


def test_read_closing_check_that_cannot_be_read_is_passed_over() -> None:
    found = read(f"{STEP} goals: on? a b met: on? b met: {END}")
    assert found.fault is None and [claim.part for claim in found.closing] == [Part.GOALS, Part.UNREAD]
    assert found.chain.verdict == "VALID"


@pytest.mark.parametrize(
    ("completion", "action"),
    [
        (f"{STEP} do: stack a b check: holding a", "(stack a b)"),
        (f"{STEP} do: stack a b", None),
        (f"{STEP} do: stack a check:", "(stack a)"),
        (f"{STEP} do: fly a check:", "(fly a)"),
        (f"{STEP} do: check:", None),
        (f"{STEP} aim: on? a b", None),
        (f"{STEP} {END}", None),
    ],
)
def test_read_keeps_the_action_of_the_step_in_which_it_broke_off(completion: str, action: str | None) -> None:
    broken = read(completion).broken_action
    assert (None if broken is None else str(broken)) == action


def test_read_cut_anywhere_gives_a_beginning_of_the_steps_and_a_fault() -> None:
    chain = chain_of_plan(sussman(), SUSSMAN_PLAN)
    words = COMPACT.write_chain(chain).split()
    true_steps, n_before = as_told(chain).steps, 0
    for length in range(len(words)):
        found = read(" ".join(words[:length]))
        assert found.fault is not None and found.chain.verdict is None
        assert found.chain.steps == true_steps[: len(found.chain.steps)]
        assert n_before <= len(found.chain.steps) <= n_before + 1
        n_before = len(found.chain.steps)
    assert n_before == len(true_steps)


WORDS = [*MARKERS, "VALID", "INVALID", "a", "b", "c", "=", "<unknown>"]
WORDS += [predicate.name + mark for predicate in BLOCKS.predicates for mark in ("", "?")]
WORDS += [action.name for action in BLOCKS.actions]


@given(st.lists(st.sampled_from(WORDS), max_size=40), st.integers(0, 60))
def test_read_garbage_after_a_good_beginning_never_raises(garbage: list[str], n_kept: int) -> None:
    text = " ".join([*TWO_BLOCKS_CHAIN.split()[:n_kept], *garbage])
    found = read(text)
    assert len(found.spans) == len(found.chain.steps)
    ends = [
        place for spans in found.spans for span in (spans.choice, spans.outcome) for place in (span.start, span.end)
    ]
    assert ends == sorted(ends)
    assert (found.fault is None) <= (found.chain.verdict in ("VALID", "INVALID"))


@given(st.text(max_size=80))
def test_read_any_text_never_raises(text: str) -> None:
    assert read(text).fault is not None


def test_markers_hold_every_marker_that_is_written() -> None:
    plan = parse_plan("(open l2) (move t1 l1 l1)")
    written = f"{COMPACT.plan_prompt(depot_task())} {write_chain(chain_of_plan(depot_task(), plan))} {TWO_BLOCKS_CHAIN}"
    assert {word for word in written.split() if word.endswith(":")} <= set(MARKERS)
    assert len(MARKERS) == len(set(MARKERS))

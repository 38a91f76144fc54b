"""Supervised examples: what the prompt asks is what the response answers, and the response is true."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from conftest import BLOCKS, NAMES, SUSSMAN_PLAN, sussman

from actors.writer import ChainWriter
from plansmith.config.chains import ChainConfig
from plansmith.config.pddl_instruct import ExamplesConfig
from plansmith.data.examples import (
    chain_examples,
    continuation_examples,
    correction_example,
    corrupted_row,
    invalid_explanation,
    mending_example,
    mistake_example,
    opening_examples,
    valid_explanation,
)
from plansmith.data.rows import ExampleKind, ExampleRow, SolvedProblemRow
from plansmith.judging.chains import JudgedChain, attempt_of, judge_completion
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import FeedbackCode, Verdict, judge_step, validate_plan
from plansmith.problems.corruption import Corruption
from plansmith.problems.mistakes import draw_mistake
from plansmith.text.chains import chain_of_plan, continued_chain, recovering_chain
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import Rendering, rendering_of

COMPACT, FULL = rendering_of("compact"), rendering_of("full")
BOTH = pytest.mark.parametrize("rendering", [COMPACT, FULL], ids=["compact", "full"])

ROW = SolvedProblemRow(
    problem_id="p0",
    level="3",
    domain_pddl=print_domain(BLOCKS),
    problem_pddl=print_problem(sussman().problem),
    plan=tuple(map(str, SUSSMAN_PLAN)),
)


def task_of_prompt(prompt: str) -> PlanningTask:
    """Return the task that a full prompt states."""
    match = re.search(r"\[DOMAIN\]\n(.*)\n\[PROBLEM\]\n(.*?\n)\[", prompt, re.DOTALL)
    assert match is not None
    return PlanningTask.from_text(match.group(1), match.group(2))


def _shows_states(prompt: str) -> bool:
    """Return whether a prompt shows the states along the given plan."""
    return "now:" in prompt.partition("given:")[2] or "state s1:" in prompt


def test_chain_examples_answer_the_problem_of_their_own_prompt() -> None:
    examples = list(chain_examples(ROW, FULL, NAMES, n_renamings=6, seed=3))
    for example in examples:
        task = task_of_prompt(example.prompt)
        judged = judge_completion(task, example.response, FULL)
        assert judged.plan.is_valid and judged.first_fault is None and judged.read.chain.verdict == "VALID"
        assert canonical_form(BLOCKS, task.problem) == canonical_form(BLOCKS, sussman().problem)
    assert len({example.prompt for example in examples}) == 6
    assert [example.example_id for example in examples] == [f"p0-{copy:03d}" for copy in range(6)]
    assert {example.kind for example in examples} == {ExampleKind.PLAN_CHAIN}


@BOTH
def test_chain_examples_follow_from_seed_and_row_alone(rendering: Rendering) -> None:
    few = list(chain_examples(ROW, rendering, NAMES, n_renamings=2, seed=3))
    many = list(chain_examples(ROW, rendering, NAMES, n_renamings=4, seed=3))
    other = list(chain_examples(ROW, rendering, NAMES, n_renamings=2, seed=4))
    assert many[:2] == few and other != few


@BOTH
def test_opening_examples_are_the_first_steps_under_other_names_and_nothing_of_a_plan_that_has_no_more(
    rendering: Rendering,
) -> None:
    first, second = opening_examples(ROW, rendering, NAMES, n_renamings=2, n_steps=2, seed=3)
    assert first.kind is ExampleKind.PLAN_OPENING and first.prompt != second.prompt
    assert {first.example_id, second.example_id} == {"p0-opening-000", "p0-opening-001"}
    ending = "verdict: INVALID" if rendering is COMPACT else "[VERDICT] INVALID"
    read = rendering.read(f"{first.response}{rendering.separator}{ending}", BLOCKS)
    assert (read.fault, [step.action.name for step in read.chain.steps]) == (None, ["unstack", "put-down"])
    assert read.chain.steps[0].goal_check is not None and read.chain.goal_check is None
    assert not list(opening_examples(ROW, rendering, NAMES, n_renamings=2, n_steps=6, seed=3))


def _mistaken(rendering: Rendering) -> list[tuple[ExampleRow, JudgedChain]]:
    """Return many chains with a mistake, with their judgement; objects keep their names."""
    drawn = [mistake_example(ROW, rendering, (), seed=seed) for seed in range(60)]
    rows = [row for row in drawn if row is not None]
    assert len(rows) == 60
    return [(row, judge_completion(sussman(), row.beginning + row.response, rendering)) for row in rows]


@pytest.mark.parametrize(("share", "counts"), [(0.0, {}), (1.0, {"chain_with_mistake": 5})], ids=["none", "all"])
def test_chain_writer_adds_a_chain_with_a_mistake_to_the_share_of_problems(
    share: float, counts: dict[str, int]
) -> None:
    config = ExamplesConfig(mistakes=share, valid_explanations=0)
    writer = ChainWriter("compact", NAMES, config, {}, 7)
    rows = writer([replace(ROW, problem_id=f"p{number}") for number in range(5)])
    assert Counter(row.kind for row in rows) == {"plan_chain": 5} | counts
    assert len({row.example_id for row in rows}) == len(rows)


@BOTH
def test_mistake_example_that_recovers_is_taught_from_the_check_of_the_wrong_action_on(rendering: Rendering) -> None:
    found = [(row, judged) for row, judged in _mistaken(rendering) if judged.plan.is_valid]
    assert 15 < len(found) < 45
    fails, check = ("fails:", "check:") if rendering is COMPACT else ("Applicable: NO", "- Preconditions:")
    for row, judged in found:
        (wrong,) = [step for step in judged.steps if step.judgement.code is FeedbackCode.WITHDRAWN]
        assert (judged.plan.plan, judged.read.chain.verdict) == (SUSSMAN_PLAN, "VALID")
        assert not any(step.false_claims for step in judged.steps if step is not wrong)
        assert wrong.judgement.unsatisfied
        told = str(wrong.action) if rendering is FULL else str(wrong.action).strip("()")
        assert row.beginning.endswith(told) and row.response.lstrip().startswith(check)
        assert (row.beginning.count(fails), row.response.count(fails)) == (0, 1)


@BOTH
def test_mistake_example_that_does_not_reach_the_goal_teaches_the_verdict_alone(rendering: Rendering) -> None:
    found = [(row, judged) for row, judged in _mistaken(rendering) if not judged.plan.is_valid]
    codes = [[step.judgement.code for step in judged.steps] for _, judged in found]
    assert {FeedbackCode.WITHDRAWN in steps for steps in codes} == {True, False}
    for row, judged in found:
        assert (row.response, judged.read.chain.verdict, judged.read.fault) == (" INVALID", "INVALID", None)
        assert judged.verdict is Verdict.GOAL_NOT_REACHED
        assert judged.plan.plan == SUSSMAN_PLAN[: len(judged.plan.plan)]


@BOTH
def test_valid_explanation_shows_states_for_about_half_and_is_valid_always(rendering: Rendering) -> None:
    examples = [valid_explanation(ROW, rendering, seed=seed) for seed in range(40)]
    with_states = sum(_shows_states(example.prompt) for example in examples)
    assert 8 < with_states < 32
    for example in examples:
        read = rendering.read(example.response, BLOCKS)
        assert (read.fault, read.chain.verdict, len(read.chain.steps)) == (None, "VALID", 6)
        assert (example.kind, example.corruption) == (ExampleKind.EXPLAIN_VALID, None)


@BOTH
@pytest.mark.parametrize("corruption", Corruption)
def test_invalid_explanation_of_each_corruption_ends_invalid(rendering: Rendering, corruption: Corruption) -> None:
    row = corrupted_row(ROW, corruption, seed=1)
    assert row is not None and row == corrupted_row(ROW, corruption, seed=1)
    example = invalid_explanation(row, rendering)
    assert (example.kind, example.corruption) == (ExampleKind.EXPLAIN_INVALID, corruption)
    assert example.example_id == row.corrupted_id == f"p0-{corruption}"
    assert example.response.endswith("INVALID")
    assert _shows_states(example.prompt) == (corruption in (Corruption.WRONG_EFFECT, Corruption.FRAME_VIOLATED))


@BOTH
@pytest.mark.parametrize("feedback", FeedbackKind)
def test_correction_example_answers_with_the_planners_chain(rendering: Rendering, feedback: FeedbackKind) -> None:
    task = sussman()
    wrong = rendering.write_chain(chain_of_plan(task, (PlanStep("pick-up", ("a",)),)))
    attempt = rendering.write_attempt(attempt_of(task, judge_completion(task, wrong, rendering)), feedback)
    example = correction_example("r7", ROW, attempt, rendering)
    assert (example.example_id, example.kind) == ("r7-corrected", ExampleKind.CORRECT_WITH_FEEDBACK)
    assert example.prompt == rendering.correct_prompt(sussman(), attempt)
    assert judge_completion(sussman(), example.response, rendering).plan.is_valid


@BOTH
@pytest.mark.parametrize("n_kept", [0, 1, 2, 6])
def test_continuation_examples_go_on_where_the_sound_steps_end(rendering: Rendering, n_kept: int) -> None:
    written = chain_of_plan(sussman(), SUSSMAN_PLAN)
    examples = list(
        continuation_examples(
            "r1",
            "p0",
            sussman(),
            written.steps[:n_kept],
            SUSSMAN_PLAN[n_kept:],
            rendering,
            NAMES,
            n_renamings=3,
            seed=1,
        )
    )
    assert len({example.prompt for example in examples}) == 3
    for example in examples:
        assert example.kind is ExampleKind.CONTINUE_PLAN
        beginning = "do:" if rendering is COMPACT else "[STEP"
        assert example.beginning.count(beginning) == n_kept
        assert example.response.count(beginning) == 6 - n_kept
    # under the names of the plan, prompt and response together are the chain of the whole plan
    same = continued_chain(sussman(), written.steps[:n_kept], SUSSMAN_PLAN[n_kept:])
    assert same == written


def answers_with_plans(rendering: Rendering, *, tells_start: bool) -> list[ExampleRow]:
    """Return an example of each kind whose answer is a chain."""
    kept, rest, told = chain_of_plan(sussman(), SUSSMAN_PLAN).steps[:2], SUSSMAN_PLAN[2:], {"tells_start": tells_start}
    mistaken = (mistake_example(ROW, rendering, NAMES, seed=seed, **told) for seed in range(9))
    return [
        *chain_examples(ROW, rendering, NAMES, n_renamings=2, seed=3, chains=ChainConfig(**told)),
        *opening_examples(ROW, rendering, NAMES, n_renamings=2, n_steps=2, seed=3, **told),
        *(example for example in mistaken if example is not None),
        *continuation_examples("r1", "p0", sussman(), kept, rest, rendering, NAMES, n_renamings=2, seed=1, **told),
        *continuation_examples("r2", "p0", sussman(), (), SUSSMAN_PLAN, rendering, (), n_renamings=1, seed=1, **told),
        correction_example("r3", ROW, "", rendering, **told),
        mending_example("r4", ROW, "", kept, rest, rendering, **told),
    ]


@BOTH
def test_every_answer_with_a_plan_can_begin_with_the_state(rendering: Rendering) -> None:
    bare, told = (answers_with_plans(rendering, tells_start=tells_start) for tells_start in (False, True))
    assert {example.kind for example in told} == {
        ExampleKind.PLAN_CHAIN, ExampleKind.PLAN_OPENING, ExampleKind.CHAIN_WITH_MISTAKE, ExampleKind.CONTINUE_PLAN,
        ExampleKind.CORRECT_WITH_FEEDBACK,
    }  # fmt: skip
    for without, example in zip(bare, told, strict=True):
        assert example.prompt == without.prompt
        texts = [row.beginning or row.response for row in (without, example)]
        assert texts[1].endswith(texts[0]) and (not example.beginning or example.response == without.response)
        start = texts[1].removesuffix(texts[0])
        if rendering is COMPACT:
            assert start.strip() == f"now: {example.prompt.partition('now: ')[2].split(' plan:')[0]}".strip()
        else:
            assert sorted(re.findall(r"\(.*?\)", start)) == sorted(
                map(str, task_of_prompt(example.prompt).problem.init)
            )


def test_continued_chain_replaces_a_detour_by_nothing_it_did_not_do() -> None:
    detour = parse_plan("(pick-up b) (put-down b)")
    kept = chain_of_plan(sussman(), detour).steps
    chain = continued_chain(sussman(), kept, SUSSMAN_PLAN)
    assert chain.final_plan == (*detour, *SUSSMAN_PLAN)
    assert chain.verdict == "VALID"
    assert validate_plan(sussman(), chain.final_plan).is_valid


def test_continued_chain_keeps_a_withdrawn_step_out_of_the_plan() -> None:
    task = sussman()
    kept = recovering_chain(task, chain_of_plan(task, SUSSMAN_PLAN), 1, _ground(task, "(pick-up b)")).steps[:2]
    chain = continued_chain(task, kept, SUSSMAN_PLAN[1:])
    assert [step.is_withdrawn for step in chain.steps] == [False, True, *[False] * 5]
    assert (chain.final_plan, chain.verdict, chain.steps[2].goal_check) == (SUSSMAN_PLAN, "VALID", None)


def _ground(task: PlanningTask, step: str) -> GroundAction:
    action = task.ground(parse_step(step))
    assert isinstance(action, GroundAction)
    return action


@pytest.mark.parametrize("place", range(6))
def test_draw_mistake_gives_what_the_validator_finds_inapplicable_for_one_reason(place: int) -> None:
    task = sussman()
    state = validate_plan(task, SUSSMAN_PLAN).states[place]
    drawn = [draw_mistake(task, state, SUSSMAN_PLAN[place], random.Random(seed)) for seed in range(30)]
    found = [action for action in drawn if action is not None]
    assert len(found) == 30 and len({action.step for action in found}) > 3
    for action in found:
        judgement = judge_step(task, state, action.step, state)
        assert (judgement.code, len(judgement.unsatisfied)) == (FeedbackCode.PRECONDITION, 1)
        assert len(set(action.step.arguments)) == len(action.step.arguments)


def test_draw_mistake_where_everything_can_be_applied_gives_none() -> None:
    domain = parse_domain(
        "(define (domain lamps) (:predicates (lit ?l)) (:action light :parameters (?l) :effect (lit ?l)))"
    )
    problem = "(define (problem p) (:domain lamps) (:objects k l) (:init) (:goal (lit k)))"
    task = PlanningTask(domain, parse_problem(problem, domain))
    assert draw_mistake(task, task.initial_state, parse_step("(light k)"), random.Random(0)) is None

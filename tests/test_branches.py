"""What chains tell of other actions and of branches that fail: found, proved, written, read back, and judged."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conftest import BLOCKS, blocks_problems, blocks_task, random_walk, shortest_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.stages.training import branch_words
from plansmith.config.chains import ChainConfig
from plansmith.config.self_criteach import NarratorConfig, SelfCriteachConfig
from plansmith.judging.chains import JudgedChain, judge_completion
from plansmith.learning.tokenizer import UNKNOWN, encode, word_tokenizer
from plansmith.pddl.goal_distances import GoalDistances
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Literal, Problem
from plansmith.pddl.parser import parse_plan, parse_step
from plansmith.pddl.simulation import successors
from plansmith.pddl.validation import FeedbackCode
from plansmith.text.branches import with_branches
from plansmith.text.chains import Alternative, Backtrack, Chain, Drawback, Part, chain_of_plan
from plansmith.text.compact import BRANCH_MARKERS, write_chain
from plansmith.text.rendering import TOLD_CHAINS, rendering_of
from plansmith.text.told import as_told

PLAN = parse_plan("(unstack b a) (put-down b) (pick-up a) (stack a b)")
COMPACT = (
    "other: unstack c d undoes: on? c d try: unstack c d then: unstack b a blocked: handempty by: unstack c d "
    "back: do: unstack b a"
)
FULL = """- Instead: (unstack c d) undoes (on c d)
- Dead branch: (unstack c d) (unstack b a) lacks (handempty) because of (unstack c d); back to the state at the start
- Action: (unstack b a)"""


def two_towers() -> PlanningTask:
    """Return a task in which the tower b-a is to be turned round, and the tower c-d to be left alone."""
    init = "(ontable a) (on b a) (clear b) (ontable d) (on c d) (clear c) (handempty)"
    return blocks_task(init, "(on a b) (on c d)", "a b c d")


def one_way() -> PlanningTask:
    """Return a task with a ditch that nobody leaves."""
    domain = """(define (domain road) (:predicates (at ?p) (road ?p ?q)) (:action go :parameters (?p ?q)
      :precondition (and (at ?p) (road ?p ?q)) :effect (and (at ?q) (not (at ?p)))))"""
    problem = """(define (problem p) (:domain road) (:objects home inn town ditch)
      (:init (at home) (road home ditch) (road home inn) (road inn town)) (:goal (at town)))"""
    return PlanningTask.from_text(domain, problem)


def told(task: PlanningTask, plan: str, n_alternatives: int = 9, n_backtracks: int = 9) -> Chain:
    """Return the chain of a plan with branches."""
    chain = chain_of_plan(task, parse_plan(plan))
    return with_branches(task, chain, n_alternatives=n_alternatives, n_backtracks=n_backtracks)


def judged(task: PlanningTask, chain: Chain, rendering: str) -> JudgedChain:
    """Return the judgement of a chain as it is written."""
    renderer = rendering_of(rendering)
    return judge_completion(task, renderer.write_chain(chain), renderer)


@pytest.mark.parametrize(("rendering", "words"), [("compact", COMPACT), ("full", FULL)])
def test_branches_of_a_small_plan_are_as_written_by_hand(rendering: str, words: str) -> None:
    task = two_towers()
    chain = with_branches(task, chain_of_plan(task, PLAN), n_alternatives=2, n_backtracks=1)
    assert words in rendering_of(rendering).write_chain(chain)
    assert [len(step.backtracks) for step in chain.steps] == [1, 0, 0, 0]


@settings(max_examples=40)
@given(blocks_problems(max_blocks=4), st.randoms(use_true_random=False), st.sampled_from(["compact", "full"]))
def test_branches_are_read_as_they_were_written_and_judged_true(
    problem: Problem, rng: random.Random, rendering: str
) -> None:
    task = PlanningTask(BLOCKS, problem)
    plan = random_walk(task, rng.randrange(6), rng)
    bare = chain_of_plan(task, plan)
    chain = with_branches(task, bare, n_alternatives=rng.randrange(4), n_backtracks=rng.randrange(3))
    found = judged(task, chain, rendering)
    assert found.read.fault is None
    for read, written in zip(found.read.chain.steps, chain.steps, strict=True):
        assert (read.alternatives, read.backtracks) == (written.alternatives, written.backtracks)
    assert found.read.chain.plan_of_steps == plan
    assert not any(step.false_claims for step in found.steps)
    assert replace(chain, steps=tuple(replace(one, alternatives=(), backtracks=()) for one in chain.steps)) == bare


def test_branches_with_parameters_told_are_read_and_judged_true() -> None:
    task = two_towers()
    chain = with_branches(task, chain_of_plan(task, PLAN), n_alternatives=2, n_backtracks=2)
    found = judge_completion(task, write_chain(as_told(task, chain), is_told=True), TOLD_CHAINS)
    assert found.first_fault is None
    assert [step.alternatives for step in found.read.chain.steps] == [step.alternatives for step in chain.steps]
    assert [step.backtracks for step in found.read.chain.steps] == [step.backtracks for step in chain.steps]


def test_every_drawback_is_found() -> None:
    blocks, road = two_towers(), one_way()
    steps = told(blocks, "(unstack b a) (put-down b) (pick-up a) (stack a b)").steps
    found = {str(one.action): one.drawback for step in steps for one in step.alternatives}
    assert found == {
        "(unstack c d)": Drawback.UNDOES, "(stack b a)": Drawback.RETURNS,
        "(pick-up b)": Drawback.RETURNS, "(put-down a)": Drawback.RETURNS, "(stack a c)": Drawback.LONGER,
    }  # fmt: skip
    [alternative] = told(road, "(go home inn) (go inn town)").steps[0].alternatives
    assert alternative == Alternative(parse_step("(go home ditch)"), Drawback.DEAD_END)


def test_action_that_leads_as_near_to_the_goal_is_no_alternative_to_be_told() -> None:
    # the tower could be built on as well: (stack b c) leaves as many steps as (put-down b)
    step = told(two_towers(), "(unstack b a) (put-down b)").steps[1]
    assert [str(one.action) for one in step.alternatives] == ["(stack b a)"]


def _wrong(branch: Alternative | Backtrack) -> Chain:
    """Return the chain of `PLAN` with something told before its third step."""
    chain = chain_of_plan(two_towers(), PLAN)
    key = "alternatives" if isinstance(branch, Alternative) else "backtracks"
    return replace(chain, steps=tuple(replace(one, **{key: (branch,)}) if place == 2 else one
                                      for place, one in enumerate(chain.steps)))  # fmt: skip


def _condition(text: str) -> Literal:
    step = parse_step(text)
    return Literal(Atom(step.name, step.arguments))


RIGHT = Backtrack(
    parse_plan("(unstack c d) (pick-up a)"), (_condition("(handempty)"),), parse_step("(unstack c d)"),
    parse_step("(put-down b)"),
)  # fmt: skip


@pytest.mark.parametrize("rendering", ["compact", "full"])
@pytest.mark.parametrize(("branch", "reason"), [
    (Alternative(parse_step("(pick-up a)"), Drawback.LONGER), "(pick-up a) is the action taken"),
    (Alternative(parse_step("(pick-up d)"), Drawback.LONGER), "(pick-up d) cannot be applied"),
    (Alternative(parse_step("(pick-up z)"), Drawback.LONGER), "(pick-up z) is no action of the problem"),
    (Alternative(parse_step("(unstack c d)"), Drawback.RETURNS), "of (unstack c d) it is not true: returns"),
    (Alternative(parse_step("(unstack c d)"), Drawback.DEAD_END), "of (unstack c d) it is not true: dead end"),
    (Alternative(parse_step("(pick-up b)"), Drawback.UNDOES, (_condition("(on a b)"),)),
     "of (pick-up b) it is not true: undoes (on a b)"),
    (Alternative(parse_step("(unstack c d)"), Drawback.UNDOES), "of (unstack c d) it is not true: undoes"),
    (replace(RIGHT, back_to=None), "the branch began after (put-down b), not after nothing"),
    (replace(RIGHT, branch=parse_plan("(unstack c z) (pick-up a)")), "(unstack c z) is no action of the problem"),
    (replace(RIGHT, branch=parse_plan("(stack c d) (pick-up a)")), "(stack c d) cannot be applied"),
    (replace(RIGHT, branch=parse_plan("(unstack c d)")), "(unstack c d) can be applied"),
    (replace(RIGHT, unsatisfied=(_condition("(clear a)"),)), "(pick-up a) does not lack (clear a)"),
    (replace(RIGHT, unsatisfied=()), "it is not said what (pick-up a) lacks"),
    (replace(RIGHT, culprit=parse_step("(pick-up a)")), "(pick-up a) is not what took (handempty) away"),
])  # fmt: skip
def test_false_word_of_a_branch_is_a_fault_of_the_step_with_its_reason(
    branch: Alternative | Backtrack, reason: str, rendering: str
) -> None:
    assert judged(two_towers(), _wrong(RIGHT), rendering).first_fault is None
    found = judged(two_towers(), _wrong(branch), rendering)
    assert found.read.fault is None
    [false] = found.steps[2].false_claims
    assert (false.claim.part, false.reason, found.first_fault) == (Part.BRANCH, reason, 2)
    assert found.steps[2].judgement.code is FeedbackCode.CLAIM
    assert found.verdict.value == "valid"


@pytest.mark.parametrize(
    "words", ["other: pick-up", "other: unstack c d", "try: unstack c d blocked:", "other: longer:"]
)
def test_branch_that_cannot_be_read_is_passed_over_and_a_false_word(words: str) -> None:
    task, rendering = two_towers(), rendering_of("compact")
    text = rendering.write_chain(chain_of_plan(task, PLAN)).replace("do: pick-up a", f"{words} do: pick-up a")
    found = judge_completion(task, text, rendering)
    [false] = found.steps[2].false_claims
    assert (false.claim.part, found.verdict.value) == (Part.UNREAD, "valid")


def test_distances_are_those_of_shortest_plans() -> None:
    task = blocks_task("(ontable a) (on b a) (clear b) (ontable c) (clear c) (handempty)", "(on a c)", "a b c")
    distances, plan, state = GoalDistances(task), shortest_plan(task), task.initial_state
    assert distances.steps(state) == len(plan) == 4
    for step in plan:
        left = distances.steps(state)
        assert left is not None
        following = {action.step: after for action, after in successors(task, state)}
        assert min(distances.steps(after) or 0 for after in following.values()) == left - 1
        state = following[step]
    assert distances.steps(state) == 0


def test_distances_of_too_many_states_are_not_known_and_nothing_is_told_or_judged_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GoalDistances, "of", lambda task: GoalDistances(task, max_states=3))
    task = two_towers()
    kinds = {one.drawback for step in told(task, "(unstack b a) (put-down b)").steps for one in step.alternatives}
    assert kinds == {Drawback.UNDOES, Drawback.RETURNS}
    claimed = _wrong(Alternative(parse_step("(unstack c d)"), Drawback.DEAD_END))
    assert judged(task, claimed, "compact").first_fault is None


def test_vocabulary_has_the_words_of_branches_only_where_they_are_told() -> None:
    assert branch_words(ChainConfig()) == ()
    words = branch_words(ChainConfig(backtracks=1))
    task = two_towers()
    chain = with_branches(task, chain_of_plan(task, PLAN), n_alternatives=9, n_backtracks=9)
    text = rendering_of("compact").write_chain(chain)
    assert set(BRANCH_MARKERS) - set(text.split()) == {"dead:"}
    tokenizer = word_tokenizer([BLOCKS], ["a", "b", "c", "d", *words])
    assert tokenizer.convert_tokens_to_ids(UNKNOWN) not in encode(tokenizer, text)


def test_branches_of_a_model_that_narrates_are_refused() -> None:
    with pytest.raises(ValidationError, match="narrator: alternatives need kind=template, got kind=model"):
        SelfCriteachConfig.model_validate({
            "problems": {"domains": [{"domain": "blocks-classic", "level": "x", "sizes": {}, "phase1": 1, "test": 1}]},
            "sft": {"learning_rate": 0.1, "batch_tokens": 64}, "model": {"folder": "base"},
            "narrator": NarratorConfig(kind="model", alternatives=1),
        })  # fmt: skip

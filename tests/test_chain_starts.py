"""Chains that first tell the state they start from: written, read, judged; and such chains of disturbed prompts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conftest import BLOCKS, blocks_problems, blocks_task, random_walk
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.self_criteach import PIPELINE, library_settings
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.data.examples import chain_examples
from plansmith.data.rows import SolvedProblemRow
from plansmith.judging.chains import JudgedChain, judge_completion
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Literal, Problem
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.noise import Noise
from plansmith.text.chains import Chain, Part, chain_of_plan, in_order, told_state
from plansmith.text.rendering import rendering_of

PLAN = parse_plan("(unstack b a) (put-down b) (pick-up a) (stack a b)")
RENDERINGS = pytest.mark.parametrize("rendering", ["compact", "full"])


def tower() -> PlanningTask:
    """Return a task in which a tower of two is to be turned round."""
    return blocks_task("(ontable a) (on b a) (clear b) (handempty)", "(on a b)", "a b")


def starting(task: PlanningTask, chain: Chain) -> Chain:
    """Return a chain that tells the state of the task."""
    return replace(chain, start=told_state(task, task.problem.init))


def judged(task: PlanningTask, chain: Chain, rendering: str) -> JudgedChain:
    """Return the judgement of a chain as it is written."""
    renderer = rendering_of(rendering)
    return judge_completion(task, renderer.write_chain(chain), renderer)


@RENDERINGS
def test_start_stands_before_the_first_step(rendering: str) -> None:
    begins = {"compact": "now: handempty ontable a clear b on b a goals: on? a b unmet:",
              "full": "[STATE] (handempty) (ontable a) (clear b) (on b a)\n[STEP 1]\n"}  # fmt: skip
    text = rendering_of(rendering).write_chain(starting(tower(), chain_of_plan(tower(), PLAN)))
    assert text.startswith(begins[rendering])


@settings(max_examples=30)
@given(blocks_problems(max_blocks=4), st.randoms(use_true_random=False), st.sampled_from(["compact", "full"]))
def test_true_start_is_read_as_it_was_written_and_changes_no_judgement(
    problem: Problem, rng: random.Random, rendering: str
) -> None:
    task = PlanningTask(BLOCKS, problem)
    bare = chain_of_plan(task, random_walk(task, rng.randrange(4), rng))
    found, without = judged(task, starting(task, bare), rendering), judged(task, bare, rendering)
    assert (found.read.fault, found.read.chain.start) == (None, in_order(problem.init))
    assert [step.judgement for step in found.steps] == [step.judgement for step in without.steps]
    assert not found.closing and not any(step.false_claims for step in found.steps)
    assert found.verdict is without.verdict


@RENDERINGS
def test_start_that_is_not_the_problems_is_a_false_word_and_its_steps_follow_from_it(rendering: str) -> None:
    believed = blocks_task("(ontable a) (ontable b) (clear a) (clear b) (handempty)", "(on a b)", "a b")
    chain = starting(believed, chain_of_plan(believed, parse_plan("(pick-up a) (stack a b)")))
    found = judged(tower(), chain, rendering)
    reasons = [false.reason for false in found.steps[0].false_claims]
    assert [false.claim.part for false in found.steps[0].false_claims] == [Part.START] * 3
    assert sorted(reasons) == [
        "(clear a) does not hold at the start", "(ontable b) does not hold at the start", "leaves out (on b a)",
    ]  # fmt: skip
    assert all(step.judgement.code.is_outcome_right for step in found.steps), "what it claims is true where it believes"
    assert (found.first_fault, found.verdict.value) == (0, "precondition_unsatisfied")


@RENDERINGS
def test_start_of_a_chain_without_steps_is_judged_with_its_end(rendering: str) -> None:
    task = blocks_task("(ontable a) (clear a) (handempty)", "(ontable a)", "a")
    chain = replace(chain_of_plan(task, ()), start=(Atom("holding", ("a",)),))
    found = judged(task, chain, rendering)
    assert [false.claim.part for false in found.closing] == [Part.START, Part.START, Part.GOALS]


def row() -> SolvedProblemRow:
    """Return the plan of the tower as the library has it."""
    task = tower()
    return SolvedProblemRow(
        "tower", "L1", print_domain(task.domain), print_problem(task.problem), tuple(map(str, PLAN))
    )


@RENDERINGS
def test_chains_of_disturbed_prompts_tell_the_true_state_first_and_are_right_there(rendering: str) -> None:
    renderer, noise = rendering_of(rendering), Noise(rates=(0.0, 0.5), mixture="missing")
    n_disturbed = 0
    for seed in range(12):
        [clean] = chain_examples(row(), renderer, (), n_renamings=1, seed=seed)
        [noisy] = chain_examples(row(), renderer, (), n_renamings=1, seed=seed, noise=noise)
        task = tower()
        found = judge_completion(task, noisy.response, renderer)
        assert (found.first_fault, found.verdict.value) == (None, "valid")
        assert noisy.response.endswith(clean.response)
        n_disturbed += noisy.prompt != clean.prompt
        assert len(noisy.prompt) <= len(clean.prompt), "atoms are missing, none are made up"
    assert 0 < n_disturbed < 12


def test_narrator_that_tells_the_start_has_prompts_as_they_are() -> None:
    [clean] = chain_examples(row(), rendering_of("compact"), (), n_renamings=1, seed=1)
    settings = library_settings(PIPELINE.settings("smoke", overrides=["narrator={tells_start: true}"]))
    assert settings.noise is None
    [told] = chain_examples(row(), rendering_of("compact"), (), n_renamings=1, seed=1, chains=settings.chains)
    start = rendering_of("compact").write_literals([Literal(atom) for atom in in_order(tower().problem.init)])
    assert (told.prompt, told.response.removesuffix(clean.response)) == (clean.prompt, f"now: {start} ")


def test_arm_of_disturbed_prompts_needs_rates() -> None:
    level = {"domain": "blocks-classic", "level": "x", "sizes": {}, "phase1": 1, "test": 1}
    with pytest.raises(ValidationError, match="the arm sft_noisy needs evaluation"):
        SelfCriteachConfig.model_validate({
            "problems": {"domains": [level]}, "sft": {"learning_rate": 0.1, "batch_tokens": 64},
            "arms": ["sft_noisy"], "rendering": "compact", "domain": {"writer": "symbolic"},
        })  # fmt: skip

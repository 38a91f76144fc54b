"""Tuples of domain, problem and plan: what they ask, when their names are hidden, in which order they are learnt."""

from __future__ import annotations

import pytest
from conftest import BLOCKS_TEXT, SUSSMAN_PLAN, sussman

from plansmith.config.dataset import PlanExamplesConfig, SymbolPoolConfig
from plansmith.data.plan_examples import anonymised_problem, in_order_of_training, plan_examples
from plansmith.data.rows import ProblemRow, SolvedProblemRow, Split
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.text.rendering import plan_prompting, prompting_of

PROBLEM_TEXT = print_problem(sussman().problem)
PLAN = tuple(map(str, SUSSMAN_PLAN))


def solved(number: int = 0) -> SolvedProblemRow:
    return SolvedProblemRow(f"p{number}", "L1", BLOCKS_TEXT, PROBLEM_TEXT, PLAN)


@pytest.mark.parametrize("plan_format", ["numbered", "compact"])
@pytest.mark.parametrize("prompts", ["pddl", "told", "named"])
def test_answer_of_each_format_is_read_back_by_the_prompting_that_asks_for_it(prompts: str, plan_format: str) -> None:
    [example] = plan_examples(solved(), PlanExamplesConfig(plan_format=plan_format, prompts=prompts), seed=1)
    prompting, task = prompting_of(plan_prompting(plan_format, prompts)), sussman()
    assert ("stack" in example.prompt) == (prompts != "named")  # the actions are of the domain, not of the problem
    assert example.prompt == prompting.plan_prompt(task) and not example.is_anonymised
    read = prompting.read(example.response, task.domain)
    assert read.chain.final_plan == SUSSMAN_PLAN and read.fault is None
    other = prompting_of(plan_prompting("compact" if plan_format == "numbered" else "numbered", prompts))
    assert other.read(example.response, task.domain).fault is not None  # each form is read strictly


def test_variations_are_other_texts_of_the_same_problem() -> None:
    first, *others = plan_examples(solved(), PlanExamplesConfig(copies=9, varies=True), seed=2)
    [alone] = plan_examples(solved(), PlanExamplesConfig(), seed=2)
    assert (first.prompt, first.response) == (alone.prompt, alone.response)
    assert len({example.response for example in others}) > 3  # of the six ways to call three blocks
    for example in others:
        problem = "(define (problem" + example.prompt.split("\n\n", 1)[1].split("(define (problem", 1)[1]
        task = PlanningTask.from_text(BLOCKS_TEXT, problem)
        plan = prompting_of("plan_numbered").read(example.response, task.domain).chain.final_plan
        assert plan is not None and validate_plan(task, plan).is_valid
        assert canonical_form(task.domain, task.problem) == canonical_form(sussman().domain, sussman().problem)


def test_curriculum_hides_names_ever_more_often_and_is_learnt_in_its_order() -> None:
    config = PlanExamplesConfig(anonymise="curriculum", copies=3)
    examples = [example for number in range(100) for example in plan_examples(solved(number), config, seed=5)]
    order = in_order_of_training([example.example_id for example in examples], 3, seed=5)
    positions = [examples[place].position for place in order]
    assert positions == sorted(positions) and len(set(order)) == 300
    thirds = [[examples[place].is_anonymised for place in order[start : start + 100]] for start in (0, 100, 200)]
    shares = [sum(third) / 100 for third in thirds]
    assert shares[0] < 0.3 < shares[1] < 0.7 < shares[2]  # 1/6, 1/2 and 5/6 are expected


def test_anonymised_example_has_a_plan_that_solves_what_it_asks() -> None:
    [example] = plan_examples(solved(), PlanExamplesConfig(anonymise="always"), seed=3)
    assert example.is_anonymised and "unstack" not in example.prompt + example.response
    domain_pddl, problem_pddl = example.prompt.split("\n\n", 1)[1].split("(define (problem", 1)
    task = PlanningTask.from_text(domain_pddl, f"(define (problem{problem_pddl}")
    plan = prompting_of("plan_numbered").read(example.response, task.domain).chain.final_plan
    assert plan is not None and validate_plan(task, plan).is_valid


def test_names_drawn_for_a_domain_are_those_of_its_problems_but_for_objects_and_of_one_copy_alone() -> None:
    config = PlanExamplesConfig(
        plan_format="chain", prompts="told", anonymise="always", copies=2, symbols=SymbolPoolConfig(),
        draws_names_for="domain",
    )  # fmt: skip
    (first, again), (other, _) = ([*plan_examples(solved(number), config, seed=5)] for number in range(2))
    domains, problems = zip(*(one.prompt.split(" objects: ") for one in (first, again, other)), strict=True)
    assert domains[0] == domains[2] != domains[1]
    assert problems[0] != problems[2]
    alone = config.model_copy(update={"draws_names_for": "problem"})
    [*_, one], [*_, two] = (plan_examples(solved(number), alone, seed=5) for number in range(2))
    assert one.prompt.split(" objects: ")[0] != two.prompt.split(" objects: ")[0]


def test_anonymised_problem_keeps_its_id_and_knows_none_of_the_names() -> None:
    row = ProblemRow("p", "f", "blocksworld", "L1", Split.TEST, 3, BLOCKS_TEXT, PROBLEM_TEXT, "sampler")
    hidden, again, other = (anonymised_problem(row, seed=seed) for seed in (1, 1, 2))
    assert hidden == again != other
    assert (hidden.problem_id, hidden.canonical_form, hidden.split) == ("p", "f", Split.TEST)
    task = PlanningTask.from_text(hidden.domain_pddl, hidden.problem_pddl)
    assert validate_plan(task, parse_plan(" ".join(PLAN))).verdict is Verdict.MALFORMED_PLAN

"""Statements by number: any text gets them, and answers tell which they write, with mistakes and without."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from conftest import BLOCKS, sussman

from plansmith.config.domains import Phrases
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Conjunction, literals_of
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_problem
from plansmith.problems.library import domain_names, load_domain
from plansmith.problems.perturbation import Perturbation, perturb
from plansmith.text.natural_language import FRAMES, problem_text
from plansmith.text.natural_language_reader import read_problem_text
from plansmith.text.statements import numbered_answer, numbered_text

SPOKEN = [name for name in domain_names() if load_domain(name).phrases is not None]


def blocks_phrases() -> Phrases:
    return load_domain("blocksworld").needed_phrases()


def test_numbered_text_numbers_sentences_items_and_what_semicolons_part() -> None:
    text = "Blocks. A table.\n\nTrue:\n- A is on b\n- B is free; c is free.\n\n"
    assert numbered_text(text, "pddl") == (
        "1 Blocks.\n2 A table.\n3 True:\n4 A is on b\n5 B is free\n6 c is free.\n7 pddl:\n"
    )


def test_numbered_text_without_a_statement_has_the_mark_alone() -> None:
    assert numbered_text("\n", "plan") == "1 plan:\n"


def test_numbered_answer_says_before_each_part_which_statement_it_writes() -> None:
    problem = sussman().problem
    text = problem_text(BLOCKS, blocks_phrases(), problem, phrasing=0)
    read = read_problem_text(BLOCKS, blocks_phrases(), text)
    said = [line.partition(" ")[2] for line in numbered_text(text, "pddl").splitlines()]
    answer = numbered_answer(print_problem(read), read, text, "pddl")
    head, *parts = re.split(r";\d+ ([^\n]*)\n", answer)
    assert head == "(define (problem described) (:domain blocksworld)"
    written = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(written.values()) == [
        "(:objects a b c", ") (:init", *map(str, read.init), ") (:goal (and", "(on a b)", "(on b c)", ")))\n",
    ]  # fmt: skip
    assert said[-3] in ("A is on b.", "a is on b.") and written[said[-3]] == "(on a b)"
    assert said[-1] == "pddl:" and list(written)[-1] == "pddl:"
    assert parse_problem(answer, BLOCKS) == read


@pytest.mark.parametrize("name", SPOKEN)
def test_numbered_answers_are_the_problem_with_comments_in_every_frame(name: str) -> None:
    loaded = load_domain(name)
    domain, phrases, problem = loaded.domain, loaded.needed_phrases(), loaded.sample("L1", random.Random(1))
    for phrasing in range(len(FRAMES)):
        text = problem_text(domain, phrases, problem, phrasing=phrasing, mixing=random.Random(phrasing))
        read = read_problem_text(domain, phrases, text)
        answer = numbered_answer(print_problem(read), read, text, "pddl")
        assert parse_problem(answer, domain) == read
        repeated = re.findall(r";(\d+ .*)\n", answer)
        said = numbered_text(text, "pddl").splitlines()
        assert repeated == said[-len(repeated) :]
        assert repeated[0].partition(" ")[2].startswith("There ")


@pytest.mark.parametrize("perturbation", Perturbation)
def test_a_mistake_keeps_the_numbers_where_they_would_stand(perturbation: Perturbation) -> None:
    loaded = load_domain("rovers")
    domain, phrases = loaded.domain, loaded.needed_phrases()
    text = problem_text(domain, phrases, loaded.sample("L1", random.Random(2)), phrasing=0)
    read = read_problem_text(domain, phrases, text)
    task = PlanningTask(domain, read)
    mistaken = next(filter(None, (perturb(task, perturbation, random.Random(seed)) for seed in range(50))))
    right, wrong = (numbered_answer(pddl, read, text, "pddl") for pddl in (print_problem(read), mistaken))
    assert re.findall(r";\d+ .*\n", wrong) == re.findall(r";\d+ .*\n", right)
    assert "".join(re.sub(r";\d+ .*\n", "", wrong).split()) == "".join(mistaken.split())
    common = len(set(right.splitlines()) & set(wrong.splitlines()))
    assert common >= len(set(right.splitlines())) - 4 or perturbation in (
        Perturbation.SECTION_LOST, Perturbation.OBJECT_DROPPED,
    )  # fmt: skip


def test_numbered_answer_to_a_text_of_another_problem_is_a_bug() -> None:
    problem = sussman().problem
    text = problem_text(BLOCKS, blocks_phrases(), problem, phrasing=0)
    read = read_problem_text(BLOCKS, blocks_phrases(), text)
    with pytest.raises(RuntimeError, match="statements of other sections"):
        numbered_answer(print_problem(read), read, text.replace("\n\nThis", " B is clear.\n\nThis"), "pddl")


def test_numbered_answer_to_a_goal_that_is_no_plain_conjunction_is_a_bug() -> None:
    text = problem_text(BLOCKS, blocks_phrases(), sussman().problem, phrasing=0)
    read = read_problem_text(BLOCKS, blocks_phrases(), text)
    first, second = literals_of(read.goal)
    nested = replace(read, goal=Conjunction((Conjunction((first,)), second)))
    with pytest.raises(RuntimeError, match="not those of its problem"):
        numbered_answer(print_problem(nested), nested, text, "pddl")

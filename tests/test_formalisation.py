"""Texts and the PDDL they are answered with: prompts, answers that follow from the text, what models write instead."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from conftest import BLOCKS, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, atoms, sussman

from plansmith.config.dataset import DatasetExamplesConfig
from plansmith.config.domains import Phrases
from plansmith.config.formalisation import FormalisationConfig
from plansmith.data.dataset_examples import ExampleWriter, plan_row
from plansmith.data.formalisation_examples import FormalisationWriter
from plansmith.data.rows import ExampleKind, PlanRow, ProblemRow, SolvedProblemRow
from plansmith.errors import BadInputError
from plansmith.pddl.diagnostics import Code
from plansmith.pddl.model import literals_of
from plansmith.pddl.parser import parse_domain, parse_problem, read_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.text.formalisation import domain_summary, formal_answer, formalisation_prompt, repair_prompt
from plansmith.text.formalisation_reader import read_answer
from plansmith.text.natural_language import FRAMES, Layout, problem_text
from plansmith.text.natural_language_reader import read_problem_text

COMPACT = FormalisationConfig(detail="name", rendering="compact")
BLOCKSWORLD = load_domain("blocksworld")
GROUPED = [number for number, frame in enumerate(FRAMES) if frame.layout is Layout.GROUPED]
P, Q = "(define (problem p) (:domain d) (:init))", "(define (problem q) (:domain d) (:goal (a)))"
SIZE = 10_000


def blocks_phrases() -> Phrases:
    assert BLOCKSWORLD.phrases is not None
    return BLOCKSWORLD.phrases


def solved(loaded: PlanningDomain, level: str, seed: int) -> SolvedProblemRow:
    """Return a drawn problem; its plan is not looked at."""
    problem = loaded.sample(level, random.Random(seed))
    return SolvedProblemRow(f"p{seed}", level, print_domain(loaded.domain), print_problem(problem), ())


# --- prompts


def test_domain_summary_lists_signatures_with_types_and_tells_derived_predicates_apart() -> None:
    domain = parse_domain(
        """(define (domain routes)
      (:requirements :adl :action-costs :derived-predicates)
      (:types place vehicle - object car truck - vehicle)
      (:constants hub - place)
      (:predicates (at ?v - vehicle ?p - place) (far ?p - place) (done))
      (:functions (distance ?a ?b - place) (total-cost) - number)
      (:derived (far ?p - place) (not (at hub hub)))
      (:action drive :parameters (?v - vehicle ?from ?to - place) :precondition (at ?v ?from)
        :effect (and (at ?v ?to) (not (at ?v ?from))))
      (:action wait :parameters () :effect (done)))""".replace("(at hub hub)", "(done)")
    )
    assert domain_summary(domain) == (
        "routes\n"
        "Types: place vehicle - object car truck - vehicle\n"
        "Constants: hub - place\n"
        "Predicates: (at ?v - vehicle ?p - place) (done)\n"
        "Derived predicates: (far ?p - place)\n"
        "Functions: (distance ?a ?b - place) (total-cost)\n"
        "Actions: (drive ?v - vehicle ?from ?to - place) (wait)"
    )


def test_domain_summary_of_an_untyped_domain_says_nothing_of_types() -> None:
    assert domain_summary(BLOCKS).splitlines()[:2] == [
        "blocksworld", "Predicates: (on ?x ?y) (ontable ?x) (clear ?x) (handempty) (holding ?x)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("name", "blocksworld"),
        ("summary", domain_summary(BLOCKS)),
        ("pddl", f"blocksworld\n{print_domain(BLOCKS).rstrip()}"),
    ],
)
def test_formalisation_prompt_says_of_the_domain_what_the_detail_asks_for(detail: str, said: str) -> None:
    full, compact = (FormalisationConfig(detail=detail, rendering=form) for form in ("full", "compact"))
    prompt = formalisation_prompt(BLOCKS, "Blocks. \n", full)
    assert prompt.endswith(f"\n\nDomain: {said}\n\nText:\nBlocks.\n")
    assert "exactly one PDDL problem, which begins with (define (problem, and with nothing else" in prompt
    assert formalisation_prompt(BLOCKS, "Blocks. \n", compact) == f"domain: {said}\n1 Blocks.\n2 pddl:\n"


def test_repair_prompt_holds_prompt_answer_and_feedback_and_asks_for_the_least_change() -> None:
    prompt = repair_prompt("PROMPT\n", " ANSWER\n\n", "FEEDBACK\n", FormalisationConfig())
    assert prompt.startswith("PROMPT\n\nYour last answer:\nANSWER\n\nFeedback:\nFEEDBACK\n\nMend the PDDL problem. ")
    assert "Change as little as possible" in prompt
    assert "exactly one PDDL problem" in prompt.rpartition("Mend")[2]
    assert repair_prompt("PROMPT\n", "AN;1 A.\nSWER\n", "FEEDBACK\n", COMPACT) == (
        "PROMPT\nAN\nSWER\nfeedback:\nFEEDBACK\nmended pddl:\n"
    )


# --- answers


def test_formal_answer_follows_from_a_text_in_which_facts_stand_by_predicate() -> None:
    problem = sussman().problem
    swapped = replace(problem, init=atoms("(on c a) (ontable a) (clear c) (ontable b) (clear b) (handempty)"), name="q")
    assert print_problem(problem) != print_problem(swapped)
    for phrasing in GROUPED:
        texts = {problem_text(BLOCKS, blocks_phrases(), one, phrasing=phrasing) for one in (problem, swapped)}
        [text] = texts
        for one in (problem, swapped):
            assert formal_answer(BLOCKS, blocks_phrases(), one, text) == (
                "(define (problem described)\n"
                "  (:domain blocksworld)\n"
                "  (:objects a b c)\n"
                "  (:init (on c a) (ontable a) (ontable b) (clear c) (clear b) (handempty))\n"
                "  (:goal (and (on a b) (on b c))))\n"
            )


def test_formal_answer_has_facts_in_the_order_of_a_text_that_keeps_it() -> None:
    swapped = replace(sussman().problem, init=atoms("(clear b) (on c a) (ontable b) (clear c) (handempty) (ontable a)"))
    text = problem_text(BLOCKS, blocks_phrases(), swapped, phrasing=0, mixing=random.Random(0))
    answer = formal_answer(BLOCKS, blocks_phrases(), swapped, text)
    assert "(:init (clear b) (on c a) (ontable b) (clear c) (handempty) (ontable a))" in answer


def test_formal_answer_to_a_text_of_another_problem_is_a_bug() -> None:
    problem = sussman().problem
    for other in (
        replace(problem, init=problem.init[1:]),
        replace(problem, objects=(*problem.objects, replace(problem.objects[0], name="d"))),
        replace(problem, goal=literals_of(problem.goal)[0]),
        replace(problem, metric="total-time"),
    ):
        text = problem_text(BLOCKS, blocks_phrases(), other, phrasing=0)
        with pytest.raises(RuntimeError, match="another problem"):
            formal_answer(BLOCKS, blocks_phrases(), problem, text)


def test_formal_answer_keeps_types_constants_and_negations() -> None:
    domain = parse_domain(DEPOT_TEXT)
    problem = parse_problem(DEPOT_PROBLEM_TEXT, domain)
    phrases = Phrases(topic="Parcels.", predicates={
        "at": ("{0} is at {1}",), "in": ("{0} is in {1}",), "closed": ("{0} is closed",), "done": ("all is done",),
    })  # fmt: skip
    answer = formal_answer(domain, phrases, problem, problem_text(domain, phrases, problem, phrasing=0))
    assert "(:objects t1 - truck c1 - car l1 l2 - place k1 - parcel m - (either truck parcel) o1 - object)" in answer
    assert "(:goal (and (at t1 hub) (not (closed l2))))" in answer


# --- what models write


@pytest.mark.parametrize(
    ("completion", "problem"),
    [
        (f"Sure:\n```pddl\n{P}\n```\nIt is (I think) right; see (:init) above.", P),
        (f"<think>First {Q}</think>\n{P}", P),
        (f"all this was thought: {Q} </think> {P}", P),
        (f"{Q} is wrong. Corrected: {P}", P),
        (f"(define (domain d) (:predicates (a)))\n{P}", P),
        (f"{P}\nOr, cut off: (define (problem q) (:domain d", P),
        (P.upper(), P.upper()),
        (f"```\n{P.replace(' ', chr(10))}```", P.replace(" ", "\n")),
        (P.replace("(:init)", "; a ) in a comment (\n(:init)"), P.replace("(:init)", "; a ) in a comment (\n(:init)")),
        (P[:-1], P[:-1]),
        (f"```\n{P[:-1]}\n```\n) later", P[:-1]),
        (f"{P})\n", f"{P})"),
        (f"{P} ; so\n(:goal (a)))", f"{P} ; so\n(:goal (a)))"),
        ("(define (problem", "(define (problem"),
    ],
    ids=[
        "fence", "thinking", "thinking of the template", "two", "domain", "second cut off", "capitals", "lines",
        "comment", "bracket missing", "bracket missing in a fence", "bracket too many", "closed too early", "beginning",
    ],
)  # fmt: skip
def test_read_answer_finds_the_problem_that_is_meant(completion: str, problem: str) -> None:
    assert read_answer(completion).problem_pddl == problem


@pytest.mark.parametrize(
    "completion",
    ["", "I cannot.", "(define (domain d))", f"<think>{P}", f"<think>{P}</think>", "(define problem p)",
     "(define (problems p))"],
    ids=["empty", "refusal", "domain", "endless thinking", "thinking only", "no list", "another word"],
)  # fmt: skip
def test_read_answer_without_a_problem_says_so(completion: str) -> None:
    answer = read_answer(completion)
    assert answer.problem_pddl is None
    assert not answer.keeps_contract


@pytest.mark.parametrize(
    ("completion", "keeps"),
    [
        (P, True), (f"\n {P}\n\n", True), (f"({P[1:]}", True), (f"{P}.", False), (f"```\n{P}\n```", False),
        (f"<think></think>{P}", False), (f"{P}{P}", False), (P[:-1], False), (f"{P})", False), (f"; so\n{P}", False),
    ],
    ids=["bare", "space", "same", "full stop", "fence", "thinking", "two", "too few", "too many", "comment"],
)  # fmt: skip
def test_read_answer_keeps_the_contract_only_with_one_whole_problem_and_nothing_else(
    completion: str, keeps: bool
) -> None:
    assert read_answer(completion).keeps_contract is keeps


@pytest.mark.parametrize(
    "goal",
    ["(not " * SIZE + "(clear a)" + ")" * SIZE, "(" * SIZE + ")" * SIZE, "(and " + "(clear a) " * SIZE + ")"],
    ids=["deep negation", "deep brackets", "long"],
)
def test_read_answer_of_any_size_is_found_and_diagnosed(goal: str) -> None:
    problem = f"(define (problem p) (:domain blocksworld) (:objects a) (:init) (:goal {goal}))"
    answer = read_answer(problem)
    assert answer.problem_pddl == problem
    assert answer.keeps_contract
    codes = {error.code for error in read_problem(problem, BLOCKS).notebook.errors()}
    assert (Code.TOO_DEEP in codes) is (not goal.startswith("(and"))
    assert bool(codes) is (not goal.startswith("(and"))


def test_read_answer_of_thousands_of_objects_brackets_and_comments_ends() -> None:
    objects = " ".join(f"o{number}" for number in range(SIZE))
    many = f"(define (problem p) (:domain blocksworld) (:objects {objects}) (:init) (:goal (clear o1)))"
    assert len(read_problem(read_answer(many).problem_pddl or "", BLOCKS).value.objects) == SIZE
    assert read_answer("(define (problem p)" * SIZE).problem_pddl == "(define (problem p)"
    assert read_answer("(" * SIZE).problem_pddl is None
    assert read_answer(P + ")" * SIZE).problem_pddl == P + ")" * SIZE
    assert read_answer(P + ";; ; " * SIZE).problem_pddl == P  # a pattern that tries comments twice never ends here
    for text in ("(define (problem p)" * SIZE, P + ")" * SIZE, "(define (problem" + "(" * SIZE):
        assert read_problem(read_answer(text).problem_pddl or "", BLOCKS).notebook.errors()


# --- examples


@pytest.mark.parametrize("name", ["assembly", "snake", "woodworking"])
def test_renamed_examples_speak_of_the_names_given_and_answer_what_they_ask(name: str) -> None:
    loaded, pool = load_domain(name), tuple("abcdefghijklmnop")
    row = solved(loaded, "L1", 3)
    drawn = parse_problem(row.problem_pddl, loaded.domain)
    examples = list(FormalisationWriter(loaded, COMPACT).renamed_examples("p", drawn, pool, n_renamings=3, seed=1))
    assert len({example.example_id for example in examples}) == len({example.prompt for example in examples}) == 3
    for example in examples:
        answer = read_answer(example.response)
        assert answer.keeps_contract
        found = parse_problem(answer.problem_pddl or "", loaded.domain)
        assert {typed.name for typed in found.objects} <= set(pool)
        assert len(found.objects) == len(drawn.objects)
        assert sorted(atom.predicate for atom in found.init) == sorted(atom.predicate for atom in drawn.init)
        assert example.prompt.startswith(f"domain: {loaded.domain.name}\n")
        assert not any(re.search(rf"(?<![\w-]){typed.name}(?![\w-])", example.prompt) for typed in drawn.objects)


def test_renamed_examples_never_give_away_the_name_of_a_constant() -> None:
    loaded = load_domain("snake")
    [constant] = loaded.domain.constants
    row = solved(loaded, "L1", 0)
    drawn = parse_problem(row.problem_pddl, loaded.domain)
    pool = (constant.name, *"abcdefghij"[: len(drawn.objects)])
    for example in FormalisationWriter(loaded, COMPACT).renamed_examples("p", drawn, pool, n_renamings=5, seed=0):
        objects = parse_problem(example.response, loaded.domain).objects
        assert constant.name not in {typed.name for typed in objects}


def test_renamed_examples_without_names_keep_those_of_the_problem() -> None:
    row = solved(BLOCKSWORLD, "L1", 1)
    drawn = parse_problem(row.problem_pddl, BLOCKSWORLD.domain)
    [example] = FormalisationWriter(BLOCKSWORLD, COMPACT).renamed_examples("p", drawn, (), n_renamings=1, seed=0)
    found = parse_problem(example.response, BLOCKSWORLD.domain)
    assert set(found.objects) == set(drawn.objects)
    assert set(found.init) == set(drawn.init)


def test_texts_of_a_domain_without_phrases_are_refused_by_its_folder() -> None:
    mute = replace(BLOCKSWORLD, phrases=None)
    with pytest.raises(BadInputError, match=re.escape(str(BLOCKSWORLD.folder / "phrases.yaml"))):
        FormalisationWriter(mute, COMPACT).text(sussman().problem, random.Random(0))


@pytest.mark.parametrize("phrasing", ["uniform", "mixed"])
def test_texts_of_reworded_levels_share_no_phrasing_with_the_others(phrasing: str) -> None:
    loaded = load_domain("logistics")
    config = FormalisationConfig(phrasing=phrasing, reworded=("logistics in other words",))
    phrases = loaded.needed_phrases()
    kept, last = (phrases.divided(is_last=is_last) for is_last in (False, True))
    writer, rng = FormalisationWriter(loaded, config), random.Random(0)
    for seed in range(8):
        problem = loaded.sample("L1", random.Random(seed))
        for level, own, others in (("logistics L1", kept, last), ("logistics in other words", last, kept)):
            text = writer.text(problem, rng, level=level)
            assert set(read_problem_text(loaded.domain, own, text).init) == set(problem.init)
            with pytest.raises(BadInputError):
                read_problem_text(loaded.domain, others, text)


def test_phrases_of_one_phrasing_cannot_be_divided() -> None:
    with pytest.raises(BadInputError, match="no phrasing can be kept apart"):
        Phrases(topic="A.", predicates={"on": ("{0} is on {1}",)}).divided(is_last=True)


@pytest.mark.parametrize("phrasing", ["uniform", "mixed"])
def test_dataset_answers_a_text_with_the_problem_in_its_order(phrasing: str) -> None:
    config = DatasetExamplesConfig(formalise=1.0, formalisation=FormalisationConfig(phrasing=phrasing, detail="name"))
    writer = ExampleWriter(BLOCKSWORLD, config, seed=0)
    for seed in range(12):
        row = solved(BLOCKSWORLD, "L1", seed)
        problem = ProblemRow(row.problem_id, "form", "blocksworld", "L1", "train", 3, row.domain_pddl,
                             row.problem_pddl, "drawn")  # fmt: skip
        plan = PlanRow(row.problem_id, "fd", "solved", ("(pick-up a)",), 1.0, 0.1, False)
        kept = plan_row(problem, plan, writer.text_of(problem))
        [example] = writer.write(ExampleKind.FORMALISE, kept)
        assert kept.problem_text is not None
        assert kept.problem_text.strip() in example.prompt
        assert example.response.startswith("(define (problem described)\n  (:domain blocksworld)\n")
        found, drawn = (parse_problem(text, BLOCKSWORLD.domain) for text in (example.response, row.problem_pddl))
        assert set(found.init) == set(drawn.init)
        read = formal_answer(BLOCKSWORLD.domain, blocks_phrases(), drawn, kept.problem_text)
        assert example.response == read

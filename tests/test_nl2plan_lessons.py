"""A speaker that learns the steps of NL2Plan from nothing: what it is taught, behind which words, what it is asked."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.nl2plan import PIPELINE, nl2plan
from pipelines.stages import modelling_lessons
from pipelines.stages.modelling import KEPT
from pipelines.stages.modelling_lessons import SPOKEN
from plansmith.ablation.nl2plan_seeds import NEVER, TAUGHT, nl2plan_seeds_results
from plansmith.ablation.seeds_report import seeds_report
from plansmith.cli import main
from plansmith.config.domains import Phrases
from plansmith.config.loading import build_model
from plansmith.config.modelling import ModellingConfig
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.data.rows import ExampleRow, ModelledTaskRow, ModellingTaskRow
from plansmith.errors import BadInputError, ConfigError
from plansmith.generation import Answers, Completion, Conversation, FinishReason, Generator, asking, plain_text
from plansmith.judging.advice import effect_of_advice
from plansmith.judging.modelled import equal_actions, plan_task
from plansmith.learning.packing import GRAIN_TOKENS
from plansmith.modelling import lessons as lessons_module
from plansmith.modelling.dialogue import QuestionKind
from plansmith.modelling.hidden_words import (
    NAMES,
    NEWLINE,
    POOL,
    HiddenWords,
    Hiding,
    KeptWords,
    _rng_of,
    hidden_pieces,
)
from plansmith.modelling.lessons import (
    BLANK,
    MISTAKES,
    blank,
    lessons,
    one_call_lesson,
    spoken_reference,
    straight_lesson,
)
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.quoting import QuotedAnswers
from plansmith.modelling.reading import read_advice
from plansmith.modelling.references import Reference
from plansmith.modelling.scrambling import Scrambler
from plansmith.modelling.sentences import numbered, quoted_place, sentences
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import OBJECT, Atom, Problem
from plansmith.pddl.parser import parse_domain, parse_problem, parse_step
from plansmith.pddl.printer import print_domain
from plansmith.pddl.validation import validate_plan
from plansmith.planners import FastDownward
from plansmith.problems.library import PlanningDomain, load_domain
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.nl2plan_report import nl2plan_report
from plansmith.report.nl2plan_results import COMPARED, OTHERS, nl2plan_results
from plansmith.report.render import format_report
from plansmith.resources import Resources
from plansmith.stages import run_stages
from plansmith.text.natural_language import FRAMES
from plansmith.text.spoken import SLOT, SpokenDomain, predicate_name, type_name

BARE = ModellingConfig(prompts="bare", feedback="none", passes=1, max_error_messages=1, max_validations=2)
ADVISED = BARE.model_copy(update={"feedback": "model"})
LEARNT = (
    "briefcase", "ferry", "maintenance", "miconic", "mprime", "mystery", "satellite", "spanner", "tpp", "transport",
    "zenotravel",
)  # fmt: skip


def drawn(name: str, seed: int = 1) -> tuple[PlanningDomain, Problem]:
    """Return a domain of the library with a problem of it."""
    loaded = load_domain(name)
    return loaded, loaded.sample("L1", random.Random(seed))


def spoken(name: str) -> Iterator[tuple[SpokenDomain, Problem]]:
    """Yield a domain in every phrasing that tells its predicates apart, with a problem."""
    loaded, problem = drawn(name)
    for phrasing in range(len(FRAMES)):
        with contextlib.suppress(BadInputError):
            yield SpokenDomain(loaded.domain, loaded.needed_phrases(), phrasing), problem


@cache
def kept_words() -> KeptWords:
    loaded, problem = drawn("blocksworld")
    texts = list[str]()
    for phrasing in range(len(FRAMES)):
        domain, phrases, nothing = blank(loaded.domain, loaded.needed_phrases(), problem)
        reference = spoken_reference(SpokenDomain(domain, phrases, phrasing), nothing, name="x")
        for question, answer in lessons(reference, BARE, random.Random(0), mistakes=0.0):
            texts += [plain_text(question.messages), answer]
    return KeptWords.of(texts, but=BLANK)


# --- names that a text gives away


def test_spoken_predicates_are_called_by_their_words_with_arguments_in_their_order() -> None:
    loaded = load_domain("blocksworld")
    phrases = loaded.needed_phrases()
    odd = phrases.model_copy(update={"predicates": {**phrases.predicates, "on": ("{1} bears the block {0}",) * 3}})
    made = SpokenDomain(loaded.domain, odd, 2)
    assert {schema.name for schema in made.pddl.predicates} == {
        "x-bears-the-block-x", "you-see-x-standing-on-the-table", "the-top-of-x-is-free", "your-hand-is-free",
        "you-are-holding-x",
    }  # fmt: skip
    unstack = next(action for action in made.pddl.actions if action.name == "unstack")
    assert Atom("x-bears-the-block-x", ("?x1", "?x0")) in [literal.atom for literal in unstack.precondition.parts]  # type: ignore[union-attr]
    assert "X1 bears the block X0" in made.text
    assert [typed.name for typed in made.pddl.types] == ["block"]


@pytest.mark.parametrize("name", LEARNT)
def test_spoken_text_lists_the_arguments_of_a_fact_as_its_phrase_names_them(name: str) -> None:
    found = [own for own, _ in spoken(name)]
    assert found
    for own in found:
        facts = re.findall(r"^- (.+):\n((?:  - X\d+, .+\n)+)", own.text, re.MULTILINE)
        listed = {
            predicate_name(re.sub(r"X(\d+)", r"{\1}", fact)): [
                type_name(noun) for noun in re.findall(r", an? (.+)", them)
            ]
            for fact, them in facts
        }
        wanted = {schema.name: [*schema.parameters] for schema in own.pddl.predicates if schema.parameters}
        assert listed == {name: [typed.types[0] for typed in them] for name, them in wanted.items()}


@pytest.mark.parametrize("phrase", ["{0} stands on something", "{2} bears {0}"])
def test_spoken_phrase_that_does_not_fit_its_arguments_is_refused(phrase: str) -> None:
    loaded = load_domain("blocksworld")
    phrases = loaded.needed_phrases()
    odd = phrases.model_copy(update={"predicates": {**phrases.predicates, "on": (phrase,) * 3}})
    with pytest.raises(
        BadInputError, match=r"a phrase of 'on' does not fit its arguments[^$]*positions \{0\} to \{1\}"
    ):
        _ = SpokenDomain(loaded.domain, odd, 0).text


def test_spoken_plan_is_a_plan_of_the_domain_that_it_was_made_of() -> None:
    plan = [parse_step(text) for text in ("(unstack b a)", "(put-down b)", "(pick-up a)", "(stack a b)")]
    loaded = load_domain("blocksworld")
    problem = parse_problem("(define (problem p) (:domain blocksworld) (:objects a b) (:init (ontable a) (on b a) "
                            "(clear b) (handempty)) (:goal (on a b)))", loaded.domain)  # fmt: skip
    for phrasing in range(len(FRAMES)):
        made = SpokenDomain(loaded.domain, loaded.needed_phrases(), phrasing)
        task = PlanningTask(made.pddl, made.problem_pddl(problem))
        assert validate_plan(task, plan).is_valid
        assert not validate_plan(task, plan[:3]).is_valid


def test_spoken_refuses_what_no_step_can_write_and_says_what() -> None:
    for name, what in (("tyreworld", "constants"), ("openstacks", "numbers"), ("power-network", "rules")):
        loaded = load_domain(name)
        with pytest.raises(BadInputError, match=f"{name}: a description that no steps of modelling follow[^$]*{what}"):
            SpokenDomain(loaded.domain, loaded.needed_phrases(), 0)
    loaded = load_domain("blocksworld")
    phrases = loaded.needed_phrases()
    alike = phrases.model_copy(update={"predicates": {**phrases.predicates, "clear": ("{0} is on the table",) * 3}})
    with pytest.raises(BadInputError, match="the same name for two things"):
        SpokenDomain(loaded.domain, alike, 0)


# --- hidden words


@pytest.mark.parametrize("name", LEARNT)
def test_hidden_answers_come_back_as_they_were_and_show_no_word(name: str) -> None:
    kept, n_answers = kept_words().words, 0
    for own, problem in spoken(name):
        for question, answer in lessons(
            spoken_reference(own, problem, name=name), BARE, random.Random(0), mistakes=0.5
        ):
            hiding = Hiding(kept, random.Random(n_answers))
            shown = f"{plain_text(hiding.hide_all(question.messages))} {hiding.hide(answer)}"
            back = hiding.reveal(hiding.hide(answer))
            assert list(hidden_pieces(back)) == list(hidden_pieces(answer))
            words = {word for word in shown.lower().split() if word.isalnum() and not re.fullmatch(r"[np]\d+", word)}
            assert words <= {*kept, *POOL, *NAMES, *"abcdefghijklmnopqrst"}
            n_answers += 1
    assert n_answers > 10


def test_hidden_words_are_drawn_anew_for_each_conversation_and_alike_for_the_same() -> None:
    said = list[str]()

    class Echo:
        def complete(self, conversations: list[Conversation], sampling: Any, **_: Any) -> Answers:
            said.extend(plain_text(messages) for messages in conversations)
            for number, messages in enumerate(conversations):
                yield number, [Completion(plain_text(messages), FinishReason.STOP, "echo", 0)]

    texts = ["a parcel is at X0 - (on-table ?x1)", "two parcels and a van", "a parcel is at X0 - (on-table ?x1)"]
    speaker = HiddenWords(Echo(), frozenset({"a", "is", "at", "two", "and"}))
    answers = dict(speaker.complete([asking(text) for text in texts], None, seeds=[0] * 3))  # type: ignore[arg-type]
    assert answers[0][0].text == "a parcel is at ?x0 - (on-table ?x1)"
    assert answers[1][0].text == "two parcels and a van"
    assert said[0] == said[2]
    assert said[0].split()[:4:2] == ["a", "is"]
    assert "parcel" not in " ".join(said)
    hidden = {word for text in said for word in text.split() if word in POOL}
    assert len(hidden) in (5, 6)  # parcel, on, table; parcels, van: other words, but by chance


def test_a_name_that_ends_in_a_digit_is_one_word_and_others_are_their_parts() -> None:
    hiding = Hiding(frozenset({"at"}), random.Random(0))
    text = "truck-1 at l0-1 (at truck-1 l0-1) - new_town_12 on-top 3-d"
    hidden = hiding.hide(text).split()
    assert [word for word in hidden if word in NAMES][:4] == [hidden[0], hidden[2], hidden[0], hidden[2]]
    assert hiding.reveal(" ".join(hidden)) == text
    pieces = list(hidden_pieces(text))
    assert pieces[:3] == ["truck-1", "at", "l0-1"]
    assert pieces[8:] == ["-", "new_town_12", "on", "~", "top", "3", "~", "d"]


def test_hiding_more_words_than_the_pool_has_is_refused() -> None:
    hiding = Hiding(frozenset(), random.Random(0))
    hiding.hide(" ".join(word.replace("q", "w") for word in POOL))
    with pytest.raises(BadInputError, match="more words than there are to hide them behind"):
        hiding.hide("another")
    assert hiding.hide("b12 b12 c4").split()[0] in NAMES
    hiding.hide(" ".join(f"w{number}" for number in range(len(NAMES) - 2)))
    with pytest.raises(BadInputError, match=f"more than {len(NAMES)} with digits"):
        hiding.hide("w1000")
    assert hiding.hide(" ".join(POOL)) == " ".join(POOL)  # whatever a model babbles can be handed back to it
    fresh = Hiding(frozenset(), random.Random(0))
    assert fresh.reveal(fresh.hide("(p ?x25 ?x26 ?x100)")) == "(p ?x25 ?x26 ?x100)"


def test_numbers_begin_anywhere_where_that_is_asked_for_and_come_back_as_they_were() -> None:
    text, begun = "§§1 §1 A car. §2 A van.", set[tuple[str, ...]]()
    for seed in range(400):
        hiding = Hiding(frozenset({"a"}), random.Random(seed), begins_anywhere=True)
        hidden = hiding.hide(text)
        numbers = re.findall(r"(?:P|N)(\d+)", hidden)
        assert int(numbers[2]) == int(numbers[1]) + 1
        assert list(hidden_pieces(hiding.reveal(hidden))) == list(hidden_pieces(text))
        begun.add(tuple(numbers[:2]))
    paragraphs, places = ({int(numbers[own]) for numbers in begun} for own in (0, 1))
    assert paragraphs == set(range(1, 8))
    assert len(places) > 60
    assert (min(places), max(places)) == (1, 121)
    assert Hiding(frozenset(), random.Random(0)).hide(text).startswith("P1 N1 ")


@pytest.fixture(scope="module")
def lessons_here(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return lessons about several domains."""
    return lessons_of_several_domains(tmp_path_factory.mktemp("lessons"))


def test_lessons_of_one_dialogue_begin_at_the_same_numbers_and_those_of_others_elsewhere(
    lessons_here: Artifact,
) -> None:
    begun: dict[str, set[str]] = {}
    for row in lessons_here.rows(ExampleRow, "lessons"):
        begun.setdefault(row.example_id.rpartition("-")[0], set()).add(re.findall(r"P\d+ N\d+", row.prompt)[0])
    assert {len(numbers) for numbers in begun.values()} == {1}
    places = [own for numbers in begun.values() for own in numbers]
    assert 0.2 < places.count("P1 N1") / len(places) < 0.8
    assert len(set(places)) > len(places) / 4


def test_domain_in_no_phrasing_that_is_tried_is_refused_with_the_phrasings() -> None:
    assert modelling_lessons._spoken(load_domain("satellite"), range(10))
    with pytest.raises(BadInputError, match=r"domain tyreworld, phrasings 10, 11[^$]*held_out_phrasings"):
        modelling_lessons._spoken(load_domain("tyreworld"), range(10, 12))


def test_lessons_are_the_same_in_every_process(lessons_here: Artifact, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests'); from pathlib import Path; from test_nl2plan_lessons import *; "
        "print(digest_of(lessons_of_several_domains(Path(sys.argv[1]))))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there")], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"}, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert there.stdout.split()[-1] == digest_of(lessons_here)  # whose hashes have a seed of their own


def digest_of(lessons: Artifact) -> str:
    return lessons.manifest.files["lessons.parquet"].sha256


def lessons_of_several_domains(root: Path) -> Artifact:
    stages = [stage for stage in nl2plan(several_domains()) if stage.name in ("sample_problems", "write_lessons")]
    return run_stages(stages, root=root, resources=Resources())["write_lessons"]


def several_domains() -> NL2PlanConfig:
    """Return the settings of a run with lessons about random domains made of several."""
    config = config_of()
    assert config.lessons is not None
    learnt = [
        {"domain": name, "level": "L1", "phase1": 3, "test": 1, "n_draws": 30, "test_share": 0.3}
        for name in ("ferry", "transport", "miconic", "briefcase")
    ]
    lessons = config.lessons.model_dump() | {"scrambled": 1.0}
    return config_of(lessons=lessons | {"problems": {**lessons["problems"], "domains": learnt}})


def test_kept_words_are_those_of_the_frames_and_of_no_domain(tmp_path: Path) -> None:
    kept = kept_words()
    assert {"action", "and", "conditions", "everything", "not", "parameters", "preconditions"} <= kept.words
    assert not {"block", "blocks", "hand", "pick", "stack", "table"} & kept.words
    kept.write(tmp_path / KEPT)
    assert KeptWords.read(tmp_path / KEPT) == kept


# --- lessons


@pytest.mark.parametrize("name", LEARNT)
def test_lessons_have_answers_in_which_no_check_finds_a_fault(name: str) -> None:
    for own, problem in spoken(name):
        kinds = [q.kind for q, _ in lessons(spoken_reference(own, problem, name=name), BARE, random.Random(0),
                                            mistakes=0.0)]  # fmt: skip
        assert set(kinds) == {QuestionKind.DRAFT}
        assert len(kinds) == 4 + len(own.domain.actions)


@pytest.mark.parametrize("name", [*LEARNT, "blocksworld", "logistics", "independent-set"])
def test_every_line_of_pddl_is_made_of_the_sentence_quoted_above_it(name: str) -> None:
    syntax, n_lines = {"and", "or", "not", "forall", "exists", "when", "thing", SLOT}, 0
    for own, problem in spoken(name):
        reference = spoken_reference(own, problem, name=name)
        said = {one.mark: one.quote for one in sentences(reference.text)}
        said |= {
            f"; §{one.number}": one.quote.replace(one.place, f"§{one.number}") for one in sentences(reference.text)
        }
        for question, answer in lessons(reference, BARE, random.Random(0), mistakes=0.0):
            if question.step is DialogueStep.CONSTRUCTION:
                numbers = re.findall(r"^; (?:§§\d+ )?§(\d+)", answer.partition("## New")[0], re.MULTILINE)
                first, last = int(numbers[0]), int(numbers[-1])
                assert numbers == list(map(str, range(first, last + 1)))  # each is one more than the last
            quote = ""
            for line in answer.split("\n"):
                if line.startswith(";"):
                    quote = "" if line in said else line
                    mark = re.match(r"; (?:§§\d+ )?§\d+", quote)
                    assert mark is None or said[mark[0]].startswith(quote)
                elif line.strip().startswith(("(", "- (")) and line != "(and":
                    n_lines += 1
                    variables = re.sub(r"\bX(\d+)", r"x\1", quote).lower()
                    missing = set(re.findall(r"[a-z0-9]+", line)) - set(re.findall(r"[a-z0-9]+", variables)) - syntax
                    assert not missing, (quote, line)
    assert n_lines > 100


DEEP = """(define (domain deep) (:requirements :adl) (:types cup shelf - object)
  (:predicates (on ?c - cup ?s - shelf) (clean ?c - cup) (near ?a ?b - shelf))
  (:action move :parameters (?c - cup ?a ?b - shelf)
    :precondition (and (on ?c ?a)
      (imply (clean ?c) (not (and (near ?a ?b) (exists (?d - cup) (or (on ?d ?b) (not (clean ?d)) (= ?d ?c))))))
      (forall (?d - cup ?s - shelf) (or (not (near ?a ?s)) (and (clean ?d) (on ?d ?s)))) (near ?a ?b))
    :effect (and (forall (?d - cup) (when (or (on ?d ?a) (clean ?d)) (and (on ?d ?b) (not (on ?d ?a)))))
      (not (clean ?c)) (when (near ?b ?a) (clean ?c))))
  (:action rest :parameters () :precondition () :effect (forall (?d - cup) (and (clean ?d) (not (clean ?d))))))"""
DEEP_PHRASES = {
    "topic": "Cups stand on shelves.", "types": {"cup": ("cup", "cups"), "shelf": ("shelf", "shelves")},
    "predicates": {"on": ("{0} stands on {1}",), "clean": ("{0} is clean",), "near": ("{0} adjoins {1}",)},
    "actions": {"move": ("move {0} from {1} to {2}",), "rest": ("rest",)},
}  # fmt: skip


def test_conditions_and_changes_of_any_depth_are_written_line_by_line() -> None:
    domain = parse_domain(DEEP)
    problem = parse_problem("(define (problem p) (:domain deep) (:objects c1 - cup s1 - shelf) (:init (on c1 s1)) "
                            "(:goal (clean c1)))", domain)  # fmt: skip
    own = SpokenDomain(domain, Phrases(**DEEP_PHRASES), 0)
    reference = spoken_reference(own, problem, name="x")
    asked = [(q, a) for q, a in lessons(reference, BARE, random.Random(0), mistakes=0.0)]
    assert {question.kind for question, _ in asked} == {QuestionKind.DRAFT}
    answers = [answer for question, answer in asked if question.step is DialogueStep.CONSTRUCTION]
    assert "; §31 for every cup X4 and every shelf X5\n)))))\n(forall (?x4 - cup ?x5 - shelf)\n; §32 - at" in answers[0]
    schemas = [f"(:action {name} :parameters ({' '.join(re.findall(r'^- ([?].*)', answer, re.M))}) :precondition "
               f"{body[0]} :effect {body[1]})" for name, answer in zip(("move", "rest"), answers, strict=True)
               if (body := re.findall(r"```\n(.*?)```", answer, re.S))]  # fmt: skip
    actions = print_domain(own.pddl)
    made = f"{actions[: actions.index('(:action')]}{' '.join(schemas)})"
    assert equal_actions(made, actions) == {"move": True, "rest": True}
    assert equal_actions(made.replace("(when", "(not", 1), actions) == {"move": False, "rest": True}


def test_sentences_of_any_text_are_numbered_and_nothing_else_is_changed() -> None:
    text = "A van is at a depot. It is empty; the depot is not.\n\nRules:\n- one:\n  - rain\n    - or snow\n- no fog\n"
    told = numbered(text)
    assert told.splitlines() == [
        "§§1 §1 A van is at a depot. §2 It is empty; §3 the depot is not.", "", "§§2 §4 Rules:",
        "- §5 one:", "- §6 - rain", "- §7 - - or snow", "- §8 no fog", "", "§§3 §9 End.",
    ]  # fmt: skip
    said = re.sub(r"(?m)^((?:- )*)- ", lambda found: f"{'  ' * (len(found[1]) // 2)}- ", re.sub(r"§+\d+ ", "", told))
    assert said.startswith(text)
    assert numbered("") == "\n§§1 §1 End."
    assert [quoted_place(said) for said in ("go: §§2 §4 Rules, §§3 §9 End", "go: Rules")] == ["§§2 §4", ""]


def test_question_for_an_action_ends_with_the_numbers_that_its_answer_begins_with() -> None:
    loaded, problem = drawn("ferry", 0)
    reference = spoken_reference(SpokenDomain(loaded.domain, loaded.needed_phrases(), 0), problem, name="x")
    asked = [(q, a) for q, a in lessons(reference, BARE, random.Random(0), mistakes=0.0) if q.subject]
    assert len(asked) == 3
    for question, answer in asked:
        about, place = question.messages[0].text.rstrip().rsplit("\n\n", 1)
        assert answer.startswith(f"## Parameters\n; {place} ")  # the last words: always as far from where they are due
        assert about.rpartition("\n")[2].startswith(f"{question.subject.rpartition('/')[2]}: {place} ")
    own = QuotedAnswers(reference)
    assert own.told(asked[-1][0].messages[0].text) == {predicate.name for predicate in own.sketch.predicates}


def test_lessons_with_mistakes_are_answered_by_what_mends_them() -> None:
    checks = set[str]()
    for seed in range(40):
        loaded, problem = drawn("transport", seed)
        reference = spoken_reference(SpokenDomain(loaded.domain, loaded.needed_phrases(), 0), problem, name="x")
        taught = list(lessons(reference, BARE, random.Random(seed), mistakes=1.0))
        repairs = [(question, answer) for question, answer in taught if question.kind is QuestionKind.REPAIR]
        assert repairs
        drafts = {question.subject or question.step: answer for question, answer in taught
                  if question.kind is QuestionKind.DRAFT}  # fmt: skip
        for question, answer in repairs:
            assert question.messages[1].text.strip() != answer.strip()
            assert answer == drafts[question.subject or question.step]
            checks.update(fault.check for fault in question.faults)
    named = {fault for kinds in MISTAKES.values() for fault in kinds} - {"cut"}
    assert checks == named


def test_lessons_of_a_domain_that_leaves_no_room_for_a_mistake_go_on() -> None:
    action = "(:action tell :parameters () :precondition (and) :effect (lies))"
    domain = parse_domain(f"(define (domain d) (:predicates (lies)) {action})")
    problem = parse_problem("(define (problem p) (:domain d) (:objects a) (:init) (:goal (lies)))", domain)
    said = {"predicates": {"lies": ("it lies",) * 3}, "actions": {"tell": ("tell it",) * 3}}
    spoken_domain = SpokenDomain(domain, Phrases(topic="Lies.", types={}, **said), 0)
    reference = spoken_reference(spoken_domain, problem, name="lies")
    for seed in range(20):
        steps = [q.step for q, _ in lessons(reference, BARE, random.Random(seed), mistakes=1.0) if q.kind == "draft"]
        assert steps == ["types", "hierarchy", "actions", "construction", "task"]


@pytest.mark.parametrize("name", ["blocksworld", "ferry", "independent-set", "logistics"])
def test_lessons_with_advice_name_what_lacks_and_no_check_misses(name: str) -> None:
    lacking = Counter[str]()
    for seed, (own, problem) in enumerate(spoken(name)):
        reference = spoken_reference(own, problem, name=name)
        asked = list(lessons(reference, ADVISED, random.Random(seed), mistakes=0.0))
        assert {question.kind for question, _ in asked} <= {
            QuestionKind.DRAFT, QuestionKind.FEEDBACK, QuestionKind.REVISION,
        }  # fmt: skip
        for place, (question, answer) in enumerate(asked):
            if question.kind is not QuestionKind.FEEDBACK:
                continue
            said, wanted = asked[place - 1][1], (reference.domain_pddl, reference.problem_pddl)
            effect = effect_of_advice(question.step, question.subject, question.shown, said, wanted)
            advice = read_advice(answer)
            is_advised = place + 1 < len(asked) and asked[place + 1][0].kind is QuestionKind.REVISION
            assert (effect, is_advised) == (("helped", True) if advice else ("no effect", False))
            if advice:
                lacking[question.step] += 1
                assert asked[place + 1][1] == said
                missing = advice.removesuffix(" is missing.")
                assert said.count(missing) > question.shown.count(missing)
    assert set(lacking) == {"construction", "task"} | ({"actions"} if name != "independent-set" else set())


def test_random_domains_are_other_domains_about_which_lessons_can_be_had() -> None:
    domains = [load_domain(name) for name in LEARNT]
    scrambler = Scrambler.of((own.domain, own.needed_phrases()) for own in domains)
    rng, n_made, texts = random.Random(3), 0, set[str]()
    arities, sizes, things, n_alike = Counter[int](), set[tuple[bool, int]](), set[str](), 0
    siblings = set[int]()
    for own in domains:
        for _ in range(6):
            try:
                made = scrambler.scrambled(own.domain, own.needed_phrases(), own.sample("L1", rng), rng)
                its = SpokenDomain(made[0], made[1], rng.randrange(12))
            except BadInputError:
                continue
            n_made += 1
            texts.add(print_domain(its.pddl))
            arities.update(len(schema.parameters) for schema in its.pddl.predicates)
            said = [tuple(schema.name.split("-")[:3]) for schema in its.pddl.predicates]
            n_alike += len(said) - len(set(said))
            things.update(re.sub("[a-z]+", "a", thing.name) for thing in made[2].objects)
            siblings.update(Counter(typed.types[0] for typed in made[0].types if typed.types[0] != OBJECT).values())
            if own.domain.types:
                sizes.add((bool(made[0].types), len(its.pddl.actions)))
            assert {action.name for action in own.domain.actions} != {action.name for action in its.pddl.actions}
            taught = lessons(spoken_reference(its, made[2], name="x"), BARE, rng, mistakes=0.0)
            assert {question.kind for question, _ in taught} == {QuestionKind.DRAFT}
    assert n_made > 40
    assert len(texts) == n_made
    assert {(True, 1), (False, 1)} <= sizes and max(n_actions for _, n_actions in sizes) > 3
    assert {re.sub(r"\d", "0", form) for form in things} == {"a0", "a", "a0-0", "a0_0", "a-a", "a-a0"}
    assert n_alike > arities.total() // 15
    assert 3 in siblings, "no kind has three others below it"
    assert arities[0] > arities.total() // 10  # of the library's domains ferry alone has one such predicate


def test_equal_actions_look_at_what_is_said_in_any_order_and_at_nothing_else() -> None:
    loaded = load_domain("blocksworld")
    reference = print_domain(SpokenDomain(loaded.domain, loaded.needed_phrases(), 2).pddl)
    assert set(equal_actions(reference, reference).values()) == {True}
    needed = ["(the-top-of-x-is-free ?x0)", "(you-see-x-standing-on-the-table ?x0)", "(your-hand-is-free)"]
    turned = reference.replace(f"(and {' '.join(needed)})", f"(and {' '.join(reversed(needed))})")
    assert turned != reference
    assert set(equal_actions(turned, reference).values()) == {True}
    less = reference.replace(f"(and {' '.join(needed)})", needed[0])
    assert equal_actions(less, reference) == {"pick-up": False, "put-down": True, "stack": True, "unstack": True}
    assert set(equal_actions("no PDDL at all", reference).values()) == {False}


# --- the run


def config_of(**changes: Any) -> NL2PlanConfig:
    """Return the settings of a small run that trains its speaker."""
    told: dict[str, Any] = {
        "lessons": {
            "problems": {
                "domains": [
                    {"domain": "ferry", "level": "L1", "phase1": 3, "test": 2, "n_draws": 30, "test_share": 0.3},
                    {"domain": "independent-set", "level": "L1", "test": 3, "n_draws": 30, "test_share": 0.5},
                ],
                "object_names": [],
                "phase2_share": 0.0,
            },
            "drills": 5,
            "optimiser": {"learning_rate": 0.003, "batch_tokens": 4096},
        },
        "modelling": BARE.model_dump(),
        "zero_shot": False,
        "planner": {"search": "lama-first", "time_limit_s": 10, "kill_after_s": 20},
    }
    return build_model(NL2PlanConfig, {**told, **changes}, where="test")


class KnowsAll(Resources):
    """Lends a stand-in for a model that has learnt everything: it sees hidden words alone, as a real one does."""

    def __init__(self, root: Path, modelling: ModellingConfig, planner: FastDownward) -> None:
        self.root, self.modelling, self.planner = root, modelling, planner
        self.asked = list[str]()

    def map_rows(self, rows: Any, row_type_in: type, worker: Any, **options: Any) -> None:
        """Apply a worker here and now."""
        options["shards"].append(worker(**options["worker_settings"])(rows))

    def generator(self, policy: Any, engine: Any) -> Generator:
        """Return it."""
        return self  # type: ignore[return-value]

    def complete(self, conversations: list[Conversation], sampling: Any, **_: Any) -> Answers:
        """Yield the right answer to each question about the tasks of the run, behind the words of the question."""
        for number, messages in enumerate(conversations):
            said = plain_text(messages)
            self.asked.append(said)
            yield number, [Completion(self._known[said], FinishReason.STOP, "knows all", 0)]

    @cached_property
    def _known(self) -> dict[str, str]:
        """Return the answers by what is asked."""
        [words], known = self.root.glob("write_lessons-*/words.json"), dict[str, str]()
        [tasks] = (own for own in complete_artifacts(self.root) if own.folder.name.startswith("tasks-"))
        kept = KeptWords.read(words).words
        for row in tasks.rows(ModellingTaskRow, SPOKEN):
            reference = Reference(row.domain, "", row.text, "", row.domain_pddl, row.problem_pddl)
            for question, answer in lessons(reference, self.modelling, random.Random(0), mistakes=0.0):
                hiding = Hiding(kept, _rng_of(question.messages))
                said = plain_text(hiding.hide_all(question.messages))
                known[said] = hiding.hide(answer)
            plan = plan_task(self.planner, row.domain_pddl, row.problem_pddl).plan
            straight = straight_lesson(reference, plan, self.modelling)
            for asked, answer in (straight, one_call_lesson(reference, self.modelling)):
                hiding = Hiding(kept, _rng_of(asking(asked)))
                said = hiding.hide(asked)
                known[said] = hiding.hide(answer)
        return known


def nothing(context: Any) -> None:
    """Stand for a stage that needs a trainer."""
    context.output.write_rows([], ExampleRow)


def test_speaker_that_has_learnt_all_is_right_about_every_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("initial_policy", "encode_examples", "tune", "tune_in_order"):
        monkeypatch.setattr(modelling_lessons.training, name, nothing)
    monkeypatch.setattr(modelling_lessons.direct_plans, "match_tokens", nothing)
    monkeypatch.setattr(lessons_module, "LACKING_SHARE", 0.0)
    config = config_of(
        zero_shot=True, one_call=True, unchecked=True, unadvised=True, rules=True, modelling=ADVISED.model_dump()
    )
    with FastDownward(config.planner) as planner:
        speaker = KnowsAll(tmp_path, ADVISED, planner)
        done = run_stages(nl2plan(config), root=tmp_path, resources=speaker)
    tuned = ("drill", "sft", "sft_zero_shot", "sft_one_call")  # which have no curve here
    untrained = {name: artifact for name, artifact in done.items() if name not in tuned}
    results = nl2plan_results(RunSoFar("nl2plan", config, "demo", untrained))
    assert results is not None
    ferry, unseen = results.by_domain["ferry"], results.by_domain["independent-set"]
    assert (ferry.was_taught, ferry.tasks, ferry.right, ferry.actions, ferry.equal) == (True, 2, 2, 6, 6)
    assert (unseen.was_taught, unseen.tasks, unseen.right, unseen.actions, unseen.equal) == (False, 3, 3, 3, 3)
    assert results.arms == dict.fromkeys(("nl2plan", *OTHERS), 5)
    assert max(task.calls.get("types", 0) for task in results.tasks.values()) == 2  # with its advice; arms are apart
    assert unseen.others == dict.fromkeys(OTHERS, 3)
    assert {arm: test.p_value for arm, test in results.tests.items()} == dict.fromkeys(COMPARED, 1.0)
    called = {row.task: row for row in done["tasks"].rows(ModellingTaskRow, SPOKEN)}
    for made in done["rules"].rows(ModelledTaskRow):
        domain, problem = (product.text for product in made.products)
        assert set(equal_actions(domain, called[made.task].domain_pddl).values()) == {True}
        parse_problem(problem, parse_domain(domain))
    plans = {row.response.split(" ")[1] for row in done["write_zero_shot_lessons"].rows(ExampleRow, "lessons")}
    assert plans == {"plan"}
    printed = format_report(nl2plan_report(results))
    assert "independent-set                  no" in printed
    assert "5 of 5 tasks have a right plan" in printed
    assert "shortest" not in printed  # a line a task is on the page
    assert "No model but rules (knows the templates): 5 of 5" in printed
    drills = done["write_drills"].rows(ExampleRow)
    assert len(drills[0].prompt.split(NEWLINE)) == 3  # two sentences and a number: drills grow
    for row in drills:
        *said, first = row.prompt.split(f" {NEWLINE} ")
        again = row.response.strip().split(f" {NEWLINE} ")
        again[0] = f"{first} {again[0]}"
        assert again == said[said.index(again[0]) :]
        numbers = [int(one.split()[0].removeprefix("N")) for one in said]
        assert numbers == list(range(numbers[0], numbers[0] + len(said)))
    taught, tasks = done["write_lessons"].rows(ExampleRow, "lessons"), done["tasks"].rows(ModellingTaskRow)
    assert {row.domain.split()[1] for row in tasks if row.domain.startswith("ferry")} <= {"10", "11"}
    assert not {row.prompt for row in taught} & set(speaker.asked)
    beginnings = {(row.example_id.rpartition("-")[0], *row.prompt.split()[:GRAIN_TOKENS]) for row in taught}
    assert (
        len(beginnings) == len({name for name, *_ in beginnings}) == 3 < len(taught)
    )  # a dialogue's lessons begin alike
    assert len({row.problem_pddl for row in tasks}) == len(tasks)
    runs = [RunSoFar("nl2plan", own, "demo", untrained) for own in (config, config.model_copy(update={"seed": 1}))]
    seeds = nl2plan_seeds_results("two", runs, "")
    assert (seeds.seeds, seeds.levels, seeds.arms) == (
        (0, 1),
        (NEVER, TAUGHT),
        ("rules", "zero_shot", "one_call", "unadvised", "unchecked", "nl2plan"),
    )
    assert {(cell.scope, cell.mean, len(cell.seeds)) for cell in seeds.cells} == {(NEVER, 1.0, 2), (TAUGHT, 1.0, 2)}
    assert {test.before for test in seeds.tests} == set(COMPARED)
    assert "domains never learnt of" in format_report(seeds_report(seeds))
    for row in tasks:
        parse_problem(row.problem_pddl, parse_domain(row.domain_pddl))


@pytest.mark.long
def test_run_from_nothing_with_every_arm(tmp_path: Path) -> None:
    """With a real trainer and engines: what it learns in three steps is nothing, but every stage has its say."""
    model = {"vocabulary_size": 900, "hidden_size": 64, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "head_dim": 32,
             "intermediate_size": 64}  # fmt: skip
    config = config_of(
        zero_shot=True,
        one_call=True,
        unchecked=True,
        unadvised=True,
        rules=True,
        modelling=ADVISED.model_dump(),
        drafts=2,
        answers={"max_new_tokens": 24, "temperature": 0.5},
        model={"tokenizer": "bpe", **model},
        trainer={"n_threads": 1, "is_autocast": False, "row_length_tokens": 2048},
        policy={"max_model_len": 2560, "max_num_seqs": 64, "kv_cache_gib": 0.2},
    )
    preset = tmp_path / "all.yaml"
    preset.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    assert main(["run", "nl2plan", "--preset", str(preset), "--runs", str(tmp_path / "runs")]) == 0
    results = PIPELINE.reporting.read(tmp_path / "runs" / "nl2plan-all")
    assert results.arms.keys() == {"nl2plan", *OTHERS}
    assert results.agreement is not None
    assert {curve.stage for curve in results.curves} == {"drill", "sft", "sft_zero_shot", "sft_one_call"}


def test_lessons_with_another_speaker_or_other_prompts_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"speaker": {"script": True}}, "leave the settings of speaker out"),
        ({"modelling": {}}, "modelling.prompts=bare"),
        ({"model": {"tokenizer": "words"}}, "model.tokenizer=bpe"),
    ]
    for changes, told in cases:
        with pytest.raises(ConfigError, match=told):
            config_of(**changes)
    with pytest.raises(ConfigError, match="prompts=bare tells of no JSON"):
        build_model(ModellingConfig, {"prompts": "bare", "answers": "json"}, where="test")
    with pytest.raises(ConfigError, match=r"set modelling\.feedback=model"):
        config_of(unadvised=True)


def test_presets_demo_trains_its_speaker_and_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    config = PIPELINE.settings("demo")
    PIPELINE.check(config, is_dry_run=False)
    assert config.lessons is not None
    learnt = {level.domain for level in config.lessons.problems.domains if level.phase1}
    assert not learnt & {"blocksworld", "independent-set", "logistics"}
    assert PIPELINE.estimate is not None
    assert "nothing is paid for" in PIPELINE.estimate(config)

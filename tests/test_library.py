"""Domain folders: what is wrong in one is said in one message with the file and the key."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path

import pytest
from conftest import ROOT

from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import MAX_DRAWS, is_goal_reached_at_start, load_domain

LAMPS = """(define (domain lamps)
  (:requirements :strips :typing :negative-preconditions :derived-predicates)
  (:types lamp)
  (:constants big - lamp)
  (:predicates (on ?l - lamp) (linked ?a ?b - lamp) (lit))
  (:derived (lit) (exists (?l - lamp) (on ?l)))
  (:action switch :parameters (?l - lamp) :precondition (not (on ?l)) :effect (on ?l)))
"""
SETTINGS = """sampler: walk
walk:
  objects: {lamp: lamps}
  init:
    - atom: (linked ?a ?b)
      each: ?a
levels:
  L1: {lamps: [2, 4]}
"""
PHRASES = """topic: Lamps.
predicates:
  "on": ["{0} is on"]
  linked: ["{0} is linked to {1}"]
  lit: ["there is light"]
actions:
  switch: ["switch {0} on"]
"""


def write_domain(folder: Path, *, domain: str = LAMPS, settings: str = SETTINGS, phrases: str | None = PHRASES) -> str:
    """Write a domain folder and return its path."""
    folder.mkdir(exist_ok=True)
    (folder / "domain.pddl").write_text(domain, encoding="utf-8")
    (folder / "settings.yaml").write_text(settings, encoding="utf-8")
    if phrases is not None:
        (folder / "phrases.yaml").write_text(phrases, encoding="utf-8")
    return str(folder)


def test_load_domain_folder_of_the_user_needs_no_phrases(tmp_path: Path) -> None:
    loaded = load_domain(write_domain(tmp_path / "lamps", phrases=None))
    assert (loaded.name, loaded.levels, loaded.phrases) == ("lamps", ("L1",), None)
    assert loaded.domain == parse_domain(LAMPS)
    assert not is_goal_reached_at_start(loaded.domain, loaded.sample("L1", random.Random(0)))


def test_load_domain_survives_pickling_after_a_draw(tmp_path: Path) -> None:
    loaded = load_domain(write_domain(tmp_path / "lamps"))
    problem = loaded.sample("L1", random.Random(5))
    assert pickle.loads(pickle.dumps(loaded)).sample("L1", random.Random(5)) == problem


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("lamps: [2", "lamp: [2", ["sizes of level L1", "'lamps' is missing", "'lamp' is unknown", "write 'lamps'"]),
        ("lamps: [2, 4]", "lamps: [2, 4], cats: [1, 1]", ["sizes of level L1", "'cats' is unknown"]),
        ("lamps: [2, 4]", "lamps: [4, 2]", ["levels.L1.lamps", "[4, 2]"]),
        ("lamps: [2, 4]", "lamps: [-1, 2]", ["levels.L1.lamps", "-1"]),
        ("lamps: [2, 4]", "lamps: 3", ["levels.L1.lamps", "got: 3"]),
        ("  L1: {lamps: [2, 4]}", "  {}", ["levels is empty"]),
        ("{lamp: lamps}", "{lump: lamps}", ["walk.objects", "got: lump", "lamp"]),
        ("  objects: {lamp: lamps}\n", "", ["walk", "objects is missing"]),
        ("(linked ?a", "(liked ?a", ["walk.init, (liked ?a ?b)", "got: liked", "write 'linked'"]),
        ("(linked ?a", "(linked", ["walk.init, (linked ?b)", "got: 1", "expected: 2"]),
        ("(linked ?a", "(linked ?a ?c", ["walk.init", "got: 3", "expected: 2"]),
        ("(linked ?a ?b)", "(linked ?a small)", ["walk.init", "got: small", "big"]),
        ("?a ?b)", "?a ?b - cat)", ["walk.init", "got: cat", "lamp"]),
        ("?a ?b)", "?a ?b - object)", ["walk.init", "a type that does not fit", "got: ?a - object", "expected: lamp"]),
        ("?a ?b)", "?a - lamp -)", ["walk.init", "a type stands in the wrong place"]),
        ("(linked ?a ?b)", "(lit)", ["walk.init", "a derived predicate", "got: lit"]),
        ("(linked ?a ?b)", "()", ["walk.init", "an atom is missing"]),
        ("each: ?a", "each: ?c", ["walk.init", "got: ?c", "expected: ?a, ?b"]),
        ("?b)\n      each: ?a", "big)\n      each: big", ["walk.init", "got: big", "expected: ?a"]),
        ("each: ?a", "each: ?a ?a", ["walk.init.0", "names a variable twice"]),
        ("each: ?a", "every: 1", ["unknown key", "walk.init.0.every", "each"]),
        ("each: ?a", "chance: 2", ["walk.init.0.chance", "got: 2"]),
        ("  init:", "  goal_predicates: [onn]\n  init:", ["walk.goal_predicates", "got: onn", "expected: on, linked"]),
        ("  init:", "  goal_predicates: [on]\n  init:", ["walk.goal_predicates.0", "in quotes"]),
        ("  init:", "  goal_predicates: [lit]\n  init:", ["walk.goal_predicates", "a derived predicate"]),
        ("  init:", "  goal_predicates: [linked]\n  init:", ["walk.goal_predicates", "no action adds", "expected: on"]),
        ("  init:", "  goal_size: [0, 2]\n  init:", ["walk.goal_size.0", "got: 0"]),
        ("  init:", "  steps: [0, 2]\n  init:", ["walk.steps.0", "got: 0"]),
        ("  init:", "  problems: examples\n  init:", ["walk", "not from both"]),
        ("sampler: walk", "sampler: ferry", ["sampler=ferry", "do not fit"]),
        ("sampler: walk", "sample: walk", ["unknown key", "got: sample", "did you mean sampler?"]),
        ("levels:", "domain_file: other.pddl\nlevels:", ["other.pddl", "cannot be read"]),
        ("levels:", "levels: [", ["not YAML"]),
        (SETTINGS, "just words", ["not a mapping", "got: str"]),
        (SETTINGS, "sampler: fery\nlevels: {L1: {cars: [1, 2]}}", ["no such sampler", "did you mean ferry?"]),
        (SETTINGS, "sampler: xyz\nlevels: {L1: {cars: [1, 2]}}", ["no such sampler", "`sampler: walk`"]),
        (SETTINGS, "sampler: ferry\nlevels: {L1: {cars: [1, 2]}}", ["sizes of level L1", "'locations' is missing"]),
    ],
)
def test_load_domain_mistake_in_the_settings_is_one_message_with_file_and_key(
    before: str, after: str, words: list[str], tmp_path: Path
) -> None:
    assert before in SETTINGS
    folder = write_domain(tmp_path / "lamps", settings=SETTINGS.replace(before, after))
    with pytest.raises(BadInputError) as caught:
        load_domain(folder)
    message = str(caught.value)
    assert str(tmp_path) in (caught.value.where or "")
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('  lit: ["there is light"]\n', "", ["the predicates", "'lit' is missing"]),
        ("  lit:", "  light:", ["the predicates", "'lit' is missing", "'light' is unknown", "write 'lit'"]),
        ('"on":', "on:", ["predicates", "in quotes"]),
        ("switch:", "swich:", ["the actions", "'switch' is missing", "write 'switch'"]),
        ('["there is light"]', '["there is light", "it is light"]', ["as many phrasings"]),
        ('["there is light"]', "[]", ["as many phrasings"]),
        ("to {1}", "to {2}", ["predicates.linked", "got: {0} is linked to {2}", "expected: {0} {1}"]),
        ("switch {0} on", "switch on", ["actions.switch", "expected: {0}"]),
        ("there is light", "{0} is light", ["predicates.lit", "expected: no position"]),
        ("actions:", "functions: {price: [free]}\nactions:", ["the functions", "'price' is unknown"]),
        ("actions:", "types: {cat: [cat, cats]}\nactions:", ["types", "got: cat", "lamp"]),
        ("actions:", "types: {lamp: [lamp]}\nactions:", ["types.lamp"]),
        ("topic: Lamps.\n", "", ["topic", "required"]),
        ("topic: Lamps.", "title: Lamps.", ["topic"]),
    ],
)
def test_load_domain_mistake_in_the_phrases_is_one_message_with_file_and_key(
    before: str, after: str, words: list[str], tmp_path: Path
) -> None:
    assert before in PHRASES
    folder = write_domain(tmp_path / "lamps", phrases=PHRASES.replace(before, after))
    with pytest.raises(ConfigError) as caught:
        load_domain(folder)
    message = str(caught.value)
    assert str(tmp_path / "lamps" / "phrases.yaml") in (caught.value.where or "")
    assert [word for word in words if word not in message] == [], message


def test_load_domain_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(BadInputError, match=r"no such domain(.|\n)*did you mean blocksworld\?"):
        load_domain("blockworld")


def test_load_domain_folder_without_settings_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no such domain\n  got: a folder without settings.yaml"):
        load_domain(str(tmp_path))


def test_load_domain_mistake_in_the_pddl_has_its_line(tmp_path: Path) -> None:
    folder = write_domain(tmp_path / "lamps", domain=LAMPS.replace("(on ?l)))\n", "(onn ?l)))\n"))
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path / "lamps" / "domain.pddl:"))):
        load_domain(folder)


def test_sample_unknown_level_names_the_levels(tmp_path: Path) -> None:
    loaded = load_domain(write_domain(tmp_path / "lamps"))
    with pytest.raises(ConfigError, match=r"settings.yaml: the domain lamps has no such level\n  got: 'L9'(.|\n)*L1"):
        loaded.sample("L9", random.Random(0))


def test_sample_order_of_the_initial_atoms_tells_nothing(tmp_path: Path) -> None:
    settings = SETTINGS.replace("[2, 4]", "[3, 3]")
    loaded = load_domain(write_domain(tmp_path / "lamps", settings=settings))
    first = [loaded.sample("L1", random.Random(seed)).init[0].arguments[0] for seed in range(40)]
    assert set(first) == {"big", "lamp1", "lamp2", "lamp3"}


def test_sample_level_whose_sizes_give_too_many_objects_is_impossible(tmp_path: Path) -> None:
    loaded = load_domain(write_domain(tmp_path / "lamps", settings=SETTINGS.replace("[2, 4]", "[11, 12]")))
    with pytest.raises(ConfigError) as caught:
        loaded.sample("L1", random.Random(0))
    message = str(caught.value)
    assert f"no problem of level L1 in {MAX_DRAWS} draws" in message
    assert f"lamps: [11, 12]; {MAX_DRAWS} draws with too few or too many objects, 0 with a goal" in message
    assert "expected: 1 to 10 objects, a goal to reach" in message


def test_sample_level_of_another_name_has_no_bounds(tmp_path: Path) -> None:
    loaded = load_domain(
        write_domain(tmp_path / "lamps", settings=SETTINGS.replace("L1: {lamps: [2", "big: {lamps: [2"))
    )
    assert 2 <= len(loaded.sample("big", random.Random(0)).objects) <= 4
    many = SETTINGS.replace("L1: {lamps: [2, 4]", "big: {lamps: [50, 50]")
    assert (
        len(load_domain(write_domain(tmp_path / "lamps", settings=many)).sample("big", random.Random(0)).objects) == 50
    )


@pytest.mark.parametrize(
    ("init", "goal", "is_reached"),
    [
        ("(on a)", "(on a)", True),
        ("(on a)", "(and (on a) (on b))", False),
        ("", "(not (on a))", True),
        ("(on a)", "(not (on a))", False),
        ("(on a)", "(lit)", True),
        ("", "(lit)", False),
        ("", "(= a a)", True),
        ("(on b)", "(or (on a) (on b))", True),
        ("", "(and)", True),
    ],
    ids=["holds", "one missing", "absent", "present", "derived", "not derived", "equality", "or", "empty"],
)
def test_is_goal_reached_at_start_knows_every_kind_of_goal(init: str, goal: str, is_reached: bool) -> None:
    domain = parse_domain(LAMPS.replace(":strips", ":strips :equality :disjunctive-preconditions"))
    text = f"(define (problem p) (:domain lamps) (:objects a b - lamp) (:init {init}) (:goal {goal}))"
    assert is_goal_reached_at_start(domain, parse_problem(text, domain)) is is_reached


DOCUMENT = (ROOT / "docs" / "domains.md").read_text(encoding="utf-8")


def test_document_its_example_runs_as_written_and_its_problems_are_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dict(re.findall(r"^`(delivery/[\w.]+)`\n\n```\w+\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL))
    assert sorted(files) == ["delivery/domain.pddl", "delivery/phrases.yaml", "delivery/settings.yaml"]
    (tmp_path / "delivery").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    exec(program, {})
    printed = capsys.readouterr().out
    assert printed.count("(define (problem") == 2
    loaded = load_domain("delivery")
    assert loaded.phrases is not None
    with FastDownward(PlannerConfig(search="first")) as planner:
        for level in loaded.levels:
            problem = loaded.sample(level, random.Random(0))
            assert print_problem(problem) in printed
            assert planner.solve(print_domain(loaded.domain), print_problem(problem)).status is PlannerStatus.SOLVED
            assert not is_goal_reached_at_start(loaded.domain, problem)
            assert PlanningTask(loaded.domain, problem).objects.keys() >= {"hall", "room1", "robot1", "parcel1"}

"""Answers of models are read wherever they stand, however they are dressed."""

from __future__ import annotations

import pytest

from plansmith.modelling.products import ProblemSketch, TypeNode, TypeSketch
from plansmith.modelling.reading import (
    PROBLEM_TITLES,
    SCHEMA_TITLES,
    Line,
    plain_lines,
    read_actions,
    read_advice,
    read_definitions,
    read_predicates,
    read_problem_sketch,
    read_schema,
    read_tree,
    read_types,
    read_written,
)


def test_read_types_thinking_bold_and_star_bullets_reads_names_and_comments() -> None:
    answer = (
        "<think>\n- goat: no\n</think>\nFirst:\n## Types\n* **Big Box**: holds things\n- object: all\n- box - small\n"
    )
    types, faults = read_types(answer)
    assert types == (TypeSketch("big-box", "holds things"), TypeSketch("box", "small"))
    assert faults == ()


def test_comments_are_read_past_wherever_they_stand() -> None:
    assert read_types("; - no: comment\n## Types\n; - goat: none\n- truck\n")[0] == (TypeSketch("truck", ""),)
    (drive, stop), _ = read_actions("## Actions\n### drive\ngoes\n; ### fly\n; and away\n### stop\nhalts\n")
    assert (drive.description, stop.description) == ("goes", "halts")
    answer = (
        "## Parameters\n; - ?y - goat\n- ?x - truck\n\n"
        "## Preconditions\n```\n(and\n; (not this)\n(at ?x)\n; nor )\n)\n```\n\n"
        "## Effects\n; (nothing)\n(not (at ?x))\n\n"
        "## New predicates\n; (no ?x - goat)\n- (at ?x - truck)\n; ## Effects\n"
    )
    schema = read_schema("drive", answer)
    assert [own.name for own in schema.parameters] == ["?x"]
    assert (" ".join(schema.precondition.split()), schema.effect) == ("(and (at ?x) )", "(not (at ?x))")
    assert [own.name for own in schema.predicates] == ["at"]
    assert read_written(answer, SCHEMA_TITLES).faults == ()


def test_predicates_go_on_below_a_line_that_leaves_their_bracket_open() -> None:
    answer = (
        "## New predicates\n- (at ; where it is\n; a truck\n  ?x - truck\n  ?y - (either town depot)): it is there\n"
        "- (never-closed ?x - truck\n- (on ?x - crate)\n(in ?x - crate\n?y - truck\n"
    )
    assert [(own.declaration, own.comment) for own in read_schema("drive", answer).predicates] == [
        ("(at ?x - truck ?y - (either town depot))", "it is there"),
        ("(on ?x - crate)", ""),
    ]
    lines = [Line(number, text) for number, text in enumerate(("- (at ?x", "?y)", "(in ?z)"), 1)]
    assert [(line.number, own.name) for line, own in read_predicates(lines)] == [(1, "at"), (3, "in")]


@pytest.mark.parametrize("thinking", ["", "<think>\nhm\n</think>\n", "hm\nhm\n</think>\n"])
def test_lines_are_those_of_the_answer_wherever_it_thinks(thinking: str) -> None:
    answer = f"{thinking}Sure.\n<think>\nhm\nhm\n</think>\n- truck: drives"
    [line] = [own.number for own in plain_lines(answer) if own.text.startswith("- truck")]
    assert line == answer.split("\n").index("- truck: drives") + 1


def test_read_types_prose_alone_is_a_fault() -> None:
    types, faults = read_types("I am sorry.")
    assert types == ()
    assert [fault.check for fault in faults] == ["header_inclusion"]


def test_read_tree_tabs_and_a_root_gives_each_type_its_parent() -> None:
    answer = "## Hierarchy\n- object\n\t- vehicle: moves\n\t\t- van\n\t- place\n"
    tree, faults = read_tree(answer)
    assert tree.nodes == (
        TypeNode("vehicle", "object", "moves"),
        TypeNode("van", "vehicle"),
        TypeNode("place", "object"),
    )
    assert faults == ()


def test_read_tree_a_type_twice_keeps_the_first_and_says_so() -> None:
    tree, faults = read_tree("- a\n  - b\n- b\n")
    assert [(node.name, node.parent) for node in tree.nodes] == [("a", "object"), ("b", "a")]
    assert [(fault.check, fault.line) for fault in faults] == [("hierarchy", 3)]


@pytest.mark.parametrize(
    ("answer", "read", "lines"),
    [
        ("- truck: x\n- parcel (a box): y\n- van (small)",
         [("truck", "x"), ("parcel", "(a box) y"), ("van", "(small)")], []),
        ("## Types\n- truck\n- lorry/van: x\n- box#2", [("truck", ""), ("lorry-van", "x"), ("box-2", "")], [3, 4]),
        ("- truck\n1. No.\n- I think so.\n- Well, it drives.\n- what is put into a truck: y\n- (none)",
         [("truck", "")], []),
    ],
    ids=["remarks", "no names of PDDL", "prose"],
)  # fmt: skip
def test_read_types_drops_no_item_in_silence(answer: str, read: list[tuple[str, str]], lines: list[int]) -> None:
    types, faults = read_types(answer)
    assert [(own.name, own.comment) for own in types] == read
    assert [(fault.check, fault.line) for fault in faults] == [("names", line) for line in lines]


def test_read_tree_what_is_no_name_of_pddl_keeps_its_place_and_is_a_fault() -> None:
    tree, faults = read_tree("- object\n  - lorry/van: x\n    - truck\n")
    assert tree.nodes == (TypeNode("lorry-van", "object", "x"), TypeNode("truck", "lorry-van"))
    assert [(fault.check, fault.line) for fault in faults] == [("names", 2)]


@pytest.mark.parametrize(
    ("answer", "read", "lines"),
    [
        ("### pick-up\na\n### drive truck\nb", [("pick-up", "a"), ("drive-truck", "b")], []),
        ("- **pick-up**: a\n- **drive truck**: b", [("pick-up", "a"), ("drive-truck", "b")], []),
        ("* **load:** a\n* **drive** (a van): b", [("load", "a"), ("drive", "(a van): b")], []),
        ("### 1. load: a\n### 2. Put down\nb", [("load", "a"), ("put-down", "b")], []),
        ("1. load: a\n2. drive/park: b", [("load", "a"), ("drive-park", "b")], [2]),
        ("### load\na\n- **Needs first**: c\n#### Real use\nd\n## A last word\ne",
         [("load", "a - **Needs first**: c")], []),
    ],
    ids=["headings", "bold", "stars and remarks", "numbers", "no name of PDDL", "prose"],
)  # fmt: skip
def test_read_actions_drops_no_item_in_silence(answer: str, read: list[tuple[str, str]], lines: list[int]) -> None:
    actions, faults = read_actions(answer)
    assert [(own.name, own.description) for own in actions] == read
    assert [(fault.check, fault.line) for fault in faults] == [("names", line) for line in lines]


@pytest.mark.parametrize(
    "answer",
    [
        "## Actions\n### load\nPuts it in.\nExample: a into b.\n### drive\nGoes.",
        "## Actions\n- load: Puts it in. Example: a into b.\n- drive: Goes.",
        "1. **load**: Puts it in.\n   - Example: a into b.\n2. **drive**: Goes.",
    ],
    ids=["headings", "bullets", "bold"],
)
def test_read_actions_in_any_dress_are_the_same(answer: str) -> None:
    actions, faults = read_actions(answer)
    assert [(own.name, own.description, own.example) for own in actions] == [
        ("load", "Puts it in.", "a into b."),
        ("drive", "Goes.", ""),
    ]
    assert faults == ()


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("1. No.\n## Advice\nNo changes.", None),
        ("## Advice\n- Add a type.", "- Add a type."),
        ("", None),
        ("none", None),
        ("Rename it.", "Rename it."),
        ("## Suggestions\nNo action needs a driver, but add one.\n- Add driver.",
         "No action needs a driver, but add one.\n- Add driver."),
    ],
    ids=["accepted", "advised", "silent", "person accepts", "no heading", "begins with no"],
)  # fmt: skip
def test_read_advice_says_whether_anything_is_to_be_changed(answer: str, advice: str | None) -> None:
    assert read_advice(answer) == advice


@pytest.mark.parametrize(
    "answer",
    ["No.", "No feedback.", "**No changes needed.**", "- No changes.", "Nothing needs to be changed", "None needed.",
     "No, the solution is fine", "No changes are necessary, since all types are there.", "No type is missing.",
     "No errors were found: the action is well formed.", "Nothing to add."],
)  # fmt: skip
def test_read_advice_that_accepts_is_none(answer: str) -> None:
    assert read_advice(f"1. No.\n## Advice\n{answer}") is None


@pytest.mark.parametrize(
    "answer",
    ["No precondition checks that the truck is there; add (at ?t ?l).", "No. The effect must delete (at ?x ?y).",
     "no precondition says that the hand is empty; add (handempty)", "Nothing removes the truck from its place.",
     "None of the effects deletes (at ?x ?y).", "No changes, but rename truck.", "No, that is not right.",
     "No action changes the place of the truck."],
)  # fmt: skip
def test_read_advice_that_begins_with_no_is_advice(answer: str) -> None:
    assert read_advice(f"1. No.\n## Advice\n{answer}") == answer


SCHEMA = """Let me see. We need something new here:
## Parameters
* `?x` - block: goes up
### Action Preconditions
So this must hold:
```pddl
(and (clear ?x) ; on top
     (ontable ?x))
```
**Effects**
:effect (holding ?x): held
## New Predicates
1. (holding ?x - block): in the hand
## Notes
- (never ?read)
"""


def test_read_schema_among_prose_keeps_the_pddl_alone() -> None:
    schema = read_schema("pick-up", SCHEMA)
    assert [own.pddl for own in schema.parameters] == ["?x - block"]
    assert schema.precondition == "(and (clear ?x)\n     (ontable ?x))"
    assert schema.effect == "(holding ?x)"
    assert [own.declaration for own in schema.predicates] == ["(holding ?x - block)"]


@pytest.mark.parametrize("answer", [SCHEMA, f"<think>\n(and)\n</think>\n{SCHEMA}"], ids=["plain", "after thinking"])
def test_read_written_fragments_know_the_lines_of_the_answer(answer: str) -> None:
    fragments = read_written(answer, SCHEMA_TITLES).fragments
    lines = answer.split("\n")
    for fragment in fragments.values():
        for offset, text in enumerate(fragment.text.split("\n")):
            words = text.replace("(", " ").replace(")", " ").split()
            assert all(word in lines[fragment.line - 1 + offset] for word in words)


def test_read_written_two_actions_is_a_fault_with_the_place_of_the_second() -> None:
    faults = read_written(SCHEMA + SCHEMA, SCHEMA_TITLES).faults
    assert {fault.check for fault in faults} == {"header_inclusion"}
    assert min(fault.line for fault in faults) > len(SCHEMA.split("\n")) - 1


def test_read_problem_sketch_of_a_goal_state_is_no_initial_state() -> None:
    answer = "## Objects\n- a - t\n## Initial State\n(on a)\n## Goal State\n(off a)\n"
    sketch = read_problem_sketch(answer)
    assert (sketch.init, sketch.goal) == ("(on a)", "(off a)")
    assert read_written(answer, PROBLEM_TITLES).faults == ()


@pytest.mark.parametrize(
    "answer", ["", "(" * 10_000, "## Goal\n" + "(and " * 10_000, "```\n" * 99, "\x00## State\n((("]
)
def test_read_problem_sketch_of_anything_is_never_an_error(answer: str) -> None:
    assert isinstance(read_problem_sketch(answer), ProblemSketch)
    assert read_schema("a", answer).name == "a"


DOMAIN_TEXT, PROBLEM_TEXT = "(define (domain a)\n  (:types t)\n)\n", "(define (problem p) (:domain a))\n"


THOUGHT = f"<think>(define (domain x))</think>So:\n```pddl\n{DOMAIN_TEXT}```\n{PROBLEM_TEXT}Done (I hope)."
OPEN, KEPT_OPEN = "( DEFINE ( Domain a ) ; no end )\n (:types t)\nand", "( DEFINE ( Domain a )\n (:types t)\nand\n"


@pytest.mark.parametrize(
    ("answer", "domain", "problem"),
    [
        (THOUGHT, DOMAIN_TEXT, PROBLEM_TEXT),
        (f"{PROBLEM_TEXT}{DOMAIN_TEXT}", DOMAIN_TEXT, PROBLEM_TEXT),
        (f"(define (domain first))\n{DOMAIN_TEXT}", DOMAIN_TEXT, ""),
        (OPEN, KEPT_OPEN, ""),
        (f"(define (domain a)\n{PROBLEM_TEXT}", "(define (domain a)\n", PROBLEM_TEXT),
        ("I would define (domain knowledge) first.", "", ""),
        ("", "", ""),
    ],
)
def test_read_definitions_finds_the_last_of_each_wherever_it_stands(answer: str, domain: str, problem: str) -> None:
    assert read_definitions(answer) == (domain, problem)


@pytest.mark.parametrize(
    "line", ["- a{}(", "- **a{}b** -{}x", "## Types{}#{}x", "{}```{}x", "### a{}:{}(", "- ?a{}-{}b{};", "{}- a{}:"]
)
def test_line_of_endless_blanks_is_read_as_any(line: str) -> None:
    """Patterns that try out runs of blanks would take minutes."""
    for read in (read_types, read_tree, read_actions, read_problem_sketch):
        few, many = (read("\n".join(["## Objects", line.replace("{}", " " * n)])) for n in (2, 20_000))
        assert repr(few).split() == repr(many).split()


@pytest.mark.parametrize("sign", list("#*`-:.(;~_"))
def test_heading_with_a_sign_without_end_is_read_as_any(sign: str) -> None:
    """As above, of what headings and names are dressed in."""
    few, many = (read_types(f"## Types\n- truck: big\n\n## Notes {sign * n}x\n- no: type") for n in (3, 20_000))
    assert few == many and [one.name for one in few[0]] == ["truck"]

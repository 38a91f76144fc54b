"""``plansmith compare``: what is printed, and the exit codes, with the real Fast Downward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import BLOCKS_TEXT, Said, give_command

from plansmith import cli

INIT = "(ontable a) (on b a) (clear b) (ontable c) (clear c) (handempty)"
RENAMED = "(ontable x) (on y x) (clear y) (ontable z) (clear z) (handempty)"
PROBLEMS = {
    "a": ("a b c", INIT, "(and (on a b) (on b c))"),
    "shuffled": ("c b a", f"(not (holding a)) {INIT}", "(AND (on B c) (on a b))"),
    "renamed": ("x y z", RENAMED, "(and (on x y) (on y z))"),
    "more": ("a b c", INIT, "(and (on a b) (on b c) (clear a) (ontable c))"),
    "less": ("a b c", INIT, "(on a b)"),
    "renamed-less": ("x y z", RENAMED, "(on x y)"),
    "moved": ("a b c", INIT.replace("(on b a)", "(on b c)"), "(and (on a b) (on b c))"),
    "larger": ("x y z w", RENAMED, "(on x y)"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a domain and problems of it."""
    (tmp_path / "domain.pddl").write_text(BLOCKS_TEXT, encoding="utf-8")
    for name, (objects, init, goal) in PROBLEMS.items():
        text = f"(define (problem {name}) (:domain blocksworld) (:objects {objects}) (:init {init}) (:goal {goal}))"
        (tmp_path / f"{name}.pddl").write_text(text, encoding="utf-8")
    (tmp_path / "hanoi.pddl").write_text(text.replace(":domain blocksworld", ":domain hanoi"), encoding="utf-8")
    (tmp_path / "broken.pddl").write_text("(define (problem p)", encoding="utf-8")
    return tmp_path


def compare(folder: Path, first: str, second: str, *options: str) -> Said:
    paths = (folder / f"{name}.pddl" for name in ("domain", first, second))
    return give_command(cli.main, "compare", *paths, *options)


@pytest.mark.parametrize(
    ("second", "code", "lines"),
    [
        ("shuffled", 0, ["identical: the same names, facts and goals"]),
        ("renamed", 0, ["equivalent: the same under other names", "  a is x", "  b is y", "  c is z"]),
        ("more", 0, ["equivalent: the goals hold in the same states that can be reached"]),
        ("less", 1, ["  goal: (on b c) in the first only"]),
        ("renamed-less", 1, ["  a is x", "  b is y", "  c is z", "  goal: (on b c) in the first only"]),
        ("moved", 1, ["  init: (on b a) in the first only", "  init: (on b c) in the second only"]),
        ("larger", 1, ["  objects: 3 of object in the first, 4 in the second",
                       "  goal: 2 of (on ...) in the first, 1 in the second"]),
    ],
)  # fmt: skip
def test_compare_prints_outcome_map_and_differences(folder: Path, second: str, code: int, lines: list[str]) -> None:
    said = compare(folder, "a", second)
    head, *rest = said.stdout.splitlines()
    assert said.code == code
    assert ([head, *rest] if code == 0 else rest) == lines
    assert head.startswith("different: ") == (code == 1)
    assert said.stderr == ""


def test_compare_json_is_one_object(folder: Path) -> None:
    said = compare(folder, "a", "renamed-less", "--json")
    assert said.code == 1
    row = json.loads(said.stdout)
    assert row["outcome"] == "different"
    assert row["object_map"] == {"a": "x", "b": "y", "c": "z"}
    assert row["differences"] == [
        {"section": "goal", "what": "(on b c)", "n_first": 1, "n_second": 0, "is_number": False}
    ]
    proven = json.loads(compare(folder, "more", "a", "--json").stdout)
    assert (proven["outcome"], proven["is_proven"], proven["differences"]) == ("equivalent", True, [])
    assert json.loads(compare(folder, "a", "moved", "--json").stdout)["object_map"] is None


def test_compare_planner_out_of_time_is_undecided_and_exits_1(folder: Path) -> None:
    said = compare(folder, "a", "more", "--time-limit", "0.000001")
    assert said.code == 1
    assert said.stdout == "undecided: the planner did not prove whether the goals agree\n"


def test_compare_many_differences_are_cut_short(folder: Path) -> None:
    names = " ".join(f"b{number}" for number in range(30))
    text = (folder / "a.pddl").read_text(encoding="utf-8")
    (folder / "wide.pddl").write_text(text.replace("a b c", f"a b c {names}"), encoding="utf-8")
    (folder / "wider.pddl").write_text(text.replace("a b c", f"a b c {names} {names.replace('b', 'd')}"))
    said = compare(folder, "wide", "wider")
    assert said.stdout.splitlines()[-1] == "  and 10 more"
    assert len(said.stdout.splitlines()) == 1 + 20 + 1


@pytest.mark.parametrize(
    ("first", "second", "options", "words"),
    [
        ("a", "none", [], ["none.pddl: cannot be read"]),
        ("broken", "a", [], ["broken.pddl:1:1"]),
        ("a", "hanoi", [], ["the second problem, larger: a problem of another domain", "got: hanoi",
                            "expected: blocksworld", "to mend it: "]),
        ("a", "more", ["--time-limit", "0"], ["time_limit_s"]),
    ],
    ids=["no file", "broken", "another domain", "no time"],
)  # fmt: skip
def test_compare_bad_input_exits_2_and_says_what(
    folder: Path, first: str, second: str, options: list[str], words: list[str]
) -> None:
    said = compare(folder, first, second, *options)
    assert (said.code, said.stdout) == (2, "")
    assert [word for word in words if word not in said.stderr] == []

"""The numbered and the compact plan format: written as the paper shows, read back exactly, nothing else accepted."""

from __future__ import annotations

import pytest
from conftest import print_plan
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import PddlParseError
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_plan
from plansmith.text.plans import compact_plan, decode_compact_plan, numbered_plan, read_plan_text

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True) | st.just("end")
PLANS = st.lists(st.builds(PlanStep, NAMES, st.lists(NAMES, max_size=4).map(tuple)), max_size=12).map(tuple)

MOVE = PlanStep("move", ("truck1", "depot1", "depot2"))


def test_formats_of_the_paper_example() -> None:
    assert numbered_plan([MOVE]) == "00100: (move truck1 depot1 depot2)\nEND\n"
    assert compact_plan([MOVE]) == "move truck1 depot1 depot2\n"


def test_formats_of_no_step_and_of_many() -> None:
    assert numbered_plan([]) == "END\n"
    assert compact_plan([]) == ""
    assert numbered_plan([MOVE] * 1000).splitlines()[-2].startswith("100000: ")
    assert read_plan_text(numbered_plan([MOVE] * 1000)) == (MOVE,) * 1000


@given(PLANS)
def test_decode_compact_plan_is_the_inverse_of_compact_plan(plan: tuple[PlanStep, ...]) -> None:
    text = compact_plan(plan)
    assert decode_compact_plan(text) == plan
    assert compact_plan(decode_compact_plan(text)) == text


@given(PLANS)
def test_read_plan_text_is_the_inverse_of_numbered_plan_and_agrees_with_the_common_reader(plan) -> None:
    text = numbered_plan(plan)
    assert read_plan_text(text) == plan
    assert parse_plan(text.removesuffix("END\n")) == plan
    assert parse_plan(print_plan(decode_compact_plan(compact_plan(plan)))) == plan


def test_readers_allow_spaces_empty_lines_and_capitals() -> None:
    assert decode_compact_plan("\n  MOVE truck1   depot1 depot2\r\n\n") == (MOVE,)
    assert read_plan_text("\n00100: ( Move TRUCK1 depot1 depot2 ) \n\n end\nEND".replace(" end\n", "")) == (MOVE,)


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("(move a b)", "(move a b)"),
        ("00100: move a b", "00100"),
        ("END", "END"),
        ("move a, b", "a, b"),
        ("move ?x", "?x"),
    ],
    ids=["brackets", "stamp", "end", "comma", "variable"],
)
def test_decode_compact_plan_refuses_what_the_format_leaves_out(line: str, got: str) -> None:
    with pytest.raises(PddlParseError) as caught:
        decode_compact_plan(f"move a b\n\n{line}\n")
    assert caught.value.where == "line 3"
    assert got in (caught.value.got or "")


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "line 1", "does not end"),
        ("00100: (a)\n", "line 1", "does not end"),
        ("00100: (a)\nEND\n00200: (b)\n", "line 3", "does not end"),
        ("00100: (a)\nEND\nEND\n", "line 2", "not a stamped step"),
        ("(a)\nEND\n", "line 1", "not a stamped step"),
        ("00100: a\nEND\n", "line 1", "not a stamped step"),
        ("00100: (a (b))\nEND\n", "line 1", "not a stamped step"),
        ("00100: ()\nEND\n", "line 1", "not a step"),
        ("00100: (a)\n00100: (b)\nEND\n", "line 2", "does not grow"),
        ("00200: (a)\n00100: (b)\nEND\n", "line 2", "does not grow"),
    ],
    ids=["empty", "cut off", "goes on", "two ends", "no stamp", "no brackets", "nested", "no name", "same", "falling"],
)
def test_read_plan_text_refuses_anything_but_the_numbered_format(text: str, where: str, message: str) -> None:
    with pytest.raises(PddlParseError, match=message) as caught:
        read_plan_text(text)
    assert caught.value.where == where

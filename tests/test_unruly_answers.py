"""An answer is never bad input: whatever a model says, the steps end, and what the planner says of it has a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from modelled import reference
from stand_in_generator import StandInGenerator

from plansmith.config.generation import SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.generation import Conversation
from plansmith.judging.modelled import REFUSED, plan_task
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.dialogue import MAX_ACTIONS
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.script import Asked, Script
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import TOO_MANY, make_all
from plansmith.planners import FastDownward, PlannerStatus

DEEP = 10_000
SAMPLING = SamplingConfig(max_new_tokens=10**6)
CONFIG = ModellingConfig(passes=1, feedback="none", max_error_messages=1, max_validations=2)


def schema(precondition: str, effect: str) -> str:
    return (
        f"## Parameters\n- ?x - block\n## Preconditions\n```\n{precondition}\n```\n"
        f"## Effects\n```\n{effect}\n```\n## New predicates\n- (clear ?x - block)\n"
    )


def problem(objects: str, state: str, goal: str) -> str:
    return f"## Objects\n{objects}\n## Initial state\n```\n{state}\n```\n## Goal\n```\n{goal}\n```\n"


def tower(n: int) -> str:
    """Return a problem of so many blocks, the tower of which is to stand upside down."""
    objects = "\n".join(f"- b{one} - block" for one in range(n))
    pairs = [(f"b{one}", f"b{one + 1}") for one in range(n - 1)]
    state = " ".join(f"(on {above} {below})" for above, below in pairs)
    goal = " ".join(f"(on {below} {above})" for above, below in pairs)
    return problem(objects, f"(handempty) (clear b0) (ontable b{n - 1}) {state}", f"(and {goal})")


@pytest.mark.parametrize(
    ("said", "status", "checks"),
    [
        (dict.fromkeys(("types", "hierarchy", "actions", "construction", "task"), "I see none."), REFUSED,
         {"header_inclusion"}),
        ({"actions": "\n".join(f"### act-{one}\nDoes it." for one in range(1000)),
          "construction": schema("(clear ?x)", "(not (clear ?x))"),
          "task": problem("- a - block", "(clear a)", "(not (clear a))")}, PlannerStatus.SOLVED, {TOO_MANY}),
        ({"construction": schema("(and " * DEEP + ")" * DEEP, "(and " * DEEP), "task": "## Objects\n- a - block\n"
          "## Initial state\n" + "(" * DEEP + "\n## Goal\n" + ")" * DEEP}, REFUSED,
         {"predicate_usage", "pred_exists"}),
        ({"construction": schema("(>= (fuel ?x) 3)", "(and (decrease (fuel ?x) 3) (at end (clear ?x)))"),
          "task": problem("- a - block", "(= (fuel a) 3)", "(and (preference p (clear a)) (always (clear a)))")},
         REFUSED, {"predicate_usage", "pred_exists"}),
        ({"task": tower(60)}, PlannerStatus.OUT_OF_TIME, set()),
    ],
    ids=["nothing", "thousand actions", "deep brackets", "beyond level 1", "endless search"],
)  # fmt: skip
def test_answers_of_any_kind_end_with_an_outcome_of_some_class(
    said: Mapping[str, str], status: str, checks: set[str], tmp_path: Path
) -> None:
    own = reference("blocksworld-easy")
    script, folder, log = Script((own,)), TaskFolder(tmp_path), CallLog.open(tmp_path / files.CALLS)

    def write(messages: Conversation, _: int) -> str:
        return said.get(Asked.by(messages).step) or script.answer(messages)

    speaker = Speaker(StandInGenerator(write, window=10**9), SAMPLING, 0, "", lambda _: log)
    [(_, records)] = speaker.converse({own.name: make_all(own.text, folder, CONFIG)})
    assert {check for one in records for check in one.faults} == checks
    assert sum(one.step == "construction" for one in records) <= MAX_ACTIONS
    with FastDownward(PlannerConfig(search="optimal", time_limit_s=1, kill_after_s=20)) as planner:
        planned = plan_task(planner, folder.read(files.DOMAIN), folder.read(files.PROBLEM))
    assert planned.status == status, planned.message

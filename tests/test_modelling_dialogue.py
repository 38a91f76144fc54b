"""The steps ask, send back, take advice and accept: each mistake with its check, its messages and its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from modelled import SAMPLING, Dying, Killed, modelled, reference
from stand_in_generator import StandInGenerator
from unified_planning.io import PDDLReader

from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import Answers, Completion, FinishReason
from plansmith.judging.modelled import plan_task
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.dialogue import pruned, types_exercise
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.products import DomainSketch, Predicate, Schema, TypeNode, TypeTree
from plansmith.modelling.script import HARMFUL, Script, ScriptedGenerator
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import make_all
from plansmith.planners import FastDownward

NEVER_MENDED = 20
ONE_PASS = ModellingConfig(passes=1)


@pytest.mark.parametrize(
    ("where", "planned", "check", "n_messages", "accepted_with"),
    [
        ("types", ["refusal"], "header_inclusion", 1, ()),
        ("hierarchy", ["empty"], "header_inclusion", 1, ()),
        ("actions", ["refusal"], "header_inclusion", 1, ()),
        ("construction/stack", ["header_inclusion"], "header_inclusion", 1, ()),
        ("construction/stack", ["keyword_usage"], "keyword_usage", 1, ()),
        ("construction/stack", ["param_types"], "param_types", 1, ()),
        ("construction/stack", ["predicate_names"], "predicate_names", 1, ()),
        ("construction/stack", ["predicate_format"], "predicate_format", 1, ()),
        ("construction/stack", ["predicate_usage"], "predicate_usage", 1, ()),
        ("construction/stack", ["cut"], "header_inclusion", 1, ()),
        ("construction/stack", ["empty"], "header_inclusion", 1, ()),
        ("construction/stack", ["refusal"], "header_inclusion", 1, ()),
        ("construction/stack", ["two_actions"], "header_inclusion", 1, ()),
        ("construction/stack", ["param_types"] * NEVER_MENDED, "param_types", 8, ("param_types",)),
        ("task", ["obj_type"], "obj_type", 1, ()),
        ("task", ["obj_type_name"], "obj_type_name", 1, ()),
        ("task", ["obj_pred_name"], "obj_pred_name", 1, ()),
        ("task", ["pred_exists"], "pred_exists", 1, ()),
        ("task", ["pred_nargs"], "pred_nargs", 1, ()),
        ("task", ["pred_objs"], "pred_objs", 1, ()),
        ("task", ["pred_nargs"] * NEVER_MENDED, "pred_nargs", 7, ("pred_nargs",)),
    ],
)
def test_step_with_a_planned_mistake_fires_its_check_and_ends(
    where: str, planned: list[str], check: str, n_messages: int, accepted_with: tuple[str, ...], tmp_path: Path
) -> None:
    folder, log, records = modelled(reference("blocksworld-easy"), tmp_path, {where: planned}, ONE_PASS)
    fired = [call.checks for call in log.calls if call.kind == "repair"]
    assert fired == [(check,)] * n_messages
    step, _, action = where.partition("/")
    [own] = [one for one in records if one.step == step and one.subject.rpartition("/")[2] == action]
    assert (own.n_messages, own.faults) == (n_messages, accepted_with)
    with FastDownward(PlannerConfig(search="lama-first")) as planner:
        planned_task = plan_task(planner, folder.read(files.DOMAIN), folder.read(files.PROBLEM))
    assert planned_task.status == ("refused" if accepted_with else "solved")
    if not accepted_with:
        read = PDDLReader().parse_problem_string(folder.read(files.DOMAIN), folder.read(files.PROBLEM))
        assert len(read.actions) == 4


def test_hierarchy_that_every_answer_loses_leaves_all_types_below_object(tmp_path: Path) -> None:
    planned = {"hierarchy": ["empty"] * NEVER_MENDED}
    folder, _, records = modelled(reference("tyreworld-easy"), tmp_path, planned, ONE_PASS)
    [own] = [one for one in records if one.step == "hierarchy"]
    assert own.faults == ("header_inclusion",)
    types = [line.partition(":")[0].removeprefix("- ") for line in folder.read(files.TYPES).splitlines()]
    below = [line.partition(":")[0].removeprefix("  - ") for line in folder.read(files.HIERARCHY).splitlines()]
    assert len(types) > 1 and below == ["- object", *types]


def test_step_pred_types_in_a_domain_of_several_types_fires(tmp_path: Path) -> None:
    _, log, _ = modelled(reference("tyreworld-easy"), tmp_path, {"task": ["pred_types"]}, ONE_PASS)
    assert [call.checks for call in log.calls if call.kind == "repair"] == [("pred_types",)]


def test_repair_hands_back_task_last_answer_and_faults_alone(tmp_path: Path) -> None:
    _, log, _ = modelled(reference("blocksworld-easy"), tmp_path, {"task": ["pred_nargs", "obj_type"]}, ONE_PASS)
    repairs = [call for call in log.calls if call.kind == "repair"]
    assert [[role for role, _ in call.messages] for call in repairs] == [["user", "assistant", "user"]] * 2
    assert "(attempt 2)" in repairs[1].messages[1][1]


def test_feedback_harmful_advice_is_given_once_and_changes_the_action(tmp_path: Path) -> None:
    faults = {"construction_feedback/stack": ["harmful"]}
    _, log, records = modelled(reference("blocksworld-easy"), tmp_path, faults, ONE_PASS)
    [own] = [one for one in records if one.advice]
    assert own.advice == HARMFUL
    assert "(holding ?x)" in own.before
    assert "## Preconditions\n```\n(and)\n```" in own.after
    assert sum(call.kind == "revision" for call in log.calls) == 1
    assert sum(call.kind == "feedback" for call in log.calls) == len(records)


def test_feedback_none_asks_no_feedback(tmp_path: Path) -> None:
    config = ModellingConfig(passes=1, feedback="none")
    _, log, _ = modelled(reference("blocksworld-easy"), tmp_path, config=config)
    assert {call.kind for call in log.calls} == {"draft"}


def test_feedback_of_a_person_is_asked_for_each_step_and_kept(tmp_path: Path) -> None:
    own, shown = reference("isr-easy"), list[str]()
    config = ModellingConfig(passes=1, feedback="person")
    for said in (lambda question: shown.append(question.shown) or "", None):  # the second time nobody is asked
        log, folder = CallLog.open(tmp_path / files.CALLS), TaskFolder(tmp_path)
        generator = ScriptedGenerator(Script((own,)))
        speaker = Speaker(generator, SAMPLING, 0, "", lambda _, log=log: log, "person", said)  # type: ignore[misc]
        assert list(speaker.converse({own.name: make_all(own.text, folder, config)}))
    assert len(shown) == 5
    assert shown[0] == "- vertex"


def test_second_pass_has_all_predicates_of_the_first_and_invents_none(tmp_path: Path) -> None:
    folder, _, _ = modelled(reference("blocksworld-easy"), tmp_path)
    assert "- (handempty)" in folder.read(files.action_file(1, "pick-up"))
    for action in ("pick-up", "put-down", "stack", "unstack"):
        assert folder.read(files.action_file(2, action)).rstrip().endswith("## New predicates\nNone")


def test_pruned_drops_what_no_action_uses_and_keeps_what_is_above() -> None:
    tree = TypeTree((TypeNode("thing"), TypeNode("block", "thing"), TypeNode("cloud")))
    predicates = (Predicate("clear", "(clear ?x - block)"), Predicate("wet", "(wet ?x - cloud)"))
    sketch = DomainSketch(tree=tree, predicates=predicates, schemas=(Schema("act", (), "(clear a)", "(and)"),))
    kept = pruned(sketch)
    assert [node.name for node in kept.tree.nodes] == ["thing", "block"]
    assert [own.name for own in kept.predicates] == ["clear"]


def test_converse_killed_after_every_answer_asks_nothing_twice(tmp_path: Path) -> None:
    own, asked = reference("isr-assisted-easy"), list[str]()
    script = ScriptedGenerator(Script((own,), {"construction/add": ["cut"], "task": ["pred_nargs"]}))
    for _ in range(100):
        log = CallLog.open(tmp_path / files.CALLS)
        speaker = Speaker(Dying(script, 1, asked), SAMPLING, 0, "", lambda _, log=log: log)  # type: ignore[misc]
        try:
            ended = list(speaker.converse({own.name: make_all(own.text, TaskFolder(tmp_path), ModellingConfig())}))
            break
        except Killed:
            continue
    assert ended
    assert len(asked) == len(set(asked)) == len(log.calls)
    whole_folder, _, _ = modelled(own, tmp_path / "at once", script.script.faults)
    for name in (files.DOMAIN, files.PROBLEM, files.PROBLEM_SKETCH):
        assert TaskFolder(tmp_path).read(name) == whole_folder.read(name)


def test_converse_failed_request_keeps_the_other_answers_and_says_so(tmp_path: Path) -> None:
    one, other = reference("isr-easy"), reference("blocksworld-easy")
    script = Script((one, other))

    def write(conversation, _seed):  # type: ignore[no-untyped-def]
        return None if "reconfigure" in conversation[0].text else script.answer(conversation)

    logs = {own.name: CallLog.open(tmp_path / f"{own.name}.jsonl") for own in (one, other)}
    speaker = Speaker(StandInGenerator(write, window=100_000), SAMPLING, 0, "", logs.__getitem__)
    dialogues = {own.name: make_all(own.text, TaskFolder(tmp_path / own.name), ONE_PASS) for own in (one, other)}
    with pytest.raises(PlansmithError, match="requests failed"):
        list(speaker.converse(dialogues))
    assert (len(logs[one.name].calls), len(logs[other.name].calls)) == (0, 1)


def test_converse_ends_though_a_server_has_no_room_for_what_is_said_again(tmp_path: Path) -> None:
    own = reference("blocksworld-easy")
    script = ScriptedGenerator(Script((own,), {"task": ["pred_nargs"] * NEVER_MENDED}))

    class Small:
        """Has room for the first question of a step alone."""

        def complete(self, conversations: Any, sampling: Any, *, seeds: Any, description: Any = None) -> Answers:
            for number, found in script.complete(conversations, sampling, seeds=seeds, description=description):
                full = Completion(None, FinishReason.NO_ROOM, "m", 0, fault="maximum context length is 64 tokens")
                yield number, [full] if len(conversations[number]) > 1 else found

    log = CallLog.open(tmp_path / files.CALLS)
    speaker = Speaker(Small(), SAMPLING, 0, "", lambda _: log)
    [(_, records)] = speaker.converse({own.name: make_all(own.text, TaskFolder(tmp_path), ONE_PASS)})
    assert records[-1].faults == ("pred_nargs",)
    assert {call.finish_reason for call in log.calls if call.kind == "repair"} == {FinishReason.NO_ROOM}


def test_answers_without_room_after_advice_leave_what_was_there_before() -> None:
    config = ModellingConfig(feedback="model", max_error_messages=2)
    dialogue = types_exercise("text", config).run(config)
    next(dialogue)
    dialogue.send("- truck: drives\n- parcel: waits")
    dialogue.send("Advice: add the gripper.")
    for _ in range(2):
        dialogue.send("")
    with pytest.raises(StopIteration) as ended:
        dialogue.send("")
    assert [own.name for own in ended.value.value.product] == ["truck", "parcel"]
    assert "gripper" in ended.value.value.advice


def test_call_log_with_a_cut_line_drops_it_and_goes_on(tmp_path: Path) -> None:
    _, log, _ = modelled(reference("isr-easy"), tmp_path)
    path, n = tmp_path / files.CALLS, len(log.calls)
    path.write_bytes(path.read_bytes()[:-20])
    again = CallLog.open(path)
    assert len(again.calls) == n - 1
    again.add(log.calls[-1])
    assert len(CallLog.open(path).calls) == n


def test_edit_of_an_action_is_read_by_later_steps_and_refused_once_it_is_stale(tmp_path: Path) -> None:
    own = reference("isr-easy")
    folder, log, _ = modelled(own, tmp_path)
    name, n = files.action_file(2, "jump"), len(log.calls)
    folder.write_edit(name, folder.read(name).replace("(not (token ?to))", "(not (= ?from ?to))"))
    _, log, _ = modelled(own, tmp_path)
    assert "(not (= ?from ?to))" in folder.read(files.DOMAIN)
    assert len(log.calls) == n  # the problem's prompt tells predicates, which are the same
    folder.write(f"{files.EDITS}/{name}", f"<!-- edit of {'0' * 16} -->\n## Parameters")
    with pytest.raises(BadInputError, match="has changed since"):
        modelled(own, tmp_path)


def test_edit_that_is_no_pddl_is_refused(tmp_path: Path) -> None:
    own = reference("isr-easy")
    folder, _, _ = modelled(own, tmp_path)
    folder.write_edit(files.action_file(2, "jump"), "## Parameters\nnone of it")
    with pytest.raises(BadInputError, match="edit that cannot be used"):
        modelled(own, tmp_path)


def test_edit_of_the_types_asks_again_for_what_follows_alone(tmp_path: Path) -> None:
    own = reference("isr-easy")
    folder, log, _ = modelled(own, tmp_path)
    n = len(log.calls)
    folder.write_edit(files.TYPES, "- vertex: a point of the graph")
    _, log, _ = modelled(own, tmp_path)
    assert [call.step for call in log.calls[n:]][:1] == ["hierarchy"]
    assert "types" not in {call.step for call in log.calls[n:]}

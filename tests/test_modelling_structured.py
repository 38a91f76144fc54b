"""Answers in JSON: read as those with headings are, enforced by a schema, and never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from modelled import modelled, reference
from scripted_server import completion, serving

from actors.endpoint import Endpoint
from plansmith.config.generation import EndpointConfig, SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.generation import Message
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.reading import read_tree
from plansmith.modelling.structured import FIELDS, schema_of, with_headings

JSON = ModellingConfig(answers="json")


@pytest.mark.parametrize(
    ("faults", "checks"),
    [
        ({}, []),
        ({"types": ["refusal"], "actions": ["cut"]}, ["header_inclusion"] * 2),
        ({"construction/stack": ["param_types"], "task": ["pred_nargs", "cut"]},
         ["param_types", "param_types", "pred_nargs", "header_inclusion"]),
        ({"construction/stack": ["header_inclusion"], "construction_feedback/stack": ["needless"]},
         ["header_inclusion"] * 2),
    ],
    ids=["sound", "no JSON", "mistakes in it", "no effects"],
)  # fmt: skip
def test_task_in_json_comes_to_the_same_model_as_with_headings(
    faults: dict[str, list[str]], checks: list[str], tmp_path: Path
) -> None:
    own = reference("blocksworld-easy")
    in_json, log, _ = modelled(own, tmp_path / "json", faults=faults, config=JSON)
    markdown, other, _ = modelled(own, tmp_path / "markdown")
    for name in ("1-types.md", "2-hierarchy.md", "3-actions.md", "domain.pddl", "problem.pddl"):
        assert in_json.current(name) == markdown.current(name)
    assert [check for call in log.calls for check in call.checks] == checks
    assert not any("line " in call.messages[-1][1] for call in log.calls if call.checks)
    assert json.loads(next(call for call in log.calls if call.kind == "draft" and call.step == "task").answer)["goal"]
    assert not any("JSON" in text for call in other.calls for _, text in call.messages)


@pytest.mark.parametrize("step", FIELDS, ids=str)
@pytest.mark.parametrize("answer", ["", "[1]", "{", '{"thoughts": 1}', "[" * 100_000, '{"types": "x", "thoughts": ""}'])
def test_answer_that_does_not_fit_its_schema_stays_as_it_is(step: DialogueStep, answer: str) -> None:
    assert with_headings(step, answer) == answer


def test_half_a_surrogate_pair_in_an_answer_is_replaced_so_that_it_can_be_written() -> None:
    answer = r'{"thoughts": "", "types": [{"name": "block", "comment": "half an emoji \ud83d"}]}'
    text = with_headings(DialogueStep.TYPES, answer).encode().decode()
    assert text.endswith("half an emoji \N{REPLACEMENT CHARACTER}")


def test_hierarchy_in_json_with_cycles_and_doubles_ends() -> None:
    pairs = [("a", "object"), ("b", "a"), ("a", "b"), ("c", "d"), ("d", "c"), ("e", "a")]
    types = [{"name": name, "parent": parent, "comment": ""} for name, parent in pairs]
    text = with_headings(DialogueStep.HIERARCHY, json.dumps({"thoughts": "", "types": types}))
    tree, faults = read_tree(text)
    assert [(node.name, node.parent) for node in tree.nodes] == [("a", "object"), ("b", "a"), ("e", "a")]
    assert [fault.message for fault in faults] == ["type 'a' stands twice; give it one parent"]


def test_hierarchy_in_json_knows_parents_by_their_names_in_pddl() -> None:
    pairs = [("Vehicle", "Object"), ("Truck", "vehicle")]
    types = [{"name": name, "parent": parent, "comment": ""} for name, parent in pairs]
    tree, faults = read_tree(with_headings(DialogueStep.HIERARCHY, json.dumps({"thoughts": "", "types": types})))
    assert [(node.name, node.parent) for node in tree.nodes] == [("vehicle", "object"), ("truck", "vehicle")]
    assert not faults


def test_endpoint_asks_for_the_schema_and_for_none_without_one() -> None:
    with serving(lambda _: (200, completion("{}"))) as server:
        endpoint = Endpoint(EndpointConfig(url=server.url, model="m"))
        for schema in (schema_of(DialogueStep.TASK), ""):
            asked = [(Message("user", "Hello"),)]
            assert list(endpoint.complete(asked, SamplingConfig(json_schema=schema), seeds=[0]))
        first, second = (request.body for request in server.requests)
    form = first["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    assert form["json_schema"]["schema"]["required"] == ["thoughts", "objects", "initial_state", "goal"]
    assert "response_format" not in second

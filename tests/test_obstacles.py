"""Why there is no plan, and that it goes back to steps 4 and 5: goals, actions, and relations stated one way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from modelled import SAMPLING, modelled, reference

from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.judging.modelled import plan_task
from plansmith.judging.obstacles import obstacles_of
from plansmith.modelling import folder as files
from plansmith.modelling.references import Reference
from plansmith.modelling.script import Script, ScriptedGenerator
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import look_again_at_actions, look_again_at_problem
from plansmith.pddl.diagnosis import diagnose
from plansmith.planners import FastDownward

DOMAIN = """(define (domain d) (:requirements :strips :typing) (:types place key)
(:predicates (at ?p - place) (road ?a - place ?b - place) (have ?k - key) (open ?p - place))
(:action go :parameters (?a - place ?b - place) :precondition (and (at ?a) (road ?a ?b))
 :effect (and (at ?b) (not (at ?a))))
(:action unlock :parameters (?p - place ?k - key) :precondition (and (at ?p) (have ?k)) :effect (open ?p)))"""
PROBLEM = """(define (problem p) (:domain d) (:objects a b c - place k - key)
(:init (at b) (road a b) (road b c)) (:goal GOAL))"""


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    """Give a planner."""
    with FastDownward(PlannerConfig(search="lama-first", time_limit_s=20, kill_after_s=30)) as own:
        yield own


@pytest.mark.parametrize(
    ("goal", "texts", "actions"),
    [
        ("(open c)", ["the goal (open c) is out of reach, even if nothing were ever undone; all goals would be within "
                      "reach if this held at first: (have k)",
                      "the action 'unlock' can never be taken: no fact of 'have' that it needs can ever hold"],
         [("unlock",), ("unlock",)]),
        ("(have k)", ["the goal (have k): no action makes 'have' true", "the action 'unlock' can never"],
         [("unlock",), ("unlock",)]),
        ("(at a)", ["the goal (at a) is out of reach, even if nothing were ever undone; all goals would be within "
                    "reach if this held at first: (road b a)", "the action 'unlock'",
                    "'road' is stated one way only, such as (road a b) without (road b a); with both ways of each "
                    "there would be more within reach"], [("go",), ("unlock",), ()]),
        ("(nothing a)", ["the problem cannot be read"], [()]),
    ],
    ids=["an action", "a goal", "one way", "not PDDL"],
)  # fmt: skip
def test_obstacles_name_what_stands_in_the_way(
    goal: str, texts: list[str], actions: list[tuple[str, ...]], planner: FastDownward
) -> None:
    found = obstacles_of(planner, DOMAIN, PROBLEM.replace("GOAL", goal))
    assert [own.text.startswith(text) for own, text in zip(found, texts, strict=True)] == [True] * len(texts)
    assert [own.actions for own in found] == actions


def test_obstacles_of_an_action_without_objects_and_of_too_many_instances(planner: FastDownward) -> None:
    problem = PROBLEM.replace("GOAL", "(open c)").replace("k - key", "")
    assert "there is no object for ?k" in [own.text for own in obstacles_of(planner, DOMAIN, problem)][-1]
    wide = DOMAIN.replace(":strips", ":adl").replace(
        "(at ?p) (have ?k)", "(have ?k) (exists (?q ?r ?s ?t ?u ?v ?w - place) (and (at ?q) (open ?r)))"
    )
    many = PROBLEM.replace("GOAL", "(open c)").replace("a b c", f"a b c {' '.join(f'd{n}' for n in range(40))}")
    [found] = obstacles_of(planner, wide, many)
    assert "cannot be looked at" in found.text
    assert diagnose(wide, many, has_reachability=True) is not None


def test_obstacles_of_a_relation_stated_one_way_without_any_goal_out_of_reach(planner: FastDownward) -> None:
    there_and_back = DOMAIN.replace("(not (at ?a))", "(not (at ?a)) (open ?b)")
    text = PROBLEM.replace("GOAL", "(and (at b) (open c))")
    assert not plan_task(planner, there_and_back, text).is_solved
    [_, one_way] = obstacles_of(planner, there_and_back, text)
    assert one_way.text.endswith("with both ways of each there would be a plan")
    assert obstacles_of(planner, "(define", text) == ()


ROADS = """(define (domain roads) (:requirements :strips :typing) (:types place)
(:predicates (at ?p - place) (road ?a - place ?b - place))
(:action go :parameters (?a - place ?b - place) :precondition (and (at ?a) (road ?a ?b))
 :effect (and (at ?b) (not (at ?a)))))"""
THERE = """(define (problem p) (:domain roads) (:objects a b c - place)
(:init (at b) (road a b) (road b a) (road b c) (road c b)) (:goal (at a)))"""
SLIDING = Reference("roads", "easy", "A cart goes along roads.", "It is at b; roads join a, b and c.", ROADS, THERE)


@pytest.mark.parametrize(
    ("own", "faults", "told", "asked"),
    [
        (reference("blocksworld-easy"), {"construction/unstack": ["no_effect"]}, "(holding red)",
         ["construction", "construction", "construction", "construction", "task"]),
        (SLIDING, {"task": ["one_way"]}, "'road' is stated one way only", ["construction", "task"]),
    ],
    ids=["an action without effects", "roads one way"],
)  # fmt: skip
def test_look_again_mends_a_model_that_the_checks_have_passed(
    own: Reference, faults: dict[str, list[str]], told: str, asked: list[str], tmp_path: Path, planner: FastDownward
) -> None:
    config = ModellingConfig(planner_feedback=1)
    folder, log, _ = modelled(own, tmp_path, faults=faults)
    obstacles = obstacles_of(planner, folder.current(files.DOMAIN), folder.current(files.PROBLEM))
    assert any(told in one.text for one in obstacles)
    speaker = Speaker(ScriptedGenerator(Script((own,), faults)), SAMPLING, 0, "script", lambda _: log)
    for dialogue in (look_again_at_actions, look_again_at_problem):
        assert list(speaker.converse({own.name: dialogue(own.text, folder, config, obstacles)}))
    assert plan_task(planner, folder.current(files.DOMAIN), folder.current(files.PROBLEM)).is_solved
    again = [call for call in log.calls if call.kind == "planner"]
    assert [call.step for call in again] == asked
    assert "there is no plan" in again[0].messages[-1][1]

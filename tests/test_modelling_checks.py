"""Each of the paper's 13 checks fires for its fault, and on the line that the model wrote."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from modelled import modelled
from spoilt_answers import Sound, random_spoilt
from unified_planning.environment import Environment
from unified_planning.io import PDDLReader

from plansmith.config.modelling import Checks, ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.judging.modelled import plan_task
from plansmith.modelling import folder as files
from plansmith.modelling.checks import (
    PAPER_CHECKS,
    check_problem,
    check_schema,
    check_tree,
)
from plansmith.modelling.dialogue import new_predicates
from plansmith.modelling.from_pddl import domain_sketch, problem_sketch
from plansmith.modelling.products import DomainSketch, Predicate, Schema, TypeNode, TypeSketch, TypeTree
from plansmith.modelling.reading import Fault, read_schema
from plansmith.modelling.references import Reference, read_references
from plansmith.modelling.script import FAULTS, ReferenceAnswers
from plansmith.modelling.writing import write_problem, write_schema
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.planners import FastDownward

TREE = TypeTree((TypeNode("block"), TypeNode("table")))
UP = Environment()
UP.error_used_name = False  # an action may be called like a predicate, as `open` in Tyreworld
KNOWN = (Predicate("clear", "(clear ?x - block)"),)


def schema_answer(
    parameters: str = "- ?x - block: it",
    precondition: str = "(clear ?x)",
    effect: str = "(not (clear ?x))",
    predicates: str = "None",
) -> str:
    """Return an answer of step 4; line 2 is the first parameter, 5 the precondition, 8 the effect, 11 a predicate."""
    return (
        f"## Parameters\n{parameters}\n## Preconditions\n```\n{precondition}\n```\n"
        f"## Effects\n{effect}\n\n## New predicates\n{predicates}\n"
    )


def problem_answer(objects: str = "- a - block", state: str = "(clear a)", goal: str = "(clear a)") -> str:
    """Return an answer of step 5; line 2 is the first object, 4 the first fact, 6 the goal."""
    return f"## Objects\n{objects}\n## Initial state\n{state}\n## Goal\n{goal}\n"


@pytest.mark.parametrize(
    ("answer", "check", "line"),
    [
        (schema_answer().replace("## Effects", "So"), "header_inclusion", 0),
        (schema_answer(effect="nothing that is PDDL"), "header_inclusion", 8),
        (schema_answer(effect="(forall (?y - block) (not (clear ?y)))"), "keyword_usage", 8),
        (schema_answer(effect="(and (exists (?y - block) (clear ?y)))"), "keyword_usage", 8),
        (schema_answer("- ?x - gizmo"), "param_types", 2),
        (schema_answer("- ?x: it"), "param_types", 2),
        (schema_answer(predicates="- (block ?x - block): is one"), "predicate_names", 11),
        (schema_answer(predicates="- (clear ?x - table): other arguments"), "predicate_names", 11),
        (schema_answer(predicates="- (odd ?x): untyped"), "predicate_format", 11),
        (schema_answer(predicates="- (odd ?x - gizmo): unknown"), "predicate_format", 11),
        (schema_answer(precondition="(nonsense ?x)"), "predicate_usage", 5),
        (schema_answer(precondition="(clear ?y)"), "predicate_usage", 5),
        (schema_answer(precondition="(clear ?x ?x)"), "predicate_usage", 5),
        (schema_answer("- ?x - table", "(and)", "(clear ?x)"), "predicate_usage", 8),
        (schema_answer(precondition="(and (clear ?x)"), "predicate_usage", 5),
        (schema_answer(effect="(and\n(not (clear ?x))"), "predicate_usage", 9),
        (schema_answer(effect="(and\n(not (clear ?x))))"), "predicate_usage", 9),
    ],
)
def test_check_schema_with_one_fault_names_its_check_and_line(answer: str, check: str, line: int) -> None:
    faults = check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="paper")
    assert {fault.check for fault in faults} == {check}
    assert [fault.line for fault in faults][:1] == [line]


@pytest.mark.parametrize("checks", ["paper", "ours"])
@pytest.mark.parametrize(
    "answer",
    [
        schema_answer(),
        schema_answer(predicates="- (clear ?b - block): declared again alike"),
        schema_answer(
            precondition="(exists (?y - block) (not (= ?x ?y)))", effect="(when (clear ?x) (not (clear ?x)))"
        ),
        schema_answer("None", "(and)", "(and)"),
    ],
    ids=["plain", "again", "adl", "empty"],
)
def test_check_schema_that_is_sound_finds_nothing(answer: str, checks: Checks) -> None:
    assert check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks=checks) == ()


def test_check_schema_a_second_list_of_predicates_is_read_past() -> None:
    answer = schema_answer(predicates="- (big ?x - block)") + "## New predicates\n- (clear ?x)\n- (small ?x - block)\n"
    assert check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="ours") == ()
    assert [own.declaration for own in read_schema("act", answer).predicates] == ["(big ?x - block)"]
    again = answer.replace("## New predicates", "## Predicates\n- (clear ?x - block)\n## New predicates", 1)
    assert check_schema(again, name="act", tree=TREE, predicates=KNOWN, checks="ours") == ()
    assert [own.declaration for own in read_schema("act", again).predicates] == ["(big ?x - block)"]
    using = answer.replace("(clear ?x)\n```", "(small ?x)\n```")
    [fault] = check_schema(using, name="act", tree=TREE, predicates=KNOWN, checks="ours")
    assert (fault.check, fault.line) == ("predicate_usage", 5)


def test_check_schema_forall_in_effects_is_allowed_by_ours_alone() -> None:
    answer = schema_answer(effect="(forall (?y - block) (not (clear ?y)))")
    assert check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="ours") == ()
    assert check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="paper") != ()


@pytest.mark.parametrize("word", ["or", "exists"])
def test_check_schema_keywords_in_the_condition_of_a_when_are_allowed_by_ours_alone(word: str) -> None:
    condition = f"({word} (?y - block) (clear ?y))" if word == "exists" else "(or (clear ?x) (not (clear ?x)))"
    answer = schema_answer(effect=f"(and (when (and\n{condition}) ; if (so)\n(not (clear ?x))))")
    assert check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="ours") == ()
    paper = check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="paper")
    assert [(fault.check, fault.line) for fault in paper] == ([("keyword_usage", 9)] if word == "exists" else [])
    outside = schema_answer(effect=f"(and (when (clear ?x) (not (clear ?x)))\n({word} (clear ?x)))")
    [fault] = check_schema(outside, name="act", tree=TREE, predicates=KNOWN, checks="ours")
    assert (fault.check, fault.line) == ("keyword_usage", 9)


def test_check_schema_several_faults_tells_the_first_property_alone() -> None:
    answer = schema_answer("- ?x - gizmo", "(nonsense)", predicates="- (odd ?x)")
    faults = check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="paper")
    assert {fault.check for fault in faults} == {"param_types"}


def test_what_is_told_names_lines_of_the_answer_alone() -> None:
    answer = schema_answer(precondition="(and (visited ?x)\n(clear ?x))", effect="(and (clear ?x)\n(visited ?x))")
    [fault] = check_schema(answer, name="act", tree=TREE, predicates=KNOWN, checks="ours")
    assert (fault.line, "also in line 10" in fault.message) == (5, True)
    [fault] = check_schema(schema_answer(precondition="(and\n(clear ?x)"), name="act", tree=TREE, predicates=KNOWN,
                           checks="ours")  # fmt: skip
    assert fault.line == 6
    assert "opened at line 5" in fault.message
    many = problem_answer(objects="- a - block\n- b - block", state="(clear c)\n(clear c)", goal="(clear c)")
    [fault] = check_problem(many, tree=TREE, predicates=KNOWN, checks="ours")
    assert (fault.line, "also in lines 6, 8" in fault.message) == (5, True)


def test_known_predicate_that_is_misspelt_twice_is_not_to_be_declared_so() -> None:
    known = (*KNOWN, Predicate("connected", "(connected ?x - block)"))
    answer = schema_answer(precondition="(conected ?x)", effect="(not (conected ?x))")
    [fault] = check_schema(answer, name="act", tree=TREE, predicates=known, checks="ours")
    assert (fault.check, fault.line) == ("predicate_usage", 5)
    assert fault.message == (
        "what is declared is 'connected': got 'conected', as in lines 5, 8; to mend it, write 'connected'"
    )


def test_action_accepted_with_flaws_declares_nothing_that_harms_others() -> None:
    sketch = DomainSketch(tree=TREE)
    declared = ["(= ?x - block ?y - block)", "(and ?x - block)", "(p x - block)", "(q ?x - (either block gizmo))",
                "(fine ?x - (either block table) ?y - block)"]  # fmt: skip
    predicates = tuple(Predicate(text[1:].split()[0], text) for text in declared)
    assert [own.name for own in new_predicates(Schema("act", (), "", "", predicates), sketch)] == ["fine"]


@pytest.mark.parametrize(
    ("answer", "check", "line"),
    [
        (problem_answer("- a - gizmo"), "obj_type", 2),
        (problem_answer("- a"), "obj_type", 2),
        (problem_answer("- a - block\n- table - table"), "obj_type_name", 3),
        (problem_answer("- a - block\n- clear - table"), "obj_pred_name", 3),
        (problem_answer(state="(nonsense a)"), "pred_exists", 4),
        (problem_answer(state="(not (clear a))"), "pred_exists", 4),
        (problem_answer(state="(clear a a)"), "pred_nargs", 4),
        (problem_answer(goal="(clear ghost)"), "pred_objs", 6),
        (problem_answer("- a - block\n- t - table", goal="(and (clear a) (clear t))"), "pred_types", 7),
        (problem_answer(state="(clear a))\n(clear a)"), "pred_exists", 4),
        (problem_answer(goal="(and\n(clear a)"), "pred_exists", 7),
        (problem_answer().replace("## Goal", "And"), "header_inclusion", 0),
    ],
)
def test_check_problem_with_one_fault_names_its_check_and_line(answer: str, check: str, line: int) -> None:
    faults = check_problem(answer, tree=TREE, predicates=KNOWN, checks="paper")
    assert {(fault.check, fault.line) for fault in faults} == {(check, line)}


def test_check_problem_all_faults_of_the_first_faulty_section_are_told() -> None:
    answer = problem_answer("- a - gizmo\n- table - block", "(nonsense)", "(nonsense)")
    faults = check_problem(answer, tree=TREE, predicates=KNOWN, checks="paper")
    assert [fault.check for fault in faults] == ["obj_type", "obj_type_name"]


def test_check_problem_init_in_a_list_and_negative_goal_are_sound() -> None:
    answer = problem_answer(state="(and (clear a))", goal="(:goal (and (not (clear a))))")
    assert check_problem(answer, tree=TREE, predicates=KNOWN, checks="paper") == ()


def test_check_problem_not_in_init_is_allowed_by_ours() -> None:
    assert check_problem(problem_answer(state="(not (clear a))"), tree=TREE, predicates=KNOWN, checks="ours") == ()


def test_check_tree_lost_type_is_told() -> None:
    assert [fault.check for fault in check_tree(TREE, [TypeSketch("block"), TypeSketch("hand")])] == ["hierarchy"]


def found_in(text: str, answer: Sound) -> tuple[Fault, ...]:
    """Return what is wrong with a text where an answer would be right."""
    tree = answer.own.sketch.tree
    if not answer.subject:
        return check_problem(text, tree=tree, predicates=answer.known, checks="paper")
    return check_schema(text, name=answer.subject, tree=tree, predicates=answer.known, checks="paper")


def test_checks_on_two_thousand_spoilt_answers_the_right_one_names_the_line() -> None:
    rng, texts, fired = random.Random(0), set[str](), set[str]()
    answers = [ReferenceAnswers(own) for own in read_references()]
    for number in range(2000):
        answer, check, text, lines = random_spoilt(answers, rng)
        if number < 100:
            assert found_in(answer.text, answer) == ()
        found = found_in(text, answer)
        assert {one.check for one in found} == {check}, text
        assert all(one.line in lines for one in found), (lines, [str(one) for one in found], text)
        texts.add(text)
        fired.add(check)
    assert len(texts) >= 1900
    assert fired == set(PAPER_CHECKS) <= set(FAULTS)


@pytest.mark.parametrize("own", read_references(), ids=lambda own: own.name)
def test_check_reference_written_as_an_answer_is_sound(own) -> None:  # type: ignore[no-untyped-def]
    domain = parse_domain(own.domain_pddl)
    sketch, problem = domain_sketch(domain), problem_sketch(parse_problem(own.problem_pddl, domain))
    for schema in sketch.schemas:
        found = check_schema(write_schema(schema), name=schema.name, tree=sketch.tree, predicates=sketch.predicates,
                             checks="paper")  # fmt: skip
        assert found == ()
    assert check_problem(write_problem(problem), tree=sketch.tree, predicates=sketch.predicates, checks="paper") == ()


@pytest.mark.parametrize(
    "own",
    [pytest.param(own, marks=[pytest.mark.long] * (own.level != "easy"), id=own.name) for own in read_references()],
)
def test_accepted_drafts_are_read_by_fast_downward_and_unified_planning(own: Reference, tmp_path: Path) -> None:
    folder, _, _ = modelled(own, tmp_path, config=ModellingConfig(passes=1))
    domain, problem = folder.read(files.DOMAIN), folder.read(files.PROBLEM)
    with FastDownward(PlannerConfig(search="lama-first")) as planner:
        assert plan_task(planner, domain, problem).is_solved
    read = PDDLReader(UP).parse_problem_string(domain, problem)
    assert len(read.actions) == len(re.findall(r"\(:action", domain))

"""Domains written of demonstrations: the simulator, files of users, checks, repair, pruning, agreement."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import print_plan
from scripted_server import completion, serving
from stand_in_generator import StandInGenerator
from test_validator_agreement import UnifiedPlanning, mutants

from pipelines import self_criteach
from pipelines.commands import write_domain
from pipelines.stages.domain_writing import keeps
from plansmith.config.domain_writing import DamageKind, WritingConfig
from plansmith.data.demonstration_files import read_demonstrations, write_demonstrations
from plansmith.errors import BadInputError
from plansmith.generation import plain_text
from plansmith.judging.domain_agreement import Agreement, PlannedProblem, domain_agreement, planned
from plansmith.judging.domain_checks import (
    LONGEST_MESSAGE,
    MOST_ACTIONS,
    DomainChecks,
    FaultKind,
    Scene,
    adopted,
    planners_words,
)
from plansmith.judging.domain_repair import judged_answers, next_question
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Conjunction, Domain, Literal, TypedName, conjuncts_of, literals_of_effects
from plansmith.pddl.parser import parse_domain, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.planners import FastDownward
from plansmith.planners.batch import proving
from plansmith.planners.result import PlannerResult, PlannerStatus
from plansmith.problems.action_learning import learn_domain
from plansmith.problems.damage import damaged as with_damage
from plansmith.problems.demonstrations import Demonstrations
from plansmith.problems.library import load_domain
from plansmith.problems.pruning import prune
from plansmith.problems.simulator import IRRELEVANT, Recording, Simulator, demonstrate, demonstrations_of
from plansmith.text.domain_writing import read_domain

BLOCKS = load_domain("blocks-classic")
SIZES: Any = {"blocks": (3, 4), "tables": (1, 2), "robots": (1, 1), "moves": (1, 4)}


def problem_of(seed: int) -> Any:
    return BLOCKS.sample("any", random.Random(seed), sizes=SIZES)


def recorded(n: int = 12) -> Demonstrations:
    walks = (demonstrate(BLOCKS.domain, problem_of(seed), Recording(10, 6), random.Random(seed)) for seed in range(n))
    return demonstrations_of(BLOCKS.domain, "A robot rearranges blocks.", tuple(walks))


DEMOS = recorded()


@pytest.fixture(scope="module")
def checks() -> Iterator[DomainChecks]:
    with FastDownward() as planner:
        scenes = [Scene(problem_of(seed), Simulator(BLOCKS.domain, problem_of(seed))) for seed in range(20, 26)]
        yield DomainChecks(DEMOS, tuple(scenes), proving(planner))


def without(domain: Domain, action: str, text: str) -> Domain:
    """Return a domain without a literal of an action, in precondition and effects."""
    changed = []
    for schema in domain.actions:
        if schema.name == action:
            parts = tuple(part for part in conjuncts_of(schema.precondition) if str(part) != text)
            effects = tuple(effect for effect in schema.effects if str(effect) != text)
            assert len(parts) + len(effects) < len(conjuncts_of(schema.precondition)) + len(schema.effects)
            schema = replace(schema, precondition=Conjunction(parts), effects=effects)
        changed.append(schema)
    return replace(domain, actions=tuple(changed))


def test_simulator_step_possible_and_impossible_gives_a_state_and_a_refusal() -> None:
    simulator = Simulator(BLOCKS.domain, problem_of(1))
    state = simulator.initial_state
    action = simulator.possible(state)[0]
    after = simulator.step(state, action)
    assert after is not None and after != state
    assert simulator.step(after, action) is None
    assert simulator.step(state, parse_step("(fly b1)")) is None


def test_demonstrations_hold_refused_attempts_and_facts_that_mean_nothing() -> None:
    assert DEMOS.n_refused > 20
    assert {attempt.action.name for _, attempt in DEMOS.attempts if attempt.after} == {
        "pick-up", "put-down", "stack", "unstack"
    }  # fmt: skip
    seen = {atom.predicate for _, attempt in DEMOS.attempts for atom in attempt.state}
    assert set(IRRELEVANT) <= seen


def test_demonstration_file_read_again_is_the_same(tmp_path: Path) -> None:
    write_demonstrations(DEMOS, tmp_path / "demos.jsonl")
    assert read_demonstrations(tmp_path / "demos.jsonl") == DEMOS


HEAD = {"name": "d", "task": "t", "skills": [{"name": "go", "arguments": ["a"]}],
        "predicates": [{"name": "at", "arguments": ["a"]}]}  # fmt: skip
REFUSED = {"state": ["(at x)"], "action": "(go x)", "refused": True}
ATTEMPT = {"state": ["(at x)"], "action": "(go y)", "next": ["(at y)"]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(["{", "{}"], "not JSON", id="no-json"),
        pytest.param([HEAD, "[1]"], "not a JSON object", id="no-object"),
        pytest.param([{**HEAD, "task": " "}, {"objects": ["x", "y"], "attempts": [ATTEMPT]}], "no task", id="task"),
        pytest.param([{**HEAD, "skills": ["go"]}, {"objects": []}], "not an entry of skills", id="entry"),
        pytest.param([HEAD, {"objects": ["x", "y"]}], "no list of attempts", id="list"),
        pytest.param([HEAD, {"objects": ["x", "y"], "attempts": [{**ATTEMPT, "refused": True}]}], "not an attempt",
                     id="attempt"),
        pytest.param([HEAD, {"objects": ["x", "y"], "attempts": [{**ATTEMPT, "state": ["at x"]}]}],
                     "not an atom or action", id="atom"),
        pytest.param([HEAD], "no demonstrations", id="none"),
        pytest.param([HEAD, {"objects": ["x", "y"], "attempts": [{**ATTEMPT, "action": "(fly y)"}]}],
                     "an unknown skill", id="skill"),
        pytest.param([HEAD, {"objects": ["x", "y"], "attempts": [{**ATTEMPT, "action": "(go x y)"}]}],
                     "another number of arguments", id="arity"),
        pytest.param([HEAD, {"objects": ["x", "y"], "attempts": [ATTEMPT, ATTEMPT]}], "do not join", id="join"),
        pytest.param([HEAD, {"objects": ["x"], "attempts": [ATTEMPT]}], "does not list", id="object"),
        pytest.param([HEAD, {"objects": ["x"], "attempts": [REFUSED]}], "no demonstrations", id="only-refused"),
    ],
)  # fmt: skip
def test_demonstration_file_with_a_mistake_says_which_and_both_commands_exit_2(
    lines: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demos.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    with pytest.raises(BadInputError, match=message) as raised:
        read_demonstrations(path)
    assert str(path) in str(raised.value.where) and raised.value.got and raised.value.expected and raised.value.cure
    assert write_domain.main([str(path), "--policy", "http://localhost:1/v1", "--out", str(tmp_path / "out")]) == 2
    run = ["--preset", "smoke", "--runs", str(tmp_path / "runs"), "--set", f"demonstrations.file={path}"]
    assert self_criteach.main(run) == 2
    said = capsys.readouterr().err
    assert said.count(str(raised.value.cure)) == 2 and not (tmp_path / "runs").exists()


def test_checks_of_the_reference_find_nothing(checks: DomainChecks) -> None:
    checked = checks.check_domain(BLOCKS.domain)
    assert checked.faults == ()
    assert checked.scores.shares == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("action", "literal", "kind"),
    [
        ("pick-up", "(hand_free ?r)", FaultKind.ALLOWS_REFUSED),
        ("pick-up", "(not (on-table ?b ?t))", FaultKind.OTHER_EFFECT),
        ("stack", "(top ?b1)", FaultKind.OTHER_EFFECT),
    ],
)
def test_checks_of_a_damaged_domain_name_the_action(
    action: str, literal: str, kind: FaultKind, checks: DomainChecks
) -> None:
    faults = checks.check_domain(without(BLOCKS.domain, action, literal)).faults
    assert (kind, action) in {(fault.kind, fault.action) for fault in faults}


@pytest.mark.parametrize(
    ("action", "literal", "said"),
    [("pick-up", "(holding ?b ?r)", "unsolvable (No relaxed solution! Generating unsolvable task...)"),
     ("", "", "unsupported (a name of the planner's own)")],
    ids=["unsolvable", "unsupported"],
)  # fmt: skip
def test_fault_of_a_scene_that_is_not_solved_has_the_planners_words_and_no_time(
    action: str, literal: str, said: str, checks: DomainChecks
) -> None:
    if action:
        damaged, checked = without(BLOCKS.domain, action, literal), checks
    else:
        refused = PlannerResult(PlannerStatus.UNSUPPORTED, None, None, 0.1, message="a name of the planner's own\n3 s")
        damaged, checked = BLOCKS.domain, replace(checks, solve=lambda domain, problem: refused)
    faults = [fault.words for fault in checked.check_domain(damaged).faults if fault.kind is FaultKind.NOT_SOLVED]
    assert any(words.startswith(f"the planner says {said} of this problem") for words in faults)
    assert "[0.0" not in " ".join(faults)
    (answer,) = judged_answers([print_domain(damaged)], checked)
    assert said in plain_text(next_question(DEMOS, answer, most_attempts=6, most_faults=50))


def test_planners_words_are_cut() -> None:
    assert planners_words("x" * 1000) == "x" * LONGEST_MESSAGE


def test_checks_of_other_names_are_faults_and_no_error(checks: DomainChecks) -> None:
    text = print_domain(BLOCKS.domain).replace("pick-up", "grab")
    words = " ".join(fault.words for fault in checks.check(text).faults)
    assert "no skill grab" in words and "(pick-up ?b ?t ?r) has no action" in words
    assert checks.check("(define (domain blocks-classic) (:predicates (p ?x)").domain is None
    assert checks.check(None).domain is None
    assert checks.check("(" * 30_000).domain is None


def test_safe_action_model_explains_all_and_its_plans_are_true(checks: DomainChecks) -> None:
    checked = checks.check_domain(learn_domain(DEMOS))
    assert checked.scores.transitions == checked.scores.refusals == 1.0
    assert checked.scores.true_plans == checked.scores.solved


def test_pruning_by_solvability_deletes_hand_free_from_pick_up_and_by_checks_keeps_it(checks: DomainChecks) -> None:
    def needs_free_hand(domain: Domain) -> bool:
        action = domain.action("pick-up")
        return action is not None and "(hand_free ?r)" in map(str, conjuncts_of(action.precondition))

    by_checks = prune(BLOCKS.domain, keeps("checks", checks, BLOCKS.domain))
    by_solvability = prune(BLOCKS.domain, keeps("solvability", checks, BLOCKS.domain))
    assert needs_free_hand(by_checks.domain) and not needs_free_hand(by_solvability.domain)
    assert checks.check_domain(by_checks.domain).scores.shares == (1.0, 1.0, 1.0, 1.0)


def test_domain_with_a_predicate_that_nobody_sees_is_not_pruned_to_nothing(checks: DomainChecks) -> None:
    helper = replace(BLOCKS.domain.predicates[0], name="helper")
    domain = replace(BLOCKS.domain, predicates=(*BLOCKS.domain.predicates, helper))
    assert checks.check_domain(domain).does_nothing_right
    for objective in ("checks", "solvability"):
        assert prune(domain, keeps(objective, checks, domain)).domain == domain  # type: ignore[arg-type]


def test_condition_of_endless_instances_is_a_fault_and_ends_nothing(checks: DomainChecks) -> None:
    names = " ".join(f"?x{number}" for number in range(40))
    text = print_domain(BLOCKS.domain).replace("(and", f"(and (forall ({names}) (exists (?y) (top ?y)))", 1)
    checked = checks.check(text)
    assert checked.domain is None and [fault.kind for fault in checked.faults] == [FaultKind.NOT_READ]
    assert "too many instances" in checked.faults[0].words


@pytest.fixture(scope="module")
def references() -> list[PlannedProblem]:
    with FastDownward() as planner:
        return planned(BLOCKS.domain, [problem_of(seed) for seed in range(5)], proving(planner))


def compared(written: Domain, references: list[PlannedProblem]) -> Agreement:
    return domain_agreement(BLOCKS.domain, written, references, n_steps=8, rng=random.Random(0))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("(:action pick-up", "(:durative-action pick-up"), "durative"),
        (("(obj ?b) (table ?t)", f"{'(and ' * 3000}(obj ?b){')' * 3000} (table ?t)"), "nest"),
    ],
    ids=["durative", "nested"],
)
def test_written_text_that_is_no_level_1_or_nests_too_deep_is_a_fault(
    changed: tuple[str, str], words: str, checks: DomainChecks
) -> None:
    checked = checks.check(WHOLE.replace(*changed, 1))
    assert checked.domain is None and {fault.kind for fault in checked.faults} == {FaultKind.NOT_READ}
    assert words in " ".join(fault.words for fault in checked.faults)


def test_scene_with_more_ground_actions_than_are_allowed_is_a_fault_and_no_planner_is_asked() -> None:
    names = [f"b{number}" for number in range(60)]  # each of them is anything: 4 skills of 3 arguments are 864,000
    init = tuple(Atom(kind, (name,)) for kind in ("obj", "table", "robot") for name in names)
    many = replace(problem_of(1), objects=tuple(map(TypedName, names)), init=init, goal=Conjunction(init[:1]))
    scene = Scene(many, Simulator(BLOCKS.domain, problem_of(1)))
    fault = DomainChecks(DEMOS, (scene,), solve=pytest.fail).check_domain(BLOCKS.domain).faults[-1]
    assert fault.kind is FaultKind.NOT_SOLVED and int(fault.words.split()[0]) > MOST_ACTIONS


def test_agreement_of_a_domain_that_allows_more_has_full_recall_and_less_precision(
    references: list[PlannedProblem],
) -> None:
    assert all(plan for _, plan in references)
    same = compared(BLOCKS.domain, references)
    assert (same.applicable_precision, same.applicable_recall, same.effect_precision, same.effect_recall) == (1,) * 4
    found = compared(without(BLOCKS.domain, "pick-up", "(hand_free ?r)"), references)
    assert found.applicable_recall == same.reference_plans == found.reference_plans == 1.0
    assert found.applicable_precision is not None and found.applicable_precision < 1.0


def test_agreement_of_a_domain_that_allows_less_has_plans_of_the_reference_that_are_not_valid_in_it(
    references: list[PlannedProblem],
) -> None:
    plans = [" ".join(plan or ()) for _, plan in references]
    n_more = sum(
        "(pick-up" in after or "(unstack" in after for after in (plan.partition("(stack")[2] for plan in plans)
    )
    found = compared(without(BLOCKS.domain, "stack", "(hand_free ?r)"), references)
    assert n_more and found.reference_plans == 1 - n_more / len(plans), "who stacked once has no free hand again"
    assert compared(BLOCKS.domain, [(problem, None) for problem, _ in references]).reference_plans is None


def test_agreement_of_a_domain_whose_predicates_have_other_arguments_is_none_and_no_error(
    references: list[PlannedProblem],
) -> None:
    text = "(define (domain blocks-classic) (:predicates (top ?a ?b)) (:action stack :parameters (?a ?b ?r) " \
        ":precondition (top ?a ?b) :effect (not (top ?a ?b))))"  # fmt: skip
    found = compared(parse_domain(text), references)
    assert (found.applicable_precision, found.applicable_recall, found.reference_plans) == (None, 0.0, 0.0)


@pytest.mark.parametrize("kind", [None, "removed", "added"])
def test_plans_of_a_written_domain_and_their_mutants_are_judged_alike_by_unified_planning(
    kind: DamageKind | None, checks: DomainChecks
) -> None:
    written = learn_domain(DEMOS)
    if kind is not None:
        written = with_damage(written, kind, 2, random.Random(1)).domain
    assert checks.solve is not None
    problems, domain = [adopted(written, scene.problem) for scene in checks.scenes], print_domain(written)
    plans = ((problem, checks.solve(domain, print_problem(problem)).plan) for problem in problems)
    problem, plan = next((problem, plan) for problem, plan in plans if plan)
    task, other, verdicts = PlanningTask(written, problem), UnifiedPlanning(domain, print_problem(problem)), set()
    for mutant in mutants(task, list(map(parse_step, plan)), random.Random(0)):
        ours = validate_plan(task, mutant)
        verdicts.add(ours.verdict)
        assert bool(other.is_valid(print_plan(mutant))) == ours.is_valid, (ours.reason, mutant)
    assert {Verdict.VALID, Verdict.PRECONDITION_UNSATISFIED} <= verdicts


def test_repair_asks_with_faults_and_every_literal_stands_in_an_answer(checks: DomainChecks) -> None:
    damaged = print_domain(without(BLOCKS.domain, "pick-up", "(hand_free ?r)"))
    whole = print_domain(BLOCKS.domain)

    def write(conversation: Any, seed: int) -> str:
        return whole if "was refused, in" in plain_text(conversation) else damaged

    model = StandInGenerator(write, window=100_000)
    config = WritingConfig(candidates=2, turns=3, faults_shown=5)
    best = write_domain._repaired(model, checks, config, seed=0)
    assert best.checked.is_faultless
    assert len(model.asked) == 2
    literals = {
        str(literal)
        for action in parse_domain(best.text).actions
        for literal in (*conjuncts_of(action.precondition), *literals_of_effects(action.effects))
    }
    assert all(literal in best.completion for literal in literals)


# --- the command


WHOLE = print_domain(BLOCKS.domain)
DAMAGED = print_domain(without(BLOCKS.domain, "pick-up", "(hand_free ?r)"))


def written(answer: Callable[[str], str], folder: Path, *options: str, demos: Demonstrations = DEMOS) -> int:
    """Return the exit code of the command, after a server has answered each prompt."""
    write_demonstrations(demos, folder / "demos.jsonl")
    (folder / "reference.pddl").write_text(WHOLE)
    with serving(lambda request: (200, completion(answer(request.prompt)))) as server:
        told = ["--policy", server.url, "--out", str(folder / "out"), "--candidates", "1", *options]
        return write_domain.main([str(folder / "demos.jsonl"), *told])


def test_command_writes_a_domain_that_passes_and_that_other_commands_draw_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--compare", str(tmp_path / "reference.pddl"))
    assert written(lambda asked: WHOLE if "was refused, in" in asked else DAMAGED, tmp_path, *options) == 0
    said = capsys.readouterr().out
    assert "first answer: " in said and "repair 1: 0 faults" in said and "dropped: " in said
    assert [line.split()[-2:] for line in said.splitlines() if line.startswith("applicable")] == [["100.0%"] * 2]
    assert "plans of the reference that are valid in the domain: 100.0%" in said
    mine = load_domain(str(tmp_path / "out"))
    problem = mine.sample("scenes", random.Random(0))
    assert mine.domain.name == BLOCKS.domain.name and problem.goal and len(mine.domain.actions) == 4


@pytest.mark.parametrize("answer", [DAMAGED, WHOLE.replace("(:predicates", "(:predicates (helper ?x)", 1)],
                         ids=["damaged", "a predicate of its own"])  # fmt: skip
def test_command_whose_domain_passes_not_all_checks_exits_1_and_writes_the_best(answer: str, tmp_path: Path) -> None:
    assert written(lambda _: answer, tmp_path, "--repair-turns", "1") == 1
    kept = parse_domain((tmp_path / "out" / "domain.pddl").read_text())
    assert {action.name for action in kept.actions} == {action.name for action in BLOCKS.domain.actions}
    assert all(action.effects for action in kept.actions)


def test_command_without_refused_attempts_warns_and_without_a_domain_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    walks = (replace(walk, attempts=tuple(one for one in walk.attempts if one.after)) for walk in DEMOS.trajectories)
    assert (
        written(lambda _: "I cannot", tmp_path, "--repair-turns", "0", demos=replace(DEMOS, trajectories=tuple(walks)))
        == 1
    )
    said = capsys.readouterr().err
    assert "no refused attempts" in said and "no answer holds a domain that can be read" in said
    assert not (tmp_path / "out").exists()


def test_command_writes_into_no_folder_with_something_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert written(lambda _: WHOLE, tmp_path) == 2
    assert "no empty folder" in capsys.readouterr().err and (tmp_path / "out").read_text() == "mine"


def test_prompts_hold_no_reference_schema(checks: DomainChecks) -> None:
    first = next_question(DEMOS, None, most_attempts=6, most_faults=8)
    damaged = print_domain(without(BLOCKS.domain, "stack", "(top ?b1)"))
    (answer,) = judged_answers([damaged], checks)
    second = next_question(DEMOS, answer, most_attempts=6, most_faults=8)
    for schema in BLOCKS.domain.actions:
        needed = str(Conjunction(conjuncts_of(schema.precondition)))
        assert needed not in plain_text(first)
        assert ":precondition" not in plain_text(first) and ":effect" not in plain_text(first)
    lifted = {
        str(literal) for schema in BLOCKS.domain.actions for literal in schema.effects if isinstance(literal, Literal)
    }
    shown = {literal for literal in lifted if literal in plain_text(second).replace(damaged.strip(), "")}
    assert shown <= {"(holding ?b ?r)", "(on-table ?b ?t)", "(above ?b1 ?b2)", "(top ?b)", "(hand_free ?r)"}, (
        "outside its own domain a prompt has predicates with their parameters, and no effect"
    )


def test_domain_read_of_an_answer_is_the_last_whole_one() -> None:
    assert read_domain("I think (define (domain a) (:predicates (p))) no: (define (domain b))") == "(define (domain b))"
    assert read_domain("nothing") is None

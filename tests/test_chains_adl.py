"""Chains of thought over the whole language, and the unchanged texts of domains that need none of it."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from conftest import atoms, random_walk
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pddl_properties import Slow, random_domain, random_plan, random_problem, tasks

from plansmith.data.examples import chain_examples, continuation_examples
from plansmith.data.rows import SolvedProblemRow
from plansmith.errors import BadInputError
from plansmith.judging.chains import JudgedChain, attempt_of, judge_completion, sound_steps
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import TOTAL_COST, Condition, Conjunction, Literal, PlanStep
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import FeedbackCode, Verdict, validate_plan
from plansmith.problems.corruption import Corruption, corrupt_plan
from plansmith.problems.library import domain_names, load_domain
from plansmith.problems.mistakes import draw_mistake
from plansmith.text.chains import (
    Part,
    StepCost,
    abandoned_chain,
    chain_of_plan,
    check_goals,
    continued_chain,
    in_order,
    recovering_chain,
    true_step,
    whole_state,
)
from plansmith.text.explanations import ClaimedPlan, FeedbackKind, explain
from plansmith.text.full import COST_INSTRUCTION
from plansmith.text.purpose import purposes
from plansmith.text.rendering import Rendering, rendering_of

COMPACT, FULL = rendering_of("compact"), rendering_of("full")

STARTS = {
    "blocksworld": "(:objects a b c d) (:init (handempty) (clear a) (ontable a) (clear b) (on b c) (ontable c) "
    "(clear d) (ontable d))",
    "logistics": "(:objects t1 t2 p1 l1 l2 l3 l4 c1 c2 o1 o2) (:init (truck t1) (truck t2) (airplane p1) (obj o1) "
    "(obj o2) (location l1) (location l2) (location l3) (location l4) (airport l1) (airport l3) (city c1) (city c2) "
    "(in-city l1 c1) (in-city l2 c1) (in-city l3 c2) (in-city l4 c2) (at t1 l1) (at t2 l4) (at p1 l3) (at o1 l2) "
    "(at o2 l4))",
}
"""By domain: where random walks begin, one to a problem's initial state and one on to its goal."""


@functools.cache
def walked(name: str, seed: int) -> tuple[PlanningTask, tuple[PlanStep, ...]]:
    """Return a problem of two random walks, the second being a plan; a goal of one to three atoms, one of them new."""
    rng = random.Random(seed)
    domain = load_domain(name).domain
    text = f"(define (problem p) (:domain {domain.name}) {STARTS[name]} (:goal (and)))"
    task = PlanningTask.from_text(_text(name), text)
    state = task.initial_state
    for step in random_walk(task, 8, rng):
        state = _after(task, step, state)
    start = replace(task.problem, init=in_order(task.atoms_of(state)))
    walk = random_walk(PlanningTask(domain, start), rng.randrange(3, 11), rng)
    for step in walk:
        state = _after(task, step, state)
    reached = in_order(task.atoms_of(state))
    changed = [atom for atom in reached if atom not in start.init] or list(reached)
    goal = dict.fromkeys([rng.choice(changed), *rng.sample(reached, rng.randrange(3))])
    return PlanningTask(domain, replace(start, goal=Conjunction(tuple(map(Literal, goal))))), walk


def _text(name: str) -> str:
    loaded = load_domain(name)
    return (loaded.folder / loaded.settings.domain_file).read_text(encoding="utf-8")


def _after(task: PlanningTask, step: PlanStep, state: int) -> int:
    action = task.ground(step)
    assert isinstance(action, GroundAction)
    return action.apply(state)


def texts_of(task: PlanningTask, plan: tuple[PlanStep, ...], rendering: Rendering, rng: random.Random) -> Iterator[str]:
    """Yield every kind of text that training reads: prompts, chains, explanations, corrections, continuations."""
    yield rendering.plan_prompt(task)
    yield rendering.write_chain(chain_of_plan(task, plan))
    broken = (*plan[:2], *plan[:2], *plan[2:])
    yield rendering.write_chain(chain_of_plan(task, broken))
    judged = judge_completion(task, rendering.write_chain(chain_of_plan(task, plan[:-1])), rendering)
    yield rendering.correct_prompt(task, rendering.write_attempt(attempt_of(task, judged), FeedbackKind.DETAILED))
    kept = chain_of_plan(task, plan).steps[: len(plan) // 2]
    yield rendering.write_chain(continued_chain(task, kept, plan[len(kept) :]))
    for shown in [ClaimedPlan(plan), ClaimedPlan(broken), *_claimed_wrongly(task, plan, rng)]:
        yield rendering.explain_prompt(task, shown)
        yield rendering.write_explanation(explain(task, shown))


def _claimed_wrongly(task: PlanningTask, plan: tuple[PlanStep, ...], rng: random.Random) -> Iterator[ClaimedPlan]:
    for corruption in (Corruption.WRONG_EFFECT, Corruption.FRAME_VIOLATED):
        shown = corrupt_plan(task, plan, corruption, rng)
        if shown is not None:
            yield ClaimedPlan(shown.plan, shown.claims)


@pytest.mark.parametrize(
    ("name", "rendering", "expected"),
    [
        ("blocksworld", COMPACT, "18510d78ad42decc5f94e2370faacd34b9374a10cc0f0ffef1fcee2faefbbeb3"),
        ("blocksworld", FULL, "04b4e6150019a7f9da9ed05063461d5be050811b19783ef5e168ab0cb22f9610"),
        ("logistics", COMPACT, "64ce9dbab01bc0b363efc963a629c95714734800d822907a92af7771cdca8bff"),
        ("logistics", FULL, "2b16933becc55cea4ae241bc1fced6557cd6cacb599f7ca7a59eb3cf6c11c813"),
    ],
    ids=["blocksworld-compact", "blocksworld-full", "logistics-compact", "logistics-full"],
)
def test_texts_of_conjunctive_strips_domains_are_pinned(name: str, rendering: Rendering, expected: str) -> None:
    digest = hashlib.sha256()
    for seed in range(100):
        task, plan = walked(name, seed)
        for text in texts_of(task, plan, rendering, random.Random(seed)):
            digest.update(text.encode() + b"\0")
    assert digest.hexdigest() == expected


# --- one domain with everything

DEPOT = parse_domain("""(define (domain depot)
  (:requirements :adl :derived-predicates :action-costs)
  (:types room box)
  (:predicates (in ?b - box ?r - room) (at ?r - room) (door ?r ?s - room) (held ?b - box) (dirty ?b - box) (lamp)
    (near ?r ?s - room))
  (:functions (total-cost) - number (length ?r ?s - room) - number)
  (:derived (near ?r ?s - room) (or (door ?r ?s) (exists (?t - room) (and (door ?r ?t) (near ?t ?s)))))
  (:action go :parameters (?r ?s - room)
    :precondition (and (at ?r) (near ?r ?s))
    :effect (and (at ?s) (not (at ?r)) (increase (total-cost) (length ?r ?s))
      (forall (?b - box) (when (held ?b) (and (in ?b ?s) (not (in ?b ?r)))))))
  (:action take :parameters (?b - box ?r - room)
    :precondition (and (at ?r) (in ?b ?r) (not (exists (?c - box) (held ?c))) (or (lamp) (not (dirty ?b))))
    :effect (and (held ?b) (increase (total-cost) 0.5)))
  (:action drop :parameters (?b - box) :precondition (held ?b) :effect (not (held ?b)))
  (:action wipe :parameters (?b - box) :precondition (imply (held ?b) (lamp)) :effect (not (dirty ?b)))
  (:action switch :parameters ()
    :effect (and (when (lamp) (not (lamp))) (when (not (lamp)) (lamp)) (increase (total-cost) 2))))""")

DEPOT_PROBLEM = """(define (problem p) (:domain depot) (:objects a b c - room x y - box)
  (:init (at a) (in x a) (in y b) (dirty x) (door a b) (door b c)
    (= (total-cost) 10) (= (length a c) 3) (= (length a b) 1))
  (:goal (and GOAL)) (:metric minimize (total-cost)))"""

GOAL = "(in x c) (forall (?b - box) (not (held ?b)))"
PLAN = parse_plan("(switch) (take x a) (go a c) (drop x)")

DEPOT_CHAIN = """\
[STEP 1]
- Goals:
  - (in x c): FALSE
  - (forall (?b - box) (not (held ?b))): TRUE
- Purpose: (in x c) since (at a) (near a c) needs (held x) since (at a) (in x a) needs (or (lamp) (not (dirty x))) \
needs (lamp)
- Action: (switch)
- Preconditions:
- Applicable: YES
- Add: (lamp)
- Delete: none
- Cost: 2, total 12
- Next state: (lamp) (at a) (dirty x) (in x a) (in y b)
[STEP 2]
- Purpose: (in x c) since (at a) (near a c) needs (held x) since (at a) (in x a)
- Action: (take x a)
- Preconditions:
  - (at a): TRUE
  - (in x a): TRUE
  - (not (exists (?c - box) (held ?c))): TRUE
  - (or (lamp) (not (dirty x))): TRUE
- Applicable: YES
- Add: (held x)
- Delete: none
- Cost: 0.5, total 12.5
- Next state: (lamp) (at a) (dirty x) (held x) (in x a) (in y b)
[STEP 3]
- Purpose: (in x c) since (at a) (near a c)
- Action: (go a c)
- Preconditions:
  - (at a): TRUE
  - (near a c): TRUE
- Applicable: YES
- Add: (at c) (in x c)
- Delete: (at a) (in x a)
- Cost: 3, total 15.5
- Next state: (lamp) (at c) (dirty x) (held x) (in x c) (in y b)
[STEP 4]
- Goals:
  - (in x c): TRUE
  - (forall (?b - box) (not (held ?b))): FALSE
- Purpose: (forall (?b - box) (not (held ?b))) needs (not (held x)) since (held x)
- Action: (drop x)
- Preconditions:
  - (held x): TRUE
- Applicable: YES
- Add: none
- Delete: (held x)
- Cost: 0, total 15.5
- Next state: (lamp) (at c) (dirty x) (in x c) (in y b)
[GOAL CHECK]
  - (in x c): TRUE
  - (forall (?b - box) (not (held ?b))): TRUE
[FINAL PLAN]
(switch)
(take x a)
(go a c)
(drop x)
[VERDICT] VALID"""


def depot(goal: str = GOAL, *, is_costly: bool = True) -> PlanningTask:
    """Return the depot: the box x, dirty, is carried from room a past b to c, where there is no light."""
    text = DEPOT_PROBLEM.replace("GOAL", goal)
    problem = parse_problem(text if is_costly else text.replace("(:metric minimize (total-cost))", ""), DEPOT)
    return PlanningTask(DEPOT, problem)


def judged(text: str) -> JudgedChain:
    """Return the judgement of a completion about the depot."""
    return judge_completion(depot(), text, FULL)


def changed(before: str, after: str) -> str:
    """Return the chain of the depot with one place changed."""
    assert DEPOT_CHAIN.count(before) == 1
    return DEPOT_CHAIN.replace(before, after)


def codes(chain: JudgedChain) -> list[str]:
    """Return the feedback code of every step."""
    return [str(step.judgement.code) for step in chain.steps]


def wrong(chain: JudgedChain) -> list[list[str]]:
    """Return for every step what is wrong with what it says of conditions."""
    return [[one.reason for one in step.false_claims] for step in chain.steps]


def test_write_chain_of_the_whole_language_is_as_written_by_hand() -> None:
    assert FULL.write_chain(chain_of_plan(depot(), PLAN)) == DEPOT_CHAIN


def test_read_and_judge_the_chain_written_by_hand_is_flawless() -> None:
    chain = judged(DEPOT_CHAIN)
    assert chain.read.chain == chain_of_plan(depot(), PLAN)
    assert (chain.verdict, codes(chain), wrong(chain)) == (Verdict.VALID, ["ok"] * 4, [[]] * 4)
    assert sound_steps(depot(), chain) == 4


def test_write_chain_without_a_metric_tells_no_cost() -> None:
    text = FULL.write_chain(chain_of_plan(depot(is_costly=False), PLAN))
    assert text == "\n".join(line for line in DEPOT_CHAIN.splitlines() if not line.startswith("- Cost"))
    assert [COST_INSTRUCTION in FULL.plan_prompt(depot(is_costly=is_costly)) for is_costly in (True, False)] == [
        True,
        False,
    ]


def test_chain_of_plan_cost_without_a_value_tells_none_from_there_on() -> None:
    steps = chain_of_plan(depot(), parse_plan("(switch) (go a b) (switch) (go b c) (switch)")).steps
    assert [step.cost for step in steps] == [StepCost(2, 12), StepCost(1, 13), StepCost(2, 15), None, None]


def test_chain_of_plan_false_conditions_of_any_form_are_named() -> None:
    chain = chain_of_plan(depot(), parse_plan("(take y b)"))
    assert [str(condition) for condition in chain.steps[0].unsatisfied] == ["(at b)"]
    chain = chain_of_plan(depot(), parse_plan("(switch) (take x a) (switch) (take x a)"))
    assert FULL.write_beginning(chain, len(chain.steps)).splitlines()[-6:] == [
        "- Preconditions:",
        "  - (at a): TRUE",
        "  - (in x a): TRUE",
        "  - (not (exists (?c - box) (held ?c))): FALSE",
        "  - (or (lamp) (not (dirty x))): FALSE",
        "- Applicable: NO",
    ]
    judgement = judged(FULL.write_chain(chain)).steps[-1].judgement
    assert tuple(judgement.unsatisfied) == chain.steps[-1].unsatisfied


# --- why an action is there


def reasons(goal: str, plan: str) -> list[str | None]:
    """Return the purpose of each step of a plan for the depot."""
    task = depot(goal)
    actions = [action for step in parse_plan(plan) if isinstance(action := task.ground(step), GroundAction)]
    return [None if one is None else " < ".join(map(str, one.conditions)) for one in purposes(task, actions)]


@pytest.mark.parametrize(
    ("goal", "plan", "expected"),
    [
        ("(or (lamp) (at b))", "(switch)", ["(or (lamp) (at b)) < (lamp)"]),
        ("(or (lamp) (at b))", "(switch) (go a b)", [None, None]),  # either alone would do
        ("(imply (dirty x) (lamp))", "(switch)", ["(imply (dirty x) (lamp)) < (lamp)"]),
        ("(imply (dirty x) (lamp))", "(wipe x)", ["(imply (dirty x) (lamp)) < (not (dirty x))"]),
        ("(exists (?r - room) (and (at ?r) (near b ?r)))", "(go a c)",
         ["(exists (?r - room) (and (at ?r) (near b ?r))) < (at c)"]),
        ("(not (or (dirty x) (dirty y)))", "(wipe x) (go a b)",
         ["(not (or (dirty x) (dirty y))) < (not (dirty x))", None]),
        ("(in x b)", "(wipe x) (take x a) (go a b)",
         ["(in x b) < (held x) < (or (lamp) (not (dirty x))) < (not (dirty x))", "(in x b) < (held x)", "(in x b)"]),
        ("(lamp)", "(switch) (switch) (switch)", ["(lamp) < (lamp)", "(lamp) < (not (lamp))", "(lamp)"]),
        ("(not (or (dirty x) (dirty y)))", "(wipe x) (wipe x)",
         [None, "(not (or (dirty x) (dirty y))) < (not (dirty x))"]),
        ("(near a c)", "(switch)", [None]),
    ],
    ids=["or", "or, twice true", "imply by the conclusion", "imply by the premise", "exists", "not or",
         "condition of an effect", "conditions of effects in turn",
         "the last to say so", "derived and static"],
)  # fmt: skip
def test_purposes_of_any_condition_are_what_it_would_be_false_without(
    goal: str, plan: str, expected: list[str | None]
) -> None:
    assert reasons(goal, plan) == expected


LINES = """(define (domain lines) (:predicates (line ?a ?b) (live ?a) (plant ?a) (hot))
  (:derived (live ?a) (or (plant ?a) (exists (?b) (and (line ?b ?a) (live ?b)))))
  (:action join :parameters (?a ?b) :effect (line ?a ?b))
  (:action cut :parameters (?a ?b) :effect (not (line ?a ?b)))
  (:action heat :parameters (?a) :precondition (live ?a) :effect (hot)))"""


def lines(goal: str, init: str = "(plant a)") -> PlanningTask:
    """Return a power network without lines."""
    text = f"(define (problem p) (:domain lines) (:objects a b c) (:init {init}) (:goal {goal}))"
    return PlanningTask.from_text(LINES, text)


def test_chain_of_plan_derived_goal_is_reached_by_all_the_effects_that_it_needs() -> None:
    chain = chain_of_plan(lines("(live c)"), parse_plan("(join a b) (join b c)"))
    assert [[str(one) for one in step.purpose] for step in chain.steps] == [
        ["(live c)", "(line a b)"], ["(live c)", "(line b c)"],
    ]  # fmt: skip
    assert [step.goal_check is not None for step in chain.steps] == [True, True]
    assert chain.steps[1].next_state == atoms("(line a b) (line b c)") and chain.verdict == "VALID"


def test_purposes_of_a_step_that_serves_two_goals_name_the_one_reached_first() -> None:
    chain = chain_of_plan(lines("(and (live c) (hot))"), parse_plan("(join a b) (heat b) (join b c)"))
    assert [[str(one) for one in step.purpose] for step in chain.steps] == [
        ["(hot)", "(live b)", "(line a b)"], ["(hot)"], ["(live c)", "(line b c)"],
    ]  # fmt: skip


def test_true_step_from_a_state_that_names_derived_atoms_leads_to_one_without() -> None:
    task = lines("(hot)")
    action = task.ground(parse_plan("(join a b)")[0])
    step = true_step(task, atoms("(plant a) (live c) (live)"), action)
    assert step.next_state == atoms("(line a b)")


def test_chain_of_plan_derived_atoms_that_a_state_claims_do_not_count() -> None:
    task = lines("(hot)")
    text = FULL.write_chain(chain_of_plan(task, parse_plan("(join a b) (heat b)")))
    odd = text.replace("state: (line a b)", "state: (plant a) (line a b) (live c) (live)")
    assert odd != text
    found = judge_completion(task, odd, FULL)
    assert codes(found) == ["ok", "ok"] and wrong(found) == [[], []] and sound_steps(task, found) == 2
    false_heat = text.replace("(heat b)", "(heat c)").replace("(live b)", "(live c)")
    found = judge_completion(task, false_heat, FULL)
    assert codes(found) == ["ok", "precondition"] and set(wrong(found)[1]) == {
        "(live c) does not hold", "(heat c) cannot be applied"
    }  # fmt: skip


def test_compact_derived_literals_are_written_and_read_back() -> None:
    task = lines("(and (live c) (hot))")
    chain = chain_of_plan(task, parse_plan("(join a b) (heat b) (join b c)"))
    found = judge_completion(task, COMPACT.write_chain(chain), COMPACT)
    assert found.read.chain == chain and codes(found) == ["ok"] * 3 and wrong(found) == [[]] * 3


def test_compact_other_conditions_are_refused_with_the_cure() -> None:
    for write in (lambda: COMPACT.plan_prompt(depot()), lambda: COMPACT.write_chain(chain_of_plan(depot(), PLAN))):
        with pytest.raises(BadInputError, match="conjunctive preconditions") as caught:
            write()
        assert "full rendering" in str(caught.value)


# --- what a policy may claim


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("- Cost: 2, total 12\n", "- Cost: 3, total 12\n", ["effect", "ok", "ok", "ok"]),
        ("- Cost: 2, total 12\n", "- Cost: 2, total 13\n", ["effect", "effect", "ok", "ok"]),
        ("- Cost: 2, total 12\n", "- Cost: 2, total 12.0\n", ["ok"] * 4),
        ("- Cost: 2, total 12\n", "- cost : 2 ,  TOTAL 12\n", ["ok"] * 4),
        ("- Cost: 2, total 12\n", "", ["ok"] * 4),
        ("- Cost: 2, total 12\n", "- Cost: little, total 12\n", ["ok"] * 4),
        ("- Cost: 2, total 12\n", f"- Cost: 2, total {'9' * 400}\n", ["ok"] * 4),
        ("- Cost: 0.5, total 12.5\n", "- Cost: 1, total 13\n", ["ok", "effect", "effect", "ok"]),
        ("- Cost: 3, total 15.5\n", "", ["ok"] * 4),
        ("- Cost: 0, total 15.5\n", "- Cost: 0, total 15.6\n", ["ok", "ok", "ok", "effect"]),
    ],
    ids=["amount", "total", "same number", "spelling", "none", "no number", "no such number", "fraction",
         "one left out", "last"],
)  # fmt: skip
def test_judge_completion_wrong_cost_is_an_effect_error_that_the_next_step_builds_on(
    before: str, after: str, expected: list[str]
) -> None:
    chain = judged(changed(before, after))
    assert (codes(chain), chain.verdict, wrong(chain)) == (expected, Verdict.VALID, [[]] * 4)


def test_wrong_cost_is_a_wrong_effect_at_no_distance_and_ends_the_sound_steps() -> None:
    chain = judged(changed("total 12.5", "total 13.5"))
    step = chain.steps[1]
    assert (step.judgement.reason, step.total_before) == ("(take x a) costs 0.5, which makes 12.5 in all", 12)
    assert (step.judgement.code, step.judgement.state_distance) == (FeedbackCode.EFFECT, 0)
    assert sound_steps(depot(), chain) == 1
    assert "State claimed wrongly: (take x a) costs 0.5" in attempt_of(depot(), chain).report


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("(not (dirty x))): TRUE", "(not (dirty x))): FALSE", (1, "(or (lamp) (not (dirty x))) holds")),
        ("(near a c): TRUE", "(near a c): FALSE", (2, "(near a c) holds")),
        ("  - (near a c): TRUE\n", "", (2, "leaves out (near a c)")),
        ("  - (near a c): TRUE\n", "  - (near a b): TRUE\n",
         (2, "(near a b) is no precondition", "leaves out (near a c)")),
        ("(not (exists (?c - box) (held ?c)))", "(not (exists (?z - nothing) (odd ?z)))",
         (1, "leaves out (not (exists (?c - box) (held ?c)))")),
        ("- (in x c): FALSE", "- (in x c): TRUE", (0, "(in x c) does not hold")),
        ("(held ?b))): FALSE", "(held ?b))): TRUE", (3, "(forall (?b - box) (not (held ?b))) does not hold")),
    ],
    ids=["or", "derived", "left out", "another", "no condition", "goal", "goal of any form"],
)  # fmt: skip
def test_judge_completion_false_words_about_conditions_are_claims_and_the_transition_is_right(
    before: str, after: str, expected: tuple[int, *tuple[str, ...]]
) -> None:
    chain, (place, *reasons) = judged(changed(before, after)), expected
    assert wrong(chain) == [reasons if index == place else [] for index in range(4)]
    assert codes(chain) == ["claim" if index == place else "ok" for index in range(4)]
    assert (chain.verdict, chain.steps[place].judgement.state_distance) == (Verdict.VALID, 0)


def test_judge_completion_conditional_effects_told_as_if_they_took_place_is_an_effect_error() -> None:
    text = FULL.write_chain(chain_of_plan(depot(), parse_plan("(go a b)")))
    false = text.replace("(dirty x) (in x a) (in y b)", "(dirty x) (in x b) (in y b)")
    assert false != text
    (step,) = judged(false).steps
    assert (step.judgement.code, step.judgement.state_distance) == (FeedbackCode.EFFECT, 2)
    assert step.judgement.lost_atoms == atoms("(in x a)") and step.judgement.invented_atoms == atoms("(in x b)")


# --- reading


CONDITIONS = [
    "(or (lamp) (at a))", "(or)", "(imply (lamp) (at a))", "(not (and (lamp) (at a)))", "(not (not (lamp)))",
    "(exists (?r - room ?b - box) (in ?b ?r))", "(forall (?r - room) (forall (?r - room) (at ?r)))",
    "(not (and))", "(or (= a b) (not (= a c)))", "(exists (?b - (either box room)) (not (in x a)))", "(lamp)",
    "(not (lamp))",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_read_goal_of_any_form_gives_the_condition_of_the_problem(condition: str) -> None:
    task = depot(condition)
    marks = FULL.read(f"[GOAL CHECK]\n  - {condition.upper()}: true\n", DEPOT).chain.goal_check
    assert marks is not None and [mark.condition for mark in marks] == list(task.goal)
    assert [str(mark.condition) for mark in check_goals(task, ())] == [condition]


@pytest.mark.parametrize(
    "text",
    ["(or (lamp)", "(or (flies a))", "(or (lamp a))", "(forall ?b (held ?b))", "(or lamp)", "(imply (lamp))",
     "(or (lamp) ; (at a))", "(exists (?b - pail) (held ?b))", "(forall (?b - box) (held ?c))", "(or ((lamp)))",
     f"{'(or ' * 400}(lamp){')' * 400}", "(or (= (total-cost) 3))", "(or :action)"],
)  # fmt: skip
def test_read_condition_with_a_mistake_is_passed_over_as_talk(text: str) -> None:
    found = FULL.read(f"[GOAL CHECK]\n  - {text}: TRUE\n  - (lamp): TRUE\n", DEPOT).chain.goal_check
    assert found is not None and [str(mark.condition) for mark in found] == ["(lamp)"]


PIECES = [*DEPOT_CHAIN.splitlines(), *(f"- {one}: TRUE" for one in CONDITIONS)]
PIECES += ["- Cost:", "- Cost: 1, total", "- Cost: 1.2.3, total -.", "- Next state: (near a)", "- (forall (): FALSE"]
PIECES += ["- Purpose: (or (lamp) needs (at", "- (or: TRUE"]


@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(0, 1000))
def test_judging_any_lines_of_the_whole_language_never_raises(pieces: list[str], n_kept: int) -> None:
    task = depot()
    found = judge_completion(task, f"{DEPOT_CHAIN[:n_kept]}\n" + "\n".join(pieces), FULL)
    assert len(found.steps) == len(found.read.spans)
    assert FULL.write_attempt(attempt_of(task, found), FeedbackKind.DETAILED)
    assert 0 <= sound_steps(task, found) <= len(found.steps)


@settings(max_examples=200)
@given(tasks, st.randoms(use_true_random=False), st.booleans())
def test_read_what_was_written_about_any_task_gives_the_same_claims(
    task: PlanningTask, rng: random.Random, with_purpose: bool
) -> None:
    plan = random_plan(task, rng)
    chain = chain_of_plan(task, plan, with_purpose=with_purpose)
    found = judge_completion(task, FULL.write_chain(chain), FULL)
    assert (found.read.fault, found.read.chain) == (None, chain)
    assert all(step.false_claims == () for step in found.steps)
    verdict = validate_plan(task, plan)
    if verdict.verdict in (Verdict.VALID, Verdict.GOAL_NOT_REACHED):
        assert codes(found)[:-1] == ["ok"] * (len(plan) - 1)
        assert (chain.verdict == "VALID") == verdict.is_valid
        assert verdict.is_valid or codes(found)[-1:] in ([], ["goal"])
        told = [task.state_of(whole_state(task, step.next_state or ())) for step in chain.steps]
        assert told == list(verdict.states[1:])


@settings(max_examples=200)
@given(st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_chain_of_plan_marks_are_those_of_the_textbook(seed: int, rng: random.Random) -> None:
    """Truth values against a slow evaluator that grounds nothing and knows no bits."""
    domain, problem = random_domain(seed), random_problem(seed)
    task, slow = PlanningTask(domain, problem), Slow(domain, problem)
    state = problem.init
    for step in chain_of_plan(task, random_plan(task, rng)).steps:
        true = slow.closure(set(state))
        for condition in step.preconditions:
            assert (condition not in step.unsatisfied) == slow.holds(condition, {}, true)
        for mark in step.goal_check or ():
            assert mark.is_met == slow.holds(mark.condition, {}, true)
        state = whole_state(task, step.next_state) if step.next_state is not None else state


@settings(max_examples=200)
@given(tasks, st.randoms(use_true_random=False))
def test_purposes_of_any_task_begin_at_the_goal_and_end_at_an_effect(task: PlanningTask, rng: random.Random) -> None:
    chain = chain_of_plan(task, random_plan(task, rng))
    for step in chain.steps:
        if step.purpose and step.next_state is not None:
            effect = step.purpose[-1]
            assert step.purpose[0] in task.goal and isinstance(effect, Literal)
            assert (effect.atom in step.next_state) == effect.is_positive


# --- every domain of the project


def reached(name: str, seed: int) -> tuple[PlanningTask, tuple[PlanStep, ...]]:
    """Return a problem of a domain's first level, its goal replaced by some of what a short walk changed."""
    loaded, rng = load_domain(name), random.Random(seed)
    problem = loaded.sample(loaded.levels[0], rng)
    task = PlanningTask(loaded.domain, problem)
    plan = random_walk(task, 5, rng)
    states = validate_plan(task, plan).states
    plan = plan[: max(index for index, state in enumerate(states) if index < 2 or state != states[0])]
    before, after = set(problem.init), set(task.atoms_of(states[len(plan)]))
    changes = [*map(Literal, sorted(after - before)), *(Literal(atom, False) for atom in sorted(before - after))]
    goal: list[Condition] = list(rng.sample(changes, min(2, len(changes))))
    return PlanningTask(loaded.domain, replace(problem, goal=Conjunction(tuple(goal)))), plan


@pytest.mark.parametrize("name", domain_names())
def test_chain_of_a_plan_in_every_domain_is_read_back_and_flawless(name: str) -> None:
    for seed in range(2):
        task, plan = reached(name, seed)
        chain = chain_of_plan(task, plan)
        found = judge_completion(task, FULL.write_chain(chain), FULL)
        assert (found.read.fault, found.read.chain, found.verdict) == (None, chain, Verdict.VALID)
        assert codes(found) == ["ok"] * len(plan) and wrong(found) == [[]] * len(plan)
        assert any(step.purpose for step in chain.steps)
        is_costly = task.problem.metric == TOTAL_COST
        assert {step.cost is not None for step in chain.steps} == {is_costly}
        if is_costly:
            assert chain.steps[-1].cost is not None and chain.steps[-1].cost.total == found.plan.cost


@pytest.mark.parametrize("name", ["briefcase", "elevators", "logistics", "snake"])
def test_mistakes_in_any_domain_are_withdrawn_and_read_back(name: str) -> None:
    task, plan = reached(name, 0)
    chain, states = chain_of_plan(task, plan), validate_plan(task, plan).states
    for place, right in enumerate(plan):
        mistake = draw_mistake(task, states[place], right, random.Random(place))
        assert mistake is not None and not mistake.is_applicable(states[place])
        recovering = recovering_chain(task, chain, place, mistake)
        found = judge_completion(task, FULL.write_chain(recovering), FULL)
        assert (found.read.fault, found.read.chain) == (None, recovering)
        assert found.first_fault == (place if found.steps[place].false_claims else None)
        assert (codes(found)[place], codes(found).count("withdrawn"), found.plan.plan) == ("withdrawn", 1, plan)
        false = {(number, one.claim.part) for number, step in enumerate(found.steps) for one in step.false_claims}
        assert false <= {(place, Part.SUPPORT)}  # what the wrong choice was believed to have
        abandoned = abandoned_chain(task, recovering, place + 1)
        found = judge_completion(task, FULL.write_chain(abandoned), FULL)
        assert (found.read.chain, found.plan.is_valid) == (abandoned, abandoned.verdict == "VALID")


@pytest.mark.parametrize("name", domain_names())
def test_corrupted_plans_in_every_domain_are_explained_and_read_back_with_their_class(name: str) -> None:
    n_shown = 0
    for corruption in Corruption:
        task, plan = reached(name, 0)
        shown = corrupt_plan(task, plan, corruption, random.Random(0), attempts=20)
        if shown is None:
            continue
        n_shown += 1
        found = explain(task, ClaimedPlan(shown.plan, shown.claims))
        text = FULL.write_explanation(found)
        read = judge_completion(task, text, FULL)
        assert (read.read.fault, read.read.chain.verdict) == (None, "INVALID")
        assert read.read.chain.steps == found.chain.steps and wrong(read) == [[]] * len(read.steps)
        match corruption:
            case Corruption.UNSATISFIED_PRECONDITION:
                assert codes(read)[-1] == "withdrawn" and read.steps[-1].judgement.unsatisfied
            case Corruption.GOAL_NOT_REACHED:
                assert codes(read)[-1] == "goal" and not all(one.is_met for one in read.read.chain.goal_check or ())
            case _:
                assert found.fault is not None and "[FAULT]" in text
                assert found.fault.is_effect_error == (corruption is Corruption.WRONG_EFFECT)
    assert n_shown >= 3


# --- examples


def test_examples_of_the_depot_under_other_names_are_flawless() -> None:
    row = SolvedProblemRow("p0", "1", print_domain(DEPOT), print_problem(depot().problem), tuple(map(str, PLAN)))
    for example in chain_examples(row, FULL, tuple("klmnopq"), n_renamings=4, seed=1):
        problem = example.prompt.partition("[PROBLEM]\n")[2].removesuffix("[RESPONSE]\n")
        task = PlanningTask(DEPOT, parse_problem(problem, DEPOT))
        found = judge_completion(task, example.response, FULL)
        assert found.plan.is_valid and codes(found) == ["ok"] * 4 and wrong(found) == [[]] * 4
        assert [len(step.purpose) for step in found.read.chain.steps] == [4, 2, 1, 2]


def test_continuation_goes_on_with_the_true_total_where_the_sound_steps_end() -> None:
    chain = judged(changed("- Cost: 3, total 15.5", "- Cost: 3, total 15"))
    n_kept = sound_steps(depot(), chain)
    kept = chain.read.chain.steps[:n_kept]
    assert n_kept == 2
    told_anew = DEPOT_CHAIN.replace("(near a c) needs", "needs")  # of kept reasons only what the state lists
    assert FULL.write_chain(continued_chain(depot(), kept, PLAN[2:])) == told_anew
    (example,) = continuation_examples("r", "p", depot(), kept, PLAN[2:], FULL, (), n_renamings=1, seed=0)
    assert example.beginning.endswith("(held x) (in x a) (in y b)") and "total 12.5" in example.beginning
    assert example.response.startswith("\n[STEP 3]\n- Purpose: (in x c) since (at a) (near a c)\n- Action: (go a c)")

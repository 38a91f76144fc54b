"""Every construct of the language beyond STRIPS: a plan that is valid and one that is not, each with the reason.

The expected verdicts follow from the definition of PDDL 2.1 and are worked out beside each case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from conftest import atoms
from hypothesis import given
from hypothesis import strategies as st

from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem, parse_step
from plansmith.pddl.validation import FeedbackCode, PlanVerdict, Verdict, judge_step, validate_plan
from plansmith.problems.corruption import Corruption, corrupt_plan, shows_exactly
from plansmith.problems.renaming import rename_plan, rename_problem
from plansmith.text.chains import chain_of_plan

VALID, UNMET, FAILS = Verdict.VALID, Verdict.GOAL_NOT_REACHED, Verdict.PRECONDITION_UNSATISFIED
MALFORMED, BAD = Verdict.MALFORMED_PLAN, Verdict.BAD_INPUT


@dataclass(frozen=True)
class Case:
    """A domain's sections and a problem's, a plan, and what is right about it: verdict, step, false conditions."""

    name: str
    domain: str
    problem: str
    plan: str
    verdict: Verdict
    step: int | None = None
    unsatisfied: tuple[str, ...] = ()


def task_of(domain: str, problem: str) -> PlanningTask:
    """Return the task of the sections of a domain and a problem."""
    return PlanningTask.from_text(f"(define (domain d) {domain})", f"(define (problem p) (:domain d) {problem})")


def verdict_of(domain: str, problem: str, plan: str) -> PlanVerdict:
    """Return the verdict on a plan text."""
    return validate_plan(task_of(domain, problem), parse_plan(plan))


TYPES = """(:types car truck - vehicle vehicle place) (:constants hub - place)
  (:predicates (at ?v - vehicle ?p - place) (seen ?p - place))
  (:action go :parameters (?v - vehicle ?p - place) :effect (at ?v ?p))
  (:action tow :parameters (?v - (either truck place)) :effect (seen hub))"""
FLEET = "(:objects c - car t - truck x - (either car place) v - vehicle l - place) (:init)"
TYPE_CASES = [
    # a car is a vehicle
    Case("subtype", TYPES, FLEET + "(:goal (at c hub))", "(go c hub)", VALID),
    # a place is no vehicle
    Case("wrong type", TYPES, FLEET + "(:goal (at c hub))", "(go l hub)", MALFORMED, 1),
    # a vehicle need not be a truck, and is no place
    Case("supertype", TYPES, FLEET + "(:goal (seen hub))", "(tow v)", MALFORMED, 1),
    # truck is one of the two
    Case("either parameter", TYPES, FLEET + "(:goal (seen hub))", "(tow t)", VALID),
    # x may be a car (so a vehicle) and may be a place: it fits both
    Case("either object", TYPES, FLEET + "(:goal (at x x))", "(go x x)", VALID),
    # hub is a constant of the domain, not among the problem's objects
    Case("constant", TYPES, FLEET + "(:goal (and (at t hub) (seen hub)))", "(go t hub) (tow hub)", VALID),
    Case("unknown object", TYPES, FLEET + "(:goal (at c hub))", "(go c zz)", MALFORMED, 1),
]

LIGHTS = """(:types lamp desk) (:predicates (lit ?l - lamp) (done) (near ?a ?b - lamp) (dusty ?d - desk))
  (:action swap :parameters (?a ?b - lamp) :precondition (not (= ?a ?b)) :effect (lit ?b))
  (:action same :parameters (?a ?b - lamp) :precondition (= ?a ?b) :effect (done))
  (:action dark :parameters (?a - lamp) :precondition (not (or (lit ?a) (done))) :effect (done))
  (:action one :parameters (?a ?b - lamp) :precondition (or (lit ?a) (lit ?b)) :effect (done))
  (:action if :parameters (?a ?b - lamp) :precondition (imply (lit ?a) (lit ?b)) :effect (done))
  (:action any :parameters () :precondition (exists (?l - lamp) (lit ?l)) :effect (done))
  (:action all :parameters () :precondition (forall (?l - lamp) (lit ?l)) :effect (done))
  (:action none :parameters () :precondition (not (exists (?l - lamp) (lit ?l))) :effect (done))
  (:action clean :parameters () :precondition (forall (?d - desk) (dusty ?d)) :effect (done))
  (:action find :parameters () :precondition (exists (?d - desk) (dusty ?d)) :effect (done))
  (:action deep :parameters () :precondition
     (forall (?a - lamp) (or (lit ?a) (exists (?b - lamp) (and (near ?a ?b) (lit ?b) (not (= ?a ?b)))))) :effect (done))
  (:action hide :parameters (?l - lamp) :precondition (and (lit ?l) (exists (?l - lamp) (not (lit ?l))))
     :effect (done))"""
TWO = "(:objects a b - lamp) (:init (lit a) (near b a)) (:goal (done))"  # b is dark, but next to a, which is lit


def wanting(goal: str) -> str:
    """Return the problem of the two lamps with another goal."""
    return TWO.replace("(done)", goal)


CONDITION_CASES = [
    Case("equality holds", LIGHTS, TWO, "(same a a)", VALID),
    Case("equality fails", LIGHTS, TWO, "(same a b)", FAILS, 1, ("(= a b)",)),
    Case("inequality fails", LIGHTS, TWO, "(swap a a)", FAILS, 1, ("(not (= a a))",)),
    Case("not or holds", LIGHTS, TWO, "(dark b)", VALID),
    Case("not or fails", LIGHTS, TWO, "(dark a)", FAILS, 1, ("(not (or (lit a) (done)))",)),
    Case("or by one part", LIGHTS, TWO, "(one b a)", VALID),
    Case("or fails", LIGHTS, TWO, "(one b b)", FAILS, 1, ("(or (lit b) (lit b))",)),
    Case("imply vacuous", LIGHTS, TWO, "(if b a)", VALID),
    Case("imply fails", LIGHTS, TWO, "(if a b)", FAILS, 1, ("(imply (lit a) (lit b))",)),
    Case("imply by conclusion", LIGHTS, TWO, "(swap a b) (if a b)", VALID),
    Case("exists", LIGHTS, TWO, "(any)", VALID),
    Case("not exists fails", LIGHTS, TWO, "(none)", FAILS, 1, ("(not (exists (?l - lamp) (lit ?l)))",)),
    Case("forall fails", LIGHTS, TWO, "(all)", FAILS, 1, ("(forall (?l - lamp) (lit ?l))",)),
    Case("forall after the last", LIGHTS, TWO, "(swap a b) (all)", VALID),
    Case("forall of an empty type", LIGHTS, TWO, "(clean)", VALID),
    Case("exists in an empty type", LIGHTS, TWO, "(find)", FAILS, 1, ("(exists (?d - desk) (dusty ?d))",)),
    # a is lit; b is dark, but near a, which is lit and another
    Case("nested quantifiers", LIGHTS, TWO, "(deep)", VALID),
    # now nothing is near b
    Case("nested quantifiers fail", LIGHTS, TWO.replace("(near b a)", "(near a b)"), "(deep)", FAILS, 1, (
        "(forall (?a - lamp) (or (lit ?a) (exists (?b - lamp) (and (near ?a ?b) (lit ?b) (not (= ?a ?b))))))",)),
    # the inner ?l ranges over all lamps, whatever the parameter is: b is dark
    Case("shadowed variable", LIGHTS, TWO, "(hide a)", VALID),
    # with both lit no lamp is dark
    Case("shadowed variable fails", LIGHTS, TWO, "(swap a b) (hide a)", FAILS, 2,
         ("(exists (?l - lamp) (not (lit ?l)))",)),
    # goals: a lit but b not -> the or holds by its first part, the forall does not
    Case("goal with connectives", LIGHTS, wanting("(and (or (lit a) (done)) (forall (?l - lamp) (lit ?l)))"),
         "", UNMET, None, ("(forall (?l - lamp) (lit ?l))",)),
    Case("goal with connectives reached", LIGHTS, wanting("(imply (lit a) (lit b))"), "(swap a b)", VALID),
    # the inner ?l hides the outer one: there is a lit lamp and a dark one, so both hold; for one ?l they could not
    Case("quantifier hides quantifier", LIGHTS,
         wanting("(forall (?l - lamp) (and (exists (?l - lamp) (lit ?l)) (exists (?l - lamp) (not (lit ?l)))))"), "",
         VALID),
]  # fmt: skip

SWITCH = """(:types lamp) (:predicates (lit ?l - lamp) (was ?l - lamp) (power))
  (:action press :parameters (?l - lamp)
     :effect (and (when (lit ?l) (not (lit ?l))) (when (not (lit ?l)) (lit ?l))))
  (:action flash :parameters (?l - lamp) :effect (and (not (lit ?l)) (lit ?l)))
  (:action clash :parameters (?l - lamp) :effect (and (lit ?l) (when (power) (not (lit ?l)))))
  (:action move :parameters (?a ?b - lamp)
     :effect (and (when (lit ?a) (and (lit ?b) (not (lit ?a)))) (when (lit ?b) (and (lit ?a) (not (lit ?b))))))
  (:action off :parameters () :effect (forall (?l - lamp) (when (lit ?l) (and (was ?l) (not (lit ?l))))))
  (:action on :parameters () :effect (forall (?l - lamp) (lit ?l)))
  (:action pair :parameters () :effect
     (forall (?a - lamp) (when (exists (?b - lamp) (and (lit ?b) (not (= ?a ?b)))) (was ?a))))"""


def lamps(goal: str) -> str:
    """Return the problem with the lamps a (lit), b and c, power on, and this goal."""
    return f"(:objects a b c - lamp) (:init (lit a) (power)) (:goal (and {goal}))"


EFFECT_CASES = [
    # pressing reads the state before: a goes out, b goes on
    Case("when both ways", SWITCH, lamps("(not (lit a)) (lit b)"), "(press a) (press b)", VALID),
    Case("when twice undoes", SWITCH, lamps("(not (lit a))"), "(press a) (press a)", UNMET, None, ("(not (lit a))",)),
    # deleted and added: true
    Case("add wins", SWITCH, lamps("(lit b)"), "(flash b)", VALID),
    # the add is unconditional, the delete fires too (power): true
    Case("add wins over a conditional delete", SWITCH, lamps("(lit b)"), "(clash b)", VALID),
    # a lit, b not: only the first fires; an order of execution would carry the light back to a
    Case("effects read the state before", SWITCH, lamps("(lit b) (not (lit a))"), "(move a b)", VALID),
    # both lit: each is added and deleted, so both stay lit
    Case("swap of two lit", SWITCH, lamps("(lit a) (lit b)"), "(press b) (move a b)", VALID),
    Case("forall when", SWITCH, lamps("(was a) (not (was b)) (not (lit a))"), "(off)", VALID),
    Case("forall when for each", SWITCH, lamps("(was b)"), "(off)", UNMET, None, ("(was b)",)),
    Case("forall", SWITCH, lamps("(lit a) (lit b) (lit c)"), "(on)", VALID),
    # another lamp is lit (a) for b and c, but not for a itself
    Case("exists under when under forall", SWITCH, lamps("(was b) (was c) (not (was a))"), "(pair)", VALID),
    Case("exists under when fails", SWITCH, lamps("(was a)"), "(pair)", UNMET, None, ("(was a)",)),
]

ROADS = """(:types node) (:predicates (road ?a ?b - node) (at ?n - node) (mud ?n - node)
     (path ?a ?b - node) (cut ?n - node) (wet ?n - node) (here ?n - node))
  (:derived (path ?a ?b - node) (or (road ?a ?b) (exists (?c - node) (and (road ?a ?c) (path ?c ?b)))))
  (:derived (cut ?n - node) (and (not (at ?n)) (not (exists (?m - node) (and (at ?m) (path ?m ?n))))))
  (:derived (here ?n - node) (at ?n))
  (:derived (wet ?n - node) (mud ?n))
  (:derived (wet ?n - node) (exists (?m - node) (and (mud ?m) (road ?m ?n))))
  (:action build :parameters (?a ?b - node) :precondition (here ?a) :effect (road ?a ?b))
  (:action jump :parameters (?a ?b - node) :precondition (and (at ?a) (path ?a ?b)) :effect (and (at ?b) (not (at ?a))))
  (:action fly :parameters (?a ?b - node) :precondition (and (at ?a) (cut ?b)) :effect (and (at ?b) (not (at ?a))))
  (:action dry :parameters () :effect (forall (?n - node) (when (not (wet ?n)) (mud ?n))))"""


def roads(goal: str, init: str = "(road n1 n2) (road n2 n3) (road n3 n1) (road n4 n3) (at n1)") -> str:
    """Return the problem with a ring n1 n2 n3, a road from n4 into it and none to it."""
    return f"(:objects n1 n2 n3 n4 - node) (:init {init}) (:goal (and {goal}))"


DERIVED_CASES = [
    Case("plain", ROADS, roads("(here n1)"), "", VALID),
    Case("plain precondition fails", ROADS, roads("(at n1)"), "(build n2 n4)", FAILS, 1, ("(here n2)",)),
    # n1 -> n2 -> n3
    Case("recursive", ROADS, roads("(at n3)"), "(jump n1 n3)", VALID),
    # the ring closes: n1 -> n2 -> n3 -> n1; a fixpoint, not an endless descent
    Case("recursive around a ring", ROADS, roads("(path n1 n1)"), "", VALID),
    # no road leads to n4
    Case("recursive fails", ROADS, roads("(at n4)"), "(jump n1 n4)", FAILS, 1, ("(path n1 n4)",)),
    Case("recursive after a new fact", ROADS, roads("(at n4)"), "(build n1 n4) (jump n1 n4)", VALID),
    # n4 cannot be reached, so it is cut off; n3 can
    Case("negated lower stratum", ROADS, roads("(at n4)"), "(fly n1 n4)", VALID),
    Case("negated lower stratum fails", ROADS, roads("(at n3)"), "(fly n1 n3)", FAILS, 1, ("(cut n3)",)),
    Case("negative goal", ROADS, roads("(not (cut n4))"), "", UNMET, None, ("(not (cut n4))",)),
    # two rules: n1 by the first, n2 (next to n1) by the second, n3 by none
    Case("two rules", ROADS, roads("(wet n1) (wet n2) (not (wet n3))", "(road n1 n2) (mud n1)"), "", VALID),
    # dry reads the state before: n3 and n4 were not wet, so they get mud; n2 was wet, so it gets none
    Case("in a conditional effect", ROADS, roads("(mud n3) (mud n4) (not (mud n2))", "(road n1 n2) (mud n1)"),
         "(dry)", VALID),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", [*TYPE_CASES, *CONDITION_CASES, *EFFECT_CASES, *DERIVED_CASES], ids=lambda case: case.name
)
def test_validate_plan_construct_gives_the_verdict_of_its_definition(case: Case) -> None:
    verdict = verdict_of(case.domain, case.problem, case.plan)
    found = (verdict.verdict, verdict.failed_step, tuple(map(str, verdict.unsatisfied)))
    assert found == (case.verdict, case.step, case.unsatisfied)


COSTS = """(:types t) (:predicates (p ?x - t) (hot)) (:functions (total-cost) - number (price ?x - t) - number)
  (:action fixed :parameters (?x - t) :effect (and (p ?x) (increase (total-cost) 3)))
  (:action priced :parameters (?x - t) :effect (and (p ?x) (increase (total-cost) (price ?x))))
  (:action extra :parameters (?x - t) :effect (and (p ?x) (when (hot) (increase (total-cost) 10))
     (forall (?y - t) (when (p ?y) (increase (total-cost) 2)))))
  (:action free :parameters (?x - t) :effect (p ?x))"""


def priced(plan: str, init: str, metric: str = "(:metric minimize (total-cost))") -> PlanVerdict:
    """Return the verdict on a plan for (p a) where a costs 7 and b has no price."""
    return verdict_of(COSTS, f"(:objects a b - t) (:init (= (price a) 7) {init}) (:goal (p a)) {metric}", plan)


@pytest.mark.parametrize(
    ("plan", "init", "metric", "cost"),
    [
        ("(fixed a) (fixed b)", "(= (total-cost) 0)", "(:metric minimize (total-cost))", 6),
        ("(priced a) (fixed a)", "(= (total-cost) 0)", "(:metric minimize (total-cost))", 10),
        ("(fixed a)", "(= (total-cost) 5)", "(:metric minimize (total-cost))", 8),
        ("(fixed a)", "", "(:metric minimize (total-cost))", 3),
        ("(fixed a) (priced a)", "(= (total-cost) 0)", "", 2),
        ("(free a)", "(= (total-cost) 0)", "(:metric minimize (total-cost))", 0),
        ("(extra a)", "(= (total-cost) 0)", "(:metric minimize (total-cost))", 0),  # nothing is true before
        ("(extra a)", "(= (total-cost) 0) (hot) (p a) (p b)", "(:metric minimize (total-cost))", 14),  # 10 + 2 + 2
    ],
    ids=["numbers", "function", "starts at 5", "no start", "no metric", "free", "conditional none", "conditional all"],
)
def test_validate_plan_cost_is_the_sum_over_the_steps(plan: str, init: str, metric: str, cost: int) -> None:
    verdict = priced(plan, init, metric)
    assert (verdict.verdict, verdict.cost) == (VALID, cost)


def test_validate_plan_cost_without_value_is_bad_input_naming_it() -> None:
    verdict = priced("(fixed a) (priced b)", "")
    assert (verdict.verdict, verdict.failed_step, verdict.cost) == (BAD, 2, None)
    assert "(price b)" in verdict.reason


def test_validate_plan_cost_without_value_does_not_matter_where_the_step_is_not_reached() -> None:
    domain = COSTS.replace("(:action free", "(:action no :parameters () :precondition (hot)) (:action free")
    verdict = verdict_of(domain, "(:objects a b - t) (:init) (:goal (p a))", "(no) (priced b)")
    assert (verdict.verdict, verdict.failed_step) == (FAILS, 1)


def test_validate_plan_without_costs_counts_steps() -> None:
    assert verdict_of(SWITCH, lamps("(lit a)"), "(on) (on)").cost == 2


@pytest.mark.parametrize(
    "construct",
    ["precondition", "effect", "goal"],
)
def test_expansion_of_a_huge_quantifier_is_refused_by_name(construct: str) -> None:
    objects = " ".join(f"o{number}" for number in range(60))  # 60 ** 4 is 12,960,000
    many = "forall (?a ?b ?c ?d)"
    precondition = f"({many} (r ?a ?b ?c ?d))" if construct == "precondition" else "()"
    effect = f"({many} (r ?a ?b ?c ?d))" if construct == "effect" else "(p)"
    goal = f"({many} (r ?a ?b ?c ?d))" if construct == "goal" else "(p)"
    domain = f"""(:predicates (p) (r ?a ?b ?c ?d))
      (:action touch :parameters (?a ?b ?c ?d) :effect (r ?a ?b ?c ?d))
      (:action act :parameters () :precondition {precondition} :effect {effect})"""
    with pytest.raises(BadInputError, match="too many instances"):
        verdict_of(domain, f"(:objects {objects}) (:init) (:goal {goal})", "(act)")


def action_of(task: PlanningTask, step: str) -> GroundAction:
    """Return the ground action of a step."""
    action = task.ground(parse_step(step))
    assert isinstance(action, GroundAction)
    return action


def test_changes_of_conditional_effects_are_those_of_the_state() -> None:
    task = task_of(SWITCH, lamps("(lit b)"))
    off = action_of(task, "(off)")
    added, deleted = off.changes(task.initial_state)
    assert (task.atoms_of(added), task.atoms_of(deleted)) == (atoms("(was a)"), atoms("(lit a)"))
    resolved = off.resolved(task.initial_state)
    assert (resolved.add_effects, resolved.delete_effects) == (atoms("(was a)"), atoms("(lit a)"))
    assert (off.add_effects, off.delete_effects, resolved.conditional) == ((), (), ())


def test_changes_of_an_atom_added_and_deleted_are_an_addition_only() -> None:
    task = task_of(SWITCH, lamps("(lit b)"))
    b = task.state_of(atoms("(lit b)"))
    assert [action_of(task, step).changes(task.initial_state) for step in ("(flash b)", "(clash b)")] == [
        (b, 0),
        (b, 0),
    ]


def test_effects_of_literals_come_before_those_of_forall() -> None:
    domain = "(:predicates (p ?x) (q)) (:action t :parameters () :effect (and (forall (?x) (p ?x)) (q)))"
    task = task_of(domain, "(:objects a b) (:init) (:goal (q))")
    assert action_of(task, "(t)").add_effects == atoms("(q) (p a) (p b)")


@pytest.mark.parametrize(
    ("claim", "missing", "kept", "lost", "invented"),
    [
        ("(was a) (power)", "", "", "", ""),
        ("(power)", "(was a)", "", "", ""),
        ("(was a) (power) (lit a)", "", "(lit a)", "", ""),
        ("(was a)", "", "", "(power)", ""),
        ("(was a) (power) (was b)", "", "", "", "(was b)"),  # b was dark: its conditional effect does not take place
    ],
    ids=["right", "missing", "kept", "lost", "effect that does not fire"],
)
def test_judge_step_conditional_effects_are_those_of_the_state(
    claim: str, missing: str, kept: str, lost: str, invented: str
) -> None:
    task = task_of(SWITCH, lamps("(lit b)"))
    judgement = judge_step(task, task.initial_state, parse_step("(off)"), task.state_of(atoms(claim)))
    found = (judgement.missing_effects, judgement.kept_deletes, judgement.lost_atoms, judgement.invented_atoms)
    assert found == tuple(map(atoms, (missing, kept, lost, invented)))
    assert (judgement.code is FeedbackCode.OK) == (judgement.state_distance == 0) == (not any(found))


def test_judge_step_derived_atoms_in_a_claim_are_ignored() -> None:
    task = task_of(ROADS, roads("(at n3)"))
    after = atoms("(road n1 n2) (road n2 n3) (road n3 n1) (road n4 n3) (at n3)")
    for told in ("", "(path n1 n2)", "(path n1 n4)"):  # none, a true one, a false one
        claim = task.state_of((*after, *atoms(told)))
        judgement = judge_step(task, task.initial_state, parse_step("(jump n1 n3)"), claim)
        assert (judgement.code, judgement.state_distance) == (FeedbackCode.OK, 0)


def test_holds_derived_atom_claimed_in_a_state_does_not_make_it_true() -> None:
    task = task_of(ROADS, roads("(at n4)"))
    claimed = task.state_of((*task.problem.init, *atoms("(path n1 n4)")))
    assert not action_of(task, "(jump n1 n4)").is_applicable(claimed)


def test_chain_of_plan_conditional_effects_tell_the_changes_of_the_state() -> None:
    chain = chain_of_plan(task_of(SWITCH, lamps("(lit b)")), parse_plan("(press a) (press b)"))
    assert [(step.added, step.deleted) for step in chain.steps] == [((), atoms("(lit a)")), (atoms("(lit b)"), ())]
    assert chain.verdict == "VALID"


def test_chain_of_plan_quantified_precondition_is_told_as_one_condition() -> None:
    (step,) = chain_of_plan(task_of(LIGHTS, TWO), parse_plan("(any)")).steps
    assert [str(condition) for condition in step.preconditions] == ["(exists (?l - lamp) (lit ?l))"]
    assert step.unsatisfied == ()
    assert step.next_state is not None


GOALS = parse_domain("""(define (domain g) (:predicates (p ?x) (q ?x ?y)) (:functions (total-cost) (price ?x))
  (:constants k) (:action t :parameters (?x) :effect (and (p ?x) (increase (total-cost) (price ?x)))))""")
GOAL = "(and (p b) (or (q a b) (p k)) (forall (?x) (imply (q ?x a) (p ?x))) (not (and (p a) (p b))))"
VALUES = "(= (price a) 1) (= (price b) 2)"


def goal_problem(goal: str = GOAL, values: str = VALUES, metric: str = "(:metric minimize (total-cost))") -> Problem:
    """Return a problem whose objects a, b and c differ by price and goal only."""
    text = f"(define (problem g) (:domain g) (:objects a b c) (:init (p a) (q b c) {values}) (:goal {goal}) {metric})"
    return parse_problem(text, GOALS)


@given(st.integers(0, 10**6))
def test_canonical_form_renamed_goal_with_connectives_and_prices_is_the_same(seed: int) -> None:
    rng, problem = random.Random(seed), goal_problem()
    renaming = dict(zip("abc", rng.sample("uvwxyz", 3), strict=True))
    renamed = rename_problem(problem, renaming, rng)
    assert canonical_form(GOALS, renamed) == canonical_form(GOALS, problem)
    assert (renamed.metric, len(renamed.function_values)) == ("total-cost", 2)
    plans = [parse_plan(text) for text in ("(t a)", "(t b)", "(t c)", "(t a) (t b) (t c)")]
    before = [validate_plan(PlanningTask(GOALS, problem), plan) for plan in plans]
    after = [validate_plan(PlanningTask(GOALS, renamed), rename_plan(plan, renaming)) for plan in plans]
    assert [(v.verdict, v.cost) for v in before] == [(v.verdict, v.cost) for v in after]


@pytest.mark.parametrize(
    "other",
    [
        goal_problem(GOAL.replace("(q a b)", "(q b a)")),
        goal_problem(GOAL.replace("(p k)", "(p a)")),
        goal_problem(GOAL.replace("imply (q ?x a)", "or (q ?x a)")),
        goal_problem(GOAL.replace("forall", "exists")),
        goal_problem(GOAL.replace("(not (and", "(not (or")),
        goal_problem(values=VALUES.replace("2", "3")),
        goal_problem(values="(= (price a) 2) (= (price b) 1)"),
        goal_problem(metric=""),
    ],
    ids=["arguments", "object", "connective", "quantifier", "under not", "value", "values swapped", "metric"],
)
def test_canonical_form_another_goal_value_or_metric_differs(other: Problem) -> None:
    assert canonical_form(GOALS, other) != canonical_form(GOALS, goal_problem())


@pytest.mark.parametrize("corruption", [Corruption.WRONG_EFFECT, Corruption.FRAME_VIOLATED])
def test_corrupt_plan_with_conditional_effects_shows_exactly_its_fault(corruption: Corruption) -> None:
    task = task_of(SWITCH, lamps("(lit b) (was a)"))
    plan = parse_plan("(press b) (off) (press b)")
    assert validate_plan(task, plan).is_valid
    for seed in range(20):
        shown = corrupt_plan(task, plan, corruption, random.Random(seed))
        assert shown is not None and shows_exactly(task, shown)
        assert not shows_exactly(task, replace(shown, claims=()))

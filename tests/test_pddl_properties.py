"""What holds for every domain, problem and plan: random ADL tasks against a slow evaluator that knows no bits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from conftest import BLOCKS, print_plan, random_walk
from hypothesis import given, settings
from hypothesis import strategies as st

from plansmith.pddl.conditions import ground_condition
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import GroundAction, PlanningTask
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    TOTAL_COST,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    Conjunction,
    CostIncrease,
    DerivedPredicate,
    Disjunction,
    Domain,
    Effect,
    FunctionSchema,
    FunctionValue,
    Implication,
    Literal,
    Negation,
    PlanStep,
    PredicateSchema,
    Problem,
    Quantification,
    TypedName,
    UniversalEffect,
)
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import applicable_actions
from plansmith.pddl.validation import Verdict, validate_plan, validate_plan_text

TYPES = (TypedName("t"), TypedName("u", ("t",)), TypedName("v"), TypedName("w", ("u", "v")))
"""w is below u and v, u below t."""
ABOVE = {OBJECT: {OBJECT}, "t": {"t", OBJECT}, "u": {"u", "t", OBJECT}, "v": {"v", OBJECT}}
ABOVE["w"] = {"w", "u", "t", "v", OBJECT}
KINDS = [(OBJECT,), ("t",), ("u",), ("v",), ("u", "v"), ("w", "v")]
CONSTANTS = (TypedName("k", ("t",)),)
BASIC = tuple(
    PredicateSchema(name, tuple(TypedName(f"?a{place}", kinds) for place, kinds in enumerate(parameters)))
    for name, parameters in {
        "n": [], "p": [(OBJECT,)], "q": [("t",)], "r": [(OBJECT,), ("t",)], "s": [("u", "v"), (OBJECT,)],
        "fixed": [("t",)],
    }.items()
)  # fmt: skip
DERIVED = tuple(PredicateSchema(f"d{level}", (TypedName("?a", kinds),)) for level, kinds in enumerate(KINDS[:3]))
"""d0 is below d1, d1 below d2: a rule negates only what is below its head."""
FUNCTIONS = (FunctionSchema(TOTAL_COST), FunctionSchema("c", (TypedName("?a", (OBJECT,)),)))
Scope = Mapping[str, tuple[str, ...]]
"""Variables and objects with their types."""


def fits(own: Iterable[str], wanted: Iterable[str]) -> bool:
    """Return whether something of one of the types `own` may stand where one of `wanted` is declared."""
    return any(ABOVE[one] & set(wanted) for one in own)


# --- random tasks


class Writer:
    """Draws conditions and effects that a reader accepts as they are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def parameters(self, names: str, at_most: int = 2) -> tuple[TypedName, ...]:
        chosen = self.rng.sample(names.split(), self.rng.randint(1, at_most))
        return tuple(TypedName(name, self.rng.choice(KINDS)) for name in chosen)

    def atom(self, predicates: Iterable[PredicateSchema], scope: Scope) -> Atom | None:
        schema = self.rng.choice(list(predicates))
        arguments = []
        for parameter in schema.parameters:
            fitting = sorted(name for name, types in scope.items() if fits(types, parameter.types))
            if not fitting:
                return None
            arguments.append(self.rng.choice(fitting))
        return Atom(schema.name, tuple(arguments))

    def condition(self, scope: Scope, depth: int, level: int, sign: bool = True) -> Condition:
        """Return a condition that may use d0 .. d(level - 1), and d(level) where it is not negated."""
        kind = self.rng.choice(["literal", "and", "or", "not", "imply", "forall", "exists"]) if depth else "literal"

        def inner(own: Scope = scope, flip: bool = False) -> Condition:
            return self.condition(own, depth - 1, level, sign != flip)

        match kind:
            case "and" | "or":
                parts = tuple(inner() for _ in range(self.rng.choice([0, 1, 2, 2, 3])))
                return Conjunction(parts) if kind == "and" else Disjunction(parts)
            case "not":
                part = inner(flip=True)
                positive = isinstance(part, Literal) and part.is_positive
                return replace(part, is_positive=False) if positive else Negation(part)  # type: ignore[arg-type]
            case "imply":
                return Implication(inner(flip=True), inner())
            case "forall" | "exists":
                parameters = self.parameters("?x ?y ?z")
                return Quantification(
                    kind == "forall", parameters, inner({**scope, **{one.name: one.types for one in parameters}})
                )
        return self.literal(scope, level, sign)

    def literal(self, scope: Scope, level: int, sign: bool) -> Condition:
        is_positive = self.rng.random() < 0.6
        if scope and self.rng.random() < 0.15:
            return Literal(Atom(EQUALITY, tuple(self.rng.choices(sorted(scope), k=2))), is_positive)
        usable = level + 1 if is_positive == sign else level
        pool = DERIVED[:usable] if usable and self.rng.random() < 0.4 else BASIC
        atom = self.atom(pool, scope)
        return Conjunction() if atom is None else Literal(atom, is_positive)

    def effects(self, scope: Scope, depth: int) -> tuple[Effect, ...]:
        found = [self.effect(scope, depth) for _ in range(self.rng.randint(0 if depth < 2 else 1, 3))]
        return tuple(dict.fromkeys(one for one in found if one is not None))

    def effect(self, scope: Scope, depth: int) -> Effect | None:
        kind = self.rng.choice(["literal", "literal", "when", "forall", "cost"]) if depth else "literal"
        if kind == "when":
            return ConditionalEffect(self.condition(scope, 1, len(DERIVED)), self.effects(scope, depth - 1))
        if kind == "forall":
            parameters = self.parameters("?x ?m", 1)
            inner = {**scope, **{one.name: one.types for one in parameters}}
            return UniversalEffect(parameters, self.effects(inner, depth - 1))
        if kind == "cost":
            amount = self.atom(FUNCTIONS[1:], scope)  # type: ignore[arg-type]
            return CostIncrease(self.rng.choice([0, 1, 2.5]) if amount is None or self.rng.random() < 0.5 else amount)
        atom = self.atom([schema for schema in BASIC if schema.name != "fixed"], scope)
        return None if atom is None else Literal(atom, self.rng.random() < 0.55)

    def action(self, name: str, constants: Scope) -> ActionSchema:
        parameters = self.parameters("?x ?y ?v") if self.rng.random() < 0.9 else ()
        scope = {**constants, **{one.name: one.types for one in parameters}}
        precondition = self.condition(scope, self.rng.randint(0, 3), len(DERIVED))
        return ActionSchema(name, parameters, precondition, self.effects(scope, 2))

    def rule(self, level: int, constants: Scope) -> DerivedPredicate:
        head = DERIVED[level]
        parameters = (replace(head.parameters[0], name=self.rng.choice(["?x", "?a"])),)
        scope = {**constants, parameters[0].name: parameters[0].types}
        return DerivedPredicate(head.name, parameters, self.condition(scope, 2, level))


def random_domain(seed: int) -> Domain:
    """Return the random domain of a seed."""
    rng = random.Random(seed)
    writer = Writer(rng)
    scope = {one.name: one.types for one in CONSTANTS}
    levels = rng.choices(range(len(DERIVED)), k=rng.randint(0, 5))
    return Domain(
        name="d",
        requirements=tuple(rng.sample([":adl", ":typing", ":strips"], rng.randint(0, 3))),
        types=TYPES,
        constants=CONSTANTS,
        predicates=(*BASIC, *DERIVED),
        actions=tuple(writer.action(f"a{number}", scope) for number in range(rng.randint(1, 4))),
        functions=FUNCTIONS,
        derived=tuple(writer.rule(level, scope) for level in levels),
    )


def random_problem(seed: int) -> Problem:
    """Return the random problem of a seed, for any of the domains."""
    rng = random.Random(seed)
    objects = tuple(TypedName(f"o{number}", rng.choice(KINDS)) for number in range(rng.randint(0, 4)))
    scope = {one.name: one.types for one in (*CONSTANTS, *objects)}
    writer = Writer(rng)
    init = [writer.atom(BASIC, scope) for _ in range(rng.randint(0, 14))]
    return Problem(
        name="p",
        domain_name="d",
        objects=objects,
        init=tuple(dict.fromkeys(atom for atom in init if atom is not None)),
        goal=writer.condition(scope, rng.randint(0, 2), len(DERIVED)),
        function_values=tuple(FunctionValue(Atom("c", (name,)), rng.choice([0, 3, 0.5])) for name in scope),
        metric=rng.choice([None, TOTAL_COST, "total-time"]),
    )


SEEDS = st.integers(0, 10**9)
domains = st.builds(random_domain, SEEDS)
problems = st.builds(random_problem, SEEDS)
tasks = st.builds(PlanningTask, domains, problems)


def random_plan(task: PlanningTask, rng: random.Random) -> tuple[PlanStep, ...]:
    """Return a walk with some steps exchanged for any step, well-formed or not."""
    plan = list(random_walk(task, rng.randint(0, 5), rng))
    names = [*task.objects, "nobody"]
    for _ in range(rng.randint(0, 2)):
        schema = rng.choice(task.domain.actions)
        step = PlanStep(schema.name, tuple(rng.choice(names) for _ in schema.parameters))
        plan.insert(rng.randint(0, len(plan)), step)
    return tuple(plan)


# --- the slow evaluator


class Slow:
    """The textbook's definitions over sets of atoms."""

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self.domain = domain
        self.types = {one.name: one.types for one in (*domain.constants, *problem.objects)}
        self.values = {one.term: one.value for one in problem.function_values}

    def bindings(self, parameters: tuple[TypedName, ...]) -> Iterator[dict[str, str]]:
        fitting = [[name for name, own in self.types.items() if fits(own, one.types)] for one in parameters]
        for names in product(*fitting):
            yield dict(zip([one.name for one in parameters], names, strict=True))

    def holds(self, condition: Condition, binding: dict[str, str], true: set[Atom]) -> bool:
        """Return whether a condition is true where exactly `true` are the true atoms, derived ones included."""
        match condition:
            case Literal(atom, is_positive):
                names = tuple(binding.get(name, name) for name in atom.arguments)
                is_true = names[0] == names[1] if atom.predicate == EQUALITY else Atom(atom.predicate, names) in true
                return is_true == is_positive
            case Conjunction(parts):
                return all(self.holds(part, binding, true) for part in parts)
            case Disjunction(parts):
                return any(self.holds(part, binding, true) for part in parts)
            case Negation(part):
                return not self.holds(part, binding, true)
            case Implication(premise, conclusion):
                return not self.holds(premise, binding, true) or self.holds(conclusion, binding, true)
            case Quantification(is_universal, parameters, part):
                found = [self.holds(part, {**binding, **inner}, true) for inner in self.bindings(parameters)]
                return all(found) if is_universal else any(found)

    def closure(self, basic: set[Atom]) -> set[Atom]:
        """Return the atoms with the least set of derived atoms that the rules ask for, stratum by stratum."""
        true = set(basic)
        for schema in DERIVED:
            rules = [rule for rule in self.domain.derived if rule.predicate == schema.name]
            while (
                new := {
                    Atom(rule.predicate, tuple(binding.values()))
                    for rule in rules
                    for binding in self.bindings(rule.parameters)
                    if self.holds(rule.condition, binding, true)
                }
                - true
            ):
                true |= new
        return true

    def changes(
        self, effects: tuple[Effect, ...], binding: dict[str, str], true: set[Atom]
    ) -> tuple[set[Atom], set[Atom], float]:
        """Return what effects add, delete and cost in a state."""
        added, deleted, cost = set[Atom](), set[Atom](), 0.0
        for effect in effects:
            inner: list[tuple[set[Atom], set[Atom], float]] = []
            match effect:
                case Literal(atom, is_positive):
                    (added if is_positive else deleted).add(atom.substitute(binding))
                case ConditionalEffect(condition, parts):
                    if self.holds(condition, binding, true):
                        inner = [self.changes(parts, binding, true)]
                case UniversalEffect(parameters, parts):
                    inner = [self.changes(parts, {**binding, **one}, true) for one in self.bindings(parameters)]
                case CostIncrease(amount):
                    cost += self.values[amount.substitute(binding)] if isinstance(amount, Atom) else amount
            for more_added, more_deleted, more_cost in inner:
                added, deleted, cost = added | more_added, deleted | more_deleted, cost + more_cost
        return added, deleted, cost

    def all_steps(self) -> Iterator[tuple[ActionSchema, dict[str, str]]]:
        for schema in self.domain.actions:
            for binding in self.bindings(schema.parameters):
                yield schema, binding


def slow(task: PlanningTask) -> Slow:
    """Return the slow evaluator of a task."""
    return Slow(task.domain, task.problem)


def true_atoms(task: PlanningTask, state: int) -> set[Atom]:
    """Return the basic atoms of a state."""
    return set(task.atoms_of(task.basic_atoms(state)))


def states_of(task: PlanningTask, seed: int) -> list[int]:
    """Return the states of a random walk."""
    return list(validate_plan(task, random_walk(task, 4, random.Random(seed))).states)


# --- properties


@settings(max_examples=100)
@given(domains, problems)
def test_print_then_parse_returns_the_same_domain_and_problem(domain: Domain, problem: Problem) -> None:
    assert parse_domain(print_domain(domain)) == domain
    assert parse_problem(print_problem(problem), domain) == problem


@settings(max_examples=60)
@given(tasks, SEEDS)
def test_print_then_parse_returns_the_same_plan(task: PlanningTask, seed: int) -> None:
    plan = random_plan(task, random.Random(seed))
    assert parse_plan(print_plan(plan)) == plan
    assert validate_plan_text(task, print_plan(plan)) == validate_plan(task, plan)


@settings(max_examples=100)
@given(domains, problems, SEEDS)
def test_ground_condition_has_the_value_of_the_slow_evaluation(domain: Domain, problem: Problem, seed: int) -> None:
    task, rng = PlanningTask(domain, problem), random.Random(seed)
    parameters = Writer(rng).parameters("?x ?y ?v")
    scope = {name: typed.types for name, typed in task.objects.items()}
    scope |= {one.name: one.types for one in parameters}
    conditions = [Writer(rng).condition(scope, 3, len(DERIVED)) for _ in range(4)]
    judge = slow(task)
    for state in states_of(task, seed):
        true = judge.closure(true_atoms(task, state))
        for condition, binding in product(conditions, judge.bindings(parameters)):
            expected = judge.holds(condition, binding, true)
            compiled = task.with_derived(ground_condition(task, condition, binding))
            assert compiled.holds(state) == expected, condition
            assert task.holds(condition.substitute(binding), state) == expected, condition
        assert task.is_goal(state) == judge.holds(problem.goal, {}, true)


@settings(max_examples=100)
@given(tasks, SEEDS)
def test_applicable_actions_are_those_of_all_steps_whose_precondition_holds(task: PlanningTask, seed: int) -> None:
    judge = slow(task)
    for state in states_of(task, seed):
        true = judge.closure(true_atoms(task, state))
        expected = [
            PlanStep(schema.name, tuple(binding.values()))
            for schema, binding in judge.all_steps()
            if judge.holds(schema.precondition, binding, true)
        ]
        assert [action.step for action in applicable_actions(task, state)] == expected
        assert [action.step for action in task.ground_actions() if action.is_applicable(state)] == expected


@settings(max_examples=100)
@given(tasks, SEEDS)
def test_effects_read_the_state_before_and_adding_wins_over_deleting(task: PlanningTask, seed: int) -> None:
    judge = slow(task)
    for state in states_of(task, seed):
        basic = true_atoms(task, state)
        true = judge.closure(basic)
        for schema, binding in judge.all_steps():
            action = task.ground(PlanStep(schema.name, tuple(binding.values())))
            assert isinstance(action, GroundAction)
            added, deleted, _ = judge.changes(schema.effects, binding, true)
            after = true_atoms(task, action.apply(state))
            assert added <= after  # also what was deleted
            assert after == (basic - deleted) | added
            assert true_atoms(task, action.resolved(state).apply(state)) == after


@settings(max_examples=100)
@given(tasks, SEEDS)
def test_random_walk_is_a_plan_that_fails_at_most_at_the_goal(task: PlanningTask, seed: int) -> None:
    plan = random_walk(task, 6, random.Random(seed))
    verdict = validate_plan(task, plan)
    assert verdict.verdict in (Verdict.VALID, Verdict.GOAL_NOT_REACHED)
    assert len(verdict.states) == len(plan) + 1
    true = slow(task).closure(true_atoms(task, verdict.states[-1]))
    assert verdict.is_valid == slow(task).holds(task.problem.goal, {}, true)


@settings(max_examples=100)
@given(tasks, SEEDS)
def test_failed_step_is_the_first_that_cannot_be_applied(task: PlanningTask, seed: int) -> None:
    plan, judge = random_plan(task, random.Random(seed)), slow(task)
    verdict = validate_plan(task, plan)
    if verdict.verdict is Verdict.MALFORMED_PLAN:
        assert verdict.failed_step is not None
        bad = plan[verdict.failed_step - 1]
        assert bad not in [PlanStep(schema.name, tuple(binding.values())) for schema, binding in judge.all_steps()]
        return
    state, failed, total = set(task.problem.init), None, 0.0
    for number, step in enumerate(plan, 1):
        schema = task.domain.action(step.name)
        assert schema is not None
        binding = dict(zip([one.name for one in schema.parameters], step.arguments, strict=True))
        true = judge.closure(state)
        if not judge.holds(schema.precondition, binding, true):
            failed = number
            break
        added, deleted, cost = judge.changes(schema.effects, binding, true)
        state, total = (state - deleted) | added, total + cost
    assert verdict.failed_step == failed
    assert verdict.cost == (total if task.problem.metric == TOTAL_COST else len(verdict.states) - 1)
    assert true_atoms(task, verdict.states[-1]) == state


def renamed(problem: Problem, names: Mapping[str, str]) -> Problem:
    """Return the problem with other names for its objects."""
    return replace(
        problem,
        objects=tuple(replace(one, name=names[one.name]) for one in problem.objects),
        init=tuple(atom.substitute(names) for atom in problem.init),
        goal=problem.goal.substitute(names),
        function_values=tuple(FunctionValue(one.term.substitute(names), one.value) for one in problem.function_values),
    )


@settings(max_examples=100)
@given(domains, problems, SEEDS)
def test_other_names_for_the_objects_leave_the_verdict_as_it_is(domain: Domain, problem: Problem, seed: int) -> None:
    rng = random.Random(seed)
    fresh = [f"thing-{number}" for number in range(len(problem.objects))]
    rng.shuffle(fresh)
    names = dict(zip([one.name for one in problem.objects], fresh, strict=True))
    task = PlanningTask(domain, problem)
    other = PlanningTask(domain, parse_problem(print_problem(renamed(problem, names)), domain))
    plan = random_plan(task, rng)
    found = validate_plan(task, plan)
    same = validate_plan(
        other, [PlanStep(step.name, tuple(names.get(one, one) for one in step.arguments)) for step in plan]
    )
    assert (found.verdict, found.failed_step, found.cost) == (same.verdict, same.failed_step, same.cost)
    assert tuple(part.substitute(names) for part in found.unsatisfied) == same.unsatisfied
    for state, twin in zip(found.states, same.states, strict=True):
        assert {atom.substitute(names) for atom in true_atoms(task, state)} == true_atoms(other, twin)


EXTRA_MISTAKE = "(:action extra-action :parameters () :precondition (and (not) (extra-predicate)) :effect (and)))"


@settings(max_examples=100)
@given(domains, SEEDS)
def test_one_more_mistake_at_the_end_takes_no_diagnostic_away(domain: Domain, seed: int) -> None:
    rng = random.Random(seed)
    words = print_domain(domain).replace("(", " ( ").replace(")", " ) ").split()
    for _ in range(rng.randint(0, 3)):
        place = rng.choice([number for number, word in enumerate(words) if word not in "()"][3:])
        words[place] = rng.choice(["wrong", "?wrong", ":wrong", "p", "k", "t", "forall", "-"])
    text = " ".join(words)
    before = Counter((found.code, found.message) for found in diagnose(text))
    after = Counter((found.code, found.message) for found in diagnose(f"{text[: text.rindex(')')]} {EXTRA_MISTAKE}"))
    assert before <= after, before - after
    assert after.total() > before.total()


def test_strategy_draws_what_the_language_has() -> None:
    """Else the properties above would hold of nothing."""
    drawn = [random_domain(seed) for seed in range(200)]
    texts = "".join(map(print_domain, drawn))
    for word in ("and", "or", "not", "imply", "forall", "exists", "when", "=", "increase", ":derived", "either"):
        assert texts.count(f"({word} ") > 30, word
    solved = Counter()
    for seed in range(200):
        task = PlanningTask(drawn[seed], random_problem(seed))
        solved[validate_plan(task, random_plan(task, random.Random(seed))).verdict] += 1
    assert all(solved[verdict] > 5 for verdict in Verdict if verdict is not Verdict.BAD_INPUT), solved
    assert not any(found.is_error for found in diagnose(print_domain(BLOCKS)))

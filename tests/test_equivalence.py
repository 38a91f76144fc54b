"""Two problems mean the same exactly if a map makes them one, or their goals hold in the same reachable states."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product

import networkx
import pytest
from conftest import BLOCKS, blocks_task

from plansmith.errors import BadInputError
from plansmith.pddl.equivalence import Outcome, compare_problems
from plansmith.pddl.goal_proofs import QUESTIONS_LIMIT, UNANSWERED_LIMIT, AskPlanner, NoPlan
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Conjunction, Domain, Literal, PlanStep, Problem, conjuncts_of
from plansmith.pddl.normal_form import normal_problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.simulation import successors
from plansmith.pddl.structure import Fact, kinds_of, problem_facts
from plansmith.planners import FastDownward
from plansmith.planners.goal_questions import goal_questions
from plansmith.problems.library import load_domain
from plansmith.problems.renaming import random_renaming, rename_problem
from tests.test_canonical import (
    PARTS,
    SYMMETRIC,
    complements,
    domain_of,
    grid,
    parts_problem,
    places,
    rings,
    rook,
    shrikhande,
    torus,
    towers,
)

NAMES = [f"x{number}" for number in range(2000)]
LOGISTICS = load_domain("logistics").domain


def blocks(init: str, goal: str, objects: str = "a b c") -> Problem:
    return blocks_task(init, goal, objects).problem


def renamed(problem: Problem, seed: int = 0) -> Problem:
    rng = random.Random(seed)
    return rename_problem(problem, random_renaming(problem, NAMES, rng), rng)


def breadth_first(domain: Domain) -> AskPlanner:
    """Return a planner that looks at every state; it remembers those of each initial state."""
    known: dict[frozenset[Atom], tuple[PlanningTask, dict[int, tuple[PlanStep, ...]]]] = {}

    def ask(problem: Problem) -> Sequence[PlanStep] | NoPlan:
        key = frozenset(problem.init)
        if key not in known:
            task = PlanningTask(domain, problem)
            known[key] = task, plans_of(task)
        task, plans = known[key]
        met = (plan for state, plan in plans.items() if task.holds(problem.goal, state))
        return next(met, NoPlan.PROVEN)

    return ask


def plans_of(task: PlanningTask) -> dict[int, tuple[PlanStep, ...]]:
    """Return every state that can be reached, with a way there."""
    plans: dict[int, tuple[PlanStep, ...]] = {task.initial_state: ()}
    waiting = [task.initial_state]
    for state in waiting:
        for action, following in successors(task, state):
            if following not in plans:
                plans[following] = (*plans[state], action.step)
                waiting.append(following)
    return plans


@pytest.fixture(scope="module")
def planner() -> Iterator[FastDownward]:
    with FastDownward() as started:
        yield started


def never(problem: Problem) -> NoPlan:
    raise AssertionError(f"asked about {problem.goal}")


# --- maps of the objects


def as_graph(facts: Iterable[Fact], kinds: Mapping[str, str]) -> networkx.DiGraph:
    """Return objects and facts as nodes, an edge from a fact to each object with the places where it stands there."""
    graph = networkx.DiGraph()
    for name, kind in kinds.items():
        graph.add_node(name, label=kind)
    for fact in facts:
        graph.add_node(fact, label=fact[0])
        spots = defaultdict(list)
        for place, name in enumerate(fact[1]):
            spots[name].append(place)
        for name, where in spots.items():
            graph.add_edge(fact, name, label=tuple(where))
    return graph


def is_isomorphic(domain: Domain, first: Problem, second: Problem, *, with_goals: bool = True) -> bool:
    graphs = []
    for problem in map(normal_problem, (first, second)):
        shown = problem if with_goals else replace(problem, goal=Conjunction())
        graphs.append(as_graph(problem_facts(shown), kinds_of(domain, shown)))
    same = networkx.algorithms.isomorphism.categorical_node_match("label", None)
    return bool(networkx.is_isomorphic(*graphs, node_match=same, edge_match=same))


def random_parts(rng: random.Random) -> Problem:
    """Return a small problem of relations of every arity, with a constant and two types."""
    nodes = [f"n{number}" for number in range(rng.randint(1, 5))]
    cars = [f"v{number}" for number in range(rng.randint(0, 2))]
    pool = [f"next {a} {b}" for a, b in product([*nodes, "depot"], repeat=2)]
    pool += [f"at {v} {n}" for v, n in product(cars, [*nodes, "depot"])] + ["done"]
    pool += [f"via {' '.join(rng.choices(nodes, k=3))}" for _ in range(4)]
    pool += [f"= (distance {rng.choice(nodes)} {b}) {rng.randint(1, 2)}" for b in nodes[:2]]
    init = rng.sample(pool, rng.randint(0, min(8, len(pool))))
    goal = [f"next {' '.join(rng.choices(nodes, k=2))}" for _ in range(rng.randint(0, 2))]
    cars_text = f" {' '.join(cars)} - vehicle" if cars else ""
    return parts_problem(f"{' '.join(nodes)} - place{cars_text}", init, goal)


def circulant(size: int, *steps: int) -> Problem:
    """Return places in a ring, next to those so many steps away on either side."""
    edges = {f"next n{i} n{(i + sign * step) % size}" for i in range(size) for step in steps for sign in (1, -1)}
    return parts_problem(places(size), sorted(edges))


def symmetric_parts(rng: random.Random) -> Problem:
    """Return places that refinement cannot tell apart: rings, prisms, complete and bipartite graphs."""
    if rng.random() < 0.4:
        return circulant(*rng.choice([(6, 1, 3), (6, 2, 3), (8, 1, 4), (8, 2, 4), (8, 3, 4)]))
    return rings(*rng.choice([(6,), (3, 3), (2, 4), (2, 2, 2), (3, 3, 6), (4, 4, 4), (6, 6), (3, 4, 5)]))


def perturbed(problem: Problem, rng: random.Random) -> Problem:
    """Return the problem with an atom dropped, or with an object exchanged in one."""
    if not problem.init:
        return problem
    atoms = list(problem.init)
    chosen = rng.randrange(len(atoms))
    if rng.random() < 0.3:
        del atoms[chosen]
    else:
        atom = atoms[chosen]
        typed = {o.name: o.types for o in problem.objects}
        arguments = list(atom.arguments)
        for place, name in enumerate(arguments):
            alike = [other for other, types in typed.items() if types == typed.get(name)]
            if alike and rng.random() < 0.6:
                arguments[place] = rng.choice(alike)
        atoms[chosen] = Atom(atom.predicate, tuple(arguments))
    return replace(problem, init=tuple(dict.fromkeys(atoms)))


def pair_of(number: int) -> tuple[Problem, Problem]:
    """Return two problems, of which about half are the same under other names."""
    rng = random.Random(number)
    first = symmetric_parts(rng) if rng.random() < 0.15 else random_parts(rng)
    kind = rng.randrange(3)
    second = first if kind == 0 else perturbed(first, rng) if kind == 1 else perturbed(perturbed(first, rng), rng)
    if len(first.objects) > 5 and rng.random() < 0.5:
        second = symmetric_parts(rng)
    return first, renamed(second, number)


def assert_agrees_with_networkx(first: Problem, second: Problem) -> bool:
    """Return whether the two are the same, which both must find."""
    expected = is_isomorphic(PARTS, first, second)
    compared = compare_problems(PARTS, first, second)
    assert compared.is_same == expected
    has_equal_states = expected or is_isomorphic(PARTS, first, second, with_goals=False)
    assert (compared.outcome is Outcome.DIFFERENT) == (not has_equal_states)
    if compared.is_same:
        assert is_made_by(compared.object_map, first, second)
    return expected


def is_made_by(found: Mapping[str, str] | None, first: Problem, second: Problem) -> bool:
    """Return whether a map of objects turns one problem into the other."""
    assert found is not None
    mapped = normal_problem(rename_problem(first, found, random.Random(0)))
    return replace(mapped, name="") == replace(normal_problem(second), name="")


@pytest.mark.parametrize("n", [400, pytest.param(5000, marks=pytest.mark.long)])
def test_compare_problems_agrees_with_networkx_on_renamed_perturbed_and_symmetric_pairs(n: int) -> None:
    n_same = sum(assert_agrees_with_networkx(*pair_of(number)) for number in range(n))
    assert n / 4 < n_same < 3 * n / 4


@pytest.mark.parametrize("problem", SYMMETRIC.values(), ids=SYMMETRIC)
def test_compare_problems_symmetric_problem_renamed_is_equivalent(problem: Problem) -> None:
    other = renamed(problem)
    compared = compare_problems(domain_of(problem), problem, other)
    assert compared.outcome is Outcome.EQUIVALENT
    assert not compared.is_proven
    assert is_made_by(compared.object_map, problem, other)


MONSTERS = {
    "1000 unused objects": (parts_problem(places(1000), []), parts_problem(places(1000), ["done"])),
    "40 blocks": (towers(*[1] * 40), towers(*[1] * 38, 2)),
    "12 rings": (rings(*[3] * 4, *[4] * 4, *[5] * 4), rings(*[3] * 3, *[4] * 6, *[5] * 3)),
    "grid": (grid(20, 20), grid(20, 20, extra=["at v n0_0"])),
    "torus": (torus(9), replace(torus(9), init=(*torus(9).init[:-1], Atom("next", ("n0_0", "n4_4"))))),
    "rook and shrikhande": (rook(), shrikhande()),
}


@pytest.mark.parametrize(("first", "second"), MONSTERS.values(), ids=MONSTERS)
def test_compare_problems_symmetric_monster_is_decided(first: Problem, second: Problem) -> None:
    domain = domain_of(first)
    assert compare_problems(domain, first, renamed(first), ask=never).outcome is Outcome.EQUIVALENT
    assert compare_problems(domain, first, renamed(second), ask=never).outcome is Outcome.DIFFERENT


def test_compare_problems_beyond_the_budget_is_undecided_and_says_why() -> None:
    """Refinement takes both graphs for one, even with any one place singled out; ways to pair the parts are many."""
    first, second = complements(rook(), shrikhande(), rook()), complements(rook(), shrikhande(), shrikhande())
    compared = compare_problems(PARTS, first, second, ask=never)
    assert compared.outcome is Outcome.UNDECIDED
    assert "too many ways to map the objects" in compared.reason
    assert compared.object_map is None


# --- one case by hand for each outcome, and for each way to write the same

TOWER = "(ontable a) (on b a) (clear b) (ontable c) (clear c) (handempty)"

COSTS = parse_domain("""(define (domain costs) (:requirements :typing :action-costs)
  (:types truck car - vehicle place) (:constants hub - place)
  (:predicates (at ?v - vehicle ?p - place) (far ?p - place))
  (:functions (distance ?p - place) (total-cost))
  (:action go :parameters (?v - vehicle ?p ?q - place) :precondition (at ?v ?p)
    :effect (and (at ?v ?q) (not (at ?v ?p)) (increase (total-cost) (distance ?q)))))""")


def costs(
    objects: str = "t - truck p q - place",
    init: str = "(at t p) (= (distance p) 1) (= (distance q) 2)",
    goal: str = "(at t q)",
    more: str = "(:metric minimize (total-cost))",
) -> Problem:
    text = f"(define (problem c) (:domain costs) (:objects {objects}) (:init {init}) (:goal {goal}) {more})"
    return parse_problem(text, COSTS)


@pytest.mark.parametrize(
    "other",
    [
        costs(objects="q - place T - Truck p - place"),
        costs(init="(= (distance q) 2) (at t p) (= (distance p) 1.0) (at t p)"),
        costs(init="(at t p) (not (at t q)) (not (far hub)) (= (distance p) 1) (= (distance q) 2)"),
        costs(init="(at t p) (= (distance p) 1) (= (distance q) 2) (= (total-cost) 0)"),
        costs(goal="(and (at t q) (and (at t q)) (and))"),
        costs(goal="(and (AT T Q) (= p p) (not (= p q)))"),
        costs(goal="(not (not (at t q)))"),
        costs(goal="(or (at t q) (and (at t q) (not (= q q))) (and (= p q) (at t p)))"),
        costs(goal="(imply (= p p) (at t q))"),
    ],
    ids=[
        "objects",
        "init",
        "negative init",
        "cost from 0",
        "goals twice",
        "equalities",
        "double negation",
        "or",
        "imply",
    ],
)
def test_compare_problems_written_in_another_way_is_identical(other: Problem) -> None:
    compared = compare_problems(COSTS, costs(), other, ask=never)
    assert compared.outcome is Outcome.IDENTICAL
    assert compared.object_map == {"t": "t", "p": "p", "q": "q"}
    assert compared.differences == ()


def test_compare_problems_order_of_either_and_steps_as_metric_is_identical() -> None:
    first = costs(objects="t - (either truck car) p q - place", more="")
    second = costs(objects="p q - place t - (either car truck)", more="(:metric minimize (total-time))")
    assert compare_problems(COSTS, first, second, ask=never).outcome is Outcome.IDENTICAL


def test_compare_problems_names_exchanged_is_equivalent_with_the_map() -> None:
    second = costs(init="(at t q) (= (distance q) 1) (= (distance p) 2)", goal="(at t p)")
    compared = compare_problems(COSTS, costs(), second, ask=never)
    assert (compared.outcome, compared.object_map) == (Outcome.EQUIVALENT, {"t": "t", "p": "q", "q": "p"})


def test_compare_problems_parts_of_a_disjunction_in_another_order_under_other_names_is_equivalent() -> None:
    first = costs(init="(at t p) (far q) (= (distance p) 1)", goal="(or (at t q) (at t p))")
    second = costs("t - truck x y - place", "(at t y) (far x) (= (distance y) 1)", "(or (at t y) (at t x))")
    compared = compare_problems(COSTS, first, second, ask=breadth_first(COSTS))
    assert (compared.outcome, compared.object_map) == (Outcome.EQUIVALENT, {"t": "t", "p": "y", "q": "x"})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (costs(objects="t - truck p q r - place"), ["objects: r - place in the second only"]),
        (costs(objects="t - car p q - place"),
         ["objects: t - truck in the first only", "objects: t - car in the second only"]),
        (costs(init="(at t p) (= (distance p) 1) (= (distance q) 3)"),
         ["init: (= (distance q) 2) in the first only", "init: (= (distance q) 3) in the second only"]),
        (costs(init="(at t hub) (= (distance p) 1) (= (distance q) 2)"),
         ["init: (at t p) in the first only", "init: (at t hub) in the second only"]),
        (costs(more=""), ["metric: (:metric minimize (total-cost)) in the first only"]),
        (costs(init="(at t p) (= (distance p) 1) (= (distance q) 2) (= (total-cost) 5)"),
         ["init: (= (total-cost) 5) in the second only"]),
        (costs(objects="x - truck y z w - place", init="(at x y) (far z) (far w)", goal="(and (at x z) (not (far w)))"),
         ["objects: 2 of place in the first, 3 in the second",
          "init: 1 of (= (distance ...) 1) in the first, 0 in the second",
          "init: 1 of (= (distance ...) 2) in the first, 0 in the second",
          "init: 0 of (far ...) in the first, 2 in the second",
          "goal: 0 of (not (far ...)) in the first, 1 in the second"]),
    ],
    ids=["unused object", "type", "value", "constant", "metric", "cost from 5", "other names"],
)  # fmt: skip
def test_compare_problems_other_states_are_different_and_told(other: Problem, told: list[str]) -> None:
    compared = compare_problems(COSTS, costs(), other, ask=never)
    assert compared.outcome is Outcome.DIFFERENT
    assert compared.object_map is None
    assert list(map(str, compared.differences)) == told


def test_compare_problems_without_objects() -> None:
    nothing = parts_problem("", [])
    assert compare_problems(PARTS, nothing, nothing).outcome is Outcome.IDENTICAL
    assert compare_problems(PARTS, nothing, parts_problem("", ["done"])).outcome is Outcome.DIFFERENT
    assert compare_problems(PARTS, nothing, parts_problem("a - place", [])).outcome is Outcome.DIFFERENT


def test_compare_problems_of_another_domain_is_bad_input() -> None:
    other = replace(blocks(TOWER, "(on a b)"), domain_name="hanoi")
    with pytest.raises(BadInputError, match="the second problem, p: a problem of another domain") as raised:
        compare_problems(BLOCKS, blocks(TOWER, "(on a b)"), other)
    assert (raised.value.got, raised.value.expected) == ("hanoi", "blocksworld")


def test_comparison_crosses_to_another_process() -> None:
    compared = compare_problems(COSTS, costs(), costs(more=""))
    assert pickle.loads(pickle.dumps(compared)) == compared


# --- goals


def test_compare_problems_goals_in_other_words_without_a_planner_are_undecided_with_the_words() -> None:
    compared = compare_problems(BLOCKS, blocks(TOWER, "(on a b)"), blocks(TOWER, "(on a b) (clear a)"))
    assert compared.outcome is Outcome.UNDECIDED
    assert compared.object_map == {"a": "a", "b": "b", "c": "c"}
    assert list(map(str, compared.differences)) == ["goal: (clear a) in the second only"]


FLAT = "(ontable a) (ontable b) (ontable c) (clear a) (clear b) (clear c) (handempty)"
WHOLE_TOWER = "(on a b) (on b c)"


@pytest.mark.parametrize(
    ("init", "first", "second", "is_same"),
    [
        (TOWER, WHOLE_TOWER, "(on a b) (on b c) (ontable c) (clear a) (handempty)", True),
        (TOWER, WHOLE_TOWER, "(on a b) (ontable c) (clear a) (not (clear c))", True),  # what is on c but b
        (TOWER, WHOLE_TOWER, "(on a b) (clear a) (not (clear c))", False),  # c may be held
        (TOWER, WHOLE_TOWER, "(on a b)", False),
        (TOWER, "(on a b) (on b a)", "(on c c)", True),  # neither can be reached
        (TOWER, "(on a b) (on b a)", "(on b a)", False),
        (TOWER, "", "(or (handempty) (holding a) (holding b) (holding c))", True),
        (TOWER, "", "(handempty)", False),
        (FLAT, "(on a b)", "(on c a) (not (ontable c)) (not (clear a))", True),  # once a is c, and b is a
        (FLAT, "(on a b)", "(or (on c a) (on c c))", True),
        (FLAT, "(on a b)", "(or (on c a) (on c b))", False),
        (FLAT, "(or (on a b) (on c b))", "(or (on a c) (on b c) (on c c))", True),  # once b is c
        (FLAT, "(on a b) (on b c)", "(on a b) (on c b)", False),
        (FLAT, "(holding a)", "(not (handempty))", False),
        (FLAT, "(or (holding a) (holding b))", "(or (holding c) (holding b)) (not (handempty))", True),
        (FLAT, "(exists (?x) (on ?x a))", "(not (holding b)) (not (clear b))", True),
        (FLAT, "(exists (?x) (on ?x a))", "(not (clear b))", False),  # b may be held
    ],
    ids=[
        "implied", "by what is clear", "by less", "dropped", "both out of reach", "one out of reach", "always true",
        "not always true", "under another map", "disjunction under another map", "disjunction",
        "disjunction over equal blocks", "fork", "hand", "disjunctions", "quantifier", "quantifier and more",
    ],
)  # fmt: skip
def test_compare_problems_goals_in_other_words(
    init: str, first: str, second: str, is_same: bool, planner: FastDownward
) -> None:
    problems = blocks(init, first), blocks(init, second)
    for ask in (breadth_first(BLOCKS), goal_questions(planner, BLOCKS)):
        for one, other in (problems, problems[::-1]):
            compared = compare_problems(BLOCKS, one, other, ask=ask)
            assert compared.outcome is (Outcome.EQUIVALENT if is_same else Outcome.DIFFERENT), compared
            assert compared.is_proven == is_same


TRUCKS = """(obj p1) (obj p2) (truck t1) (truck t2) (city c1) (city c2) (airplane a)
  (location l1) (location l2) (location h1) (location h2) (airport h1) (airport h2)
  (in-city l1 c1) (in-city h1 c1) (in-city l2 c2) (in-city h2 c2)
  (at t1 h1) (at t2 h2) (at a h1) (at p1 l1) (at p2 l1)"""


def trucks(goal: str) -> Problem:
    """Return two packages in one of two cities."""
    names = "p1 p2 t1 t2 c1 c2 a l1 l2 h1 h2"
    text = f"(define (problem l) (:domain logistics) (:objects {names}) (:init {TRUCKS}) (:goal (and {goal})))"
    return parse_problem(text, LOGISTICS)


def random_goal(atoms: Sequence[Atom], rng: random.Random) -> str:
    """Return one to three literals, now and then a disjunction."""
    words = [str(Literal(rng.choice(atoms), rng.random() < 0.8)) for _ in range(rng.randint(1, 3))]
    return " ".join(words) if rng.random() < 0.8 else f"(or {' '.join(words)}) {rng.choice(atoms)}"


def varied_goal(goal: str, atoms: Sequence[Atom], rng: random.Random) -> str:
    return f"{goal} {Literal(rng.choice(atoms), rng.random() < 0.6)}"


class BruteForce:
    """Every state that a problem reaches, and every map of its objects that keeps the initial state."""

    def __init__(self, domain: Domain, problem: Problem, movable: Iterable[Sequence[str]]) -> None:
        self.task = PlanningTask(domain, problem)
        self.states = list(plans_of(self.task))
        self.maps = [found for found in self._maps(list(movable)) if self._keeps_init(found)]

    def _maps(self, groups: list[Sequence[str]]) -> Iterator[dict[str, str]]:
        for orders in product(*map(permutations, groups)):
            yield {
                name: other
                for group, order in zip(groups, orders, strict=True)
                for name, other in zip(group, order, strict=True)
            }

    def _keeps_init(self, found: Mapping[str, str]) -> bool:
        init = self.task.problem.init
        return {atom.substitute(found) for atom in init} == set(init)

    def is_same(self, first: Problem, second: Problem) -> bool:
        """Return whether under some map both goals hold in the same states."""
        wanted = {state for state in self.states if self.task.holds(second.goal, state)}
        images = (first.goal.substitute(found) for found in self.maps)
        return any({state for state in self.states if self.task.holds(goal, state)} == wanted for goal in images)

    def atoms(self) -> list[Atom]:
        """Return the atoms that change."""
        met = {atom for state in self.states for atom in self.task.atoms_of(state)}
        return sorted(atom for atom in met if self.task.fixed_value(atom) is None)


@pytest.mark.parametrize("init", [FLAT, TOWER, "(ontable a) (on b a) (on c b) (clear c) (handempty)"])
def test_compare_problems_blocks_goals_agree_with_brute_force(init: str) -> None:
    brute, ask = BruteForce(BLOCKS, blocks(init, ""), [["a", "b", "c"]]), breadth_first(BLOCKS)
    rng, outcomes = random.Random(1), list[bool]()
    for _ in range(150):
        goal = random_goal(brute.atoms(), rng)
        other = varied_goal(goal, brute.atoms(), rng) if rng.random() < 0.6 else random_goal(brute.atoms(), rng)
        first, second = blocks(init, goal), blocks(init, other)
        second = replace(second, goal=second.goal.substitute(rng.choice(brute.maps)))
        outcomes.append(brute.is_same(first, second))
        compared = compare_problems(BLOCKS, first, second, ask=ask)
        assert compared.is_same == outcomes[-1], (goal, other, compared)
        assert compared.outcome is not Outcome.UNDECIDED
    assert 20 < sum(outcomes) < 130


def test_compare_problems_logistics_goals_agree_with_brute_force(planner: FastDownward) -> None:
    brute, rng = BruteForce(LOGISTICS, trucks(""), [["p1", "p2"]]), random.Random(2)
    assert len(brute.maps) == 2
    atoms = [atom for atom in brute.atoms() if atom.arguments[0] in ("p1", "p2", "t1")]
    ask, outcomes = breadth_first(LOGISTICS), list[bool]()
    for number in range(60):
        goal = random_goal(atoms, rng)
        first, second = trucks(goal), trucks(varied_goal(goal, atoms, rng))
        second = replace(second, goal=second.goal.substitute(rng.choice(brute.maps)))
        outcomes.append(brute.is_same(first, second))
        asked = goal_questions(planner, LOGISTICS) if number < 6 else ask
        compared = compare_problems(LOGISTICS, first, second, ask=asked)
        assert compared.is_same == outcomes[-1], (first.goal, second.goal, compared)
        assert compared.outcome is not Outcome.UNDECIDED
    assert 5 < sum(outcomes) < 55


def test_compare_problems_goals_that_differ_are_told_with_what_the_other_does_not_imply() -> None:
    first, second = blocks(TOWER, "(on a b) (on b c) (clear a)"), blocks(TOWER, "(on a b) (not (clear b)) (ontable b)")
    compared = compare_problems(BLOCKS, first, second, ask=breadth_first(BLOCKS))
    assert compared.outcome is Outcome.DIFFERENT
    assert list(map(str, compared.differences)) == [
        "goal: (clear a) in the first only",
        "goal: (on b c) in the first only",
        "goal: (ontable b) in the second only",
    ]


def stacked(n_blocks: int, *, without: int | None = None) -> Problem:
    """Return blocks side by side that are to be one tower, or two."""
    names = [f"b{number}" for number in range(n_blocks)]
    init = " ".join(f"(ontable {name}) (clear {name})" for name in names) + " (handempty)"
    goals = [f"(on {upper} {lower})" for lower, upper in pairwise(names)]
    return blocks(init, " ".join(goal for number, goal in enumerate(goals) if number != without), " ".join(names))


def test_compare_problems_goal_lost_among_equal_blocks_is_different_after_few_questions(planner: FastDownward) -> None:
    """The blocks can be mapped in 9! ways; a plan for each goal shows what it does not imply."""
    answer, asked = goal_questions(planner, BLOCKS), list[Problem]()

    def ask(problem: Problem) -> Sequence[PlanStep] | NoPlan:
        asked.append(problem)
        return answer(problem)

    compared = compare_problems(BLOCKS, stacked(9), renamed(stacked(9, without=4)), ask=ask)
    assert compared.outcome is Outcome.DIFFERENT
    assert len(asked) < 6


def test_compare_problems_goal_without_an_answer_that_asks_more_than_the_other_implies_is_different() -> None:
    """Of two towers of 20 blocks a plan shows 38 that lie on another; the one tower of 40, never built, needs 39."""
    second = renamed(stacked(40, without=19))

    def ask(problem: Problem) -> Sequence[PlanStep] | NoPlan:
        if problem.objects[0].name.startswith("b"):
            return NoPlan.UNKNOWN
        pairs = {atom.arguments[0]: atom.arguments[1] for atom in goal_atoms(problem)}
        built, plan = set(pairs.values()) - set(pairs), list[PlanStep]()
        while left := [upper for upper, lower in pairs.items() if upper not in built and lower in built]:
            plan += [PlanStep("pick-up", (left[0],)), PlanStep("stack", (left[0], pairs[left[0]]))]
            built.add(left[0])
        return plan

    assert len(goal_atoms(second)) == 38
    assert compare_problems(BLOCKS, stacked(40), second, ask=ask).outcome is Outcome.DIFFERENT


def goal_atoms(problem: Problem) -> list[Atom]:
    return [part.atom for part in conjuncts_of(problem.goal) if isinstance(part, Literal) and part.is_positive]


@pytest.mark.parametrize("first", ["(on a b)", "(or (on a b) (on b b))"], ids=["literal", "disjunction"])
def test_compare_problems_planner_without_an_answer_is_asked_a_few_times_and_leaves_it_undecided(first: str) -> None:
    asked: list[Problem] = []

    def ask(problem: Problem) -> NoPlan:
        asked.append(problem)
        return NoPlan.UNKNOWN

    compared = compare_problems(BLOCKS, blocks(FLAT, first), blocks(FLAT, "(on a b) (clear a)"), ask=ask)
    assert compared.outcome is Outcome.UNDECIDED
    assert "did not prove" in compared.reason
    assert len(asked) == 2 * UNANSWERED_LIMIT < QUESTIONS_LIMIT


def no_answer(_: Problem) -> NoPlan:
    return NoPlan.UNKNOWN


def test_compare_problems_disjunctions_without_an_answer_are_undecided_under_every_map() -> None:
    first, second = blocks(FLAT, "(or (on a b) (on a c))"), blocks(FLAT, "(or (on b a) (holding b))")
    assert compare_problems(BLOCKS, first, second, ask=no_answer).outcome is Outcome.UNDECIDED


def test_compare_problems_goal_that_never_holds_is_different_only_if_the_other_can_be_reached() -> None:
    first, second = costs(), costs(goal="(and (at t q) (far p))")
    assert compare_problems(COSTS, first, second, ask=no_answer).outcome is Outcome.UNDECIDED
    assert compare_problems(COSTS, first, second, ask=breadth_first(COSTS)).outcome is Outcome.DIFFERENT


def test_compare_problems_goal_of_a_wide_predicate_over_many_equal_objects_is_undecided() -> None:
    names = [f"n{number}" for number in range(30)]
    first = parts_problem(f"{' '.join(names)} - place", [], ["via n0 n1 n2"])
    second = parts_problem(f"{' '.join(names)} - place", [], ["via n0 n1 n2", "done"])
    compared = compare_problems(PARTS, first, second, ask=breadth_first(PARTS))
    assert compared.is_proven  # neither can be reached, since nothing makes them true
    pairs = " ".join(f"b{number}" for number in range(150))
    init = " ".join(f"(ontable {name}) (clear {name})" for name in pairs.split())
    wide = [blocks(init, f"(on b0 b1) {more}", pairs) for more in ("", "(on b2 b3)")]

    def ask(problem: Problem) -> Sequence[PlanStep] | NoPlan:
        return ()

    assert compare_problems(BLOCKS, *wide, ask=ask).reason == "the goals may imply more than 20000 literals"


def test_compare_problems_derived_goal_needs_a_proof_without_heuristics(planner: FastDownward) -> None:
    domain = parse_domain("""(define (domain net) (:requirements :derived-predicates :negative-preconditions)
      (:predicates (road ?a ?b) (path ?a ?b) (open ?a))
      (:derived (path ?a ?b) (or (road ?a ?b) (exists (?c) (and (path ?a ?c) (path ?c ?b)))))
      (:action build :parameters (?a ?b) :precondition (open ?a) :effect (and (road ?a ?b) (not (open ?a)))))""")

    def net(goal: str) -> Problem:
        init = "(open n1) (open n2) (road n2 n3)"
        text = f"(define (problem n) (:domain net) (:objects n1 n2 n3) (:init {init}) (:goal (and {goal})))"
        return parse_problem(text, domain)

    ask = goal_questions(planner, domain)
    first, same, other = net("(path n1 n3)"), net("(path n1 n3) (not (open n1)) (path n2 n3)"), net("(road n1 n3)")
    assert compare_problems(domain, first, same, ask=ask).outcome is Outcome.EQUIVALENT
    assert compare_problems(domain, first, other, ask=ask).outcome is Outcome.DIFFERENT

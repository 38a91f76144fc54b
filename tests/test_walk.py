"""Problems by random walk: what the rules say holds at the start, and a planner reaches every goal."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.model import Literal, Problem, conjuncts_of
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import MAX_DRAWS, PlanningDomain, load_domain
from plansmith.problems.walk import WalkSampler

TRAINS = """(define (domain trains)
  (:requirements :strips :typing :action-costs)
  (:types station train - object express - train)
  (:constants centre - station)
  (:predicates (track ?a ?b - station) (at ?t - train ?s - station) (loop ?a ?b - station) (clean ?t - train))
  (:functions (length ?a ?b - station) (total-cost))
  (:action drive
    :parameters (?t - train ?a ?b - station)
    :precondition (and (at ?t ?a) (track ?a ?b))
    :effect (and (at ?t ?b) (not (at ?t ?a)) (not (clean ?t)) (increase (total-cost) (length ?a ?b))))
  (:action wash :parameters (?t - train) :precondition (at ?t centre) :effect (clean ?t)))
"""
LEVELS = "levels:\n  some: {stations: [3, 4], trains: [1, 2], fast: [1, 2]}\n"
OBJECTS = "  objects: {station: stations, train: trains, express: fast}\n"


def trains(folder: Path, *rules: str, more: str = "", levels: str = LEVELS) -> PlanningDomain:
    """Return the domain of trains with rules for the initial state, each ``atom`` or ``atom; key: value; ...``."""
    lines = [f"    - atom: {rule.replace('; ', chr(10) + '      ')}\n" for rule in rules]
    init = "".join(["  init:\n", *lines]) if rules else ""
    return domain_in(folder, TRAINS, f"sampler: walk\nwalk:\n{OBJECTS}{init}{more}{levels}")


def domain_in(folder: Path, domain: str, settings: str) -> PlanningDomain:
    """Return the domain of a folder with these two files."""
    (folder / "domain.pddl").write_text(domain, encoding="utf-8")
    (folder / "settings.yaml").write_text(settings, encoding="utf-8")
    return load_domain(str(folder))


def draws(domain: PlanningDomain, count: int = 30, level: str = "some") -> list[Problem]:
    return [domain.sample(level, random.Random(seed)) for seed in range(count)]


def arguments_of(problem: Problem, predicate: str) -> list[tuple[str, ...]]:
    """Return the arguments of the initial atoms of a predicate."""
    return [atom.arguments for atom in problem.init if atom.predicate == predicate]


def names_of(problem: Problem, *types: str) -> set[str]:
    """Return the problem's objects of any of the types."""
    return {typed.name for typed in problem.objects if set(typed.types) & set(types)}


RING = ("(track ?a ?b); each: ?a ?b", "(at ?t ?s); each: ?t")


def test_walk_rule_with_each_makes_one_atom_true_for_every_object(tmp_path: Path) -> None:
    problems = draws(trains(tmp_path, *RING))
    for problem in problems:
        stations, vehicles = names_of(problem, "station") | {"centre"}, names_of(problem, "train", "express")
        assert sorted(name for name, _ in arguments_of(problem, "at")) == sorted(vehicles)
        assert {place for _, place in arguments_of(problem, "at")} <= stations
        assert set(arguments_of(problem, "track")) == {(a, b) for a in stations for b in stations if a != b}
    assert len({place for problem in problems for _, place in arguments_of(problem, "at")}) == 5


def test_walk_rule_without_each_makes_one_atom_true(tmp_path: Path) -> None:
    problems = draws(trains(tmp_path, *RING, "(clean ?t)"))
    assert {len(arguments_of(problem, "clean")) for problem in problems} == {1}
    assert len({tuple(arguments_of(problem, "clean")) for problem in problems}) > 1


def test_walk_rule_with_chance_leaves_out_about_as_many_as_it_says(tmp_path: Path) -> None:
    problems = draws(trains(tmp_path, *RING, "(loop ?a ?b); each: ?a ?b; chance: 0.25"), 100)
    possible = sum(len(arguments_of(problem, "track")) for problem in problems)
    share = sum(len(arguments_of(problem, "loop")) for problem in problems) / possible
    assert possible > 1000
    assert 0.2 < share < 0.3


def test_walk_rule_that_is_distinct_chooses_no_object_twice(tmp_path: Path) -> None:
    rules = (RING[0], "(at ?t ?s); each: ?t; is_distinct: true")
    for problem in draws(trains(tmp_path, *rules)):
        places = [place for _, place in arguments_of(problem, "at")]
        assert len(set(places)) == len(places)
    twice = [problem for problem in draws(trains(tmp_path, *RING)) if len(set(arguments_of(problem, "at"))) > 1]
    assert any(max(Counter(place for _, place in arguments_of(problem, "at")).values()) > 1 for problem in twice)


def test_walk_rule_of_too_few_objects_says_which(tmp_path: Path) -> None:
    levels = "levels:\n  some: {stations: [1, 1], trains: [3, 3], fast: [0, 0]}\n"
    domain = trains(tmp_path, "(at ?t ?s); each: ?t; is_distinct: true", levels=levels)
    with pytest.raises(BadInputError) as caught:
        domain.sample("some", random.Random(0))
    assert str(tmp_path / "settings.yaml") in str(caught.value)
    assert "walk.init, (at ?t ?s): no object is left to choose\n  got: 2 objects for ?s, all taken" in str(caught.value)


def test_walk_rule_with_a_type_takes_objects_of_that_type_and_below_it(tmp_path: Path) -> None:
    for problem in draws(trains(tmp_path, *RING, "(clean ?t - express); each: ?t")):
        assert {name for (name,) in arguments_of(problem, "clean")} == names_of(problem, "express")
    for problem in draws(trains(tmp_path, *RING, "(clean ?t); each: ?t")):
        assert {name for (name,) in arguments_of(problem, "clean")} == names_of(problem, "express", "train")


def test_walk_rule_with_a_constant_keeps_it(tmp_path: Path) -> None:
    for problem in draws(trains(tmp_path, RING[0], "(at ?t centre); each: ?t")):
        assert {place for _, place in arguments_of(problem, "at")} == {"centre"}


def test_walk_rule_variable_in_two_places_stands_for_one_object(tmp_path: Path) -> None:
    for problem in draws(trains(tmp_path, *RING, "(loop ?a ?a); each: ?a")):
        assert set(arguments_of(problem, "loop")) == {
            (name, name) for name in names_of(problem, "station") | {"centre"}
        }


def test_walk_rule_variable_in_places_of_two_types_fits_both(tmp_path: Path) -> None:
    text = TRAINS.replace("(loop ?a ?b - station)", "(loop ?a - train ?b - express)")
    trains(tmp_path, *RING)
    settings = (tmp_path / "settings.yaml").read_text(encoding="utf-8")
    domain = domain_in(tmp_path, text, settings.replace("  init:\n", "  init:\n    - atom: (loop ?t ?t)\n"))
    for problem in draws(domain):
        ((first, second),) = arguments_of(problem, "loop")
        assert first == second
        assert first in names_of(problem, "express")


def test_walk_rule_different_variables_stand_for_different_objects(tmp_path: Path) -> None:
    for problem in draws(trains(tmp_path, *RING, "(loop ?a ?b); each: ?a")):
        assert all(a != b for a, b in arguments_of(problem, "loop"))
        assert len(arguments_of(problem, "loop")) == len(names_of(problem, "station")) + 1


def test_walk_objects_are_never_called_like_constants_or_each_other(tmp_path: Path) -> None:
    domain = domain_in(
        tmp_path,
        "(define (domain d) (:requirements :strips :typing) (:types a a1) (:constants a2 - a) (:predicates (p ?x - a))"
        "(:action make :parameters (?x - a) :effect (p ?x)))",
        "sampler: walk\nwalk:\n  objects: {a: many, a1: few}\n  init:\n    - atom: (p a2)\n"
        "levels:\n  some: {many: [12, 12], few: [3, 3]}\n",
    )
    names = [typed.name for typed in domain.sample("some", random.Random(0)).objects]
    assert len(set(names)) == 15
    assert not {"a2", "a11"} & set(names[12:])
    assert "a2" not in names
    assert parse_problem(print_problem(domain.sample("some", random.Random(0))), domain.domain)


def test_walk_goal_has_its_size_and_predicates_and_something_to_do(tmp_path: Path) -> None:
    settings = "  goal_predicates: [at, track]\n  goal_size: [2, 3]\n"
    for problem in draws(trains(tmp_path, *RING, more=settings)):
        goal = conjuncts_of(problem.goal)
        atoms = [part.atom for part in goal if isinstance(part, Literal) and part.is_positive]
        assert len(atoms) == len(set(atoms)) == len(goal)
        assert 2 <= len(goal) <= 3
        assert {atom.predicate for atom in atoms} <= {"at", "track"}
        assert not set(atoms) <= set(problem.init)


def test_walk_sampler_goal_holds_something_new_or_nothing(tmp_path: Path) -> None:
    """One of two trains is clean; a walk may wash the other one, or none."""
    levels = "levels:\n  some: {stations: [1, 1], trains: [2, 2], fast: [0, 0]}\n"
    settings = "  steps: [1, 3]\n  goal_predicates: [clean]\n"
    domain = trains(tmp_path, *RING, "(clean ?t)", more=settings, levels=levels)
    assert domain.settings.walk is not None
    sampler = WalkSampler(domain.domain, domain.settings.walk, tmp_path, where="settings.yaml")
    problems = [sampler.sample(random.Random(seed), stations=1, trains=2, fast=0) for seed in range(60)]
    goals = [[str(part) for part in conjuncts_of(problem.goal)] for problem in problems]
    assert all(set(goal) - set(map(str, p.init)) for goal, p in zip(goals, problems, strict=True) if goal)
    assert 0 < sum(not goal for goal in goals) < 60


def test_walk_goal_names_by_default_what_actions_add(tmp_path: Path) -> None:
    found = {str(part).split()[0] for problem in draws(trains(tmp_path, *RING)) for part in conjuncts_of(problem.goal)}
    assert found == {"(at", "(clean"}


def test_walk_equal_seeds_give_equal_problems_and_others_differ(tmp_path: Path) -> None:
    domain, again = trains(tmp_path, *RING), load_domain(str(tmp_path))
    assert draws(domain) == draws(again)
    assert len({print_problem(problem) for problem in draws(domain)}) > 25


def test_walk_costs_have_a_value_for_every_pair_and_a_metric(tmp_path: Path) -> None:
    for problem in draws(trains(tmp_path, *RING)):
        values = {str(known.term): known.value for known in problem.function_values}
        stations = names_of(problem, "station") | {"centre"}
        assert values.pop("(total-cost)") == 0
        assert set(values) == {f"(length {a} {b})" for a in stations for b in stations}
        assert all(isinstance(value, int) and 1 <= value <= 10 for value in values.values())
        assert problem.metric == "total-cost"


@pytest.mark.parametrize(
    "rules",
    [RING, ("(track ?a ?b); each: ?a ?b; chance: 0.4", RING[1]), ()],
    ids=["all tracks", "some tracks", "density"],
)
def test_walk_goals_are_reached_by_the_planner(rules: tuple[str, ...], tmp_path: Path) -> None:
    domain = trains(tmp_path, *rules)
    with FastDownward(PlannerConfig(search="first")) as planner:
        for problem in draws(domain, 5):
            result = planner.solve(print_domain(domain.domain), print_problem(problem))
            assert result.status is PlannerStatus.SOLVED
            assert result.plan


EXAMPLE = """(define (problem example) (:domain trains)
  (:objects s1 {more}- station t1 - train)
  (:init (track centre s1) (track s1 centre) (at t1 centre) (= (length centre s1) 3) (= (length s1 centre) 4)
    (= (total-cost) 0))
  (:goal (clean t1)) (:metric minimize (total-cost)))
"""
FROM_EXAMPLES = "sampler: walk\nwalk:\n  problems: examples\nlevels:\n  some: {}\n  L2: {}\n"


def test_walk_starts_from_example_problems_with_goals_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    for number, more in enumerate(["", "s2 "]):
        (tmp_path / "examples" / f"p{number}.pddl").write_text(EXAMPLE.format(more=more), encoding="utf-8")
    (tmp_path / "examples" / "domain.pddl").write_text("not a problem", encoding="utf-8")
    domain = domain_in(tmp_path, TRAINS, FROM_EXAMPLES)
    examples = [parse_problem(EXAMPLE.format(more=more), domain.domain) for more in ("", "s2 ")]
    problems = draws(domain)
    for problem in problems:
        assert any(problem.objects == one.objects and set(problem.init) == set(one.init) for one in examples)
        assert (problem.function_values, problem.metric) == (examples[0].function_values, "total-cost")
    assert {len(problem.objects) for problem in problems} == {2, 3}
    assert {str(part) for problem in problems for part in conjuncts_of(problem.goal)} == {"(at t1 s1)"}
    with pytest.raises(ConfigError, match="no problem of level L2 in 2000 draws"):
        domain.sample("L2", random.Random(0))


def test_walk_example_problem_from_which_nothing_can_be_done_is_not_returned_with_its_own_goal(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    text = EXAMPLE.format(more="").replace("(track centre s1) (track s1 centre) (at t1 centre)", "(at t1 s1)")
    (tmp_path / "examples" / "p.pddl").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="no problem of level some"):
        domain_in(tmp_path, TRAINS, FROM_EXAMPLES).sample("some", random.Random(0))


def test_walk_folder_without_example_problems_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"settings.yaml, walk.problems: no problems to start from"):
        domain_in(tmp_path, TRAINS, FROM_EXAMPLES)


def test_walk_mistake_in_an_example_problem_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "p.pddl").write_text(
        EXAMPLE.format(more="").replace("(at t1 c", "(att t1 c"), encoding="utf-8"
    )
    with pytest.raises(BadInputError, match=r"examples/p.pddl:3:"):
        domain_in(tmp_path, TRAINS, FROM_EXAMPLES)


WRITTEN_BY_A_MODEL = """(define (domain kitchen)
  (:requirements :strips)
  (:predicates (hungry ?x) (cooked ?x) (knows ?x ?y) (tired))
  (:action cook :parameters (?x ?y) :precondition {precondition} :effect (and (cooked ?y) (not (hungry ?x)))))
"""
BY_CHANCE = "sampler: walk\nwalk:\n  objects: {object: things}\nlevels:\n  some: {things: [4, 6]}\n"


def test_walk_from_chance_draws_in_a_domain_that_nobody_wrote_rules_for(tmp_path: Path) -> None:
    text = WRITTEN_BY_A_MODEL.format(precondition="(and (hungry ?x) (knows ?x ?y))")
    problems = draws(domain_in(tmp_path, text, BY_CHANCE))
    for problem in problems:
        assert {str(part).split()[0] for part in conjuncts_of(problem.goal)} == {"(cooked"}
        assert {name for atom in problem.init for name in atom.arguments} <= names_of(problem, "object")
    numbers = [len(problem.objects) for problem in problems]
    possible = sum(1 + 2 * number + number * number for number in numbers)
    assert 0.15 < sum(len(problem.init) for problem in problems) / possible < 0.35
    dense = domain_in(tmp_path, text, BY_CHANCE.replace("  objects", "  density: 0.8\n  objects"))
    assert sum(len(p.init) for p in draws(dense)) > 2 * sum(len(p.init) for p in problems)


def test_walk_derived_predicates_do_not_hold_by_chance(tmp_path: Path) -> None:
    text = WRITTEN_BY_A_MODEL.format(precondition="(tired)").replace(":strips", ":strips :derived-predicates")
    text = text.replace("  (:action", "  (:derived (tired) (exists (?x) (hungry ?x)))\n  (:action")
    assert {atom.predicate for problem in draws(domain_in(tmp_path, text, BY_CHANCE)) for atom in problem.init} == {
        "hungry",
        "cooked",
        "knows",
    }


def test_walk_where_no_action_can_ever_be_applied_ends_in_a_clear_error(tmp_path: Path) -> None:
    text = WRITTEN_BY_A_MODEL.format(precondition="(and (tired) (not (tired)))")
    domain = domain_in(tmp_path, text.replace(":strips", ":strips :negative-preconditions"), BY_CHANCE)
    with pytest.raises(ConfigError) as caught:
        domain.sample("some", random.Random(0))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'settings.yaml'}: no problem of level some in {MAX_DRAWS} draws")
    assert f"things: [4, 6]; 0 draws with too few or too many objects, {MAX_DRAWS} with a goal that holds" in message
    assert "so that actions can be applied" in message

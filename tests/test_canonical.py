"""The canonical form is equal exactly for problems that differ in names and order only."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations, product

import pytest
from conftest import BLOCKS, DEPOT_PROBLEM_TEXT, DEPOT_TEXT, blocks_problems
from hypothesis import given
from hypothesis import strategies as st

from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Atom, Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.library import load_domain
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.problems.samplers import blocksworld, mystery_blocksworld
from plansmith.problems.samplers.blocksworld import Towers, blocksworld_problem, on_atoms

DEPOT = parse_domain(DEPOT_TEXT)
DEPOT_PROBLEM = parse_problem(DEPOT_PROBLEM_TEXT, DEPOT)


PARTS = parse_domain("""(define (domain parts)
  (:requirements :strips :typing :action-costs)
  (:types place vehicle parcel tool)
  (:constants depot - place)
  (:predicates (next ?a ?b - place) (via ?a ?b ?c - place) (at ?x - object ?p - place) (in ?x - parcel ?v - vehicle)
    (on-board ?t - tool ?v - vehicle) (calibrated ?t - tool ?p - place) (done))
  (:functions (distance ?a ?b - place) (total-cost))
  (:action go
    :parameters (?v - vehicle ?a ?b - place)
    :precondition (and (at ?v ?a) (next ?a ?b))
    :effect (and (at ?v ?b) (not (at ?v ?a)) (increase (total-cost) (distance ?a ?b)))))
""")
"""Relations of every arity, for problems of many equal parts."""


def parts_problem(objects: str, init: Iterable[str], goal: Iterable[str] = ()) -> Problem:
    """Return a problem whose atoms are written without parentheses."""
    init, goal = (" ".join(f"({atom})" for atom in atoms) for atoms in (init, goal))
    text = f"(define (problem p) (:domain parts) (:objects {objects}) (:init {init}) (:goal (and {goal})))"
    return parse_problem(text, PARTS)


def places(count: int) -> str:
    return " ".join(f"n{number}" for number in range(count)) + " - place "


def rings(*sizes: int) -> Problem:
    """Return one-way rings of places."""
    edges, first = [], 0
    for size in sizes:
        edges += [f"next n{first + i} n{first + (i + 1) % size}" for i in range(size)]
        first += size
    return parts_problem(places(first), edges)


def towers(*sizes: int) -> Problem:
    """Return towers of blocks with an empty goal."""
    named = [[f"b{tower}_{block}" for block in range(size)] for tower, size in enumerate(sizes)]
    init = " ".join(f"(ontable {tower[0]}) (clear {tower[-1]})" for tower in named) + " (handempty)"
    init += " ".join(f"(on {upper} {lower})" for tower in named for lower, upper in pairwise(tower))
    names = " ".join(block for tower in named for block in tower)
    text = f"(define (problem p) (:domain blocksworld) (:objects {names}) (:init {init}) (:goal (and)))"
    return parse_problem(text, BLOCKS)


def cities(n_cities: int, *, n_parcels: int = 0) -> Problem:
    """Return equal cities of two places and a truck; parcel i goes from city i to the next."""
    numbers = range(n_cities)
    names = (
        " ".join(f"hub{i} stop{i}" for i in numbers) + " - place " + " ".join(f"t{i}" for i in numbers) + " - vehicle "
    )
    init = [f"next {a} {b}" for i in numbers for a, b in ((f"hub{i}", f"stop{i}"), (f"stop{i}", f"hub{i}"))]
    init += [f"at t{i} hub{i}" for i in numbers] + [f"next hub{i} depot" for i in numbers]
    init += [f"at k{i} stop{i}" for i in range(n_parcels)]
    goal = [f"at k{i} stop{(i + 1) % n_cities}" for i in range(n_parcels)]
    return parts_problem(names + "".join(f"k{i} - parcel " for i in range(n_parcels)), init, goal)


def satellites(n_vehicles: int, n_tools: int) -> Problem:
    """Return equal vehicles with equal tools."""
    pairs = list(product(range(n_vehicles), range(n_tools)))
    names = (
        " ".join(f"t{v}_{t}" for v, t in pairs)
        + " - tool "
        + " ".join(f"v{v}" for v in range(n_vehicles))
        + " - vehicle"
    )
    init = [f"on-board t{v}_{t} v{v}" for v, t in pairs] + [f"calibrated t{v}_{t} depot" for v, t in pairs]
    return parts_problem(names, init)


def graph(
    nodes: Iterable[tuple[int, int]], is_edge: Callable[[int, int], bool], *, extra: Iterable[str] = ()
) -> Problem:
    """Return places in the plane, next to each other where the differences of their coordinates say so."""
    nodes = list(nodes)
    pairs = [(a, b) for a, b in product(nodes, nodes) if a != b and is_edge(a[0] - b[0], a[1] - b[1])]
    names = " ".join(f"n{x}_{y}" for x, y in nodes) + " - place v - vehicle"
    return parts_problem(names, [*(f"next n{a[0]}_{a[1]} n{b[0]}_{b[1]}" for a, b in pairs), *extra])


def plane(width: int, height: int) -> list[tuple[int, int]]:
    return list(product(range(width), range(height)))


def grid(width: int, height: int, *, extra: Iterable[str] = ()) -> Problem:
    return graph(plane(width, height), lambda dx, dy: abs(dx) + abs(dy) == 1, extra=extra)


def torus(size: int) -> Problem:
    return graph(
        plane(size, size), lambda dx, dy: sorted((min(dx % size, -dx % size), min(dy % size, -dy % size))) == [0, 1]
    )


def rook() -> Problem:
    """Return the moves of a rook on four by four squares, strongly regular with the parameters of `shrikhande`."""
    return graph(plane(4, 4), lambda dx, dy: dx == 0 or dy == 0)


def shrikhande() -> Problem:
    """Return Shrikhande's graph, which no counting of neighbours and common neighbours tells from `rook`."""
    return graph(plane(4, 4), lambda dx, dy: (dx % 4, dy % 4) in {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)})


def complements(*graphs: Problem) -> Problem:
    """Return several graphs side by side, with an edge wherever the graph has none."""
    names, edges = [], []
    for number, one in enumerate(graphs):
        nodes = [typed.name for typed in one.objects if typed.types == ("place",)]
        known = {atom.arguments for atom in one.init}
        names += [f"{node}_{number}" for node in nodes]
        edges += [f"next {a}_{number} {b}_{number}" for a, b in permutations(nodes, 2) if (a, b) not in known]
    return parts_problem(" ".join(names) + " - place", edges)


def workers(count: int, n_goals: int) -> Problem:
    """Return workers and parcels at one place; some parcels go to the first two workers."""
    names = "".join(f"w{i} - vehicle k{i} - parcel " for i in range(count))
    init = [f"at {letter}{i} depot" for i in range(count) for letter in "wk"]
    return parts_problem(names, init, [f"in k{i} w{i % 2}" for i in range(n_goals)])


def triples(count: int) -> Problem:
    return parts_problem(places(count), [f"via n{i} n{(i + 1) % count} n{(i + 3) % count}" for i in range(count)])


def random_edges(n_places: int, n_edges: int) -> Problem:
    pairs = sorted(product(range(n_places), repeat=2), key=lambda pair: (pair[0] * 7919 + pair[1] * 104729) % 1009)
    return parts_problem(places(n_places), [f"next n{a} n{b}" for a, b in pairs[:n_edges]])


def priced_ring(size: int) -> Problem:
    prices = [f"= (distance n{i} n{(i + 1) % size}) {1 + i % 3}" for i in range(size)]
    return parts_problem(places(size), [*prices, "= (total-cost) 0"], ["done"])


@given(blocks_problems(max_blocks=7), st.randoms(use_true_random=False))
def test_canonical_form_renamed_and_shuffled_problem_has_the_same(problem: Problem, rng: random.Random) -> None:
    names = [f"n{number}" for number in range(20)]
    copy = rename_problem(problem, random_renaming(problem, names, rng), rng)
    assert copy != problem
    assert canonical_form(BLOCKS, copy) == canonical_form(BLOCKS, problem)


@given(st.randoms(use_true_random=False))
def test_canonical_form_names_exchanged_among_the_same_objects_has_the_same(rng: random.Random) -> None:
    names = [typed.name for typed in DEPOT_PROBLEM.objects]
    copy = rename_problem(DEPOT_PROBLEM, random_renaming(DEPOT_PROBLEM, names, rng), rng)
    assert canonical_form(DEPOT, copy) == canonical_form(DEPOT, DEPOT_PROBLEM)


def arrangements(blocks: str) -> list[Towers]:
    """Return every arrangement of blocks in towers, found without the sampler's recurrence."""
    found = set()
    for order in permutations(blocks):
        for cuts in product([False, True], repeat=len(blocks) - 1):
            towers: list[list[str]] = [[order[0]]]
            for block, is_cut in zip(order[1:], cuts, strict=True):
                towers.append([block]) if is_cut else towers[-1].append(block)
            found.add(tuple(sorted(tuple(tower) for tower in towers)))
    return sorted(found)


def least_renaming(init: Towers, goal: Towers, blocks: str) -> tuple[object, ...]:
    """Return the least text of a pair of arrangements over all names, the brute-force canonical form."""
    texts = []
    for order in permutations(blocks):
        name = dict(zip(blocks, order, strict=True))
        sides = [sorted((name[a.arguments[0]], name[a.arguments[1]]) for a in on_atoms(side)) for side in (init, goal)]
        texts.append(tuple(map(tuple, sides)))
    return min(texts)


@pytest.mark.parametrize(("blocks", "n_arrangements"), [("ab", 3), ("abc", 13)], ids=["2 blocks", "3 blocks"])
def test_canonical_form_all_small_problems_fall_into_the_brute_force_classes(blocks: str, n_arrangements: int) -> None:
    states = arrangements(blocks)
    assert len(states) == n_arrangements
    form_of_class: dict[tuple[object, ...], set[str]] = {}
    for init, goal in product(states, states):
        problem = blocksworld_problem(blocks, init, on_atoms(goal), random.Random(0))
        form_of_class.setdefault(least_renaming(init, goal, blocks), set()).add(canonical_form(BLOCKS, problem))
    assert all(len(forms) == 1 for forms in form_of_class.values())
    assert len(set().union(*form_of_class.values())) == len(form_of_class) > n_arrangements


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("t1 - truck c1 - car", "t1 - car c1 - car"),
        ("k1 - parcel", "k1 - (either parcel movable)"),
        ("(at c1 hub)", "(at c1 l1)"),
        ("(closed l2)", "(closed hub)"),
        ("(closed l2))\n", "(closed l2) (closed l1))\n"),
        ("(not (closed l2))", "(closed l2)"),
        ("(at t1 hub) (not", "(at c1 hub) (not"),
        (" o1)", " o1 o2)"),
    ],
    ids=["type", "either", "constant", "constant for object", "more init", "sign", "goal", "one more object"],
)
def test_canonical_form_of_another_problem_differs(before: str, after: str) -> None:
    text = DEPOT_PROBLEM_TEXT.replace(before, after)
    assert text != DEPOT_PROBLEM_TEXT
    assert canonical_form(DEPOT, parse_problem(text, DEPOT)) != canonical_form(DEPOT, DEPOT_PROBLEM)


def test_canonical_form_of_the_same_problem_in_another_domain_differs() -> None:
    other = parse_domain(DEPOT_TEXT.replace("(not (closed ?to))", ""))
    assert canonical_form(other, DEPOT_PROBLEM) != canonical_form(DEPOT, DEPOT_PROBLEM)


def test_canonical_form_of_mystery_blocksworld_is_that_of_blocksworld() -> None:
    mystery = load_domain("mystery-blocksworld").domain
    for seed in range(20):
        plain, hidden = (
            sampler.sample(random.Random(seed), blocks=5) for sampler in (blocksworld, mystery_blocksworld)
        )
        assert canonical_form(mystery, hidden) == canonical_form(BLOCKS, plain)


def test_canonical_form_another_predicate_of_the_same_arity_differs() -> None:
    texts = [f"(define (problem p) (:domain b) (:objects a) (:init ({word} a)) (:goal (clear a)))"
             for word in ("ontable", "holding", "clear")]  # fmt: skip
    assert len({canonical_form(BLOCKS, parse_problem(text, BLOCKS)) for text in texts}) == 3


def test_canonical_form_words_that_are_types_as_well_stay_apart() -> None:
    text = """(define (domain d) (:types one two) (:predicates (one ?x))
      (:action two :parameters (?x) :precondition (one ?x) :effect (not (one ?x))))"""
    domain = parse_domain(text)
    problem = "(define (problem p) (:domain d) (:objects a - TYPE) (:init (one a)) (:goal (one a)))"
    problems = [parse_problem(problem.replace("TYPE", word), domain) for word in ("one", "two")]
    assert len({canonical_form(domain, problem) for problem in problems}) == 2


def test_canonical_form_needs_more_than_counting_neighbours() -> None:
    """One ring of six and two rings of three look alike to every object; only the search tells them apart."""
    assert canonical_form(PARTS, rings(6)) != canonical_form(PARTS, rings(3, 3))
    assert canonical_form(PARTS, rings(2, 4)) == canonical_form(PARTS, rings(4, 2))


def test_canonical_form_place_of_an_argument_matters() -> None:
    up = blocksworld_problem("ab", (("a",), ("b",)), on_atoms((("a", "b"),)), random.Random(0))
    tower_kept = blocksworld_problem("ab", (("b", "a"),), on_atoms((("b", "a"),)), random.Random(0))
    tower_turned = blocksworld_problem("ab", (("b", "a"),), on_atoms((("a", "b"),)), random.Random(0))
    assert len({canonical_form(BLOCKS, problem) for problem in (up, tower_kept, tower_turned)}) == 3


def test_canonical_form_many_identical_objects_is_found() -> None:
    """Eight blocks on the table are 40,320 renamings and 20 are 10^18: objects that can be swapped are tried once."""
    for n_blocks in (8, 20):
        blocks = [f"b{number}" for number in range(n_blocks)]
        towers = tuple((block,) for block in blocks)
        forms = {
            canonical_form(BLOCKS, blocksworld_problem(blocks, towers, on_atoms(((first, second),)), random.Random(0)))
            for first, second in (("b0", "b1"), ("b7", "b3"))
        }
        assert len(forms) == 1


FROZEN = {
    "no objects": (parts_problem("", []), "372e7934a4809d1c7bb5acef"),
    "one tower of five": (towers(5), "1d40ad41fb5a8a6ae9cef126"),
    "towers of 1 2 and 3": (towers(1, 2, 3), "477ec7f7260be75c09588fc0"),
    "four towers of two": (towers(2, 2, 2, 2), "346eaba1c182f3685e64ab6f"),
    "towers of 2 2 3 3": (towers(2, 2, 3, 3), "b74ada001cacd9c9380114df"),
    "twelve blocks on the table": (towers(*[1] * 12), "ede42024415f4bd1f0716df5"),
    "rings of 6": (rings(6), "7b51690869e777ec6123bb17"),
    "rings of 3 and 3": (rings(3, 3), "dc3e3de2b31d0d5b1e516865"),
    "rings of 2 3 and 4": (rings(2, 3, 4), "05ee29393c3fbb0507c99120"),
    "four cities": (cities(4), "f3555d95a08d483b3e6150c2"),
    "five cities with two parcels": (cities(5, n_parcels=2), "612ec7393f98b20561821d2a"),
    "four cities with four parcels": (cities(4, n_parcels=4), "04537aee528988c8d07e6876"),
    "three satellites": (satellites(3, 2), "2bd3df3823a19de6dc4e361f"),
    "grid": (grid(4, 4), "f229623ffb9ddbd3de2d10a2"),
    "grid with a vehicle": (grid(5, 3, extra=["at v n1_1"]), "765c31ca62d1e88f7b843222"),
    "torus": (torus(4), "7dc4da28fb97c9e6441e4037"),
    "rook": (rook(), "3cf73315451eeeb978e122c6"),
    "shrikhande": (shrikhande(), "a37159298c8b69fe85578b55"),
    "workers": (workers(8, 4), "305bcd98d70f973f30d0d4d4"),
    "places of three arguments": (triples(9), "1afc5b192348a13fcc9cfcfe"),
    "many static atoms": (random_edges(20, 180), "e4de2e1a109fa0bf2cd090b6"),
    "prices": (priced_ring(9), "80654a075cab293699b0da28"),
    "depot": (DEPOT_PROBLEM, "c208080a58c11a012a613172"),
}


@pytest.mark.parametrize(("problem", "digest"), FROZEN.values(), ids=FROZEN)
def test_canonical_form_is_the_one_that_existing_splits_were_made_with(problem: Problem, digest: str) -> None:
    """Another digest puts a problem into another split."""
    assert canonical_form(domain_of(problem), problem) == digest


def domain_of(problem: Problem) -> Domain:
    return {domain.name: domain for domain in (BLOCKS, PARTS, DEPOT)}[problem.domain_name]


def test_canonical_form_differs_between_all_frozen_problems() -> None:
    assert len({digest for _, digest in FROZEN.values()}) == len(FROZEN)


SYMMETRIC = {
    "20 towers": towers(*[2] * 20),
    "towers of 2 and 3": towers(*[2] * 10, *[3] * 7),
    "12 cities": cities(12),
    "9 satellites": satellites(9, 4),
    "rings of five": rings(*[5] * 6),
    "rings of 3 and 6": rings(*[3] * 3, *[6] * 3),
    "torus": torus(6),
    "rook": rook(),
    "shrikhande": shrikhande(),
    "two strongly regular graphs": complements(rook(), shrikhande()),
    "triples": triples(12),
    "workers": workers(20, 6),
}
"""Problems with so many automorphisms that trying every object would not end."""


@pytest.mark.parametrize("problem", SYMMETRIC.values(), ids=SYMMETRIC)
def test_canonical_form_symmetric_problem_renamed_has_the_same(problem: Problem) -> None:
    domain, names = domain_of(problem), [f"x{number}" for number in range(80)]
    form = canonical_form(domain, problem)
    for seed in range(8):
        rng = random.Random(seed)
        assert canonical_form(domain, rename_problem(problem, random_renaming(problem, names, rng), rng)) == form


def with_atoms(problem: Problem, *more: str) -> Problem:
    """Return the problem with more ``next`` atoms, written as ``a b``."""
    atoms = tuple(Atom("next", tuple(pair.split())) for pair in more)
    return replace(problem, init=(*problem.init, *atoms))


CITIES, TORUS = partial(with_atoms, cities(8)), partial(with_atoms, torus(6))


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (rook(), shrikhande(), False),
        (CITIES("stop2 depot"), CITIES("stop5 depot"), True),
        (CITIES("stop2 depot"), CITIES("hub2 hub5"), False),
        (CITIES("stop1 stop2", "stop3 stop4"), CITIES("stop7 stop0", "stop2 stop5"), True),
        (CITIES("stop1 stop2", "stop3 stop4"), CITIES("stop1 stop2", "stop2 stop3"), False),
        (TORUS("n0_0 n1_1"), TORUS("n3_2 n4_1"), True),
        (TORUS("n0_0 n1_1"), TORUS("n0_0 n2_0"), False),
        (rings(3, 3, 6, 6), rings(6, 3, 6, 3), True),
        (rings(3, 3, 6, 6), rings(3, 3, 3, 3, 6), False),
        (rings(3, 3, 6), rings(4, 4, 4), False),
    ],
    ids=[
        "strongly regular",
        "another city",
        "another end",
        "two edges",
        "a path",
        "diagonals",
        "a jump",
        "rings",
        "split ring",
        "rings of equal total",
    ],
)
def test_canonical_form_symmetric_problems_are_equal_only_if_the_same(
    first: Problem, second: Problem, is_same: bool
) -> None:
    domain = domain_of(first)
    assert len(first.objects) == len(second.objects)
    assert (canonical_form(domain, first) == canonical_form(domain, second)) is is_same


@st.composite
def small_graphs(draw: st.DrawFn) -> frozenset[tuple[int, int]]:
    """Return edges between four places, most of them with automorphisms."""
    return draw(st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6))


@given(small_graphs(), small_graphs())
def test_canonical_form_of_two_graphs_is_equal_exactly_if_a_permutation_maps_one_to_the_other(
    first: frozenset[tuple[int, int]], second: frozenset[tuple[int, int]]
) -> None:
    images = [{(order[a], order[b]) for a, b in first} for order in permutations(range(4))]
    forms = [
        canonical_form(PARTS, parts_problem(places(4), [f"next n{a} n{b}" for a, b in edges]))
        for edges in (first, second, images[-1])
    ]
    assert forms[0] == forms[2]
    assert (forms[0] == forms[1]) == (second in images)

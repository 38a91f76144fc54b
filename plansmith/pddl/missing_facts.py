"""Why no plan reaches a goal: goals out of reach even if nothing were ever deleted, and initial facts that are lacking.

Both are read off the delete relaxation (`reachability`). A goal out of its reach has no plan; one within may have none
either. The facts are a diagnosis and not the only one: with them in the initial state every goal is within reach, with
any one of them less not. Looked for is the cheapest way to the goals where every fact may be added at a price: a
generalised Dijkstra (Knuth, "A Generalization of Dijkstra's Algorithm", Information Processing Letters 6, 1977). What
an action needs is priced by sum and by maximum, as in two heuristics of Bonet and Geffner (AIJ 129, 2001), and the
cheaper set counts. A road is cheaper than a place, a place than what kind an object is; what the goals themselves say
is the last resort.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import EQUALITY, ActionSchema, Atom, Conjunction, Literal
from plansmith.pddl.reachability import Reachability, atoms_in

MAX_ACTIONS = 20_000
"""A task with more ground actions, those that supply a fact among them, is not looked at."""
_SUPPLY = "supply "
"""How the names of the actions begin that supply a fact; no action of a domain has a space in its name."""
_STATIC, _CHANGING, _KIND, _GOAL = 20, 25, 60, 1000
"""What a fact costs that is supplied, and 1 for each object in it: one that no action changes; one that changes; one
that says what kind an object is; a goal."""
_UNUSUAL = 10
"""How much more, where the initial state has no fact of its predicate, or it names an object twice."""


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Goals that no plan reaches, and initial facts with which the delete relaxation reaches all."""

    goals: tuple[Literal, ...]
    missing: tuple[Atom, ...]


def out_of_reach(task: PlanningTask) -> OutOfReach | None:
    """Return which goals are out of reach, and what is lacking; None for a task that is too large to be looked at.

    Equalities and goals that are no positive literals count as within reach. A task with derived predicates is not
    looked at either.
    """
    tasks = () if task.domain.derived else (_with_supplies(task, has_kinds) for has_kinds in (True, False))
    wider = next((wider for wider in tasks if wider.most_ground_actions <= MAX_ACTIONS), None)
    return None if wider is None else _found(task, wider)


def _found(task: PlanningTask, wider: PlanningTask) -> OutOfReach:
    facts = [goal for goal in task.goal if isinstance(goal, Literal) and goal.is_positive]
    goals = [goal for goal in facts if goal.atom.predicate != EQUALITY]
    supplies, actions = _divided(wider.ground_actions())
    relaxed, atoms = Reachability(action.relaxed for action in actions), {goal: wider.bit(goal.atom) for goal in goals}
    reached = relaxed.reached(wider.initial_state)
    lost = tuple(goal for goal in goals if not atoms[goal] & reached)
    if not lost:
        return OutOfReach((), ())
    wanted = [atoms[goal] for goal in lost]  # one may be of a kind that no action supplies
    suppliable = {*wanted, *(action.added for action in supplies)}
    prices = {fact: _price(task, fact, wider, atoms.values()) for fact in suppliable}
    sets = [_cheapest(relaxed.actions, wider.initial_state, prices, wanted, combine) for combine in (add, max)]
    needed = [_needed(relaxed, wider.initial_state, missing, wanted) for missing in sets]
    return OutOfReach(lost, wider.atoms_of(min(needed, key=lambda facts: sum(prices[x] for x in atoms_in(facts)))))


def _needed(relaxed: Reachability, state: int, missing: int, wanted: Sequence[int]) -> int:
    """Return facts without those that the others make superfluous."""
    for fact in atoms_in(missing):
        within = relaxed.reached(state | missing & ~fact)
        if all(atom & within for atom in wanted):
            missing &= ~fact
    return missing


def _with_supplies(task: PlanningTask, has_kinds: bool) -> PlanningTask:
    """Return the task with an action for each predicate that adds any fact of it, no kind of object if not wanted."""
    supplies = (
        ActionSchema(
            _SUPPLY + predicate.name,
            predicate.parameters,
            Conjunction(()),
            (Literal(Atom(predicate.name, tuple(parameter.name for parameter in predicate.parameters))),),
        )
        for predicate in task.domain.predicates
        if has_kinds or not _is_kind(task, predicate.name, len(predicate.parameters))
    )
    return PlanningTask(replace(task.domain, actions=(*task.domain.actions, *supplies)), task.problem)


def _divided(actions: Iterable[GroundAction]) -> tuple[list[GroundAction], list[GroundAction]]:
    """Return the actions that supply a fact, and the domain's own."""
    supplies, own = list[GroundAction](), list[GroundAction]()
    for action in actions:
        (supplies if action.step.name.startswith(_SUPPLY) else own).append(action)
    return supplies, own


def _price(task: PlanningTask, fact: int, wider: PlanningTask, goals: Collection[int]) -> int:
    (atom,) = wider.atoms_of(fact)
    if fact in goals:
        return _GOAL
    n_objects, is_new = len(atom.arguments), all(known.predicate != atom.predicate for known in task.problem.init)
    more = n_objects + _UNUSUAL * (is_new + (len(set(atom.arguments)) < n_objects))
    if not task.is_static(atom.predicate):
        return _CHANGING + more
    return more + (_KIND if _is_kind(task, atom.predicate, n_objects) else _STATIC)


def _is_kind(task: PlanningTask, predicate: str, n_parameters: int) -> bool:
    """Return whether a predicate says what an object is, whatever happens."""
    return n_parameters == 1 and task.is_static(predicate)


def _cheapest(
    actions: Sequence[tuple[int, int]],
    state: int,
    prices: Mapping[int, int],
    wanted: Sequence[int],
    combine: Callable[[int, int], int],
) -> int:
    """Return the facts that are supplied on the cheapest ways to some atoms.

    Args:
        actions: what each needs, and what it adds; they cost nothing.
        state: atoms that hold.
        prices: of the facts that may be supplied.
        wanted: atoms.
        combine: the prices of two needs of an action.
    """
    users: dict[int, list[int]] = defaultdict(list)
    for number, (required, _) in enumerate(actions):
        for atom in atoms_in(required & ~state):
            users[atom].append(number)
    open_needs, costs = [(required & ~state).bit_count() for required, _ in actions], [0] * len(actions)
    ways: dict[int, int] = dict.fromkeys(atoms_in(state), 0)
    """What is needed for each atom that is settled; a supplied one needs itself."""
    queue = [(price, fact, fact) for fact, price in prices.items()]
    queue += [(0, atom, 0) for (_, adds), needs in zip(actions, open_needs, strict=True) if not needs
              for atom in atoms_in(adds)]  # fmt: skip
    heapq.heapify(queue)
    while queue:
        cost, atom, needs = heapq.heappop(queue)
        if atom in ways:
            continue
        ways[atom] = needs
        for number in users[atom]:
            open_needs[number] -= 1
            costs[number] = combine(costs[number], cost)
            if not open_needs[number]:
                required, adds = actions[number]
                for added in atoms_in(adds):
                    heapq.heappush(queue, (costs[number], added, required & ~state))
    return _supplied(ways, wanted)


def _supplied(ways: Mapping[int, int], wanted: Iterable[int]) -> int:
    """Return the supplied facts that some atoms come from."""
    found, waiting, seen = 0, list(wanted), set[int]()
    while waiting:
        if (atom := waiting.pop()) in seen:
            continue
        seen.add(atom)
        if ways[atom] == atom:
            found |= atom
        else:
            waiting += atoms_in(ways[atom])
    return found

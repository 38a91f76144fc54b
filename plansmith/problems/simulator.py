"""What stands in for the robot: states and attempts go in, the next state or a refusal comes out, and nothing else.

Source: Self-CriTeach, sections 3.1 and A.1.1, whose demonstrations are recorded of robots. Here a reference domain of
ours decides what an attempt does; whoever watches sees skills, states and refusals, never a schema. Facts that no skill
needs or changes are mixed in, as a camera sees more than matters. Not here: how demonstrations are kept in files
(`demonstrations`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from plansmith.pddl.ground_actions import MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Domain, PlanStep, PredicateSchema, Problem, TypedName
from plansmith.pddl.simulation import applicable_actions
from plansmith.problems.demonstrations import Attempt, Demonstrations, Skill, State, Trajectory

IRRELEVANT = ("scratched", "glossy")
"""Facts of single objects that mean nothing."""
IRRELEVANT_SHARE = 0.3


class Simulator:
    """One scene, with what a domain lets robots do in it."""

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self._task = PlanningTask(domain, problem)

    @property
    def initial_state(self) -> State:
        """Return the state of the scene as it is found."""
        return frozenset(self._task.problem.init)

    def step(self, state: State, action: PlanStep) -> State | None:
        """Return the state that an attempt leads to; None where it is refused, and all stays as it is."""
        ground = self._task.ground(action)
        if isinstance(ground, MalformedStep):
            return None
        bits = self._task.state_of(state)
        return frozenset(self._task.atoms_of(ground.apply(bits))) if ground.is_applicable(bits) else None

    def possible(self, state: State) -> list[PlanStep]:
        """Return every attempt that would succeed."""
        found = applicable_actions(self._task, self._task.state_of(state))
        return [action.step for action in found]

    def run(self, plan: tuple[PlanStep, ...]) -> tuple[State, int | None]:
        """Return the state after a plan, or before its first refused step, and the number of that step from 1."""
        state = self.initial_state
        for number, action in enumerate(plan, 1):
            after = self.step(state, action)
            if after is None:
                return state, number
            state = after
        return state, None

    def solves(self, plan: tuple[PlanStep, ...]) -> bool:
        """Return whether a plan runs to its end and reaches the goal of the scene."""
        state, refused = self.run(plan)
        return refused is None and self._task.is_goal(self._task.state_of(state))


@dataclass(frozen=True, slots=True)
class Recording:
    """How one walk through a scene is recorded: so many steps, and so many attempts at each that may be refused.

    Those that succeed, or that were made at this step already, are left out.
    """

    n_steps: int
    n_refused: int


def demonstrate(domain: Domain, problem: Problem, recording: Recording, rng: random.Random) -> Trajectory:
    """Return a random walk through a scene, with attempts that are refused on the way.

    A third of the attempts are what could be done elsewhere on the walk, and a third what could be done here with one
    object exchanged, which tells more than a robot that lifts tables; the others have any objects of the scene. Without
    the near misses a domain may forget what a table is, and blocks are put down on blocks.
    """
    simulator = Simulator(domain, problem)
    walk = list(_walk(simulator, recording.n_steps, rng))
    elsewhere = sorted({action for state, _ in walk for action in simulator.possible(state)}, key=str)
    names = [typed.name for typed in problem.objects]
    marks = frozenset(Atom(mark, (name,)) for mark in IRRELEVANT for name in names if rng.random() < IRRELEVANT_SHARE)
    attempts: list[Attempt] = []
    for state, action in walk:
        here = simulator.possible(state)
        tried = [_guess(domain, names, (elsewhere, here), rng) for _ in range(recording.n_refused)]
        refused = dict.fromkeys(guess for guess in tried if simulator.step(state, guess) is None)
        attempts += [Attempt(state | marks, guess, None) for guess in refused]
        after = simulator.step(state, action)
        assert after is not None, "the walk went there"
        attempts.append(Attempt(state | marks, action, after | marks))
    return Trajectory(tuple(names), tuple(attempts))


def _walk(simulator: Simulator, n_steps: int, rng: random.Random) -> Iterator[tuple[State, PlanStep]]:
    """Yield states with what is done in them; skills first that were done least often, so that each is seen."""
    state, done = simulator.initial_state, dict[str, int]()
    for _ in range(n_steps):
        possible = simulator.possible(state)
        if not possible:
            return
        least = min(done.get(action.name, 0) for action in possible)
        action = rng.choice([action for action in possible if done.get(action.name, 0) <= least + 1])
        done[action.name] = done.get(action.name, 0) + 1
        yield state, action
        after = simulator.step(state, action)
        assert after is not None, "possible attempts succeed"
        state = after


def _guess(
    domain: Domain, names: list[str], possible: tuple[list[PlanStep], list[PlanStep]], rng: random.Random
) -> PlanStep:
    """Return an attempt: possible elsewhere, possible here but for one object, or any."""
    elsewhere, here = possible
    kind = rng.randrange(3)
    if kind == 0 and elsewhere:
        return rng.choice(elsewhere)
    if kind == 1 and here:
        action = rng.choice(here)
        place, arguments = rng.randrange(max(len(action.arguments), 1)), list(action.arguments)
        arguments[place : place + 1] = [rng.choice(names)] if arguments else []
        return PlanStep(action.name, tuple(arguments))
    schema = rng.choice(domain.actions)
    return PlanStep(schema.name, tuple(rng.choice(names) for _ in schema.parameters))


def vocabulary_of(domain: Domain) -> tuple[PredicateSchema, ...]:
    """Return what may be seen: the predicates of the domain without their types, and the irrelevant ones."""
    marks = (PredicateSchema(name, (TypedName("?x"),)) for name in IRRELEVANT)
    seen = (
        replace(schema, parameters=tuple(TypedName(typed.name) for typed in schema.parameters))
        for schema in domain.predicates
    )
    return (*seen, *marks)


def demonstrations_of(domain: Domain, task: str, trajectories: tuple[Trajectory, ...]) -> Demonstrations:
    """Return recorded walks with what the robot is known to be able to do and to see."""
    skills = tuple(
        Skill(schema.name, tuple(typed.name.removeprefix("?") for typed in schema.parameters))
        for schema in domain.actions
    )
    return Demonstrations(domain.name, task, skills, vocabulary_of(domain), trajectories)

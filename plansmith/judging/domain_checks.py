"""What is wrong with a domain that was written of demonstrations, as far as they, a planner and a simulator can tell.

Source: Self-CriTeach, sections 5.1 and A.1. The paper validates on sampled problems; ours also replays what was
demonstrated, keeps refused what was refused, and lets the simulator execute the planner's plans: in the domain that the
paper prints (A.6) a block can be stacked on itself, and problems are solved all the same. Nothing here mends anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from plansmith.errors import BadInputError
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Conjunction, Domain, Literal, PlanStep, Problem, TypedName
from plansmith.pddl.parser import parse_domain, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners.result import PlannerResult, PlannerStatus
from plansmith.problems.demonstrations import Attempt, Demonstrations, Trajectory
from plansmith.problems.simulator import Simulator

LONGEST_DOMAIN = 20_000
"""Characters of a written domain that are read at all."""
MOST_ACTIONS = 200_000
"""Ground actions that a sampled problem may have in a written domain before a planner is asked."""

LONGEST_MESSAGE = 300
"""Characters of a planner's message that are told."""
_NO_NEWS = re.compile(r"^\d|\d\.\d+s\b|^[^!]*\.\.\.$")
"""Lines of a planner's log that count, tell a time, or only begin something."""

Solve = Callable[[str, str], PlannerResult]
"""What a planner says of a domain and a problem, its plans accepted by the validator."""


class FaultKind(StrEnum):
    """How a domain is at fault."""

    NOT_READ = "not_read"
    OTHER_NAMES = "other_names"
    REFUSES_DEMONSTRATED = "refuses_demonstrated"
    OTHER_EFFECT = "other_effect"
    ALLOWS_REFUSED = "allows_refused"
    NOT_SOLVED = "not_solved"
    PLAN_REFUSED = "plan_refused"
    GOAL_MISSED = "goal_missed"


@dataclass(frozen=True, slots=True)
class DomainFault:
    """One fault, as it is told to who wrote the domain; ``action`` is the skill concerned, if one is.

    Attributes:
        arguments: objects of the attempt concerned.
        literals: what was not so though the domain wants it (`REFUSES_DEMONSTRATED`), what was so afterwards against
            the domain (`OTHER_EFFECT`), or all that was so where the robot is refused.
    """

    kind: FaultKind
    words: str
    action: str = ""
    arguments: tuple[str, ...] = ()
    literals: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """A sampled problem with the simulator that its plans are run in; its text has no types."""

    problem: Problem
    simulator: Simulator


@dataclass(frozen=True, slots=True)
class Scores:
    """Shares of what a domain gets right, each None where nothing could be tried."""

    transitions: float | None
    refusals: float | None
    solved: float | None
    true_plans: float | None

    def is_no_worse_than(self, other: Scores) -> bool:
        """Return whether no share is smaller."""
        pairs = zip(self.shares, other.shares, strict=True)
        return all((own or 0.0) >= (others or 0.0) for own, others in pairs)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Return the shares in their order."""
        return self.transitions, self.refusals, self.solved, self.true_plans

    @property
    def total(self) -> float:
        """Return the sum by which candidates are compared."""
        return sum(share or 0.0 for share in self.shares)


NOTHING = Scores(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CheckedDomain:
    """A written domain, None where it cannot be read, with its scores and faults."""

    domain: Domain | None
    scores: Scores
    faults: tuple[DomainFault, ...]

    @property
    def is_faultless(self) -> bool:
        """Return whether no check found anything."""
        return not self.faults

    @property
    def does_nothing_right(self) -> bool:
        """Return whether no domain can be worse: nothing was right, or nothing tried, as with other names."""
        return self.scores == NOTHING


@dataclass(frozen=True, slots=True)
class DomainChecks:
    """Checks domains against demonstrations and, where there are any, scenes.

    Attributes:
        demonstrations: U.
        scenes: sampled problems; none where there is no simulator, as with a user's recordings.
        solve: asks a planner.
    """

    demonstrations: Demonstrations
    scenes: tuple[Scene, ...] = ()
    solve: Solve | None = None

    def check(self, text: str | None) -> CheckedDomain:
        """Return what can be said about a written domain; a text is never bad input."""
        if text is None:
            return CheckedDomain(None, NOTHING, (DomainFault(FaultKind.NOT_READ, "there is no PDDL domain in it"),))
        if len(text) > LONGEST_DOMAIN:
            words = f"the domain has {len(text)} characters, more than {LONGEST_DOMAIN}"
            return CheckedDomain(None, NOTHING, (DomainFault(FaultKind.NOT_READ, words),))
        mistakes = [found for found in diagnose(text) if found.is_error]
        if mistakes:
            faults = tuple(DomainFault(FaultKind.NOT_READ, str(found)) for found in mistakes)
            return CheckedDomain(None, NOTHING, faults)
        return self.check_domain(parse_domain(text))

    def check_domain(self, domain: Domain) -> CheckedDomain:
        """Return what can be said about a domain that can be read; one with endless conditions counts as none."""
        names = tuple(self._other_names(domain))
        if names:
            return CheckedDomain(domain, NOTHING, names)
        try:
            replayed, faults = self.replay(domain)
            solved, true_plans, more = self._solve(domain)
        except BadInputError as error:  # of more instances than are ever expanded
            return CheckedDomain(None, NOTHING, (DomainFault(FaultKind.NOT_READ, str(error)),))
        scores = Scores(replayed.transitions, replayed.refusals, solved, true_plans)
        return CheckedDomain(domain, scores, (*faults, *more))

    def replay(self, domain: Domain) -> tuple[Scores, tuple[DomainFault, ...]]:
        """Return how much of the demonstrations a domain explains, and what of it not; no planner is asked."""
        n_right = {True: 0, False: 0}
        faults: dict[DomainFault, None] = {}
        for trajectory in self.demonstrations.trajectories:
            task = PlanningTask(domain, scene_problem(domain, trajectory))
            for attempt in trajectory.attempts:
                fault = self._replay(task, attempt)
                n_right[attempt.after is not None] += fault is None
                if fault is not None:
                    faults.setdefault(fault)
        n_refused = self.demonstrations.n_refused
        n_moves = sum(1 for _ in self.demonstrations.attempts) - n_refused
        shares = (n_right[True] / n_moves if n_moves else None, n_right[False] / n_refused if n_refused else None)
        return Scores(*shares, None, None), tuple(faults)

    def _replay(self, task: PlanningTask, attempt: Attempt) -> DomainFault | None:
        action = task.ground(attempt.action)
        if not isinstance(action, GroundAction):
            return DomainFault(FaultKind.OTHER_NAMES, f"{attempt.action}: {action.reason}", attempt.action.name)
        known = {schema.name for schema in task.domain.predicates}
        state = task.state_of(atom for atom in attempt.state if atom.predicate in known)
        if attempt.after is None:
            if not action.is_applicable(state):
                return None
            told = _list(attempt.about(attempt.state))
            words = f"{attempt.action} can be applied where the robot was refused, in {told}"
            return _fault(FaultKind.ALLOWS_REFUSED, words, attempt.action, map(Literal, sorted(attempt.state)))
        if not action.is_applicable(state):
            unmet = task.unsatisfied(action.preconditions, state)
            words = f"{attempt.action} was done where the domain forbids it: {_list(unmet)} was not so"
            return _fault(FaultKind.REFUSES_DEMONSTRATED, words, attempt.action, unmet)
        return _effect_fault(task, attempt, action.apply(state), known)

    def _other_names(self, domain: Domain) -> Iterator[DomainFault]:
        wanted, kind = self.demonstrations, FaultKind.OTHER_NAMES
        if domain.name != wanted.name:
            yield DomainFault(kind, f"the domain is called {domain.name}, not {wanted.name}")
        skills = {skill.name: skill for skill in wanted.skills}
        for action in domain.actions:
            if action.name not in skills:
                yield DomainFault(kind, f"the robot has no skill {action.name}", action.name)
            elif len(action.parameters) != len(skills[action.name].arguments):
                words = f"{action.name} has {len(action.parameters)} parameters; the skill is {skills[action.name]}"
                yield DomainFault(kind, words, action.name)
        used = {attempt.action.name for _, attempt in wanted.attempts if attempt.after is not None}
        for name in sorted(used - {action.name for action in domain.actions}):
            yield DomainFault(kind, f"the skill {skills[name]} has no action", name)
        seen = {schema.name: len(schema.parameters) for schema in wanted.predicates}
        for schema in domain.predicates:
            if seen.get(schema.name) != len(schema.parameters):
                words = f"nobody can see ({schema.name}) with {len(schema.parameters)} arguments"
                yield DomainFault(kind, words)

    def _solve(self, domain: Domain) -> tuple[float | None, float | None, tuple[DomainFault, ...]]:
        """Return which share of the scenes has a plan, which share of the plans is true, and the faults."""
        if not self.scenes or self.solve is None:
            return None, None, ()
        outcomes = [self._solve_scene(domain, scene, self.solve) for scene in self.scenes]
        faults = tuple(fault for fault, _ in outcomes if fault is not None)
        n_solved = sum(is_solved for _, is_solved in outcomes)
        n_true = sum(fault is None for fault, _ in outcomes)
        return n_solved / len(outcomes), n_true / len(outcomes), faults

    def _solve_scene(self, domain: Domain, scene: Scene, solve: Solve) -> tuple[DomainFault | None, bool]:
        problem = adopted(domain, scene.problem)
        size = PlanningTask(domain, problem).most_ground_actions
        if size > MOST_ACTIONS:
            return DomainFault(FaultKind.NOT_SOLVED, f"{size} ground actions in a small problem"), False
        text = print_problem(problem)
        result = solve(print_domain(domain), text)
        if result.status is not PlannerStatus.SOLVED or result.plan is None:
            said = f"{result.status.value} ({planners_words(result.message) or 'and no more'})"
            words = f"the planner says {said} of this problem, which the robot can do:\n{text.rstrip()}"
            return DomainFault(FaultKind.NOT_SOLVED, words), False
        plan = tuple(parse_step(step) for step in result.plan)
        state, refused = scene.simulator.run(plan)
        if refused is not None:
            action = plan[refused - 1]
            words = f"the plan {_list(plan)}\nis refused at step {refused}, {action}, in {_list(sorted(state))}"
            return _fault(FaultKind.PLAN_REFUSED, words, action, map(Literal, sorted(state))), True
        if not scene.simulator.solves(plan):
            words = f"the plan {_list(plan)}\nruns, and the goal is missed; it ends in {_list(sorted(state))}"
            return DomainFault(FaultKind.GOAL_MISSED, words), True
        return None, True


def planners_words(message: str) -> str:
    """Return what a planner's message says of a problem (the error trace of section A.1.2), on a line, cut.

    Without its counts and times, so that a prompt of two runs is the same.
    """
    lines = (line.strip() for line in message.splitlines())
    return " ".join(line for line in lines if line and not _NO_NEWS.search(line))[:LONGEST_MESSAGE]


def scene_problem(domain: Domain, trajectory: Trajectory) -> Problem:
    """Return the objects of a trajectory as a problem of a domain without types."""
    objects = tuple(TypedName(name) for name in trajectory.objects)
    return Problem("scene", domain.name, objects, (), Conjunction())


def adopted(domain: Domain, problem: Problem) -> Problem:
    """Return a problem with what a domain knows of it: facts and goals of its predicates, objects without types."""
    objects, init = tuple(TypedName(typed.name) for typed in problem.objects), tuple(known_atoms(domain, problem.init))
    return Problem(problem.name, domain.name, objects, init, problem.goal, problem.function_values, problem.metric)


def known_atoms(domain: Domain, atoms: Iterable[Atom]) -> Iterator[Atom]:
    """Return the facts that are of a domain's predicates, with as many arguments as those have."""
    known = {(schema.name, len(schema.parameters)) for schema in domain.predicates}
    return (atom for atom in atoms if (atom.predicate, len(atom.arguments)) in known)


def _effect_fault(task: PlanningTask, attempt: Attempt, state: int, known: set[str]) -> DomainFault | None:
    """Return how the state that the domain gives differs from what was seen."""
    assert attempt.after is not None
    seen = {atom for atom in attempt.after if atom.predicate in known}
    given = set(task.atoms_of(state))
    lacking = sorted(seen - given)
    unseen = sorted(given - seen)
    # a predicate that the domain leaves out may change only unnoticed
    left_out = sorted(atom for atom in attempt.after ^ attempt.state if atom.predicate not in known)
    if not lacking and not unseen and not left_out:
        return None
    parts = [
        f"{_list(atoms)} {what}"
        for atoms, what in (
            (lacking, "was true afterwards, and the domain says no"),
            (unseen, "was not true afterwards, and the domain says it is"),
            (left_out, "changed, and the domain has no such predicate"),
        )
        if atoms
    ]
    words = f"after {attempt.action} in {_list(attempt.about(attempt.state))}: {'; '.join(parts)}"
    false = (Literal(atom, is_positive=False) for atom in unseen)
    changed = (Literal(atom, is_positive=atom in attempt.after) for atom in left_out)
    return _fault(FaultKind.OTHER_EFFECT, words, attempt.action, (*map(Literal, lacking), *false, *changed))


def _fault(kind: FaultKind, words: str, action: PlanStep, literals: Iterable[Condition]) -> DomainFault:
    told = tuple(literal for literal in literals if isinstance(literal, Literal))
    return DomainFault(kind, words, action.name, action.arguments, told)


def _list(items: Sequence[object] | Iterable[Condition]) -> str:
    return " ".join(map(str, items))

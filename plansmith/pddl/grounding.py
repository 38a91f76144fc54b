"""States and ground actions of one problem.

A state is an integer used as a bit set over the ground atoms met so far: bit i stands for `PlanningTask.atoms[i]`.
Atoms get their bit when they are first named, and an action schema is grounded only when a plan names it, so a task
costs no more than the plans judged in it. Ground actions are cached: the rollouts of a group share one task.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from plansmith.pddl.model import EQUALITY, Atom, Domain, Literal, PlanStep, Problem, TypedName, literals_of
from plansmith.pddl.parser import is_subtype, parse_domain, parse_problem


@dataclass(frozen=True, slots=True)
class GroundAction:
    """An action schema with its parameters bound; effects and preconditions as bit sets.

    An atom both added and deleted is true afterwards (add wins), as in VAL and PDDL 2.1.
    """

    step: PlanStep
    preconditions: tuple[Literal, ...]
    add_effects: tuple[Atom, ...]
    delete_effects: tuple[Atom, ...]
    required: int
    forbidden: int
    added: int
    deleted: int
    false_equalities: tuple[Literal, ...]

    def is_applicable(self, state: int) -> bool:
        """Return whether every precondition holds in `state`."""
        return state & self.required == self.required and not state & self.forbidden and not self.false_equalities

    def apply(self, state: int) -> int:
        """Return the state after the action, whose preconditions must hold."""
        return (state & ~self.deleted) | self.added


@dataclass(frozen=True, slots=True)
class MalformedStep:
    """A step that names no ground action of the task, with the reason."""

    step: PlanStep
    reason: str


class PlanningTask:
    """A domain and a problem made ready for states: parsed once, shared by every plan judged in it."""

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self.domain, self.problem = domain, problem
        self.objects = {typed.name: typed for typed in (*domain.constants, *problem.objects)}
        self.atoms: list[Atom] = []
        self._bit_of: dict[Atom, int] = {}
        self._steps: dict[PlanStep, GroundAction | MalformedStep] = {}
        self.initial_state = self.state_of(problem.init)
        self.goal = literals_of(problem.goal)

    @classmethod
    def from_text(cls, domain_pddl: str, problem_pddl: str) -> PlanningTask:
        """Return the task of two PDDL texts.

        Raises:
            PddlParseError: either text cannot be read.
        """
        domain = parse_domain(domain_pddl)
        return cls(domain, parse_problem(problem_pddl, domain))

    def bit(self, atom: Atom) -> int:
        """Return the bit of a ground atom, giving it one when it is new."""
        position = self._bit_of.get(atom)
        if position is None:
            position = self._bit_of[atom] = len(self.atoms)
            self.atoms.append(atom)
        return 1 << position

    def state_of(self, atoms: Iterable[Atom]) -> int:
        """Return the state in which exactly `atoms` are true."""
        state = 0
        for atom in atoms:
            state |= self.bit(atom)
        return state

    def atoms_of(self, state: int) -> tuple[Atom, ...]:
        """Return the true atoms of a state, in the order in which the task met them."""
        return tuple(atom for position, atom in enumerate(self.atoms) if state >> position & 1)

    def holds(self, literal: Literal, state: int) -> bool:
        """Return whether a ground literal is true in a state."""
        atom = literal.atom
        if atom.predicate == EQUALITY:
            return (atom.arguments[0] == atom.arguments[1]) == literal.is_positive
        return bool(state & self.bit(atom)) == literal.is_positive

    def unsatisfied(self, literals: Iterable[Literal], state: int) -> tuple[Literal, ...]:
        """Return the literals that are false in a state, in their own order."""
        return tuple(literal for literal in literals if not self.holds(literal, state))

    def is_goal(self, state: int) -> bool:
        """Return whether every goal literal holds in a state."""
        return all(self.holds(literal, state) for literal in self.goal)

    def ground(self, step: PlanStep) -> GroundAction | MalformedStep:
        """Return the ground action a step names, or why there is none."""
        found = self._steps.get(step)
        if found is None:
            found = self._steps[step] = self._ground(step)
        return found

    def _ground(self, step: PlanStep) -> GroundAction | MalformedStep:
        schema = self.domain.action(step.name)
        if schema is None:
            known = ", ".join(action.name for action in self.domain.actions)
            return MalformedStep(step, f"no action is called '{step.name}'; the domain has {known}")
        if len(step.arguments) != len(schema.parameters):
            return MalformedStep(
                step, f"'{step.name}' takes {len(schema.parameters)} arguments, got {len(step.arguments)}"
            )
        for name, parameter in zip(step.arguments, schema.parameters, strict=True):
            if not self._fits(name, parameter):
                return MalformedStep(step, f"'{name}' {self._misfit(name, parameter)}")
        binding = {parameter.name: name for parameter, name in zip(schema.parameters, step.arguments, strict=True)}
        preconditions = tuple(literal.substitute(binding) for literal in literals_of(schema.precondition))
        effects = tuple(effect.substitute(binding) for effect in schema.effects)
        adds = tuple(dict.fromkeys(effect.atom for effect in effects if effect.is_positive))
        deletes = tuple(dict.fromkeys(effect.atom for effect in effects if not effect.is_positive))
        deletes = tuple(atom for atom in deletes if atom not in adds)
        facts = [literal for literal in preconditions if literal.atom.predicate != EQUALITY]
        return GroundAction(
            step=step,
            preconditions=preconditions,
            add_effects=adds,
            delete_effects=deletes,
            required=self.state_of(literal.atom for literal in facts if literal.is_positive),
            forbidden=self.state_of(literal.atom for literal in facts if not literal.is_positive),
            added=self.state_of(adds),
            deleted=self.state_of(deletes),
            false_equalities=tuple(
                literal
                for literal in preconditions
                if literal.atom.predicate == EQUALITY and not self.holds(literal, 0)
            ),
        )

    def _fits(self, name: str, parameter: TypedName) -> bool:
        typed = self.objects.get(name)
        return typed is not None and any(is_subtype(self.domain, own, parameter) for own in typed.types)

    def _misfit(self, name: str, parameter: TypedName) -> str:
        """Return why an object cannot stand where `parameter` is declared."""
        if name not in self.objects:
            return "is no object of the problem"
        return f"is of type {' or '.join(self.objects[name].types)}, expected {' or '.join(parameter.types)}"

    def ground_actions(self) -> tuple[GroundAction, ...]:
        """Return every ground action; meant for small problems, the number is exponential in the arity."""
        found = []
        for schema in self.domain.actions:
            candidates = [[name for name in self.objects if self._fits(name, p)] for p in schema.parameters]
            for arguments in product(*candidates):
                action = self.ground(PlanStep(schema.name, arguments))
                if isinstance(action, GroundAction) and not action.false_equalities:
                    found.append(action)
        return tuple(found)

    def applicable_actions(self, state: int) -> tuple[GroundAction, ...]:
        """Return the ground actions whose preconditions hold in `state`, in schema and object order."""
        return tuple(action for action in self.ground_actions() if action.is_applicable(state))

"""Problems in any domain: random actions from an initial state, and some of what they changed as the goal.

What the walk reached is reachable, so every problem has a plan; it need not be short. Initial states come from rules in
the domain's settings, from example problems, or, for a domain that nobody has written rules for, from chance: every
well-typed atom holds with the same probability. Objects are named after their type.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice, product
from pathlib import Path

from plansmith.config.domains import InitRule, WalkSettings
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.cases import read_text
from plansmith.pddl.diagnostics import suggestion
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    TOTAL_COST,
    Atom,
    Conjunction,
    Domain,
    Literal,
    Number,
    Problem,
    TypedName,
    literals_of_effects,
)
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.simulation import successors
from plansmith.problems.building import build_problem

GREATEST_COST = 10
"""Function values are drawn from 1 to this."""


class WalkSampler:
    """Draws problems of one domain by random walk; `where` names its settings in errors."""

    def __init__(self, domain: Domain, settings: WalkSettings, folder: Path, *, where: str) -> None:
        self.domain, self.settings, self.folder, self.where = domain, settings, folder, where

    def sample(self, rng: random.Random, **sizes: int) -> Problem:
        """Return one problem; its goal is empty where the walk changed nothing that a goal may name.

        Raises:
            BadInputError: too few objects for a rule of the initial state.
        """
        return self.walked(self._start(rng, sizes), rng)

    def walked(self, start: Problem, rng: random.Random) -> Problem:
        """Return a problem with a goal that a walk from its initial state has reached; empty as in `sample`."""
        task = PlanningTask(self.domain, start)
        end = task.atoms_of(task.basic_atoms(self._walk(task, rng)))
        return replace(start, goal=Conjunction(tuple(map(Literal, self._goal(start, end, rng)))))

    def check(self) -> None:
        """Raise unless the settings name what the domain declares.

        Raises:
            ConfigError: an unknown predicate, type, variable or folder.
        """
        _ = self._rules, self._examples
        types = self.domain.ancestors()
        for kind in self.settings.objects:
            if kind not in types:
                raise ConfigError("a type that the domain does not declare", where=f"{self.where}, walk.objects",
                                  got=kind, expected=", ".join(sorted(types)))  # fmt: skip
        where = f"{self.where}, walk.goal_predicates"
        for name in self.settings.goal_predicates:
            _check_predicate(self.domain, name, where)
        if self.settings.goal_predicates and not self._added & set(self.settings.goal_predicates):
            raise ConfigError(
                "no action adds an atom of these predicates, so no walk reaches a goal",
                where=where,
                got=", ".join(self.settings.goal_predicates),
                expected=", ".join(sorted(self._added)) or "a domain whose actions add atoms",
            )

    def _start(self, rng: random.Random, sizes: Mapping[str, int]) -> Problem:
        """Return a problem whose goal is not used."""
        if self._examples:
            return rng.choice(self._examples)
        objects = self._named_objects(sizes)
        task = PlanningTask(self.domain, build_problem(self.domain.name, objects, [], []))
        if self._rules:
            init = [atom for rule in self._rules for atom in rule.atoms(task, rng)]
        else:
            init = [atom for atom in self._basic_atoms(task) if rng.random() < self.settings.density]
        metric = TOTAL_COST if any(schema.name == TOTAL_COST for schema in self.domain.functions) else None
        return build_problem(self.domain.name, objects, init, [], values=self._values(task, rng), metric=metric)

    def _named_objects(self, sizes: Mapping[str, int]) -> dict[str, list[str]]:
        """Return the objects of each type, none of them called like a constant or another object."""
        taken = {typed.name for typed in self.domain.constants}
        named: dict[str, list[str]] = {}
        for kind, size in self.settings.objects.items():
            free = (name for name in (f"{kind}{number}" for number in count(1)) if name not in taken)
            named[kind] = list(islice(free, sizes[size]))
            taken.update(named[kind])
        return named

    def _basic_atoms(self, task: PlanningTask) -> Iterator[Atom]:
        for schema in self.domain.predicates:
            if schema.name not in task.rules:
                yield from _ground_atoms(schema.name, schema.parameters, task)

    def _values(self, task: PlanningTask, rng: random.Random) -> dict[Atom, Number]:
        return {
            atom: 0 if schema.name == TOTAL_COST else rng.randint(1, GREATEST_COST)
            for schema in self.domain.functions
            for atom in _ground_atoms(schema.name, schema.parameters, task)
        }

    def _walk(self, task: PlanningTask, rng: random.Random) -> int:
        """Return the state after the walk, which goes to new states as long as there are any."""
        state = task.initial_state
        seen = {state}
        for _ in range(rng.randint(*self.settings.steps)):
            following = [after for _, after in successors(task, state) if after not in seen]
            if not following:
                break
            state = rng.choice(following)
            seen.add(state)
        return state

    def _goal(self, start: Problem, end: Sequence[Atom], rng: random.Random) -> list[Atom]:
        """Return some atoms true at the end, one or more of them false at the start; none where there is none."""
        predicates, before = set(self.settings.goal_predicates) or self._added, set(start.init)
        possible = [atom for atom in end if atom.predicate in predicates]
        changed = [atom for atom in possible if atom not in before]
        if not changed:
            return []
        first = rng.choice(changed)
        others = [atom for atom in possible if atom != first]
        return [first, *rng.sample(others, min(rng.randint(*self.settings.goal_size) - 1, len(others)))]

    @cached_property
    def _added(self) -> frozenset[str]:
        """The predicates of which actions add atoms."""
        effects = (literal for action in self.domain.actions for literal in literals_of_effects(action.effects))
        return frozenset(literal.atom.predicate for literal in effects if literal.is_positive)

    @cached_property
    def _examples(self) -> list[Problem]:
        """The example problems, whose goals are not used."""
        if self.settings.problems is None:
            return []
        folder = self.folder / self.settings.problems
        paths = [path for path in sorted(folder.glob("*.pddl")) if path.name != "domain.pddl"]
        if not paths:
            raise ConfigError("no problems to start from", where=f"{self.where}, walk.problems", got=str(folder),
                              expected="a folder with *.pddl files")  # fmt: skip
        return [parse_problem(read_text(path), self.domain, source=str(path)) for path in paths]

    @cached_property
    def _rules(self) -> list[_Rule]:
        return [_read_rule(rule, self.domain, f"{self.where}, walk.init, {rule.atom}") for rule in self.settings.init]


@dataclass(frozen=True)
class _Form:
    """An atom of a rule, with the types allowed in each place."""

    atom: Atom
    types: tuple[tuple[str, ...], ...]

    @property
    def variables(self) -> list[str]:
        """The variables of the atom in their order."""
        return list(dict.fromkeys(term for term in self.atom.arguments if term.startswith("?")))

    def objects(self, task: PlanningTask, variable: str) -> list[str]:
        """Return the objects that fit a variable wherever it stands."""
        allowed = [task.objects_of(types) for term, types in zip(self.atom.arguments, self.types, strict=True)
                   if term == variable]  # fmt: skip
        return [name for name in allowed[0] if all(name in names for names in allowed)]


@dataclass(frozen=True)
class _Rule:
    """An `InitRule` read: its atom, and the alternatives to it."""

    settings: InitRule
    forms: tuple[_Form, ...]
    where: str

    def atoms(self, task: PlanningTask, rng: random.Random) -> Iterator[Atom]:
        """Yield the atoms that the rule makes true."""
        objects = [{name: form.objects(task, name) for name in form.variables} for form in self.forms]
        fitting = [[name for name in objects[0][variable] if all(name in fits[variable] for fits in objects)]
                   for variable in self.settings.each]  # fmt: skip
        used: set[str] = set()
        for chosen in product(*fitting):
            if len(set(chosen)) < len(chosen) or rng.random() >= self.settings.chance:
                continue
            number = rng.randrange(len(self.forms)) if len(self.forms) > 1 else 0
            binding = dict(zip(self.settings.each, chosen, strict=True))
            free = [variable for variable in self.forms[number].variables if variable not in binding]
            for variable in free:
                binding[variable] = self._choice(variable, objects[number][variable], {*binding.values(), *used}, rng)
            if self.settings.is_distinct:
                used.update(binding[variable] for variable in free)
            yield self.forms[number].atom.substitute(binding)

    def _choice(self, variable: str, objects: Sequence[str], taken: Collection[str], rng: random.Random) -> str:
        possible = [name for name in objects if name not in taken]
        if not possible:
            raise BadInputError(
                "no object is left to choose",
                where=self.where,
                got=f"{len(objects)} objects for {variable}, all taken",
                cure="change the sizes",
            )
        return rng.choice(possible)


def _read_rule(rule: InitRule, domain: Domain, where: str) -> _Rule:
    return _Rule(rule, tuple(_read_form(atom, rule, domain, where) for atom in (rule.atom, *rule.alternatives)), where)


def _read_form(text: str, rule: InitRule, domain: Domain, where: str) -> _Form:
    words = text.strip().removeprefix("(").removesuffix(")").lower().split()
    if not words:
        raise ConfigError("an atom is missing", where=where, expected="(predicate ?variable - type ...)")
    parameters = _check_predicate(domain, words[0], where)
    terms = _typed_terms(words[1:], where)
    if len(terms) != len(parameters):
        raise ConfigError("wrong number of arguments", where=where, got=str(len(terms)),
                          expected=str(len(parameters)))  # fmt: skip
    for (term, kind), parameter in zip(terms, parameters, strict=True):
        _check_term(domain, term, kind, parameter, where)
    types = tuple((kind,) if kind else parameter.types for (_, kind), parameter in zip(terms, parameters, strict=True))
    read = _Form(Atom(words[0], tuple(term for term, _ in terms)), types)
    for variable in rule.each:
        if variable not in read.variables:
            raise ConfigError("`each` names a variable that is not in the atom", where=where, got=variable,
                              expected=", ".join(read.variables) or "none")  # fmt: skip
    return read


def _check_predicate(domain: Domain, name: str, where: str) -> tuple[TypedName, ...]:
    """Return the parameters of a predicate that initial states and goals may name."""
    derived = {rule.predicate for rule in domain.derived}
    known = [schema.name for schema in domain.predicates if schema.name not in derived]
    schema = domain.predicate(name)
    if schema is None or name in derived:
        what = "a derived predicate" if name in derived else "a predicate that the domain does not declare"
        raise ConfigError(what, where=where, got=name, expected=", ".join(known),
                          cure=suggestion(name, known, "declare it") if schema is None else None)  # fmt: skip
    return schema.parameters


def _check_term(domain: Domain, term: str, kind: str | None, parameter: TypedName, where: str) -> None:
    """Raise unless a term may stand in the place of a parameter."""
    ancestors, constants = domain.ancestors(), {typed.name: typed.types for typed in domain.constants}
    if not term.startswith("?") and term not in constants:
        known = ", ".join(sorted(constants)) or "the constants, of which the domain has none"
        raise ConfigError("neither a variable nor a constant", where=where, got=term,
                          expected=f"?variable, or one of {known}")  # fmt: skip
    if kind is not None and kind not in ancestors:
        raise ConfigError("a type that the domain does not declare", where=where, got=kind,
                          expected=", ".join(sorted(ancestors)))  # fmt: skip
    own = (kind,) if kind else constants.get(term, parameter.types)
    if all(ancestors[name].isdisjoint(parameter.types) for name in own):
        raise ConfigError("a type that does not fit the predicate", where=where, got=f"{term} - {' '.join(own)}",
                          expected=" or ".join(parameter.types))  # fmt: skip


def _typed_terms(words: Sequence[str], where: str) -> list[tuple[str, str | None]]:
    """Return the terms of ``?a ?b - room c`` with their types, None where none is written."""
    terms: list[tuple[str, str | None]] = []
    n_untyped, position = 0, 0
    while position < len(words):
        if words[position] == "-":
            if position + 1 == len(words) or not n_untyped:
                raise ConfigError("a type stands in the wrong place", where=where, expected="?variable - type")
            terms[-n_untyped:] = [(term, words[position + 1]) for term, _ in terms[-n_untyped:]]
            n_untyped, position = 0, position + 2
        else:
            terms.append((words[position], None))
            n_untyped, position = n_untyped + 1, position + 1
    return terms


def _ground_atoms(name: str, parameters: Sequence[TypedName], task: PlanningTask) -> Iterator[Atom]:
    for arguments in product(*(task.objects_of(parameter.types) for parameter in parameters)):
        yield Atom(name, arguments)

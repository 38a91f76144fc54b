"""Problems in any domain: random actions from an initial state, and some of what they changed as the goal.

What the walk reached is reachable, so every problem has a plan; it need not be short. Initial states come from rules in
the domain's settings, from example problems, or, for a domain that nobody has written rules for, from chance: every
well-typed atom holds with the same probability.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
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
from plansmith.problems.building import build_problem, numbered

GREATEST_COST = 10
"""Function values are drawn from 1 to this."""


@dataclass(frozen=True)
class _Pattern:
    """An `InitRule` read: its atom with a type for each variable."""

    rule: InitRule
    atom: Atom
    types: Mapping[str, tuple[str, ...]]


class WalkSampler:
    """Draws problems of one domain by random walk."""

    def __init__(self, domain: Domain, settings: WalkSettings, folder: Path) -> None:
        self.domain, self.settings, self.folder = domain, settings, folder

    def sample(self, rng: random.Random, **sizes: int) -> Problem:
        """Return one problem; its goal is empty where the walk changed nothing that a goal may name."""
        start = self._start(rng, sizes)
        task = PlanningTask(self.domain, start)
        state = self._walk(task, rng)
        reached = [atom for atom in task.atoms_of(task.basic_atoms(state)) if atom.predicate in self._goal_predicates]
        changed = [atom for atom in reached if atom not in set(start.init)]
        if not changed:
            return start
        first = rng.choice(changed)
        others = [atom for atom in reached if atom != first]
        wanted = min(rng.randint(*self.settings.goal_size) - 1, len(others))
        goal = [first, *rng.sample(others, wanted)]
        return Problem(
            name=start.name,
            domain_name=start.domain_name,
            objects=start.objects,
            init=start.init,
            goal=Conjunction(tuple(map(Literal, goal))),
            function_values=start.function_values,
            metric=start.metric,
        )

    def check(self, where: str) -> None:
        """Raise unless the settings name what the domain declares.

        Raises:
            ConfigError: an unknown predicate, type, variable or folder.
        """
        _ = self._patterns, self._examples
        kinds = {typed.name for typed in self.domain.types} | {"object"}
        for kind in self.settings.objects:
            if kind not in kinds:
                raise ConfigError("a type that the domain does not declare", where=f"{where}, walk.objects", got=kind,
                                  expected=", ".join(sorted(kinds)))  # fmt: skip
        for name in self.settings.goal_predicates:
            self._check_predicate(name, f"{where}, walk.goal_predicates")

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

    def _start(self, rng: random.Random, sizes: Mapping[str, int]) -> Problem:
        if self._examples:
            return rng.choice(self._examples)
        objects = {kind: numbered(kind, sizes[size]) for kind, size in self.settings.objects.items()}
        empty = build_problem(self.domain.name, objects, [], [])
        task = PlanningTask(self.domain, empty)
        if self.settings.init:
            init = [atom for pattern in self._patterns for atom in _instances(pattern, task, rng)]
        else:
            init = [atom for schema in self.domain.predicates if schema.name not in task.rules
                    for atom in _ground_atoms(schema.name, schema.parameters, task)
                    if rng.random() < self.settings.density]  # fmt: skip
        values = self._values(task, rng)
        metric = TOTAL_COST if any(schema.name == TOTAL_COST for schema in self.domain.functions) else None
        return build_problem(self.domain.name, objects, init, [], values=values, metric=metric)

    def _values(self, task: PlanningTask, rng: random.Random) -> dict[Atom, Number]:
        return {
            atom: 0 if schema.name == TOTAL_COST else rng.randint(1, GREATEST_COST)
            for schema in self.domain.functions
            for atom in _ground_atoms(schema.name, schema.parameters, task)
        }

    @cached_property
    def _goal_predicates(self) -> frozenset[str]:
        changing = {
            part.atom.predicate for action in self.domain.actions for part in literals_of_effects(action.effects)
        }
        return frozenset(self.settings.goal_predicates or changing)

    @cached_property
    def _examples(self) -> list[Problem]:
        """Return the example problems, their goals left out."""
        if self.settings.problems is None:
            return []
        folder = self.folder / self.settings.problems
        paths = [path for path in sorted(folder.glob("*.pddl")) if path.name != "domain.pddl"]
        if not paths:
            raise ConfigError("no problems to start from", where=str(folder), got="no *.pddl files",
                              cure="set walk.problems to a folder of PDDL problems")  # fmt: skip
        return [parse_problem(read_text(path), self.domain, source=str(path)) for path in paths]

    @cached_property
    def _patterns(self) -> list[_Pattern]:
        return [self._pattern(rule) for rule in self.settings.init]

    def _pattern(self, rule: InitRule) -> _Pattern:
        where = f"{self.folder / 'settings.yaml'}, walk.init, {rule.atom}"
        words = rule.atom.strip().strip("()").lower().split()
        if not words:
            raise ConfigError("an atom is missing", where=where, expected="(predicate ?variable - type ...)")
        self._check_predicate(words[0], where)
        schema = self.domain.predicate(words[0])
        assert schema
        terms = _typed_terms(words[1:], where)
        if len(terms) != len(schema.parameters):
            raise ConfigError("wrong number of arguments", where=where, got=str(len(terms)),
                              expected=str(len(schema.parameters)))  # fmt: skip
        types = {term: (kind,) if kind else parameter.types
                 for (term, kind), parameter in zip(terms, schema.parameters, strict=True)}  # fmt: skip
        self._check_terms(rule, types, where)
        return _Pattern(rule, Atom(words[0], tuple(term for term, _ in terms)), types)

    def _check_terms(self, rule: InitRule, types: Mapping[str, tuple[str, ...]], where: str) -> None:
        constants, kinds = {typed.name for typed in self.domain.constants}, {t.name for t in self.domain.types}
        for term, names in types.items():
            if not term.startswith("?") and term not in constants:
                raise ConfigError("neither a variable nor a constant", where=where, got=term,
                                  expected="?variable, or one of " + (", ".join(sorted(constants)) or "no constants"))  # fmt: skip
            unknown = set(names) - kinds - {"object"}
            if unknown:
                raise ConfigError("a type that the domain does not declare", where=where, got=", ".join(unknown),
                                  expected=", ".join(sorted(kinds)))  # fmt: skip
        for variable in rule.each:
            if variable not in types:
                raise ConfigError("`each` names a variable that is not in the atom", where=where, got=variable,
                                  expected=", ".join(types))  # fmt: skip

    def _check_predicate(self, name: str, where: str) -> None:
        known = [schema.name for schema in self.domain.predicates]
        if name not in known:
            raise ConfigError("a predicate that the domain does not declare", where=where, got=name,
                              expected=", ".join(known), cure=suggestion(name, known, "declare it"))  # fmt: skip


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


def _instances(pattern: _Pattern, task: PlanningTask, rng: random.Random) -> Iterator[Atom]:
    """Yield the atoms that a rule makes true."""
    rule, variables = pattern.rule, [term for term in pattern.types if term.startswith("?")]
    free = [variable for variable in variables if variable not in rule.each]
    objects = {variable: task.objects_of(pattern.types[variable]) for variable in variables}
    used: set[str] = set()
    for chosen in product(*(objects[variable] for variable in rule.each)):
        if len(set(chosen)) < len(chosen) or rng.random() >= rule.chance:
            continue
        binding = dict(zip(rule.each, chosen, strict=True))
        for variable in free:
            possible = [name for name in objects[variable] if name not in {*binding.values(), *used}]
            if not possible:
                raise BadInputError("no object is left to choose", where=f"walk.init, {rule.atom}",
                                    got=f"{len(objects[variable])} for {variable}", cure="change the sizes")  # fmt: skip
            binding[variable] = rng.choice(possible)
            if rule.is_distinct:
                used.add(binding[variable])
        yield pattern.atom.substitute(binding)


def _ground_atoms(name: str, parameters: Sequence[TypedName], task: PlanningTask) -> Iterator[Atom]:
    for arguments in product(*(task.objects_of(parameter.types) for parameter in parameters)):
        yield Atom(name, arguments)

"""Names without meaning: every symbol of a domain, a problem and a plan replaced by one such as ``p_3``.

Variant v1 of "On the Generalization Gap in LLM Planning" (arXiv 2601.14456, sec. 3, "Anonymization", and sec. 4.1):
what a model knows from the names alone is gone, what the symbols do to one another stays. Drawn anew for every tuple of
domain, problem and plan. Not here: renaming the objects of a problem to other words (`plansmith.problems.renaming`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from plansmith.config.dataset import SymbolPoolConfig
from plansmith.errors import BadInputError
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

DOMAIN_NAME, PROBLEM_NAME = "d_0", "i_0"
UNKNOWN = "unknown_"
"""Put before a name of an anonymised plan that was never handed out; see `Anonymisation.restore_plan`."""

Argument = TypeVar("Argument")
Scope = dict[str, str]
"""Variables with their new names; terms that are not in it are objects."""


@dataclass(frozen=True)
class Anonymisation:
    """New names by old ones, one-to-one within each kind; ``object``, ``=`` and ``total-cost`` belong to PDDL."""

    actions: Mapping[str, str]
    predicates: Mapping[str, str]
    functions: Mapping[str, str]
    types: Mapping[str, str]
    objects: Mapping[str, str]
    """Objects and constants."""

    def rename_plan(self, plan: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
        """Return a plan under the new names.

        Raises:
            KeyError: a name that neither domain nor problem nor the plan of the tuple has.
        """
        return tuple(
            PlanStep(self.actions[step.name], tuple(self.objects[name] for name in step.arguments)) for step in plan
        )

    def restore_plan(self, plan: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
        """Return an anonymised plan, such as a model's, under the old names.

        A name that was never handed out must not come out as one that the domain knows, or a wrong plan could become a
        valid one: it is marked with `UNKNOWN`.
        """
        actions, objects = _inverse(self.actions), _inverse(self.objects)
        return tuple(
            PlanStep(_restored(step.name, actions), tuple(_restored(name, objects) for name in step.arguments))
            for step in plan
        )


@dataclass(frozen=True)
class AnonymisedTuple:
    """A domain, a problem and a plan under new names, with what they were called."""

    domain: Domain
    problem: Problem
    plan: tuple[PlanStep, ...]
    names: Anonymisation


def anonymise(
    domain: Domain,
    problem: Problem,
    plan: Sequence[PlanStep],
    rng: random.Random,
    pool: SymbolPoolConfig | None = None,
    *,
    objects_rng: random.Random | None = None,
) -> AnonymisedTuple:
    """Return the tuple with all names replaced, the same name by the same symbol throughout; verdicts stay the same.

    The paper replaces the names of actions, predicates, objects and types by symbols such as ``a_0``, ``p_3`` and
    ``o_7``. We differ where it is silent: functions (``f_0``), the names of domain and problem, and variables (``?x0``,
    counted within each action, predicate and rule) are replaced as well, as ``?car`` would give away what ``t_1`` is;
    numbers are a random permutation for each kind, or with a pool drawn from it: who trained on domains of ten
    predicates has then read ``p_22``, too. With a pool no two actions share a variable: one names its action. The order
    of declarations stays. Names that only the plan has get symbols of their own, so that they remain unknown.

    Args:
        domain, problem, plan: the tuple.
        rng: draws the names.
        pool: that they are drawn from.
        objects_rng: draws those of objects; None: the same.

    Raises:
        BadInputError: more names than the pool has symbols.
    """
    names = _draw(domain, problem, plan, rng, pool, objects_rng or rng)
    renamer = Renamer(names, variables=None if pool is None else _variables(domain, pool.variables, rng))
    return AnonymisedTuple(renamer.domain(domain), renamer.problem(problem), names.rename_plan(plan), names)


def check_pool(domain: Domain, pool: SymbolPoolConfig) -> None:
    """Check that a pool has a symbol for every name of a domain; objects of problems are not among them.

    Raises:
        BadInputError: it has not.
    """
    anonymise(domain, Problem("", domain.name, (), (), Conjunction(())), (), random.Random(0), pool)


def _draw(
    domain: Domain,
    problem: Problem,
    plan: Iterable[PlanStep],
    rng: random.Random,
    pool: SymbolPoolConfig | None,
    objects_rng: random.Random,
) -> Anonymisation:
    def symbols(letter: str, kind: str, names: Iterable[str], rng: random.Random = rng) -> dict[str, str]:
        known = list(dict.fromkeys(names))
        size = len(known) if pool is None else getattr(pool, kind)
        if size < len(known):
            raise BadInputError(f"more {kind} than the pool has symbols", where=f"domain {domain.name}",
                                got=str(len(known)), expected=f"{size} at most",
                                cure=f"raise symbols.{kind}, or leave the domain out")  # fmt: skip
        return _symbols(letter, known, size, rng)

    steps = tuple(plan)
    actions = [*(action.name for action in domain.actions), *(step.name for step in steps)]
    objects = [typed.name for typed in (*domain.constants, *problem.objects)]
    objects += [name for step in steps for name in step.arguments]
    functions = list(dict.fromkeys(schema.name for schema in domain.functions if schema.name != TOTAL_COST))
    return Anonymisation(
        actions=symbols("a", "actions", actions),
        predicates=symbols("p", "predicates", [schema.name for schema in domain.predicates]) | {EQUALITY: EQUALITY},
        functions=_symbols("f", functions, len(functions), rng) | {TOTAL_COST: TOTAL_COST},
        types=symbols("t", "types", [typed.name for typed in domain.types]) | {OBJECT: OBJECT},
        objects=symbols("o", "objects", objects, objects_rng),
    )


def _symbols(letter: str, names: Sequence[str], size: int, rng: random.Random) -> dict[str, str]:
    """Return a symbol for each of different names, of so many."""
    numbers = rng.sample(range(size), len(names))
    return {name: f"{letter}_{number}" for name, number in zip(names, numbers, strict=True)}


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {symbol: name for name, symbol in names.items()}


def _restored(symbol: str, names: Mapping[str, str]) -> str:
    if symbol in names:
        return names[symbol]
    known, marked = set(names.values()), UNKNOWN + symbol
    while marked in known:
        marked = UNKNOWN + marked
    return marked


class Renamer:
    """Replaces the names in every part of a domain and a problem; variables become ``?x0``, ``?x1``.

    Args:
        names: new names.
        orders: of predicates whose arguments get another order, by their old names: the old places of the arguments.
        variables: numbers of the variables of actions, each taken once; None: each action counts from 0.
    """

    def __init__(
        self,
        names: Anonymisation,
        orders: Mapping[str, Sequence[int]] | None = None,
        *,
        variables: Iterator[int] | None = None,
    ) -> None:
        self.names, self._orders, self._variables = names, orders or {}, variables

    def domain(self, domain: Domain) -> Domain:
        """Return a domain under the new names."""
        return Domain(
            name=DOMAIN_NAME,
            requirements=domain.requirements,
            types=tuple(TypedName(self.names.types[typed.name], self._types(typed)) for typed in domain.types),
            constants=self._objects(domain.constants),
            predicates=tuple(self._predicate(schema) for schema in domain.predicates),
            actions=tuple(self._action(action) for action in domain.actions),
            functions=tuple(self._function(schema) for schema in domain.functions),
            derived=tuple(self._rule(rule) for rule in domain.derived),
        )

    def problem(self, problem: Problem) -> Problem:
        """Return a problem of it under the new names."""
        return Problem(
            name=PROBLEM_NAME,
            domain_name=DOMAIN_NAME,
            objects=self._objects(problem.objects),
            init=tuple(self._atom(atom, {}) for atom in problem.init),
            goal=self._condition(problem.goal, {}, _numbers()),
            function_values=tuple(
                FunctionValue(self._term(known.term, {}), known.value) for known in problem.function_values
            ),
            metric=problem.metric,
        )

    def _types(self, typed: TypedName) -> tuple[str, ...]:
        return tuple(self.names.types[name] for name in typed.types)

    def _objects(self, objects: Iterable[TypedName]) -> tuple[TypedName, ...]:
        return tuple(TypedName(self.names.objects[typed.name], self._types(typed)) for typed in objects)

    def _predicate(self, schema: PredicateSchema) -> PredicateSchema:
        parameters, _ = self._parameters(self._ordered(schema.name, schema.parameters), {}, _numbers())
        return PredicateSchema(self.names.predicates[schema.name], parameters)

    def _function(self, schema: FunctionSchema) -> FunctionSchema:
        parameters, _ = self._parameters(schema.parameters, {}, _numbers())
        return FunctionSchema(self.names.functions[schema.name], parameters)

    def _action(self, action: ActionSchema) -> ActionSchema:
        numbers = _numbers() if self._variables is None else self._variables
        parameters, scope = self._parameters(action.parameters, {}, numbers)
        return ActionSchema(
            name=self.names.actions[action.name],
            parameters=parameters,
            precondition=self._condition(action.precondition, scope, numbers),
            effects=self._effects(action.effects, scope, numbers),
        )

    def _rule(self, rule: DerivedPredicate) -> DerivedPredicate:
        numbers = _numbers()
        parameters, scope = self._parameters(rule.parameters, {}, numbers)
        predicate = self.names.predicates[rule.predicate]
        return DerivedPredicate(predicate, parameters, self._condition(rule.condition, scope, numbers))

    def _parameters(
        self, parameters: Iterable[TypedName], outer: Scope, numbers: Iterator[int]
    ) -> tuple[tuple[TypedName, ...], Scope]:
        """Return parameters under names that no scope around them has, and the scope in which they hold."""
        scope, found = dict(outer), []
        for typed in parameters:
            scope[typed.name] = f"?x{next(numbers)}"
            found.append(TypedName(scope[typed.name], self._types(typed)))
        return tuple(found), scope

    def _ordered(self, predicate: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        order = self._orders.get(predicate)
        return arguments if order is None else tuple(arguments[place] for place in order)

    def _atom(self, atom: Atom, scope: Scope) -> Atom:
        return Atom(self.names.predicates[atom.predicate], self._ordered(atom.predicate, self._terms(atom, scope)))

    def _term(self, term: Atom, scope: Scope) -> Atom:
        return Atom(self.names.functions[term.predicate], self._terms(term, scope))

    def _terms(self, atom: Atom, scope: Scope) -> tuple[str, ...]:
        return tuple(scope[name] if name in scope else self.names.objects[name] for name in atom.arguments)

    def _literal(self, literal: Literal, scope: Scope) -> Literal:
        return Literal(self._atom(literal.atom, scope), literal.is_positive)

    def _condition(self, condition: Condition, scope: Scope, numbers: Iterator[int]) -> Condition:
        match condition:
            case Literal():
                return self._literal(condition, scope)
            case Conjunction() | Disjunction():
                parts = tuple(self._condition(part, scope, numbers) for part in condition.parts)
                return replace(condition, parts=parts)
            case Negation():
                return Negation(self._condition(condition.part, scope, numbers))
            case Implication():
                premise = self._condition(condition.premise, scope, numbers)
                return Implication(premise, self._condition(condition.conclusion, scope, numbers))
            case Quantification():
                parameters, inner = self._parameters(condition.parameters, scope, numbers)
                part = self._condition(condition.part, inner, numbers)
                return Quantification(condition.is_universal, parameters, part)

    def _effects(self, effects: Iterable[Effect], scope: Scope, numbers: Iterator[int]) -> tuple[Effect, ...]:
        return tuple(self._effect(effect, scope, numbers) for effect in effects)

    def _effect(self, effect: Effect, scope: Scope, numbers: Iterator[int]) -> Effect:
        match effect:
            case Literal():
                return self._literal(effect, scope)
            case ConditionalEffect():
                condition = self._condition(effect.condition, scope, numbers)
                return ConditionalEffect(condition, self._effects(effect.effects, scope, numbers))
            case UniversalEffect():
                parameters, inner = self._parameters(effect.parameters, scope, numbers)
                return UniversalEffect(parameters, self._effects(effect.effects, inner, numbers))
            case CostIncrease(amount=Atom() as term):
                return CostIncrease(self._term(term, scope))
            case CostIncrease():
                return effect


def _variables(domain: Domain, size: int, rng: random.Random) -> Iterator[int]:
    """Yield different numbers below ``size``.

    Raises:
        BadInputError: when more are asked for.
    """
    yield from rng.sample(range(size), size)
    raise BadInputError("more variables than the pool has symbols", where=f"domain {domain.name}",
                        got=f"more than {size}, those of all actions together", expected=f"{size} at most",
                        cure="raise symbols.variables, or leave the domain out")  # fmt: skip


def _numbers() -> Iterator[int]:
    return itertools.count()

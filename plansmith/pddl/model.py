"""Domains, problems and their parts, as data.

Covers PDDL 2.1 level 1 with ADL, action costs and derived predicates: typing with ``either``, constants, equality,
nested conditions, quantifiers, conditional and universal effects. A condition is a tree that keeps the shape of the
text; an effect is a list of members, in the order of the text. Names are lower case; variables start with ``?``. Not
here: reading (`parser`), writing (`printer`), meaning (`grounding`, `validation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Self

from plansmith.errors import BadInputError

OBJECT = "object"
"""The root of the type hierarchy; every type is below it, declared or not."""

EQUALITY = "="
"""The built-in predicate of two terms that are the same object."""

TOTAL_COST = "total-cost"
"""The function that action costs increase."""

Number = int | float
Binding = Mapping[str, str]
"""Variables with the objects they stand for."""


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """A predicate (or function) applied to terms; ground when no argument is a variable."""

    predicate: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join((self.predicate, *self.arguments))})"

    def substitute(self, binding: Binding) -> Atom:
        """Return the atom with every variable of `binding` replaced by its object."""
        if not binding:
            return self
        return Atom(self.predicate, tuple([binding.get(argument, argument) for argument in self.arguments]))


@dataclass(frozen=True, slots=True, order=True)
class TypedName:
    """A name with its types: one, or several for ``(either ...)``."""

    name: str
    types: tuple[str, ...] = (OBJECT,)


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """An atom or its negation; as an effect, an add or a delete effect."""

    atom: Atom
    is_positive: bool = True

    def __str__(self) -> str:
        return str(self.atom) if self.is_positive else f"(not {self.atom})"

    def substitute(self, binding: Binding) -> Literal:
        """Return the literal with every variable of `binding` replaced by its object."""
        return Literal(self.atom.substitute(binding), self.is_positive)


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions joined by a word."""

    WORD: ClassVar[str]
    parts: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        return _joined(self.WORD, self.parts)

    @property
    def members(self) -> tuple[Condition, ...]:
        """Return the conditions that this one is made of."""
        return self.parts

    def substitute(self, binding: Binding) -> Self:
        """Return the condition with every variable of `binding` replaced by its object."""
        return type(self)(tuple(part.substitute(binding) for part in self.parts))


class Conjunction(Junction):
    """All parts hold; the empty conjunction is true."""

    __slots__ = ()
    WORD = "and"


class Disjunction(Junction):
    """Some part holds; the empty disjunction is false."""

    __slots__ = ()
    WORD = "or"


@dataclass(frozen=True, slots=True)
class Negation:
    """The part does not hold. The negation of an atom is a `Literal`."""

    part: Condition

    def __str__(self) -> str:
        return f"(not {self.part})"

    @property
    def members(self) -> tuple[Condition, ...]:
        """Return the conditions that this one is made of."""
        return (self.part,)

    def substitute(self, binding: Binding) -> Negation:
        """Return the condition with every variable of `binding` replaced by its object."""
        return Negation(self.part.substitute(binding))


@dataclass(frozen=True, slots=True)
class Implication:
    """The conclusion holds, or the premise does not."""

    premise: Condition
    conclusion: Condition

    def __str__(self) -> str:
        return f"(imply {self.premise} {self.conclusion})"

    @property
    def members(self) -> tuple[Condition, ...]:
        """Return the conditions that this one is made of."""
        return (self.premise, self.conclusion)

    def substitute(self, binding: Binding) -> Implication:
        """Return the condition with every variable of `binding` replaced by its object."""
        return Implication(self.premise.substitute(binding), self.conclusion.substitute(binding))


@dataclass(frozen=True, slots=True)
class Quantification:
    """The part holds for every object of the parameters' types (``forall``), or for one at least (``exists``).

    A parameter hides an outer variable of the same name.
    """

    is_universal: bool
    parameters: tuple[TypedName, ...]
    part: Condition

    def __str__(self) -> str:
        return f"({'forall' if self.is_universal else 'exists'} ({typed_text(self.parameters)}) {self.part})"

    @property
    def members(self) -> tuple[Condition, ...]:
        """Return the conditions that this one is made of."""
        return (self.part,)

    def substitute(self, binding: Binding) -> Quantification:
        """Return the condition with every free variable of `binding` replaced by its object."""
        return replace(self, part=self.part.substitute(_without(binding, self.parameters)))


Condition = Literal | Conjunction | Disjunction | Negation | Implication | Quantification


@dataclass(frozen=True, slots=True)
class ConditionalEffect:
    """``when``: the effects take place if the condition holds in the state before the action."""

    condition: Condition
    effects: tuple[Effect, ...]

    def __str__(self) -> str:
        return f"(when {self.condition} {_joined('and', self.effects)})"


@dataclass(frozen=True, slots=True)
class UniversalEffect:
    """``forall``: the effects take place for every object of the parameters' types."""

    parameters: tuple[TypedName, ...]
    effects: tuple[Effect, ...]

    def __str__(self) -> str:
        return f"(forall ({typed_text(self.parameters)}) {_joined('and', self.effects)})"


def number_text(number: Number) -> str:
    """Return a number as PDDL has it, which knows no exponents."""
    return str(number) if isinstance(number, int) else format(Decimal(repr(number)), "f")


@dataclass(frozen=True, slots=True)
class CostIncrease:
    """``(increase (total-cost) amount)``; the amount is a number, or a function whose value the problem gives."""

    amount: Number | Atom

    def __str__(self) -> str:
        amount = self.amount if isinstance(self.amount, Atom) else number_text(self.amount)
        return f"(increase ({TOTAL_COST}) {amount})"


Effect = Literal | ConditionalEffect | UniversalEffect | CostIncrease


@dataclass(frozen=True, slots=True)
class PredicateSchema:
    """A predicate's name and parameters."""

    name: str
    parameters: tuple[TypedName, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """A numeric function's name and parameters; its values never change, but for `TOTAL_COST`."""

    name: str
    parameters: tuple[TypedName, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivedPredicate:
    """A rule: the predicate holds of objects of the parameters' types for which the condition holds.

    Several rules of one predicate are alternatives.
    """

    predicate: str
    parameters: tuple[TypedName, ...]
    condition: Condition


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """A lifted action: in `effects`, positive literals are add effects and negative ones delete effects."""

    name: str
    parameters: tuple[TypedName, ...]
    precondition: Condition
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A PDDL domain. `types` pairs each declared type with its direct supertypes."""

    name: str
    requirements: tuple[str, ...]
    types: tuple[TypedName, ...]
    constants: tuple[TypedName, ...]
    predicates: tuple[PredicateSchema, ...]
    actions: tuple[ActionSchema, ...]
    functions: tuple[FunctionSchema, ...] = ()
    derived: tuple[DerivedPredicate, ...] = ()

    def action(self, name: str) -> ActionSchema | None:
        """Return the action schema of that name, or None."""
        return next((action for action in self.actions if action.name == name), None)

    def predicate(self, name: str) -> PredicateSchema | None:
        """Return the predicate of that name, or None."""
        return next((predicate for predicate in self.predicates if predicate.name == name), None)

    def ancestors(self) -> dict[str, frozenset[str]]:
        """Return each declared type, and `object`, with itself and every type above it."""
        return ancestors_of({typed.name: typed.types for typed in self.types})


@dataclass(frozen=True, slots=True)
class FunctionValue:
    """A function applied to objects, with its value in the initial state."""

    term: Atom
    value: Number

    def __str__(self) -> str:
        return f"(= {self.term} {number_text(self.value)})"


@dataclass(frozen=True, slots=True)
class Problem:
    """A PDDL problem; `init` lists the true ground atoms in the order of the text.

    `metric` is the function to minimise: ``total-cost``, ``total-time`` (the number of steps) or None.
    """

    name: str
    domain_name: str
    objects: tuple[TypedName, ...]
    init: tuple[Atom, ...]
    goal: Condition
    function_values: tuple[FunctionValue, ...] = ()
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: the name of a ground action, which may or may not exist in the domain."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join((self.name, *self.arguments))})"


def ancestors_of(parents: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Return each type, and `object`, with itself and every type above it; a circle is no harm."""
    found = {OBJECT: frozenset({OBJECT})}
    for name in parents:
        above, waiting = {OBJECT}, [name]
        while waiting:
            current = waiting.pop()
            if current in found:
                above |= found[current]
            elif current not in above:
                above.add(current)
                waiting.extend(parents.get(current, ()))
        found[name] = frozenset(above)
    return found


def literals_of(condition: Condition) -> tuple[Literal, ...]:
    """Return the literals of a conjunction of literals in the order of the text, each once.

    Raises:
        BadInputError: the condition has another connective; use `conjuncts_of` where that is welcome.
    """
    literals = []
    for part in conjuncts_of(condition):
        if not isinstance(part, Literal):
            raise BadInputError("a conjunction of literals is needed here", got=str(part))
        literals.append(part)
    return tuple(literals)


def conjuncts_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the parts that must all hold, nested conjunctions opened, in the order of the text, each once."""
    found: dict[Condition, None] = {}
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Conjunction):
            waiting.extend(reversed(part.parts))
        else:
            found[part] = None
    return tuple(found)


def literals_in(condition: Condition, *, is_positive: bool = True) -> Iterator[Literal]:
    """Yield every literal anywhere in a condition with the sign it has once negations are pushed to the atoms."""
    waiting = [(condition, is_positive)]
    while waiting:
        part, sign = waiting.pop()
        match part:
            case Literal():
                yield Literal(part.atom, part.is_positive == sign)
            case Conjunction() | Disjunction():
                waiting.extend((inner, sign) for inner in reversed(part.parts))
            case Negation():
                waiting.append((part.part, not sign))
            case Implication():
                waiting += [(part.conclusion, sign), (part.premise, not sign)]
            case Quantification():
                waiting.append((part.part, sign))


def literals_of_effects(effects: tuple[Effect, ...]) -> Iterator[Literal]:
    """Yield every add and delete effect, those under ``when`` and ``forall`` too."""
    for effect in effects:
        if isinstance(effect, Literal):
            yield effect
        elif not isinstance(effect, CostIncrease):
            yield from literals_of_effects(effect.effects)


def changed_predicates(domain: Domain) -> frozenset[str]:
    """Return the predicates whose atoms some action or rule changes; those of all others stay as a problem has them."""
    effects = (literal for action in domain.actions for literal in literals_of_effects(action.effects))
    return frozenset(literal.atom.predicate for literal in effects) | {rule.predicate for rule in domain.derived}


def typed_text(names: tuple[TypedName, ...]) -> str:
    """Return typed names as PDDL writes them: ``a b - t c - (either t u)``."""
    if all(typed.types == (OBJECT,) for typed in names):
        return " ".join(typed.name for typed in names)
    words: list[str] = []
    for position, typed in enumerate(names):
        words.append(typed.name)
        if position + 1 == len(names) or names[position + 1].types != typed.types:
            words += ["-", typed.types[0] if len(typed.types) == 1 else f"(either {' '.join(typed.types)})"]
    return " ".join(words)


def _joined(word: str, parts: tuple[object, ...]) -> str:
    return f"({' '.join((word, *map(str, parts)))})"


def _without(binding: Binding, parameters: tuple[TypedName, ...]) -> Binding:
    hidden = {typed.name for typed in parameters}
    return {name: value for name, value in binding.items() if name not in hidden} if hidden else binding

"""A domain's canonical form, and that of one action schema: equal exactly for those that differ in names and order.

Two domains of one form are the same domain in other words: types, predicates, functions, constants, parameters and
actions may be called otherwise, and stand in another order, arguments included, if they do so throughout. Mystery
Blocksworld is Blocksworld, and `(on ?x ?y)` may be `(under ?y ?x)` everywhere. The parts of a domain are objects joined
by facts, and the form is that of a problem (`canonical`): exact, not a heuristic hash. Written so, since otherwise a
domain could be trained on that a test calls never seen (arXiv 2601.14456 tests on domains that differ by name alone).

What says the same is the same: nesting and repeats of ``and`` and ``or``, double negations, ``imply``
(`normal_form`), one ``when`` or ``forall`` for several effects or one for each, nested quantifiers of one kind. The
domain's own name and its requirements, which only announce what is used, do not count.

An action schema alone keeps which parameters share a type, which literals share a predicate, and the places of their
arguments; what types are above others, and what else predicates do, is not looked at.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from plansmith.pddl.canonical import least_encoding
from plansmith.pddl.model import (
    EQUALITY,
    TOTAL_COST,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    CostIncrease,
    DerivedPredicate,
    Domain,
    Effect,
    FunctionSchema,
    Literal,
    PredicateSchema,
    Quantification,
    TypedName,
    UniversalEffect,
    conjuncts_of,
)
from plansmith.pddl.normal_form import normal_condition
from plansmith.pddl.structure import Fact, structure_of

Scope = Mapping[str, str]
"""Variables with the vertices they stand for; terms that are not in it are constants."""

Layer = tuple[TypedName, ...] | frozenset[Condition]
"""What stands around an effect: the parameters of a ``forall``, or the conjuncts of a ``when``."""


def domain_form(domain: Domain) -> str:
    """Return a hexadecimal digest of a domain up to names and order."""
    graph = _Graph()
    for name, above in domain.ancestors().items():
        graph.facts.update(("is a", (graph.named("type", name), graph.named("type", other))) for other in above)
    for constant in domain.constants:
        graph.add_types(graph.named("constant", constant.name), constant)
    for predicate in domain.predicates:
        _add_symbol(graph, predicate)
    for function in domain.functions:
        _add_symbol(graph, function)
    for rule in domain.derived:
        _add_rule(graph, rule)
    for action in domain.actions:
        _add_action(graph, action)
    return graph.form()


def action_form(action: ActionSchema) -> str:
    """Return a hexadecimal digest of an action schema up to names, those of predicates too, and order."""
    graph = _Graph()
    _add_action(graph, action)
    return graph.form()


def action_forms(domain: Domain) -> Counter[str]:
    """Return how many of a domain's action schemas have each form."""
    return Counter(map(action_form, domain.actions))


class _Graph:
    """Vertices with their kinds, and the facts between them."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.facts: set[Fact] = set()
        self._named: dict[tuple[str, str], str] = {}

    def form(self) -> str:
        """Return the digest of what is the same under every naming and order of the vertices."""
        text = repr(least_encoding(structure_of(self.kinds, self.facts)))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def vertex(self, kind: str, *facts: tuple[str, str]) -> str:
        """Return a new vertex; each fact is a relation and the vertex that has this one in it."""
        name = str(len(self.kinds))
        self.kinds[name] = kind
        self.facts.update((relation, (owner, name)) for relation, owner in facts)
        return name

    def named(self, kind: str, name: str) -> str:
        """Return the vertex of what bears a name, which is the same wherever it occurs."""
        if (kind, name) not in self._named:
            self._named[kind, name] = self.vertex(name if name in (EQUALITY, TOTAL_COST) else kind)
        return self._named[kind, name]

    def place(self, symbol: str, position: int) -> str:
        """Return an argument place of a predicate or function; the two of an equality are one."""
        is_equality = self.kinds[symbol] == EQUALITY
        place = self.named("place", f"{symbol} {0 if is_equality else position}")
        self.facts.add(("place", (symbol, place)))
        return place

    def add_types(self, vertex: str, typed: TypedName) -> None:
        """Say of what types something is."""
        self.facts.update(("of type", (vertex, self.named("type", name))) for name in typed.types)

    def bind(self, parameters: Iterable[TypedName], owner: str, scope: Scope) -> Scope:
        """Return the scope within what binds the parameters, which are new vertices."""
        inner = dict(scope)
        for typed in parameters:
            inner[typed.name] = self.vertex("variable", ("binds", owner))
            self.add_types(inner[typed.name], typed)
        return inner

    def apply(self, kind: str, atom: Atom, owner: str, scope: Scope) -> str:
        """Join a vertex to the predicate or function of an atom, and to its terms by their places."""
        symbol = self.named(kind, atom.predicate)
        self.facts.add((f"{kind} of", (owner, symbol)))
        for position, term in enumerate(atom.arguments):
            standing = scope.get(term) or self.named("constant", term)
            self.facts.add(("argument", (owner, self.place(symbol, position), standing)))
        return symbol


def _add_symbol(graph: _Graph, schema: PredicateSchema | FunctionSchema) -> None:
    symbol = graph.named("predicate" if isinstance(schema, PredicateSchema) else "function", schema.name)
    for position, typed in enumerate(schema.parameters):
        graph.add_types(graph.place(symbol, position), typed)


def _add_rule(graph: _Graph, rule: DerivedPredicate) -> None:
    vertex = graph.vertex("rule")
    scope = graph.bind(rule.parameters, vertex, {})
    graph.apply("predicate", Atom(rule.predicate, tuple(typed.name for typed in rule.parameters)), vertex, scope)
    _add_conditions(graph, _conjuncts(rule.condition), ("condition", vertex), scope)


def _add_action(graph: _Graph, action: ActionSchema) -> None:
    vertex = graph.vertex("action")
    scope = graph.bind(action.parameters, vertex, {})
    _add_conditions(graph, _conjuncts(action.precondition), ("precondition", vertex), scope)
    effects = list(_single_effects(action.effects, ()))
    sums = [own for own in effects if isinstance(own[1], CostIncrease)]  # two equal ones add up
    others = dict.fromkeys(own for own in effects if not isinstance(own[1], CostIncrease))
    for layers, member in [*others, *sums]:
        _add_effect(graph, layers, member, vertex, scope)


def _conjuncts(condition: Condition) -> frozenset[Condition]:
    return frozenset(conjuncts_of(normal_condition(condition)))


def _add_conditions(graph: _Graph, parts: Iterable[Condition], fact: tuple[str, str], scope: Scope) -> None:
    for part in parts:
        _add_condition(graph, part, fact, scope)


def _add_condition(graph: _Graph, condition: Condition, fact: tuple[str, str], scope: Scope) -> None:
    """Add a condition in normal form, in which there are no implications."""
    if isinstance(condition, Literal):
        vertex = graph.vertex(f"literal {condition.is_positive}", fact)
        graph.apply("predicate", condition.atom, vertex, scope)
    elif isinstance(condition, Quantification):
        _add_quantification(graph, condition, fact, scope)
    else:
        vertex = graph.vertex(type(condition).__name__, fact)
        _add_conditions(graph, condition.members, ("part", vertex), scope)


def _add_quantification(graph: _Graph, condition: Quantification, fact: tuple[str, str], scope: Scope) -> None:
    vertex = graph.vertex("forall" if condition.is_universal else "exists", fact)
    part: Condition = condition
    while isinstance(part, Quantification) and part.is_universal == condition.is_universal:
        scope = graph.bind(part.parameters, vertex, scope)
        part = part.part
    _add_condition(graph, part, ("part", vertex), scope)


def _single_effects(
    effects: Sequence[Effect], layers: tuple[Layer, ...]
) -> Iterator[tuple[tuple[Layer, ...], Literal | CostIncrease]]:
    """Yield every add effect, delete effect and increase of cost with what stands around it, from outside."""
    for effect in effects:
        match effect:
            case ConditionalEffect():
                yield from _single_effects(effect.effects, (*layers, _conjuncts(effect.condition)))
            case UniversalEffect():
                yield from _single_effects(effect.effects, (*layers, effect.parameters))
            case CostIncrease(amount=int() | float() as amount):
                yield layers, replace(effect, amount=float(amount))
            case _:
                yield layers, effect


def _add_effect(
    graph: _Graph, layers: Iterable[Layer], member: Literal | CostIncrease, action: str, scope: Scope
) -> None:
    kind = f"effect {member.is_positive}" if isinstance(member, Literal) else f"increase {_number(member)}"
    vertex = graph.vertex(kind, ("effect", action))
    for layer in layers:
        if isinstance(layer, frozenset):
            _add_conditions(graph, layer, ("when", vertex), scope)
        else:
            scope = graph.bind(layer, vertex, scope)
    if isinstance(member, Literal):
        graph.apply("predicate", member.atom, vertex, scope)
    elif isinstance(member.amount, Atom):
        graph.apply("function", member.amount, vertex, scope)


def _number(increase: CostIncrease) -> str:
    return "" if isinstance(increase.amount, Atom) else str(increase.amount)

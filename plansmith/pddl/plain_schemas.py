"""Action schemas of literals alone, grounded by looking up: most are such, and a judge may want thousands of actions.

An instance of a literal is made once, and shared by all ground actions that have the same objects in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from plansmith.pddl.conditions import TRUE
from plansmith.pddl.ground_actions import GroundEffect
from plansmith.pddl.model import EQUALITY, ActionSchema, Atom, Literal, conjuncts_of


class Instance(NamedTuple):
    """A ground literal and the bit of its atom."""

    literal: Literal
    bit: int


class PlainSchema:
    """An action schema whose preconditions and effects are literals.

    Args:
        schema: one of which `is_plain` holds.
        bit: returns the bit of a ground atom (`PlanningTask.bit`).
    """

    def __init__(self, schema: ActionSchema, bit: Callable[[Atom], int]) -> None:
        places = {parameter.name: place for place, parameter in enumerate(schema.parameters)}
        effects = [effect for effect in schema.effects if isinstance(effect, Literal)]
        self._conditions = [
            _Instances(part, places, bit) for part in conjuncts_of(schema.precondition) if isinstance(part, Literal)
        ]
        self._adds = [_Instances(effect, places, bit) for effect in effects if effect.is_positive]
        self._deletes = [_Instances(effect, places, bit) for effect in effects if not effect.is_positive]

    @staticmethod
    def is_plain(schema: ActionSchema) -> bool:
        """Return whether an action schema has literals alone: no equality, nothing under a quantifier or condition."""
        conditions = conjuncts_of(schema.precondition)
        has_equality = any(isinstance(part, Literal) and part.atom.predicate == EQUALITY for part in conditions)
        return not has_equality and all(isinstance(part, Literal) for part in (*conditions, *schema.effects))

    def preconditions(self, arguments: tuple[str, ...]) -> list[Instance]:
        """Return the preconditions of an action with these objects, in the order of the text."""
        return [instances.of(arguments) for instances in self._conditions]

    def effect(self, arguments: tuple[str, ...]) -> GroundEffect:
        """Return what an action with these objects does; each atom is told once."""
        adds, added = _joined(instances.of(arguments) for instances in self._adds)
        deletes, deleted = _joined(instances.of(arguments) for instances in self._deletes)
        return GroundEffect(TRUE, adds, deletes, (), added, deleted)

    def relaxed(self, arguments: tuple[str, ...]) -> tuple[int, int] | None:
        """Return the atoms that an action with these objects needs, and those that it adds; None for an impossible one.

        Its atoms get their bits in the same order as in `preconditions` and `effect`.
        """
        required = forbidden = added = 0
        for instances in self._conditions:
            literal, bit = instances.of(arguments)
            if literal.is_positive:
                required |= bit
            else:
                forbidden |= bit
        for instances in self._adds:
            added |= instances.of(arguments).bit
        for instances in self._deletes:
            instances.of(arguments)
        return None if required & forbidden else (required, added)


class _Instances:
    """The instances of a literal of a schema, by the objects that stand in it."""

    def __init__(self, literal: Literal, places: Mapping[str, int], bit: Callable[[Atom], int]) -> None:
        self._literal, self._bit = literal, bit
        self._places = {name: places[name] for name in literal.atom.arguments if name in places}
        self._key: Callable[[tuple[str, ...]], Any] = itemgetter(*self._places.values()) if self._places else len
        self._known: dict[Any, Instance] = {}

    def of(self, arguments: tuple[str, ...]) -> Instance:
        key = self._key(arguments)
        found = self._known.get(key)
        if found is None:
            literal = self._literal.substitute({name: arguments[place] for name, place in self._places.items()})
            found = self._known[key] = Instance(literal, self._bit(literal.atom))
        return found


def _joined(instances: Iterable[Instance]) -> tuple[tuple[Atom, ...], int]:
    atoms, state = dict[Atom, None](), 0
    for literal, bit in instances:
        if not bit & state:
            atoms[literal.atom] = None
            state |= bit
    return tuple(atoms), state

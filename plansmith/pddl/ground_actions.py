"""Ground actions: what an action schema requires and does once its parameters are bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

from plansmith.pddl.conditions import FALSE, TRUE, GroundCondition
from plansmith.pddl.model import Atom, Condition, Number, PlanStep


@dataclass(frozen=True, slots=True)
class GroundEffect:
    """Atoms added and deleted, and cost increases, that take place if a condition holds before the action.

    An increase is a number, or the ground function that has no value.
    """

    condition: GroundCondition
    adds: tuple[Atom, ...]
    deletes: tuple[Atom, ...]
    increases: tuple[Number | Atom, ...]
    added: int
    deleted: int


@dataclass(frozen=True, slots=True)
class GroundAction:
    """An action schema with its parameters bound.

    ``preconditions`` are the conjuncts of the text, bound. ``required``, ``forbidden`` and ``others`` say the same for
    evaluation. ``effect`` takes place always, each of ``conditional`` if its condition holds in the state before. An
    atom both added and deleted is true afterwards (add wins), as in VAL and PDDL 2.1.
    """

    step: PlanStep
    preconditions: tuple[Condition, ...]
    required: int
    forbidden: int
    others: tuple[GroundCondition, ...]
    effect: GroundEffect
    conditional: tuple[GroundEffect, ...]
    added: int
    deleted: int
    has_cost: bool
    expanded_bytes: int = field(default=0, compare=False)
    """What its quantifiers came to, as `plansmith.pddl.conditions.ExpansionBudget` counts."""

    @property
    def is_possible(self) -> bool:
        """Return whether no precondition is false in every state."""
        return FALSE not in self.others

    @property
    def relaxed(self) -> tuple[int, int]:
        """The atoms that it needs and those that it may add, as if conditions held and nothing were deleted."""
        return self.required, reduce(lambda found, effect: found | effect.added, self.conditional, self.added)

    @property
    def add_effects(self) -> tuple[Atom, ...]:
        """Return the atoms that the action adds in every state."""
        return self.effect.adds

    @property
    def delete_effects(self) -> tuple[Atom, ...]:
        """Return the atoms that the action deletes in every state, without those that it also adds."""
        return tuple(atom for atom in self.effect.deletes if atom not in self.effect.adds)

    def is_applicable(self, state: int) -> bool:
        """Return whether every precondition holds in `state`."""
        if state & self.required != self.required or state & self.forbidden:
            return False
        return all(condition.holds(state) for condition in self.others) if self.others else True

    def apply(self, state: int) -> int:
        """Return the state after the action, whose preconditions must hold."""
        if not self.conditional:
            return (state & ~self.deleted) | self.added
        added, deleted = self.changes(state)
        return (state & ~deleted) | added

    def changes(self, state: int) -> tuple[int, int]:
        """Return the atoms that the action adds in `state`, and those that it deletes and does not add."""
        added, deleted = self.added, self.deleted
        for effect in self.conditional:
            if effect.condition.holds(state):
                added, deleted = added | effect.added, deleted | effect.deleted
        return added, deleted & ~added

    def effects_in(self, state: int) -> tuple[GroundEffect, ...]:
        """Return the effects that take place in `state`, the unconditional one first."""
        return (self.effect, *(effect for effect in self.conditional if effect.condition.holds(state)))

    def resolved(self, state: int) -> GroundAction:
        """Return the action as it is in `state`: effects that take place there are unconditional, others are gone."""
        if not self.conditional:
            return self
        effect = joined(self.effects_in(state))
        return replace(self, effect=effect, conditional=(), added=effect.added, deleted=effect.deleted)

    def increases(self, state: int) -> tuple[Number | Atom, ...]:
        """Return what the action adds to the total cost in `state`; a function without a value stands for itself."""
        if not self.has_cost:
            return ()
        return tuple(increase for effect in self.effects_in(state) for increase in effect.increases)

    def cost(self, state: int) -> Number | None:
        """Return the sum of the increases in `state`, or None where one has no value."""
        total: Number = 0
        for increase in self.increases(state):
            if isinstance(increase, Atom):
                return None
            total += increase
        return total


@dataclass(frozen=True, slots=True)
class MalformedStep:
    """A step that names no ground action of the task, with the reason."""

    step: PlanStep
    reason: str


def joined(effects: Iterable[GroundEffect]) -> GroundEffect:
    """Return one unconditional effect that does what all of `effects` do."""
    adds, deletes, increases, added, deleted = dict[Atom, None](), dict[Atom, None](), list[Number | Atom](), 0, 0
    for effect in effects:
        adds.update(dict.fromkeys(effect.adds))
        deletes.update(dict.fromkeys(effect.deletes))
        increases += effect.increases
        added, deleted = added | effect.added, deleted | effect.deleted
    return GroundEffect(TRUE, tuple(adds), tuple(deletes), tuple(increases), added, deleted)

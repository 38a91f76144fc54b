"""Effects: from nested lists to the model. Every mistake is noted and stepped over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from plansmith.pddl.diagnostics import Code, Notebook
from plansmith.pddl.formula_reader import CONNECTIVES, FormulaReader, Names, Variables, repair_of_not
from plansmith.pddl.model import (
    EQUALITY,
    TOTAL_COST,
    Atom,
    ConditionalEffect,
    CostIncrease,
    Effect,
    Literal,
    Number,
    UniversalEffect,
)
from plansmith.pddl.sexpr import Group, Node, Word, describe, read_number


class EffectReader(FormulaReader):
    """Reads the effects of actions, and the conditions in them."""

    def __init__(self, notebook: Notebook, names: Names) -> None:
        super().__init__(notebook, names)
        self._effects: dict[str, Callable[[Group, Variables], list[Effect]]] = {
            "and": lambda group, variables: [e for item in group.items[1:] for e in self.effects(item, variables)],
            "not": self._delete_effect,
            "when": self._conditional_effect,
            "forall": self._universal_effect,
            "increase": self._cost_increase,
        }

    def effects(self, node: Node, variables: Variables) -> list[Effect]:
        """Return the members of the effect at `node`; an empty list has none."""
        if isinstance(node, Word) or (node.items and isinstance(node.items[0], Group)):
            self._note_effect(node, "an effect is a list", "(predicate ...), (and ...), (not ...), ...")
            return []
        head = node.head()
        if not node.items:
            return []
        if head in self._effects:
            return self._effects[head](node, variables)
        if head in ("or", "exists", "imply", "if", EQUALITY) and head not in self.names.predicates:
            self._note_effect(node, f"'{head}' cannot be an effect", "and, not, when, forall or a predicate")
            return []
        if self.is_unsupported(node):
            return []
        if self.is_renamed(node):
            return self.effects(node, variables)
        return [Literal(self._changed_atom(node, variables))]

    def _changed_atom(self, group: Group, variables: Variables) -> Atom:
        if group.head() in self.names.derived:
            self.notebook.note(
                Code.DERIVED_PREDICATE_CHANGED, group.offset, f"derived predicate '{group.head()}' in an effect",
                expected="a predicate without (:derived ...)", repair="change what it is derived from",
            )  # fmt: skip
        return self.atom(group, variables)

    def _delete_effect(self, group: Group, variables: Variables) -> list[Effect]:
        part = group.items[1] if len(group.items) == 2 else None
        is_atom = isinstance(part, Group) and part.head() not in ("", *CONNECTIVES, EQUALITY)
        if not is_atom or not isinstance(part, Group):
            self._note_effect(group, "'not' takes one atom in an effect", "(not (predicate ...))", repair_of_not(group))
            return []
        return [Literal(self._changed_atom(part, variables), is_positive=False)]

    def _conditional_effect(self, group: Group, variables: Variables) -> list[Effect]:
        if len(group.items) != 3:
            self._note_effect(group, "'when' takes a condition and an effect", "(when (condition ...) (effect ...))")
            return []
        condition = self.condition(group.items[1], variables)
        return [ConditionalEffect(condition, tuple(self.effects(group.items[2], variables)))]

    def _universal_effect(self, group: Group, variables: Variables) -> list[Effect]:
        inner = self.quantified(group, variables)
        if inner is None:
            return []
        parameters, scope = inner
        return [UniversalEffect(parameters, tuple(self.effects(group.items[2], scope)))]

    def _cost_increase(self, group: Group, variables: Variables) -> list[Effect]:
        target = group.items[1] if len(group.items) == 3 else None
        if not isinstance(target, Group) or target.head() != TOTAL_COST or len(target.items) != 1:
            got = describe(target) if target else "no function"
            self.notebook.note(
                Code.UNSUPPORTED_FEATURE, group.offset, f"'increase' of anything but ({TOTAL_COST}) is not supported",
                got=got, expected=f"(increase ({TOTAL_COST}) amount)",
            )  # fmt: skip
            return []
        if TOTAL_COST not in self.names.functions:
            self.note_unknown_function(target)
        amount = self._amount(group.items[2], variables)
        return [] if amount is None else [CostIncrease(amount)]

    def _amount(self, node: Node, variables: Variables) -> Number | Atom | None:
        if isinstance(node, Word):
            number = read_number(node.text)
            if number is None or number < 0:
                self._note_effect(node, "a cost is a number or a function", "a number of 0 or more, or (function ...)")
                return None
            return number
        if node.head() in ("+", "-", "*", "/") or not node.head():
            self.notebook.note(
                Code.UNSUPPORTED_FEATURE, node.offset, "arithmetic is not supported", got=describe(node),
                expected="a number or (function ...)",
            )  # fmt: skip
            return None
        return self.function_term(node, variables)

    def _note_effect(self, node: Node, message: str, expected: str, repair: str | None = None) -> None:
        self.notebook.note(
            Code.MALFORMED_EFFECT, node.offset, message, got=describe(node), expected=expected, repair=repair
        )


def contradictions(effects: Sequence[Effect]) -> tuple[Atom, ...]:
    """Return the atoms that a list of effects both adds and deletes, unconditionally."""
    literals = sorted({effect for effect in effects if isinstance(effect, Literal)})
    return tuple(one.atom for one, other in pairwise(literals) if one.atom == other.atom)

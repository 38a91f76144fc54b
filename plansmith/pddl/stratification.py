"""Strata of rules for derived predicates: what must be settled before a predicate may be negated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plansmith.pddl.model import DerivedPredicate, literals_in


@dataclass(frozen=True, slots=True)
class Strata:
    """Each derived predicate's stratum; `circular` is one that depends on its own negation, if there is any."""

    of: dict[str, int]
    circular: str | None


def strata(rules: Sequence[DerivedPredicate]) -> Strata:
    """Return the strata: no predicate stands below those it uses, and each stands above those it negates.

    Strata are raised until they fit. With n predicates, one that rises above n shows a circle through a negation
    (Thiebaux, Hoffmann and Nebel, In defense of PDDL axioms, 2005).
    """
    found = {rule.predicate: 0 for rule in rules}
    uses = dict.fromkeys(
        (rule.predicate, literal.atom.predicate, 0 if literal.is_positive else 1)
        for rule in rules
        for literal in literals_in(rule.condition)
        if literal.atom.predicate in found
    )
    while True:
        rising = [(head, found[used] + rise) for head, used, rise in uses if found[used] + rise > found[head]]
        if not rising:
            return Strata(found, None)
        for head, level in rising:
            found[head] = max(found[head], level)
            if level > len(found):
                return Strata(found, head)

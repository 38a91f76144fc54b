"""Damage to a domain, a literal at a time: how wrong may a domain be that is learnt from?

A literal is one conjunct of a precondition or one effect of an action schema. One is taken out, or one is put in that
is made of the domain's predicates and the action's parameters and was not there in either sign. Every literal is as
likely as any other. Not here: whether anything can still be planned in what is left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal as OneOf

from plansmith.errors import PlansmithError
from plansmith.pddl.model import Atom, Conjunction, Domain, Literal, conjuncts_of
from plansmith.problems.pruning import with_action, without_literal


@dataclass(frozen=True, slots=True)
class Damaged:
    """A domain with its damage, and which literals that is, in order."""

    domain: Domain
    changes: tuple[str, ...]


def damaged(domain: Domain, kind: OneOf["removed", "added"], n_literals: int, rng: random.Random) -> Damaged:
    """Return the domain with so many literals removed or added, one after the other.

    With the same random numbers the first ones of a greater damage are those of a smaller one.

    Raises:
        PlansmithError: there are not as many.
    """
    changes: list[str] = []
    for _ in range(n_literals):
        candidates = dict(without_literal(domain) if kind == "removed" else _with_literal(domain))
        if not candidates:
            raise PlansmithError(f"not as many literals can be {kind}", where=domain.name,
                                 got=f"{n_literals}, and after {len(changes)} none is left",
                                 cure="damage the domain less")  # fmt: skip
        what = rng.choice(list(candidates))
        domain = candidates[what]
        changes.append(f"{kind} {what}")
    return Damaged(domain, tuple(changes))


def _with_literal(domain: Domain) -> Iterator[tuple[str, Domain]]:
    """Yield the domain with one literal more, each time with its name."""
    for action in domain.actions:
        names = [parameter.name for parameter in action.parameters]
        needed, effects = conjuncts_of(action.precondition), action.effects
        for schema in domain.predicates:
            for arguments in product(names, repeat=len(schema.parameters)):
                atom = Atom(schema.name, arguments)
                positive, negative = Literal(atom), Literal(atom, is_positive=False)
                if not {positive, negative} & {*needed}:
                    more = replace(action, precondition=Conjunction((*needed, positive)))
                    yield f"precondition {positive} of {action.name}", with_action(domain, more)
                if not {positive, negative} & {*effects}:
                    for literal in (positive, negative):
                        more = replace(action, effects=(*effects, literal))
                        yield f"effect {literal} of {action.name}", with_action(domain, more)

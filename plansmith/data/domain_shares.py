"""What the domains of a run share, names apart: none that is learnt from may be one that is only tested.

Not here: the comparison of two domains (`plansmith.pddl.domain_distance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plansmith.errors import BadInputError
from plansmith.pddl.domain_distance import DomainForms, Shared, shared


def nearest(domain: DomainForms, tested: Sequence[DomainForms]) -> Shared:
    """Return what a domain shares with the tested one of which it has most action schemas."""
    return max((shared(domain, reference) for reference in tested), key=lambda found: (found.is_equal, found.n_shared))


def check_unseen(learnt: Iterable[DomainForms], tested: Sequence[DomainForms], *, where: str) -> None:
    """Raise unless every domain that is learnt from differs from those that are only tested in more than names.

    Raises:
        BadInputError: one does not.
    """
    for domain in learnt:
        found = nearest(domain, tested) if tested else None
        if found is not None and found.is_equal:
            raise BadInputError(
                "a domain that is never to be seen is learnt from", where=where,
                got=f"{found.name}, which is {found.reference}" + ("" if found.name == found.reference else " renamed"),
                expected="training domains that differ from it in more than names",
                cure=f"leave {found.name} out of what is learnt from, or {found.reference} out of what is tested",
            )  # fmt: skip

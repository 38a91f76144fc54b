"""Whether a problem speaks of what a text speaks of, by names alone; it needs neither reference nor phrases.

Not here: whether both mean the same, which nobody can say of a text in free words.
"""

from __future__ import annotations

import re

from plansmith.pddl.model import Problem

_BETWEEN = re.compile(r"[-_\s]+")


def unnamed_objects(problem: Problem, text: str) -> list[str]:
    """Return the objects of a problem whose names do not occur in a text, in the problem's order.

    A name occurs where it stands as whole words, in capitals or not; ``red-car`` is named by "the red car", too.
    """
    said = _BETWEEN.sub(" ", text.casefold())

    def is_named(name: str) -> bool:
        words = _BETWEEN.sub(" ", name.casefold()).strip()
        return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", said) is not None

    return [item.name for item in problem.objects if not is_named(item.name)]

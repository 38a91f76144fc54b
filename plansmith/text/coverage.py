"""Whether a problem speaks of what a text speaks of, by names alone; it needs neither reference nor phrases.

Not here: whether both mean the same, which nobody can say of a text in free words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plansmith.pddl.model import Domain, Problem

_BETWEEN = re.compile(r"[-_\s]+")
_WORD = re.compile(r"(?<![\w'\u2019])[^\W_](?:[\w-]*\w)?")
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[a-z]\.){2,}|\w+/[a-z]+(?!\w)|(?<!\w)\d+(?:am|pm|km|cm|mm|kg|h|min|s|m|g|l)(?!\w)"
)
"""What looks like names and is none: e.g., km/h, 5pm."""
_ORDINAL = re.compile(r"\d+(st|nd|rd|th)")
_WORDS_OF_ONE_LETTER = frozenset("aio")


def unnamed_objects(problem: Problem, text: str) -> list[str]:
    """Return the objects of a problem whose names do not occur in a text, in the problem's order.

    A name occurs where it stands as whole words, in capitals or not; ``red-car`` is named by "the red car", too.
    """
    said = _spoken(text)

    def is_named(name: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(_spoken(name))}(?!\w)", said) is not None

    return [item.name for item in problem.objects if not is_named(item.name)]


def undeclared_names(problem: Problem, domain: Domain, text: str) -> list[str]:
    """Return what a text names and a problem does not declare, each once, in the text's order.

    A word is taken for a name where it can be nothing else: it has a digit or an underscore beside letters, or is one
    letter that is no English word. What the domain names itself is left out.
    """
    known = {_spoken(name) for name in (*(item.name for item in problem.objects), *_own_names(domain))}
    said = dict.fromkeys(word for word in _WORD.findall(_ABBREVIATION.sub(" ", text.lower())) if _is_name(word))
    return [word for word in said if _spoken(word) not in known]


def coverage_faults(problem: Problem, domain: Domain, text: str) -> list[str]:
    """Return in words, each with its cure, what only the problem names and what only the text does."""
    unnamed = [
        f"the text does not name {name}\n  to mend it: leave the object {name} out"
        for name in unnamed_objects(problem, text)
    ]
    undeclared = [
        f"the text names {name}, which is no object of the problem\n  to mend it: declare {name}, with what the text "
        "says of it"
        for name in undeclared_names(problem, domain, text)
    ]
    return unnamed + undeclared


def _spoken(text: str) -> str:
    return _BETWEEN.sub(" ", text.casefold()).strip()


def _is_name(word: str) -> bool:
    if len(word) == 1:
        return word.isalpha() and word not in _WORDS_OF_ONE_LETTER
    has_letter, has_mark = any(map(str.isalpha, word)), "_" in word or any(map(str.isdigit, word))
    return has_letter and has_mark and not _ORDINAL.fullmatch(word)


def _own_names(domain: Domain) -> Iterator[str]:
    yield domain.name
    yield from (item.name for item in (*domain.types, *domain.constants))
    yield from (schema.name for schema in domain.predicates)
    yield from (schema.name for schema in domain.functions)
    yield from (action.name for action in domain.actions)

"""What two problems of a domain differ in, told for people.

By name where at least half of the objects are called the same in both; else in numbers, of objects by type and of facts
by predicate. Not here: whether they mean the same (`equivalence`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from plansmith.pddl.model import Atom, Condition, Literal, Problem, TypedName, conjuncts_of


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that stands in one problem oftener than in the other."""

    section: str
    """The part of the problem: ``objects``, ``init``, ``goal`` or ``metric``."""
    what: str
    """The object with its type, the fact or the condition; with `is_number`, the type or the predicate."""
    n_first: int
    n_second: int
    is_number: bool = False
    """Whether all of a type or of a predicate are counted."""

    def __str__(self) -> str:
        if self.is_number:
            return f"{self.section}: {self.n_first} of {self.what} in the first, {self.n_second} in the second"
        return f"{self.section}: {self.what} in the {'first' if self.n_first else 'second'} only"


def problem_differences(first: Problem, second: Problem) -> tuple[Difference, ...]:
    """Return what the text of one problem has and that of the other has not; nothing where only the joints differ.

    Both problems are in normal form (`normal_form`).
    """
    names, more_names = ({typed.name for typed in problem.objects} for problem in (first, second))
    is_by_name = 2 * len(names & more_names) >= max(len(names), len(more_names))
    listed = _by_name if is_by_name else _in_numbers
    return _difference(listed(first), listed(second), is_number=not is_by_name)


def goal_differences(first: Iterable[Condition], second: Iterable[Condition]) -> tuple[Difference, ...]:
    """Return parts of goals that one problem alone asks for, those of the first before those of the second."""
    ours = (Difference("goal", str(condition), 1, 0) for condition in first)
    return (*ours, *(Difference("goal", str(condition), 0, 1) for condition in second))


def _difference(
    first: Counter[tuple[str, str]], second: Counter[tuple[str, str]], *, is_number: bool
) -> tuple[Difference, ...]:
    items = dict.fromkeys((*first, *second))
    return tuple(
        Difference(section, what, first[section, what], second[section, what], is_number)
        for section, what in items
        if first[section, what] != second[section, what]
    )


def _by_name(problem: Problem) -> Counter[tuple[str, str]]:
    found = Counter(("objects", f"{typed.name} - {_type_of(typed)}") for typed in problem.objects)
    found.update(("init", str(fact)) for fact in (*problem.init, *problem.function_values))
    found.update(("goal", str(conjunct)) for conjunct in conjuncts_of(problem.goal))
    found.update(_metric(problem))
    return found


def _in_numbers(problem: Problem) -> Counter[tuple[str, str]]:
    found = Counter(("objects", _type_of(typed)) for typed in problem.objects)
    found.update(("init", _shape(atom)) for atom in problem.init)
    found.update(("init", f"(= {_shape(known.term)} {known.value})") for known in problem.function_values)
    found.update(("goal", _kind_of_goal(conjunct)) for conjunct in conjuncts_of(problem.goal))
    found.update(_metric(problem))
    return found


def _metric(problem: Problem) -> list[tuple[str, str]]:
    return [("metric", f"(:metric minimize ({problem.metric}))")] if problem.metric else []


def _kind_of_goal(conjunct: Condition) -> str:
    if not isinstance(conjunct, Literal):
        return f"({str(conjunct)[1:].split()[0].rstrip(')')} ...)"
    return _shape(conjunct.atom) if conjunct.is_positive else f"(not {_shape(conjunct.atom)})"


def _shape(atom: Atom) -> str:
    return f"({atom.predicate}{' ...' * bool(atom.arguments)})"


def _type_of(typed: TypedName) -> str:
    return " or ".join(typed.types)

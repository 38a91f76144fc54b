"""Mistakes in a written problem, one at a time: of form, so that it cannot be read, and of meaning.

What a language model gets wrong when it writes a problem in PDDL (NL-PDDL-Bench, sections 1 and 3.3; the perturbations
that it promises in its appendix are not there, these are ours). One is drawn here; what it amounts to has to be proved:
a lost fact may change nothing, and a problem of another meaning may have plans as good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Conjunction, Literal, Problem, TypedName, conjuncts_of
from plansmith.pddl.printer import print_problem


class Perturbation(StrEnum):
    """What is done to a problem; those of `FORM` are meant to leave a text that cannot be read."""

    BRACKET_LOST = "bracket_lost"
    BRACKET_ADDED = "bracket_added"
    PREDICATE_MISSPELT = "predicate_misspelt"
    WRONG_ARITY = "wrong_arity"
    UNDECLARED_OBJECT = "undeclared_object"
    WRONG_TYPE = "wrong_type"
    SECTION_LOST = "section_lost"
    FACT_DROPPED = "fact_dropped"
    FACT_ADDED = "fact_added"
    FACT_MOVED = "fact_moved"
    ARGUMENTS_SWAPPED = "arguments_swapped"
    OBJECT_DROPPED = "object_dropped"
    GOAL_DROPPED = "goal_dropped"
    GOAL_CHANGED = "goal_changed"


FORM = frozenset(
    {Perturbation.BRACKET_LOST, Perturbation.BRACKET_ADDED, Perturbation.PREDICATE_MISSPELT, Perturbation.WRONG_ARITY}
    | {Perturbation.UNDECLARED_OBJECT, Perturbation.WRONG_TYPE, Perturbation.SECTION_LOST}
)


def perturb(task: PlanningTask, perturbation: Perturbation, rng: random.Random) -> str | None:
    """Return the text of the task's problem with one mistake of a kind; None where the draw gave none."""
    return _DRAWS[perturbation](_Drawn(task), rng)


@dataclass(frozen=True)
class _Drawn:
    """A problem with the places where its atoms stand."""

    task: PlanningTask

    @property
    def problem(self) -> Problem:
        return self.task.problem

    @property
    def goals(self) -> tuple[Condition, ...]:
        return conjuncts_of(self.problem.goal)

    def atoms(self, *, has_facts: bool = True, has_goals: bool = True) -> list[_Place]:
        """Return where atoms stand, those of goals that are literals."""
        facts = [_Place(False, number, atom) for number, atom in enumerate(self.problem.init)]
        goals = [
            _Place(True, k, goal.atom, goal.is_positive)
            for k, goal in enumerate(self.goals)
            if isinstance(goal, Literal)
        ]
        return facts * has_facts + goals * has_goals

    def with_atom(self, place: _Place, atom: Atom) -> str:
        """Return the text with another atom in a place."""
        if place.is_goal:
            goals = list(self.goals)
            goals[place.number] = Literal(atom, place.is_positive)
            return self.with_goals(goals)
        init = list(self.problem.init)
        init[place.number] = atom
        return print_problem(replace(self.problem, init=tuple(init)))

    def with_goals(self, goals: Sequence[Condition]) -> str:
        return print_problem(replace(self.problem, goal=Conjunction(tuple(goals))))

    def fitting(self, atom: Atom, position: int) -> list[str]:
        """Return the other objects that may stand at a position of an atom."""
        parameter = self._parameter(atom, position)
        return [name for name in self.task.objects if name != atom.arguments[position]
                and self.task.fits(name, parameter)]  # fmt: skip

    def unfitting(self, atom: Atom, position: int) -> list[str]:
        """Return the objects that may not stand there, because of their type."""
        parameter = self._parameter(atom, position)
        return [name for name in self.task.objects if not self.task.fits(name, parameter)]

    def _parameter(self, atom: Atom, position: int) -> TypedName:
        schema = self.task.domain.predicate(atom.predicate)
        assert schema is not None  # the problem was read
        return schema.parameters[position]


@dataclass(frozen=True, slots=True)
class _Place:
    """An atom among the facts, or among the goals."""

    is_goal: bool
    number: int
    atom: Atom
    is_positive: bool = True


def _lose_bracket(drawn: _Drawn, rng: random.Random) -> str:
    text = print_problem(drawn.problem)
    place = rng.choice([place for place, character in enumerate(text) if character in "()"])
    return text[:place] + text[place + 1 :]


def _add_bracket(drawn: _Drawn, rng: random.Random) -> str:
    """Repeat a bracket."""
    text = print_problem(drawn.problem)
    place = rng.choice([place for place, character in enumerate(text) if character in "()"])
    return text[:place] + text[place] + text[place:]


def _misspelt(name: str, rng: random.Random) -> str:
    """Return a name with a letter lost, doubled or exchanged with the next, or its hyphen as an underscore."""
    place = rng.randrange(len(name))
    after = name[place + 1 : place + 2]
    return rng.choice(
        [
            name[:place] + name[place + 1 :] or name * 2,
            name[:place] + name[place] + name[place:],
            name[:place] + after + name[place] + name[place + 2 :],
            name.replace("-", "_"),
        ]
    )


def _misspell_predicate(drawn: _Drawn, rng: random.Random) -> str | None:
    place = rng.choice(drawn.atoms())
    name = _misspelt(place.atom.predicate, rng)
    is_known = drawn.task.domain.predicate(name) is not None
    return None if is_known else drawn.with_atom(place, replace(place.atom, predicate=name))


def _change_arity(drawn: _Drawn, rng: random.Random) -> str | None:
    """Drop the last argument, or name it twice."""
    places = [place for place in drawn.atoms() if place.atom.arguments]
    if not places:
        return None
    place = rng.choice(places)
    *before, last = place.atom.arguments
    return drawn.with_atom(place, replace(place.atom, arguments=(*before, *[last] * rng.choice((0, 2)))))


def _name_undeclared(drawn: _Drawn, rng: random.Random) -> str | None:
    def misspelt(atom: Atom, position: int) -> list[str]:
        name = _misspelt(atom.arguments[position], rng)
        return [] if name in drawn.task.objects else [name]

    return _with_other_argument(drawn, drawn.atoms(), misspelt, rng)


def _with_other_argument(
    drawn: _Drawn, places: Sequence[_Place], others: Callable[[Atom, int], list[str]], rng: random.Random
) -> str | None:
    """Return the text with one argument of one of the atoms replaced by one of its others."""
    if not places:
        return None
    place = rng.choice(places)
    changes = [(k, name) for k in range(len(place.atom.arguments)) for name in others(place.atom, k)]
    if not changes:
        return None
    position, name = rng.choice(changes)
    arguments = list(place.atom.arguments)
    arguments[position] = name
    return drawn.with_atom(place, replace(place.atom, arguments=tuple(arguments)))


def _give_wrong_type(drawn: _Drawn, rng: random.Random) -> str | None:
    return _with_other_argument(drawn, drawn.atoms(), drawn.unfitting, rng)


def _lose_section(drawn: _Drawn, rng: random.Random) -> str:
    """Leave out domain, objects, facts or goals, of which each has its line."""
    lines = print_problem(drawn.problem).splitlines()
    place = rng.randrange(1, 5)
    if place == len(lines) - 1:
        lines[-2] += ")"  # the last one closes the problem
    return "\n".join(lines[:place] + lines[place + 1 :]) + "\n"


def _drop_fact(drawn: _Drawn, rng: random.Random) -> str | None:
    init = list(drawn.problem.init)
    if not init:
        return None
    del init[rng.randrange(len(init))]
    return print_problem(replace(drawn.problem, init=tuple(init)))


def _add_fact(drawn: _Drawn, rng: random.Random) -> str | None:
    """Add a fact that differs in one object from one that is there."""
    known = set(drawn.problem.init)
    added = sorted(atom for place in drawn.atoms(has_goals=False) for atom in _neighbours(drawn, place.atom))
    added = [atom for atom in added if atom not in known]
    return print_problem(replace(drawn.problem, init=(*drawn.problem.init, rng.choice(added)))) if added else None


def _neighbours(drawn: _Drawn, atom: Atom) -> Iterator[Atom]:
    for position in range(len(atom.arguments)):
        for name in drawn.fitting(atom, position):
            yield replace(atom, arguments=(*atom.arguments[:position], name, *atom.arguments[position + 1 :]))


def _move_fact(drawn: _Drawn, rng: random.Random) -> str | None:
    """Let a fact be about another object."""
    return _with_other_argument(drawn, drawn.atoms(has_goals=False), drawn.fitting, rng)


def _change_goal(drawn: _Drawn, rng: random.Random) -> str | None:
    return _with_other_argument(drawn, drawn.atoms(has_facts=False), drawn.fitting, rng)


def _swap_arguments(drawn: _Drawn, rng: random.Random) -> str | None:
    swapped = [
        (place, replace(place.atom, arguments=place.atom.arguments[::-1]))
        for place in drawn.atoms()
        if len(place.atom.arguments) == 2 and len(set(place.atom.arguments)) == 2
        and all(place.atom.arguments[1 - k] in drawn.fitting(place.atom, k) for k in (0, 1))
    ]  # fmt: skip
    return drawn.with_atom(*rng.choice(swapped)) if swapped else None


def _drop_object(drawn: _Drawn, rng: random.Random) -> str | None:
    """Leave out an object with all that is said of it."""
    problem = drawn.problem
    if not problem.objects:
        return None
    lost = rng.choice(problem.objects).name
    goals = [goal for goal in drawn.goals if not (isinstance(goal, Literal) and lost in goal.atom.arguments)]
    if not goals or any(lost in str(goal).replace(")", " ").split() for goal in goals):
        return None
    without = replace(
        problem,
        objects=tuple(typed for typed in problem.objects if typed.name != lost),
        init=tuple(atom for atom in problem.init if lost not in atom.arguments),
        function_values=tuple(known for known in problem.function_values if lost not in known.term.arguments),
        goal=Conjunction(tuple(goals)),
    )
    return print_problem(without)


def _drop_goal(drawn: _Drawn, rng: random.Random) -> str | None:
    goals = list(drawn.goals)
    if len(goals) < 2:
        return None
    del goals[rng.randrange(len(goals))]
    return drawn.with_goals(goals)


_DRAWS: dict[Perturbation, Callable[[_Drawn, random.Random], str | None]] = {
    Perturbation.BRACKET_LOST: _lose_bracket,
    Perturbation.BRACKET_ADDED: _add_bracket,
    Perturbation.PREDICATE_MISSPELT: _misspell_predicate,
    Perturbation.WRONG_ARITY: _change_arity,
    Perturbation.UNDECLARED_OBJECT: _name_undeclared,
    Perturbation.WRONG_TYPE: _give_wrong_type,
    Perturbation.SECTION_LOST: _lose_section,
    Perturbation.FACT_DROPPED: _drop_fact,
    Perturbation.FACT_ADDED: _add_fact,
    Perturbation.FACT_MOVED: _move_fact,
    Perturbation.ARGUMENTS_SWAPPED: _swap_arguments,
    Perturbation.OBJECT_DROPPED: _drop_object,
    Perturbation.GOAL_DROPPED: _drop_goal,
    Perturbation.GOAL_CHANGED: _change_goal,
}

"""What a plan in a model's own words means in a reference: a map of objects, and of actions to reference actions.

A plan proves nothing in the model that it was found in. An interpretation gives each of its actions alternatives, each
a sequence of reference actions over its parameters; the validator judges what follows. A search may propose one, but
whether it is what the words mean only a person can say: a proposal counts for nothing until it is confirmed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from plansmith.errors import BadInputError
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.simulation import successors
from plansmith.pddl.validation import validate_plan

MAX_STATES = 20_000
"""States of the reference that a search for one plan looks at."""
LONGEST = 2
"""Reference actions that a proposal takes one action of a model for, at most."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reference action that an action of a model stands for.

    Attributes:
        action: of the reference.
        arguments: of it: the number of a parameter of the model's action, from 0, or an object of the reference.
    """

    action: str
    arguments: tuple[int | str, ...] = ()

    def step(self, given: Sequence[str]) -> PlanStep:
        """Return the step for the arguments of the model's action, as the reference calls them.

        Raises:
            IndexError: it takes a parameter that there is not.
        """
        bound = (given[own] if isinstance(own, int) else own for own in self.arguments)
        return PlanStep(self.action, tuple(bound))


Alternative = tuple[Reading, ...]
NOTHING: Alternative = ()
"""What an action stands for that the reference has no word for."""


@dataclass(frozen=True)
class Interpretation:
    """How a model's plans are read.

    Attributes:
        objects: the reference's name of each object of the model; one that is left out has none.
        actions: what each action of the model can stand for.
        is_confirmed: a person has said that the words mean this.
    """

    objects: Mapping[str, str] = field(default_factory=dict)
    actions: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    is_confirmed: bool = False

    def check(self, task: PlanningTask, *, where: str = "") -> None:
        """Raise for what the reference does not know.

        Raises:
            BadInputError: an unknown action, one with other arguments, or an unknown object.
        """
        known = {schema.name: len(schema.parameters) for schema in task.domain.actions}
        names = {typed.name for typed in (*task.problem.objects, *task.domain.constants)}
        for alternative in itertools.chain.from_iterable(self.actions.values()):
            for own in alternative:
                if known.get(own.action) != len(own.arguments):
                    raise BadInputError(
                        "an interpretation of an unknown action", where=where,
                        got=f"{own.action}/{len(own.arguments)}",
                        expected=f"one of {', '.join(f'{name}/{n}' for name, n in known.items())}",
                    )  # fmt: skip
        unknown = set(self.objects.values()) - names
        if unknown:
            raise BadInputError("an interpretation of unknown objects", where=where, got=", ".join(sorted(unknown)),
                                expected=f"some of {', '.join(sorted(names))}")  # fmt: skip

    def covers(self, plan: Iterable[PlanStep]) -> bool:
        """Return whether it is of the words of a plan: every action has a meaning, even if it stands for nothing."""
        return all(step.name in self.actions for step in plan)

    def knows_objects_of(self, plan: Iterable[PlanStep]) -> bool:
        """Return whether it knows every object of a plan."""
        return all(name in self.objects for step in plan for name in step.arguments)

    def given(self, step: PlanStep) -> tuple[str, ...]:
        """Return the arguments of a step as the reference calls them; one that it does not have is empty."""
        return tuple(self.objects.get(name, "") for name in step.arguments)


_INTERPRETATION: TypeAdapter[Interpretation] = TypeAdapter(Interpretation)


def interpretation_of(text: str, *, where: str) -> Interpretation:
    """Return the interpretation in a text.

    Raises:
        BadInputError: it is none.
    """
    try:
        return _INTERPRETATION.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInputError("no interpretation", where=where, got=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                            expected="objects, actions and is_confirmed, as in docs/nl2plan.md") from error  # fmt: skip


def interpretation_text(interpretation: Interpretation) -> str:
    """Return an interpretation as JSON, which `interpretation_of` reads."""
    return _INTERPRETATION.dump_json(interpretation, indent=2).decode()


def identity(task: PlanningTask) -> Interpretation:
    """Return the interpretation of a model that calls everything as the reference does; nobody has to confirm it."""
    actions = {
        schema.name: ((Reading(schema.name, tuple(range(len(schema.parameters)))),),) for schema in task.domain.actions
    }
    names = {typed.name: typed.name for typed in (*task.problem.objects, *task.domain.constants)}
    return Interpretation(names, actions, is_confirmed=True)


def speaks_as(task: PlanningTask, plan: Iterable[PlanStep]) -> bool:
    """Return whether every step of a plan names an action of the reference, with as many arguments, and its objects."""
    return all(isinstance(task.ground(step), GroundAction) for step in plan)


def reference_plan(
    interpretation: Interpretation, plan: Sequence[PlanStep], task: PlanningTask
) -> tuple[PlanStep, ...] | None:
    """Return a plan of the reference that a model's plan stands for and that reaches the goal, None where none does.

    Of the alternatives of each step whichever can be taken are followed.
    """
    states: dict[int, tuple[PlanStep, ...]] = {task.initial_state: ()}
    for step in plan:
        after: dict[int, tuple[PlanStep, ...]] = {}
        for state, done in states.items():
            for alternative in interpretation.actions.get(step.name, ()):
                reached = _taken(task, state, alternative, interpretation.given(step))
                if reached is not None and len(after) < MAX_STATES:
                    after.setdefault(reached[0], done + reached[1])
        states = after
    found = next((done for state, done in states.items() if task.is_goal(state)), None)
    return found if found is not None and validate_plan(task, found).is_valid else None


def _taken(
    task: PlanningTask, state: int, alternative: Alternative, given: Sequence[str]
) -> tuple[int, tuple[PlanStep, ...]] | None:
    steps: list[PlanStep] = []
    for own in alternative:
        try:
            step = own.step(given)
        except IndexError:
            return None
        action = task.ground(step)
        if not isinstance(action, GroundAction) or not action.is_applicable(state):
            return None
        state = action.apply(state)
        steps.append(step)
    return state, tuple(steps)


# --- proposals


def propose(plan: Sequence[PlanStep], objects: Iterable[str], task: PlanningTask) -> Interpretation | None:
    """Return an interpretation under which a plan is one of the reference, None where the search finds none.

    Objects are matched by their letters and digits. Every action stands for one reference action or a few over its own
    arguments, and for others only where those that it stood for before lead nowhere; for nothing where no plan is found
    otherwise. What is found first is given, so look at it before you confirm it.
    """
    start = Interpretation(dict(match_objects(objects, [typed.name for typed in task.problem.objects])))
    try:
        return _proposed(start, plan, task, task.initial_state, [MAX_STATES]) or _proposed(
            start, plan, task, task.initial_state, [MAX_STATES], others=(NOTHING,)
        )
    except RecursionError:  # a plan of a thousand steps
        return None


def match_objects(objects: Iterable[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield objects with those of the reference that are called alike, each of these once."""
    left = list(known)
    for name in objects:
        same = [own for own in left if _bare(own) == _bare(name)]
        same += [own for own in left if len(_bare(own)) and (_ends(name, own) or _ends(own, name))]
        if same:
            left.remove(same[0])
            yield name, same[0]


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _ends(name: str, end: str) -> bool:
    """Return whether a name ends with another one, ``vertex4`` with ``v4``; digits must be the same."""
    digits = [re.sub(r"\D", "", one) for one in (name, end)]
    letters = [re.sub(r"[^a-z]", "", one.lower()) for one in (name, end)]
    return digits[0] == digits[1] and (letters[0].startswith(letters[1]) or letters[0].endswith(letters[1]))


def _proposed(
    so_far: Interpretation,
    plan: Sequence[PlanStep],
    task: PlanningTask,
    state: int,
    budget: list[int],
    others: tuple[Alternative, ...] = (),
) -> Interpretation | None:
    budget[0] -= 1  # nothing can be done in every state: what is known may be tried again and again
    if not plan or budget[0] < 0:
        return so_far if not plan and task.is_goal(state) else None
    step, rest = plan[0], plan[1:]
    given, known = so_far.given(step), so_far.actions.get(step.name, ())
    for alternative in known:
        reached = _taken(task, state, alternative, given)
        if reached is not None and (found := _proposed(so_far, rest, task, reached[0], budget, others)) is not None:
            return found
    for alternative, after in itertools.chain(
        _sequences(task, state, given, budget), ((other, state) for other in others)
    ):
        if alternative not in known:
            more = replace(so_far, actions={**so_far.actions, step.name: (*known, alternative)})
            if (found := _proposed(more, rest, task, after, budget, others)) is not None:
                return found
    return None


def _sequences(
    task: PlanningTask, state: int, given: Sequence[str], budget: list[int]
) -> Iterator[tuple[Alternative, int]]:
    """Yield the sequences of reference actions over some arguments that can be taken, short ones first."""
    waiting: list[tuple[Alternative, int]] = [((), state)]
    for _ in range(LONGEST):
        longer: list[tuple[Alternative, int]] = []
        for done, now in waiting:
            for action, after in successors(task, now):
                budget[0] -= 1
                if budget[0] < 0:
                    return
                if set(action.step.arguments) <= set(given):
                    arguments = tuple(given.index(name) for name in action.step.arguments)
                    longer.append(((*done, Reading(action.step.name, arguments)), after))
        yield from longer
        waiting = longer

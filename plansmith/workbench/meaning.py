"""What the plan means in a reference: a search proposes it, a person confirms it, the validator judges.

A proposal counts for nothing until it is confirmed, and a confirmed one only for a plan that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from plansmith.errors import BadInputError
from plansmith.judging.interpretation import (
    Interpretation,
    interpretation_of,
    interpretation_text,
    propose,
    reference_plan,
)
from plansmith.modelling import folder as files
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.reading import read_problem_sketch
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_domain, parse_plan, parse_problem


@dataclass(frozen=True, slots=True)
class Reference:
    """The task as a person has modelled it."""

    task: PlanningTask

    @classmethod
    def read(cls, domain: Path, problem: Path) -> Self:
        """Return the reference in two files.

        Raises:
            BadInputError: they cannot be read.
        """
        read = parse_domain(read_text(domain), source=str(domain))
        return cls(PlanningTask(read, parse_problem(read_text(problem), read, source=str(problem))))


@dataclass(frozen=True, slots=True)
class MeaningView:
    """What a plan is taken to mean.

    Attributes:
        plan: in the model.
        interpretation: as JSON; empty where nobody has written one and the search finds none.
        actions: each action of the model with what it stands for, a line an alternative.
        objects: each object with its name in the reference.
        steps: what the plan is in the reference; None where the interpretation makes no valid plan of it.
        is_kept: whether a person has kept it, for a plan of these actions and objects.
        is_confirmed: whether a person has confirmed it.
    """

    plan: tuple[str, ...]
    interpretation: str
    actions: tuple[tuple[str, tuple[str, ...]], ...]
    objects: tuple[tuple[str, str], ...]
    steps: tuple[str, ...] | None
    is_kept: bool
    is_confirmed: bool

    @property
    def is_right(self) -> bool:
        """Return whether the plan is right, as far as a person and the validator say."""
        return self.is_confirmed and self.steps is not None


def meaning_of(folder: TaskFolder, reference: Reference) -> MeaningView | None:
    """Return what the plan is taken to mean; None without a plan."""
    if not folder.has(files.PLAN):
        return None
    plan = parse_plan(folder.read(files.PLAN))
    kept = _kept(folder)
    if kept is not None and not kept.covers(plan):  # it is of an earlier model
        kept = None
    found = kept if kept is not None else propose(plan, _objects(folder), reference.task)
    shown = tuple(map(str, plan))
    if found is None:
        return MeaningView(shown, "", (), (), None, is_kept=False, is_confirmed=False)
    return _view(shown, plan, found, reference, is_kept=kept is not None)


def _view(
    shown: tuple[str, ...], plan: tuple[PlanStep, ...], found: Interpretation, reference: Reference, *, is_kept: bool
) -> MeaningView:
    actions = tuple(
        (name, tuple(", then ".join(_said(own.action, own.arguments) for own in one) or "nothing" for one in each))
        for name, each in found.actions.items()
    )
    steps = reference_plan(found, plan, reference.task)
    return MeaningView(
        shown,
        interpretation_text(found),
        actions,
        tuple(found.objects.items()),
        None if steps is None else tuple(map(str, steps)),
        is_kept,
        found.is_confirmed,
    )


def _said(action: str, arguments: tuple[int | str, ...]) -> str:
    return f"({' '.join([action, *(f'#{own + 1}' if isinstance(own, int) else own for own in arguments)])})"


def _kept(folder: TaskFolder) -> Interpretation | None:
    if not folder.has(files.INTERPRETATION):
        return None
    return interpretation_of(folder.read(files.INTERPRETATION), where=files.INTERPRETATION)


def _objects(folder: TaskFolder) -> list[str]:
    if not folder.has(files.PROBLEM_SKETCH):
        return []
    return [own.name for own in read_problem_sketch(folder.current(files.PROBLEM_SKETCH)).objects]


def keep_meaning(folder: TaskFolder, reference: Reference | None, text: str, *, is_confirmed: bool) -> None:
    """Keep an interpretation, confirmed or not.

    Raises:
        BadInputError: there is no reference, or the text is no interpretation in it.
    """
    if reference is None:
        raise BadInputError("there is no reference", cure="give the command --reference DOMAIN PROBLEM")
    found = replace(interpretation_of(text, where=files.INTERPRETATION), is_confirmed=is_confirmed)
    found.check(reference.task)
    folder.write(files.INTERPRETATION, interpretation_text(found))

"""Whether an invented domain is fit to be trained on: no mistake in it, problems that take thought and can be solved.

Its problems must differ, Fast Downward solve them, their plans have a few steps, random walks not reach their goals.
Not here: how candidates are drawn (`plansmith.problems.invention`), and which of those that are fit are taken
(`plansmith.data.invention_selection`).
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from plansmith.config.invention import InventionConfig, InventionGrid
from plansmith.errors import BadInputError
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.domain_forms import domain_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import random_walk_to_goal
from plansmith.planners.batch import solve_task
from plansmith.planners.interface import Planner
from plansmith.problems.invention.folders import Invention
from plansmith.problems.library import PlanningDomain, load_domain

PLAN_LENGTH = "plan_length"
"""The line of the grid that shows only when problems have been solved."""

TRIAL_DRAWS = 20
"""Draws of one problem before a level is taken to have none."""

Bin = tuple[str, tuple[int, int]]
"""A line of the grid and a range of it."""


class Refusal(StrEnum):
    """Why a candidate is not kept."""

    NO_ACTION = "no action could be made"
    OUTSIDE = "outside the grid"
    ENOUGH = "its size has its share"
    DIAGNOSED = "diagnose finds something"
    NO_PROBLEM = "no problem can be drawn"
    ALIKE = "problems differ in names alone"
    UNSOLVED = "too few problems are solved"
    SHORT = "no plan is long enough"
    WALKS = "random walks reach the goals"
    EQUAL = "another one in other words"
    KNOWN = "a domain of the library in other words"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain as it was tried; where it was refused early, what would have come later is missing."""

    number: int
    refusal: Refusal | None
    size: Mapping[str, int]
    """Its value on every line of the grid that is known."""
    source: str = ""
    form: str = ""

    def to_row(self) -> dict[str, Any]:
        """Return the candidate for JSON."""
        return asdict(self)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Candidate:
        """Return the candidate of a row."""
        refusal = None if row["refusal"] is None else Refusal(row["refusal"])
        return cls(row["number"], refusal, row["size"], row["source"], row["form"])


def size_of(domain: Domain) -> dict[str, int]:
    """Return the value of a domain on the lines of the grid that it decides alone."""
    return {
        "actions": len(domain.actions),
        "predicates": len(domain.predicates),
        "parameters": max(len(action.parameters) for action in domain.actions),
        "types": max(1, len(domain.types)),
    }


def bins_of(grid: InventionGrid, size: Mapping[str, int]) -> list[Bin] | None:
    """Return the range of each line that a size lies in; None where it lies outside."""
    found: list[Bin] = []
    for line, value in size.items():
        ranges = [bounds for bounds in getattr(grid, line) if bounds[0] <= value <= bounds[1]]
        if not ranges:
            return None
        found.append((line, ranges[0]))
    return found


def try_candidate(
    number: int,
    invention: Invention | None,
    config: InventionConfig,
    planner: Planner,
    rng: random.Random,
    *,
    full: Collection[Bin] = (),
) -> Candidate:
    """Return a candidate with the first reason against it that shows in it alone.

    Args:
        number: of the candidate.
        invention: None where none could be made.
        config: what it must show.
        planner: solves its problems.
        rng: draws problems and walks.
        full: ranges of the grid that have their share already, of which no more is to be tried.
    """
    if invention is None:
        return Candidate(number, Refusal.NO_ACTION, {})
    candidate = Candidate(number, None, size_of(invention.domain), invention.source)
    bins = bins_of(config.grid, candidate.size)
    if bins is None or not set(bins).isdisjoint(full):
        return replace(candidate, refusal=Refusal.OUTSIDE if bins is None else Refusal.ENOUGH)
    if diagnose(print_domain(invention.domain)):
        return replace(candidate, refusal=Refusal.DIAGNOSED)
    candidate = replace(candidate, form=domain_form(invention.domain))
    with tempfile.TemporaryDirectory(prefix="plansmith-invention-") as folder:
        write_files(invention, Path(folder, invention.domain.name))
        loaded = load_domain(str(Path(folder, invention.domain.name)))
        return _tried(candidate, loaded, config, planner, rng)


def write_files(invention: Invention, folder: Path) -> None:
    """Write the files of an invention into a folder, which is made."""
    for name, text in invention.files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _tried(
    candidate: Candidate, loaded: PlanningDomain, config: InventionConfig, planner: Planner, rng: random.Random
) -> Candidate:
    problems = _problems(loaded, config.problems, rng)
    if problems is None:
        return replace(candidate, refusal=Refusal.NO_PROBLEM)
    if diagnose(print_domain(loaded.domain), print_problem(problems[0])):
        return replace(candidate, refusal=Refusal.DIAGNOSED)
    forms = {canonical_form(loaded.domain, problem) for problem in problems}
    if len(forms) < config.min_distinct * len(problems):
        return replace(candidate, refusal=Refusal.ALIKE)
    tasks = [PlanningTask(loaded.domain, problem) for problem in problems]
    lengths = _plan_lengths(tasks, config, planner)
    if lengths is None:
        return replace(candidate, refusal=Refusal.UNSOLVED)
    known = [length for length in lengths if length is not None]
    if not known:
        return replace(candidate, refusal=Refusal.UNSOLVED)
    candidate = replace(candidate, size={**candidate.size, PLAN_LENGTH: math.ceil(statistics.median(known))})
    if max(known) < config.min_longest_plan:
        return replace(candidate, refusal=Refusal.SHORT)
    if _walk_share(tasks, lengths, config.walks, rng) >= config.max_walk_share:
        return replace(candidate, refusal=Refusal.WALKS)
    return candidate


def _problems(loaded: PlanningDomain, count: int, rng: random.Random) -> list[Problem] | None:
    """Return problems of all levels in turn, or None where a level has none."""
    levels = loaded.levels
    try:
        return [loaded.sample(levels[number % len(levels)], rng, max_draws=TRIAL_DRAWS) for number in range(count)]
    except BadInputError:
        return None


def _plan_lengths(tasks: Sequence[PlanningTask], config: InventionConfig, planner: Planner) -> list[int | None] | None:
    """Return the length of each plan, None where none was found; None for all as soon as too many have none.

    Ends after half of the problems where no plan of these is long enough: most that are refused are refused for that.
    """
    lengths: list[int | None] = []
    for task in tasks:
        known = [length for length in lengths if length is not None]
        if len(lengths) * 2 >= len(tasks) and max(known, default=0) < config.min_longest_plan:
            break
        result = solve_task(planner, task, print_domain(task.domain), print_problem(task.problem))
        lengths.append(None if result.plan is None else len(result.plan))
        if lengths.count(None) > (1 - config.min_solved) * len(tasks) + 1e-9:
            return None
    return lengths


def _walk_share(
    tasks: Sequence[PlanningTask], lengths: Sequence[int | None], n_walks: int, rng: random.Random
) -> float:
    """Return the share of random legal walks, as long as the plan, that meet a state of the goal."""
    walks = [
        random_walk_to_goal(task, length, rng)[1]
        for task, length in zip(tasks, lengths, strict=True)
        if length is not None
        for _ in range(n_walks)
    ]
    return sum(walks) / len(walks)

"""The domains that problems can be drawn in: a folder each, with the PDDL, how it is sampled and how it is said.

A domain folder holds ``domain.pddl``, ``settings.yaml`` and, for natural language, ``phrases.yaml``; the project's own
lie under ``datasets/domains``. A user's folder needs no code: the sampler ``walk`` draws in any domain. Not here: how
one domain is sampled (`plansmith.problems.samplers`, `plansmith.problems.walk`), splits (`plansmith.data.sampling`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plansmith.config.domains import DomainSettings, Phrases, Range
from plansmith.config.loading import build_model, read_yaml
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, Literal, Problem, conjuncts_of
from plansmith.pddl.parser import parse_domain
from plansmith.problems.building import shuffled
from plansmith.problems.walk import WalkSampler

DOMAINS_FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "domains"
SETTINGS, PHRASES = "settings.yaml", "phrases.yaml"

LEVEL_OBJECTS = {"L1": (1, 10), "L2": (11, 20), "L3": (21, 30), "L4": (31, 40)}
"""Objects of a problem of each level (arXiv 2606.29700, table 1); levels of other names have no bounds."""

MAX_DRAWS = 2000
"""Draws of one problem before its level is said to be impossible."""

Sampler = Callable[..., Problem]
"""``sample(rng, **sizes)``."""


@dataclass(frozen=True)
class PlanningDomain:
    """A domain with everything needed to draw problems in it."""

    name: str
    folder: Path
    domain: Domain
    settings: DomainSettings
    phrases: Phrases | None
    """None where the folder has no ``phrases.yaml``."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the names of the levels."""
        return tuple(self.settings.levels)

    def sample(self, level: str, rng: random.Random) -> Problem:
        """Return one problem of a level, solvable, its goal not reached at the start; equal `rng`, equal problem.

        Raises:
            ConfigError: no such level, or no draw has as many objects as the level wants.
        """
        sizes, bounds = self.sizes_of(level), LEVEL_OBJECTS.get(level)
        for _ in range(MAX_DRAWS):
            drawn = {name: rng.randint(*bounds_of_size) for name, bounds_of_size in sizes.items()}
            problem = self._sampler(rng, **drawn)
            if bounds and not bounds[0] <= len(problem.objects) <= bounds[1]:
                continue
            if not is_goal_reached_at_start(self.domain, problem):
                return shuffled(problem, rng)
        expected = f"{bounds[0]} to {bounds[1]} objects, and a goal to reach" if bounds else "a goal to reach"
        raise ConfigError(
            f"no problem of level {level} in {MAX_DRAWS} draws",
            where=str(self.folder / SETTINGS),
            got=", ".join(f"{name}: {list(size)}" for name, size in sizes.items()),
            expected=expected,
            cure=f"change the sizes under levels.{level}",
        )

    def sizes_of(self, level: str) -> Mapping[str, Range]:
        """Return the ranges of a level's sizes."""
        if level not in self.settings.levels:
            raise ConfigError(
                f"the domain {self.name} has no such level",
                got=repr(level),
                expected=f"one of {', '.join(self.levels)}",
            )
        return self.settings.levels[level]

    @cached_property
    def _sampler(self) -> Sampler:
        if self.settings.walk is not None:
            return WalkSampler(self.domain, self.settings.walk, self.folder).sample
        return _sampler_module(self.settings.sampler, str(self.folder / SETTINGS))

    def check(self) -> None:
        """Raise unless settings and phrases name what the domain and its sampler know.

        Raises:
            ConfigError: an unknown size, predicate, type, function or action, or a missing one.
        """
        _check_sizes(self)
        if self.phrases is not None:
            _check_phrases(self.domain, self.phrases, str(self.folder / PHRASES))


def is_goal_reached_at_start(domain: Domain, problem: Problem) -> bool:
    """Return whether the initial state satisfies the goal."""
    parts = conjuncts_of(problem.goal)
    derived = {rule.predicate for rule in domain.derived}
    if all(isinstance(part, Literal) and part.atom.predicate not in derived for part in parts):
        init = set(problem.init)
        return all(isinstance(part, Literal) and (part.atom in init) == part.is_positive for part in parts)
    task = PlanningTask(domain, problem)
    return task.is_goal(task.initial_state)


def domain_names() -> list[str]:
    """Return the project's own domains."""
    return sorted(path.parent.name for path in DOMAINS_FOLDER.glob(f"*/{SETTINGS}"))


def load_domain(name_or_folder: str) -> PlanningDomain:
    """Return a domain of the project by name, or the one in a folder.

    Raises:
        BadInputError: no such domain, a file is missing or cannot be read, a mistake in it.
    """
    folder = _folder_of(name_or_folder)
    settings = build_model(DomainSettings, read_yaml(folder / SETTINGS), where=str(folder / SETTINGS))
    path = folder / settings.domain_file
    phrases = folder / PHRASES
    loaded = PlanningDomain(
        name=folder.name,
        folder=folder,
        domain=parse_domain(read_text(path), source=str(path)),
        settings=settings,
        phrases=build_model(Phrases, read_yaml(phrases), where=str(phrases)) if phrases.is_file() else None,
    )
    loaded.check()
    return loaded


def _folder_of(name_or_folder: str) -> Path:
    own = DOMAINS_FOLDER / name_or_folder
    if (own / SETTINGS).is_file():
        return own
    folder = Path(name_or_folder).resolve()
    if (folder / SETTINGS).is_file():
        return folder
    known = domain_names()
    close = difflib.get_close_matches(name_or_folder, known, n=1)
    raise BadInputError(
        "no such domain",
        where=name_or_folder,
        got=f"a folder without {SETTINGS}" if folder.is_dir() else "neither a domain of this project nor a folder",
        expected=f"a folder with domain.pddl and {SETTINGS}, or one of {', '.join(known)}",
        cure=f"did you mean {close[0]}?" if close else None,
    )


def _sampler_module(name: str, where: str) -> Sampler:
    package = "plansmith.problems.samplers"
    if not name.isidentifier() or importlib.util.find_spec(f"{package}.{name}") is None:
        raise ConfigError("no such sampler", where=where, got=f"sampler: {name}", expected=f"a module of {package}, "
                          "or walk", cure="a domain of your own uses `sampler: walk`")  # fmt: skip
    sampler: Sampler = importlib.import_module(f"{package}.{name}").sample
    return sampler


def _check_sizes(loaded: PlanningDomain) -> None:
    where = str(loaded.folder / SETTINGS)
    if loaded.settings.walk is not None:
        known = set(loaded.settings.walk.objects.values())
        WalkSampler(loaded.domain, loaded.settings.walk, loaded.folder).check(where)
    else:
        parameters = inspect.signature(_sampler_module(loaded.settings.sampler, where)).parameters
        known = set(parameters) - {"rng"}
    for level, sizes in loaded.settings.levels.items():
        if set(sizes) != known:
            raise ConfigError(
                f"the sizes of level {level} are not those of the sampler",
                where=where,
                got=", ".join(sizes) or "none",
                expected=", ".join(sorted(known)) or "none",
            )


def _check_phrases(domain: Domain, phrases: Phrases, where: str) -> None:
    _check_names("predicates", phrases.predicates, [schema.name for schema in domain.predicates], where)
    _check_names("actions", phrases.actions, [schema.name for schema in domain.actions], where)
    used = [schema.name for schema in domain.functions]
    _check_names("functions", phrases.functions, [name for name in used if name in phrases.functions], where)
    types = [typed.name for typed in domain.types] or ["object"]
    unknown = set(phrases.types) - {*types, "object"}
    if unknown:
        raise ConfigError("a type that the domain does not declare", where=where, got=", ".join(sorted(unknown)),
                          expected=", ".join(types))  # fmt: skip


def _check_names(section: str, entries: Mapping[str, object], known: list[str], where: str) -> None:
    missing, unknown = [name for name in known if name not in entries], [name for name in entries if name not in known]
    if missing or unknown:
        raise ConfigError(
            f"the {section} are not those of the domain",
            where=where,
            got="; ".join(
                [*(f"'{name}' is missing" for name in missing), *(f"'{name}' is unknown" for name in unknown)]
            ),
            expected=", ".join(known),
        )

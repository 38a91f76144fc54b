"""The domains that problems can be drawn in: a folder each, with the PDDL, how it is sampled and how it is said.

A domain folder holds ``domain.pddl``, ``settings.yaml`` and, for natural language, ``phrases.yaml``; the project's own
lie under ``datasets/domains``. A user's folder needs no code: the sampler ``walk`` draws in any domain. Not here: how
one domain is sampled (`plansmith.problems.samplers`, `plansmith.problems.walk`), splits (`plansmith.data.drawing`).
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import math
import pkgutil
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from plansmith.code_digest import code_of
from plansmith.config.basics import Range
from plansmith.config.domains import DomainSettings, Phrases
from plansmith.config.loading import build_model, read_yaml
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain
from plansmith.problems import samplers
from plansmith.problems.building import shuffled
from plansmith.problems.walk import WalkSampler

DOMAINS_FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "domains"
SETTINGS, PHRASES = "settings.yaml", "phrases.yaml"

LEVEL_OBJECTS = {"L1": (1, 10), "L2": (11, 20), "L3": (21, 30), "L4": (31, 40)}
"""Objects of a problem of each level (arXiv 2606.29700, table 1); levels of other names have no bounds."""

ANY_NUMBER = (0, math.inf)

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

    @property
    def reference(self) -> str:
        """Return what `load_domain` finds it by in any process: its name, or the whole path of a user's folder."""
        return self.name if self.folder.parent == DOMAINS_FOLDER else str(self.folder)

    @property
    def settings_path(self) -> str:
        """Return where the settings are, for messages."""
        return str(self.folder / SETTINGS)

    def sample(
        self, level: str, rng: random.Random, *, sizes: Mapping[str, Range] | None = None, max_draws: int = MAX_DRAWS
    ) -> Problem:
        """Return one problem of a level, solvable, its goal not reached at the start; equal `rng`, equal problem.

        Args:
            level: of the settings; with ``sizes``, any name.
            rng: source of everything random.
            sizes: ranges of the sampler's sizes, instead of those of the settings.
            max_draws: draws before the level is said to be impossible.

        Raises:
            ConfigError: no such level, or no draw has as many objects as the level wants and a goal to reach.
        """
        bounds = ANY_NUMBER if sizes is not None else LEVEL_OBJECTS.get(level, ANY_NUMBER)
        ranges, (least, most) = self.sizes_of(level, sizes), bounds
        n_refused = 0
        for _ in range(max_draws):
            drawn = {name: rng.randint(*size) for name, size in ranges.items()}
            try:
                problem = self._sampler(rng, **drawn)
            except (ValueError, IndexError) as error:
                got = f"{', '.join(f'{name}: {size}' for name, size in drawn.items())} ({error})"
                raise ConfigError("sizes that the domain has no problem of", where=f"{self.name}, level {level}",
                                  got=got, cure="change the sizes") from error  # fmt: skip
            if not least <= len(problem.objects) <= most:
                n_refused += 1
            elif not is_goal_reached_at_start(self.domain, problem):
                return shuffled(problem, rng)
        raise self._impossible(level, ranges, None if bounds is ANY_NUMBER else bounds, (n_refused, max_draws))

    def _impossible(
        self, level: str, ranges: Mapping[str, Range], bounds: tuple[float, float] | None, draws: tuple[int, int]
    ) -> ConfigError:
        """Return the error of a level of which no draw can be used: so many were of other sizes, of so many."""
        n_refused, n_draws = draws
        sizes = ", ".join(f"{name}: {list(size)}" for name, size in ranges.items()) or "no sizes"
        return ConfigError(
            f"no problem of level {level} in {n_draws} draws",
            where=self.settings_path,
            got=f"{sizes}; {n_refused} draws with too few or too many objects, "
            f"{n_draws - n_refused} with a goal that holds at the start or names nothing",
            expected=(f"{bounds[0]} to {bounds[1]} objects, " if bounds else "") + "a goal to reach",
            cure=f"change the sizes under levels.{level}"
            + (", or what holds at the start, so that actions can be applied" if self.settings.walk else ""),
        )

    def sizes_of(self, level: str, sizes: Mapping[str, Range] | None = None) -> Mapping[str, Range]:
        """Return the ranges of a level's sizes, or ``sizes`` where they are given.

        Raises:
            ConfigError: no such level, or sizes that the sampler does not know.
        """
        if sizes is not None:
            _check_names(f"sizes of level {level}", sizes, self._size_names(), "problems.domains")
            return sizes
        if level not in self.settings.levels:
            raise ConfigError(
                f"the domain {self.name} has no such level",
                where=self.settings_path,
                got=repr(level),
                expected=f"one of {', '.join(self.levels)}",
            )
        return self.settings.levels[level]

    @cached_property
    def _walk(self) -> WalkSampler | None:
        if self.settings.walk is None:
            return None
        return WalkSampler(self.domain, self.settings.walk, self.folder, where=self.settings_path)

    @cached_property
    def _sampler(self) -> Sampler:
        return self._walk.sample if self._walk else _sampler_module(self.settings.sampler, self.settings_path)

    def digest(self) -> str:
        """Return a hash of the domain's files and sampler, so that an edited one is not taken for an earlier run's."""
        files = {self.folder / self.settings.domain_file, *self.folder.glob("*.yaml"), *self.folder.rglob("*.pddl")}
        content = b"".join(f"{path.name}\n".encode() + path.read_bytes() for path in sorted(files))
        return hashlib.sha256(content + repr(code_of(self._sampler)).encode()).hexdigest()

    def needed_phrases(self) -> Phrases:
        """Return how the domain is said in words.

        Raises:
            BadInputError: nobody has written that.
        """
        if self.phrases is None:
            raise BadInputError("the domain has no phrases.yaml", where=str(self.folder / PHRASES), got="no such file",
                                expected="how the domain is said in words",
                                cure="write it, see docs/representations.md")  # fmt: skip
        return self.phrases

    def check(self) -> None:
        """Raise unless settings and phrases name what the domain and its sampler know.

        Raises:
            ConfigError: an unknown size, predicate, type, function or action, or a missing one.
        """
        if self._walk:
            self._walk.check()
        for level, sizes in self.settings.levels.items():
            _check_names(f"sizes of level {level}", sizes, self._size_names(), self.settings_path)
        if self.phrases is not None:
            _check_phrases(self.domain, self.phrases, str(self.folder / PHRASES))

    def _size_names(self) -> list[str]:
        if self.settings.walk:
            return list(dict.fromkeys(self.settings.walk.objects.values()))
        return [name for name in inspect.signature(self._sampler).parameters if name != "rng"]


def is_goal_reached_at_start(domain: Domain, problem: Problem) -> bool:
    """Return whether the initial state satisfies the goal."""
    task = PlanningTask(domain, problem)
    return task.is_goal(task.initial_state)


def domain_names() -> list[str]:
    """Return the project's own domains."""
    return sorted(path.parent.name for path in DOMAINS_FOLDER.glob(f"*/{SETTINGS}"))


def random_names(domain_name: str, kind: str, count: int, rng: random.Random) -> list[str]:
    """Return different names for objects of a kind, of those that a domain of the project lists in ``objects.yaml``."""
    return rng.sample(_listed_names(domain_name)[kind], count)


@cache
def _listed_names(domain_name: str) -> dict[str, list[str]]:
    return read_yaml(DOMAINS_FOLDER / domain_name / "objects.yaml")


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
    known = [module.name for module in pkgutil.iter_modules(samplers.__path__)]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            "no such sampler",
            where=where,
            got=f"sampler: {name}",
            expected=f"walk, or a module of {samplers.__name__}",
            cure=f"did you mean {close[0]}?" if close else "a domain of your own uses `sampler: walk`",
        )
    sampler: Sampler = importlib.import_module(f"{samplers.__name__}.{name}").sample
    return sampler


def _check_phrases(domain: Domain, phrases: Phrases, where: str) -> None:
    functions = [schema for schema in domain.functions if schema.name in phrases.functions]
    for section, entries, schemas, n_more in (
        ("predicates", phrases.predicates, domain.predicates, 0),
        ("functions", phrases.functions, functions, 1),
        ("actions", phrases.actions, domain.actions, 0),
    ):
        _check_names(section, entries, [schema.name for schema in schemas], where)
        for schema in schemas:
            n_positions = len(schema.parameters) + n_more
            for phrase in entries[schema.name]:
                _check_positions(phrase, n_positions, f"{where}, {section}.{schema.name}")
    types = sorted(domain.ancestors())
    unknown = sorted(set(phrases.types) - set(types))
    if unknown:
        raise ConfigError("a type that the domain does not declare", where=f"{where}, types", got=", ".join(unknown),
                          expected=", ".join(types))  # fmt: skip


def _check_positions(phrase: str, n_positions: int, where: str) -> None:
    """Raise unless a phrase names every argument; with one left out, different facts would read alike."""
    if {int(position) for position in re.findall(r"{(\d+)}", phrase)} != set(range(n_positions)):
        expected = " ".join(f"{{{position}}}" for position in range(n_positions))
        raise ConfigError("a phrase does not name the arguments by position", where=where, got=phrase,
                          expected=expected or "no position")  # fmt: skip


def _check_names(section: str, entries: Collection[str], known: Sequence[str], where: str) -> None:
    missing, unknown = [name for name in known if name not in entries], [name for name in entries if name not in known]
    if missing or unknown:
        wrong = [f"'{name}' is missing" for name in missing] + [f"'{name}' is unknown" for name in unknown]
        close = difflib.get_close_matches(unknown[0], missing, n=1) if unknown else []
        raise ConfigError(
            f"the {section} do not fit",
            where=where,
            got="; ".join(wrong),
            expected=", ".join(known) or "none",
            cure=f"write '{close[0]}' for '{unknown[0]}'" if close else None,
        )

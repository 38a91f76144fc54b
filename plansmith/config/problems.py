"""Settings of the problems of a run: where they come from, how many of each size, how they are split."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from plansmith.config.basics import ObjectName, Range, StrictModel


class CountsConfig(StrictModel):
    """How many problems of one size are drawn, by split, each of another canonical form; splits never share one.

    There are fewer where the forms run out, which is said. Of D1 and D2 those are left out later whose plans pass a
    problem of the probe set or of Dtest.
    """

    phase1: int = Field(0, ge=0)
    """Problems of D1."""
    phase2: int = Field(0, ge=0)
    """Problems of D2."""
    probe: int = Field(0, ge=0)
    """Problems of the probe set, tried after each feedback iteration to tell whether it gained; of D2's forms."""
    test: int = Field(0, ge=0)
    """Problems of Dtest, at most: the forms of small levels are soon used up."""
    n_draws: int = Field(2000, ge=1)
    """Problems drawn to find them."""
    test_share: float | None = Field(None, ge=0, lt=1)
    """`problems.test_share` for this level; where forms abound, fewer need be held out."""
    renamings: int | None = Field(None, ge=1)
    """`examples.renamings` for this level; few forms bear more copies."""


class LevelConfig(CountsConfig):
    """Blocksworld problems of one size."""

    n_blocks: int = Field(ge=2)
    """Blocks of each problem."""
    goal_moves: int | None = Field(None, ge=1)
    """The goal is so many random moves away from the initial arrangement; None draws the two independently."""

    @property
    def name(self) -> str:
        """Return the level as tables name it."""
        if self.goal_moves is None:
            return f"{self.n_blocks} blocks"
        return f"{self.n_blocks} blocks, {self.goal_moves} move{'s' if self.goal_moves > 1 else ''}"


class DomainLevelConfig(CountsConfig):
    """Problems of one size of a domain of the library, or of a domain folder."""

    domain: str
    """Name of one of the project's domains, or a folder with domain.pddl and settings.yaml."""
    level: str
    """A level of the domain's settings; with `sizes`, any name."""
    sizes: dict[str, Range] | None = None
    """Least and greatest value of each size of the domain's sampler, instead of a level of its settings."""

    @property
    def name(self) -> str:
        """Return the level as tables name it."""
        return f"{self.domain_name} {self.level}"

    @property
    def domain_name(self) -> str:
        """Return the name of the domain, without the path of a folder."""
        return self.domain.rstrip("/").rpartition("/")[2]


def task_of_level(name: str) -> str:
    """Return the domain of a level as tables name it; several kinds of problems may share one in PDDL."""
    return name.partition(" ")[0]


class ProblemsConfig(StrictModel):
    """Where problems come from, and how they are split."""

    domain_file: str = "datasets/domains/blocksworld/domain.pddl"
    """A path, or a path below the project's root."""
    folder: str | None = None
    """A folder of PDDL problems of `domain_file` to use instead of samplers."""
    levels: tuple[LevelConfig, ...] = ()
    """Blocksworld, drawn under `object_names`."""
    domains: tuple[DomainLevelConfig, ...] = ()
    """Any domains of the library, drawn by their samplers."""
    dataset: str | None = None
    """A dataset's folder (`plansmith dataset build`) that the problems of `domains` are taken from, instead of drawn.
    Its splits stay: Dtest is of ``test`` or ``unseen``, D1 of ``train``, D2 of ``phase2`` or else of ``train``, the
    probe set of ``validation``; shares and draws are not looked at."""
    object_names: tuple[ObjectName, ...] = tuple("abcdefgh")
    """Names that objects get when a problem is written again; a word-level model knows no others. None: every problem
    keeps its own names."""
    test_share: float = Field(0.25, gt=0, lt=1)
    """Share of all canonical forms held out for evaluation."""
    phase2_share: float = Field(0.35, ge=0, lt=1)
    """Share of the remaining forms that belong to D2."""
    probe_share: float = Field(0.0, ge=0, lt=1)
    """Share of D2's forms that is set aside for the probe set."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [name.lower() for name in self.object_names]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"object_names must differ, in capitals or not, got {', '.join(twice)} twice")
        return self

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = {"levels": bool(self.levels), "domains": bool(self.domains), "folder": bool(self.folder)}
        if sum(sources.values()) != 1:
            got = ", ".join(name for name, is_set in sources.items() if is_set) or "none of them"
            raise ValueError(
                "set exactly one of problems.levels (Blocksworld), problems.domains (domains of the library) and "
                f"problems.folder (your own PDDL files), got {got}"
            )
        return self

    @model_validator(mode="after")
    def _dataset_has_levels(self) -> Self:
        if self.dataset is not None and (not self.domains or any(level.sizes for level in self.domains)):
            raise ValueError("problems.dataset has problems of domains by level: set problems.domains, without sizes")
        return self

    @model_validator(mode="after")
    def _levels_hold_out_the_same_forms(self) -> Self:
        names = [level.name for level in self.sampled_levels]
        if len(set(names)) < len(names):
            raise ValueError(f"levels must differ in size, got {', '.join(names)}")
        for n_blocks in {level.n_blocks for level in self.levels}:
            shares = {self.test_share_of(level) for level in self.levels if level.n_blocks == n_blocks}
            if len(shares) > 1:
                raise ValueError(
                    f"levels of {n_blocks} blocks share canonical forms and need one test_share, got {sorted(shares)}"
                )
        if self.probe_share == 0 and any(level.probe for level in self.sampled_levels):
            raise ValueError("levels ask for probe problems, but problems.probe_share is 0")
        return self

    @property
    def tested_tasks(self) -> tuple[str, ...]:
        """Return the domains with test problems, each once, as `task_of_level` has them."""
        return tuple(dict.fromkeys(map(task_of_level, self.tested_levels)))

    @property
    def sampled_levels(self) -> tuple[LevelConfig | DomainLevelConfig, ...]:
        """Return the levels that are drawn; none where the problems are files of the user's."""
        return (*self.levels, *self.domains)

    @property
    def tested_levels(self) -> tuple[str, ...]:
        """Return the levels with test problems, as tables name them; a folder of problems is one level of its name."""
        if self.folder:
            return (Path(self.folder).resolve().name,)
        return tuple(level.name for level in self.sampled_levels if level.test)

    def test_share_of(self, level: CountsConfig) -> float:
        """Return the share of a level's canonical forms that is held out."""
        return self.test_share if level.test_share is None else level.test_share

"""The settings of a dataset: which problems of which domains, how they are solved, what is written of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import Range, StrictModel
from plansmith.config.cluster import ClusterConfig
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig


class DatasetPart(StrictModel):
    """Domains that share one set of counts."""

    domains: tuple[str, ...] = Field(min_length=1)
    """Names of the project's domains, or domain folders."""
    levels: dict[str, dict[str, int]] = Field(min_length=1)
    """For each domain: level, split and number of solved problems."""
    plan_length: Range | None = None
    """Solved problems with shorter or longer plans, in steps, are left out. None: none is."""

    @model_validator(mode="after")
    def _counts_are_positive(self) -> Self:
        for level, counts in self.levels.items():
            if not counts or min(counts.values()) < 1:
                raise ValueError(f"level {level} needs a number of problems for each of its splits, got {counts}")
        return self


class SymbolPoolConfig(StrictModel):
    """How many symbols there are of each kind to hide names behind; a policy knows no others."""

    actions: int = Field(16, ge=1)
    """Of actions: ``a_0``, ``a_1`` and so on; a domain with more is refused, as of the next three."""
    predicates: int = Field(32, ge=1)
    """Of predicates, ``p_0``."""
    types: int = Field(16, ge=1)
    """Of types, ``t_0``."""
    objects: int = Field(32, ge=1)
    """Of a problem's objects and its domain's constants, ``o_0``."""
    variables: int = Field(64, ge=1)
    """Of variables, ``?x0``, of which no two actions of a domain share one."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return every symbol, and every predicate as one that is wanted, for a vocabulary."""
        letters = {"a_": self.actions, "p_": self.predicates, "t_": self.types, "o_": self.objects,
                   "?x": self.variables}  # fmt: skip
        symbols = [f"{letter}{number}" for letter, count in letters.items() for number in range(count)]
        wanted = [f"{symbol}?" for symbol in symbols if symbol.startswith("p_")]
        return (*symbols, *wanted, "=", "=?", "object")


class PlanExamplesConfig(StrictModel):
    """How tuples of domain, problem and plan are written (arXiv 2601.14456, section 4)."""

    plan_format: Literal["numbered", "compact", "chain"] = "numbered"
    """How plans are written (section 4.2). `chain`: as a chain of thought, for prompts that are `told`."""
    anonymise: Literal["never", "curriculum", "always"] = "never"
    """Whether the names of a tuple are hidden; `curriculum` more and more often (section 4.1)."""
    copies: int = Field(1, ge=1)
    """How often the training tuples are stacked; the paper's curriculum stacks them three times."""
    varies: bool = False
    """Copies after the first are variations (ours): objects of one type have each other's names, facts and goals
    another order."""
    prompts: Literal["pddl", "told", "named"] = "pddl"
    """How domain and problem are told: as PDDL, or in few words without brackets; `named`: without the domain, which is
    only named, and learnt."""
    symbols: SymbolPoolConfig | None = None
    """Where hidden names get their symbols from; None: as many as there are names, numbered from 0."""
    draws_names_for: Literal["problem", "domain"] = "problem"
    """For what hidden names are drawn, in each copy anew: for every problem, or, but for its objects' names, for a
    domain: then prompts about it begin alike, and tuning can compute this once (`shares_prompts`)."""

    @model_validator(mode="after")
    def _chains_are_told(self) -> Self:
        if self.plan_format == "chain" and self.prompts != "told":
            raise ValueError(f"plan_format=chain is written for prompts=told, got prompts={self.prompts}")
        return self


class DatasetExamplesConfig(PlanExamplesConfig):
    """Which training examples are written, as a number for each solved problem; a fraction is drawn."""

    rendering: Literal["compact", "full"] = "full"
    """How chains of thought and explanations are written."""
    plan: float = Field(0.0, ge=0, le=1)
    """Domain and problem as PDDL, the plan as answer."""
    formalise: float = Field(0.0, ge=0, le=1)
    """The problem in natural language, its PDDL as answer."""
    formalisation: FormalisationConfig = FormalisationConfig()
    """How problems are said in words, and how their PDDL is asked for."""
    plan_chain: float = Field(0.0, ge=0, le=1)
    """The problem, a chain of thought that ends in the plan as answer."""
    explain_valid: float = Field(0.0, ge=0, le=1)
    """A valid plan, its explanation as answer."""
    explain_invalid: float = Field(0.0, ge=0, le=4)
    """A corrupted plan, its explanation as answer; over the four corruption classes."""


class Cell(StrictModel):
    """The problems wanted of one domain and level."""

    domain: str
    """One of the project's domains, or a domain folder."""
    level: str
    """One of its levels."""
    shares: Mapping[str, int]
    """Weight of each split: which split a problem belongs to does not depend on the scale."""
    wanted: Mapping[str, int]
    """Solved problems of each split."""
    plan_length: Range | None = None
    """Solved problems with shorter or longer plans are left out."""

    @property
    def domain_name(self) -> str:
        """Return the name of the domain, without the path of a folder."""
        return self.domain.rstrip("/").rpartition("/")[2]

    @property
    def name(self) -> str:
        """Return a name for files and tables."""
        return f"{self.domain_name}-{self.level}"


class DatasetConfig(StrictModel):
    """Everything about one dataset."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the dataset and of its folder."""
    description: str
    """What it is for, in one or two sentences; for the dataset card."""
    seed: int = Field(0, ge=0)
    """Decides everything random: which problems are drawn, which examples are written, which names are hidden."""
    scale: float = Field(1.0, gt=0)
    """Factor on all numbers of problems; 0.01 gives one percent, at least one problem of each split."""
    parts: tuple[DatasetPart, ...] = Field(min_length=1)
    """What it is made of: domains, levels, and how many problems of each."""
    reserve: float = Field(0.05, ge=0)
    """Share of further problems drawn, to stand in for those that get no plan."""
    max_draws: int = Field(40, ge=1)
    """Draws for each wanted problem before a level is said to have no more."""
    planner: PlannerConfig = PlannerConfig(search="first")
    """What solves the problems."""
    examples: DatasetExamplesConfig = DatasetExamplesConfig()
    """Which training examples are written of each solved problem."""
    rows_per_part: int = Field(50, ge=1)
    """Problems of one part file, the unit of work and of resuming; changes no row."""
    rows_per_file: int = Field(50_000, ge=1)
    """Rows of one file of the finished dataset."""
    cluster: ClusterConfig = ClusterConfig()
    """The Ray that builds it; changes no row."""

    @model_validator(mode="after")
    def _cells_differ(self) -> Self:
        names = [cell.name for cell in self.cells()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each domain and level may be listed once, got twice: {', '.join(twice)}")
        return self

    def cells(self) -> Iterator[Cell]:
        """Yield the problems wanted, domain by domain."""
        for part in self.parts:
            for domain in part.domains:
                for level, shares in part.levels.items():
                    wanted = {split: math.ceil(count * self.scale) for split, count in shares.items()}
                    yield Cell(domain=domain, level=level, shares=shares, wanted=wanted, plan_length=part.plan_length)

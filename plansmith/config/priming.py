"""Settings of what a model from nothing learns before it counts as a base model."""

from __future__ import annotations

from pydantic import Field

from plansmith.config.basics import StrictModel
from plansmith.config.dataset import SymbolPoolConfig
from plansmith.config.invention import Bins
from plansmith.config.training import OptimiserConfig

MAX_ATTEMPTS = 8
"""Attempts of a skill that a question can tell of (`plansmith.text.schema_words.ATTEMPTS`)."""


class PrimerGrid(StrictModel):
    """The sizes of the domains whose schemas are learnt; a range of each line is as likely as the others."""

    actions: Bins = ((1, 2), (3, 5))
    """Action schemas of a domain."""
    predicates: Bins = ((2, 5), (6, 10))
    """Predicates of a domain, beside one for each type."""
    parameters: Bins = ((1, 2), (3, 4))
    """Parameters of the action that has most."""
    types: Bins = ((1, 1), (2, 4))
    """Types of a domain."""


class PrimerConfig(StrictModel):
    """What is learnt of domain writing, and of planning."""

    domains: int = Field(600, ge=1)
    """Invented STRIPS domains that are drawn; those equal to a domain of the run up to names are left out."""
    held_out: int = Field(40, ge=0)
    """Further ones, whose schemas are asked for to measure what was learnt; nothing is learnt of them."""
    grid: PrimerGrid = PrimerGrid()
    """Their sizes."""
    walks: int = Field(3, ge=1)
    """Random walks in each domain, of which questions show what they need."""
    renamings: int = Field(3, ge=1)
    """How often each schema is asked for, each time under other symbols."""
    repairs: int = Field(1, ge=0)
    """Damaged schemas for each of these, handed back with the faults that the checks find."""
    symbols: SymbolPoolConfig = SymbolPoolConfig(actions=16, predicates=32, variables=12)
    """The pool that names are hidden behind, here and when the run's domain is written."""
    problems: int = Field(200, ge=0)
    """Problems of D1, drawn among all, whose plans in the reference domain are learnt, bare, where they are short."""
    most_steps: int = Field(4, ge=1)
    """Longest of these plans; to move a block takes two steps."""


class PrimeConfig(PrimerConfig):
    """The examples, and how they are learnt."""

    optimiser: OptimiserConfig
    """Rates, batches and epochs."""

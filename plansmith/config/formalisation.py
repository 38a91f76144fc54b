"""Settings of problems in words: how they are said, and how their PDDL is asked for."""

from __future__ import annotations

from typing import Literal

from plansmith.config.basics import StrictModel
from plansmith.config.planner import PlannerConfig

Checks = Literal["planner", "coverage"]
"""What feedback on an answer tells: that it cannot be read or has no plan; or also which names it and its text do not
share (`plansmith.text.coverage`)."""


FormalRendering = Literal["compact", "full"]


class FormalisationConfig(StrictModel):
    """How problems are said in words, and how a model is asked to write them in PDDL."""

    phrasing: Literal["uniform", "mixed"] = "mixed"
    """How a text chooses among a domain's phrasings: one for all facts of a text, or one drawn for each fact."""
    reworded: tuple[str, ...] = ()
    """Levels, as tables name them, whose texts have the last phrasing of every fact and no other; those of the other
    levels never have it then. So it is tested how far what was learnt holds in words that no training text had. Empty:
    all texts have all phrasings."""
    detail: Literal["name", "summary", "pddl"] = "summary"
    """What a prompt says of the domain: its name, its types, predicates and actions (the paper's), or all its PDDL."""
    rendering: FormalRendering = "full"
    """full: in sentences that say what is wanted, for real language models. compact, for models from nothing: marks
    only, whose meaning is learnt, and the statements of the text have numbers; the answer repeats each in a comment
    before what it stands for (`plansmith.text.statements`)."""


class JudgingConfig(StrictModel):
    """How an answer to a text is judged."""

    planner: PlannerConfig
    """What solves it."""
    checks: Checks = "planner"
    """What feedback on it tells."""

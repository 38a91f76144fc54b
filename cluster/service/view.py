"""What the planning service knows of a policy, and a problem as that policy can read it.

A part of `cluster.service.planning`. A word-level model such as `tiny` reads the words that it was made with and no
others: a domain with another word is none for it, and objects with other names get names that it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plansmith.config.generation import SamplingConfig
from plansmith.pddl.grounding import PlanningTask
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.stages import row_rng
from plansmith.text.chains import INVALID, VALID
from plansmith.text.compact import domain_words
from plansmith.text.compact_reader import WANTED

NO_NAMES = frozenset({VALID, INVALID, "="})
"""Words of the rendering that look like names."""


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """What the service knows of the policy before it asks.

    Attributes:
        prompting: how it is asked: ``compact``, ``full``, or a plain way (`plansmith.text.rendering`).
        max_model_len: prompt plus answer, in tokens.
        sampling: how its answers are drawn.
        words: every word that a word-level model reads; None for a model that reads any text.
        object_names: the names that such a model was trained to call objects by; empty takes every word that rendering
            and domain leave over.
    """

    policy_version: str
    prompting: str
    max_model_len: int
    sampling: SamplingConfig
    words: frozenset[str] | None = None
    object_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A problem as the policy sees it, and the user's object behind each name that it got instead."""

    task: PlanningTask
    object_of: Mapping[str, str]

    def in_own_names(self, text: str) -> str:
        """Return a completion with the user's names in it; one without renamed objects as it is."""
        if not self.object_of:
            return text
        return " ".join(self.object_of.get(word, word) for word in text.split())


def view_of(task: PlanningTask, card: PolicyCard, *, seed: int, problem_id: str) -> PolicyView | str:
    """Return a problem as the policy sees it, or why it cannot read it.

    Objects are renamed as `plansmith evaluate` does it: all of them as soon as one name is not known.
    """
    if card.words is None:
        return PolicyView(task, {})
    used = set(domain_words(task.domain))
    if unknown := sorted(used - card.words):
        return f"the policy does not know the word '{unknown[0]}' of the domain"
    objects = task.problem.objects
    if all(item.name in card.words for item in objects):
        return PolicyView(task, {})
    pool = [name for name in card.object_names or _names_among(card.words) if name in card.words - used]
    if len(objects) > len(pool):
        return f"the policy knows names for {len(pool)} objects, the problem has {len(objects)}"
    rng = row_rng(seed, "names", problem_id)
    renaming = random_renaming(task.problem, pool, rng)
    renamed = PlanningTask(task.domain, rename_problem(task.problem, renaming, rng))
    return PolicyView(renamed, {name: old for old, name in renaming.items()})


def _names_among(words: frozenset[str]) -> list[str]:
    """Return the words that are neither markers (``plan:``), special tokens (``<end>``) nor of the rendering."""
    return sorted(word for word in words - NO_NAMES if not word.endswith((":", WANTED)) and word[0] != "<")

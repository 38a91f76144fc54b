"""The one setting that chooses how prompts and chains are written: `compact` or `full`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plansmith.errors import ConfigError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.text.chains import Chain, ChainStep, ReadChain
from plansmith.text.compact import CompactRendering
from plansmith.text.explanations import Attempt, ClaimedPlan, Explanation, FeedbackKind
from plansmith.text.full import FullRendering


class Rendering(Protocol):
    """Writes prompts and chains, and reads completions back."""

    name: str

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a chain of thought with a plan."""

    def explain_prompt(self, task: PlanningTask, shown: ClaimedPlan) -> str:
        """Return the prompt that asks to explain a given plan."""

    def correct_prompt(self, task: PlanningTask, attempt: Attempt, feedback: FeedbackKind) -> str:
        """Return the prompt that hands an attempt back with the validator's feedback."""

    def write_chain(self, chain: Chain) -> str:
        """Return the text of a chain of thought."""

    def write_steps(self, steps: Sequence[ChainStep]) -> str:
        """Return the text with which a chain of these steps begins."""

    def write_explanation(self, explanation: Explanation) -> str:
        """Return the text that explains a plan."""

    def write_outcome(self, step: ChainStep) -> str:
        """Return the part of a step that follows its action."""

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the claims of a completion."""


def rendering_of(name: str) -> Rendering:
    """Return the rendering called `name`.

    Raises:
        ConfigError: no rendering has that name.
    """
    if name == "compact":
        return CompactRendering()
    if name == "full":
        return FullRendering()
    raise ConfigError("unknown rendering", got=repr(name), expected="compact or full")

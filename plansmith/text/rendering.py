"""The one setting that chooses how prompts and chains are written: `compact` or `full`; and plain ways to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from plansmith.errors import ConfigError, PddlParseError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, Literal, PlanStep
from plansmith.text.baselines import chain_of_thought_prompt, narrated_prompt, zero_shot_prompt
from plansmith.text.chains import Chain, ChainStep, GoalMark, ReadChain
from plansmith.text.compact import CompactRendering
from plansmith.text.explanations import Attempt, ClaimedPlan, Explanation, FeedbackKind
from plansmith.text.full import FullRendering
from plansmith.text.loose_plans import LoosePlan, read_loose_plan
from plansmith.text.narration import claimed_steps
from plansmith.text.plans import decode_compact_plan, plan_prompt, read_plan_text
from plansmith.text.told import ToldChains, told_prompt


class Prompting(Protocol):
    """Asks for a plan, and reads the completion."""

    @property
    def name(self) -> str:
        """Return the name that settings know it by."""

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a plan."""

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the claims of a completion."""


class Rendering(Prompting, Protocol):
    """Writes prompts and chains, and reads completions back."""

    @property
    def separator(self) -> str:
        """Return what stands between the parts of a chain."""

    def explain_prompt(self, task: PlanningTask, shown: ClaimedPlan) -> str:
        """Return the prompt that asks to explain a given plan."""

    def write_attempt(self, attempt: Attempt, feedback: FeedbackKind) -> str:
        """Return an attempt with the validator's feedback, as it is handed back."""

    def correct_prompt(self, task: PlanningTask, attempt: str) -> str:
        """Return the prompt that hands an attempt back, as `write_attempt` tells it."""

    def write_chain(self, chain: Chain) -> str:
        """Return the text of a chain of thought."""

    def write_beginning(self, chain: Chain, n_steps: int) -> str:
        """Return the text with which a chain begins, up to the end of so many steps."""

    def write_explanation(self, explanation: Explanation) -> str:
        """Return the text that explains a plan."""

    def write_outcome(self, step: ChainStep) -> str:
        """Return the part of a step that follows its action."""

    def write_goals(self, marks: Sequence[GoalMark], n_told: int) -> str:
        """Return what stands in a goal check after the marks of the first goals."""

    def write_literals(self, literals: Sequence[Literal]) -> str:
        """Return what stands in a list of literals."""


@dataclass(frozen=True, slots=True)
class PlainPrompting:
    """Asks for a plan without a word of reasoning that would be judged.

    Attributes:
        name: of it.
        write_prompt: asks.
        read_plan: finds the plan in an answer; of a model that was never tuned here wherever it stands.
    """

    name: str
    write_prompt: Callable[[PlanningTask], str]
    read_plan: Callable[[str, Domain], LoosePlan] = read_loose_plan

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a plan."""
        return self.write_prompt(task)

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the plan of a completion; nothing else of it is a claim."""
        found = self.read_plan(completion, domain)
        plan = None if found.fault is not None else found.steps
        return ReadChain(Chain((), None, plan, None), (), None, None, found.fault)


@dataclass(frozen=True, slots=True)
class NarratedPrompting:
    """Asks for a plan after words that are free, and reads what they claim of each step as narrations tell it.

    They claim nothing where they tell no step so (`plansmith.text.narration`); the plan is found wherever it stands.
    """

    name: str = "narrated"

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a plan."""
        return narrated_prompt(task)

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the plan of a completion, and the steps before it."""
        found = PlainPrompting(self.name, self.plan_prompt).read(completion, domain)
        steps = list(claimed_steps(completion))
        chain = replace(found.chain, steps=tuple(step for step, _ in steps))
        return replace(found, chain=chain, spans=tuple(spans for _, spans in steps))


TOLD_CHAINS, NARRATED = ToldChains(), NarratedPrompting()

PLAN_PROMPTS = {"pddl": plan_prompt, "told": told_prompt, "named": CompactRendering().plan_prompt}
"""How domain and problem can be told to who is asked for a plan alone (`PlanExamplesConfig.prompts`)."""


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


def prompting_of(name: str) -> Prompting:
    """Return the rendering called `name`, or one of the plain ways to ask.

    These are `zero_shot` and `chain_of_thought` for models that were never tuned, `narrated` for policies that were
    tuned on narrations, and `plan_numbered` and `plan_compact`, whose plans have one strict form each
    (`plansmith.text.plans`). With `_told` at the end both are asked for in few words that tell the domain, as
    `chain_told` asks for a chain (`plansmith.text.told`); with `_named`, in the words of the compact rendering, which
    only names it.

    Raises:
        ConfigError: nothing has that name.
    """
    return _OTHERS[name] if name in _OTHERS else rendering_of(name)


def plan_prompting(plan_format: str, prompts: str) -> str:
    """Return the name of how plans of a format, `numbered` or `compact`, are asked for by one of `PLAN_PROMPTS`."""
    return f"plan_{plan_format}" if prompts == "pddl" else f"plan_{plan_format}_{prompts}"


def is_rendering(prompting: Prompting) -> bool:
    """Return whether attempts can be handed back, and chains begun, as `Rendering` writes them."""
    return prompting.name in ("compact", "full")


def _strictly(read: Callable[[str], tuple[PlanStep, ...]]) -> Callable[[str, Domain], LoosePlan]:
    """Return a reader of one form of plan, for which anything else is a fault."""

    def read_plan(completion: str, _domain: Domain) -> LoosePlan:
        try:
            return LoosePlan(read(completion))
        except PddlParseError as error:
            return LoosePlan((), str(error))

    return read_plan


_WAYS: tuple[Prompting, ...] = (
    TOLD_CHAINS,
    NARRATED,
    PlainPrompting("zero_shot", zero_shot_prompt),
    PlainPrompting("chain_of_thought", chain_of_thought_prompt),
    *(
        PlainPrompting(plan_prompting(plan_format, prompts), write, _strictly(read))
        for prompts, write in PLAN_PROMPTS.items()
        for plan_format, read in (("numbered", read_plan_text), ("compact", decode_compact_plan))
    ),
)
_OTHERS = {prompting.name: prompting for prompting in _WAYS}

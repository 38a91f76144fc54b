"""What the dialogues of a text may cost: an estimate beforehand, and a limit that ends the asking in order.

The estimate has the dialogues with the script, which answers from a reference as somebody without a mistake would, and
counts what is said. A real model writes more around its answers, and is told of mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from plansmith.config.generation import SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.errors import PlansmithError
from plansmith.generation import CHARACTERS_PER_TOKEN, Answers, Conversation, Generator, Message, plain_text
from plansmith.modelling.calls import Call, is_person
from plansmith.modelling.dialogue import Question, QuestionKind
from plansmith.modelling.products import AT_ONCE, DialogueStep
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.references import Reference
from plansmith.modelling.script import Script
from plansmith.modelling.speaking import PERSON
from plansmith.modelling.steps import RowProducts, make_all


class BudgetSpentError(PlansmithError):
    """No more may be asked; what was answered is kept."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls, and their tokens, questions and answers together."""

    calls: int = 0
    tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.calls + other.calls, self.tokens + other.tokens)


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())


def cost_of(calls: Iterable[Call]) -> Cost:
    """Return what calls have cost, as counted by who answered; a person's answers cost nothing."""
    return total(Cost(1, call.tokens) for call in calls if call.model != PERSON)


# --- the estimate


def estimate(text: str, config: ModellingConfig, reference: Reference) -> dict[str, Cost]:
    """Return what each step costs of a text whose domain and problem are those of a reference, without any mistake."""
    own = replace(reference, domain_text=text, task_text="")
    found, asked = dict[str, Cost](), set[str]()
    for question, answer in _exchanges(own, config):
        said = plain_text(question.messages)
        if said not in asked and not is_person(question, config.feedback):
            asked.add(said)  # nothing is asked twice
            n_characters = len(said) + len(answer)
            spent = found.get(question.step, Cost())
            found[question.step] = spent + Cost(1, n_characters // CHARACTERS_PER_TOKEN)
    return found


def _exchanges(own: Reference, config: ModellingConfig) -> Iterator[tuple[Question, str]]:
    """Yield each question with its answer: those of the steps, and those that ask for all at once."""
    script, dialogue = Script((own,)), make_all(own.text, RowProducts(), config)
    for step in (DialogueStep.ZERO_SHOT, DialogueStep.ONE_CALL):
        straight = (Message("user", step_prompt(config.prompts, step, text=own.text)),)
        yield Question(step, "", QuestionKind.DRAFT, straight), script.answer(straight)
    question = next(dialogue)
    while True:
        answer = script.answer(question.messages)
        yield question, answer
        try:
            question = dialogue.send(answer)
        except StopIteration:
            return


def steps_of(costs: Mapping[str, Cost]) -> Cost:
    """Return what all steps cost together, without what is asked for at once."""
    return total(cost for step, cost in costs.items() if step not in AT_ONCE)


def most_calls(config: ModellingConfig, n_actions: int, *, has_domain: bool = False) -> int:
    """Return how many calls a text with so many actions takes at most, its problem alone where it has a domain.

    What there is no plan for goes back to the actions all the same; actions that a domain grows by are not foreseen.
    """
    criticised = {"model": 2, "person": 1, "none": 0}[config.feedback]
    n_steps, again = 3 + n_actions * config.passes, 1 + config.max_error_messages
    problem = config.max_validations + criticised
    domain = 0 if has_domain else n_steps * (again + criticised)
    grown = (3 + n_actions) * again + problem if config.grows else 0
    return domain + problem + grown + config.planner_feedback * (n_actions * again + config.max_validations)


# --- the limit


@dataclass
class Budget:
    """What may be spent, and what is.

    Attributes:
        max_calls, max_tokens: None for any number.
        spent: by now.
        n_together: requests under way together where tokens are limited; so many may begin before the last token is
            spent, and are finished.
    """

    max_calls: int | None
    max_tokens: int | None
    spent: Cost = Cost()
    n_together: int = 1

    def room(self, wanted: int, under_way: int = 0) -> int:
        """Return how many calls may begin now, of those that are wanted, beside those under way.

        Raises:
            BudgetSpentError: none, and none is under way.
        """
        limits = (("max_calls", self.max_calls, self.spent.calls), ("max_tokens", self.max_tokens, self.spent.tokens))
        for name, most, spent in limits:
            if most is not None and spent >= most:
                if under_way:
                    return 0
                got, expected = f"{self.spent.calls} calls, {self.spent.tokens} tokens", f"less than {name}, {most}"
                cure = "give the same command with a larger one; what was answered is kept"
                raise BudgetSpentError("the budget is spent", got=got, expected=expected, cure=cure)
        left = wanted if self.max_calls is None else min(wanted, self.max_calls - self.spent.calls - under_way)
        return left if self.max_tokens is None else min(left, self.n_together - under_way)


@dataclass(frozen=True)
class Budgeted:
    """A generator within a budget; one answer to each conversation.

    Raises:
        BudgetSpentError: (of `complete`) after what could be asked.
    """

    generator: Generator
    budget: Budget

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the answers; see `plansmith.generation.Generator`."""
        first = 0
        while first < len(conversations):
            part, own, n_answered = list[Conversation](), list[int](), 0
            self._let_in(conversations[first:], seeds[first:], part, own, under_way=0)
            for number, [answer] in self.generator.complete(part, sampling, seeds=own, description=description):
                n_answered += 1
                if answer.fault is None:
                    self.budget.spent += Cost(1, (answer.prompt_tokens or 0) + (answer.completion_tokens or 0))
                yield first + number, [answer]
                self._let_in(conversations[first:], seeds[first:], part, own, under_way=len(part) - n_answered)
            first += n_answered

    def _let_in(
        self, conversations: Sequence[Conversation], seeds: Sequence[int], part: list[Conversation], own: list[int],
        *, under_way: int,
    ) -> None:  # fmt: skip
        """Put what may begin now behind what has begun."""
        if waiting := len(conversations) - len(part):
            end = len(part) + self.budget.room(waiting, under_way)
            own += seeds[len(part) : end]
            part += conversations[len(part) : end]

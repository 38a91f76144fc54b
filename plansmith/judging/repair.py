"""The repair loop about one text: a policy writes its problem and is told what is wrong until there is a plan.

Source: NL-PDDL-Bench, sections 3.4 and C.2. No reference is needed, so that the text may be anybody's. For the many
texts of a run the same turns are stages that survive a crash (`pipelines.stages.formalising`); what a turn says is
`plansmith.text.formalisation`, what an answer is worth `plansmith.judging.formalisation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.generation import REPAIR_TEMPERATURE, SamplingConfig
from plansmith.errors import PlansmithError
from plansmith.generation import Completion, Generator, asking
from plansmith.judging.formalisation import FormalisationJudge, Judgement, Readability
from plansmith.text.formalisation import repair_prompt


class IsJudged(Protocol):
    """An answer of which is known whether it can be read, whether it has a plan, and what is to be said against it."""

    @property
    def feedback(self) -> str:
        """Return what is to be mended; empty where nothing is known."""

    @property
    def is_parsed(self) -> bool:
        """Return whether it can be read."""

    @property
    def is_solved(self) -> bool:
        """Return whether it has a plan."""


JudgedT = TypeVar("JudgedT", bound=IsJudged)


def best_answer(turns: Sequence[JudgedT]) -> JudgedT:
    """Return the answer that counts: the first with a plan, else the last that can be read, else the last.

    Of several with a plan it is the first with nothing to mend, else the first.
    The paper takes "the best verified specification within the budget" (section 3.4); the reference is not looked at.

    Args:
        turns: the answers to one text, one at least, in the order of the turns.
    """
    solved = [turn for turn in turns if turn.is_solved]
    accepted = [turn for turn in solved if not turn.feedback]
    return (accepted or solved)[0] if solved else ([turn for turn in turns if turn.is_parsed] or turns)[-1]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer; number 0 is the first, the others were asked for with feedback on the one before."""

    number: int
    completion: Completion
    judgement: Judgement

    @property
    def is_parsed(self) -> bool:
        """Return whether it holds a problem that can be read."""
        return self.judgement.readability is Readability.PARSED

    @property
    def is_solved(self) -> bool:
        """Return whether there is a plan for the problem."""
        return self.judgement.is_solved

    @property
    def feedback(self) -> str:
        """Return what is to be mended; empty where nothing is known."""
        return self.judgement.feedback

    @property
    def answer(self) -> str:
        """Return the problem in the answer; where there is none, the answer."""
        return self.judgement.problem_pddl or self.completion.text or ""


@dataclass(frozen=True, slots=True)
class RepairLoop:
    """Who answers, who judges, and how often and in which words it is asked.

    Attributes:
        generator: answers.
        judge: of the domain.
        texts: how the prompts are written.
        sampling: of the first answer.
        turns: further answers, at most (T_max).
        seed: of the first answer; each further one has the next.
        repair_temperature: of the further answers, which are sampled as the first otherwise.
    """

    generator: Generator
    judge: FormalisationJudge
    texts: FormalisationConfig
    sampling: SamplingConfig
    turns: int
    seed: int = 0
    repair_temperature: float = REPAIR_TEMPERATURE

    def run(self, prompt: str, text: str | None = None) -> Iterator[Turn]:
        """Yield the answers to a prompt as they come; one with nothing to mend is the last.

        Args:
            prompt: by `formalisation_prompt`.
            text: what the prompt asks for; None leaves names unchecked.

        Raises:
            PlansmithError: a request failed.
        """
        asked = prompt
        for number in range(self.turns + 1):
            completion = self._completion(asked, number)
            turn = Turn(number, completion, self.judge.judge(completion.text or "", text=text))
            yield turn
            if not turn.feedback:
                return
            asked = repair_prompt(prompt, turn.answer, turn.feedback, self.texts)

    def _completion(self, asked: str, number: int) -> Completion:
        seeds, sampling = [(self.seed + number) % 2**31], self.sampling
        if number:
            sampling = sampling.model_copy(update={"temperature": self.repair_temperature})
        [(_, [completion])] = self.generator.complete([asking(asked)], sampling, seeds=seeds)
        if completion.fault:
            raise PlansmithError("a request failed", where=completion.policy_version, got=completion.fault,
                                 cure="see to the server and give the command again")  # fmt: skip
        return completion

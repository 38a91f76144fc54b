"""Many dialogues side by side with one who answers: questions go out in rounds, each answer is kept before it is used.

A round holds the question of every dialogue that waits for a model, so that an engine is filled and one limit on
requests under way holds for all of them. Not here: who answers (`plansmith.generation.Generator`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Generator as Steps
from dataclasses import dataclass
from typing import TypeVar

from plansmith.config.generation import SamplingConfig
from plansmith.errors import PlansmithError
from plansmith.generation import FinishReason, Generator
from plansmith.modelling.calls import Call, CallLog, call_of, is_person, key_of
from plansmith.modelling.dialogue import Question, QuestionKind

ResultT = TypeVar("ResultT")
Person = Callable[[Question], str]
PERSON = "person"


@dataclass
class Speaker:
    """Who answers, and what is kept of it.

    Attributes:
        generator: of the answers.
        sampling: of one answer.
        seed: of every answer, so that an answer depends on its messages alone.
        model: what the generator's answers depend on, for the keys of the calls.
        log: of the calls, by task.
        person: asked where feedback is a person's.
        feedback: whose it is.
    """

    generator: Generator
    sampling: SamplingConfig
    seed: int
    model: str
    log: Callable[[str], CallLog]
    feedback: str = "model"
    person: Person | None = None

    def converse(
        self, dialogues: Mapping[str, Steps[Question, str, ResultT]], *, description: str | None = None
    ) -> Iterator[tuple[str, ResultT]]:
        """Yield what each dialogue returns, by task, as they end.

        Raises:
            PlansmithError: a request failed; what was answered is kept.
        """
        waiting: dict[str, Question] = {}
        for task, dialogue in dialogues.items():
            yield from self._advance(task, dialogue, None, waiting)
        while waiting:
            round_, waiting = waiting, {}
            for call in self._answers(round_, description):
                yield from self._advance(call.task, dialogues[call.task], call.answer, waiting)

    def _advance(
        self, task: str, dialogue: Steps[Question, str, ResultT], answer: str | None, waiting: dict[str, Question]
    ) -> Iterator[tuple[str, ResultT]]:
        """Go on with a dialogue until it needs somebody to be asked, or ends."""
        try:
            question = next(dialogue) if answer is None else dialogue.send(answer)
            while (known := self.log(task).find(self.key(question))) is not None:
                question = dialogue.send(known.answer)
        except StopIteration as stop:
            yield task, stop.value
        else:
            waiting[task] = question

    def key(self, question: Question) -> str:
        """Return what the answer to a question is found by."""
        if is_person(question, self.feedback):
            return key_of(question.messages, PERSON)
        who = json.dumps([self.model, self._sampling(question).model_dump(mode="json"), self.seed])
        return key_of(question.messages, hashlib.sha256(who.encode()).hexdigest())

    def _answers(self, questions: Mapping[str, Question], description: str | None) -> Iterator[Call]:
        asked = [task for task, question in questions.items() if not is_person(question, self.feedback)]
        for task in questions.keys() - set(asked):
            yield self._said_by_person(task, questions[task])
        failed = list[str]()
        for form in dict.fromkeys(questions[task].json_schema for task in asked):
            alike = {task: questions[task] for task in asked if questions[task].json_schema == form}
            yield from self._answers_alike(alike, description, failed)
        if failed:
            cure = "see to the server and give the command again; what was answered is kept"
            raise PlansmithError("requests failed", got="; ".join(failed[:3]), expected="an answer to each", cure=cure)

    def _answers_alike(
        self, questions: Mapping[str, Question], description: str | None, failed: list[str]
    ) -> Iterator[Call]:
        """Yield the answers to questions whose answers have one form; what failed is told in a list."""
        start_s, asked = time.monotonic(), list(questions)
        answers = self.generator.complete(
            [questions[task].messages for task in asked],
            self._sampling(questions[asked[0]]),
            seeds=[self.seed] * len(asked),
            description=description,
        )
        for number, [completion] in answers:
            task = asked[number]
            is_later = questions[task].kind is not QuestionKind.DRAFT  # how long a dialogue gets is no wrong setting
            if completion.fault is not None and not (is_later and completion.finish_reason == FinishReason.NO_ROOM):
                failed.append(f"{task}: {completion.fault}")
                continue
            yield self._kept(
                questions[task],
                task=task,
                answer=completion.text or "",
                finish_reason=completion.finish_reason,
                model=completion.policy_version,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                cached_tokens=completion.cached_tokens,
                reasoning_tokens=completion.reasoning_tokens,
                seconds=round(time.monotonic() - start_s if completion.seconds is None else completion.seconds, 3),
            )

    def _sampling(self, question: Question) -> SamplingConfig:
        return self.sampling.model_copy(update={"json_schema": question.json_schema})

    def _said_by_person(self, task: str, question: Question) -> Call:
        if self.person is None:
            raise PlansmithError("nobody is there to advise", cure="choose --feedback model or none")
        said = self.person(question)
        return self._kept(question, task=task, answer=said, finish_reason="stop", model=PERSON)

    def _kept(self, question: Question, **more: object) -> Call:
        call = call_of(question, key=self.key(question), **more)  # type: ignore[arg-type]
        self.log(call.task).add(call)
        return call

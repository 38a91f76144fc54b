"""Many dialogues side by side with one who answers: each goes on once its answer is kept.

They ask through one stream of questions, so that an engine is filled and one limit on requests under way holds for all
of them; an engine answers in rounds. Not here: who answers (`plansmith.generation.Generator`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Generator as Steps
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from plansmith.config.generation import SamplingConfig
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import Completion, Conversation, FinishReason, Generator
from plansmith.modelling.calls import Call, CallLog, about, call_of, is_person, key_of
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
        log: where the answers of a task are looked for, and kept; tasks may share one.
        feedback: whose it is.
        person: asked where feedback is a person's.
        owns_window: a first question without room is an outcome, as of a policy that the run itself has trained.
        said: every exchange of the dialogues by task, those with an answer that was there already among them.
    """

    generator: Generator
    sampling: SamplingConfig
    seed: int
    model: str
    log: Callable[[str], CallLog]
    feedback: str = "model"
    person: Person | None = None
    owns_window: bool = False
    said: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))

    def converse(
        self, dialogues: Mapping[str, Steps[Question, str, ResultT]], *, description: str | None = None
    ) -> Iterator[tuple[str, ResultT]]:
        """Yield what each dialogue returns, by task, as they end.

        Raises:
            BadInputError: a first question that left no room for an answer.
            PlansmithError: a request failed; what was answered is kept.
        """
        waiting: dict[str, Question] = {}
        for task, dialogue in dialogues.items():
            yield from self._advance(task, dialogue, None, waiting)
        while waiting:
            for task, answer in self._answers(waiting, description):
                yield from self._advance(task, dialogues[task], answer, waiting)

    def _advance(
        self, task: str, dialogue: Steps[Question, str, ResultT], answer: str | None, waiting: dict[str, Question]
    ) -> Iterator[tuple[str, ResultT]]:
        """Go on with a dialogue until it needs somebody to be asked, or ends."""
        try:
            question = next(dialogue) if answer is None else dialogue.send(answer)
            while (known := self.log(task).find(self.key(question))) is not None:
                self.said[task].append(replace(known, **about(question, task)))
                question = dialogue.send(known.answer)
        except StopIteration as stop:
            yield task, stop.value
        else:
            waiting[task] = question

    def key(self, question: Question) -> str:
        """Return what the answer to a question is found by."""
        if is_person(question, self.feedback):
            return key_of(question.messages, PERSON)
        who = json.dumps([self.model, self._sampling(question.json_schema).model_dump(mode="json"), self.seed])
        return key_of(question.messages, hashlib.sha256(who.encode()).hexdigest())

    def _answers(self, waiting: dict[str, Question], description: str | None) -> Iterator[tuple[str, str]]:
        """Yield answers by task, and take those who get them out of those who wait.

        Others may come to wait from one answer to the next. Asked together is what is to be answered in one form; a
        question that is under way already is not asked a second time.
        """
        for task in [task for task, question in waiting.items() if is_person(question, self.feedback)]:
            yield task, self._said_by_person(task, waiting.pop(task))
        form = next((question.json_schema for question in waiting.values()), "")
        sampling = self._sampling(form)
        conversations, keys, under_way = list[Conversation](), list[str](), dict[str, dict[str, Question]]()
        seeds, failed, start_s = list[int](), list[tuple[str, Question, Completion]](), time.monotonic()

        def ask() -> None:
            for task, question in list(waiting.items()):
                if question.json_schema == form and not is_person(question, self.feedback):
                    key = self.key(question)
                    if key not in under_way:
                        keys.append(key)
                        seeds.append(self.seed)
                        conversations.append(question.messages)
                    under_way.setdefault(key, {})[task] = waiting.pop(task)

        ask()
        if not conversations:
            return
        answers = self.generator.complete(conversations, sampling, seeds=seeds, description=description)
        for number, [completion] in answers:
            for task, question in under_way.pop(keys[number]).items():
                if self._has_failed(question, completion):
                    failed.append((task, question, completion))
                else:
                    yield task, self._kept(question, task, **_of_completion(completion, start_s))
            if not failed:
                ask()
        for left in under_way.values():
            waiting.update(left)
        if failed:
            raise _error_of(failed)

    def _has_failed(self, question: Question, completion: Completion) -> bool:
        """Return whether there is no answer to go on with; how long a dialogue gets is no wrong setting."""
        is_full = completion.finish_reason == FinishReason.NO_ROOM
        if question.kind is not QuestionKind.DRAFT and is_full:
            return False
        return completion.fault is not None or (is_full and not self.owns_window)

    def _sampling(self, form: str) -> SamplingConfig:
        return self.sampling.model_copy(update={"json_schema": form})

    def _said_by_person(self, task: str, question: Question) -> str:
        if self.person is None:
            raise PlansmithError("nobody is there to advise", cure="choose --feedback model or none")
        return self._kept(question, task, answer=self.person(question), finish_reason="stop", model=PERSON)

    def _kept(self, question: Question, task: str, **answer: Any) -> str:
        """Return an answer once it is written, and in the dialogue of its task."""
        call = call_of(question, task=task, key=self.key(question), **answer)
        if self.log(task).find(call.key) is None:
            self.log(task).add(call)
        self.said[task].append(call)
        return call.answer


def _of_completion(completion: Completion, start_s: float) -> dict[str, Any]:
    """Return what is kept of an answer that was asked for at that time, at the earliest."""
    return {
        "answer": completion.text or "",
        "finish_reason": completion.finish_reason,
        "model": completion.policy_version,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cached_tokens": completion.cached_tokens,
        "reasoning_tokens": completion.reasoning_tokens,
        "seconds": round(time.monotonic() - start_s if completion.seconds is None else completion.seconds, 3),
    }


def _error_of(failed: Sequence[tuple[str, Question, Completion]]) -> PlansmithError:
    """Return what is told of requests without an answer to go on with: of prompts without room, if there are any."""
    for task, question, completion in failed:
        if completion.fault is None:
            return BadInputError(
                "a text too long for the model", where=f"{task}, step {question.step}",
                got=f"no room for an answer: {completion.room or f'a prompt of {completion.prompt_tokens} tokens'}",
                expected="a prompt that does not fill its window",
                cure="shorten it, or take a model that reads more; what was answered is kept",
            )  # fmt: skip
    got = "; ".join(f"{task}, step {question.step}: {completion.fault}" for task, question, completion in failed[:3])
    cure = "see to the server and give the command again; what was answered is kept"
    return PlansmithError("requests failed", got=got, expected="an answer to each", cure=cure)

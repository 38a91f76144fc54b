"""What was asked and answered, one line of JSON a call, written before the answer is used: nothing is asked twice.

An answer is found by the hash of its messages and of who answers; where there was no room for one, it is asked for
again. A line that a crash has cut off is dropped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plansmith.data.storage import append_line, cut_unfinished_line, whole_lines
from plansmith.errors import BadInputError
from plansmith.generation import FinishReason, Message
from plansmith.modelling.dialogue import Question, QuestionKind


@dataclass(frozen=True, slots=True)
class Call:
    """One question with its answer.

    Attributes:
        key: hash of the messages and of who answers.
        task: that it belongs to.
        step: a `DialogueStep`, or what else was asked for.
        subject: of the question.
        kind: of the question.
        messages: role and text of each.
        checks: the checks whose faults the last message tells of.
        answer: it.
        finish_reason: of it.
        model: who answered.
        prompt_tokens, completion_tokens: as counted by who answered; None where it does not.
        cached_tokens, reasoning_tokens: parts of the two; see `plansmith.generation.Completion`.
        seconds: from when it was asked until the answer was there, a busy server's waits among them; since the first
            of the questions that were asked together where who answers measures none, such as an engine.
    """

    key: str
    task: str
    step: str
    subject: str
    kind: str
    messages: tuple[tuple[str, str], ...]
    checks: tuple[str, ...]
    answer: str
    finish_reason: str
    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Return all tokens that were counted."""
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


def key_of(messages: Sequence[Message], who: str) -> str:
    """Return what an answer is found by."""
    said = [[message.role, message.text] for message in messages]
    return hashlib.sha256(json.dumps([said, who]).encode()).hexdigest()


def call_of(question: Question, *, task: str, key: str, **answer: Any) -> Call:
    """Return the record of a question with its answer, whose fields are given by their names."""
    return Call(
        key=key,
        messages=tuple((message.role, message.text) for message in question.messages),
        **about(question, task),
        **answer,
    )


def about(question: Question, task: str) -> dict[str, Any]:
    """Return what a record says of a question beside its messages: another question may have the same."""
    return {
        "task": task,
        "step": question.step.value,
        "subject": question.subject,
        "kind": question.kind.value,
        "checks": tuple(dict.fromkeys(fault.check for fault in question.faults)),
    }


@dataclass
class CallLog:
    """The calls in a file, and those to come."""

    path: Path
    calls: list[Call] = field(default_factory=list)
    _by_key: dict[str, Call] = field(default_factory=dict)
    _is_written_to: bool = False

    @classmethod
    def open(cls, path: Path) -> CallLog:
        """Return the log in a file, which need not be there yet; a last line without its end is none.

        Reading changes nothing: another process, or thread, may be in the middle of that line.

        Raises:
            BadInputError: a line is no call.
        """
        log = cls(path)
        for number, line in enumerate(whole_lines(path), start=1):
            try:
                log._keep(_call(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise BadInputError("no call of a model", where=f"{path}:{number}", got=line[:80],
                                    expected="what plansmith nl2plan has written",
                                    cure="take the line out; what it answered is asked again") from error  # fmt: skip
        return log

    def find(self, key: str) -> Call | None:
        """Return the call of a key that has been answered."""
        return self._by_key.get(key)

    def add(self, call: Call) -> None:
        """Write a call, after cutting off a line that a crash left unfinished; when this returns it survives one."""
        if not self._is_written_to:
            cut_unfinished_line(self.path)
            self._is_written_to = True
        append_line(self.path, json.dumps(dataclasses.asdict(call), ensure_ascii=False))
        self._keep(call)

    def _keep(self, call: Call) -> None:
        self.calls.append(call)
        if call.finish_reason != FinishReason.NO_ROOM:
            self._by_key.setdefault(call.key, call)


def _call(record: Mapping[str, Any]) -> Call:
    messages = tuple((role, text) for role, text in record["messages"])
    return Call(**{**record, "messages": messages, "checks": tuple(record["checks"])})


def is_person(question: Question, feedback: str) -> bool:
    """Return whether a person is to answer."""
    return question.kind is QuestionKind.FEEDBACK and feedback == "person"

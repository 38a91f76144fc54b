"""A cassette: what somebody answered, in a file, to be given again without asking anybody.

Its first line, the label, says who answered, when, and whether it was a model (``recorded``) or the script, which is no
model (``scripted``); each line after it is a request with its answer, as JSON. What is played says on every call that
it comes from a cassette. A key of an account is in no request, and answers come without it (`actors.endpoint`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plansmith.config.generation import SamplingConfig
from plansmith.data.storage import append_line, cut_unfinished_line, make_folder, whole_lines
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Completion, Conversation, Generator, seeds_by_conversation
from plansmith.modelling.script import SCRIPT

FORMAT = "plansmith cassette 1"
RECORDED, SCRIPTED = "recorded", "scripted"
MOST_SHOWN = 160
"""Characters of a line that an error shows."""
_PLAYED = " (cassette, "


@dataclass(frozen=True, slots=True)
class Label:
    """What a cassette says of itself.

    Attributes:
        model: who answered.
        date: of the first answer, in UTC.
        made: `RECORDED` or `SCRIPTED`.
    """

    model: str
    date: str
    made: str

    @property
    def played(self) -> str:
        """Return what stands where a model's name would when this is played."""
        return f"{self.model}{_PLAYED}{self.made} {self.date})"


def is_played(model: str) -> bool:
    """Return whether the name of who answered is that of a cassette."""
    return _PLAYED in model


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: role and text of each message, how the answer is drawn, and its seed."""

    messages: tuple[tuple[str, str], ...]
    sampling: dict[str, Any]
    seed: int

    @classmethod
    def of(cls, messages: Conversation, sampling: SamplingConfig, seed: int) -> Request:
        """Return the request of one answer."""
        said = tuple((message.role, message.text) for message in messages)
        return cls(said, sampling.model_dump(mode="json", exclude={"n"}), seed)

    @property
    def key(self) -> str:
        """Return what an answer is found by."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    def lines(self) -> list[tuple[str, str]]:
        """Return all of it in lines, each with its place."""
        found = [("how many messages", str(len(self.messages)))]
        for number, (role, text) in enumerate(self.messages, 1):
            found.append((f"message {number}", role))
            found += [(f"message {number}, line {line}", own) for line, own in enumerate(text.split("\n"), 1)]
        return [*found[1:], found[0], *((name, json.dumps(value)) for name, value in sorted(self.sampling.items())),
                ("seed", str(self.seed))]  # fmt: skip


@dataclass
class Cassette:
    """The requests in a file with their answers, and those to come."""

    path: Path
    label: Label
    answers: dict[str, Completion] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    @classmethod
    def begin(cls, path: Path, model: str, *, n_answered: int = 0) -> Cassette:
        """Return a new cassette, or one that was begun, to be gone on with.

        Args:
            path: of it.
            model: who answers.
            n_answered: answers that are there already, and would not be asked for again.

        Raises:
            BadInputError: the file is no cassette, or of another model, or something was answered before it was begun.
        """
        if path.is_file():
            begun = cls.read(path)
            if begun.label.model != model:
                raise BadInputError("a cassette of another model", where=str(path), got=model,
                                    expected=begun.label.model, cure="name another file")  # fmt: skip
            cut_unfinished_line(path)
            return begun
        if n_answered:
            raise BadInputError("a cassette of what was begun without one", where=str(path),
                                got=f"{n_answered} answers that would not be on it", expected="all of them",
                                cure="record nothing, or begin in another folder")  # fmt: skip
        label = Label(model, datetime.now(UTC).date().isoformat(), SCRIPTED if model == SCRIPT else RECORDED)
        make_folder(path.parent)
        append_line(path, json.dumps({"format": FORMAT, **dataclasses.asdict(label)}))
        return cls(path, label)

    @classmethod
    def read(cls, path: Path) -> Cassette:
        """Return the cassette in a file.

        Raises:
            BadInputError: no such file, or it is no cassette.
        """
        if not path.is_file():
            raise BadInputError("no such cassette", where=str(path), expected="a file that --record has written")
        try:
            label, *rest = (json.loads(line) for line in whole_lines(path))
            if label.pop("format") != FORMAT:
                raise ValueError("another format")
            cassette = cls(path, Label(**label))
            for record in rest:
                messages = tuple((role, text) for role, text in record["request"].pop("messages"))
                cassette._keep(Request(messages, **record["request"]), Completion(**record["answer"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInputError("no cassette", where=str(path), got=str(error),
                                expected=f"a first line with {FORMAT!r}, and a request with its answer in each other",
                                cure="record it again")  from error  # fmt: skip
        return cassette

    @property
    def digest(self) -> str:
        """Return what tells its answers from others."""
        return hashlib.sha256(repr(sorted(self.answers.items())).encode()).hexdigest()

    def add(self, request: Request, answer: Completion) -> None:
        """Write an answer; when this returns it survives a crash. One that is there, or a failure, is left out."""
        if request.key in self.answers or answer.text is None:
            return
        told = {name: value for name, value in dataclasses.asdict(answer).items() if name in _KEPT}
        record = {"request": dataclasses.asdict(request), "answer": told}
        append_line(self.path, json.dumps(record, ensure_ascii=False))
        self._keep(request, answer)

    def _keep(self, request: Request, answer: Completion) -> None:
        self.answers[request.key] = answer
        self.requests.append(request)

    def find(self, request: Request) -> Completion:
        """Return the answer to a request.

        Raises:
            BadInputError: it is not there, with the first difference to the request that is most like it.
        """
        if request.key in self.answers:
            return self.answers[request.key]
        cure = "replay it with the text and the options that it was recorded with, or record another one"
        if not self.requests:
            raise BadInputError("an empty cassette", where=str(self.path), cure=cure)
        asked = request.lines()
        number, like = max(enumerate(self.requests, 1), key=lambda own: _n_alike(asked, own[1].lines()))
        recorded = like.lines()
        n_alike = _n_alike(asked, recorded)
        (place, got), (its_place, said) = asked[n_alike], recorded[n_alike]
        expected = said if place == its_place else f"{its_place}: {said}"
        raise BadInputError("a request that is not on the cassette", where=f"{self.path}, request {number}, {place}",
                            got=got[:MOST_SHOWN], expected=expected[:MOST_SHOWN], cure=cure)  # fmt: skip


_KEPT = ("text", "finish_reason", "policy_version", "seed", "prompt_tokens", "completion_tokens", "cached_tokens",
         "reasoning_tokens")  # fmt: skip


def _n_alike(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> int:
    """Return how many lines are alike before the first that differs."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (own, its) in enumerate(pairs) if own != its), min(len(one), len(other)))


@dataclass(frozen=True)
class Recording:
    """A generator whose answers go on a cassette; one answer to each conversation."""

    generator: Generator
    cassette: Cassette

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the answers, each when it is on the cassette; what is there already is not asked for again.

        See `plansmith.generation.Generator`.
        """
        places, left, left_seeds, number = list[int](), list[Conversation](), list[int](), 0

        def known() -> Answers:
            """Yield those that are there of what has come by now; the others are left."""
            nonlocal number
            while number < len(conversations):
                request = Request.of(conversations[number], sampling, seeds[number])
                if request.key not in self.cassette.answers:
                    places.append(number)
                    left.append(conversations[number])
                    left_seeds.append(seeds[number])
                number += 1
                if request.key in self.cassette.answers:
                    yield number - 1, [self.cassette.answers[request.key]]

        yield from known()
        if not left:
            return
        for place, [answer] in self.generator.complete(left, sampling, seeds=left_seeds, description=description):
            self.cassette.add(Request.of(left[place], sampling, answer.seed), answer)
            yield places[place], [answer]
            yield from known()


@dataclass(frozen=True)
class Playing:
    """A cassette as a `Generator`.

    Raises:
        BadInputError: (of `complete`) a request that is not on it.
    """

    cassette: Cassette

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the answers; see `plansmith.generation.Generator`."""
        for number, own in enumerate(seeds_by_conversation(seeds, len(conversations), sampling.n)):
            found = [self.cassette.find(Request.of(conversations[number], sampling, seed)) for seed in own]
            yield number, [dataclasses.replace(one, policy_version=self.cassette.label.played) for one in found]

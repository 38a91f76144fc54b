"""A model behind an OpenAI-compatible server: many requests at a time, and what every failed one met.

The `openai` library speaks the protocol, waits for servers that are busy and tries again. A plain class that needs no
Ray. Not here: prompts, and what an answer is worth. The key of the account is in no setting, message or log.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from plansmith.errors import BadInputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "none"
"""Sent where there is no key; servers of one's own take anything."""

LISTING_TIMEOUT_S = 30.0
MAX_MESSAGE = 300
"""Characters of a server's message that are kept."""
SHORTEST_KEY = 16
"""Characters of a real key at least; shorter ones are stand-ins such as EMPTY, which may be words of an answer."""


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Which model is asked, and how.

    Attributes:
        base_url: such as ``http://localhost:8000/v1``.
        model: its name on that server.
        temperature: None leaves it to the server, as some hosted models demand.
        max_tokens: of one completion; None leaves it to the server.
        is_seeded: send each question's seed.
        is_chat: ask through ``/chat/completions``, the prompt as the user's message; otherwise through
            ``/completions``, the prompt as plain text, for models without a chat template.
        concurrency: requests under way together.
        timeout_s: how long to wait for one answer.
        max_retries: further tries of a request that met no answer, a busy server or its internal error.
    """

    base_url: str
    model: str
    temperature: float | None = 0.0
    max_tokens: int | None = 2048
    is_seeded: bool = True
    is_chat: bool = True
    concurrency: int = 8
    timeout_s: float = 600.0
    max_retries: int = 4


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt with the seed of its answer."""

    question_id: str
    prompt: str
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``fault`` says why there is no completion, and is None when there is one.

    Tokens are as the server counts them, None where it does not.
    """

    question_id: str
    completion: str | None
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    wall_time_s: float
    fault: str | None

    def __post_init__(self) -> None:
        if (self.completion is None) != (self.fault is not None):
            raise ValueError(f"question {self.question_id}: completion {self.completion!r}, fault {self.fault!r}")


class Endpoint:
    """Asks one model of one server.

    Args:
        settings: see there.
        api_key: None for a server that asks for none.

    Raises:
        BadInputError: (on construction) an address that holds a name, a password or parameters.
    """

    def __init__(self, settings: EndpointSettings, api_key: str | None = None) -> None:
        _check_address(settings.base_url)
        self.settings = settings
        self._api_key = api_key

    def answers(self, questions: Sequence[Question]) -> Iterator[list[Answer]]:
        """Yield answers as they come, together those that came together; each question has one.

        Closing the iterator, or an interrupt, gives up what is under way.

        Raises:
            BadInputError: the server refuses the key, or does not know the model.
        """
        stream = self._stream(questions)
        with asyncio.Runner() as runner:
            try:
                while batch := runner.run(_next(stream)):
                    yield batch
            finally:
                runner.run(stream.aclose())

    async def _stream(self, questions: Sequence[Question]) -> AsyncGenerator[list[Answer], None]:
        waiting, running, done = deque(questions), set[asyncio.Task[Answer]](), set[asyncio.Task[Answer]]()
        async with _client(self.settings, self._api_key) as client:
            try:
                while waiting or running:
                    while waiting and len(running) < self.settings.concurrency:
                        running.add(asyncio.create_task(self._answer(client, waiting.popleft())))
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    yield [task.result() for task in done]
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, *done, return_exceptions=True)  # nobody else asks for their errors

    async def _answer(self, client: AsyncOpenAI, question: Question) -> Answer:
        from openai import AuthenticationError, NotFoundError, OpenAIError, PermissionDeniedError

        start_s = time.monotonic()
        try:
            reply = await self._ask(client, question)
        except (AuthenticationError, PermissionDeniedError, NotFoundError) as error:
            raise _refused(self.settings, error, self._api_key) from None
        except OpenAIError as error:
            fault = f"{type(error).__name__}: {_message(error, self._api_key)}"
            return Answer(question.question_id, None, "", None, None, time.monotonic() - start_s, fault)
        return _answer_of(
            reply, question, time.monotonic() - start_s, is_chat=self.settings.is_chat, api_key=self._api_key
        )  # fmt: skip

    async def _ask(self, client: AsyncOpenAI, question: Question) -> Any:
        settings = self.settings
        wanted = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        options: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        if settings.is_seeded:
            options["seed"] = question.seed
        if settings.is_chat:
            message: Any = {"role": "user", "content": question.prompt}
            return await client.chat.completions.create(model=settings.model, messages=[message], **options)
        return await client.completions.create(model=settings.model, prompt=question.prompt, **options)


def served_models(base_url: str, api_key: str | None = None) -> list[str]:
    """Return the models that a server offers.

    Raises:
        BadInputError: there is no such server, it refuses the key, or it answers something else.
    """
    _check_address(base_url)
    settings = EndpointSettings(base_url, "", timeout_s=LISTING_TIMEOUT_S, max_retries=1)

    async def names() -> list[str]:
        async with _client(settings, api_key) as client:
            return [str(model.id) async for model in client.models.list()]

    from openai import OpenAIError

    try:
        return asyncio.run(names())
    except OpenAIError as error:
        raise _refused(settings, error, api_key) from None
    except (AttributeError, TypeError, ValueError):  # of an answer that is no list of models
        raise _no_endpoint(base_url, "an answer that is no list of models") from None


def _check_address(base_url: str) -> None:
    """Raise for an address with a secret in it: addresses stand in manifests, results and messages."""
    parts = urlsplit(base_url)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise BadInputError(
            "an address may hold no secret", where=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            got="a name, a password or parameters in the address", expected="such as http://localhost:8000/v1",
            cure="put the key into an environment variable and name that with --api-key-env",
        )  # fmt: skip


async def _next(stream: AsyncGenerator[list[Answer], None]) -> list[Answer]:
    """Return the next answers, none at the end."""
    return await anext(stream, [])


def _client(settings: EndpointSettings, api_key: str | None) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(
        base_url=settings.base_url,
        api_key=api_key or NO_KEY,
        timeout=settings.timeout_s,
        max_retries=settings.max_retries,
    )


def _answer_of(reply: Any, question: Question, wall_time_s: float, *, is_chat: bool, api_key: str | None) -> Answer:
    """Return the completion in a reply; a model that wrote nothing wrote an empty one."""
    choice = next(iter(getattr(reply, "choices", None) or ()), None)
    text = getattr(getattr(choice, "message", None) if is_chat else choice, "content" if is_chat else "text", None)
    if choice is None or not isinstance(text, str | None):
        fault = f"an answer without a completion: {_without_key(str(reply), api_key)[:MAX_MESSAGE]}"
        return Answer(question.question_id, None, "", None, None, wall_time_s, fault)
    usage = getattr(reply, "usage", None)
    return Answer(
        question_id=question.question_id,
        completion=_without_key(text or "", api_key if api_key and len(api_key) >= SHORTEST_KEY else None),
        finish_reason=str(choice.finish_reason or ""),
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
        wall_time_s=wall_time_s,
        fault=None,
    )


def _refused(settings: EndpointSettings, error: Exception, api_key: str | None) -> BadInputError:
    """Return the error of a server that cannot be asked at all."""
    from openai import AuthenticationError, NotFoundError, PermissionDeniedError

    message = _message(error, api_key)
    if isinstance(error, AuthenticationError | PermissionDeniedError):
        return BadInputError(
            "the server refuses the key", where=settings.base_url, got=message,
            expected="the key of an account that may use this model" if api_key else "a key",
            cure="set OPENAI_API_KEY, or name the variable that holds the key with --api-key-env",
        )  # fmt: skip
    if isinstance(error, NotFoundError) and settings.model:
        return BadInputError(
            f"the server has no model {settings.model!r}, or not at this address", where=settings.base_url, got=message,
            cure="check --model and the address, which usually ends in /v1",
        )  # fmt: skip
    return _no_endpoint(settings.base_url, f"{type(error).__name__}: {message}")


def _no_endpoint(base_url: str, got: str) -> BadInputError:
    return BadInputError("no endpoint answers here", where=base_url, got=got, expected="an OpenAI-compatible server",
                         cure="start the server, and check the address, which usually ends in /v1")  # fmt: skip


def _message(error: Exception, api_key: str | None) -> str:
    """Return what an error says, in one line, without the key that a server may quote."""
    reasons = [str(error), *([str(error.__cause__)] if error.__cause__ and str(error.__cause__) else [])]
    return _without_key(" ".join(": ".join(reasons).split()), api_key)[:MAX_MESSAGE]


def _without_key(text: str, api_key: str | None) -> str:
    """Return what a server said without the key: whatever it says may be kept, printed and published."""
    return text.replace(api_key, "***") if api_key else text

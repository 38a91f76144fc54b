"""A model behind an OpenAI-compatible server as a `Generator`: many requests at a time, and what every failed one met.

The `openai` library speaks the protocol, waits for servers that are busy and tries again, unless one asks for more than
two minutes (`Retry-After`): that is a failed request, and the limits a minute are there to ask for less. A plain class
that needs no Ray. Not here: prompts, and what an answer is worth. The key of the account is in no setting, message or
log.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from plansmith.config.generation import EndpointConfig, SamplingConfig
from plansmith.errors import BadInputError
from plansmith.generation import (
    CHARACTERS_PER_TOKEN,
    Answers,
    Completion,
    Conversation,
    FinishReason,
    encodable,
    plain_text,
    seeds_by_conversation,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "none"
"""Sent where there is no key; servers of one's own take anything."""

RETRIES = "x-stainless-retry-count"
"""Header in which the library says how often it has tried a request before."""

LISTING_TIMEOUT_S = 30.0
MAX_MESSAGE = 300
"""Characters of a server's message that are kept."""
SHORTEST_KEY = 16
"""Characters of a real key at least; shorter ones are stand-ins such as EMPTY, which may be words of an answer."""
PROMPT_TOO_LONG = re.compile(
    r"maximum context length(?!.*(?:in|for) the completion)(?!.*requested [1-9]\d* output tokens)", re.DOTALL
)
ANSWER_TOO_LONG = re.compile(r"max_(completion_)?tokens' .*is too large", re.DOTALL)
"""How OpenAI's server and vLLM's say that a prompt has no room, and that the answer asked for has none, which is a
mistake in the settings and no outcome."""


class _Pace:
    """So many of something a minute, at even distances: each waits until those before it have had their time.

    Of wall time alone, since a call of `complete` may have an event loop of its own.
    """

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._free_s = 0.0

    async def wait(self, n: int) -> None:
        """Return when so many may begin."""
        start_s = max(time.monotonic(), self._free_s)
        self._free_s = start_s
        self.take(n)
        await asyncio.sleep(start_s - time.monotonic())

    def take(self, n: int) -> None:
        """Let those that follow wait for so many more, or fewer where it is below 0."""
        self._free_s += n * self._seconds_each


class Endpoint:
    """Asks one model of one server; used as a context manager, by connections that stay from one call to the next.

    Raises:
        BadInputError: (of `complete`) the server refuses the key, or does not know the model.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        self._api_key = os.environ.get(config.account_env) or None
        self._requests, self._tokens = _Pace(config.requests_per_minute), _Pace(config.tokens_per_minute)
        self._kept: _Connected | None = None

    def __enter__(self) -> Self:
        self._kept = self._connection()
        return self

    def __exit__(self, *_: object) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield each conversation's completions; see `plansmith.generation.Generator`.

        A completion is a request of its own, because a server has one seed for all that it draws in one.
        """
        seeds_by_conversation(seeds, len(conversations), sampling.n)
        with self._connected() as connected:
            stream = self._stream(connected.client, conversations, sampling, seeds)
            try:
                while answer := connected.runner.run(_next(stream)):
                    yield answer
            finally:
                if not connected.is_closed:  # which ends what is under way, too
                    connected.runner.run(stream.aclose())

    @contextlib.contextmanager
    def _connected(self) -> Iterator[_Connected]:
        """Give the client that is kept, or one for this call."""
        if self._kept is not None:
            yield self._kept
            return
        with contextlib.closing(self._connection()) as connected:
            yield connected

    def _connection(self) -> _Connected:
        return _Connected(_client(self.config, self._api_key, sends=self._sends))

    async def _sends(self, request: Any) -> None:  # httpx's
        """Let a request that is tried again wait for its turn, too."""
        if request.headers.get(RETRIES, "0") != "0":
            await self._requests.wait(1)

    async def _stream(
        self,
        client: AsyncOpenAI,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        seeds: Sequence[int],
    ) -> AsyncGenerator[tuple[int, list[Completion]], None]:
        running, done = set[asyncio.Task[Completion]](), set[asyncio.Task[Completion]]()
        place_of: dict[asyncio.Task[Completion], tuple[int, int]] = {}
        found, n_begun = defaultdict[int, dict[int, Completion]](dict), 0
        try:
            while n_begun < len(seeds) or running:  # there may be more after every answer
                while n_begun < len(seeds) and len(running) < self.config.concurrency:
                    number, k = divmod(n_begun, sampling.n)
                    task = asyncio.create_task(self._in_turn(client, conversations[number], sampling, seeds[n_begun]))
                    place_of[task] = (number, k)
                    running.add(task)
                    n_begun += 1
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=place_of.__getitem__):
                    number, k = place_of.pop(task)
                    found[number][k] = task.result()
                    if len(found[number]) == sampling.n:
                        group = found.pop(number)
                        yield number, [group[k] for k in range(sampling.n)]
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, *done, return_exceptions=True)  # nobody else asks for their errors

    async def _in_turn(
        self, client: AsyncOpenAI, messages: Conversation, sampling: SamplingConfig, seed: int
    ) -> Completion:
        """Return a completion, asked for when the limits a minute let it, with the seconds that it took from then."""
        n_guessed = len(plain_text(messages)) // CHARACTERS_PER_TOKEN
        await self._tokens.wait(n_guessed)
        await self._requests.wait(1)  # last: requests that waited for tokens together go out one by one
        start_s = time.monotonic()
        found = await self._completion(client, messages, sampling, seed)
        if found.prompt_tokens is not None:
            self._tokens.take(found.prompt_tokens + (found.completion_tokens or 0) - n_guessed)
        return dataclasses.replace(found, seconds=time.monotonic() - start_s)

    async def _completion(
        self, client: AsyncOpenAI, messages: Conversation, sampling: SamplingConfig, seed: int
    ) -> Completion:
        from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAIError, PermissionDeniedError

        try:
            reply = await self._ask(client, messages, sampling, seed)
        except (AuthenticationError, PermissionDeniedError, NotFoundError) as error:
            raise _refused(self.config, error, self._api_key) from None
        except ValueError as error:  # of an answer that is cut off, or no JSON
            fault = f"an answer that cannot be read: {_message(error, self._api_key)}"
            return Completion(None, "", self.config.model, seed, fault=fault)
        except OpenAIError as error:
            message = _message(error, self._api_key)
            if isinstance(error, BadRequestError) and _says_no_room(str(error)):
                return Completion("", FinishReason.NO_ROOM, self.config.model, seed, room=message)
            is_full = isinstance(error, BadRequestError) and "maximum context length" in str(error)
            fault = f"{type(error).__name__}: {message}"
            return Completion(None, FinishReason.NO_ROOM if is_full else "", self.config.model, seed, fault=fault)
        return _completion_of(reply, self.config, seed, self._api_key)

    async def _ask(self, client: AsyncOpenAI, messages: Conversation, sampling: SamplingConfig, seed: int) -> Any:
        config = self.config
        options = _options(sampling, seed, without=config.omit)
        if not config.is_chat:
            return await client.completions.create(model=config.model, prompt=plain_text(messages), **options)
        if messages[-1].role == "assistant":  # as vLLM's server and others understand it; the protocol has no word
            options["extra_body"] |= {"continue_final_message": True, "add_generation_prompt": False}
        turns: Any = [{"role": message.role, "content": message.text} for message in messages]
        return await client.chat.completions.create(model=config.model, messages=turns, **options)


class _Connected:
    """A client, and the event loop that its connections belong to."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.client = client
        self.is_closed = False

    def close(self) -> None:
        """End the connections, and every request under way."""
        self.is_closed = True
        with self.runner:
            self.runner.run(self.client.close())


def _options(sampling: SamplingConfig, seed: int, *, without: frozenset[str]) -> dict[str, Any]:
    """Return the parameters of a request; one that asks for nothing is left out, for some servers refuse what is new.

    `top_k` and stop tokens are no part of the protocol, and servers of one's own take them all the same.
    """
    said = {"temperature": sampling.temperature, "max_tokens": sampling.max_new_tokens, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in said.items() if name not in without}
    if sampling.top_p < 1:
        options["top_p"] = sampling.top_p
    if sampling.stop:
        options["stop"] = list(sampling.stop)
    more = {
        "top_k": sampling.top_k,
        "stop_token_ids": list(sampling.stop_token_ids),
        "response_format": _form(sampling),
    }
    return {**options, "extra_body": {name: value for name, value in more.items() if value}}


def _form(sampling: SamplingConfig) -> dict[str, Any]:
    """Return what an answer is made to fit, nothing for one of any form."""
    if not sampling.json_schema:
        return {}
    schema = {"name": "answer", "strict": True, "schema": json.loads(sampling.json_schema)}
    return {"type": "json_schema", "json_schema": schema}


def served_models(config: EndpointConfig) -> list[str]:
    """Return the models that a server offers, whatever model is named.

    Raises:
        BadInputError: there is no such server, it refuses the key, or it answers something else.
    """
    asked = config.model_copy(update={"model": "", "timeout_s": LISTING_TIMEOUT_S, "max_retries": 1})
    api_key = os.environ.get(config.account_env) or None

    async def names() -> list[str]:
        async with _client(asked, api_key) as client:
            return [str(model.id) async for model in client.models.list()]

    from openai import OpenAIError

    try:
        return asyncio.run(names())
    except OpenAIError as error:
        raise _refused(asked, error, api_key) from None
    except (AttributeError, TypeError, ValueError):  # of an answer that is no list of models
        raise _no_endpoint(config.url, "an answer that is no list of models") from None


async def _next(stream: AsyncGenerator[tuple[int, list[Completion]], None]) -> tuple[int, list[Completion]] | None:
    """Return the next answer, None at the end."""
    return await anext(stream, None)


def _client(
    config: EndpointConfig, api_key: str | None, *, sends: Callable[[Any], Awaitable[None]] | None = None
) -> AsyncOpenAI:
    """Return a client; ``sends`` is waited for before every request, those tried again included."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    return AsyncOpenAI(
        base_url=config.url,
        api_key=api_key or NO_KEY,
        timeout=config.timeout_s,
        max_retries=config.max_retries,
        http_client=DefaultAsyncHttpxClient(event_hooks={"request": [sends] if sends else []}),
    )


def _completion_of(reply: Any, config: EndpointConfig, seed: int, api_key: str | None) -> Completion:
    """Return the completion in a reply; a model that wrote nothing wrote an empty one."""
    choice = next(iter(getattr(reply, "choices", None) or ()), None)
    holder, name = (getattr(choice, "message", None), "content") if config.is_chat else (choice, "text")
    text = getattr(holder, name, None)
    if choice is None or not isinstance(text, str | None):
        fault = f"an answer without a completion: {_without_key(str(reply), api_key)[:MAX_MESSAGE]}"
        return Completion(None, "", config.model, seed, fault=fault)
    usage = getattr(reply, "usage", None)
    return Completion(
        text=_without_key(encodable(text or ""), api_key if api_key and len(api_key) >= SHORTEST_KEY else None),
        finish_reason=str(choice.finish_reason or ""),
        policy_version=config.model,
        seed=seed,
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
        cached_tokens=getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None),
        reasoning_tokens=getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None),
    )


def _says_no_room(message: str) -> bool:
    return bool(PROMPT_TOO_LONG.search(message)) and not ANSWER_TOO_LONG.search(message)


def _refused(config: EndpointConfig, error: Exception, api_key: str | None) -> BadInputError:
    """Return the error of a server that cannot be asked at all."""
    from openai import AuthenticationError, NotFoundError, PermissionDeniedError

    message = _message(error, api_key)
    if isinstance(error, AuthenticationError | PermissionDeniedError):
        return BadInputError(
            "the server refuses the key", where=config.url, got=message,
            expected="the key of an account that may use this model" if api_key else "a key",
            cure="set OPENAI_API_KEY, or name the variable that holds the key with --api-key-env",
        )  # fmt: skip
    if isinstance(error, NotFoundError) and config.model:
        return BadInputError(
            f"the server has no model {config.model!r}, or not at this address", where=config.url, got=message,
            cure="check --model and the address, which usually ends in /v1",
        )  # fmt: skip
    return _no_endpoint(config.url, f"{type(error).__name__}: {message}")


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

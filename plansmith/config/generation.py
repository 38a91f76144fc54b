"""Settings of generation: how answers are drawn from a model, and which server is asked where the model is not ours."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_serializer, field_validator

from plansmith.config.basics import StrictModel
from plansmith.errors import BadInputError

REPAIR_TEMPERATURE = 0.7
"""Of answers that are asked for again, unless told otherwise."""


class SamplingConfig(StrictModel):
    """How answers are drawn from a model."""

    temperature: float = Field(0.0, ge=0, le=2)
    """0 takes the likeliest token."""
    max_new_tokens: int = Field(1024, ge=1)
    """Tokens of one answer, at most; a longer one is cut, with finish reason ``length``."""
    n: int = Field(1, ge=1)
    """Answers to each prompt."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability."""
    top_k: int = Field(0, ge=0)
    """Draw from so many of the likeliest tokens; 0 draws from all."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer and are no part of it. Our own engines write on until the answer ends otherwise, and
    what follows is cut off then."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer, beside those that the model's folder names."""
    json_schema: str = ""
    """A JSON schema that a server makes an answer fit (structured outputs, of OpenAI and vLLM); empty for none. Engines
    of ours have no tokenizer for it, and are not asked so."""


class AttemptConfig(StrictModel):
    """How a policy is asked when it is measured."""

    temperature: float = Field(0.0, ge=0, le=2)
    """Of the attempts; 0 takes the likeliest token every time."""
    max_new_tokens: int = Field(1100, ge=1)
    """Longest answer; a longer one is cut, and fails."""


class EndpointModel(StrictModel):
    """Who is asked behind an endpoint, and what is not said to it: what changes the answers."""

    url: str
    """Address of an OpenAI-compatible server, such as http://localhost:8000/v1; no secret may be in it."""
    model: str
    """The model's name on that server."""
    is_chat: bool = True
    """Ask through /chat/completions; otherwise through /completions, the messages as one plain text, for models without
    a chat template."""
    omit: frozenset[Literal["temperature", "max_tokens", "seed"]] = frozenset()
    """Parameters that are not sent, because the server takes them not; it draws as it likes then."""

    @field_serializer("omit")
    def _in_order(self, omit: frozenset[str]) -> list[str]:
        return sorted(omit)  # a set of texts is in another order in each process, and keys are of what is written

    @field_validator("url")
    @classmethod
    def _has_no_secret(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise BadInputError(  # no ValueError: pydantic would quote the address
                "an address may hold no secret", where=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
                got="a name, a password or parameters in the address", expected="such as http://localhost:8000/v1",
                cure="put the key into an environment variable",
            )  # fmt: skip
        return url.rstrip("/")


class RequestConfig(StrictModel):
    """How a server is asked, whatever it answers."""

    account_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key of the account, if the server wants one; the key itself stands in no
    setting, message or log."""
    concurrency: int = Field(8, ge=1)
    """Requests under way together."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Requests that begin in a minute at most, at even distances; None sets no limit."""
    tokens_per_minute: float | None = Field(None, gt=0)
    """The same of their tokens, prompts and answers: as the server counts those before, and 4 characters for one of the
    next prompt."""
    timeout_s: float = Field(600.0, gt=0)
    """Seconds to wait for one answer."""
    max_retries: int = Field(4, ge=0)
    """Further tries of a request that met no answer, a busy server or its internal error; none where the server asks to
    wait for more than two minutes."""


class EndpointConfig(RequestConfig, EndpointModel):
    """A model behind an OpenAI-compatible server."""


class AnsweringConfig(RequestConfig):
    """Who answers that is no policy of the run: a server, or a model folder."""

    url: str = ""
    """Address of an OpenAI-compatible server, such as http://localhost:8000/v1."""
    model: str = ""
    """The model's name on that server."""
    folder: str | None = None
    """A Hugging Face model folder, or name, run by the engine built in."""

    @property
    def is_named(self) -> bool:
        """Return whether somebody is."""
        return bool(self.url or self.folder)

    @property
    def endpoint(self) -> EndpointConfig:
        """Return the server as it is asked."""
        asking = {name: getattr(self, name) for name in RequestConfig.model_fields}
        return EndpointConfig(url=self.url, model=self.model, **asking)

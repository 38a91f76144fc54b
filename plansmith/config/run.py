"""The settings that a run of any pipeline has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.cluster import ClusterConfig
from plansmith.config.telemetry import TelemetryConfig
from plansmith.config.training import ModelConfig, OptimiserConfig, PolicyConfig, TrainerConfig
from plansmith.errors import ConfigError


class RunConfig(StrictModel):
    """Everything about one run; a pipeline adds its own."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run and of its folder."""
    seed: int = Field(0, ge=0)
    """Of every random number."""
    cluster: ClusterConfig = ClusterConfig()
    """Where it runs."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """Where its figures are shown."""

    keep_weights: int | None = Field(None, ge=1)
    """Of how many iterations of a loop, the latest, the weights stay in the run's folder; those before are removed once
    no further stage reads them, while their tables stay. None keeps all. Changes no result."""

    def unread(self) -> Mapping[str, str]:
        """Return the settings, or parts of them, that no stage reads under these settings, each with the reason."""
        return {}

    def check_read(self, given: Iterable[str]) -> None:
        """Raise for a setting that was given by name and changes nothing; presets may set what they do not need.

        Raises:
            ConfigError: it names the setting and why.
        """
        for key in given:
            for unread, reason in self.unread().items():
                if key == unread or key.startswith(f"{unread}."):
                    raise ConfigError("no stage reads this setting", where=key, got=reason, cure="leave it out")


class ModelRunConfig(RunConfig):
    """Everything about one run that can train a model and lets it answer."""

    model: ModelConfig = ModelConfig()
    """What is trained."""
    trainer: TrainerConfig = TrainerConfig()
    """What trains it."""
    policy: PolicyConfig = PolicyConfig()
    """What lets it answer."""

    @model_validator(mode="after")
    def _optimizers_go_with_the_trainer(self) -> Self:
        for where, optimiser in _optimisations(dict(self)):
            if optimiser.optimizer is not None:
                try:
                    self.trainer.check_optimizer(optimiser.optimizer)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
        return self

    @property
    def is_word_level(self) -> bool:
        """Return whether the model knows the words that it was made with, and no others."""
        return self.model.folder is None and self.model.tokenizer == "words"

    def unread(self) -> dict[str, str]:
        """Return the settings, or parts of them, that no stage reads under these settings, each with the reason."""
        of_texts, of_shape = ("vocabulary_size", "has_whole_names"), set(ModelConfig.model_fields) - {"folder"}
        if self.model.folder is not None:
            return {f"model.{name}": f"model.folder={self.model.folder} has its own" for name in sorted(of_shape)}
        reason = "tokenizer=words has words of its own"
        return {f"model.{name}": reason for name in of_texts} if self.is_word_level else {}


def _optimisations(settings: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, OptimiserConfig]]:
    """Yield the optimisations among settings, each with its dotted name."""
    for name, value in settings.items():
        if isinstance(value, OptimiserConfig):
            yield where + name, value
        if isinstance(value, (StrictModel, Mapping)):
            yield from _optimisations(dict(value), f"{where}{name}.")

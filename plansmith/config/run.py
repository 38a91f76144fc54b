"""The settings that a run of any pipeline has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel
from plansmith.config.cluster import ClusterConfig
from plansmith.config.telemetry import TelemetryConfig
from plansmith.config.training import OptimiserConfig, TrainerConfig
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

    @model_validator(mode="after")
    def _optimizers_go_with_the_trainer(self) -> Self:
        trainer = getattr(self, "trainer", None)
        for where, optimiser in _optimisations(dict(self)):
            if isinstance(trainer, TrainerConfig) and optimiser.optimizer is not None:
                try:
                    trainer.check_optimizer(optimiser.optimizer)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
        return self

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


def _optimisations(settings: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, OptimiserConfig]]:
    """Yield the optimisations among settings, each with its dotted name."""
    for name, value in settings.items():
        if isinstance(value, OptimiserConfig):
            yield where + name, value
        if isinstance(value, (StrictModel, Mapping)):
            yield from _optimisations(dict(value), f"{where}{name}.")

"""A model behind an endpoint as a policy, and Ray for the planner beside it."""

from __future__ import annotations

from pathlib import Path

from actors.endpoint import Endpoint
from pipelines.run.ray_session import HasCluster, RaySession
from plansmith.config.basics import narrowed
from plansmith.config.generation import EndpointConfig, EndpointModel


class EndpointSession(RaySession):
    """Ray for the planner; who answers is a server."""

    def __init__(self, config: HasCluster, run_folder: Path, *, endpoint: EndpointConfig) -> None:
        super().__init__(config, run_folder)
        self._endpoint = endpoint

    def generator(self, policy: None, engine: EndpointModel) -> Endpoint:
        """Return the server.

        Raises:
            ValueError: a stage's key tells of another server than the session has.
        """
        if engine != narrowed(self._endpoint, EndpointModel):
            raise ValueError(f"a stage counts on {engine!r}, the session has {self._endpoint!r}")
        return self.server(self._endpoint)

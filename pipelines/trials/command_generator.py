"""Who answers a command that keeps no artifacts: a server, or the engine built in with the model of a folder."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from actors.endpoint import Endpoint
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.trials.options import endpoint_of, planner_of
from pipelines.trials.own_problems import TrialConfig
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import EndpointModel
from plansmith.config.training import EngineNumerics
from plansmith.generation import Conversation, Generator


class CommandGenerator(NamedTuple):
    """Who answers, what its answers depend on, and what it is called."""

    generator: Generator
    who: str
    name: str


@contextlib.contextmanager
def command_generator(
    arguments: argparse.Namespace, folder: FolderPolicy | None, asked: Mapping[str, Conversation], *, room: int
) -> Iterator[CommandGenerator]:
    """Give who answers, for as long as the command asks.

    Args:
        arguments: with the options of a policy, of the planner and of servers.
        folder: of the model; None: the server of `arguments` is asked.
        asked: what a folder's engine has a window for; see `engine_config`.
        room: see there.

    Raises:
        BadInputError: a conversation that fills a folder's window, or a server that cannot be asked.
    """
    if folder is None:
        config = endpoint_of(arguments)
        with Endpoint(config) as endpoint:
            yield CommandGenerator(endpoint, narrowed(config, EndpointModel).model_dump_json(), config.model)
        return
    engine = engine_config(folder, asked, room=room, dtype=arguments.dtype, n_threads=arguments.num_cpus)
    cluster = ClusterConfig(num_cpus=arguments.num_cpus)
    trial = TrialConfig(planner=planner_of(arguments), cluster=cluster, policy=engine)
    with (
        tempfile.TemporaryDirectory(prefix="plansmith-") as name,
        FolderWorkers(trial, Path(name), seed=arguments.seed) as workers,
    ):
        numerics = narrowed(engine, EngineNumerics)
        generator = workers.generator(folder, numerics)
        yield CommandGenerator(generator, f"{folder.key} {numerics.model_dump_json()}", folder.folder.name)

"""The workers of a run of Self-CriTeach, and who answers beside its policies: a server, or a model in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pipelines.commands.run import check_model
from pipelines.run.ray_session import RaySession
from pipelines.run.workers import TrainerHandle, Workers
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers
from pipelines.trials.own_problems import TrialConfig
from plansmith.config.basics import narrowed
from plansmith.config.generation import AnsweringConfig, EndpointConfig, EndpointModel
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.config.training import EngineNumerics, FolderEngine, Numerics
from plansmith.data.artifacts import Artifact
from plansmith.errors import BadInputError
from plansmith.generation import Generator
from plansmith.learning.hub import is_repository, resolve_model

DEFAULT_KEY = AnsweringConfig().account_env


def check_answering(config: SelfCriteachConfig, *, is_dry_run: bool = False) -> None:
    """Raise unless the model of a run is there, and a teacher where an arm needs one, before anything starts.

    Raises:
        BadInputError: no such model; nobody to teach, no model or key of a server.
    """
    check_model(config, is_dry_run=is_dry_run)
    if "distilled" in config.arms and not config.teacher.is_named:
        raise BadInputError("nobody to teach", where="teacher", got="no url, no folder",
                            expected="a larger model, for the arm distilled", cure=_cure("teacher"))  # fmt: skip
    for where, speaker in config.speakers.items():
        _check_named(where, speaker, is_dry_run=is_dry_run)


def _check_named(where: str, answering: AnsweringConfig, *, is_dry_run: bool) -> None:
    folder, address = answering.folder, answering.endpoint.url
    if folder is not None and answering.url:
        raise BadInputError("two who are to answer", where=where, got="url and folder", expected="one of them",
                            cure=_cure(where))  # fmt: skip
    if folder is not None:
        if not (is_dry_run and is_repository(folder)):
            FolderPolicy.read(resolve_model(folder))
    elif not answering.model:
        raise BadInputError("a server without a model", where=f"{where}.model", got="nothing",
                            expected=f"a model of {address}", cure=_cure(where))  # fmt: skip
    elif answering.account_env != DEFAULT_KEY and not os.environ.get(answering.account_env):
        raise BadInputError("no key", where=f"environment variable {answering.account_env}", got="nothing",
                            expected=f"the key of the account at {address}",
                            cure=f"set it, or leave out {where}.account_env where no key is needed")  # fmt: skip


def _cure(where: str) -> str:
    return f"--set {where}.url=URL --set {where}.model=NAME, or --set {where}.folder=FOLDER"


class AnsweringWorkers(Workers):
    """What the stages of a run share, and who else answers: servers, or models in folders.

    The engine of a folder and the run's own trainer and engines are never up together.
    """

    def __init__(self, config: SelfCriteachConfig, run_folder: Path) -> None:
        super().__init__(config, run_folder)
        self._config = config
        self._guest: FolderWorkers | None = None
        self._guest_folder = ""

    def generator(self, policy: Any, engine: Any) -> Generator:
        """Return who answers: the run's engines with a policy of the run, a folder's engine, or a server.

        Raises:
            ValueError: a stage's key tells of another server than the run has.
        """
        if isinstance(engine, EndpointModel):
            return self.server(self._endpoint(engine))
        if isinstance(engine, FolderEngine):
            return self._guest_of(engine)
        return super().generator(policy, engine)

    def load_policy(self, artifact: Artifact, numerics: EngineNumerics) -> None:
        """Let the run's engines sample from an artifact; see `Workers.load_policy`."""
        self._end_guest()
        super().load_policy(artifact, numerics)

    def trainer(self, model_folder: Path, numerics: Numerics) -> TrainerHandle:
        """Return the trainer; see `Workers.trainer`."""
        self._end_guest()
        return super().trainer(model_folder, numerics)

    def _endpoint(self, engine: EndpointModel) -> EndpointConfig:
        named = self._config.speakers.values()
        found = [one.endpoint for one in named if one.url and narrowed(one.endpoint, EndpointModel) == engine]
        if not found:
            raise ValueError(f"a stage counts on {engine!r}, the run has {named!r}")
        return found[0]

    def _guest_of(self, engine: FolderEngine) -> Generator:
        """Return the engine with the model of a folder, after letting go of what is up."""
        if self._guest is None or self._guest_folder != engine.folder:
            self._end_guest()
            self.end_actors()
            RaySession.ray(self)  # it is the run's to end; ranks would take back what they have just let go of
            config = self._config
            trial = TrialConfig(planner=config.planner, cluster=config.cluster, policy=config.policy)
            self._guest = FolderWorkers(trial, self.run_folder, seed=config.seed)
            self._guest_folder = engine.folder
        return self._guest.generator(FolderPolicy.read(resolve_model(engine.folder)), engine)

    def _end_guest(self) -> None:
        if self._guest is not None:
            self._guest.end_engines()
            self._guest = None

"""Who answers in a run of NL2Plan: a server, a model folder, a cassette, or the script, which is no model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.run.ray_session import RaySession
from pipelines.run.workers import Workers
from pipelines.stages.modelling import CALLS, references_of
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers
from pipelines.trials.own_problems import TrialConfig
from pipelines.trials.text_policy import text_policy
from plansmith.config.basics import narrowed
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import SCRATCH_FOLDER, complete_artifacts
from plansmith.data.rows import ModellingCallRow
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Conversation, Generator
from plansmith.modelling.budget import Budget, Budgeted, Cost, cost_of, estimate, steps_of, total
from plansmith.modelling.calls import CallLog
from plansmith.modelling.cassette import Cassette, Playing, Recording
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.script import SCRIPT, Script, ScriptedGenerator


def speaker_key(config: NL2PlanConfig) -> str:
    """Return what the answers of a run depend on beside the questions."""
    speaker = config.speaker
    if speaker.script:
        return f"{SCRIPT} {json.dumps(speaker.faults, sort_keys=True)}"
    if speaker.replay is not None:
        return f"cassette {Cassette.read(Path(speaker.replay)).digest}"
    if speaker.folder is not None:
        numerics = narrowed(config.policy, EngineNumerics).model_dump_json()
        return f"{text_policy(speaker.folder).key} {numerics}"
    return narrowed(speaker.endpoint, EndpointModel).model_dump_json()


def check_speaker(config: NL2PlanConfig, *, is_dry_run: bool = False) -> None:
    """Raise unless a run has somebody to ask, before anything starts.

    Raises:
        BadInputError: nobody is named.
    """
    speaker = config.speaker
    if config.lessons is None and not (speaker.url or speaker.folder or speaker.script or speaker.replay or is_dry_run):
        cure = "--set speaker.url=URL --set speaker.model=NAME, or --set speaker.folder=FOLDER"
        raise BadInputError("nobody to ask", where="speaker", got="no url, no folder, no script, no replay", cure=cure)


def spent_in(run_folder: Path) -> Cost:
    """Return what the calls of a run have cost by now, those of unfinished stages with them."""
    root = run_folder / "artifacts"
    rows = [
        row for artifact in complete_artifacts(root) if f"{CALLS}.parquet" in artifact.manifest.files
        for row in artifact.rows(ModellingCallRow, CALLS)
    ]  # fmt: skip
    finished = total(Cost(1, (row.prompt_tokens or 0) + (row.completion_tokens or 0)) for row in rows)
    logs = sorted(root.glob(f"*.partial/{SCRATCH_FOLDER}/*.jsonl"))
    return finished + total(cost_of(CallLog.open(path).calls) for path in logs)


def cost_estimate(config: NL2PlanConfig) -> str:
    """Return what a run would cost if nothing had to be mended, for people."""
    if config.lessons is not None:
        return "nobody is asked but the model that the run trains: nothing is paid for"
    references, seen = references_of(config.tasks.folder, config.tasks.domains), set[str]()
    found = list[Cost]()
    plain = config.modelling.model_copy(update={"feedback": "none"})
    passes = [config.modelling] * (config.drafts + config.unchecked) + [plain] * config.unadvised
    for own in references:
        is_whole = own.domain not in seen or not config.tasks.shares_domain
        for modelling in passes:
            costs = estimate(own.text, modelling, own)
            found.append(steps_of(costs) if is_whole else costs[DialogueStep.TASK])
        found += [costs[DialogueStep.ZERO_SHOT]] if config.zero_shot else []
        found += [costs[DialogueStep.ONE_CALL]] if config.one_call else []
        seen.add(own.domain)
    cost = total(found)
    return (
        f"estimate, if nothing had to be mended and the models were the references: {cost.calls} calls, about "
        f"{cost.tokens} tokens (4 characters each)"
    )


def speaking_session(config: NL2PlanConfig, run_folder: Path) -> SpeakingSession | Workers:
    """Return the session of a run: that of a speaker, or of a run that trains its own."""
    return SpeakingSession(config, run_folder) if config.lessons is None else Workers(config, run_folder)


class SpeakingSession(RaySession):
    """The session of a run of NL2Plan; Ray is started for a model folder's engine alone."""

    def __init__(self, config: NL2PlanConfig, run_folder: Path) -> None:
        super().__init__(config, run_folder)
        self._config = config
        self._generator: Generator | None = None

    def generator(self, policy: None, engine: str) -> Generator:
        """Return who answers.

        Raises:
            ValueError: a stage's key tells of another speaker than the session has.
        """
        if engine != speaker_key(self._config):
            raise ValueError(f"a stage counts on {engine!r}, the session has {self._config.speaker!r}")
        if self._generator is None:
            speaker, spent = self._config.speaker, spent_in(self.run_folder)
            budget = Budget(speaker.max_calls, speaker.max_tokens, spent, speaker.concurrency)
            self._generator = Budgeted(self._opened(), budget)
            if speaker.record is not None:  # what is on the cassette is paid for
                self._generator = Recording(self._generator, Cassette.begin(Path(speaker.record), self._model))
        return self._generator

    @property
    def _model(self) -> str:
        """Return the name of who answers, for the label of a cassette."""
        speaker = self._config.speaker
        return SCRIPT if speaker.script else speaker.model or Path(speaker.folder or "").name

    def _opened(self) -> Generator:
        config, speaker = self._config, self._config.speaker
        if speaker.script:
            references = references_of(config.tasks.folder, config.tasks.domains)
            return ScriptedGenerator(Script(references, speaker.faults))
        if speaker.replay is not None:
            return Playing(Cassette.read(Path(speaker.replay)))
        if speaker.folder is None:
            return self.server(speaker.endpoint)
        trial = TrialConfig(planner=config.planner, cluster=config.cluster, policy=config.policy)
        workers = self._open.enter_context(FolderWorkers(trial, self.run_folder, seed=config.seed))
        return _FolderSpeaker(workers, text_policy(speaker.folder), narrowed(config.policy, EngineNumerics))


@dataclass(frozen=True)
class _FolderSpeaker:
    """The engines of a model folder, new ones where those before them were lost."""

    workers: FolderWorkers
    policy: FolderPolicy
    engine: EngineNumerics

    def complete(self, conversations: Sequence[Conversation], sampling: SamplingConfig, **told: Any) -> Answers:
        """Complete conversations; see `plansmith.generation.Generator`."""
        return self.workers.generator(self.policy, self.engine).complete(conversations, sampling, **told)

"""Who answers in a run of NL2Plan: a server, a model folder, a cassette, or the script, which is no model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.run.ray_session import RaySession
from pipelines.run.workers import Workers
from pipelines.stages.modelling import references_digest, references_of
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers
from pipelines.trials.own_problems import TrialConfig
from pipelines.trials.text_policy import text_policy
from plansmith.code_digest import code_of
from plansmith.config.basics import narrowed
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.config.training import EngineNumerics
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Conversation, Generator
from plansmith.modelling import folder as files
from plansmith.modelling.budget import Budget, Budgeted, Cost, cost_of, estimate, most_calls, steps_of, total
from plansmith.modelling.calls import CallLog
from plansmith.modelling.cassette import Cassette, Playing, Recording
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.script import SCRIPT, Script, ScriptedGenerator
from plansmith.pddl.parser import parse_domain


def speaker_key(config: NL2PlanConfig) -> str:
    """Return what the answers of a run depend on beside the questions."""
    speaker = config.speaker
    if speaker.script:  # its answers are another script's, and other references', once these change
        known = references_digest(references_of(config.tasks.folder, config.tasks.domains))
        made_of = json.dumps([speaker.faults, known, code_of(ScriptedGenerator)], sort_keys=True)
        return f"{SCRIPT} {hashlib.sha256(made_of.encode()).hexdigest()}"
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
    """Return what the calls of a run have cost by now."""
    return cost_of(CallLog.open(run_folder / "artifacts" / files.CALLS).calls)


def cost_estimate(config: NL2PlanConfig) -> str:
    """Return what a run would cost if nothing had to be mended, and its calls at most, for people."""
    if config.lessons is not None:
        return "nobody is asked but the model that the run trains: nothing is paid for"
    references = references_of(config.tasks.folder, config.tasks.domains)
    seen, found, most = set[str](), list[Cost](), 0
    taken = [*[config.modelling] * config.drafts, *config.lacking.values()]
    straight = [DialogueStep.ZERO_SHOT] * config.zero_shot + [DialogueStep.ONE_CALL] * config.one_call
    for own in references:
        has_domain = own.domain in seen and config.tasks.shares_domain
        costs, n_actions = estimate(own.text, config.modelling, own), len(parse_domain(own.domain_pddl).actions)
        found += [costs[DialogueStep.TASK] if has_domain else steps_of(costs)] * config.drafts
        found += [costs[step] for step in straight]  # steps with something left out ask nothing that the others do not
        most += sum(most_calls(each, n_actions, has_domain=has_domain) for each in taken) + len(straight)
        seen.add(own.domain)
    cost = total(found)
    return (
        f"estimate, if nothing had to be mended and the models were the references: {cost.calls} calls, about "
        f"{cost.tokens} tokens (4 characters each); {most} calls at most, however much has to be"
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
                cassette = Cassette.begin(Path(speaker.record), self._model, n_answered=spent.calls)
                self._generator = Recording(self._generator, cassette)
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

"""Policies of no run at writing the problems of texts: a model folder, or a model behind an endpoint."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.run.ray_session import RaySession
from pipelines.stages.generating import check_failures
from pipelines.stages.graph import Graph
from pipelines.trials.endpoint_policy import EndpointSession
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.trials.options import (
    answer_room,
    endpoint_of,
    is_address,
    planner_of,
    repair_temperature_of,
    repair_turns_of,
    sampling_of,
)
from pipelines.trials.own_problems import TrialConfig, some
from pipelines.trials.own_texts import (
    GivenRepairSettings,
    GivenTrialSettings,
    OwnTexts,
    TextTrial,
    read_own_texts,
    text_stages,
    trial_stages,
)
from pipelines.trials.text_output import TextEvaluation
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.formalisation import FormalisationConfig, JudgingConfig
from plansmith.config.generation import EndpointConfig, EndpointModel
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import KEY_DIGITS, Artifact
from plansmith.data.rows import FAILURES, USAGE, FailedRequestRow, Split, TextRow, UsageRow
from plansmith.errors import BadInputError
from plansmith.generation import asking
from plansmith.learning.hub import resolve_model
from plansmith.learning.model_folder import is_from_nothing
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.formalisation_arms import text_arms

Answering = EndpointConfig | FolderPolicy
"""Who answers."""


def text_policy(policy: str) -> FolderPolicy:
    """Return the policy in a folder, or of the hub.

    Raises:
        BadInputError: no model there, or one that cannot read texts.
    """
    folder = FolderPolicy.read(resolve_model(policy))
    if folder.is_word_level:
        raise BadInputError(
            "a model that cannot read texts", where=policy, got="a tokenizer that knows the words of its runs alone",
            expected="one that reads any text", cure="train with model.tokenizer=bpe, as nl_pddl_bench does",
        )  # fmt: skip
    return folder


def prompts_of(arguments: argparse.Namespace, folder: FolderPolicy | None) -> FormalisationConfig:
    """Return how prompts are written: as asked for, else as `nl_pddl_bench` trains such a model by its presets."""
    is_marked = folder is not None and is_from_nothing(folder.tokenizer)
    return FormalisationConfig(
        detail=arguments.detail or ("name" if is_marked else "summary"),
        rendering=arguments.rendering or ("compact" if is_marked else "full"),
    )


def evaluate_texts(arguments: argparse.Namespace) -> TextEvaluation:
    """Return what a policy writes of texts, and what it is worth; what is already done is read, not done again.

    The texts come first: an engine is started for the longest of those whose reference has a plan.

    Raises:
        BadInputError: nothing that can be asked, or nobody to ask.
        PlansmithError: too many requests failed.
    """
    who = endpoint_of(arguments) if is_address(arguments.policy) else text_policy(arguments.policy)
    texts = prompts_of(arguments, who if isinstance(who, FolderPolicy) else None)
    config = TrialConfig(planner=planner_of(arguments), cluster=ClusterConfig(num_cpus=arguments.num_cpus))
    own, graph = read_own_texts(arguments, texts, config.planner), Graph(arguments.seed)
    data = text_stages(graph, own, config.planner)
    with RaySession(config, arguments.store) as planning:
        said = planning.run(graph.stages, root=arguments.store)[data["texts"].name].rows(TextRow)
        unsolved = _without_a_plan(own, said)
        with _answering(who, arguments, config, said) as (session, engine):
            trial_stages(graph, data, _trial(who, arguments, texts, engine))
            artifacts = session.run(graph.stages, root=arguments.store)
    return _evaluation(who, arguments, texts, artifacts, unsolved)


def _without_a_plan(own: OwnTexts, said: Sequence[TextRow]) -> list[str]:
    """Return the problems that are not asked for, since no plan of theirs was found.

    Raises:
        BadInputError: there are no others.
    """
    solved = {row.problem_id for row in said}
    unsolved = [row.problem_id for row in own.problems if row.problem_id not in solved]
    if not solved:
        raise BadInputError("nothing to ask for", got=f"no plan of {some(unsolved)}",
                            expected="a reference for which the planner finds a plan",
                            cure="give other problems or more --planner-time-s")  # fmt: skip
    return unsolved


@contextlib.contextmanager
def _answering(
    who: Answering, arguments: argparse.Namespace, config: TrialConfig, said: Sequence[TextRow]
) -> Iterator[tuple[RaySession, EngineNumerics | EndpointModel]]:
    """Give what lends a policy to stages, and what draws its answers; a folder's engine has room for every text.

    Raises:
        BadInputError: a text that fills a folder's window.
    """
    if isinstance(who, EndpointConfig):
        with EndpointSession(config, arguments.store, endpoint=who) as session:
            yield session, narrowed(who, EndpointModel)
        return
    asked, n_cpus = {row.problem_id: asking(row.prompt) for row in said}, arguments.num_cpus
    engine = engine_config(who, asked, room=answer_room(arguments), dtype=arguments.dtype, n_threads=n_cpus)
    settings = config.model_copy(update={"policy": engine})
    with FolderWorkers(settings, arguments.store, seed=arguments.seed) as workers:
        yield workers, narrowed(engine, EngineNumerics)


def _trial(
    who: Answering, arguments: argparse.Namespace, texts: FormalisationConfig, engine: EngineNumerics | EndpointModel
) -> TextTrial:
    policy = who if isinstance(who, FolderPolicy) else None
    shared: dict[str, Any] = {
        "sampling": sampling_of(arguments),
        "engine": engine,
        "prompting": texts.rendering,
        "max_failed_share": arguments.max_unjudged_share,
        "policy": policy.key if policy else "",
    }
    judging = JudgingConfig(planner=planner_of(arguments), checks=arguments.checks or "planner")
    turns = repair_turns_of(arguments)
    again = {**shared, "sampling": sampling_of(arguments, is_repair=True)}
    repair = GivenRepairSettings(turns=turns, feedback="validator", texts=texts, judging=judging, **again)
    return TextTrial(GivenTrialSettings(split=Split.TEST, **shared), repair, policy)


def _evaluation(
    who: Answering,
    arguments: argparse.Namespace,
    texts: FormalisationConfig,
    artifacts: Mapping[str, Artifact],
    unsolved: Sequence[str],
) -> TextEvaluation:
    """Return what the stages left.

    Raises:
        PlansmithError: too many requests failed.
    """
    arm, failures = text_arms(RunSoFar("", None, "", artifacts))[-1], list[FailedRequestRow]()
    if isinstance(who, EndpointConfig):
        usage = artifacts["try_texts"].rows(UsageRow, USAGE)
        failures = artifacts["try_texts"].rows(FailedRequestRow, FAILURES)
        check_failures(failures, len(usage) + len(failures), arguments.max_unjudged_share, where=who.url)
        name, told = who.model, {"policy_version": who.model, "url": who.url}
    else:
        name = who.folder.name if Path(arguments.policy).exists() else arguments.policy
        told = {"policy_version": who.key[:KEY_DIGITS]}
    key = arm.source.artifact.key[:KEY_DIGITS]
    return TextEvaluation(
        arm=arm,
        n_turns=repair_turns_of(arguments),
        head={"policy": name, **told, **_asked(arguments), **texts.model_dump(include={"rendering", "detail"})},
        default_out=arguments.store / f"{name.replace('/', '-')}-{key}.json",
        without_a_plan=unsolved,
        failures={row.problem_id: row.fault for row in failures},
    )


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the JSON says of texts and answers."""
    names = ("seed", "domain", "problems", "texts", "planbench", "temperature", "max_new_tokens")
    values = {name: getattr(arguments, name) for name in names}
    said = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    again = {"repair_turns": repair_turns_of(arguments), "repair_temperature": repair_temperature_of(arguments)}
    return {**said, **again}

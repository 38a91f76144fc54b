"""Who answers the questions of NL2Plan's steps for a command, and the options that say so."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from pipelines.trials.command_generator import CommandGenerator, command_generator
from pipelines.trials.folder_policy import FolderPolicy
from pipelines.trials.options import (
    LEAST,
    add_endpoint_options,
    add_policy_options,
    check_least,
    is_address,
    sampling_of,
)
from plansmith.config.loading import build_model
from plansmith.config.modelling import ModellingConfig
from plansmith.errors import ConfigError
from plansmith.generation import asking
from plansmith.modelling import folder as files
from plansmith.modelling.budget import Budget, Budgeted, cost_of
from plansmith.modelling.calls import CallLog
from plansmith.modelling.cassette import Cassette, Playing, Recording
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.speaking import Person, Speaker

WINDOW = 8192
"""Tokens that an engine has for what follows the first prompt, beside an answer and its correction."""


def add_modelling_options(parser: argparse.ArgumentParser) -> None:
    """Add how the steps are gone through, how a policy answers, and what planner and engine may take."""
    add, defaults = parser.add_argument, ModellingConfig()
    add("--feedback", choices=("model", "person", "none"), default=defaults.feedback, help="who criticises each "
        "answer, once: the model itself (default), you, or nobody")  # fmt: skip
    add("--checks", choices=("paper", "ours"), default=defaults.checks, help="whose validation (default: ours, which "
        "allows forall in effects)")  # fmt: skip
    add("--answers", choices=("markdown", "json"), default=defaults.answers, help="what the model writes: headings "
        "with lists and code (default), or JSON, whose schema the server enforces")  # fmt: skip
    add("--passes", type=int, default=defaults.passes, metavar="N", help="how often all actions are written "
        f"(default: {defaults.passes})")  # fmt: skip
    add("--max-error-messages", type=int, default=defaults.max_error_messages, metavar="N", help="about one action, at "
        f"most (default: {defaults.max_error_messages})")  # fmt: skip
    add("--max-validations", type=int, default=defaults.max_validations, metavar="N", help="of the problem, at most "
        f"(default: {defaults.max_validations})")  # fmt: skip
    add("--planner-feedback", type=int, default=defaults.planner_feedback, metavar="N", help="how often a model "
        f"without a plan goes back with what stands in its way (default: {defaults.planner_feedback})")  # fmt: skip
    add("--max-calls", type=int, metavar="N", help="end, once the folder's calls are so many; the same command with "
        "more goes on")  # fmt: skip
    add("--max-tokens", type=int, metavar="N", help="the same of tokens, questions and answers together, as who "
        "answers counts them; the answer that passes it is kept")  # fmt: skip
    add_policy_options(parser.add_argument_group("answers, planner and engine"))
    add_endpoint_options(parser.add_argument_group("with --policy URL"))


def modelling_config(arguments: argparse.Namespace) -> ModellingConfig:
    """Return the settings of the steps that a command line asks for."""
    policy = arguments.policy
    if arguments.answers == "json" and policy is not None and not is_address(policy):
        raise ConfigError("the engine built in enforces no JSON", got=f"--answers json --policy {policy}",
                          cure="serve the folder, by vllm serve, and name its address")  # fmt: skip
    check_least(arguments, {**LEAST, "passes": 1, "max_error_messages": 0, "max_validations": 1,
                            "max_calls": 0, "max_tokens": 0, "planner_feedback": 0})  # fmt: skip
    names = ("answers", "checks", "max_error_messages", "max_validations", "feedback", "passes", "planner_feedback")
    told = {name: getattr(arguments, name) for name in names} | {"grows": getattr(arguments, "grow", False)}
    return build_model(ModellingConfig, told, where="the command line")


def check_who(arguments: argparse.Namespace) -> None:
    """Raise where it is not said who answers, or said twice.

    Raises:
        ConfigError: neither `--policy` nor `--replay`, or both, or `--record` with `--replay`.
    """
    given = [f"--{name}" for name in ("policy", "record", "replay") if getattr(arguments, name) is not None]
    if given not in (["--policy"], ["--policy", "--record"], ["--replay"]):
        raise ConfigError("who answers?", got=" and ".join(given) or "nobody", expected="--policy FOLDER_OR_URL, with "
                          "--record FILE if you like, or --replay FILE", cure="name one")  # fmt: skip


@contextlib.contextmanager
def speaking(
    arguments: argparse.Namespace, folder: FolderPolicy | None, text: str, log: CallLog, person: Person
) -> Iterator[Speaker]:
    """Give who is asked about a text: a model, and where feedback is a person's, a person."""
    budget = Budget(arguments.max_calls, arguments.max_tokens, cost_of(log.calls))
    with _answering(arguments, folder, text) as (generator, who, name):
        generator = Budgeted(generator, budget)
        if arguments.record is not None:
            generator = Recording(generator, Cassette.begin(arguments.record, name, n_answered=len(log.calls)))
        yield Speaker(
            generator, sampling_of(arguments), arguments.seed, who, lambda _task: log, arguments.feedback, person
        )


@contextlib.contextmanager
def _answering(arguments: argparse.Namespace, folder: FolderPolicy | None, text: str) -> Iterator[CommandGenerator]:
    """Give who answers.

    Raises:
        BadInputError: a text that fills a folder's window, or a server that cannot be asked.
    """
    if arguments.replay is not None:
        cassette = Cassette.read(arguments.replay)
        yield CommandGenerator(Playing(cassette), f"cassette {cassette.digest}", cassette.label.model)
        return
    where = str(getattr(arguments, "text", files.TEXT))
    asked = {where: asking(step_prompt("worked", "types", text=text))}
    with command_generator(arguments, folder, asked, room=WINDOW + 2 * arguments.max_new_tokens) as answering:
        yield answering

"""The command line of `plansmith evaluate`, and the options that every command has which asks a policy of no run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.endpoint import served_models
from plansmith.config.basics import checked_name
from plansmith.config.generation import REPAIR_TEMPERATURE, EndpointConfig, SamplingConfig
from plansmith.config.loading import build_model
from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, ConfigError

PROMPTINGS = ("full", "compact", "zero_shot", "chain_of_thought", "narrated")
TEXT_RENDERINGS = ("full", "compact")
KEY_VARIABLE = "OPENAI_API_KEY"
REPAIR_TURNS = 5
"""T_max of NL-PDDL-Bench."""
FEEDBACK_TOKENS = 1024
"""Room in an engine's window for what a repair says beside text and answer; what does not fit is an empty answer."""
OF_TEXTS = ("texts", "planbench", "repair_turns", "repair_temperature", "detail", "checks")
"""Options that go with `--formalise`."""
LEAST = {"max_new_tokens": 1, "max_retries": 0, "num_cpus": 1, "planner_time_s": 0, "seed": 0, "temperature": 0,
         "timeout_s": 0}  # fmt: skip
"""The smallest values of the options that commands share."""
EXAMPLES = """examples:
  plansmith evaluate runs/pddl_instruct-demo
      the stored figures of the run's last policy on its test problems
  plansmith evaluate runs/pddl_instruct-demo --arm phase1 --problems my-problems --show 3
      an arm of a run on problems of your own
  plansmith evaluate --policy my-model --domain domain.pddl --problems my-problems
      a model folder, tried by the engine built in
  plansmith evaluate --policy http://localhost:8000/v1 --rendering zero_shot --domain domain.pddl --problems my-problems
      a model behind an OpenAI-compatible server
  plansmith evaluate --formalise --policy my-model --domain domain.pddl --problems my-problems --texts my-texts
      the same models at writing the problems of texts: my-texts/NAME.txt says what my-problems/NAME.pddl is

docs/evaluation.md says what every column means, docs/formalisation.md those of --formalise."""


def evaluation_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="plansmith evaluate",
        usage="plansmith evaluate RUN [--arm ARM] [--problems DIR] [options]\n"
        "       plansmith evaluate --policy FOLDER_OR_URL --domain D.pddl --problems DIR [options]\n"
        "       plansmith evaluate --formalise --policy FOLDER_OR_URL --domain D.pddl --problems DIR [--texts DIR] "
        "[options]\n"
        "       plansmith evaluate --formalise --policy FOLDER_OR_URL --planbench DIR [options]",
        description="Show what a policy reached, or let it try problems of your own and judge its plans, or the "
        "problems that it writes of texts.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("run", type=Path, nargs="?", metavar="RUN", help="a run folder, such as runs/pddl_instruct-demo")
    add("--arm", help="of the run: untrained, phase1, iteration_1, ..., or final (default)")
    add("--policy", metavar="FOLDER_OR_URL", help="instead of a run: a Hugging Face model folder, or the address of an "
        "OpenAI-compatible server, such as http://localhost:8000/v1")  # fmt: skip
    add("--domain", type=Path, metavar="D.pddl", help="the domain of the problems; with --policy")
    add("--problems", type=Path, metavar="DIR", help="PDDL problems to try, a file each; a run without this shows its "
        "stored figures on its test problems")  # fmt: skip
    add("--out", type=Path, metavar="FILE.json", help="where to write figures and attempts as JSON; problems of your "
        "own have a default under RUN/evaluations, or --store")  # fmt: skip
    add("--show", type=int, default=0, metavar="N", help="print so many failed attempts step by step")
    _add_trial_options(parser.add_argument_group("with --policy"))
    _add_text_options(parser.add_argument_group("with --formalise"))
    endpoint = parser.add_argument_group("with --policy URL")
    add_endpoint_options(endpoint)
    add = endpoint.add_argument
    add("--concurrency", type=int, default=8, metavar="N", help="requests under way together (default: 8)")
    add("--max-unjudged-share", type=float, default=0.1, metavar="SHARE", help="end with an error when more requests "
        "than this failed (default: 0.1)")  # fmt: skip
    return parser


def _add_trial_options(group: Any) -> None:
    add = group.add_argument
    add("--rendering", choices=PROMPTINGS, help="how the policy is asked: full and compact are what runs train on; "
        "zero_shot asks for the plan alone, chain_of_thought for free reasoning and a plan, narrated as policies are "
        "that were tuned on narrations; default: compact for a "
        "word-level model, and with --formalise for one from nothing, else full")  # fmt: skip
    add_policy_options(group)
    add("--no-planner", action="store_true", help="try every problem, without a planner's plan beside the policy's")
    add("--store", type=Path, default=Path("runs/evaluations"), metavar="DIR", help="where attempts are kept, so that "
        "the same command again costs nothing (default: runs/evaluations)")  # fmt: skip
    add("--object-names", nargs="+", type=_object_name, default=(), metavar="NAME", help="for a word-level model "
        "folder: the names it was trained to call objects by, which objects with other names get; with --formalise, of "
        "all objects of the texts that are written")  # fmt: skip


def _object_name(text: str) -> str:
    try:
        return checked_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_text_options(group: Any) -> None:
    add = group.add_argument
    add("--formalise", action="store_true", help="let the policy write the PDDL of texts, and compare it with the "
        "problems")  # fmt: skip
    add("--texts", type=Path, metavar="DIR", help="NAME.txt for each NAME.pddl; without it texts are written, for "
        "which --domain is of the library or lies beside a phrases.yaml")  # fmt: skip
    add("--planbench", type=Path, metavar="DIR", help="instead of domain and problems: the texts of PlanBench in its "
        "folder plan-bench, or in one of its prompts/NAME")  # fmt: skip
    add_repair_options(group)


def add_repair_options(group: Any) -> None:
    """Add how often answers to texts are handed back and what for, and what the policy is told of the domain."""
    add = group.add_argument
    add("--repair-turns", type=int, metavar="N", help="how often a failed answer is handed back, at most "
        f"(default: {REPAIR_TURNS})")  # fmt: skip
    add("--repair-temperature", type=float, metavar="T", help="of the further answers (default: "
        f"{REPAIR_TEMPERATURE}); at 0 a policy that keeps its mistake once keeps it to the end")  # fmt: skip
    add("--checks", choices=("planner", "coverage"), help="what answers are handed back for: planner: they cannot be "
        "read or have no plan (default); coverage: also names that only the text has, or only the problem")  # fmt: skip
    add("--detail", choices=("name", "summary", "pddl"), help="what the prompt says of the domain: its name, its "
        "types, predicates and actions, or all of it; default: name for one from nothing, else summary")  # fmt: skip


def add_policy_options(group: Any) -> None:
    """Add how a policy answers, and what planner and engine may take."""
    add = group.add_argument
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, is greedy")
    add("--max-new-tokens", type=int, default=2048, metavar="N", help="length of an answer, at most (default: 2048)")
    add("--seed", type=int, default=0, metavar="N", help="of the answers")
    add("--planner-search", default="first", metavar="SEARCH", help="first, lama-first, good or optimal "
        "(default: %(default)s)")  # fmt: skip
    add("--planner-time-s", type=float, default=30.0, metavar="S", help="CPU seconds for each problem (default: 30)")
    add("--num-cpus", type=int, default=2, metavar="N", help="cores for planner and engine (default: 2)")
    add("--dtype", choices=("float32", "bfloat16", "float16"), help="of a model folder's weights; default: bfloat16 on "
        "a GPU, float32 on a CPU")  # fmt: skip


def add_endpoint_options(group: Any) -> None:
    """Add which model of a server is asked, and how; see `endpoint_of`."""
    add = group.add_argument
    add("--model", metavar="NAME", help="default: the only one the server has")
    add("--api-key-env", metavar="NAME", help=f"environment variable with the key (default: {KEY_VARIABLE})")
    add("--completions", action="store_true", help="send the prompt as plain text, for models without a chat template")
    add("--omit", action="append", default=[], choices=("temperature", "seed", "max_tokens"),
        help="leave a parameter to the server, where a hosted model refuses it; may be repeated")  # fmt: skip
    add("--requests-per-minute", type=float, metavar="N", help="requests that begin in a minute at most")
    add("--tokens-per-minute", type=float, metavar="N", help="the same of their tokens, prompts and answers")
    add("--timeout-s", type=float, default=600.0, metavar="S", help="for one answer (default: 600)")
    add("--max-retries", type=int, default=4, metavar="N", help="of a request that failed (default: 4)")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise for what does not go together, before anything is read."""
    check_target(arguments, "out", "the JSON file")
    if arguments.policy is None and arguments.domain is not None:
        raise ConfigError("--domain goes with --policy", got="a run, whose domain is known", cure="leave it out")
    if arguments.policy is None:
        _check_run_alone(arguments)
    _check_formalising(arguments)
    if arguments.policy is not None:
        lacking = [name for name in ("domain", "problems") if getattr(arguments, name) is None]
        if lacking and arguments.planbench is None:
            raise ConfigError("--policy tries problems of your own", got=f"no --{' and no --'.join(lacking)}",
                              expected="--domain D.pddl --problems DIR")  # fmt: skip
        if arguments.arm is not None:
            raise ConfigError("--arm goes with a run", got=f"--arm {arguments.arm}", cure="leave it out")
    check_least(arguments, {**LEAST, "concurrency": 1, "max_unjudged_share": 0, "repair_turns": 0, "show": 0})


def _check_run_alone(arguments: argparse.Namespace) -> None:
    """Raise for an option of other policies: a run tries problems as it tried its own."""
    of_runs = {"run", "arm", "problems", "out", "show", "formalise", *OF_TEXTS}
    defaults = vars(evaluation_parser().parse_args([]))
    given = [name for name in defaults if name not in of_runs and getattr(arguments, name) != defaults[name]]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"{option} goes with --policy", got="a run, which has its own settings", cure="leave it out")


def _check_formalising(arguments: argparse.Namespace) -> None:
    """Raise for what does not go together with `--formalise`, or without it."""
    given = {name for name in OF_TEXTS if getattr(arguments, name) is not None}
    if not arguments.formalise:
        if given:
            raise ConfigError(f"--{min(given).replace('_', '-')} goes with --formalise", got="no --formalise",
                              cure="add --formalise")  # fmt: skip
        return
    if arguments.policy is None:
        raise ConfigError("--formalise goes with --policy", got="a run, whose own figures are shown",
                          cure="leave it out, or give the folder of a policy: --policy DIR")  # fmt: skip
    own = [name for name in ("domain", "problems", "texts") if getattr(arguments, name) is not None]
    if own and arguments.planbench is not None:
        raise ConfigError("--planbench has domains, problems and texts of its own",
                          got=f"--{' and --'.join(own)}", cure="leave it out")  # fmt: skip
    if arguments.rendering not in (None, *TEXT_RENDERINGS):
        raise ConfigError("no rendering of texts", got=f"--rendering {arguments.rendering}",
                          expected=" or ".join(TEXT_RENDERINGS))  # fmt: skip
    if arguments.no_planner:
        raise ConfigError("--formalise needs a planner", got="--no-planner",
                          expected="a planner, which says whether what was written has a plan",
                          cure="leave it out")  # fmt: skip
    if arguments.object_names and own != ["domain", "problems"]:
        raise ConfigError("--object-names are for texts that are written", got="texts that are there",
                          cure="leave it out")  # fmt: skip


def check_least(arguments: argparse.Namespace, least_of: Mapping[str, int]) -> None:
    """Raise for a number that is too small; None is one that was not given."""
    for name, least in least_of.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name.replace('_', '-')} is too small", got=str(value),
                              expected=f"{least} at least")  # fmt: skip


def check_target(arguments: argparse.Namespace, name: str, what: str) -> None:
    """Raise where an option names a file that cannot be made, before anything is worked at."""
    path = getattr(arguments, name)
    if path is not None and not path.absolute().parent.is_dir():
        raise BadInputError(f"no folder for {what}", where=str(path), cure=f"make it, or change --{name}")
    if path is not None and path.is_dir():
        raise BadInputError(f"no name of a file for {what}", where=str(path), got="a folder", cure=f"change --{name}")


def is_address(policy: str) -> bool:
    """Return whether a policy is named by the address of a server, else it is a folder or of the hub."""
    return policy.startswith(("http://", "https://"))


def sampling_of(arguments: argparse.Namespace, *, is_repair: bool = False) -> SamplingConfig:
    """Return how the policy's answers are to be drawn, the first ones or those that are asked for again."""
    temperature = repair_temperature_of(arguments) if is_repair else arguments.temperature
    drawn = {"temperature": temperature, "max_new_tokens": arguments.max_new_tokens}
    where = "the command line, --repair-temperature" if is_repair else "the command line"
    return build_model(SamplingConfig, drawn, where=where)


def repair_temperature_of(arguments: argparse.Namespace) -> float:
    """Return the temperature of answers that are asked for again."""
    return REPAIR_TEMPERATURE if arguments.repair_temperature is None else float(arguments.repair_temperature)


def repair_turns_of(arguments: argparse.Namespace) -> int:
    """Return how often an answer to a text is to be handed back, at most."""
    return REPAIR_TURNS if arguments.repair_turns is None else int(arguments.repair_turns)


def answer_room(arguments: argparse.Namespace) -> int:
    """Return the tokens that follow the prompt of a text: an answer, or one with feedback on it and the next."""
    room = int(arguments.max_new_tokens)
    return room + FEEDBACK_TOKENS + room if repair_turns_of(arguments) else room


def planner_of(arguments: argparse.Namespace) -> PlannerConfig:
    """Return the planner that is to be asked."""
    limit_s = arguments.planner_time_s
    asked = {"search": arguments.planner_search, "time_limit_s": limit_s, "kill_after_s": limit_s + 10}
    return build_model(PlannerConfig, asked, where="the command line")


def endpoint_of(arguments: argparse.Namespace) -> EndpointConfig:
    """Return the endpoint that is to be asked; a model is looked for when none is named.

    Raises:
        BadInputError: no key where one was named, no server, or a choice of models.
    """
    if arguments.api_key_env and not os.environ.get(arguments.api_key_env):
        raise BadInputError("no key", where=f"environment variable {arguments.api_key_env}", got="nothing",
                            cure="set it, or leave out --api-key-env for a server that needs no key")  # fmt: skip
    asked = ("concurrency", "requests_per_minute", "tokens_per_minute", "timeout_s", "max_retries")
    given = {
        "url": arguments.policy,
        "model": arguments.model or "",
        "is_chat": not arguments.completions,
        "omit": frozenset(arguments.omit),
        "account_env": arguments.api_key_env or KEY_VARIABLE,
        **{name: getattr(arguments, name) for name in asked},
    }
    config = build_model(EndpointConfig, given, where="the command line")
    if config.model:
        return config
    models = served_models(config)
    if len(models) != 1:
        raise BadInputError("which model?", where=config.url, got=f"{len(models)} models: {', '.join(models[:20])}",
                            expected="one", cure="name it: --model NAME")  # fmt: skip
    return config.model_copy(update={"model": models[0]})

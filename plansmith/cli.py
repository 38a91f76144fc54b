"""The `plansmith` command. Pipelines and `evaluate` are entry points, so that the library knows none of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from plansmith import __version__
from plansmith.commands import compare, diagnose, doctor, domains, mcp, model, plan, problems, validate, watch
from plansmith.console import exit_code_of, set_up_logging
from plansmith.garbage import no_garbage
from plansmith.pipeline import RunRecord, find_pipeline, pipeline_names

COMMANDS = "plansmith.commands"

DELEGATED = {
    "evaluate": "let the policy of a run try problems, and judge its plans",
    "ablate": "run every arm of a paper's ablation, and print its tables",
    "formalise": "let a policy write the PDDL problem of a text, and mend it until it has a plan",
    "nl2plan": "let a policy model a text in types, actions and PDDL, and plan it",
    "serve": "answer planning problems over HTTP with a policy, the validator and a planner",
    "dataset": "build problems, plans and training examples as Parquet",
}
"""Commands that work on Ray, with what they do; they are entry points and parse their own arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 when done, 1 when it failed, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    known, rest = parser.parse_known_args(arguments)
    if is_handed_on(known):
        return exit_code_of(lambda: _delegate(known, rest))
    if rest:
        parser.error(f"unrecognised arguments: {' '.join(rest)}")
    if known.command is None:
        parser.print_help()
        return 0
    set_up_logging()
    return exit_code_of(lambda: int(known.work(known)), has_stages=False)


def is_handed_on(known: argparse.Namespace) -> bool:
    """Return whether a command parses what is left of its words itself."""
    words = getattr(known, "command", None), getattr(known, "domains_command", None)
    return words[0] in ("run", *DELEGATED) or words == ("domains", domains.WRITE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith", description="Teach language models to plan in PDDL, and prove that they learned."
    )
    parser.add_argument("--version", action="version", version=f"plansmith {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    names = ", ".join(pipeline_names())
    run = commands.add_parser("run", help=f"run a pipeline ({names}) with a preset", add_help=False)
    run.add_argument("pipeline", nargs="?", help=f"one of {names}")
    for name, help_text in DELEGATED.items():
        commands.add_parser(name, help=help_text, add_help=False)
    report = commands.add_parser("report", help="print the table of a finished run and write its report anew")
    report.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/pddl_instruct-demo")
    report.set_defaults(work=lambda known: _report(known.run))
    validate.add_parser(commands)
    plan.add_parser(commands)
    diagnose.add_parser(commands)
    compare.add_parser(commands)
    problems.add_parser(commands)
    domains.add_parser(commands)
    model.add_parser(commands)
    doctor.add_parser(commands)
    mcp.add_parser(commands)
    watch.add_parser(commands)
    return parser


def _delegate(known: argparse.Namespace, rest: list[str]) -> int:
    if known.command != "run":
        below = getattr(known, "domains_command", None)
        return _command(f"{known.command}-{below}" if below else known.command)(rest)
    if known.pipeline is None:
        options = "[--preset NAME] [--seed N | --seeds FIRST-LAST_OR_COUNT] [--set KEY=VALUE] [--resume] [--dry-run]"
        known_names = f"PIPELINE is one of: {', '.join(pipeline_names())}"
        print(f"usage: plansmith run PIPELINE {options}\n\n{known_names}\n`plansmith run PIPELINE --help` says more.")
        return 0 if {"-h", "--help"} & set(rest) else 2
    return int(_command("run")(find_pipeline(known.pipeline), rest))


def _command(name: str) -> Callable[..., int]:
    """Return a command that works on Ray."""
    (entry,) = entry_points(group=COMMANDS, name=name)
    with no_garbage():
        command: Callable[..., int] = entry.load()
    return command


def _report(run: Path) -> int:
    """Print what the results in a run folder say, be it a run or an ablation, and write its report anew."""
    pipeline = find_pipeline(RunRecord.read(run).pipeline)
    ablations = [study.reporting for study in (pipeline.ablation, *pipeline.studies.values()) if study is not None]
    reporting = next((found for found in ablations if found.is_in(run)), pipeline.reporting)
    print(reporting.write(reporting.read(run), run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
